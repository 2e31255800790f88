//! Blocks on their way from one place to another.
//!
//! A block that leaves is on no list, and neither is the place set aside for it, so their links are free to hold the
//! chain of moves. Nothing is allocated, however many machines are at work.

use super::Ground;
use crate::page::frames::{FrameIndex, Frames, Kind, NONE, Tag};
use crate::page::owner::{Move, MoveResults, Moves};
use crate::units::Order;

/// Moves that were asked for and not reported yet.
///
/// Always true:
/// 1. Each source is `Leaving`, or `Left` once its owner has given it back; its target is `Target`, of its order.
/// 2. The links of a source name its target and the next source.
#[derive(Debug)]
pub(super) struct Flight {
    first: FrameIndex,
    last: FrameIndex,
    count: u8,
    pages: u32,
}

/// What came of some moves, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Landed {
    /// Moved.
    pub moved: u64,
    /// Stayed where they were. What its owner has freed meanwhile is neither.
    pub stayed: u64,
}

impl Flight {
    pub(super) const fn none() -> Flight {
        Flight { first: NONE, last: NONE, count: 0, pages: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether no more may be added (`COMPACT_CLUSTER_MAX`): 32 pages, or one larger block.
    pub(super) fn is_full(&self) -> bool {
        self.pages as usize >= Moves::MAX
    }

    /// Adds a move from the block in use at `from` to the block at `to`, which was set aside for it.
    pub(super) fn push(&mut self, ground: &mut Ground<'_>, from: FrameIndex, to: FrameIndex) {
        let frames = &mut *ground.frames;
        let tag = frames.tag(from);
        debug_assert_eq!((tag.kind(), frames.tag(to).kind()), (Kind::Used, Kind::Target));
        frames.set_tag(from, tag.with_kind(Kind::Leaving));
        *frames.links_mut(from) = [to, NONE];
        if self.count == 0 {
            self.first = from;
        } else {
            frames.links_mut(self.last)[1] = from;
        }
        self.last = from;
        self.count += 1;
        self.pages += tag.order().pages() as u32;
        ground.zone.compaction.in_flight += tag.order().pages();
    }

    /// What the owner is to move.
    pub(super) fn moves(&self, frames: &Frames) -> Moves {
        let mut moves = Moves::none();
        let mut from = self.first;
        for _ in 0..self.count {
            let [to, next] = frames.links(from);
            let order = frames.tag(from).order();
            moves.push(Move { from: frames.pfn(from), to: frames.pfn(to), order });
            from = next;
        }
        moves
    }

    /// Ends all moves: what was moved lives at its target and its source is free, what was not stays and its target is
    /// free, and where the owner gave the block back meanwhile both are free.
    pub(super) fn land(&mut self, ground: &mut Ground<'_>, results: MoveResults) -> Landed {
        let mut landed = Landed::default();
        let mut from = self.first;
        for index in 0..usize::from(self.count) {
            let [to, next] = ground.frames.links(from);
            let tag = ground.frames.tag(from);
            let pages = tag.order().pages();
            ground.zone.compaction.in_flight -= pages;
            match (tag.kind(), results.moved(index)) {
                (Kind::Leaving, true) => {
                    ground.settle(to, tag);
                    ground.vacate(from, tag);
                    landed.moved += pages;
                }
                (Kind::Leaving, false) => {
                    ground.frames.set_tag(from, tag.with_kind(Kind::Used));
                    ground.release(to, tag.order());
                    landed.stayed += pages;
                }
                (Kind::Left, _) => {
                    ground.release(to, tag.order());
                    ground.vacate(from, tag);
                }
                (kind, _) => panic!("a block on its way is {kind:?}"),
            }
            from = next;
        }
        *self = Flight::none();
        landed
    }
}

impl Ground<'_> {
    /// Makes the target at `to` a block in use like that of `tag`.
    fn settle(&mut self, to: FrameIndex, tag: Tag) {
        self.frames.set_tag(to, tag.with_kind(Kind::Used));
        if tag.is_movable() {
            self.frames.each_block(to, tag.order(), |block, pages| block.movable += pages);
        }
    }

    /// Frees the place that a block has left.
    fn vacate(&mut self, from: FrameIndex, tag: Tag) {
        if tag.is_movable() {
            self.frames.each_block(from, tag.order(), |block, pages| block.movable -= pages);
        }
        self.zone.free_block(self.frames, from, tag.order());
    }

    /// Gives back a target that was not used. The next run shall find it again.
    fn release(&mut self, to: FrameIndex, order: Order) {
        let end = super::block_end(to);
        if let Some(next) = &mut self.zone.compaction.targets {
            *next = end.max(*next);
        }
        self.zone.free_block(self.frames, to, order);
    }
}
