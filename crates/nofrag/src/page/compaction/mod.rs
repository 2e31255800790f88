//! Compaction: moving pages together so that large blocks become free.
//!
//! Two scanners go towards each other. The *source* scanner goes up from the bottom of a zone and finds blocks in use
//! whose content may be moved; the *target* scanner comes down from the top and finds free pages for them. Where they
//! meet, everything that could be moved lies above, and below it is free what could be freed. Both go by pageblocks.
//!
//! Most runs want one free block and end as soon as there is one. So that the next run does not look at the same
//! pageblocks again, a zone keeps where the scanners were, and a mark on each pageblock that was looked at from end to
//! end. The marks are wiped when compaction restarts after its longest pause, and when kswapd sleeps after a run that
//! went through a whole zone ([`PageAllocator::forget_scans`]). After a failure a zone is left alone for twice as many
//! attempts each time (`deferral`), and none is made where it could not help (`suitable`).
//!
//! A run is a state machine, [`Compaction`]: it sets targets aside and names at most 32 pages to be moved; the owner
//! moves them and says which moves succeeded. Between the two a source is `Leaving` and its target `Target`. The owner
//! may free a source meanwhile, and others may allocate and free as they like. A caller that gives a run up in the
//! middle calls [`Compaction::abandon`]; if the run is dropped instead, its sources can be freed by their owner but
//! never moved again, and its targets stay out of use. The laws of the allocator count them.
//!
//! There are two pairs of scanners. With the rules of a kernel, `linux` does to the frame what kernels were seen to do.
//! Ours ([`SourceRules::EmptiestBlock`]) differ on purpose:
//!
//! * A place to move to is set aside for each page as it is found, of the page's own order; the kernel collects free
//!   pages first and gives back what is left. So nothing is held back that could be allocated meanwhile. Blocks larger
//!   than a page find their place through the free lists alone.
//! * A caller that does not wait looks over a whole window before it moves anything out of it; the kernel notices
//!   halfway, and what has moved by then has moved in vain. No run that is to make a whole pageblock enters one in
//!   which something must stay.
//! * A free list names a *pageblock*, which is then scanned from end to end; the scan in order goes on where it was.
//! * Pageblocks in which nothing is movable, or nothing free, are passed by through their counts, so the counters of
//!   scanned frames stay below the kernel's.
//! * A run asks whether its goal is reached before it says that the scanners have met.
//! * A step ends where its budget does; Linux's scanners finish a piece, which can be a pageblock for each of them.
//!
//! Speed: one thread looks at several million frames and moves a few million pages a second, as the test
//! `compaction_speed` prints for the machine that it runs on.
//!
//! Files, bottom up: `deferral`, `suitable`, `flight` (moves that were not reported yet), `target` and `source` (our
//! scanners), `linux` (those of kernels), and `direct` (over the zones of a request that waits).
//!
//! Rules: docs/sources/pages.md#suitability, pages.md#scanners, pages.md#deferral, pages.md#capture;
//! Documentation/admin-guide/mm/concepts.rst, "Compaction".

mod deferral;
mod direct;
mod flight;
mod linux;
mod source;
mod suitable;
mod target;
#[cfg(test)]
pub(super) mod tests;

pub(super) use deferral::{Decision, Deferral, MAX_SHIFT};
pub(super) use direct::{Compacted, DirectCompaction, DirectStep, Priority};
pub use flight::Landed;
use linux::Positions;
pub use linux::{Passed, ScanStep};
pub use suitable::Suitability;
pub(super) use suitable::{
    Wish, gap, is_reached, proactive_bounds, suitability, whole_block_pages,
};

use alloc::vec::Vec;

use self::flight::{Chain, Flight, Idle};
use self::linux::{Scan, ScanStart};
use self::source::{Entered, Sources, Visited};
use self::target::Targets;
use super::allocator::PageAllocator;
use super::event::{CompactionAim, CompactionRun, NoRun, PageCounters, PageEvent, RunEnd, Wiper};
use super::fallback::{Found, Share};
use super::frames::{FrameIndex, Frames, Kind, NONE, Tag};
use super::image::CompactionImage;
use super::kswapd::PageBudget;
use super::migratetype::Migratetype;
use super::owner::{Migrate, MoveResults, Moves};
use super::policy::{CaptureTrace, FragmentationPolicy, SourceRules};
use super::steal::ZoneRequest;
use super::walk::AllocFlags;
use super::zone::{Zone, ZoneId};
use crate::cpu::CpuId;
use crate::event::{Event, EventSink};
use crate::units::{Order, Pfn};

/// State that compaction keeps for a zone between runs.
#[derive(Clone, Debug, Default)]
pub(super) struct ZoneCompaction {
    /// Next frames of the source scanner: for asynchronous runs, and for all others. Without one a run begins at the
    /// zone's start.
    sources: [Option<FrameIndex>; 2],
    /// Frame below which the target scanner goes on; without one it begins at the zone's end.
    targets: Option<FrameIndex>,
    /// Positions of the scanners of `linux`.
    pub(super) at: Positions,
    pub(super) deferral: Deferral,
    /// A run of a waiting caller has gone through the zone since the marks on pageblocks were wiped.
    went_through: bool,
    /// Wish of the run whose sources are being freed right now.
    pub(super) capture: Option<Capture>,
    /// Pages set aside for moves that were not reported yet.
    pub(super) in_flight: u64,
}

impl ZoneCompaction {
    /// Returns the positions of Linux's scanners, and true if kswapd is to wipe the marks.
    pub(super) fn positions(&self) -> (Positions, bool) {
        (self.at, self.went_through)
    }

    /// Restores positions, marks to wipe, and deferral from a picture.
    pub(super) fn set_memory(&mut self, image: CompactionImage) {
        let CompactionImage { sources, targets, first_source, first_target, .. } = image;
        let CompactionImage { considered, shift, order_failed, flush, .. } = image;
        self.at = Positions { sources, targets, first_source, first_target };
        self.went_through = flush;
        self.deferral.restore(considered, shift, order_failed);
    }
}

/// A wish to keep a block that becomes free: the path that frees one puts it here instead of on a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capture {
    order: Order,
    migratetype: Migratetype,
    frame: FrameIndex,
}

impl Capture {
    /// Keeps the free block at `frame`, which is on no list, if it fits the wish: of the very order, and neither one
    /// that would mix types nor one that others need. The caller must not list a block that was kept.
    pub(super) fn keep(&mut self, frame: FrameIndex, order: Order, block: Migratetype) -> Kept {
        let others = matches!(block, Migratetype::Cma | Migratetype::Isolate);
        let mixes = order < Order::PAGEBLOCK
            && block == Migratetype::Movable
            && self.migratetype != Migratetype::Movable;
        if self.frame != NONE || order != self.order || others || mixes {
            return Kept::No;
        }
        self.frame = frame;
        Kept::Yes
    }
}

/// Tells whether a block that became free was kept for the caller that compacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    /// The caller must list the block.
    No,
}

/// Goal at which a run ends with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// A free block of this order that a request of this type can use.
    Block(Order, Migratetype),
    /// Free pages in whole pageblocks up to the high watermark (`vm.defrag_mode` in the background).
    WholeBlocks,
    /// A share of free pages outside whole pageblocks of at most this percentage (proactive).
    Score(u64),
    /// The whole zone compacted (`/proc/sys/vm/compact_memory`).
    Everything,
}

impl Goal {
    /// Returns the order that blocks shall get.
    fn order(self) -> Order {
        match self {
            Goal::Block(order, _) => order,
            _ => Order::PAGEBLOCK,
        }
    }

    fn migratetype(self) -> Migratetype {
        match self {
            Goal::Block(_, migratetype) => migratetype,
            _ => Migratetype::Movable,
        }
    }
}

/// Effort that a run may make for its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For a caller that does not wait: pageblocks of its own type, and only where all of a block can be moved.
    Async,
    /// For a caller that waits.
    SyncLight,
    /// For a caller that waits, through the whole zone, whatever earlier runs have seen.
    SyncFull,
    /// For nobody in particular: work in the background.
    Background,
}

/// Goal, mode and rights of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) goal: Goal,
    pub(super) mode: Mode,
    pub(super) cma: Cma,
}

/// Use of CMA blocks to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cma {
    Usable,
    Useless,
}

/// Outcome of a run over one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionResult {
    /// A part of the zone was looked at, and the goal was not reached.
    Partial,
    /// All of the zone was looked at, and the goal was not reached.
    Complete,
    /// The run has reached its goal.
    Success,
    /// This block was kept as it became free, and is in use now.
    Captured(Pfn),
}

/// Next action of the caller of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "without an allocation there is no box for moves")]
pub enum CompactionStep {
    /// Move these, then report with [`Compaction::migrated`].
    Migrate(Moves),
    /// The budget is spent; call again.
    Continue,
    /// The run ended with this outcome.
    Done(CompactionResult),
}

/// Next action of a run that shares its budget with other runs.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "without an allocation there is no box for moves")]
pub(super) enum Advance {
    Migrate(Moves),
    /// Nothing of the budget is left.
    Paused,
    Done(CompactionResult),
}

/// Way in which a scanner found a pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundBy {
    /// By going from one to the next.
    Order,
    /// By searching a free list.
    List,
}

/// A pageblock under work: the next frame, and the one behind the last.
#[derive(Clone, Copy, Debug)]
struct Visit {
    next: FrameIndex,
    end: FrameIndex,
    found: FoundBy,
}

/// The parts of an allocator on which a run works.
struct Ground<'a> {
    zone: &'a mut Zone,
    frames: &'a mut Frames,
    counters: &'a mut PageCounters,
    policy: &'a FragmentationPolicy,
}

impl<'a> Ground<'a> {
    fn of<E: EventSink>(pages: &'a mut PageAllocator<E>, zone: ZoneId) -> Ground<'a> {
        let PageAllocator { zones, frames, counters, policy, .. } = pages;
        Ground { zone: &mut zones[zone.index()], frames, counters, policy }
    }

    /// Returns the number of pageblocks of the zone that are marked to be passed by, and of all.
    fn marks(&self) -> (u64, u64) {
        let (mut marked, mut blocks) = (0, 0);
        let mut block = self.zone.start;
        while block < self.zone.end {
            marked += u64::from(self.frames.block(block).skip);
            blocks += 1;
            block = block_end(block);
        }
        (marked, blocks)
    }

    /// Wipes all marks of pageblocks to be passed by, and lets scanners begin at the ends of the zone.
    fn wipe_all_marks(&mut self) {
        let Ground { zone, frames, .. } = self;
        let mut block = zone.start;
        while block < zone.end {
            frames.block_mut(block).skip = false;
            block = block_end(block);
        }
        zone.compaction.sources = [None; 2];
        zone.compaction.targets = None;
        zone.compaction.went_through = false;
    }

    /// Returns the frame behind the block to which `frame` belongs.
    fn behind(&self, frame: FrameIndex) -> FrameIndex {
        let tag = self.frames.tag(frame);
        match tag.kind() {
            Kind::Absent => frame + 1,
            Kind::Inside => {
                let found = self.frames.head_of(frame);
                let (head, tag) = found.expect("a frame inside a block has a head");
                head + tag.order().pages() as FrameIndex
            }
            _ => frame + tag.order().pages() as FrameIndex,
        }
    }
}

const fn block_start(frame: FrameIndex) -> FrameIndex {
    frame & !(Order::PAGEBLOCK.pages() as FrameIndex - 1)
}

const fn block_end(frame: FrameIndex) -> FrameIndex {
    block_start(frame) + Order::PAGEBLOCK.pages() as FrameIndex
}

/// A run of compaction over one zone, as a state machine.
///
/// Cost: O(1) for each frame or pageblock that is looked at and each page that is moved. Pageblocks in which nothing is
/// movable, or nothing free, are passed by at a glance.
#[derive(Debug)]
#[must_use = "a run that is dropped keeps what it has set aside; abandon it"]
pub struct Compaction {
    zone: ZoneId,
    goal: Goal,
    mode: Mode,
    cma: Cma,
    /// CPU whose lists get the sources that have moved, if one is known.
    cpu: Option<CpuId>,
    /// First frame of the source scanner.
    began: FrameIndex,
    sources: Sources,
    targets: Targets,
    /// State of the scanners of `linux`.
    scan: Scan,
    /// True if the scanners of `linux` are at work.
    as_linux: bool,
    flight: Flight,
    seen: Seen,
    captured: FrameIndex,
    /// Captured block that no event has told of yet.
    untold: Option<Capture>,
    ended: Option<CompactionResult>,
}

/// Observations of a run that decide how it ends.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Pageblocks of the zone that were marked to be passed by when the run began, and all.
    marks: (u64, u64),
    /// A frame was looked at for something to move.
    examined: bool,
    moved: u64,
    /// There was something to move, and no place for it.
    lacked_target: bool,
}

impl Seen {
    /// Returns the end of the run with its reason.
    fn end(self, result: CompactionResult) -> RunEnd {
        match result {
            CompactionResult::Success | CompactionResult::Captured(_) => RunEnd::Success,
            _ if self.lacked_target => RunEnd::NoTarget,
            _ if self.moved > 0 => RunEnd::NoWholeBlock,
            _ if self.examined => RunEnd::NothingMoved,
            _ => RunEnd::NothingExamined,
        }
    }
}

impl Compaction {
    /// Makes a run that compacts the whole zone, as writing to `/proc/sys/vm/compact_memory` does; `None` if there is
    /// no such zone.
    pub fn of_zone<E: EventSink>(pages: &mut PageAllocator<E>, zone: ZoneId) -> Option<Compaction> {
        pages.zones.get(zone.index())?;
        let job = Job { goal: Goal::Everything, mode: Mode::Background, cma: Cma::Usable };
        Some(Compaction::new(pages, zone, job))
    }

    /// Makes a run that works ahead, as kcompactd does (`compaction_proactiveness`): until no more of the free pages
    /// lie outside whole pageblocks than the policy wants; `None` if there is no such zone, or if the policy does not
    /// work ahead.
    pub fn ahead<E: EventSink>(pages: &mut PageAllocator<E>, zone: ZoneId) -> Option<Compaction> {
        pages.zones.get(zone.index())?;
        let policy = &pages.policy.compaction;
        let low = proactive_bounds(policy.marks, policy.proactiveness?).low;
        let job = Job { goal: Goal::Score(low), mode: Mode::Background, cma: Cma::Usable };
        Some(Compaction::new(pages, zone, job))
    }

    /// Makes a run over a zone for a block of this order that a request of this type can use; `None` if there is no
    /// such zone.
    pub fn for_block<E: EventSink>(
        pages: &mut PageAllocator<E>,
        zone: ZoneId,
        order: Order,
        migratetype: Migratetype,
        mode: Mode,
    ) -> Option<Compaction> {
        pages.zones.get(zone.index())?;
        let job = Job { goal: Goal::Block(order, migratetype), mode, cma: Cma::Usable };
        Some(Compaction::new(pages, zone, job))
    }

    /// Lets the run work on this CPU: with the rules of a kernel its lists get the sources that have moved, and are
    /// drained when the scanner leaves a window. Without a CPU the sources go to the zone at once, and the lists of all
    /// CPUs are drained.
    pub fn on(mut self, cpu: CpuId) -> Compaction {
        self.cpu = Some(cpu);
        self
    }

    /// Starts a log of the steps of Linux's scanners, for [`take_log`](Self::take_log), as far as there is memory for
    /// it.
    pub fn keep_log(&mut self) {
        self.scan.log = Some(Vec::new());
    }

    /// Takes the steps that were logged since the last call; none without a log.
    pub fn take_log(&mut self) -> Vec<ScanStep> {
        self.scan.log.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Returns the positions of Linux's scanners: sources, targets.
    #[must_use]
    pub fn positions(&self) -> (Pfn, Pfn) {
        let (source, target) = self.scan.positions();
        (Pfn(source), Pfn(target))
    }

    pub(super) fn new<E: EventSink>(
        pages: &mut PageAllocator<E>,
        zone: ZoneId,
        job: Job,
    ) -> Compaction {
        let Job { goal, mode, cma } = job;
        if pages.policy.compaction.sources == SourceRules::EmptiestBlock {
            // Marks say which pageblocks this run has tried.
            pages.wipe_marks(zone, Wiper::Run);
        }
        let heeds = heeds_hints(goal, mode);
        let as_linux = pages.policy.compaction.sources != SourceRules::EmptiestBlock;
        let mut ground = Ground::of(pages, zone);
        let marks = ground.marks();
        let scan = Scan::new(&ScanStart::of(&mut ground, mode, heeds, goal.order()));
        let Zone { start, end, compaction, .. } = &pages.zones[zone.index()];
        let (start, end) = (*start, *end);
        let [any, waiting] = compaction.sources;
        let cached = if mode == Mode::Async { any } else { waiting };
        let began = cached.filter(|_| heeds).unwrap_or(start).clamp(start, end);
        let above = compaction.targets.filter(|_| heeds).unwrap_or(end).clamp(start, end);
        Compaction {
            zone,
            goal,
            mode,
            cma,
            cpu: None,
            began,
            sources: Sources::new(began),
            targets: Targets::new(above, goal.order()),
            scan,
            as_linux,
            flight: Flight::none(),
            seen: Seen { marks, examined: false, moved: 0, lacked_target: false },
            captured: NONE,
            untold: None,
            ended: None,
        }
    }

    /// Returns true if marks on pageblocks and positions of earlier runs count.
    fn heeds_hints(&self) -> bool {
        heeds_hints(self.goal, self.mode)
    }

    /// Returns true if free lists are searched for pageblocks.
    fn searches_lists(&self) -> bool {
        self.heeds_hints() && matches!(self.goal, Goal::Block(..) | Goal::WholeBlocks)
    }

    fn may_use_cma(&self) -> bool {
        self.cma == Cma::Usable
    }

    pub(super) fn zone(&self) -> ZoneId {
        self.zone
    }

    /// Looks at about as many frames as the budget allows, and returns the next action. Called again before a report,
    /// it names the same moves.
    pub fn step<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        budget: PageBudget,
    ) -> CompactionStep {
        let mut left = budget.pages.max(1);
        match self.advance(pages, &mut left) {
            Advance::Migrate(moves) => CompactionStep::Migrate(moves),
            Advance::Paused => CompactionStep::Continue,
            Advance::Done(result) => CompactionStep::Done(result),
        }
    }

    /// Advances to the next moves, to the end, or until `left` frames were looked at.
    pub(super) fn advance<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        left: &mut u64,
    ) -> Advance {
        if let Some(result) = self.ended {
            return Advance::Done(result);
        }
        if self.flight.is_empty() {
            let ground = &mut Ground::of(pages, self.zone);
            let ended = match self.as_linux {
                true => self.go_on_as_linux(ground, left),
                false => self.go_on(ground, left),
            };
            if let Some(capture) = self.untold.take() {
                pages.trace_capture(self.zone, capture);
            }
            if let Some(result) = ended {
                let result = self.end(pages, result);
                return Advance::Done(result);
            }
            if self.flight.is_empty() {
                return Advance::Paused;
            }
        }
        Advance::Migrate(self.flight.moves(&pages.frames))
    }

    /// Scans until there is something to move, the budget is spent, or, with a result, the run has ended.
    fn go_on(&mut self, ground: &mut Ground<'_>, left: &mut u64) -> Option<CompactionResult> {
        loop {
            if self.captured != NONE {
                return Some(CompactionResult::Captured(ground.frames.pfn(self.captured)));
            }
            if self.sources.visit.is_none() {
                // Only between pageblocks: what is left of one that was begun is worth finishing.
                if suitable::is_reached(ground.zone, self.goal, self.cma) {
                    return Some(CompactionResult::Success);
                }
                match self.enter_source_block(ground, left) {
                    Entered::Block => self.seen.examined = true,
                    Entered::Paused => return None,
                    Entered::Met => return Some(self.met(ground)),
                }
            }
            let visited = self.visit_sources(ground, left);
            match visited {
                _ if !self.flight.is_empty() => return None,
                Visited::Enough => {}
                Visited::Paused => return None,
                Visited::NoTarget => return Some(self.without_targets(ground)),
            }
        }
    }

    /// Notes that the scanners have met: the next run begins at the ends again. Returns `Complete` if this one began at
    /// the zone's start, else `Partial`.
    fn met(&mut self, ground: &mut Ground<'_>) -> CompactionResult {
        let all = self.began == ground.zone.start;
        let state = &mut ground.zone.compaction;
        state.sources = [None; 2];
        state.targets = None;
        state.went_through |= self.mode != Mode::Background;
        if all { CompactionResult::Complete } else { CompactionResult::Partial }
    }

    fn without_targets(&mut self, ground: &mut Ground<'_>) -> CompactionResult {
        self.seen.lacked_target = true;
        match suitable::is_reached(ground.zone, self.goal, self.cma) {
            true => CompactionResult::Success,
            false => self.met(ground),
        }
    }

    fn end<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        result: CompactionResult,
    ) -> CompactionResult {
        let mut result = result;
        if self.as_linux {
            self.end_as_linux(&mut Ground::of(pages, self.zone));
            if let Some(capture) = self.untold.take() {
                pages.trace_capture(self.zone, capture);
            }
            if self.captured != NONE {
                result = CompactionResult::Captured(pages.frames.pfn(self.captured));
            }
        }
        self.hand_captured_out(&mut Ground::of(pages, self.zone));
        self.ended = Some(result);
        let Seen { marks: (marked, blocks), moved, .. } = self.seen;
        let (order, migratetype) = (self.goal.order(), self.goal.migratetype());
        let aim = CompactionAim { zone: self.zone, order, migratetype, mode: self.mode };
        let run = CompactionRun { aim, marked, blocks, moved, end: self.seen.end(result) };
        pages.events.record(Event::Page(PageEvent::Compacted(run)));
        result
    }

    /// Returns the run's wish for a block that becomes free; `None` in the background, without a block as goal, or once
    /// one is captured.
    fn wish(&self) -> Option<Capture> {
        match (self.goal, self.mode) {
            _ if self.captured != NONE => None,
            (_, Mode::Background) => None,
            (Goal::Block(order, migratetype), _) => {
                Some(Capture { order, migratetype, frame: NONE })
            }
            _ => None,
        }
    }

    /// Takes the block that was captured since [`wish`](Self::wish) was set. Until the run has ended the block is
    /// nobody's: a free of it by mistake is refused.
    fn keep_captured(&mut self, ground: &mut Ground<'_>) {
        let capture = ground.zone.compaction.capture.take();
        if let Some(capture) = capture.filter(|capture| capture.frame != NONE) {
            ground.frames.set_tag(capture.frame, Tag::new(Kind::Target, capture.order));
            ground.zone.compaction.in_flight += capture.order.pages();
            self.captured = capture.frame;
            self.untold = Some(capture);
        }
    }

    /// Puts the captured block, if there is one, in use.
    fn hand_captured_out(&mut self, ground: &mut Ground<'_>) {
        let frame = core::mem::replace(&mut self.captured, NONE);
        if frame != NONE {
            let order = self.goal.order();
            ground.zone.compaction.in_flight -= order.pages();
            ground.frames.set_tag(frame, Tag::new(Kind::Used, order));
        }
    }

    /// Records the results of the moves that [`step`](Self::step) named, and returns the numbers of pages moved and not
    /// moved. Without such moves nothing happens.
    pub fn migrated<E: EventSink>(
        &mut self,
        pages: &mut PageAllocator<E>,
        results: MoveResults,
    ) -> Landed {
        let mut flight = core::mem::replace(&mut self.flight, Flight::none());
        let mut ground = Ground::of(pages, self.zone);
        let landed = if self.as_linux {
            let mut left = Chain::EMPTY;
            let landed = flight.land(&mut ground, results, |ground, frame, _, idle| match idle {
                Idle::Source => left.append(ground.frames, frame),
                Idle::Target => self.return_target(ground, frame),
            });
            self.free_left(pages, left);
            landed
        } else {
            ground.zone.compaction.capture = self.wish();
            let landed = flight.land(&mut ground, results, |ground, frame, order, idle| {
                ground.release(frame, order, idle);
            });
            self.keep_captured(&mut ground);
            landed
        };
        if landed.stayed > 0 {
            self.note_stayed();
        }
        self.seen.moved += landed.moved;
        pages.counters.moved += landed.moved;
        pages.counters.not_moved += landed.stayed;
        if let Some(capture) = self.untold.take() {
            pages.trace_capture(self.zone, capture);
        }
        landed
    }

    /// Gives the run up: moves that were not reported count as refused, and pages set aside are free again.
    pub fn abandon<E: EventSink>(mut self, pages: &mut PageAllocator<E>) {
        let mut ground = Ground::of(pages, self.zone);
        self.flight.land(&mut ground, MoveResults::default(), |ground, frame, order, idle| {
            ground.release(frame, order, idle);
        });
        if self.as_linux {
            self.end_as_linux(&mut ground);
        }
        if self.captured != NONE {
            let order = self.goal.order();
            ground.zone.compaction.in_flight -= order.pages();
            ground.zone.free_block(ground.frames, self.captured, order);
        }
    }
}

fn heeds_hints(goal: Goal, mode: Mode) -> bool {
    mode != Mode::SyncFull && matches!(goal, Goal::Block(..) | Goal::WholeBlocks)
}

impl<E: EventSink> PageAllocator<E> {
    /// Compacts a whole zone with `owner`, and returns the numbers of pages moved and not moved; `None` if there is no
    /// such zone. O(frames of the zone).
    pub fn compact(&mut self, zone: ZoneId, owner: &mut impl Migrate) -> Option<Landed> {
        let mut run = Compaction::of_zone(self, zone)?;
        let mut all = Landed::default();
        loop {
            match run.step(self, PageBudget { pages: u64::MAX }) {
                CompactionStep::Migrate(moves) => {
                    let landed = run.migrated(self, moves.carry_out(owner));
                    all.moved += landed.moved;
                    all.stayed += landed.stayed;
                }
                CompactionStep::Continue => {}
                CompactionStep::Done(_) => return Some(all),
            }
        }
    }

    /// Records an external fragmentation event for a captured block whose pageblock has another type, as far as the
    /// policy's kernel does.
    fn trace_capture(&mut self, zone: ZoneId, capture: Capture) {
        let Capture { order, migratetype, frame } = capture;
        let from = self.frames.block(frame).migratetype;
        if from != migratetype && self.policy.compaction.capture == CaptureTrace::Event {
            let wanted = ZoneRequest { zone, order, migratetype, flags: AllocFlags::NO_WATERMARKS };
            self.record_extfrag(wanted, Found { order, from, share: Share::Single }, frame);
        }
    }

    /// Wipes the marks by which scanners pass a zone's pageblocks by. Linux's rules wipe those alone in which a sample
    /// shows something to do.
    pub(super) fn wipe_marks(&mut self, zone: ZoneId, by: Wiper) {
        let as_linux = self.policy.compaction.sources != SourceRules::EmptiestBlock;
        let ground = &mut Ground::of(self, zone);
        let (before, _) = ground.marks();
        if as_linux {
            ground.wipe_sampled_marks();
        } else {
            ground.wipe_all_marks();
        }
        let (after, _) = ground.marks();
        if before != after {
            let wiped = PageEvent::MarksWiped { zone, by, before, after };
            self.events.record(Event::Page(wiped));
        }
    }

    /// Records that a caller came to a zone and made no run there.
    pub(super) fn spare(&mut self, aim: CompactionAim, why: NoRun) {
        self.events.record(Event::Page(PageEvent::CompactionSpared { aim, why }));
    }

    /// Forgets, as kswapd of the node goes to sleep, what was scanned in zones that a caller's compaction has gone
    /// through since (`reset_isolation_suitable`).
    pub(super) fn forget_scans(&mut self, node: super::map::NodeId) {
        for index in 0..self.zones.len() {
            let zone = &self.zones[index];
            if zone.node == node && zone.compaction.went_through {
                let id = zone.id;
                self.wipe_marks(id, Wiper::Kswapd);
            }
        }
    }
}
