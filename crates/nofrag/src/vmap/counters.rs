//! What a [`VmapSpace`](super::VmapSpace) counts: plain fields of whoever holds the lock, added up on demand.

use super::AreaState;
use crate::ranges::Counters as RangeCounters;
pub use crate::sync::LockCounters;

/// Counts since construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmapCounters {
    /// Areas handed out.
    pub allocs: u64,
    /// Areas freed.
    pub frees: u64,
    /// The index of free ranges: fit types, search steps, merges.
    pub ranges: RangeCounters,
    /// The pools.
    pub pools: PoolCounters,
    /// The purge.
    pub purge: PurgeCounters,
    /// The locks.
    pub locks: LockCosts,
    /// Locked operations of the processor besides those of the locks: updates of the count of lazy pages.
    pub atomic_updates: u64,
}

impl VmapCounters {
    /// All locked operations: two for each acquisition of a lock, and the atomic updates.
    #[must_use]
    pub fn locked_operations(&self) -> u64 {
        2 * self.locks.total().acquisitions + self.atomic_updates
    }
}

/// What the pools did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Allocations served by a pool.
    pub hits: u64,
    /// Allocations that a pool could have served but did not.
    pub misses: u64,
    /// Areas that decay gave back to the free ranges.
    pub decayed: u64,
}

impl PoolCounters {
    pub(super) fn add(&mut self, other: PoolCounters) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.decayed += other.decayed;
    }
}

/// What the purge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCounters {
    /// Steps that found something to do.
    pub steps: u64,
    /// Calls of [`Pages::flush`](super::Pages::flush).
    pub flushes: u64,
    /// Ranges that they were given.
    pub flushed_ranges: u64,
    /// Areas flushed.
    pub areas: u64,
    /// How often the lock of the free ranges was held to give areas back.
    pub holds: u64,
    /// The most areas in one such hold.
    pub max_areas_per_hold: u64,
    /// Runs of adjacent areas that were given back as one range.
    pub runs: u64,
}

impl PurgeCounters {
    pub(super) fn add_holds(&mut self, holds: HoldCounters) {
        self.holds = holds.holds;
        self.max_areas_per_hold = holds.max_areas;
        self.runs = holds.runs;
    }
}

/// Holds of the lock of the free ranges that gave areas back, counted by the holder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HoldCounters {
    pub(super) holds: u64,
    pub(super) max_areas: u64,
    pub(super) runs: u64,
}

/// What each kind of lock has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCosts {
    /// The purge lock.
    pub purge: LockCounters,
    /// The CPUs' pools.
    pub cpu: LockCounters,
    /// The CPUs' inboxes of flushed areas.
    pub inbox: LockCounters,
    /// The busy areas; under `OneLock` this lock is `free`.
    pub busy: LockCounters,
    /// The lazy areas, where they have a lock of their own.
    pub lazy: LockCounters,
    /// The nodes' pools.
    pub pools: LockCounters,
    /// The free ranges.
    pub free: LockCounters,
}

impl LockCosts {
    /// The sum over all locks.
    #[must_use]
    pub fn total(&self) -> LockCounters {
        let LockCosts { purge, cpu, inbox, busy, lazy, pools, free } = *self;
        [purge, cpu, inbox, busy, lazy, pools, free]
            .into_iter()
            .fold(LockCounters::default(), LockCounters::plus)
    }
}

/// How many pages are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmapStats {
    /// Pages of the space.
    pub total_pages: u64,
    /// Pages handed out, guard pages included.
    pub busy_pages: u64,
    /// Areas handed out.
    pub busy_areas: u64,
    /// Pages freed and not flushed.
    pub lazy_pages: u64,
    /// Areas freed and not flushed.
    pub lazy_areas: u64,
    /// Pages kept at hand in pools.
    pub pooled_pages: u64,
    /// Areas kept at hand in pools.
    pub pooled_areas: u64,
    /// Pages free in the index.
    pub free_pages: u64,
    /// Free ranges in the index.
    pub holes: usize,
    /// The largest free range.
    pub largest_hole: u64,
}

impl VmapStats {
    /// Counts `areas` areas of together `pages` pages.
    pub(super) fn note(&mut self, state: AreaState, pages: u64, areas: u32) {
        let (page_sum, area_sum) = match state {
            AreaState::Busy => (&mut self.busy_pages, &mut self.busy_areas),
            AreaState::Lazy => (&mut self.lazy_pages, &mut self.lazy_areas),
            AreaState::Pooled => (&mut self.pooled_pages, &mut self.pooled_areas),
        };
        *page_sum += pages;
        *area_sum += u64::from(areas);
    }
}
