//! Taking a block from a zone's free lists: those of the request's type, of CMA blocks, of other types.

use super::allocator::PageAllocator;
use super::event::{ExtFrag, PageEvent};
use super::fallback::{self, Action, Found};
use super::frames::{FrameIndex, Kind, Tag};
use super::migratetype::Migratetype;
use super::policy::{FallbackRules, Fixes, Stall};
use super::walk::AllocFlags;
use super::zone::ZoneId;
use crate::event::{Event, EventSink};
use crate::units::Order;

/// Block that is wanted of a zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneRequest {
    pub(super) zone: ZoneId,
    pub(super) order: Order,
    pub(super) migratetype: Migratetype,
    pub(super) flags: AllocFlags,
}

/// Answer of a zone to a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// This block; it is on no list and tagged as used.
    Block(FrameIndex),
    /// The zone has no such block.
    Nothing,
    /// No block: patch 5 of 2018 spared a small block of another type.
    Spared,
}

/// Progress of the searches of a refill under strict lists. Nothing else changes the lists meanwhile, so what a rung
/// did not have, it does not have for the next page either (docs/sources/pages.md#sticky-refill).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rung {
    /// Blocks of the request's own type.
    #[default]
    Own,
    Cma,
    /// Pageblocks of other types that can be claimed. Success leads back to [`Own`](Self::Own): there is more now.
    Claim,
    /// Single blocks of other types.
    Steal,
}

impl<E: EventSink> PageAllocator<E> {
    /// Takes a block off the free lists of a zone. `rung` says where to begin, and afterwards where the next page of
    /// the same refill may begin.
    pub(super) fn take_block(&mut self, wanted: ZoneRequest, rung: &mut Rung) -> Taken {
        if !self.policy.fixes.has(Fixes::STICKY_REFILL) {
            *rung = Rung::Own;
        }
        if *rung == Rung::Own
            && let Some(frame) = self.take_from(wanted, wanted.migratetype)
        {
            return Taken::Block(frame);
        }
        if *rung <= Rung::Cma
            && wanted.flags.has(AllocFlags::CMA)
            && let Some(frame) = self.take_from(wanted, Migratetype::Cma)
        {
            *rung = Rung::Cma;
            return Taken::Block(frame);
        }
        match self.policy.fallback {
            FallbackRules::Loose | FallbackRules::StrictFirst => self.fall_back(wanted),
            FallbackRules::Strict => self.claim_or_steal(wanted, rung),
        }
    }

    /// Takes the smallest block that fits from the lists of a type.
    pub(super) fn take_from(
        &mut self,
        wanted: ZoneRequest,
        from: Migratetype,
    ) -> Option<FrameIndex> {
        self.counters.list_visits += 1;
        let zone = &mut self.zones[wanted.zone.index()];
        zone.take_smallest(&mut self.frames, wanted.order, from)
    }

    /// Returns the smallest order of a free block of another type that the request may break into.
    fn least(&self, wanted: ZoneRequest) -> Order {
        let guard = self.policy.fixes.has(Fixes::ORDER_GUARD);
        match wanted.flags.has(AllocFlags::NO_FRAGMENT) {
            true if guard => wanted.order.max(Order::PAGEBLOCK),
            true => Order::PAGEBLOCK,
            false => wanted.order,
        }
    }

    /// Makes the fallback of 4.20 to 6.10: one candidate. It comes to a second one only for a request above a pageblock
    /// under the flag, without [`Fixes::ORDER_GUARD`] (docs/sources/pages.md#b-3): all whole blocks of other types are
    /// converted, and none is large enough.
    fn fall_back(&mut self, wanted: ZoneRequest) -> Taken {
        let ZoneRequest { zone, order, migratetype, .. } = wanted;
        loop {
            self.counters.list_visits += 1;
            let state = &self.zones[zone.index()];
            let (supply, grouping) = (state.lists.supply(), state.grouping);
            let least = self.least(wanted);
            let Some(found) = supply.largest_first(migratetype, order, least, grouping) else {
                return Taken::Nothing;
            };
            if let Some(taken) = self.break_into(wanted, found) {
                return taken;
            }
        }
    }

    /// Makes the fallback of strict lists since 6.12.
    fn claim_or_steal(&mut self, wanted: ZoneRequest, rung: &mut Rung) -> Taken {
        if *rung <= Rung::Claim
            && let Some(taken) = self.claim(wanted)
        {
            *rung = Rung::Own;
            return taken;
        }
        if wanted.flags.has(AllocFlags::NO_FRAGMENT) {
            return Taken::Nothing;
        }
        *rung = Rung::Steal;
        self.counters.list_visits += 1;
        let zone = &self.zones[wanted.zone.index()];
        let supply = zone.lists.supply();
        match supply.smallest_first(wanted.migratetype, wanted.order, zone.grouping) {
            Some(found) if self.is_spared(wanted.flags, found) => Taken::Spared,
            Some(found) => Taken::Block(self.take_one(wanted, found)),
            None => Taken::Nothing,
        }
    }

    /// Claims a pageblock of another type, by its largest free block first, and takes a block from it; `None` if none
    /// can be claimed. Each attempt boosts the zone.
    fn claim(&mut self, wanted: ZoneRequest) -> Option<Taken> {
        self.counters.list_visits += 1;
        let least = self.least(wanted);
        let mut below = Order::COUNT as u8;
        loop {
            let zone = &self.zones[wanted.zone.index()];
            let supply = zone.lists.supply();
            let found = supply.next_claim(wanted.migratetype, least, below, zone.grouping)?;
            if let Some(taken) = self.break_into(wanted, found) {
                return Some(taken);
            }
            below = found.order.get();
        }
    }

    /// Uses a free block of another type as the rules say; `None` if they pass it by, or if it was too small.
    fn break_into(&mut self, wanted: ZoneRequest, found: Found) -> Option<Taken> {
        let zone = &self.zones[wanted.zone.index()];
        let frame = zone.lists.first(found.order, found.from).expect("its list is not empty");
        let around = zone.surroundings(&self.frames, frame);
        let rules = self.policy.fallback;
        let action = fallback::action(rules, found, wanted.migratetype, &around, zone.grouping);
        if fallback::may_mix(found, &around) {
            self.boost_zone(wanted.zone, wanted.flags);
            if self.is_spared(wanted.flags, found) {
                return Some(Taken::Spared);
            }
        }
        match action {
            Action::Pass => return None,
            Action::TakeOne => return Some(Taken::Block(self.take_one(wanted, found))),
            Action::Convert => self.convert(wanted, frame, found.order),
            Action::Claim => self.claim_block(wanted, frame),
            Action::MoveAll => {
                let zone = &mut self.zones[wanted.zone.index()];
                zone.move_all(&mut self.frames, frame, wanted.migratetype, self.policy.relist);
            }
            Action::MoveOne => self.move_one(wanted, frame),
        }
        self.record_extfrag(wanted, found, frame);
        self.take_from(wanted, wanted.migratetype).map(Taken::Block)
    }

    /// Decides by patch 5 whether the request shall wait for kswapd rather than break into the block.
    fn is_spared(&mut self, flags: AllocFlags, found: Found) -> bool {
        let spares = |stall: Stall| stall.spares(found.order);
        let spared = found.order < Order::PAGEBLOCK
            && flags.has(AllocFlags::FRAGMENT_STALL)
            && self.policy.stall.is_some_and(spares);
        self.counters.stall_refusals += u64::from(spared);
        spared
    }

    /// Takes the wanted block from the first free block of a list; the rest stays on the lists of its type.
    fn take_one(&mut self, wanted: ZoneRequest, found: Found) -> FrameIndex {
        let zone = &mut self.zones[wanted.zone.index()];
        let frame = zone.lists.first(found.order, found.from).expect("its list is not empty");
        zone.lists.remove(&mut self.frames, frame);
        zone.split(&mut self.frames, frame, found.order, wanted.order, found.from);
        self.frames.set_tag(frame, Tag::new(Kind::Used, wanted.order));
        self.record_extfrag(wanted, found, frame);
        frame
    }

    fn move_one(&mut self, wanted: ZoneRequest, frame: FrameIndex) {
        let zone = &mut self.zones[wanted.zone.index()];
        zone.lists.relist(&mut self.frames, frame, wanted.migratetype, self.policy.relist);
    }

    /// Gives the pageblocks of a free block the type of the request, but for those of a reserve, which loose lists may
    /// hide in the second half, and moves the block to that type's lists.
    fn convert(&mut self, wanted: ZoneRequest, frame: FrameIndex, order: Order) {
        self.frames.each_block(frame, order, |block, _| {
            if block.migratetype.is_mobility() {
                block.migratetype = wanted.migratetype;
            }
        });
        self.move_one(wanted, frame);
    }

    /// Gives a pageblock the type of the request, and its free blocks with it.
    fn claim_block(&mut self, wanted: ZoneRequest, frame: FrameIndex) {
        let zone = &mut self.zones[wanted.zone.index()];
        zone.move_all(&mut self.frames, frame, wanted.migratetype, self.policy.relist);
        let block = self.frames.block_mut(frame);
        if block.migratetype != wanted.migratetype {
            block.migratetype = wanted.migratetype;
            self.counters.claims += 1;
        }
    }

    pub(super) fn record_extfrag(&mut self, wanted: ZoneRequest, found: Found, frame: FrameIndex) {
        let event = ExtFrag {
            pfn: self.frames.pfn(frame),
            zone: wanted.zone,
            alloc_order: wanted.order,
            fallback_order: found.order,
            alloc_migratetype: wanted.migratetype,
            fallback_migratetype: found.from,
            change_ownership: self.frames.block(frame).migratetype == wanted.migratetype,
        };
        self.counters.count_extfrag(&event);
        self.events.record(Event::Page(PageEvent::ExternalFragmentation(event)));
    }

    /// Counts a block that leaves the allocator for a request, if its pageblock is of another type.
    pub(super) fn count_mistyped(&mut self, frame: FrameIndex, migratetype: Migratetype) {
        let of = self.frames.block(frame).migratetype;
        if of.is_mobility() && of != migratetype {
            self.counters.mistyped[migratetype.index()] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::per_cpu::Bounds;
    use super::super::policy::FragmentationPolicy;
    use super::super::request::PageRequest;
    use super::super::testing::{cpu, order, take, zone_with};
    use super::super::walk::Walk;
    use super::*;
    use crate::units::{PageCount, Pfn};
    use Migratetype::{Movable, Reclaimable, Unmovable};
    use alloc::vec::Vec;
    use core::cell::RefCell;

    const STRICT: FragmentationPolicy = FragmentationPolicy {
        fallback: FallbackRules::Strict,
        fixes: Fixes::ALL,
        ..FragmentationPolicy::LINUX_4_20
    };
    const STRICT_FIRST: FragmentationPolicy =
        FragmentationPolicy { fallback: FallbackRules::StrictFirst, ..STRICT };

    #[derive(Debug, Default)]
    struct Log(RefCell<Vec<ExtFrag>>);

    impl EventSink for Log {
        fn record(&self, event: Event) {
            if let Event::Page(PageEvent::ExternalFragmentation(event)) = event {
                self.0.borrow_mut().push(event);
            }
        }
    }

    fn zone(blocks: u64, policy: FragmentationPolicy) -> PageAllocator<Log> {
        zone_with(blocks, policy, Log::default())
    }

    /// Two pageblocks in use by `kind`, the second all in blocks of order `size`, of which each `nth` is then freed.
    fn holes(
        policy: FragmentationPolicy,
        kind: Migratetype,
        size: u8,
        nth: usize,
    ) -> PageAllocator<Log> {
        let mut pages = zone(2, policy);
        take(&mut pages, 9, kind).expect("the first half");
        let blocks: Vec<Pfn> = core::iter::from_fn(|| take(&mut pages, size, kind)).collect();
        for pfn in blocks.iter().step_by(nth) {
            pages.free(cpu(), *pfn).expect("it is in use");
        }
        pages.drain_all();
        pages.counters = Default::default();
        pages.events.0.borrow_mut().clear();
        pages
    }

    /// Checks the events and mistyped pages of one refill of movable pages out of holes of reclaimable memory.
    #[track_caller]
    fn check_refill(policy: FragmentationPolicy, size: u8, events: u64) {
        let mut pages = holes(policy, Reclaimable, size, 2);
        pages.zones[0].per_cpu_bounds = Bounds { batch: 63, least: 378, most: 378 };
        for _ in 0..63 {
            take(&mut pages, 0, Movable).expect("there are enough holes");
        }
        let counted = &pages.counters;
        assert_eq!((counted.events(), counted.mistyped[Movable.index()]), (events, 63));
        assert_eq!(counted.serious[Movable.index()], events, "all of them below order 4");
    }

    #[test]
    fn a_refill_from_small_holes_has_an_event_for_each_hole_or_each_page() {
        check_refill(FragmentationPolicy::LINUX_4_20, 3, 8);
        check_refill(STRICT, 3, 63);
        check_refill(FragmentationPolicy::LINUX_4_20, 0, 63);
        check_refill(STRICT, 0, 63);
    }

    #[test]
    fn a_refill_that_is_sticky_searches_once_for_what_there_is_not() {
        let visits = |fixes| {
            let mut pages = holes(FragmentationPolicy { fixes, ..STRICT }, Reclaimable, 3, 2);
            pages.zones[0].per_cpu_bounds = Bounds { batch: 63, least: 378, most: 378 };
            take(&mut pages, 0, Movable).expect("there are holes");
            pages.counters.list_visits
        };
        assert_eq!(visits(Fixes::ALL), 2 + 63);
        assert_eq!(visits(Fixes::ALL.without(Fixes::STICKY_REFILL)), 3 * 63);
    }

    #[test]
    fn an_order_10_block_changes_the_type_of_two_pageblocks_and_mixes_nothing() {
        for policy in [FragmentationPolicy::PATCHES_1_4, STRICT, STRICT_FIRST] {
            let mut pages = zone(6, policy);
            take(&mut pages, 0, Unmovable).expect("all is free");
            let kinds =
                [0, 512, 1024, 1536, 2048, 2560].map(|at| pages.frames.block(at).migratetype);
            assert_eq!(kinds.iter().filter(|&&kind| kind == Unmovable).count(), 2);
            assert_eq!((pages.counters.events(), pages.counters.conversions), (0, 1));
            assert_eq!(pages.zones[0].boost, 0);
            let event = pages.events.0.borrow()[0];
            assert!(!event.fragmenting() && event.change_ownership);
            assert_eq!((event.fallback_order, event.fallback_migratetype), (order(10), Movable));
        }
    }

    /// Returns the lists of a zone as pages by type: unmovable, movable, reclaimable.
    fn free_pages(pages: &PageAllocator<Log>) -> [u64; 3] {
        Migratetype::MOBILITY.map(|kind| pages.zones[0].lists.pages(kind))
    }

    #[test]
    fn what_becomes_of_a_block_that_does_not_suit() {
        let after = |policy| {
            let mut pages = holes(policy, Movable, 3, 4);
            for pfn in (0..1024).map(Pfn) {
                let _ = pages.set_movable(pfn, true);
            }
            take(&mut pages, 2, Unmovable).expect("there are holes");
            assert!(pages.frames.block(512).migratetype == Movable);
            (free_pages(&pages), pages.counters.events())
        };
        assert_eq!(after(FragmentationPolicy::LINUX_4_20), ([124, 0, 0], 1), "all lists change");
        assert_eq!(after(STRICT), ([0, 124, 0], 1), "no list changes");
        assert_eq!(after(STRICT_FIRST), ([0, 124, 0], 1));
    }

    #[test]
    fn a_block_that_suits_is_claimed_with_all_that_is_free_in_it() {
        for policy in [FragmentationPolicy::LINUX_4_20, STRICT, STRICT_FIRST] {
            let mut pages = holes(policy, Movable, 3, 2);
            take(&mut pages, 2, Unmovable).expect("there are holes");
            assert_eq!(free_pages(&pages), [252, 0, 0]);
            assert_eq!((pages.counters.events(), pages.counters.claims), (1, 1));
            assert_eq!(pages.counters.mistyped, [0; Migratetype::COUNT]);
            assert!(pages.events.0.borrow()[0].change_ownership);
        }
    }

    #[test]
    fn a_small_block_is_spared_after_the_boost_and_without_an_event() {
        let policy = FragmentationPolicy::PATCHES_1_5;
        let mut pages = holes(policy, Reclaimable, 3, 2);
        pages.zones[0].managed = PageCount(1 << 20);
        let request = PageRequest::new(Order::ZERO, Movable);
        let flags = AllocFlags::NO_WATERMARKS.with(AllocFlags::FRAGMENT_STALL);
        assert_eq!(pages.walk(cpu(), &request, flags), Walk::Spared(ZoneId(0)));
        let counted = &pages.counters;
        assert_eq!((counted.boosts, counted.stall_refusals, counted.events()), (1, 1, 0));
    }

    /// Strict lists look at a block that is too small to claim twice: to claim it, which tries and boosts nothing, and
    /// to steal from it.
    #[test]
    fn strict_lists_spare_what_they_would_steal_from() {
        let policy =
            FragmentationPolicy { stall: FragmentationPolicy::PATCHES_1_5.stall, ..STRICT };
        let mut pages = holes(policy, Reclaimable, 3, 2);
        let request = PageRequest::new(Order::ZERO, Movable);
        let flags = AllocFlags::NO_WATERMARKS.with(AllocFlags::FRAGMENT_STALL);
        assert_eq!(pages.walk(cpu(), &request, flags), Walk::Spared(ZoneId(0)));
        let counted = &pages.counters;
        assert_eq!((counted.boosts, counted.stall_refusals, counted.events()), (0, 1, 0));
    }

    #[test]
    fn a_fallback_visits_its_own_lists_the_others_and_its_own_again() {
        let mut pages = holes(FragmentationPolicy::LINUX_4_20, Movable, 3, 2);
        take(&mut pages, 2, Unmovable).expect("there are holes");
        assert_eq!(pages.counters.list_visits, 3);
    }
}
