//! The state of an area in one word, which one store publishes, and the table of such words.

use crate::lists::made;
use crate::ranges::OutOfMetadata;
use crate::sync::{AtomicU64, Published};
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

/// An area's state, guard, CPU and size in pages; zero is no area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AreaWord(pub(super) u64);

impl AreaWord {
    pub(super) const VACANT: AreaWord = AreaWord(0);

    #[inline(always)]
    pub(super) fn busy(total: u64, guard: Guard, cpu: u32) -> AreaWord {
        let guard = guard.pages() << GUARD_BIT;
        AreaWord(total << PAGES_SHIFT | u64::from(cpu) << CPU_SHIFT | guard | BUSY)
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

    #[inline(always)]
    pub(super) fn is_busy(self) -> bool {
        self.0 & BUSY == BUSY
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

const CHUNKS: usize = if cfg!(loom) { 4 } else { 25 };

/// A table of area words that only grows, so that it is read without a lock.
#[derive(Debug)]
pub(super) struct Slots {
    chunks: [Published<Vec<AtomicU64>>; CHUNKS],
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots { chunks: core::array::from_fn(|_| Published::empty()) }
    }

    /// Returns the chunk of a slot and its place there.
    #[inline(always)]
    fn locate(slot: u32) -> (usize, usize) {
        let above = slot + FIRST_CHUNK;
        let chunk = above.ilog2() - FIRST_CHUNK.ilog2();
        (chunk as usize, (above - (FIRST_CHUNK << chunk)) as usize)
    }

    #[inline(always)]
    pub(super) fn word(&self, slot: u32) -> &AtomicU64 {
        let (chunk, place) = Slots::locate(slot);
        &self.chunks[chunk].get().expect("a slot's chunk is published before the slot")[place]
    }

    /// Makes sure that `slot` exists. The caller holds the lock under which slots are given out.
    pub(super) fn provide(&self, slot: u32) -> Result<(), OutOfMetadata> {
        let (chunk, _) = Slots::locate(slot);
        let published = self.chunks.get(chunk).ok_or(OutOfMetadata)?;
        if published.get().is_none() {
            let count = (FIRST_CHUNK << chunk) as usize;
            published.publish(made(count, || AtomicU64::new(AreaWord::VACANT.0))?);
        }
        Ok(())
    }
}
