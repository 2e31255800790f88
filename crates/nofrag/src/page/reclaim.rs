//! Decides by free pages and watermarks alone how far callers and kswapd reclaim for a block. Nothing here looks at
//! types: free pages in blocks where compaction finds no place count like the rest.
//!
//! A caller's *call* goes through the priorities from 12 to 0 (`slow_path`). At each it *sweeps* the zonelist: every
//! node gets a *pass*, in which the owner looks at the share of its pages that the priority says. For a large block
//! there are two more rules. A zone in which compaction can begin is *ready*: it is left alone and remembered, and a
//! sweep that remembers one is the call's last ([`PageAllocator::is_ready`]). And a pass is repeated at the same
//! priority until compaction can begin somewhere on the node ([`PageAllocator::repeats`]). kswapd repeats its passes by
//! the same rule.
//!
//! Where this differs from its rules (docs/sources/pages.md#reclaim-by-order), or says more than they do:
//!
//! * The owner has one kind of pages for all that is known here, so below priority 12 a caller's pass ends with a
//!   batch. A kernel that also swaps goes on with the longer of its lists, by as much as was looked at of the other.
//! * An owner that ignores priorities must not give everything at once: at priority 12 it is asked for no more than the
//!   priority's share of the node, which is the most that a kernel looks at.
//! * An owner may be wrong about what it reclaimed. A pass is not repeated more often than it takes to reclaim the node
//!   by batches.

use super::allocator::PageAllocator;
use super::compaction::{Mode, Suitability, Wish, gap, suitability};
use super::kswapd::KswapdGoal;
use super::map::NodeId;
use super::owner::Reclaimed;
use super::policy::{Gap, Lru};
use super::slow_path::{BATCH, FIRST_PRIORITY};
use super::walk::{AllocFlags, Mark};
use super::zone::{Zone, ZoneId};
use crate::event::EventSink;
use crate::units::Order;

/// Pages that the multi-generational LRU looks at together (`MIN_LRU_BATCH`).
const GENERATION_BATCH: u64 = 64;

/// Below this priority passes are repeated for blocks of orders 1 to 3 too.
const SMALL_PRIORITY: u8 = FIRST_PRIORITY - 2;

/// A caller's way over the zonelist at one priority.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    pub(super) priority: u8,
    /// Index of the next zone in the request's zonelist.
    pub(super) next: usize,
    /// The node that is reclaimed from, or was last.
    pub(super) node: NodeId,
    /// Passes over the node so far; 0 if there was no node yet.
    pub(super) passes: u64,
    pub(super) freed: u64,
    /// True if a zone was ready.
    pub(super) ready: bool,
}

impl Sweep {
    pub(super) const fn new(priority: u8) -> Sweep {
        Sweep { priority, next: 0, node: NodeId(0), passes: 0, freed: 0, ready: false }
    }

    /// Returns true if the node has had its turn.
    pub(super) fn has_met(&self, node: NodeId) -> bool {
        self.passes > 0 && self.node == node
    }
}

impl<E: EventSink> PageAllocator<E> {
    /// Returns true if reclaim in the zone would do nothing for compaction (`compaction_ready`): a block of the order
    /// fits, or compaction can begin and would not bring the zone below its high mark.
    pub(super) fn is_ready(&self, id: ZoneId, wanted: KswapdGoal) -> bool {
        let zone = &self.zones[id.index()];
        let KswapdGoal { order, highest } = wanted;
        if order <= Order::COSTLY {
            return false;
        }
        match (self.compacts(zone, wanted, Mark::Min), self.policy.compaction.gap) {
            (Suitability::Satisfied, _) => true,
            (Suitability::Hopeless, Gap::TwiceRequest) => false,
            (Suitability::Suitable, Gap::TwiceRequest) => {
                let mark = zone.mark(Mark::High) + gap(&self.policy.compaction, order);
                zone.keeps(mark, Order::ZERO, highest, AllocFlags::at(Mark::High))
            }
            (_, Gap::Capped) => self.compacts(zone, wanted, Mark::High) != Suitability::Hopeless,
        }
    }

    /// Returns true if a pass over a node that brought `came` is followed by another at the same priority
    /// (`should_continue_reclaim`). `passes` were made so far.
    pub(super) fn repeats(
        &self,
        (node, wanted): (NodeId, KswapdGoal),
        priority: u8,
        passes: u64,
        came: Reclaimed,
    ) -> bool {
        let KswapdGoal { order, highest } = wanted;
        let for_block = order > Order::COSTLY || order > Order::ZERO && priority < SMALL_PRIORITY;
        let managed: u64 = self.zones_of(node, highest).map(|zone| zone.managed.get()).sum();
        self.policy.lru == Lru::TwoLists
            && for_block
            && came.pages > 0
            && came.left > gap(&self.policy.compaction, order)
            && passes.saturating_mul(BATCH) < managed
            && self
                .zones_of(node, highest)
                .all(|zone| self.compacts(zone, wanted, Mark::Min) == Suitability::Hopeless)
    }

    /// Returns the number of pages that a caller asks for in a pass over a node.
    pub(super) fn pages_of_pass(&self, node: NodeId, wanted: KswapdGoal, priority: u8) -> u64 {
        match self.policy.lru {
            Lru::Generations | Lru::AgedGenerations => GENERATION_BATCH,
            Lru::TwoLists if priority < FIRST_PRIORITY => BATCH,
            Lru::TwoLists => self.share(node, wanted, priority),
        }
    }

    /// Returns the part of a node's pages that may be looked at in a pass, and a batch at least.
    pub(super) fn share(&self, node: NodeId, wanted: KswapdGoal, priority: u8) -> u64 {
        let zones = self.zones_of(node, wanted.highest);
        let managed: u64 = zones.map(|zone| zone.managed.get()).sum();
        (managed >> priority).max(BATCH)
    }

    /// Judges whether compaction can help in a zone that is to keep this watermark.
    fn compacts(&self, zone: &Zone, wanted: KswapdGoal, mark: Mark) -> Suitability {
        let KswapdGoal { order, highest } = wanted;
        let flags = AllocFlags::at(mark);
        let wish = Wish { order, highest, flags, mode: Mode::SyncLight };
        suitability(zone, &self.policy.compaction, &wish)
    }
}
