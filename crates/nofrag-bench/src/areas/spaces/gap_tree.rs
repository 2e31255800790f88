//! Linux's design of 3.8 to 6.0 in this language: a balanced tree of areas in which every node knows the gap below its
//! area and the largest gap of its subtree.
//!
//! Search, store and lookup are three descents from the root, as they are there; a change of a gap is carried up until
//! it changes no maximum. What differs, all of it in the design's favour:
//!
//! * nodes are [`GapTree::NODE_BYTES`] bytes in one array, linked by index, where those of the kernel are parts of
//!   objects of 200 bytes, linked by pointer;
//! * the balance is that of AVL, whose trees are never higher than red-black ones;
//! * the window is that of the space, so that no limit needs a second look at a gap.

use super::{AreaSpace, Found};
use nofrag::ranges::Span;
use std::num::NonZeroU32;

/// A tree of areas in a window.
///
/// 1. Areas ascend in the order of the tree and lie in the window.
/// 2. The gap of a node reaches from the area below, or the start of the window, to its own.
/// 3. A node's maximum is the largest gap of its subtree, its height one more than that of its higher child.
/// 4. The heights of two children differ by at most one.
#[derive(Debug)]
pub struct GapTree {
    window: Span,
    nodes: Vec<Node>,
    root: Link,
    /// The first of the unused nodes, which are linked by `up`.
    unused: Link,
    /// End of the highest area; the gap above belongs to no node.
    top: u64,
    len: usize,
    steps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    area: Area,
    /// Largest gap of the subtree.
    max_gap: u64,
    up: Link,
    /// Children: below and above.
    down: [Link; 2],
    height: u8,
}

#[derive(Clone, Copy, Debug)]
struct Area {
    start: u64,
    end: u64,
    /// Pages between the area below and this one.
    gap: u64,
    kind: u32,
}

type Link = Option<NonZeroU32>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Below,
    Above,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Below => Side::Above,
            Side::Above => Side::Below,
        }
    }
}

impl GapTree {
    /// Bytes that one area costs.
    pub const NODE_BYTES: usize = size_of::<Node>();

    /// Makes a tree without areas.
    #[must_use]
    pub fn new(window: Span) -> GapTree {
        GapTree {
            window,
            nodes: Vec::new(),
            root: None,
            unused: None,
            top: window.start(),
            len: 0,
            steps: 0,
        }
    }

    #[inline]
    fn node(&self, id: NonZeroU32) -> &Node {
        &self.nodes[id.get() as usize - 1]
    }

    #[inline]
    fn node_mut(&mut self, id: NonZeroU32) -> &mut Node {
        &mut self.nodes[id.get() as usize - 1]
    }

    #[inline]
    fn child(&self, id: NonZeroU32, side: Side) -> Link {
        self.node(id).down[side as usize]
    }

    #[inline]
    fn height(&self, link: Link) -> u8 {
        link.map_or(0, |id| self.node(id).height)
    }

    #[inline]
    fn max_gap(&self, link: Link) -> u64 {
        link.map_or(0, |id| self.node(id).max_gap)
    }

    /// Returns the highest place of `pages` pages.
    fn highest(&mut self, pages: u64) -> Option<u64> {
        if self.window.end() - self.top >= pages {
            return Some(self.window.end() - pages);
        }
        let mut id = self.root.filter(|&root| self.node(root).max_gap >= pages)?;
        loop {
            self.steps += 1;
            let node = self.node(id);
            let [below, above] = node.down;
            id = match above.filter(|&above| self.node(above).max_gap >= pages) {
                Some(above) => above,
                None if node.area.gap >= pages => return Some(node.area.start - pages),
                None => below.expect("a maximum comes from a gap of the subtree"),
            };
        }
    }

    /// Stores `start..start + pages`, which lies in a gap.
    fn insert(&mut self, start: u64, pages: u64) {
        let (mut parent, mut at) = (None, self.root);
        let (mut below, mut above) = (None, None);
        while let Some(id) = at {
            let side = if start < self.node(id).area.start { Side::Below } else { Side::Above };
            match side {
                Side::Below => above = at,
                Side::Above => below = at,
            }
            parent = Some((id, side));
            at = self.child(id, side);
        }
        let floor = below.map_or(self.window.start(), |id| self.node(id).area.end);
        let (end, gap, kind) = (start + pages, start - floor, (self.len % 2) as u32);
        let id = self.new_node(Area { start, end, gap, kind });
        self.len += 1;
        match above {
            Some(above) => {
                let area = &mut self.node_mut(above).area;
                area.gap = area.start - end;
            }
            None => self.top = end,
        }
        match parent {
            Some((parent, side)) => self.hang(parent, side, Some(id)),
            None => self.root = Some(id),
        }
        self.repair(parent.map(|(parent, _)| parent));
        self.repair(above);
    }

    /// Removes the area that begins at `start`, if it has `pages` pages.
    fn remove(&mut self, start: u64, pages: u64) -> bool {
        let Some(id) = self.beginning_at(start) else { return false };
        let Node { area, down, .. } = *self.node(id);
        debug_assert!(area.kind < 2, "there are two kinds");
        if area.end != start + pages {
            return false;
        }
        let freed = area.gap + pages;
        let above = self.neighbour(id, Side::Above);
        match above {
            Some(above) => self.node_mut(above).area.gap += freed,
            None => {
                let below = self.neighbour(id, Side::Below);
                self.top = below.map_or(self.window.start(), |id| self.node(id).area.end);
            }
        }
        let (gone, changed) = match (down, above) {
            // The area above stands in this one's subtree, without a child below: its node goes.
            ([Some(_), Some(_)], Some(above)) => {
                self.node_mut(id).area = self.node(above).area;
                (above, Some(id))
            }
            _ => (id, above),
        };
        let parent = self.node(gone).up;
        self.unhang(gone);
        self.repair(parent);
        self.repair(changed);
        self.len -= 1;
        true
    }

    fn beginning_at(&self, start: u64) -> Link {
        let mut at = self.root;
        while let Some(id) = at {
            let area = self.node(id).area;
            if area.start == start {
                return at;
            }
            at = self.child(id, if start < area.start { Side::Below } else { Side::Above });
        }
        None
    }

    /// Returns the next area on this side.
    fn neighbour(&self, id: NonZeroU32, side: Side) -> Link {
        if let Some(mut at) = self.child(id, side) {
            while let Some(next) = self.child(at, side.other()) {
                at = next;
            }
            return Some(at);
        }
        let mut from = id;
        while let Some(up) = self.node(from).up {
            if self.child(up, side) != Some(from) {
                return Some(up);
            }
            from = up;
        }
        None
    }

    fn new_node(&mut self, area: Area) -> NonZeroU32 {
        let node = Node { area, max_gap: area.gap, up: None, down: [None; 2], height: 1 };
        match self.unused {
            Some(id) => {
                self.unused = self.node(id).up;
                *self.node_mut(id) = node;
                id
            }
            None => {
                self.nodes.push(node);
                let number = u32::try_from(self.nodes.len()).expect("fewer than 2^32 areas");
                NonZeroU32::new(number).expect("at least one node was pushed")
            }
        }
    }

    /// Makes `link` the child of `parent` on this side.
    fn hang(&mut self, parent: NonZeroU32, side: Side, link: Link) {
        self.node_mut(parent).down[side as usize] = link;
        if let Some(id) = link {
            self.node_mut(id).up = Some(parent);
        }
    }

    /// Puts `link` where `old` hangs.
    fn replace(&mut self, old: NonZeroU32, link: Link) {
        match self.node(old).up {
            Some(up) => {
                let is_below = self.child(up, Side::Below) == Some(old);
                self.hang(up, if is_below { Side::Below } else { Side::Above }, link);
            }
            None => {
                self.root = link;
                if let Some(id) = link {
                    self.node_mut(id).up = None;
                }
            }
        }
    }

    /// Takes a node with at most one child out of the tree.
    fn unhang(&mut self, id: NonZeroU32) {
        let [below, above] = self.node(id).down;
        self.replace(id, below.or(above));
        self.node_mut(id).up = self.unused;
        self.unused = Some(id);
    }

    /// Sets heights, maxima and balance right from `at` upwards, as far as they change.
    fn repair(&mut self, mut at: Link) {
        while let Some(id) = at {
            let before = (self.node(id).height, self.node(id).max_gap);
            let root = self.balance(id);
            let node = self.node(root);
            if (node.height, node.max_gap) == before {
                break;
            }
            at = node.up;
        }
    }

    fn recompute(&mut self, id: NonZeroU32) {
        let Node { area, down: [below, above], .. } = *self.node(id);
        let height = 1 + self.height(below).max(self.height(above));
        let max_gap = area.gap.max(self.max_gap(below)).max(self.max_gap(above));
        let node = self.node_mut(id);
        (node.height, node.max_gap) = (height, max_gap);
    }

    /// Recomputes a node and rotates where its children's heights differ by two; returns the root of the subtree.
    fn balance(&mut self, id: NonZeroU32) -> NonZeroU32 {
        let [below, above] = self.node(id).down.map(|link| self.height(link));
        let side = if below > above { Side::Below } else { Side::Above };
        if below.abs_diff(above) < 2 {
            self.recompute(id);
            return id;
        }
        let high = self.child(id, side).expect("a side that is higher has a child");
        if self.height(self.child(high, side.other())) > self.height(self.child(high, side)) {
            self.rotate(high, side.other());
        }
        self.rotate(id, side)
    }

    /// Lets the child on this side take the place of its parent.
    fn rotate(&mut self, id: NonZeroU32, side: Side) -> NonZeroU32 {
        let child = self.child(id, side).expect("a rotation has a child to lift");
        self.replace(id, Some(child));
        self.hang(id, side, self.child(child, side.other()));
        self.hang(child, side.other(), Some(id));
        self.recompute(id);
        self.recompute(child);
        child
    }

    /// Checks all laws, and names the first law that does not hold.
    ///
    /// # Errors
    /// The first law that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let (mut floor, mut count, mut stack, mut at) = (self.window.start(), 0, vec![], self.root);
        loop {
            while let Some(id) = at {
                stack.push(id);
                at = self.child(id, Side::Below);
            }
            let Some(id) = stack.pop() else { break };
            self.check_node(id, floor)?;
            floor = self.node(id).area.end;
            count += 1;
            at = self.child(id, Side::Above);
        }
        if (floor, count) == (self.top, self.len) && floor <= self.window.end() {
            Ok(())
        } else {
            Err(format!("{count} areas up to {floor}, not {} up to {}", self.len, self.top))
        }
    }

    fn check_node(&self, id: NonZeroU32, floor: u64) -> Result<(), String> {
        let Node { area, max_gap, down, height, .. } = *self.node(id);
        let [below, above] = down.map(|link| self.height(link));
        let gaps = down.map(|link| self.max_gap(link));
        let laws = [
            ("areas ascend", floor <= area.start && area.start < area.end),
            ("a gap reaches to the area below", area.start.checked_sub(area.gap) == Some(floor)),
            ("a maximum is that of the subtree", max_gap == area.gap.max(gaps[0]).max(gaps[1])),
            ("a height is one more than the higher child's", height == 1 + below.max(above)),
            ("children's heights differ by at most one", below.abs_diff(above) < 2),
            ("children know their parent", {
                down.into_iter().flatten().all(|child| self.node(child).up == Some(id))
            }),
        ];
        let broken = laws.into_iter().find(|(_, holds)| !holds);
        broken.map_or(Ok(()), |(law, _)| Err(format!("{law}: {area:?}")))
    }
}

impl AreaSpace for GapTree {
    #[inline]
    fn map(&mut self, pages: u64) -> Option<u64> {
        let start = self.highest(pages)?;
        self.insert(start, pages);
        Some(start)
    }

    fn map_at(&mut self, start: u64, pages: u64) -> bool {
        self.insert(start, pages);
        true
    }

    #[inline]
    fn unmap(&mut self, start: u64, pages: u64) -> bool {
        self.remove(start, pages)
    }

    #[inline]
    fn find(&self, at: u64) -> Found {
        let mut link = self.root;
        while let Some(id) = link {
            let area = &self.node(id).area;
            if area.start <= at && at < area.end {
                return Found::Area(area.start);
            }
            link = self.child(id, if at < area.start { Side::Below } else { Side::Above });
        }
        Found::Hole
    }

    fn steps(&self) -> Option<u64> {
        Some(self.steps)
    }

    fn own_metadata_bytes(&self) -> Option<usize> {
        Some(self.len * GapTree::NODE_BYTES)
    }
}
