//! kswapd: reclaims in the background until a node's watermarks are met.

use super::allocator::PageAllocator;
use super::map::NodeId;
use super::owner::Reclaim;
use crate::event::EventSink;
use crate::units::Nanos;

/// How much a step of a background machine may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBudget {
    /// Pages that it may ask the owner to reclaim, or frames that it may scan.
    pub pages: u64,
}

/// What a step of a background machine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageProgress {
    /// Pages reclaimed or moved.
    pub pages: u64,
    /// Whether there is more to do at once.
    pub more: bool,
    /// When to look again, if nothing wakes the machine before.
    pub wake_at: Option<Nanos>,
}

/// The reclaim thread of a node, as a machine that is stepped.
#[derive(Debug)]
pub struct Kswapd {
    node: NodeId,
}

impl Kswapd {
    /// The machine of a node.
    #[must_use]
    pub const fn new(node: NodeId) -> Kswapd {
        Kswapd { node }
    }

    /// Does some work, if there is any.
    pub fn step<E: EventSink>(
        &mut self,
        _now: Nanos,
        pages: &mut PageAllocator<E>,
        _owner: &mut impl Reclaim<E>,
        _budget: PageBudget,
    ) -> PageProgress {
        let _ = (self.node, pages);
        PageProgress::default()
    }
}
