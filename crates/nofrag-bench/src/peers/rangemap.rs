//! rangemap: a set of busy ranges that coalesces; the allocator is first fit over its gaps, as its users write it.

use super::{Aligned, Peer, Space};
use rangemap::RangeSet;

/// First fit over `rangemap::RangeSet::gaps`, page by page.
#[derive(Debug)]
pub struct RangeMapGaps {
    busy: RangeSet<u32>,
    pages: u32,
}

impl RangeMapGaps {
    /// Makes an allocator of all of `space`.
    #[must_use]
    pub fn new(space: Space) -> RangeMapGaps {
        RangeMapGaps { busy: RangeSet::new(), pages: space.in_32_bits() }
    }

    fn take(&mut self, size: u32, align: u32) -> Option<(u32, u32)> {
        let whole = 0..self.pages;
        let start = self.busy.gaps(&whole).find_map(|gap| {
            let start = gap.start.checked_next_multiple_of(align)?;
            (start.checked_add(size)? <= gap.end).then_some(start)
        })?;
        self.busy.insert(start..start + size);
        Some((start, start + size))
    }
}

impl Peer for RangeMapGaps {
    type Handle = (u32, u32);

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<(u32, u32)> {
        self.take(size, 1)
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<(u32, u32)> {
        self.take(size, align).into()
    }

    #[inline]
    fn free(&mut self, (start, end): (u32, u32)) -> bool {
        self.busy.remove(start..end);
        true
    }

    fn start(&self, handle: &(u32, u32)) -> u64 {
        u64::from(handle.0)
    }
}
