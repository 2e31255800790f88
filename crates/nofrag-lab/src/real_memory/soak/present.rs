//! Tables of a soak: the loads, and the process over time.

use super::sampler::{AREAS, DESCRIPTORS, PROCESS, RESIDENT};
use super::{COUNTS, PROGRAM};
use crate::key::Key;
use crate::report::{Measurement, Report};
use nofrag_show::{Cell, Section, cells, table_of};

/// Returns all sections of a soak's report.
pub(in super::super) fn sections(report: &Report) -> Vec<Section> {
    let process = report.measurement(PROGRAM, PROCESS);
    let charts = [RESIDENT, AREAS, DESCRIPTORS].map(|key| process.and_then(|row| chart(row, &key)));
    let own = report.measurements.iter().filter(|row| row.design != PROCESS).flat_map(states);
    loads(report).into_iter().chain(charts.into_iter().flatten()).chain(own).collect()
}

fn loads(report: &Report) -> Option<Section> {
    let rows = report.measurements.iter().filter(|row| row.design != PROCESS);
    let row = |row: &Measurement| {
        let counts = COUNTS.map(|key| Cell::from(row.shown(key)));
        [cells![&row.design], counts.to_vec(), vec![Cell::median(&row.time)]].concat()
    };
    table_of(
        "Loads",
        "A row is a part of the library under random load. Verified: contents that were read again before they were \
         given up, and found as written; lost: found otherwise. Refused: no memory, which is an answer. ns: of a \
         thread, for an operation with writing and reading its contents, by the clock on the wall.",
        1,
        &[&["load"], &COUNTS.each_ref().map(Key::name)[..], &["ns"]].concat(),
        rows.map(row).collect(),
    )
}

fn chart(row: &Measurement, key: &Key) -> Option<Section> {
    let values = row.series.get(key).filter(|values| !values.is_empty())?;
    Some(Section::Chart {
        title: format!("{}: {key}", row.design),
        caption: "Over the whole run; of each stretch its peak.".to_owned(),
        ends: ["begin", "end"].map(str::to_owned),
        layers: vec![(key.name().to_owned(), values.clone())],
    })
}

fn states(row: &Measurement) -> Vec<Section> {
    row.series.keys().filter_map(|key| chart(row, key)).collect()
}
