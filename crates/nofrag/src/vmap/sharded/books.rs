//! The existing areas and their places: a hash of first pages, and bitmaps that answer for interior pages.
//!
//! An area is on the books from the moment its range leaves the free ranges until it returns there: busy, lazy or
//! pooled. So a pooled area is handed out again by one store to its word, without touching the books.
//!
//! **Exact pages.** Each shard maps the first pages of its areas to slots. The shard is a hash of the page's block of
//! 64, since frees come from any CPU.
//!
//! **Interior pages.** Level `l` serves areas of at most `64^(l+1)` pages that are too large for the level below. Its
//! blocks are aligned and `64^(l+1)` pages long; a block has a bitmap of the 64 granules in which an area of the level
//! starts. Such an area is at least as long as a granule, so at most one starts in each; and at most as long as a
//! block, so a page is covered from its own block or from the one before. A lookup costs two probes for each level in
//! use, of which there are eight at most; a mask tells which ones.

use super::table::Table;
use super::word::{AreaWord, Cell, Slots};
use crate::lists::{made, put, put_all};
use crate::ranges::OutOfMetadata;
use crate::sync::{AtomicU64, Guard as LockGuard, Mutex, Ordering, Padded, Rank};
use alloc::vec::Vec;

/// Granules in a block, one for each bit of its bitmap, as a base-2 logarithm.
const GRANULE_BITS: u32 = 6;

/// Sets the keys of granules apart from those of blocks.
const GRANULE_TAG: u64 = 0x80;

const TAG_SHIFT: u32 = 56;

/// An area that was freed and is not flushed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    pub(super) offset: u64,
    pub(super) total: u64,
    pub(super) slot: u32,
    /// The CPU to whose pools the area goes back; none for a piece of a group, which goes back to the free ranges.
    pub(super) pool: Option<u32>,
}

/// Number of slots, places for the words of areas, that a shard takes at a time. They lie in one chunk.
const SLOTS_AT_A_TIME: u32 = 16;

/// All shards, the words of all areas, and a mask of the levels in use.
#[derive(Debug)]
pub(super) struct AreaBooks {
    shards: Vec<Shard>,
    shift: u32,
    slots: Slots,
    /// Number of slots that the shards have taken.
    slots_taken: AtomicU64,
    levels: AtomicU64,
}

type Shard = Padded<Mutex<ShardBooks>>;

/// One shard of the books: areas by first page, bitmaps for interior pages, and the lists of lazy areas and unused
/// slots.
///
/// 1. Each first page names a slot of its own, whose word is not vacant.
/// 2. The lists of lazy areas and of unused slots have room for all there can be, so that freeing never needs memory.
#[derive(Debug, Default)]
pub(super) struct ShardBooks {
    starts: Table,
    blocks: Table,
    pub(super) lazy: Vec<Freed>,
    unused: Vec<u32>,
    slots_owned: usize,
    pub(super) frees: u64,
}

/// Returns the level of bitmaps that serves areas of `total` pages.
#[inline]
fn level_of(total: u64) -> u32 {
    (u64::BITS - (total - 1).leading_zeros()).saturating_sub(1) / GRANULE_BITS
}

/// Returns the pages in a granule of `level`, as a base-2 logarithm.
#[inline]
fn granule_shift(level: u32) -> u32 {
    level * GRANULE_BITS
}

#[inline]
fn block_shift(level: u32) -> u32 {
    granule_shift(level) + GRANULE_BITS
}

#[inline]
fn block_key(level: u32, block: u64) -> u64 {
    u64::from(level) << TAG_SHIFT | block
}

#[inline]
fn granule_key(level: u32, granule: u64) -> u64 {
    (GRANULE_TAG | u64::from(level)) << TAG_SHIFT | granule
}

impl AreaBooks {
    pub(super) fn new(cpus: usize) -> Result<AreaBooks, OutOfMetadata> {
        // Sixteen shards per CPU make it unlikely that two CPUs meet; under loom every lock costs states.
        let count = if cfg!(loom) { 2 } else { (16 * cpus).next_power_of_two().clamp(16, 1024) };
        let shards = made(count, || Padded(Mutex::new(Rank::Busy, ShardBooks::default())))?;
        Ok(AreaBooks {
            shards,
            shift: 64 - count.trailing_zeros(),
            slots: Slots::new(),
            slots_taken: AtomicU64::new(0),
            levels: AtomicU64::new(1),
        })
    }

    #[inline(always)]
    fn shard_of_block(&self, level: u32, block: u64) -> &Shard {
        let hash = block_key(level, block).wrapping_mul(0xd134_2543_de82_ef95);
        &self.shards[(hash >> self.shift) as usize]
    }

    #[inline(always)]
    fn shard_of(&self, offset: u64) -> &Shard {
        self.shard_of_block(0, offset >> GRANULE_BITS)
    }

    #[inline(always)]
    pub(super) fn cell(&self, slot: u32) -> &Cell {
        self.slots.cell(slot)
    }

    #[inline(always)]
    pub(super) fn lock(&self, offset: u64) -> LockGuard<'_, ShardBooks> {
        self.shard_of(offset).lock()
    }

    pub(super) fn lock_at(&self, position: usize) -> LockGuard<'_, ShardBooks> {
        self.shards[position].lock()
    }

    pub(super) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Enters an area into the books and returns its slot. Nothing changed when memory runs out.
    pub(super) fn register(&self, offset: u64, word: AreaWord) -> Result<u32, OutOfMetadata> {
        let level = level_of(word.total());
        let slot = {
            let mut shard = self.lock(offset);
            let slot = self.enter(&mut shard, offset, word)?;
            if level == 0 {
                shard.set_bit(0, offset);
            }
            slot
        };
        if level > 0
            && let Err(why) = self.register_large(level, offset)
        {
            self.leave(offset, level);
            return Err(why);
        }
        Ok(slot)
    }

    #[cold]
    fn register_large(&self, level: u32, offset: u64) -> Result<(), OutOfMetadata> {
        self.levels.fetch_or(1 << level, Ordering::Release);
        let mut books = self.shard_of_block(level, offset >> block_shift(level)).lock();
        books.blocks.reserve(2)?;
        books.set_bit(level, offset);
        books.blocks.set(granule_key(level, offset >> granule_shift(level)), offset);
        Ok(())
    }

    /// Strikes an area off the books: its range is about to return to the free ranges.
    pub(super) fn deregister(&self, offset: u64, total: u64) {
        let level = level_of(total);
        if level > 0 {
            let mut books = self.shard_of_block(level, offset >> block_shift(level)).lock();
            books.clear_bit(level, offset);
            books.blocks.remove(granule_key(level, offset >> granule_shift(level)));
        }
        self.leave(offset, level);
    }

    /// Gives the area that starts at `offset` a slot and room for everything that freeing it will need.
    fn enter(
        &self,
        shard: &mut ShardBooks,
        offset: u64,
        word: AreaWord,
    ) -> Result<u32, OutOfMetadata> {
        shard.starts.reserve(1)?;
        shard.blocks.reserve(1)?;
        if shard.unused.is_empty() {
            self.take_slots(shard)?;
        }
        let slot = shard.unused.pop().expect("slots were taken");
        shard.starts.set(offset, u64::from(slot));
        self.cell(slot).begin(offset, word);
        Ok(slot)
    }

    #[cold]
    fn take_slots(&self, shard: &mut ShardBooks) -> Result<(), OutOfMetadata> {
        let owned = shard.slots_owned + SLOTS_AT_A_TIME as usize;
        shard.unused.try_reserve(owned)?;
        let missing = owned - shard.lazy.len();
        shard.lazy.try_reserve(missing)?;
        let first = self.slots_taken.fetch_add(u64::from(SLOTS_AT_A_TIME), Ordering::Relaxed);
        let first = u32::try_from(first).map_err(|_| OutOfMetadata)?;
        self.slots.provide(first)?;
        put_all(&mut shard.unused, first..first + SLOTS_AT_A_TIME);
        shard.slots_owned = owned;
        Ok(())
    }

    fn leave(&self, offset: u64, level: u32) {
        let mut shard = self.lock(offset);
        let slot = shard.starts.remove(offset).expect("the area is on the books") as u32;
        self.cell(slot).word.store(AreaWord::VACANT.0, Ordering::Release);
        put(&mut shard.unused, slot);
        if level == 0 {
            shard.clear_bit(0, offset);
        }
    }

    fn word_at(&self, offset: u64) -> Option<AreaWord> {
        let shard = self.lock(offset);
        shard.slot_at(offset).map(|slot| self.cell(slot).seen())
    }

    /// Returns the first page and the word of every area of a shard.
    pub(super) fn areas_in<'a>(
        &'a self,
        shard: &'a ShardBooks,
    ) -> impl Iterator<Item = (u64, AreaWord)> + 'a {
        self.cells_in(shard).map(|(offset, cell)| (offset, cell.seen()))
    }

    pub(super) fn cells_in<'a>(
        &'a self,
        shard: &'a ShardBooks,
    ) -> impl Iterator<Item = (u64, &'a Cell)> + 'a {
        shard.starts.iter().map(|(offset, slot)| (offset, self.cell(slot as u32)))
    }

    /// Returns the first page and the word of the busy area that covers `offset`.
    pub(super) fn covering(&self, offset: u64) -> Option<(u64, AreaWord)> {
        let mut levels = self.levels.load(Ordering::Acquire);
        while levels != 0 {
            let level = levels.trailing_zeros();
            levels &= levels - 1;
            let covers = |start: u64| {
                let word = self.word_at(start)?;
                (word.is_busy() && offset - start < word.total()).then_some((start, word))
            };
            if let Some(found) = self.last_start(level, offset).and_then(covers) {
                return Some(found);
            }
        }
        None
    }

    /// Returns the highest first page of an area of `level` at or below `offset`, in its block or the one before.
    fn last_start(&self, level: u32, offset: u64) -> Option<u64> {
        let block = offset >> block_shift(level);
        let own = self.last_start_in(level, block, offset);
        own.or_else(|| self.last_start_in(level, block.checked_sub(1)?, offset))
    }

    fn last_start_in(&self, level: u32, block: u64, offset: u64) -> Option<u64> {
        let shard = self.shard_of_block(level, block).lock();
        let mut bits = shard.blocks.get(block_key(level, block))?;
        while bits != 0 {
            let top = u64::from(bits.ilog2());
            let granule = block << GRANULE_BITS | top;
            let start = match level {
                0 => Some(granule),
                _ => shard.blocks.get(granule_key(level, granule)),
            };
            match start {
                Some(start) if start <= offset => return Some(start),
                _ => bits &= !(1 << top),
            }
        }
        None
    }
}

impl ShardBooks {
    /// Returns the slot of the area that starts at `offset`.
    #[inline(always)]
    pub(super) fn slot_at(&self, offset: u64) -> Option<u32> {
        self.starts.get(offset).map(|slot| slot as u32)
    }

    pub(super) fn area_count(&self) -> usize {
        self.starts.len()
    }

    fn set_bit(&mut self, level: u32, offset: u64) {
        let key = block_key(level, offset >> block_shift(level));
        self.blocks.set_bits(key, bit_of(level, offset));
    }

    fn clear_bit(&mut self, level: u32, offset: u64) {
        let key = block_key(level, offset >> block_shift(level));
        let bits = self.blocks.get(key).unwrap_or(0) & !bit_of(level, offset);
        if bits == 0 {
            self.blocks.remove(key);
        } else {
            self.blocks.set(key, bits);
        }
    }

    /// Returns true if the list of lazy areas has room for `areas`.
    pub(super) fn has_room_for(&self, areas: usize) -> bool {
        self.lazy.capacity() >= areas && self.unused.capacity() >= self.slots_owned
    }
}

/// Returns the bit of the granule in which `offset` lies.
#[inline]
fn bit_of(level: u32, offset: u64) -> u64 {
    1 << (offset >> granule_shift(level) & 63)
}

#[cfg(test)]
mod tests {
    use super::level_of;

    #[test]
    fn levels_hold_areas_up_to_a_power_of_64() {
        let levels = [1, 2, 64, 65, 4096, 4097, 1 << 18, (1 << 18) + 1, 1 << 46].map(level_of);
        assert_eq!(levels, [0, 0, 0, 1, 1, 2, 2, 3, 7]);
    }
}
