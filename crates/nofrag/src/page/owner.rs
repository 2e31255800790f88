//! The work of the pages' owner for the allocator: giving pages back, and moving them.

use super::allocator::PageAllocator;
use super::map::NodeId;
use super::zone::ZoneId;
use crate::event::EventSink;
use crate::units::{Order, Pfn};

/// A demand for pages, made to their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimRequest {
    /// The node that is short.
    pub node: NodeId,
    /// The highest zone whose pages help: zones of the node above it do not.
    pub highest: ZoneId,
    /// Number of wanted pages; reclaim may end once these are freed.
    pub pages: u64,
    /// Effort of the search: 12 (look at 1/4096 of the pages) down to 0 (look at all of them).
    pub priority: u8,
    pub may: ReclaimScope,
}

/// Means that reclaim may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimScope {
    /// Dirty pages may be written.
    pub write: bool,
    /// Process memory may go to swap.
    pub swap: bool,
    /// Slab caches may be shrunk.
    pub slab: bool,
}

impl ReclaimScope {
    pub const ALL: ReclaimScope = ReclaimScope { write: true, swap: true, slab: true };
}

/// Result of reclaim by the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    pub pages: u64,
    /// Number of pages that were looked at.
    pub scanned: u64,
    /// Pages of the node that could still be reclaimed, in the zones that were asked for (those on inactive lists).
    /// Without enough of them nobody asks again for the sake of a large block; 0 is a valid answer.
    pub left: u64,
}

/// An owner that can give pages back.
pub trait Reclaim<E: EventSink = ()> {
    /// Frees pages with [`PageAllocator::free`], at best as many as are wanted, and returns the result. Zero pages are
    /// a valid answer.
    fn reclaim(&mut self, pages: &mut PageAllocator<E>, wanted: ReclaimRequest) -> Reclaimed;
}

/// An owner that can move the content of pages.
pub trait Migrate {
    /// Moves the content of the block at `from` to the block at `to`, and tells all that refer to it. An answer of
    /// `false` leaves everything as it was.
    fn migrate(&mut self, from: Pfn, to: Pfn, order: Order) -> bool;
}

/// Pages to be moved, at most [`Moves::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moves {
    pairs: [Move; Moves::MAX],
    len: u8,
}

/// One block to be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Move {
    pub from: Pfn,
    pub to: Pfn,
    pub order: Order,
}

impl Moves {
    /// Most moves at a time: Linux's `COMPACT_CLUSTER_MAX`.
    pub const MAX: usize = 32;

    pub(super) const fn none() -> Moves {
        Moves { pairs: [Move { from: Pfn(0), to: Pfn(0), order: Order::ZERO }; Moves::MAX], len: 0 }
    }

    pub(super) fn push(&mut self, pair: Move) {
        self.pairs[usize::from(self.len)] = pair;
        self.len += 1;
    }

    /// Returns the moves as pairs of blocks.
    #[must_use]
    pub fn pairs(&self) -> &[Move] {
        &self.pairs[..usize::from(self.len)]
    }

    /// Carries out all moves with `owner`, and returns which of them succeeded.
    pub fn carry_out(&self, owner: &mut impl Migrate) -> MoveResults {
        let mut results = MoveResults::default();
        for (index, pair) in self.pairs().iter().enumerate() {
            if owner.migrate(pair.from, pair.to, pair.order) {
                results.0 |= 1 << index;
            }
        }
        results
    }
}

/// Successes among some [`Moves`]: bit i for pair i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveResults(pub u32);

impl MoveResults {
    /// Returns true if pair `index` was moved; none beyond [`Moves::MAX`] was.
    #[must_use]
    pub const fn moved(self, index: usize) -> bool {
        index < Moves::MAX && self.0 >> index & 1 == 1
    }
}
