//! `Lowest` at 90 % occupancy against a linear scan over a sorted list of holes: the two must place everything alike.

use crate::contest::Run;
use crate::packing::{FILLED, PAGES};
use crate::peers::{LOWEST, Nofrag, Peer, Space};
use crate::record::{Group, Measure};
use crate::trace::{Draws, Sizes};
use nofrag::ranges::{Fit, Index};

/// Holes by address, all of them scanned: too simple to be wrong.
#[derive(Debug)]
pub struct LinearScan {
    holes: Vec<(u64, u64)>,
}

impl LinearScan {
    /// Makes pages `0..pages`, all free.
    #[must_use]
    pub fn new(pages: u32) -> LinearScan {
        LinearScan { holes: vec![(0, u64::from(pages))] }
    }

    /// Takes the lowest address with `size` free pages.
    pub fn alloc(&mut self, size: u32) -> Option<u64> {
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
    pub fn free(&mut self, start: u64, size: u32) {
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
pub struct Agreement {
    /// Number of placements, refusals included.
    pub compared: u64,
    pub differing: u64,
}

/// Fills nofrag's `Lowest` and a linear scan to 90 %, then replaces one for one, with the same requests to both.
#[must_use]
pub fn compare(mut draws: Draws, replacements: usize) -> Agreement {
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

/// Returns the name of the workload.
#[must_use]
pub fn workload(sizes: Sizes) -> String {
    format!("Lowest at 90 %, {}", sizes.name())
}

/// Runs one comparison for each size distribution.
pub fn run(run: &mut Run<'_>) {
    for sizes in crate::contest::BOTH_SIZES {
        (run.progress)(Group::Oracle, LOWEST);
        let Agreement { compared, differing } =
            compare(Draws::new(run.seed, sizes), run.effort.oracle_replacements);
        for (measure, count) in [(Measure::Compared, compared), (Measure::Differing, differing)] {
            let of = (Group::Oracle, workload(sizes));
            run.add((of.0, &of.1), LOWEST, (measure, vec![count as f64]), None);
        }
    }
}
