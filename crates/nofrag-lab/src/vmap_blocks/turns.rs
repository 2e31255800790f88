//! Runs the chosen programs under the chosen designs, turn by turn.

use std::collections::BTreeMap;

use nofrag::units::PageSize;
use nofrag::vmap::{BlockGeometry, BlockPolicy, LockCounters, VmapPolicy};

use super::SCENARIO;
use super::caller::Space;
use super::catalogue::{Design, MODEL, Runner, Spec};
use super::locks::{LockCounts, LockKind, Site};
use super::model::{self, Simulated};
use super::names::{self, Column};
use super::threads::{self, ThreadTotals};
use crate::key::{Counts, Key};
use crate::plan::Plan;
use crate::random::Random;
use crate::report::Measurement;
use crate::scenario::{Progress, RunError};
use crate::spaces::{Failure, new_space};

/// Extent of a comparison of blocks.
pub(super) type BlocksPlan = Plan<Design, Spec>;

/// Divisor of the loops of a crowd of threads, which share few CPUs: fewer loops for each, as many together.
const CROWD_LOOPS: u64 = 100;

/// Number of loops (`--loops`) for which a simulated CPU uses one block up.
const LOOPS_PER_BLOCK: u64 = 6_250;

/// Divisor of the blocks that models other than the document's first run use up.
const PART: u64 = 2;

/// Least number of blocks that a simulated CPU uses up.
const LEAST_BLOCKS: u64 = 4;

impl BlocksPlan {
    pub(super) fn pages_of(&self, spec: &Spec) -> u64 {
        spec.pages.unwrap_or(self.pages)
    }

    fn threads_of(&self, spec: &Spec) -> usize {
        match spec.runner {
            Runner::Machine => self.threads.min(nofrag_show::cpus()),
            _ => self.threads,
        }
    }

    /// Returns the pairs of one thread or one simulated CPU.
    fn pairs_of(&self, spec: &Spec) -> u64 {
        match spec.runner {
            Runner::Machine => self.loops,
            Runner::Crowd => (self.loops / CROWD_LOOPS).max(1),
            _ => {
                let pairs = u64::from(geometry().slots()) / self.pages_of(spec).next_power_of_two();
                let part = if spec.info.name == MODEL { 1 } else { PART };
                (self.loops / LOOPS_PER_BLOCK / part).max(LEAST_BLOCKS) * pairs
            }
        }
    }
}

/// Returns the blocks of a kernel that is built for 8192 CPUs, as distributions build theirs: 256 pages
/// (docs/sources/vmap.md#block-constants).
pub(super) fn geometry() -> BlockGeometry {
    BlockGeometry::linux(64, PageSize::KIB_4, 8192).expect("64 bits are a word that Linux has")
}

/// The samples of one program under one design.
#[derive(Default)]
struct BlockRow {
    times: Vec<f64>,
    /// All repetitions together, because conflicts are rare.
    real: Option<ThreadTotals>,
    modelled: Option<Simulated>,
}

impl BlockRow {
    fn counts(&self) -> Counts {
        match (&self.real, &self.modelled) {
            (Some(sample), _) => of_threads(sample),
            (None, Some(simulated)) => of_model(simulated),
            (None, None) => Counts::new(),
        }
    }
}

pub(super) fn take_turns(
    plan: &BlocksPlan,
    progress: &dyn Progress,
) -> Result<Vec<Measurement>, RunError> {
    let name = |_, spec: &Spec, design: &Design| Some([spec.info.name, design.name]);
    let passes = (plan.repeats, progress);
    let rows =
        plan.take_turns(
            passes,
            name,
            |repetition, spec, design, row: &mut BlockRow| match SCENARIO
                .expected
                .has(spec.info.name, design.name)
            {
                true => run_cell(plan, spec, design, repetition, row),
                false => Ok(()),
            },
        )?;
    let measurement = |(spec, design, row): (&Spec, &Design, BlockRow)| {
        let unit = match spec.costs() {
            Some(_) => "simulated ns per pair",
            None => "ns of a processor per pair",
        };
        let (counts, pairs) = (row.counts(), plan.pairs_of(spec));
        Measurement::of(spec.info.name, design.name, pairs, (unit, row.times), counts)
    };
    Ok(rows.into_iter().filter_map(measurement).collect())
}

fn run_cell(
    plan: &BlocksPlan,
    spec: &Spec,
    design: &Design,
    repetition: usize,
    row: &mut BlockRow,
) -> Result<(), Failure> {
    let (pages, pairs) = (plan.pages_of(spec), plan.pairs_of(spec));
    let threads = plan.threads_of(spec);
    if let Some(costs) = spec.costs() {
        // Each repetition has CPUs that begin at other times; the designs of one repetition share these times.
        let seed = Random::new(plan.seed, repetition as u64).between(0, u64::MAX);
        let size =
            model::SimulationSize { costs, ..model::SimulationSize::stated(pages, pairs, seed) };
        let simulated = model::run(&model_space(design, threads)?, size)?;
        row.times.push(simulated.ns_per_pair());
        match &mut row.modelled {
            Some(sum) => sum.add(&simulated),
            none => *none = Some(simulated),
        }
    } else {
        let sample = threads::run(design, threads::ThreadsSize { pages, threads, pairs })?;
        row.times.push(sample.ns_per_pair(threads));
        match &mut row.real {
            Some(sum) => sum.add(&sample),
            none => *none = Some(sample),
        }
    }
    Ok(())
}

/// Pages of the space for simulated CPUs: more than they ever use, and so few that reading the counters, which visits
/// the table of blocks, is quick.
const MODEL_PAGES: u64 = 1 << 24;

/// Builds a space for simulated CPUs.
pub(super) fn model_space(design: &Design, cpus: usize) -> Result<Space, Failure> {
    let blocks = BlockPolicy { geometry: geometry(), ..design.policy.blocks };
    new_space(VmapPolicy { blocks, ..design.policy }, MODEL_PAGES, cpus)
}

fn of_threads(sample: &ThreadTotals) -> Counts {
    let pairs = sample.pairs as f64;
    let mut counts = Counts::from([
        (names::PAIRS, sample.pairs.into()),
        (names::BLOCKS, sample.blocks_created.into()),
        (Key::count("flushes"), sample.flushes.into()),
        (names::LOCKED_PER_PAIR, (sample.locked as f64 / pairs).into()),
        (names::CONFLICTS_PER_PAIR, (sample.locks.conflicts() as f64 / pairs).into()),
    ]);
    for (kind, lock) in taken(&sample.locks) {
        counts.insert(names::of_lock(kind, Column::Acquisitions), lock.acquisitions.into());
        counts.insert(names::of_lock(kind, Column::Contentions), lock.conflicts.into());
    }
    counts
}

/// Returns the kinds of locks that were taken.
fn taken(locks: &LockCounts) -> impl Iterator<Item = (LockKind, LockCounters)> + '_ {
    locks.iter().filter(|(_, lock)| lock.acquisitions > 0)
}

fn of_model(simulated: &Simulated) -> Counts {
    let mut counts = Counts::from([
        (names::PAIRS, simulated.pairs.into()),
        (names::BLOCKS, simulated.blocks_created.into()),
    ]);
    for (kind, lock) in taken(&simulated.taken) {
        counts.insert(names::of_lock(kind, Column::Acquisitions), lock.acquisitions.into());
    }
    let outcome = &simulated.outcome;
    for (kind, stat) in &outcome.locks {
        let instances = outcome.instances.get(kind).copied().unwrap_or(0);
        let columns = [
            (Column::Instances, instances.into()),
            (Column::Contentions, stat.contentions.into()),
            (Column::ConBounces, stat.con_bounces.into()),
            (Column::WaitMaxUs, (stat.wait_max_ns as f64 / 1000.0).into()),
            (Column::WaitAvgUs, (stat.wait_avg_ns() / 1000.0).into()),
        ];
        counts.extend(columns.map(|(column, value)| (names::of_lock(*kind, column), value)));
        let of = |key: fn(LockKind, Site) -> Key, sites: &BTreeMap<Site, u64>| {
            sites
                .iter()
                .map(|(site, count)| (key(*kind, *site), (*count).into()))
                .collect::<Counts>()
        };
        counts.extend(of(names::waiting, &stat.waiting));
        counts.extend(of(names::holding, &stat.holding));
    }
    counts
}
