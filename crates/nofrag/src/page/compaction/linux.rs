//! The scanners as Linux has them, to the frame: what real kernels were seen to do, list entry by list entry.
//!
//! *Sources* are taken from the bottom up, at most 32 pages at a time, and moved in the opposite order of that in which
//! they were found. *Targets* come from a pool of free pages that is filled from the top down when it is empty, and
//! used from its end. Both scanners first try a quick search: they walk the free lists of movable blocks for a
//! pageblock low (sources) or high (targets) in what is left, and leave the list turned so that the next search begins
//! behind what this one has seen.
//!
//! One mark on a pageblock tells both scanners to pass it by (pages.md#who-marks). A source gets it with the first page
//! taken at its start, when nothing could be taken in it, when it is visited twice in a row, and when a quick search
//! picks it; a target when it was seen to its end. So a success marks too. Marks are wiped by kswapd when it goes to
//! sleep, and before the try after the longest pause, but only if a caller's run has met its scanners since; and only
//! in pageblocks where a sample of every eighth frame finds a page that can be moved or a free block.
//!
//! A run that heeds neither marks nor positions (a proactive one) leaves both for others all the same, but for the mark
//! with the first page taken: after it hardly a pageblock is left that a huge fault would look at.
//!
//! An asynchronous run gives up the window of the wanted order at the first page that cannot be taken, and puts back
//! what it took there. Moved pages become free when the scanner leaves their window, which is when a waiting caller may
//! keep what they merge to.
//!
//! Rules: docs/sources/pages.md#scanners, pages.md#guest-compaction and pages.md#frames-quick-search, and what the
//! exact states of kernels say that `nofrag run frames` follows.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use super::flight::Chain;
use super::suitable;
use super::{Compaction, CompactionResult, Ground, Mode};
use crate::cpu::CpuId;
use crate::event::EventSink;
use crate::lists::put;
use crate::page::allocator::PageAllocator;
use crate::page::frames::{FrameIndex, Frames, Kind, NONE, Tag};
use crate::page::map::PfnRange;
use crate::page::migratetype::Migratetype;
use crate::page::owner::Moves;
use crate::page::policy::MoveRules;
use crate::units::{Order, Pfn};

const BLOCK: u64 = Order::PAGEBLOCK.pages();

const fn block_start(pfn: u64) -> u64 {
    pfn & !(BLOCK - 1)
}

const fn block_end(pfn: u64) -> u64 {
    block_start(pfn) + BLOCK
}

/// Next frames of the scanners of a zone; 0 if there is none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::page) struct Positions {
    /// Next frames of the source scanner: for asynchronous runs, and for all others (`compact_cached_migrate_pfn`).
    pub(in crate::page) sources: [u64; 2],
    /// Next frame of the target scanner (`compact_cached_free_pfn`).
    pub(in crate::page) targets: u64,
    /// Positions that both scanners got when marks were last wiped (`compact_init_migrate_pfn`,
    /// `compact_init_free_pfn`).
    pub(in crate::page) first_source: u64,
    pub(in crate::page) first_target: u64,
}

/// Action of the scanners, for an observer that follows a kernel's own run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// A quick search turned the list of this free block: entries up to it, or before it, come last now.
    Turned {
        pfn: Pfn,
        /// True if the block itself comes last, too.
        inclusive: bool,
    },
    /// A free block was taken for the pool (`isolate_freepages`).
    Isolated { pfn: Pfn, order: Order },
    /// Frames were looked at for sources (`mm_compaction_isolate_migratepages`).
    Piece {
        from: Pfn,
        /// The frame behind the last.
        to: Pfn,
        /// Frames looked at, as that kernel counts them (`nr_scanned`).
        scanned: u64,
        taken: u64,
    },
    /// The zone's per-CPU lists were drained, after the sources that had moved became free.
    Drained,
    /// Frames of a pageblock were looked at for targets (`mm_compaction_isolate_freepages`).
    Targets {
        from: Pfn,
        /// The frame behind the last.
        to: Pfn,
        /// Frames looked at, as that kernel counts them (`nr_scanned`).
        scanned: u64,
        taken: u64,
    },
    /// Free lists were searched for a target (`mm_compaction_fast_isolate_freepages`).
    Searched {
        /// Lowest frame that may be taken as a target.
        from: Pfn,
        /// Position of the target scanner.
        to: Pfn,
        /// Entries looked at, and pages beyond the first of a block taken.
        scanned: u64,
        taken: u64,
    },
    /// The scanner of sources left the pageblock at this frame out.
    Passed { pfn: Pfn, why: Passed },
}

/// Reason of the source scanner for leaving a pageblock out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The zone has no memory there.
    Absent,
    /// A mark on the pageblock says so.
    Marked,
    /// One block in use covers it.
    Huge,
    /// Runs of this mode take nothing from pageblocks of its type.
    Type,
}

/// State of the scanners of a run.
#[derive(Debug)]
pub(super) struct Scan {
    /// Steps of the scanners, if a log is kept.
    pub(super) log: Option<Vec<ScanStep>>,
    source: u64,
    target: u64,
    pool: Pool,
    /// True if the run began at the start of the zone, or no higher than scanners began after marks were last wiped.
    whole: bool,
    /// Start of the last piece from which something was moved.
    last_moved: u64,
    /// True until this asynchronous run has taken something, if it began where runs that wait would: it advances their
    /// position with its own.
    pulls_sync: bool,
    /// True while the same pageblock is visited again: all of it is taken.
    rescan: bool,
    /// Searches of lists in vain.
    fails: u32,
    /// The order with which the next search for targets begins.
    search_order: i32,
    /// The lowest frame that a quick search has found.
    fast_start: Option<u64>,
    /// True once `fast_start` was used.
    fast_used: bool,
    /// Sources of the piece under work, in the order in which they are to be moved.
    taken: Chain,
    piece: Option<Piece>,
}

/// Free blocks to move to, by order.
#[derive(Debug)]
struct Pool {
    chains: [Chain; Order::COUNT],
    pages: u64,
}

impl Pool {
    const EMPTY: Pool = Pool { chains: [Chain::EMPTY; Order::COUNT], pages: 0 };

    const fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Adds a block that is used before all others of its order.
    fn push(&mut self, frames: &mut Frames, frame: FrameIndex) {
        let order = frames.tag(frame).order();
        self.chains[order.index()].push(frames, frame);
        self.pages += order.pages();
    }

    /// Adds a block that is used after all others of its order.
    fn append(&mut self, frames: &mut Frames, frame: FrameIndex) {
        let order = frames.tag(frame).order();
        self.chains[order.index()].append(frames, frame);
        self.pages += order.pages();
    }

    /// Takes a block of `order`; a larger one is split, and its upper halves are used next. `None` if no block is large
    /// enough.
    fn take(&mut self, frames: &mut Frames, order: Order) -> Option<FrameIndex> {
        let from = order.and_larger().find(|from| !self.chains[from.index()].is_empty())?;
        let frame = self.chains[from.index()].pop(frames)?;
        self.pages -= from.pages();
        let mut half = from;
        while half > order {
            half = half.smaller().expect("it is larger than another");
            let upper = frame + half.pages() as FrameIndex;
            frames.set_tag(upper, Tag::new(Kind::Target, half));
            self.push(frames, upper);
        }
        frames.set_tag(frame, Tag::new(Kind::Target, order));
        Some(frame)
    }

    fn pop(&mut self, frames: &mut Frames) -> Option<FrameIndex> {
        let chain = self.chains.iter_mut().find(|chain| !chain.is_empty())?;
        let frame = chain.pop(frames)?;
        self.pages -= frames.tag(frame).order().pages();
        Some(frame)
    }
}

/// A quick search for targets.
#[derive(Debug)]
struct QuickSearch {
    /// Most entries of a list that are looked at.
    limit: u64,
    /// True for the first search of a run, which looks further.
    deep: bool,
    /// Lowest frame from which a block is taken at once.
    preferred: u64,
    /// Lowest frame from which a block is taken at all.
    least: u64,
    /// Highest pageblock seen so far.
    highest: u64,
}

/// Sources that are moved together.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Pages that want a place: all of them, or with folios those that have none yet.
    wanted: u64,
    /// True if something stayed where it was.
    stayed: bool,
    /// True if there was nowhere to move to.
    exhausted: bool,
}

impl Scan {
    pub(super) fn new(run: &ScanStart) -> Scan {
        Scan {
            log: None,
            source: run.source,
            target: run.target,
            pool: Pool::EMPTY,
            whole: run.whole,
            last_moved: 0,
            pulls_sync: run.pulls_sync,
            rescan: false,
            fails: 0,
            search_order: run.order,
            fast_start: None,
            fast_used: false,
            taken: Chain::EMPTY,
            piece: None,
        }
    }

    fn note(&mut self, step: ScanStep) {
        if let Some(log) = &mut self.log {
            // Without memory for a step, the log lacks it.
            if log.try_reserve(1).is_ok() {
                put(log, step);
            }
        }
    }

    /// Returns the positions of the scanners: sources, targets.
    pub(super) const fn positions(&self) -> (u64, u64) {
        (self.source, self.target)
    }
}

/// Positions and settings with which a run begins.
pub(super) struct ScanStart {
    source: u64,
    target: u64,
    whole: bool,
    pulls_sync: bool,
    order: i32,
}

impl ScanStart {
    /// Returns the start of a run: with `heeds` where earlier runs have left the scanners, else at the ends of the
    /// zone.
    pub(super) fn of(ground: &mut Ground<'_>, mode: Mode, heeds: bool, order: Order) -> ScanStart {
        let span = ground.zone.span;
        let (start, end) = (span.start.0, span.end().0);
        let last = block_start(end.saturating_sub(1));
        let sync = usize::from(mode != Mode::Async);
        let order = i32::from(order.get());
        if !heeds {
            return ScanStart {
                source: start,
                target: last,
                whole: true,
                pulls_sync: false,
                order,
            };
        }
        let at = &mut ground.zone.compaction.at;
        let (mut source, mut target) = (at.sources[sync], at.targets);
        // In a zone that begins with frame 0 a target of 0 is a valid frame, but nothing is left below it.
        if target == 0 || target < start || target >= end {
            target = last;
            at.targets = target;
        }
        if source < start || source >= end {
            source = start;
            at.sources = [source; 2];
        }
        let whole = source <= at.first_source;
        let pulls_sync = mode == Mode::Async && at.sources[0] == at.sources[1];
        ScanStart { source, target, whole, pulls_sync, order }
    }
}

impl Ground<'_> {
    fn span(&self) -> PfnRange {
        self.zone.span
    }

    /// Returns the index of the frame, if it is memory of the zone.
    fn at(&self, pfn: u64) -> Option<FrameIndex> {
        self.frames.index(Pfn(pfn)).filter(|&frame| self.zone.has(frame))
    }

    /// Returns the first frame of a pageblock, if it and the last one are the zone's memory.
    fn block_at(&self, pfn: u64) -> Option<FrameIndex> {
        let span = self.span();
        self.at(block_end(pfn).min(span.end().0) - 1)?;
        self.at(block_start(pfn).max(span.start.0))
    }

    /// Returns the number of frames that the source scanner counts for a block that it steps over at once: until 6.1
    /// one.
    fn looks(&self, tag: Tag) -> u64 {
        match (self.policy.compaction.moves, tag.kind()) {
            (MoveRules::Folios, Kind::Free | Kind::Used | Kind::PerCpu) => tag.order().pages(),
            _ => 1,
        }
    }

    /// Drains the lists of `cpu`, or without one those of all CPUs.
    fn drain_cpus(&mut self, cpu: Option<CpuId>) {
        let of_one = cpu.map(|cpu| cpu.rank()..cpu.rank() + 1);
        for rank in of_one.unwrap_or(0..self.zone.per_cpu.len()) {
            self.zone.drain_lists(self.frames, rank);
        }
    }

    fn is_free_head(&self, frame: FrameIndex) -> Option<Order> {
        let tag = self.frames.tag(frame);
        (tag.kind() == Kind::Free).then(|| tag.order())
    }

    /// Wipes the mark on the pageblock of a frame if a sample says that it is worth looking at again, as a `source`, as
    /// a `target`, or both. Returns true if it is unmarked then.
    fn wipe_mark(&mut self, pfn: u64, source: bool, target: bool) -> bool {
        let Some(frame) = self.at(pfn) else { return false };
        if self.is_huge(frame) {
            return false;
        }
        let block = *self.frames.block(frame);
        if source && target && !block.skip {
            return true;
        }
        if !source && target && block.migratetype != Migratetype::Movable {
            return false;
        }
        let span = self.span();
        let first = block_start(pfn).max(span.start.0);
        let last = (block_end(pfn) - 1).min(span.end().0 - 1);
        for sample in (first..=last).step_by(1 << Order::COSTLY.get()) {
            let Some(frame) = self.at(sample) else { continue };
            let free = target && self.is_free_head(frame).is_some();
            if free || source && self.can_move_at(frame) {
                self.frames.block_mut(frame).skip = false;
                return true;
            }
        }
        false
    }

    /// Returns true if the frame belongs to a block in use that covers its pageblock: there is nothing to look for.
    fn is_huge(&self, frame: FrameIndex) -> bool {
        let found = self.frames.head_of(frame);
        found.is_some_and(|(_, tag)| tag.kind() == Kind::Used && tag.order() >= Order::PAGEBLOCK)
    }

    /// Returns true if the frame belongs to a block in use whose content can be moved.
    fn can_move_at(&self, frame: FrameIndex) -> bool {
        let found = self.frames.head_of(frame);
        found.is_some_and(|(_, tag)| tag.kind() == Kind::Used && tag.is_movable())
    }

    /// Wipes marks from both ends, and lets the scanners begin where that succeeded first
    /// (`__reset_isolation_suitable`). Nothing happens unless a caller's run has met its scanners since.
    pub(super) fn wipe_sampled_marks(&mut self) {
        if !core::mem::take(&mut self.zone.compaction.went_through) {
            return;
        }
        let span = self.span();
        let (mut low, mut high) = (span.start.0, span.end().0 - 1);
        let (mut first, mut last) = (high, low);
        let (mut has_source, mut has_target) = (false, false);
        while low < high {
            if self.wipe_mark(low, true, has_source) && low < first {
                (has_source, first) = (true, low);
                let at = &mut self.zone.compaction.at;
                (at.first_source, at.sources) = (low, [low; 2]);
            }
            if self.wipe_mark(high, has_target, true) && high > last {
                (has_target, last) = (true, high);
                let at = &mut self.zone.compaction.at;
                (at.first_target, at.targets) = (high, high);
            }
            (low, high) = (low + BLOCK, high.saturating_sub(BLOCK));
        }
        if first >= last {
            let at = &mut self.zone.compaction.at;
            (at.sources, at.targets) = ([low; 2], high);
        }
    }

    /// Takes a free block off its list for the pool, unless the zone would fall to its min watermark without boost;
    /// returns the number of pages taken.
    fn isolate(&mut self, frame: FrameIndex, order: Order, pool: &mut Pool) -> u64 {
        if self.usable_free() <= self.zone.marks.min + order.pages() {
            return 0;
        }
        self.zone.lists.remove(self.frames, frame);
        let before = self.frames.block(frame).migratetype;
        let retypes = order.get() + 1 >= Order::PAGEBLOCK.get() && before.is_mobility();
        if retypes {
            self.frames.each_block(frame, order, |block, _| {
                if block.migratetype.is_mobility() {
                    block.migratetype = Migratetype::Movable;
                }
            });
        }
        match self.policy.compaction.moves {
            MoveRules::PageByPage => {
                for page in frame..frame + order.pages() as FrameIndex {
                    self.frames.set_tag(page, Tag::new(Kind::Target, Order::ZERO));
                    pool.push(self.frames, page);
                }
            }
            MoveRules::Folios => {
                self.frames.set_tag(frame, Tag::new(Kind::Target, order));
                pool.append(self.frames, frame);
            }
        }
        if retypes && before != Migratetype::Movable && !self.zone.has_loose_lists() {
            // Strict lists follow the types of pageblocks: the other free pages of the pageblock change lists, too.
            let end = self.policy.relist;
            self.zone.move_all(self.frames, frame, Migratetype::Movable, end);
        }
        self.zone.compaction.in_flight += order.pages();
        order.pages()
    }
}

impl Compaction {
    /// Scans as Linux does, and returns the result if the run has ended; `None` if there is something to move, or the
    /// budget is spent.
    pub(super) fn go_on_as_linux(
        &mut self,
        ground: &mut Ground<'_>,
        left: &mut u64,
    ) -> Option<CompactionResult> {
        let ended = self.scan_on(ground, left)?;
        match self.captured {
            NONE => Some(ended),
            kept => Some(CompactionResult::Captured(ground.frames.pfn(kept))),
        }
    }

    fn scan_on(&mut self, ground: &mut Ground<'_>, left: &mut u64) -> Option<CompactionResult> {
        // Kernels with folios look whether a block was kept before they free what they moved, so one of these frees is
        // noticed a piece later (linux-6.12-compaction, line 15,257).
        let folios = ground.policy.compaction.moves == MoveRules::Folios;
        loop {
            if !folios && self.captured != NONE {
                return Some(CompactionResult::Success);
            }
            if let Some(piece) = self.scan.piece {
                if self.assign_targets(ground, left) {
                    return None;
                }
                let piece = self.scan.piece.take().unwrap_or(piece);
                self.leave_rest(piece);
                if folios && self.captured != NONE {
                    return Some(CompactionResult::Success);
                }
                self.leave_window(ground);
                if piece.exhausted && !self.have_met() {
                    return Some(CompactionResult::Partial);
                }
                continue;
            }
            if self.have_met() {
                return Some(self.scanners_met(ground));
            }
            let at = self.scan.source;
            let between = at.is_multiple_of(BLOCK) || at == ground.span().start.0;
            if between && suitable::is_reached(ground.zone, self.goal, self.cma) {
                return Some(CompactionResult::Success);
            }
            if *left == 0 {
                return None;
            }
            // Nothing moved yet counts as something in the pageblock of frame 0, where no zone of Linux begins.
            let counts = self.scan.last_moved > 0 || ground.span().start.0 > 0;
            self.scan.rescan = counts && block_start(self.scan.last_moved) == block_start(at);
            self.find_sources(ground, left);
            if self.scan.taken.is_empty() {
                if self.scan.pulls_sync {
                    let at = &mut ground.zone.compaction.at;
                    at.sources[1] = at.sources[0];
                }
                self.leave_window(ground);
            } else {
                let wanted = u64::from(self.scan.taken.pages(ground.frames));
                self.scan.piece = Some(Piece { wanted, stayed: false, exhausted: false });
                self.scan.pulls_sync = false;
                self.scan.last_moved = match ground.policy.compaction.moves {
                    MoveRules::PageByPage => at.max(1),
                    // The pageblock of the piece, wherever the run came from.
                    MoveRules::Folios => block_start(self.scan.source - 1).max(1),
                };
            }
        }
    }

    fn have_met(&self) -> bool {
        self.scan.target / BLOCK <= self.scan.source / BLOCK
    }

    fn scanners_met(&mut self, ground: &mut Ground<'_>) -> CompactionResult {
        let span = ground.span();
        let at = &mut ground.zone.compaction.at;
        at.sources = [span.start.0; 2];
        at.targets = block_start(span.end().0 - 1);
        ground.zone.compaction.went_through |= self.mode != Mode::Background;
        if self.scan.whole { CompactionResult::Complete } else { CompactionResult::Partial }
    }

    /// Skips the rest of the window of the wanted order in an asynchronous run, if something in it could not be moved.
    fn leave_rest(&mut self, piece: Piece) {
        if piece.stayed && self.mode == Mode::Async {
            self.scan.source = self.scan.source.next_multiple_of(self.goal.order().pages());
            self.scan.last_moved = 0;
        }
    }

    /// Records that something stayed where it was.
    pub(super) fn note_stayed(&mut self) {
        if let Some(piece) = &mut self.scan.piece {
            piece.stayed = true;
        }
    }

    /// Drains the CPU's lists, which hold sources that have moved, once the window of the wanted order lies behind.
    fn leave_window(&mut self, ground: &mut Ground<'_>) {
        let size = self.goal.order().pages();
        let window = self.scan.source & !(size - 1);
        if self.scan.last_moved > 0 && self.scan.last_moved < window {
            ground.zone.compaction.capture = self.wish();
            ground.drain_cpus(self.cpu);
            self.scan.note(ScanStep::Drained);
            self.keep_captured(ground);
            self.scan.last_moved = 0;
        }
    }

    /// Frees the sources that have moved. Anybody can have them from now on, the CPU's own tasks first.
    pub(super) fn free_left<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        mut left: Chain,
    ) {
        pages.zones[self.zone.index()].compaction.capture = self.wish();
        while let Some(frame) = left.pop(&mut pages.frames) {
            let (order, block) = (pages.frames.tag(frame).order(), *pages.frames.block(frame));
            match self.cpu {
                Some(cpu) => pages.give(cpu, frame, order, block.migratetype),
                None => pages.zones[self.zone.index()].free_block(&mut pages.frames, frame, order),
            }
        }
        self.keep_captured(&mut Ground::of(pages, self.zone));
    }

    /// Ends a run: sources that it did not reach stay, and leftover targets become free, where the next run will find
    /// them.
    pub(super) fn end_as_linux(&mut self, ground: &mut Ground<'_>) {
        // A run that has captured a block ends among its sources.
        self.put_back(ground);
        let mut highest = 0;
        while let Some(frame) = self.scan.pool.pop(ground.frames) {
            let order = ground.frames.tag(frame).order();
            highest = highest.max(ground.frames.pfn(frame).0);
            ground.zone.compaction.in_flight -= order.pages();
            ground.zone.free_block(ground.frames, frame, order);
        }
        if highest > 0 {
            let at = &mut ground.zone.compaction.at;
            at.targets = at.targets.max(block_start(highest));
        }
    }

    /// Returns an unused target to the pool.
    pub(super) fn return_target(&mut self, ground: &mut Ground<'_>, to: FrameIndex) {
        let order = ground.frames.tag(to).order();
        ground.frames.set_tag(to, Tag::new(Kind::Target, order));
        ground.zone.compaction.in_flight += order.pages();
        self.scan.pool.push(ground.frames, to);
    }
}

/// The scanner of sources, from the bottom up.
impl Compaction {
    /// Takes the next sources. The scanner stands behind the last frame that it has looked at.
    fn find_sources(&mut self, ground: &mut Ground<'_>, left: &mut u64) {
        let zone_start = ground.span().start.0;
        let mut low = self.quick_source(ground);
        let mut quick = low != self.scan.source && self.scan.fails == 0;
        let mut end = block_end(low);
        while end <= self.scan.target {
            let aligned = low.is_multiple_of(BLOCK) || low == zone_start;
            let Some(why) = self.passes(ground, low, aligned && !quick) else {
                return self.take_sources(ground, low, end, left);
            };
            if matches!(why, Passed::Huge | Passed::Type) {
                self.note_source(ground, end);
            }
            self.scan.note(ScanStep::Passed { pfn: Pfn(low), why });
            *left = left.saturating_sub(1);
            quick = false;
            (low, end) = (end, end + BLOCK);
            self.scan.source = low;
        }
    }

    /// Returns the reason to leave out the pageblock at `low`; `None` if it is to be emptied. `marks` is false if a
    /// quick search has picked the pageblock, and so heeded its mark already.
    fn passes(&self, ground: &Ground<'_>, low: u64, marks: bool) -> Option<Passed> {
        let Some(first) = ground.block_at(low) else { return Some(Passed::Absent) };
        let block = ground.frames.block(first);
        if marks && block.skip && self.heeds_hints() {
            return Some(Passed::Marked);
        }
        if ground.is_huge(first) {
            return Some(Passed::Huge);
        }
        (!self.sources_allowed(ground, block.migratetype)).then_some(Passed::Type)
    }

    /// Lets later runs begin behind the pageblock of `pfn`.
    fn note_source(&self, ground: &mut Ground<'_>, pfn: u64) {
        let behind = block_end(pfn);
        let at = &mut ground.zone.compaction.at;
        at.sources[0] = at.sources[0].max(behind);
        if self.mode != Mode::Async {
            at.sources[1] = at.sources[1].max(behind);
        }
    }

    /// Takes sources from `low` to the end of the pageblock, or until there are enough.
    fn take_sources(&mut self, ground: &mut Ground<'_>, low: u64, end: u64, left: &mut u64) {
        self.seen.examined = true;
        let asynchronous = self.mode == Mode::Async;
        let size = self.goal.order().pages();
        let window_end = |pfn: u64| (pfn + 1).next_multiple_of(size);
        let mut next_window = window_end(low);
        let (mut at, mut valid, mut marked, mut pages, mut scanned) = (low, false, false, 0, 0);
        while at < end {
            if asynchronous && at >= next_window {
                if pages > 0 {
                    break;
                }
                next_window = window_end(at);
            }
            ground.counters.migrate_scanned += 1;
            *left = left.saturating_sub(1);
            let Some(frame) = ground.at(at) else { break };
            if !valid && at.is_multiple_of(BLOCK) {
                if ground.frames.block(frame).skip && self.heeds_hints() {
                    scanned += 1;
                    at = end;
                    break;
                }
                valid = true;
            }
            let tag = ground.frames.tag(frame);
            let size_here = tag.order().pages();
            scanned += ground.looks(tag);
            match tag.kind() {
                Kind::Free => {
                    at += size_here;
                    continue;
                }
                Kind::Used if self.can_take(ground, tag) => {
                    if !marked {
                        marked = true;
                        if self.heeds_hints() && at.is_multiple_of(BLOCK) {
                            ground.frames.block_mut(frame).skip = true;
                        }
                    }
                    ground.frames.set_tag(frame, tag.with_kind(Kind::Leaving));
                    self.scan.taken.push(ground.frames, frame);
                    pages += size_here;
                    at += size_here;
                    if pages >= Moves::MAX as u64 && !self.scan.rescan {
                        break;
                    }
                    continue;
                }
                _ => {}
            }
            // The block cannot be taken.
            let large = tag.kind() == Kind::Used && tag.order() > Order::ZERO;
            at += if large { size_here } else { 1 };
            if asynchronous {
                self.put_back(ground);
                pages = 0;
                if at < next_window {
                    at = next_window;
                    next_window += size;
                }
            }
        }
        let at = at.min(end);
        if at == end && (pages == 0 || self.scan.rescan) {
            self.leave_sources(ground, end, valid && !marked);
        }
        self.scan.source = at;
        self.scan.note(ScanStep::Piece { from: Pfn(low), to: Pfn(at), scanned, taken: pages });
    }

    /// Leaves a pageblock in which nothing was taken, or that was visited twice: later runs begin behind it, and it is
    /// marked if it was seen from its start and has no mark yet.
    fn leave_sources(&self, ground: &mut Ground<'_>, end: u64, marks: bool) {
        if marks && let Some(first) = ground.block_at(end - 1) {
            ground.frames.block_mut(first).skip = true;
        }
        self.note_source(ground, end);
    }

    /// Returns true if the content of a block in use may go elsewhere.
    fn can_take(&self, ground: &Ground<'_>, tag: Tag) -> bool {
        let largest = match ground.policy.compaction.moves {
            MoveRules::PageByPage => Order::ZERO.larger(),
            MoveRules::Folios => Some(self.goal.order().min(Order::PAGEBLOCK)),
        };
        tag.is_movable() && Some(tag.order()) < largest
    }

    /// Gives up the sources that were taken: they are in use again, or free if their owner has freed them.
    fn put_back(&mut self, ground: &mut Ground<'_>) {
        while let Some(frame) = self.scan.taken.pop(ground.frames) {
            let tag = ground.frames.tag(frame);
            match tag.kind() {
                // The owner has freed the block meanwhile.
                Kind::Left => ground.zone.free_block(ground.frames, frame, tag.order()),
                _ => ground.frames.set_tag(frame, tag.with_kind(Kind::Used)),
            }
        }
    }

    /// Returns the frame from which to look for sources: the scanner's own, or one in a pageblock that the free lists
    /// name.
    fn quick_source(&mut self, ground: &mut Ground<'_>) -> u64 {
        let at = self.scan.source;
        let start = ground.span().start.0;
        let order = self.goal.order();
        let continues = at != start && !at.is_multiple_of(BLOCK);
        let unmovable =
            self.mode != Mode::Background && self.goal.migratetype() != Migratetype::Movable;
        if !self.searches_lists() || continues || order <= Order::COSTLY || unmovable {
            return at;
        }
        let limit = (Moves::MAX as u64 >> self.scan.fails.min(15)) + 1;
        let distance = self.scan.target.saturating_sub(at) >> if at == start { 1 } else { 3 };
        let high = block_start(at + distance);
        let mut seen = 0;
        for size in (Order::COSTLY.get()..order.get()).rev().filter_map(Order::new) {
            if seen >= limit {
                break;
            }
            let mut next = ground.zone.lists.first(size, Migratetype::Movable);
            while let Some(frame) = next {
                let [_, behind] = ground.frames.links(frame);
                next = (behind != NONE).then_some(behind);
                seen += 1;
                if seen > limit {
                    self.turn(ground, size, frame, true);
                    break;
                }
                let pfn = ground.frames.pfn(frame).0;
                if pfn >= high || ground.frames.block(frame).skip {
                    continue;
                }
                self.turn(ground, size, frame, true);
                if !self.scan.fast_used {
                    let first = self.scan.fast_start.map_or(pfn, |first| first.min(pfn));
                    self.scan.fast_start = Some(first);
                }
                self.scan.fails = 0;
                ground.frames.block_mut(frame).skip = true;
                return block_start(pfn).max(start);
            }
        }
        self.scan.fails += 1;
        if let Some(first) = self.scan.fast_start.take() {
            self.scan.fast_used = true;
            self.scan.source = first;
        }
        self.scan.source
    }
}

/// The scanner of targets, from the top down.
impl Compaction {
    /// Gives sources places, as many as are moved at once, and puts both on their way. Returns true if there are any.
    fn assign_targets(&mut self, ground: &mut Ground<'_>, left: &mut u64) -> bool {
        while let Some(frame) = self.scan.taken.first() {
            let tag = ground.frames.tag(frame);
            if tag.kind() == Kind::Left {
                // The owner has freed the block meanwhile.
                self.scan.taken.pop(ground.frames);
                ground.zone.free_block(ground.frames, frame, tag.order());
                continue;
            }
            if !tag.is_movable() {
                // The owner has pinned the block meanwhile.
                self.scan.taken.pop(ground.frames);
                ground.frames.set_tag(frame, tag.with_kind(Kind::Used));
                continue;
            }
            let one_by_one = ground.policy.compaction.moves == MoveRules::PageByPage;
            if self.flight.is_full() || one_by_one && !self.flight.is_empty() {
                break;
            }
            let to = self.next_target(ground, tag.order(), left);
            let Some(to) = to else {
                self.put_back(ground);
                self.seen.lacked_target = true;
                if let Some(piece) = &mut self.scan.piece {
                    (piece.stayed, piece.exhausted) = (true, true);
                }
                break;
            };
            self.scan.taken.pop(ground.frames);
            ground.frames.set_tag(frame, tag.with_kind(Kind::Used));
            self.flight.push(ground, frame, to);
            if let (false, Some(piece)) = (one_by_one, &mut self.scan.piece) {
                piece.wanted -= tag.order().pages();
            }
        }
        !self.flight.is_empty()
    }

    /// Returns the next place of `order` from the pool, which is filled first if it has none; `None` if none is found.
    fn next_target(
        &mut self,
        ground: &mut Ground<'_>,
        order: Order,
        left: &mut u64,
    ) -> Option<FrameIndex> {
        if let Some(to) = self.scan.pool.take(ground.frames, order) {
            ground.zone.compaction.in_flight -= order.pages();
            return Some(to);
        }
        self.fill_pool(ground, left);
        let to = self.scan.pool.take(ground.frames, order)?;
        ground.zone.compaction.in_flight -= order.pages();
        Some(to)
    }

    /// Returns the number of pages of the piece under work that want a place.
    fn wanted(&self) -> u64 {
        self.scan.piece.map_or(0, |piece| piece.wanted)
    }

    fn fill_pool(&mut self, ground: &mut Ground<'_>, left: &mut u64) {
        if self.searches_lists() && self.quick_targets(ground) {
            return;
        }
        let low = block_end(self.scan.source);
        let mut stride = if self.mode == Mode::Async { Moves::MAX as u64 } else { 1 };
        let mut at = self.scan.target;
        let mut start = block_start(at);
        let mut end = (start + BLOCK).min(ground.span().end().0);
        while start >= low {
            *left = left.saturating_sub(1);
            if let Some(first) = ground.block_at(start)
                && self.is_target(ground, first)
            {
                let got = self.isolate_block(ground, &mut at, end, stride);
                if at == end {
                    self.note_target(ground, first, start);
                }
                if self.scan.pool.pages >= self.wanted() {
                    if at >= end {
                        at = start.saturating_sub(BLOCK);
                    }
                    break;
                }
                if at < end {
                    break;
                }
                stride = if got > 0 { 1 } else { (stride * 2).min(Moves::MAX as u64) };
            }
            (end, start) = (start, start.saturating_sub(BLOCK));
            at = start;
            if end == 0 {
                break;
            }
        }
        self.scan.target = at;
    }

    /// Returns true if pages may be moved to the pageblock: it is meant for movable ones, not marked, and not itself
    /// free.
    fn is_target(&self, ground: &Ground<'_>, first: FrameIndex) -> bool {
        self.may_be_target(ground, first)
            && !(ground.frames.block(first).skip && self.heeds_hints())
    }

    fn may_be_target(&self, ground: &Ground<'_>, first: FrameIndex) -> bool {
        let whole = ground.is_free_head(first).is_some_and(|order| order >= Order::PAGEBLOCK);
        let kind = ground.frames.block(first).migratetype;
        let meant = matches!(kind, Migratetype::Movable | Migratetype::Cma);
        !whole && (meant || self.mode == Mode::SyncFull)
    }

    /// Marks a pageblock that was seen to its end, and lets later runs begin below.
    fn note_target(&self, ground: &mut Ground<'_>, first: FrameIndex, start: u64) {
        ground.frames.block_mut(first).skip = true;
        let at = &mut ground.zone.compaction.at;
        at.targets = at.targets.min(start);
    }

    /// Takes free blocks from `at` to the end of a pageblock until there are enough, in steps of `stride` frames;
    /// returns the number of pages taken.
    fn isolate_block(
        &mut self,
        ground: &mut Ground<'_>,
        at: &mut u64,
        end: u64,
        stride: u64,
    ) -> u64 {
        let (mut got, mut scanned, from) = (0, 0, Pfn(*at));
        while *at < end {
            ground.counters.free_scanned += 1;
            let Some(frame) = ground.at(*at) else { break };
            let tag = ground.frames.tag(frame);
            if tag.kind() == Kind::Free {
                let pages = self.isolate(ground, frame, tag.order());
                scanned += pages.max(1);
                if pages == 0 {
                    break;
                }
                got += pages;
                if self.scan.pool.pages >= self.wanted() {
                    *at += pages;
                    break;
                }
                *at += pages - 1 + stride;
                continue;
            }
            let large = tag.kind() == Kind::Used && tag.order() > Order::ZERO;
            scanned += if large { ground.looks(tag) } else { 1 };
            *at += if large { tag.order().pages() - 1 } else { 0 } + stride;
        }
        *at = (*at).min(end);
        self.scan.note(ScanStep::Targets { from, to: Pfn(*at), scanned, taken: got });
        got
    }

    /// Searches the free lists for a block high among the frames left between the scanners. Returns true if the pool is
    /// not empty then.
    fn quick_targets(&mut self, ground: &mut Ground<'_>) -> bool {
        let below = i32::from(self.goal.order().get()) - 1;
        if below < 0 {
            return false;
        }
        let mut search = self.plan_quick_search(ground);
        let (mut page, mut scanned, mut taken) = (None, 0, 0);
        self.scan.search_order = self.scan.search_order.min(below);
        let mut order = self.scan.search_order;
        while page.is_none() && order >= 0 {
            let size = Order::new(order as u8).expect("it is below the goal's");
            if ground.zone.lists.has(size) {
                let (found, seen) = self.search_list(ground, size, &mut search);
                page = found;
                let pages = page.map(|frame| self.isolate(ground, frame, size));
                scanned += seen + pages.unwrap_or(0).saturating_sub(1);
                taken += pages.unwrap_or(0);
                if pages == Some(0) {
                    order = self.scan.search_order + 1;
                    page = None;
                }
                if !self.scan.pool.is_empty() && self.scan.pool.pages >= self.wanted() {
                    break;
                }
                if seen >= search.limit {
                    search.limit = (search.limit >> 1).max(1);
                }
            }
            if page.is_none() {
                order = self.next_search_order(order, below);
            }
        }
        if page.is_none() {
            self.scan.fails += 1;
            page = self.place_after_vain_search(ground, &search);
        }
        let (from, to) = (Pfn(search.least), Pfn(self.scan.target));
        self.scan.note(ScanStep::Searched { from, to, scanned, taken });
        let at = &mut ground.zone.compaction.at;
        if search.highest > 0 && search.highest >= at.targets {
            at.targets = search.highest - BLOCK.min(search.highest);
        }
        if let Some(page) = page {
            self.isolate_around(ground, page);
        }
        !self.scan.pool.is_empty()
    }

    fn plan_quick_search(&self, ground: &Ground<'_>) -> QuickSearch {
        let deep = self.scan.target >= ground.zone.compaction.at.first_target;
        let usual = (((Moves::MAX as u64 >> self.scan.fails.min(15)) + 1) >> 1).max(1);
        // Once the scanners have passed each other the distance wraps around, and no block lies so high.
        let distance = self.scan.target.checked_sub(self.scan.source);
        let up_to = |shift: u32| {
            distance
                .map_or(u64::MAX, |distance| block_start(self.scan.target - (distance >> shift)))
        };
        QuickSearch {
            limit: if deep { BLOCK >> 1 } else { usual },
            deep,
            preferred: up_to(2),
            least: up_to(1),
            highest: 0,
        }
    }

    /// Walks a list from its end for a block in the top quarter of the frames left, else the highest in the upper half,
    /// and turns the list. Returns the block, and the number of entries seen.
    fn search_list(
        &mut self,
        ground: &mut Ground<'_>,
        size: Order,
        search: &mut QuickSearch,
    ) -> (Option<FrameIndex>, u64) {
        let start = ground.span().start.0;
        let (mut seen, mut best) = (0, 0);
        let (mut page, mut stopped) = (None, None);
        let mut next = ground.zone.lists.list(size, Migratetype::Movable).last();
        while let Some(frame) = next {
            seen += 1;
            ground.counters.free_scanned += 1;
            let pfn = ground.frames.pfn(frame).0;
            if pfn >= search.highest {
                search.highest = block_start(pfn).max(start);
            }
            if pfn >= search.preferred {
                self.scan.fails = 0;
                self.scan.search_order = i32::from(size.get());
                (page, stopped) = (Some(frame), Some(frame));
                break;
            }
            if pfn >= search.least && pfn > best {
                best = pfn;
                search.limit >>= 1;
            }
            if seen >= search.limit {
                stopped = Some(frame);
                break;
            }
            let [before, _] = ground.frames.links(frame);
            next = (before != NONE).then_some(before);
        }
        if page.is_none() && best > 0 {
            page = ground.at(best);
            stopped = page;
        }
        if let Some(frame) = stopped {
            self.turn(ground, size, frame, false);
        }
        (page, seen)
    }

    /// Moves the scanner after a first search in vain: to the highest pageblock seen, or if that is too low, and not in
    /// the background, to the middle of the frames left. Returns the frame there; `None` if it did not move.
    fn place_after_vain_search(
        &mut self,
        ground: &Ground<'_>,
        search: &QuickSearch,
    ) -> Option<FrameIndex> {
        if !search.deep {
            return None;
        }
        if search.highest >= search.least && search.highest > 0 {
            self.scan.target = search.highest;
            return ground.at(search.highest);
        }
        if self.mode == Mode::Background {
            return None;
        }
        let first = ground.at(search.least)?;
        self.scan.target = search.least;
        Some(first)
    }

    fn isolate(&mut self, ground: &mut Ground<'_>, frame: FrameIndex, order: Order) -> u64 {
        let pages = ground.isolate(frame, order, &mut self.scan.pool);
        if pages > 0 {
            self.scan.note(ScanStep::Isolated { pfn: ground.frames.pfn(frame), order });
        }
        pages
    }

    /// Turns a list so that the entries that were seen come last: those up to `seen` (if `inclusive`), or before it.
    fn turn(&mut self, ground: &mut Ground<'_>, order: Order, seen: FrameIndex, inclusive: bool) {
        self.scan.note(ScanStep::Turned { pfn: ground.frames.pfn(seen), inclusive });
        let list = ground.zone.lists.list_mut(order, Migratetype::Movable);
        list.turn(ground.frames, seen, inclusive);
    }

    fn next_search_order(&mut self, order: i32, below: i32) -> i32 {
        let order = if order == 0 { below } else { order - 1 };
        if order == self.scan.search_order {
            self.scan.search_order -= 1;
            if self.scan.search_order < 0 {
                self.scan.search_order = below;
            }
            return -1;
        }
        order
    }

    /// Takes the rest of the pageblock around a page that a quick search has found, if that is needed; not for callers
    /// that do not wait.
    fn isolate_around(&mut self, ground: &mut Ground<'_>, page: FrameIndex) {
        let enough = self.scan.pool.pages >= self.wanted();
        if enough || self.mode == Mode::Async {
            return;
        }
        let span = ground.span();
        let pfn = ground.frames.pfn(page).0;
        let mut at = block_start(pfn).max(span.start.0);
        let end = block_end(pfn).min(span.end().0);
        self.isolate_block(ground, &mut at, end, 1);
        if at == end {
            ground.frames.block_mut(page).skip = true;
        }
    }
}
