//! The contents of a full pool, for a pool in numbers, of which the answer is known.

use nofrag::ranges::{Fit, Index};
use nofrag_bench::gpu::{Cache, GpuPlan};
use nofrag_bench::peers::{Nofrag, Peer, Space};
use nofrag_bench::record::Measure;
use nofrag_bench::trace::Sizes;

use crate::value;

const PAGES: u32 = 1 << 18;

/// A peer that hands out slots of one size, whatever is asked for.
struct Slots {
    free: Vec<u64>,
}

impl Peer for Slots {
    type Handle = u64;

    fn alloc(&mut self, _: u32) -> Option<u64> {
        self.free.pop()
    }

    fn free(&mut self, slot: u64) -> bool {
        self.free.push(slot);
        true
    }

    fn start(&self, slot: &u64) -> u64 {
        *slot
    }
}

fn plan(requests: usize) -> GpuPlan {
    GpuPlan::new("cache", 1, Sizes::Cache, 1, requests)
}

#[test]
fn a_pool_of_slots_holds_the_mean_size_in_each() {
    let slots = Slots { free: (0..2000).collect() };
    let mut cache = Cache::new(slots, 2000 * 100);
    let outcome = cache.serve(&plan(20_000), &mut |_, _, _| Ok(()));
    // 20 to 100 units, all equally likely, in slots of 100.
    let (first, full) = (
        value(&outcome, Measure::FirstFailurePercent),
        value(&outcome, Measure::LiveWhenFullPercent),
    );
    assert!((57.0..63.0).contains(&first) && (58.0..62.0).contains(&full), "{first} {full}");
}

#[test]
fn every_block_is_written_where_it_lies() {
    let space = Space { pages: PAGES, live: PAGES / 16, shift: 0 };
    let mut cache = Cache::new(Nofrag::new(space, Index::WideBlocks, Fit::Best), u64::from(PAGES));
    let (mut owner, mut written) = (vec![0; PAGES as usize], 0);
    let outcome = cache.serve(&plan(5000), &mut |page, pages, tag| {
        owner[page as usize..][..pages as usize].fill(tag);
        written += 1;
        Ok(())
    });
    assert!(value(&outcome, Measure::FirstFailurePercent) > 85.0);
    assert!(value(&outcome, Measure::LiveWhenFullPercent) > 85.0);
    let first = owner.iter().position(|&tag| tag == 0);
    assert!(written > 10_000 && first.is_none_or(|page| page > PAGES as usize - 100), "{first:?}");
}

#[test]
fn who_refuses_an_empty_pool_has_no_figures() {
    let outcome = Cache::new(Slots { free: Vec::new() }, 1).serve(&plan(1), &mut |_, _, _| Ok(()));
    assert!(outcome.is_err_and(|why| why.contains("nothing is live")));
}
