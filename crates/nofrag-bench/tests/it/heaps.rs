//! Allocators of runs: everyone keeps what is written, and who does not is found.

use nofrag_bench::contest::Effort;
use nofrag_bench::heaps::{self, Heap, HeapsPlan};
use nofrag_bench::record::Measure;
use std::ptr::NonNull;

use crate::value;

#[test]
fn everyone_keeps_what_is_written() {
    let plan = HeapsPlan::new(1, 200);
    for contestant in heaps::contestants() {
        let outcome = contestant.turn(&plan, &Effort::quick());
        assert!(value(&outcome, Measure::NsPerPair) > 0.0, "{}: {outcome:?}", contestant.name());
        assert!(value(&outcome, Measure::FaultsPerPair) >= 0.0, "{}", contestant.name());
    }
}

#[test]
fn sizes_reach_from_the_smallest_to_the_largest() {
    let plan = HeapsPlan::new(2, 5_000);
    assert_eq!(plan, HeapsPlan::new(2, 5_000));
    assert!(
        plan.0.iter().all(|&(slot, bytes)| slot < 64 && (64 << 10..=64 << 20).contains(&bytes))
    );
    let large = plan.0.iter().filter(|(_, bytes)| *bytes >= 32 << 20).count();
    assert!((400..700).contains(&large), "one of ten is in the last doubling: {large}");
}

/// A heap that hands the same byte out again and again.
struct Same(Box<u8>);

impl Heap for Same {
    type Run = NonNull<u8>;

    fn alloc(&mut self, _: usize) -> Option<NonNull<u8>> {
        Some(NonNull::from(&mut *self.0))
    }

    fn free(&mut self, _: NonNull<u8>) -> bool {
        true
    }

    fn start(&self, run: NonNull<u8>) -> NonNull<u8> {
        run
    }
}

#[test]
fn who_hands_out_memory_twice_is_found() {
    let outcome = heaps::round(&|| Same(Box::new(0)), &HeapsPlan::new(1, 10), &Effort::quick());
    assert!(outcome.is_err_and(|reason| reason.contains("has lost")));
}
