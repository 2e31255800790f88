//! The state of an area in one word, which one store publishes, and the table of such words.

use crate::lists::made;
use crate::ranges::OutOfMetadata;
use crate::sync::{AtomicU64, Ordering, Published};
use crate::vmap::{AreaKind, Guard};
use alloc::vec::Vec;

const STATE_BITS: u32 = 3;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;
const GUARD_BIT: u32 = STATE_BITS;
const CPU_SHIFT: u32 = GUARD_BIT + 1;
const CPU_BITS: u32 = 14;
const PAGES_SHIFT: u32 = CPU_SHIFT + CPU_BITS;

/// State of an area in use; the higher bits of the state tell its purpose.
const BUSY: u64 = 1;
/// Busy, and a piece of a group: groups are placed top-down where all pieces fit at once, and a pool would keep such
/// places from the next group.
const BUSY_PIECE: u64 = 3;
/// Busy, made by `map_ram` for a request that is too large for a block.
const BUSY_RAM: u64 = 5;
/// Busy, a block from which `map_ram` cuts mappings.
const BUSY_BLOCK: u64 = 7;
/// Freed: lazy, detached or pooled. The lists tell which of these; the fast path does not ask.
const IDLE: u64 = 2;
/// Busy, and owned by the holder of its CPU's pools, a handle: no other thread writes the word.
const OWN_BUSY: u64 = 4;
/// Freed by the owner and not yet in its pools.
const OWN_LAZY: u64 = 6;

/// A bit for each state of an area in use.
const BUSY_STATES: u64 =
    1 << BUSY | 1 << BUSY_PIECE | 1 << BUSY_RAM | 1 << BUSY_BLOCK | 1 << OWN_BUSY;

/// The one that ends an area: any thread, under its shard's lock, or its owner alone, with a plain store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ender {
    Anyone = BUSY as isize,
    Owner = OWN_BUSY as isize,
}

/// An area's state, guard, CPU and size in pages; zero is no area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AreaWord(pub(super) u64);

impl AreaWord {
    pub(super) const VACANT: AreaWord = AreaWord(0);

    #[inline(always)]
    pub(super) fn busy(total: u64, guard: Guard, cpu: u32) -> AreaWord {
        AreaWord::busy_until(Ender::Anyone, total, guard, cpu)
    }

    #[inline(always)]
    pub(super) fn busy_until(ender: Ender, total: u64, guard: Guard, cpu: u32) -> AreaWord {
        let guard = guard.pages() << GUARD_BIT;
        AreaWord(total << PAGES_SHIFT | u64::from(cpu) << CPU_SHIFT | guard | ender as u64)
    }

    pub(super) fn busy_piece(total: u64, cpu: u32) -> AreaWord {
        AreaWord(AreaWord::busy(total, Guard::None, cpu).0 | BUSY_PIECE)
    }

    /// Returns the word of the same area with this purpose.
    #[inline(always)]
    pub(super) fn for_kind(self, kind: AreaKind) -> AreaWord {
        debug_assert!(self.is_busy(), "only what is busy is in use");
        AreaWord(match kind {
            AreaKind::Plain => self.0,
            AreaKind::Ram => self.0 | BUSY_RAM,
            AreaKind::Block => self.0 | BUSY_BLOCK,
        })
    }

    /// Returns the purpose of a busy area.
    #[inline(always)]
    pub(super) fn kind(self) -> AreaKind {
        match self.0 & STATE_MASK {
            BUSY_RAM => AreaKind::Ram,
            BUSY_BLOCK => AreaKind::Block,
            _ => AreaKind::Plain,
        }
    }

    /// Returns the word of the same area, freed.
    #[inline(always)]
    pub(super) fn as_idle(self) -> AreaWord {
        AreaWord(self.0 & !STATE_MASK | IDLE)
    }

    /// Returns the word of the same area, freed by its owner.
    #[inline(always)]
    pub(super) fn as_own_lazy(self) -> AreaWord {
        debug_assert!(self.has_owner(), "the owner frees it");
        AreaWord(self.0 | OWN_LAZY)
    }

    /// Returns the word of the same area, on its way from its owner's list to a pool or to everybody.
    #[inline(always)]
    pub(super) fn own_lazy_as_idle(self) -> AreaWord {
        debug_assert!(self.has_owner() && !self.is_busy(), "the owner has freed it");
        AreaWord(self.0 ^ (OWN_LAZY ^ IDLE))
    }

    #[inline(always)]
    pub(super) fn is_busy(self) -> bool {
        BUSY_STATES >> (self.0 & STATE_MASK) & 1 == 1
    }

    /// Returns true if only the holder of the CPU's pools writes the word.
    #[inline(always)]
    pub(super) fn has_owner(self) -> bool {
        self.0 & (OWN_BUSY | BUSY) == OWN_BUSY
    }

    /// Returns true if the area is in use, and the holder of the pools of the CPU at this position owns it.
    #[inline(always)]
    pub(super) fn is_busy_of(self, cpu: u32) -> bool {
        let mask = ((1 << CPU_BITS) - 1) << CPU_SHIFT | STATE_MASK;
        self.0 & mask == u64::from(cpu) << CPU_SHIFT | OWN_BUSY
    }

    /// Returns the position of the CPU to whose pools the area goes back once it is flushed, if to any.
    #[inline(always)]
    pub(super) fn pool(self) -> Option<u32> {
        let piece = self.0 & STATE_MASK == BUSY_PIECE;
        (!piece).then(|| self.cpu())
    }

    pub(super) fn is_vacant(self) -> bool {
        self == AreaWord::VACANT
    }

    #[inline(always)]
    pub(super) fn total(self) -> u64 {
        self.0 >> PAGES_SHIFT
    }

    #[inline(always)]
    pub(super) fn guard(self) -> Guard {
        if self.0 >> GUARD_BIT & 1 == 1 { Guard::Page } else { Guard::None }
    }

    /// Returns the position of the CPU that allocated the area last.
    #[inline(always)]
    pub(super) fn cpu(self) -> u32 {
        (self.0 >> CPU_SHIFT) as u32 & ((1 << CPU_BITS) - 1)
    }
}

/// Slots in the first chunk; each later one has twice as many as the one before.
const FIRST_CHUNK: u32 = if cfg!(loom) { 16 } else { 64 };

/// One past the base-2 logarithm of the last chunk's length.
const CHUNKS: usize = if cfg!(loom) { 8 } else { 32 };

/// No thread but the owner has freed the area.
pub(super) const UNCLAIMED: u64 = 0;
/// Another thread is freeing the area.
pub(super) const CLAIMED: u64 = 1;
/// Another thread has freed the area, and it is the last one of its owner's mail; from here on: it is not the last one,
/// and the slot of the next one is that much higher.
pub(super) const LAST_OF_MAIL: u64 = 2;

/// An area on the books.
///
/// 1. Of an area with an owner, the owner alone writes the word.
/// 2. An area with an owner that is claimed keeps its slot, and stays out of pools, until the owner has read its mail.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) word: AtomicU64,
    /// The first page; written before the word.
    offset: AtomicU64,
    /// Under an owner: what another thread has done about the area ([`UNCLAIMED`] and following). Others than the owner
    /// write it under the shard's lock, and its link without.
    pub(super) claim: AtomicU64,
}

impl Cell {
    fn vacant() -> Cell {
        let zero = || AtomicU64::new(0);
        Cell { word: AtomicU64::new(AreaWord::VACANT.0), offset: zero(), claim: zero() }
    }

    #[inline(always)]
    pub(super) fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Enters an area.
    pub(super) fn begin(&self, offset: u64, word: AreaWord) {
        self.offset.store(offset, Ordering::Relaxed);
        self.word.store(word.0, Ordering::Release);
    }

    /// Returns the word as it is to be seen: an area that another thread than the owner has freed is not busy.
    #[inline(always)]
    pub(super) fn seen(&self) -> AreaWord {
        let word = AreaWord(self.word.load(Ordering::Acquire));
        match word.has_owner() && self.claim.load(Ordering::Acquire) != UNCLAIMED {
            true => word.as_own_lazy(),
            false => word,
        }
    }
}

/// A table of areas that only grows, so that it is read without a lock.
#[derive(Debug)]
pub(super) struct Slots {
    chunks: [Published<Vec<Cell>>; CHUNKS],
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots { chunks: core::array::from_fn(|_| Published::empty()) }
    }

    /// Returns the chunk of a slot, by the logarithm of its length, and the place there.
    #[inline(always)]
    fn locate(slot: u32) -> (usize, usize) {
        let above = slot + FIRST_CHUNK;
        let chunk = (above | FIRST_CHUNK).ilog2();
        (chunk as usize, (above ^ 1 << chunk) as usize)
    }

    #[inline(always)]
    pub(super) fn cell(&self, slot: u32) -> &Cell {
        let (chunk, place) = Slots::locate(slot);
        &self.chunks[chunk].get().expect("a slot's chunk is published before the slot")[place]
    }

    /// Makes sure that `slot` exists. The caller holds the lock under which slots are given out.
    pub(super) fn provide(&self, slot: u32) -> Result<(), OutOfMetadata> {
        let (chunk, _) = Slots::locate(slot);
        let published = self.chunks.get(chunk).ok_or(OutOfMetadata)?;
        if published.get().is_none() {
            published.publish(made(1 << chunk, Cell::vacant)?);
        }
        Ok(())
    }
}
