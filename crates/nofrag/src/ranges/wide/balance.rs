//! Splits and joins of blocks, and the places of their fences and slots.

use super::entry::Note;
use super::leaf::NIL;
use super::row::{LANES, Row};
use super::tree::{Node, Tree};

/// An inner block with fewer entries looks for a neighbour to join; for leaves see [`Note::FEW`].
pub(super) const FEW: usize = LANES * 5 / 8;
/// Two neighbours join if together they have at most this many entries, so that the joined one does not split at once.
const JOINED: usize = LANES - 2;

impl<N: Note> Tree<N> {
    /// Makes `fresh` the right neighbour of `node`, with `fence` between them.
    pub(super) fn attach_after(&mut self, node: Node, fresh: u32, fence: u64) {
        let Some((parent, _)) = self.parent_of(node) else {
            return self.grow_root(node, fresh, fence);
        };
        if self.inners.get(parent).count() == LANES {
            self.split_inner(node.level + 1, parent);
        }
        let (parent, slot) = self.parent_of(node).expect("a split leaves no block without parent");
        self.inners.get_mut(parent).insert(slot + 1, fresh, fence);
        for class in 0..self.classes.exponents().len() {
            self.inners.aligned_mut(parent, class).insert(slot + 1, 0);
        }
        if self.has_brackets() {
            self.inners.brackets_mut(parent).insert(slot + 1, 0);
        }
        self.renumber(node.level, parent, slot + 1);
    }

    /// Puts a new root above the old one, `node`, and its new neighbour.
    fn grow_root(&mut self, node: Node, fresh: u32, fence: u64) {
        let root = self.inners.take_vacant();
        let inner = self.inners.get_mut(root);
        inner.insert(0, node.number, 0);
        inner.insert(1, fresh, fence);
        self.root = root;
        self.height += 1;
        self.renumber(node.level, root, 0);
        self.resettle(node);
        self.resettle(Node { number: fresh, ..node });
    }

    fn split_inner(&mut self, level: u32, block: u32) {
        let middle = LANES / 2;
        let fresh = self.inners.take_vacant();
        let fence = self.inners.get(block).fence(middle);
        let (left, right) = self.inners.pair_mut(block, fresh);
        left.split_into(middle, right);
        for class in 0..self.classes.exponents().len() {
            let upper = self.inners.aligned_mut(block, class).split_off(middle, 0);
            *self.inners.aligned_mut(fresh, class) = upper;
        }
        if self.has_brackets() {
            let upper = self.inners.brackets_mut(block).split_off(middle, 0);
            *self.inners.brackets_mut(fresh) = upper;
        }
        self.renumber(level - 1, fresh, 0);
        self.attach_after(Node { level, number: block }, fresh, fence);
        self.resettle(Node { level, number: block });
        self.resettle(Node { level, number: fresh });
    }

    /// Takes a block without entries, which is not the root, out of its parent.
    pub(super) fn detach(&mut self, node: Node) {
        let (parent, slot) = self.parent_of(node).expect("only the root has no parent");
        self.inners.get_mut(parent).remove(slot);
        for class in 0..self.classes.exponents().len() {
            self.inners.aligned_mut(parent, class).remove(slot, 0);
        }
        if self.has_brackets() {
            self.inners.brackets_mut(parent).remove(slot, 0);
        }
        self.renumber(node.level, parent, slot);
        if node.level == 0 {
            self.leaves.put_vacant(node.number);
        } else {
            self.inners.put_vacant(node.number);
        }
        let above = Node { level: node.level + 1, number: parent };
        match self.inners.get(parent).count() {
            0 => self.detach(above),
            1 if parent == self.root => self.shrink_root(),
            count => {
                self.resettle(above);
                if count < FEW {
                    self.join_neighbour(above);
                }
            }
        }
    }

    /// Takes root blocks away while they have one child only.
    fn shrink_root(&mut self) {
        while self.height > 0 && self.inners.get(self.root).count() == 1 {
            let old = self.root;
            self.root = self.inners.get(old).child.0[0];
            self.height -= 1;
            self.set_parent(Node { level: self.height, number: self.root }, NIL, 0);
            self.inners.get_mut(old).count = 0;
            self.inners.put_vacant(old);
        }
        self.resettle(Node { level: self.height, number: self.root });
    }

    /// Joins a block that has become small with a neighbour below the same parent, if one is small enough.
    pub(super) fn join_neighbour(&mut self, node: Node) {
        let Some((parent, slot)) = self.parent_of(node) else { return };
        let inner = self.inners.get(parent);
        let right = (slot + 1 < inner.count()).then(|| (slot, slot + 1));
        let left = slot.checked_sub(1).map(|left| (left, slot));
        for (left, right) in [right, left].into_iter().flatten() {
            let inner = self.inners.get(parent);
            let (one, other) = (inner.child.0[left], inner.child.0[right]);
            if self.can_join(node.level, one, other) {
                let fence = inner.fence(right);
                return self.join(node.level, one, other, fence);
            }
        }
    }

    fn can_join(&self, level: u32, left: u32, right: u32) -> bool {
        if level == 0 {
            let (one, other) = (self.leaves.head(left), self.leaves.head(right));
            one.window == other.window && usize::from(one.count + other.count) <= JOINED
        } else {
            self.inners.get(left).count() + self.inners.get(right).count() <= JOINED
        }
    }

    /// Moves all entries of `right` into its left neighbour.
    fn join(&mut self, level: u32, left: u32, right: u32, fence: u64) {
        if level == 0 {
            let own = self.leaves.count(left);
            self.leaves.join(left, right);
            if let Some(sizes) = &mut self.sizes {
                for &length in &self.leaves.lengths(left).0[own..self.leaves.count(left)] {
                    sizes.add(left, length);
                    sizes.remove(right, length, &Row::filled(0), &self.leaves);
                }
            }
        } else {
            let own = self.inners.get(left).count();
            let more = self.inners.get(right).count();
            // Below a first slot holes may have come in under the slot's own fence: the parent's is the true one.
            self.inners.get_mut(right).set_fence(0, fence);
            let (into, from) = self.inners.pair_mut(left, right);
            into.join(from);
            for class in 0..self.classes.exponents().len() {
                let moved = *self.inners.aligned(right, class);
                self.inners.aligned_mut(left, class).append(own, &moved, more);
            }
            if self.has_brackets() {
                let moved = *self.inners.brackets(right);
                self.inners.brackets_mut(left).append(own, &moved, more);
            }
            self.renumber(level - 1, left, own);
        }
        self.resettle(Node { level, number: left });
        self.detach(Node { level, number: right });
    }
}

#[cfg(test)]
mod tests {
    use super::super::laws;
    use super::super::tests::{PITCH, tree};
    use super::super::tree::BySize;
    use super::*;

    #[test]
    fn blocks_that_lose_their_entries_are_joined() {
        let mut tree = tree::<()>(40_000, BySize::Bins);
        let starts = || (0..40_000).map(|number| number * PITCH);
        let blocks = |tree: &Tree<()>| (tree.height, tree.leaves.in_use(), tree.inners.in_use());
        assert_eq!((blocks(&tree).0, blocks(&tree).1), (3, 1_250));
        for start in starts().filter(|start| start % (20 * PITCH) != 0) {
            let at = tree.entry_at(start).unwrap();
            tree.remove(at);
        }
        laws::check(&tree).unwrap();
        let (height, leaves, inners) = blocks(&tree);
        assert_eq!((tree.holes, height), (2_000, 2));
        // Two neighbours have more than 30 entries together, unless the last to lose some had a count that is no
        // multiple of four.
        assert!(
            leaves <= 2_000 / 12 && inners <= 1 + leaves / 12,
            "{leaves} leaves, {inners} blocks"
        );
        for start in starts().step_by(20).skip(1) {
            let at = tree.entry_at(start).unwrap();
            tree.remove(at);
        }
        laws::check(&tree).unwrap();
        assert_eq!((blocks(&tree), tree.holes), ((0, 1, 0), 1));
    }
}
