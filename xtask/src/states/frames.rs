//! The uses of a guest's frames, by its kpageflags (Documentation/admin-guide/mm/pagemap.rst).
//!
//! Counted here apart from the crates: these figures say whether a state is what its name says, and what the crates say
//! of the same file is judged by the states.

use std::ops::Range;

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::emulator::console::garbled;

const LRU: u64 = 1 << 5;
const SLAB: u64 = 1 << 7;
const BUDDY: u64 = 1 << 10;
const MMAP: u64 = 1 << 11;
const ANON: u64 = 1 << 12;
const SWAPBACKED: u64 = 1 << 14;
const COMPOUND_TAIL: u64 = 1 << 16;
const UNEVICTABLE: u64 = 1 << 18;
const NOPAGE: u64 = 1 << 20;
const PGTABLE: u64 = 1 << 26;
const RESERVED: u64 = 1 << 32;
/// Memory of processes and of the page cache: the kernel can move it, unless somebody refers to it.
const MOVABLE: u64 = LRU | MMAP | ANON | SWAPBACKED | UNEVICTABLE;

const FRAMES_OF_BLOCK: usize = 512;
const FRAME_BYTES: u64 = 4096;

/// The use of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// No memory, or memory that the kernel does not manage.
    Absent,
    /// In a free list.
    Free,
    /// Of processes or the page cache.
    Movable,
    Slab,
    PageTable,
    /// Another page of the kernel, or a free one in the lists of a CPU: flags do not tell the two apart.
    Other,
}

impl Use {
    fn of(flags: u64) -> Use {
        match flags {
            _ if flags & (NOPAGE | RESERVED) != 0 => Use::Absent,
            _ if flags & BUDDY != 0 => Use::Free,
            _ if flags & MOVABLE != 0 => Use::Movable,
            _ if flags & SLAB != 0 => Use::Slab,
            _ if flags & PGTABLE != 0 => Use::PageTable,
            _ => Use::Other,
        }
    }

    fn is_of_kernel(self) -> bool {
        matches!(self, Use::Slab | Use::PageTable | Use::Other)
    }
}

/// The uses of all frames at one moment.
pub(super) struct Map(Vec<Use>);

impl Map {
    /// Reads the eight bytes of each frame. Kernels from 7.2 on show frames without memory as if they had no flags;
    /// `iomem` tells them.
    pub(super) fn read(kpageflags: &[u8], iomem: &str) -> anyhow::Result<Map> {
        let (words, rest) = kpageflags.as_chunks::<8>();
        ensure!(rest.is_empty() && !words.is_empty(), "kpageflags is cut");
        let mut head = NOPAGE;
        let uses = words.iter().map(|word| {
            let own = u64::from_le_bytes(*word);
            // The tail of a compound page is used for what its head is.
            let flags = if own & COMPOUND_TAIL == 0 { own } else { head };
            head = flags;
            Use::of(flags)
        });
        let uses: Vec<Use> = uses.collect();
        let mut with_memory = vec![Use::Absent; uses.len()];
        for frames in memory(iomem)? {
            let frames = frames.start.min(uses.len())..frames.end.min(uses.len());
            with_memory[frames.clone()].copy_from_slice(&uses[frames]);
        }
        Ok(Map(with_memory))
    }

    /// Counts frames; `end` is a later moment, `zoneinfo` of the same one.
    pub(super) fn count(&self, end: &Map, zoneinfo: &str) -> anyhow::Result<Frames> {
        let mut sums = Frames::default();
        let blocks = self.0.chunks(FRAMES_OF_BLOCK).zip(end.0.chunks(FRAMES_OF_BLOCK));
        for (block, at_end) in blocks {
            sums.add_block(block, at_end);
        }
        let lists = zoneinfo.lines().filter_map(|line| line.trim().strip_prefix("count:"));
        for list in lists {
            sums.on_cpu_lists += list.trim().parse::<u64>()?;
        }
        Ok(sums)
    }
}

/// Returns the ranges of frames that iomem says are memory; fails where it hides the addresses.
fn memory(iomem: &str) -> anyhow::Result<Vec<Range<usize>>> {
    let mut ranges = Vec::new();
    for line in iomem.lines().filter(|line| line.ends_with(": System RAM")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let (first, last) = range.with_context(|| garbled(line))?;
        let frame = |address| anyhow::Ok(u64::from_str_radix(address, 16)? / FRAME_BYTES);
        let range = usize::try_from(frame(first)?)?..usize::try_from(frame(last)? + 1)?;
        ensure!(range.len() > 1, "iomem hides its addresses");
        ranges.push(range);
    }
    ensure!(!ranges.is_empty(), "iomem names no memory");
    Ok(ranges)
}

/// Counts of frames and of pageblocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Frames {
    pub(super) frames: u64,
    /// Frames in the free lists.
    pub(super) free: u64,
    pub(super) movable: u64,
    /// Frames of the kernel, and free ones in the lists of CPUs.
    pub(super) kernel: u64,
    /// Frames in the lists of CPUs, as zoneinfo counts them at about the same time.
    pub(super) on_cpu_lists: u64,
    /// Of the kernel's: frames of slabs.
    pub(super) slab: u64,
    /// Of the kernel's: frames of page tables.
    pub(super) page_tables: u64,
    /// Pageblocks that have memory.
    pub(super) blocks: u64,
    /// Pageblocks that are wholly free.
    pub(super) free_blocks: u64,
    /// Pageblocks with a frame of the kernel, or of a CPU's lists.
    pub(super) pinned_blocks: u64,
    /// Of those: pageblocks with a movable frame.
    pub(super) mixed_blocks: u64,
    /// Of those: pageblocks with a frame that is the kernel's at the end as well, after all that was done.
    pub(super) lasting_blocks: u64,
}

impl Frames {
    fn add_block(&mut self, block: &[Use], at_end: &[Use]) {
        let count = |is: fn(Use) -> bool| block.iter().filter(|usage| is(**usage)).count() as u64;
        let frames = count(|usage| usage != Use::Absent);
        let free = count(|usage| usage == Use::Free);
        let movable = count(|usage| usage == Use::Movable);
        let kernel = count(Use::is_of_kernel);
        let mut both = block.iter().zip(at_end);
        let lasts = both.any(|(usage, later)| usage.is_of_kernel() && later.is_of_kernel());
        self.frames += frames;
        self.free += free;
        self.movable += movable;
        self.kernel += kernel;
        self.slab += count(|usage| usage == Use::Slab);
        self.page_tables += count(|usage| usage == Use::PageTable);
        self.blocks += u64::from(frames > 0);
        self.free_blocks += u64::from(free == FRAMES_OF_BLOCK as u64);
        self.pinned_blocks += u64::from(kernel > 0);
        self.mixed_blocks += u64::from(kernel > 0 && movable > 0);
        self.lasting_blocks += u64::from(lasts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads pageblocks that begin with these flags, and are free behind them; behind them lies one without memory.
    fn map(blocks: &[&[u64]]) -> Map {
        let block = |flags: &&[u64]| {
            let mut words = flags.to_vec();
            words.resize(FRAMES_OF_BLOCK, BUDDY);
            words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
        };
        let mut bytes: Vec<u8> = blocks.iter().flat_map(block).collect();
        bytes.resize(bytes.len() + 8 * FRAMES_OF_BLOCK, 0);
        let last = (blocks.len() * FRAMES_OF_BLOCK) as u64 * FRAME_BYTES - 1;
        let iomem =
            format!("00000000-{last:08x} : System RAM\n  00000000-0000000f : Kernel code\n");
        Map::read(&bytes, &iomem).unwrap()
    }

    fn counted(blocks: &[&[u64]]) -> Frames {
        map(blocks).count(&map(blocks), "").unwrap()
    }

    #[test]
    fn a_block_is_pinned_by_one_page_of_the_kernel() {
        let frames = counted(&[&[0], &[ANON | LRU], &[SLAB, LRU], &[], &[RESERVED]]);
        let blocks = [frames.blocks, frames.pinned_blocks, frames.mixed_blocks, frames.free_blocks];
        assert_eq!(blocks, [5, 2, 1, 1]);
        assert_eq!([frames.kernel, frames.slab, frames.movable], [2, 1, 2]);
        assert_eq!(frames.free, 5 * 512 - 5);
        assert_eq!(frames.frames, 5 * 512 - 1);
    }

    #[test]
    fn a_page_lasts_that_is_the_kernels_at_the_end_in_the_same_frame() {
        let before = map(&[&[0], &[0, SLAB], &[0]]);
        let end = map(&[&[BUDDY], &[LRU, 0], &[LRU, 0]]);
        let frames = before.count(&end, "").unwrap();
        assert_eq!([frames.pinned_blocks, frames.lasting_blocks], [3, 1]);
    }

    #[test]
    fn frames_in_the_lists_of_all_cpus_are_added_up() {
        let zoneinfo = "  pagesets\n    cpu: 0\n      count: 194\n    cpu: 1\n      count: 6\n";
        let map = map(&[&[]]);
        assert_eq!(map.count(&map, zoneinfo).unwrap().on_cpu_lists, 200);
    }

    #[test]
    fn a_tail_is_used_as_its_head_is() {
        let frames = counted(&[&[LRU, COMPOUND_TAIL, COMPOUND_TAIL], &[SLAB, COMPOUND_TAIL]]);
        assert_eq!([frames.movable, frames.slab, frames.kernel], [3, 2, 2]);
    }

    #[test]
    fn frames_are_not_counted_without_knowing_where_memory_is() {
        assert!(Map::read(&[0; 9], "00000000-00000fff : System RAM").is_err());
        assert!(Map::read(&[0; 8], "00000000-00000000 : System RAM").is_err(), "hidden");
        assert!(Map::read(&[0; 8], "").is_err());
    }
}
