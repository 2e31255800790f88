//! Per-CPU lists: free blocks that one CPU takes and gives back without the zone's lock.
//!
//! A block on such a list is in no free list and merges with nothing. Lists are kept by order and type: a request takes
//! the head of the list of its type, and a freed block goes to the head of the list of its pageblock's type *now*. A
//! refill takes a batch under one lock hold with the flags of the request that caused it, so one empty list can cause
//! as many fragmentation events as a batch has blocks; it appends at the tail. A drain takes from the tails.
//!
//! Three eras differ in which blocks are kept, and in how many ([`PerCpuRules`]):
//!
//! * [`Single`](PerCpuRules::Single), to 5.13: single pages. Batch and bound are constant. A drain takes a page from
//!   each type in turn.
//! * [`Orders`](PerCpuRules::Orders), 5.14 to 6.6: orders 0 to 3 and huge pages. The bound is constant, but four
//!   batches while kswapd reclaims in the zone. Drains that follow each other without a request double, and begin with
//!   the list just freed into. A block of order 1 to 3 freed while drains grow empties the lists.
//! * [`Tuned`](PerCpuRules::Tuned), 6.7 on: the same lists. The bound moves between two: refills raise it and grow
//!   while nothing is freed, drains take as much as was freed, and short memory lowers it.
//!
//! Where lists are loose (to 6.9) a block goes back to the type that it had when it was freed or refilled; strict lists
//! ask its pageblock again.
//!
//! Rules: docs/sources/pages.md#per-cpu, and from exact states pages.md#frames-per-cpu and pages.md#frames-6-12.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::allocator::PageAllocator;
use super::event::PageEvent;
use super::frames::{FrameIndex, Frames, Kind, NONE, Tag};
use super::free_lists::List;
use super::map::ZoneKind;
use super::migratetype::Migratetype;
use super::policy::{PerCpuRules, Relist};
use super::steal::{Rung, Taken, ZoneRequest};
use super::walk::{AllocFlags, Mark};
use super::zone::{Zone, ZoneId};
use crate::cpu::CpuId;
use crate::event::{Event, EventSink};
use crate::lists::filled;
use crate::units::{Order, PageCount};

/// Number of lists of one CPU in one zone: one for each type that requests name and each order from 0 to 3, and two for
/// huge pages. Until 5.13 those of single pages alone are used.
const LISTS: usize = 4 * Migratetype::MOBILITY.len() + 2;

/// The lists of one CPU in one zone.
#[derive(Clone, Debug)]
pub(super) struct PerCpuPages {
    lists: [List; LISTS],
    /// Pages on all lists together.
    pages: u32,
    pub(super) pace: Pace,
}

/// State that decides how much the lists of a CPU exchange with the zone next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Number of pages at which the lists are drained.
    pub(super) high: u32,
    /// Doublings of a batch. 5.14 to 6.6: drains raise the number and requests halve it; the next drain takes a batch
    /// doubled this often (`free_factor`). 6.7 on: refills of single pages raise it and frees halve it; the next refill
    /// of them takes a batch doubled this often (`alloc_factor`).
    pub(super) doublings: u8,
    /// 6.7 on: pages freed lately, halved by each request (`free_count`).
    pub(super) freed: u32,
    /// 6.7 on: the last block freed was of order 1 to 3.
    pub(super) freed_large: bool,
}

/// Numbers of pages that the lists of a CPU exchange with their zone, and that they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Pages of a refill or a drain.
    pub(super) batch: u32,
    /// The least number of pages at which the lists are drained.
    pub(super) least: u32,
    /// The greatest number of pages at which the lists are drained.
    pub(super) most: u32,
}

/// Figures of a zone from which the bounds of its lists follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) managed: PageCount,
    /// Its low watermark, without boost.
    pub(super) low: u64,
    /// Number of CPUs of the zone's node.
    pub(super) local_cpus: u64,
    /// Number of CPUs of the machine.
    pub(super) cpus: u64,
}

impl Bounds {
    /// Computes the bounds of a zone's lists.
    pub(super) fn of(share: Share, rules: PerCpuRules) -> Bounds {
        let base = (share.managed.0 / 1024).min(256) / 4;
        let base = base.max(1) as u32;
        let batch = ((1 << (base + base / 2).ilog2()) - 1).max(1);
        let pages = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX);
        let follows_low = || pages(share.low / share.local_cpus.max(1)).max(4 * batch);
        let (least, most) = match rules {
            PerCpuRules::Single => (6 * batch, 6 * batch),
            PerCpuRules::Orders => (follows_low(), follows_low()),
            PerCpuRules::Tuned => {
                let eighth = pages(share.managed.0 / 8 / share.cpus.max(1));
                (follows_low(), eighth.max(follows_low()))
            }
        };
        Bounds { batch, least, most }
    }
}

/// Most doublings of a batch, for refills and drains (`CONFIG_PCP_BATCH_SCALE_MAX`).
const MAX_DOUBLINGS: u8 = 5;

/// Shortage of memory in a zone, as far as its per-CPU lists care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shortage {
    /// kswapd reclaims here (`ZONE_RECLAIM_ACTIVE`).
    pub(super) reclaims: bool,
    /// A request saw free memory below the high watermark since a drain found it above (`ZONE_BELOW_HIGH`).
    pub(super) below_high: bool,
}

impl Pace {
    /// Returns the number of blocks of `order` that a refill takes, now that the lists hold `pages`. From 6.7 on it
    /// also raises the bound and doubles the next refill.
    fn refill(
        &mut self,
        bounds: Bounds,
        rules: PerCpuRules,
        order: Order,
        pages: u32,
        shortage: Shortage,
    ) -> u32 {
        let mut batch = bounds.batch;
        if rules == PerCpuRules::Tuned {
            if order == Order::ZERO {
                batch <<= self.doublings;
            }
            self.high = self.high.clamp(bounds.least, bounds.most);
            if bounds.least != bounds.most && !shortage.below_high {
                self.high = (self.high + batch).min(bounds.most);
            }
            if order == Order::ZERO {
                let room = self.high.saturating_sub(pages + bounds.batch).max(bounds.batch);
                if batch <= room {
                    self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
                }
                batch = batch.min(room);
            }
        }
        match (rules, batch) {
            (_, 1) => 1,
            (PerCpuRules::Single, _) => batch,
            _ => (batch >> order.get()).max(2),
        }
    }

    /// Records that a request takes a block from the lists.
    fn requested(&mut self, rules: PerCpuRules) {
        match rules {
            PerCpuRules::Single => {}
            PerCpuRules::Orders => self.doublings /= 2,
            PerCpuRules::Tuned => self.freed /= 2,
        }
    }

    /// Returns the pages that a drain takes, now that a block of `order` was freed and the lists hold `pages`; 0 for no
    /// drain.
    fn drain(
        &mut self,
        bounds: Bounds,
        rules: PerCpuRules,
        order: Order,
        pages: u32,
        shortage: Shortage,
    ) -> u32 {
        match rules {
            PerCpuRules::Single if pages >= bounds.least => bounds.batch,
            PerCpuRules::Single => 0,
            PerCpuRules::Orders => self.drain_doubling(bounds, order, pages, shortage),
            PerCpuRules::Tuned => self.drain_tuned(bounds, order, pages, shortage),
        }
    }

    fn drain_doubling(
        &mut self,
        bounds: Bounds,
        order: Order,
        pages: u32,
        shortage: Shortage,
    ) -> u32 {
        let batch = bounds.batch;
        if self.doublings > 0 && is_large(order) {
            return pages;
        }
        let limit = if shortage.reclaims { bounds.least.min(4 * batch) } else { bounds.least };
        if pages < limit {
            return 0;
        }
        let most = limit.saturating_sub(batch).max(batch);
        let wanted = batch << self.doublings;
        if wanted < most {
            self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        }
        wanted.clamp(batch, most)
    }

    fn drain_tuned(&mut self, bounds: Bounds, order: Order, pages: u32, shortage: Shortage) -> u32 {
        let Bounds { batch, least, most } = bounds;
        let longest = batch << MAX_DOUBLINGS;
        self.doublings /= 2;
        let empties = is_large(order) && self.freed_large && self.freed >= batch && pages >= batch;
        self.freed_large = is_large(order);
        self.freed = (self.freed + order.pages() as u32).min(longest);
        self.high = self.high.clamp(least, most);
        if empties {
            self.high = self.high.saturating_sub(longest).max(least);
            return pages.min(longest);
        }
        let came = self.freed.max(batch);
        let lowered = self.high.saturating_sub(came).max(least);
        let limit = if shortage.reclaims {
            self.high = lowered;
            self.high.min(4 * batch)
        } else if least == most {
            self.high
        } else if shortage.below_high {
            self.high = lowered;
            pages.max(least)
        } else {
            let limit = self.high;
            if pages >= limit {
                self.high = limit.max((self.freed + batch).clamp(least, most));
            }
            limit
        };
        if pages < limit {
            0
        } else {
            self.freed.clamp(batch, limit.saturating_sub(batch).max(batch))
        }
    }

    /// Lets the bound decay by an eighth, at the tick of statistics. Returns the number of pages that are too many now.
    fn age(&mut self, bounds: Bounds, pages: u32) -> u32 {
        if self.high > bounds.least {
            let longest = bounds.batch << MAX_DOUBLINGS;
            let decayed = self.high - self.high / 8;
            self.high = pages.saturating_sub(longest).max(decayed).max(bounds.least);
        }
        pages.saturating_sub(self.high)
    }
}

/// Returns true for orders 1 to 3.
const fn is_large(order: Order) -> bool {
    order.get() > 0 && order.get() <= Order::COSTLY.get()
}

impl PerCpuPages {
    const EMPTY: PerCpuPages = PerCpuPages {
        lists: [List::EMPTY; LISTS],
        pages: 0,
        pace: Pace { high: 0, doublings: 0, freed: 0, freed_large: false },
    };

    /// Makes empty lists for each of `cpus` CPUs.
    pub(super) fn of(cpus: usize) -> Result<Vec<PerCpuPages>, TryReserveError> {
        filled(cpus, PerCpuPages::EMPTY)
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

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

    /// Puts a block on a list. `migratetype` is the type that it goes back to where lists are loose.
    pub(super) fn put(
        &mut self,
        frames: &mut Frames,
        slot: Slot,
        frame: FrameIndex,
        migratetype: Migratetype,
        end: Relist,
    ) {
        frames.set_tag(frame, Tag::new(Kind::PerCpu, slot.order));
        frames.set_listed(frame, migratetype);
        self.lists[slot.index()].push(frames, frame, end);
        self.pages += slot.order.pages() as u32;
    }

    fn take(&mut self, frames: &mut Frames, slot: Slot) -> Option<FrameIndex> {
        let frame = self.lists[slot.index()].first()?;
        self.remove(frames, slot, frame);
        frames.set_tag(frame, Tag::new(Kind::Used, slot.order));
        Some(frame)
    }

    /// Takes a block off its list, wherever it stands there. Its tag is the caller's to change.
    pub(super) fn remove(&mut self, frames: &mut Frames, slot: Slot, frame: FrameIndex) {
        self.lists[slot.index()].unlink(frames, frame);
        self.pages -= slot.order.pages() as u32;
    }

    /// Puts a block that is on no list in the place of one that is.
    pub(super) fn replace(
        &mut self,
        frames: &mut Frames,
        slot: Slot,
        old: FrameIndex,
        new: FrameIndex,
    ) {
        frames.set_tag(new, Tag::new(Kind::PerCpu, slot.order));
        self.lists[slot.index()].replace(frames, old, new);
    }

    /// Takes the block that waited longest off a list, and returns its first frame and order. The caller changes its
    /// tag.
    fn take_last(&mut self, frames: &mut Frames, list: usize) -> Option<(FrameIndex, Order)> {
        let frame = self.lists[list].last()?;
        self.lists[list].unlink(frames, frame);
        let order = frames.tag(frame).order();
        self.pages -= order.pages() as u32;
        Some((frame, order))
    }
}

/// Name of a list: order and type of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    order: Order,
    migratetype: Migratetype,
}

impl Slot {
    /// Returns the list for blocks of this order and type, if there is one.
    pub(super) fn of(order: Order, migratetype: Migratetype, rules: PerCpuRules) -> Option<Slot> {
        let listed = match rules {
            PerCpuRules::Single => order == Order::ZERO,
            PerCpuRules::Orders | PerCpuRules::Tuned => {
                order <= Order::COSTLY || order == Order::PAGEBLOCK
            }
        };
        let migratetype = match migratetype {
            Migratetype::Reclaimable if order > Order::COSTLY => Migratetype::Unmovable,
            other => other,
        };
        (listed && migratetype.is_mobility()).then_some(Slot { order, migratetype })
    }

    /// Returns every list, in the order in which drains go over them.
    pub(super) fn all(rules: PerCpuRules) -> impl Iterator<Item = Slot> {
        let orders = Order::all().flat_map(|order| Migratetype::MOBILITY.map(|kind| (order, kind)));
        let huge = |order, kind| order > Order::COSTLY && kind == Migratetype::Reclaimable;
        orders
            .filter(move |&(order, kind)| !huge(order, kind))
            .filter_map(move |(order, kind)| Slot::of(order, kind, rules))
    }

    pub(super) const fn order(self) -> Order {
        self.order
    }

    pub(super) const fn migratetype(self) -> Migratetype {
        self.migratetype
    }

    const fn index(self) -> usize {
        if self.order.get() > Order::COSTLY.get() {
            let movable = matches!(self.migratetype, Migratetype::Movable) as usize;
            return LISTS - 2 + movable;
        }
        self.order.index() * Migratetype::MOBILITY.len() + self.migratetype.index()
    }
}

impl Zone {
    /// Gives all blocks on the lists of a CPU back to the zone. No event is recorded: only the allocator has a sink.
    pub(super) fn drain_lists(&mut self, frames: &mut Frames, rank: usize) {
        let mut turns = Turns::new(Drain::From(0));
        while let Some(list) = turns.next(&self.per_cpu[rank].lists) {
            let taken = self.per_cpu[rank].take_last(frames, list);
            let (frame, order) = taken.expect("its turn means that it has some");
            let migratetype = self.type_of_drained(frames, frame);
            self.free_block_as(frames, frame, order, migratetype);
        }
    }

    /// Returns the type to which a block on a per-CPU list goes back.
    fn type_of_drained(&self, frames: &Frames, frame: FrameIndex) -> Migratetype {
        if self.has_loose_lists() { frames.listed(frame) } else { frames.block(frame).migratetype }
    }
}

/// Order in which a drain empties the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    /// A page from each type in turn.
    InTurn,
    /// This list first, each emptied before the next.
    From(usize),
}

/// Progress of a drain: the list whose turn it is.
#[derive(Clone, Copy, Debug)]
struct Turns {
    from: Drain,
    /// Index of the list that gives blocks now.
    at: usize,
    /// Blocks that the list still gives before it is the turn of another.
    left: usize,
}

impl Turns {
    fn new(from: Drain) -> Turns {
        let at = match from {
            Drain::InTurn => 0,
            Drain::From(list) => (list + LISTS - 1) % LISTS,
        };
        Turns { from, at, left: 0 }
    }

    /// Returns the list that gives the next block; `None` if all are empty.
    fn next(&mut self, lists: &[List; LISTS]) -> Option<usize> {
        if self.left == 0 || lists[self.at].is_empty() {
            let in_turn = self.from == Drain::InTurn;
            let count = if in_turn { Migratetype::MOBILITY.len() } else { LISTS };
            let after = |passed: usize| (self.at + passed) % count;
            let passed = (1..=count).find(|&passed| !lists[after(passed)].is_empty())?;
            self.at = after(passed);
            // In turn a list gives one block, and one more for each empty list before it.
            self.left = if in_turn { passed } else { usize::MAX };
        }
        self.left -= 1;
        Some(self.at)
    }
}

impl<E: EventSink> PageAllocator<E> {
    /// Takes a block from a list of the CPU, which is refilled if it is empty.
    pub(super) fn take_cached(&mut self, cpu: CpuId, wanted: ZoneRequest, slot: Slot) -> Taken {
        let lists = &mut self.zones[wanted.zone.index()].per_cpu[cpu.rank()];
        lists.pace.requested(self.policy.per_cpu);
        self.take_listed(cpu, wanted, slot)
    }

    /// Takes a block like [`take_cached`](Self::take_cached), for a caller that does not count as a request to the
    /// lists: the bulk interface.
    pub(super) fn take_listed(&mut self, cpu: CpuId, wanted: ZoneRequest, slot: Slot) -> Taken {
        let lists = &mut self.zones[wanted.zone.index()].per_cpu[cpu.rank()];
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

    /// Fills a list; returns the result that ended the refill early, or [`Taken::Nothing`] after a complete one.
    fn refill(&mut self, cpu: CpuId, wanted: ZoneRequest, slot: Slot) -> Taken {
        let rules = self.policy.per_cpu;
        let Zone { per_cpu, per_cpu_bounds: bounds, shortage, .. } =
            &mut self.zones[wanted.zone.index()];
        let lists = &mut per_cpu[cpu.rank()];
        let blocks = lists.pace.refill(*bounds, rules, slot.order, lists.pages, *shortage);
        let mut rung = Rung::default();
        for _ in 0..blocks {
            let frame = match self.take_block(wanted, &mut rung) {
                Taken::Block(frame) => frame,
                missed => return missed,
            };
            let from = self.frames.listed(frame);
            let lists = &mut self.zones[wanted.zone.index()].per_cpu[cpu.rank()];
            lists.put(&mut self.frames, slot, frame, from, Relist::Tail);
            let event = PageEvent::Refilled {
                pfn: self.frames.pfn(frame),
                order: slot.order,
                migratetype: slot.migratetype,
            };
            self.events.record(Event::Page(event));
        }
        Taken::Nothing
    }

    /// Puts a block on a list of the CPU, and drains some if there are too many pages. `migratetype` is its pageblock's
    /// type.
    pub(super) fn give_cached(
        &mut self,
        cpu: CpuId,
        id: ZoneId,
        frame: FrameIndex,
        slot: Slot,
        migratetype: Migratetype,
    ) {
        let rules = self.policy.per_cpu;
        let zone = &mut self.zones[id.index()];
        let (lists, bounds) = (&mut zone.per_cpu[cpu.rank()], zone.per_cpu_bounds);
        lists.put(&mut self.frames, slot, frame, migratetype, Relist::Head);
        let pages = lists.pace.drain(bounds, rules, slot.order, lists.pages, zone.shortage);
        if pages == 0 {
            return;
        }
        let from = match rules {
            PerCpuRules::Single => Drain::InTurn,
            PerCpuRules::Orders | PerCpuRules::Tuned => Drain::From(slot.index()),
        };
        self.drain_some(cpu.rank(), id, pages, from);
        let zone = &mut self.zones[id.index()];
        let high = zone.mark(Mark::High);
        let plain = AllocFlags::at(Mark::High);
        if zone.shortage.below_high && zone.keeps(high, Order::ZERO, ZoneKind::Movable, plain) {
            zone.shortage.below_high = false;
        }
    }

    fn drain_some(&mut self, rank: usize, id: ZoneId, pages: u32, from: Drain) {
        self.counters.list_visits += 1;
        let zone = &mut self.zones[id.index()];
        let (mut left, mut turns) = (pages, Turns::new(from));
        while left > 0 {
            let lists = &mut zone.per_cpu[rank];
            let Some(list) = turns.next(&lists.lists) else { break };
            let (frame, order) =
                lists.take_last(&mut self.frames, list).expect("its turn means that it has some");
            let migratetype = zone.type_of_drained(&self.frames, frame);
            let pfn = self.frames.pfn(frame);
            self.events.record(Event::Page(PageEvent::Drained { pfn, order, migratetype }));
            zone.free_block_as(&mut self.frames, frame, order, migratetype);
            left = left.saturating_sub(order.pages() as u32);
        }
    }

    /// Computes anew the numbers of pages that the lists exchange and hold. O(zones and CPUs).
    pub(super) fn recompute_per_cpu(&mut self) {
        let cpus = self.cpu_nodes.len() as u64;
        for zone in &mut self.zones {
            let local_cpus = self.cpu_nodes.iter().filter(|&&node| node == zone.node).count();
            let (managed, low) = (zone.managed, zone.marks.low);
            let share = Share { managed, low, local_cpus: local_cpus as u64, cpus };
            zone.per_cpu_bounds = Bounds::of(share, self.policy.per_cpu);
        }
    }

    /// Lets the bounds of per-CPU lists decay by an eighth, and drains the pages above them, as Linux's tick of
    /// statistics does about once a second since 6.7. Nothing happens with lists of fixed size. O(zones and CPUs).
    pub fn age_per_cpu(&mut self) {
        for index in 0..self.zones.len() {
            for rank in 0..self.cpu_nodes.len() {
                self.age_lists(rank, ZoneId(index as u16));
            }
        }
    }

    /// Lets the bound of the lists of one CPU in one zone decay, as [`age_per_cpu`](Self::age_per_cpu) does for all.
    pub fn age_zone(&mut self, cpu: CpuId, zone: ZoneId) {
        if self.has_lists(cpu) && zone.index() < self.zones.len() {
            self.age_lists(cpu.rank(), zone);
        }
    }

    fn age_lists(&mut self, rank: usize, id: ZoneId) {
        if self.policy.per_cpu != PerCpuRules::Tuned {
            return;
        }
        let zone = &mut self.zones[id.index()];
        let (lists, bounds) = (&mut zone.per_cpu[rank], zone.per_cpu_bounds);
        let over = lists.pace.age(bounds, lists.pages);
        if over > 0 {
            self.drain_some(rank, id, over, Drain::From(0));
        }
    }

    /// Returns true if the CPU belongs to the map.
    pub(super) fn has_lists(&self, cpu: CpuId) -> bool {
        cpu.rank() < self.cpu_nodes.len()
    }

    /// Gives all blocks on the lists of a CPU back to their zones. O(zones and blocks).
    pub fn drain(&mut self, cpu: CpuId) {
        if !self.has_lists(cpu) {
            return;
        }
        for index in 0..self.zones.len() {
            self.drain_some(cpu.rank(), ZoneId(index as u16), u32::MAX, Drain::From(0));
        }
    }

    /// Gives all blocks on the lists of all CPUs back to their zones. O(zones, CPUs and blocks).
    pub fn drain_all(&mut self) {
        for index in 0..self.zones.len() {
            self.drain_zone(ZoneId(index as u16));
        }
    }

    /// Gives all blocks on the per-CPU lists of a zone back to it.
    pub fn drain_zone(&mut self, id: ZoneId) {
        for rank in 0..self.zones[id.index()].per_cpu.len() {
            self.drain_some(rank, id, u32::MAX, Drain::From(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::FragmentationPolicy;
    use super::super::request::PageRequest;
    use super::super::testing::{self, cpu, free_pages, full_zone, take};
    use super::*;
    use crate::units::{Nanos, Pfn};
    use Migratetype::Movable;

    fn share(pages: u64) -> Share {
        Share { managed: PageCount(pages), low: 13_200, local_cpus: 8, cpus: 16 }
    }

    #[test]
    fn batches_follow_the_size_of_the_zone() {
        let of = |pages| Bounds::of(share(pages), PerCpuRules::Single);
        let fixed = |batch| Bounds { batch, least: 6 * batch, most: 6 * batch };
        let pages = [1 << 30, 262_144, 196_608, 131_072, 0];
        assert_eq!(pages.map(of), [63, 63, 63, 31, 1].map(fixed), "half as much again, rounded");
    }

    const ERAS: [PerCpuRules; 3] = [PerCpuRules::Single, PerCpuRules::Orders, PerCpuRules::Tuned];

    /// Returns the bounds of the zone that pages.md#o-6 has: 1 GiB with a low mark of 3300 pages, on four CPUs.
    fn bounds(rules: PerCpuRules) -> Bounds {
        let share = Share { managed: PageCount(262_144), low: 3300, local_cpus: 4, cpus: 4 };
        Bounds::of(share, rules)
    }

    fn order(number: u8) -> Order {
        Order::new(number).expect("a test names orders")
    }

    const PLENTY: Shortage = Shortage { reclaims: false, below_high: false };

    #[test]
    fn each_era_has_bounds_of_its_own() {
        let of = |rules| (bounds(rules).batch, bounds(rules).least, bounds(rules).most);
        assert_eq!(ERAS.map(of), [(63, 378, 378), (63, 825, 825), (63, 825, 8192)]);
        let tiny = Share { managed: PageCount(0), low: 0, local_cpus: 8, cpus: 16 };
        let tiny = Bounds::of(tiny, PerCpuRules::Tuned);
        assert_eq!(tiny, Bounds { batch: 1, least: 4, most: 4 });
        let low = Share { low: 100, ..share(262_144) };
        let low = Bounds::of(low, PerCpuRules::Orders);
        assert_eq!(low, Bounds { batch: 63, least: 252, most: 252 }, "four batches at least");
    }

    /// A second refill of single pages takes 126 instead of 63 from 6.7 on; larger blocks begin with 31, 7 or 2.
    /// Source: pages.md#b-31.
    #[test]
    fn refills_double_from_6_7_on_and_only_those_of_single_pages() {
        let refill = |rules, pace: &mut Pace, size, pages| {
            pace.refill(bounds(rules), rules, order(size), pages, PLENTY)
        };
        for rules in ERAS {
            let mut pace = Pace::default();
            let first = refill(rules, &mut pace, 0, 0);
            let second = refill(rules, &mut pace, 0, 0);
            let doubles = rules == PerCpuRules::Tuned;
            assert_eq!((first, second), (63, if doubles { 126 } else { 63 }), "{rules:?}");
        }
        for rules in [PerCpuRules::Orders, PerCpuRules::Tuned] {
            let of = |size| refill(rules, &mut Pace::default(), size, 0);
            assert_eq!([1, 3, 9].map(of), [31, 7, 2], "{rules:?}");
        }
        let mut pace = Pace::default();
        for _ in 0..20 {
            refill(PerCpuRules::Tuned, &mut pace, 0, 0);
        }
        assert_eq!(pace.doublings, MAX_DOUBLINGS);
        let mut full = Pace { high: 900, doublings: MAX_DOUBLINGS, ..Pace::default() };
        let room = 900 + (63 << 5) - (2000 + 63);
        assert_eq!(refill(PerCpuRules::Tuned, &mut full, 0, 2000), room, "up to the bound");
    }

    #[test]
    fn until_6_6_the_bound_is_constant_and_drains_double() {
        let (rules, bounds) = (PerCpuRules::Orders, bounds(PerCpuRules::Orders));
        let mut pace = Pace::default();
        let drain = |pace: &mut Pace, size, pages, shortage| {
            pace.drain(bounds, rules, order(size), pages, shortage)
        };
        assert_eq!(drain(&mut pace, 0, 824, PLENTY), 0);
        let drains = [(); 6].map(|()| drain(&mut pace, 0, 825, PLENTY));
        assert_eq!(drains, [63, 126, 252, 504, 762, 762], "at most the bound less a batch");
        assert_eq!(drain(&mut pace, 2, 5, PLENTY), 5, "a block of order 1 to 3 empties the lists");
        let halved = [(); 4].map(|()| {
            pace.requested(rules);
            pace.doublings
        });
        assert_eq!(halved, [2, 1, 0, 0]);
        assert_eq!((pace.doublings, drain(&mut pace, 2, 5, PLENTY)), (0, 0));
        let three = Bounds { least: 189, most: 189, ..bounds };
        let mut short = Pace::default();
        let drains = [(); 3].map(|()| short.drain(three, rules, Order::ZERO, 189, PLENTY));
        assert_eq!((drains, short.doublings), ([63, 126, 126], 1), "the most is not doubled");
        let reclaims = Shortage { reclaims: true, ..PLENTY };
        assert_eq!(drain(&mut pace, 0, 251, reclaims), 0);
        assert_eq!(drain(&mut pace, 0, 252, reclaims), 63, "four batches while kswapd reclaims");
    }

    #[test]
    fn from_6_7_on_drains_take_what_was_freed_and_the_bound_moves() {
        let (rules, bounds) = (PerCpuRules::Tuned, bounds(PerCpuRules::Tuned));
        let mut pace = Pace::default();
        pace.refill(bounds, rules, Order::ZERO, 0, PLENTY);
        assert_eq!(pace.high, 888, "a refill raises it by a batch");
        let short = Shortage { below_high: true, ..PLENTY };
        pace.refill(bounds, rules, Order::ZERO, 0, short);
        assert_eq!(pace.high, 888, "but not where memory is short");
        pace.freed = 299;
        assert_eq!(pace.drain(bounds, rules, Order::ZERO, 887, PLENTY), 0);
        assert_eq!(pace.drain(bounds, rules, Order::ZERO, 888, PLENTY), 301);
        pace.requested(rules);
        assert_eq!(pace.freed, 150);
        assert_eq!(pace.drain(bounds, rules, Order::ZERO, 900, short), 151);
        assert_eq!(pace.high, 825, "short memory lowers it");
        pace.freed = 1000;
        assert_eq!(pace.drain(bounds, rules, Order::ZERO, 824, PLENTY), 0);
        assert_eq!(pace.high, 825);
        pace.drain(bounds, rules, Order::ZERO, 825, PLENTY);
        assert_eq!(pace.high, 1002 + 63, "many frees in a row raise it, once it is reached");
        let reclaims = Shortage { reclaims: true, ..PLENTY };
        let mut pace = Pace { high: 4000, ..Pace::default() };
        assert_eq!(pace.drain(bounds, rules, Order::ZERO, 251, reclaims), 0);
        assert_eq!(pace.drain(bounds, rules, Order::ZERO, 252, reclaims), 63);
        let mut pace = Pace { high: 4000, freed: 63, ..Pace::default() };
        assert_eq!(pace.drain(bounds, rules, order(1), 500, PLENTY), 0);
        assert_eq!(pace.drain(bounds, rules, order(1), 500, PLENTY), 500, "the second in a row");
        assert_eq!(pace.high, 4000 - 32 * 63);
        assert_eq!(pace.age(bounds, 100), 0);
        assert_eq!(pace.high, 1984 - 1984 / 8);
        let mut doubled = Pace { doublings: 4, ..Pace::default() };
        doubled.drain(bounds, rules, Order::ZERO, 1, PLENTY);
        assert_eq!(doubled.doublings, 2, "a free halves the next refill");
        let mut held = Pace { high: 1000, ..Pace::default() };
        assert_eq!((held.age(bounds, 900), held.high), (25, 875));
        let mut least = Pace { high: 825, ..Pace::default() };
        assert_eq!((least.age(bounds, 3000), least.high), (3000 - 825, 825), "no age raises it");
    }

    #[test]
    fn a_drain_in_turn_takes_more_past_empty_lists() {
        let mut pages = small();
        pages.set_block_type(Pfn(512), Migratetype::Unmovable).expect("it is whole");
        for frame in [0, 2, 4, 512, 514, 516] {
            pages.free(cpu(), Pfn(frame)).expect("it is in use");
        }
        let before = pages.counters.list_visits;
        pages.drain_some(0, ZoneId(0), 3, Drain::InTurn);
        assert_eq!(testing::free_blocks(&pages), "0M0 512U0 514U0");
        assert_eq!(pages.counters.list_visits, before + 1, "one hold of the lock");
    }

    #[test]
    fn every_list_has_a_place_of_its_own() {
        let mut seen = [0; LISTS];
        for order in Order::all() {
            for migratetype in Migratetype::ALL {
                if let Some(slot) = Slot::of(order, migratetype, PerCpuRules::Tuned) {
                    seen[slot.index()] += 1;
                }
            }
        }
        assert_eq!(seen, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1], "the first of two is shared");
        let huge = |kind| Slot::of(Order::PAGEBLOCK, kind, PerCpuRules::Tuned);
        assert_eq!(huge(Migratetype::Reclaimable), huge(Migratetype::Unmovable));
        for (rules, lists) in ERAS.into_iter().zip([3, LISTS, LISTS]) {
            assert!(Slot::all(rules).map(Slot::index).eq(0..lists), "{rules:?}");
        }
    }

    /// Makes a zone whose CPU exchanges 4 pages and keeps fewer than 12.
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
    fn a_drain_empties_the_list_just_freed_into_before_the_next() {
        let mut pages = full_zone(3, FragmentationPolicy::LINUX_6_1);
        pages.zones[0].per_cpu_bounds = Bounds { batch: 4, least: 12, most: 12 };
        pages.set_block_type(Pfn(512), Migratetype::Unmovable).expect("it is whole");
        for frame in [512, 514, 516, 518, 520, 522, 524, 526, 0, 2, 4] {
            pages.free(cpu(), Pfn(frame)).expect("it is in use");
        }
        assert_eq!(testing::free_blocks(&pages), "");
        pages.free(cpu(), Pfn(6)).expect("it is in use");
        assert_eq!(testing::free_blocks(&pages), "0M0 2M0 4M0 6M0");
    }

    #[test]
    fn lists_keep_more_again_once_memory_is_no_longer_short() {
        const HIGH: u64 = 100;
        let mut pages = full_zone(2, FragmentationPolicy::LINUX_6_12);
        pages.zones[0].per_cpu_bounds = Bounds { batch: 4, least: 12, most: 200 };
        pages.zones[0].marks.high = HIGH;
        let request = PageRequest::new(Order::ZERO, Movable);
        let refused = pages.alloc(Nanos(0), cpu(), request).expect_err("nothing is free");
        refused.abandon(&mut pages);
        let (mut short, mut plenty) = (0, 0);
        for frame in (0..1024).step_by(2) {
            pages.free(cpu(), Pfn(frame)).expect("it is in use");
            let free = pages.zones[0].lists.total();
            let most = if free <= HIGH { &mut short } else { &mut plenty };
            *most = pages.per_cpu_pages(ZoneId(0)).get().max(*most);
        }
        assert_eq!((short, plenty), (11, 131));
    }

    #[test]
    fn the_cpus_of_a_node_share_what_its_zones_keep() {
        let config = testing::two_zones(FragmentationPolicy::LINUX_6_1);
        let mut pages = PageAllocator::new(&config).expect("there is memory");
        pages.zones[0].marks.low = 4000;
        pages.recompute_per_cpu();
        assert_eq!(pages.zones[0].per_cpu_bounds.least, 4000 / 2);
    }

    #[test]
    fn one_zone_ages_alone_and_strangers_change_nothing() {
        let config = testing::two_zones(FragmentationPolicy::LINUX_6_12);
        let mut pages = PageAllocator::new(&config).expect("there is memory");
        for zone in &mut pages.zones {
            zone.per_cpu_bounds = Bounds { batch: 4, least: 12, most: 200 };
            zone.per_cpu[0].pace.high = 160;
        }
        let stranger = crate::cpu::CpuSet::first(3).expect("there is memory");
        let stranger = stranger.by_rank(2).expect("the map has two CPUs");
        pages.age_zone(stranger, ZoneId(1));
        pages.age_zone(cpu(), ZoneId(2));
        let highs = |pages: &PageAllocator| [0, 1].map(|at| pages.zones[at].per_cpu[0].pace.high);
        assert_eq!(highs(&pages), [160, 160]);
        pages.age_zone(cpu(), ZoneId(1));
        assert_eq!(highs(&pages), [160, 140]);
    }

    #[test]
    fn lists_give_back_what_is_above_a_bound_that_decays() {
        let mut pages = full_zone(2, FragmentationPolicy::LINUX_6_12);
        pages.zones[0].per_cpu_bounds = Bounds { batch: 4, least: 12, most: 200 };
        pages.zones[0].per_cpu[0].pace.high = 200;
        for frame in (0..100).step_by(2) {
            pages.free(cpu(), Pfn(frame)).expect("it is in use");
        }
        pages.zones[0].per_cpu[0].pace.high = 16;
        let aged = [(); 4].map(|()| {
            let before = pages.counters.list_visits;
            pages.age_per_cpu();
            let visits = pages.counters.list_visits - before;
            (pages.per_cpu_pages(ZoneId(0)).get(), visits)
        });
        assert_eq!(aged, [(14, 1), (13, 1), (12, 1), (12, 0)]);
    }

    #[test]
    fn with_loose_lists_a_page_goes_back_to_the_type_that_it_had_when_it_was_freed() {
        let listed = |policy: FragmentationPolicy| {
            let mut pages = full_zone(2, policy);
            pages.free(cpu(), Pfn(4)).expect("it is in use");
            pages.frames.block_mut(0).migratetype = Migratetype::Unmovable;
            pages.drain_all();
            testing::free_blocks(&pages)
        };
        assert_eq!(listed(FragmentationPolicy::LINUX_6_1), "4M0");
        assert_eq!(listed(FragmentationPolicy::LINUX_6_12), "4U0");
    }
}
