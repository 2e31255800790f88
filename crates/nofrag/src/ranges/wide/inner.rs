//! The blocks above the leaves: up to 32 children each, with the largest hole below each child.

use super::leaf::NIL;
use super::row::{LANE_MAX, LANES, Lanes, Row};
use super::tree::BySize;
use crate::lists::{put, put_all};
use crate::ranges::OutOfMetadata;
use alloc::vec::Vec;

/// A block above the leaves: up to 32 children.
///
/// The lower fence of child `i > 0` is a number above all hole starts of child `i - 1` and not above those of child
/// `i`. The fence of child 0 is 0, whatever lies below it: a number that the block above sends here belongs here.
/// Fences are stored in halves, each with its top bit flipped, so that signed 32-bit comparisons order them.
#[derive(Clone, Debug)]
pub(super) struct Inner {
    /// For each child the length of the largest hole below it, cut down to [`LANE_MAX`].
    pub(super) largest: Row,
    fence_high: Row,
    fence_low: Row,
    /// The number of each child: a leaf's at level 1, an inner block's above.
    pub(super) child: Row,
    /// The true length of the largest hole below if a lane cannot hold it, else 0.
    pub(super) long: u64,
    /// The block above; for a vacant block the next vacant one.
    pub(super) parent: u32,
    /// This block's place in its parent.
    pub(super) slot: u8,
    pub(super) count: u8,
}

const FLIP: u32 = 1 << 31;

impl Inner {
    fn new() -> Inner {
        Inner {
            largest: Row::filled(0),
            fence_high: Row::filled(LANE_MAX),
            fence_low: Row::filled(LANE_MAX),
            child: Row::filled(NIL),
            long: 0,
            parent: NIL,
            slot: 0,
            count: 0,
        }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns the slot of the child whose fences enclose `at`.
    #[inline]
    pub(super) fn slot_of(&self, at: u64) -> usize {
        let (high, low) = (((at >> 32) as u32 ^ FLIP) as i32, (at as u32 ^ FLIP) as i32);
        let mut count = 0;
        for lane in 0..LANES {
            let (fence_high, fence_low) =
                (self.fence_high.0[lane] as i32, self.fence_low.0[lane] as i32);
            count += u32::from((fence_high < high) | ((fence_high == high) & (fence_low <= low)));
        }
        (count as usize - 1).min(self.count() - 1)
    }

    /// Returns the same as [`slot_of`](Self::slot_of), sooner where the last child is likely: a search downwards begins
    /// at the upper end.
    #[inline]
    pub(super) fn slot_of_high(&self, at: u64) -> usize {
        let last = self.count() - 1;
        if self.fence(last) <= at { last } else { self.slot_of(at) }
    }

    #[inline]
    pub(super) fn fence(&self, slot: usize) -> u64 {
        u64::from(self.fence_high.0[slot] ^ FLIP) << 32 | u64::from(self.fence_low.0[slot] ^ FLIP)
    }

    pub(super) fn set_fence(&mut self, slot: usize, fence: u64) {
        self.fence_high.0[slot] = (fence >> 32) as u32 ^ FLIP;
        self.fence_low.0[slot] = fence as u32 ^ FLIP;
    }

    /// Puts a child into `slot` and moves the others up; the block is not full.
    pub(super) fn insert(&mut self, slot: usize, child: u32, fence: u64) {
        self.largest.insert(slot, 0);
        self.fence_high.insert(slot, 0);
        self.fence_low.insert(slot, 0);
        self.child.insert(slot, child);
        self.set_fence(slot, fence);
        self.count += 1;
    }

    /// Takes the child in `slot` out and moves the others down.
    pub(super) fn remove(&mut self, slot: usize) {
        self.largest.remove(slot, 0);
        self.fence_high.remove(slot, LANE_MAX);
        self.fence_low.remove(slot, LANE_MAX);
        self.child.remove(slot, NIL);
        self.count -= 1;
        self.set_fence(0, 0);
    }

    /// Moves the children from `slot` on into the empty block `to`.
    pub(super) fn split_into(&mut self, slot: usize, to: &mut Inner) {
        to.largest = self.largest.split_off(slot, 0);
        to.fence_high = self.fence_high.split_off(slot, LANE_MAX);
        to.fence_low = self.fence_low.split_off(slot, LANE_MAX);
        to.child = self.child.split_off(slot, NIL);
        to.count = self.count - slot as u8;
        self.count = slot as u8;
        to.set_fence(0, 0);
    }

    /// Moves all children of `from` behind this block's own.
    pub(super) fn join(&mut self, from: &mut Inner) {
        let (own, more) = (self.count(), from.count());
        self.largest.append(own, &from.largest, more);
        self.fence_high.append(own, &from.fence_high, more);
        self.fence_low.append(own, &from.fence_low, more);
        self.child.append(own, &from.child, more);
        self.count += from.count;
        from.count = 0;
    }
}

/// All inner blocks, by number; vacant ones are chained.
#[derive(Debug)]
pub(super) struct Inners {
    blocks: Vec<Inner>,
    /// For each block one row per alignment class: the largest size that the class allows below each child, cut down to
    /// [`LANE_MAX`].
    aligned: Vec<Row>,
    classes: usize,
    /// For each block and each of its children the set of brackets, ranges of lengths, in which holes below the child
    /// fall, one bit each; no rows in a tree that keeps no brackets.
    brackets: Vec<Lanes<u64>>,
    bracketed: usize,
    vacant: u32,
    vacant_count: usize,
}

impl Inners {
    pub(super) fn new(classes: usize, by_size: BySize) -> Inners {
        Inners {
            blocks: Vec::new(),
            aligned: Vec::new(),
            classes,
            brackets: Vec::new(),
            bracketed: usize::from(by_size == BySize::Brackets),
            vacant: NIL,
            vacant_count: 0,
        }
    }

    /// Returns true if blocks keep the brackets of lengths below their children.
    #[inline]
    pub(super) fn has_brackets(&self) -> bool {
        self.bracketed > 0
    }

    /// Returns the brackets of lengths below each child of `block`, one bit for each bracket.
    #[inline]
    pub(super) fn brackets(&self, block: u32) -> &Lanes<u64> {
        &self.brackets[block as usize]
    }

    #[inline]
    pub(super) fn brackets_mut(&mut self, block: u32) -> &mut Lanes<u64> {
        &mut self.brackets[block as usize]
    }

    #[inline]
    pub(super) fn get(&self, block: u32) -> &Inner {
        &self.blocks[block as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, block: u32) -> &mut Inner {
        &mut self.blocks[block as usize]
    }

    pub(super) fn pair_mut(&mut self, one: u32, other: u32) -> (&mut Inner, &mut Inner) {
        let pair = self.blocks.get_disjoint_mut([one as usize, other as usize]);
        let [one, other] = pair.expect("two different blocks");
        (one, other)
    }

    /// Returns the largest size that the alignment class allows below each child of `block`, cut down to [`LANE_MAX`].
    #[inline]
    pub(super) fn aligned(&self, block: u32, class: usize) -> &Row {
        &self.aligned[block as usize * self.classes + class]
    }

    #[inline]
    pub(super) fn aligned_mut(&mut self, block: u32, class: usize) -> &mut Row {
        &mut self.aligned[block as usize * self.classes + class]
    }

    /// Adds an alignment class as number `class`. Below each child it allows the largest hole, until somebody knows
    /// better.
    pub(super) fn add_class(&mut self, class: usize) -> Result<(), OutOfMetadata> {
        let mut aligned = Vec::new();
        aligned.try_reserve_exact(self.blocks.len() * (self.classes + 1))?;
        for (number, block) in self.blocks.iter().enumerate() {
            let (below, above) =
                self.aligned[number * self.classes..][..self.classes].split_at(class);
            put_all(&mut aligned, below.iter().copied());
            put(&mut aligned, block.largest);
            put_all(&mut aligned, above.iter().copied());
        }
        self.aligned = aligned;
        self.classes += 1;
        Ok(())
    }

    /// Takes an alignment class away.
    pub(super) fn remove_class(&mut self, class: usize) {
        let (classes, mut row) = (self.classes, 0);
        self.aligned.retain(|_| {
            row += 1;
            (row - 1) % classes != class
        });
        self.classes -= 1;
    }

    #[inline]
    pub(super) fn vacant(&self) -> usize {
        self.vacant_count
    }

    /// Returns the number of blocks that hold children.
    pub(super) fn in_use(&self) -> usize {
        self.blocks.len() - self.vacant_count
    }

    /// Makes sure that the next `count` calls of [`take_vacant`](Self::take_vacant) find a block.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), OutOfMetadata> {
        while self.vacant_count < count {
            let more = (self.blocks.len() / 8).max(count - self.vacant_count);
            self.blocks.try_reserve_exact(more)?;
            self.aligned.try_reserve_exact(more * self.classes)?;
            self.brackets.try_reserve_exact(more * self.bracketed)?;
            for _ in 0..more {
                let block = self.blocks.len() as u32;
                put(&mut self.blocks, Inner { parent: self.vacant, ..Inner::new() });
                put_all(&mut self.aligned, (0..self.classes).map(|_| Row::filled(0)));
                put_all(&mut self.brackets, (0..self.bracketed).map(|_| Lanes::filled(0)));
                self.vacant = block;
                self.vacant_count += 1;
            }
        }
        Ok(())
    }

    /// Takes an empty block; [`reserve`](Self::reserve) came before.
    pub(super) fn take_vacant(&mut self) -> u32 {
        let block = self.vacant;
        assert!(block != NIL, "a block was taken that had not been reserved");
        self.vacant = self.blocks[block as usize].parent;
        self.vacant_count -= 1;
        self.blocks[block as usize].parent = NIL;
        block
    }

    /// Gives a block without children back.
    pub(super) fn put_vacant(&mut self, block: u32) {
        self.blocks[block as usize] = Inner { parent: self.vacant, ..Inner::new() };
        for class in 0..self.classes {
            *self.aligned_mut(block, class) = Row::filled(0);
        }
        if self.has_brackets() {
            *self.brackets_mut(block) = Lanes::filled(0);
        }
        self.vacant = block;
        self.vacant_count += 1;
    }

    /// Returns the bytes of memory that all inner blocks take, vacant ones and spare room included.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Inner>()
            + self.aligned.capacity() * size_of::<Row>()
            + self.brackets.capacity() * size_of::<Lanes<u64>>()
    }
}
