//! Upkeep of the maxima: each block knows the largest hole below each child.

use super::entry::Note;
use super::leaf::{NIL, saturated};
use super::row::{LANE_MAX, LANES};
use super::tree::{At, Node, Summary, Tree};

impl<N: Note> Tree<N> {
    /// Returns true if a change of a hole of this length, cut down to [`LANE_MAX`], concerns more than the plain
    /// maxima: true lengths, or alignment classes.
    #[inline]
    pub(super) fn needs_refresh(&self, length: u32) -> bool {
        length == LANE_MAX || !self.classes.exponents().is_empty()
    }

    /// Returns the length of the largest hole of `leaf`, as the block above notes it.
    #[inline]
    pub(super) fn largest_noted(&self, leaf: u32) -> u32 {
        let head = self.leaves.head(leaf);
        if head.parent == NIL {
            return self.top.lane;
        }
        self.inners.get(head.parent).largest.0[usize::from(head.slot) % LANES]
    }

    /// Notes that a hole of `leaf` has come in, or has grown to `length`.
    #[inline]
    pub(super) fn note_growth(&mut self, leaf: u32, length: u32) {
        let head = self.leaves.head(leaf);
        let (mut parent, mut slot) = (head.parent, usize::from(head.slot));
        while parent != NIL {
            let inner = self.inners.get_mut(parent);
            if length <= inner.largest.0[slot % LANES] {
                return;
            }
            inner.largest.0[slot % LANES] = length;
            (parent, slot) = (inner.parent, usize::from(inner.slot));
        }
        self.top.lane = self.top.lane.max(length);
    }

    /// Notes that the hole at `at`, of length `old`, is about to shrink to `new`; 0 means that it goes.
    #[inline]
    pub(super) fn note_loss(&mut self, at: At, old: u32, new: u32) {
        let head = self.leaves.head(at.leaf);
        let (mut parent, mut slot) = (head.parent, usize::from(head.slot));
        let known = if parent == NIL {
            self.top.lane
        } else {
            self.inners.get(parent).largest.0[slot % LANES]
        };
        if old < known {
            return;
        }
        let mut now = self.leaves.lengths(at.leaf).max_with(at.lane, new);
        while parent != NIL {
            let inner = self.inners.get(parent);
            let was = inner.largest.0[slot % LANES];
            if was == now {
                return;
            }
            let (above, its_slot) = (inner.parent, usize::from(inner.slot));
            let known = if above == NIL {
                self.top.lane
            } else {
                self.inners.get(above).largest.0[its_slot % LANES]
            };
            if was < known {
                self.inners.get_mut(parent).largest.0[slot % LANES] = now;
                return;
            }
            let largest = inner.largest.max_with(slot, now);
            self.inners.get_mut(parent).largest.0[slot % LANES] = now;
            (parent, slot, now) = (above, its_slot, largest);
        }
        self.top.lane = now;
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
