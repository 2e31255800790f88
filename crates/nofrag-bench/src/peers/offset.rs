//! offset-allocator: two-level bins of sizes, O(1), no address order, no alignment.

use super::{Peer, Space};
use offset_allocator::{Allocation, Allocator};

/// `offset_allocator::Allocator` with a table of six entries per live allocation.
pub struct Offset {
    allocator: Allocator,
}

impl Offset {
    /// Makes an allocator of all of `space`.
    #[must_use]
    pub fn new(space: Space) -> Offset {
        let entries = space.live.saturating_mul(6).max(64);
        Offset { allocator: Allocator::with_max_allocs(space.in_32_bits(), entries) }
    }
}

impl Peer for Offset {
    type Handle = Allocation;

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<Allocation> {
        self.allocator.allocate(size)
    }

    #[inline]
    fn free(&mut self, allocation: Allocation) -> bool {
        self.allocator.free(allocation);
        true
    }

    fn start(&self, allocation: &Allocation) -> u64 {
        u64::from(allocation.offset)
    }
}
