//! The shape of the tree: how holes enter and leave blocks, how blocks split and join, how maxima stay true.

use super::inner::Inners;
use super::leaf::{Leaves, NIL, saturated, window_of};
use super::near::Near;
use super::row::{LANE_MAX, LANES, Row};
use super::sizes::SizeBins;
use crate::ranges::index::Rejection;
use crate::ranges::{AlignClasses, Counters, OutOfMetadata, Span};

/// A leaf or inner block with so few entries looks for a neighbour to join; a leaf does at each fourth count only,
/// since the look costs more than the removal.
const FEW: usize = LANES * 5 / 8;
/// Two neighbours join if together they have at most this many entries, so that the joined one does not split at once.
const JOINED: usize = LANES - 2;

/// A full leaf shares its holes with a neighbour that has at most this many, before it splits.
const ROOMY: usize = LANES * 3 / 4;

/// Where a hole is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) leaf: u32,
    pub(super) lane: usize,
}

/// The neighbours with which a freed range has merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) before: bool,
    pub(super) after: bool,
}

/// Two leaves side by side, and the place of the right one.
#[derive(Clone, Copy, Debug)]
struct Neighbours {
    parent: u32,
    slot: usize,
    left: u32,
    right: u32,
}

/// A block at a level: leaves are at level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    level: u32,
    number: u32,
}

/// What is known of all holes below a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// The length of the largest hole, as a lane holds it.
    pub(super) lane: u32,
    /// The true length of the largest hole; kept only while `lane` is saturated.
    pub(super) long: u64,
    /// Per alignment class the largest size that it allows, as a lane holds it.
    pub(super) aligned: [u32; 4],
}

/// The tree of holes.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) leaves: Leaves,
    pub(super) inners: Inners,
    /// A leaf if `height` is 0, else an inner block; [`NIL`] before the first hole.
    pub(super) root: u32,
    /// Levels of inner blocks above the leaves.
    pub(super) height: u32,
    pub(super) holes: usize,
    pub(super) top: Summary,
    pub(super) classes: AlignClasses,
    pub(super) sizes: Option<SizeBins>,
    near: Near,
}

impl Tree {
    pub(super) fn new(classes: AlignClasses, sizes: Option<SizeBins>) -> Tree {
        Tree {
            leaves: Leaves::default(),
            inners: Inners::new(classes.exponents().len()),
            root: NIL,
            height: 0,
            holes: 0,
            top: Summary::default(),
            classes,
            sizes,
            near: Near::default(),
        }
    }

    /// Where the free range that starts at `at` belongs: its leaf, and how many of the leaf's holes start at or below
    /// it.
    #[inline]
    pub(super) fn place_of(&mut self, at: u64) -> At {
        let leaf = self.near.leaf(at);
        if (leaf as usize) < self.leaves.numbers() {
            let lane = self.leaves.count_up_to(leaf, at);
            if lane > 0 && lane < self.leaves.count(leaf) {
                return At { leaf, lane };
            }
        }
        let leaf = self.leaf_for(at);
        self.near.note(at, leaf);
        At { leaf, lane: self.leaves.count_up_to(leaf, at) }
    }

    /// The length of the largest hole.
    pub(super) fn largest(&self) -> u64 {
        if self.top.lane == LANE_MAX { self.top.long } else { u64::from(self.top.lane) }
    }

    /// The largest size that `align` allows, where the maxima at the top tell.
    pub(super) fn known_largest(&self, align: u64) -> Option<u64> {
        if align == 1 {
            return Some(self.largest());
        }
        let exponent = align.trailing_zeros();
        let class = self.classes.exponents().iter().position(|&own| u32::from(own) == exponent)?;
        let largest = self.top.aligned[class];
        (largest < LANE_MAX).then_some(u64::from(largest))
    }

    /// The leaf whose fences enclose `at`; there is a root.
    #[inline]
    pub(super) fn leaf_for(&self, at: u64) -> u32 {
        let mut number = self.root;
        for _ in 0..self.height {
            let inner = self.inners.get(number);
            number = inner.child.0[inner.slot_of(at)];
        }
        number
    }

    /// The lowest hole that ends above `at`.
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
            Some(before) if self.hole(before).end() > at => Some(before),
            _ if lane < self.leaves.count(leaf) => Some(At { leaf, lane }),
            _ => self.first_after(leaf),
        }
    }

    /// The highest hole that starts below `end`.
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

    #[inline]
    pub(super) fn hole(&self, at: At) -> Span {
        self.leaves.hole(at.leaf, at.lane)
    }

    /// The first hole of the leaf that follows `leaf`.
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

    /// The last hole of the leaf that precedes `leaf`.
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
        let end = self.leaves.hole(leaf, count - 1).end();
        let mut node = Node { level: 0, number: leaf };
        while let Some((parent, slot)) = self.parent_of(node) {
            let inner = self.inners.get_mut(parent);
            if slot + 1 < inner.count() {
                let fence = inner.fence(slot + 1).max(end);
                return inner.set_fence(slot + 1, fence);
            }
            node = Node { level: node.level + 1, number: parent };
        }
    }

    /// The inner block above `node` and the slot in it; none above the root.
    fn parent_of(&self, node: Node) -> Option<(u32, usize)> {
        let (parent, slot) = if node.level == 0 {
            let head = self.leaves.head(node.number);
            (head.parent, head.slot)
        } else {
            let inner = self.inners.get(node.number);
            (inner.parent, inner.slot)
        };
        (parent != NIL).then_some((parent, usize::from(slot)))
    }

    fn set_parent(&mut self, node: Node, parent: u32, slot: usize) {
        if node.level == 0 {
            let head = self.leaves.head_mut(node.number);
            (head.parent, head.slot) = (parent, slot as u8);
        } else {
            let inner = self.inners.get_mut(node.number);
            (inner.parent, inner.slot) = (parent, slot as u8);
        }
    }

    /// Tells the children of `parent`, which are at `level`, from slot `from` on where they are.
    fn renumber(&mut self, level: u32, parent: u32, from: usize) {
        for slot in from..self.inners.get(parent).count() {
            let number = self.inners.get(parent).child.0[slot];
            self.set_parent(Node { level, number }, parent, slot);
        }
    }
}

/// Holes change.
impl Tree {
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

    /// Lets the table of near leaves follow the number of leaves and the stretch of numbers that they cover.
    fn fit_near(&mut self) {
        if self.height > 0 && self.near.wants(self.leaves.in_use()) {
            let last = self.locate_last().map_or(0, |at| self.hole(at).start());
            self.near.resize(self.leaves.in_use(), last);
        }
    }

    /// Bytes that the table of near leaves holds.
    pub(super) fn near_bytes(&self) -> usize {
        self.near.bytes()
    }

    fn locate_last(&self) -> Option<At> {
        let leaf = self.leaf_for(u64::MAX);
        let count = self.leaves.count(leaf);
        (count > 0).then(|| At { leaf, lane: count - 1 })
    }

    /// Makes room for `holes` holes in all. Neighbouring blocks hold more than [`JOINED`] entries together, so a dozen
    /// per block is what has to be reckoned with, where holes are not spread thinly over many windows.
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

    /// Whether a hole with this start can enter `leaf` without a new block.
    #[inline]
    pub(super) fn has_room(&self, leaf: u32, start: u64) -> bool {
        !self.leaves.is_full(leaf) && self.leaves.head(leaf).window == window_of(start)
    }

    /// Adds a hole that touches no other; room was reserved.
    pub(super) fn insert(&mut self, hole: Span) {
        if self.root == NIL {
            self.root = self.leaves.take_vacant(window_of(hole.start()));
        }
        let leaf = self.leaf_for(hole.start());
        let lane = self.leaves.count_up_to(leaf, hole.start());
        self.insert_at(At { leaf, lane }, hole);
    }

    /// Adds a hole that touches no other at the place where it belongs; unless the leaf has room for it, blocks were
    /// reserved.
    pub(super) fn insert_at(&mut self, at: At, hole: Span) {
        let At { leaf, lane } = at;
        self.holes += 1;
        if self.leaves.count(leaf) == 0 {
            self.leaves.head_mut(leaf).window = window_of(hole.start());
        }
        if self.leaves.head(leaf).window != window_of(hole.start()) {
            return self.insert_beside(at, hole);
        }
        if self.leaves.is_full(leaf) {
            return match self.neighbour_with_room(leaf) {
                Some(neighbour) => self.insert_spill(neighbour, hole),
                None => self.insert_split(at, hole),
            };
        }
        self.leaves.insert(leaf, lane, hole);
        self.size_added(leaf, hole.len());
        let is = saturated(hole.len());
        if self.needs_refresh(is) {
            self.refresh(Node { level: 0, number: leaf });
        } else {
            self.note_growth(leaf, is);
        }
    }

    /// Adds a hole in a new leaf beside `at.leaf`, whose window is another.
    fn insert_beside(&mut self, at: At, hole: Span) {
        let At { leaf, lane } = at;
        let fresh = self.leaves.take_vacant(window_of(hole.start()));
        if lane == 0 {
            // The old leaf's holes move to the new number's place by swapping what the two numbers hold, so that the
            // new leaf comes after and takes the old one's holes with its own fence.
            let fence = self.leaves.start(leaf, 0);
            self.leaves.swap_holes(leaf, fresh);
            self.sizes_moved(leaf, fresh);
            self.leaves.insert(leaf, 0, hole);
            self.size_added(leaf, hole.len());
            self.attach_after(Node { level: 0, number: leaf }, fresh, fence);
        } else {
            self.leaves.insert(fresh, 0, hole);
            self.size_added(fresh, hole.len());
            self.attach_after(Node { level: 0, number: leaf }, fresh, hole.start());
        }
        self.refresh(Node { level: 0, number: leaf });
        self.refresh(Node { level: 0, number: fresh });
    }

    /// A leaf beside `leaf`, below the same parent and in the same window, that could take some of its holes.
    fn neighbour_with_room(&self, leaf: u32) -> Option<Neighbours> {
        let (parent, slot) = self.parent_of(Node { level: 0, number: leaf })?;
        let inner = self.inners.get(parent);
        let takes = |neighbour: u32| {
            let (own, other) = (self.leaves.head(leaf), self.leaves.head(neighbour));
            own.window == other.window && usize::from(other.count) <= ROOMY
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
    fn insert_spill(&mut self, neighbours: Neighbours, hole: Span) {
        let Neighbours { parent, slot, left, right } = neighbours;
        let moved = self.leaves.share(left, right);
        if let Some(sizes) = &mut self.sizes {
            let (from, to, lengths) = moved;
            for &length in lengths.0.iter().take_while(|&&length| length > 0) {
                sizes.add(to, length);
                sizes.remove(from, length, self.leaves.lengths(from));
            }
        }
        let fence = self.leaves.start(right, 0);
        self.inners.get_mut(parent).set_fence(slot, fence);
        let target = if hole.start() < fence { left } else { right };
        let lane = self.leaves.count_up_to(target, hole.start());
        self.leaves.insert(target, lane, hole);
        self.size_added(target, hole.len());
        self.refresh(Node { level: 0, number: left });
        self.refresh(Node { level: 0, number: right });
    }

    /// Adds a hole to a full leaf, which splits.
    fn insert_split(&mut self, at: At, hole: Span) {
        let At { leaf, lane } = at;
        let fresh = self.leaves.take_vacant(self.leaves.head(leaf).window);
        let appends = lane == LANES && self.first_after(leaf).is_none();
        let middle = if appends { LANES } else { LANES / 2 };
        let fence = if appends { hole.start() } else { self.leaves.start(leaf, middle) };
        self.leaves.split_into(leaf, middle, fresh);
        self.sizes_moved(leaf, fresh);
        let (target, lane) =
            if lane <= middle && !appends { (leaf, lane) } else { (fresh, lane - middle) };
        self.leaves.insert(target, lane, hole);
        self.size_added(target, hole.len());
        self.attach_after(Node { level: 0, number: leaf }, fresh, fence);
        self.refresh(Node { level: 0, number: leaf });
        self.refresh(Node { level: 0, number: fresh });
    }

    /// Takes a hole out.
    pub(super) fn remove(&mut self, at: At) {
        let At { leaf, lane } = at;
        let was = self.leaves.lengths(leaf).0[lane];
        if !self.needs_refresh(was) {
            self.note_loss(at, was, 0);
        }
        self.remove_joined(at);
    }

    /// Takes a hole out whose numbers another hole of the leaf has taken in, so that no plain maximum falls.
    #[inline]
    fn remove_joined(&mut self, at: At) {
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
        if self.needs_refresh(saturated(length)) {
            self.refresh(node);
        }
        if count <= FEW && count.is_multiple_of(4) {
            self.join_neighbour(node);
        }
    }

    /// Cuts `size` numbers off the left edge of the first hole that has so many, if that is a change inside one leaf.
    ///
    /// This is the whole of most allocations: no bound, no alignment, no length that a lane cannot hold.
    #[inline]
    pub(super) fn cut_first(&mut self, size: u32, counters: &mut Counters) -> Option<Span> {
        if self.top.lane < size {
            return None;
        }
        let mut leaf = self.root;
        for _ in 0..self.height {
            let inner = self.inners.get(leaf);
            let slot = inner.largest.at_least(size).trailing_zeros() as usize;
            leaf = inner.child.0[slot % LANES];
        }
        let lane = self.leaves.lengths(leaf).at_least(size).trailing_zeros() as usize % LANES;
        let length = self.leaves.lengths(leaf).0[lane];
        let start = self.leaves.start(leaf, lane);
        if self.needs_refresh(length) || self.sizes.is_some() {
            return None;
        }
        counters.steps += u64::from(self.height) + 1;
        counters.note_cut(true, length == size);
        let at = At { leaf, lane };
        if length == size {
            self.remove(at);
        } else {
            self.note_loss(at, length, length - size);
            self.leaves.cut_left(leaf, lane, size);
        }
        Some(Span::known(start, start + u64::from(size)))
    }

    /// Frees `span` between the holes `lane - 1` and `lane` of the leaf, in whose window it starts; tells with which of
    /// the two it merged, or that it overlaps one.
    #[inline]
    pub(super) fn free_between(&mut self, at: At, span: Span) -> Result<Merged, Rejection> {
        let At { leaf, lane } = at;
        let before = self.leaves.hole_before_another(leaf, lane - 1);
        let after = self.leaves.start(leaf, lane);
        if before.end() > span.start() || after < span.end() {
            return Err(Rejection::Overlap);
        }
        let merged = Merged { before: before.end() == span.start(), after: after == span.end() };
        match merged {
            Merged { before: true, after: false } => {
                self.replace(At { leaf, lane: lane - 1 }, Span::known(before.start(), span.end()));
            }
            Merged { before: false, after: true } => {
                let end = after + self.leaves.length(leaf, lane);
                self.replace(at, Span::known(span.start(), end));
            }
            Merged { before: true, after: true } => {
                let end = after + self.leaves.length(leaf, lane);
                self.replace(At { leaf, lane: lane - 1 }, Span::known(before.start(), end));
                self.remove_joined(at);
            }
            Merged { before: false, after: false } => {
                if self.leaves.is_full(leaf) {
                    self.reserve_insertion().map_err(|OutOfMetadata| Rejection::OutOfMetadata)?;
                }
                self.insert_at(at, span);
            }
        }
        Ok(merged)
    }

    /// Changes a hole; the new one starts in the same window and keeps the order.
    #[inline]
    pub(super) fn replace(&mut self, at: At, hole: Span) {
        let old = self.leaves.length(at.leaf, at.lane);
        let (was, is) = (saturated(old), saturated(hole.len()));
        let refresh = self.needs_refresh(was.max(is));
        if is < was && !refresh {
            self.note_loss(at, was, is);
        }
        self.leaves.set(at.leaf, at.lane, hole);
        self.size_added(at.leaf, hole.len());
        self.size_removed(at.leaf, old);
        if refresh {
            self.refresh(Node { level: 0, number: at.leaf });
        } else if is > was {
            self.note_growth(at.leaf, is);
        }
    }
}

/// The index by size follows.
impl Tree {
    #[inline]
    fn size_added(&mut self, leaf: u32, length: u64) {
        if let Some(sizes) = &mut self.sizes {
            sizes.add(leaf, saturated(length));
        }
    }

    #[inline]
    fn size_removed(&mut self, leaf: u32, length: u64) {
        if let Some(sizes) = &mut self.sizes {
            sizes.remove(leaf, saturated(length), self.leaves.lengths(leaf));
        }
    }

    /// All holes that the leaf `to` holds have come from the leaf `from`.
    fn sizes_moved(&mut self, from: u32, to: u32) {
        let Some(sizes) = &mut self.sizes else { return };
        for lane in 0..self.leaves.count(to) {
            let length = self.leaves.lengths(to).0[lane];
            sizes.add(to, length);
            sizes.remove(from, length, self.leaves.lengths(from));
        }
    }
}

/// Blocks change.
impl Tree {
    /// Makes `fresh` the right neighbour of `node`, with `fence` between them.
    fn attach_after(&mut self, node: Node, fresh: u32, fence: u64) {
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
        self.refresh(node);
        self.refresh(Node { number: fresh, ..node });
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
        self.renumber(level - 1, fresh, 0);
        self.attach_after(Node { level, number: block }, fresh, fence);
        self.refresh(Node { level, number: block });
        self.refresh(Node { level, number: fresh });
    }

    /// Takes a block without entries, which is not the root, out of its parent.
    fn detach(&mut self, node: Node) {
        let (parent, slot) = self.parent_of(node).expect("only the root has no parent");
        self.inners.get_mut(parent).remove(slot);
        for class in 0..self.classes.exponents().len() {
            self.inners.aligned_mut(parent, class).remove(slot, 0);
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
                self.refresh(above);
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
        self.refresh(Node { level: self.height, number: self.root });
    }

    /// Joins a block that has become small with a neighbour below the same parent, if one is small enough.
    fn join_neighbour(&mut self, node: Node) {
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
                    sizes.remove(right, length, &Row::filled(0));
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
            self.renumber(level - 1, left, own);
        }
        self.refresh(Node { level, number: left });
        self.detach(Node { level, number: right });
    }
}

/// Maxima stay true.
impl Tree {
    /// Whether a change of a hole with this length, as a lane holds it, concerns more than the plain maxima.
    #[inline]
    fn needs_refresh(&self, length: u32) -> bool {
        length == LANE_MAX || !self.classes.exponents().is_empty()
    }

    /// A hole of `leaf` has grown to `length`, or has come in.
    #[inline]
    fn note_growth(&mut self, leaf: u32, length: u32) {
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

    /// The hole in this lane, of length `old`, is about to shrink to `new`, or to 0: to go.
    #[inline]
    fn note_loss(&mut self, at: At, old: u32, new: u32) {
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

    /// Computes the summary of `node` anew, and of the blocks above it as far as that changes them.
    fn refresh(&mut self, mut node: Node) {
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

    fn summary_of(&self, node: Node) -> Summary {
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

    /// The true length of the largest hole below a block whose largest is saturated.
    #[inline]
    pub(super) fn long_below(&self, level: u32, number: u32) -> u64 {
        if level == 0 { self.leaves.head(number).long } else { self.inners.get(number).long }
    }
}

/// What the laws look at.
impl Tree {
    /// The summary of a block, computed from its rows.
    pub(super) fn summary_at(&self, level: u32, number: u32) -> Summary {
        self.summary_of(Node { level, number })
    }

    /// The parent and slot that a block believes it has.
    pub(super) fn believed_parent(&self, level: u32, number: u32) -> Option<(u32, usize)> {
        self.parent_of(Node { level, number })
    }
}
