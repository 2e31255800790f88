//! range-alloc: best fit over a sorted list of free ranges.

use super::{Aligned, Peer, Space};
use range_alloc::RangeAllocator;

/// `range_alloc::RangeAllocator<u32>`, over the space of pages.
#[derive(Debug)]
pub struct RangeAlloc {
    allocator: RangeAllocator<u32>,
}

impl RangeAlloc {
    /// Makes an allocator of all of `space`.
    #[must_use]
    pub fn new(space: Space) -> RangeAlloc {
        RangeAlloc { allocator: RangeAllocator::new(0..space.in_32_bits()) }
    }
}

impl Peer for RangeAlloc {
    type Handle = (u32, u32);

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<(u32, u32)> {
        let range = self.allocator.allocate_range(size).ok()?;
        Some((range.start, range.end))
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<(u32, u32)> {
        let found = self.allocator.allocate_range_aligned(size, align).ok();
        found.map(|range| (range.start, range.end)).into()
    }

    #[inline]
    fn free(&mut self, (start, end): (u32, u32)) -> bool {
        self.allocator.free_range(start..end);
        true
    }

    fn start(&self, handle: &(u32, u32)) -> u64 {
        u64::from(handle.0)
    }
}
