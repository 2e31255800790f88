//! What stands in the pageblocks of a zone, from the use of each frame.
//!
//! A pageblock can become whole if nothing in it stays where it is: free pages need nothing, pages of processes and of
//! files can be moved, everything else stays. Moving needs free pages to move to, so no more blocks become whole than
//! free pages fill; dropping page cache makes more of them.
//!
//! The bounds are from above. Pages that are pinned for I/O look as if they could be moved. Free pages on the lists of
//! CPUs look like the kernel's, and compaction drains these lists: zoneinfo says how many
//! such pages there are, and the bounds assume that they stand where they pin most. Frames without memory look like the
//! kernel's on some kernels; where iomem shows the memory they are told apart.

use std::collections::BTreeMap;
use std::ops::Range;

use nofrag::units::Order;
use serde::Serialize;

use super::zones::pages;
use crate::lists::grow;
use crate::snapshot::{FrameUse, PageMap, Snapshot, ZoneInfo, ZoneName};

/// The pageblocks of a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pageblocks {
    /// Which zone.
    #[serde(flatten)]
    pub zone: ZoneName,
    /// Their order.
    pub order: u32,
    /// Bytes of one.
    pub bytes: u64,
    /// Those whose frames the allocator manages, whole or in part.
    pub pageblocks: u64,
    /// Those that are free.
    pub free: u64,
    /// Those in use, in which nothing stays where it is.
    pub movable: u64,
    /// Those in which something stays where it is.
    pub pinned: u64,
    /// Those of them in which at most one page of [`LITTLE`] does.
    pub pinned_by_little: u64,
    /// Pinned ones in which nothing but free pages on the lists of CPUs may stay, as far as these pages go: the least
    /// that is pinned is `pinned` less these.
    pub perhaps_free: u64,
    /// The pinned ones by how many of their pages stay, fewest first; classes without a pageblock are left out.
    pub pinned_classes: Vec<PinnedClass>,
    /// What pins them, most pageblocks first.
    pub pinned_by: Vec<PinnedBy>,
    /// At most so many are free after everything that can be moved is moved.
    pub after_compaction: u64,
    /// At most so many after page cache is dropped as well.
    pub after_reclaim: u64,
    /// All frames of the zone by use; uses without a frame are left out.
    pub uses: Vec<UseCount>,
    /// The zone from its first pageblock to its last, in at most [`MOST_CELLS`] pieces of equal length.
    pub map: Vec<MapCell>,
}

/// Into so many pieces a zone is cut for its map.
pub const MOST_CELLS: u64 = 256;

/// A piece of a zone, in pageblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MapCell {
    /// Pageblocks that are free.
    pub free: u64,
    /// Those in use, in which nothing stays where it is.
    pub movable: u64,
    /// Those in which something does.
    pub pinned: u64,
}

/// A pageblock is pinned by little if at most one page in so many stays where it is.
pub const LITTLE: u64 = 16;

/// Pinned pageblocks of which about so many pages stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PinnedClass {
    /// At least so many pages.
    pub from_pages: u64,
    /// At most so many.
    pub to_pages: u64,
    /// Pageblocks.
    pub pageblocks: u64,
}

/// A use of frames that keeps pageblocks from becoming whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PinnedBy {
    /// The use.
    pub usage: FrameUse,
    /// Pageblocks with at least one such page.
    pub pageblocks: u64,
    /// Pageblocks that nothing else pins.
    pub alone: u64,
}

/// How many frames are used for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UseCount {
    /// For what.
    pub usage: FrameUse,
    /// Frames.
    pub pages: u64,
}

/// The uses of the frames of one pageblock, by [`FrameUse::index`].
type Uses = [u64; FrameUse::COUNT];

fn count_if(uses: &Uses, is: impl Fn(FrameUse) -> bool) -> u64 {
    FrameUse::ALL.into_iter().filter(|&each| is(each)).map(|each| uses[each.index()]).sum()
}

/// Whether what is in the frame keeps its pageblock from becoming whole.
fn stays(usage: FrameUse) -> bool {
    usage != FrameUse::Free && !usage.is_movable()
}

/// What stands in the pageblocks of a zone; `None` where it is not known where the zone lies. O(frames).
#[must_use]
pub fn survey(snapshot: &Snapshot<'_>, map: &PageMap<'_>, zone: &ZoneInfo) -> Option<Pageblocks> {
    let mut walk = ZoneWalk::new(snapshot, zone)?;
    map.uses(walk.range()).for_each(|(pfn, usage)| walk.add(pfn, usage));
    Some(walk.finish().pageblocks)
}

/// What the frames of a zone showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneFrames {
    /// What stands in its pageblocks.
    pub pageblocks: Pageblocks,
    /// Free blocks of each order, as the frames show them.
    pub free_blocks: Vec<u64>,
}

/// Walks once over the frames of a zone, lowest first. What is kept does not grow with the zone.
pub(super) struct ZoneWalk<'a> {
    zone: ZoneName,
    order: u32,
    page_bytes: u64,
    range: Range<u64>,
    /// Pageblocks from the first to the last, and in how many pieces they are drawn.
    span: u64,
    cells: u64,
    memory: Memory<'a>,
    /// The uses of the pageblock that the walk stands in, and the frame behind the last.
    uses: Uses,
    next: u64,
    tally: Tally,
    /// Where the free run begins that the walk stands in.
    run: Option<u64>,
    free_blocks: Vec<u64>,
}

impl<'a> ZoneWalk<'a> {
    /// A walk over the zone; `None` where it is not known where it lies, or there is no memory for a tally of it.
    pub(super) fn new(snapshot: &'a Snapshot<'_>, zone: &ZoneInfo) -> Option<ZoneWalk<'a>> {
        let order = snapshot.pageblock_order();
        let block = 1_u64.checked_shl(order)?;
        let range = zone.start_pfn?..zone.end_pfn()?;
        let span = range.end.div_ceil(block).saturating_sub(range.start / block).max(1);
        let cells = span.min(MOST_CELLS);
        let mut tally = Tally::new(block, zone.on_per_cpu_lists());
        grow(&mut tally.map, cells as usize, MapCell::default()).ok()?;
        let orders = snapshot.blocks(&zone.zone).map_or(Order::COUNT, |zone| zone.blocks.len());
        let mut free_blocks = Vec::new();
        grow(&mut free_blocks, orders, 0).ok()?;
        Some(ZoneWalk {
            zone: zone.zone.clone(),
            order,
            page_bytes: snapshot.page_bytes(),
            next: range.start,
            range,
            span,
            cells,
            memory: Memory::new(snapshot),
            uses: [0; FrameUse::COUNT],
            tally,
            run: None,
            free_blocks,
        })
    }

    /// The frames of the zone.
    pub(super) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Takes in the next frame of the zone.
    pub(super) fn add(&mut self, pfn: u64, usage: FrameUse) {
        match (usage == FrameUse::Free, self.run) {
            (true, None) => self.run = Some(pfn),
            (false, Some(_)) => self.end_run(pfn),
            _ => {}
        }
        let has_memory = self.memory.has(pfn.saturating_mul(self.page_bytes));
        let usage = if has_memory { usage } else { FrameUse::NoPage };
        self.uses[usage.index()] += 1;
        self.next = pfn + 1;
        if self.next.is_multiple_of(self.tally.block) {
            self.end_block();
        }
    }

    /// A free run is made of the largest aligned blocks: no two buddies of equal order are both free.
    fn end_run(&mut self, end: u64) {
        let Some(mut at) = self.run.take() else { return };
        while at < end {
            let aligned = if at == 0 { u32::MAX } else { at.trailing_zeros() };
            let order = aligned.min((end - at).ilog2()).min(self.free_blocks.len() as u32 - 1);
            self.free_blocks[order as usize] += 1;
            at += 1 << order;
        }
    }

    /// The pageblock before the next frame is complete, or the zone or the file ends in it.
    fn end_block(&mut self) {
        let uses = std::mem::replace(&mut self.uses, [0; FrameUse::COUNT]);
        let (block, first) = (self.tally.block, self.range.start / self.tally.block);
        let number = (self.next.saturating_sub(1) / block).saturating_sub(first);
        let cell = u128::from(number) * u128::from(self.cells) / u128::from(self.span);
        self.tally.add(&uses, cell as usize);
    }

    pub(super) fn finish(mut self) -> ZoneFrames {
        self.end_run(self.next);
        if self.uses.iter().any(|&pages| pages > 0) {
            self.end_block();
        }
        ZoneFrames {
            pageblocks: self.tally.pageblocks(self.zone, self.order, self.page_bytes),
            free_blocks: self.free_blocks,
        }
    }
}

/// Where there is memory, asked with rising addresses.
struct Memory<'a> {
    /// Those that do not end before the last address.
    ranges: &'a [Range<u64>],
    /// Whether iomem shows memory at all.
    is_known: bool,
}

impl Memory<'_> {
    fn new<'a>(snapshot: &'a Snapshot<'_>) -> Memory<'a> {
        Memory { ranges: &snapshot.ram, is_known: !snapshot.ram.is_empty() }
    }

    fn has(&mut self, address: u64) -> bool {
        while self.ranges.first().is_some_and(|range| range.end <= address) {
            self.ranges = &self.ranges[1..];
        }
        !self.is_known || self.ranges.first().is_some_and(|range| range.start <= address)
    }
}

/// The sums over pageblocks.
struct Tally {
    block: u64,
    pageblocks: u64,
    free: u64,
    movable: u64,
    little: u64,
    /// By the logarithm of the number of pages that stay.
    classes: [u64; u64::BITS as usize],
    pinned_by: [(u64, u64); FrameUse::COUNT],
    /// Pageblocks that only pages like the kernel's pin, by how many of them.
    kernel_alone: BTreeMap<u64, u64>,
    /// Free pages on the lists of CPUs, which look like the kernel's.
    per_cpu: u64,
    uses: Uses,
    /// Free pages, and pages of files, in whole pageblocks.
    spare: u64,
    file: u64,
    map: Vec<MapCell>,
}

impl Tally {
    fn new(block: u64, per_cpu: u64) -> Tally {
        Tally {
            block,
            per_cpu,
            kernel_alone: BTreeMap::new(),
            pageblocks: 0,
            free: 0,
            movable: 0,
            little: 0,
            classes: [0; u64::BITS as usize],
            pinned_by: [(0, 0); FrameUse::COUNT],
            uses: [0; FrameUse::COUNT],
            spare: 0,
            file: 0,
            map: Vec::new(),
        }
    }

    /// Adds a pageblock, or the part of one that lies in the zone.
    fn add(&mut self, uses: &Uses, cell: usize) {
        self.uses.iter_mut().zip(uses).for_each(|(sum, more)| *sum += more);
        let is_whole = uses.iter().sum::<u64>() == self.block;
        if !is_whole || count_if(uses, FrameUse::is_managed) == 0 {
            return; // at the edge of a zone, or no memory of the allocator
        }
        self.pageblocks += 1;
        self.spare += uses[FrameUse::Free.index()];
        self.file += uses[FrameUse::File.index()];
        let staying = count_if(uses, stays);
        let cell = &mut self.map[cell];
        match staying {
            0 if uses[FrameUse::Free.index()] == self.block => {
                self.free += 1;
                cell.free += 1;
            }
            0 => {
                self.movable += 1;
                cell.movable += 1;
            }
            _ => {
                cell.pinned += 1;
                self.add_pinned(uses, staying);
            }
        }
    }

    fn add_pinned(&mut self, uses: &Uses, staying: u64) {
        self.little += u64::from(staying * LITTLE <= self.block);
        self.classes[staying.ilog2() as usize] += 1;
        if uses[FrameUse::Kernel.index()] == staying {
            *self.kernel_alone.entry(staying).or_default() += 1;
        }
        for usage in FrameUse::ALL.into_iter().filter(|&each| stays(each)) {
            let pages = uses[usage.index()];
            let (blocks, alone) = &mut self.pinned_by[usage.index()];
            *blocks += u64::from(pages > 0);
            *alone += u64::from(pages == staying);
        }
    }

    /// How many pinned pageblocks the free pages on the lists of CPUs can account for: those with fewest pages first.
    fn perhaps_free(&self) -> u64 {
        let mut left = self.per_cpu;
        let mut blocks = 0;
        for (&pages, &count) in &self.kernel_alone {
            let explained = count.min(left / pages);
            blocks += explained;
            left -= explained * pages;
            if explained < count {
                break;
            }
        }
        blocks
    }

    fn pageblocks(self, zone: ZoneName, order: u32, page_bytes: u64) -> Pageblocks {
        // Moving everything frees as many blocks as free pages fill, among those where nothing stays.
        let perhaps_free = self.perhaps_free();
        let most = self.free + self.movable + perhaps_free;
        let spare = self.spare.saturating_add(self.per_cpu);
        let after_compaction = (spare / self.block).clamp(self.free, most);
        let with_file = spare.saturating_add(self.file) / self.block;
        let class = |(log, &pageblocks): (usize, &u64)| PinnedClass {
            from_pages: 1 << log,
            to_pages: (2_u64 << log).saturating_sub(1).min(self.block),
            pageblocks,
        };
        let mut pinned_by: Vec<PinnedBy> = FrameUse::ALL
            .into_iter()
            .zip(self.pinned_by)
            .filter(|(_, (pageblocks, _))| *pageblocks > 0)
            .map(|(usage, (pageblocks, alone))| PinnedBy { usage, pageblocks, alone })
            .collect();
        pinned_by.sort_by_key(|by| std::cmp::Reverse(by.pageblocks));
        let uses = FrameUse::ALL.into_iter().zip(self.uses);
        Pageblocks {
            zone,
            order,
            bytes: pages(1, order).saturating_mul(page_bytes),
            pageblocks: self.pageblocks,
            free: self.free,
            movable: self.movable,
            pinned: self.pageblocks - self.free - self.movable,
            perhaps_free,
            pinned_by_little: self.little,
            pinned_classes: self
                .classes
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
                .map(class)
                .collect(),
            pinned_by,
            after_compaction,
            after_reclaim: with_file.clamp(after_compaction, most),
            map: self.map,
            uses: uses
                .filter(|(_, pages)| *pages > 0)
                .map(|(usage, pages)| UseCount { usage, pages })
                .collect(),
        }
    }
}
