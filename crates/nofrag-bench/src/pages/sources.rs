//! The contestants of [`pages`](super) behind one interface, with the least adapter that their documentation asks for.

use crate::peers::{Aligned, BTreeFirstFit, Bitmap, Buddy, FreeListPeer, Nofrag, Peer, Space};
use ::nofrag::cpu::CpuId;
use ::nofrag::page::{
    FragmentationPolicy, MemoryMap, MinFree, NodeMap, PageAllocator, PageConfig, PageRequest,
    ZoneKind, ZoneMap,
};
use ::nofrag::ranges::{Fit, Index};
use ::nofrag::units::{Nanos, Order, PageCount, Pfn};

/// Blocks of `2^order` page frames, each at a multiple of its size.
pub trait PageSource {
    /// Token by which the caller frees a block.
    type Block: Copy;

    /// Takes a block of `order`.
    fn alloc(&mut self, order: Order) -> Option<Self::Block>;

    /// Gives the block back; returns false if it is refused.
    fn free(&mut self, block: Self::Block) -> bool;

    /// Returns the first frame of the block.
    fn start(&self, block: &Self::Block) -> u64;

    /// Gives up the blocks that it keeps at hand for the next request, as a request for a large block would make it.
    fn settle(&mut self) {}

    /// Returns the metadata bytes as the contestant itself reports them; `None` if it reports none.
    fn own_metadata_bytes(&self) -> Option<usize> {
        None
    }
}

/// nofrag's page allocator: one node, one zone, one CPU, movable pages. Watermarks are set as low as they go, so that
/// memory can be filled as others fill it; a request that would have to reclaim is a refusal.
#[derive(Debug)]
pub struct Pages {
    pages: PageAllocator,
    cpu: CpuId,
}

impl Pages {
    /// Makes an allocator of `frames` frames under a preset.
    ///
    /// # Panics
    /// If there is no such preset, or no memory for the records.
    #[must_use]
    pub fn new(preset: &str, frames: u32) -> Pages {
        let policy = FragmentationPolicy::preset(preset).expect("the roster names presets").policy;
        let normal = ZoneMap::new(ZoneKind::Normal, Pfn(0), PageCount(frames.into()));
        let node = NodeMap { cpus: vec![0], zones: vec![normal] };
        let map = MemoryMap::new(vec![node], &[]).expect("one zone is a machine");
        let cpu = map.cpus().by_rank(0).expect("the node has a CPU");
        let config = PageConfig { min_free: MinFree::Pages(0), ..PageConfig::new(map, policy) };
        Pages { pages: PageAllocator::new(&config).expect("there is memory for records"), cpu }
    }
}

impl PageSource for Pages {
    type Block = Pfn;

    #[inline]
    fn alloc(&mut self, order: Order) -> Option<Pfn> {
        self.pages.alloc(Nanos(0), self.cpu, PageRequest::user(order)).ok()
    }

    #[inline]
    fn free(&mut self, block: Pfn) -> bool {
        self.pages.free(self.cpu, block).is_ok()
    }

    fn start(&self, block: &Pfn) -> u64 {
        block.0
    }

    fn settle(&mut self) {
        self.pages.drain_all();
    }

    fn own_metadata_bytes(&self) -> Option<usize> {
        Some(self.pages.metadata_bytes())
    }
}

/// An allocator of ranges, asked for ranges of `2^order` pages at multiples of their size.
#[derive(Debug)]
pub struct Ranges<P>(P);

impl<P: Peer> PageSource for Ranges<P> {
    type Block = P::Handle;

    #[inline]
    fn alloc(&mut self, order: Order) -> Option<P::Handle> {
        let pages = order.pages() as u32;
        if pages == 1 {
            return self.0.alloc(1);
        }
        match self.0.alloc_aligned(pages, pages) {
            Aligned::At(block) => Some(block),
            Aligned::NoFit | Aligned::Unsupported => None,
        }
    }

    #[inline]
    fn free(&mut self, block: P::Handle) -> bool {
        self.0.free(block)
    }

    fn start(&self, block: &P::Handle) -> u64 {
        self.0.start(block)
    }

    fn own_metadata_bytes(&self) -> Option<usize> {
        self.0.own_metadata_bytes()
    }
}

fn space(frames: u32) -> Space {
    Space { pages: frames, live: frames, shift: 0 }
}

/// Makes the frame allocator of the crate `buddy_system_allocator`.
#[must_use]
pub fn buddy(frames: u32) -> Ranges<Buddy> {
    Ranges(Buddy::new(space(frames)))
}

/// Makes bitmap-allocator's bitmap of the size that fits.
#[must_use]
pub fn bitmap(frames: u32) -> Ranges<Bitmap> {
    Ranges(Bitmap::new(space(frames)))
}

/// Makes free-list's sorted list of ranges.
#[must_use]
pub fn free_list(frames: u32) -> Ranges<FreeListPeer> {
    Ranges(FreeListPeer::new(space(frames)))
}

/// Makes a standard-library map of free ranges, first fit.
#[must_use]
pub fn first_fit(frames: u32) -> Ranges<BTreeFirstFit> {
    Ranges(BTreeFirstFit::new(space(frames)))
}

/// Makes nofrag's allocator of ranges, which takes the lowest place.
#[must_use]
pub fn lowest(frames: u32) -> Ranges<Nofrag> {
    Ranges(Nofrag::new(space(frames), Index::WideBlocks, Fit::Lowest))
}
