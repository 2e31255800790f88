//! The turn of a contestant, and what is counted and timed of it.

use super::stage::{Caller, Cost, Counting, Setup, Stage};
use crate::contest::{CpuClock, Effort, Outcome, Stop};
use crate::origin::pin;
use crate::record::Measure;
use crate::trace::{Draws, Sizes};
use nofrag::vmap::{BlockGeometry, Drain};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// One value for each measure.
pub type Samples = Vec<(Measure, f64)>;

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

/// Turns samples, or the reason why there are none, into an outcome.
fn whole(result: Result<Samples, String>) -> Outcome<Samples> {
    result.map_or_else(Outcome::Nothing, Outcome::Whole)
}

/// Runs one round of one thread. The pairs that make the first blocks are not timed.
pub fn pairs<S: Stage>(
    make: &impl Fn(Setup) -> S,
    sizes: &[u32],
    effort: &Effort,
) -> Outcome<Samples> {
    let stage = make(Setup::of(1));
    let turns = turns_for(sizes, effort);
    let timed = balanced(|| {
        let mut caller = stage.caller(0);
        map_and_unmap(&mut caller, sizes, 1)?;
        let began = CpuClock::start();
        map_and_unmap(&mut caller, sizes, turns)?;
        Ok(began.elapsed())
    });
    let per_pair =
        |time: std::time::Duration| time.as_nanos() as f64 / (turns * sizes.len()) as f64;
    whole(timed.map(|time| vec![(Measure::NsPerPair, per_pair(time))]))
}

/// Cost of a pair of `map_ram` and `unmap_ram`: nanoseconds, locked operations, and waits for a lock.
struct Pair {
    ns: f64,
    locked: f64,
    conflicts: f64,
}

/// Measures the pairs of one thread alone, then of two at once.
pub fn threads<S: Stage>(
    make: &impl Fn(Setup) -> S,
    sizes: &[u32],
    cpus: &[usize],
    effort: &Effort,
) -> Outcome<Samples> {
    let turns = turns_for(sizes, effort);
    let both = pairs_of(make, sizes, turns, &[cpus.first().copied()])
        .and_then(|alone| {
            let two = [cpus.first().copied(), cpus.get(1).copied()];
            pairs_of(make, sizes, turns, &two).map(|beside| (alone, beside))
        })
        .map(|(alone, beside)| {
            vec![
                (Measure::NsAlone, alone.ns),
                (Measure::NsBeside, beside.ns),
                (Measure::OverAlone, beside.ns / alone.ns),
                (Measure::LockedAlone, alone.locked),
                (Measure::LockedBeside, beside.locked),
                (Measure::ConflictsBeside, beside.conflicts),
            ]
        });
    match both {
        Ok(samples) if cpus.len() < 2 => {
            Outcome::Partial(samples, "two threads on one CPU: times mean nothing".to_owned())
        }
        both => whole(both),
    }
}

/// Measures one thread for each of `cpus`, in a fresh space.
fn pairs_of<S: Stage>(
    make: &impl Fn(Setup) -> S,
    sizes: &[u32],
    turns: usize,
    cpus: &[Option<usize>],
) -> Result<Pair, String> {
    let stage = make(Setup::of(cpus.len() as u32));
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
pub fn unmaps<S: Stage>(make: &impl Fn(Setup) -> S) -> Outcome<Samples> {
    let stage = make(Setup::of(2));
    let counted = balanced(|| {
        let (mut here, mut there) = (stage.caller(0), stage.caller(1));
        let mut areas = Vec::with_capacity(UNMAPS);
        for after in 0..UNMAPS {
            areas.push(here.map(1).ok_or(Stop::Refused { after })?);
        }
        let unmap_all = || areas.into_iter().all(|area| there.unmap(area));
        let (is_done, cost) = costing(&stage, UNMAPS as u64, unmap_all);
        if is_done { Ok(cost) } else { Err(Stop::FreeRefused) }
    });
    let per_unmap = |count: u64| count as f64 / UNMAPS as f64;
    whole(counted.map(|cost| {
        vec![
            (Measure::LocksPerUnmap, per_unmap(cost.locks.acquisitions)),
            (Measure::LockedPerUnmap, per_unmap(cost.locked_operations())),
        ]
    }))
}

/// Mappings that live to the end; one in [`ONE_IN`] mappings does.
const LONG_LIVED: u64 = 5_000;
const ONE_IN: usize = 1024;

/// Maps one page at a time and unmaps it at once, unless it is one of those that live long.
pub fn lifetimes<S: Stage>(make: &impl Fn(Setup) -> S, seed: u64) -> Outcome<Samples> {
    let stage = make(Setup::of(1));
    let Some(space) = stage.space() else { return without_blocks() };
    let mut draws = Draws::new(seed, Sizes::Uniform);
    let (mut live, mut freed) = (0, 0_u64);
    let mut caller = stage.caller(0);
    while live < LONG_LIVED {
        let Some(area) = caller.map(1) else {
            return Outcome::Nothing(Stop::Refused { after: freed as usize }.to_string());
        };
        if draws.pick(ONE_IN) == 0 {
            live += 1;
        } else if caller.unmap(area) {
            freed += 1;
        } else {
            return Outcome::Nothing(Stop::FreeRefused.to_string());
        }
    }
    drop(caller);
    let held = space.block_stats().blocks * u64::from(space.policy().blocks.geometry.slots());
    let flushes = space.mapper().flushes() as f64;
    Outcome::Whole(vec![
        (Measure::PagesPerLive, held as f64 / live as f64),
        (Measure::FlushesPer1024, flushes * 1024.0 / freed as f64),
    ])
}

fn without_blocks() -> Outcome<Samples> {
    Outcome::Nothing("has no blocks: gives every range back at once, without a flush".to_owned())
}

/// Blocks with live mappings when the alias flush comes.
const ALIAS_BLOCKS: usize = 100_000;

/// Numbers of blocks with slots to flush, among the hundred thousand over which an alias flush is timed.
pub const ALIAS_DIRTY: [usize; 4] = [0, 100, 1_000, 10_000];

/// Times one alias flush over a hundred thousand blocks.
pub fn aliases<S: Stage>(make: &impl Fn(Setup) -> S, dirty: usize) -> Outcome<Samples> {
    // Two mappings fill a block, so that a hundred thousand are soon there.
    let geometry = BlockGeometry::new(128, 64).expect("Linux has such blocks");
    // Only the alias flush is to flush anything.
    let stage = make(Setup { cpus: 1, geometry, drain: Drain::Posted });
    let Some(space) = stage.space() else { return without_blocks() };
    let mut caller = stage.caller(0);
    let mut firsts = Vec::with_capacity(ALIAS_BLOCKS);
    for after in 0..ALIAS_BLOCKS {
        let (Some(first), Some(_)) = (caller.map(64), caller.map(64)) else {
            return Outcome::Nothing(Stop::Refused { after: 2 * after }.to_string());
        };
        firsts.push(first);
    }
    // Evenly spread.
    let step = ALIAS_BLOCKS.checked_div(dirty).unwrap_or(ALIAS_BLOCKS + 1);
    let every = |&(at, _): &(usize, _)| at % step == step - 1;
    if !firsts.into_iter().enumerate().filter(every).all(|(_, area)| caller.unmap(area)) {
        return Outcome::Nothing(Stop::FreeRefused.to_string());
    }
    drop(caller);
    let before = space.counters().blocks.visited;
    let (time, cost) = costing(&stage, 0, || {
        let began = Instant::now();
        space.unmap_aliases();
        began.elapsed()
    });
    let blocks = space.counters().blocks;
    Outcome::Whole(vec![
        (Measure::Visited, (blocks.visited - before) as f64),
        (Measure::MostPerHold, blocks.max_visited_per_hold as f64),
        (Measure::Locks, cost.locks.acquisitions as f64),
        (Measure::UsPerCall, time.as_secs_f64() * 1e6),
    ])
}
