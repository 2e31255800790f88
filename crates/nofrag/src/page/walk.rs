//! One pass over a request's zonelist (`get_page_from_freelist`), under flags that say what it may do.

use super::allocator::PageAllocator;
use super::request::PageRequest;
use super::zone::ZoneId;
use crate::cpu::CpuId;
use crate::event::EventSink;
use crate::units::Pfn;

/// What a pass may do: Linux's `ALLOC_*` flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AllocFlags {
    /// The watermark that must hold; without one none does (`ALLOC_NO_WATERMARKS`).
    pub(super) mark: Option<Mark>,
    bits: u16,
}

/// A watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// `ALLOC_WMARK_MIN`
    Min,
    /// `ALLOC_WMARK_LOW`
    Low,
    /// `ALLOC_WMARK_HIGH`
    High,
}

impl AllocFlags {
    /// Free blocks below a pageblock of another type are left alone.
    pub(super) const NO_FRAGMENT: u16 = 1;
    /// kswapd may be woken.
    pub(super) const KSWAPD: u16 = 1 << 1;
    /// Patch 5: small free blocks of another type are spared, and the pass says so.
    pub(super) const FRAGMENT_STALL: u16 = 1 << 2;
    /// `ALLOC_MIN_RESERVE`: half of the mark.
    pub(super) const MIN_RESERVE: u16 = 1 << 3;
    /// `ALLOC_NON_BLOCK`: a quarter less.
    pub(super) const NON_BLOCK: u16 = 1 << 4;
    /// `ALLOC_OOM`: half of the mark.
    pub(super) const OOM: u16 = 1 << 5;
    /// May take from HIGHATOMIC blocks, and set them aside.
    pub(super) const HIGH_ATOMIC: u16 = 1 << 6;
    /// May take from CMA blocks.
    pub(super) const CMA: u16 = 1 << 7;

    pub(super) const fn at(mark: Mark) -> AllocFlags {
        AllocFlags { mark: Some(mark), bits: 0 }
    }

    pub(super) const fn with(self, bits: u16) -> AllocFlags {
        AllocFlags { bits: self.bits | bits, ..self }
    }

    pub(super) const fn without(self, bits: u16) -> AllocFlags {
        AllocFlags { bits: self.bits & !bits, ..self }
    }

    pub(super) const fn has(self, bits: u16) -> bool {
        self.bits & bits == bits
    }
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// With a block.
    Page(Pfn),
    /// No zone had it.
    Exhausted,
    /// This zone had it, but a small block of another type was spared (patch 5).
    Spared(ZoneId),
    /// No zone may serve the request.
    NoZone,
}

impl<E: EventSink> PageAllocator<E> {
    /// Goes over the zonelist once, or twice when `NO_FRAGMENT` has to be given up.
    pub(super) fn walk(&mut self, cpu: CpuId, request: &PageRequest, flags: AllocFlags) -> Walk {
        let node = request.node.unwrap_or_else(|| self.cpu_nodes[cpu.rank()]);
        let _ = flags.without(AllocFlags::CMA).has(AllocFlags::KSWAPD);
        for index in 0..self.nodes[node.index()].zonelist.of(request).len() {
            let id = self.nodes[node.index()].zonelist.of(request)[index];
            let zone = &mut self.zones[id.index()];
            if !zone.is_allowed(request) {
                continue;
            }
            if !zone.admits(request.order, request.zone, flags, self.policy.fixes) {
                continue;
            }
            let found = zone.take_smallest(&mut self.frames, request.order, request.migratetype);
            if let Some(frame) = found {
                return Walk::Page(self.frames.pfn(frame));
            }
        }
        Walk::Exhausted
    }
}
