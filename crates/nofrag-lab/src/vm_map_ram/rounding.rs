//! The cost of rounding to size classes (docs/sources/vmap.md#size-classes): for one request of each size, and in the
//! random workload.

use nofrag::vmap::{Preset, SizeClasses, VmapPolicy};

use super::bench::{Bench, Counting};
use super::catalogue::Program;
use super::counts::{OverKeys, ends_of};
use super::{AFTER, OURS, RamPlan, names};
use crate::figures;
use crate::oracle::{Claims, Relation};
use crate::report::Report;
use crate::spaces::{Failure, VMALLOC_PAGES};

/// Pages of one request of each size from 1 to 64.
const PAGES: u64 = 64 * 65 / 2;

/// Largest overhead of our classes, as a share of the pages.
const MOST_WASTE: f64 = 0.027;

/// The sets of classes by their names in the figures.
pub(super) const CLASSES: [(&str, SizeClasses); 4] = [
    ("powers of two", SizeClasses::PowerOfTwo),
    ("quarters", SizeClasses::Quarters),
    ("eighths", SizeClasses::Eighths),
    ("exact", SizeClasses::Exact),
];

/// Returns the name of Linux's engine with one set of classes.
pub(super) fn design_with(classes: &str) -> String {
    format!("{AFTER}, {classes}")
}

pub(super) fn run(_: &RamPlan, design: &Preset, report: &mut Report) -> Result<(), Failure> {
    if design.name == OURS {
        return ours(design, report);
    }
    for (name, classes) in CLASSES {
        let mut policy = design.policy;
        policy.blocks.classes = classes;
        with_classes(policy, name, report)?;
    }
    Ok(())
}

/// Returns the slots that one request of each size takes.
fn slots_of_each_size(policy: VmapPolicy) -> Result<u64, Failure> {
    let mapper = Counting::default();
    let bench = Bench::new(policy, VMALLOC_PAGES, &mapper, ())?;
    for pages in 1..=64 {
        bench.map(pages)?;
    }
    Ok(bench.space.block_stats().live_pages)
}

fn with_classes(policy: VmapPolicy, classes: &str, report: &mut Report) -> Result<(), Failure> {
    let there = figures::pen_2015().simulated();
    let row = there.measurement(Program::Rounding.into_str(), &design_with(classes));
    let row = row.expect("the figures have every set");
    let slots = slots_of_each_size(policy)? as f64;
    let claim = format!("one request of each size from 1 to 64, {classes}: slots taken");
    let id = format!("rounding-{}", classes.replace(' ', "-"));
    let wanted = row.count(names::SLOTS).expect("each row has it");
    report.oracles.exact(&*id, claim, slots, Relation::Equals(wanted));

    let over = OverKeys::of(policy)?;
    let range = ends_of(row, &names::CREATED).expect("each row has them");
    let claim = format!(
        "w2 over 20 keys, {classes}: from {} to {} blocks, as simulated; ends that differ",
        range[0], range[1]
    );
    let differing = over.ends_but(&names::CREATED, range);
    report.oracles.exact(format!("{id}-blocks"), claim, differing, Relation::NONE);
    note(over, &design_with(classes), slots, report);
    Ok(())
}

fn ours(design: &Preset, report: &mut Report) -> Result<(), Failure> {
    let slots = slots_of_each_size(design.policy)? as f64;
    let claim =
        "one request of each size from 1 to 64: what ours takes beyond the pages, as a share";
    let waste = slots / PAGES as f64 - 1.0;
    report.oracles.exact("rounding/nofrag", claim, waste, Relation::AtMost(MOST_WASTE));
    note(OverKeys::of(design.policy)?, design.name, slots, report);
    Ok(())
}

/// Notes the counts over keys, and the slots that one request of each size takes.
fn note(over: OverKeys, design: &str, slots: f64, report: &mut Report) {
    let mut measurement = over.measurement(Program::Rounding, design);
    if let Some(measurement) = &mut measurement {
        measurement.counts.insert(names::SLOTS, slots.into());
    }
    report.measurements.extend(measurement);
}
