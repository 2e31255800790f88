//! What a traced request asked for, from the names of its flags.

use nofrag::page::{Migratetype, PageRequest, RequestFlags, ZoneKind};
use nofrag::units::Order;
use nofrag_host::trace::FlagTable;

/// What the pages of a request can be asked for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// They stay until they are freed.
    Fixed,
    /// They can be moved, not taken back: memory of processes, which needs swap space for that.
    Movable,
    /// They can be moved and taken back: page cache.
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
}

impl Request {
    /// The request that a policy gets.
    pub(super) fn page_request(&self) -> PageRequest {
        let &Request { order, migratetype, zone, flags, .. } = self;
        PageRequest { zone, ..PageRequest::new(order, migratetype).flags(flags) }
    }
}

/// The bits of one kernel's `gfp_t` that decide where pages come from.
#[derive(Clone, Debug)]
pub(super) struct GfpBits {
    flags: [(u64, RequestFlags); 7],
    dma: u64,
    dma32: u64,
    high: u64,
    movable: u64,
    zero: u64,
}

impl GfpBits {
    /// By their names. A kernel without a name has no such bit.
    pub(super) fn new(table: &FlagTable) -> GfpBits {
        let bits = |name: &str| table.bits(name).unwrap_or(0);
        GfpBits {
            flags: [
                (bits("__GFP_DIRECT_RECLAIM"), RequestFlags::DIRECT_RECLAIM),
                (bits("__GFP_KSWAPD_RECLAIM"), RequestFlags::KSWAPD_RECLAIM),
                (bits("__GFP_HIGH"), RequestFlags::HIGH),
                (bits("__GFP_NORETRY"), RequestFlags::NO_RETRY),
                (bits("__GFP_RETRY_MAYFAIL"), RequestFlags::RETRY_MAYFAIL),
                (bits("__GFP_THISNODE"), RequestFlags::THIS_NODE),
                (bits("__GFP_MEMALLOC"), RequestFlags::MEMALLOC),
            ],
            dma: bits("__GFP_DMA"),
            dma32: bits("__GFP_DMA32"),
            high: bits("__GFP_HIGHMEM"),
            movable: bits("__GFP_MOVABLE"),
            zero: bits("__GFP_ZERO"),
        }
    }

    /// The request with these flags; `migratetype` is the kernel's number. `frees` says of a caller that it is freeing
    /// memory itself (`PF_MEMALLOC`), which no flag tells.
    pub(super) fn request(
        &self,
        order: Order,
        gfp: u64,
        migratetype: i32,
        frees: Frees,
    ) -> Request {
        let has = |bits: u64| bits != 0 && gfp & bits == bits;
        let named = usize::try_from(migratetype).ok().and_then(Migratetype::from_index);
        let migratetype = named.filter(|kind| kind.is_mobility()).unwrap_or(Migratetype::Unmovable);
        let memalloc = match frees {
            Frees::Memory => RequestFlags::MEMALLOC,
            Frees::Nothing => RequestFlags::NONE,
        };
        let set = self.flags.iter().filter(|(bits, _)| has(*bits));
        let flags = set.fold(memalloc, |sum, (_, flag)| sum.with(*flag));
        let zone = if has(self.dma) {
            ZoneKind::Dma
        } else if has(self.dma32) {
            ZoneKind::Dma32
        } else if has(self.high) && has(self.movable) {
            ZoneKind::Movable
        } else if has(self.high) {
            ZoneKind::HighMem
        } else {
            ZoneKind::Normal
        };
        let used = match migratetype {
            // Memory that a process sees for the first time is cleared; the page cache is filled with what it caches.
            Migratetype::Movable if has(self.zero) || order >= Order::PAGEBLOCK => Use::Movable,
            Migratetype::Movable => Use::Cache,
            _ => Use::Fixed,
        };
        Request { order, migratetype, zone, flags, used }
    }
}

/// What a caller is doing when it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frees {
    /// It frees memory itself, and gets some of the reserves for that.
    Memory,
    /// Nothing of the kind.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, migratetype: i32, wanted: (ZoneKind, RequestFlags, Use)) {
        let table = FlagTable::default();
        let gfp = table.value(text).expect("the names are known");
        let request = GfpBits::new(&table).request(Order::ZERO, gfp, migratetype, Frees::Nothing);
        assert_eq!((request.zone, request.flags, request.used), wanted, "{text}");
    }

    #[test]
    fn flags_say_where_pages_may_come_from() {
        let (normal, movable) = (ZoneKind::Normal, ZoneKind::Movable);
        let reclaim = RequestFlags::RECLAIM;
        let atomic = RequestFlags::HIGH.with(RequestFlags::KSWAPD_RECLAIM);
        check("GFP_KERNEL", 0, (normal, reclaim, Use::Fixed));
        check("GFP_ATOMIC", 0, (normal, atomic, Use::Fixed));
        check("GFP_HIGHUSER_MOVABLE", 1, (movable, reclaim, Use::Cache));
        check("GFP_HIGHUSER_MOVABLE|__GFP_ZERO", 1, (movable, reclaim, Use::Movable));
        check("GFP_KERNEL|GFP_DMA32", 0, (ZoneKind::Dma32, reclaim, Use::Fixed));
        check("GFP_KERNEL|GFP_DMA", 0, (ZoneKind::Dma, reclaim, Use::Fixed));
        check("none", 2, (normal, RequestFlags::NONE, Use::Fixed));
    }

    #[test]
    fn t14_types_are_those_of_the_kernels_numbering() {
        let bits = GfpBits::new(&FlagTable::default());
        let of = |number| bits.request(Order::ZERO, 0, number, Frees::Nothing).migratetype;
        let types = [0, 1, 2].map(of);
        assert_eq!(types, Migratetype::MOBILITY);
        assert_eq!(types.map(Migratetype::name), ["Unmovable", "Movable", "Reclaimable"]);
        assert_eq!([3, 9, -1].map(of), [Migratetype::Unmovable; 3], "no request names a reserve");
    }

    #[test]
    fn who_frees_memory_gets_reserves() {
        let bits = GfpBits::new(&FlagTable::default());
        let request = bits.request(Order::ZERO, 0, 0, Frees::Memory);
        assert!(request.flags.has(RequestFlags::MEMALLOC));
    }
}
