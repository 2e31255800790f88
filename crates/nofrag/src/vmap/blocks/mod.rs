//! Blocks: the allocator of small mappings in front of the areas (Pen 2015, Rezki 2023).
//!
//! A *block* is an area, aligned to its size, that is cut into page *slots*. Every CPU hands out slots of its own
//! blocks; a mapping may be ended by any CPU. A slot is free, live, or *dirty*: unmapped, while stale translations of
//! it may still be cached.
//!
//! Two engines, chosen by [`BlockIndex`](policy::BlockIndex): `queues` is Linux's, from 3.19 to 6.11, and `slots` ours.
//! Sources: docs/sources/vmap.md#blocks and vmap.md#recycled-slots.

pub(in crate::vmap) mod policy;
mod queues;
mod slots;
mod table;

use self::policy::BlockIndex;
use self::queues::Queues;
use self::slots::SlotBlocks;
pub(super) use self::slots::Stock;
use super::engine::Miss;
use super::{
    BlockRecord, BlockStats, Mapper, RamArea, UnmapRamError, VmapConfig, VmapCounters, Wait,
};
use crate::check::Violation;
use crate::cpu::CpuId;
use crate::ranges::{OutOfMetadata, Span};
use crate::sync::Guard;
use alloc::vec::Vec;

/// The owner of the areas, from which block engines take areas for blocks and to which they return them, and of the
/// mapper behind the pages.
pub(super) trait AreaSource {
    type Mapper: Mapper;

    fn mapper(&self) -> &Self::Mapper;

    /// Takes an area for a new block and returns its first page. No lock of higher rank than the stock's may be held.
    fn take_block(&self, cpu: CpuId) -> Result<u64, Miss>;

    /// Frees a block lazily: slots of it may be dirty.
    fn retire_block(&self, cpu: CpuId, start: u64);

    /// Gives a block back at once: none of its slots is dirty.
    fn release_block(&self, start: u64);
}

/// The outcome of an alias flush: numbers of blocks visited and given back, and dirty slots left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aliases {
    pub(super) visited: u64,
    pub(super) returned: u64,
    /// The hull of the dirty slots that the caller has to flush.
    pub(super) stale: Option<Span>,
}

impl Aliases {
    fn add(&mut self, stale: Span) {
        self.stale = Some(self.stale.map_or(stale, |hull| hull.hull(stale)));
    }
}

/// The block engine, chosen once by [`BlockIndex`]. There is one per space, and an indirection would cost every
/// operation.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(super) enum Blocks {
    Queues(Queues),
    Slots(SlotBlocks),
}

/// Calls the same method on whichever engine is in use.
macro_rules! on_blocks {
    ($blocks:expr, $it:ident => $call:expr) => {
        match $blocks {
            Blocks::Queues($it) => $call,
            Blocks::Slots($it) => $call,
        }
    };
}

impl Blocks {
    pub(super) fn new(config: &VmapConfig) -> Result<Blocks, OutOfMetadata> {
        Ok(match config.policy.blocks.index {
            BlockIndex::Global | BlockIndex::PerCpu => Blocks::Queues(Queues::new(config)?),
            BlockIndex::Direct => Blocks::Slots(SlotBlocks::new(config)?),
        })
    }

    /// Takes slots of the CPU's window, if the caller has its stock, and returns the first page: the fast path of our
    /// engine.
    ///
    /// For any obstacle the answer is `None`, and the slow path finds out the reason.
    #[inline(always)]
    pub(super) fn map_at_hand(&self, stock: Option<&mut Stock>, pages: u64) -> Option<u64> {
        match self {
            Blocks::Slots(slots) => slots.map_at_hand(stock?, pages),
            Blocks::Queues(_) => None,
        }
    }

    /// Does what [`map_at_hand`](Self::map_at_hand) does, under the CPU's lock.
    #[inline(always)]
    pub(super) fn map_at_hand_locked(&self, cpu: CpuId, pages: u64) -> Option<u64> {
        match self {
            Blocks::Slots(slots) => slots.map_at_hand_locked(cpu, pages),
            Blocks::Queues(_) => None,
        }
    }

    /// Ends a mapping in a block of our engine; returns false, with nothing changed, if `area` is none.
    #[inline(always)]
    pub(super) fn unmap_at_hand<A: AreaSource>(&self, area: RamArea, areas: &A) -> bool {
        match self {
            Blocks::Slots(slots) => slots.unmap_at_hand(area, areas),
            Blocks::Queues(_) => false,
        }
    }

    /// Ends a mapping in a block of our engine for the holder of the stock that the block belongs to; returns false,
    /// with nothing changed, if `area` is none.
    #[inline(always)]
    pub(super) fn unmap_own<A: AreaSource>(
        &self,
        stock: Option<&mut Stock>,
        cpu: CpuId,
        area: RamArea,
        areas: &A,
    ) -> bool {
        match (self, stock) {
            (Blocks::Slots(slots), Some(stock)) => slots.unmap_own(stock, cpu, area, areas),
            _ => false,
        }
    }

    /// Returns true if the holder of a stock keeps a slot at `page` that it has freed.
    pub(super) fn keeps(&self, stock: &Stock, cpu: CpuId, page: u64) -> bool {
        match self {
            Blocks::Slots(slots) => slots.keeps(stock, cpu, page),
            Blocks::Queues(_) => false,
        }
    }

    /// Returns the first page of a place for `pages` pages, 1 to the geometry's `max_pages`. `stock` is the CPU's, if
    /// the caller holds it; without leave to wait nothing is flushed.
    #[inline(always)]
    pub(super) fn map<A: AreaSource>(
        &self,
        cpu: CpuId,
        stock: Option<&mut Stock>,
        pages: u32,
        wait: Wait,
        areas: &A,
    ) -> Result<u64, Miss> {
        match self {
            Blocks::Queues(queues) => queues.map(cpu, pages, areas),
            Blocks::Slots(slots) => match stock {
                Some(stock) => slots.map_from(stock, cpu, pages, wait, areas),
                None => slots.map(cpu, pages, wait, areas),
            },
        }
    }

    /// Ends the mapping. `NotMapped` if no block covers its first page, or nothing was ever mapped there.
    #[inline(always)]
    pub(super) fn unmap<A: AreaSource>(
        &self,
        area: RamArea,
        areas: &A,
    ) -> Result<(), UnmapRamError> {
        on_blocks!(self, it => it.unmap(area, areas))
    }

    /// Returns the mapping that covers page `at`.
    pub(super) fn find(&self, at: u64) -> Option<RamArea> {
        on_blocks!(self, it => it.find(at))
    }

    /// Returns the lowest block number (first page over block size), from `number` on, at which a block stands or
    /// stood.
    pub(super) fn next_record(&self, number: u64) -> Option<u64> {
        on_blocks!(self, it => it.next_record(number))
    }

    /// Calls `visit` with the runs of mapped pages of the block with this number (its first page over its size), if
    /// there is one, by ascending address. No lock is held.
    pub(super) fn for_each_live(&self, number: u64, visit: &mut dyn FnMut(Span)) {
        on_blocks!(self, it => it.for_each_live(number, visit));
    }

    /// Waits for the caller's turn at flushing aliases, where the engine needs turns; the turn ends when the guard is
    /// dropped.
    pub(super) fn alias_turn(&self) -> Option<Guard<'_, ()>> {
        match self {
            Blocks::Queues(queues) => Some(queues.alias_turn()),
            Blocks::Slots(_) => None,
        }
    }

    /// Flushes every dirty slot, or leaves the hull of them to the caller; gives idle blocks back.
    pub(super) fn flush_aliases<A: AreaSource>(&self, areas: &A) -> Aliases {
        on_blocks!(self, it => it.flush_aliases(areas))
    }

    /// Gives back every block of every CPU in which nothing is live.
    pub(super) fn purge_idle<A: AreaSource>(&self, areas: &A) {
        on_blocks!(self, it => it.purge_idle(areas));
    }

    /// Gives back every block without a live slot of a CPU whose stock the caller holds.
    pub(super) fn purge_stock<A: AreaSource>(&self, cpu: CpuId, stock: &mut Stock, areas: &A) {
        if let Blocks::Slots(slots) = self {
            slots.purge_stock(cpu, stock, areas);
        }
    }

    /// Returns true if slots of ours await a flush that the CPUs which own them do not make.
    pub(super) fn is_overdue(&self) -> bool {
        match self {
            Blocks::Queues(_) => false,
            Blocks::Slots(slots) => slots.is_overdue(),
        }
    }

    /// Collects and flushes the slots that are overdue for a flush, for the CPUs that own them.
    pub(super) fn drain_overdue<A: AreaSource>(&self, areas: &A) {
        if let Blocks::Slots(slots) = self {
            slots.drain_overdue(areas);
        }
    }

    /// Returns true if a purge could give a block back.
    pub(super) fn has_reclaimable(&self) -> bool {
        on_blocks!(self, it => it.has_reclaimable())
    }

    pub(super) fn take_stock(&self, cpu: CpuId) -> Option<Stock> {
        match self {
            Blocks::Queues(_) => None,
            Blocks::Slots(slots) => slots.take_stock(cpu),
        }
    }

    pub(super) fn put_stock<A: AreaSource>(&self, cpu: CpuId, stock: Stock, areas: &A) {
        if let Blocks::Slots(slots) = self {
            slots.put_stock(cpu, stock, areas);
        }
    }

    /// Hands the blocks of a CPU, whose stock the caller has, over to CPU `to`, of which no handle is out. Returns
    /// their number.
    pub(super) fn hand_over<A: AreaSource>(
        &self,
        from: CpuId,
        stock: &mut Stock,
        to: CpuId,
        areas: &A,
    ) -> Result<u64, OutOfMetadata> {
        match self {
            Blocks::Queues(_) => Ok(0),
            Blocks::Slots(slots) => slots.hand_over(from, stock, to, areas),
        }
    }

    pub(super) fn add_counters(&self, counters: &mut VmapCounters) {
        on_blocks!(self, it => it.add_counters(counters));
    }

    pub(super) fn stats(&self) -> BlockStats {
        on_blocks!(self, it => it.stats())
    }

    pub(super) fn collect(&self, out: &mut Vec<BlockRecord>) -> Result<(), OutOfMetadata> {
        on_blocks!(self, it => it.collect(out))
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        on_blocks!(self, it => it.check())
    }
}
