//! The spaces in which the areas lie, and the certainty of the spaces' bounds.
//!
//! One file lists areas of several spaces. On x86-64 the modules (and the programs that BPF compiles) have a space of
//! their own in the highest 2 GiB; the rest is the vmalloc range of 32 TiB (4-level page tables) or 12,800 TiB
//! (5-level), in which per-CPU memory is taken from the top down. On arm64 since 6.5 the modules have the 2 GiB below
//! the vmalloc range.
//!
//! No file states the bounds of the vmalloc range, and x86-64 randomises its start at boot. But `VmallocTotal` of
//! `/proc/meminfo` states its length, every area lies inside, and the start is a multiple of 1 GiB there. That leaves
//! few starts, and exactly one where an area lies near each end, the usual case where per-CPU memory exists: [`Bounds`]
//! tells the cases apart.

use nofrag::ranges::Span;
use serde::Serialize;

use crate::vmallocinfo::Area;

/// Facts about the host beside its areas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Text of `/proc/sys/kernel/arch`: `x86_64`, `aarch64`.
    pub arch: Option<&'a str>,
    /// First two numbers of the kernel's release.
    pub version: Option<(u32, u32)>,
    /// `VmallocTotal` of `/proc/meminfo`, in bytes.
    pub vmalloc_total: Option<u64>,
    pub page_bytes: Option<u64>,
}

/// Name of the space of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[non_exhaustive]
pub enum Name {
    Vmalloc,
    /// The space of modules and compiled BPF programs.
    Modules,
}

/// Certainty of the bounds of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Bounds {
    /// Only these bounds are possible.
    Exact { why: String },
    /// The region may begin up to `slack_bytes` lower; the vmalloc range, whose length is known, then ends as much
    /// lower, the module space does not.
    Assumed { slack_bytes: u64, why: String },
    /// The bounds are those of the lowest and the highest area; free space outside is not known, so all figures are
    /// lower bounds.
    Observed { why: String },
}

impl Bounds {
    /// Returns the reason for the verdict on the bounds.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Bounds::Exact { why } | Bounds::Assumed { why, .. } | Bounds::Observed { why } => why,
        }
    }
}

/// An area whose printed addresses are taken for real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    pub span: Span,
    pub state: State,
    /// Number of the area's line in `/proc/vmallocinfo`, from 1.
    pub line: u32,
}

/// State of an area: in use, or freed and not yet flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Live,
    Lazy,
}

/// A space and its areas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub name: Name,
    pub span: Span,
    pub bounds: Bounds,
    /// The areas of the region, by address.
    pub areas: Vec<Placed>,
}

const GIB: u64 = 1 << 30;
const X86_64_MODULES: u64 = 0xffff_ffff_a000_0000;
const X86_64_MODULES_RANDOMISED: u64 = 0xffff_ffff_c000_0000;
const X86_64_MODULES_END: u64 = 0xffff_ffff_ff00_0000;
const X86_64_KERNEL_IMAGE: u64 = 0xffff_ffff_8000_0000;
const ARM64_MODULES: u64 = 0xffff_8000_0000_0000;
const ARM64_MODULES_END: u64 = 0xffff_8000_8000_0000;

/// Distributes areas whose addresses are real over the regions. O(n log n).
#[must_use]
pub fn regions(areas: &[Area<'_>], facts: &Facts<'_>) -> Vec<Region> {
    let mut placed: Vec<Placed> = areas.iter().filter_map(place).collect();
    placed.sort_unstable();
    let is_module = |area: &Placed| in_module_space(area.span, facts);
    let (modules, vmalloc): (Vec<_>, Vec<_>) = placed.into_iter().partition(is_module);
    let vmalloc = region(Name::Vmalloc, vmalloc, |hull| vmalloc_bounds(hull, facts));
    let modules = region(Name::Modules, modules, |hull| module_bounds(hull, facts));
    vmalloc.into_iter().chain(modules).collect()
}

fn place(area: &Area<'_>) -> Option<Placed> {
    let printed = area.printed?;
    let span = Span::new(printed.start, printed.end).ok()?;
    let state = if area.is_lazy() { State::Lazy } else { State::Live };
    Some(Placed { span, state, line: area.line })
}

fn in_module_space(span: Span, facts: &Facts<'_>) -> bool {
    match facts.arch {
        Some("x86_64") => span.start() >= X86_64_KERNEL_IMAGE,
        // Before 6.5 the boundary lay elsewhere; then the spaces are not separated, and the bounds come out as
        // observed.
        Some("aarch64") if facts.version >= Some((6, 5)) => {
            ARM64_MODULES <= span.start() && span.end() <= ARM64_MODULES_END
        }
        _ => false,
    }
}

fn region(
    name: Name,
    areas: Vec<Placed>,
    bounds: impl FnOnce(Span) -> (Span, Bounds),
) -> Option<Region> {
    let start = areas.first()?.span.start();
    let end = areas.iter().map(|area| area.span.end()).max()?;
    let hull = Span::new(start, end).expect("the hull of a non-empty span is not empty");
    let (span, bounds) = bounds(hull);
    Some(Region { name, span, bounds, areas })
}

/// Returns the vmalloc range around `hull`, the span from the lowest to the highest area, and how surely its bounds are
/// known.
fn vmalloc_bounds(hull: Span, facts: &Facts<'_>) -> (Span, Bounds) {
    let observed = |why: &str| (hull, Bounds::Observed { why: why.to_owned() });
    let Some(total) = facts.vmalloc_total else {
        return observed("no VmallocTotal, so the length is not known");
    };
    // x86-64 prints a length that ends one byte early.
    let page = facts.page_bytes.unwrap_or(4096);
    let total = total.checked_next_multiple_of(page).unwrap_or(u64::MAX);
    let (step, multiple) =
        if facts.arch == Some("x86_64") { (GIB, "1 GiB") } else { (1 << 16, "64 KiB") };
    let highest_start = hull.start() - hull.start() % step;
    let lowest_start = hull.end().saturating_sub(total).checked_next_multiple_of(step);
    let Some(lowest_start) = lowest_start.filter(|&lowest| lowest <= highest_start) else {
        return observed("the areas lie farther apart than VmallocTotal is long");
    };
    let Ok(span) = Span::sized(highest_start, total) else {
        return observed("VmallocTotal from the lowest area on exceeds the address space");
    };
    let why = |starts: &str| {
        format!(
            "VmallocTotal gives the length; {starts} at a multiple of {multiple} holds every area"
        )
    };
    let bounds = match highest_start - lowest_start {
        0 => Bounds::Exact { why: why("only this start") },
        slack_bytes => Bounds::Assumed { slack_bytes, why: why("the highest start") },
    };
    (span, bounds)
}

/// Returns the module space around `hull`, and how surely its bounds are known.
fn module_bounds(hull: Span, facts: &Facts<'_>) -> (Span, Bounds) {
    let documented = "the architecture's documented module space";
    let (start, end) = match facts.arch {
        Some("x86_64") if hull.start() >= X86_64_MODULES_RANDOMISED => {
            (X86_64_MODULES_RANDOMISED, X86_64_MODULES_END)
        }
        Some("x86_64") => (X86_64_MODULES, X86_64_MODULES_END),
        _ => (ARM64_MODULES, ARM64_MODULES_END),
    };
    let span = Span::new(start, end).expect("the documented bounds are in order");
    if !span.covers(hull) {
        let why = format!("an area lies outside {documented}");
        return (hull, Bounds::Observed { why });
    }
    if start != X86_64_MODULES_RANDOMISED {
        return (span, Bounds::Exact { why: documented.to_owned() });
    }
    let why =
        format!("{documented} of a kernel built for a random base; otherwise it begins lower");
    (span, Bounds::Assumed { slack_bytes: X86_64_MODULES_RANDOMISED - X86_64_MODULES, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmallocinfo::parse;

    const TIB: u64 = 1 << 40;
    const X86: Facts<'_> = Facts {
        arch: Some("x86_64"),
        version: Some((6, 18)),
        vmalloc_total: Some(32 * TIB - 1024),
        page_bytes: Some(4096),
    };

    fn check_regions(spans: &[(u64, u64)], facts: &Facts<'_>, expected: &[(Name, u64, u64, &str)]) {
        let line = |&(start, end): &(u64, u64)| {
            format!("0x{start:016x}-0x{end:016x} {} vmap\n", end - start)
        };
        let text: String = spans.iter().map(line).collect();
        let parsed = parse(text.as_bytes());
        let found = regions(&parsed.areas, facts);
        let found: Vec<_> = found
            .iter()
            .map(|r| (r.name, r.span.start(), r.span.end(), r.bounds.into_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn areas_at_both_ends_make_the_bounds_exact() {
        check_regions(
            &[
                (0xffff_c900_0000_c000, 0xffff_c900_0001_1000),
                (0xffff_e8ff_ffc0_0000, 0xffff_e8ff_ffe0_0000),
            ],
            &X86,
            &[(Name::Vmalloc, 0xffff_c900_0000_0000, 0xffff_e900_0000_0000, "exact")],
        );
    }

    #[test]
    fn without_an_area_at_the_top_the_start_is_assumed() {
        check_regions(
            &[(0xffff_c900_0000_c000, 0xffff_c900_0001_1000)],
            &X86,
            &[(Name::Vmalloc, 0xffff_c900_0000_0000, 0xffff_e900_0000_0000, "assumed")],
        );
    }

    #[test]
    fn five_levels_come_from_the_total() {
        let facts = Facts { vmalloc_total: Some(12_800 * TIB - 1024), ..X86 };
        check_regions(
            &[
                (0xffa0_0000_0000_0000, 0xffa0_0000_0000_5000),
                (0xffd1_ffff_ffc0_0000, 0xffd1_ffff_ffe0_0000),
            ],
            &facts,
            &[(Name::Vmalloc, 0xffa0_0000_0000_0000, 0xffd2_0000_0000_0000, "exact")],
        );
    }

    #[test]
    fn modules_are_apart() {
        check_regions(
            &[
                (0xffff_c900_0000_c000, 0xffff_c900_0001_1000),
                (0xffff_ffff_c020_1000, 0xffff_ffff_c020_3000),
            ],
            &X86,
            &[
                (Name::Vmalloc, 0xffff_c900_0000_0000, 0xffff_e900_0000_0000, "assumed"),
                (Name::Modules, 0xffff_ffff_c000_0000, 0xffff_ffff_ff00_0000, "assumed"),
            ],
        );
        check_regions(
            &[(0xffff_ffff_a020_1000, 0xffff_ffff_a020_3000)],
            &X86,
            &[(Name::Modules, 0xffff_ffff_a000_0000, 0xffff_ffff_ff00_0000, "exact")],
        );
    }

    #[test]
    fn what_contradicts_the_facts_is_only_observed() {
        let spans = [
            (0xffff_c900_0000_c000, 0xffff_c900_0001_1000),
            (0xffff_f900_0000_0000, 0xffff_f900_0000_1000),
        ];
        let expected = [(Name::Vmalloc, 0xffff_c900_0000_c000, 0xffff_f900_0000_1000, "observed")];
        check_regions(&spans, &X86, &expected);
        check_regions(&spans, &Facts::default(), &expected);
        check_regions(
            &[(0xffff_ffff_9000_0000, 0xffff_ffff_9000_1000)],
            &X86,
            &[(Name::Modules, 0xffff_ffff_9000_0000, 0xffff_ffff_9000_1000, "observed")],
        );
    }

    #[test]
    fn arm64_modules_lie_below() {
        let facts = Facts {
            arch: Some("aarch64"),
            version: Some((6, 12)),
            vmalloc_total: Some(0xffff_fbff_f000_0000 - 0xffff_8000_8000_0000),
            page_bytes: Some(4096),
        };
        check_regions(
            &[
                (0xffff_8000_0000_5000, 0xffff_8000_0000_7000),
                (0xffff_8000_8000_0000, 0xffff_8000_8000_5000),
            ],
            &facts,
            &[
                (Name::Vmalloc, 0xffff_8000_8000_0000, 0xffff_fbff_f000_0000, "assumed"),
                (Name::Modules, 0xffff_8000_0000_0000, 0xffff_8000_8000_0000, "exact"),
            ],
        );
    }

    /// Checks that areas, and a `VmallocTotal`, near the top of `u64` overflow nothing: the bounds are then only
    /// observed.
    #[test]
    fn the_highest_addresses() {
        check_regions(
            &[(0xffff_ffff_7fff_f000, 0xffff_ffff_ffff_f000)],
            &X86,
            &[(Name::Vmalloc, 0xffff_ffff_7fff_f000, 0xffff_ffff_ffff_f000, "observed")],
        );
        let facts = Facts { vmalloc_total: Some(u64::MAX), ..Facts::default() };
        check_regions(
            &[(0x1_0000_0000, 0x1_0000_1000)],
            &facts,
            &[(Name::Vmalloc, 0x1_0000_0000, 0x1_0000_1000, "observed")],
        );
    }
}
