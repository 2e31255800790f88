//! A red-black tree of disjoint spans whose nodes also form a list by address.
//!
//! Both Linux designs stand on it: the busy areas of 4.19 in a plain tree, the free areas of 5.2 in one that keeps the
//! largest size of each subtree. What a subtree is summarized by is the type parameter, so the plain tree pays nothing.
//!
//! Nodes live in one `Vec` and name each other by 32-bit slots; a removed node's slot waits in a chain for the next
//! insertion. Slot 0 is never a node. It is at once the absent child (black, with the empty summary), the parent of the
//! root (its left child) and the head of the circular list, so neither rotations nor list surgery test for an end. Nothing
//! recurses. Insertion uses only memory that was reserved before.
//!
//! Costs: search, insertion and removal O(log n); neighbours by address O(1).

use super::{OutOfMetadata, Span};
use crate::check::Violation;
use alloc::vec::Vec;
use core::num::NonZeroU32;

/// What a node knows about the subtree under it, itself included.
pub(crate) trait Summary: Copy + PartialEq {
    /// The summary of no node at all.
    const EMPTY: Self;

    /// The summary of a node that holds `span`, above children with the summaries `left` and `right`.
    fn of(span: Span, left: Self, right: Self) -> Self;

    /// The summary as a number, for reports of broken laws.
    fn as_number(self) -> u64;
}

impl Summary for () {
    const EMPTY: () = ();

    #[inline]
    fn of(_span: Span, _left: (), _right: ()) {}

    fn as_number(self) -> u64 {
        0
    }
}

/// The size of the largest span in the subtree (Linux: `subtree_max_size`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LargestBelow(pub(crate) u64);

impl Summary for LargestBelow {
    const EMPTY: LargestBelow = LargestBelow(0);

    #[inline]
    fn of(span: Span, left: LargestBelow, right: LargestBelow) -> LargestBelow {
        LargestBelow(span.len()).max(left).max(right)
    }

    fn as_number(self) -> u64 {
        self.0
    }
}

/// A node; the name is good until the node is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(NonZeroU32);

impl NodeId {
    #[inline]
    fn from_slot(slot: u32) -> Option<NodeId> {
        NonZeroU32::new(slot).map(NodeId)
    }

    /// The node's place among all; places of removed nodes are used again.
    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.0.get()
    }
}

/// One of a node's two subtrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Lower addresses.
    Left,
    /// Higher addresses.
    Right,
}

impl Side {
    #[inline]
    fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// A vacant place under a node; good until the tree changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    parent: u32,
    side: Side,
}

/// The absent child, the parent of the root, and the head of the list.
const NIL: u32 = 0;

#[derive(Clone, Copy, Debug)]
struct Node<S> {
    start: u64,
    end: u64,
    summary: S,
    child: [u32; 2],
    parent: u32,
    previous: u32,
    /// The next node by address; in a vacant slot, the next vacant one.
    next: u32,
    red: bool,
}

/// Disjoint spans by address.
///
/// 1. In order, each span ends at or before the start of the next.
/// 2. The list visits the nodes in the tree's order.
/// 3. The root is black, and no red node has a red child.
/// 4. Each way from the root to an absent child passes equally many black nodes.
/// 5. Each summary equals the one recomputed from the node's span and its children's summaries.
/// 6. Each slot but the first is either a node or vacant.
#[derive(Clone, Debug)]
pub(crate) struct RedBlackTree<S> {
    /// Empty until memory is first reserved; then slot 0 exists.
    nodes: Vec<Node<S>>,
    /// Head of the chain of vacant slots.
    vacant: u32,
    len: u32,
}

impl<S: Summary> RedBlackTree<S> {
    pub(crate) const fn new() -> RedBlackTree<S> {
        RedBlackTree { nodes: Vec::new(), vacant: NIL, len: 0 }
    }

    /// How many spans the tree holds.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn metadata_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node<S>>()
    }

    /// Makes sure that the next insertion finds memory.
    #[inline]
    pub(crate) fn reserve_one(&mut self) -> Result<(), OutOfMetadata> {
        if self.vacant != NIL || (self.len > 0 && self.nodes.len() < self.nodes.capacity()) {
            return Ok(());
        }
        self.reserve(self.len() + 1)
    }

    /// Makes sure that insertions find memory until there are `total` nodes.
    #[cold]
    pub(crate) fn reserve(&mut self, total: usize) -> Result<(), OutOfMetadata> {
        let slots = total.checked_add(1).filter(|&slots| slots <= u32::MAX as usize);
        let more = slots.ok_or(OutOfMetadata)?.saturating_sub(self.nodes.len());
        self.nodes.try_reserve(more).map_err(|_| OutOfMetadata)?;
        if self.nodes.is_empty() {
            self.nodes.push(Node {
                start: 0,
                end: 0,
                summary: S::EMPTY,
                child: [NIL; 2],
                parent: NIL,
                previous: NIL,
                next: NIL,
                red: false,
            });
        }
        Ok(())
    }

    #[inline]
    fn node(&self, slot: u32) -> &Node<S> {
        &self.nodes[slot as usize]
    }

    #[inline]
    fn node_mut(&mut self, slot: u32) -> &mut Node<S> {
        &mut self.nodes[slot as usize]
    }

    /// Which child of its parent the node is. The root is the left child of slot 0.
    #[inline]
    fn side_of(&self, slot: u32) -> Side {
        let parent = self.node(self.node(slot).parent);
        if parent.child[Side::Left as usize] == slot { Side::Left } else { Side::Right }
    }

    /// Makes `child`, which may be absent, the child of `parent` at `side`.
    #[inline]
    fn hang(&mut self, parent: u32, side: Side, child: u32) {
        self.node_mut(parent).child[side as usize] = child;
        // For an absent child this writes a field that nobody reads.
        self.node_mut(child).parent = parent;
    }

    #[inline]
    fn root_slot(&self) -> u32 {
        self.nodes.first().map_or(NIL, |head| head.child[Side::Left as usize])
    }

    #[inline]
    pub(crate) fn root(&self) -> Option<NodeId> {
        NodeId::from_slot(self.root_slot())
    }

    #[inline]
    pub(crate) fn child(&self, id: NodeId, side: Side) -> Option<NodeId> {
        NodeId::from_slot(self.node(id.slot()).child[side as usize])
    }

    #[inline]
    pub(crate) fn parent(&self, id: NodeId) -> Option<NodeId> {
        NodeId::from_slot(self.node(id.slot()).parent)
    }

    /// The lowest span's node.
    #[inline]
    pub(crate) fn first(&self) -> Option<NodeId> {
        NodeId::from_slot(self.nodes.first()?.next)
    }

    /// The next node by address.
    #[inline]
    pub(crate) fn next(&self, id: NodeId) -> Option<NodeId> {
        NodeId::from_slot(self.node(id.slot()).next)
    }

    /// The previous node by address; of no node, the highest one.
    #[inline]
    pub(crate) fn previous(&self, id: Option<NodeId>) -> Option<NodeId> {
        let slot = id.map_or(NIL, NodeId::slot);
        NodeId::from_slot(self.nodes.get(slot as usize)?.previous)
    }

    #[inline]
    pub(crate) fn span(&self, id: NodeId) -> Span {
        let node = self.node(id.slot());
        Span::known(node.start, node.end)
    }

    /// The summary of the whole tree.
    #[inline]
    pub(crate) fn summary(&self) -> S {
        self.nodes.first().map_or(S::EMPTY, |head| self.node(head.child[0]).summary)
    }

    /// The summary of one of a node's subtrees.
    #[inline]
    pub(crate) fn summary_below(&self, id: NodeId, side: Side) -> S {
        self.node(self.node(id.slot()).child[side as usize]).summary
    }

    /// All spans by ascending address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        core::iter::successors(self.first(), |&id| self.next(id)).map(|id| self.span(id))
    }

    /// The lowest span that ends above `at`, and how many nodes were visited to find it.
    pub(crate) fn first_ending_above(&self, at: u64) -> (Option<NodeId>, u64) {
        let mut found = NIL;
        let mut visits = 0;
        let mut slot = self.root_slot();
        while slot != NIL {
            visits += 1;
            let node = self.node(slot);
            if node.end > at {
                found = slot;
                slot = node.child[Side::Left as usize];
            } else {
                slot = node.child[Side::Right as usize];
            }
        }
        (NodeId::from_slot(found), visits)
    }

    /// Where `span` belongs; `None` if it overlaps one that the tree holds.
    pub(crate) fn link_for(&self, span: Span) -> Option<Link> {
        let mut link = Link { parent: NIL, side: Side::Left };
        let mut slot = self.root_slot();
        while slot != NIL {
            let node = self.node(slot);
            let side = if span.end() <= node.start {
                Side::Left
            } else if span.start() >= node.end {
                Side::Right
            } else {
                return None;
            };
            link = Link { parent: slot, side };
            slot = node.child[side as usize];
        }
        Some(link)
    }

    /// The place just below `id` by address; without one, above all nodes.
    pub(crate) fn link_before(&self, id: Option<NodeId>) -> Link {
        let slot = id.map_or(NIL, NodeId::slot);
        match self.nodes.get(slot as usize) {
            // The previous node is the highest of a left subtree, or of the whole tree: it has no right child.
            Some(node) if node.child[Side::Left as usize] != NIL => {
                Link { parent: node.previous, side: Side::Right }
            }
            _ => Link { parent: slot, side: Side::Left },
        }
    }

    /// The nodes below and above a place.
    #[inline]
    pub(crate) fn neighbours(&self, link: Link) -> (Option<NodeId>, Option<NodeId>) {
        let Some(parent) = self.nodes.get(link.parent as usize) else { return (None, None) };
        match link.side {
            Side::Left => (NodeId::from_slot(parent.previous), NodeId::from_slot(link.parent)),
            Side::Right => (NodeId::from_slot(link.parent), NodeId::from_slot(parent.next)),
        }
    }

    /// Inserts `span` at the place found for it. Memory was reserved.
    pub(crate) fn insert(&mut self, link: Link, span: Span) -> NodeId {
        let Link { parent, side } = link;
        debug_assert!(self.node(parent).child[side as usize] == NIL, "the place is taken");
        let (previous, next) = match side {
            Side::Left => (self.node(parent).previous, parent),
            Side::Right => (parent, self.node(parent).next),
        };
        let slot = self.occupy(Node {
            start: span.start(),
            end: span.end(),
            summary: S::of(span, S::EMPTY, S::EMPTY),
            child: [NIL; 2],
            parent,
            previous,
            next,
            red: true,
        });
        self.node_mut(parent).child[side as usize] = slot;
        self.node_mut(previous).next = slot;
        self.node_mut(next).previous = slot;
        self.refresh_from(parent);
        self.balance_after_insert(slot);
        NodeId::from_slot(slot).expect("slot 0 exists before any node")
    }

    /// Writes a node into a vacant slot or a new one.
    #[inline]
    fn occupy(&mut self, node: Node<S>) -> u32 {
        self.len += 1;
        let slot = self.vacant;
        if slot != NIL {
            self.vacant = self.node(slot).next;
            *self.node_mut(slot) = node;
            return slot;
        }
        debug_assert!(self.nodes.len() < self.nodes.capacity(), "memory was not reserved");
        let slot = self.nodes.len() as u32;
        self.nodes.push(node);
        slot
    }

    /// Replaces a node's span by one that lies between the same neighbours.
    #[inline]
    pub(crate) fn set_span(&mut self, id: NodeId, span: Span) {
        let node = self.node_mut(id.slot());
        node.start = span.start();
        node.end = span.end();
        self.refresh_from(id.slot());
    }

    #[inline]
    fn summarize(&self, slot: u32) -> S {
        let node = self.node(slot);
        let [left, right] = node.child;
        S::of(Span::known(node.start, node.end), self.node(left).summary, self.node(right).summary)
    }

    /// Recomputes summaries from a node towards the root, until one does not change.
    #[inline]
    fn refresh_from(&mut self, mut slot: u32) {
        while slot != NIL {
            let summary = self.summarize(slot);
            let node = self.node_mut(slot);
            if node.summary == summary {
                break;
            }
            node.summary = summary;
            slot = node.parent;
        }
    }

    /// Rotates a node into the place of its parent, which becomes its child.
    fn rotate_up(&mut self, slot: u32) {
        let side = self.side_of(slot);
        let parent = self.node(slot).parent;
        let parent_side = self.side_of(parent);
        let grandparent = self.node(parent).parent;
        let inner = self.node(slot).child[side.other() as usize];
        self.hang(parent, side, inner);
        self.hang(grandparent, parent_side, slot);
        self.hang(slot, side.other(), parent);
        // The subtree as a whole is unchanged, and so is its summary.
        self.node_mut(slot).summary = self.node(parent).summary;
        self.node_mut(parent).summary = self.summarize(parent);
    }

    /// Restores laws 3 and 4 after a red node came into the tree.
    fn balance_after_insert(&mut self, mut slot: u32) {
        loop {
            let parent = self.node(slot).parent;
            if !self.node(parent).red {
                break;
            }
            let grandparent = self.node(parent).parent;
            let side = self.side_of(parent);
            let uncle = self.node(grandparent).child[side.other() as usize];
            self.node_mut(grandparent).red = true;
            if self.node(uncle).red {
                self.node_mut(parent).red = false;
                self.node_mut(uncle).red = false;
                slot = grandparent;
                continue;
            }
            let top = if self.side_of(slot) == side {
                parent
            } else {
                self.rotate_up(slot);
                slot
            };
            self.node_mut(top).red = false;
            self.rotate_up(top);
            break;
        }
        let root = self.root_slot();
        self.node_mut(root).red = false;
    }

    /// Removes a node.
    pub(crate) fn remove(&mut self, id: NodeId) {
        let slot = id.slot();
        let Node { child: [left, right], parent, previous, next, red, .. } = *self.node(slot);
        self.node_mut(previous).next = next;
        self.node_mut(next).previous = previous;
        if left == NIL || right == NIL {
            let only = left.max(right);
            let side = self.side_of(slot);
            self.hang(parent, side, only);
            self.refresh_from(parent);
            if !red {
                self.balance_after_remove(only, parent);
            }
        } else {
            self.replace_by_next(slot, next);
        }
        self.node_mut(slot).next = self.vacant;
        self.vacant = slot;
        self.len -= 1;
    }

    /// Puts the next node by address, which has no left child, into the place of a node with two children.
    fn replace_by_next(&mut self, slot: u32, next: u32) {
        let Node { child: [left, right], parent, red, summary, .. } = *self.node(slot);
        let orphan = self.node(next).child[Side::Right as usize];
        let next_was_red = self.node(next).red;
        let side = self.side_of(slot);
        let orphan_parent = if next == right {
            next
        } else {
            let orphan_parent = self.node(next).parent;
            self.hang(orphan_parent, Side::Left, orphan);
            self.hang(next, Side::Right, right);
            orphan_parent
        };
        self.hang(next, Side::Left, left);
        self.hang(parent, side, next);
        let successor = self.node_mut(next);
        successor.red = red;
        // What the parent has seen so far; else a recomputation that happens to equal the summary of the old place would
        // stop the refresh too early.
        successor.summary = summary;
        self.refresh_from(orphan_parent);
        self.refresh_from(next);
        if !next_was_red {
            self.balance_after_remove(orphan, orphan_parent);
        }
    }

    /// Restores laws 3 and 4 where the ways through `slot`, which may be absent, lack one black node.
    fn balance_after_remove(&mut self, mut slot: u32, mut parent: u32) {
        while parent != NIL && !self.node(slot).red {
            let on_left = self.node(parent).child[Side::Left as usize] == slot;
            let side = if on_left { Side::Left } else { Side::Right };
            let away = side.other() as usize;
            let mut sibling = self.node(parent).child[away];
            if self.node(sibling).red {
                self.node_mut(sibling).red = false;
                self.node_mut(parent).red = true;
                self.rotate_up(sibling);
                sibling = self.node(parent).child[away];
            }
            let near = self.node(sibling).child[side as usize];
            let far = self.node(sibling).child[away];
            if !self.node(near).red && !self.node(far).red {
                self.node_mut(sibling).red = true;
                slot = parent;
                parent = self.node(slot).parent;
                continue;
            }
            if !self.node(far).red {
                self.rotate_up(near);
                self.node_mut(sibling).red = true;
                sibling = near;
            }
            let far = self.node(sibling).child[away];
            self.node_mut(sibling).red = self.node(parent).red;
            self.node_mut(parent).red = false;
            self.node_mut(far).red = false;
            self.rotate_up(sibling);
            return;
        }
        self.node_mut(slot).red = false;
    }

    /// Verifies the six laws. O(n), without memory of its own.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let Some(head) = self.nodes.first() else {
            return Violation::unless_equal("each slot is a node or vacant", 0, 0, self.len.into());
        };
        let root = head.child[Side::Left as usize];
        Violation::unless("the root is black", 0, !self.node(root).red && !head.red)?;
        Violation::unless("the absent child is empty", 0, head.summary == S::EMPTY)?;
        self.check_order_and_depth()?;
        for slot in core::iter::successors(Some(head.next), |&slot| Some(self.node(slot).next))
            .take_while(|&slot| slot != NIL)
        {
            self.check_node(slot)?;
        }
        let mut slots = 1 + u64::from(self.len);
        let mut vacant = self.vacant;
        while vacant != NIL {
            slots += 1;
            vacant = self.node(vacant).next;
        }
        Violation::unless_equal("each slot is a node or vacant", 0, self.nodes.len() as u64, slots)
    }

    /// Laws of one node: its colour and its children's, its summary, its links both ways.
    fn check_node(&self, slot: u32) -> Result<(), Violation> {
        let node = self.node(slot);
        let at = node.start;
        Violation::unless("a span is not empty", at, node.start < node.end)?;
        for child in node.child.into_iter().filter(|&child| child != NIL) {
            Violation::unless_equal(
                "a child knows its parent",
                at,
                slot.into(),
                self.node(child).parent.into(),
            )?;
            let both_red = node.red && self.node(child).red;
            Violation::unless("no red node has a red child", at, !both_red)?;
        }
        let next = self.node(node.next);
        Violation::unless_equal(
            "the list reads alike both ways",
            at,
            slot.into(),
            next.previous.into(),
        )?;
        if node.next != NIL {
            let apart = node.end <= next.start;
            Violation::unless("each span ends before the next starts", at, apart)?;
        }
        let (expected, found) = (self.summarize(slot), node.summary);
        if expected == found {
            return Ok(());
        }
        Err(Violation {
            law: "each summary equals the recomputed one",
            at,
            expected: expected.as_number(),
            found: found.as_number(),
        })
    }

    /// Walks the tree in order by parent links beside the list, and counts black nodes on the way to each absent child.
    fn check_order_and_depth(&self) -> Result<(), Violation> {
        let mut listed = self.node(NIL).next;
        let mut visited = 0_u64;
        let mut depth = 0_u64;
        let mut depth_of_absent = None;
        let mut slot = self.root_slot();
        let mut came_from = NIL;
        while slot != NIL {
            let node = self.node(slot);
            let [left, right] = node.child;
            let black = u64::from(!node.red);
            let from_above = came_from == node.parent;
            depth += if from_above { black } else { 0 };
            for _ in node.child.into_iter().filter(|&child| child == NIL && from_above) {
                let expected = *depth_of_absent.get_or_insert(depth);
                let law = "each way to an absent child passes equally many black nodes";
                Violation::unless_equal(law, node.start, expected, depth)?;
            }
            let from_left = came_from == left && !from_above;
            if from_above && left != NIL {
                (came_from, slot) = (slot, left);
                continue;
            }
            if from_above || from_left {
                let law = "the list visits the nodes in the tree's order";
                Violation::unless_equal(law, node.start, slot.into(), listed.into())?;
                visited += 1;
                listed = node.next;
                if right != NIL {
                    (came_from, slot) = (slot, right);
                    continue;
                }
            }
            depth -= black;
            (came_from, slot) = (slot, node.parent);
        }
        let law = "the list visits the nodes in the tree's order";
        Violation::unless_equal(law, u64::MAX, NIL.into(), listed.into())?;
        Violation::unless_equal(law, u64::MAX, self.len.into(), visited)
    }
}
