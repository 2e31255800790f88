//! What Linux would trace (trace groups `vmalloc`, `kmem`, `compaction`, `vmscan`): engines tell an [`EventSink`] what
//! they did.
//!
//! The default sink `()` ignores everything and costs nothing.

use crate::page::PageEvent;
use crate::ranges::Span;
use crate::units::{PageCount, Vpn};

/// One thing that an engine did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// `alloc_vmap_area`: an area was allocated.
    AreaAllocated {
        /// First page.
        start: Vpn,
        /// Size, guard page included.
        pages: PageCount,
        /// Alignment in pages.
        align: u64,
    },
    /// `alloc_vmap_area` with `failed` set: no place was found.
    AreaRefused {
        /// Size, guard page included.
        pages: PageCount,
        /// Alignment in pages.
        align: u64,
    },
    /// `free_vmap_area_noflush`: an area was freed and awaits its flush.
    AreaFreed {
        /// First page.
        start: Vpn,
        /// Pages that await a flush, this area's included.
        lazy: PageCount,
        /// The limit above which they are drained.
        limit: PageCount,
    },
    /// `purge_vmap_area_lazy`: lazily freed areas were flushed.
    Purged {
        /// The hull of what was flushed.
        hull: Span,
        /// How many areas.
        areas: u64,
    },
    /// The page allocator did something.
    Page(PageEvent),
    /// A function begins that a profiler of functions would time.
    Entered(Function),
    /// It ends, with or without success. Nothing else is entered in between.
    Left(Function),
}

/// What a profiler of functions would time, by Linux's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Function {
    /// `alloc_vmap_area` on behalf of a new block.
    AllocBlockArea,
    /// `free_vmap_block`: a block's area is freed, and what that drains is drained.
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
