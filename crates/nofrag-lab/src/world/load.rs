//! Load beside the page cache, and the way in which reclaim treats it.

use super::costs::Costs;
use super::slab::SlabKind;

/// Size of the memory for which the numbers of a [`Mix`] are stated, in GiB.
pub(crate) const STATED_FOR_GIB: u64 = 4;

/// The load beside the page cache, and the way in which reclaim treats it (docs/sources/pages.md#count-model-load).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mix {
    pub(crate) name: &'static str,
    /// The share of memory in DMA32, in 1/1000.
    pub(crate) dma32: u64,
    /// The shrinker runs once for this number of reclaimed pages.
    pub(crate) burst: u64,
    /// The most transient unmovable blocks that are live.
    pub(crate) transients: usize,
    /// The chance of a transient per page-cache miss, in 1/1000.
    pub(crate) transient_chance: u64,
    /// Blocks of order 3 that pages under writeback hold at most.
    pub(crate) writeback: usize,
    /// Slab allocations per miss beyond those of the page cache, in 1/1000 (0 but in the slab-intensive mix).
    pub(crate) extra_slab: u64,
    /// Orders of the slab caches, in the order of [`SlabKind::ALL`].
    pub(crate) slab_orders: [u8; SlabKind::ALL.len()],
}

impl Mix {
    /// Returns the mix for `pages` of memory.
    pub(crate) fn scaled(self, pages: u64) -> Mix {
        let stated = STATED_FOR_GIB << 18;
        let scale = |count: u64| (count * pages / stated).max(1);
        Mix {
            burst: scale(self.burst),
            transients: scale(self.transients as u64) as usize,
            writeback: scale(self.writeback as u64) as usize,
            ..self
        }
    }
}

/// The load under way, with its state.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) mix: Mix,
    /// Pages that may be dirty before writers wait.
    pub(crate) dirty_limit: u64,
    /// Pages of files that came from disk so far.
    pub(crate) read: u64,
    /// True when readers are to end.
    pub(crate) stopping: bool,
}

impl Load {
    /// Creates the load for memory of `pages`, before anything is read.
    pub(crate) fn new(mix: Mix, pages: u64, costs: &Costs) -> Load {
        let dirty_limit = pages * costs.dirty_percent / 100;
        Load { mix, dirty_limit, read: 0, stopping: false }
    }
}
