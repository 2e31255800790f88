//! A zone as a kernel's report shows it: counts and marks, without its frames.
//!
//! A reader of a report or a snapshot wants to know what the allocator would have said. The watermark test and the
//! reasons for a refusal are those of a live [`Zone`](super::zone::Zone): both look at free memory through
//! [`FreeMemory`].

use super::failure::{Refusal, refusal};
use super::free_lists::FreeLists;
use super::map::{NodeId, ZoneKind};
use super::migratetype::Migratetype;
use super::request::PageRequest;
use super::slow_path::{rights, with_reserves};
use super::zone::Watermarks;
use crate::units::Order;

/// Counts of free memory that the watermark test looks at, each in O(1).
pub(super) trait FreeMemory {
    /// Free pages of all types.
    fn total(&self) -> u64;
    /// Free pages of one type.
    fn pages(&self, migratetype: Migratetype) -> u64;
    /// Orders, `least` and above, of which there is a block of the type: a bit for each.
    fn orders(&self, migratetype: Migratetype, least: Order) -> u16;
}

impl FreeMemory for FreeLists {
    fn total(&self) -> u64 {
        self.total()
    }

    fn pages(&self, migratetype: Migratetype) -> u64 {
        self.pages(migratetype)
    }

    fn orders(&self, migratetype: Migratetype, least: Order) -> u16 {
        self.orders(migratetype, least)
    }
}

/// Counts of the free memory of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeCounts {
    /// Free pages of all types.
    pub pages: u64,
    /// Free pages in `HighAtomic` pageblocks.
    pub high_atomic: u64,
    /// Free pages in `Cma` pageblocks.
    pub cma: u64,
    /// Orders of which there is a free block, for each type: bit `o` for order `o`.
    pub orders: [u16; Migratetype::COUNT],
}

impl FreeCounts {
    /// Returns true if there is a free block of `order` or more of this type.
    #[must_use]
    pub fn has(&self, migratetype: Migratetype, order: Order) -> bool {
        self.orders(migratetype, order) != 0
    }
}

impl FreeMemory for FreeCounts {
    fn total(&self) -> u64 {
        self.pages
    }

    fn pages(&self, migratetype: Migratetype) -> u64 {
        match migratetype {
            Migratetype::HighAtomic => self.high_atomic,
            Migratetype::Cma => self.cma,
            _ => self.pages.saturating_sub(self.high_atomic).saturating_sub(self.cma),
        }
    }

    fn orders(&self, migratetype: Migratetype, least: Order) -> u16 {
        self.orders[migratetype.index()] & (u16::MAX << least.get())
    }
}

/// A zone as a report shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneState {
    pub node: NodeId,
    pub kind: ZoneKind,
    /// Watermarks, boost not included.
    pub marks: Watermarks,
    /// Pages by which the boost raises the watermarks.
    pub boost: u64,
    /// Pages that the zone keeps from requests, by the highest zone that they can use (`lowmem_reserve`).
    pub reserve: [u64; ZoneKind::COUNT],
    pub free: FreeCounts,
}

impl ZoneState {
    /// Returns the reason why the zone does not serve the request with all the rights that the request has: the first
    /// reason that holds; [`Refusal::Limit`] if nothing is against it. O(1).
    ///
    /// ```
    /// use nofrag::page::{FreeCounts, Migratetype, NodeId, PageRequest, Refusal, Watermarks, ZoneKind, ZoneState};
    /// use nofrag::units::Order;
    ///
    /// // A thousand single movable pages.
    /// let mut free = FreeCounts { pages: 1000, ..FreeCounts::default() };
    /// free.orders[Migratetype::Movable.index()] = 1;
    /// let marks = Watermarks { min: 100, low: 125, high: 150, promo: 175 };
    /// let (node, kind) = (NodeId(0), ZoneKind::Normal);
    /// let zone = ZoneState { node, kind, marks, boost: 0, reserve: [0; ZoneKind::COUNT], free };
    ///
    /// let largest = Some(Order::ZERO);
    /// assert_eq!(zone.refusal(&PageRequest::user(Order::PAGEBLOCK)), Refusal::Order { largest });
    /// assert_eq!(zone.largest(&PageRequest::user(Order::PAGEBLOCK)), Some(Order::ZERO));
    /// ```
    #[must_use]
    pub fn refusal(&self, request: &PageRequest) -> Refusal {
        if !self.is_allowed(request) {
            return Refusal::NotAllowed;
        }
        let flags = with_reserves(request, rights(request));
        let min = self.marks.min.saturating_add(self.boost);
        refusal(&self.free, request, flags, min, self.reserve[request.zone.index()])
    }

    /// Returns the largest order that the zone would serve now to a request that is otherwise like this one; `None` if
    /// none.
    #[must_use]
    pub fn largest(&self, request: &PageRequest) -> Option<Order> {
        let serves =
            |&order: &Order| self.refusal(&PageRequest { order, ..*request }) == Refusal::Limit;
        Order::all().rev().find(serves)
    }

    /// Returns true if the zone may serve the request at all: neither too high nor on a forbidden node.
    #[must_use]
    pub fn is_allowed(&self, request: &PageRequest) -> bool {
        self.kind <= request.zone && request.nodes.has(self.node)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::page::allocator::PageAllocator;
    use crate::page::policy::FragmentationPolicy;
    use crate::page::request::RequestFlags;
    use crate::page::testing::{self, cpu};
    use crate::units::{Nanos, Pfn};

    /// Returns a zone's counts, as a report would have them.
    fn seen(pages: &PageAllocator) -> ZoneState {
        let zone = &pages.zones[0];
        let orders = core::array::from_fn(|index| {
            let migratetype =
                Migratetype::from_index(index).expect("the array has a place per type");
            zone.lists.orders(migratetype, Order::ZERO)
        });
        let free = FreeCounts {
            pages: zone.lists.total(),
            high_atomic: zone.lists.pages(Migratetype::HighAtomic),
            cma: zone.lists.pages(Migratetype::Cma),
            orders,
        };
        let (node, kind, marks) = (zone.node, zone.kind, zone.marks);
        ZoneState { node, kind, marks, boost: zone.boost, reserve: zone.reserve, free }
    }

    /// Frees 256 single pages one by one, and each time a zone and a report of it refuse requests of all orders, under
    /// three sets of flags, for the same reasons.
    #[test]
    fn a_report_is_refused_for_the_reason_of_the_zone() {
        let mut pages = testing::full_zone(4, FragmentationPolicy::LINUX_7_2);
        pages.zones[0].marks = Watermarks { min: 8, low: 10, high: 12, promo: 14 };
        let mut reasons = Vec::new();
        for freed in 0..256_u64 {
            let flags = [RequestFlags::RECLAIM, RequestFlags::HIGH, RequestFlags::MEMALLOC];
            for (order, flags) in Order::all().flat_map(|order| flags.map(|flags| (order, flags))) {
                let request = PageRequest::user(order).flags(flags);
                let said = pages.zones[0].refused(&request);
                assert_eq!(seen(&pages).refusal(&request), said, "{freed} {order}");
                if !reasons.contains(&core::mem::discriminant(&said)) {
                    reasons.push(core::mem::discriminant(&said));
                }
            }
            pages.free(cpu(), Pfn(freed * 2)).expect("it is in use");
            pages.drain_all();
        }
        assert!(reasons.len() >= 3, "watermark, order and none of them are met");
        let served =
            seen(&pages).largest(&PageRequest::user(Order::ZERO)).expect("there is a block");
        let request = PageRequest::user(served);
        assert!(pages.alloc(Nanos(0), cpu(), request).is_ok());
    }

    #[test]
    fn zones_that_are_too_high_are_not_allowed() {
        let pages = testing::zone(2, FragmentationPolicy::LINUX_7_2);
        let request = PageRequest { zone: ZoneKind::Dma, ..PageRequest::user(Order::ZERO) };
        assert_eq!(seen(&pages).refusal(&request), Refusal::NotAllowed);
    }
}
