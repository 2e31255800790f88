//! The table of live threads; the other one is declared.

use super::catalogue::{Program, SPECS, Spec};
use super::{SCENARIO, names};
use crate::report::Report;
use nofrag_show::{Cell, Section, cells, table_of};

pub(super) fn sections(report: &Report) -> Vec<Section> {
    SCENARIO.tables(report).chain(threads(report)).collect()
}

fn threads(report: &Report) -> Option<Section> {
    let of_threads =
        |spec: &&Spec| matches!(spec.program, Program::Threads { .. } | Program::Placed);
    let row = |spec: &Spec| -> Option<Vec<Cell>> {
        let row = report.of_program(spec.info.name).next()?;
        let [threads, before, areas] =
            [names::THREADS, names::AREAS_BEFORE, names::AREAS].map(|key| row.shown(key));
        let time = Cell::median(&row.time);
        Some(cells![spec.info.name, spec.info.body, threads, before, areas, time])
    };
    table_of(
        "Live threads and the areas of their stacks",
        "Published for 20,000 threads with guards: 40,054 lines of /proc/PID/maps. Times: microseconds of a processor \
         in the kernel for each thread.",
        2,
        &["program", "what", "threads", "areas before", "areas", "us"],
        SPECS.iter().filter(of_threads).filter_map(row).collect(),
    )
}
