//! Counters of a [`VmapSpace`](super::VmapSpace): plain fields that the holder of a lock updates, added up on demand.

use super::AreaState;
use crate::cpu::CpuId;
use crate::ranges::Counters as RangeCounters;
pub use crate::sync::LockCounters;
use crate::units::Vpn;

/// Counts of a [`VmapSpace`](super::VmapSpace) since construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmapCounters {
    pub allocs: u64,
    pub frees: u64,
    /// The index of free ranges: fit types, search steps, merges.
    pub ranges: RangeCounters,
    pub pools: PoolCounters,
    pub purge: PurgeCounters,
    /// Counts of the blocks behind `map_ram`.
    pub blocks: BlockCounters,
    pub locks: LockCosts,
    /// Locked operations of the processor besides those of the locks: updates of the count of lazy pages, and what goes
    /// to a handle by mail.
    pub atomic_updates: u64,
}

impl VmapCounters {
    /// Returns the number of all locked operations: two for each acquisition of a lock, and the atomic updates.
    #[must_use]
    pub fn locked_operations(&self) -> u64 {
        2 * self.locks.total().acquisitions + self.atomic_updates
    }
}

/// Counts of the pools of flushed areas.
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

/// Counts of the blocks behind `map_ram`, since construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounters {
    pub maps: u64,
    pub created: u64,
    /// Blocks given back (Linux: `free_vmap_block`).
    pub returned: u64,
    /// Blocks that searches looked at: a list or a bin offered them.
    pub search_steps: u64,
    /// Blocks that requests looked at in search of the block that was just created for them.
    pub second_search_steps: u64,
    /// Searches that found no block.
    pub failed_searches: u64,
    /// The most blocks that one CPU's list has held.
    pub longest_list: u64,
    /// Blocks given back although they were not used up, since nothing in them was live.
    pub purged: u64,
    /// Number of calls of `unmap_aliases`.
    pub alias_flushes: u64,
    /// Flushes on behalf of slots alone.
    pub flushes: u64,
    /// Pages that were handed out again without their block having been given back.
    pub recycled_pages: u64,
    /// Entries made in the index.
    pub index_inserts: u64,
    /// Entries taken out of the index.
    pub index_erases: u64,
    /// Blocks looked at by alias flushes and forced purges.
    pub visited: u64,
    /// The most blocks looked at in one hold of a lock.
    pub max_visited_per_hold: u64,
    /// Words of dirty bitmaps that were written or read. Zero where two integers replace the bitmap.
    pub dirty_words: u64,
}

/// Use of the blocks behind `map_ram`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStats {
    pub blocks: u64,
    /// Mapped pages of the blocks, rounding included.
    pub live_pages: u64,
    /// Pages that were unmapped and cannot be handed out yet.
    pub dirty_pages: u64,
    /// Pages that can be handed out.
    pub free_pages: u64,
    /// The most blocks that one CPU's list holds at present.
    pub listed_longest: u64,
    /// Bytes of the records of blocks.
    pub metadata_bytes: u64,
}

/// A block, as it is shown for inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    pub start: Vpn,
    /// The CPU that hands out the block's slots.
    pub owner: CpuId,
    /// Slots that can be handed out.
    pub free: u32,
    /// Slots that were unmapped and cannot be handed out yet.
    pub dirty: u32,
    /// Slots that are mapped; rounding included.
    pub live: u32,
}

/// Counts of the purge since construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCounters {
    /// Steps of the purge that found something to do.
    pub steps: u64,
    /// Number of calls of [`Mapper::flush`](super::Mapper::flush).
    pub flushes: u64,
    /// Ranges that the flushes of the purge covered.
    pub flushed_ranges: u64,
    /// Number of areas that were flushed.
    pub areas: u64,
    /// Times the lock of the free ranges was held to give areas back.
    pub holds: u64,
    /// The most areas given back in one hold of the lock of the free ranges.
    pub max_areas_per_hold: u64,
    /// Runs of adjacent areas that were given back as one range.
    pub runs: u64,
}

impl PurgeCounters {
    /// Adds what an owner has flushed by itself.
    pub(super) fn add(&mut self, own: &PurgeCounters) {
        self.steps += own.steps;
        self.flushes += own.flushes;
        self.flushed_ranges += own.flushed_ranges;
        self.areas += own.areas;
    }

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

/// Costs of each kind of lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCosts {
    pub purge: LockCounters,
    /// Locks of the CPUs' pools.
    pub cpu: LockCounters,
    /// The CPUs' inboxes of flushed areas.
    pub inbox: LockCounters,
    /// The busy areas; under `OneLock` this lock is `free`.
    pub busy: LockCounters,
    /// The lazy areas, where they have a lock of their own.
    pub lazy: LockCounters,
    /// Locks of the nodes' pools.
    pub pools: LockCounters,
    /// Lock of the free ranges.
    pub free: LockCounters,
    /// One lock for each of Linux's blocks.
    pub block: LockCounters,
    /// The CPUs' lists of Linux's blocks.
    pub block_queue: LockCounters,
    /// The index of Linux's blocks, all buckets.
    pub block_index: LockCounters,
    /// Acquisitions of the locks that each guard the blocks from which one CPU of our engine hands out slots.
    pub stock: LockCounters,
    /// The CPUs' recyclers of blocks in our engine.
    pub recycler: LockCounters,
}

impl LockCosts {
    /// Returns the sum over all locks.
    #[must_use]
    pub fn total(&self) -> LockCounters {
        let LockCosts { purge, cpu, inbox, busy, lazy, pools, free, .. } = *self;
        let LockCosts { block, block_queue, block_index, stock, recycler, .. } = *self;
        let areas = [purge, cpu, inbox, busy, lazy, pools, free];
        let blocks = [block, block_queue, block_index, stock, recycler];
        areas.into_iter().chain(blocks).fold(LockCounters::default(), LockCounters::plus)
    }
}

/// Pages and areas of a space by their states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmapStats {
    pub total_pages: u64,
    /// Pages handed out, guard pages included.
    pub busy_pages: u64,
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
    /// Pages of the largest free range.
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
