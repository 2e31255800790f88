//! The background machines: kswapd and kcompactd of each node, each on a CPU of its own and in its own time.
//!
//! A background machine with nothing to do has no clock until it is woken, at the clock of whoever wakes it. The work
//! of one step is done at once and paid for afterwards, so steps are small: a batch of reclaim, a pageblock of
//! scanning.

use nofrag::cpu::CpuId;
use nofrag::event::EventSink;
use nofrag::page::{Kcompactd, Kswapd, NodeId, PageBudget, PageProgress};
use nofrag::units::Nanos;

use super::{Owns, World};

/// A background machine on a CPU of its own.
#[derive(Debug)]
struct Daemon {
    cpu: CpuId,
    /// The time of its next step; `None` while it sleeps.
    due: Option<u64>,
    /// The end of its last step, before which it cannot move.
    busy_until: u64,
    /// Its place among the pauses of the host; `None` after it has slept.
    place: Option<usize>,
    work: Work,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are two for each node")]
enum Work {
    Kswapd(Kswapd),
    Kcompactd(Kcompactd),
}

impl Daemon {
    fn new(cpu: CpuId, work: Work) -> Daemon {
        Daemon { cpu, due: None, busy_until: 0, place: None, work }
    }

    /// Does one step and sets the time of the next.
    fn step<O: Owns<S>, S: EventSink>(&mut self, world: &mut World<O, S>, now: u64) {
        world.owner.turn(self.cpu, now);
        if now > self.busy_until {
            self.place = None;
        }
        let at = Nanos(now);
        let progress: PageProgress = match &mut self.work {
            Work::Kswapd(kswapd) => {
                let budget = PageBudget { pages: world.costs.kswapd_step_pages };
                kswapd.step(at, &mut world.pages, &mut world.owner, budget)
            }
            Work::Kcompactd(kcompactd) => {
                let budget = PageBudget { pages: world.costs.kcompactd_step_frames };
                kcompactd.step(at, &mut world.pages, &mut world.owner, budget)
            }
        };
        // A step takes time even if it found nothing: else a machine that asks for more would stop the clock.
        let work = world.bill().max(world.costs.list_visit);
        let took = world.owner.elapses(work, &mut self.place).max(world.costs.list_visit);
        let end = now.saturating_add(took);
        self.busy_until = end;
        // At the end of time nobody is woken, or there would be no end to the wakes.
        let wakes = progress.wake_at.map(|at| at.0.max(end)).filter(|at| *at < u64::MAX);
        self.due = if progress.more { Some(end) } else { wakes };
    }
}

/// The background machines of all nodes.
#[derive(Debug)]
pub(crate) struct Daemons {
    all: Vec<Daemon>,
    /// The number of the background machine that moves first, and the time; `None` if all sleep.
    next: Option<(usize, u64)>,
}

impl Daemons {
    /// Creates kswapd and kcompactd of each node; `cpus` has their two CPUs, in this order, node by node. kcompactd
    /// looks once at `now`, to learn when it wants to look next.
    pub(crate) fn new(cpus: impl IntoIterator<Item = [CpuId; 2]>, now: u64) -> Daemons {
        let mut all = Vec::new();
        for (node, [kswapd, kcompactd]) in cpus.into_iter().enumerate() {
            let node = NodeId(node as u8);
            all.push(Daemon::new(kswapd, Work::Kswapd(Kswapd::new(node))));
            let machine = Work::Kcompactd(Kcompactd::new(node).on(kcompactd));
            all.push(Daemon { due: Some(now), ..Daemon::new(kcompactd, machine) });
        }
        let mut daemons = Daemons { all, next: None };
        daemons.find_next();
        daemons
    }

    /// Returns the number of the background machine that moves first, and the time; `None` if all sleep. O(1).
    pub(crate) fn next(&self) -> Option<(usize, u64)> {
        self.next
    }

    /// Returns the time of each background machine's next step, in the order of their numbers; `None` for one that
    /// sleeps.
    pub(crate) fn dues(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.all.iter().map(|daemon| daemon.due)
    }

    /// Moves one of them at `now`; returns the end of its step.
    pub(crate) fn step<O: Owns<S>, S: EventSink>(
        &mut self,
        number: usize,
        world: &mut World<O, S>,
        now: u64,
    ) -> u64 {
        let daemon = &mut self.all[number];
        daemon.step(world, now);
        let end = daemon.busy_until;
        self.find_next();
        end
    }

    /// Makes all background machines look for work after a wake, at `now` or when their last step has ended.
    pub(crate) fn wake(&mut self, now: u64) {
        for daemon in &mut self.all {
            let now = now.max(daemon.busy_until);
            daemon.due = Some(daemon.due.map_or(now, |due| due.min(now)));
        }
        self.find_next();
    }

    /// Lets the time before `at` pass without work.
    pub(crate) fn skip_to(&mut self, at: u64) {
        for due in self.all.iter_mut().filter_map(|daemon| daemon.due.as_mut()) {
            *due = at.max(*due);
        }
        self.find_next();
    }

    /// Moves all background machines until each has passed `now`; nobody is billed for work counted before.
    pub(crate) fn run_until<O: Owns<S>, S: EventSink>(
        &mut self,
        world: &mut World<O, S>,
        now: u64,
    ) {
        while let Some((number, at)) = self.next.filter(|(_, at)| *at <= now) {
            world.bill();
            let end = self.step(number, world, at);
            if world.has_woken() {
                world.told();
                self.wake(end);
            }
        }
    }

    /// Ends all of them, which release what they had set aside.
    pub(crate) fn give_up<O: Owns<S>, S: EventSink>(&mut self, world: &mut World<O, S>) {
        for daemon in self.all.drain(..) {
            match daemon.work {
                Work::Kswapd(kswapd) => kswapd.abandon(&mut world.pages),
                Work::Kcompactd(kcompactd) => kcompactd.abandon(&mut world.pages),
            }
        }
        self.next = None;
    }

    fn find_next(&mut self) {
        let dues = self.all.iter().enumerate();
        let dues = dues.filter_map(|(number, daemon)| Some((number, daemon.due?)));
        self.next = dues.min_by_key(|(_, due)| *due);
    }
}
