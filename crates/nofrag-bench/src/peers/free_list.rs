//! free-list: a sorted list of free page ranges.

use super::{Aligned, Peer, Space};
use free_list::{FreeList, PAGE_SIZE, PageLayout, PageRange};

/// `free_list::FreeList` with the inline capacity that its documentation shows.
pub struct FreeListPeer {
    list: FreeList<16>,
}

impl FreeListPeer {
    /// Makes an allocator of all of `space`.
    #[must_use]
    pub fn new(space: Space) -> FreeListPeer {
        let mut peer = FreeListPeer { list: FreeList::new() };
        let bytes = space.in_32_bits() as usize * PAGE_SIZE;
        let all = PageRange::new(0, bytes).expect("a space of whole pages is a page range");
        assert!(peer.give(all), "an empty list accepts its first range");
        peer
    }

    #[allow(unsafe_code)] // the crate's only way to hand a range back is an `unsafe fn`
    fn give(&mut self, range: PageRange) -> bool {
        // SAFETY: the contract is that the range may be used again. Here ranges are numbers that nobody dereferences,
        // and each one given back was handed out by `allocate` before (or is the initial space).
        unsafe { self.list.deallocate(range) }.is_ok()
    }

    fn take(&mut self, size: u32, align: u32) -> Option<PageRange> {
        let (size, align) = (size as usize * PAGE_SIZE, align as usize * PAGE_SIZE);
        self.list.allocate(PageLayout::from_size_align(size, align).ok()?).ok()
    }
}

impl Peer for FreeListPeer {
    type Handle = PageRange;

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<PageRange> {
        self.take(size, 1)
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<PageRange> {
        self.take(size, align).into()
    }

    #[inline]
    fn free(&mut self, range: PageRange) -> bool {
        self.give(range)
    }

    fn start(&self, range: &PageRange) -> u64 {
        (range.start() / PAGE_SIZE) as u64
    }
}
