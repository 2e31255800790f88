//! kswapd: reclaims in the background until a node's watermarks are met.

use super::allocator::PageAllocator;
use super::event::PageEvent;
use super::map::{NodeId, ZoneKind};
use super::owner::Reclaim;
use super::zone::ZoneId;
use crate::event::{Event, EventSink};
use crate::units::{Nanos, Order};

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

/// What a node's kswapd was asked for, and what others may know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KswapdBox {
    /// What it was woken for since it last looked.
    pub(super) wanted: Option<Wanted>,
    /// Whether it is at work, or about to be.
    pub(super) awake: bool,
}

/// What kswapd was woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The largest block that was asked for (`kswapd_order`).
    pub(super) order: Order,
    /// The highest zone whose pages somebody can use (`kswapd_highest_zoneidx`).
    pub(super) highest: ZoneKind,
}

impl<E: EventSink> PageAllocator<E> {
    /// Asks the kswapd of a zone's node for a block of this size (`wakeup_kswapd`).
    pub(super) fn wake_kswapd(&mut self, zone: ZoneId, order: Order) {
        let zone = &self.zones[zone.index()];
        let (node, highest) = (zone.node, zone.kind);
        let mail = &mut self.nodes[node.index()].kswapd;
        let before = mail.wanted.unwrap_or(Wanted { order, highest });
        mail.wanted =
            Some(Wanted { order: order.max(before.order), highest: highest.max(before.highest) });
        mail.awake = true;
        self.counters.kswapd_wakes += 1;
        self.events.record(Event::Page(PageEvent::KswapdWoken { node, order }));
    }
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
