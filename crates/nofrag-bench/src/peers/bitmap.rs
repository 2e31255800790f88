//! bitmap-allocator: one bit per page in a 16-way tree; its capacity is part of the type.

use super::{Aligned, Peer, Space};
use bitmap_allocator::{BitAlloc, BitAlloc1M, BitAlloc16M, BitAlloc64K};

/// The smallest of the crate's bitmaps that holds the space.
pub enum Bitmap {
    /// Up to 2^16 pages.
    Small(Box<BitAlloc64K>),
    /// Up to 2^20 pages.
    Medium(Box<BitAlloc1M>),
    /// Up to 2^24 pages.
    Large(Box<BitAlloc16M>),
}

/// Makes a bitmap of which the lowest `pages` bits are free.
fn filled<B: BitAlloc>(pages: u32) -> Box<B> {
    let mut bits = Box::new(B::default());
    bits.insert(0..pages as usize);
    bits
}

/// Calls the same method on the bitmap of this size.
macro_rules! on_bits {
    ($self:expr, $bits:ident => $call:expr) => {
        match $self {
            Bitmap::Small($bits) => $call,
            Bitmap::Medium($bits) => $call,
            Bitmap::Large($bits) => $call,
        }
    };
}

impl Bitmap {
    /// Makes an allocator of all of `space`.
    ///
    /// # Panics
    /// If the space is larger than 2^24 pages.
    #[must_use]
    pub fn new(space: Space) -> Bitmap {
        match space.in_32_bits() as usize {
            pages if pages <= BitAlloc64K::CAP => Bitmap::Small(filled(space.in_32_bits())),
            pages if pages <= BitAlloc1M::CAP => Bitmap::Medium(filled(space.in_32_bits())),
            pages if pages <= BitAlloc16M::CAP => Bitmap::Large(filled(space.in_32_bits())),
            pages => panic!("no bitmap of {pages} pages is set up here"),
        }
    }
}

impl Peer for Bitmap {
    type Handle = (u32, u32);

    #[inline]
    fn alloc(&mut self, size: u32) -> Option<(u32, u32)> {
        let found = on_bits!(self, bits => bits.alloc_contiguous(None, size as usize, 0));
        found.map(|start| (start as u32, size))
    }

    fn alloc_aligned(&mut self, size: u32, align: u32) -> Aligned<(u32, u32)> {
        let exponent = align.ilog2() as usize;
        let found = on_bits!(self, bits => bits.alloc_contiguous(None, size as usize, exponent));
        found.map(|start| (start as u32, size)).into()
    }

    #[inline]
    fn free(&mut self, (start, size): (u32, u32)) -> bool {
        on_bits!(self, bits => bits.dealloc_contiguous(start as usize, size as usize))
    }

    fn start(&self, handle: &(u32, u32)) -> u64 {
        u64::from(handle.0)
    }
}
