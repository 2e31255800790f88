//! Upkeep of the maxima: each block knows the largest hole below each child.
//!
//! There is one maximum for plain lengths, one for each alignment class, and a true length where a lane cannot hold it.
//! All follow a change of one hole in the same way. A maximum that rises is noted upwards until a block knows a larger
//! one. A hole that shrinks concerns its leaf's maximum only if it was the largest; then the leaf is looked through for
//! the largest that remains, and likewise each block above. So most changes look at no row at all.

use super::entry::{Hole, Note};
use super::inner::Inners;
use super::leaf::{NIL, saturated};
use super::row::{LANE_MAX, LANES, Row};
use super::sizes::lanes;
use super::tree::{At, Node, Summary, Tree};

/// One of the measures of holes of which blocks keep maxima.
trait Measure: Copy {
    /// Returns the maxima below each child of a block.
    fn row(self, inners: &Inners, block: u32) -> &Row;
    fn row_mut(self, inners: &mut Inners, block: u32) -> &mut Row;
    /// Returns the maximum of the whole tree.
    fn top(self, top: &Summary) -> u32;
    fn top_mut(self, top: &mut Summary) -> &mut u32;
}

/// Lengths, cut down to [`LANE_MAX`].
#[derive(Clone, Copy)]
struct Plain;

/// The sizes that this alignment class allows, cut down to [`LANE_MAX`].
#[derive(Clone, Copy)]
struct Class(usize);

impl Measure for Plain {
    #[inline(always)]
    fn row(self, inners: &Inners, block: u32) -> &Row {
        &inners.get(block).largest
    }

    #[inline(always)]
    fn row_mut(self, inners: &mut Inners, block: u32) -> &mut Row {
        &mut inners.get_mut(block).largest
    }

    #[inline(always)]
    fn top(self, top: &Summary) -> u32 {
        top.lane
    }

    #[inline(always)]
    fn top_mut(self, top: &mut Summary) -> &mut u32 {
        &mut top.lane
    }
}

impl Measure for Class {
    #[inline(always)]
    fn row(self, inners: &Inners, block: u32) -> &Row {
        inners.aligned(block, self.0)
    }

    #[inline(always)]
    fn row_mut(self, inners: &mut Inners, block: u32) -> &mut Row {
        inners.aligned_mut(block, self.0)
    }

    #[inline(always)]
    fn top(self, top: &Summary) -> u32 {
        top.aligned[self.0]
    }

    #[inline(always)]
    fn top_mut(self, top: &mut Summary) -> &mut u32 {
        &mut top.aligned[self.0]
    }
}

impl<N: Note> Tree<N> {
    /// Returns the length of the largest hole of `leaf`, as the block above notes it.
    #[inline]
    pub(super) fn largest_noted(&self, leaf: u32) -> u32 {
        let head = self.leaves.head(leaf);
        if head.parent == NIL {
            return self.top.lane;
        }
        self.inners.get(head.parent).largest.0[usize::from(head.slot) % LANES]
    }

    /// Notes that `leaf` has got `hole`.
    #[inline]
    pub(super) fn note_entry(&mut self, leaf: u32, hole: Hole) {
        if hole.len() < u64::from(LANE_MAX) {
            self.raise(Plain, leaf, hole.len() as u32);
        } else {
            self.raise_long(leaf, hole.len());
        }
        for class in 0..self.classes.exponents().len() {
            self.raise(Class(class), leaf, self.aligned_size(class, hole));
        }
    }

    /// Notes that the hole at `at`, which is `old`, is about to become `new`; an empty one if it goes.
    #[inline(always)]
    pub(super) fn note_change(&mut self, at: At, old: Hole, new: Hole) {
        let (was, is) = (old.len(), new.len());
        if was.max(is) >= u64::from(LANE_MAX) {
            self.note_long_change(at, was, is);
        } else if is < was {
            self.lower_plain(at, was as u32, is as u32);
        } else {
            self.raise(Plain, at.leaf, is as u32);
        }
        if !self.classes.exponents().is_empty() {
            self.note_aligned_change(at, old, new);
        }
    }

    #[inline]
    fn lower_plain(&mut self, at: At, was: u32, is: u32) {
        self.lower(Plain, at, was, |tree| tree.leaves.lengths(at.leaf).max_with(at.lane, is));
    }

    #[inline(never)]
    pub(super) fn note_aligned_change(&mut self, at: At, old: Hole, new: Hole) {
        for class in 0..self.classes.exponents().len() {
            let (was, is) = (self.aligned_size(class, old), self.aligned_size(class, new));
            if is < was {
                self.lower(Class(class), at, was, |tree| tree.leaf_aligned_with(at, class, is));
            } else if is > was {
                self.raise(Class(class), at.leaf, is);
            }
        }
    }

    #[cold]
    fn note_long_change(&mut self, at: At, was: u64, is: u64) {
        if is < was {
            self.lower_long(at, is);
        } else {
            self.raise_long(at.leaf, is);
        }
    }

    /// Returns the largest size that the alignment class allows in `hole`, cut down to [`LANE_MAX`].
    #[inline]
    fn aligned_size(&self, class: usize, hole: Hole) -> u32 {
        let padding = hole.start.wrapping_neg() & ((1 << self.classes.exponents()[class]) - 1);
        saturated(hole.len().saturating_sub(padding))
    }

    /// Notes that the largest hole of `leaf` falls to `length`.
    #[inline]
    pub(super) fn lower_leaf(&mut self, leaf: u32, length: u32) {
        self.lower_to(Plain, leaf, length);
    }

    /// Notes that a hole of `leaf` has now this length.
    #[inline]
    pub(super) fn raise_leaf(&mut self, leaf: u32, length: u32) {
        self.raise(Plain, leaf, length);
    }

    /// Notes that a hole of `leaf` now measures `value`.
    #[inline(always)]
    fn raise(&mut self, measure: impl Measure, leaf: u32, value: u32) {
        let head = self.leaves.head(leaf);
        let (mut parent, mut slot) = (head.parent, usize::from(head.slot));
        while parent != NIL {
            let noted = &mut measure.row_mut(&mut self.inners, parent).0[slot % LANES];
            if value <= *noted {
                return;
            }
            *noted = value;
            let inner = self.inners.get(parent);
            (parent, slot) = (inner.parent, usize::from(inner.slot));
        }
        let top = measure.top_mut(&mut self.top);
        *top = value.max(*top);
    }

    /// Notes that the hole at `at`, which measured `old`, will measure less; `remaining` finds the maximum that the
    /// leaf then has.
    #[inline(always)]
    fn lower(
        &mut self,
        measure: impl Measure,
        at: At,
        old: u32,
        remaining: impl FnOnce(&Tree<N>) -> u32,
    ) {
        let head = self.leaves.head(at.leaf);
        if old == self.noted(measure, head.parent, usize::from(head.slot)) {
            self.lower_to(measure, at.leaf, remaining(self));
        }
    }

    /// Notes that the largest measure in `leaf` falls to `now`.
    #[inline(always)]
    fn lower_to(&mut self, measure: impl Measure, leaf: u32, mut now: u32) {
        let head = self.leaves.head(leaf);
        let (mut parent, mut slot) = (head.parent, usize::from(head.slot));
        while parent != NIL {
            let row = measure.row(&self.inners, parent);
            let was = row.0[slot % LANES];
            if was == now {
                return;
            }
            let inner = self.inners.get(parent);
            let (above, its_slot) = (inner.parent, usize::from(inner.slot));
            if was < self.noted(measure, above, its_slot) {
                measure.row_mut(&mut self.inners, parent).0[slot % LANES] = now;
                return;
            }
            let largest = row.max_with(slot, now);
            measure.row_mut(&mut self.inners, parent).0[slot % LANES] = now;
            (parent, slot, now) = (above, its_slot, largest);
        }
        *measure.top_mut(&mut self.top) = now;
    }

    /// Returns the maximum that `parent` notes of its child in `slot`; of the root, that of the whole tree.
    #[inline(always)]
    fn noted(&self, measure: impl Measure, parent: u32, slot: usize) -> u32 {
        if parent == NIL {
            return measure.top(&self.top);
        }
        measure.row(&self.inners, parent).0[slot % LANES]
    }

    /// Returns the largest size that the class allows in `leaf`, as it will be once the hole at `at`, which allowed the
    /// largest, allows `size`.
    ///
    /// Another hole that is longer than its lane says lies last in the window, so it would allow more than any other
    /// one: its padding is no more than what lies behind its start, and no hole before it is as long as its offset.
    fn leaf_aligned_with(&self, at: At, class: usize, size: u32) -> u32 {
        let (lengths, offsets) = (self.leaves.lengths(at.leaf), self.leaves.offsets(at.leaf));
        let exponent = self.classes.exponents()[class];
        lengths.max_aligned_with(offsets, 1 << exponent, at.lane, size)
    }

    /// Notes that a hole of `leaf` has come in, or has grown, to a length that a lane cannot hold.
    #[cold]
    fn raise_long(&mut self, leaf: u32, length: u64) {
        let head = self.leaves.head(leaf);
        let (mut parent, mut slot) = (head.parent, usize::from(head.slot));
        while parent != NIL {
            let inner = self.inners.get_mut(parent);
            inner.largest.0[slot % LANES] = LANE_MAX;
            if length <= inner.long {
                return;
            }
            inner.long = length;
            (parent, slot) = (inner.parent, usize::from(inner.slot));
        }
        self.top.lane = LANE_MAX;
        self.top.long = self.top.long.max(length);
    }

    /// Notes that the hole at `at`, whose length a lane could not hold, is about to shrink to `new`.
    fn lower_long(&mut self, at: At, new: u64) {
        let head = self.leaves.head(at.leaf);
        let (mut parent, mut slot) = (head.parent, usize::from(head.slot));
        let mut lane = self.leaves.lengths(at.leaf).max_with(at.lane, saturated(new));
        // No other hole of the leaf is so long.
        let mut long = if lane == LANE_MAX { new } else { 0 };
        let mut level = 0;
        while parent != NIL {
            let inner = self.inners.get(parent);
            let largest = inner.largest.max_with(slot, lane);
            for other in lanes(inner.largest.equal_to(LANE_MAX) & !(1 << slot)) {
                long = long.max(self.long_below(level, inner.child.0[other]));
            }
            let inner = self.inners.get_mut(parent);
            inner.largest.0[slot % LANES] = lane;
            if inner.long == long {
                return;
            }
            inner.long = long;
            (level, lane) = (level + 1, largest);
            (parent, slot) = (inner.parent, usize::from(inner.slot));
        }
        (self.top.lane, self.top.long) = (lane, long);
    }

    /// Computes everything noted of the holes below `node` anew, because its entries have changed places.
    pub(super) fn resettle(&mut self, node: Node) {
        self.refresh(node);
        self.refresh_brackets(node);
    }

    /// Computes the summary of `node` anew, and of the blocks above it as far as that changes them.
    pub(super) fn refresh(&mut self, mut node: Node) {
        loop {
            let summary = self.summary_of(node);
            if node.level > 0 {
                self.inners.get_mut(node.number).long = summary.long;
            }
            let Some((parent, slot)) = self.parent_of(node) else {
                self.top = summary;
                return;
            };
            let noted = &mut self.inners.get_mut(parent).largest.0[slot];
            // Of a saturated maximum the true length may have changed.
            let mut changed = *noted != summary.lane || summary.lane == LANE_MAX;
            *noted = summary.lane;
            for class in 0..self.classes.exponents().len() {
                let noted = &mut self.inners.aligned_mut(parent, class).0[slot];
                changed |= *noted != summary.aligned[class];
                *noted = summary.aligned[class];
            }
            if !changed {
                return;
            }
            node = Node { level: node.level + 1, number: parent };
        }
    }

    pub(super) fn summary_of(&self, node: Node) -> Summary {
        if node.level == 0 { self.leaf_summary(node.number) } else { self.inner_summary(node) }
    }

    fn leaf_summary(&self, leaf: u32) -> Summary {
        let (lengths, offsets) = (self.leaves.lengths(leaf), self.leaves.offsets(leaf));
        let lane = lengths.max();
        let long = if lane == LANE_MAX { self.leaves.head(leaf).long } else { 0 };
        let mut aligned = [0; 4];
        for (largest, &exponent) in aligned.iter_mut().zip(self.classes.exponents()) {
            *largest = lengths.max_aligned(offsets, 1 << exponent);
            if lane == LANE_MAX {
                let last = offsets.0[self.leaves.count(leaf) - 1];
                let padding = last.wrapping_neg() & ((1 << exponent) - 1);
                *largest = saturated(long - u64::from(padding)).max(*largest);
            }
        }
        Summary { lane, long, aligned }
    }

    fn inner_summary(&self, node: Node) -> Summary {
        let inner = self.inners.get(node.number);
        let lane = inner.largest.max();
        let mut summary = Summary { lane, ..Summary::default() };
        if lane == LANE_MAX {
            for slot in 0..inner.count() {
                if inner.largest.0[slot] == LANE_MAX {
                    let child = inner.child.0[slot];
                    summary.long = summary.long.max(self.long_below(node.level - 1, child));
                }
            }
        }
        for class in 0..self.classes.exponents().len() {
            summary.aligned[class] = self.inners.aligned(node.number, class).max();
        }
        summary
    }

    /// Returns the true length of the largest hole below a block, where a lane cannot hold it.
    #[inline]
    pub(super) fn long_below(&self, level: u32, number: u32) -> u64 {
        if level == 0 { self.leaves.head(number).long } else { self.inners.get(number).long }
    }
}
