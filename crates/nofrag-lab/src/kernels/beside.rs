//! Runs the simulation of every cell, seed by seed.

use super::dataset::Guests;
use super::guest::Cell;
use super::judge::{Beside, name};
use super::phase::{Count, Phase, PhaseName};
use crate::jobs::{About, run_and_repeat};
use crate::plan::Plan;
use crate::scenario::{Progress, RunError};

/// Extent of a comparison: the first seed, from which repetitions count up, the number of seeds, and the kernels.
pub(super) type KernelsPlan = Plan<&'static str, &'static str>;

/// The function that simulates one run of a cell: the cell, the pages read before huge pages are touched, the seed.
pub(super) type Simulate = fn(&Cell, u64, u64) -> Result<Vec<Phase>, RunError>;

/// One simulation: a cell and a seed.
#[derive(Clone, Copy, Debug)]
struct Job {
    cell: usize,
    /// Index of the kernel's run from which the simulation takes the number of pages that are read before huge pages
    /// are touched.
    like: usize,
    seed: u64,
}

/// Returns every cell with its simulation, and whether a run gave the same counts when it was made again, beside the
/// others.
pub(super) fn run(
    plan: &KernelsPlan,
    guests: Vec<Guests>,
    simulate: Simulate,
    progress: &dyn Progress,
) -> Result<(Vec<Beside>, bool), RunError> {
    let of_cell = |cell: usize| {
        let runs = guests[cell].runs.len();
        let job =
            move |nth| Job { cell, like: nth % runs, seed: plan.seed.wrapping_add(nth as u64) };
        (0..plan.repeats).map(job)
    };
    let jobs: Vec<Job> = (0..guests.len()).flat_map(of_cell).collect();
    let about = |job: &Job| {
        let cell = &guests[job.cell].cell;
        let gib = cell.memory_mib.div_ceil(1024);
        About { length: gib, steps: gib, what: name(cell) }
    };
    let run = |job: &Job| {
        let Guests { cell, runs } = &guests[job.cell];
        simulate(cell, read_before(&runs[job.like]), job.seed)
    };
    let (results, repeats) = run_and_repeat(plan.threads, &jobs, about, run, progress)?;
    let mut results = results.into_iter();
    let beside = |guests| Beside { guests, ours: results.by_ref().take(plan.repeats).collect() };
    Ok((guests.into_iter().map(beside).collect(), repeats))
}

/// Returns the pages that a run read before huge pages were touched: the host decides how far it comes in its time.
fn read_before(run: &[Phase]) -> u64 {
    let warm = run.iter().find(|phase| phase.name == PhaseName::Warm);
    warm.and_then(|phase| phase.counts.get(&Count::Read)).copied().unwrap_or(0)
}
