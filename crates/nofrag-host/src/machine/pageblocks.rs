//! The contents of the pageblocks of a zone, from the use of each frame.
//!
//! A pageblock can become whole if no page in it must stay: free pages need no move, pages of processes and of files
//! can be moved, all others stay. Moving needs free pages to move to, so no more blocks become whole than free pages
//! fill; dropping page cache makes more of them. What a pass of compaction makes of them is foreseen in
//! [`super::pass`].
//!
//! The bounds are from above. Pages that are pinned for I/O look as if they could be moved. Free pages on the lists of
//! CPUs look like the kernel's, and compaction drains these lists: zoneinfo has the number of these pages, and the
//! bounds assume that they stand where they pin most. Frames without memory look like the kernel's on some kernels;
//! where iomem lists the memory the two are told apart.
//!
//! Source: docs/sources/trace.md#t6.

use std::collections::BTreeMap;
use std::ops::Range;

use nofrag::units::Order;
use serde::Serialize;

use super::pass::{Contents, Forecast, Hypothesis, Outcome, Pass, Rules};
use super::zones::pages;
use crate::lists::grow;
use crate::snapshot::{FrameUse, PageFlags, PageMap, Ram, Snapshot, ZoneInfo, ZoneName};

/// The pageblocks of a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pageblocks {
    #[serde(flatten)]
    pub zone: ZoneName,
    pub order: u32,
    /// Size of a pageblock in bytes.
    pub bytes: u64,
    /// Pageblocks whose frames the allocator manages, whole or in part.
    pub pageblocks: u64,
    pub free: u64,
    /// Pageblocks in use in which no page must stay.
    pub movable: u64,
    /// Pageblocks in which some page must stay.
    pub pinned: u64,
    /// Pinned pageblocks in which at most one page of sixteen stays.
    pub pinned_by_little: u64,
    /// Pinned pageblocks in which only free pages on the lists of CPUs may stay, as far as the number of these pages
    /// goes: the lower bound of pinned pageblocks is `pinned` less these.
    pub perhaps_free: u64,
    /// The pinned pageblocks by the number of pages that stay, fewest first; classes without a pageblock are left out.
    pub pinned_classes: Vec<PinnedClass>,
    /// The uses that pin pageblocks, most pageblocks first.
    pub pinned_by: Vec<PinnedBy>,
    /// Upper bound of the free pageblocks after every movable page is moved.
    pub after_compaction: u64,
    /// Upper bound of the free pageblocks after page cache is dropped as well.
    pub after_reclaim: u64,
    /// Pageblocks that can be had after a pass of compaction, and after page cache is dropped before it; `null` where
    /// the kernel's release is not known.
    pub forecast_after_compaction: Option<Forecast>,
    pub forecast_after_reclaim: Option<Forecast>,
    /// All frames of the zone by use; uses without a frame are left out.
    pub uses: Vec<UseCount>,
    /// The zone from its first pageblock to its last, in pieces of equal length.
    pub map: Vec<MapCell>,
}

/// Most pieces into which a zone is cut for its map.
pub const MOST_CELLS: u64 = 256;

/// A piece of a zone, in pageblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MapCell {
    pub free: u64,
    /// Pageblocks in use in which no page must stay.
    pub movable: u64,
    /// Pageblocks in which some page must stay.
    pub pinned: u64,
}

/// A pageblock is pinned by little if at most one page in this number stays.
pub const LITTLE: u64 = 16;

/// Pinned pageblocks by the number of pages that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedClass {
    /// Lower bound of the number of pages that stay.
    pub from_pages: u64,
    /// Upper bound of the number of pages that stay.
    pub to_pages: u64,
    pub pageblocks: u64,
}

/// A use of frames that keeps pageblocks from becoming whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PinnedBy {
    pub usage: FrameUse,
    /// Number of pageblocks with at least one such page.
    pub pageblocks: u64,
    /// Number of pageblocks that no other use pins.
    pub alone: u64,
}

/// The number of frames with one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UseCount {
    pub usage: FrameUse,
    pub pages: u64,
}

/// Number of frames of one pageblock with each use, by [`FrameUse::index`].
type Uses = [u64; FrameUse::COUNT];

fn count_if(uses: &Uses, is: impl Fn(FrameUse) -> bool) -> u64 {
    FrameUse::ALL.iter().copied().filter(|&each| is(each)).map(|each| uses[each.index()]).sum()
}

/// Returns true if a frame of this use keeps its pageblock from becoming whole.
fn stays(usage: FrameUse) -> bool {
    usage != FrameUse::Free && !usage.is_movable()
}

/// Returns the pageblocks of a zone; `None` where the place of the zone is not known. O(frames).
#[must_use]
pub fn survey(snapshot: &Snapshot<'_>, map: &PageMap<'_>, zone: &ZoneInfo) -> Option<Pageblocks> {
    let mut walk = ZoneWalk::new(snapshot, zone)?;
    let is_tail = |pfn| map.flags(pfn).is_some_and(|flags| flags.has(PageFlags::COMPOUND_TAIL));
    map.uses(walk.range()).for_each(|(pfn, usage)| walk.add(pfn, usage, is_tail(pfn)));
    Some(walk.finish().pageblocks)
}

/// The result of a walk over the frames of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneFrames {
    pub pageblocks: Pageblocks,
    /// Free blocks of each order, as the frames show them.
    pub free_blocks: Vec<u64>,
}

/// A walk over the frames of a zone, lowest first.
pub(super) struct ZoneWalk<'a> {
    zone: ZoneName,
    order: u32,
    page_bytes: u64,
    range: Range<u64>,
    /// Number of pageblocks from the zone's first to its last, and of cells in which they are drawn.
    span: u64,
    cells: u64,
    memory: Ram<'a>,
    /// The number of frames of each use in the pageblock that the walk has reached, and the frame behind the last one
    /// added.
    uses: Uses,
    next: u64,
    contents: Contents,
    /// The use and the number of pages of the folio that the walk has reached, if it can be moved.
    folio: Option<(FrameUse, u64)>,
    tally: Tally,
    /// The first frame of the present free run.
    run: Option<u64>,
    free_blocks: Vec<u64>,
}

impl<'a> ZoneWalk<'a> {
    /// Begins a walk over the zone; `None` where the place of the zone is not known, or there is no memory for its
    /// tally.
    pub(super) fn new(snapshot: &'a Snapshot<'_>, zone: &ZoneInfo) -> Option<ZoneWalk<'a>> {
        let order = snapshot.pageblock_order();
        let block = 1_u64.checked_shl(order)?;
        let range = zone.start_pfn?..zone.end_pfn()?;
        let span = range.end.div_ceil(block).saturating_sub(range.start / block).max(1);
        let cells = span.min(MOST_CELLS);
        let rules = snapshot.release.as_deref().and_then(|release| Rules::of(release, zone));
        let (per_cpu, room) = (zone.on_per_cpu_lists(), snapshot.room(zone));
        let mut tally = Tally { block, per_cpu, room, rules, ..Tally::default() };
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
            memory: snapshot.memory(),
            uses: [0; FrameUse::COUNT],
            contents: Contents::default(),
            folio: None,
            tally,
            run: None,
            free_blocks,
        })
    }

    /// Returns the range of frame numbers of the zone.
    pub(super) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Adds the next frame of the zone; `is_tail` if it belongs to the folio of the frame before.
    pub(super) fn add(&mut self, pfn: u64, usage: FrameUse, is_tail: bool) {
        match (usage == FrameUse::Free, self.run) {
            (true, None) => self.run = Some(pfn),
            (false, Some(_)) => self.end_run(pfn),
            _ => {}
        }
        let has_memory = self.memory.has(pfn.saturating_mul(self.page_bytes));
        let usage = if has_memory { usage } else { FrameUse::NoPage };
        self.uses[usage.index()] += 1;
        match &mut self.folio {
            Some((of, pages)) if is_tail && *of == usage => *pages += 1,
            _ => {
                self.end_folio();
                self.folio = usage.is_movable().then_some((usage, 1));
            }
        }
        self.next = pfn + 1;
        if self.next.is_multiple_of(self.tally.block) {
            self.end_block();
        }
    }

    /// Counts the blocks of a free run, the largest aligned ones: no two buddies of equal order are both free.
    fn end_run(&mut self, end: u64) {
        let Some(mut at) = self.run.take() else { return };
        while at < end {
            let aligned = if at == 0 { u32::MAX } else { at.trailing_zeros() };
            let order = aligned.min((end - at).ilog2()).min(self.free_blocks.len() as u32 - 1);
            self.free_blocks[order as usize] += 1;
            at += 1 << order;
        }
    }

    fn end_folio(&mut self) {
        if let Some((usage, pages)) = self.folio.take() {
            self.contents.add_folio(usage, pages, self.tally.block);
        }
    }

    /// Ends a pageblock: it is complete, or the zone or the file ends in it.
    fn end_block(&mut self) {
        self.end_folio();
        let uses = std::mem::replace(&mut self.uses, [0; FrameUse::COUNT]);
        let (block, first) = (self.tally.block, self.range.start / self.tally.block);
        let number = (self.next.saturating_sub(1) / block).saturating_sub(first);
        let cell = u128::from(number) * u128::from(self.cells) / u128::from(self.span);
        self.tally.add(&uses, cell as usize);
        self.tally.add_contents(std::mem::take(&mut self.contents), &uses);
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

#[derive(Default)]
struct Tally {
    block: u64,
    pageblocks: u64,
    free: u64,
    movable: u64,
    little: u64,
    /// Number of pinned pageblocks by the logarithm of the number of pages that stay.
    classes: BTreeMap<u32, u64>,
    pinned_by: [(u64, u64); FrameUse::COUNT],
    /// Number of pageblocks that only pages of [`FrameUse::Kernel`] pin, by the number of such pages in them.
    kernel_alone: BTreeMap<u64, u64>,
    /// Free pages on the lists of CPUs, which look like the kernel's.
    per_cpu: u64,
    uses: Uses,
    /// Free pages, and pages of files, in whole pageblocks.
    spare: u64,
    file: u64,
    map: Vec<MapCell>,
    /// Pages that a process can take before the watermarks stop it.
    room: u64,
    /// The rules of compaction; `None` if they are not known, or there is no memory for `contents`.
    rules: Option<Rules>,
    /// Contents of the pageblocks between which compaction can move something, lowest first.
    contents: Vec<Contents>,
}

impl Tally {
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

    /// Keeps the contents of the pageblock, or of the part of one that lies in the zone.
    fn add_contents(&mut self, mut contents: Contents, uses: &Uses) {
        let kernel = uses[FrameUse::Kernel.index()];
        let is_alone = kernel == count_if(uses, stays);
        contents.complete(uses[FrameUse::Free.index()], if is_alone { kernel } else { 0 });
        if self.rules.is_none() || contents.is_empty() {
            return;
        }
        match self.contents.try_reserve(1) {
            Ok(()) => self.contents.push(contents),
            Err(_) => self.rules = None,
        }
    }

    fn add_pinned(&mut self, uses: &Uses, staying: u64) {
        self.little += u64::from(staying * LITTLE <= self.block);
        *self.classes.entry(staying.ilog2()).or_default() += 1;
        if uses[FrameUse::Kernel.index()] == staying {
            *self.kernel_alone.entry(staying).or_default() += 1;
        }
        for usage in FrameUse::ALL.iter().copied().filter(|&each| stays(each)) {
            let pages = uses[usage.index()];
            let (blocks, alone) = &mut self.pinned_by[usage.index()];
            *blocks += u64::from(pages > 0);
            *alone += u64::from(pages == staying);
        }
    }

    /// Returns the number of pinned pageblocks for which the free pages on the lists of CPUs can account, those with
    /// fewest pages first, and the largest number of such pages in one.
    fn perhaps_free(&self) -> (u64, u64) {
        let mut left = self.per_cpu;
        let (mut blocks, mut most) = (0, 0);
        for (&pages, &count) in &self.kernel_alone {
            let explained = count.min(left / pages);
            blocks += explained;
            left -= explained * pages;
            if explained > 0 {
                most = pages;
            }
            if explained < count {
                break;
            }
        }
        (blocks, most)
    }

    /// Returns the pageblocks that can be had after a pass of compaction, in which page cache is dropped before or not.
    fn forecast(&self, drops: bool) -> Option<Forecast> {
        /// Pageblocks may be pinned by lists alone only where lists have one in this number of the pages that look
        /// like theirs: otherwise it is hardly chance that several of them are.
        const SHARE: u64 = 10;
        let rules = self.rules?;
        let pass = Pass { blocks: &self.contents, block: self.block, rules, drops };
        let room = self.room.saturating_add(if drops { self.file } else { 0 });
        let had =
            |outcome: Outcome| outcome.whole.min(room.saturating_sub(outcome.listed) / self.block);
        let blocks = had(pass.outcome(Hypothesis::AllMove));
        let alike = self.uses[FrameUse::Kernel.index()];
        let (_, most) = self.perhaps_free();
        let emptied = pass.outcome(Hypothesis::ListsAreEmptied(most));
        let are_emptied = emptied.listed.saturating_add(self.per_cpu) >= rules.bound
            && self.per_cpu.saturating_mul(SHARE) >= alike;
        Some(Forecast {
            blocks,
            if_few_are_held: had(pass.outcome(Hypothesis::FewAreHeld)),
            if_lists_are_emptied: if are_emptied { had(emptied) } else { blocks },
        })
    }

    fn pageblocks(self, zone: ZoneName, order: u32, page_bytes: u64) -> Pageblocks {
        // Moving everything frees as many blocks as free pages fill, among those without a page that stays.
        let (perhaps_free, _) = self.perhaps_free();
        let (forecast_after_compaction, forecast_after_reclaim) =
            (self.forecast(false), self.forecast(true));
        let spare = self.spare.saturating_add(self.per_cpu);
        let most = self.free + self.movable + perhaps_free;
        let after_compaction = (spare / self.block).clamp(self.free, most);
        let with_file = spare.saturating_add(self.file) / self.block;
        let after_reclaim = with_file.clamp(after_compaction, most);
        let class = |(&log, &pageblocks): (&u32, &u64)| PinnedClass {
            from_pages: 1 << log,
            to_pages: (2_u64 << log).saturating_sub(1).min(self.block),
            pageblocks,
        };
        let mut pinned_by: Vec<PinnedBy> = FrameUse::ALL
            .iter()
            .copied()
            .zip(self.pinned_by)
            .filter(|(_, (pageblocks, _))| *pageblocks > 0)
            .map(|(usage, (pageblocks, alone))| PinnedBy { usage, pageblocks, alone })
            .collect();
        pinned_by.sort_by_key(|by| std::cmp::Reverse(by.pageblocks));
        let uses = FrameUse::ALL.iter().copied().zip(self.uses);
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
            pinned_classes: self.classes.iter().map(class).collect(),
            pinned_by,
            after_compaction,
            after_reclaim,
            forecast_after_compaction,
            forecast_after_reclaim,
            map: self.map,
            uses: uses
                .filter(|(_, pages)| *pages > 0)
                .map(|(usage, pages)| UseCount { usage, pages })
                .collect(),
        }
    }
}
