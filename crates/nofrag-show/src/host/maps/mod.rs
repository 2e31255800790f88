//! `nofrag host maps`: the address space of a process.

mod brief;
mod page;
mod text;

use nofrag_host::process::blockers::BlockerGroup;
use nofrag_host::process::finding::reason;
use nofrag_host::process::replay::{Outcome, Replayed};
use nofrag_host::process::{Group, ProcessReport};

pub use brief::brief;
pub use page::page;
pub use text::text;

use super::parts::others;
use crate::{Cell, Table, bytes, cells, fixed, percent};

/// Returns the first `most` groups of areas by `what`, the others together.
fn groups(
    what: &str,
    groups: &[Group],
    report: &ProcessReport,
    most: usize,
    name: fn(&str) -> String,
) -> Table {
    let mut grid = Table::new(&[what, "areas", "share", "bytes"]);
    let listed: u64 = report.kinds.iter().map(|group| group.areas).sum();
    let mut row = |name: String, areas: u64, bytes: u64| {
        grid.row(cells![name, areas, Cell::share(areas, listed), crate::bytes(bytes)]);
    };
    let (shown, rest) = groups.split_at(groups.len().min(most));
    shown.iter().for_each(|group| row(name(&group.name), group.areas, group.bytes));
    if !rest.is_empty() {
        let areas = rest.iter().map(|group| group.areas).sum();
        row(others(rest.len()), areas, rest.iter().map(|group| group.bytes).sum());
    }
    grid
}

/// The column of examples in [`neighbours`].
const EXAMPLE: &str = "the first of them";

/// Returns the reasons for which neighbours are not one area: the first `most` of them, and all pairs.
fn neighbours(report: &ProcessReport, most: usize) -> Table {
    let neighbours = &report.neighbours;
    let mut grid =
        Table::new(&["neighbours stay apart by", EXAMPLE, "pairs", "share"]).with_texts(2);
    let mut row = |name: String, example: String, pairs: u64| {
        grid.row(cells![name, example, pairs, Cell::share(pairs, neighbours.pairs)]);
    };
    let example = |group: &BlockerGroup| {
        group.examples.first().map_or_else(String::new, |example| {
            format!("{}, below it {}, at {:#x}", example.above, example.below, example.at)
        })
    };
    let (shown, rest) = neighbours.groups.split_at(neighbours.groups.len().min(most));
    shown.iter().for_each(|group| row(reason(group), example(group), group.pairs));
    if !rest.is_empty() {
        let pairs = rest.iter().map(|group| group.pairs).sum();
        row(others(rest.len()), String::new(), pairs);
    }
    grid.row(cells!["all", "", neighbours.pairs]);
    grid
}

/// Returns the results of other placements of the same mappings; `None` where none was tried.
fn placements(report: &ProcessReport) -> Option<Table> {
    placements_of(report, &report.replay.placements.iter().collect::<Vec<_>>())
}

/// Returns the results of some of the placements; `None` for none.
fn placements_of(report: &ProcessReport, placements: &[&Replayed]) -> Option<Table> {
    let mut grid = Table::new(&[
        "the same mappings",
        "areas",
        "holes",
        "bytes",
        "ratio",
        "largest hole",
        "2 MiB whole",
    ]);
    let mut row = |name: String, outcome: &Outcome| {
        grid.row(cells![
            name,
            outcome.areas,
            outcome.holes,
            bytes(outcome.hole_bytes),
            fixed(outcome.ratio, 3),
            bytes(outcome.largest_hole_bytes),
            outcome.huge_share.map(|share| percent(100.0 * share, 1)),
        ]);
    };
    row("as they are".to_owned(), &report.replay.now);
    for placed in placements {
        let failures = match placed.failures {
            0 => String::new(),
            failures => format!(" ({failures} found no place)"),
        };
        row(format!("{}{failures}", placed.name), &placed.outcome);
    }
    (!placements.is_empty()).then_some(grid)
}
