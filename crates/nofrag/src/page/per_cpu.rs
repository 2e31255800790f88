//! Per-CPU lists: free blocks that one CPU takes and gives back without the zone's lock.
//!
//! A block on such a list is in no free list and merges with nothing. Lists are kept by type: a request takes from the
//! list of its type, and a block that comes back goes to the list of its pageblock's type *now*. A refill takes a batch
//! under one lock hold with the flags of the request that caused it, so one empty list can cause as many fragmentation
//! events as a batch has pages.
//!
//! How many pages the lists of a CPU may hold is fixed with [`PerCpuRules::Single`]. With
//! [`PerCpuRules::Orders`] it follows the load between two bounds: each refill raises it by a batch, and refills that
//! follow each other without a free double their size; where pages are short it falls by a batch with each free that
//! finds the lists full, and [`PageAllocator::age_per_cpu`] lets it decay. What a drain takes grows with the pages
//! freed in a row.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::allocator::PageAllocator;
use super::frames::{FrameIndex, Frames, Kind, NONE, Tag};
use super::free_lists::List;
use super::migratetype::Migratetype;
use super::policy::{PerCpuRules, Relist};
use super::steal::{Rung, Taken, Wanted};
use super::walk::Mark;
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
    /// With so many pages the lists are drained.
    high: u32,
    /// Pages that came since the last that went, up to the most that the lists may hold.
    came: u32,
    /// Refills since the last page that came: the next takes so many times twice a batch.
    doublings: u8,
    /// The list that the last drain took from: lists are drained in turn.
    turn: u8,
}

/// How many pages the lists of a CPU in a zone exchange with it, and how many they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Pages of a refill or a drain.
    pub(super) batch: u32,
    /// The least number of pages with which the lists are drained.
    pub(super) least: u32,
    /// The most.
    pub(super) most: u32,
}

/// What the bounds of a zone's lists follow from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) managed: PageCount,
    /// Its low watermark.
    pub(super) low: u64,
    /// CPUs of its node.
    pub(super) local_cpus: u64,
    /// CPUs of the machine.
    pub(super) cpus: u64,
}

impl Bounds {
    /// Those of a zone.
    pub(super) fn of(share: Share, rules: PerCpuRules) -> Bounds {
        let base = match rules {
            PerCpuRules::Single => (share.managed.0 / 1024).min(256) / 4,
            PerCpuRules::Orders => (share.managed.0 / 4096).min(64),
        };
        let base = base.max(1) as u32;
        let batch = ((1 << (base + base / 2).ilog2()) - 1).max(1);
        if rules == PerCpuRules::Single {
            return Bounds { batch, least: 6 * batch, most: 6 * batch };
        }
        let pages = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX);
        let least = pages(share.low / share.local_cpus.max(1)).max(4 * batch);
        let most = pages(share.managed.0 / 8 / share.cpus.max(1)).max(least);
        Bounds { batch, least, most }
    }
}

/// A refill takes at most so many times twice a batch.
const MAX_DOUBLINGS: u8 = 5;

impl PerCpuPages {
    const EMPTY: PerCpuPages = PerCpuPages {
        lists: [List::EMPTY; LISTS],
        pages: 0,
        high: 0,
        came: 0,
        doublings: 0,
        turn: 0,
    };

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

    /// One list.
    pub(super) fn list(&self, slot: Slot) -> &List {
        &self.lists[slot.index()]
    }

    /// Calls `act` for each block on the lists. O(blocks).
    pub(super) fn each(&self, frames: &Frames, mut act: impl FnMut(FrameIndex, Order)) {
        for list in &self.lists {
            let mut next = list.first();
            while let Some(frame) = next {
                act(frame, frames.tag(frame).order());
                let [_, behind] = frames.links(frame);
                next = (behind != NONE).then_some(behind);
            }
        }
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
        let migratetype = match migratetype {
            Migratetype::Reclaimable if order > Order::COSTLY => Migratetype::Unmovable,
            other => other,
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
        let lists = &mut zone.per_cpu[cpu.rank()];
        lists.came /= 2;
        if let Some(frame) = lists.take(&mut self.frames, slot) {
            return Taken::Block(frame);
        }
        let missed = self.refill(cpu, wanted, slot);
        let zone = &mut self.zones[wanted.zone.index()];
        match zone.per_cpu[cpu.rank()].take(&mut self.frames, slot) {
            Some(frame) => Taken::Block(frame),
            None => missed,
        }
    }

    /// Fills a list; says what ended it.
    fn refill(&mut self, cpu: CpuId, wanted: Wanted, slot: Slot) -> Taken {
        let blocks = self.refill_size(cpu, wanted.zone, slot.order);
        let mut rung = Rung::default();
        for number in 0..blocks {
            let frame = match self.take_block(wanted, &mut rung) {
                Taken::Block(frame) => frame,
                missed => return missed,
            };
            let zone = &mut self.zones[wanted.zone.index()];
            let lists = &mut zone.per_cpu[cpu.rank()];
            lists.put(&mut self.frames, slot, frame, Relist::Tail);
            if number == 0 {
                // One that brought nothing, as it must not mix types, is no refill.
                lists.doublings = (lists.doublings + 1).min(MAX_DOUBLINGS);
            }
        }
        Taken::Nothing
    }

    /// How many blocks a refill takes.
    fn refill_size(&mut self, cpu: CpuId, id: ZoneId, order: Order) -> u32 {
        let zone = &mut self.zones[id.index()];
        let (lists, bounds) = (&mut zone.per_cpu[cpu.rank()], zone.per_cpu_bounds);
        let mut pages = bounds.batch;
        if self.policy.per_cpu == PerCpuRules::Orders {
            lists.high = (lists.high.max(bounds.least) + bounds.batch).min(bounds.most);
            let room = lists.high.saturating_sub(lists.pages);
            pages = (pages << lists.doublings).min(room).max(bounds.batch);
        }
        (pages >> order.get()).max(1)
    }

    /// Puts a block on a list of the CPU, and drains some if there are too many pages. Where pages are short, fewer are
    /// too many: what reclaim frees would stay on the list of the CPU that frees it.
    pub(super) fn give_cached(&mut self, cpu: CpuId, id: ZoneId, frame: FrameIndex, slot: Slot) {
        let follows_load = self.policy.per_cpu == PerCpuRules::Orders;
        let short = follows_load && self.is_short(id);
        let zone = &mut self.zones[id.index()];
        let (lists, bounds) = (&mut zone.per_cpu[cpu.rank()], zone.per_cpu_bounds);
        lists.put(&mut self.frames, slot, frame, Relist::Head);
        lists.doublings /= 2;
        lists.came = (lists.came + slot.order.pages() as u32).min(bounds.most);
        if short {
            lists.high = lists.high.saturating_sub(bounds.batch);
        }
        if lists.pages >= lists.high.max(bounds.least) {
            let pages = if follows_load { lists.came.max(bounds.batch) } else { bounds.batch };
            self.drain_some(cpu, id, pages);
        }
    }

    /// Whether the zone is below its high watermark, or its node reclaims.
    fn is_short(&self, id: ZoneId) -> bool {
        let zone = &self.zones[id.index()];
        let awake = self.nodes[zone.node.index()].kswapd.awake;
        awake || zone.lists.total() < zone.mark(Mark::High)
    }

    fn drain_some(&mut self, cpu: CpuId, id: ZoneId, pages: u32) {
        self.counters.list_visits += 1;
        let zone = &mut self.zones[id.index()];
        let mut left = pages;
        while left > 0 {
            let oldest = zone.per_cpu[cpu.rank()].take_oldest(&mut self.frames);
            let Some((frame, order)) = oldest else { break };
            zone.free_block(&mut self.frames, frame, order);
            left = left.saturating_sub(order.pages() as u32);
        }
    }

    /// Computes anew how many pages the lists exchange and hold. O(zones and CPUs).
    pub(super) fn recompute_per_cpu(&mut self) {
        let cpus = self.cpu_nodes.len() as u64;
        for zone in &mut self.zones {
            let local_cpus = self.cpu_nodes.iter().filter(|&&node| node == zone.node).count();
            let (managed, low) = (zone.managed, zone.marks.low);
            let share = Share { managed, low, local_cpus: local_cpus as u64, cpus };
            zone.per_cpu_bounds = Bounds::of(share, self.policy.per_cpu);
        }
    }

    /// Lets what CPUs may keep on their lists decay by an eighth, as Linux's tick of statistics does about once a
    /// second. Nothing happens with lists of fixed size. O(zones and CPUs).
    pub fn age_per_cpu(&mut self) {
        for zone in &mut self.zones {
            for lists in &mut zone.per_cpu {
                lists.high = (lists.high - lists.high / 8).max(zone.per_cpu_bounds.least);
            }
        }
    }

    /// Whether the CPU belongs to the map.
    pub(super) fn has_lists(&self, cpu: CpuId) -> bool {
        cpu.rank() < self.cpu_nodes.len()
    }

    /// Gives all blocks on the lists of a CPU back to their zones. O(zones and blocks).
    pub fn drain(&mut self, cpu: CpuId) {
        if !self.has_lists(cpu) {
            return;
        }
        for index in 0..self.zones.len() {
            self.drain_some(cpu, ZoneId(index as u16), u32::MAX);
        }
    }

    /// Gives all blocks on the lists of all CPUs back to their zones. O(zones, CPUs and blocks).
    pub fn drain_all(&mut self) {
        for index in 0..self.zones.len() {
            self.drain_zone(ZoneId(index as u16));
        }
    }

    /// Gives all blocks on the per-CPU lists of a zone back to it.
    pub(super) fn drain_zone(&mut self, id: ZoneId) {
        for rank in 0..self.zones[id.index()].per_cpu.len() {
            let zone = &mut self.zones[id.index()];
            while let Some((frame, order)) = zone.per_cpu[rank].take_oldest(&mut self.frames) {
                zone.free_block(&mut self.frames, frame, order);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::FragmentationPolicy;
    use super::super::testing::{self, cpu, free_pages, full_zone, take};
    use super::*;
    use crate::page::allocator::PageConfig;
    use crate::page::map::MemoryMap;
    use crate::page::request::PageRequest;
    use crate::units::{Nanos, Pfn};
    use Migratetype::Movable;

    fn share(pages: u64) -> Share {
        Share { managed: PageCount(pages), low: 13_200, local_cpus: 8, cpus: 16 }
    }

    #[test]
    fn batches_follow_the_size_of_the_zone() {
        let of = |pages| Bounds::of(share(pages), PerCpuRules::Single);
        let fixed = |batch| Bounds { batch, least: 6 * batch, most: 6 * batch };
        assert_eq!([1 << 30, 262_144, 131_072, 0].map(of), [63, 63, 31, 1].map(fixed));
    }

    #[test]
    fn with_orders_the_bounds_follow_the_watermark_and_the_cpus() {
        let of = |share| Bounds::of(share, PerCpuRules::Orders);
        assert_eq!(of(share(5 << 18)), Bounds { batch: 63, least: 1650, most: 10_240 });
        assert_eq!(of(share(131_072)), Bounds { batch: 31, least: 1650, most: 1650 });
        assert_eq!(of(Share { low: 0, ..share(0) }), Bounds { batch: 1, least: 4, most: 4 });
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

    #[test]
    fn what_is_freed_where_pages_are_short_does_not_stay_on_the_cpu() {
        let map = MemoryMap::uma(PageCount(1 << 18), 0, 16).expect("a small machine");
        let cpu = map.cpus().by_rank(0).expect("it has CPUs");
        let config = PageConfig::new(map, FragmentationPolicy::LINUX_7_2);
        let mut pages = PageAllocator::new(&config).expect("there is memory");
        let mut taken = Vec::new();
        while let Ok(pfn) = pages.alloc(Nanos(0), cpu, PageRequest::user(Order::ZERO)) {
            taken.push(pfn);
        }
        let zone = &pages.zones[1];
        assert_eq!(zone.per_cpu_bounds, Bounds { batch: 63, least: 440, most: 2048 });
        assert_eq!(zone.per_cpu[0].high, 2048);
        taken.iter().take(1000).for_each(|&pfn| pages.free(cpu, pfn).expect("it is in use"));
        assert!(pages.zones[1].per_cpu[0].pages <= 440, "{}", pages.zones[1].per_cpu[0].pages);
    }

    /// A zone whose CPU exchanges 4 pages and keeps fewer than 12.
    fn small() -> PageAllocator {
        let mut pages = full_zone(2, FragmentationPolicy::LINUX_4_20);
        pages.zones[0].per_cpu_bounds = Bounds { batch: 4, least: 12, most: 12 };
        pages
    }

    #[test]
    fn pages_come_back_in_the_order_in_which_they_were_removed_and_the_last_freed_first() {
        let mut pages = small();
        free_pages(&mut pages, [0, 2, 4, 6, 8, 10]);
        let taken = [(); 3].map(|()| take(&mut pages, 0, Movable));
        assert_eq!(taken, [10, 8, 6].map(|frame| Some(Pfn(frame))));
        pages.free(cpu(), Pfn(100)).expect("it is in use");
        let taken = [(); 2].map(|()| take(&mut pages, 0, Movable));
        assert_eq!(taken, [100, 4].map(|frame| Some(Pfn(frame))));
        assert_eq!(testing::free_blocks(&pages), "0M0 2M0", "the batch is used up");
    }

    #[test]
    fn full_lists_give_back_what_is_oldest_in_turn() {
        let mut pages = small();
        pages.set_block_type(Pfn(512), Migratetype::Unmovable).expect("it is whole");
        for frame in [0, 2, 4, 6, 8, 10, 12, 14, 512, 514, 516] {
            pages.free(cpu(), Pfn(frame)).expect("it is in use");
        }
        assert_eq!(testing::free_blocks(&pages), "");
        pages.free(cpu(), Pfn(518)).expect("it is in use");
        assert_eq!(testing::free_blocks(&pages), "0M0 2M0 512U0 514U0");
    }

    #[test]
    fn a_page_goes_to_the_list_of_its_pageblocks_type_now() {
        let mut pages = small();
        pages.set_block_type(Pfn(0), Migratetype::Reclaimable).expect("it is whole");
        pages.free(cpu(), Pfn(7)).expect("it is in use");
        assert_eq!(take(&mut pages, 0, Movable), None);
        assert_eq!(take(&mut pages, 0, Migratetype::Reclaimable), Some(Pfn(7)));
    }

    #[test]
    fn what_a_cpu_may_keep_follows_the_load() {
        let mut pages = testing::zone(64, FragmentationPolicy::LINUX_7_2);
        let bounds = Bounds { batch: 4, least: 16, most: 64 };
        pages.zones[0].per_cpu_bounds = bounds;
        let kept = |pages: &PageAllocator| pages.zones[0].per_cpu[0].high;
        let refills: Vec<u32> = (0..6)
            .map(|_| {
                let before = pages.per_cpu_pages(ZoneId(0)).0;
                while pages.per_cpu_pages(ZoneId(0)).0 > 0 {
                    take(&mut pages, 0, Movable).expect("there is room");
                }
                take(&mut pages, 0, Movable).expect("there is room");
                assert!(before < 64);
                pages.per_cpu_pages(ZoneId(0)).0 as u32 + 1
            })
            .collect();
        assert_eq!(refills, [4, 8, 16, 32, 36, 40], "twice as many, as far as there is room");
        assert_eq!(kept(&pages), 40);
        pages.age_per_cpu();
        assert_eq!(kept(&pages), 35);
        pages.nodes[0].kswapd.awake = true;
        for frame in 0..200 {
            let _ = pages.free(cpu(), Pfn(frame));
        }
        assert!(kept(&pages) <= 16, "where pages are short it falls");
    }
}
