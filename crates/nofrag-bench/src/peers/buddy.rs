//! buddy_system_allocator: sizes are rounded up to powers of two.

use super::{Aligned, Peer, Space};
use buddy_system_allocator::FrameAllocator;
use std::alloc::Layout;

/// `buddy_system_allocator::FrameAllocator` with orders up to 2^24 frames, the largest space used here.
pub struct Buddy {
    frames: FrameAllocator<25>,
}

/// An allocation and the way it has to be given back.
#[derive(Clone, Copy, Debug)]
pub struct BuddyHandle {
    start: usize,
    size: usize,
    layout: Option<Layout>,
}

impl Buddy {
    /// Makes an allocator of all of `space`.
    #[must_use]
    pub fn new(space: Space) -> Buddy {
        let mut frames = FrameAllocator::new();
        frames.add_frame(0, space.in_32_bits() as usize);
        Buddy { frames }
    }
}

impl Peer for Buddy {
    type Handle = BuddyHandle;

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<BuddyHandle> {
        let size = size as usize;
        self.frames.alloc(size).map(|start| BuddyHandle { start, size, layout: None })
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<BuddyHandle> {
        let size = size as usize;
        let Ok(layout) = Layout::from_size_align(size, align as usize) else {
            return Aligned::NoFit;
        };
        let found = self.frames.alloc_aligned(layout);
        found.map(|start| BuddyHandle { start, size, layout: Some(layout) }).into()
    }

    #[inline]
    fn free(&mut self, BuddyHandle { start, size, layout }: BuddyHandle) -> bool {
        match layout {
            None => self.frames.dealloc(start, size),
            Some(layout) => self.frames.dealloc_aligned(start, layout),
        }
        true
    }

    fn start(&self, handle: &BuddyHandle) -> u64 {
        handle.start as u64
    }
}
