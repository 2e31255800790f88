//! vm-allocator (rust-vmm): an interval tree of free and allocated slots, first match.

use super::{Aligned, Peer, Space};
use vm_allocator::{AddressAllocator, AllocPolicy, RangeInclusive};

/// First address of the space. From zero, the crate fails (`Underflow`) to merge a freed range with a free page 0.
const BASE: u64 = 1 << 32;

/// `vm_allocator::AddressAllocator` with the policy `FirstMatch`.
#[derive(Debug)]
pub struct VmAllocator {
    allocator: AddressAllocator,
    shift: u32,
}

impl VmAllocator {
    /// Makes an allocator of all of `space`.
    #[must_use]
    pub fn new(space: Space) -> VmAllocator {
        let allocator = AddressAllocator::new(BASE, u64::from(space.pages) << space.shift)
            .expect("a space of 2^24 pages from 2^32 does not overflow");
        VmAllocator { allocator, shift: space.shift }
    }
}

impl Peer for VmAllocator {
    type Handle = RangeInclusive;

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<RangeInclusive> {
        self.allocator.allocate(u64::from(size) << self.shift, 1, AllocPolicy::FirstMatch).ok()
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<RangeInclusive> {
        let (size, align) = (u64::from(size), u64::from(align));
        self.allocator.allocate(size, align, AllocPolicy::FirstMatch).ok().into()
    }

    #[inline]
    fn free(&mut self, range: RangeInclusive) -> bool {
        self.allocator.free(&range).is_ok()
    }

    fn start(&self, range: &RangeInclusive) -> u64 {
        range.start() - BASE
    }
}
