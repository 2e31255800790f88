//! The tree: its parts, and the ways to find a number or a neighbour in it.

use super::entry::{Hole, Note};
use super::inner::Inners;
use super::leaf::{Leaves, NIL};
use super::near::Near;
use super::row::{LANE_MAX, LANES};
use super::sizes::SizeBins;
use crate::ranges::AlignClasses;

/// The place of a hole: the number of its leaf, and its lane there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) leaf: u32,
    pub(super) lane: usize,
}

/// A block at a level: leaves are at level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) level: u32,
    pub(super) number: u32,
}

/// Maxima over all holes below a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// The length of the largest hole, cut down to [`LANE_MAX`] as in a lane.
    pub(super) lane: u32,
    /// The true length of the largest hole; kept only while `lane` is [`LANE_MAX`].
    pub(super) long: u64,
    /// For each alignment class the largest size that fits aligned, cut down as `lane` is.
    pub(super) aligned: [u32; 4],
}

/// The tree of holes, each with a note of type `N`.
#[derive(Debug)]
pub(super) struct Tree<N> {
    pub(super) leaves: Leaves<N>,
    pub(super) inners: Inners,
    /// A leaf if `height` is 0, else an inner block; [`NIL`] before the first hole.
    pub(super) root: u32,
    /// Levels of inner blocks above the leaves.
    pub(super) height: u32,
    pub(super) holes: usize,
    pub(super) top: Summary,
    /// Those of the configuration, and those that were learned.
    pub(super) classes: AlignClasses,
    /// The numbers of the learned classes, as a bit mask.
    pub(super) learned: u8,
    pub(super) sizes: Option<SizeBins>,
    /// The set of brackets in which holes of the whole tree fall, one bit each; 0 if brackets are not kept.
    pub(super) brackets: u64,
    pub(super) near: Near,
}

/// The index that finds holes by their lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BySize {
    No,
    /// By fine bins without order (`sizes`).
    Bins,
    /// By coarse brackets in address order (`brackets`).
    Brackets,
}

impl<N: Note> Tree<N> {
    pub(super) fn new(classes: AlignClasses, by_size: BySize) -> Tree<N> {
        Tree {
            leaves: Leaves::default(),
            inners: Inners::new(classes.exponents().len(), by_size),
            root: NIL,
            height: 0,
            holes: 0,
            top: Summary::default(),
            classes,
            learned: 0,
            sizes: (by_size == BySize::Bins).then(SizeBins::new),
            brackets: 0,
            near: Near::default(),
        }
    }

    /// Returns the place of a free range that starts at `at`: its leaf, and the number of the leaf's holes that start
    /// at or below it.
    #[inline]
    pub(super) fn place_of(&mut self, at: u64) -> At {
        let leaf = self.leaf_beside(at).unwrap_or_else(|| self.leaf_for(at));
        self.near.note(at, leaf);
        At { leaf, lane: self.leaves.count_up_to(leaf, at) }
    }

    /// Returns the leaf whose fences enclose `at`, if it is the one that the table of near leaves names, or one beside
    /// that, and the block above tells.
    fn leaf_beside(&self, at: u64) -> Option<u32> {
        let near = self.near.leaf(at);
        if (near as usize) >= self.leaves.numbers() || self.leaves.count(near) == 0 {
            return None;
        }
        let (parent, slot) = self.parent_of(Node { level: 0, number: near })?;
        let inner = self.inners.get(parent);
        let lies_behind = |slot: usize| slot == 0 || inner.fence(slot) <= at;
        let last = inner.count() - 1;
        let slot = if !lies_behind(slot) {
            slot - 1
        } else if slot < last && lies_behind(slot + 1) {
            slot + 1
        } else {
            slot
        };
        let is_inside = 0 < slot && slot < last || parent == self.root;
        let is_enclosed = lies_behind(slot) && (slot == last || !lies_behind(slot + 1));
        (is_inside && is_enclosed).then(|| inner.child.0[slot % LANES])
    }

    pub(super) fn largest(&self) -> u64 {
        if self.top.lane == LANE_MAX { self.top.long } else { u64::from(self.top.lane) }
    }

    /// Returns the largest size that fits aligned to `align`, if the maxima of the whole tree tell: without alignment,
    /// or for a class while that size is below [`LANE_MAX`].
    pub(super) fn known_largest(&self, align: u64) -> Option<u64> {
        if align == 1 {
            return Some(self.largest());
        }
        let exponent = align.trailing_zeros();
        let class = self.classes.exponents().iter().position(|&own| u32::from(own) == exponent)?;
        let class = Some(class).filter(|&class| !self.is_learned(class))?;
        let largest = self.top.aligned[class];
        (largest < LANE_MAX).then_some(u64::from(largest))
    }

    /// Returns the leaf whose fences enclose `at`; there is a root.
    #[inline]
    pub(super) fn leaf_for(&self, at: u64) -> u32 {
        let mut number = self.root;
        for _ in 0..self.height {
            let inner = self.inners.get(number);
            number = inner.child.0[inner.slot_of(at)];
        }
        number
    }

    /// Returns the last hole that starts at or below `at`.
    #[inline]
    pub(super) fn entry_at(&self, at: u64) -> Option<At> {
        let near = self.near.leaf(at);
        if (near as usize) < self.leaves.numbers() {
            let lane = self.leaves.count_up_to(near, at);
            // The last hole of a leaf holds numbers up to its end; a number above that may be the next leaf's.
            let is_sure = |lane: usize| {
                lane + 1 < self.leaves.count(near) || at <= self.leaves.hole(near, lane).end
            };
            if let Some(lane) = lane.checked_sub(1).filter(|&lane| is_sure(lane)) {
                return Some(At { leaf: near, lane });
            }
        }
        if self.root == NIL {
            return None;
        }
        let leaf = self.leaf_for(at);
        match self.leaves.count_up_to(leaf, at) {
            0 => self.last_before(leaf),
            count => Some(At { leaf, lane: count - 1 }),
        }
    }

    /// Returns the same as [`entry_at`](Self::entry_at), without a descent if `guess` is right; it may be stale.
    #[inline]
    pub(super) fn entry_near(&self, at: u64, guess: At) -> Option<At> {
        if (guess.leaf as usize) < self.leaves.numbers()
            && guess.lane < self.leaves.count(guess.leaf)
        {
            let hole = self.hole(guess);
            if hole.start <= at && at <= hole.end {
                return Some(guess);
            }
        }
        self.entry_at(at)
    }

    /// Returns the lowest hole that ends above `at`.
    pub(super) fn locate(&self, at: u64) -> Option<At> {
        if self.root == NIL {
            return None;
        }
        let leaf = self.leaf_for(at);
        let lane = self.leaves.count_up_to(leaf, at);
        let before = match lane {
            0 => self.last_before(leaf),
            lane => Some(At { leaf, lane: lane - 1 }),
        };
        match before {
            Some(before) if self.hole(before).end > at => Some(before),
            _ if lane < self.leaves.count(leaf) => Some(At { leaf, lane }),
            _ => self.first_after(leaf),
        }
    }

    /// Returns the highest hole that starts below `end`.
    pub(super) fn last_below(&self, end: u64) -> Option<At> {
        if self.root == NIL {
            return None;
        }
        let last = end.checked_sub(1)?;
        let leaf = self.leaf_for(last);
        match self.leaves.count_up_to(leaf, last) {
            0 => self.last_before(leaf),
            count => Some(At { leaf, lane: count - 1 }),
        }
    }

    /// Returns the place behind the last hole; `None` before the first hole.
    #[inline]
    pub(super) fn end(&self) -> Option<At> {
        let mut number = self.root;
        for _ in 0..self.height {
            let inner = self.inners.get(number);
            number = inner.child.0[(inner.count() - 1) % LANES];
        }
        (number != NIL).then(|| At { leaf: number, lane: self.leaves.count(number) })
    }

    /// Returns the last hole.
    #[inline]
    pub(super) fn last(&self) -> Option<(At, Hole)> {
        let At { leaf, lane } = self.end()?;
        let at = At { leaf, lane: lane.checked_sub(1)? };
        Some((at, self.hole(at)))
    }

    #[inline]
    pub(super) fn hole(&self, at: At) -> Hole {
        self.leaves.hole(at.leaf, at.lane)
    }

    #[inline]
    pub(super) fn note(&self, at: At) -> N {
        self.leaves.note(at.leaf, at.lane)
    }

    #[inline]
    pub(super) fn set_note(&mut self, at: At, note: N) {
        self.leaves.set_note(at.leaf, at.lane, note);
    }

    /// Returns the bytes of memory that the tree takes, spare room included.
    pub(super) fn bytes(&self) -> usize {
        let sizes = self.sizes.as_ref().map_or(0, SizeBins::bytes);
        self.leaves.bytes() + self.inners.bytes() + self.near.bytes() + sizes
    }

    /// Returns the first hole of the leaf that follows `leaf`.
    pub(super) fn first_after(&self, leaf: u32) -> Option<At> {
        let mut node = Node { level: 0, number: leaf };
        loop {
            let (parent, slot) = self.parent_of(node)?;
            let inner = self.inners.get(parent);
            if slot + 1 < inner.count() {
                let mut number = inner.child.0[slot + 1];
                for _ in 0..node.level {
                    number = self.inners.get(number).child.0[0];
                }
                return Some(At { leaf: number, lane: 0 });
            }
            node = Node { level: node.level + 1, number: parent };
        }
    }

    /// Returns the last hole of the leaf that precedes `leaf`.
    pub(super) fn last_before(&self, leaf: u32) -> Option<At> {
        let mut node = Node { level: 0, number: leaf };
        loop {
            let (parent, slot) = self.parent_of(node)?;
            if slot > 0 {
                let mut number = self.inners.get(parent).child.0[slot - 1];
                for _ in 0..node.level {
                    let inner = self.inners.get(number);
                    number = inner.child.0[inner.count() - 1];
                }
                return Some(At { leaf: number, lane: self.leaves.count(number) - 1 });
            }
            node = Node { level: node.level + 1, number: parent };
        }
    }

    /// Moves the fence behind `leaf` up to the end of its last hole, if that reaches beyond.
    ///
    /// Without this, a hole that is later cut at its left edge could come to start behind its own leaf's fence.
    pub(super) fn fence_in(&mut self, leaf: u32) {
        let count = self.leaves.count(leaf);
        if count == 0 {
            return;
        }
        let end = self.leaves.hole(leaf, count - 1).end;
        self.move_fence_behind(leaf, |fence| fence.max(N::behind(end)));
    }

    /// Moves the fence behind `leaf`, if there is one, to the number that `place` computes from its present one.
    pub(super) fn move_fence_behind(&mut self, leaf: u32, place: impl Fn(u64) -> u64) {
        let mut node = Node { level: 0, number: leaf };
        while let Some((parent, slot)) = self.parent_of(node) {
            let inner = self.inners.get_mut(parent);
            if slot + 1 < inner.count() {
                let fence = place(inner.fence(slot + 1));
                return inner.set_fence(slot + 1, fence);
            }
            node = Node { level: node.level + 1, number: parent };
        }
    }

    /// Returns the inner block above `node` and the slot in it; none above the root.
    pub(super) fn parent_of(&self, node: Node) -> Option<(u32, usize)> {
        let (parent, slot) = if node.level == 0 {
            let head = self.leaves.head(node.number);
            (head.parent, head.slot)
        } else {
            let inner = self.inners.get(node.number);
            (inner.parent, inner.slot)
        };
        (parent != NIL).then_some((parent, usize::from(slot)))
    }

    pub(super) fn set_parent(&mut self, node: Node, parent: u32, slot: usize) {
        if node.level == 0 {
            let head = self.leaves.head_mut(node.number);
            (head.parent, head.slot) = (parent, slot as u8);
        } else {
            let inner = self.inners.get_mut(node.number);
            (inner.parent, inner.slot) = (parent, slot as u8);
        }
    }

    /// Tells the children of `parent`, which are at `level`, their places, from slot `from` on.
    pub(super) fn renumber(&mut self, level: u32, parent: u32, from: usize) {
        for slot in from..self.inners.get(parent).count() {
            let number = self.inners.get(parent).child.0[slot];
            self.set_parent(Node { level, number }, parent, slot);
        }
    }
}

impl<N: Note> Tree<N> {
    /// Returns the summary of a block, computed from its rows.
    pub(super) fn summary_at(&self, level: u32, number: u32) -> Summary {
        self.summary_of(Node { level, number })
    }

    /// Returns the parent and slot that a block believes it has.
    pub(super) fn believed_parent(&self, level: u32, number: u32) -> Option<(u32, usize)> {
        self.parent_of(Node { level, number })
    }
}
