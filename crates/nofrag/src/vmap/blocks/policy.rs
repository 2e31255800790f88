//! Every difference between the block engines as a value.
//!
//! When Linux did what: docs/sources/vmap.md#versions and vmap.md#bugs. Comments beside the values of presets name
//! sections of that file.

use crate::units::PageSize;

/// The rules by which small mappings ([`map_ram`](super::super::VmapSpace::map_ram)) are cut from blocks.
///
/// The values of [`BlockIndex`] choose the engine: `Global` and `PerCpu` are Linux's, `Direct` is ours, which heeds
/// `geometry`, `classes` and `reuse` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPolicy {
    pub geometry: BlockGeometry,
    pub classes: SizeClasses,
    pub reuse: Reuse,
    pub index: BlockIndex,
    pub new_block: NewBlock,
    pub first_slots: FirstSlots,
    pub dirty: DirtyTracking,
    pub live_map: LiveMap,
    pub keep: KeepBlocks,
    pub aliases: AliasWalk,
    pub purge_queue: PurgeQueue,
    pub hash: HashIds,
}

/// The size of a block and of the largest mapping that is cut from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGeometry {
    slots: u32,
    max_pages: u32,
}

/// Linux's constants (docs/sources/vmap.md#block-constants): bounds of the number of slots (`VMAP_BBMAP_BITS`), and the
/// number of blocks for which each CPU should have room.
const LINUX_MAX_SLOTS: u64 = 1024;
const LINUX_BLOCKS_PER_CPU: u64 = 16;

impl BlockGeometry {
    /// 64-bit Linux with 4 KiB pages for at most 2048 CPUs, as Pen's figures assume: blocks of 1024 pages (4 MiB),
    /// mappings of up to 64.
    pub const LINUX_64: BlockGeometry = BlockGeometry { slots: 1024, max_pages: 64 };

    /// Returns the geometry of blocks of `slots` pages and mappings of up to `max_pages`. `None` unless both are powers
    /// of two with 1 <= `max_pages` <= 64 and `2 * max_pages` <= `slots` <= 32768.
    #[must_use]
    pub const fn new(slots: u32, max_pages: u32) -> Option<BlockGeometry> {
        let powers = slots.is_power_of_two() && max_pages.is_power_of_two();
        if powers && max_pages <= 64 && 2 * max_pages <= slots && slots <= 1 << 15 {
            Some(BlockGeometry { slots, max_pages })
        } else {
            None
        }
    }

    /// Returns the geometry that Linux's formulas (docs/sources/vmap.md#block-constants) give for a word of `word_bits`
    /// bits, pages of `page`, and a kernel built for `nr_cpus` CPUs: mappings have up to `word_bits` pages
    /// (`VMAP_MAX_ALLOC`), and blocks are so small that 16 for each CPU fit into a guess at the size of the vmalloc
    /// space, but have room for two of the largest mappings and at most 1024 slots.
    ///
    /// The answer is `None` unless `word_bits` is 32 or 64.
    #[must_use]
    pub const fn linux(word_bits: u32, page: PageSize, nr_cpus: u32) -> Option<BlockGeometry> {
        let vmalloc_bytes: u64 = match word_bits {
            32 => 128 << 20,
            64 => 128 << 30,
            _ => return None,
        };
        let cpus = if nr_cpus == 0 { 1 } else { (nr_cpus as u64).next_power_of_two() };
        let wanted = vmalloc_bytes / page.bytes() / cpus / LINUX_BLOCKS_PER_CPU;
        let least = 2 * word_bits as u64;
        let slots = if wanted < least { least } else { wanted };
        let slots = if slots > LINUX_MAX_SLOTS { LINUX_MAX_SLOTS } else { slots };
        BlockGeometry::new(slots as u32, word_bits)
    }

    /// Returns the pages of a block (Linux: `VMAP_BBMAP_BITS`).
    #[must_use]
    pub const fn slots(self) -> u32 {
        self.slots
    }

    /// Returns the pages of the largest mapping that is cut from a block (Linux: `VMAP_MAX_ALLOC`).
    #[must_use]
    pub const fn max_pages(self) -> u32 {
        self.max_pages
    }

    /// Returns the number of free slots from which on alias flushes leave an idle block alone, since 6.5.
    #[must_use]
    pub const fn purge_threshold(self) -> u32 {
        self.slots / 4
    }
}

/// The sizes to which requests are rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SizeClasses {
    /// Powers of two (Linux): a block is used up without a rest.
    PowerOfTwo,
    /// Four steps between powers of two.
    Quarters,
    /// Eight steps between powers of two: exact up to 8 pages.
    Eighths,
    Exact,
}

impl SizeClasses {
    /// Returns `pages` rounded up; zero stays zero, and a size beyond `u32::MAX` becomes `u32::MAX`.
    #[inline]
    #[must_use]
    pub const fn round(self, pages: u32) -> u32 {
        if pages == 0 {
            return 0;
        }
        let digits = match self {
            SizeClasses::PowerOfTwo => {
                return match pages.checked_next_power_of_two() {
                    Some(rounded) => rounded,
                    None => u32::MAX,
                };
            }
            SizeClasses::Quarters => 2,
            SizeClasses::Eighths => 3,
            SizeClasses::Exact => return pages,
        };
        let step = 1_u32 << pages.ilog2().saturating_sub(digits);
        match pages.checked_add(step - 1) {
            Some(sum) => sum & !(step - 1),
            None => u32::MAX,
        }
    }
}

/// The time from which slots of a block may be handed out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reuse {
    /// When the whole block has been used and unmapped (Linux): one long-lived mapping pins a block.
    WholeBlock,
    /// Each slot on its own, once a flush that began after its unmapping has completed.
    FlushEpoch,
}

/// The way from an address to its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockIndex {
    /// One table, changed under one lock (Linux up to 6.3).
    Global,
    /// A bucket for each CPU, chosen by *address*, each with a lock of its own (Rezki 2023).
    PerCpu,
    /// By address, without a search; each place is written once, and changes need no lock (ours).
    Direct,
}

/// The end at which a new block joins its CPU's list of blocks with free slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NewBlock {
    /// In front (before Pen 2015): the new block hides the holes of older blocks for good.
    Head,
    /// At the back (Pen's first change).
    Tail,
}

/// The way in which the request that made a new block necessary gets its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FirstSlots {
    /// By searching the list again (before Pen 2015).
    SecondSearch,
    /// With the block's creation (Pen's second change).
    AtCreation,
}

/// The way in which a block records its slots that await a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DirtyTracking {
    /// A bit for each slot (before Pen 2015).
    Bitmap,
    /// The smallest range that covers the slots (Pen's third change).
    Range,
}

/// A block's map of its live slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LiveMap {
    /// No map: an unmapping holds the block's lock once.
    None,
    /// A map for readers, since 6.4: an unmapping holds the block's lock twice.
    UsedMap,
}

/// The idle blocks that an alias flush leaves alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeepBlocks {
    /// None: the flush purges every block without a live slot (before 6.5).
    UsedUp,
    /// Blocks of which a quarter is still free (6.5 and later).
    QuarterFree,
}

/// The way in which an alias flush finds the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AliasWalk {
    /// By the lists of blocks with free slots, so the flush misses the dirty slots of full ones (before 6.5). Kept for
    /// tests.
    FreeLists,
    /// By the index: all of them.
    Index,
}

/// The list off which a purged block is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PurgeQueue {
    /// The list of the bucket in which the block was found, which need not be the one it is on (6.4 to 6.9). Kept for
    /// tests.
    OfBucket,
    /// The list of the CPU that made the block.
    OfOwner,
}

/// The rule by which a bucket of the index is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HashIds {
    /// By the block number modulo the count of CPUs, taken as an id that need not exist (CVE-2024-41032; 6.4 to 6.9.8).
    /// Kept for tests.
    CountModulo,
    /// By the block number modulo the highest CPU id plus one, or the next id that exists.
    NextPossible,
}

impl BlockPolicy {
    /// Linux before Pen's changes of 2015.
    pub const LINUX_3_19: BlockPolicy = BlockPolicy {
        geometry: BlockGeometry::LINUX_64,     // vmap.md#block-constants
        classes: SizeClasses::PowerOfTwo,      // vmap.md#v7
        reuse: Reuse::WholeBlock,              // vmap.md#v1
        index: BlockIndex::Global,             // vmap.md#global-lookup-lock
        new_block: NewBlock::Head,             // vmap.md#pen-changes
        first_slots: FirstSlots::SecondSearch, // vmap.md#pen-changes
        dirty: DirtyTracking::Bitmap,          // vmap.md#pen-changes, vmap.md#block-objects
        live_map: LiveMap::None,               // vmap.md#block-objects
        keep: KeepBlocks::UsedUp,              // vmap.md#fragmented-blocks
        // In all presets as repaired; the bugs are values for tests.
        aliases: AliasWalk::Index,        // vmap.md#full-block-flush
        purge_queue: PurgeQueue::OfOwner, // vmap.md#owner-list
        hash: HashIds::NextPossible,      // vmap.md#sparse-ids
    };

    /// Linux 3.19 with Pen's first change (docs/sources/vmap.md#pen-changes).
    pub const PATCH_1: BlockPolicy =
        BlockPolicy { new_block: NewBlock::Tail, ..BlockPolicy::LINUX_3_19 };

    /// Linux 3.19 with Pen's first two changes.
    pub const PATCH_2: BlockPolicy =
        BlockPolicy { first_slots: FirstSlots::AtCreation, ..BlockPolicy::PATCH_1 };

    /// Linux 4.1 to 6.3: all three changes of Pen.
    pub const LINUX_4_1: BlockPolicy =
        BlockPolicy { dirty: DirtyTracking::Range, ..BlockPolicy::PATCH_2 };

    /// Linux 6.4: the index in buckets (Rezki 2023), a map of live slots in each block.
    pub const LINUX_6_4: BlockPolicy = BlockPolicy {
        index: BlockIndex::PerCpu,  // vmap.md#block-hash
        live_map: LiveMap::UsedMap, // vmap.md#block-objects
        ..BlockPolicy::LINUX_4_1
    };

    /// Linux 6.11: as 6.4, with what was repaired in between; blocks that are a quarter free survive alias flushes.
    pub const LINUX_6_11: BlockPolicy = BlockPolicy {
        keep: KeepBlocks::QuarterFree, // vmap.md#fragmented-blocks: Linux has it since 6.5
        ..BlockPolicy::LINUX_6_4
    };

    /// The rules of nofrag's own engine. Sizes are not rounded: slots are found by their runs, not by classes, and in
    /// every mix of lifetimes that was tried exact sizes took the least space.
    pub const NOFRAG: BlockPolicy = BlockPolicy {
        classes: SizeClasses::Exact, // vmap.md#size-classes
        reuse: Reuse::FlushEpoch,    // vmap.md#recycled-slots
        index: BlockIndex::Direct,   // vmap.md#lock-free-lookup
        ..BlockPolicy::LINUX_6_11
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_slots(word_bits: u32, page_kib: u64, expected: &[(u32, u32)]) {
        let page = PageSize::new(page_kib << 10).unwrap();
        for &(cpus, slots) in expected {
            let geometry = BlockGeometry::linux(word_bits, page, cpus).unwrap();
            assert_eq!((geometry.slots(), geometry.max_pages()), (slots, word_bits), "{cpus} CPUs");
        }
    }

    /// Compares the slots per block of Linux's formulas, by word size, page size and number of CPUs, with
    /// docs/sources/vmap.md#oracle-1.
    #[test]
    fn linux_formulas() {
        check_slots(64, 4, &[(1, 1024), (2048, 1024), (2049, 512), (4096, 512), (8192, 256)]);
        check_slots(64, 16, &[(512, 1024), (1024, 512), (2048, 256), (4096, 128), (8192, 128)]);
        check_slots(64, 64, &[(128, 1024), (256, 512), (512, 256), (1024, 128), (8192, 128)]);
        let small = [(1, 1024), (2, 1024), (4, 512), (8, 256), (16, 128), (32, 64), (64, 64)];
        check_slots(32, 4, &small);
        assert_eq!(BlockGeometry::linux(16, PageSize::KIB_4, 1), None);
    }

    #[test]
    fn geometries_are_powers_of_two_within_bounds() {
        assert!(BlockGeometry::new(64, 32).is_some());
        for (slots, max_pages) in [(100, 32), (64, 33), (64, 64), (256, 128), (1 << 16, 64), (2, 0)]
        {
            assert_eq!(BlockGeometry::new(slots, max_pages), None);
        }
    }

    #[test]
    fn nothing_rounded_up_is_nothing() {
        use SizeClasses::{Eighths, Exact, PowerOfTwo, Quarters};
        for classes in [PowerOfTwo, Quarters, Eighths, Exact] {
            assert_eq!((classes.round(0), classes.round(1)), (0, 1));
        }
    }

    /// Compares the sums of the sizes from 1 to 64 pages, each rounded up by its class, with
    /// docs/sources/vmap.md#oracle-6.
    #[test]
    fn rounding_sums() {
        let sum = |classes: SizeClasses| (1..=64).map(|pages| classes.round(pages)).sum::<u32>();
        assert_eq!(sum(SizeClasses::Exact), 2080);
        assert_eq!(sum(SizeClasses::PowerOfTwo), 2731);
        assert_eq!(sum(SizeClasses::Eighths), 2136);
        assert_eq!(sum(SizeClasses::Quarters), 2220);
    }
}
