//! The time of an allocation while memory is purged beside it.
//!
//! A thread replaces runs of an owner and times each request. Another one dirties memory of another owner, gives it
//! back and purges the whole arena, again and again, so that locks, the pool of blocks and the process's page tables
//! are contended as under pressure. Phases with and without the purge take turns.
//!
//! The control is the same allocation beside a purge of *another* arena, with which it shares nothing but the process:
//! the kernel interrupts every processor that runs one of its threads when pages go. The extra time there is the
//! kernel's; further extra time beside a purge of the own arena is ours.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use nofrag_backing::arena::{Arena, Budget, Config, OwnerId, Owners, Purge};

use super::MemoryPlan;
use crate::key::{self, Key};
use crate::random::Random;
use crate::report::Measurement;
use crate::stats::{Latencies, Spread, Tail};

/// Number of live runs of the timed thread.
const SLOTS: usize = 64;
/// Number of runs that the other thread dirties between two purges: 16 MiB at most.
const DIRTIED: usize = 64;
const MOST_PAGES: u64 = 64;
const BYTES: u64 = 512 << 20;

/// Times of single allocations, and the number of purges and purged pages meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tails {
    pub(super) alone: Tail,
    pub(super) beside_purge: Tail,
    pub(super) beside_other: Tail,
    pub(super) purges: u64,
    pub(super) pages_purged: u64,
}

impl Tails {
    /// Returns the slowest thousandth beside a purge over that alone.
    pub(super) fn ratio(&self) -> f64 {
        self.beside_purge.p999_ns as f64 / self.alone.p999_ns.max(1) as f64
    }

    /// Returns the slowest thousandth beside a purge of its own arena over that beside another arena's.
    pub(super) fn over_control(&self) -> f64 {
        self.beside_purge.p999_ns as f64 / self.beside_other.p999_ns.max(1) as f64
    }

    /// Returns a row for each phase.
    pub(super) fn measurements(&self, program: &str) -> Vec<Measurement> {
        let row = |(design, tail): (&str, Tail)| {
            let purges = [
                (Key::count("purges"), self.purges),
                (Key::count("pages purged"), self.pages_purged),
            ];
            Some(Measurement {
                tail: Some(tail),
                counts: key::counts(purges),
                ..Measurement::new(
                    program,
                    design,
                    tail.count,
                    "ns per allocation",
                    Spread::of(vec![tail.p50_ns as f64])?,
                )
            })
        };
        [(ALONE, self.alone), (BESIDE, self.beside_purge), (CONTROL, self.beside_other)]
            .into_iter()
            .filter_map(row)
            .collect()
    }
}

/// Names of the rows.
pub(super) const ALONE: &str = "alone";
pub(super) const BESIDE: &str = "beside a purge";
pub(super) const CONTROL: &str = "beside another arena's";

/// Measures allocations alone, beside a purge of their own arena, and beside a purge of another one.
///
/// # Errors
/// The arena's error, in words.
pub(super) fn measure(plan: &MemoryPlan, step: &dyn Fn()) -> Result<Tails, String> {
    let arena = || {
        let config = Config { owners: Owners::Count(2), purge: Purge::Manual, ..Config::default() };
        Arena::reserve(BYTES, config).map_err(|error| error.to_string())
    };
    let (arena, other) = (arena()?, arena()?);
    let [mut alone, mut beside, mut control] = [(); 3].map(|()| Latencies::default());
    let mut purges = 0;
    for round in 0..plan.repeats {
        let seed = plan.seed.wrapping_add(round as u64);
        step();
        replace(&arena, plan.pairs(), seed, &mut alone)?;
        purges += replace_beside(&arena, &arena, plan.pairs(), seed, &mut beside)?;
        replace_beside(&arena, &other, plan.pairs(), seed, &mut control)?;
    }
    let tail = |times: Latencies| times.tail().ok_or_else(|| "nothing was timed".to_owned());
    Ok(Tails {
        alone: tail(alone)?,
        beside_purge: tail(beside)?,
        beside_other: tail(control)?,
        purges,
        pages_purged: arena.stats().purged,
    })
}

/// Replaces runs while another thread purges `purged`, until at least one purge is done. Returns the number of purges.
fn replace_beside(
    arena: &Arena,
    purged: &Arena,
    pairs: usize,
    seed: u64,
    times: &mut Latencies,
) -> Result<u64, String> {
    let (over, purges) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let purger = scope.spawn(|| dirty_and_purge(purged, seed, &over, &purges));
        // All relaxed: a flag and a count, and no other memory depends on them.
        while purges.load(Ordering::Relaxed) == 0 && !purger.is_finished() {
            thread::yield_now();
        }
        let before = purges.load(Ordering::Relaxed);
        let mut replaced = Ok(());
        // On a busy host one pass may end before the other thread had its turn.
        while replaced.is_ok() {
            replaced = replace(arena, pairs, seed, times);
            if purges.load(Ordering::Relaxed) > before || purger.is_finished() {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        let ended = purger.join().unwrap_or_else(|_| Err("the purger panicked".to_owned()));
        replaced.and(ended)
    })?;
    Ok(purges.into_inner())
}

fn replace(arena: &Arena, pairs: usize, seed: u64, times: &mut Latencies) -> Result<(), String> {
    let mut random = Random::new(seed, 21);
    let mut slots: Vec<_> = (0..SLOTS).map(|_| None).collect();
    for at in 0..SLOTS + pairs {
        let slot = if at < SLOTS { at } else { random.index(SLOTS) };
        let pages = random.between(1, MOST_PAGES);
        slots[slot] = None;
        let began = Instant::now();
        let lease = arena.lease(OwnerId(0), pages, 1);
        let took = began.elapsed();
        let mut lease = lease.map_err(|error| error.to_string())?;
        if at >= SLOTS {
            times.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
        lease[0] = 1;
        slots[slot] = Some(lease);
    }
    Ok(())
}

fn dirty_and_purge(
    arena: &Arena,
    seed: u64,
    over: &AtomicBool,
    purges: &AtomicU64,
) -> Result<(), String> {
    let mut random = Random::new(seed, 22);
    while !over.load(Ordering::Relaxed) {
        let mut leases = Vec::with_capacity(DIRTIED);
        for _ in 0..DIRTIED {
            let pages = random.between(1, MOST_PAGES);
            let mut lease = arena.lease(OwnerId(1), pages, 1).map_err(|error| error.to_string())?;
            lease[0] = 1;
            leases.push(lease);
        }
        drop(leases);
        arena.purge(Budget::ALL);
        purges.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
