//! Tables of the comparisons with the kernel.

use super::catalogue::{Program, SPECS, Spec};
use super::{DESIGNS, names};
use crate::key::Key;
use crate::report::{Measurement, Report};
use nofrag_show::{Cell, Section, cells, table_of};

pub(super) fn sections(report: &Report) -> Vec<Section> {
    [compared(report), threads(report)].into_iter().flatten().collect()
}

/// Returns the measurements of kernel and model for each program that was run, those of threads or the others.
fn rows(
    report: &Report,
    of_threads: bool,
) -> impl Iterator<Item = (&'static Spec, [Option<&Measurement>; 2])> {
    let is_meant = move |spec: &&Spec| {
        of_threads == matches!(spec.program, Program::Threads { .. } | Program::Placed)
    };
    SPECS.iter().filter(is_meant).filter_map(|spec| {
        let found = DESIGNS.map(|design| report.measurement(spec.info.name, design));
        found.iter().any(Option::is_some).then_some((spec, found))
    })
}

fn counted(row: Option<&Measurement>, key: &Key) -> Cell {
    row.and_then(|row| row.shown(key)).map_or_else(|| "".into(), Cell::from)
}

fn timed(row: Option<&Measurement>) -> Cell {
    row.map_or_else(|| "".into(), |row| Cell::median(&row.time))
}

fn compared(report: &Report) -> Option<Section> {
    let columns = [
        ("done", names::OPERATIONS),
        ("lists", names::LISTS),
        ("areas", names::MOST_AREAS),
        ("2 MiB", names::HUGE),
        ("refused", names::REFUSED),
        ("differ", names::DIFFERENCES),
    ];
    let titles = columns.each_ref().map(|(title, _)| *title);
    let row = |(spec, [kernel, model]): (&Spec, [Option<&Measurement>; 2])| -> Vec<Cell> {
        let counts = columns.each_ref().map(|(_, key)| counted(model, key));
        let times = [timed(kernel), timed(model)];
        cells![spec.info.name].into_iter().chain(counts).chain(times).collect()
    };
    table_of(
        "The running kernel and the model of its rules, operation by operation",
        "A row is a program: operations done, whole lists of areas compared (after every 1,000 operations), areas at \
         most, mappings of multiples of 2 MiB, operations that the kernel refused, and outcomes (an address, success, \
         a refusal) or lists that differ. Times in ns: of the kernel with the system call, of the model with what \
         draws operations.",
        1,
        ["program"].into_iter().chain(titles).chain(["kernel", "model"]),
        rows(report, false).map(row).collect(),
    )
}

fn threads(report: &Report) -> Option<Section> {
    let row = |(spec, [kernel, ours]): (&Spec, [Option<&Measurement>; 2])| -> Vec<Cell> {
        let row = kernel.or(ours);
        let count = |key: Key| counted(row, &key);
        let counts = [names::THREADS, names::AREAS_BEFORE, names::AREAS].map(count);
        let lead = cells![spec.info.name, spec.info.body].into_iter();
        lead.chain(counts).chain([timed(row)]).collect()
    };
    table_of(
        "Live threads and the areas of their stacks",
        "Published for 20,000 threads with guards: 40,054 lines of /proc/PID/maps. Times: microseconds of a processor \
         in the kernel for each thread.",
        2,
        &["program", "what", "threads", "areas before", "areas", "us"],
        rows(report, true).map(row).collect(),
    )
}
