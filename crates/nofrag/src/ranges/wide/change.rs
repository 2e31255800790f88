//! Changes of the tree: holes are added, resized and removed.

use super::balance::FEW;
use super::entry::{Entry, Hole, Note};
use super::leaf::{Moved, NIL, saturated, window_of};
use super::row::LANES;
use super::sizes::SizeBins;
use super::tree::{At, Node, Tree};
use crate::ranges::OutOfMetadata;

/// Two leaves side by side below `parent`, the right one in `slot`.
#[derive(Clone, Copy, Debug)]
struct Neighbours {
    parent: u32,
    slot: usize,
    left: u32,
    right: u32,
}

impl<N: Note> Tree<N> {
    /// Makes room for the blocks of one insertion, wherever it falls.
    pub(super) fn reserve_insertion(&mut self) -> Result<(), OutOfMetadata> {
        self.leaves.reserve(1)?;
        self.inners.reserve(self.height as usize + 1)?;
        self.fit_near();
        match &mut self.sizes {
            Some(sizes) => sizes.reserve(self.leaves.numbers()),
            None => Ok(()),
        }
    }

    /// Makes room for the blocks of `count` insertions, wherever they fall.
    ///
    /// A few insertions may each take a leaf, and split every block above once. Many insertions mostly share leaves, so
    /// they reserve no more than a dense tree needs.
    #[inline]
    pub(super) fn reserve_insertions(&mut self, count: usize) -> Result<(), OutOfMetadata> {
        let leaves = count.min(FEW + count / 8);
        let splits = (leaves * self.height as usize).min(self.inners.in_use() + leaves / 8);
        if self.leaves.vacant() >= leaves && self.inners.vacant() > splits {
            return Ok(());
        }
        self.reserve_blocks(leaves, splits + 1)
    }

    /// Returns true if an insertion into `leaf` or the leaf behind it might need more blocks than are vacant.
    pub(super) fn lacks_blocks(&self, leaf: u32) -> bool {
        let behind = self.first_after(leaf).map(|at| at.leaf);
        let splits = |leaf: u32| {
            let mut above = self.leaves.head(leaf).parent;
            let mut full = 0;
            while above != NIL && self.inners.get(above).count() == LANES {
                full += 1;
                above = self.inners.get(above).parent;
            }
            // If all are full, or there is none, a new root comes.
            full + usize::from(above == NIL)
        };
        let most = [Some(leaf), behind].into_iter().flatten().map(splits).max();
        self.leaves.vacant() == 0 || self.inners.vacant() < most.unwrap_or(0)
    }

    #[cold]
    fn reserve_blocks(&mut self, leaves: usize, inners: usize) -> Result<(), OutOfMetadata> {
        self.leaves.reserve(leaves)?;
        self.inners.reserve(inners)?;
        self.fit_near();
        match &mut self.sizes {
            Some(sizes) => sizes.reserve(self.leaves.numbers()),
            None => Ok(()),
        }
    }

    /// Fits the table of near leaves, if it has become too small, to the number of leaves and the stretch of numbers
    /// that they cover.
    fn fit_near(&mut self) {
        let leaves = self.leaves.in_use() / N::LEAVES_PER_GUESS;
        if self.height > 0 && self.near.wants(leaves) {
            let last = self.last().map_or(0, |(_, hole)| hole.start);
            self.near.resize(leaves, self.first_crowded(), last);
        }
    }

    /// Returns the number from which on holes are many: 0 in the form without areas, else the start of the second leaf.
    /// Areas may all lie high up, so the long gap below them, in the first leaf, says nothing.
    fn first_crowded(&self) -> u64 {
        if !N::EMPTY_HOLES {
            return 0;
        }
        let second = self.first_after(self.leaf_for(0));
        second.map_or(0, |at| self.hole(at).start)
    }

    /// Makes room for `holes` holes in all. Neighbouring blocks hold more than `JOINED` entries together, so a dozen
    /// per block is a safe estimate, unless holes are spread thinly over many windows.
    pub(super) fn reserve_holes(&mut self, holes: usize) -> Result<(), OutOfMetadata> {
        let dozen = |count: usize| count.div_ceil(12) + 1;
        let leaves = dozen(holes);
        let inners = dozen(leaves) + dozen(dozen(leaves)) + self.height as usize;
        self.leaves.reserve(leaves.saturating_sub(self.leaves.in_use()))?;
        self.inners.reserve(inners.saturating_sub(self.inners.in_use()))?;
        self.near.reserve(self.leaves.numbers())?;
        match &mut self.sizes {
            Some(sizes) => sizes.reserve(self.leaves.numbers()),
            None => Ok(()),
        }
    }

    /// Returns true if a hole with this start can enter `leaf` without a new block.
    #[inline]
    pub(super) fn has_room(&self, leaf: u32, start: u64) -> bool {
        !self.leaves.is_full(leaf) && self.leaves.head(leaf).window == window_of(start)
    }

    /// Adds a hole that touches no other; room was reserved.
    pub(super) fn insert(&mut self, entry: Entry<N>) {
        let start = entry.hole.start;
        if self.root == NIL {
            self.root = self.leaves.take_vacant(window_of(start));
        }
        let leaf = self.leaf_for(start);
        let lane = self.leaves.count_up_to(leaf, start);
        self.insert_at(At { leaf, lane }, entry);
    }

    /// Adds a hole that touches no other at the place where it belongs; unless the leaf has room for it, blocks were
    /// reserved.
    pub(super) fn insert_at(&mut self, at: At, entry: Entry<N>) {
        let (At { leaf, lane }, hole) = (at, entry.hole);
        let window = window_of(hole.start);
        if lane > 0
            && self.leaves.head(leaf).window != window
            && let Some(next) = self.first_after(leaf)
            && self.leaves.head(next.leaf).window == window
        {
            // Behind this leaf's holes, below the next leaf's fence, in the next leaf's window.
            self.move_fence_behind(leaf, |_| hole.start);
            return self.insert_at(next, entry);
        }
        self.holes += 1;
        if self.leaves.count(leaf) == 0 {
            self.leaves.head_mut(leaf).window = window;
        }
        if self.leaves.head(leaf).window != window {
            return self.insert_beside(at, entry);
        }
        if self.leaves.is_full(leaf) {
            return match self.neighbour_with_room(leaf) {
                Some(neighbour) => self.insert_spill(neighbour, entry),
                None => self.insert_split(at, entry),
            };
        }
        self.leaves.insert(leaf, lane, entry);
        self.size_added(leaf, hole.len());
        self.note_entry(leaf, hole);
    }

    /// Adds a hole in a new leaf beside `at.leaf`, whose window is another.
    fn insert_beside(&mut self, at: At, entry: Entry<N>) {
        let (At { leaf, lane }, hole) = (at, entry.hole);
        let fresh = self.leaves.take_vacant(window_of(hole.start));
        if lane == 0 {
            // The old leaf's holes move to the new number's place by swapping what the two numbers hold, so that the
            // new leaf comes after and takes the old one's holes with its own fence.
            let fence = self.leaves.start(leaf, 0);
            self.leaves.swap_holes(leaf, fresh);
            self.sizes_moved(leaf, fresh);
            self.leaves.insert(leaf, 0, entry);
            self.size_binned(leaf, hole.len());
            self.attach_after(Node { level: 0, number: leaf }, fresh, fence);
        } else {
            self.leaves.insert(fresh, 0, entry);
            self.size_binned(fresh, hole.len());
            self.attach_after(Node { level: 0, number: leaf }, fresh, hole.start);
        }
        self.resettle(Node { level: 0, number: leaf });
        self.resettle(Node { level: 0, number: fresh });
    }

    /// Returns a leaf beside `leaf`, below the same parent and in the same window, that could take some of its holes.
    fn neighbour_with_room(&self, leaf: u32) -> Option<Neighbours> {
        let (parent, slot) = self.parent_of(Node { level: 0, number: leaf })?;
        let inner = self.inners.get(parent);
        let takes = |neighbour: u32| {
            let (own, other) = (self.leaves.head(leaf), self.leaves.head(neighbour));
            own.window == other.window && usize::from(other.count) <= N::ROOMY
        };
        let right = (slot + 1 < inner.count()).then(|| inner.child.0[slot + 1]);
        let left = slot.checked_sub(1).map(|left| inner.child.0[left]);
        match (right, left) {
            (Some(right), _) if takes(right) => {
                Some(Neighbours { parent, slot: slot + 1, left: leaf, right })
            }
            (_, Some(left)) if takes(left) => Some(Neighbours { parent, slot, left, right: leaf }),
            _ => None,
        }
    }

    /// Adds a hole to one of two neighbours, of which one is full, after they have shared their holes evenly.
    fn insert_spill(&mut self, neighbours: Neighbours, entry: Entry<N>) {
        let Neighbours { parent, slot, left, right } = neighbours;
        let moved = self.leaves.share(left, right);
        if let Some(sizes) = &mut self.sizes {
            let Moved { from, to, lengths, count } = moved;
            for &length in &lengths.0[..count] {
                sizes.add(to, length);
                sizes.remove(from, length, self.leaves.lengths(from), &self.leaves);
            }
        }
        let hole = entry.hole;
        let fence = self.leaves.start(right, 0);
        self.inners.get_mut(parent).set_fence(slot, fence);
        let target = if hole.start < fence { left } else { right };
        let lane = self.leaves.count_up_to(target, hole.start);
        self.leaves.insert(target, lane, entry);
        self.size_binned(target, hole.len());
        self.resettle(Node { level: 0, number: left });
        self.resettle(Node { level: 0, number: right });
    }

    /// Adds a hole to a full leaf, which splits.
    fn insert_split(&mut self, at: At, entry: Entry<N>) {
        let (At { leaf, lane }, hole) = (at, entry.hole);
        let fresh = self.leaves.take_vacant(self.leaves.head(leaf).window);
        let appends = lane == LANES && self.first_after(leaf).is_none();
        let middle = if appends { LANES } else { LANES / 2 };
        let fence = if appends { hole.start } else { self.leaves.start(leaf, middle) };
        self.leaves.split_into(leaf, middle, fresh);
        self.sizes_moved(leaf, fresh);
        let (target, lane) =
            if lane <= middle && !appends { (leaf, lane) } else { (fresh, lane - middle) };
        self.leaves.insert(target, lane, entry);
        self.size_binned(target, hole.len());
        self.attach_after(Node { level: 0, number: leaf }, fresh, fence);
        self.resettle(Node { level: 0, number: leaf });
        self.resettle(Node { level: 0, number: fresh });
    }

    pub(super) fn remove(&mut self, at: At) {
        let hole = self.hole(at);
        self.note_change(at, hole, Hole::known(hole.end, hole.end));
        self.remove_joined(at);
    }

    /// Takes a hole out whose numbers another hole of the leaf has taken in, so that no maximum falls, or whose loss is
    /// noted already.
    #[inline]
    pub(super) fn remove_joined(&mut self, at: At) {
        let At { leaf, lane } = at;
        let length = self.leaves.length(leaf, lane);
        self.holes -= 1;
        self.leaves.remove(leaf, lane);
        self.size_removed(leaf, length);
        let count = self.leaves.count(leaf);
        let node = Node { level: 0, number: leaf };
        if count == 0 && self.height > 0 {
            self.detach(node);
            return;
        }
        if count <= N::FEW && count.is_multiple_of(4) {
            self.join_neighbour(node);
        }
    }

    /// Changes a hole; the new one starts in the same window and keeps the order.
    #[inline]
    pub(super) fn replace(&mut self, at: At, hole: Hole) {
        let old = self.hole(at);
        let (was, is) = (saturated(old.len()), saturated(hole.len()));
        self.note_change(at, old, hole);
        self.leaves.set(at.leaf, at.lane, hole);
        let largest = (is < was).then(|| self.largest_noted(at.leaf));
        if let Some(sizes) = &mut self.sizes {
            sizes.change(at.leaf, (was, is), largest, &self.leaves);
        }
        self.bracket_added(at.leaf, hole.len());
        self.bracket_removed(at.leaf, old.len());
    }
}

/// The indexes by size, kept in step with the leaves.
impl<N: Note> Tree<N> {
    /// Keeps bins by size from now on. The first time this looks at each hole.
    #[inline]
    pub(super) fn index_sizes(&mut self) -> Result<(), OutOfMetadata> {
        if self.sizes.is_some() { Ok(()) } else { self.bin_all() }
    }

    #[cold]
    fn bin_all(&mut self) -> Result<(), OutOfMetadata> {
        let mut sizes = SizeBins::new();
        sizes.reserve(self.leaves.numbers())?;
        for leaf in 0..self.leaves.numbers() as u32 {
            for &length in &self.leaves.lengths(leaf).0[..self.leaves.count(leaf)] {
                sizes.add(leaf, length);
            }
        }
        self.sizes = Some(sizes);
        Ok(())
    }

    #[inline]
    fn size_added(&mut self, leaf: u32, length: u64) {
        self.size_binned(leaf, length);
        self.bracket_added(leaf, length);
    }

    /// Does what [`size_added`](Self::size_added) does, except for brackets: the caller refreshes these afterwards.
    #[inline]
    fn size_binned(&mut self, leaf: u32, length: u64) {
        if let Some(sizes) = &mut self.sizes {
            sizes.add(leaf, saturated(length));
        }
    }

    #[inline]
    fn size_removed(&mut self, leaf: u32, length: u64) {
        if let Some(sizes) = &mut self.sizes {
            sizes.remove(leaf, saturated(length), self.leaves.lengths(leaf), &self.leaves);
        }
        self.bracket_removed(leaf, length);
    }

    /// Notes that all holes of the leaf `to` have come from the leaf `from`.
    fn sizes_moved(&mut self, from: u32, to: u32) {
        let Some(sizes) = &mut self.sizes else { return };
        for lane in 0..self.leaves.count(to) {
            let length = self.leaves.lengths(to).0[lane];
            sizes.add(to, length);
            sizes.remove(from, length, self.leaves.lengths(from), &self.leaves);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PITCH, tree};
    use super::super::tree::BySize;
    use super::*;

    /// Takes all vacant leaves and blocks, but for so many.
    fn leave_vacant<N: Note>(tree: &mut Tree<N>, leaves: usize, inners: usize) {
        while tree.leaves.vacant() > leaves {
            tree.leaves.take_vacant(0);
        }
        while tree.inners.vacant() > inners {
            tree.inners.take_vacant();
        }
    }

    fn vacant<N: Note>(tree: &Tree<N>) -> (usize, usize) {
        (tree.leaves.vacant(), tree.inners.vacant())
    }

    #[test]
    fn room_for_holes_is_a_block_for_a_dozen() {
        let mut young = tree::<()>(0, BySize::No);
        young.reserve_holes(240).unwrap();
        // 21 leaves below three blocks, those below two more.
        assert_eq!(vacant(&young), (21, 3 + 2));
        assert!(young.near.bytes() >= 21 * 8 * 4, "the table of near leaves has room, too");
        let mut grown = tree::<()>(100, BySize::No);
        assert_eq!((grown.height, grown.leaves.in_use(), grown.inners.in_use()), (1, 4, 1));
        leave_vacant(&mut grown, 0, 0);
        let (leaves, inners) = (grown.leaves.in_use(), grown.inners.in_use());
        grown.reserve_holes(1_200).unwrap();
        assert_eq!(vacant(&grown), (101 - leaves, 10 + 2 + 1 - inners));
    }

    #[test]
    fn many_insertions_share_leaves() {
        let mut young = tree::<u32>(0, BySize::No);
        young.reserve_insertions(3).unwrap();
        assert_eq!(vacant(&young), (3, 1), "each may take a leaf, and the second a root");
        young.reserve_insertions(3).unwrap();
        assert_eq!(vacant(&young), (3, 1), "there is room already");
        young.reserve_insertions(800).unwrap();
        assert_eq!(vacant(&young), (3 + FEW + 100, 1));
        let mut grown = tree::<u32>(100, BySize::No);
        leave_vacant(&mut grown, 0, 0);
        grown.reserve_insertions(800).unwrap();
        assert_eq!(vacant(&grown).1, grown.inners.in_use() + (FEW + 100) / 8 + 1);
        leave_vacant(&mut grown, 0, 0);
        grown.reserve_insertions(1).unwrap();
        assert_eq!(vacant(&grown).1, 1 + 1, "one split of the only block, and a root");
        leave_vacant(&mut grown, 1, 1);
        grown.reserve_insertions(1).unwrap();
        assert!(vacant(&grown).1 > 1, "one is less than a split and a root need");
    }

    #[test]
    fn a_split_needs_a_leaf_and_a_block_for_each_full_one_above() {
        let mut small = tree::<u32>(20, BySize::No);
        let root = small.root;
        leave_vacant(&mut small, 1, 1);
        assert!(!small.lacks_blocks(root), "a leaf, and a root above both");
        leave_vacant(&mut small, 1, 0);
        assert!(small.lacks_blocks(root));
        // A block with as many leaves as it holds.
        let mut full = tree::<u32>((LANES * LANES) as u64, BySize::No);
        assert_eq!((full.height, full.inners.get(full.root).count()), (1, LANES));
        let leaf = full.leaf_for(0);
        full.reserve_insertions(100).unwrap();
        leave_vacant(&mut full, 1, 2);
        assert!(!full.lacks_blocks(leaf));
        leave_vacant(&mut full, 1, 1);
        assert!(full.lacks_blocks(leaf), "the full block splits, and a root comes");
        leave_vacant(&mut full, 0, 0);
        full.inners.reserve(9).unwrap();
        assert!(full.lacks_blocks(leaf), "there is no leaf");
        // Below a block with room nothing but the leaf splits.
        let mut roomy = tree::<u32>(100, BySize::No);
        let leaf = roomy.leaf_for(0);
        roomy.reserve_insertions(100).unwrap();
        leave_vacant(&mut roomy, 1, 0);
        assert!(!roomy.lacks_blocks(leaf));
    }

    #[test]
    fn the_table_of_near_leaves_grows_with_the_leaves() {
        fn check<N: Note>(guessed: usize) {
            let root = tree::<N>(20, BySize::No);
            assert_eq!((root.height, root.near.bytes()), (0, 0), "one leaf needs no guess");
            let mut some = tree::<N>(LANES as u64 * 24, BySize::No);
            assert_eq!(some.leaves.in_use(), 24);
            some.near = Default::default();
            some.fit_near();
            assert_eq!(some.near.bytes(), (guessed * 8).next_power_of_two() * 4);
        }
        check::<()>(24);
        check::<u32>(12);
        assert_eq!(tree::<()>(100, BySize::No).first_crowded(), 0);
        assert_eq!(tree::<u32>(100, BySize::No).first_crowded(), LANES as u64 * PITCH);
        assert_eq!(tree::<u32>(20, BySize::No).first_crowded(), 0, "there is no second leaf");
    }
}
