//! Tables of the comparisons with the kernel.

use super::catalogue::{Program, SPECS};
use super::{DESIGNS, names};
use crate::report::{Measurement, Report};
use nofrag_show::{Cell, Section, cells, count};

pub(super) fn sections(report: &Report) -> Vec<Section> {
    [compared(report), threads(report)].into_iter().flatten().collect()
}

/// Returns name, description, and measurements of kernel and model, for each program that was run and for which `which`
/// holds.
fn rows(
    report: &Report,
    which: impl Fn(&Program) -> bool,
) -> impl Iterator<Item = (&'static str, &'static str, [Option<&Measurement>; 2])> {
    let chosen = SPECS.iter().filter(move |spec| which(&spec.program));
    chosen.filter_map(move |spec| {
        let info = spec.info;
        let found = DESIGNS.map(|design| report.measurement(info.name, design));
        found.iter().any(Option::is_some).then_some((info.name, info.body, found))
    })
}

fn counted(row: Option<&Measurement>, name: &str) -> Cell {
    row.and_then(|row| row.count(name)).map_or_else(|| "".into(), |value| count(value).into())
}

fn timed(row: Option<&Measurement>) -> Cell {
    row.map_or_else(|| "".into(), |row| Cell::median(&row.time))
}

fn compared(report: &Report) -> Option<Section> {
    let is_threads =
        |program: &Program| matches!(program, Program::Threads { .. } | Program::Placed);
    let rows: Vec<Vec<Cell>> = rows(report, |program| !is_threads(program))
        .map(|(name, _, [kernel, model])| {
            let count = |what| counted(model, what);
            cells![
                name,
                count(names::OPERATIONS),
                count(names::LISTS),
                count(names::MOST_AREAS),
                count(names::HUGE),
                count(names::REFUSED),
                count(names::DIFFERENCES),
                timed(kernel),
                timed(model),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Section::Table {
        title: "The running kernel and the model of its rules, operation by operation".to_owned(),
        caption: "A row is a program: operations done, whole lists of areas compared (after every 1,000 operations), \
                  areas at most, mappings of multiples of 2 MiB, operations that the kernel refused, and outcomes (an \
                  address, success, a refusal) or lists that differ. Times in ns: of the kernel with the system call, \
                  of the model with what draws operations."
            .to_owned(),
        texts: 1,
        header: [
            "program", "done", "lists", "areas", "2 MiB", "refused", "differ", "kernel", "model",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows,
    })
}

fn threads(report: &Report) -> Option<Section> {
    let is_threads =
        |program: &Program| matches!(program, Program::Threads { .. } | Program::Placed);
    let rows: Vec<Vec<Cell>> = rows(report, is_threads)
        .map(|(name, body, [kernel, ours])| {
            let row = kernel.or(ours);
            let count = |what| counted(row, what);
            cells![
                name,
                body,
                count(names::THREADS),
                count(names::AREAS_BEFORE),
                count(names::AREAS),
                timed(row),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Section::Table {
        title: "Live threads and the areas of their stacks".to_owned(),
        caption: "Published for 20,000 threads with guards: 40,054 lines of /proc/PID/maps. Times: microseconds of a \
                  processor in the kernel for each thread."
            .to_owned(),
        texts: 2,
        header: ["program", "what", "threads", "areas before", "areas", "us"]
            .map(str::to_owned)
            .to_vec(),
        rows,
    })
}
