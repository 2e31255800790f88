//! Parked runs by exact size: an owner hands these out first, without a search and without a call.
//!
//! Each size has a stack: the run freed last is handed out first, since it is most likely still in a cache. All stacks
//! together hold a bounded number of pages. A stack notes its lowest length since it was last aged: as many of its runs
//! have not been needed meanwhile, and go back to the free ranges, the oldest first.

use std::iter::repeat_n;

use crate::zeroed::collected;

/// The most pages of a run that is parked by size.
pub(super) const LARGEST: u32 = 64;

/// The most runs in a stack.
const DEEPEST: u64 = 256;

/// The fewest runs that a stack has room for, unless [`PART`] allows fewer: with room for two or three, where one run
/// of a size is live on average, some of every hundred freed runs go to the free ranges and come back.
const SHALLOWEST: u64 = 16;

/// No stack has room for more than one part in this many of the pages that may be parked.
const PART: u64 = 8;

#[derive(Clone, Copy, Debug)]
struct Bin {
    /// Index of the first of its entries in [`Bins::places`].
    start: u32,
    room: u16,
    len: u16,
    /// The lowest `len` since the bin was last aged.
    low: u16,
}

/// 1. The runs of bin `n` have `n + 1` pages; the places `start..start + len` hold their first pages.
/// 2. `pages` is the sum of the pages of all runs, and at most `most`.
#[derive(Debug)]
pub(super) struct Bins {
    bins: [Bin; LARGEST as usize],
    places: Box<[u32]>,
    pages: u64,
    most: u64,
}

impl Bins {
    /// Returns bins that hold `most` pages together at most; `None` without memory for their places.
    pub(super) fn new(most: u64) -> Option<Bins> {
        let share = most / u64::from(LARGEST);
        let mut start = 0;
        let bins = std::array::from_fn(|at| {
            let size = at as u64 + 1;
            let room = (share / size).clamp(SHALLOWEST, DEEPEST).min(most / PART / size) as u16;
            let bin = Bin { start, room, len: 0, low: 0 };
            start += u32::from(room);
            bin
        });
        let places = collected(start as usize, repeat_n(0, start as usize)).ok()?.into();
        Some(Bins { bins, places, pages: 0, most })
    }

    /// Takes out the run of exactly `pages` pages that was parked last, and returns its first page; `None` if there is
    /// no such run, or its first page is not a multiple of `align`.
    #[inline(always)]
    pub(super) fn pop(&mut self, pages: u64, align: u64) -> Option<u32> {
        let bin = self.bins.get_mut(pages.wrapping_sub(1) as usize)?;
        let top = bin.len.checked_sub(1)?;
        let page = self.places[(bin.start + u32::from(top)) as usize];
        if u64::from(page) & align.wrapping_sub(1) != 0 {
            return None;
        }
        bin.len = top;
        bin.low = bin.low.min(top);
        self.pages -= pages;
        Some(page)
    }

    /// Returns true if only the bound on all bins together keeps a run of `pages` pages out: its own bin has room.
    pub(super) fn is_crowded_out(&self, pages: u32) -> bool {
        let bin = self.bins.get(pages.wrapping_sub(1) as usize);
        bin.is_some_and(|bin| bin.len < bin.room && self.pages + u64::from(pages) > self.most)
    }

    /// Takes the oldest runs, at most [`FEW`], out of the bin that holds most pages. Returns the pages of each run, and
    /// the runs; `None` if nothing is parked.
    pub(super) fn relieve(&mut self) -> Option<(u32, Few)> {
        let held = |at: &usize| (*at as u64 + 1) * u64::from(self.bins[*at].len);
        let fullest = (0..self.bins.len()).max_by_key(held)?;
        let count = self.bins[fullest].len.min(FEW as u16);
        (count > 0).then(|| self.take_oldest(fullest, count))
    }

    /// Takes the `count` oldest runs out of the bin with index `at`. Returns the pages of each run, and the runs.
    fn take_oldest(&mut self, at: usize, count: u16) -> (u32, Few) {
        let bin = &mut self.bins[at];
        let (from, len) = (bin.start as usize, usize::from(bin.len));
        let first = &self.places[from..from + usize::from(count)];
        let few = Few { first: std::array::from_fn(|at| first.get(at).copied()) };
        self.places.copy_within(from + usize::from(count)..from + len, from);
        bin.len -= count;
        bin.low = bin.low.saturating_sub(count);
        let pages = at as u32 + 1;
        self.pages -= u64::from(count) * u64::from(pages);
        (pages, few)
    }

    /// Parks a run, if there is room in the bin of its size and in all bins together.
    #[inline(always)]
    pub(super) fn push(&mut self, page: u32, pages: u32) -> Result<(), Full> {
        let bin = self.bins.get_mut(pages.wrapping_sub(1) as usize).ok_or(Full)?;
        let parked = self.pages + u64::from(pages);
        if bin.len == bin.room || parked > self.most {
            return Err(Full);
        }
        self.places[(bin.start + u32::from(bin.len)) as usize] = page;
        bin.len += 1;
        self.pages = parked;
        Ok(())
    }

    /// Takes out the next few runs of a drain, which takes the runs that have not been needed since the bins were last
    /// aged, or all: the oldest of a size first, and the sizes one after the other. Returns the pages of each run, and
    /// the runs; `None` when all sizes have had their turn, by which they have been aged. Runs may be parked or taken
    /// between two calls.
    pub(super) fn drain(&mut self, draining: &mut Draining) -> Option<(u32, Few)> {
        loop {
            let bin = self.bins.get_mut(draining.bin)?;
            let candidates = match draining.which {
                Which::Unneeded => bin.low,
                Which::All => bin.len,
            };
            let left = draining.left.unwrap_or(candidates).min(candidates);
            if left == 0 {
                bin.low = bin.len;
                draining.bin += 1;
                draining.left = None;
                continue;
            }
            let count = left.min(FEW as u16);
            draining.left = Some(left - count);
            return Some(self.take_oldest(draining.bin, count));
        }
    }

    /// Returns the number of parked pages.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Iterates over the parked runs: first page and pages of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        (1..).zip(&self.bins).flat_map(|(pages, bin)| {
            let from = bin.start as usize;
            self.places[from..from + bin.len as usize].iter().map(move |&page| (page, pages))
        })
    }
}

/// A run was not parked: the bin of its size or all bins together have no room, or there is no bin of its size.
#[derive(Debug)]
pub(super) struct Full;

/// The runs that a drain takes out of the bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The runs that have not been needed since the bins were last aged.
    Unneeded,
    All,
}

/// The most runs that are taken out at a time.
const FEW: usize = 4;

/// The first pages of some runs of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Few {
    first: [Option<u32>; FEW],
}

impl Few {
    /// The most runs that a `Few` can hold.
    pub(super) const MOST: usize = FEW;

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.first.into_iter().flatten()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    which: Which,
    bin: usize,
    /// Number of runs still to be taken out of this bin, once that is known.
    left: Option<u16>,
}

impl Draining {
    /// Returns a drain at its beginning.
    pub(super) fn new(which: Which) -> Draining {
        Draining { which, bin: 0, left: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_comes_first_and_only_if_it_is_aligned() {
        let mut bins = Bins::new(64 * 64).unwrap();
        bins.push(8, 2).unwrap();
        bins.push(13, 2).unwrap();
        assert_eq!(bins.pop(1, 1), None);
        assert_eq!(bins.pop(2, 4), None);
        assert_eq!(bins.pop(2, 1), Some(13));
        assert_eq!(bins.pop(2, 4), Some(8));
        assert_eq!(bins.pop(2, 1), None);
        assert_eq!((bins.pop(0, 1), bins.pop(65, 1), bins.pop(u64::MAX, 1)), (None, None, None));
    }

    #[test]
    fn a_run_is_crowded_out_by_all_bins_and_not_by_its_own() {
        let mut bins = Bins { most: 8, ..Bins::new(64).unwrap() };
        (0..7).for_each(|page| bins.push(page, 1).unwrap());
        assert_eq!([1, 2].map(|pages| bins.is_crowded_out(pages)), [false, true]);
        bins.push(7, 1).unwrap();
        assert_eq!([1, 2].map(|pages| bins.is_crowded_out(pages)), [false, true]);
        assert_eq!([0, 65].map(|pages| bins.is_crowded_out(pages)), [false, false]);
    }

    #[test]
    fn the_bin_that_holds_most_pages_is_relieved() {
        let mut bins = Bins::new(64).unwrap();
        (0..3).for_each(|page| bins.push(page, 1).unwrap());
        bins.push(10, 2).unwrap();
        let sizes = [(); 3].map(|()| bins.relieve().map(|(pages, _)| pages));
        assert_eq!(sizes, [Some(1), Some(2), None]);
    }

    #[test]
    fn what_was_not_needed_leaves_oldest_first() {
        let mut bins = Bins::new(64 * 64).unwrap();
        (0..8).for_each(|page| bins.push(page, 1).unwrap());
        assert_eq!(drain(&mut bins, Which::Unneeded), [], "they came after the last ageing");
        (0..3).for_each(|_| assert!(bins.pop(1, 1).is_some()));
        bins.push(20, 1).unwrap();
        assert_eq!(drain(&mut bins, Which::Unneeded), [0, 1, 2, 3, 4]);
        assert_eq!(bins.iter().collect::<Vec<_>>(), [(20, 1)]);
        assert_eq!(bins.pages(), 1);
    }

    fn drain(bins: &mut Bins, which: Which) -> Vec<u32> {
        let mut draining = Draining::new(which);
        std::iter::from_fn(|| bins.drain(&mut draining))
            .flat_map(|(_, few)| few.iter().collect::<Vec<_>>())
            .collect()
    }

    #[test]
    fn bins_are_bounded_each_and_together() {
        let mut bins = Bins::new(64).unwrap();
        (0..8).for_each(|page| bins.push(page, 1).unwrap());
        bins.push(8, 1).unwrap_err();
        bins.push(20, 9).unwrap_err();
        for (size, count) in [(8, 1), (7, 1), (6, 1), (5, 1), (4, 2), (3, 2), (2, 4)] {
            (0..count).for_each(|at| bins.push(100 * size + at * size, size).unwrap());
        }
        assert_eq!(bins.pages(), 56);
        bins.push(900, 65).unwrap_err();
        assert_eq!((bins.pop(8, 1), bins.pages()), (Some(800), 48));
    }

    #[test]
    fn all_bins_together_are_bounded() {
        let mut bins = Bins::new(1024).unwrap();
        // Two of each would be four times as much.
        let sizes = (1..=LARGEST).rev().flat_map(|size| [size, size]);
        let parked: u64 = sizes.filter(|&size| bins.push(size, size).is_ok()).map(u64::from).sum();
        assert_eq!((parked, bins.pages()), (1024, 1024));
        bins.push(0, 1).unwrap_err();
        assert_eq!((bins.pop(64, 1), bins.pages()), (Some(64), 960));
    }

    /// A size that is no longer asked for makes room for one that is.
    #[test]
    fn the_fullest_size_gives_way() {
        let mut bins = Bins::new(1024).unwrap();
        (0..32).for_each(|at| drop(bins.push(at * 64, 33 + at)));
        assert_eq!(bins.pages(), 1012, "of each size from 33 on, as long as there is room");
        assert!(bins.is_crowded_out(40) && !bins.is_crowded_out(3) && !bins.is_crowded_out(65));
        let before = bins.pages();
        let (pages, few) = bins.relieve().unwrap();
        assert_eq!((few.iter().count(), bins.pages() + u64::from(pages)), (1, before));
        assert!(pages == 55 && !bins.is_crowded_out(40), "{pages}");
        bins.push(5000, 40).unwrap();
        assert!(Bins::new(64).unwrap().relieve().is_none());
    }

    /// Parks and takes runs between two pieces of a drain: the drain ends all the same, after as many runs as there
    /// were, and no run is lost.
    #[test]
    fn a_drain_goes_on_after_others_had_a_turn() {
        let mut bins = Bins::new(64 * 64).unwrap();
        (0..10).for_each(|page| bins.push(page, 1).unwrap());
        let mut draining = Draining::new(Which::All);
        let (pages, few) = bins.drain(&mut draining).unwrap();
        assert_eq!((pages, few.iter().collect::<Vec<_>>()), (1, vec![0, 1, 2, 3]));
        assert_eq!(bins.pop(1, 1), Some(9));
        (20..40).for_each(|page| bins.push(page, 1).unwrap());
        let rest: Vec<u32> = std::iter::from_fn(|| bins.drain(&mut draining))
            .flat_map(|(_, few)| few.iter().collect::<Vec<_>>())
            .collect();
        assert_eq!(rest, [4, 5, 6, 7, 8, 20], "as many as there were");
        assert_eq!(bins.pages(), 19);
        assert_eq!(drain(&mut bins, Which::Unneeded).len(), 19, "they were aged");
    }
}
