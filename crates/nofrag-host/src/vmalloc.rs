//! The vmalloc space of a host: [`survey`] computes a [`VmallocReport`], which is also the schema of
//! `nofrag host vmalloc --json`.
//!
//! Sizes are bytes of address space, guard pages included, unless a name says otherwise; addresses are hexadecimal
//! text, since JSON readers lose digits of numbers above 2^53. A value that could not be had is `null`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::addresses::{self, Addresses};
use crate::fields;
use crate::finding::{self, Finding};
use crate::layout::{Layout, LayoutError, Room};
use crate::picture;
use crate::process::printable;
use crate::region::{self, Bounds, Facts, Region, State};
use crate::source::{Missing, Sources};
use crate::vmallocinfo::{self, Area, Malformed, VmallocKind};

/// The facts about the vmalloc space of one host.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmallocReport {
    pub host: Host,
    pub addresses: Addresses,
    /// The reason why there are no regions; `null` when there are some.
    pub no_regions_because: Option<String>,
    /// Bytes of a page, inferred from the architecture and the sizes; `null` without areas.
    pub page_bytes: Option<u64>,
    pub totals: Totals,
    /// The freed but not yet purged areas, with their limit.
    pub lazy: Lazy,
    /// The areas by kind, largest sum first.
    pub kinds: Vec<Group>,
    /// The live areas by caller, largest sum first.
    pub callers: Vec<Group>,
    /// Backing pages by NUMA node, as far as the file has them.
    pub numa_nodes: Vec<NodePages>,
    /// The spaces, when the addresses are real.
    pub regions: Vec<RegionReport>,
    /// The findings, most urgent first.
    pub findings: Vec<Finding>,
    /// Files that could not be had.
    pub missing: Vec<Missing>,
    /// The first ten lines that could not be read.
    pub malformed: Vec<MalformedLine>,
}

/// Most malformed lines in the list; all are counted in [`Host::malformed_lines`].
pub const MAX_MALFORMED: usize = 10;

/// The host, and the file that was read.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    pub release: Option<String>,
    pub arch: Option<String>,
    pub cpus_online: Option<u32>,
    /// `kernel.kptr_restrict` while the areas were read, so 1 under `--unhash`.
    pub kptr_restrict: Option<u8>,
    /// Value of `VmallocTotal` in bytes.
    pub vmalloc_total_bytes: Option<u64>,
    /// `VmallocUsed`: the memory behind the areas, as the kernel counts it.
    pub vmalloc_used_bytes: Option<u64>,
    /// Size of the file read.
    pub file_bytes: usize,
    /// Number of lines in the file.
    pub lines: u32,
    /// Number of lines that do not describe an area.
    pub malformed_lines: usize,
    /// True if the file ends inside a line.
    pub cut_off: bool,
}

/// Sums over all areas of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    pub areas: u64,
    /// Bytes of address space of all areas.
    pub bytes: u64,
    /// Areas in use: those that are not lazy.
    pub live_areas: u64,
    pub live_bytes: u64,
    /// Pages of memory behind areas.
    pub backed_pages: u64,
}

/// The freed but not yet purged areas.
/// Source: docs/sources/trace.md#t5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lazy {
    pub areas: u64,
    pub bytes: u64,
    /// Bytes of the largest lazy area.
    pub largest_bytes: u64,
    /// Sum of bytes above which the kernel starts a purge; `null` when the number of CPUs is not known.
    pub limit_bytes: Option<u64>,
}

impl Lazy {
    /// Returns true if the bytes of lazy areas exceed the most that the kernel allows: the limit plus one free in
    /// flight, of the largest size, on each CPU.
    #[must_use]
    pub fn is_over_limit(&self, cpus_online: u32) -> bool {
        let in_flight = u64::from(cpus_online).saturating_mul(self.largest_bytes);
        self.limit_bytes.is_some_and(|limit| self.bytes > limit.saturating_add(in_flight))
    }
}

/// Areas of one kind or of one caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// The kind, or the caller's symbol.
    pub name: String,
    pub areas: u64,
    pub bytes: u64,
    /// Pages of memory behind them.
    pub backed_pages: u64,
}

/// Backing pages on one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodePages {
    pub node: u32,
    pub pages: u64,
}

/// A space with its areas and its free ranges.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegionReport {
    pub name: region::Name,
    /// First address of the space.
    #[serde(serialize_with = "as_hex")]
    #[cfg_attr(feature = "schema", schemars(with = "Hex"))]
    pub start: u64,
    /// First address behind the space.
    #[serde(serialize_with = "as_hex")]
    #[cfg_attr(feature = "schema", schemars(with = "Hex"))]
    pub end: u64,
    pub bounds: Bounds,
    pub areas: usize,
    /// Bytes of the areas in use.
    pub live_bytes: u64,
    /// Bytes of the areas freed but not yet purged.
    pub lazy_bytes: u64,
    /// Number of areas left out because an earlier line holds a part of their range.
    pub overlapping_areas: u32,
    /// Free space at present. Lazy areas are not free.
    pub now: Room,
    /// Free space after a full purge.
    pub after_purge: Room,
    /// The region itself, for drawing.
    #[serde(skip)]
    pub region: Region,
}

impl RegionReport {
    /// Draws the region as a line of about `cells` cells.
    #[must_use]
    pub fn draw(&self, cells: usize) -> Vec<picture::Piece> {
        let stroke = |area: &region::Placed| picture::Stroke {
            span: area.span,
            ink: match area.state {
                State::Live => picture::Ink::Solid,
                State::Lazy => picture::Ink::Faint,
            },
        };
        let areas: Vec<_> = self.region.areas.iter().map(stroke).collect();
        picture::draw(self.region.span, &areas, cells)
    }
}

/// A line that does not describe an area.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MalformedLine {
    /// Number of the line, from 1.
    pub line: u32,
    pub problem: String,
}

impl From<&Malformed> for MalformedLine {
    fn from(malformed: &Malformed) -> MalformedLine {
        MalformedLine { line: malformed.line, problem: malformed.problem.to_string() }
    }
}

/// Computes the report from the files that were read. Pure.
///
/// # Errors
/// [`LayoutError::OutOfMemory`] when the layout is too large for this machine.
pub fn survey(sources: &Sources) -> Result<VmallocReport, LayoutError> {
    let parsed = vmallocinfo::parse(&sources.vmallocinfo);
    let areas = &parsed.areas;
    let addresses = addresses::judge(areas);
    let page_bytes = addresses::infer_page_bytes(areas, sources.arch.as_deref());
    let regions = match (addresses, page_bytes) {
        (Addresses::Real, Some(page)) => region_reports(areas, sources, page)?,
        _ => Vec::new(),
    };
    let mut report = VmallocReport {
        host: host(sources, &parsed),
        addresses,
        no_regions_because: finding::why_no_regions(addresses),
        page_bytes,
        totals: totals(areas),
        lazy: lazy(areas, sources.cpus_online),
        kinds: groups(areas.iter().map(|area| (area.kind().into_str().to_owned(), area))),
        callers: groups(areas.iter().filter(|area| !area.is_lazy()).map(|a| (caller_name(a), a))),
        numa_nodes: numa_nodes(areas),
        regions,
        findings: Vec::new(),
        missing: sources.missing.clone(),
        malformed: parsed.malformed.iter().take(MAX_MALFORMED).map(Into::into).collect(),
    };
    report.findings = finding::findings(&report);
    Ok(report)
}

fn host(sources: &Sources, parsed: &vmallocinfo::Parsed<'_>) -> Host {
    Host {
        release: sources.release.clone(),
        arch: sources.arch.clone(),
        cpus_online: sources.cpus_online,
        kptr_restrict: sources.kptr_restrict,
        vmalloc_total_bytes: sources.vmalloc_total,
        vmalloc_used_bytes: sources.vmalloc_used,
        file_bytes: sources.vmallocinfo.len(),
        lines: parsed.lines,
        malformed_lines: parsed.malformed.len(),
        cut_off: parsed.cut_off,
    }
}

fn totals(areas: &[Area<'_>]) -> Totals {
    let mut totals = Totals::default();
    for area in areas {
        totals.areas += 1;
        totals.bytes = totals.bytes.saturating_add(area.size);
        totals.backed_pages = totals.backed_pages.saturating_add(area.pages.unwrap_or(0));
        if !area.is_lazy() {
            totals.live_areas += 1;
            totals.live_bytes = totals.live_bytes.saturating_add(area.size);
        }
    }
    totals
}

fn lazy(areas: &[Area<'_>], cpus_online: Option<u32>) -> Lazy {
    let limit_bytes = cpus_online.map(fields::lazy_limit_bytes);
    let mut lazy = Lazy { limit_bytes, ..Lazy::default() };
    for area in areas.iter().filter(|area| area.is_lazy()) {
        lazy.areas += 1;
        lazy.bytes = lazy.bytes.saturating_add(area.size);
        lazy.largest_bytes = lazy.largest_bytes.max(area.size);
    }
    lazy
}

fn caller_name(area: &Area<'_>) -> String {
    match area.caller_symbol() {
        Some(symbol) => symbol.to_string(),
        None if area.kind() == VmallocKind::VmMapRam => "vm_map_ram".to_owned(),
        None => "(none given)".to_owned(),
    }
}

fn groups<'a>(named: impl Iterator<Item = (String, &'a Area<'a>)>) -> Vec<Group> {
    let mut by_name: BTreeMap<String, Group> = BTreeMap::new();
    for (name, area) in named {
        let group = by_name.entry(printable(&name)).or_insert_with_key(|name| Group {
            name: name.clone(),
            areas: 0,
            bytes: 0,
            backed_pages: 0,
        });
        group.areas += 1;
        group.bytes = group.bytes.saturating_add(area.size);
        group.backed_pages = group.backed_pages.saturating_add(area.pages.unwrap_or(0));
    }
    let mut groups: Vec<Group> = by_name.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
    groups
}

fn numa_nodes(areas: &[Area<'_>]) -> Vec<NodePages> {
    let mut by_node: BTreeMap<u32, u64> = BTreeMap::new();
    for (node, pages) in areas.iter().flat_map(|area| area.nodes()) {
        let sum = by_node.entry(node).or_default();
        *sum = sum.saturating_add(pages);
    }
    by_node.into_iter().map(|(node, pages)| NodePages { node, pages }).collect()
}

fn region_reports(
    areas: &[Area<'_>],
    sources: &Sources,
    page_bytes: u64,
) -> Result<Vec<RegionReport>, LayoutError> {
    let version = sources.release.as_deref().and_then(|text| fields::release_version(text).ok());
    let facts = Facts {
        arch: sources.arch.as_deref(),
        version,
        vmalloc_total: sources.vmalloc_total,
        page_bytes: Some(page_bytes),
    };
    let regions = region::regions(areas, &facts);
    regions.into_iter().map(|region| region_report(region, page_bytes)).collect()
}

fn region_report(region: Region, page_bytes: u64) -> Result<RegionReport, LayoutError> {
    let mut layout = Layout::load(&region, page_bytes)?;
    let now = layout.room();
    layout.purge()?;
    let sum = |state: State| {
        let of_state = region.areas.iter().filter(|area| area.state == state);
        of_state.map(|area| area.span.len()).fold(0, u64::saturating_add)
    };
    Ok(RegionReport {
        name: region.name,
        start: region.span.start(),
        end: region.span.end(),
        bounds: region.bounds.clone(),
        areas: region.areas.len(),
        live_bytes: sum(State::Live),
        lazy_bytes: sum(State::Lazy),
        overlapping_areas: layout.overlaps(),
        now,
        after_purge: layout.room(),
        region,
    })
}

/// The schema of what [`as_hex`] writes.
#[cfg(feature = "schema")]
pub(crate) enum Hex {}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Hex {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Hex".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "An address in hexadecimal.",
            "type": "string",
            "pattern": "^0x[0-9a-f]{16}$",
        })
    }
}

pub(crate) fn as_hex<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{address:#018x}"))
}
