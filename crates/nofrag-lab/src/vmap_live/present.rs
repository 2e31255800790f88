//! The table of comparisons with the kernel.

use super::catalogue::{SPECS, Spec};
use super::{DESIGNS, names};
use crate::key::Key;
use crate::report::Report;
use nofrag_show::{Cell, Section, cells, table_of};

pub(super) fn sections(report: &Report) -> Vec<Section> {
    let columns = [
        ("areas", names::AREAS),
        ("pooled", names::POOLED),
        ("aligned", names::ALIGNED),
        ("purges", names::PURGES),
        ("moved", names::MOVED),
        ("learned", names::LEARNED),
        ("taken", names::GIVEN),
        ("differ", names::DIFFERENCES),
    ];
    let row = |spec: &Spec| {
        let row = report.measurement(spec.info.name, DESIGNS[0])?;
        let counted = |(_, key): &(&str, Key)| row.shown(key).map_or_else(|| "".into(), Cell::from);
        Some([cells![spec.info.name], columns.iter().map(counted).collect::<Vec<Cell>>()].concat())
    };
    let table = table_of(
        "The kernel's areas and the model of its rules, area by area",
        "A row is a program: areas placed, of them from the pools of CPUs, and from the tree with an alignment above a \
         page; purges. What was inferred: changes made in another order than reported, areas of the start whose CPU \
         was learned, places that depend on the shape of the tree at the start and are taken from the recording. Last, \
         differences that nothing explains.",
        1,
        &[&["program"], &columns.each_ref().map(|(title, _)| *title)[..]].concat(),
        SPECS.iter().filter_map(row).collect::<Vec<Vec<Cell>>>(),
    );
    table.into_iter().collect()
}
