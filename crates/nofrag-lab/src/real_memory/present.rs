//! Tables of the costs of real memory.

use super::SCENARIO;
use super::catalogue::{LOADS, Program};
use super::claims::times_faster;
use super::moves;
use super::names;
use super::pressure::{ALONE, BESIDE, CONTROL};
use crate::apparatus::moves::Way;
use crate::figures::{self, Backing};
use crate::key::Key;
use crate::oracle::{self, over};
use crate::report::Report;
use crate::tables::bars;
use nofrag_show::{Cell, Section, cells, count, number, ratio, table_of};

/// Returns all sections of a report.
pub(super) fn sections(report: &Report) -> Vec<Section> {
    let figures = figures::backing();
    [pictures(report), strategies(report, &figures), tails(report), moved(report, &figures)]
        .into_iter()
        .flatten()
        .collect()
}

fn pictures(report: &Report) -> Option<Section> {
    let group = |program: Program| {
        let bar = |design: &&str| {
            let row = report.measurement(program.into_str(), design)?;
            Some(((*design).to_owned(), row.time.median))
        };
        (program.into_str().to_owned(), SCENARIO.designs.iter().filter_map(bar).collect())
    };
    bars("Nanoseconds for a run of 1 to 64 pages: got, touched, given back", LOADS.map(group))
}

fn strategies(report: &Report, figures: &Backing) -> Option<Section> {
    let then = |design: &str, load: &'static str| {
        figures::figure(&figures.tables, "strategies", design, &Key::number(load))
    };
    let mut rows = Vec::new();
    for &design in &SCENARIO.designs {
        let mut cells = cells![design];
        for load in LOADS.map(|load| load.into_str()) {
            let here = report.measurement(load, design);
            let gain = |row| Some(times_faster(report.measurement(load, names::MAP_EACH)?, row));
            let there = over(then(names::MAP_EACH, load), then(design, load)).map(ratio);
            let time = here.map(|row| Cell::median(&row.time));
            cells.extend(cells![time, here.and_then(gain).map(ratio), there]);
        }
        if cells[1..].iter().step_by(3).any(Cell::is_there) {
            rows.push(cells);
        }
    }
    let calls = calls(report);
    table_of(
        "What each way to hand out runs costs",
        &format!(
            "A row is one way; a pair replaces one of 64 live runs of 1 to 64 pages. Medians of rounds in ns with half \
             their range: one thread that touches the first page, two of them, one that touches all pages. Ways that \
             take less than 5 ms serve the same again. Gain: over mmap + munmap in this run, and (then) when \
             first measured. {calls}"
        ),
        1,
        &["way", "first", "gain", "then", "2 thr.", "gain", "then", "all", "gain", "then"],
        rows,
    )
}

/// Shows allocation alone and beside a purge.
fn tails(report: &Report) -> Option<Section> {
    let row = |design: &str| {
        let tail = report.measurement(Program::Pressure.into_str(), design)?.tail?;
        let parts = [tail.count, tail.p50_ns, tail.p99_ns, tail.p999_ns, tail.max_ns];
        let cells = parts.map(|part| count(part as f64).into()).to_vec();
        Some([cells![design], cells].concat())
    };
    table_of(
        "How long an allocation takes beside a purge",
        "ns of single requests of 1 to 64 pages, while another thread dirties memory and purges the arena, or not; or \
         while it does so with an arena of its own, where nothing is shared but the process: what that takes longer \
         than alone is the kernel's, which interrupts each processor of a process that gives pages back. Maxima are \
         reported and never judged.",
        1,
        &["", "requests", "p50", "p99", "p99.9", "max"],
        [ALONE, BESIDE, CONTROL].into_iter().filter_map(row).collect(),
    )
}

/// Shows moves by size and method.
fn moved(report: &Report, figures: &Backing) -> Option<Section> {
    let mut rows = Vec::new();
    for pages in moves::SIZES {
        let program = moves::program(pages);
        let control = Way::Unprotected.into_str();
        for way in Way::ALL.map(|way| way.into_str()) {
            let Some(row) = report.measurement(&program, way) else { continue };
            let none = report.measurement(&program, control);
            let then = |way| moves::then(figures, pages, way);
            let over = none.map(|none| ratio(times_faster(row, none)));
            let counted = |name| row.count(name).map(count);
            rows.push(cells![
                count(pages as f64),
                way,
                Cell::median(&row.time),
                over,
                oracle::over(then(way), then(control)).map(ratio),
                counted(names::MOVES),
                counted(names::WRITES),
                counted(names::LOST_WRITES),
            ]);
        }
    }
    table_of(
        "Moves of runs while a thread writes to them",
        "A row is one method and a number of pages. Medians of rounds in ns with half their range; over: the same \
         over that without protection (none); then: that quotient when first measured. Lost: writes that \
         were lost; without protection some must be.",
        2,
        &["pages", "method", "ns a move", "over", "then", "moves", "writes", "lost"],
        rows,
    )
}

/// Tells the number of system calls of the ways, in words.
fn calls(report: &Report) -> String {
    let of = |design: &&str| {
        let calls =
            report.measurement(Program::TouchFirst.into_str(), design)?.count(names::CALLS)?;
        Some(format!("{design} {}", number(calls)))
    };
    let counted: Vec<String> = SCENARIO.designs.iter().filter_map(of).collect();
    match counted.is_empty() {
        true => String::new(),
        false => format!("System calls for 1,000 pairs: {}.", counted.join(", ")),
    }
}
