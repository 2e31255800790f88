//! Page frames: contestants are right, faults are found, and the frag test counts what it says.

use nofrag::units::Order;
use nofrag_bench::contest::Effort;
use nofrag_bench::pages::plan::{Blocks, FragDraws, PagesPlan};
use nofrag_bench::pages::sources::{self, PageSource, Pages};
use nofrag_bench::pages::{self, PageTurn, turns, verify};
use nofrag_bench::record::Measure;

use crate::value;

#[test]
fn contestants_hand_out_aligned_and_disjoint_blocks() {
    // A thread's stack in a test is too small for the largest bitmap in an unoptimised build.
    let work = || {
        for contestant in pages::contestants() {
            let outcome = contestant.turn(PageTurn::Verify { seed: 7 });
            assert_eq!(value(&outcome, Measure::Aligns), 1.0, "{}", contestant.name());
            assert_eq!(value(&outcome, Measure::WholeAgain), 1.0, "{}", contestant.name());
        }
    };
    std::thread::Builder::new().stack_size(64 << 20).spawn(work).unwrap().join().unwrap();
}

/// A contestant that names another frame than the first one of whole pageblocks.
struct Faulty {
    inner: Pages,
    fault: fn(u64) -> u64,
}

impl PageSource for Faulty {
    type Block = (nofrag::units::Pfn, u64);

    fn alloc(&mut self, order: Order) -> Option<Self::Block> {
        let block = self.inner.alloc(order)?;
        let is_whole = order == Order::PAGEBLOCK;
        Some((block, if is_whole { (self.fault)(block.0) } else { block.0 }))
    }

    fn free(&mut self, block: Self::Block) -> bool {
        self.inner.free(block.0)
    }

    fn start(&self, block: &Self::Block) -> u64 {
        block.1
    }
}

#[track_caller]
fn check_refused(fault: fn(u64) -> u64, part: &str) {
    let make = |frames| Faulty { inner: Pages::new("nofrag", frames), fault };
    match verify::run(&make, 1) {
        Err(reason) => assert!(reason.contains(part), "{reason}"),
        outcome => panic!("not refused: {outcome:?}"),
    }
}

#[test]
fn faults_are_found() {
    check_refused(|start| start + (1 << 40), "outside");
    check_refused(|_| 512, "overlap");
    check_refused(|start| start + 1, "not aligned");
}

#[test]
fn plans_are_equal_for_equal_seeds_and_leave_a_quarter_free() {
    let effort = Effort::quick();
    for blocks in Blocks::ALL {
        let plan = PagesPlan::new(3, blocks, 1 << 16, &effort);
        assert_eq!(plan, PagesPlan::new(3, blocks, 1 << 16, &effort));
        assert_ne!(plan, PagesPlan::new(4, blocks, 1 << 16, &effort));
        let pages: u64 = plan.bulk.iter().map(|order| order.pages()).sum();
        assert!((47_000..=49_152).contains(&pages), "{pages} of {}", blocks.name());
    }
}

#[test]
fn the_frag_test_chooses_without_repetition() {
    let mut all: Vec<u32> = (0..1000).collect();
    FragDraws::new(1).choose(&mut all, 300);
    let (kept, chosen) = all.split_at(700);
    assert_ne!(chosen, (700..1000).collect::<Vec<_>>(), "it is a choice");
    let mut sorted = [kept, chosen].concat();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
}

#[test]
fn the_lowest_place_leaves_half_of_all_pageblocks_whole() {
    let outcome = turns::frag(&sources::lowest, 1);
    assert!(value(&outcome, Measure::WholeEnd) > 45.0, "{outcome:?}");
    assert!(value(&outcome, Measure::HadPercent) > 45.0, "{outcome:?}");
}
