//! One policy with one size of memory, and what it does with the steps.
//!
//! Time is that of the recording, which says in what order things happened and, where the host was emulated, nothing of
//! how fast. So the policy's kswapd and kcompactd do not have a speed either: each time that something is asked for
//! they may do so much as [`KSWAPD_PAGES`] and [`KCOMPACTD_FRAMES`] say, which lets them keep up with a workload as
//! they do on real machines, and no more.

use nofrag::cpu::{CpuId, CpuSet};
use nofrag::page::{
    Attempt, FragmentationPolicy, Kcompactd, Kswapd, MemoryMap, Next, NodeId, Outcome,
    PageAllocator, PageBudget, Reclaim,
};
use nofrag::units::{Nanos, Order};

use super::ReplayError;
use super::outcome::{Assumptions, Counts, PolicyRun};
use super::owner::{Asks, Housekeeping, Owner};
use super::request::{Request, Use};
use super::spans::{FrameIndex, Spans};
use super::start::{Held, Resized, Start};
use super::step::{Step, What};
use super::timeline::Timeline;

/// Pages that kswapd may reclaim for each request while it is awake.
const KSWAPD_PAGES: u64 = 32;

/// Frames that kcompactd may look at for each request while it has work. Of 16, 64 and 512, with 8 or 32 pages for
/// kswapd, this pair comes nearest to the shared recording's direct compactions; with more, kcompactd leaves callers
/// nothing to do. So that figure of the fidelity is fitted, and vouches for nothing.
const KCOMPACTD_FRAMES: u64 = 16;

/// What a page that kswapd reclaims takes while a caller waits for it (patch 5), in nanoseconds: it decides how long
/// such waits last. The same as in `extfrag-2018`.
const RECLAIM_PAGE_NANOS: u64 = 1000;

/// Which run this is.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    /// The policy's name in reports.
    pub(super) name: String,
    pub(super) policy: FragmentationPolicy,
    pub(super) memory_percent: u32,
    pub(super) housekeeping: Housekeeping,
    pub(super) samples: usize,
}

/// A run under way.
#[derive(Debug)]
pub(super) struct Engine {
    spec: Spec,
    pages: PageAllocator,
    owner: Owner,
    cpus: CpuSet,
    kswapds: Vec<Dozing>,
    kcompactds: Vec<Background>,
    /// How often kcompactd was woken when it was last stepped.
    kcompactd_wakes: u64,
    /// A time at or before that at which some kcompactd wants to look again.
    look_at: u64,
    counts: Counts,
    resized: Resized,
    timeline: Timeline,
}

/// A kswapd, and when it looks again if it dozes.
#[derive(Debug)]
struct Dozing {
    machine: Kswapd,
    due: Option<Nanos>,
}

/// A kcompactd and when it has something to do.
#[derive(Debug)]
struct Background {
    machine: Kcompactd,
    due: u64,
}

impl Engine {
    /// The run at its start: `in_use` was where `start` says on the host with the memory of `map`.
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
        let mut owner = Owner::new(traced.clone(), own, &pages, cpu, spec.housekeeping);
        for (held, place) in in_use.iter().zip(start.places) {
            let Some(frame) = traced.index(held.pfn.0) else { continue };
            match place {
                Some(pfn) => owner.adopt(&mut pages, frame, pfn, use_of(held)),
                None => owner.not_there(frame),
            }
        }
        let nodes = (0..map.nodes().len()).map(|node| NodeId(node as u8));
        let background = |node| Background { machine: Kcompactd::new(node), due: 0 };
        Ok(Engine {
            kswapds: nodes
                .clone()
                .map(|node| Dozing { machine: Kswapd::new(node), due: None })
                .collect(),
            kcompactds: nodes.map(background).collect(),
            kcompactd_wakes: pages.counters().kcompactd_wakes,
            look_at: 0,
            counts: Counts::default(),
            resized: start.resized,
            timeline: Timeline::new(spec.samples),
            spec,
            pages,
            owner,
            cpus,
        })
    }

    /// Does all of these.
    pub(super) fn run(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
    }

    #[cfg(test)]
    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The policy's memory.
    pub(super) fn pages(&self) -> &PageAllocator {
        &self.pages
    }

    /// What this run is.
    pub(super) fn spec(&self) -> &Spec {
        &self.spec
    }

    fn step(&mut self, step: &Step) {
        if self.timeline.is_due(step.at) {
            self.timeline.take(step.at, &self.pages);
        }
        self.owner.cpu = self.cpu(step.cpu);
        let (pages, owner) = (&mut self.pages, &mut self.owner);
        match step.what {
            What::Alloc { frame, request } => self.alloc(step.at, frame, &request),
            What::Failed { request } => self.failed(step.at, &request),
            What::Split { frame, from, to } => owner.split(pages, frame, from, to),
            What::Free { frame, by } => {
                self.counts.frees += 1;
                owner.free(pages, frame, by);
            }
            What::Moved { frame, order } => owner.moved(pages, frame, order),
            What::MovedAgain { frame, order } => owner.moved_again(pages, frame, order),
            What::FreeMoved { frame, order, by } => {
                self.counts.frees += 1;
                owner.free_moved(pages, frame, order, by);
            }
            What::Appeared { zone, pages: count } => {
                owner.appeared(pages, usize::from(zone), count);
            }
            What::CompactionBegins { free, .. } => owner.scan_from(free),
            What::CompactionEnds if self.spec.housekeeping == Housekeeping::AsRecorded => {
                // A run ends with the lists of its CPU drained, so that what it freed is whole.
                let cpu = owner.cpu;
                pages.drain(cpu);
            }
            What::CompactionEnds => {}
            What::KswapdEnds { node } => self.kswapd_ends(step.at, node),
            What::FoundFree { frame } => owner.free(pages, frame, super::step::By::User),
            What::FoundUsed { frame } => owner.found(pages, frame),
        }
    }

    fn cpu(&self, id: u16) -> CpuId {
        let first = || self.cpus.by_rank(0).expect("a host has a CPU");
        self.cpus.get(u32::from(id)).unwrap_or_else(first)
    }

    fn alloc(&mut self, at: u64, frame: FrameIndex, request: &Request) {
        match self.ask(at, request) {
            Some(pfn) => self.owner.adopt(&mut self.pages, frame, pfn, request.used),
            None => self.owner.not_served(frame),
        }
        self.background(at);
    }

    /// The recorded kernel did not serve it, and its caller went on without. If the policy does, the block is given
    /// back at once: how long it would have been kept is not known.
    fn failed(&mut self, at: u64, request: &Request) {
        if let Some(pfn) = self.ask(at, request) {
            self.pages.free(self.owner.cpu, pfn).expect("it was just handed out");
        }
        self.background(at);
    }

    /// Asks the policy, and does for it what it asks for.
    fn ask(&mut self, at: u64, request: &Request) -> Option<nofrag::units::Pfn> {
        let order = usize::from(request.order.get());
        self.counts.requests[order] += 1;
        let got = match self.pages.alloc(Nanos(at), self.owner.cpu, request.page_request()) {
            Ok(pfn) => Some(pfn),
            Err(attempt) => {
                self.counts.slow[order] += 1;
                self.go_on(at, attempt)
            }
        };
        self.counts.served[order] += u64::from(got.is_some());
        got
    }

    fn go_on(&mut self, at: u64, mut attempt: Attempt) -> Option<nofrag::units::Pfn> {
        let mut now = Nanos(at);
        let mut outcome = Outcome::Begin;
        loop {
            outcome = match attempt.advance(&mut self.pages, now, outcome) {
                Next::Done(pfn) => return Some(pfn),
                Next::Fail(_) => return None,
                Next::Reclaim(wanted) => {
                    self.owner.asks = Asks::Caller;
                    Outcome::Reclaimed(self.owner.reclaim(&mut self.pages, wanted))
                }
                Next::Migrate(moves) => Outcome::Migrated(moves.carry_out(&mut self.owner)),
                Next::Stall { until } => {
                    now = self.wait(&attempt, now, until);
                    Outcome::Waited
                }
            };
        }
    }

    /// Lets kswapd work until the caller may go on, or its time is over; when that is.
    fn wait(&mut self, attempt: &Attempt, mut now: Nanos, until: Nanos) -> Nanos {
        while now < until && !attempt.may_resume(&self.pages) {
            let reclaimed = self.kswapd(now);
            if reclaimed == 0 && !attempt.may_resume(&self.pages) {
                return until;
            }
            now = Nanos(until.0.min(now.0 + reclaimed.max(1) * RECLAIM_PAGE_NANOS));
        }
        now
    }

    /// Lets kswapd and kcompactd do their share.
    fn background(&mut self, at: u64) {
        let own = self.spec.housekeeping == Housekeeping::Own;
        if own || self.owner.has_credit() {
            self.kswapd(Nanos(at));
        }
        let woken = self.pages.counters().kcompactd_wakes != self.kcompactd_wakes;
        if own && (woken || self.look_at <= at) {
            self.kcompactd(at);
        }
    }

    /// Steps every kswapd that is awake, or has dozed for long enough; pages reclaimed.
    fn kswapd(&mut self, now: Nanos) -> u64 {
        let mut reclaimed = 0;
        self.owner.asks = Asks::Kswapd;
        for (node, kswapd) in self.kswapds.iter_mut().enumerate() {
            let awake = self.pages.kswapd(NodeId(node as u8)).is_some_and(|info| info.awake);
            if awake || kswapd.due.is_some_and(|due| due <= now) {
                let budget = PageBudget { pages: KSWAPD_PAGES };
                let (pages, owner) = (&mut self.pages, &mut self.owner);
                let progress = kswapd.machine.step(now, pages, owner, budget);
                reclaimed += progress.pages;
                kswapd.due = progress.wake_at;
            }
        }
        self.owner.asks = Asks::Caller;
        reclaimed
    }

    /// The recorded kernel's kswapd is done. Where its reclaim is carried out, this one is too: what it has not been
    /// told of is all there is.
    fn kswapd_ends(&mut self, at: u64, node: u8) {
        if self.spec.housekeeping == Housekeeping::Own {
            return;
        }
        let is_awake =
            |pages: &PageAllocator| pages.kswapd(NodeId(node)).is_some_and(|info| info.awake);
        while is_awake(&self.pages) {
            let had_credit = self.owner.has_credit();
            self.kswapd(Nanos(at));
            if !had_credit {
                break;
            }
        }
    }

    fn kcompactd(&mut self, at: u64) {
        let woken = self.pages.counters().kcompactd_wakes != self.kcompactd_wakes;
        self.kcompactd_wakes = self.pages.counters().kcompactd_wakes;
        for background in &mut self.kcompactds {
            if !woken && background.due > at {
                continue;
            }
            let budget = PageBudget { pages: KCOMPACTD_FRAMES };
            let (pages, owner) = (&mut self.pages, &mut self.owner);
            let progress = background.machine.step(Nanos(at), pages, owner, budget);
            background.due = match (progress.more, progress.wake_at) {
                (true, _) => at,
                (false, Some(wake_at)) => wake_at.0,
                (false, None) => u64::MAX,
            };
        }
        self.look_at = self.kcompactds.iter().map(|one| one.due).min().unwrap_or(u64::MAX);
    }

    /// Ends the run.
    pub(super) fn finish(&mut self, at: u64) {
        self.timeline.finish(at, &self.pages);
    }

    /// What came of it. `paired` is what was assumed for all runs.
    pub(super) fn outcome(&self, paired: &Assumptions, wall_nanos: u64) -> PolicyRun {
        let noted = self.owner.noted;
        PolicyRun {
            policy: self.spec.name.clone(),
            memory_percent: self.spec.memory_percent,
            managed: self.pages.zones().map(|zone| zone.managed.get()).sum(),
            counts: self.counts(),
            assumptions: Assumptions {
                not_served: noted.not_served,
                reclaimed_before: noted.reclaimed_before,
                dropped_at_start: self.resized.dropped,
                swapped_at_start: self.resized.swapped,
                displaced_at_start: self.resized.displaced,
                ..paired.clone()
            },
            timeline: self.timeline.samples().to_vec(),
            wall_nanos,
        }
    }

    fn counts(&self) -> Counts {
        let counters = self.pages.counters();
        Counts {
            extfrag: counters.extfrag.map(|row| row.iter().sum()),
            serious: counters.serious,
            mistyped: counters.mistyped,
            claims: counters.claims,
            moved: counters.moved,
            compactions: counters.compact_stalls,
            compactions_succeeded: counters.compact_successes,
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

/// What a block that was in use at the start can be asked for.
fn use_of(held: &Held) -> Use {
    use nofrag_host::snapshot::FrameUse;
    match held.usage {
        FrameUse::File if held.order < Order::PAGEBLOCK => Use::Cache,
        usage if usage.is_movable() => Use::Movable,
        _ => Use::Fixed,
    }
}
