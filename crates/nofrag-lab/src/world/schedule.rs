//! The order in which CPUs move: always the one whose clock is furthest behind.
//!
//! Threads and background machines (kswapd and kcompactd of each node) have CPUs of their own, and a clock each. A
//! background machine with nothing to do has no clock until it is woken, at the clock of whoever wakes it. The work of
//! one step is done at once and paid for afterwards, so steps are small: a request, a batch of reclaim, a pageblock of
//! scanning. Chance enters only by the time that threads take for their own work, whose generators are seeded; ties go
//! to the lower number. So a run is the same on every machine.

use super::actor::{Actor, OutOfMemory, State};
use super::daemons::Daemons;
use super::thpfioscale::FioWorld;

/// All CPUs with a thread or a background machine.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) actors: Vec<Actor>,
    daemons: Daemons,
    /// The latest clock at which a CPU has begun to move.
    pub(crate) now: u64,
    samples: Samples,
}

/// The user of a CPU, by its number: an actor or a background machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Actor(usize),
    Daemon(usize),
}

impl Schedule {
    /// Ends the background machines, which release what they had set aside.
    pub(crate) fn give_up_daemons(&mut self, world: &mut FioWorld) {
        self.daemons.give_up(world);
    }

    pub(crate) fn new(daemons: Daemons) -> Schedule {
        Schedule { actors: Vec::new(), daemons, now: 0, samples: Samples::new() }
    }

    /// Runs all CPUs until every clock has reached `end`.
    pub(crate) fn run_until(&mut self, world: &mut FioWorld, end: u64) -> Result<(), OutOfMemory> {
        while let Some((who, at, horizon)) = self.next() {
            if at >= end {
                break;
            }
            self.run(world, who, at, horizon.min(end))?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Runs all CPUs until the actors of these numbers are done.
    pub(crate) fn run_to_end(
        &mut self,
        world: &mut FioWorld,
        actors: std::ops::Range<usize>,
    ) -> Result<(), OutOfMemory> {
        while self.actors[actors.clone()].iter().any(|actor| actor.state != State::Done) {
            let (who, at, horizon) = self.next().expect("somebody is not done");
            self.run(world, who, at, horizon)?;
        }
        Ok(())
    }

    /// Returns the boost of all zones in pages, at even distances of virtual time.
    pub(crate) fn into_samples(self) -> Vec<f64> {
        self.samples.values
    }

    /// Returns the user of the CPU that is furthest behind, its clock, and the clock of the next one; `None` if nobody
    /// moves any more.
    fn next(&self) -> Option<(Who, u64, u64)> {
        let mut first: Option<(Who, u64)> = None;
        let mut horizon = u64::MAX;
        let actors = self.actors.iter().enumerate();
        let actors = actors.map(|(index, actor)| (Who::Actor(index), actor.ready_at()));
        let daemons = self.daemons.dues().enumerate();
        let daemons = daemons.map(|(index, due)| (Who::Daemon(index), due));
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

    /// Moves one CPU until it has passed the next one, is done, or has woken a background machine.
    fn run(
        &mut self,
        world: &mut FioWorld,
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
                let end = self.daemons.step(index, world, at);
                self.actors.iter_mut().for_each(|actor| actor.wake(world, end));
                end
            }
        };
        if world.has_woken() {
            world.told();
            self.daemons.wake(after.min(horizon.max(at)));
        }
        Ok(())
    }
}

/// Samples of a value over time, at distances that double when there are too many.
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
