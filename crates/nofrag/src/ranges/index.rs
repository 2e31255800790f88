//! The interface that the three index designs share.

use super::{Counters, OutOfMetadata, Request, Span};
use crate::check::Violation;
use crate::errors::turns_into;

/// Reason why an index did not hand out a range. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No place was found by the design's rule, or the given range is not wholly free.
    NoFit,
    /// The design does not offer the fit.
    FitNotIndexed,
    /// No memory for the records of the change.
    OutOfMetadata,
}

/// Reason why an index did not accept a free range. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// A part of the range is free already.
    Overlap,
    /// No memory for the records of the change.
    OutOfMetadata,
}

/// An index of holes. The request has been validated: its size is positive and its alignment a power of two.
///
/// Each method changes everything or nothing, and reserves the memory it needs before its first change.
pub(crate) trait FreeIndex {
    /// Learns that the space has got `span`: all that is free lies in what this has named.
    fn extend_space(&mut self, _span: Span) {}

    /// Finds a place by the design's rule and takes it; for [`Fit::Dynamic`](super::Fit::Dynamic) preferably below
    /// `limit`.
    fn alloc(
        &mut self,
        request: &Request,
        limit: u64,
        counters: &mut Counters,
    ) -> Result<Span, Refusal>;

    /// Takes exactly `span`, if it is wholly free.
    fn take(&mut self, span: Span, counters: &mut Counters) -> Result<(), Refusal>;

    /// Adds `span`, no part of which is free, and merges it with the holes that it touches.
    fn give(&mut self, span: Span, counters: &mut Counters) -> Result<(), Rejection>;

    /// Returns the lowest hole that ends above `at`: the one that holds `at`, else the next one. O(log n).
    fn hole_from(&self, at: u64) -> Option<Span>;

    /// Returns the highest hole that starts below `end`. O(log n); this default, for a design that keeps no holes,
    /// bisects the numbers with at most 65 calls of [`hole_from`](Self::hole_from).
    fn hole_below(&self, end: u64) -> Option<Span> {
        let starts_below = |at: u64| self.hole_from(at).filter(|hole| hole.start() < end);
        let mut best = starts_below(0)?;
        let (mut low, mut high) = (best.start(), end);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match starts_below(middle) {
                Some(hole) => (best, low) = (hole, middle.max(hole.start())),
                None => high = middle,
            }
        }
        Some(best)
    }

    /// Returns the size of the largest hole; zero when nothing is free.
    fn largest(&self) -> u64;

    /// Returns the largest size that a range aligned to `align` can have in some hole; 0 if there is none.
    fn largest_aligned(&self, align: u64) -> u64 {
        largest_by_scan(self, align)
    }

    fn holes(&self) -> usize;

    /// Makes room for the records of `holes` holes in all: while there are no more, no operation fails for memory.
    fn reserve(&mut self, holes: usize) -> Result<(), OutOfMetadata>;

    /// Gives back the memory of records that are not in use. A design without spare records has nothing to give.
    fn shrink(&mut self) -> Result<(), OutOfMetadata> {
        Ok(())
    }

    /// Returns the bytes of memory that the records hold, spare room included.
    fn metadata_bytes(&self) -> usize;

    fn check(&self) -> Result<(), Violation>;
}

turns_into! {
    OutOfMetadata => Refusal::OutOfMetadata,
    OutOfMetadata => Rejection::OutOfMetadata,
}

/// Returns the largest size that a range aligned to `align` can have in some hole, by a look at each hole; 0 if there
/// is none.
pub(crate) fn largest_by_scan<I: FreeIndex + ?Sized>(index: &I, align: u64) -> u64 {
    let mut largest = 0;
    let mut from = 0;
    while let Some(hole) = index.hole_from(from) {
        largest = largest.max(aligned_len(hole, align));
        from = hole.end();
    }
    largest
}

/// Returns the largest size that a range aligned to `align` can have in `hole`; 0 if there is none.
pub(crate) fn aligned_len(hole: Span, align: u64) -> u64 {
    let start = hole.start().checked_next_multiple_of(align);
    start.map_or(0, |start| hole.end().saturating_sub(start))
}
