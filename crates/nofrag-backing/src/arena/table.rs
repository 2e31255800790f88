//! One record for each page of an arena, so that a free is verified in O(1).

use std::alloc::{Layout, alloc_zeroed};
use std::fmt;

use super::atomic::{AtomicU64, Ordering};
use super::remote::Links;

/// An arena has fewer pages than this: lengths and links are that wide.
pub(super) const MOST_PAGES: u64 = 1 << 30;

/// What a page is, as far as runs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// No run begins here.
    Nothing,
    /// The first page of a run that is in use.
    Live,
    /// The first page of a lease: in use, and freed by its lease alone.
    Leased,
    /// The first page of a run that is parked in a bin.
    Parked,
}

/// What a record says: use, length of the run, and how often a run has begun at this page.
///
/// Bits 0 and 1 are the use, 2 to 31 the pages of the run (zero if none begins here), 32 to 63 the generation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    #[inline(always)]
    pub(super) fn new(used: Use, pages: u32, generation: u32) -> Word {
        Word(u64::from(generation) << 32 | u64::from(pages) << 2 | used as u64)
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

    #[inline(always)]
    pub(super) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} pages, generation {}", self.used(), self.pages(), self.generation())
    }
}

/// The record of a page.
///
/// 1. `word` is written by the holder of the owner of the page's block alone; anybody may read it.
/// 2. `link` is written by who claims it, until the holder takes it off the remote list.
#[derive(Debug)]
#[repr(C, align(16))]
struct Record {
    word: AtomicU64,
    link: AtomicU64,
}

/// The records of all pages. Memory for them comes when they are first written.
pub(super) struct Table(Box<[Record]>);

impl Table {
    /// Records of so many pages: no run begins anywhere, generation zero. `None` without memory for them.
    pub(super) fn new(pages: u32) -> Option<Table> {
        let layout = Layout::array::<Record>(pages as usize).ok()?;
        if layout.size() == 0 {
            return Some(Table(Box::new([])));
        }
        // SAFETY: the size is not zero, as was checked above.
        let first = unsafe { alloc_zeroed(layout) }.cast::<Record>();
        if first.is_null() {
            return None;
        }
        let records = std::ptr::slice_from_raw_parts_mut(first, pages as usize);
        // SAFETY: `alloc_zeroed` gave memory of exactly this layout, of which nobody else knows, and a record of
        // zeroes is one: two atomic words.
        Some(Table(unsafe { Box::from_raw(records) }))
    }

    #[inline(always)]
    pub(super) fn word(&self, page: u32) -> Word {
        // Relaxed: who may free a run has learnt of it from who allocated it, in whatever way; nothing else hangs on
        // the word (law 1).
        Word(self.0[page as usize].word.load(Ordering::Relaxed))
    }

    /// The holder of the page's owner says what it is now.
    #[inline(always)]
    pub(super) fn set(&self, page: u32, word: Word) {
        self.0[page as usize].word.store(word.0, Ordering::Relaxed);
    }
}

impl Links for Table {
    #[inline(always)]
    fn link(&self, page: u32) -> &AtomicU64 {
        &self.0[page as usize].link
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table of {} pages", self.0.len())
    }
}
