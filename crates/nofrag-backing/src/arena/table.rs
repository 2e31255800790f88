//! One record for each page of an arena, so that a free is verified in O(1).

use std::fmt;

use super::atomic::{AtomicU32, AtomicU64, Ordering};
use super::remote::Links;
use super::run::{GENERATION_BITS, Generation};
use crate::zeroed::zeroed;

/// An arena has fewer pages than this: records keep the length of a run in 30 bits, and links a page in 31.
pub(super) const MOST_PAGES: u64 = 1 << 30;

/// Use of a page as the first one of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Nothing,
    /// The first page of a run that is in use.
    Live,
    /// The first page of a lease: in use, and freed by its lease alone.
    Leased,
    /// The first page of a run that is parked in a bin.
    Parked,
}

/// A record's contents: use, length of the run, and the low bits of its generation, the number of runs that have begun
/// at this page.
///
/// Bits 0 and 1 are the use, 2 to 31 the pages of the run (zero if none begins here), 32 to 63 the lowest 32 bits of
/// the generation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    #[inline(always)]
    fn new(used: Use, pages: u32, generation: Generation) -> Word {
        Word(generation.above | u64::from(pages) << 2 | used as u64)
    }

    #[inline(always)]
    pub(super) fn used(self) -> Use {
        match self.0 & 3 {
            0 => Use::Nothing,
            1 => Use::Live,
            2 => Use::Leased,
            _ => Use::Parked,
        }
    }

    #[inline(always)]
    pub(super) fn pages(self) -> u32 {
        (self.0 >> 2) as u32 & ((1 << 30) - 1)
    }

    /// Returns the lowest 32 bits of the generation, where [`Generation::above`] has them.
    #[inline(always)]
    fn above(self) -> u64 {
        self.0 & !u64::from(u32::MAX)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} pages, generation ..{:08x}", self.used(), self.pages(), self.0 >> 32)
    }
}

/// The record of a page.
///
/// 1. `word` is written by the holder of the owner of the page's block alone; any thread may read it.
/// 2. `link` is written by the thread that claims it, until the holder takes it off the remote list.
#[derive(Debug)]
#[repr(C, align(16))]
struct Record {
    word: AtomicU64,
    link: AtomicU64,
}

/// The bits of a page's generations above the lowest 32: zero until 2^32 runs have begun there, so hardly any of these
/// is ever written, and one that is not written takes no memory.
///
/// 1. As in [`Record`]: `run` is written by the holder of the owner, `claim` by the thread that claims the record's
///    link.
#[derive(Debug)]
struct High {
    /// The bits where [`Generation::around`] has them.
    run: AtomicU64,
    claim: AtomicU32,
}

/// The records of all pages. Memory for them comes when they are first written.
pub(super) struct Table {
    records: Box<[Record]>,
    high: Box<[High]>,
}

impl Table {
    /// Returns records of `pages` pages: no run begins anywhere, generation zero. `None` without memory for them.
    pub(super) fn new(pages: u32) -> Option<Table> {
        let pages = pages as usize;
        // SAFETY: atomic words may be zero.
        let (records, high) = unsafe { (zeroed(pages).ok()?, zeroed(pages).ok()?) };
        Some(Table { records, high })
    }

    /// Returns the contents of a page's record: current for the holder of the page's owner, for others those of a
    /// moment ago.
    #[inline(always)]
    pub(super) fn word(&self, page: u32) -> Word {
        // Acquire pairs with the release of `set`: a thread that sees the low digits of a generation sees its high
        // ones, or later ones. Else a stale run could meet the low digits of a later run with the high ones of its own.
        Word(self.records[page as usize].word.load(Ordering::Acquire))
    }

    /// Returns how often a run has begun at the page whose record says `word`.
    #[inline(always)]
    fn generation_of(&self, page: u32, word: Word) -> Generation {
        // Relaxed: it comes after the load of `word`, which acquires.
        let around = self.high[page as usize].run.load(Ordering::Relaxed);
        Generation { around, above: word.above() }
    }

    /// Returns how often a run has begun at the page.
    #[inline(always)]
    pub(super) fn generation(&self, page: u32) -> u64 {
        self.generation_of(page, self.word(page)).number()
    }

    /// Returns true if the page's record is that of a run of this use, length and generation.
    #[inline(always)]
    pub(super) fn is(&self, page: u32, used: Use, pages: u32, generation: Generation) -> bool {
        let word = self.word(page);
        word == Word::new(used, pages, generation) && self.generation_of(page, word) == generation
    }

    /// Records that the next run begins at the page, and returns its generation. For the holder of the page's owner.
    #[inline(always)]
    pub(super) fn begin(&self, page: u32, used: Use, pages: u32) -> Generation {
        let Generation { around, above } = self.generation_of(page, self.word(page));
        let Some(above) = above.checked_add(1 << 32) else {
            return self.begin_higher(page, used, pages);
        };
        let generation = Generation { around, above };
        self.set(page, Word::new(used, pages, generation));
        generation
    }

    #[cold]
    fn begin_higher(&self, page: u32, used: Use, pages: u32) -> Generation {
        let generation = Generation::of((self.generation(page) + 1) % (1 << GENERATION_BITS));
        self.high[page as usize].run.store(generation.around, Ordering::Relaxed);
        self.set(page, Word::new(used, pages, generation));
        generation
    }

    /// Records the new use of a page; the generation stays. For the holder of the page's owner.
    #[inline(always)]
    pub(super) fn turn(&self, page: u32, used: Use, pages: u32) {
        let above = self.word(page).above();
        self.set(page, Word::new(used, pages, Generation { around: 0, above }));
    }

    #[inline(always)]
    fn set(&self, page: u32, word: Word) {
        // Release pairs with the acquire of `word`.
        self.records[page as usize].word.store(word.0, Ordering::Release);
    }

    /// Sets the record as if `generation` runs had begun at the page, of which the last one is over.
    #[cfg(test)]
    pub(super) fn begun(&self, page: u32, generation: u64) {
        let generation = Generation::of(generation);
        self.high[page as usize].run.store(generation.around, Ordering::Relaxed);
        self.set(page, Word::new(Use::Nothing, 0, generation));
    }
}

impl Links for Table {
    #[inline(always)]
    fn link(&self, page: u32) -> &AtomicU64 {
        &self.records[page as usize].link
    }

    #[inline(always)]
    fn high(&self, page: u32) -> &AtomicU32 {
        &self.high[page as usize].claim
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table of {} pages", self.records.len())
    }
}
