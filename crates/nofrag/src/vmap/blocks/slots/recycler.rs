//! The slots that one CPU's blocks get back: dirty ones on their way to being free again.
//!
//! Three *sides*, each a mask of slots for every block: *dirty* (collected, not flushed), *flying* (a flush that covers
//! them has begun), *ready* (it has completed; the owner may take them). A side moves on as a whole, by swapping, so
//! that a flush costs the same however many blocks it concerns.
//!
//! Any CPU may do this work, under the recycler's lock; only handing out is the owner's alone.

use super::bits;
use super::record::{Collected, GROUP_WORDS, WORD};
use super::stock::FreedRun;
use crate::lists::{grow, put};
use crate::ranges::{OutOfMetadata, Span};
use crate::vmap::flush::{FLUSH_RANGES, FlushPlan};
use crate::vmap::{Epoch, Mapper};
use alloc::vec::Vec;

/// One side of a recycler: a mask of slots for each of the CPU's blocks.
///
/// 1. A block is on the list exactly if its mask has a bit.
/// 2. `counts` has the number of bits of each mask, and `pages` their sum.
#[derive(Debug)]
pub(super) struct Side {
    words: usize,
    masks: Vec<u64>,
    /// Number of bits set in each mask.
    counts: Vec<u32>,
    list: Vec<u32>,
    pub(super) pages: u64,
}

impl Side {
    fn new(words: usize) -> Side {
        Side { words, masks: Vec::new(), counts: Vec::new(), list: Vec::new(), pages: 0 }
    }

    /// Makes room for the block at this place.
    fn reserve(&mut self, local: u32) -> Result<(), OutOfMetadata> {
        let count = local as usize + 1;
        if count <= self.counts.len() {
            return Ok(());
        }
        // Room for more blocks than this one, or each would move the masks of all before it.
        let more = count - self.counts.len();
        self.masks.try_reserve(more * self.words)?;
        self.counts.try_reserve(more)?;
        self.list.try_reserve(count - self.list.len())?;
        grow(&mut self.masks, count * self.words, 0)?;
        Ok(grow(&mut self.counts, count, 0)?)
    }

    #[inline]
    fn mask_mut(&mut self, local: u32) -> &mut [u64] {
        &mut self.masks[local as usize * self.words..][..self.words]
    }

    pub(super) fn mask(&self, local: u32) -> &[u64] {
        &self.masks[local as usize * self.words..][..self.words]
    }

    /// Notes that a block's mask gets `count` bits.
    #[inline]
    fn enlist(&mut self, local: u32, count: u32) {
        let before = &mut self.counts[local as usize];
        if *before == 0 {
            put(&mut self.list, local);
        }
        *before += count;
        self.pages += u64::from(count);
    }

    /// Adds the slots that were found. Returns the first and the last of them, if there are any.
    fn add(&mut self, local: u32, group: u32, found: &Collected) -> Option<(u32, u32)> {
        let first_word = group as usize * GROUP_WORDS;
        let (mut first, mut last) = (u32::MAX, 0);
        let mask = self.mask_mut(local);
        for (word, &dirty) in (first_word..).zip(&found.dirty).filter(|(_, dirty)| **dirty != 0) {
            mask[word] |= dirty;
            let at = word as u32 * WORD;
            first = first.min(at + dirty.trailing_zeros());
            last = at + dirty.ilog2();
        }
        if found.pages == 0 {
            return None;
        }
        self.enlist(local, found.pages);
        Some((first, last))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes a block off the list. Returns its place, its mask, which the caller has to empty, and the number of bits
    /// in that.
    pub(super) fn pop(&mut self) -> Option<(u32, &mut [u64], u32)> {
        let local = self.list.pop()?;
        let count = core::mem::take(&mut self.counts[local as usize]);
        self.pages -= u64::from(count);
        Some((local, self.mask_mut(local), count))
    }

    /// Takes a block off the list, moves its mask into `out`, and returns the number of bits in that.
    pub(super) fn withdraw(&mut self, local: u32, out: &mut [u64]) -> u32 {
        let count = core::mem::take(&mut self.counts[local as usize]);
        if count > 0 {
            let listed = self.list.iter().position(|listed| *listed == local);
            self.list.swap_remove(listed.expect("a block whose mask has a bit is on the list"));
            self.pages -= u64::from(count);
        }
        out.copy_from_slice(self.mask(local));
        self.mask_mut(local).fill(0);
        count
    }

    /// Moves at most `limit` blocks' slots to `other`.
    fn pour(&mut self, other: &mut Side, limit: usize) {
        for _ in 0..limit {
            let Some((local, mask, count)) = self.pop() else { return };
            other.enlist(local, count);
            bits::join(other.mask_mut(local), mask);
            mask.fill(0);
        }
    }

    fn metadata_bytes(&self) -> usize {
        self.masks.capacity() * size_of::<u64>()
            + (self.list.capacity() + self.counts.capacity()) * size_of::<u32>()
    }
}

/// The slots that one CPU's blocks have got back, on three sides by how far their flush is.
///
/// 1. Something flies exactly while there is a flight.
/// 2. A slot is on at most one side.
#[derive(Debug)]
pub(super) struct Recycler {
    pub(super) dirty: Side,
    pub(super) flying: Side,
    pub(super) ready: Side,
    /// The flush that the flying slots wait for.
    pub(super) flight: Option<Epoch>,
    /// The first of the blocks that were taken off the stack and not looked at yet, linked as there.
    pub(super) todo: Option<u64>,
    /// A block of which some groups are still to be collected: its number, and a bit for each of these.
    pub(super) partly: Option<(u64, u128)>,
    /// The ranges that cover the dirty side.
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
            flight: None,
            todo: None,
            partly: None,
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

    /// Notes the slots that were found in a group of a block. Returns the first and the last of them, if there are any.
    pub(super) fn add(&mut self, local: u32, group: u32, found: &Collected) -> Option<(u32, u32)> {
        self.dirty.add(local, group, found)
    }

    /// Notes runs of slots that the owner of a block, which begins at page `start`, has freed. What another thread
    /// freed at the same time may have been collected, and is on a side already.
    pub(super) fn take_in(&mut self, start: u64, local: u32, runs: &[FreedRun]) {
        let (flying, ready) = (self.flying.mask(local), self.ready.mask(local));
        let dirty = &mut self.dirty.mask_mut(local)[..flying.len()];
        let ready = &ready[..flying.len()];
        let (mut first, mut last, mut pages) = (u32::MAX, 0, 0);
        for run in runs {
            let mut slot = u32::from(run.first);
            let end = u32::from(run.end);
            (first, last) = (first.min(slot), last.max(end));
            while slot < end {
                let (word, bit) = ((slot / WORD) as usize, slot % WORD);
                let count = (end - slot).min(WORD - bit);
                let bits = u64::MAX >> (WORD - count) << bit;
                let new = bits & !(dirty[word] | flying[word] | ready[word]);
                dirty[word] |= new;
                pages += if new == bits { count } else { new.count_ones() };
                slot += count;
            }
        }
        if pages > 0 {
            self.dirty.enlist(local, pages);
            self.cover(start + u64::from(first), start + u64::from(last));
        }
    }

    /// Returns true if the slot is on a side.
    pub(super) fn has(&self, local: u32, slot: u32) -> bool {
        let sides = [&self.dirty, &self.flying, &self.ready];
        sides.iter().any(|side| bits::is_set(side.mask(local), slot))
    }

    /// Notes that the dirty pages of a block lie within `start..end`.
    #[inline]
    pub(super) fn cover(&mut self, start: u64, end: u64) {
        self.plan.add(start, end);
    }

    /// Returns true if no slot waits for a flush.
    pub(super) fn is_flushed(&self) -> bool {
        self.flight.is_none() && self.dirty.is_empty() && self.partly.is_none()
    }

    /// Returns true if no slot is on its way to being free.
    pub(super) fn is_empty(&self) -> bool {
        self.is_flushed() && self.ready.is_empty()
    }

    /// Begins the flush of the dirty slots, which fly from then on, unless others do. The mapper is called under the
    /// recycler's lock: no thread unmaps under it, and one that wants to recycle would have to wait for the flush
    /// anyway.
    pub(super) fn take_off<M: Mapper>(&mut self, mapper: &M) {
        if self.flight.is_some() || self.dirty.is_empty() {
            return;
        }
        let mut ranges = [Span::known(0, 1); FLUSH_RANGES];
        let count = self.plan.take(&mut ranges);
        core::mem::swap(&mut self.dirty, &mut self.flying);
        self.flight = Some(mapper.flush(&ranges[..count]));
        self.counters.flushes += 1;
    }

    /// Makes the slots that wait for a flush ready to be handed out, once it has completed: all at once where no others
    /// are ready, else those of at most `limit` blocks.
    pub(super) fn land(&mut self, completed: Epoch, limit: usize) {
        let Some(epoch) = self.flight else { return };
        if completed < epoch {
            return;
        }
        if self.ready.is_empty() {
            core::mem::swap(&mut self.flying, &mut self.ready);
        } else {
            self.flying.pour(&mut self.ready, limit);
        }
        if self.flying.is_empty() {
            self.flight = None;
        }
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        let sides = [&self.dirty, &self.flying, &self.ready];
        (sides.map(Side::metadata_bytes).iter().sum::<usize>() + size_of::<Recycler>()) as u64
    }

    /// Returns true if the page count of a side is wrong.
    pub(super) fn miscounted(&self) -> bool {
        [&self.dirty, &self.flying, &self.ready].into_iter().any(|side| {
            let bits = u64::from(bits::count(&side.masks));
            let listed = side.counts.iter().filter(|count| **count > 0).count();
            let counted = (0..)
                .zip(&side.counts)
                .all(|(local, count)| bits::count(side.mask(local)) == *count);
            bits != side.pages || listed != side.list.len() || !counted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a recycler with slots of three blocks on its dirty side.
    fn recycler() -> Recycler {
        let mut recycler = Recycler::new(GROUP_WORDS, Span::known(0, 1 << 12));
        recycler.reserve(2).expect("there is memory");
        for (local, dirty) in [(0, 0b1_u64), (1, 0b110), (2, 0b1000)] {
            let mut words = [0; GROUP_WORDS + 1];
            words[1] = dirty;
            let pages = dirty.count_ones();
            let found =
                Collected { dirty: words, pages, mappings: 1, reached: 0, any_ending: false };
            let ends = (WORD + dirty.trailing_zeros(), WORD + dirty.ilog2());
            assert_eq!(recycler.add(local, 0, &found), Some(ends));
        }
        recycler
    }

    #[test]
    fn a_block_that_leaves_takes_its_slots_and_no_others() {
        let mut side = recycler().dirty;
        let mut out = [u64::MAX; GROUP_WORDS];
        assert_eq!((side.withdraw(1, &mut out), out), (2, [0, 0b110, 0, 0]));
        assert_eq!((side.withdraw(1, &mut out), out), (0, [0; GROUP_WORDS]));
        assert_eq!(side.pages, 2);
        assert_eq!((side.withdraw(2, &mut out), side.pages), (1, 1));
        assert_eq!([(); 2].map(|()| side.pop().map(|(at, ..)| at)), [Some(0), None]);
    }

    #[test]
    fn slots_that_become_ready_join_those_that_are() {
        let mut first = recycler();
        core::mem::swap(&mut first.dirty, &mut first.ready);
        first.ready.masks[1] = 0b1_0000;
        let second = &mut recycler().dirty;
        second.pour(&mut first.ready, 2);
        assert_eq!((first.ready.pages, second.pages), (4 + 3, 1));
        assert_eq!(first.ready.mask(1), [0, 0b110, 0, 0]);
        assert_eq!(first.ready.mask(2), [0, 0b1000, 0, 0]);
        second.pour(&mut first.ready, 2);
        assert_eq!(first.ready.mask(0), [0, 0b1_0001, 0, 0]);
        assert!(second.is_empty());
    }

    #[test]
    fn wrong_counts_are_noticed() {
        assert!(!recycler().miscounted());
        let spoil: [fn(&mut Side); 3] =
            [|side| side.pages += 1, |side| side.list.truncate(2), |side| side.counts.swap(0, 1)];
        for spoil in spoil {
            let mut recycler = recycler();
            spoil(&mut recycler.dirty);
            assert!(recycler.miscounted());
        }
    }
}
