//! Contestants do what the tables assume: ranges are disjoint, and those that promise the same placement agree.

use nofrag::ranges::{Fit, Index};
use nofrag_bench::contest::RangeTurn;
use nofrag_bench::packing::{FILLED, PAGES};
use nofrag_bench::peers::{
    BTreeBestFit, BTreeFirstFit, LOWEST, Nofrag, OFFSET, Peer, RangeMapGaps, Space,
};
use nofrag_bench::roster::contestants;
use nofrag_bench::trace::{Draws, Sizes};

const SPACE: Space = Space { pages: 1 << 12, live: 1 << 10, shift: 0 };

/// Returns the starts of all placements of a small churn; `None` where a request was refused.
fn placements<P: Peer>(mut peer: P, seed: u64) -> Vec<Option<u64>> {
    let mut draws = Draws::new(seed, Sizes::Uniform);
    let (mut live, mut starts) = (Vec::new(), Vec::new());
    for step in 0..600 {
        if step > 130 && !live.is_empty() {
            assert!(peer.free(live.swap_remove(draws.pick(live.len()))));
        }
        let handle = peer.alloc(draws.size());
        starts.push(handle.as_ref().map(|handle| peer.start(handle)));
        live.extend(handle);
    }
    starts
}

#[test]
fn contestants_hand_out_disjoint_ranges() {
    // A thread's stack in a test is too small for the largest bitmap in an unoptimised build.
    let work = || {
        for contestant in contestants() {
            match contestant.turn(RangeTurn::Verify { seed: 7 }) {
                Ok(_) => {}
                // vmem 1.0.0 overflows in aligned requests, which only builds like this one check.
                Err(fault) if contestant.name().starts_with("vmem") => {
                    assert!(fault.contains("overflow"), "{fault}");
                }
                Err(fault) => panic!("{}: {fault}", contestant.name()),
            }
        }
    };
    std::thread::Builder::new().stack_size(64 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn names_are_distinct_and_the_references_take_part() {
    let names: Vec<_> = contestants().iter().map(|contestant| contestant.name()).collect();
    let mut distinct = names.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), names.len());
    assert!(names.contains(&LOWEST) && names.contains(&OFFSET));
}

#[test]
fn first_fits_agree() {
    let expected = placements(BTreeFirstFit::new(SPACE), 3);
    assert_eq!(placements(RangeMapGaps::new(SPACE), 3), expected);
    assert_eq!(placements(Nofrag::new(SPACE, Index::WideBlocks, Fit::Lowest), 3), expected);
}

#[test]
fn best_fits_refuse_the_same_requests_when_small() {
    let expected = placements(BTreeBestFit::new(SPACE), 5);
    let ours = placements(Nofrag::new(SPACE, Index::WideBlocks, Fit::Best), 5);
    assert_eq!(ours.len(), expected.len());
    assert!(expected.iter().any(Option::is_none), "the space is too roomy for this test");
}

/// Holes by address, all of them scanned: too simple to be wrong.
#[derive(Debug)]
struct LinearScan {
    holes: Vec<(u64, u64)>,
}

impl LinearScan {
    /// Makes pages `0..pages`, all free.
    fn new(pages: u32) -> LinearScan {
        LinearScan { holes: vec![(0, u64::from(pages))] }
    }

    /// Takes the lowest address with `size` free pages.
    fn alloc(&mut self, size: u32) -> Option<u64> {
        let size = u64::from(size);
        let index = self.holes.iter().position(|&(start, end)| end - start >= size)?;
        let start = self.holes[index].0;
        self.holes[index].0 += size;
        if self.holes[index].0 == self.holes[index].1 {
            self.holes.remove(index);
        }
        Some(start)
    }

    /// Frees `size` pages from `start` on.
    fn free(&mut self, start: u64, size: u32) {
        let index = self.holes.partition_point(|hole| hole.0 < start);
        self.holes.insert(index, (start, start + u64::from(size)));
        self.join_at(index + 1);
        self.join_at(index);
    }

    /// Joins the hole of this index with the one below, if they touch.
    fn join_at(&mut self, index: usize) {
        let Some(below) = index.checked_sub(1) else { return };
        if index < self.holes.len() && self.holes[below].1 == self.holes[index].0 {
            self.holes[below].1 = self.holes[index].1;
            self.holes.remove(index);
        }
    }
}

/// Placements compared and those that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Agreement {
    /// Number of placements, refusals included.
    compared: u64,
    differing: u64,
}

/// Fills nofrag's `Lowest` and a linear scan to 90 %, then replaces one for one, with the same requests to both.
fn compare(mut draws: Draws, replacements: usize) -> Agreement {
    let mut ours =
        Nofrag::new(Space { pages: PAGES, live: PAGES, shift: 0 }, Index::WideBlocks, Fit::Lowest);
    let mut oracle = LinearScan::new(PAGES);
    let mut live = Vec::new();
    let mut pages = 0;
    let mut agreement = Agreement::default();
    let mut place = |size, live: &mut Vec<_>, oracle: &mut LinearScan, ours: &mut Nofrag| {
        let span = ours.alloc(size);
        agreement.compared += 1;
        agreement.differing += u64::from(span.map(|span| span.start()) != oracle.alloc(size));
        live.extend(span.map(|span| (span, size)));
    };
    loop {
        let size = draws.size();
        if pages + size > FILLED {
            break;
        }
        place(size, &mut live, &mut oracle, &mut ours);
        pages += size;
    }
    for _ in 0..replacements {
        let (span, size) = live.swap_remove(draws.pick(live.len()));
        assert!(ours.free(span), "what was handed out can be freed");
        oracle.free(span.start(), size);
        place(draws.size(), &mut live, &mut oracle, &mut ours);
    }
    agreement
}

#[test]
fn linear_scan_takes_the_lowest_hole_and_joins_neighbours() {
    let mut scan = LinearScan::new(10);
    assert_eq!(
        [scan.alloc(3), scan.alloc(3), scan.alloc(4), scan.alloc(1)],
        [Some(0), Some(3), Some(6), None]
    );
    scan.free(0, 3);
    scan.free(6, 4);
    assert_eq!(scan.alloc(4), Some(6));
    scan.free(6, 4);
    scan.free(3, 3);
    assert_eq!(scan.alloc(10), Some(0));
}

#[test]
fn lowest_places_as_the_linear_scan() {
    let agreement = compare(Draws::new(1, Sizes::Bimodal), 300);
    assert!(agreement.compared > 300);
    assert_eq!(agreement.differing, 0);
}
