//! Traced requests, from the names of their flags.

use nofrag::page::{Migratetype, NodeId, PageRequest, RequestFlags, ZoneKind};
use nofrag::units::Order;
use nofrag_host::gfp::{GfpBits, GfpFlag};

/// The moves and reclaim that the pages of a request allow later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The pages stay until they are freed.
    Fixed,
    /// The pages can be moved, not taken back: memory of processes, which needs swap space for that.
    Movable,
    /// The pages can be moved and taken back: page cache.
    Cache,
}

/// A traced request as policies take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) order: Order,
    pub(super) migratetype: Migratetype,
    pub(super) zone: ZoneKind,
    pub(super) flags: RequestFlags,
    pub(super) used: Use,
    /// The node to begin with, where there are several: that of the CPU, or of the frame that it got if no other would
    /// do.
    pub(super) node: Option<NodeId>,
}

impl Request {
    /// Reads a request with the flags `gfp`; `migratetype` is the kernel's number. `frees` tells if the caller is
    /// freeing memory itself (`PF_MEMALLOC`), which no flag tells.
    pub(super) fn new(
        bits: &GfpBits,
        order: Order,
        gfp: u64,
        migratetype: i32,
        frees: Frees,
    ) -> Request {
        let asked = bits.flags(gfp);
        let named = usize::try_from(migratetype).ok().and_then(Migratetype::from_index);
        let migratetype = named.filter(|kind| kind.is_mobility()).unwrap_or(Migratetype::Unmovable);
        let memalloc = match frees {
            Frees::Memory => RequestFlags::MEMALLOC,
            Frees::Nothing => RequestFlags::NONE,
        };
        let used = match migratetype {
            // Memory that a process sees for the first time is cleared; the page cache is filled with the file's
            // content.
            Migratetype::Movable if asked.has(GfpFlag::Zero) || order >= Order::PAGEBLOCK => {
                Use::Movable
            }
            Migratetype::Movable => Use::Cache,
            _ => Use::Fixed,
        };
        let flags = asked.request_flags().with(memalloc);
        Request { order, migratetype, zone: asked.zone(), flags, used, node: None }
    }

    /// Returns the request that a policy gets.
    pub(super) fn page_request(&self) -> PageRequest {
        let &Request { order, migratetype, zone, flags, node, .. } = self;
        PageRequest { zone, node, ..PageRequest::new(order, migratetype).flags(flags) }
    }
}

/// The occupation of a caller when it requests memory: freeing memory itself, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frees {
    /// The caller frees memory itself, and gets some of the reserves for that.
    Memory,
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use nofrag_host::trace::FlagTable;

    fn check(text: &str, migratetype: i32, wanted: (ZoneKind, RequestFlags, Use)) {
        let table = FlagTable::default();
        let gfp = table.value(text).expect("the names are known");
        let bits = GfpBits::new(&table);
        let request = Request::new(&bits, Order::ZERO, gfp, migratetype, Frees::Nothing);
        assert_eq!((request.zone, request.flags, request.used), wanted, "{text}");
    }

    #[test]
    fn flags_say_where_pages_may_come_from() {
        let (normal, movable) = (ZoneKind::Normal, ZoneKind::Movable);
        let reclaim = RequestFlags::RECLAIM;
        let borrows = reclaim.with(RequestFlags::CMA);
        let atomic = RequestFlags::HIGH.with(RequestFlags::KSWAPD_RECLAIM);
        check("GFP_KERNEL", 0, (normal, reclaim, Use::Fixed));
        check("GFP_ATOMIC", 0, (normal, atomic, Use::Fixed));
        check("GFP_HIGHUSER_MOVABLE", 1, (movable, borrows, Use::Cache));
        check("GFP_HIGHUSER_MOVABLE|__GFP_ZERO", 1, (movable, borrows, Use::Movable));
        check("GFP_KERNEL|GFP_DMA32", 0, (ZoneKind::Dma32, reclaim, Use::Fixed));
        check("GFP_KERNEL|GFP_DMA", 0, (ZoneKind::Dma, reclaim, Use::Fixed));
        check("none", 2, (normal, RequestFlags::NONE, Use::Fixed));
    }

    #[test]
    fn types_are_those_of_the_kernels_numbering() {
        let bits = GfpBits::new(&FlagTable::default());
        let of = |number| Request::new(&bits, Order::ZERO, 0, number, Frees::Nothing).migratetype;
        let types = [0, 1, 2].map(of);
        assert_eq!(types, Migratetype::MOBILITY);
        assert_eq!(types.map(Migratetype::name), ["Unmovable", "Movable", "Reclaimable"]);
        assert_eq!([3, 9, -1].map(of), [Migratetype::Unmovable; 3], "no request names a reserve");
    }

    #[test]
    fn who_frees_memory_gets_reserves() {
        let bits = GfpBits::new(&FlagTable::default());
        let request = Request::new(&bits, Order::ZERO, 0, 0, Frees::Memory);
        assert!(request.flags.has(RequestFlags::MEMALLOC));
    }
}
