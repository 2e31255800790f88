//! One block as every CPU sees it: the state of each slot, and which groups of slots may have dirty ones.
//!
//! A mapping is known by the byte of its first slot. Its life, with who changes it:
//!
//! ```text
//! FREE --owner--> LIVE(pages) --any CPU--> ENDING(pages) --the same--> DIRTY(pages) --recycler--> FREE
//!                             \----------- if nothing is to be cleared ---------/
//! ```
//!
//! An owner that has its stock in a handle goes back to FREE at once: it keeps the slots itself until it hands them in.
//!
//! The step from LIVE is the one compare-exchange of an unmapping: it verifies that a mapping of that size starts
//! there, and of two unmappings one wins (docs/sources/vmap.md#checked-sizes). Then the unmapping CPU looks whether the
//! group's *flag* is set; usually it is. If not, it sets it, and puts the block on its owner's stack of dirty blocks
//! unless it is there.
//!
//! The recycler goes the other way: it takes the block off the stack, clears `queued`, clears the flags, reads the
//! slots. Both sides write first and look second, with a full barrier in between, so one of them sees the other: no
//! dirty slot is forgotten.
//!
//! A flag stands for a *group* of slots: many enough that raising it, which costs a barrier, is rare even for large
//! mappings; few enough that a block with one dirty slot is not read as a whole.

use super::EMPTY;
use crate::lists::made;
use crate::ranges::OutOfMetadata;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence, full_barrier};
use crate::vmap::SizeClasses;
use alloc::vec::Vec;

/// Number of slots in a word.
pub(super) const WORD: u32 = 64;

/// Number of slots in a group, and of words.
pub(super) const GROUP: u32 = 256;
pub(super) const GROUP_WORDS: usize = (GROUP / WORD) as usize;

const STATE_SHIFT: u32 = 6;
const PAGES_MASK: u8 = (1 << STATE_SHIFT) - 1;

/// The byte of a slot: state and size of the mapping that starts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// No mapping starts at the slot.
    Free,
    Live,
    Ending,
    Dirty,
}

impl Slot {
    pub(super) const FREE: Slot = Slot(0);

    /// From this byte on, slots are dirty.
    const FIRST_DIRTY: u8 = 3 << STATE_SHIFT;

    /// Returns the byte of a live mapping of 1 to 64 pages.
    #[inline(always)]
    pub(super) fn live(pages: u32) -> Slot {
        Slot(1 << STATE_SHIFT | (pages - 1) as u8 & PAGES_MASK)
    }

    #[inline(always)]
    fn ending(self) -> Slot {
        Slot(self.0 & PAGES_MASK | 2 << STATE_SHIFT)
    }

    #[inline(always)]
    fn dirty(self) -> Slot {
        Slot(self.0 & PAGES_MASK | 3 << STATE_SHIFT)
    }

    #[inline(always)]
    pub(super) fn state(self) -> SlotState {
        match self.0 >> STATE_SHIFT {
            0 => SlotState::Free,
            1 => SlotState::Live,
            2 => SlotState::Ending,
            _ => SlotState::Dirty,
        }
    }

    /// Returns the size of the mapping, unless the slot is free.
    #[inline(always)]
    pub(super) fn pages(self) -> u32 {
        u32::from(self.0 & PAGES_MASK) + 1
    }
}

/// One block as every CPU sees it: a byte for each slot, and a flag for each group of slots.
///
/// 1. A slot's byte is not FREE only if a mapping starts there that is live or not yet recycled.
/// 2. A group with a dirty or ending slot has its flag set, and a block with a flag set is on a stack or about to be.
///
/// On cache lines of its own: every map and unmap reads where the bytes are, while unmappings in the next block, which
/// may be another CPU's, write its place on a stack.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Record {
    slots: Vec<AtomicU8>,
    flags: Vec<AtomicBool>,
    queued: AtomicBool,
    /// The next block on the stack of dirty blocks.
    pub(super) next: AtomicU64,
    /// The position of the CPU that hands out the block's slots, or [`EMPTY`] while the block does not exist.
    pub(super) owner: AtomicU32,
    /// The block's place among its owner's blocks.
    pub(super) local: AtomicU32,
    /// Number of slots that the owner has freed by its handle and not handed in to its recycler. Only it writes this.
    pub(super) kept: AtomicU32,
}

/// The result of collecting the dirty slots of one group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collected {
    /// A bit for each dirty slot of the group. The last word is for the next group, into which the last mapping may
    /// reach.
    pub(super) dirty: [u64; GROUP_WORDS + 1],
    /// Number of slots in `dirty`.
    pub(super) pages: u32,
    /// Number of mappings in the group, whatever their state.
    pub(super) mappings: u32,
    /// Number of slots of the next group that the last mapping reaches.
    pub(super) reached: u32,
    /// True if some mapping is still ending.
    pub(super) any_ending: bool,
}

/// The number of slots that a mapping takes, by its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes([u16; WORD as usize]);

impl Sizes {
    /// Returns the table for sizes of up to `max_pages`; larger mappings fit nowhere.
    pub(super) fn new(classes: SizeClasses, max_pages: u32) -> Sizes {
        Sizes(core::array::from_fn(|index| match index as u32 + 1 {
            pages if pages <= max_pages => classes.round(pages) as u16,
            // More than any block has.
            _ => u16::MAX,
        }))
    }

    /// Returns the slots of a mapping of 1 to 64 pages.
    #[inline(always)]
    pub(super) fn of_pages(&self, pages: u32) -> u32 {
        u32::from(self.0[(pages.wrapping_sub(1) % WORD) as usize])
    }

    #[inline(always)]
    fn of(&self, slot: Slot) -> u32 {
        u32::from(self.0[usize::from(slot.0 & PAGES_MASK)])
    }
}

/// A mapping that is being cleared.
pub(super) struct Ending<'a> {
    byte: &'a AtomicU8,
    after: Slot,
}

impl Ending<'_> {
    /// Notes that the mapping was cleared, if it had to be: pairs with the load in [`Record::collect`].
    #[inline(always)]
    pub(super) fn finish(self) {
        self.byte.store(self.after.0, Ordering::Release);
    }
}

/// The next step of a thread that raised the flag of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// Nothing: the block is known to be dirty.
    Known,
    /// To put the block on the stack of its owner.
    ToQueue,
}

impl Record {
    pub(super) fn new(slots: u32) -> Result<Record, OutOfMetadata> {
        let groups = slots.div_ceil(GROUP) as usize;
        Ok(Record {
            slots: made(slots as usize, || AtomicU8::new(Slot::FREE.0))?,
            flags: made(groups, || AtomicBool::new(false))?,
            queued: AtomicBool::new(false),
            next: AtomicU64::new(0),
            owner: AtomicU32::new(EMPTY),
            local: AtomicU32::new(0),
            kept: AtomicU32::new(0),
        })
    }

    #[inline(always)]
    pub(super) fn slot(&self, at: u32) -> Slot {
        Slot(self.slots[at as usize].load(Ordering::Acquire))
    }

    /// Starts a mapping. The caller owns the slot.
    #[inline(always)]
    pub(super) fn start(&self, at: u32, pages: u32) {
        debug_assert_eq!(self.slot(at), Slot::FREE, "the slot is free");
        self.slots[at as usize].store(Slot::live(pages).0, Ordering::Release);
    }

    /// Turns a live mapping of exactly `pages` pages into one that ends; `clears` says whether it stays so until
    /// [`Ending::finish`]. `None` if no such mapping starts there.
    #[inline(always)]
    pub(super) fn end(&self, at: u32, pages: u32, clears: bool) -> Option<Ending<'_>> {
        let live = Slot::live(pages);
        let after = if clears { live.ending() } else { live.dirty() };
        let byte = &self.slots[at as usize];
        let ended = byte.compare_exchange(live.0, after.0, Ordering::SeqCst, Ordering::Relaxed);
        ended.is_ok().then_some(Ending { byte, after: live.dirty() })
    }

    /// Does what [`end`](Self::end) does for the owner of the block, which keeps the slots: they are free once the
    /// ending is finished. It notes before that what it keeps; who sees that the mapping has ended sees that, too.
    ///
    /// Without a locked operation where nothing is cleared: another thread that ends the mapping at the same time may
    /// then be told that it did, too, and if the slots are collected in between, [`Recycler::take_in`] finds them
    /// there.
    ///
    /// [`Recycler::take_in`]: super::recycler::Recycler::take_in
    #[inline(always)]
    pub(super) fn end_own(&self, at: u32, pages: u32, clears: bool) -> Option<Ending<'_>> {
        let byte = &self.slots[at as usize];
        if clears {
            self.end(at, pages, true)?;
        } else if byte.load(Ordering::Acquire) != Slot::live(pages).0 {
            return None;
        }
        Some(Ending { byte, after: Slot::FREE })
    }

    /// Returns true if it is noted that the slot's group has a slot to collect.
    #[inline(always)]
    pub(super) fn is_noted(&self, at: u32) -> bool {
        full_barrier();
        self.flags[(at / GROUP) as usize].load(Ordering::SeqCst)
    }

    /// Notes that the slot's group has a slot to collect. From here on others rely on the caller to queue the block.
    pub(super) fn note(&self, at: u32) -> Noted {
        self.flags[(at / GROUP) as usize].store(true, Ordering::SeqCst);
        self.queue()
    }

    /// Notes that the block is on a stack, unless it was there.
    pub(super) fn queue(&self) -> Noted {
        // Pairs with the one in `unqueue`: either the other side sees what was noted before, or this one that the block
        // is on no stack any more.
        fence(Ordering::SeqCst);
        if self.queued.load(Ordering::SeqCst) {
            return Noted::Known;
        }
        match self.queued.swap(true, Ordering::SeqCst) {
            true => Noted::Known,
            false => Noted::ToQueue,
        }
    }

    /// Takes the block off the stack: from now on it may be put there again.
    pub(super) fn unqueue(&self) {
        self.queued.swap(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Resets the flags, and returns those that were set: a bit for each group, of which there are 128 at most.
    pub(super) fn lower(&self) -> u128 {
        full_barrier();
        let mut raised = 0;
        for (group, flag) in self.flags.iter().enumerate() {
            if flag.load(Ordering::SeqCst) {
                flag.store(false, Ordering::Relaxed);
                raised |= 1 << group;
            }
        }
        // Between the flags and the slots. One fence, where a swap of each flag would be as many.
        fence(Ordering::SeqCst);
        raised
    }

    /// Turns every dirty slot of the group into a free one. `from` is the first slot of the group that no mapping of
    /// the group before reaches, as far as the caller knows.
    #[inline(never)]
    pub(super) fn collect(&self, group: u32, from: u32, sizes: &Sizes) -> Collected {
        let first = (group * GROUP) as usize;
        let last = (first + GROUP as usize).min(self.slots.len());
        let bytes = &self.slots[first..last];
        let mut found = Collected {
            dirty: [0; GROUP_WORDS + 1],
            pages: 0,
            mappings: 0,
            reached: 0,
            any_ending: false,
        };
        let mut at = from;
        while let Some(byte) = bytes.get(at as usize) {
            let slot = Slot(byte.load(Ordering::SeqCst));
            if slot == Slot::FREE {
                at += 1;
                continue;
            }
            let size = sizes.of(slot);
            found.mappings += 1;
            if slot.0 >= Slot::FIRST_DIRTY {
                byte.store(Slot::FREE.0, Ordering::Relaxed);
                let (word, bit) = ((at / WORD) as usize % GROUP_WORDS, at % WORD);
                let ones = u64::MAX >> (WORD - size);
                found.pages += size;
                found.dirty[word] |= ones << bit;
                if bit + size > WORD {
                    found.dirty[word + 1] |= ones >> (WORD - bit);
                }
            } else if slot.state() == SlotState::Ending {
                found.any_ending = true;
            }
            at += size;
        }
        found.reached = at.saturating_sub(GROUP);
        found
    }

    /// Returns the first slot of each mapping, dirty ones included, with its state and size. They do not overlap,
    /// whatever happens meanwhile.
    pub(super) fn mappings(&self) -> impl Iterator<Item = (u32, Slot)> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            loop {
                let slot = Slot(self.slots.get(at as usize)?.load(Ordering::Acquire));
                let start = at;
                at += if slot == Slot::FREE { 1 } else { slot.pages() };
                if slot != Slot::FREE {
                    return Some((start, slot));
                }
            }
        })
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        (self.slots.len() + self.flags.len()) as u64
    }

    pub(super) fn exists(&self) -> bool {
        self.owner.load(Ordering::Acquire) != EMPTY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(record: &Record) -> Vec<(u32, SlotState, u32)> {
        record.mappings().map(|(at, slot)| (at, slot.state(), slot.pages())).collect()
    }

    #[test]
    fn a_mapping_lives_ends_is_dirty_and_is_collected_once() {
        let record = Record::new(2 * GROUP).expect("there is memory");
        let sizes = Sizes::new(SizeClasses::Exact, 64);
        record.start(62, 5);
        record.start(100, 64);
        assert_eq!(states(&record), [(62, SlotState::Live, 5), (100, SlotState::Live, 64)]);
        assert!(record.end(62, 4, true).is_none(), "it has another size");
        let ending = record.end(62, 5, true).expect("it is live");
        assert_eq!(states(&record)[0], (62, SlotState::Ending, 5));
        assert!(record.end(62, 5, true).is_none(), "it ends already");
        let found = record.collect(0, 0, &sizes);
        assert!(found.any_ending && found.pages == 0 && found.mappings == 2);
        ending.finish();
        assert_eq!(states(&record)[0], (62, SlotState::Dirty, 5));
        let found = record.collect(0, 0, &sizes);
        assert_eq!((found.dirty, found.pages), ([0b11 << 62, 0b111, 0, 0, 0], 5));
        assert!(!found.any_ending && found.mappings == 2 && found.reached == 0);
        assert_eq!(states(&record), [(100, SlotState::Live, 64)]);
        assert_eq!(record.slot(62).state(), SlotState::Free);
    }

    #[test]
    fn a_mapping_reaches_into_the_next_group() {
        let record = Record::new(2 * GROUP).expect("there is memory");
        let sizes = Sizes::new(SizeClasses::Exact, 64);
        for (at, pages) in [(GROUP - 4, 9), (GROUP + 5, 2)] {
            record.start(at, pages);
            assert!(record.end(at, pages, false).is_some());
        }
        let found = record.collect(0, 0, &sizes);
        assert_eq!((found.dirty, found.reached), ([0, 0, 0, 0b1111 << 60, 0b1_1111], 5));
        let found = record.collect(1, found.reached, &sizes);
        assert_eq!((found.dirty, found.pages), ([0b11 << 5, 0, 0, 0, 0], 2));
        record.start(1, 64);
        assert!(record.end(1, 64, false).is_some());
        assert_eq!(record.collect(0, 0, &sizes).dirty, [u64::MAX - 1, 1, 0, 0, 0]);
    }

    #[test]
    fn a_group_is_noted_until_it_is_lowered_and_the_block_queued_once() {
        let record = Record::new(2 * GROUP).expect("there is memory");
        assert!(!record.is_noted(GROUP));
        assert_eq!(record.note(GROUP), Noted::ToQueue);
        assert!(record.is_noted(GROUP) && !record.is_noted(0));
        assert_eq!(record.note(0), Noted::Known);
        record.unqueue();
        assert_eq!((record.lower(), record.lower()), (0b11, 0));
        assert_eq!(record.note(0), Noted::ToQueue);
    }
}
