//! The contestants that take part in the tables of ranges.

use crate::contest::{Contestant, Entry};
use crate::peers::{
    BTreeBestFit, BTreeFirstFit, Bitmap, Buddy, FreeListPeer, Nofrag, Offset, RangeAlloc,
    RangeMapGaps, Space, Tlsf, VmAllocator, Vmem,
};
use nofrag::ranges::{AlignRule, Fit, Index};
use vmem::AllocPolicy;

pub const LOWEST: &str = "nofrag Lowest";
pub const BEST: &str = "nofrag Best";
pub const DYNAMIC: &str = "nofrag Dynamic";
/// The fastest peer, which the speed targets refer to.
pub const OFFSET: &str = "offset-allocator 0.2.0";
/// First fit as one writes it without a library.
pub const FIRST_FIT: &str = "BTreeMap first fit";
/// Exact best fit, which the packing targets refer to.
pub const BEST_FIT: &str = "BTreeMap best fit";

/// Makes all contestants, in the order of the tables.
#[must_use]
pub fn contestants() -> Vec<Box<dyn Contestant>> {
    let ours = |index, fit| move |space: Space| Nofrag::new(space, index, fit);
    let tree = Index::AugmentedTree(AlignRule::default());
    vec![
        Box::new(Entry::new(LOWEST, ours(Index::WideBlocks, Fit::Lowest))),
        Box::new(Entry::new(BEST, ours(Index::WideBlocks, Fit::Best))),
        Box::new(Entry::new(DYNAMIC, ours(Index::WideBlocks, Fit::Dynamic))),
        Box::new(Entry::new("nofrag AugmentedTree", ours(tree, Fit::Lowest))),
        Box::new(Entry::new("nofrag CachedScan", ours(Index::CachedScan, Fit::Lowest))),
        Box::new(Entry::new(OFFSET, Offset::new)),
        Box::new(Entry::new("range-alloc 0.1.5", RangeAlloc::new)),
        Box::new(Entry::new("vm-allocator 0.1.4", VmAllocator::new)),
        Box::new(Entry::new("free-list 0.3.4", FreeListPeer::new)),
        Box::new(Entry::new("rangemap 1.8.0 gaps", RangeMapGaps::new)),
        Box::new(Entry::new("buddy_system_allocator 0.13.0", Buddy::new)),
        Box::new(Entry::new("bitmap-allocator 0.4.6", Bitmap::new)),
        Box::new(Entry::new("vmem 1.0.0 instant fit", |space| {
            Vmem::new(space, || AllocPolicy::InstantFit)
        })),
        Box::new(Entry::new("vmem 1.0.0 best fit", |space| {
            Vmem::new(space, || AllocPolicy::BestFit)
        })),
        Box::new(Entry::new("rlsf 0.2.3 TLSF", Tlsf::new)),
        Box::new(Entry::new(FIRST_FIT, BTreeFirstFit::new)),
        Box::new(Entry::new(BEST_FIT, BTreeBestFit::new)),
    ]
}
