//! The address space of a process: [`survey`] computes a [`ProcessReport`], which is also the schema of
//! `nofrag host maps --json`.
//!
//! Sizes are bytes of address space; addresses are hexadecimal text; a value that could not be had is `null`.

pub mod blockers;
pub mod finding;
pub mod growth;
pub mod ranking;
pub mod replay;
pub mod room;
pub mod window;

use std::collections::BTreeMap;

use nofrag::mmap::Direction;
use nofrag::ranges::Span;
use serde::Serialize;
use thiserror::Error;

use self::blockers::Neighbours;
use self::growth::{Earlier, Growth};
use self::replay::{Replay, Which};
use self::room::{Headroom, Room};
use self::window::{Certainty, Width, Window, is_inside};
use crate::fields::Limit;
use crate::finding::Finding;
use crate::layout::LayoutError;
use crate::picture::{self, Ink, Stroke};
use crate::proc_maps::{Access, Area, MapKind};
use crate::source::Missing;
use crate::source::process::{MapsFile, Sources};
use crate::vmalloc::{MAX_MALFORMED, MalformedLine, as_hex};

/// The facts about the address space of one process.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessReport {
    /// The process, and the file that was read.
    pub process: Process,
    /// The number of areas, with its limit.
    pub count: Count,
    /// The change of the areas since an earlier look; `null` without one.
    pub growth: Option<Growth>,
    /// Sum of the bytes of all areas.
    pub mapped_bytes: u64,
    /// The areas by kind, most areas first.
    pub kinds: Vec<Group>,
    /// The areas by name, most areas first.
    pub names: Vec<Group>,
    /// Memory without any access: guards and reservations.
    pub no_access: NoAccess,
    pub space: Space,
    /// The pairs of neighbours, by the attribute that keeps them apart.
    pub neighbours: Neighbours,
    /// The same mappings under other placements.
    pub replay: Replay,
    /// The findings, most urgent first.
    pub findings: Vec<Finding>,
    /// Files that could not be had.
    pub missing: Vec<Missing>,
    /// The first ten lines that could not be read.
    pub malformed: Vec<MalformedLine>,
}

/// The process, and the file that was read.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    pub pid: Option<u32>,
    pub name: Option<String>,
    pub threads: Option<u64>,
    pub release: Option<String>,
    pub arch: Option<String>,
    /// The file with the areas.
    pub file: MapsFile,
    /// Size of the file.
    pub file_bytes: u64,
    /// Number of lines in the file.
    pub lines: u32,
    /// Number of lines that cannot be read.
    pub malformed_lines: usize,
    /// True if the file ends inside a line.
    pub cut_off: bool,
    pub page_bytes: u64,
    /// `RLIMIT_STACK`: a number of bytes or `unlimited`.
    pub stack_limit: Option<Limit>,
    /// `RLIMIT_AS`: a number of bytes or `unlimited`.
    pub address_space_limit: Option<Limit>,
}

/// The number of areas, with its limit (docs/sources/mmap.md#map-count).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Count {
    /// Areas that the kernel counts: all listed ones except `[vsyscall]`.
    pub areas: u64,
    pub limit: Option<u64>,
    /// Areas that may still be added; at zero, a call that splits an area fails: `munmap` of its middle, `mprotect`.
    pub left: Option<u64>,
    /// Areas of three or more pages: those into which `munmap` can cut a hole, so that it needs another area.
    pub can_be_split: u64,
}

impl Count {
    /// Returns the share of the limit that is used; `None` if the limit is not known.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        self.limit.map(|limit| self.areas as f64 / limit.max(1) as f64)
    }
}

/// Areas of one kind or of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// The kind or the name.
    pub name: String,
    pub areas: u64,
    pub bytes: u64,
}

/// Areas without any access, and the guards among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoAccess {
    pub areas: u64,
    pub bytes: u64,
    /// Areas of up to 1 MiB beside an area with some access: guards, most likely.
    pub guard_areas: u64,
    pub guard_bytes: u64,
}

/// The address space and its free ranges.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Space {
    /// The lowest address that may be mapped.
    #[serde(serialize_with = "as_hex")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::vmalloc::Hex"))]
    pub start: u64,
    /// One above the highest address that may be mapped.
    #[serde(serialize_with = "as_hex")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::vmalloc::Hex"))]
    pub end: u64,
    pub width: Width,
    pub certainty: Certainty,
    /// The reason for the end and its certainty.
    pub why: String,
    /// `down` or `up`: the direction in which placement searches.
    pub direction: &'static str,
    /// The reason for the direction.
    pub direction_why: &'static str,
    pub room: Room,
    pub headroom: Headroom,
    #[serde(skip)]
    strokes: Vec<Stroke>,
}

impl Space {
    /// Draws the space as a line of about `cells` cells; memory without access is faint.
    #[must_use]
    pub fn draw(&self, cells: usize) -> Vec<picture::Piece> {
        let Ok(span) = Span::new(self.start, self.end) else { return Vec::new() };
        picture::draw(span, &self.strokes, cells)
    }
}

/// The reason why no report could be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// The file lists no area of a process.
    #[error("the file lists no area{}", first(.malformed))]
    NoAreas {
        /// The first line that could not be read.
        malformed: Option<MalformedLine>,
    },
    /// The layout is too large for this machine.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

fn first(malformed: &Option<MalformedLine>) -> String {
    let text = |line: &MalformedLine| format!("; line {}: {}", line.line, line.problem);
    malformed.as_ref().map_or(String::new(), text)
}

/// Returns the time at which the process started, in ticks since the host did; `None` if there is no such process. The
/// number and this time together name one process, which the number alone does not.
#[must_use]
pub fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in brackets, which may have blanks and brackets; the start time is the 22nd.
    let behind = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[behind..]).ok()?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Computes the report from the files that were read. Pure.
///
/// # Errors
/// Those of [`SurveyError`].
pub fn survey(
    sources: &Sources,
    earlier: Option<&Earlier>,
    which: Which,
) -> Result<ProcessReport, SurveyError> {
    let areas = &sources.parsed.areas;
    let malformed: Vec<MalformedLine> =
        sources.parsed.malformed.iter().take(MAX_MALFORMED).map(malformed_line).collect();
    let window = Window::of(sources)
        .ok_or_else(|| SurveyError::NoAreas { malformed: malformed.first().cloned() })?;
    let mut report = ProcessReport {
        process: process(sources, &window),
        count: count(areas, sources.max_map_count, &window),
        growth: earlier.map(|e| growth::growth(e, &sources.parsed, sources.max_map_count)),
        mapped_bytes: areas.iter().filter(|area| is_inside(area)).map(Area::bytes).sum(),
        kinds: groups(areas.iter().map(|area| (area.kind().into_str().to_owned(), area))),
        names: groups(areas.iter().map(|area| (group_name(area), area))),
        no_access: no_access(areas),
        space: space(sources, &window)?,
        neighbours: blockers::neighbours(areas, &window)?,
        replay: replay::replay(areas, &window, which)?,
        findings: Vec::new(),
        missing: sources.missing.clone(),
        malformed,
    };
    report.findings = finding::findings(&report);
    Ok(report)
}

fn malformed_line(malformed: &crate::proc_maps::Malformed) -> MalformedLine {
    let problem = format!("{}; {}", malformed.problem, malformed.problem.help());
    MalformedLine { line: malformed.line, problem }
}

fn process(sources: &Sources, window: &Window) -> Process {
    let parsed = &sources.parsed;
    Process {
        pid: sources.pid,
        name: sources.name.as_deref().map(printable),
        threads: sources.threads,
        release: sources.release.as_deref().map(printable),
        arch: sources.arch.as_deref().map(printable),
        file: sources.file,
        file_bytes: parsed.bytes,
        lines: parsed.lines,
        malformed_lines: parsed.malformed.len(),
        cut_off: parsed.cut_off,
        page_bytes: window.page.bytes(),
        stack_limit: sources.stack_limit,
        address_space_limit: sources.address_space_limit,
    }
}

fn count(areas: &[Area], limit: Option<u64>, window: &Window) -> Count {
    let counted = || areas.iter().filter(|area| area.is_counted());
    let count = counted().count() as u64;
    let can_be_split = counted().filter(|area| area.bytes() / window.page.bytes() >= 3).count();
    Count {
        areas: count,
        limit,
        left: limit.map(|limit| limit.saturating_sub(count)),
        can_be_split: can_be_split as u64,
    }
}

fn groups<'a>(named: impl Iterator<Item = (String, &'a Area)>) -> Vec<Group> {
    let mut by_name: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (name, area) in named {
        let (areas, bytes) = by_name.entry(name).or_default();
        *areas += 1;
        *bytes = bytes.saturating_add(area.bytes());
    }
    let group = |(name, (areas, bytes))| Group { name, areas, bytes };
    let mut groups: Vec<Group> = by_name.into_iter().map(group).collect();
    groups.sort_by_key(|group| std::cmp::Reverse((group.areas, group.bytes)));
    groups
}

/// Returns the name under which an area is summed up. Anonymous memory without a name has three, by its access.
fn group_name(area: &Area) -> String {
    match area.kind() {
        MapKind::NoAccess if area.name.is_empty() => "(no access)".to_owned(),
        MapKind::Anonymous if area.name.is_empty() && area.access.has(Access::EXECUTE) => {
            "(anonymous, executable)".to_owned()
        }
        _ if area.name.is_empty() => blockers::short_name(area),
        _ => printable(&area.name),
    }
}

/// Replaces control characters: names come from outside and must not control the terminal.
pub(crate) fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn no_access(areas: &[Area]) -> NoAccess {
    let mut sums = NoAccess::default();
    for (index, area) in areas.iter().enumerate() {
        if area.access != Access::NONE || !is_inside(area) {
            continue;
        }
        sums.areas += 1;
        sums.bytes += area.bytes();
        let usable = |other: &&Area| other.access != Access::NONE;
        let below = index.checked_sub(1).and_then(|below| areas.get(below)).filter(usable);
        let above = areas.get(index + 1).filter(usable);
        let beside = below.is_some_and(|below| below.end == area.start)
            || above.is_some_and(|above| above.start == area.end);
        if beside && area.bytes() <= replay::GUARD_BYTES {
            sums.guard_areas += 1;
            sums.guard_bytes += area.bytes();
        }
    }
    sums
}

fn space(sources: &Sources, window: &Window) -> Result<Space, LayoutError> {
    let areas = &sources.parsed.areas;
    let stroke = |area: &Area| {
        let ink = if area.access == Access::NONE { Ink::Faint } else { Ink::Solid };
        let span = Span::new(area.start, area.end).ok()?;
        Some(Stroke { span, ink })
    };
    Ok(Space {
        start: window.span.start(),
        end: window.span.end(),
        width: window.width,
        certainty: window.certainty,
        why: window.why.clone(),
        direction: match window.direction {
            Direction::Up => "up",
            Direction::Down => "down",
        },
        direction_why: window.direction_why,
        room: room::room(areas, window)?,
        headroom: room::headroom(areas, window, sources.address_space_limit, sources.max_map_count),
        strokes: areas.iter().filter(|area| is_inside(area)).filter_map(stroke).collect(),
    })
}
