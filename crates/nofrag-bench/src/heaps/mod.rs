//! Runs of memory from 64 KiB to 64 MiB of which the first page is touched: nofrag's arena beside the allocators that
//! programs use for everything.
//!
//! Sixty-four runs are live. A random one is given back and another taken, of a size of which each doubling is as
//! likely as any other; its first byte is written, and read again before it is given back. Counted beside the time are
//! the faults of pages, each of which is memory that was given back to the system or never had, and what stays
//! resident.
//!
//! Needs the feature `heaps`, since two of the contestants are compiled from C.

mod contestants;

pub use self::contestants::{Glibc, Jemalloc, Mimalloc, Parked, arena};

use crate::contest::{CpuClock, Effort, Entry, Named, Outcome, Run, Stop, TimeBox, shielded};
use crate::record::{Group, Measure};
use crate::trace::generator;
use nofrag_backing::arena::{Config, Purge};
use nofrag_lab::usage::resident_bytes;
use rand::RngExt;
use std::ptr::NonNull;

/// The arena, which gives nothing back before it is told to.
pub const OURS: &str = "nofrag, parked";

pub const WORKLOAD: &str = "64 runs of 64 KiB..64 MiB replaced, first page touched";

/// Runs that are live.
const SLOTS: usize = 64;

/// Replacements before the first that counts.
const WARM_UP: usize = 8 * SLOTS;

/// Bytes of the smallest run, and doublings up to the largest.
const SMALLEST: usize = 64 << 10;
const DOUBLINGS: u32 = 10;

/// An allocator of runs.
pub trait Heap {
    /// Token by which the caller frees a run.
    type Run: Copy;

    /// Takes `bytes` bytes.
    fn alloc(&mut self, bytes: usize) -> Option<Self::Run>;

    /// Gives a run back that was taken, and was not given back since; returns false if it is refused.
    fn free(&mut self, run: Self::Run) -> bool;

    /// Returns the first byte of a run; as many as were asked for may be used until it is given back.
    fn start(&self, run: Self::Run) -> NonNull<u8>;
}

/// Slots whose run is replaced by one of so many bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapsPlan(pub Vec<(usize, usize)>);

impl HeapsPlan {
    /// Draws `count` replacements, and those before the first that counts.
    #[must_use]
    pub fn new(seed: u64, count: usize) -> HeapsPlan {
        let mut random = generator(seed, 501);
        let mut draw = |at: usize| {
            let slot = if at < SLOTS { at } else { random.random_range(0..SLOTS) };
            let least = SMALLEST << random.random_range(0..DOUBLINGS);
            (slot, random.random_range(least..=2 * least))
        };
        HeapsPlan((0..WARM_UP + count).map(&mut draw).collect())
    }
}

/// A run that is live, and what was written to it.
type Tenant<H> = Option<(<H as Heap>::Run, u8)>;

/// Replaces the run in a slot.
fn replace<H: Heap>(
    heap: &mut H,
    slot: &mut Tenant<H>,
    bytes: usize,
    at: usize,
) -> Result<(), String> {
    if let Some((run, stamp)) = slot.take() {
        // SAFETY: the run was taken, is at least a byte long, and has not been given back (`Heap::start`).
        if unsafe { heap.start(run).read_volatile() } != stamp {
            return Err("wrong: a run has lost what was written to it".to_owned());
        }
        if !heap.free(run) {
            return Err(Stop::FreeRefused.into());
        }
    }
    let run = heap.alloc(bytes).ok_or(Stop::Refused { after: at })?;
    let stamp = at as u8 | 1;
    // SAFETY: as above; no reference to it exists.
    unsafe { heap.start(run).write_volatile(stamp) };
    *slot = Some((run, stamp));
    Ok(())
}

/// Runs one round of one contestant.
///
/// # Errors
/// When the contestant fails, or loses what was written.
pub fn round<H: Heap>(make: &impl Fn() -> H, plan: &HeapsPlan, effort: &Effort) -> Outcome {
    let resident = resident_bytes();
    let mut heap = make();
    let mut live: Vec<Tenant<H>> = (0..SLOTS).map(|_| None).collect();
    let (warm_up, counted) = plan.0.split_at(WARM_UP);
    for (at, &(slot, bytes)) in warm_up.iter().enumerate() {
        replace(&mut heap, &mut live[slot], bytes, at)?;
    }
    let clock = TimeBox::open(effort.round);
    let (faults, began) = (minor_faults(), CpuClock::start());
    let mut pairs = 0;
    for part in counted.chunks(SLOTS) {
        if clock.is_over() {
            break;
        }
        for &(slot, bytes) in part {
            replace(&mut heap, &mut live[slot], bytes, pairs)?;
            pairs += 1;
        }
    }
    let ns = began.ns_per(pairs);
    let faults = minor_faults() - faults;
    let held = resident_bytes().zip(resident).map(|(now, before)| now.saturating_sub(before));
    let mut samples =
        vec![(Measure::NsPerPair, ns), (Measure::FaultsPerPair, faults as f64 / pairs as f64)];
    samples.extend(held.map(|held| (Measure::ResidentMib, held as f64 / f64::from(1 << 20))));
    if !live.into_iter().flatten().all(|(run, _)| heap.free(run)) {
        return Err(Stop::FreeRefused.into());
    }
    Ok(samples.into())
}

/// Returns the number of faults of pages of this thread that needed no reading from a disk.
fn minor_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split(' ').nth(7).and_then(|faults| faults.parse().ok()).unwrap_or(0)
}

/// A contestant of whatever type; its turns are measured where the type is known.
pub trait HeapContestant: Named {
    /// Takes a turn.
    fn turn(&self, plan: &HeapsPlan, effort: &Effort) -> Outcome;
}

impl<H: Heap, M: Fn() -> H> HeapContestant for Entry<M> {
    fn turn(&self, plan: &HeapsPlan, effort: &Effort) -> Outcome {
        shielded(|| round(&self.make, plan, effort))
    }
}

/// Makes all contestants, in the order of the tables.
#[must_use]
pub fn contestants() -> Vec<Box<dyn HeapContestant>> {
    vec![
        Box::new(Entry::new(OURS, || arena(Purge::Manual))),
        Box::new(Entry::new("nofrag, purged by decay", || arena(Config::default().purge))),
        Box::new(Entry::new("glibc malloc", || Glibc)),
        Box::new(Entry::new("jemalloc 5.3.0", || Jemalloc)),
        Box::new(Entry::new("mimalloc 0.1.49", || Mimalloc)),
    ]
}

/// Runs the rounds of all contestants.
pub fn run(run: &mut Run<'_>) {
    let effort = run.effort;
    let plan = HeapsPlan::new(run.seed, effort.replacements / 10);
    let rounds = (effort.rounds, effort.workload);
    run.contest((Group::Heaps, WORKLOAD), &contestants(), rounds, |who, _| {
        who.turn(&plan, &effort)
    });
    run.records.add_ratios(WORKLOAD, Measure::NsPerPair, OURS, Measure::OverArena);
}
