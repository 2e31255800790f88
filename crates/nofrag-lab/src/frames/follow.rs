//! The engine beside the kernel: it follows the same events in the same order, each answer is compared, and the engine
//! is set right where it differs.

mod scans;
mod wakes;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use foldhash::{HashMap, HashMapExt};
use nofrag::cpu::CpuId;
use nofrag::event::{Event as CoreEvent, EventSink};
use nofrag::page::{
    CompactionImage, CompactionMode, ExtFrag, FallbackRules, FragmentationPolicy, FrameState,
    Image, KswapdRun, Migratetype, NodeId, PageAllocator, PageConfig, PageEvent, ScanStep, ZoneId,
};
use nofrag::units::{Nanos, Order, Pfn};

use self::wakes::Wakes;
use super::compaction;
use super::events::{Asked, Block, Event, Fallback, Fields, Line};
use super::names;
use super::outcome::{Cause, Score, Scores};
use super::state::{State, StateError};
use crate::key::Key;

/// Events of the engine since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Heard {
    refilled: RefCell<Vec<Pfn>>,
    drained: RefCell<Vec<Pfn>>,
    extfrag: RefCell<Vec<ExtFrag>>,
    /// The engine has told of a fallback, but not yet of the block that it gave.
    fell_back: Cell<bool>,
    /// The policy keeps strict lists.
    pub(super) strict: Cell<bool>,
    boosts: RefCell<u64>,
    /// Orders of the wakes of kswapd.
    woken: RefCell<Vec<Order>>,
}

impl Heard {
    fn hear_refill(&self, pfn: Pfn) {
        // Strict lists take the find of a fallback without telling of it twice.
        if !(self.strict.get() && self.fell_back.take()) {
            self.refilled.borrow_mut().push(pfn);
        }
    }

    /// Returns how often watermarks were raised.
    pub(super) fn boosts(&self) -> u64 {
        *self.boosts.borrow()
    }
}

impl EventSink for Heard {
    fn record(&self, event: CoreEvent) {
        match event {
            CoreEvent::Page(PageEvent::Refilled { pfn, .. }) => self.hear_refill(pfn),
            CoreEvent::Page(PageEvent::Drained { pfn, .. }) => self.drained.borrow_mut().push(pfn),
            CoreEvent::Page(PageEvent::ExternalFragmentation(event)) => {
                self.extfrag.borrow_mut().push(event);
                self.fell_back.set(true);
            }
            CoreEvent::Page(PageEvent::KswapdWoken { order, .. }) => {
                self.woken.borrow_mut().push(order);
            }
            CoreEvent::Page(PageEvent::Boosted { .. }) => *self.boosts.borrow_mut() += 1,
            _ => {}
        }
    }
}

/// Counts and differences of a stretch.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Frames of answers, by order.
    pub(super) frames: [Score; Order::COUNT],
    /// Other values.
    pub(super) scores: Scores,
    /// Wakes of kswapd, and answers on whether compaction helps.
    pub(super) wakes: Wakes,
    /// In the order in which they were found.
    pub(super) differences: Vec<Difference>,
    /// Events that the engine could not follow, by line, with their reason.
    pub(super) unfollowed: Vec<(usize, String)>,
}

impl Tally {
    /// Counts whether a value is the same on both sides.
    fn count(&mut self, what: Key, same: bool) {
        self.scores.at(what).count(same);
    }

    /// Notes a difference of which no cause is known yet.
    fn differs(&mut self, line: usize, what: &str, kernel: String, engine: String) {
        let (what, cause) = (what.to_owned(), Cause::Other);
        self.differences.push(Difference { line, what, kernel, engine, cause });
    }
}

/// One difference between kernel and engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The line of the events.
    pub(super) line: usize,
    pub(super) what: String,
    pub(super) kernel: String,
    pub(super) engine: String,
    /// Its cause; [`Cause::Other`] where none is known.
    pub(super) cause: Cause,
}

/// The engine as it follows a stretch.
pub(super) struct Follower<'a> {
    pub(super) pages: PageAllocator<&'a Heard>,
    heard: &'a Heard,
    cpus: Vec<CpuId>,
    zone_names: Vec<&'static str>,
    /// Types of pageblocks that wait to be put on their lists.
    typed: HashMap<Pfn, Migratetype>,
    /// The kernel's moves of blocks since the last comparison, by CPU.
    kernel: Vec<Streams>,
    /// The engine's moves of blocks, likewise.
    own: Vec<Streams>,
    /// The run of kswapd under way.
    noted: Option<KswapdRun>,
    config: PageConfig,
    /// The run of compaction that was let in last: zone, order (none: kcompactd works ahead), mode.
    entered: Option<(ZoneId, Option<Order>, CompactionMode)>,
    /// By zone: the first frames of its pageblocks.
    blocks: Vec<Vec<Pfn>>,
    /// The caller's run under way: zone, order, whether it succeeds, whether it does not wait.
    tried: Option<(ZoneId, Order, bool, bool)>,
    /// The task of the last run of compaction, and the block that the run has kept for it.
    captured: Option<(u32, Pfn)>,
    /// Steps of the engine's scanners in the run under way that are not yet applied here.
    log: VecDeque<ScanStep>,
    /// Interrupts within the operation that the kernel is still telling of, by CPU.
    nested: Vec<Nested>,
    pub(super) tally: Tally,
}

/// Blocks on their way between lists, in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Streams {
    refilled: Vec<Pfn>,
    drained: Vec<Pfn>,
    extfrag: Vec<Fallback>,
}

/// Knowledge of an operation within another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nested {
    No,
    /// The engine has drained a list of which the kernel has not told, and the next operation has come.
    Maybe,
    /// The kernel then told of just that drain: the next operation was an interrupt's.
    Sure,
}

const NODE: NodeId = NodeId(0);
/// The reason why an image of the engine can be had: the guests have few frames.
pub(super) const NO_PICTURE: &str = "there is memory for a picture of a guest";

impl<'a> Follower<'a> {
    pub(super) fn new(
        state: &State,
        policy: FragmentationPolicy,
        heard: &'a Heard,
    ) -> Result<Follower<'a>, StateError> {
        let config = state.config(policy)?;
        heard.strict.set(policy.fallback != FallbackRules::Loose);
        let image = state.image()?;
        let pages = PageAllocator::restore(&config, &image, heard)
            .map_err(|error| StateError::Field(error.to_string()))?;
        let pfns = |zone: &nofrag::page::ZoneImage| {
            zone.pageblocks.iter().map(|block| block.pfn).collect()
        };
        let blocks = image.zones.iter().map(pfns).collect();
        Ok(Follower::of(pages, heard, config, state.zone_names()?, blocks))
    }

    /// Returns a follower to which nothing has been told yet.
    fn of(
        pages: PageAllocator<&'a Heard>,
        heard: &'a Heard,
        config: PageConfig,
        zone_names: Vec<&'static str>,
        blocks: Vec<Vec<Pfn>>,
    ) -> Follower<'a> {
        let set = config.map.cpus();
        let cpus: Vec<CpuId> = (0..set.len()).filter_map(|rank| set.by_rank(rank)).collect();
        let streams = || cpus.iter().map(|_| Streams::default()).collect();
        Follower {
            pages,
            heard,
            kernel: streams(),
            own: streams(),
            nested: vec![Nested::No; cpus.len()],
            cpus,
            zone_names,
            typed: HashMap::new(),
            noted: None,
            config,
            entered: None,
            blocks,
            tried: None,
            captured: None,
            log: VecDeque::new(),
            tally: Tally { scores: Scores::of(names::ON_THE_WAY), ..Tally::default() },
        }
    }

    pub(super) fn image(&self) -> Image {
        self.pages.image().expect(NO_PICTURE)
    }

    pub(super) fn follow(&mut self, lines: &[Line], index: usize) {
        let line = &lines[index];
        let cpu = self.rank(line);
        if let Event::CompactionBegins(_) = line.event {
            self.judge_run(lines, index);
        }
        let acts = matches!(line.event, Event::Ends(_) | Event::Freed(_) | Event::Batched(_));
        if acts && !self.own[cpu].drained.is_empty() && self.nested[cpu] == Nested::No {
            self.nested[cpu] = Nested::Maybe;
        }
        self.before_act(lines, index);
        self.act(line, cpu);
        self.after_act(line);
        self.compare_streams(line.number, cpu);
    }

    fn rank(&self, line: &Line) -> usize {
        (line.cpu as usize).min(self.cpus.len() - 1)
    }

    fn act(&mut self, line: &Line, cpu: usize) {
        match &line.event {
            Event::Ends(asked) => {
                let captured = self.captured.take_if(|(pid, _)| *pid == line.task.pid);
                self.answer(line.number, cpu, asked, captured.map(|(_, pfn)| pfn));
            }
            Event::Bulk(pfn) => self.bulk(line.number, cpu, *pfn),
            Event::FreedInBatch(Block { pfn, order }) => {
                self.ready(line.number, *pfn, *order);
                if let Some(kind) = self.pages.block_type(*pfn) {
                    self.typed.insert(*pfn, kind);
                }
                // The block has no holder any more, so compaction cannot take it.
                let _ = self.pages.set_movable(*pfn, false);
            }
            Event::Batched(pfn) => {
                let kind = self.typed.remove(pfn).or_else(|| self.pages.block_type(*pfn));
                if let Some(kind) = kind {
                    let freed = self.pages.free_as(self.cpus[cpu], *pfn, kind);
                    self.note(line.number, freed);
                }
            }
            Event::Freed(Block { pfn, order }) => {
                self.ready(line.number, *pfn, *order);
                let freed = self.pages.free(self.cpus[cpu], *pfn);
                self.note(line.number, freed);
            }
            Event::Refilled { pfn, cached: true, .. } => self.kernel[cpu].refilled.push(*pfn),
            Event::Drained(Block { pfn, .. }) => self.kernel[cpu].drained.push(*pfn),
            Event::ExtFrag(event) => self.kernel[cpu].extfrag.push(*event),
            Event::OnLru(pfn, _) => {
                let _ = self.pages.set_movable(*pfn, true);
            }
            Event::Bits { pfn, flags, mask } if mask & 8 != 0 => {
                self.pages.set_skip(*pfn, flags & 8 != 0);
            }
            Event::DrainZone(name) => {
                self.catch_up(|step| *step == ScanStep::Drained);
                if let Some(zone) = self.zone(name) {
                    self.pages.drain_zone(zone);
                }
            }
            Event::WipeMarks(name) => {
                if let Some(zone) = self.zone(name) {
                    self.pages.forget_marks(zone);
                }
            }
            Event::KswapdWakes(_) => self.noted = Some(self.pages.kswapd_begins(NODE)),
            Event::KswapdRests => {
                if let Some(run) = self.noted.take() {
                    self.pages.kswapd_rests(&run);
                    self.tally.wakes.last = Some(run);
                }
            }
            Event::KswapdSleeps => self.pages.kswapd_sleeps(NODE),
            Event::Decay(name) => {
                if let Some(zone) = self.zone(name) {
                    self.pages.age_zone(self.cpus[cpu], zone);
                }
            }
            _ => self.act_in_compaction(line),
        }
    }

    /// Follows the events within a run of compaction.
    fn act_in_compaction(&mut self, line: &Line) {
        match &line.event {
            Event::Isolated(Block { pfn, order }) => {
                self.catch_up(|step| matches!(step, ScanStep::Isolated { .. }));
                let taken = self.pages.isolate(*pfn, *order);
                self.note(line.number, taken);
            }
            Event::SourcesIsolated(_) => {
                self.catch_up(|step| matches!(step, ScanStep::Piece { .. }));
            }
            Event::CompactionEnds(_) => {
                self.turn_as_logged(self.log.len());
                if let Some((zone, order, success, asynchronous)) = self.tried.take()
                    && (success || !asynchronous)
                {
                    self.pages.note_compaction(zone, order, success);
                }
            }
            Event::Deferred(fields) => self.defer(line.number, fields),
            Event::Compacts(fields) => self.enter_compaction(line.number, fields),
            _ => {}
        }
    }

    fn zone(&self, name: &str) -> Option<ZoneId> {
        let at = self.zone_names.iter().position(|known| *known == name)?;
        self.pages.zones().nth(at).map(|zone| zone.id)
    }

    /// Makes the block that is about to be freed one block in use, whatever sizes were known.
    fn ready(&mut self, line: usize, pfn: Pfn, order: Order) {
        match self.pages.frame(pfn) {
            Some((FrameState::Used | FrameState::Movable, head, size)) if size > order => {
                let _ = self.pages.split(head, order);
            }
            Some((FrameState::Used | FrameState::Movable, _, size)) if size < order => {
                let joined = self.pages.join(pfn, order);
                self.note(line, joined);
            }
            _ => {}
        }
    }

    fn note<E: std::fmt::Display>(&mut self, line: usize, result: Result<(), E>) {
        if let Err(error) = result {
            self.tally.unfollowed.push((line, error.to_string()));
        }
    }

    fn answer(&mut self, line: usize, cpu: usize, asked: &Asked, captured: Option<Pfn>) {
        let (id, order) = (self.cpus[cpu], asked.request.order);
        let kept = captured.filter(|&pfn| self.pages.take_exactly(pfn, order).is_ok());
        let ours = kept.or_else(|| match self.pages.alloc(Nanos(0), id, asked.request) {
            Ok(pfn) => Some(pfn),
            Err(attempt) => {
                attempt.abandon(&mut self.pages);
                self.pages.alloc_again(id, &asked.request)
            }
        });
        if let Some(pfn) = kept
            && let Some(zone) = self.pages.zone_of_frame(pfn)
        {
            self.pages.note_served(zone, order);
        }
        let zone = |pfn: Option<Pfn>| pfn.and_then(|pfn| self.pages.zone_of_frame(pfn));
        self.tally.count(names::ZONES, zone(ours) == zone(asked.answer));
        let same = ours == asked.answer;
        self.tally.frames[order.index()].count(same);
        if same {
            return;
        }
        self.frame_differs(line, "frame", asked.answer, ours);
        let set = match (ours, asked.answer) {
            (Some(ours), Some(theirs)) => {
                self.ready(line, theirs, order);
                self.pages.exchange(ours, theirs).map_err(|error| error.to_string())
            }
            (Some(ours), None) => self.pages.free(id, ours).map_err(|error| error.to_string()),
            (None, Some(theirs)) => {
                self.pages.take_exactly(theirs, order).map_err(|error| error.to_string())
            }
            (None, None) => Ok(()),
        };
        self.note(line, set);
    }

    fn frame_differs(&mut self, line: usize, what: &str, kernel: Option<Pfn>, engine: Option<Pfn>) {
        let frame = |pfn: Option<Pfn>| pfn.map_or_else(|| "none".to_owned(), |pfn| hex(&pfn));
        self.tally.differs(line, what, frame(kernel), frame(engine));
    }

    fn differs(
        &mut self,
        line: usize,
        what: &str,
        kernel: &impl std::fmt::Debug,
        engine: &impl std::fmt::Debug,
    ) {
        self.tally.differs(line, what, format!("{kernel:?}"), format!("{engine:?}"));
    }

    /// Compares an attempt to compact that the kernel put off with the engine's decision; takes the kernel's counts
    /// over where they differ.
    fn defer(&mut self, line: usize, fields: &Fields) {
        let Some(zone) = fields.get("zone").and_then(|name| self.zone(name)) else { return };
        let Some(order) = fields.order("order") else { return };
        let goes = self.pages.consider_compaction(zone, order);
        let mut memory = self.pages.compaction_memory(zone).unwrap_or_default();
        let ours = (goes, memory.considered, 1 << memory.shift);
        let number = |key| fields.number(key).unwrap_or(0);
        let theirs = (false, number("consider") as u8, number("limit"));
        let same = ours == theirs;
        self.tally.count(names::DECISIONS, same);
        if !same {
            self.differs(line, "deferral", &theirs, &ours);
            memory.considered = theirs.1;
            memory.shift = theirs.2.max(1).ilog2() as u8;
            self.pages.set_compaction_memory(zone, memory);
        }
    }

    /// Compares what compaction remembers of a zone when a run is let in with the kernel's memory, and takes that over.
    fn enter_compaction(&mut self, line: usize, fields: &Fields) {
        self.entered = None;
        let Some(zone) = fields.get("zone").and_then(|name| self.zone(name)) else { return };
        let order = fields.order("order");
        let direct = fields.get("direct") == Some("1");
        if let Some(order) = order.filter(|_| direct) {
            let goes = self.pages.consider_compaction(zone, order);
            self.tally.count(names::DECISIONS, goes);
            if !goes {
                self.differs(line, "deferral", &"let in", &"put off");
            }
        }
        let mode = match (fields.number("mode"), direct) {
            (Some(0), _) => CompactionMode::Async,
            (_, false) => CompactionMode::Background,
            (Some(1), _) => CompactionMode::SyncLight,
            _ => CompactionMode::SyncFull,
        };
        let hex = |key: &str| -> Vec<u64> {
            let parts = fields.get(key).unwrap_or("").split(',');
            parts.filter_map(|part| u64::from_str_radix(part, 16).ok()).collect()
        };
        let numbers = |key: &str| -> Vec<u8> {
            fields.get(key).unwrap_or("").split(',').filter_map(|part| part.parse().ok()).collect()
        };
        let ours = self.pages.compaction_memory(zone).unwrap_or_default();
        let mut theirs = ours;
        if let [any, waiting] = hex("cached_m")[..] {
            theirs.sources = [any, waiting];
        }
        if let [targets] = hex("cached_f")[..] {
            theirs.targets = targets;
        }
        if let [source, target] = hex("init")[..] {
            (theirs.first_source, theirs.first_target) = (source, target);
        }
        if let [considered, shift, order_failed] = numbers("defer")[..] {
            (theirs.considered, theirs.shift, theirs.order_failed) =
                (considered, shift, order_failed);
        }
        if let Some((marked, _)) = fields.get("skip").and_then(|text| text.split_once('/')) {
            let blocks = self.blocks[zone.index()].iter();
            let ours = blocks.filter(|&&pfn| self.pages.is_marked(pfn) == Some(true)).count();
            let same = marked.parse() == Ok(ours);
            self.tally.count(names::MARKED, same);
            if !same {
                self.differs(line, "marks", &marked, &ours);
            }
        }
        let at = |memory: &CompactionImage| {
            let pause = (memory.considered, memory.shift, memory.order_failed);
            (memory.sources, memory.targets, memory.first_source, memory.first_target, pause)
        };
        let same = at(&ours) == at(&theirs);
        self.tally.count(names::REMEMBERED, same);
        if !same {
            self.differs(line, "positions", &theirs, &ours);
        }
        self.pages.set_compaction_memory(zone, theirs);
        self.entered = Some((zone, order, mode));
    }

    /// Turns free lists as the logged quick searches have done, up to the next logged step that fits `until`, if there
    /// is one.
    fn catch_up(&mut self, until: impl Fn(&ScanStep) -> bool) {
        if let Some(at) = self.log.iter().position(until) {
            self.turn_as_logged(at + 1);
        }
    }

    fn turn_as_logged(&mut self, steps: usize) {
        for step in self.log.drain(..steps) {
            if let ScanStep::Turned { pfn, inclusive } = step {
                self.pages.turn_list(pfn, inclusive);
            }
        }
    }

    /// Notes that the engine would have made a run otherwise.
    fn run_differs(&mut self, line: usize, run: &compaction::Run, made: &compaction::Made) {
        let pairs = run.moved.iter().zip(&made.moved);
        let common = pairs.take_while(|(theirs, ours)| theirs == ours).count();
        let show = |taken: u64, moved: &[(Pfn, Pfn)], end: Option<&compaction::End>| {
            let next: Vec<_> = moved.iter().skip(common).take(2).collect();
            format!(
                "{common} of {} moves, {taken} pages taken, then {next:x?}; {end:x?}",
                moved.len()
            )
        };
        let theirs = show(run.taken, &run.moved, run.end.as_ref());
        let ours = show(made.taken, &made.moved, Some(&made.end));
        self.tally.differs(line, "compaction", theirs, ours);
    }

    fn judge_run(&mut self, lines: &[Line], index: usize) {
        let Some((zone, order, mode)) = self.entered.take() else { return };
        let run = compaction::run_at(lines, index, zone, order, mode);
        let Some(made) = self.make_beside(lines, index, &run) else { return };
        let line = lines[index].number;
        let moves = run.moved == made.moved;
        let end = run.end.as_ref() == Some(&made.end);
        if !moves || !end {
            self.run_differs(line, &run, &made);
        }
        if order.is_none() {
            self.tally.count(names::AHEAD, moves && end);
            // No event tells where scanners stopped, but the marks that they leave have events.
            if let Some(memory) = made.memory.filter(|_| moves && end) {
                self.pages.set_compaction_memory(zone, memory);
            }
            return;
        }
        self.tally.count(names::RUNS, moves && end);
        if !(run.moved.is_empty() && made.moved.is_empty()) {
            self.tally.count(names::RUN_MOVES, moves);
        }
        self.tally.count(names::RUN_ENDS, end);
        for (what, kernel, engine) in scans::judge(&mut self.tally.scores, lines, index, &made.log)
        {
            self.tally.differs(line, what, kernel, engine);
        }
        self.tried = order.filter(|_| mode != CompactionMode::Background).map(|order| {
            (zone, order, made.end.status == "success", mode == CompactionMode::Async)
        });
        self.captured = made.captured.map(|pfn| (lines[index].task.pid, pfn));
        self.log = made.log.into();
        if let Some(memory) = made.memory {
            self.pages.set_compaction_memory(zone, memory);
        }
        if moves && end {
            for (pfn, skip) in made.marks {
                self.pages.set_skip(pfn, skip);
            }
        } else {
            for pfn in compaction::marks_of(lines, index) {
                self.pages.set_skip(pfn, true);
            }
        }
    }

    /// Makes the run on a copy of the engine, beside other tasks' operations during the kernel's run; `None` if the
    /// engine would not make it.
    fn make_beside(
        &self,
        lines: &[Line],
        begin: usize,
        run: &compaction::Run,
    ) -> Option<compaction::Made> {
        let heard = Heard::default();
        let mut copy = self.copy(&heard)?;
        let mut made =
            compaction::Beside::begin(&mut copy.pages, self.cpus[self.rank(&lines[begin])], run)?;
        let (mut moved, mut pieces) = (0, 0);
        for line in &lines[begin + 1..] {
            if line.task != lines[begin].task {
                made.go_on(&mut copy.pages, moved, pieces);
                copy.act(line, copy.rank(line));
                continue;
            }
            match line.event {
                Event::Moved { .. } => moved += 1,
                Event::SourcesIsolated(_) => pieces += 1,
                Event::CompactionEnds(_) => break,
                _ => {}
            }
        }
        Some(made.finish(&mut copy.pages))
    }

    fn copy<'b>(&self, heard: &'b Heard) -> Option<Follower<'b>> {
        heard.strict.set(self.heard.strict.get());
        let pages = PageAllocator::restore(&self.config, &self.image(), heard).ok()?;
        let (config, names) = (self.config.clone(), self.zone_names.clone());
        Some(Follower {
            nested: self.nested.clone(),
            typed: self.typed.clone(),
            noted: self.noted.clone(),
            ..Follower::of(pages, heard, config, names, self.blocks.clone())
        })
    }

    fn bulk(&mut self, line: usize, cpu: usize, pfn: Pfn) {
        if let Some((FrameState::Used | FrameState::Movable, ..)) = self.pages.frame(pfn) {
            // `mm_page_alloc` announced it inside the call.
            return;
        }
        let kind = self.pages.cached_as(pfn).unwrap_or(Migratetype::Unmovable);
        let Some(zone) = self.pages.zone_of_frame(pfn) else { return };
        let ours = self.pages.alloc_cached(self.cpus[cpu], zone, kind);
        let same = ours == Some(pfn);
        self.tally.count(names::BULK, same);
        if !same {
            self.frame_differs(line, "bulk frame", Some(pfn), ours);
            let set = match ours {
                Some(ours) => self.pages.exchange(ours, pfn),
                None => self.pages.take_exactly(pfn, Order::ZERO),
            };
            self.note(line, set);
        }
    }

    /// Takes the engine's latest moves on a CPU, and compares them with the kernel's, as far as both have come: an
    /// interrupt's moves may be told earlier or later than they are done.
    fn compare_streams(&mut self, line: usize, cpu: usize) {
        let own = &mut self.own[cpu];
        own.refilled.extend(self.heard.refilled.take());
        own.drained.extend(self.heard.drained.take());
        own.extfrag.extend(self.heard.extfrag.take().iter().map(fallback));
        let kernel = &mut self.kernel[cpu];
        if kernel.drained.is_empty() && own.drained.is_empty() {
            self.nested[cpu] = Nested::No;
        } else if self.nested[cpu] == Nested::Maybe && !kernel.drained.is_empty() {
            let told = kernel.drained.first() == own.drained.first();
            self.nested[cpu] = if told { Nested::Sure } else { Nested::No };
        }
        let scores = &mut self.tally.scores;
        let found = [
            agree(
                scores.at(names::REFILLS),
                "refill",
                &mut kernel.refilled,
                &mut own.refilled,
                hex,
            ),
            agree(scores.at(names::DRAINS), "drain", &mut kernel.drained, &mut own.drained, hex),
            agree(
                scores.at(names::EXTFRAG),
                "fallback",
                &mut kernel.extfrag,
                &mut own.extfrag,
                |event| format!("{event:?}"),
            ),
        ];
        let cause = match self.nested[cpu] {
            Nested::Sure => Cause::Interrupted,
            Nested::No | Nested::Maybe => Cause::Other,
        };
        for (what, kernel, engine) in found.into_iter().flatten() {
            let what = what.to_owned();
            self.tally.differences.push(Difference { line, what, kernel, engine, cause });
        }
    }

    /// Ends the comparison: moves of blocks that only one side has told of now count as differences.
    pub(super) fn finish(&mut self, line: usize) {
        self.compare_wakes(line, |_| true);
        for cpu in 0..self.cpus.len() {
            self.compare_streams(line, cpu);
            let (kernel, own) =
                (std::mem::take(&mut self.kernel[cpu]), std::mem::take(&mut self.own[cpu]));
            let left = [
                (names::REFILLS, kernel.refilled.len() + own.refilled.len()),
                (names::DRAINS, kernel.drained.len() + own.drained.len()),
                (names::EXTFRAG, kernel.extfrag.len() + own.extfrag.len()),
            ];
            for (what, left) in left {
                self.tally.scores.at(what).of += left as u64;
            }
            if kernel != own {
                self.differs(line, "left over", &kernel, &own);
            }
        }
    }
}

/// Removes from both sequences the entries that agree, and counts them. An entry out of turn counts as a difference;
/// the first is returned, with what follows it on either side.
fn agree<T: PartialEq>(
    score: &mut Score,
    what: &'static str,
    kernel: &mut Vec<T>,
    engine: &mut Vec<T>,
    show: impl Fn(&T) -> String,
) -> Option<(&'static str, String, String)> {
    let mut found = None;
    let all = |list: &[T]| list.iter().map(&show).collect::<Vec<_>>().join(" ");
    let (mut theirs, mut ours) = (0, 0);
    while theirs < kernel.len() && ours < engine.len() {
        let same = kernel[theirs] == engine[ours];
        score.count(same);
        if !same {
            found.get_or_insert_with(|| (what, all(&kernel[theirs..]), all(&engine[ours..])));
            match engine[ours..].iter().position(|each| *each == kernel[theirs]) {
                Some(later) => {
                    engine.remove(ours + later);
                }
                None => ours += 1,
            }
            theirs += 1;
            continue;
        }
        (theirs, ours) = (theirs + 1, ours + 1);
    }
    kernel.drain(..theirs);
    engine.drain(..ours);
    found
}

/// Formats a frame as events do.
fn hex(pfn: &Pfn) -> String {
    format!("{:#x}", pfn.0)
}

fn fallback(event: &ExtFrag) -> Fallback {
    Fallback {
        pfn: event.pfn,
        alloc_order: event.alloc_order,
        fallback_order: event.fallback_order,
        alloc_migratetype: event.alloc_migratetype,
        fallback_migratetype: event.fallback_migratetype,
        change_ownership: event.change_ownership,
    }
}
