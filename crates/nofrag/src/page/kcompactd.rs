//! kcompactd: compacts in the background.

use super::allocator::PageAllocator;
use super::event::PageEvent;
use super::kswapd::{PageBudget, PageProgress};
use super::map::NodeId;
use super::owner::Migrate;
use crate::event::{Event, EventSink};
use crate::units::{Nanos, Order};

/// What a node's kcompactd was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KcompactdBox {
    /// The largest block that was asked for since it last looked (`kcompactd_max_order`).
    pub(super) wanted: Option<Order>,
}

impl<E: EventSink> PageAllocator<E> {
    /// Asks a node's kcompactd for a block of this size (`wakeup_kcompactd`). Single pages need no compaction.
    pub(super) fn wake_kcompactd(&mut self, node: NodeId, order: Order) {
        if order == Order::ZERO {
            return;
        }
        let wanted = &mut self.nodes[node.index()].kcompactd.wanted;
        *wanted = (*wanted).max(Some(order));
        self.counters.kcompactd_wakes += 1;
        self.events.record(Event::Page(PageEvent::KcompactdWoken { node, order }));
    }
}

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
