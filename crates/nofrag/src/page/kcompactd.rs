//! kcompactd: compacts in the background.

use super::allocator::PageAllocator;
use super::kswapd::{PageBudget, PageProgress};
use super::map::NodeId;
use super::owner::Migrate;
use crate::event::EventSink;
use crate::units::Nanos;

/// The compaction thread of a node, as a machine that is stepped.
#[derive(Debug)]
pub struct Kcompactd {
    node: NodeId,
}

impl Kcompactd {
    /// The machine of a node.
    #[must_use]
    pub const fn new(node: NodeId) -> Kcompactd {
        Kcompactd { node }
    }

    /// Does some work, if there is any.
    pub fn step<E: EventSink>(
        &mut self,
        _now: Nanos,
        pages: &mut PageAllocator<E>,
        _owner: &mut impl Migrate,
        _budget: PageBudget,
    ) -> PageProgress {
        let _ = (self.node, pages);
        PageProgress::default()
    }
}
