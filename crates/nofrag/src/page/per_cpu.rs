//! Per-CPU lists: free blocks that one CPU takes and gives back without the zone's lock.
//!
//! A block on such a list is in no free list and merges with nothing. Lists are kept by type: a request takes from the
//! list of its type, and a block that comes back goes to the list of its pageblock's type *now*. A refill takes a batch
//! under one lock hold with the flags of the request that caused it, so one empty list can cause as many fragmentation
//! events as a batch has pages.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::allocator::PageAllocator;
use super::frames::{FrameIndex, Frames, Kind, Tag};
use super::free_lists::List;
use super::migratetype::Migratetype;
use super::policy::{PerCpuRules, Relist};
use super::steal::{Rung, Taken, Wanted};
use super::zone::ZoneId;
use crate::cpu::CpuId;
use crate::event::EventSink;
use crate::units::{Order, PageCount};

/// Lists of one CPU in one zone: a type each for single pages; with [`PerCpuRules::Orders`] also for orders 1 to 3,
/// and two for huge pages.
const LISTS: usize = 4 * Migratetype::MOBILITY.len() + 2;

/// The lists of one CPU in one zone.
#[derive(Clone, Debug)]
pub(super) struct PerCpuPages {
    lists: [List; LISTS],
    /// Pages on them.
    pages: u32,
    /// The list that the last drain took from: lists are drained in turn.
    turn: u8,
}

/// How many pages lists exchange with the zone, and how many they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Pages of a refill or a drain.
    pub(super) batch: u32,
    /// With so many pages the lists are drained by a batch.
    pub(super) high: u32,
}

impl Bounds {
    /// Those of a zone of so many pages.
    pub(super) fn of(managed: PageCount, rules: PerCpuRules) -> Bounds {
        let base = match rules {
            PerCpuRules::Single => (managed.0 / 1024).min(256) / 4,
            PerCpuRules::Orders => (managed.0 / 4096).min(64),
        };
        let base = base.max(1) as u32;
        let batch = ((1 << (base + base / 2).ilog2()) - 1).max(1);
        Bounds { batch, high: 6 * batch }
    }
}

impl PerCpuPages {
    const EMPTY: PerCpuPages = PerCpuPages { lists: [List::EMPTY; LISTS], pages: 0, turn: 0 };

    /// Empty lists for each of so many CPUs.
    pub(super) fn of(cpus: usize) -> Result<Vec<PerCpuPages>, TryReserveError> {
        let mut all = Vec::new();
        all.try_reserve_exact(cpus)?;
        all.resize(cpus, PerCpuPages::EMPTY);
        Ok(all)
    }

    /// Pages on all lists.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    fn put(&mut self, frames: &mut Frames, slot: Slot, frame: FrameIndex, end: Relist) {
        frames.set_tag(frame, Tag::new(Kind::PerCpu, slot.order));
        self.lists[slot.index()].push(frames, frame, end);
        self.pages += slot.order.pages() as u32;
    }

    fn take(&mut self, frames: &mut Frames, slot: Slot) -> Option<FrameIndex> {
        let list = &mut self.lists[slot.index()];
        let frame = list.first()?;
        list.unlink(frames, frame);
        self.pages -= slot.order.pages() as u32;
        frames.set_tag(frame, Tag::new(Kind::Used, slot.order));
        Some(frame)
    }

    /// Takes the block that waited longest off the next list in turn that is not empty.
    fn take_oldest(&mut self, frames: &mut Frames) -> Option<(FrameIndex, Order)> {
        for _ in 0..LISTS {
            self.turn = (self.turn + 1) % LISTS as u8;
            let list = &mut self.lists[usize::from(self.turn)];
            if let Some(frame) = list.last() {
                list.unlink(frames, frame);
                let order = frames.tag(frame).order();
                self.pages -= order.pages() as u32;
                return Some((frame, order));
            }
        }
        None
    }
}

/// A list: which blocks it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    order: Order,
    migratetype: Migratetype,
}

impl Slot {
    /// The list for such blocks, if there is one.
    pub(super) fn of(order: Order, migratetype: Migratetype, rules: PerCpuRules) -> Option<Slot> {
        let listed = match rules {
            PerCpuRules::Single => order == Order::ZERO,
            PerCpuRules::Orders => order <= Order::COSTLY || order == Order::PAGEBLOCK,
        };
        (listed && migratetype.is_mobility()).then_some(Slot { order, migratetype })
    }

    const fn index(self) -> usize {
        if self.order.get() > Order::COSTLY.get() {
            let movable = matches!(self.migratetype, Migratetype::Movable) as usize;
            return LISTS - 2 + movable;
        }
        self.order.index() * Migratetype::MOBILITY.len() + self.migratetype.index()
    }
}

impl<E: EventSink> PageAllocator<E> {
    /// Takes a block from a list of the CPU, which is refilled if it is empty.
    pub(super) fn take_cached(&mut self, cpu: CpuId, wanted: Wanted, slot: Slot) -> Taken {
        let zone = &mut self.zones[wanted.zone.index()];
        if let Some(frame) = zone.per_cpu[cpu.rank()].take(&mut self.frames, slot) {
            return Taken::Block(frame);
        }
        let missed = self.refill(cpu, wanted, slot);
        let zone = &mut self.zones[wanted.zone.index()];
        match zone.per_cpu[cpu.rank()].take(&mut self.frames, slot) {
            Some(frame) => Taken::Block(frame),
            None => missed,
        }
    }

    /// Takes a batch; says what ended it.
    fn refill(&mut self, cpu: CpuId, wanted: Wanted, slot: Slot) -> Taken {
        let batch = self.zones[wanted.zone.index()].per_cpu_bounds.batch;
        let mut rung = Rung::default();
        for _ in 0..(batch >> slot.order.get()).max(1) {
            let frame = match self.take_block(wanted, &mut rung) {
                Taken::Block(frame) => frame,
                missed => return missed,
            };
            let zone = &mut self.zones[wanted.zone.index()];
            zone.per_cpu[cpu.rank()].put(&mut self.frames, slot, frame, Relist::Tail);
        }
        Taken::Nothing
    }

    /// Puts a block on a list of the CPU, and drains a batch if there are too many pages.
    pub(super) fn give_cached(&mut self, cpu: CpuId, id: ZoneId, frame: FrameIndex, slot: Slot) {
        let zone = &mut self.zones[id.index()];
        let lists = &mut zone.per_cpu[cpu.rank()];
        lists.put(&mut self.frames, slot, frame, Relist::Head);
        let Bounds { batch, high } = zone.per_cpu_bounds;
        if lists.pages >= high {
            self.drain_some(cpu, id, batch);
        }
    }

    fn drain_some(&mut self, cpu: CpuId, id: ZoneId, pages: u32) {
        self.counters.list_visits += 1;
        let rules = self.policy.fallback;
        let zone = &mut self.zones[id.index()];
        let mut left = pages;
        while left > 0 {
            let oldest = zone.per_cpu[cpu.rank()].take_oldest(&mut self.frames);
            let Some((frame, order)) = oldest else { break };
            zone.free_block(&mut self.frames, frame, order, rules);
            left = left.saturating_sub(order.pages() as u32);
        }
    }

    /// Gives all blocks on the lists of a CPU back to their zones.
    pub fn drain(&mut self, cpu: CpuId) {
        for index in 0..self.zones.len() {
            self.drain_some(cpu, ZoneId(index as u16), u32::MAX);
        }
    }

    /// Gives all blocks on the lists of all CPUs back to their zones.
    pub fn drain_all(&mut self) {
        for index in 0..self.zones.len() {
            self.drain_zone(ZoneId(index as u16));
        }
    }

    /// Gives all blocks on the per-CPU lists of a zone back to it.
    pub(super) fn drain_zone(&mut self, id: ZoneId) {
        for rank in 0..self.zones[id.index()].per_cpu.len() {
            let rules = self.policy.fallback;
            let zone = &mut self.zones[id.index()];
            while let Some((frame, order)) = zone.per_cpu[rank].take_oldest(&mut self.frames) {
                zone.free_block(&mut self.frames, frame, order, rules);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_the_size_of_the_zone() {
        let of = |pages| Bounds::of(PageCount(pages), PerCpuRules::Single);
        assert_eq!(of(262_144), Bounds { batch: 63, high: 378 });
        assert_eq!(of(1 << 30), Bounds { batch: 63, high: 378 });
        assert_eq!(of(131_072), Bounds { batch: 31, high: 186 });
        assert_eq!(of(0), Bounds { batch: 1, high: 6 });
    }

    #[test]
    fn every_list_has_a_place_of_its_own() {
        let mut seen = [0; LISTS];
        for order in Order::all() {
            for migratetype in Migratetype::ALL {
                if let Some(slot) = Slot::of(order, migratetype, PerCpuRules::Orders) {
                    seen[slot.index()] += 1;
                }
            }
        }
        assert_eq!(seen, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1], "the first of two is shared");
    }
}
