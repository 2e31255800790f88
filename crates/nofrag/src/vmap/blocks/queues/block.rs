//! One block: the fields under its lock, and those that are read without it (docs/sources/vmap.md#block-objects).

use super::queue::Link;
use crate::lists::filled;
use crate::ranges::OutOfMetadata;
use crate::sync::{AtomicU64, Mutex, Ordering, Rank};
use crate::units::{PageCount, Vpn};
use crate::vmap::{BlockPolicy, DirtyTracking, LiveMap, UnmapRamError};
use alloc::vec::Vec;

/// Flag in the size that is noted for a slot: the mapping that started there was ended. Sizes are at most 64.
const ENDED: u8 = 0x80;

const WORD_BITS: u32 = u64::BITS;

/// The permanent record of the blocks that ever stand at one place, one at a time.
#[derive(Debug)]
pub(super) struct Block {
    /// Slots that can be handed out. Changes under the lock only; read without it, it is a hint. Zero when there is no
    /// block here.
    free: AtomicU64,
    /// The neighbours on the owner's list of blocks with free slots, which is walked without a lock.
    pub(super) next: Link,
    pub(super) prev: Link,
    /// The block's place in its bucket of the index, under that bucket's lock.
    pub(super) place: AtomicU64,
    pub(super) body: Mutex<Body>,
}

/// The fields under the lock of a block.
#[derive(Debug)]
pub(super) struct Body {
    /// True if a block stands here: from its creation until it was found used up, or purged.
    pub(super) stands: bool,
    /// The position of the CPU that hands out the block's slots.
    pub(super) owner: u32,
    /// Number of slots that were unmapped.
    pub(super) dirty: u32,
    stale: Stale,
    /// A bit for each live slot, under [`LiveMap::UsedMap`] only.
    used: Vec<u64>,
    /// For each slot: the pages of the mapping that started there, with [`ENDED`] once it was ended; else zero.
    sizes: Vec<u8>,
    pub(super) counts: BlockCounts,
}

/// Counts under the lock of the block, for all blocks that ever stood at this place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockCounts {
    pub(super) maps: u64,
    pub(super) search_steps: u64,
    pub(super) second_search_steps: u64,
    pub(super) purged: u64,
    pub(super) dirty_words: u64,
}

/// The slots that were unmapped since the last flush.
#[derive(Debug)]
enum Stale {
    /// The slots lie in `start..end`; there are none if that is empty.
    Range { start: u32, end: u32 },
    /// The slots whose bits are set.
    Bitmap(Vec<u64>),
}

const NOT_STALE: Stale = Stale::Range { start: u32::MAX, end: 0 };

fn zeros<T: Clone + Default>(count: u32) -> Result<Vec<T>, OutOfMetadata> {
    Ok(filled(count as usize, T::default())?)
}

impl Block {
    pub(super) fn new(policy: &BlockPolicy) -> Result<Block, OutOfMetadata> {
        let slots = policy.geometry.slots();
        let words = slots.div_ceil(WORD_BITS);
        let stale = match policy.dirty {
            DirtyTracking::Range => NOT_STALE,
            DirtyTracking::Bitmap => Stale::Bitmap(zeros(words)?),
        };
        let used = match policy.live_map {
            LiveMap::None => Vec::new(),
            LiveMap::UsedMap => zeros(words)?,
        };
        let body = Body {
            stands: false,
            owner: 0,
            dirty: 0,
            stale,
            used,
            sizes: zeros(slots)?,
            counts: BlockCounts::default(),
        };
        Ok(Block {
            free: AtomicU64::new(0),
            next: Link::empty(),
            prev: Link::empty(),
            place: AtomicU64::new(0),
            body: Mutex::new(Rank::Block, body),
        })
    }

    #[inline(always)]
    pub(super) fn free(&self) -> u32 {
        self.free.load(Ordering::Relaxed) as u32
    }

    /// Sets the number of free slots; the lock of the block is held.
    #[inline(always)]
    pub(super) fn set_free(&self, free: u32) {
        self.free.store(u64::from(free), Ordering::Relaxed);
    }
}

impl Body {
    /// Begins a new block here, all of whose slots are free.
    pub(super) fn begin(&mut self, owner: u32) {
        debug_assert!(!self.stands, "the areas hand out a place once");
        self.stands = true;
        self.owner = owner;
        self.dirty = 0;
        self.sizes.fill(0);
        self.used.fill(0);
        match &mut self.stale {
            Stale::Bitmap(words) => words.fill(0),
            range @ Stale::Range { .. } => *range = NOT_STALE,
        }
    }

    /// Notes that a mapping of `pages` pages starts at slot `at` and takes `slots` slots.
    #[inline(always)]
    pub(super) fn enter(&mut self, at: u32, pages: u32, slots: u32) {
        self.sizes[at as usize] = pages as u8;
        if !self.used.is_empty() {
            for_each_word(at, slots, |word, mask| self.used[word] |= mask);
        }
        self.counts.maps += 1;
    }

    /// Verifies that a mapping of `pages` pages starts at slot `at`, and marks it as ended.
    #[inline(always)]
    pub(super) fn leave(&mut self, at: u32, pages: u32, slots: u32) -> Result<(), NotLeft> {
        let size = &mut self.sizes[at as usize];
        if u32::from(*size) != pages || pages == 0 {
            return Err(NotLeft);
        }
        *size |= ENDED;
        if !self.used.is_empty() {
            for_each_word(at, slots, |word, mask| self.used[word] &= !mask);
        }
        Ok(())
    }

    /// Names the reason why no mapping of the claimed size was ended at slot `at`; the block starts at page `start`.
    pub(super) fn why_not_left(&self, at: u32, start: u64) -> UnmapRamError {
        let size = self.sizes[at as usize];
        if !self.stands {
            return UnmapRamError::NotMapped;
        }
        if size & ENDED != 0 {
            return UnmapRamError::DoubleUnmap;
        }
        match self.covering(at) {
            Some((first, pages)) if first == at => {
                UnmapRamError::WrongSize { pages: PageCount(u64::from(pages)) }
            }
            Some((first, _)) => UnmapRamError::NotAStart { start: Vpn(start + u64::from(first)) },
            None => UnmapRamError::NotMapped,
        }
    }

    /// Returns the live mapping that covers slot `at`: its first slot and its pages.
    pub(super) fn covering(&self, at: u32) -> Option<(u32, u32)> {
        let first = (0..=at).rev().take(64).find(|&slot| self.sizes[slot as usize] != 0)?;
        let pages = u32::from(self.sizes[first as usize]);
        (pages & u32::from(ENDED) == 0 && at < first + pages).then_some((first, pages))
    }

    /// Returns the first slot and the pages of every live mapping that starts at slot `at` or above.
    pub(super) fn live_from(&self, at: u32) -> impl Iterator<Item = (u32, u32)> {
        let sizes = (at..).zip(self.sizes.iter().skip(at as usize));
        sizes
            .filter(|(_, size)| **size != 0 && **size & ENDED == 0)
            .map(|(slot, size)| (slot, u32::from(*size)))
    }

    /// Calls `visit` for every mapping that was ever made in this block, with its first slot, its pages, and true if it
    /// is live.
    pub(super) fn for_each_mapping(&self, mut visit: impl FnMut(u32, u32, bool)) {
        for (at, &size) in (0..).zip(&self.sizes).filter(|(_, size)| **size != 0) {
            visit(at, u32::from(size & !ENDED), size & ENDED == 0);
        }
    }

    /// Notes that `slots` slots from `at` on were unmapped.
    #[inline(always)]
    pub(super) fn soil(&mut self, at: u32, slots: u32) {
        self.dirty += slots;
        match &mut self.stale {
            Stale::Range { start, end } => {
                *start = at.min(*start);
                *end = (at + slots).max(*end);
            }
            Stale::Bitmap(words) => {
                for_each_word(at, slots, |word, mask| {
                    words[word] |= mask;
                    self.counts.dirty_words += 1;
                });
            }
        }
    }

    /// Returns the first slot and the end of the smallest range that covers all slots unmapped since the last flush, if
    /// there are any, and forgets them.
    pub(super) fn take_stale(&mut self) -> Option<(u32, u32)> {
        let bounds = self.stale_bounds();
        match &mut self.stale {
            Stale::Range { .. } => self.stale = NOT_STALE,
            Stale::Bitmap(words) => {
                self.counts.dirty_words += words.len() as u64;
                words.fill(0);
            }
        }
        bounds
    }

    /// Returns the range that [`take_stale`](Self::take_stale) would return.
    pub(super) fn stale_bounds(&self) -> Option<(u32, u32)> {
        match &self.stale {
            Stale::Range { start, end } => (*start < *end).then_some((*start, *end)),
            Stale::Bitmap(words) => {
                let bits =
                    || (0..).step_by(WORD_BITS as usize).zip(words).filter(|(_, w)| **w != 0);
                let (first, word) = bits().next()?;
                let (last, end) = bits().last()?;
                Some((first + word.trailing_zeros(), last + WORD_BITS - end.leading_zeros()))
            }
        }
    }

    /// Returns the number of set bits in the map of live slots, if there is one.
    pub(super) fn used_slots(&self) -> Option<u32> {
        let set = self.used.iter().map(|word| word.count_ones()).sum();
        (!self.used.is_empty()).then_some(set)
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        let stale = match &self.stale {
            Stale::Range { .. } => 0,
            Stale::Bitmap(words) => size_of_val(&**words),
        };
        (stale + size_of_val(&*self.used) + size_of_val(&*self.sizes)) as u64
    }
}

/// No mapping of the claimed size starts at the slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotLeft;

/// Calls `visit` with the index of each word of a bitmap that has bits for slots `at..at + slots`, and a mask of these.
/// At most 64 slots: one word or two.
#[inline(always)]
fn for_each_word(at: u32, slots: u32, mut visit: impl FnMut(usize, u64)) {
    let (word, bit) = ((at / WORD_BITS) as usize, at % WORD_BITS);
    let mask = u64::MAX >> (WORD_BITS - slots);
    visit(word, mask << bit);
    if bit + slots > WORD_BITS {
        visit(word + 1, mask >> (WORD_BITS - bit));
    }
}
