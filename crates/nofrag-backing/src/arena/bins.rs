//! Parked runs by exact size: what an owner hands out first, without a search and without a call.
//!
//! Each size has a stack: what was freed last is handed out first, since it is most likely still in a cache. The stacks
//! are bounded, all of them together by a number of pages, so that sizes which are no longer asked for keep little. A
//! stack notes how low it has been since it was last aged: so many of its runs have not been needed meanwhile, and go
//! back to the free ranges, the oldest first.

/// Runs of more pages are not parked by size.
pub(super) const LARGEST: u32 = 64;

/// No stack is deeper.
const DEEPEST: u32 = 256;

#[derive(Clone, Copy, Debug)]
struct Bin {
    /// Where its places begin.
    start: u32,
    room: u16,
    len: u16,
    /// The lowest `len` since it was last aged.
    low: u16,
}

/// 1. The runs of bin `n` have `n + 1` pages; what lies in `start..start + len` are their first pages.
#[derive(Debug)]
pub(super) struct Bins {
    bins: [Bin; LARGEST as usize],
    places: Box<[u32]>,
}

impl Bins {
    /// Bins that hold about so many pages at most; each size gets the same share of them.
    pub(super) fn new(pages: u64) -> Bins {
        let share = u32::try_from(pages / u64::from(LARGEST)).unwrap_or(u32::MAX);
        let mut start = 0;
        let bins = std::array::from_fn(|at| {
            let room = (share / (at as u32 + 1)).min(DEEPEST) as u16;
            let bin = Bin { start, room, len: 0, low: 0 };
            start += u32::from(room);
            bin
        });
        Bins { bins, places: vec![0; start as usize].into() }
    }

    /// The run of exactly so many pages that was parked last, if its first page is a multiple of `align`.
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
        Some(page)
    }

    /// Parks a run, if its size has room.
    #[inline(always)]
    pub(super) fn push(&mut self, page: u32, pages: u32) -> Result<(), Full> {
        let bin = self.bins.get_mut(pages.wrapping_sub(1) as usize).ok_or(Full)?;
        if bin.len == bin.room {
            return Err(Full);
        }
        self.places[(bin.start + u32::from(bin.len)) as usize] = page;
        bin.len += 1;
        Ok(())
    }

    /// Takes out what was not needed since this was called last, oldest first, or everything.
    pub(super) fn drain(&mut self, which: Which, mut each: impl FnMut(u32, u32)) {
        for (pages, bin) in (1..).zip(&mut self.bins) {
            let count = match which {
                Which::Unneeded => bin.low,
                Which::All => bin.len,
            };
            let (from, len) = (bin.start as usize, bin.len as usize);
            self.places[from..from + count as usize].iter().for_each(|&page| each(page, pages));
            self.places.copy_within(from + count as usize..from + len, from);
            bin.len -= count;
            bin.low = bin.len;
        }
    }

    /// Pages that are parked.
    pub(super) fn pages(&self) -> u64 {
        (1..).zip(&self.bins).map(|(pages, bin)| pages * u64::from(bin.len)).sum()
    }

    /// Every parked run: first page and pages.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        (1..).zip(&self.bins).flat_map(|(pages, bin)| {
            let from = bin.start as usize;
            self.places[from..from + bin.len as usize].iter().map(move |&page| (page, pages))
        })
    }
}

/// The bin of that size has no room, or there is none.
#[derive(Debug)]
pub(super) struct Full;

/// What is taken out of the bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// What has not been needed since they were last aged.
    Unneeded,
    /// Everything.
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_comes_first_and_only_if_it_is_aligned() {
        let mut bins = Bins::new(64 * 64);
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
    fn what_was_not_needed_leaves_oldest_first() {
        let mut bins = Bins::new(64 * 64);
        (0..8).for_each(|page| bins.push(page, 1).unwrap());
        bins.drain(Which::Unneeded, |_, _| panic!("they came after the last ageing"));
        (0..3).for_each(|_| assert!(bins.pop(1, 1).is_some()));
        bins.push(20, 1).unwrap();
        let mut left = Vec::new();
        bins.drain(Which::Unneeded, |page, _| left.push(page));
        assert_eq!(left, [0, 1, 2, 3, 4]);
        assert_eq!(bins.iter().collect::<Vec<_>>(), [(20, 1)]);
        assert_eq!(bins.pages(), 1);
    }

    #[test]
    fn bins_are_bounded() {
        let mut bins = Bins::new(64);
        bins.push(0, 1).unwrap();
        bins.push(1, 1).unwrap_err();
        bins.push(2, 2).unwrap_err();
        bins.push(2, 65).unwrap_err();
    }
}
