//! The usual case: one leaf changes, and what the blocks above it note of its largest hole.
//!
//! That is most requests without alignment and bounds, and most frees, in the form without areas. Each is one short
//! function over one leaf, in offsets and lengths of 32 bits; what it does not cover it leaves to the general way,
//! before it has changed anything. What is stored is stored last: a row that is looked at right behind a store waits
//! for it.

use super::entry::Hole;
use super::leaf::{WINDOW_BITS, offset_of, window_of};
use super::row::{LANE_MAX, LANES};
use super::search::DENSE_CANDIDATES;
use super::sizes::lanes;
use super::tree::{At, Node, Tree};
use crate::ranges::index::Rejection;
use crate::ranges::{Counters, OutOfMetadata, Span};

/// The holes with which a freed range has merged: true for the one before it, and for the one behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) before: bool,
    pub(super) after: bool,
}

impl Tree<()> {
    /// Cuts `size` numbers off the left edge of the first hole of at least that length; the tree has one. `None`, with
    /// nothing changed, as [`cut_left`](Self::cut_left) says.
    #[inline]
    pub(super) fn cut_first(&mut self, size: u32, counters: &mut Counters) -> Option<Span> {
        let (mut leaf, mut noted) = (self.root, self.top.lane);
        for _ in 0..self.height {
            let inner = self.inners.get(leaf);
            let slot = inner.largest.at_least(size).trailing_zeros() as usize % LANES;
            (leaf, noted) = (inner.child.0[slot], inner.largest.0[slot]);
        }
        let lane = self.leaves.lengths(leaf).at_least(size).trailing_zeros() as usize % LANES;
        counters.steps += u64::from(self.height) + 1;
        self.cut_left(At { leaf, lane }, noted, size, counters)
    }

    /// Cuts `size` numbers off the left edge of the smallest hole of at least that length, as the index by size tells
    /// sizes apart. `None`, with nothing changed, if there is none, or as [`cut_left`](Self::cut_left) says.
    #[inline(never)]
    pub(super) fn cut_smallest(&mut self, size: u32, counters: &mut Counters) -> Option<Span> {
        let sizes = self.sizes.as_ref()?;
        let found = sizes.next(&mut sizes.search(size), &self.leaves, counters)?;
        let lengths = self.leaves.lengths(found.leaf);
        let lane = match found.same_length() {
            true => found.lanes.trailing_zeros() as usize,
            false => lanes(found.lanes).min_by_key(|&lane| lengths.0[lane])?,
        };
        let at = At { leaf: found.leaf, lane: lane % LANES };
        self.cut_left(at, self.largest_noted(found.leaf), size, counters)
    }

    /// Cuts `size` numbers off the left edge of a small hole that starts at or below `limit`, or else of the first one
    /// that is long enough; the tree has one. `None`, with nothing changed, as [`cut_left`](Self::cut_left) says.
    #[inline(never)]
    pub(super) fn cut_dense(
        &mut self,
        size: u32,
        limit: u64,
        counters: &mut Counters,
    ) -> Option<Span> {
        let sizes = self.sizes.as_ref()?;
        let mut search = sizes.search(size);
        for _ in 0..DENSE_CANDIDATES {
            let Some(found) = sizes.next(&mut search, &self.leaves, counters) else { break };
            let at = At { leaf: found.leaf, lane: found.lanes.trailing_zeros() as usize % LANES };
            if self.leaves.start(at.leaf, at.lane) <= limit {
                return self.cut_left(at, self.largest_noted(at.leaf), size, counters);
            }
        }
        self.cut_first(size, counters)
    }

    /// Cuts `size` numbers off the left edge of a hole that is as long, in a leaf whose largest hole is `noted`.
    /// `None`, with nothing changed, if the hole would leave its window and there is no memory for that.
    #[inline(always)]
    fn cut_left(&mut self, at: At, noted: u32, size: u32, counters: &mut Counters) -> Option<Span> {
        let At { leaf, lane } = at;
        let (head, rows) = self.leaves.parts_mut(leaf);
        let (offset, was) = (rows.offsets.0[lane], rows.lengths.0[lane]);
        let (behind, rest) = (offset + size, was - size);
        if was == LANE_MAX || behind > LANE_MAX {
            return self.cut_left_long(at, size, counters);
        }
        let start = (head.window << WINDOW_BITS) + u64::from(offset);
        let span = Span::known(start, start + u64::from(size));
        let mut largest = noted;
        if was == noted {
            largest = rows.lengths.max_with(lane, rest);
            self.lower_leaf(leaf, largest);
        }
        if !self.classes.exponents().is_empty() {
            let end = start + u64::from(was);
            self.note_aligned_change(at, Hole::known(start, end), Hole::known(span.end(), end));
        }
        if rest == 0 {
            counters.fit_full += 1;
            self.remove_joined(at);
        } else {
            counters.fit_left_edge += 1;
            let (_, rows) = self.leaves.parts_mut(leaf);
            (rows.offsets.0[lane], rows.lengths.0[lane]) = (behind, rest);
            if let Some(sizes) = &mut self.sizes {
                sizes.change(leaf, (was, rest), Some(largest), &self.leaves);
            }
        }
        Some(span)
    }

    /// Does the same for a hole that is longer than its lane says, or would leave its window.
    #[cold]
    fn cut_left_long(&mut self, at: At, size: u32, counters: &mut Counters) -> Option<Span> {
        let hole = self.hole(at);
        let span = Span::known(hole.start, hole.start + u64::from(size));
        if span.end() == hole.end {
            self.remove(at);
        } else {
            self.cut_left_edge(at, Hole::known(span.end(), hole.end)).ok()?;
        }
        counters.note_cut(true, span.end() == hole.end);
        Some(span)
    }

    /// Shrinks a hole to `rest`, its right part.
    #[inline]
    pub(super) fn cut_left_edge(&mut self, at: At, rest: Hole) -> Result<(), OutOfMetadata> {
        if window_of(rest.start) == self.leaves.head(at.leaf).window {
            self.replace(at, rest);
        } else {
            self.reserve_insertion()?;
            self.remove(at);
            self.insert(rest.into());
        }
        Ok(())
    }

    /// Returns the place of `span`, which is not free, in the leaf that is guessed near: its leaf, and the number of
    /// the leaf's holes below it. `None` if it might touch a hole of another leaf.
    #[inline]
    pub(super) fn place_near(&self, span: Span) -> Option<At> {
        let leaf = self.near.leaf(span.start());
        if leaf as usize >= self.leaves.numbers() {
            return None;
        }
        let (head, rows) = self.leaves.parts(leaf);
        if window_of(span.start()) != head.window {
            return None;
        }
        let count = usize::from(head.count);
        let lane = rows.offsets.count_up_to(offset_of(span.start())).min(count);
        let at = At { leaf, lane };
        (lane > 0 && lane < count || self.is_apart(at, span)).then_some(at)
    }

    /// Returns true if `span`, before the first or behind the last hole of a leaf, belongs into the leaf and touches no
    /// hole of another one: holes of a leaf end at the fence behind it, or before.
    #[inline(never)]
    fn is_apart(&self, at: At, span: Span) -> bool {
        if self.leaves.count(at.leaf) == 0 {
            return false;
        }
        let in_window = window_of(span.end()) == self.leaves.head(at.leaf).window;
        let ends_here = in_window && offset_of(span.end()) < LANE_MAX;
        let mut node = Node { level: 0, number: at.leaf };
        while let Some((parent, slot)) = self.parent_of(node) {
            let inner = self.inners.get(parent);
            if at.lane == 0 && slot > 0 {
                return inner.fence(slot) < span.start();
            }
            if at.lane > 0 && slot + 1 < inner.count() {
                return ends_here && span.end() < inner.fence(slot + 1);
            }
            node = Node { level: node.level + 1, number: parent };
        }
        at.lane == 0 || ends_here
    }

    /// Frees `span` in the leaf, in whose window it starts, where it touches no hole of another leaf. Returns the holes
    /// with which it merged, or that it overlaps one.
    #[inline]
    pub(super) fn free_inside(&mut self, at: At, span: Span) -> Result<Merged, Rejection> {
        let At { leaf, lane } = at;
        let (head, rows) = self.leaves.parts(leaf);
        let entry = |lane: usize| (rows.offsets.0[lane], rows.lengths.0[lane]);
        let below = lane.checked_sub(1).map(|lane| At { leaf, lane });
        let (first, was) = below.map_or((0, 0), |below| entry(below.lane));
        // Behind the last hole the range ends below the last number of the window.
        let is_last = lane == usize::from(head.count);
        let (next, behind) = if is_last { (LANE_MAX, 0) } else { entry(lane) };
        let start = offset_of(span.start());
        let end = u64::from(start) + span.len();
        if first + was > start || u64::from(next) < end {
            return Err(Rejection::Overlap);
        }
        let length = span.len() as u32;
        let below = below.filter(|_| first + was == start);
        let after = u64::from(next) == end;
        match (below, after) {
            (_, true) if length + behind + below.map_or(0, |_| was) >= LANE_MAX => {
                self.join_long(at, span, below);
            }
            (Some(below), false) => self.grow(below, first, was + length),
            (None, true) => self.grow(at, start, length + behind),
            (Some(below), true) => {
                self.grow(below, first, was + length + behind);
                self.remove_joined(at);
            }
            (None, false) => {
                if self.leaves.is_full(leaf) {
                    self.reserve_insertion().map_err(|OutOfMetadata| Rejection::OutOfMetadata)?;
                }
                self.insert_at(at, Hole::from(span).into());
            }
        }
        Ok(Merged { before: below.is_some(), after })
    }

    /// Makes a hole longer, to a length that a lane holds. It starts in the leaf's window and keeps the order.
    #[inline]
    fn grow(&mut self, at: At, offset: u32, length: u32) {
        let At { leaf, lane } = at;
        if !self.classes.exponents().is_empty() {
            let start = self.leaves.start(leaf, lane)
                - u64::from(self.leaves.offsets(leaf).0[lane])
                + u64::from(offset);
            self.note_aligned_change(
                at,
                self.hole(at),
                Hole::known(start, start + u64::from(length)),
            );
        }
        self.raise_leaf(leaf, length);
        let (_, rows) = self.leaves.parts_mut(leaf);
        let was = rows.lengths.0[lane];
        (rows.offsets.0[lane], rows.lengths.0[lane]) = (offset, length);
        if let Some(sizes) = &mut self.sizes {
            sizes.change(leaf, (was, length), None, &self.leaves);
        }
    }

    /// Frees `span`, which touches the hole at `at` above it, and maybe the one below, where they together are longer
    /// than a lane says.
    #[cold]
    fn join_long(&mut self, at: At, span: Span, below: Option<At>) {
        let end = self.hole(at).end;
        if let Some(below) = below {
            self.replace(below, Hole::known(self.hole(below).start, end));
            self.remove_joined(at);
        } else {
            self.replace(at, Hole::known(span.start(), end));
        }
    }
}
