//! Who moves next: always the CPU whose clock is furthest behind.
//!
//! Threads and background machines (kswapd and kcompactd of each node) have CPUs of their own, and a clock each. A
//! machine with nothing to do has no clock until it is woken, which happens at the time of the one who woke it. The
//! work of one step is done at once and paid for afterwards, so steps are small: a request, a batch of reclaim, a
//! pageblock of scanning. Chance enters by the time that threads take for their own work alone, and the generators of
//! that are seeded; ties go to the lower number. So a run is the same on every machine.

use nofrag::cpu::CpuId;
use nofrag::page::{Kcompactd, Kswapd, PageBudget, PageProgress};
use nofrag::units::Nanos;

use super::World;
use super::actor::{Actor, OutOfMemory, State};

/// A background machine on a CPU of its own.
#[derive(Debug)]
pub(crate) struct Daemon {
    cpu: CpuId,
    /// When it moves next; `None` while it sleeps.
    due: Option<u64>,
    /// The end of its last step: it cannot move before.
    busy_until: u64,
    machine: Background,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are two for each node")]
enum Background {
    Kswapd(Kswapd),
    Kcompactd(Kcompactd),
}

impl Daemon {
    pub(crate) fn kswapd(cpu: CpuId, machine: Kswapd) -> Daemon {
        Daemon { cpu, due: None, busy_until: 0, machine: Background::Kswapd(machine) }
    }

    pub(crate) fn kcompactd(cpu: CpuId, machine: Kcompactd) -> Daemon {
        // Looks once at the start, to learn when it wants to look next.
        Daemon { cpu, due: Some(0), busy_until: 0, machine: Background::Kcompactd(machine) }
    }

    fn step(&mut self, world: &mut World, now: u64) {
        world.owner.turn(self.cpu, now);
        let at = Nanos(now);
        let progress: PageProgress = match &mut self.machine {
            Background::Kswapd(kswapd) => {
                let budget = PageBudget { pages: world.costs.kswapd_step_pages };
                kswapd.step(at, &mut world.pages, &mut world.owner, budget)
            }
            Background::Kcompactd(kcompactd) => {
                let budget = PageBudget { pages: world.costs.kcompactd_step_frames };
                kcompactd.step(at, &mut world.pages, &mut world.owner, budget)
            }
        };
        // A step takes time even if it found nothing: else a machine that asks for more would stop the clock.
        let end = now + world.bill().max(world.costs.list_visit);
        self.busy_until = end;
        self.due = if progress.more { Some(end) } else { progress.wake_at.map(|at| at.0.max(end)) };
    }
}

/// All CPUs that do something.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) actors: Vec<Actor>,
    daemons: Vec<Daemon>,
    /// The clock of the one that moved last.
    pub(crate) now: u64,
    samples: Samples,
}

/// Which CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Actor(usize),
    Daemon(usize),
}

impl Schedule {
    /// Ends the background machines, with nothing set aside any more.
    pub(crate) fn give_up_daemons(&mut self, world: &mut World) {
        for daemon in self.daemons.drain(..) {
            if let Background::Kcompactd(kcompactd) = daemon.machine {
                kcompactd.abandon(&mut world.pages);
            }
        }
    }

    pub(crate) fn new(daemons: Vec<Daemon>) -> Schedule {
        Schedule { actors: Vec::new(), daemons, now: 0, samples: Samples::new() }
    }

    /// Runs everybody until every clock has reached `end`.
    pub(crate) fn run_until(&mut self, world: &mut World, end: u64) -> Result<(), OutOfMemory> {
        while let Some((who, at, horizon)) = self.next() {
            if at >= end {
                break;
            }
            self.run(world, who, at, horizon.min(end))?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Runs everybody until the actors of these numbers are done.
    pub(crate) fn run_to_end(
        &mut self,
        world: &mut World,
        actors: std::ops::Range<usize>,
    ) -> Result<(), OutOfMemory> {
        while self.actors[actors.clone()].iter().any(|actor| actor.state != State::Done) {
            let (who, at, horizon) = self.next().expect("somebody is not done");
            self.run(world, who, at, horizon)?;
        }
        Ok(())
    }

    /// Boost of all zones at even distances of virtual time.
    pub(crate) fn into_samples(self) -> Vec<f64> {
        self.samples.values
    }

    /// The CPU that is furthest behind, its clock, and the clock of the next one.
    fn next(&self) -> Option<(Who, u64, u64)> {
        let mut first: Option<(Who, u64)> = None;
        let mut horizon = u64::MAX;
        let actors = self.actors.iter().enumerate();
        let actors = actors.map(|(index, actor)| (Who::Actor(index), actor.ready_at()));
        let daemons = self.daemons.iter().enumerate();
        let daemons = daemons.map(|(index, daemon)| (Who::Daemon(index), daemon.due));
        for (who, clock) in actors.chain(daemons) {
            let Some(clock) = clock else { continue };
            match first {
                Some((_, least)) if least <= clock => horizon = horizon.min(clock),
                _ => {
                    horizon = first.map_or(horizon, |(_, least)| least);
                    first = Some((who, clock));
                }
            }
        }
        first.map(|(who, at)| (who, at, horizon))
    }

    /// Moves one CPU until it has passed the next one, is done, or has woken somebody.
    fn run(
        &mut self,
        world: &mut World,
        who: Who,
        at: u64,
        horizon: u64,
    ) -> Result<(), OutOfMemory> {
        self.now = self.now.max(at);
        self.samples.take(self.now, || world.boost());
        let after = match who {
            Who::Actor(index) => {
                let actor = &mut self.actors[index];
                loop {
                    actor.step(world)?;
                    let ready = actor.state == State::Ready && actor.clock <= horizon;
                    if !ready || world.has_woken() {
                        break;
                    }
                }
                actor.clock
            }
            Who::Daemon(index) => {
                self.daemons[index].step(world, at);
                let end = self.daemons[index].busy_until;
                self.actors.iter_mut().for_each(|actor| actor.wake(world, end));
                end
            }
        };
        if world.has_woken() {
            world.told();
            self.wake_daemons(after.min(horizon.max(at)));
        }
        Ok(())
    }

    fn wake_daemons(&mut self, now: u64) {
        for daemon in &mut self.daemons {
            let now = now.max(daemon.busy_until);
            daemon.due = Some(daemon.due.map_or(now, |due| due.min(now)));
        }
    }
}

/// A value over time, at distances that double when there are too many.
#[derive(Debug)]
struct Samples {
    values: Vec<f64>,
    every: u64,
    next: u64,
}

impl Samples {
    const MOST: usize = 512;
    const FIRST_DISTANCE_NS: u64 = 1_000_000;

    fn new() -> Samples {
        Samples { values: Vec::new(), every: Samples::FIRST_DISTANCE_NS, next: 0 }
    }

    fn take(&mut self, now: u64, value: impl Fn() -> u64) {
        while self.next <= now {
            if self.values.len() == Samples::MOST {
                let mut even = false;
                self.values.retain(|_| {
                    even = !even;
                    even
                });
                self.every *= 2;
                self.next = self.values.len() as u64 * self.every;
                continue;
            }
            self.values.push(value() as f64);
            self.next += self.every;
        }
    }
}
