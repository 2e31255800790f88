//! The report of `nofrag host maps` on one screen: findings, areas and their limit, the room that is left, and what
//! keeps neighbours apart. The rest is in [`super::text`], which `--all` shows.

use std::cmp::{Ordering, Reverse};
use std::path::Path;

use nofrag_host::process::ProcessReport;
use nofrag_host::process::replay::{Outcome, Replayed};

use super::{EXAMPLE, groups, neighbours, placements_of, text};
use crate::host::parts;
use crate::{Cell, Look, hole_map, sentence};

/// The way to what is left out.
const REST: &str = "--all with a PID (or self) shows holes by size, every placement, examples, and the \
                    findings in full.";

/// Rows of a table, where no number is asked for.
const MOST_ROWS: usize = 4;
/// Placements that are shown: those that need fewest areas.
const MOST_PLACEMENTS: usize = 3;

/// Returns the report of a process that `path` describes, on one screen unless `top` asks for more names and reasons.
#[must_use]
pub fn brief(report: &ProcessReport, path: &Path, top: Option<usize>, look: Look) -> String {
    let rows = top.unwrap_or(MOST_ROWS);
    let findings: Vec<_> = report.findings.iter().collect();
    let mut sections = vec![
        text::heading(report, path, look),
        parts::brief_findings(&findings, look),
        text::count(report, look),
        kinds(report, look) + &text::no_access(report, look),
        space(report, look),
    ];
    sections.extend(parts::brief_missing(&report.missing, look));
    if report.neighbours.pairs > 0 {
        sections.push(neighbours(report, rows).without(EXAMPLE).text("", look));
    }
    sections.extend(placements_of(report, &fewest_areas(report)).map(|grid| grid.text("", look)));
    sections.push(groups("name", &report.names, report, rows, text::shortened).text("", look));
    parts::on_screen(sections, REST, top, look)
}

/// Counts the areas of each kind.
fn kinds(report: &ProcessReport, look: Look) -> String {
    let all: u64 = report.kinds.iter().map(|group| group.areas).sum();
    let kinds = report.kinds.iter();
    let kinds = kinds
        .map(|kind| format!("{} {} ({})", kind.areas, kind.name, Cell::share(kind.areas, all)));
    look.wrapped("Kinds: ", &sentence(&kinds.collect::<Vec<_>>().join(", ")))
}

fn space(report: &ProcessReport, look: Look) -> String {
    text::place(&report.space, look)
        + &hole_map(|cells| report.space.draw(cells), "without access", look)
        + &text::largest_mapping(report, look)
}

/// Returns the placements under which the same mappings need fewest areas, then those that leave most huge pages whole.
fn fewest_areas(report: &ProcessReport) -> Vec<&Replayed> {
    let whole = |one: &Outcome, other: &Outcome| -> Ordering {
        let share = |outcome: &Outcome| outcome.huge_share.unwrap_or(0.0);
        Reverse(share(one)).partial_cmp(&Reverse(share(other))).unwrap_or(Ordering::Equal)
    };
    let mut placed: Vec<&Replayed> = report.replay.placements.iter().collect();
    placed.sort_by(|one, other| {
        let (one, other) = (&one.outcome, &other.outcome);
        one.areas.cmp(&other.areas).then_with(|| whole(one, other))
    });
    placed.truncate(MOST_PLACEMENTS);
    placed
}
