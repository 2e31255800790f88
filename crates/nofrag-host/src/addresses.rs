//! Tells whether the addresses of a `/proc/vmallocinfo` may be believed.
//!
//! The kernel prints kernel addresses to nobody by default: it replaces each by a hash of 32 bits, the same for equal
//! addresses, even for root (`kernel.kptr_restrict` 0). With 2, or with 1 for a reader without `CAP_SYSLOG`, it prints
//! zeros; before it has random numbers, `(____ptrval____)`. A layout drawn from hashes or zeros would be nonsense that
//! looks like a result, so every reader of addresses asks [`judge`] first.
//!
//! The setting alone proves nothing (`no_hash_pointers` on the kernel's command line prints real addresses under 0, and
//! a captured setting may belong to another moment), so the text itself is judged. Sizes are never hashed: in a real
//! range the end is the start plus the size. For a hashed pair that holds with a probability of 2^-32.
//!
//! Source: docs/sources/trace.md#t4.

use serde::Serialize;

use crate::vmallocinfo::Area;

/// The verdict on the printed addresses of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Addresses {
    /// Real: each range is as long as its size, page-aligned, and of the kernel.
    Real,
    /// Hashed: no range is as long as its size.
    Hashed,
    Zeroed,
    /// Withheld until the kernel has random numbers.
    Withheld,
    /// Some ranges are as long as their size and some are not: no kernel prints such a file.
    Inconsistent {
        /// Number of the first line whose range is impossible.
        line: u32,
    },
    /// The file lists no area.
    NoAreas,
}

/// The smallest page that Linux has.
const MIN_PAGE: u64 = 4096;

/// Judges the addresses of all areas of one file. O(areas).
#[must_use]
pub fn judge(areas: &[Area<'_>]) -> Addresses {
    if areas.is_empty() {
        return Addresses::NoAreas;
    }
    let first_impossible = areas.iter().find(|area| !is_possible(area));
    let Some(first_impossible) = first_impossible else {
        return Addresses::Real;
    };
    if areas.iter().any(is_possible) {
        return Addresses::Inconsistent { line: first_impossible.line };
    }
    if areas.iter().any(|area| area.printed.is_none()) {
        return Addresses::Withheld;
    }
    let is_zero = |area: &Area<'_>| area.printed.is_some_and(|p| p.start == 0 && p.end == 0);
    if areas.iter().all(is_zero) { Addresses::Zeroed } else { Addresses::Hashed }
}

/// Returns true if the range can be that of a kernel area.
fn is_possible(area: &Area<'_>) -> bool {
    let Some(printed) = area.printed else { return false };
    // A kernel range lies above what a hash of 32 bits can reach; on a 32-bit kernel above the lowest gigabyte of
    // processes.
    let lowest = if printed.digits > 8 { 1 << 32 } else { 0x4000_0000 };
    printed.start >= lowest
        && printed.start.is_multiple_of(MIN_PAGE)
        && area.size > 0
        && area.size.is_multiple_of(MIN_PAGE)
        && printed.end.checked_sub(printed.start) == Some(area.size)
}

/// The page sizes that Linux has on some architecture with a choice, largest first.
const PAGES: [u64; 3] = [64 << 10, 16 << 10, MIN_PAGE];

/// Returns the size of a page, which the file does not state: 4 KiB where the architecture has no other, else the
/// largest that divides every size, and every address that is real. `None` without areas.
#[must_use]
pub fn infer_page_bytes(areas: &[Area<'_>], arch: Option<&str>) -> Option<u64> {
    if areas.is_empty() {
        return None;
    }
    if matches!(arch, Some("x86_64" | "i686" | "s390x")) {
        return Some(MIN_PAGE);
    }
    let bits = areas.iter().fold(0, |bits, area| {
        let real = area.printed.filter(|_| is_possible(area));
        bits | area.size | real.map_or(0, |printed| printed.start)
    });
    Some(PAGES.into_iter().find(|page| bits.is_multiple_of(*page)).unwrap_or(MIN_PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmallocinfo::parse;

    fn check_judge(text: &str, expected: Addresses) {
        let parsed = parse(text.as_bytes());
        assert_eq!(parsed.malformed, []);
        assert_eq!(judge(&parsed.areas), expected, "{text}");
    }

    #[test]
    fn each_state_is_told_from_the_text() {
        check_judge("", Addresses::NoAreas);
        check_judge("0xffffc90000000000-0xffffc90000005000 20480 vmap", Addresses::Real);
        check_judge("0x0000037fe0000000-0x0000037fe0005000 20480 vmap", Addresses::Real);
        check_judge("0xf0800000-0xf0805000 20480 vmap", Addresses::Real);
        check_judge("0x00000000f80307aa-0x00000000b34c984c 20480 vmap", Addresses::Hashed);
        check_judge("0x0000000000000000-0x0000000000000000 20480 vmap", Addresses::Zeroed);
        check_judge("0x(____ptrval____)-0x(____ptrval____) 20480 vmap", Addresses::Withheld);
    }

    /// Judges a hashed pair that by chance is as far apart as the size: the pair still lies below 4 GiB.
    #[test]
    fn a_lucky_hash_is_not_believed() {
        check_judge("0x00000000f8030000-0x00000000f8035000 20480 vmap", Addresses::Hashed);
    }

    #[test]
    fn a_mixture_is_refused() {
        let text = "0xffffc90000000000-0xffffc90000005000 20480 vmap\n\
                    0xffffc90000008000-0xffffc90000009000 20480 vmap\n";
        check_judge(text, Addresses::Inconsistent { line: 2 });
    }

    #[test]
    fn page_size_from_sizes() {
        let page = |text: &str, arch| infer_page_bytes(&parse(text.as_bytes()).areas, arch);
        assert_eq!(page("", Some("x86_64")), None);
        assert_eq!(page("0x0-0x0 20480 vmap", None), Some(4096));
        assert_eq!(page("0x0-0x0 131072 vmap\n0x0-0x0 196608 vmap", Some("aarch64")), Some(65_536));
        assert_eq!(page("0x0-0x0 131072 vmap", Some("x86_64")), Some(4096));
        assert_eq!(page("0xffff800080004000-0xffff800080024000 131072 vmap", None), Some(16_384));
        assert_eq!(page("0x0-0x0 1 vmap", None), Some(4096));
    }
}
