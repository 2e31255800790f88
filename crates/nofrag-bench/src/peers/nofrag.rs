//! nofrag's `RangeAllocator`, in any of its designs and fits.

use super::{Aligned, Peer, Space};
use nofrag::ranges::{Config, Fit, Index, RangeAllocator, Request, Span};

/// One design with one fit.
#[derive(Debug)]
pub struct Nofrag {
    ranges: RangeAllocator,
    fit: Fit,
}

impl Nofrag {
    /// Makes an allocator of the given design and fit; the size index is kept only for the fits that need it.
    #[must_use]
    pub fn new(space: Space, index: Index, fit: Fit) -> Nofrag {
        let size_index = matches!(fit, Fit::Best | Fit::Dynamic);
        let mut ranges = RangeAllocator::new(Config { index, size_index, ..Config::default() });
        let all = Span::new(0, u64::from(space.pages)).expect("a space has at least one page");
        ranges.add_span(all).expect("an empty allocator accepts its first span");
        Nofrag { ranges, fit }
    }
}

impl Peer for Nofrag {
    type Handle = Span;

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<Span> {
        self.ranges.alloc(&Request::new(u64::from(size)).fit(self.fit)).ok()
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

    fn own_metadata_bytes(&self) -> Option<usize> {
        Some(self.ranges.metadata_bytes())
    }
}
