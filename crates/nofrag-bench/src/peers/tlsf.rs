//! rlsf: two levels of segregated fits (TLSF), with its records in the memory that it hands out.
//!
//! A page is the crate's smallest block, 32 bytes, of which it takes 16 for itself. So what it holds is no heap of its
//! own: its account is these records, one for each block in use.

use super::{Peer, Space};
use nofrag::mmap::Protection;
use nofrag_backing::reservation::Reservation;
use rlsf::Tlsf as Blocks;
use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

/// Bytes of a page.
const PAGE: usize = 32;

/// Bytes of the record at the beginning of each block.
const RECORD: usize = 16;

/// `rlsf::Tlsf` over a pool of the size of the space.
///
/// 1. The blocks lie in `pool`, which is used by nothing else and unmapped after them.
pub struct Tlsf {
    blocks: Blocks<'static, u32, u32, 28, 32>,
    live: usize,
    pool: Reservation,
}

impl Tlsf {
    /// Makes an allocator of all of `space`.
    ///
    /// # Panics
    /// If there are no addresses for the pool.
    #[must_use]
    pub fn new(space: Space) -> Tlsf {
        // One more for the mark at its end.
        let bytes = (space.in_32_bits() as usize + 1) * PAGE;
        let pool = Reservation::new(bytes, Protection::READ_WRITE).expect("there are addresses");
        let start = ptr::with_exposed_provenance_mut::<MaybeUninit<u8>>(pool.start() as usize);
        let mut blocks = Blocks::new();
        // SAFETY: the bytes are mapped, writable and nobody else's, and stay so as long as `blocks` is used (law 1).
        blocks.insert_free_block(unsafe { std::slice::from_raw_parts_mut(start, bytes) });
        Tlsf { blocks, live: 0, pool }
    }
}

impl Peer for Tlsf {
    type Handle = NonNull<u8>;

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(size as usize * PAGE - RECORD, 1).ok()?;
        let block = self.blocks.allocate(layout)?;
        self.live += 1;
        Some(block)
    }

    #[inline]
    fn free(&mut self, block: NonNull<u8>) -> bool {
        self.live -= 1;
        // SAFETY: callers pass what `alloc` returned, once, and it was asked for with this alignment.
        unsafe { self.blocks.deallocate(block, 1) };
        true
    }

    fn start(&self, block: &NonNull<u8>) -> u64 {
        ((block.addr().get() - RECORD - self.pool.start() as usize) / PAGE) as u64
    }

    fn own_metadata_bytes(&self) -> Option<usize> {
        Some(self.live * RECORD)
    }
}
