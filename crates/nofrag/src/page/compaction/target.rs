//! Our target scanner: free pages that others can move to, from the top of the zone down, or in the fullest pageblock
//! (docs/sources/pages.md#targets). Linux's is in `linux`.

use super::{Compaction, FoundBy, Ground, Visit, block_end, block_start};
use crate::page::frames::{FrameIndex, Kind, NONE, Tag};
use crate::page::migratetype::Migratetype;
use crate::page::owner::Moves;
use crate::page::policy::FallbackRules;
use crate::units::Order;

/// State of our target scanner.
#[derive(Debug)]
pub(super) struct Targets {
    visit: Option<Visit>,
    /// Frame behind the highest pageblock to which the scan in order has not come.
    pub(super) linear: FrameIndex,
    /// The order with which the next search of lists begins: the one that worked last.
    order: u8,
    /// Searches of lists that found nothing.
    fails: u8,
}

/// Answer to the search for a place to move to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveTarget {
    At(FrameIndex),
    /// None of this size is at hand.
    NoFit,
    /// The scanner has come down to where pages come from, or no more may be taken.
    Exhausted,
    /// As many frames were looked at as allowed.
    Paused,
}

/// Breaking into a free block of this order or more makes its pageblock movable.
const RETYPES: u8 = Order::PAGEBLOCK.get() - 1;

/// Returns the number of list entries to look at after `fails` searches in vain.
pub(super) const fn list_limit(fails: u8) -> usize {
    if fails > 6 { 0 } else { (Moves::MAX + 1) >> fails }
}

impl Targets {
    /// Makes a scanner that begins below `linear`, for a run that wants a block of `order`.
    pub(super) const fn new(linear: FrameIndex, order: Order) -> Targets {
        Targets { visit: None, linear, order: order.get().saturating_sub(1), fails: 0 }
    }

    /// Returns the first frame of the pageblock in which the scanner is, or which it will enter next.
    pub(super) fn block(&self) -> FrameIndex {
        match self.visit {
            Some(Visit { found: FoundBy::Order, .. }) => self.linear,
            _ => block_start(self.linear.saturating_sub(1)),
        }
    }
}

impl Compaction {
    /// Sets a place of `order` aside, above `floor`, the end of the pageblock that is being emptied.
    pub(super) fn target(
        &mut self,
        ground: &mut Ground<'_>,
        order: Order,
        floor: FrameIndex,
        left: &mut u64,
    ) -> MoveTarget {
        if ground.usable_free() <= ground.zone.marks.min + order.pages() {
            return MoveTarget::Exhausted;
        }
        if self.empties_the_emptiest(ground) {
            return self.fullest_target(ground, order);
        }
        if order > Order::ZERO {
            return self.large_target(ground, order, floor);
        }
        if self.targets.visit.as_ref().is_some_and(|visit| visit.end <= floor) {
            self.targets.visit = None;
        }
        loop {
            if let Some(place) = self.visit_targets(ground, left) {
                return place;
            }
            if !self.list_of_targets(ground, floor) && !self.next_target_block(ground, floor, left)
            {
                return if *left == 0 { MoveTarget::Paused } else { MoveTarget::Exhausted };
            }
        }
    }

    /// Returns a place in the fullest pageblock, but neither in the one that is being emptied nor in a whole one.
    fn fullest_target(&self, ground: &mut Ground<'_>, order: Order) -> MoveTarget {
        ground.counters.free_scanned += 1;
        let Some(source) = self.sources.visit.map(|visit| visit.end - 1) else {
            return MoveTarget::NoFit;
        };
        let lists = &ground.zone.lists;
        match lists.choose_beside(ground.frames, order, Migratetype::Movable, source) {
            Some(frame) => {
                ground.set_aside(frame, ground.frames.tag(frame), order);
                MoveTarget::At(frame)
            }
            None if order == Order::ZERO => MoveTarget::Exhausted,
            None => MoveTarget::NoFit,
        }
    }

    /// Goes on in the pageblock under work; `None` if there is none, or no more in it.
    fn visit_targets(&mut self, ground: &mut Ground<'_>, left: &mut u64) -> Option<MoveTarget> {
        let visit = self.targets.visit.as_mut()?;
        while visit.next < visit.end {
            if *left == 0 {
                return Some(MoveTarget::Paused);
            }
            *left -= 1;
            ground.counters.free_scanned += 1;
            let frame = visit.next;
            let tag = ground.frames.tag(frame);
            if tag.kind() == Kind::Free {
                ground.set_aside(frame, tag, Order::ZERO);
                visit.next += 1;
                return Some(MoveTarget::At(frame));
            }
            visit.next = ground.behind(frame);
        }
        let start = block_start(visit.end - 1);
        ground.frames.block_mut(start).skip = true;
        if visit.found == FoundBy::Order {
            let below = &mut ground.zone.compaction.targets;
            *below = Some(below.map_or(start, |below| below.min(start)));
        }
        self.targets.visit = None;
        None
    }

    /// Enters the next pageblock downwards that has something to offer; returns false if there is none above `floor`,
    /// or the budget is spent.
    fn next_target_block(
        &mut self,
        ground: &Ground<'_>,
        floor: FrameIndex,
        left: &mut u64,
    ) -> bool {
        while self.targets.linear > floor && *left > 0 {
            *left -= 1;
            let end = self.targets.linear;
            let next = block_start(end - 1).max(ground.zone.start);
            self.targets.linear = next;
            if self.is_target_block(ground, next) {
                self.targets.visit = Some(Visit { next, end, found: FoundBy::Order });
                return true;
            }
        }
        false
    }

    /// Returns true if pages may be moved to the pageblock that begins at `first`: it is meant for movable ones, and it
    /// is not itself the goal.
    fn is_target_block(&self, ground: &Ground<'_>, first: FrameIndex) -> bool {
        let block = ground.frames.block(first);
        let tag = ground.frames.tag(first);
        let whole = tag.kind() == Kind::Free && tag.order() >= self.goal.order();
        let full = u64::from(block.free) == Order::PAGEBLOCK.pages();
        let meant = matches!(block.migratetype, Migratetype::Movable | Migratetype::Cma);
        let passed = block.skip && self.heeds_hints();
        block.free > 0 && meant && !whole && !passed && !(full && tag == Tag::INSIDE)
    }

    /// Enters a pageblock that the free lists name: in the top quarter of those left, else the highest seen in its
    /// upper half.
    fn list_of_targets(&mut self, ground: &Ground<'_>, floor: FrameIndex) -> bool {
        let limit = list_limit(self.targets.fails);
        if !self.searches_lists() || limit == 0 || self.targets.linear <= floor {
            return false;
        }
        let range = self.targets.linear - floor;
        let (quarter, half) = (self.targets.linear - range / 4, self.targets.linear - range / 2);
        let orders = (0..=self.targets.order).rev();
        for order in orders.filter_map(Order::new) {
            let mut best = None;
            for frame in ground.listed(order).take(limit) {
                if frame < half.max(best.unwrap_or(0)) || frame >= self.targets.linear {
                    continue;
                }
                if !self.may_break(ground, frame, order) {
                    continue;
                }
                best = Some(frame);
                if frame >= quarter {
                    break;
                }
            }
            if let Some(frame) = best {
                let next = block_start(frame).max(ground.zone.start);
                let end = block_end(frame).min(ground.zone.end);
                self.targets.visit = Some(Visit { next, end, found: FoundBy::List });
                self.targets.order = order.get();
                return true;
            }
        }
        self.targets.fails += 1;
        self.targets.order = self.goal.order().get().saturating_sub(1);
        false
    }

    /// Returns true if pages may be moved into the pageblock of a free block on a list of movable ones. With loose
    /// lists it may be meant for others; from half a pageblock on it is made movable.
    fn may_break(&self, ground: &Ground<'_>, frame: FrameIndex, order: Order) -> bool {
        let first = block_start(frame).max(ground.zone.start);
        let strays = order.get() >= RETYPES && ground.policy.fallback == FallbackRules::Loose;
        self.is_target_block(ground, first)
            || strays && ground.frames.block(frame).migratetype.is_mobility()
    }

    /// Returns a place for more than one page: by the lists alone, as pageblocks are walked through once only, and
    /// mostly for single pages.
    fn large_target(
        &mut self,
        ground: &mut Ground<'_>,
        order: Order,
        floor: FrameIndex,
    ) -> MoveTarget {
        let below = self.goal.order();
        for size in order.and_larger().take_while(|&size| size < below) {
            let fits = |frame: &FrameIndex| *frame >= floor && self.may_break(ground, *frame, size);
            let found = ground.listed(size).take(Moves::MAX + 1).find(fits);
            if let Some(frame) = found {
                ground.counters.free_scanned += 1;
                let tag = ground.frames.tag(frame);
                ground.set_aside(frame, tag, order);
                return MoveTarget::At(frame);
            }
        }
        MoveTarget::NoFit
    }
}

impl Ground<'_> {
    /// Returns the free pages that ordinary requests may count on.
    pub(super) fn usable_free(&self) -> u64 {
        let lists = &self.zone.lists;
        lists.total() - lists.pages(Migratetype::HighAtomic)
    }

    /// Returns the free blocks on a list of movable ones, first to be taken first.
    pub(super) fn listed(&self, order: Order) -> impl Iterator<Item = FrameIndex> + '_ {
        let next = |&frame: &FrameIndex| {
            let [_, behind] = self.frames.links(frame);
            (behind != NONE).then_some(behind)
        };
        core::iter::successors(self.zone.lists.first(order, Migratetype::Movable), next)
    }

    /// Takes `order` from the front of the free block at `frame` and sets it aside.
    fn set_aside(&mut self, frame: FrameIndex, tag: Tag, order: Order) {
        let (have, listed) = self.zone.lists.remove(self.frames, frame);
        self.zone.split(self.frames, frame, have, order, listed);
        self.frames.set_tag(frame, Tag::new(Kind::Target, order));
        if tag.order().get() >= RETYPES {
            self.frames.each_block(frame, tag.order(), |block, _| {
                if block.migratetype.is_mobility() {
                    block.migratetype = Migratetype::Movable;
                }
            });
        }
    }
}
