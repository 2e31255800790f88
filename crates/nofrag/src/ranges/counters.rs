//! Counters of the allocators. Plain fields: they belong to the owner and cost an increment.

/// Counts since construction; every field only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that got a range.
    pub allocs: u64,
    /// Calls of `free` that succeeded.
    pub frees: u64,
    /// Requests that found no range.
    pub misses: u64,
    /// Entries, nodes or blocks inspected by searches; the unit of "steps per search".
    pub steps: u64,
    /// Free ranges inspected that were large enough but could not hold the request aligned or inside its bounds.
    pub misfits: u64,
    /// Blocks of free ranges that a search came to because one of them was large enough, and left because none could
    /// hold the request. An alignment of which [`Index::WideBlocks`](super::Index::WideBlocks) has no class meets them.
    pub dead_ends: u64,
    /// Allocations that used a whole free range (FL).
    pub fit_full: u64,
    /// Allocations at the left edge of a free range (LE).
    pub fit_left_edge: u64,
    /// Allocations at the right edge of a free range (RE).
    pub fit_right_edge: u64,
    /// Allocations inside a free range, which split it (NE).
    pub fit_no_edge: u64,
    /// Freed ranges that touched no free range.
    pub merges_none: u64,
    /// Freed ranges that grew one free neighbour.
    pub merges_one: u64,
    /// Freed ranges that joined two free neighbours.
    pub merges_both: u64,
}

impl Counters {
    /// Counts an allocation by the edges of its free range that it touches.
    #[inline]
    pub(crate) fn note_cut(&mut self, at_left_edge: bool, at_right_edge: bool) {
        self.fit_full += u64::from(at_left_edge && at_right_edge);
        self.fit_left_edge += u64::from(at_left_edge && !at_right_edge);
        self.fit_right_edge += u64::from(!at_left_edge && at_right_edge);
        self.fit_no_edge += u64::from(!at_left_edge && !at_right_edge);
    }

    /// Counts a freed range by the free neighbours with which it merged.
    #[inline]
    pub(crate) fn note_merge(&mut self, with_previous: bool, with_next: bool) {
        self.merges_none += u64::from(!with_previous && !with_next);
        self.merges_one += u64::from(with_previous != with_next);
        self.merges_both += u64::from(with_previous && with_next);
    }
}
