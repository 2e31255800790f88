//! The contestants that take part in the tables of ranges.

use crate::contest::{Contestant, Entry, Outcome, RangeTurn, shielded};
use crate::peers::{
    BEST, BEST_FIT, BTreeBestFit, BTreeFirstFit, Bitmap, Buddy, DYNAMIC, FIRST_FIT, FreeListPeer,
    HEAP, Heap, LOWEST, Nofrag, OFFSET, Offset, Peer, RangeAlloc, RangeMapGaps, Space, Tlsf,
    VmAllocator, Vmem,
};
use crate::{footprint, latency, low_holes, packing, patterns, speed, verify, worst};
use nofrag::ranges::{AlignRule, Fit, Index};
use vmem::AllocPolicy;

impl<P: Peer, M: Fn(Space) -> P> Contestant for Entry<M> {
    fn turn(&self, turn: RangeTurn<'_>) -> Outcome {
        let make = &self.make;
        shielded(|| match turn {
            RangeTurn::Verify { seed } => verify::run(make, seed),
            RangeTurn::Churn(churn, effort) => speed::round(make, churn, effort),
            RangeTurn::LowHoles(holes, effort) => low_holes::round(make, holes, effort),
            RangeTurn::Pattern(plan, effort) => patterns::round(make, plan, effort),
            RangeTurn::Worst(worst, effort) => worst::round(make, worst, effort),
            RangeTurn::Latency(churn, effort) => latency::round(make, churn, effort),
            RangeTurn::Footprint(state, effort) => footprint::measure(make, state, effort),
            RangeTurn::Pack(plan) => packing::pack(make, plan),
            RangeTurn::Shrink(draws, effort) => packing::shrink(make, draws.clone(), effort),
        })
    }
}

/// Makes all contestants, in the order of the tables.
#[must_use]
pub fn contestants() -> Vec<Box<dyn Contestant>> {
    let ours = |index, fit| move |space: Space| Nofrag::new(space, index, fit);
    let tree = Index::AugmentedTree(AlignRule::default());
    vec![
        Box::new(Entry::new(LOWEST, ours(Index::WideBlocks, Fit::Lowest))),
        Box::new(Entry::new(BEST, ours(Index::WideBlocks, Fit::Best))),
        Box::new(Entry::new(DYNAMIC, ours(Index::WideBlocks, Fit::Dynamic))),
        Box::new(Entry::new(HEAP, Heap::new)),
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
