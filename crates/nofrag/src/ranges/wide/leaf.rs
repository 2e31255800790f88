//! The blocks at the bottom: up to 32 holes each, as offsets and lengths relative to a window, with their notes.

use super::entry::{Entry, Hole, Note};
use super::row::{LANE_MAX, LANES, Lanes, Row};
use crate::lists::put;
use crate::ranges::OutOfMetadata;
use alloc::vec::Vec;

/// No node: the parent of the root, the end of the list of vacant nodes.
pub(super) const NIL: u32 = u32::MAX;

/// Numbers in a window, as a base-2 logarithm.
pub(super) const WINDOW_BITS: u32 = 31;

/// The offset in an unused lane; the offset of a hole is no larger.
const NO_OFFSET: u32 = LANE_MAX;

/// Returns the number of the window that holds `number`; windows are aligned stretches of 2^31 numbers.
#[inline]
pub(super) fn window_of(number: u64) -> u64 {
    number >> WINDOW_BITS
}

/// Returns the position of `number` inside its window.
#[inline]
pub(super) fn offset_of(number: u64) -> u32 {
    number as u32 & LANE_MAX
}

/// Returns `length` as a lane holds it: cut down to [`LANE_MAX`].
#[inline]
pub(super) fn saturated(length: u64) -> u32 {
    length.min(u64::from(LANE_MAX)) as u32
}

/// The facts of a leaf besides its entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafHead {
    /// The window in which all holes of the leaf start.
    pub(super) window: u64,
    /// The true length of the last hole, when its lane holds [`LANE_MAX`]. Only the last can be: a hole that long ends
    /// in a later window, so none follows it in this one.
    pub(super) long: u64,
    /// The inner node above; for a vacant leaf the next vacant one.
    pub(super) parent: u32,
    /// The leaf's place in its parent.
    pub(super) slot: u8,
    pub(super) count: u8,
}

/// Holes that went from one leaf to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) from: u32,
    pub(super) to: u32,
    /// Lengths of the moved holes, as lanes hold them: the first `count` of these.
    pub(super) lengths: Row,
    pub(super) count: usize,
}

/// The entries of a leaf, lane by lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<N> {
    pub(super) offsets: Row,
    pub(super) lengths: Row,
    notes: Lanes<N>,
}

impl<N: Note> Rows<N> {
    fn vacant() -> Rows<N> {
        Rows {
            offsets: Row::filled(NO_OFFSET),
            lengths: Row::filled(0),
            notes: Lanes::filled(N::default()),
        }
    }

    /// Moves the entries from lane `lane` on into new rows.
    fn split_off(&mut self, lane: usize) -> Rows<N> {
        Rows {
            offsets: self.offsets.split_off(lane, NO_OFFSET),
            lengths: self.lengths.split_off(lane, 0),
            notes: self.notes.split_off(lane, N::default()),
        }
    }

    /// Puts the first `count` entries of `other` before the own ones.
    fn prepend(&mut self, other: &Rows<N>, count: usize) {
        self.offsets.prepend(&other.offsets, count);
        self.lengths.prepend(&other.lengths, count);
        self.notes.prepend(&other.notes, count);
    }

    /// Copies the first `count` entries of `other` behind the first `at` of the own ones.
    fn append(&mut self, at: usize, other: &Rows<N>, count: usize) {
        self.offsets.append(at, &other.offsets, count);
        self.lengths.append(at, &other.lengths, count);
        self.notes.append(at, &other.notes, count);
    }
}

/// All leaves, by number; vacant ones are chained.
#[derive(Debug)]
pub(super) struct Leaves<N> {
    rows: Vec<Rows<N>>,
    heads: Vec<LeafHead>,
    vacant: u32,
    vacant_count: usize,
}

impl<N> Default for Leaves<N> {
    fn default() -> Leaves<N> {
        Leaves { rows: Vec::new(), heads: Vec::new(), vacant: NIL, vacant_count: 0 }
    }
}

impl<N: Note> Leaves<N> {
    #[inline]
    pub(super) fn head(&self, leaf: u32) -> &LeafHead {
        &self.heads[leaf as usize]
    }

    #[inline]
    pub(super) fn head_mut(&mut self, leaf: u32) -> &mut LeafHead {
        &mut self.heads[leaf as usize]
    }

    #[inline]
    pub(super) fn parts(&self, leaf: u32) -> (&LeafHead, &Rows<N>) {
        (&self.heads[leaf as usize], &self.rows[leaf as usize])
    }

    #[inline]
    pub(super) fn parts_mut(&mut self, leaf: u32) -> (&LeafHead, &mut Rows<N>) {
        (&self.heads[leaf as usize], &mut self.rows[leaf as usize])
    }

    #[inline]
    pub(super) fn offsets(&self, leaf: u32) -> &Row {
        &self.rows[leaf as usize].offsets
    }

    #[inline]
    pub(super) fn lengths(&self, leaf: u32) -> &Row {
        &self.rows[leaf as usize].lengths
    }

    #[inline]
    pub(super) fn count(&self, leaf: u32) -> usize {
        usize::from(self.heads[leaf as usize].count)
    }

    /// Returns the number of leaves, vacant ones included.
    pub(super) fn numbers(&self) -> usize {
        self.heads.len()
    }

    #[inline]
    pub(super) fn vacant(&self) -> usize {
        self.vacant_count
    }

    /// Returns the number of leaves that hold holes.
    pub(super) fn in_use(&self) -> usize {
        self.heads.len() - self.vacant_count
    }

    #[inline]
    pub(super) fn hole(&self, leaf: u32, lane: usize) -> Hole {
        let start = self.start(leaf, lane);
        Hole::known(start, start + self.length(leaf, lane))
    }

    /// Returns the start and the end of the area between the holes in lane `lane` and in the next lane.
    #[inline]
    pub(super) fn between(&self, leaf: u32, lane: usize) -> (u64, u64) {
        let base = self.heads[leaf as usize].window << WINDOW_BITS;
        let Rows { offsets, lengths, .. } = &self.rows[leaf as usize];
        let start = base + u64::from(offsets.0[lane]) + u64::from(lengths.0[lane]);
        (start, base + u64::from(offsets.0[lane + 1]))
    }

    #[inline]
    pub(super) fn start(&self, leaf: u32, lane: usize) -> u64 {
        let base = self.heads[leaf as usize].window << WINDOW_BITS;
        base + u64::from(self.rows[leaf as usize].offsets.0[lane])
    }

    /// Returns the true length of the hole in lane `lane`.
    #[inline]
    pub(super) fn length(&self, leaf: u32, lane: usize) -> u64 {
        match self.rows[leaf as usize].lengths.0[lane] {
            LANE_MAX => self.heads[leaf as usize].long,
            length => u64::from(length),
        }
    }

    /// Returns the number of holes of the leaf that start at or below `at`, which may lie in any window.
    #[inline]
    pub(super) fn count_up_to(&self, leaf: u32, at: u64) -> usize {
        let head = &self.heads[leaf as usize];
        let count = usize::from(head.count);
        match window_of(at) {
            window if window == head.window => {
                self.rows[leaf as usize].offsets.count_up_to(offset_of(at)).min(count)
            }
            window if window < head.window => 0,
            _ => count,
        }
    }

    #[inline]
    pub(super) fn note(&self, leaf: u32, lane: usize) -> N {
        self.rows[leaf as usize].notes.0[lane]
    }

    #[inline]
    pub(super) fn set_note(&mut self, leaf: u32, lane: usize, note: N) {
        self.rows[leaf as usize].notes.0[lane] = note;
    }

    /// Sets the hole in lane `lane` to `hole`, which starts in the leaf's window.
    #[inline]
    pub(super) fn set(&mut self, leaf: u32, lane: usize, hole: Hole) {
        self.rows[leaf as usize].offsets.0[lane] = offset_of(hole.start);
        self.set_length(leaf, lane, hole.len());
    }

    #[inline]
    pub(super) fn set_length(&mut self, leaf: u32, lane: usize, length: u64) {
        self.rows[leaf as usize].lengths.0[lane] = saturated(length);
        if length >= u64::from(LANE_MAX) {
            self.heads[leaf as usize].long = length;
        }
    }

    /// Puts an entry into lane `lane` and moves the others up; the leaf is not full.
    #[inline]
    pub(super) fn insert(&mut self, leaf: u32, lane: usize, entry: Entry<N>) {
        let (at, hole) = (leaf as usize, entry.hole);
        let rows = &mut self.rows[at];
        rows.offsets.insert(lane, offset_of(hole.start));
        rows.lengths.insert(lane, saturated(hole.len()));
        rows.notes.insert(lane, entry.note);
        let head = &mut self.heads[at];
        if hole.len() >= u64::from(LANE_MAX) {
            head.long = hole.len();
        }
        head.count += 1;
    }

    /// Takes the hole in lane `lane` out and moves the others down.
    #[inline]
    pub(super) fn remove(&mut self, leaf: u32, lane: usize) {
        let at = leaf as usize;
        let rows = &mut self.rows[at];
        rows.offsets.remove(lane, NO_OFFSET);
        rows.lengths.remove(lane, 0);
        rows.notes.remove(lane, N::default());
        self.heads[at].count -= 1;
    }

    /// Moves the holes from lane `lane` on into the empty leaf `to`.
    pub(super) fn split_into(&mut self, leaf: u32, lane: usize, to: u32) {
        let (at, to) = (leaf as usize, to as usize);
        let moved = usize::from(self.heads[at].count) - lane;
        self.rows[to] = self.rows[at].split_off(lane);
        self.heads[to].window = self.heads[at].window;
        self.heads[to].long = self.heads[at].long;
        self.heads[to].count = moved as u8;
        self.heads[at].count = lane as u8;
    }

    /// Shares the holes of two neighbours, of which one is full, evenly; returns those that moved.
    pub(super) fn share(&mut self, left: u32, right: u32) -> Moved {
        let (mine, theirs) = (self.count(left), self.count(right));
        let keep = (mine + theirs) / 2;
        let (l, r) = (left as usize, right as usize);
        let moved = if mine > theirs {
            let count = mine - keep;
            let rows = self.rows[l].split_off(keep);
            self.rows[r].prepend(&rows, count);
            Moved { from: left, to: right, lengths: rows.lengths, count }
        } else {
            let count = keep - mine;
            let rows = self.rows[r];
            self.rows[l].append(mine, &rows, count);
            self.rows[r] = self.rows[r].split_off(count);
            Moved { from: right, to: left, lengths: rows.lengths, count }
        };
        self.heads[l].count = keep as u8;
        self.heads[r].count = (mine + theirs - keep) as u8;
        moved
    }

    /// Exchanges the holes of two leaves; each leaf keeps its place in the tree.
    pub(super) fn swap_holes(&mut self, one: u32, other: u32) {
        let (one, other) = (one as usize, other as usize);
        self.rows.swap(one, other);
        self.heads.swap(one, other);
        let (parent, slot) = (self.heads[one].parent, self.heads[one].slot);
        (self.heads[one].parent, self.heads[one].slot) =
            (self.heads[other].parent, self.heads[other].slot);
        (self.heads[other].parent, self.heads[other].slot) = (parent, slot);
    }

    /// Moves all holes of `from`, the right neighbour of `leaf` in the same window, behind those of `leaf`.
    pub(super) fn join(&mut self, leaf: u32, from: u32) {
        let (at, from) = (leaf as usize, from as usize);
        let (own, more) = (self.count(leaf), usize::from(self.heads[from].count));
        let rows = self.rows[from];
        self.rows[at].append(own, &rows, more);
        self.heads[at].long = self.heads[from].long;
        self.heads[at].count = (own + more) as u8;
        self.heads[from].count = 0;
    }

    /// Makes sure that the next `count` calls of [`take_vacant`](Self::take_vacant) find a leaf.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), OutOfMetadata> {
        while self.vacant_count < count {
            let more = (self.heads.len() / N::GROWTH).max(count).max(2);
            self.rows.try_reserve_exact(more)?;
            self.heads.try_reserve_exact(more)?;
            for _ in 0..more {
                let leaf = self.heads.len() as u32;
                put(&mut self.rows, Rows::vacant());
                let parent = self.vacant;
                put(&mut self.heads, LeafHead { window: 0, long: 0, parent, slot: 0, count: 0 });
                self.vacant = leaf;
                self.vacant_count += 1;
            }
        }
        Ok(())
    }

    /// Takes an empty leaf for holes that start in `window`; [`reserve`](Self::reserve) came before.
    pub(super) fn take_vacant(&mut self, window: u64) -> u32 {
        let leaf = self.vacant;
        assert!(leaf != NIL, "a leaf was taken that had not been reserved");
        self.vacant = self.heads[leaf as usize].parent;
        self.vacant_count -= 1;
        self.heads[leaf as usize] = LeafHead { window, long: 0, parent: NIL, slot: 0, count: 0 };
        leaf
    }

    /// Gives an empty leaf back.
    pub(super) fn put_vacant(&mut self, leaf: u32) {
        debug_assert_eq!(self.count(leaf), 0, "a leaf with holes was given back");
        self.rows[leaf as usize] = Rows::vacant();
        self.heads[leaf as usize].parent = self.vacant;
        self.vacant = leaf;
        self.vacant_count += 1;
    }

    /// Returns the bytes of memory that all leaves take, vacant ones and spare room included.
    pub(super) fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Rows<N>>() + self.heads.capacity() * size_of::<LeafHead>()
    }

    #[inline]
    pub(super) fn is_full(&self, leaf: u32) -> bool {
        self.count(leaf) == LANES
    }
}
