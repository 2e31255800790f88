//! The turn of a contestant, and what is counted and timed of it.

use super::stage::{Caller, Cost, Counting, Stage};
use crate::contest::{CpuClock, Effort, Measured, Outcome, Stop};
use crate::origin::pin;
use crate::record::Measure;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// Maps and unmaps each size at once, `turns` times over; nothing else is timed. The area does not pass through
/// `black_box`: the mapper counts its pages anyway, and two words that go by way of memory cost as much as the pair.
#[inline(never)]
fn map_and_unmap(caller: &mut impl Caller, sizes: &[u32], turns: usize) -> Result<(), Stop> {
    for turn in 0..turns {
        for &pages in sizes {
            let area = caller.map(pages);
            let area = area.ok_or(Stop::Refused { after: turn * sizes.len() })?;
            if !caller.unmap(area) {
                return Err(Stop::FreeRefused);
            }
        }
    }
    Ok(())
}

/// Returns the number of turns through `sizes` that make about as many pairs as are asked for.
fn turns_for(sizes: &[u32], effort: &Effort) -> usize {
    effort.block_pairs.div_ceil(sizes.len())
}

/// Runs `work`, which maps and unmaps in this thread; an error unless the mapper saw as many pages go as come.
fn balanced<T>(work: impl FnOnce() -> Result<T, Stop>) -> Result<T, String> {
    let before = Counting::pages();
    let result = work().map_err(|stop| stop.to_string())?;
    let after = Counting::pages();
    let (installed, cleared) = (after.0 - before.0, after.1 - before.1);
    if installed == cleared && installed > 0 {
        Ok(result)
    } else {
        Err(format!("wrong: {installed} pages installed, {cleared} cleared"))
    }
}

/// Runs one round of one thread. The pairs that make the first blocks are not timed.
pub fn pairs<S: Stage>(make: &impl Fn(u32) -> S, sizes: &[u32], effort: &Effort) -> Outcome {
    let stage = make(1);
    let turns = turns_for(sizes, effort);
    let ns = balanced(|| {
        let mut caller = stage.caller(0);
        map_and_unmap(&mut caller, sizes, 1)?;
        let began = CpuClock::start();
        map_and_unmap(&mut caller, sizes, turns)?;
        Ok(began.ns_per(turns * sizes.len()))
    })?;
    Ok(vec![(Measure::NsPerPair, ns)].into())
}

/// Cost of a pair of `map_ram` and `unmap_ram`: nanoseconds, locked operations, and waits for a lock.
struct Pair {
    ns: f64,
    locked: f64,
    conflicts: f64,
}

/// Measures the pairs of one thread alone, then of two at once.
pub fn threads<S: Stage>(
    make: &impl Fn(u32) -> S,
    sizes: &[u32],
    cpus: &[usize],
    effort: &Effort,
) -> Outcome {
    let turns = turns_for(sizes, effort);
    let two = [cpus.first().copied(), cpus.get(1).copied()];
    let alone = pairs_of(make, sizes, turns, &two[..1])?;
    let beside = pairs_of(make, sizes, turns, &two)?;
    let samples = vec![
        (Measure::NsAlone, alone.ns),
        (Measure::NsBeside, beside.ns),
        (Measure::OverAlone, beside.ns / alone.ns),
        (Measure::LockedAlone, alone.locked),
        (Measure::LockedBeside, beside.locked),
        (Measure::ConflictsBeside, beside.conflicts),
    ];
    let cut = || "two threads on one CPU: times mean nothing".to_owned();
    Ok(Measured { samples, note: (cpus.len() < 2).then(cut) })
}

/// Measures one thread for each of `cpus`, in a fresh space.
fn pairs_of<S: Stage>(
    make: &impl Fn(u32) -> S,
    sizes: &[u32],
    turns: usize,
    cpus: &[Option<usize>],
) -> Result<Pair, String> {
    let stage = make(cpus.len() as u32);
    let barrier = Barrier::new(cpus.len());
    let (stage, barrier) = (&stage, &barrier);
    let pairs = (turns * sizes.len()) as f64;
    let unmaps = (turns * sizes.len() * cpus.len()) as u64;
    let lap = |rank: usize| {
        balanced(|| {
            let mut caller = stage.caller(rank);
            barrier.wait();
            let began = Instant::now();
            map_and_unmap(&mut caller, sizes, turns)?;
            Ok(began.elapsed().as_nanos() as f64)
        })
    };
    let (times, cost) = costing(stage, unmaps, || {
        thread::scope(|scope| {
            let spawn = |(rank, cpu): (usize, &Option<usize>)| {
                let cpu = *cpu;
                scope.spawn(move || {
                    cpu.and_then(pin);
                    lap(rank)
                })
            };
            let workers: Vec<_> = cpus.iter().enumerate().map(spawn).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, Result<f64, String>>| {
                worker.join().unwrap_or_else(|_| Err("panics in a thread".to_owned()))
            };
            workers.into_iter().map(join).collect::<Result<Vec<f64>, String>>()
        })
    });
    let times = times?;
    Ok(Pair {
        ns: times.iter().sum::<f64>() / times.len() as f64 / pairs,
        locked: cost.locked_operations() as f64 / unmaps as f64,
        conflicts: cost.locks.conflicts as f64 / unmaps as f64,
    })
}

/// Counts the cost of `work`, in which `unmaps` mappings end. Reading the counters takes locks too, and is subtracted.
fn costing<T>(stage: &impl Stage, unmaps: u64, work: impl FnOnce() -> T) -> (T, Cost) {
    let reading = {
        let first = stage.cost(0);
        stage.cost(0).since(first)
    };
    let before = stage.cost(0);
    let result = work();
    (result, stage.cost(unmaps).since(before).since(reading))
}

/// Mappings of one page that are ended while locks are counted; they fill four blocks.
const UNMAPS: usize = 4096;

/// Maps on one CPU and counts the cost of unmapping on another.
pub fn unmaps<S: Stage>(make: &impl Fn(u32) -> S) -> Outcome {
    let stage = make(2);
    let cost = balanced(|| {
        let (mut here, mut there) = (stage.caller(0), stage.caller(1));
        let mut areas = Vec::with_capacity(UNMAPS);
        for after in 0..UNMAPS {
            areas.push(here.map(1).ok_or(Stop::Refused { after })?);
        }
        let unmap_all = || areas.into_iter().all(|area| there.unmap(area));
        let (is_done, cost) = costing(&stage, UNMAPS as u64, unmap_all);
        if is_done { Ok(cost) } else { Err(Stop::FreeRefused) }
    })?;
    let per_unmap = |count: u64| count as f64 / UNMAPS as f64;
    let locks = (Measure::LocksPerUnmap, per_unmap(cost.locks.acquisitions));
    Ok(vec![locks, (Measure::LockedPerUnmap, per_unmap(cost.locked_operations()))].into())
}
