//! nofrag's `RangeAllocator`, in any of its designs and fits, and its `RangeHeap`.

use super::{Aligned, Peer, Space};
use nofrag::ranges::{Config, Fit, HeapRange, Index, RangeAllocator, RangeHeap, Request, Span};

/// One design with one fit.
#[derive(Debug)]
pub struct Nofrag {
    ranges: RangeAllocator,
    fit: Fit,
    shift: u32,
}

impl Nofrag {
    /// Makes an allocator of the given design and fit; the size index is kept only for the fits that need it.
    #[must_use]
    pub fn new(space: Space, index: Index, fit: Fit) -> Nofrag {
        let size_index = matches!(fit, Fit::Best | Fit::Dynamic);
        let mut ranges = RangeAllocator::new(Config { index, size_index, ..Config::default() });
        let all = all(space);
        ranges.add_span(all).expect("an empty allocator accepts its first span");
        Nofrag { ranges, fit, shift: space.shift }
    }
}

impl Peer for Nofrag {
    type Handle = Span;

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<Span> {
        self.ranges.alloc(&Request::new(u64::from(size) << self.shift).fit(self.fit)).ok()
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<Span> {
        let request = Request::new(u64::from(size)).align(u64::from(align)).fit(self.fit);
        self.ranges.alloc(&request).ok().into()
    }

    #[inline]
    fn free(&mut self, span: Span) -> bool {
        self.ranges.free(span).is_ok()
    }

    fn start(&self, span: &Span) -> u64 {
        span.start()
    }

    fn shrink(&mut self) -> bool {
        self.ranges.shrink().is_ok()
    }

    fn own_metadata_bytes(&self) -> Option<usize> {
        Some(self.ranges.metadata_bytes())
    }
}

/// Ranges that are freed by handle.
#[derive(Debug)]
pub struct Heap {
    ranges: RangeHeap,
    shift: u32,
}

/// Returns all numbers of the space.
fn all(space: Space) -> Span {
    Span::new(0, u64::from(space.pages) << space.shift).expect("a space has at least one page")
}

impl Heap {
    /// Makes a heap of all of `space`.
    #[must_use]
    pub fn new(space: Space) -> Heap {
        let all = all(space);
        let ranges = RangeHeap::over(all).expect("there is memory");
        Heap { ranges, shift: space.shift }
    }
}

impl Peer for Heap {
    type Handle = HeapRange;

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<HeapRange> {
        self.ranges.alloc(u64::from(size) << self.shift).ok()
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<HeapRange> {
        self.ranges.alloc_aligned(u64::from(size), u64::from(align)).ok().into()
    }

    #[inline]
    fn free(&mut self, range: HeapRange) -> bool {
        self.ranges.free(range).is_ok()
    }

    fn start(&self, range: &HeapRange) -> u64 {
        range.start()
    }

    fn own_metadata_bytes(&self) -> Option<usize> {
        Some(self.ranges.metadata_bytes())
    }
}
