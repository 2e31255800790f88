//! Our source scanner: blocks in use that can move elsewhere, from the bottom of the zone up, or from the emptiest
//! pageblock. Linux's is in `linux`.

use super::target::{MoveTarget, list_limit};
use super::{Compaction, FoundBy, Ground, Mode, Visit, block_end, block_start};
use crate::page::frames::{FrameIndex, Kind, Tag};
use crate::page::migratetype::Migratetype;
use crate::page::policy::SourceRules;
use crate::units::Order;

/// State of our source scanner.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) visit: Option<Visit>,
    /// First frame of the lowest pageblock to which the scan in order has not come.
    linear: FrameIndex,
    /// Frame up to which everything is known to be free or movable (asynchronous runs).
    clear: FrameIndex,
    /// Searches of lists that found nothing.
    fails: u8,
    /// True once a search of lists has found something.
    jumped: bool,
}

/// Outcome of the search for a pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    Block,
    Met,
    /// As many pageblocks were looked at as allowed.
    Paused,
}

/// Outcome of a visit to a pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visited {
    /// The pageblock was seen to its end, or enough was found in it.
    Enough,
    /// There is nowhere to move to.
    NoTarget,
    /// As many frames were looked at as allowed.
    Paused,
}

/// Smallest order whose free lists are searched for pageblocks: smaller free blocks say little about theirs.
const LEAST_LISTED: u8 = Order::COSTLY.get();

impl Sources {
    /// Makes a scanner that begins at `linear`.
    pub(super) const fn new(linear: FrameIndex) -> Sources {
        Sources { visit: None, linear, clear: 0, fails: 0, jumped: false }
    }
}

impl Compaction {
    /// Enters the next pageblock with something that can be moved.
    pub(super) fn enter_source_block(
        &mut self,
        ground: &mut Ground<'_>,
        left: &mut u64,
    ) -> Entered {
        if self.empties_the_emptiest(ground) {
            return self.enter_emptiest_block(ground);
        }
        let limit = self.targets.block();
        if self.sources.linear < limit && self.list_of_sources(ground) {
            return Entered::Block;
        }
        while self.sources.linear < limit {
            if *left == 0 {
                return Entered::Paused;
            }
            *left -= 1;
            let next = self.sources.linear;
            let end = block_end(next);
            self.sources.linear = end;
            if self.is_source_block(ground, next) {
                self.sources.visit = Some(Visit { next, end, found: FoundBy::Order });
                return Entered::Block;
            }
        }
        Entered::Met
    }

    /// Returns true if the run makes whole pageblocks of the emptiest ones.
    pub(super) fn empties_the_emptiest(&self, ground: &Ground<'_>) -> bool {
        ground.policy.compaction.sources == SourceRules::EmptiestBlock
            && ground.zone.lists.by_fullness()
            && self.heeds_hints()
            && self.goal.order() >= Order::PAGEBLOCK
    }

    /// Enters the emptiest pageblock that the others can take in.
    fn enter_emptiest_block(&mut self, ground: &Ground<'_>) -> Entered {
        let lists = &ground.zone.lists;
        let whole: u64 = Order::PAGEBLOCK
            .and_larger()
            .map(|order| lists.len(order, Migratetype::Movable) * order.pages())
            .sum();
        let room = lists.pages(Migratetype::Movable) - whole;
        let zone = &ground.zone;
        let suits = |first: FrameIndex| {
            // Part of a shared pageblock is not ours to empty.
            let ours = zone.has(first) && zone.has(block_end(first) - 1);
            let block = ground.frames.block(first);
            let (free, movable) = (u64::from(block.free), u64::from(block.movable));
            let fits = free + movable == Order::PAGEBLOCK.pages() && free + movable <= room;
            ours && fits && movable > 0 && !block.skip
        };
        match lists.emptiest(Migratetype::Movable, suits) {
            Some(next) => {
                let end = block_end(next);
                self.sources.visit = Some(Visit { next, end, found: FoundBy::List });
                Entered::Block
            }
            None => Entered::Met,
        }
    }

    /// Returns true if the pageblock that begins at `first` is looked at.
    fn is_source_block(&self, ground: &Ground<'_>, first: FrameIndex) -> bool {
        let block = ground.frames.block(first);
        let passed = block.skip && self.heeds_hints();
        let rest = Order::PAGEBLOCK.pages() - u64::from(block.free) - u64::from(block.movable);
        let hopeless = self.goal.order() >= Order::PAGEBLOCK && rest > 0;
        block.movable > 0 && !passed && !hopeless && self.sources_allowed(ground, block.migratetype)
    }

    /// Returns true if pageblocks of the type are emptied. Callers that do not wait empty blocks of their own type
    /// alone.
    pub(super) fn sources_allowed(&self, ground: &Ground<'_>, block: Migratetype) -> bool {
        let rules = ground.policy.compaction.sources;
        if block == Migratetype::Cma && rules != SourceRules::Until6_12 && !self.may_use_cma() {
            return false;
        }
        if self.mode != Mode::Async {
            return true;
        }
        let huge = rules != SourceRules::Until6_12 && self.goal.order() >= Order::PAGEBLOCK;
        let wanted = if huge { Migratetype::Movable } else { self.goal.migratetype() };
        block == wanted || wanted == Migratetype::Movable && block == Migratetype::Cma
    }

    /// Enters a pageblock low among those left, of which the free lists say that a good part is free; returns false if
    /// there is none.
    fn list_of_sources(&mut self, ground: &mut Ground<'_>) -> bool {
        let mut tries = list_limit(self.sources.fails);
        let below = self.goal.order().get();
        if !self.searches_lists() || tries == 0 || below <= LEAST_LISTED {
            return false;
        }
        let range = (self.targets.linear - self.sources.linear) / 2;
        let range = if self.sources.jumped { range / 4 } else { range };
        let (low, high) = (self.sources.linear, block_start(self.sources.linear + range));
        for order in (LEAST_LISTED..below).rev().filter_map(Order::new) {
            let within = |frame: &FrameIndex| (low..high).contains(frame);
            let mut entries = ground.listed(order).take(tries).inspect(|_| tries -= 1);
            let found = entries.find(|frame| {
                within(frame) && self.is_source_block(ground, block_start(*frame).max(low))
            });
            if let Some(frame) = found {
                let (next, end) = (block_start(frame).max(low), block_end(frame));
                self.sources.visit = Some(Visit { next, end, found: FoundBy::List });
                self.sources.jumped = true;
                self.sources.fails = 0;
                return true;
            }
        }
        self.sources.fails += 1;
        false
    }

    /// Sends blocks on their way until enough are, or the pageblock under work ends.
    pub(super) fn visit_sources(&mut self, ground: &mut Ground<'_>, left: &mut u64) -> Visited {
        while let Some(visit) = self.sources.visit {
            let (next, end) = (visit.next, visit.end);
            if next >= end {
                self.leave_source_block(ground);
                break;
            }
            if *left == 0 {
                return Visited::Paused;
            }
            *left -= 1;
            ground.counters.migrate_scanned += 1;
            let tag = ground.frames.tag(next);
            let mut behind = ground.behind(next);
            if self.may_leave(tag) {
                if let Some(window) = self.spoilt_window(ground, next) {
                    behind = window;
                } else {
                    // However little is left, the search for a target must come further than last time.
                    *left = (*left).max(1);
                    match self.target(ground, tag.order(), end, left) {
                        MoveTarget::At(to) => self.flight.push(ground, next, to),
                        MoveTarget::NoFit => {}
                        MoveTarget::Exhausted => return Visited::NoTarget,
                        MoveTarget::Paused => return Visited::Paused,
                    }
                }
            }
            self.sources.visit = Some(Visit { next: behind, ..visit });
            if self.flight.is_full() {
                break;
            }
        }
        Visited::Enough
    }

    /// Returns true if the content of a block may be moved for the sake of the goal.
    fn may_leave(&self, tag: Tag) -> bool {
        tag.kind() == Kind::Used
            && tag.is_movable()
            && tag.order() < self.goal.order().min(Order::PAGEBLOCK)
    }

    /// Returns, for a caller that does not wait, the end of the block of the wanted order around `frame` if something
    /// in it cannot be moved, so that moving the rest would be in vain.
    fn spoilt_window(&mut self, ground: &mut Ground<'_>, frame: FrameIndex) -> Option<FrameIndex> {
        if self.mode != Mode::Async || frame < self.sources.clear {
            return None;
        }
        let size = self.goal.order().min(Order::PAGEBLOCK).pages() as FrameIndex;
        let (start, end) = (frame & !(size - 1), (frame | (size - 1)) + 1);
        if start < ground.zone.start || end > ground.zone.end {
            return Some(end);
        }
        let mut at = start;
        while at < end {
            ground.counters.migrate_scanned += u64::from(at > frame);
            let tag = ground.frames.tag(at);
            let inside = tag == Tag::INSIDE || tag.kind() == Kind::Leaving;
            if tag.kind() != Kind::Free && !self.may_leave(tag) && !inside {
                return Some(end);
            }
            at = ground.behind(at);
        }
        self.sources.clear = end;
        None
    }

    /// Notes that the pageblock under work was looked at from end to end.
    fn leave_source_block(&mut self, ground: &mut Ground<'_>) {
        let visit = self.sources.visit.take().expect("a visit ends");
        ground.frames.block_mut(visit.end - 1).skip = true;
        if visit.found == FoundBy::Order {
            let sync = self.mode != Mode::Async;
            let [any, waiting] = &mut ground.zone.compaction.sources;
            *any = Some(any.map_or(visit.end, |at| at.max(visit.end)));
            if sync {
                *waiting = Some(waiting.map_or(visit.end, |at| at.max(visit.end)));
            }
        }
    }
}
