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

#[cfg(test)]
mod tests {
    use super::super::leaf::NIL;
    use super::super::tests::{PITCH, tree};
    use super::super::tree::BySize;
    use super::*;

    /// Checks that what `harm` does to a tree of `count` holes breaks this law and none before it.
    #[track_caller]
    fn check_harm_to<N: Note>(mut tree: Tree<N>, law: &str, harm: impl FnOnce(&mut Tree<N>)) {
        check(&tree).unwrap();
        harm(&mut tree);
        assert_eq!(check(&tree).unwrap_err().law, law);
    }

    #[track_caller]
    fn check_harm(count: u64, law: &str, harm: impl FnOnce(&mut Tree<()>)) {
        check_harm_to(tree(count, BySize::Bins), law, harm);
    }

    /// Returns the leaf and the block above in which `at` lies.
    fn place<N: Note>(tree: &Tree<N>, at: u64) -> (u32, u32) {
        let leaf = tree.leaf_for(at);
        (leaf, tree.leaves.head(leaf).parent)
    }

    #[test]
    fn a_tree_without_a_root_has_nothing() {
        check_harm(0, "no root, no hole", |tree| tree.holes = 1);
        check_harm(0, "no root, no maximum", |tree| tree.top.lane = 1);
    }

    #[test]
    fn counts_and_sums_of_the_whole_tree_are_recomputed() {
        check_harm(100, "the root has no parent", |tree| {
            let root = Node { level: tree.height, number: tree.root };
            tree.set_parent(root, 0, 0);
        });
        let top = "the top summary equals the recomputed one";
        check_harm(100, top, |tree| tree.top.lane += 1);
        check_harm(100, top, |tree| tree.top.aligned[0] += 1);
        check_harm(100, "the holes are counted", |tree| tree.holes += 1);
        check_harm(100, "no leaf is lost", |tree| {
            tree.leaves.reserve(1).unwrap();
            tree.leaves.take_vacant(0);
        });
        check_harm(100, "no block is lost", |tree| {
            tree.inners.reserve(1).unwrap();
            tree.inners.take_vacant();
        });
        let brackets = "the brackets noted for a block are those below it";
        let bracketed = |count| tree::<u32>(count, BySize::Brackets);
        check_harm_to(bracketed(100), brackets, |tree| tree.brackets ^= 1);
        check_harm_to(bracketed(2_000), brackets, |tree| {
            let (leaf, parent) = place(tree, PITCH * 1_000);
            let slot = usize::from(tree.leaves.head(leaf).slot);
            tree.inners.brackets_mut(parent).0[slot] ^= 1;
        });
    }

    #[test]
    fn the_root_alone_may_be_empty() {
        let mut empty = tree::<()>(1, BySize::Bins);
        let at = empty.entry_at(0).unwrap();
        empty.remove(at);
        assert_eq!((empty.height, empty.holes, empty.root == NIL), (0, 0, false));
        check(&empty).unwrap();
        check_harm(100, "only the root may be empty", |tree| {
            let (leaf, _) = place(tree, 0);
            tree.leaves.head_mut(leaf).count = 0;
        });
    }

    #[test]
    fn what_stands_in_a_leaf_is_looked_at() {
        let with = |law, harm: fn(&mut Tree<()>, u32)| {
            check_harm(100, law, |tree| {
                let (leaf, _) = place(tree, 0);
                harm(tree, leaf);
            });
        };
        let unused = LANES - 1;
        let filler = "unused lanes hold filler";
        check_harm(2, filler, |tree| tree.leaves.parts_mut(tree.root).1.lengths.0[unused] = 1);
        check_harm(2, filler, |tree| tree.leaves.parts_mut(tree.root).1.offsets.0[unused] = 99);
        with("a hole starts in its leaf's window", |tree, leaf| {
            tree.leaves.parts_mut(leaf).1.offsets.0[1] = LANE_MAX + 1;
        });
        with("only the last hole is long", |tree, leaf| {
            tree.leaves.parts_mut(leaf).1.lengths.0[1] = LANE_MAX;
        });
        with("holes ascend and never touch", |tree, leaf| {
            tree.leaves.set_length(leaf, 1, PITCH);
        });
        with("no hole is empty, unless the form allows it", |tree, leaf| {
            tree.leaves.set_length(leaf, 1, 0);
        });
        let binned = "a leaf stands in the bins of its holes and in no other";
        with(binned, |tree, leaf| tree.leaves.set_length(leaf, 1, 3));
        check_harm(100, "a vacant leaf stands in no bin", |tree| {
            tree.leaves.reserve(1).unwrap();
            let vacant = tree.leaves.take_vacant(0);
            tree.leaves.put_vacant(vacant);
            let sizes = tree.sizes.as_mut().unwrap();
            sizes.reserve(tree.leaves.numbers()).unwrap();
            sizes.add(vacant, 4);
        });
    }

    #[test]
    fn what_a_block_says_of_its_children_is_looked_at() {
        let with = |law, harm: fn(&mut Tree<()>, u32, usize)| {
            check_harm(100, law, |tree| {
                let (leaf, parent) = place(tree, PITCH * 50);
                let slot = usize::from(tree.leaves.head(leaf).slot);
                assert!(slot > 0);
                harm(tree, parent, slot);
            });
        };
        with("a block has children", |tree, parent, _| tree.inners.get_mut(parent).count = 0);
        with("a child knows its place", |tree, parent, slot| {
            let number = tree.inners.get(parent).child.0[slot];
            tree.set_parent(Node { level: 0, number }, parent, slot - 1);
        });
        with("what lies before a fence ends at or below it", |tree, parent, slot| {
            let before = tree.inners.get(parent).child.0[slot - 1];
            let last = tree.leaves.hole(before, tree.leaves.count(before) - 1);
            tree.inners.get_mut(parent).set_fence(slot, last.end - 1);
        });
        with("the fence of the first child is 0", |tree, parent, _| {
            let (first, second) = (&tree.inners.get(parent).child.0[0], 1);
            assert_ne!(tree.leaves.start(*first, second), 0);
            tree.inners.get_mut(parent).set_fence(0, 1);
        });
        with("what lies behind a fence starts at or above it", |tree, parent, slot| {
            let first = tree.leaves.start(tree.inners.get(parent).child.0[slot], 0);
            tree.inners.get_mut(parent).set_fence(slot, first + 1);
        });
        with("a child's maximum equals the recomputed one", |tree, parent, slot| {
            tree.inners.get_mut(parent).largest.0[slot] += 1;
        });
        let aligned = "a child's aligned maximum equals the recomputed one";
        with(aligned, |tree, parent, slot| tree.inners.aligned_mut(parent, 0).0[slot] += 1);
        let learned = "a leaf's learned maximum is no smaller than the recomputed one";
        with(learned, |tree, parent, slot| {
            tree.learned = 1;
            tree.inners.aligned_mut(parent, 0).0[slot] = 0;
        });
    }

    #[test]
    fn a_learned_maximum_of_a_leaf_may_be_too_large_and_that_of_a_block_may_not() {
        let mut some = tree::<()>(2_000, BySize::No);
        assert_eq!(some.height, 2);
        some.learned = 1;
        let (leaf, parent) = place(&some, PITCH * 1_000);
        let slot = usize::from(some.leaves.head(leaf).slot);
        // No larger than another one below the same block, so that nothing above changes.
        some.inners.aligned_mut(parent, 0).0[slot] = 3;
        let law = "a leaf's learned maximum is no smaller than the recomputed one";
        assert_eq!(check(&some).unwrap_err().law, law);
        some.inners.aligned_mut(parent, 0).0[slot] = 4;
        check(&some).unwrap();
        let root = some.root;
        some.inners.aligned_mut(root, 0).0[0] += 1;
        let law = "a child's aligned maximum equals the recomputed one";
        assert_eq!(check(&some).unwrap_err().law, law);
    }

    #[test]
    fn a_long_maximum_is_that_of_a_long_hole() {
        let law = "a child's long maximum equals the recomputed one";
        check_harm(2_000, law, |tree| {
            assert_eq!(tree.height, 2);
            let (_, parent) = place(tree, PITCH * 1_000);
            tree.inners.get_mut(parent).long = u64::from(LANE_MAX);
        });
    }
}
