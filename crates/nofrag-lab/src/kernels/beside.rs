//! Runs the simulation of every cell, seed by seed, several runs at a time.
//!
//! A run depends on its cell and seed only, so results do not depend on how many go at a time.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use super::dataset::Guests;
use super::guest::Cell;
use super::judge::{Beside, name};
use super::phase::{Count, Phase, PhaseName};
use crate::scenario::{Progress, RunError};

/// What is run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The first seed; the others follow it.
    pub(super) seed: u64,
    pub(super) seeds: usize,
    /// Runs at a time.
    pub(super) threads: usize,
}

/// What simulates one run of a cell in which so many pages are read before huge pages are touched, with a seed.
pub(super) type Simulate = fn(&Cell, u64, u64) -> Result<Vec<Phase>, RunError>;

/// A cell and a seed.
#[derive(Clone, Copy, Debug)]
struct Job {
    cell: usize,
    /// The run of the kernel that was on a host as fast: ours reads as much before huge pages are touched.
    like: usize,
    seed: u64,
}

/// Every cell with its simulation, and whether a run gave the same when it was made again, beside the others.
pub(super) fn run(
    plan: &Plan,
    guests: Vec<Guests>,
    simulate: Simulate,
    progress: &dyn Progress,
) -> Result<(Vec<Beside>, bool), RunError> {
    let of_cell = |cell: usize| {
        let runs = guests[cell].runs.len();
        let job =
            move |nth| Job { cell, like: nth % runs, seed: plan.seed.wrapping_add(nth as u64) };
        (0..plan.seeds).map(job)
    };
    let mut jobs: Vec<Job> = (0..guests.len()).flat_map(of_cell).collect();
    jobs.extend(jobs.first().copied());
    let mut results = run_all(plan, &guests, &jobs, simulate, progress)?;
    // The last job is the first one again.
    let again = results.pop();
    let repeats = results.first() == again.as_ref();
    let mut results = results.into_iter();
    let beside = |guests| Beside { guests, ours: results.by_ref().take(plan.seeds).collect() };
    Ok((guests.into_iter().map(beside).collect(), repeats))
}

/// Runs all jobs, `plan.threads` at a time, and returns what they gave in their order.
fn run_all(
    plan: &Plan,
    guests: &[Guests],
    jobs: &[Job],
    simulate: Simulate,
    progress: &dyn Progress,
) -> Result<Vec<Vec<Phase>>, RunError> {
    let memory = |job: &Job| guests[job.cell].cell.memory_mib.div_ceil(1024);
    // Long runs first, so that none is left when the others are done.
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|at| Reverse(memory(&jobs[*at])));
    progress.begin(jobs.iter().map(memory).sum());
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut results: Vec<Option<Vec<Phase>>> = vec![None; jobs.len()];
    thread::scope(|scope| {
        for _ in 0..plan.threads {
            let (sender, next, order) = (sender.clone(), &next, &order);
            scope.spawn(move || {
                while let Some(at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Job { cell, like, seed } = jobs[*at];
                    let Guests { cell, runs } = &guests[cell];
                    let read = read_before(&runs[like]);
                    // Nobody listens any more once a run has failed.
                    if sender.send((*at, simulate(cell, read, seed))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (at, result) in receiver {
            progress.steps(memory(&jobs[at]), &name(&guests[jobs[at].cell].cell));
            results[at] = Some(result?);
        }
        Ok(())
    })?;
    progress.end();
    Ok(results.into_iter().flatten().collect())
}

/// Pages that a run read before huge pages were touched: how far it comes in its time is the host's doing.
fn read_before(run: &[Phase]) -> u64 {
    let warm = run.iter().find(|phase| phase.name == PhaseName::Warm);
    warm.and_then(|phase| phase.counts.get(&Count::Read)).copied().unwrap_or(0)
}
