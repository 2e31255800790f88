//! One block as every CPU sees it: the state of each slot, and which words of slots may have dirty ones.
//!
//! A mapping is known by the byte of its first slot. Its life, with who changes it:
//!
//! ```text
//! FREE --owner--> LIVE(pages) --any CPU--> ENDING(pages) --the same--> DIRTY(pages) --recycler--> FREE
//!                             \----------- if nothing is to be cleared ---------/
//! ```
//!
//! The step from LIVE is the one compare-exchange of an unmapping: it verifies that a mapping of that size starts
//! there, and of two unmappings one wins. Then the unmapping CPU looks whether the word's *flag* is set; usually it is.
//! If not, it sets it, and puts the block on its owner's stack of dirty blocks unless it is there.
//!
//! The recycler goes the other way: it takes the block off the stack, clears `queued`, clears the flag, reads the
//! slots. Both sides write first and look second, with a full barrier in between, so one of them sees the other: no
//! dirty slot is forgotten.

use super::EMPTY;
use crate::ranges::OutOfMetadata;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, full_barrier};
use crate::vmap::SizeClasses;
use alloc::vec::Vec;

/// Slots in a word.
pub(super) const WORD: u32 = 64;

const STATE_SHIFT: u32 = 6;
const PAGES_MASK: u8 = (1 << STATE_SHIFT) - 1;

/// The byte of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Nothing starts here.
    Free,
    Live,
    Ending,
    Dirty,
}

impl Slot {
    pub(super) const FREE: Slot = Slot(0);

    /// 1 to 64 pages.
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

    /// The size of the mapping, unless the slot is free.
    #[inline(always)]
    pub(super) fn pages(self) -> u32 {
        u32::from(self.0 & PAGES_MASK) + 1
    }
}

/// 1. A slot's byte is not FREE only if a mapping starts there that is live or not yet recycled.
/// 2. A word with a dirty or ending slot has its flag set, and a block with a flag set is on a stack or about to be.
#[derive(Debug)]
pub(super) struct Record {
    slots: Vec<AtomicU8>,
    flags: Vec<AtomicBool>,
    queued: AtomicBool,
    /// The next block on the stack of dirty blocks.
    pub(super) next: AtomicU64,
    /// The position of the CPU that hands out its slots, or [`EMPTY`] while the block does not exist.
    pub(super) owner: AtomicU32,
    /// Its place among the owner's blocks.
    pub(super) local: AtomicU32,
}

/// What a word had to collect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collected {
    /// Its dirty slots.
    pub(super) dirty: u64,
    /// How many slots of the next word are dirty too, since a mapping reaches there.
    pub(super) spilt: u32,
    /// Whether some mapping is still ending.
    pub(super) any_ending: bool,
}

/// How many slots a mapping takes, by its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes([u8; WORD as usize]);

impl Sizes {
    pub(super) fn new(classes: SizeClasses) -> Sizes {
        Sizes(core::array::from_fn(|index| classes.round(index as u32 + 1) as u8))
    }

    /// Of a mapping of 1 to 64 pages.
    #[inline(always)]
    pub(super) fn of_pages(&self, pages: u32) -> u32 {
        u32::from(self.0[(pages.wrapping_sub(1) % WORD) as usize])
    }

    #[inline(always)]
    fn of(&self, slot: Slot) -> u32 {
        u32::from(self.0[usize::from(slot.0 & PAGES_MASK)])
    }
}

/// What an unmapping has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// Nothing: the block is known to be dirty.
    Known,
    /// To put the block on its owner's stack.
    ToQueue,
}

impl Record {
    pub(super) fn new(slots: u32) -> Result<Record, OutOfMetadata> {
        let mut bytes = Vec::new();
        let mut flags = Vec::new();
        bytes.try_reserve_exact(slots as usize).map_err(|_| OutOfMetadata)?;
        bytes.resize_with(slots as usize, || AtomicU8::new(Slot::FREE.0));
        let words = slots.div_ceil(WORD) as usize;
        flags.try_reserve_exact(words).map_err(|_| OutOfMetadata)?;
        flags.resize_with(words, || AtomicBool::new(false));
        Ok(Record {
            slots: bytes,
            flags,
            queued: AtomicBool::new(false),
            next: AtomicU64::new(0),
            owner: AtomicU32::new(EMPTY),
            local: AtomicU32::new(0),
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
    /// [`finish`](Self::finish). Returns what was there instead, if it was something else.
    #[inline(always)]
    pub(super) fn end(&self, at: u32, pages: u32, clears: bool) -> Result<(), Slot> {
        let live = Slot::live(pages);
        let after = if clears { live.ending() } else { live.dirty() };
        let slot = &self.slots[at as usize];
        match slot.compare_exchange(live.0, after.0, Ordering::SeqCst, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(found) => Err(Slot(found)),
        }
    }

    /// The mapping was cleared: pairs with the load in [`collect`](Self::collect).
    #[inline(always)]
    pub(super) fn finish(&self, at: u32, pages: u32) {
        self.slots[at as usize].store(Slot::live(pages).dirty().0, Ordering::Release);
    }

    /// Notes that the slot's word has a slot to collect.
    #[inline(always)]
    pub(super) fn note(&self, at: u32) -> Noted {
        full_barrier();
        let flag = &self.flags[(at / WORD) as usize];
        if flag.load(Ordering::SeqCst) { Noted::Known } else { self.raise(flag) }
    }

    #[cold]
    #[inline(never)]
    fn raise(&self, flag: &AtomicBool) -> Noted {
        flag.store(true, Ordering::SeqCst);
        self.queue()
    }

    /// Notes that the block is on a stack, unless it was.
    pub(super) fn queue(&self) -> Noted {
        match self.queued.swap(true, Ordering::SeqCst) {
            true => Noted::Known,
            false => Noted::ToQueue,
        }
    }

    /// Takes the block off the stack: from now on it may be put there again.
    pub(super) fn unqueue(&self) {
        self.queued.swap(false, Ordering::SeqCst);
    }

    pub(super) fn word_count(&self) -> usize {
        self.flags.len()
    }

    /// Whether the word has something to collect. Resets the flag.
    #[inline(always)]
    pub(super) fn lower(&self, word: usize) -> bool {
        let flag = &self.flags[word];
        if !flag.load(Ordering::SeqCst) {
            return false;
        }
        flag.swap(false, Ordering::SeqCst);
        full_barrier();
        true
    }

    /// Turns every dirty slot of the word into a free one.
    #[inline(never)]
    pub(super) fn collect(&self, word: usize, sizes: &Sizes) -> Collected {
        let first = word * WORD as usize;
        let last = (first + WORD as usize).min(self.slots.len());
        let bytes = &self.slots[first..last];
        let mut found = Collected { dirty: 0, spilt: 0, any_ending: false };
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let slot = Slot(byte.load(Ordering::SeqCst));
            let size = match slot.state() {
                SlotState::Free => 1,
                SlotState::Live => sizes.of(slot),
                SlotState::Ending => {
                    found.any_ending = true;
                    sizes.of(slot)
                }
                SlotState::Dirty => {
                    byte.store(Slot::FREE.0, Ordering::Relaxed);
                    let size = sizes.of(slot);
                    let end = at as u32 + size;
                    found.dirty |= u64::MAX >> (WORD - size) << at;
                    // Only the last mapping of a word can reach into the next one.
                    found.spilt = end.saturating_sub(WORD);
                    size
                }
            };
            at += size as usize;
        }
        found
    }

    /// First slot and size of each mapping, dirty ones included.
    pub(super) fn mappings(&self) -> impl Iterator<Item = (u32, Slot)> + '_ {
        let slots = (0..).zip(&self.slots);
        let slots = slots.map(|(at, byte)| (at, Slot(byte.load(Ordering::Acquire))));
        slots.filter(|(_, slot)| *slot != Slot::FREE)
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        (self.slots.len() + self.flags.len()) as u64
    }

    pub(super) fn exists(&self) -> bool {
        self.owner.load(Ordering::Acquire) != EMPTY
    }
}
