//! The laws of the tree, each recomputed from the rows.

use super::brackets;
use super::entry::Note;
use super::row::{LANE_MAX, LANES};
use super::tree::{Node, Summary, Tree};
use crate::check::Violation;
use crate::lists::put;
use alloc::vec::Vec;

/// Verifies the laws of a tree, which may have no root.
pub(super) fn check<N: Note>(tree: &Tree<N>) -> Result<(), Violation> {
    if tree.root == super::leaf::NIL {
        Violation::unless_equal("no root, no hole", 0, 0, tree.holes as u64)?;
        return Violation::unless("no root, no maximum", 0, tree.top == Summary::default());
    }
    let mut walk = Walk { tree, previous_end: None, holes: 0, leaves: 0, inners: 0 };
    Violation::unless(
        "the root has no parent",
        0,
        tree.believed_parent(tree.height, tree.root).is_none(),
    )?;
    let summary = walk.visit(tree.height, tree.root)?;
    Violation::unless("the top summary equals the recomputed one", 0, summary == tree.top)?;
    Violation::unless_equal("the holes are counted", 0, walk.holes, tree.holes as u64)?;
    Violation::unless_equal("no leaf is lost", 0, walk.leaves, tree.leaves.in_use() as u64)?;
    Violation::unless_equal("no block is lost", 0, walk.inners, tree.inners.in_use() as u64)?;
    check_sizes(tree)
}

struct Walk<'a, N> {
    tree: &'a Tree<N>,
    previous_end: Option<u64>,
    holes: u64,
    leaves: u64,
    inners: u64,
}

impl<N: Note> Walk<'_, N> {
    fn visit(&mut self, level: u32, number: u32) -> Result<Summary, Violation> {
        brackets::check(self.tree, Node { level, number })?;
        if level == 0 { self.visit_leaf(number) } else { self.visit_inner(level, number) }
    }

    fn visit_leaf(&mut self, leaf: u32) -> Result<Summary, Violation> {
        let leaves = &self.tree.leaves;
        let at = u64::from(leaf);
        let count = leaves.count(leaf);
        self.leaves += 1;
        Violation::unless("only the root may be empty", at, count > 0 || self.tree.height == 0)?;
        for lane in 0..LANES {
            let length = leaves.lengths(leaf).0[lane];
            if lane >= count {
                let filler = length == 0 && leaves.offsets(leaf).0[lane] == LANE_MAX;
                Violation::unless("unused lanes hold filler", at, filler)?;
                continue;
            }
            let offset = leaves.offsets(leaf).0[lane];
            Violation::unless("a hole starts in its leaf's window", at, offset <= LANE_MAX)?;
            let last = lane + 1 == count;
            Violation::unless("only the last hole is long", at, length < LANE_MAX || last)?;
            let hole = leaves.hole(leaf, lane);
            let apart = self.previous_end.is_none_or(|end| end < hole.start);
            Violation::unless("holes ascend and never touch", hole.start, apart)?;
            let empty = length == 0 && !N::EMPTY_HOLES;
            Violation::unless("no hole is empty, unless the form allows it", hole.start, !empty)?;
            self.previous_end = Some(hole.end);
            self.holes += 1;
        }
        Ok(self.tree.summary_at(0, leaf))
    }

    fn visit_inner(&mut self, level: u32, number: u32) -> Result<Summary, Violation> {
        let tree = self.tree;
        let inner = tree.inners.get(number);
        let at = u64::from(number);
        self.inners += 1;
        Violation::unless("a block has children", at, inner.count() > 0)?;
        for slot in 0..inner.count() {
            let child = inner.child.0[slot];
            let believed = tree.believed_parent(level - 1, child);
            Violation::unless("a child knows its place", at, believed == Some((number, slot)))?;
            let fence = inner.fence(slot);
            let apart = slot == 0 || self.previous_end.is_none_or(|end| N::behind(end) <= fence);
            Violation::unless("what lies before a fence ends at or below it", fence, apart)?;
            let zero = slot > 0 || fence == 0;
            Violation::unless("the fence of the first child is 0", fence, zero)?;
            let first = first_start(tree, level - 1, child);
            Violation::unless(
                "what lies behind a fence starts at or above it",
                fence,
                slot == 0 || fence <= first,
            )?;
            let summary = self.visit(level - 1, child)?;
            let noted = inner.largest.0[slot];
            let law = "a child's maximum equals the recomputed one";
            Violation::unless_equal(law, at, u64::from(summary.lane), u64::from(noted))?;
            // What a leaf keeps there means nothing while its lane holds the length.
            let kept = level > 1 || summary.lane == LANE_MAX;
            let long = !kept || tree.long_below(level - 1, child) == summary.long;
            Violation::unless("a child's long maximum equals the recomputed one", at, long)?;
            for class in 0..tree.classes.exponents().len() {
                let noted = tree.inners.aligned(number, class).0[slot];
                let recomputed = summary.aligned[class];
                if level == 1 && tree.is_learned(class) {
                    let law = "a leaf's learned maximum is no smaller than the recomputed one";
                    Violation::unless(law, at, noted >= recomputed)?;
                    continue;
                }
                let law = "a child's aligned maximum equals the recomputed one";
                Violation::unless_equal(law, at, u64::from(recomputed), u64::from(noted))?;
            }
        }
        Ok(tree.summary_at(level, number))
    }
}

fn first_start<N: Note>(tree: &Tree<N>, level: u32, mut number: u32) -> u64 {
    for _ in 0..level {
        number = tree.inners.get(number).child.0[0];
    }
    tree.leaves.start(number, 0)
}

fn check_sizes<N: Note>(tree: &Tree<N>) -> Result<(), Violation> {
    let Some(sizes) = &tree.sizes else { return Ok(()) };
    let mut in_use: Vec<bool> = Vec::new();
    if in_use.try_reserve_exact(tree.leaves.numbers()).is_err() {
        // No law is known to be broken.
        return Ok(());
    }
    for leaf in 0..tree.leaves.numbers() as u32 {
        let used = tree.leaves.count(leaf) > 0;
        put(&mut in_use, used);
        if used {
            sizes.check_leaf(leaf, tree.leaves.lengths(leaf))?;
        }
    }
    sizes.check_words(&in_use)?;
    sizes.check_longest(&tree.leaves)
}
