//! Blocks on their way from one place to another.
//!
//! A block that leaves is on no list, and neither is the place set aside for it, so their links are free to hold the
//! chain of moves. Nothing is allocated, however many runs are at work.

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

/// Blocks that are on no list, linked by their second links: last in, first out, or in the order of appending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    first: FrameIndex,
    last: FrameIndex,
}

impl Chain {
    pub(super) const EMPTY: Chain = Chain { first: NONE, last: NONE };

    pub(super) const fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Returns the number of pages in all its blocks. O(blocks).
    pub(super) fn pages(&self, frames: &Frames) -> u32 {
        let (mut at, mut pages) = (self.first, 0);
        while at != NONE {
            pages += frames.tag(at).order().pages() as u32;
            at = frames.links(at)[1];
        }
        pages
    }

    /// Returns the block that is taken next.
    pub(super) fn first(&self) -> Option<FrameIndex> {
        (self.first != NONE).then_some(self.first)
    }

    /// Adds a block before all others.
    pub(super) fn push(&mut self, frames: &mut Frames, frame: FrameIndex) {
        *frames.links_mut(frame) = [NONE, self.first];
        if self.first == NONE {
            self.last = frame;
        }
        self.first = frame;
    }

    /// Adds a block behind all others.
    pub(super) fn append(&mut self, frames: &mut Frames, frame: FrameIndex) {
        *frames.links_mut(frame) = [NONE; 2];
        match self.last {
            NONE => self.first = frame,
            last => frames.links_mut(last)[1] = frame,
        }
        self.last = frame;
    }

    pub(super) fn pop(&mut self, frames: &mut Frames) -> Option<FrameIndex> {
        let frame = self.first()?;
        self.first = frames.links(frame)[1];
        if self.first == NONE {
            self.last = NONE;
        }
        Some(frame)
    }
}

/// Result of some moves, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Landed {
    pub moved: u64,
    /// Pages that stayed where they were. Pages that their owner has freed meanwhile count in neither field.
    pub stayed: u64,
}

impl Flight {
    pub(super) const fn none() -> Flight {
        Flight { first: NONE, last: NONE, count: 0, pages: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns true if no more moves may be added (`COMPACT_CLUSTER_MAX`): 32 pages, or one larger block.
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

    /// Returns the moves that the owner is to make.
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

    /// Ends all moves: content that was moved lives at its target, content that was not stays, and its owner may have
    /// freed it meanwhile. `free` gets each block that is out of use then, and the reason.
    pub(super) fn land(
        &mut self,
        ground: &mut Ground<'_>,
        results: MoveResults,
        mut free: impl FnMut(&mut Ground<'_>, FrameIndex, Order, Idle),
    ) -> Landed {
        let mut landed = Landed::default();
        let mut from = self.first;
        for index in 0..usize::from(self.count) {
            let [to, next] = ground.frames.links(from);
            let tag = ground.frames.tag(from);
            let (pages, order) = (tag.order().pages(), tag.order());
            ground.zone.compaction.in_flight -= pages;
            match (tag.kind(), results.moved(index)) {
                (Kind::Leaving, true) => {
                    ground.settle(to, tag);
                    ground.vacate(from, tag);
                    free(ground, from, order, Idle::Source);
                    landed.moved += pages;
                }
                (Kind::Leaving, false) => {
                    ground.frames.set_tag(from, tag.with_kind(Kind::Used));
                    free(ground, to, order, Idle::Target);
                    landed.stayed += pages;
                }
                (Kind::Left, _) => {
                    free(ground, to, order, Idle::Target);
                    ground.vacate(from, tag);
                    free(ground, from, order, Idle::Source);
                }
                (kind, _) => panic!("a block on its way is {kind:?}"),
            }
            from = next;
        }
        *self = Flight::none();
        landed
    }
}

/// Reason why a block is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    /// Source of a move: its content has moved away, or its owner has freed it.
    Source,
    /// Target to which nothing was moved.
    Target,
}

impl Ground<'_> {
    /// Makes the target at `to` a block in use like that of `tag`.
    fn settle(&mut self, to: FrameIndex, tag: Tag) {
        self.frames.set_tag(to, tag.with_kind(Kind::Used));
        if tag.is_movable() {
            self.frames.each_block(to, tag.order(), |block, pages| block.movable += pages);
        }
    }

    /// Uncounts the movable pages of a block whose content has left.
    fn vacate(&mut self, from: FrameIndex, tag: Tag) {
        if tag.is_movable() {
            self.frames.each_block(from, tag.order(), |block, pages| block.movable -= pages);
        }
    }

    /// Frees a block that is out of use. A target that was not used shall be found again by the next run.
    pub(super) fn release(&mut self, frame: FrameIndex, order: Order, idle: Idle) {
        if idle == Idle::Target {
            let end = super::block_end(frame);
            if let Some(next) = &mut self.zone.compaction.targets {
                *next = end.max(*next);
            }
        }
        self.zone.free_block(self.frames, frame, order);
    }
}
