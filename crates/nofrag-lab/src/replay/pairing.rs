//! From events to steps: the block that each free gives back, and the facts that events leave out.
//!
//! The frames of the recorded host are followed by its kernel's events, which do not depend on a policy, so that this
//! is done once for all runs. A frame is *believed* free or in use: the snapshot at the start and the events say so,
//! and both leave things out. Each time that a belief turns out wrong is counted in [`Assumptions`].

use nofrag::page::{MemoryMap, PageAllocator};
use nofrag::units::{Order, Pfn};
use nofrag_host::gfp::GfpBits;
use nofrag_host::trace::{Event, EventKind, TraceMeta, View};

use super::migration::{Doing, Held, Pending, Processes};
use super::nodes::Nodes;
use super::outcome::Assumptions;
use super::pace::{Activity, Mover, Pace};
use super::request::{Frees, Request, Use};
use super::spans::{FrameIndex, Spans};
use super::standin::{self, Refused, Windows};
use super::step::{By, Step, What};

/// The `reason` of a migration by compaction. Only such migrations leave out their targets; others allocate them with
/// an event.
const COMPACTION: i32 = 0;

/// The events that tell where compaction takes free pages: by a scan, and by a search of the free lists. A kernel
/// without the second (6.1) searches untold, so that either is worth nothing without the other.
pub(super) const TARGETS: [EventKind; 2] =
    [EventKind::CompactionIsolateFreepages, EventKind::CompactionFastIsolateFreepages];

/// The belief about a frame, in a byte: its kind (2 bits), the order of the block that begins there (4 bits), two
/// flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Belief(u8);

impl Belief {
    const FREE: Belief = Belief(0);
    const HEAD: Belief = Belief(1);
    const INSIDE: Belief = Belief(2);
    const ABSENT: Belief = Belief(3);
    /// In use since before the recording.
    const OLDER: u8 = 1 << 6;
    /// Freed by a run of compaction, for a reason that is not known yet.
    const PENDING: u8 = 1 << 7;

    fn head(order: Order) -> Belief {
        Belief(Belief::HEAD.0 | order.get() << 2)
    }

    fn is(self, kind: Belief) -> bool {
        self.0 & 3 == kind.0
    }

    fn order(self) -> Order {
        Order::new(self.0 >> 2 & 15).expect("a belief is made from an order")
    }

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    fn with(self, bit: u8) -> Belief {
        Belief(self.0 | bit)
    }
}

/// The recorded host, as far as its events tell.
///
/// Always true:
/// 1. A frame that is believed in use belongs to one block, which begins at a multiple of its size.
/// 2. `moved` counts, by zone and order, the blocks that were moved to an unknown place.
#[derive(Debug)]
pub(super) struct Pairing {
    spans: Spans,
    beliefs: Vec<Belief>,
    moved: Vec<[u64; Order::COUNT]>,
    /// By pageblock of the host: true if compaction has taken free pages there, so that pages which it moved can be
    /// there and nowhere else. Empty if the recording lacks an event that tells.
    targets: Vec<bool>,
    /// True if all events that tell where compaction takes free pages are recorded.
    tells_targets: bool,
    nodes: Nodes,
    processes: Processes,
    windows: Windows,
    gfp: GfpBits,
    /// The time until which the snapshot at the start was being taken: events up to then may be in it already.
    window_end: Option<u64>,
    assumptions: Assumptions,
    pace: Pace,
    steps: Vec<Step>,
}

/// A block of frames, with the time and the CPU of an event.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    cpu: u16,
    frame: FrameIndex,
    order: Order,
}

impl Pairing {
    /// Creates a host with this memory, all of it believed free. `pages` tells which frames are memory.
    pub(super) fn new(map: &MemoryMap, pages: &PageAllocator, meta: &TraceMeta) -> Pairing {
        let spans = Spans::of(map);
        let belief = |frame| match pages.frame(Pfn(spans.pfn(frame))) {
            Some(_) => Belief::FREE,
            None => Belief::ABSENT,
        };
        let beliefs: Vec<Belief> = (0..spans.frames() as FrameIndex).map(belief).collect();
        let mut nodes = Nodes::new(pages);
        for (frame, belief) in (0..).zip(&beliefs) {
            if nodes.are_several() && belief.is(Belief::FREE) {
                nodes.gets(spans.zone(frame), spans.pfn(frame));
            }
        }
        Pairing {
            beliefs,
            moved: vec![[0; Order::COUNT]; spans.zones()],
            targets: Vec::new(),
            tells_targets: TARGETS.into_iter().all(|kind| super::records(meta, kind)),
            nodes,
            processes: Processes::new(&meta.names),
            windows: Windows::default(),
            gfp: GfpBits::new(&meta.gfp),
            window_end: None,
            assumptions: Assumptions::default(),
            pace: Pace::default(),
            steps: Vec::new(),
            spans,
        }
    }

    /// Sets the time until which the snapshot at the start was being taken.
    pub(super) fn set_window(&mut self, end: u64) {
        self.window_end = Some(end);
    }

    /// Marks a block as in use at the start; returns its first frame. A block outside memory, or inside a known block,
    /// is left out: `None`.
    pub(super) fn in_use(&mut self, pfn: u64, order: Order) -> Option<FrameIndex> {
        let frame = self.spans.index(pfn)?;
        let range = self.range(frame, order)?;
        if self.beliefs[range].iter().any(|belief| !belief.is(Belief::FREE)) {
            return None;
        }
        self.occupy(frame, order, Belief::OLDER);
        Some(frame)
    }

    pub(super) fn assumptions(&self) -> &Assumptions {
        &self.assumptions
    }

    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Returns the pages of each zone that are believed free: by the events alone, under any policy.
    pub(super) fn free_by_zone(&self) -> Vec<u64> {
        let zone = |zone| {
            let frames = self.spans.of_zone(zone);
            let beliefs = &self.beliefs[frames.start as usize..frames.end as usize];
            let free = beliefs.iter().filter(|belief| belief.is(Belief::FREE)).count() as u64;
            free.saturating_sub(moved_pages(&self.moved[zone]))
        };
        (0..self.spans.zones()).map(zone).collect()
    }

    /// Returns the steps since the last call.
    pub(super) fn take_steps(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.steps)
    }

    /// Updates the beliefs by an event, and adds its steps for policies.
    pub(super) fn event(&mut self, event: &Event) {
        let (at, pid) = (event.at, event.pid);
        self.processes.look(event.kind, pid);
        match event.view() {
            View::PageAlloc { pfn, order, gfp, migratetype } => {
                let Some(order) = order_of(order) else { return self.foreign() };
                let by = self.by(pid);
                let frees = if by == By::Reclaim { Frees::Memory } else { Frees::Nothing };
                let mut request = Request::new(&self.gfp, order, gfp, migratetype, frees);
                self.look(event, by, pfn.is_some().then_some(&request));
                let got =
                    pfn.and_then(|pfn| self.spans.index(pfn)).map(|frame| self.spans.zone(frame));
                let moved = |zone: usize| moved_pages(&self.moved[zone]);
                request.node = self.nodes.of(event.cpu, got, &request, moved);
                let is_huge = standin::is_huge(&request);
                let before = if is_huge { self.windows.end(pid, &request) } else { None };
                let again = match before {
                    Some(Refused::JustNow(of)) => Some(of),
                    Some(Refused::Before(of)) => {
                        self.push(event, What::PlaceEnds { of });
                        None
                    }
                    None => None,
                };
                let Some(pfn) = pfn else {
                    if let Some(of) = again {
                        self.windows.refused_again(pid, of, order);
                        return self.push(event, What::Again { of, request, frame: None });
                    }
                    let place = is_huge.then(|| self.windows.refused(pid, &request));
                    return self.push(event, What::Failed { request, place });
                };
                let Some(place) = self.place(event, pfn, order) else { return self.foreign() };
                self.make_room(place);
                self.occupy(place.frame, order, 0);
                let frame = place.frame;
                if let Some(of) = again {
                    return self.push(event, What::Again { of, request, frame: Some(frame) });
                }
                let place = if is_page(&request) { self.windows.page(pid) } else { None };
                self.push(event, What::Alloc { frame, request, place });
            }
            View::PageFree { pfn, order } => {
                let by = self.by(pid);
                self.look(event, by, None);
                let place = order_of(order).and_then(|order| self.place(event, pfn, order));
                let Some(place) = place else { return self.foreign() };
                self.free(place, pid, by);
            }
            View::CompactionBegin(_) => self.compaction_begins(event),
            View::CompactionEnd { .. } => self.compaction_ends(event),
            View::IsolatedTargets { start, end, taken } if taken > 0 => self.targets(start, end),
            View::MigratePages { succeeded, reason: COMPACTION, .. } => {
                self.migrated(event, succeeded);
            }
            View::DirectReclaimBegin { .. } => {
                self.processes.begin(pid, Doing::Reclaiming);
                self.reclaims(event, Activity::Reclaim);
            }
            View::DirectReclaimEnd { .. } => drop(self.processes.end(pid)),
            View::KswapdWake { .. } => self.kswapd(event, Activity::Woke),
            View::KswapdSleep { .. } => self.kswapd(event, Activity::Reclaim),
            View::Lost(_) => {
                let pending = self.processes.forget();
                self.give_back(at, pending);
            }
            _ => {}
        }
    }

    /// Sets every belief right by a snapshot, and counts the frames that differed.
    pub(super) fn resynchronise(&mut self, at: u64, is_free: impl Fn(u64) -> bool) {
        let pending = self.processes.forget();
        self.give_back(at, pending);
        for frame in 0..self.beliefs.len() as FrameIndex {
            let belief = self.beliefs[frame as usize];
            if belief.is(Belief::ABSENT)
                || belief.is(Belief::FREE) == is_free(self.spans.pfn(frame))
            {
                continue;
            }
            self.assumptions.resynchronised += 1;
            let place = Place { at, cpu: 0, frame, order: Order::ZERO };
            if belief.is(Belief::FREE) {
                self.occupy(frame, Order::ZERO, Belief::OLDER);
                let moved = &mut self.moved[self.spans.zone(frame)][0];
                *moved = moved.saturating_sub(1);
                self.push_at(place, What::FoundUsed { frame });
            } else {
                self.release(place, |frame| What::FoundFree { frame });
            }
        }
    }

    /// Returns the party that a process is at work for.
    fn by(&self, pid: i32) -> By {
        if self.processes.reclaims(pid) { By::Reclaim } else { By::User }
    }

    /// Notes what the event tells of the host's pace; `served` is the request that it tells of, if that was served.
    fn look(&mut self, event: &Event, by: By, served: Option<&Request>) {
        let pid = event.pid;
        let activity = if by == By::Reclaim && matches!(event.view(), View::PageFree { .. }) {
            Activity::Reclaimed
        } else if by == By::Reclaim || self.processes.compacting(pid).is_some() {
            Activity::Reclaim
        } else if served.is_some_and(is_page) {
            Activity::Fault
        } else {
            Activity::Other
        };
        self.pace.look(event.at, event.cpu, pid, activity);
    }

    /// Notes that kswapd wakes, or falls asleep.
    fn kswapd(&mut self, event: &Event, activity: Activity) {
        self.processes.is_kswapd(event.pid);
        self.reclaims(event, activity);
    }

    /// Notes that a row of reclaimed pages begins or ends.
    fn reclaims(&mut self, event: &Event, activity: Activity) {
        self.pace.look(event.at, event.cpu, event.pid, activity);
    }

    fn foreign(&mut self) {
        self.assumptions.foreign += 1;
    }

    fn push(&mut self, event: &Event, what: What) {
        self.steps.push(Step { at: event.at, cpu: event.cpu, pid: event.pid, what });
    }

    fn push_at(&mut self, place: Place, what: What) {
        self.steps.push(Step { at: place.at, cpu: place.cpu, pid: 0, what });
    }

    fn place(&self, event: &Event, pfn: u64, order: Order) -> Option<Place> {
        let frame = self.spans.index(pfn)?;
        self.range(frame, order)?;
        let aligned = pfn.is_multiple_of(order.pages());
        aligned.then_some(Place { at: event.at, cpu: event.cpu, frame, order })
    }

    /// Returns the frames of a block, if all of them are of one zone and memory.
    fn range(&self, frame: FrameIndex, order: Order) -> Option<std::ops::Range<usize>> {
        let start = frame as usize;
        if order == Order::ZERO {
            return (!self.beliefs[start].is(Belief::ABSENT)).then_some(start..start + 1);
        }
        let end = start + order.pages() as usize;
        let zone = self.spans.of_zone(self.spans.zone(frame));
        let whole = end <= zone.end as usize
            && !self.beliefs[start..end].iter().any(|belief| belief.is(Belief::ABSENT));
        whole.then_some(start..end)
    }

    fn occupy(&mut self, frame: FrameIndex, order: Order, bits: u8) {
        let start = frame as usize;
        if self.nodes.are_several() {
            let zone = self.spans.zone(frame);
            for frame in (frame..).take(order.pages() as usize) {
                if self.beliefs[frame as usize].is(Belief::FREE) {
                    self.nodes.loses(zone, self.spans.pfn(frame));
                }
            }
        }
        self.beliefs[start] = Belief::head(order).with(bits);
        if order > Order::ZERO {
            self.beliefs[start + 1..start + order.pages() as usize].fill(Belief::INSIDE.with(bits));
        }
    }

    fn is_in_window(&self, at: u64) -> bool {
        self.window_end.is_some_and(|end| at <= end)
    }

    /// Frees the frames of a new block, if they were believed in use.
    fn make_room(&mut self, place: Place) {
        let start = place.frame as usize;
        let range = start..start + place.order.pages() as usize;
        if self.beliefs[range.clone()].iter().all(|&belief| belief == Belief::FREE) {
            return;
        }
        for frame in range.clone() {
            if self.beliefs[frame].has(Belief::PENDING)
                && let Some(pending) = self.processes.settle(frame as FrameIndex)
            {
                self.source(place.at, pending);
            }
        }
        if self.beliefs[range].iter().all(|belief| belief.is(Belief::FREE)) {
            return;
        }
        if !self.is_in_window(place.at) {
            self.assumptions.implicit_frees += 1;
        }
        self.release(place, |frame| What::Free { frame, by: By::User });
    }

    fn free(&mut self, place: Place, pid: i32, by: By) {
        let belief = self.beliefs[place.frame as usize];
        if self.processes.compacting(pid).is_some() {
            return self.free_while_compacting(place, pid);
        }
        if belief.has(Belief::PENDING)
            && let Some(pending) = self.processes.settle(place.frame)
        {
            // Another process frees it again: its first content went elsewhere.
            self.source(place.at, pending);
            return self.free_of_free(place, by);
        }
        if self.is_free(place) {
            return self.free_of_free(place, by);
        }
        self.assumptions.older_frees += u64::from(belief.has(Belief::OLDER));
        let is_block = belief.is(Belief::HEAD) && belief.order() == place.order;
        if !is_block && !belief.has(Belief::OLDER) {
            self.assumptions.splits += 1;
        }
        self.release(place, |frame| What::Free { frame, by });
    }

    /// Returns true if all of a block is believed free.
    fn is_free(&self, place: Place) -> bool {
        let frames = &self.beliefs[place.frame as usize..][..place.order.pages() as usize];
        frames.iter().all(|belief| belief.is(Belief::FREE))
    }

    /// Handles a free of frames that are believed free: of a block that was moved there, or an unknown one.
    fn free_of_free(&mut self, place: Place, by: By) {
        if self.is_in_window(place.at) {
            return;
        }
        let Place { frame, order, .. } = place;
        let block = (self.spans.pfn(frame) / Order::PAGEBLOCK.pages()) as usize;
        let can_be_there = self.targets.is_empty() || self.targets[block];
        let moved = &mut self.moved[self.spans.zone(frame)][usize::from(order.get())];
        if *moved == 0 || !can_be_there {
            self.assumptions.unknown_frees += 1;
            return;
        }
        *moved -= 1;
        self.assumptions.resolved_migrations += 1;
        self.push_at(place, What::FreeMoved { frame, order, by });
    }

    /// Takes the frames of a block out of use, with a step `what` for each block that lies in it. A larger block around
    /// it is split first, and free parts stay free.
    fn release(&mut self, place: Place, what: impl Fn(FrameIndex) -> What) {
        let belief = self.beliefs[place.frame as usize];
        if belief.is(Belief::HEAD) && belief.order() == place.order {
            self.vacate(place.frame, place.order);
            return self.push_at(place, what(place.frame));
        }
        if let Some((head, from)) = self.block_around(place.frame)
            && from > place.order
        {
            self.split(place, head, from);
        }
        let end = place.frame + place.order.pages() as FrameIndex;
        let mut frame = place.frame;
        while frame < end {
            let belief = self.beliefs[frame as usize];
            if belief.is(Belief::HEAD) {
                self.vacate(frame, belief.order());
                self.push_at(place, what(frame));
                frame += belief.order().pages() as FrameIndex;
            } else {
                frame += 1;
            }
        }
    }

    fn vacate(&mut self, frame: FrameIndex, order: Order) {
        let start = frame as usize;
        if self.nodes.are_several() {
            let zone = self.spans.zone(frame);
            for frame in (frame..).take(order.pages() as usize) {
                self.nodes.gets(zone, self.spans.pfn(frame));
            }
        }
        self.beliefs[start..start + order.pages() as usize].fill(Belief::FREE);
    }

    /// Returns the first frame and the order of the block in use that a frame belongs to; `None` if it is free.
    /// O(orders).
    fn block_around(&self, frame: FrameIndex) -> Option<(FrameIndex, Order)> {
        let pfn = self.spans.pfn(frame);
        Order::all().find_map(|order| {
            let back = (pfn & (order.pages() - 1)) as FrameIndex;
            let head = frame.checked_sub(back)?;
            let belief = self.beliefs[head as usize];
            let reaches =
                belief.is(Belief::HEAD) && head + belief.order().pages() as FrameIndex > frame;
            reaches.then(|| (head, belief.order()))
        })
    }

    /// Splits the block at `head` into blocks of `place`'s order.
    fn split(&mut self, place: Place, head: FrameIndex, from: Order) {
        let older = self.beliefs[head as usize].0 & Belief::OLDER;
        let to = place.order;
        let end = head + from.pages() as FrameIndex;
        for part in (head..end).step_by(to.pages() as usize) {
            self.occupy(part, to, older);
        }
        self.push_at(place, What::Split { frame: head, from, to });
    }

    fn compaction_begins(&mut self, event: &Event) {
        self.pace.compacts(event.at, event.pid);
        let doing = Doing::Compacting { pending: Vec::new(), settled: 0 };
        if let Some(Doing::Compacting { pending, .. }) = self.processes.begin(event.pid, doing) {
            self.give_back(event.at, pending);
        }
    }

    fn compaction_ends(&mut self, event: &Event) {
        if let Some(Doing::Compacting { pending, .. }) = self.processes.end(event.pid) {
            self.give_back(event.at, pending);
        }
    }

    fn free_while_compacting(&mut self, place: Place, pid: i32) {
        let Place { frame, order, cpu, .. } = place;
        let belief = self.beliefs[frame as usize];
        if belief.has(Belief::PENDING) {
            // It waits already; a second free of it adds nothing, and would outlive the first.
            self.assumptions.unknown_frees += 1;
            return;
        }
        let is_block = belief.is(Belief::HEAD) && belief.order() == order;
        let held = if is_block {
            Held::Block
        } else if self.is_free(place) {
            Held::Nothing
        } else {
            // A part of a larger block: no page of that can be moved alone.
            self.assumptions.splits += 1;
            return self.release(place, |frame| What::Free { frame, by: By::User });
        };
        if is_block {
            self.vacate(frame, order);
            self.assumptions.older_frees += u64::from(belief.has(Belief::OLDER));
        }
        self.beliefs[frame as usize] = Belief::FREE.with(Belief::PENDING);
        if let Some((pending, _)) = self.processes.compacting(pid) {
            pending.push(Pending { frame, order, cpu, held });
        }
    }

    /// Settles the frees of a process whose migration moved `succeeded` pages: the last ones were of their sources.
    fn migrated(&mut self, event: &Event, succeeded: u64) {
        let who = match self.processes.compacts_for_others(event.pid) {
            true => Mover::Background,
            false => Mover::Caller,
        };
        self.pace.has_moved(event.at, event.pid, who, succeeded);
        let Some((pending, settled)) = self.processes.compacting(event.pid) else {
            return self.appeared(event, succeeded);
        };
        let frees = std::mem::take(pending);
        let mut left = succeeded.saturating_sub(std::mem::take(settled));
        let mut sources = 0;
        for free in frees.iter().rev() {
            if left < free.order.pages() {
                break;
            }
            left -= free.order.pages();
            sources += 1;
        }
        let others = frees.len() - sources;
        self.give_back(event.at, frees[..others].iter().copied());
        for &free in &frees[others..] {
            self.source(event.at, free);
        }
    }

    /// Counts moved pages where runs of compaction were not traced: the sources were taken for free pages, and it is
    /// only known that `succeeded` of them are not. Their place is not known either; most are where most memory is.
    fn appeared(&mut self, event: &Event, succeeded: u64) {
        let size = |zone: &usize| self.spans.of_zone(*zone).len();
        let Some(zone) = (0..self.spans.zones()).max_by_key(size) else { return };
        let pages = succeeded.min(self.beliefs.len() as u64);
        self.assumptions.migration_targets += pages;
        self.moved[zone][0] += pages;
        self.push(event, What::Appeared { zone: zone as u16, pages: pages as u32 });
    }

    /// Marks the pageblocks from which compaction took free pages, from one frame up to another.
    fn targets(&mut self, start: u64, end: u64) {
        let last = (self.beliefs.len() as FrameIndex).checked_sub(1);
        let Some(last) = last.filter(|_| self.tells_targets) else { return };
        let last = self.spans.pfn(last);
        let block = |pfn: u64| (pfn.min(last) / Order::PAGEBLOCK.pages()) as usize;
        self.targets.resize(block(last) + 1, false);
        self.targets[block(start)..=block(end.saturating_sub(1).max(start))].fill(true);
    }

    /// Notes that the content of a freed frame was moved.
    fn source(&mut self, at: u64, free: Pending) {
        let Pending { frame, order, cpu, held } = free;
        self.beliefs[frame as usize] = Belief::FREE;
        let place = Place { at, cpu, frame, order };
        let moved = &mut self.moved[self.spans.zone(frame)][usize::from(order.get())];
        match held {
            Held::Block => {
                *moved += 1;
                self.assumptions.migration_targets += order.pages();
                self.push_at(place, What::Moved { frame, order });
            }
            // A block had been moved to this frame before, which explains the free.
            Held::Nothing if *moved > 0 => {
                self.assumptions.migration_targets += order.pages();
                self.assumptions.resolved_migrations += 1;
            }
            Held::Nothing => self.assumptions.unknown_frees += 1,
        }
    }

    /// Frees the blocks of a run of compaction that were no sources.
    fn give_back(&mut self, at: u64, pending: impl IntoIterator<Item = Pending>) {
        for Pending { frame, order, cpu, held } in pending {
            self.beliefs[frame as usize] = Belief::FREE;
            match held {
                Held::Block => {
                    let place = Place { at, cpu, frame, order };
                    self.push_at(place, What::Free { frame, by: By::User });
                }
                Held::Nothing => self.assumptions.targets_returned += order.pages(),
            }
        }
    }
}

/// Returns true for a request for an anonymous page.
fn is_page(request: &Request) -> bool {
    request.order == Order::ZERO && request.used == Use::Movable
}

/// Returns the number of pages in moved blocks, from their numbers by order.
fn moved_pages(blocks: &[u64; Order::COUNT]) -> u64 {
    Order::all().map(|order| blocks[order.index()] * order.pages()).sum()
}

/// Returns the order that an event names; `None` for one that no allocator has.
pub(super) fn order_of(order: u32) -> Option<Order> {
    Order::new(u8::try_from(order).ok()?)
}
