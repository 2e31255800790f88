//! Events of the engines, as Linux traces them (trace groups `vmalloc`, `kmem`, `compaction`, `vmscan`). Engines report
//! them to an [`EventSink`].
//!
//! The default sink `()` ignores everything and costs nothing.

use crate::page::PageEvent;
use crate::ranges::Span;
use crate::units::{PageCount, Vpn};

/// An action of the allocator of virtual areas or of pages, as Linux would trace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// `alloc_vmap_area`: an area was allocated.
    AreaAllocated {
        start: Vpn,
        /// Number of pages, guard page included.
        pages: PageCount,
        /// Alignment in pages, a power of two.
        align: u64,
    },
    /// `alloc_vmap_area` with `failed` set: no place was found.
    AreaRefused {
        /// Number of pages, guard page included.
        pages: PageCount,
        /// Alignment in pages, a power of two.
        align: u64,
    },
    /// `free_vmap_area_noflush`: an area was freed and awaits its flush.
    AreaFreed {
        start: Vpn,
        /// Pages that await a flush, this area's included.
        lazy: PageCount,
        /// The lazy limit: a purge begins when more pages wait.
        limit: PageCount,
    },
    /// `purge_vmap_area_lazy`: lazily freed areas were flushed.
    Purged {
        /// The smallest range that covers the flushed areas.
        hull: Span,
        areas: u64,
    },
    /// An event of the page allocator.
    Page(PageEvent),
    Entered(Function),
    /// The function ends, with or without success; between its [`Entered`](Event::Entered) and this event no other
    /// function is entered.
    Left(Function),
}

/// Functions that a profiler of functions would time, by Linux's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Function {
    /// `alloc_vmap_area` on behalf of a new block.
    AllocBlockArea,
    /// `free_vmap_block`: a block's area is freed; a purge that this causes ends before the function does.
    FreeBlock,
}

/// Receives events. Called without locks held where that is possible, from any thread.
pub trait EventSink {
    /// Takes note of `event`. Must not call back into the engine.
    fn record(&self, event: Event);
}

impl EventSink for () {
    #[inline]
    fn record(&self, _event: Event) {}
}

impl<E: EventSink + ?Sized> EventSink for &E {
    #[inline]
    fn record(&self, event: Event) {
        (**self).record(event);
    }
}
