//! Entries of the tree: holes, each with a note.
//!
//! The tree knows two forms of entry. In the form without notes (`()`) the holes are all there is, and two never touch.
//! In the form with a *tag* (`u32`) an area in use follows each hole but the last, the tag belongs to that area, and a
//! hole may be empty: the area then touches the one below. An area is not stored: it reaches from the end of its hole
//! to the start of the next.

use super::row::LANES;
use crate::ranges::Span;
use core::fmt::Debug;

/// The note that each hole carries in the tree: none (`()`), or the tag of the area behind the hole (`u32`).
pub(super) trait Note: Copy + Default + Debug {
    /// True if holes may be empty.
    const EMPTY_HOLES: bool;
    /// A full leaf shares its entries with a neighbour that has at most this many, before it splits.
    const ROOMY: usize;
    /// A leaf with at most this many entries looks for a neighbour to join, at each fourth count only: the look costs
    /// more than the removal.
    const FEW: usize;
    /// The slab of leaves grows by its own number of leaves divided by this, or more.
    const GROWTH: usize;
    /// The table of near leaves is sized for the number of leaves divided by this.
    const LEAVES_PER_GUESS: usize;

    /// Returns the lowest number at which a fence may stand behind a hole with this end: a hole behind the fence starts
    /// at or above it, one before the fence starts below it, even after the hole was cut at its left edge as far as
    /// possible.
    #[inline]
    fn behind(end: u64) -> u64 {
        if Self::EMPTY_HOLES { end + 1 } else { end }
    }
}

impl Note for () {
    const EMPTY_HOLES: bool = false;
    const ROOMY: usize = LANES * 3 / 4;
    const FEW: usize = LANES * 5 / 8;
    const GROWTH: usize = 8;
    const LEAVES_PER_GUESS: usize = 1;
}

/// With a tag an entry is half as large again, and there are more entries: sharing more is worth it.
impl Note for u32 {
    const EMPTY_HOLES: bool = true;
    const ROOMY: usize = 29;
    const FEW: usize = LANES * 3 / 4;
    const GROWTH: usize = 16;
    const LEAVES_PER_GUESS: usize = 2;
}

/// The numbers `start..end`; empty only where the form of the tree allows that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A hole and its note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<N> {
    pub(super) hole: Hole,
    pub(super) note: N,
}

impl Hole {
    #[inline]
    pub(super) fn known(start: u64, end: u64) -> Hole {
        debug_assert!(start <= end, "hole {start:#x}..{end:#x} is inverted");
        Hole { start, end }
    }

    #[inline]
    pub(super) fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns the whole hole, unless it is empty.
    #[inline]
    pub(super) fn whole(self) -> Option<Span> {
        Span::new(self.start, self.end).ok()
    }

    /// Returns the numbers that the hole shares with `span`, if any.
    #[inline]
    pub(super) fn intersection(self, span: Span) -> Option<Span> {
        Span::new(self.start.max(span.start()), self.end.min(span.end())).ok()
    }
}

impl From<Span> for Hole {
    #[inline]
    fn from(span: Span) -> Hole {
        Hole { start: span.start(), end: span.end() }
    }
}

impl From<Hole> for Span {
    /// Converts a hole that is not empty.
    #[inline]
    fn from(hole: Hole) -> Span {
        Span::known(hole.start, hole.end)
    }
}

impl From<Hole> for Entry<()> {
    #[inline]
    fn from(hole: Hole) -> Entry<()> {
        Entry { hole, note: () }
    }
}
