//! The dirty frames, and giving memory back.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use nofrag::page::{FrameState, PageAllocator};
use nofrag::units::{Order, PageCount, Pfn};
use rustix::io::Errno;

use super::Frames;
use crate::zeroed::collected;

/// A bit for each frame that was handed out since it was last known to be zero.
#[derive(Debug)]
pub(super) struct Dirty(Box<[AtomicU64]>);

impl Dirty {
    /// Returns bits by which no frame is dirty; `None` without memory for them.
    pub(super) fn new(frames: usize) -> Option<Dirty> {
        let words = frames.div_ceil(64);
        let words = collected(words, (0..words).map(|_| AtomicU64::new(0)));
        words.ok().map(|words| Dirty(words.into()))
    }

    /// Iterates over the words with the bits of a block: the frame of a word's first bit, the word, and the mask of the
    /// bits that are the block's.
    fn words(&self, pfn: Pfn, order: Order) -> impl Iterator<Item = (u64, &AtomicU64, u64)> {
        let pages = order.pages();
        let mask = if pages >= 64 { u64::MAX } else { ((1 << pages) - 1) << (pfn.0 % 64) };
        let first = pfn.0 / 64;
        let last = (pfn.0 + pages - 1) / 64;
        (first..=last).map(move |word| (word * 64, &self.0[word as usize], mask))
    }

    /// Makes all frames of a block dirty.
    pub(super) fn mark(&self, pfn: Pfn, order: Order) {
        for (_, word, mask) in self.words(pfn, order) {
            // Only a thread that has a block, under the lock or after it, looks at its bits: the lock orders them. That
            // spares most blocks, which were dirty before, the second operation.
            if word.load(Ordering::Relaxed) & mask != mask {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// Makes no frame of a block dirty.
    fn clear(&self, pfn: Pfn, order: Order) {
        for (_, word, mask) in self.words(pfn, order) {
            word.fetch_and(!mask, Ordering::Relaxed); // as in `mark`
        }
    }

    /// Returns true if a frame of the block is dirty.
    pub(super) fn any(&self, pfn: Pfn, order: Order) -> bool {
        self.words(pfn, order).any(|(_, word, mask)| word.load(Ordering::Relaxed) & mask != 0)
    }

    /// Calls `visit` with each run of dirty frames in a block; a run ends where 64 frames do.
    pub(super) fn runs(&self, pfn: Pfn, order: Order, mut visit: impl FnMut(Pfn, PageCount)) {
        for (base, word, mask) in self.words(pfn, order) {
            let mut bits = word.load(Ordering::Relaxed) & mask;
            while bits != 0 {
                let start = bits.trailing_zeros();
                let pages = (bits >> start).trailing_ones();
                visit(Pfn(base + u64::from(start)), PageCount(u64::from(pages)));
                let run = u64::MAX >> (64 - pages) << start;
                bits &= !run;
            }
        }
    }
}

/// Counts of one purge of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Frames whose memory was given back.
    pub pages: PageCount,
    /// Number of calls that gave them back.
    pub calls: u64,
    /// Frames that could not be given back: they are free, and dirty as before.
    pub refused: PageCount,
    /// The system's last answer for the refused frames.
    pub error: Option<Errno>,
}

/// The most pageblocks that are in no pool at once: 64 MiB.
const BATCH: usize = 32;

impl Frames {
    /// Gives the memory of free pageblocks back: at least `budget` frames if as many are free, in one call for each run
    /// of adjacent pageblocks. They read as zero when they are handed out again. No lock is held during a call;
    /// requests that fail meanwhile wait for the pageblocks that are being purged. In a child of a fork nothing is
    /// given back.
    pub fn purge(&self, budget: PageCount) -> Purged {
        let mut purged = Purged::default();
        if !self.forks.is_same() {
            return purged;
        }
        let mut next = 0;
        while purged.pages.0 + purged.refused.0 < budget.0 {
            let _transit = self.transit.lock().unwrap_or_else(PoisonError::into_inner);
            let left = budget.0 - purged.pages.0 - purged.refused.0;
            let most = left.div_ceil(Order::PAGEBLOCK.pages()).min(BATCH as u64) as usize;
            let mut taken = Vec::new();
            while taken.len() < most && next < self.homes.len() {
                taken.extend(self.take_purgeable(next));
                next += 1;
            }
            if taken.is_empty() {
                break;
            }
            for run in taken.chunk_by(|one, next| one.0 + Order::PAGEBLOCK.pages() == next.0) {
                self.purge_run(run, &mut purged);
            }
        }
        purged
    }

    /// Takes a pageblock out of its pool, if it is free and dirty.
    fn take_purgeable(&self, block: usize) -> Option<Pfn> {
        let pfn = Pfn((block as u64) << Order::PAGEBLOCK.get());
        if !self.dirty.any(pfn, Order::PAGEBLOCK) {
            return None;
        }
        let home = self.home(pfn).expect("there is such a pageblock");
        let mut pool = self.shards[home].lock();
        let free = is_free(&pool.pages, pfn);
        (free && pool.pages.alloc_at(pfn, Order::PAGEBLOCK).is_ok()).then_some(pfn)
    }

    fn purge_run(&self, run: &[Pfn], purged: &mut Purged) {
        let pages = PageCount(run.len() as u64 * Order::PAGEBLOCK.pages());
        purged.calls += 1;
        match self.window.punch(run[0], pages) {
            Ok(()) => {
                run.iter().for_each(|&pfn| self.dirty.clear(pfn, Order::PAGEBLOCK));
                purged.pages.0 += pages.0;
            }
            Err(error) => {
                purged.refused.0 += pages.0;
                purged.error = Some(error);
            }
        }
        for &pfn in run {
            let home = self.home(pfn).expect("there is such a pageblock");
            let freed = self.shards[home].lock().pages.free(self.stranger, pfn);
            freed.expect("it was taken out of this pool");
        }
    }
}

/// Returns true if the pageblock is one free block, or part of one.
fn is_free(pages: &PageAllocator, pfn: Pfn) -> bool {
    let Some((state, _, order)) = pages.frame(pfn) else { return false };
    matches!(state, FrameState::Free | FrameState::PerCpu) && order >= Order::PAGEBLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(dirty: &Dirty, pfn: u64, order: u8) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        let order = Order::new(order).unwrap();
        dirty.runs(Pfn(pfn), order, |pfn, pages| runs.push((pfn.0, pages.0)));
        runs
    }

    #[test]
    fn a_block_is_dirty_where_it_was_marked() {
        let dirty = Dirty::new(1024).unwrap();
        assert!(runs(&dirty, 0, 10).is_empty());
        dirty.mark(Pfn(3), Order::ZERO);
        dirty.mark(Pfn(64), Order::new(6).unwrap());
        dirty.mark(Pfn(192), Order::new(2).unwrap());
        assert_eq!(runs(&dirty, 0, 10), [(3, 1), (64, 64), (192, 4)]);
        assert_eq!(runs(&dirty, 2, 1), [(3, 1)]);
        assert!(!dirty.any(Pfn(0), Order::new(1).unwrap()) && dirty.any(Pfn(0), Order::PAGEBLOCK));
        dirty.clear(Pfn(64), Order::new(6).unwrap());
        assert_eq!(runs(&dirty, 0, 9), [(3, 1), (192, 4)]);
    }
}
