//! The table of comparisons with the kernel.

use super::catalogue::SPECS;
use super::{DESIGNS, names};
use crate::report::Report;
use nofrag_show::{Cell, Section, cells, count};

pub(super) fn sections(report: &Report) -> Vec<Section> {
    let found = SPECS.iter().filter_map(|spec| {
        let row = report.measurement(spec.info.name, DESIGNS[0])?;
        Some((spec.info.name, row))
    });
    let rows: Vec<Vec<Cell>> = found
        .map(|(name, row)| {
            let counted =
                |what| row.count(what).map_or_else(|| Cell::from(""), |value| count(value).into());
            cells![
                name,
                counted(names::AREAS),
                counted(names::POOLED),
                counted(names::ALIGNED),
                counted(names::PURGES),
                counted(names::MOVED),
                counted(names::LEARNED),
                counted(names::GIVEN),
                counted(names::DIFFERENCES),
            ]
        })
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    vec![Section::Table {
        title: "The kernel's areas and the model of its rules, area by area".to_owned(),
        caption: "A row is a program: areas placed, of them from the pools of CPUs, and from the tree with an \
                  alignment above a page; purges. What was inferred: changes made in another order than reported, \
                  areas of the start whose CPU was learned, places that depend on the shape of the tree at the start \
                  and are taken from the recording. Last, differences that nothing explains."
            .to_owned(),
        texts: 1,
        header: [
            "program", "areas", "pooled", "aligned", "purges", "moved", "learned", "taken",
            "differ",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows,
    }]
}
