//! The contestants behind one interface: nofrag's designs, nine published crates, and two plain standard-library maps.
//!
//! Every adapter does the least that its crate's documentation asks for: no caching, no batching, nothing that would
//! make a peer slower or faster than it is for its own users. Units are pages everywhere; an adapter converts where it
//! must.

mod bitmap;
mod btree;
mod buddy;
mod free_list;
mod nofrag;
mod offset;
mod range_alloc;
mod rangemap;
mod tlsf;
mod vm;
mod vmem;

pub use self::bitmap::Bitmap;
pub use self::btree::{BTreeBestFit, BTreeFirstFit};
pub use self::buddy::Buddy;
pub use self::free_list::FreeListPeer;
pub use self::nofrag::{Heap, Nofrag};
pub use self::offset::Offset;
pub use self::range_alloc::RangeAlloc;
pub use self::rangemap::RangeMapGaps;
pub use self::tlsf::Tlsf;
pub use self::vm::VmAllocator;
pub use self::vmem::Vmem;

/// nofrag's designs, as tables name them.
pub const LOWEST: &str = "nofrag Lowest";
pub const BEST: &str = "nofrag Best";
pub const DYNAMIC: &str = "nofrag Dynamic";
/// nofrag's ranges that are freed by handle.
pub const HEAP: &str = "nofrag RangeHeap";
/// The fastest peer, which the speed targets refer to.
pub const OFFSET: &str = "offset-allocator 0.2.0";
/// First fit as one writes it without a library.
pub const FIRST_FIT: &str = "BTreeMap first fit";
/// Exact best fit, which the packing targets refer to.
pub const BEST_FIT: &str = "BTreeMap best fit";

/// The space that a contestant manages: pages `0..pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub pages: u32,
    /// The most allocations that are live in the long run; for peers with a fixed table.
    pub live: u32,
    /// Numbers of a page, as a base-2 logarithm: 0 but where the space is sparse. A peer whose numbers have no room for
    /// that does not take part.
    pub shift: u32,
}

impl Space {
    /// Returns the number of pages for a peer that counts in 32 bits.
    ///
    /// # Panics
    /// If a page has more than one number.
    #[must_use]
    pub fn in_32_bits(self) -> u32 {
        assert!(self.shift == 0, "counts in 32 bits here");
        self.pages
    }
}

/// Answer to a request with an alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aligned<H> {
    At(H),
    NoFit,
    /// The peer has no aligned requests.
    Unsupported,
}

impl<H> From<Option<H>> for Aligned<H> {
    fn from(found: Option<H>) -> Aligned<H> {
        found.map_or(Aligned::NoFit, Aligned::At)
    }
}

/// A contestant that allocates page ranges.
pub trait Peer {
    /// Token by which the caller frees an allocation.
    type Handle: Copy;

    /// Takes `size` pages, at least one, anywhere.
    fn alloc(&mut self, size: u32) -> Option<Self::Handle>;

    /// Takes `size` pages at a multiple of `align`, a power of two.
    fn alloc_aligned(&mut self, _size: u32, _align: u32) -> Aligned<Self::Handle> {
        Aligned::Unsupported
    }

    /// Gives an allocation back; returns false if the peer refuses it.
    fn free(&mut self, handle: Self::Handle) -> bool;

    /// Returns the first page of an allocation.
    fn start(&self, handle: &Self::Handle) -> u64;

    /// Gives back what records take that are not in use; false if the contestant cannot.
    fn shrink(&mut self) -> bool {
        false
    }

    /// Returns the metadata bytes as the contestant itself reports them; `None` if it reports none.
    fn own_metadata_bytes(&self) -> Option<usize> {
        None
    }
}
