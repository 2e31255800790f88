//! What the owner of the pages does on the allocator's behalf: give pages back, and move them.

use super::allocator::PageAllocator;
use super::map::NodeId;
use super::zone::ZoneId;
use crate::event::EventSink;
use crate::units::{Order, Pfn};

/// A demand for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimRequest {
    /// The node that is short.
    pub node: NodeId,
    /// The highest zone whose pages help: zones of the node above it do not.
    pub highest: ZoneId,
    /// How many pages are wanted; when so many are freed it is enough.
    pub pages: u64,
    /// How hard to look: 12 (look at 1/4096 of the pages) down to 0 (look at all of them).
    pub priority: u8,
    /// What may be done for it.
    pub may: ReclaimScope,
}

/// What reclaim may do.
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
    /// Everything.
    pub const ALL: ReclaimScope = ReclaimScope { write: true, swap: true, slab: true };
}

/// What reclaim gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Pages that were freed.
    pub pages: u64,
    /// Pages that were looked at.
    pub scanned: u64,
    /// Pages of the node that could still be reclaimed, in the zones that were asked for (those on inactive lists).
    /// Without enough of them nobody asks again for the sake of a large block; 0 is a valid answer.
    pub left: u64,
}

/// Can give pages back.
pub trait Reclaim<E: EventSink = ()> {
    /// Frees pages with [`PageAllocator::free`], at best as many as are wanted, and says how many it freed. Zero is a
    /// valid answer.
    fn reclaim(&mut self, pages: &mut PageAllocator<E>, wanted: ReclaimRequest) -> Reclaimed;
}

/// Can move what pages hold.
pub trait Migrate {
    /// Makes the block at `to` hold what that at `from` holds, and tells whoever refers to it. `false` leaves
    /// everything as it was.
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
    /// Where it is.
    pub from: Pfn,
    /// Where it shall be.
    pub to: Pfn,
    /// Its size.
    pub order: Order,
}

impl Moves {
    /// Linux's `COMPACT_CLUSTER_MAX`.
    pub const MAX: usize = 32;

    pub(super) const fn none() -> Moves {
        Moves { pairs: [Move { from: Pfn(0), to: Pfn(0), order: Order::ZERO }; Moves::MAX], len: 0 }
    }

    pub(super) fn push(&mut self, pair: Move) {
        self.pairs[usize::from(self.len)] = pair;
        self.len += 1;
    }

    /// The pairs.
    #[must_use]
    pub fn pairs(&self) -> &[Move] {
        &self.pairs[..usize::from(self.len)]
    }

    /// Carries out all moves with `owner`.
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

/// Which of some [`Moves`] succeeded: bit i for pair i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveResults(pub u32);

impl MoveResults {
    /// Whether pair `index` was moved; none beyond [`Moves::MAX`] was.
    #[must_use]
    pub const fn moved(self, index: usize) -> bool {
        index < Moves::MAX && self.0 >> index & 1 == 1
    }
}
