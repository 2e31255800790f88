//! Real threads that map and unmap in a loop.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use nofrag::vmap::VmapCounters;

use super::caller::{ByCall, Caller};
use super::catalogue::{Design, Face};
use super::locks::LockCounts;
use crate::spaces::VMALLOC_PAGES;
use crate::spaces::{Failure, new_space};
use crate::usage;

/// Extent of a run of real threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadsSize {
    pub(super) pages: u64,
    pub(super) threads: usize,
    /// Number of pairs of one thread.
    pub(super) pairs: u64,
}

/// Results of all threads together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ThreadTotals {
    /// Time from the first thread's start to the last one's end.
    pub(super) wall_ns: f64,
    pub(super) pairs: u64,
    pub(super) locks: LockCounts,
    pub(super) locked: u64,
    pub(super) blocks_created: u64,
    pub(super) flushes: u64,
}

impl ThreadTotals {
    /// Adds another repetition, but not its time.
    pub(super) fn add(&mut self, other: &ThreadTotals) {
        self.pairs += other.pairs;
        self.locks.add(&other.locks);
        self.locked += other.locked;
        self.blocks_created += other.blocks_created;
        self.flushes += other.flushes;
    }

    /// Returns the processor time of one pair: the wall time of all, for each processor that took part.
    pub(super) fn ns_per_pair(&self, threads: usize) -> f64 {
        self.wall_ns * threads.min(nofrag_show::cpus()) as f64 / self.pairs as f64
    }
}

/// Begin and end of a thread's loops.
type Lap = (Instant, Instant);

/// Runs the threads in a fresh space that has a CPU for each.
pub(super) fn run(design: &Design, size: ThreadsSize) -> Result<ThreadTotals, Failure> {
    let space = new_space(design.policy, VMALLOC_PAGES, size.threads)?;
    let barrier = Barrier::new(size.threads + 1);
    let (space, barrier) = (&space, &barrier);
    thread::scope(|scope| {
        let run = move |thread: usize| {
            // The scheduler places threads beyond the number of CPUs.
            if size.threads <= nofrag_show::cpus() {
                usage::pin_to(thread);
            }
            let cpu = space.cpus().by_rank(thread).expect("the space has a CPU for each thread");
            match design.face {
                Face::ByCall => lap(Ok(ByCall { space, cpu }), size, barrier),
                Face::ByHandle => lap(space.cpu(cpu), size, barrier),
            }
        };
        let threads: Vec<_> = (0..size.threads).map(|i| scope.spawn(move || run(i))).collect();
        let counted_between_meetings = || {
            barrier.wait();
            let counters = (space.counters(), space.mapper().count());
            barrier.wait();
            counters
        };
        let before = counted_between_meetings();
        let after = counted_between_meetings();
        let mut laps = Vec::new();
        for thread in threads {
            laps.push(thread.join().expect("a worker returns its failures")?);
        }
        // A reading of the counters takes locks, too: two more readings differ by the locks of one.
        let first = LockCounts::of(&space.counters().locks);
        let reading = LockCounts::of(&space.counters().locks).since(&first);
        Ok(sample(&laps, before, after, &reading, size))
    })
}

fn sample(
    laps: &[Lap],
    before: (VmapCounters, u64),
    after: (VmapCounters, u64),
    reading: &LockCounts,
    size: ThreadsSize,
) -> ThreadTotals {
    let begin = laps.iter().map(|lap| lap.0).min().expect("there is at least one thread");
    let end = laps.iter().map(|lap| lap.1).max().expect("there is at least one thread");
    let locks = LockCounts::of(&after.0.locks).since(&LockCounts::of(&before.0.locks));
    ThreadTotals {
        wall_ns: (end - begin).as_nanos() as f64,
        pairs: size.pairs * size.threads as u64,
        locks: locks.since(reading),
        locked: after.0.locked_operations()
            - before.0.locked_operations()
            - 2 * reading.acquisitions(),
        blocks_created: after.0.blocks.created - before.0.blocks.created,
        flushes: after.1 - before.1,
    }
}

/// Runs the loops of one thread. It meets the others in any case, so that no thread waits for it in vain.
fn lap<C: Caller>(
    caller: Result<C, nofrag::vmap::Busy>,
    size: ThreadsSize,
    barrier: &Barrier,
) -> Result<Lap, Failure> {
    let meet = || {
        barrier.wait();
        barrier.wait();
    };
    meet();
    let begin = Instant::now();
    let outcome = caller.map_err(Failure::from).and_then(|mut caller| {
        for _ in 0..size.pairs {
            let area = caller.map(size.pages)?;
            caller.unmap(std::hint::black_box(area))?;
        }
        Ok(())
    });
    let end = Instant::now();
    meet();
    outcome.map(|()| (begin, end))
}
