//! One policy with one size of memory, carrying out the steps.
//!
//! Time is that of the recording. The policy's kswapd and kcompactd work in it as in every world
//! ([`world::daemons`](crate::world::daemons)), beside the callers and at the host's own pace
//! ([`Pace`](super::pace::Pace)): their progress until the next request depends on how much later it comes. A caller
//! that reclaims or compacts for itself takes time in which they go on; where it wants a huge page, other processes do,
//! too ([`waiting`](super::waiting)).

use std::collections::VecDeque;
use std::sync::Arc;

use nofrag::cpu::{CpuId, CpuSet};
use nofrag::page::{
    Attempt, FragmentationPolicy, MemoryMap, Next, Outcome, PageAllocator, Reclaim, RequestFlags,
};
use nofrag::units::{Nanos, Order, Pfn};

use super::ReplayError;
use super::fidelity::End;
use super::outcome::{Assumptions, Counts, PolicyRun, Repeat, Sample, Shortage};
use super::owner::Owner;
use super::pace::HostPace;
use super::request::{Request, Use};
use super::settings::Settings;
use super::spans::{FrameIndex, Spans};
use super::standin::{self, Ticket};
use super::start::{Held, Resized, Start};
use super::step::{Step, What};
use super::timeline::{Timeline, sample};
use super::waiting::{Then, Waiter, Waiting};
use crate::world::costs::Costs;
use crate::world::daemons::Daemons;
use crate::world::{Owns, World};

/// Nanoseconds between ticks of statistics (`stat_interval`).
const TICK: u64 = 1_000_000_000;
/// Ticks that are made up for between two events, however far those lie apart.
const MOST_TICKS: u64 = 128;

/// Nanoseconds before an event for which kswapd and kcompactd work: kcompactd looks twice a second, and a damaged time
/// may lie centuries ahead.
const LONGEST_GAP: u64 = 3_600_000_000_000;

/// The description of a run, before it starts.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    /// The policy's name in reports.
    pub(super) name: String,
    pub(super) policy: FragmentationPolicy,
    /// Settings in place of the recorded host's.
    pub(super) settings: Settings,
    pub(super) memory_percent: u32,
    pub(super) seed: u64,
    pub(super) samples: usize,
}

/// Steps, with the pace of the recorded host as far as it is known there.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) steps: Vec<Step>,
    pub(super) pace: Arc<HostPace>,
}

/// A run under way, with its memory and its counts.
#[derive(Debug)]
pub(super) struct Engine {
    spec: Spec,
    world: World<Owner, ()>,
    /// kswapd and kcompactd of each node; `None` before the first step, at whose time they first look for work.
    daemons: Option<Daemons>,
    /// Requests for huge pages that have not been answered yet.
    waiting: Waiting,
    /// By node: the CPU of its kswapd and that of its kcompactd.
    daemon_cpus: Vec<[CpuId; 2]>,
    cpus: CpuSet,
    counts: Counts,
    resized: Resized,
    timeline: Timeline<Sample>,
    /// The time of the next tick of statistics.
    tick: Option<u64>,
    /// Time of the first step in nanoseconds, from which a shortage is timed.
    began: Option<u64>,
    /// When a caller was first refused a block that kernels never refuse, in nanoseconds from the first step, and the
    /// state of memory then.
    shortage: Option<(u64, Shortage)>,
    /// Flags of the recorded kernel's second tries for huge pages, once there has been one.
    second_tries: Option<RequestFlags>,
}

impl Engine {
    /// Creates a run. Each block of `in_use`, held by the recorded host with the memory `map`, lies at its entry of
    /// `start.places`, or is gone if that is `None`.
    pub(super) fn new(
        map: &MemoryMap,
        in_use: &[Held],
        start: Start<()>,
        spec: Spec,
    ) -> Result<Engine, ReplayError> {
        let mut pages = start.pages;
        let (traced, own) = (Spans::of(map), Spans::of_pages(&pages));
        let cpus = map.cpus().clone();
        let cpu = cpus.by_rank(0).ok_or_else(|| ReplayError::Host("the host has no CPU".into()))?;
        let mut owner = Owner::new(traced.clone(), own, &pages, cpu, spec.policy.lru, spec.seed);
        for (held, place) in by_age(&traced, in_use, &start.places) {
            let Some(frame) = traced.index(held.pfn.0) else { continue };
            match place {
                Some(pfn) => owner.adopt(&mut pages, frame, *pfn, use_of(held)),
                None => owner.not_there(frame),
            }
        }
        let nodes = map.nodes().iter();
        let daemon_cpus = nodes.map(|node| {
            let last = node.cpus.last().and_then(|id| cpus.get(*id));
            [last.unwrap_or(cpu); 2]
        });
        Ok(Engine {
            daemon_cpus: daemon_cpus.collect(),
            daemons: None,
            waiting: Waiting::default(),
            counts: Counts::default(),
            resized: start.resized,
            timeline: Timeline::new(spec.samples),
            tick: None,
            began: None,
            shortage: None,
            second_tries: None,
            spec,
            world: World::new(pages, owner, Costs::built_in()),
            cpus,
        })
    }

    pub(super) fn run(&mut self, Batch { steps, pace }: &Batch) {
        self.world.costs = pace.costs;
        self.world.owner.pace = Arc::clone(pace);
        for step in steps {
            self.step(step);
        }
    }

    #[cfg(test)]
    pub(super) fn owner(&self) -> &Owner {
        &self.world.owner
    }

    pub(super) fn pages(&self) -> &PageAllocator {
        &self.world.pages
    }

    pub(super) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Returns the run's description for a report, without results.
    pub(super) fn described(&self) -> PolicyRun {
        PolicyRun {
            policy: self.spec.name.clone(),
            settings: self.spec.settings.by_name(),
            memory_percent: self.spec.memory_percent,
            managed: self.world.pages.zones().map(|zone| zone.managed.get()).sum(),
            repeats: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        self.began.get_or_insert(step.at);
        if self.timeline.is_due(step.at) {
            self.timeline.take(step.at, |at| sample(at, &self.world.pages));
        }
        self.others_until(step.at);
        self.tick(step.at);
        self.take_up(step.at, step);
    }

    /// Lets the bounds of lists of CPUs decay once a second. After [`MOST_TICKS`] they have come to their least.
    fn tick(&mut self, at: u64) {
        let due = self.tick.get_or_insert(at.saturating_add(TICK));
        if at < *due {
            return;
        }
        let ticks = (at - *due) / TICK + 1;
        *due = due.saturating_add(ticks.saturating_mul(TICK));
        for _ in 0..ticks.min(MOST_TICKS) {
            self.world.pages.age_per_cpu();
        }
    }

    /// Carries out a step at `at`, or puts it off.
    fn take_up(&mut self, at: u64, step: &Step) {
        if self.waiting.is_empty() || !self.waiting.puts_off(step) {
            self.carry_out(at, step);
        }
    }

    /// Carries out a step at `at`.
    fn carry_out(&mut self, at: u64, step: &Step) {
        let cpu = self.cpu(step.cpu);
        self.world.owner.turn(cpu, at);
        let World { pages, owner, .. } = &mut self.world;
        match step.what {
            What::Alloc { frame, place: Some(of), .. } if owner.takes_part(of, frame) => {}
            What::Alloc { frame, request, .. } => self.alloc(at, step.pid, frame, &request),
            What::Failed { request, place } => {
                self.request(at, step.pid, &request, Then::StandIn { place });
            }
            What::Again { of, request, frame } => self.again(at, step.pid, of, &request, frame),
            What::PlaceEnds { of } => owner.end_stand_in(pages, of),
            What::Split { frame, from, to } => owner.split(pages, frame, from, to),
            What::Free { frame, by } => {
                self.counts.frees += 1;
                owner.free(pages, frame, by);
            }
            What::Moved { frame, order } => owner.moved(frame, order),
            What::FreeMoved { frame, order, by } => {
                self.counts.frees += 1;
                owner.free_moved(pages, frame, order, by);
            }
            What::Appeared { zone, pages: count } => {
                owner.appeared(pages, usize::from(zone), count);
            }
            What::FoundFree { frame } => owner.free(pages, frame, super::step::By::User),
            What::FoundUsed { frame } => owner.found(pages, frame),
        }
    }

    fn cpu(&self, id: u16) -> CpuId {
        let first = || self.cpus.by_rank(0).expect("a host has a CPU");
        self.cpus.get(u32::from(id)).unwrap_or_else(first)
    }

    fn alloc(&mut self, at: u64, pid: i32, frame: FrameIndex, request: &Request) {
        let second = self.second_tries.filter(|_| standin::is_first_try(request));
        self.request(at, pid, request, Then::Adopt { frame, second });
    }

    /// Asks the policy for a block. A process that is not served a huge page at once waits, and others go on.
    fn request(&mut self, at: u64, pid: i32, request: &Request, then: Then) {
        let may_wait = standin::is_huge(request) && pid != 0 && !self.waiting.is_full();
        let got = match self.begin(at, request) {
            Ok(pfn) => Some(pfn),
            Err(attempt) if may_wait => {
                let owner = &mut self.world.owner;
                let (cpu, place) = (owner.cpu, Some(owner.somewhere()));
                let (request, next, later) = (*request, None, VecDeque::new());
                let waiter = Waiter { pid, cpu, at, request, attempt, next, place, then, later };
                return self.waiting.push(waiter);
            }
            Err(attempt) => self.go_on(at, attempt, None),
        };
        self.answered(at, pid, request, got, then);
    }

    /// Goes on after a request: `got` is the block that the policy gave.
    fn answered(&mut self, at: u64, pid: i32, request: &Request, got: Option<Pfn>, then: Then) {
        self.counts.served[request.order.index()] += u64::from(got.is_some());
        let World { pages, owner, .. } = &mut self.world;
        match (then, got) {
            (Then::Adopt { frame, .. }, Some(pfn)) => self.adopt(frame, pfn, request),
            (Then::Adopt { frame, second: Some(flags) }, None) => {
                // The tries of one fault are one request.
                self.counts.requests[request.order.index()] -= 1;
                let second = Request { flags, ..*request };
                self.request(at, pid, &second, Then::Adopt { frame, second: None });
            }
            (Then::Adopt { frame, second: None }, None) if standin::is_huge(request) => {
                self.in_pieces(at, frame, request);
            }
            (Then::Adopt { frame, second: None }, None) => self.not_served(at, frame, request),
            (Then::StandIn { place: Some(ticket) }, Some(pfn)) => {
                owner.stand_in(pages, ticket, pfn)
            }
            // No single pages follow, and its lifetime is not known.
            (Then::StandIn { place: None }, Some(pfn)) => {
                pages.free(owner.cpu, pfn).expect("it was just handed out");
            }
            (Then::StandIn { .. }, None) => {}
        }
    }

    /// Lets a waiter act once, at its time.
    fn act(&mut self, number: usize) {
        let mut waiter = self.waiting.take(number);
        self.world.bill();
        self.world.owner.turn(waiter.cpu, waiter.at);
        let outcome = self.done(&mut waiter.at, &waiter.attempt, waiter.next);
        let at = waiter.at;
        let got = match waiter.attempt.advance(&mut self.world.pages, Nanos(at), outcome) {
            Next::Done(pfn) => Some(pfn),
            Next::Fail(_) => None,
            next => {
                let work = self.world.bill();
                let elapsed = self.world.owner.elapses_for_caller(work, &mut waiter.place);
                (waiter.next, waiter.at) = (Some(next), at.saturating_add(elapsed.max(1)));
                return self.waiting.push(waiter);
            }
        };
        self.answered(at, waiter.pid, &waiter.request, got, waiter.then);
        self.catch_up(at, waiter.pid, waiter.later);
    }

    /// Takes the action that an attempt asks for; a wait ends at `now`.
    fn done(&mut self, now: &mut u64, attempt: &Attempt, next: Option<Next>) -> Outcome {
        let World { pages, owner, .. } = &mut self.world;
        match next {
            Some(Next::Reclaim(wanted)) => Outcome::Reclaimed(owner.reclaim(pages, wanted)),
            Some(Next::Migrate(moves)) => Outcome::Migrated(moves.carry_out(owner)),
            Some(Next::Stall { until }) => {
                *now = self.wait(attempt, *now, until.0);
                Outcome::Waited
            }
            None | Some(Next::Done(_) | Next::Fail(_)) => Outcome::Begin,
        }
    }

    /// Carries out what was put off while a process waited, until it waits again.
    fn catch_up(&mut self, at: u64, pid: i32, mut later: VecDeque<Step>) {
        loop {
            if let Some(waiter) = self.waiting.of(pid) {
                later.append(&mut waiter.later);
                waiter.later = later;
                return;
            }
            let Some(step) = self.waiting.take_up(&mut later) else { return };
            self.take_up(at.max(step.at), &step);
        }
    }

    fn not_served(&mut self, at: u64, frame: FrameIndex, request: &Request) {
        self.world.owner.not_served(frame);
        // Kernels go on for a small block until there is one, and kill a process for it.
        let may_fail = [RequestFlags::NO_RETRY, RequestFlags::RETRY_MAYFAIL];
        let goes_on = request.flags.has(RequestFlags::DIRECT_RECLAIM)
            && !may_fail.into_iter().any(|flag| request.flags.has(flag))
            && request.order <= Order::COSTLY;
        if goes_on {
            let at = at.saturating_sub(self.began.unwrap_or(at));
            if self.shortage.is_none() {
                self.shortage = Some((at, self.shortage()));
            }
        }
    }

    /// Returns the state of memory at a shortage. O(pageblocks).
    fn shortage(&self) -> Shortage {
        let World { pages, owner, .. } = &self.world;
        let sum =
            |of: fn(&nofrag::page::ZoneInfo) -> u64| pages.zones().map(|zone| of(&zone)).sum();
        let movable: u64 = pages.pageblocks().map(|block| block.movable.get()).sum();
        let (managed, free): (u64, u64) =
            (sum(|zone| zone.managed.get()), sum(|zone| zone.free.get()));
        let (on_lists, cache) = (
            pages.zones().map(|zone| pages.per_cpu_pages(zone.id).get()).sum(),
            owner.cache(pages),
        );
        Shortage {
            direct_reclaims: pages.counters().direct_reclaims,
            managed,
            kernel: managed - free - on_lists - movable,
            processes: movable.saturating_sub(cache),
            cache,
            free,
            on_lists,
        }
    }

    fn adopt(&mut self, frame: FrameIndex, pfn: Pfn, request: &Request) {
        self.world.owner.adopt(&mut self.world.pages, frame, pfn, request.used);
    }

    /// Asks for single pages in place of a huge page that the recorded kernel had and the policy refused.
    fn in_pieces(&mut self, at: u64, frame: FrameIndex, huge: &Request) {
        let flags = RequestFlags::RECLAIM.with(RequestFlags::CMA);
        let page = Request { order: Order::ZERO, flags, ..*huge };
        for frame in (frame..).take(huge.order.pages() as usize) {
            match self.ask(at, &page) {
                Some(pfn) => self.adopt(frame, pfn, &page),
                None => self.not_served(at, frame, &page),
            }
        }
        self.world.owner.goes_on_in_pieces(frame, huge.order);
    }

    /// Goes on with a fault whose first try the recorded kernel refused: the policy is asked again if it did so, too.
    fn again(
        &mut self,
        at: u64,
        pid: i32,
        of: Ticket,
        request: &Request,
        frame: Option<FrameIndex>,
    ) {
        self.second_tries = Some(request.flags);
        match (self.world.owner.stands_in(of), frame) {
            (Some(pfn), Some(frame)) => {
                self.world.owner.no_longer_stands_in(of);
                self.adopt(frame, pfn, request);
            }
            (Some(_), None) => {}
            (None, Some(frame)) => self.alloc(at, pid, frame, request),
            (None, None) => self.request(at, pid, request, Then::StandIn { place: Some(of) }),
        }
    }

    /// Requests a block from the policy, with the reclaim, compaction and waits of its slow path; `None` if it is
    /// refused.
    fn ask(&mut self, at: u64, request: &Request) -> Option<Pfn> {
        let got = match self.begin(at, request) {
            Ok(pfn) => Some(pfn),
            Err(attempt) => self.go_on(at, attempt, None),
        };
        self.counts.served[request.order.index()] += u64::from(got.is_some());
        got
    }

    /// Requests a block from the policy's fast path.
    fn begin(&mut self, at: u64, request: &Request) -> Result<Pfn, Box<Attempt>> {
        self.counts.requests[request.order.index()] += 1;
        let World { pages, owner, .. } = &mut self.world;
        let got = pages.alloc(Nanos(at), owner.cpu, request.page_request());
        self.counts.slow[request.order.index()] += u64::from(got.is_err());
        got.map_err(Box::new)
    }

    /// Goes on with a request that the fast path did not serve, while no other process does; `None` if it is refused.
    fn go_on(&mut self, at: u64, mut attempt: Box<Attempt>, mut next: Option<Next>) -> Option<Pfn> {
        let (mut now, cpu) = (at, self.world.owner.cpu);
        loop {
            self.world.bill();
            let outcome = self.done(&mut now, &attempt, next);
            next = match attempt.advance(&mut self.world.pages, Nanos(now), outcome) {
                Next::Done(pfn) => return Some(pfn),
                Next::Fail(_) => return None,
                next => Some(next),
            };
            now = now.saturating_add(self.world.bill());
            self.daemons_until(now);
            self.world.owner.turn(cpu, now);
        }
    }

    /// Lets kswapd and kcompactd work from `now` until a stalled caller may go on, at most until `until`; returns the
    /// time at which it goes on.
    fn wait(&mut self, attempt: &Attempt, mut now: u64, until: u64) -> u64 {
        while now < until && !attempt.may_resume(&self.world.pages) {
            self.tell_others(now);
            let next = self.daemons.as_ref().and_then(Daemons::next);
            let Some((number, at)) = next.filter(|(_, at)| *at < until) else { return until };
            let daemons = self.daemons.as_mut().expect("there is a next one");
            now = now.max(daemons.step(number, &mut self.world, at));
        }
        now.min(until)
    }

    /// Wakes the background machines at `now` if the engine has asked for them.
    fn tell_others(&mut self, now: u64) {
        let cpus = &self.daemon_cpus;
        let daemons = self.daemons.get_or_insert_with(|| Daemons::new(cpus.iter().copied(), now));
        if self.world.has_woken() {
            self.world.told();
            daemons.wake(now);
        }
    }

    /// Lets kswapd, kcompactd and whoever waits for a huge page work until `now`.
    fn others_until(&mut self, now: u64) {
        while let Some((number, at)) = self.waiting.next().filter(|(_, at)| *at <= now) {
            self.daemons_until(at);
            self.act(number);
        }
        self.daemons_until(now);
    }

    /// Lets kswapd and kcompactd work until `now`.
    fn daemons_until(&mut self, now: u64) {
        self.tell_others(now);
        let daemons = self.daemons.as_mut().expect("they have been told");
        let from = now.saturating_sub(LONGEST_GAP);
        if daemons.next().is_some_and(|(_, at)| at < from) {
            daemons.skip_to(from);
        }
        if daemons.next().is_some_and(|(_, at)| at <= now) {
            daemons.run_until(&mut self.world, now);
        }
    }

    /// Answers whoever waits, and takes the last sample of the run, at its end.
    pub(super) fn finish(&mut self, at: u64) {
        while !self.waiting.is_empty() {
            let Waiter { pid, cpu, at, request, attempt, next, then, later, .. } =
                self.waiting.take(0);
            self.world.owner.turn(cpu, at);
            let got = self.go_on(at, attempt, next);
            self.answered(at, pid, &request, got, then);
            self.catch_up(at, pid, later);
        }
        self.timeline.finish(at, |at| sample(at, &self.world.pages));
    }

    /// Returns the result. `paired` holds the assumptions that all runs share.
    pub(super) fn outcome(&self, paired: &Assumptions, wall_nanos: u64) -> Repeat {
        let noted = self.world.owner.noted;
        Repeat {
            counts: self.counts(),
            large_at_end: End::of(&self.world.pages).large_blocks(),
            out_of_memory: self.shortage.map(|(at, _)| at),
            shortage: self.shortage.map(|(_, shortage)| shortage),
            assumptions: Assumptions {
                not_served: noted.not_served,
                reclaimed_before: noted.reclaimed_before,
                stood_in: noted.stood_in,
                in_pieces: noted.in_pieces,
                dropped_at_start: self.resized.dropped,
                swapped_at_start: self.resized.swapped,
                displaced_at_start: self.resized.displaced,
                ..paired.clone()
            },
            timeline: self.timeline.samples(),
            wall_nanos,
        }
    }

    fn counts(&self) -> Counts {
        let counters = self.world.pages.counters();
        Counts {
            extfrag: counters.extfrag.map(|row| row.iter().sum()),
            serious: counters.serious,
            mistyped: counters.mistyped,
            claims: counters.claims,
            moved: counters.moved,
            compactions: counters.compact_stalls,
            compactions_succeeded: counters.compact_successes,
            compactions_put_off: counters.compact_put_off,
            reclaimed_direct: counters.reclaimed_direct,
            reclaimed_kswapd: counters.reclaimed_kswapd,
            direct_reclaims: counters.direct_reclaims,
            kswapd_wakes: counters.kswapd_wakes,
            boosts: counters.boosts,
            stalls: counters.stalls,
            stalled_nanos: counters.stalled.get(),
            ..self.counts.clone()
        }
    }
}

/// Returns blocks in use at the start and their places (`None` for a block that has none), the oldest first: blocks
/// used of late are younger than others, and of either kind a node's low zones are younger than its high ones, as
/// requests come to them when those are full.
pub(super) fn by_age<'a>(
    traced: &'a Spans,
    in_use: &'a [Held],
    places: &'a [Option<Pfn>],
) -> impl Iterator<Item = (&'a Held, &'a Option<Pfn>)> {
    let of_zone = move |zone| {
        let frames = traced.of_zone(zone);
        // Zones do not overlap, and blocks are in ascending order.
        let last = frames.clone().next_back();
        let blocks = last.map_or(0..0, |last| {
            let start = in_use.partition_point(|held| held.pfn.0 < traced.pfn(frames.start));
            start..start + in_use[start..].partition_point(|held| held.pfn.0 <= traced.pfn(last))
        });
        in_use[blocks.clone()].iter().zip(&places[blocks])
    };
    [false, true].into_iter().flat_map(move |is_active| {
        let zones = (0..traced.zones()).rev();
        zones.flat_map(of_zone).filter(move |(held, _)| held.is_active == is_active)
    })
}

/// Returns the use of a block that was held at the start. Pages of files that processes have mapped are in use again
/// and again without an event, and kernels pass them by: they stay.
pub(super) fn use_of(held: &Held) -> Use {
    use nofrag_host::snapshot::FrameUse;
    match held.usage {
        FrameUse::File if held.order < Order::PAGEBLOCK && !held.is_mapped => Use::Cache,
        usage if usage.is_movable() => Use::Movable,
        _ => Use::Fixed,
    }
}
