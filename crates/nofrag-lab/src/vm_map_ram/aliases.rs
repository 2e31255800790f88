//! `unmap_aliases` (docs/sources/vmap.md#alias-flush) over many blocks of which few have anything to flush.

use std::time::Instant;

use nofrag::vmap::{BlockGeometry, BlockIndex, Drain, Preset, VmapPolicy};

use super::bench::{Bench, Counting};
use super::catalogue::Program;
use super::counts::{measurement, with_geometry};
use super::{RamPlan, names};
use crate::key;
use crate::oracle::{Claims, Relation};
use crate::report::Report;
use crate::spaces::{Failure, VMALLOC_PAGES};

/// Number of blocks with live mappings.
pub(super) const BLOCKS: u64 = 100_000;

/// Number of blocks with dirty slots when the flush comes.
pub(super) const DIRTY: [u64; 4] = [0, 100, 1_000, 10_000];

/// Largest number of blocks that ours looks at while it holds a lock.
const MOST_PER_HOLD: u64 = 64;

pub(super) fn program_of(dirty: u64) -> String {
    format!("{} {dirty} dirty", Program::Aliases.into_str())
}

/// Runs one space for all: a flush leaves nothing dirty, and each number of blocks gets slots unmapped that were live.
pub(super) fn run(_: &RamPlan, design: &Preset, report: &mut Report) -> Result<(), Failure> {
    // Two mappings fill a block, so that a hundred thousand blocks are soon made.
    let geometry = BlockGeometry::new(128, 64).expect("Linux has such blocks");
    let mapper = Counting::default();
    // Only the alias flush may flush anything.
    let policy = VmapPolicy { drain: Drain::Posted, ..with_geometry(design.policy, geometry) };
    let bench = Bench::new(policy, VMALLOC_PAGES, &mapper, ())?;
    let mut firsts = Vec::new();
    for _ in 0..BLOCKS {
        firsts.push(bench.map(64)?);
        bench.map(64)?;
    }
    for dirty in DIRTY {
        let rest = firsts.split_off(firsts.len() - dirty as usize);
        for area in rest {
            bench.unmap(area)?;
        }
        let before = (bench.blocks(), bench.space.counters().locks.total());
        let begin = Instant::now();
        bench.space.unmap_aliases();
        let us = begin.elapsed().as_nanos() as f64 / 1000.0;
        let after = (bench.blocks(), bench.space.counters().locks.total());
        let visited = after.0.visited - before.0.visited;
        let locks = after.1.acquisitions - before.1.acquisitions;
        let counts = key::counts([
            (names::VISITED, visited),
            (names::LOCKS, locks),
            (names::MOST_PER_HOLD, after.0.max_visited_per_hold),
        ]);
        judge(design, dirty, visited, after.0.max_visited_per_hold, report);
        let row = measurement(&program_of(dirty), design.name, 1, vec![us], counts);
        let unit = "us per call".to_owned();
        report.measurements.extend(row.map(|row| crate::report::Measurement { unit, ..row }));
    }
    Ok(())
}

fn judge(design: &Preset, dirty: u64, visited: u64, per_hold: u64, report: &mut Report) {
    if design.policy.blocks.index != BlockIndex::Direct {
        return;
    }
    let name = design.name;
    let claim = format!(
        "unmap_aliases over {BLOCKS} blocks, {dirty} of them dirty: ours looks at no other; blocks beyond"
    );
    let beyond = visited.saturating_sub(dirty) as f64;
    report.oracles.exact(format!("aliases-{dirty}/{name}"), claim, beyond, Relation::NONE);
    let claim = "and at so many in one hold of a lock";
    let bound = Relation::AtMost(MOST_PER_HOLD as f64);
    report.oracles.exact(format!("aliases-{dirty}-hold/{name}"), claim, per_hold as f64, bound);
}
