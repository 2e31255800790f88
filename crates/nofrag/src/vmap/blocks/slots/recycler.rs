//! What one CPU's blocks get back: dirty slots on their way to being free again.
//!
//! Three *sides*, each a mask of slots for every block: *dirty* (collected, not flushed), *flying* (a flush that covers
//! them has begun), *ready* (it has completed; the owner may take them). A side moves on as a whole, by swapping, so
//! that a flush costs the same however many blocks it concerns.
//!
//! Any CPU may do this work, under the recycler's lock; only handing out is the owner's alone.

use super::bits;
use super::record::{Collected, WORD};
use crate::ranges::{OutOfMetadata, Span};
use crate::vmap::Epoch;
use crate::vmap::flush::{FLUSH_RANGES, FlushPlan};
use alloc::vec::Vec;

/// Slots of many blocks.
///
/// 1. A block is on the list exactly if its mask has a bit.
/// 2. `pages` is the number of bits.
#[derive(Debug)]
pub(super) struct Side {
    words: usize,
    masks: Vec<u64>,
    is_listed: Vec<bool>,
    list: Vec<u32>,
    pub(super) pages: u64,
}

impl Side {
    fn new(words: usize) -> Side {
        Side { words, masks: Vec::new(), is_listed: Vec::new(), list: Vec::new(), pages: 0 }
    }

    /// Makes room for the block at this place.
    fn reserve(&mut self, local: u32) -> Result<(), OutOfMetadata> {
        let count = local as usize + 1;
        if count <= self.is_listed.len() {
            return Ok(());
        }
        let more = count - self.is_listed.len();
        self.masks.try_reserve(more * self.words).map_err(|_| OutOfMetadata)?;
        self.is_listed.try_reserve(more).map_err(|_| OutOfMetadata)?;
        self.list.try_reserve(count - self.list.len()).map_err(|_| OutOfMetadata)?;
        self.masks.resize(count * self.words, 0);
        self.is_listed.resize(count, false);
        Ok(())
    }

    #[inline]
    fn mask_mut(&mut self, local: u32) -> &mut [u64] {
        &mut self.masks[local as usize * self.words..][..self.words]
    }

    pub(super) fn mask(&self, local: u32) -> &[u64] {
        &self.masks[local as usize * self.words..][..self.words]
    }

    #[inline]
    fn enlist(&mut self, local: u32) {
        if !self.is_listed[local as usize] {
            self.is_listed[local as usize] = true;
            self.list.push(local);
        }
    }

    #[inline]
    fn add(&mut self, local: u32, word: usize, found: Collected) {
        self.enlist(local);
        let mask = self.mask_mut(local);
        mask[word] |= found.dirty;
        if found.spilt > 0 {
            mask[word + 1] |= u64::MAX >> (WORD - found.spilt);
        }
        self.pages += u64::from(found.dirty.count_ones() + found.spilt);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// A block and its mask, which the caller has to empty.
    pub(super) fn pop(&mut self) -> Option<(u32, &mut [u64])> {
        let local = self.list.pop()?;
        self.is_listed[local as usize] = false;
        let count = bits::count(self.mask(local));
        self.pages -= u64::from(count);
        Some((local, self.mask_mut(local)))
    }

    /// Moves at most `limit` blocks' slots to `other`.
    fn pour(&mut self, other: &mut Side, limit: usize) {
        for _ in 0..limit {
            let Some((local, mask)) = self.pop() else { return };
            other.enlist(local);
            other.pages += u64::from(bits::count(mask));
            let others = other.mask_mut(local).iter_mut();
            others.zip(mask.iter()).for_each(|(word, more)| *word |= more);
            mask.fill(0);
        }
    }

    fn metadata_bytes(&self) -> usize {
        self.masks.capacity() * size_of::<u64>()
            + self.list.capacity() * 4
            + self.is_listed.capacity()
    }
}

/// Where the flying slots' flush is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    /// Nothing flies.
    None,
    /// Somebody is calling the mapper.
    Starting,
    /// They land when this flush has completed.
    Until(Epoch),
}

/// 1. Something flies exactly if there is a flight.
/// 2. A slot is on at most one side.
#[derive(Debug)]
pub(super) struct Recycler {
    pub(super) dirty: Side,
    pub(super) flying: Side,
    pub(super) ready: Side,
    pub(super) flight: Flight,
    /// Blocks that were taken off the stack and not looked at yet, linked as there.
    pub(super) todo: Option<u64>,
    /// Covers the dirty side.
    plan: FlushPlan,
    pub(super) counters: RecyclerCounters,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecyclerCounters {
    pub(super) flushes: u64,
    pub(super) alias_flushes: u64,
    pub(super) visited: u64,
    pub(super) max_visited: u64,
}

impl Recycler {
    pub(super) fn new(words: usize, bounds: Span) -> Recycler {
        Recycler {
            dirty: Side::new(words),
            flying: Side::new(words),
            ready: Side::new(words),
            flight: Flight::None,
            todo: None,
            plan: FlushPlan::new(bounds),
            counters: RecyclerCounters::default(),
        }
    }

    /// Makes room for the block at this place.
    pub(super) fn reserve(&mut self, local: u32) -> Result<(), OutOfMetadata> {
        self.dirty.reserve(local)?;
        self.flying.reserve(local)?;
        self.ready.reserve(local)
    }

    /// Notes what was found in a word of a block.
    #[inline]
    pub(super) fn add(&mut self, local: u32, word: usize, found: Collected) {
        self.dirty.add(local, word, found);
    }

    /// Notes that the dirty pages of a word lie within `start..end`.
    #[inline]
    pub(super) fn cover(&mut self, start: u64, end: u64) {
        self.plan.add(start, end);
    }

    /// Sends the dirty slots off, unless others fly: the caller has to flush these ranges, and to say when that ends.
    pub(super) fn take_off(&mut self, ranges: &mut [Span; FLUSH_RANGES]) -> Option<usize> {
        if self.flight != Flight::None || self.dirty.is_empty() {
            return None;
        }
        core::mem::swap(&mut self.dirty, &mut self.flying);
        self.flight = Flight::Starting;
        self.counters.flushes += 1;
        Some(self.plan.take(ranges))
    }

    /// Lets flying slots land whose flush has completed: all at once where nothing else is ready, else those of at most
    /// `limit` blocks.
    pub(super) fn land(&mut self, completed: Epoch, limit: usize) {
        let Flight::Until(epoch) = self.flight else { return };
        if completed < epoch {
            return;
        }
        if self.ready.is_empty() {
            core::mem::swap(&mut self.flying, &mut self.ready);
        } else {
            self.flying.pour(&mut self.ready, limit);
        }
        if self.flying.is_empty() {
            self.flight = Flight::None;
        }
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        let sides = [&self.dirty, &self.flying, &self.ready];
        (sides.map(Side::metadata_bytes).iter().sum::<usize>() + size_of::<Recycler>()) as u64
    }

    /// A side whose page count is wrong.
    pub(super) fn miscounted(&self) -> bool {
        [&self.dirty, &self.flying, &self.ready].into_iter().any(|side| {
            let bits = u64::from(bits::count(&side.masks));
            let listed = side.is_listed.iter().filter(|listed| **listed).count();
            bits != side.pages || listed != side.list.len()
        })
    }
}
