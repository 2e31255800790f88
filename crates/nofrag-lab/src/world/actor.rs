//! The threads of the workload, each on a CPU of its own: a writer, a reader, or one that touches huge pages.
//!
//! An actor moves in small steps: a piece of its own work, a request, or one step of a request's slow path. Its steps
//! take virtual time by [`Costs`](super::costs::Costs); between two steps others may move. A request that has to wait
//! (patch 5) puts its own actor to sleep, and no other.

use std::ops::Range;
use std::time::Instant;

use nofrag::cpu::CpuId;
use nofrag::page::{Attempt, FailureReport, HugeFault, Next, Outcome};
use nofrag::units::{Nanos, Pfn};

use super::Owns;
use super::cache::FILE_PAGES;
use super::owner::Want;
use super::thpfioscale::FioWorld;
use crate::random::Random;

/// The work of an actor.
#[derive(Debug)]
pub(crate) enum Task {
    /// Creates its files, and writes a page to each in turn, as fio does by default: all stay open to the end.
    Writer { files: Range<u32>, done: u32 },
    /// Has its files open, and reads all pages of one in random order, and of another, until the load is stopping.
    Reader { files: Range<u32>, opened: u32, pages: Vec<u32> },
    /// Touches units of 2 MiB.
    Huge(HugeTask),
}

/// A thread of the huge-page program.
#[derive(Debug)]
pub(crate) struct HugeTask {
    /// The requests that are tried for a unit, one after the other.
    pub(crate) fault: HugeFault,
    /// The remaining tries for the present unit.
    pub(crate) tries: HugeFault,
    /// Units still to be touched.
    pub(crate) units: u64,
    /// Small pages still to be faulted in for the present unit.
    pub(crate) small: u64,
    /// Allocator work of each huge fault, in virtual time.
    pub(crate) huge_work: Vec<Nanos>,
    pub(crate) base_work: Vec<Nanos>,
}

/// Pages of a unit: 2 MiB.
const UNIT_PAGES: u64 = 512;

/// An actor's readiness to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// Waiting for kswapd since `since`, and at most until the actor's clock.
    Stalled {
        since: u64,
    },
    Done,
}

/// A request that has not been served yet.
#[derive(Debug)]
struct Pending {
    attempt: Attempt,
    want: Want,
    next: Next,
}

/// A thread, with a CPU and a clock of its own.
#[derive(Debug)]
pub(crate) struct Actor {
    cpu: CpuId,
    pub(crate) clock: u64,
    pub(crate) state: State,
    pub(crate) task: Task,
    /// Needs of the present access, in reverse: the last entry is served first.
    wants: Vec<Want>,
    pending: Option<Pending>,
    /// Virtual nanoseconds that the allocator took for the present unit.
    work: u64,
    /// Waits of its requests, in virtual time.
    pub(crate) stalls: Vec<Nanos>,
    random: Random,
}

/// The error when memory that a thread cannot do without is not to be had.
#[derive(Clone, Debug)]
pub(crate) struct OutOfMemory {
    pub(crate) want: Want,
    pub(crate) report: Box<FailureReport>,
}

impl Actor {
    pub(crate) fn new(cpu: CpuId, clock: u64, task: Task, random: Random) -> Actor {
        Actor {
            cpu,
            clock,
            state: State::Ready,
            task,
            wants: Vec::new(),
            pending: None,
            work: 0,
            stalls: Vec::new(),
            random,
        }
    }

    /// Returns the clock at which the actor can move next; `None` when it is done.
    pub(crate) fn ready_at(&self) -> Option<u64> {
        (self.state != State::Done).then_some(self.clock)
    }

    /// Moves the actor by one step, and takes the real time of steps in which the huge-page program asks for real
    /// memory.
    pub(crate) fn step(&mut self, world: &mut FioWorld) -> Result<(), OutOfMemory> {
        let asks = self.pending.is_some() || !self.wants.is_empty();
        let is_timed = asks && world.owner.memory.is_some() && matches!(self.task, Task::Huge(_));
        if !is_timed {
            return self.move_once(world);
        }
        let began = Instant::now();
        self.move_once(world)?;
        let took = began.elapsed();
        if let Some(memory) = &mut world.owner.memory {
            memory.toucher_moved(took);
        }
        Ok(())
    }

    fn move_once(&mut self, world: &mut FioWorld) -> Result<(), OutOfMemory> {
        world.owner.turn(self.cpu, self.clock);
        if let Some(pending) = self.pending.take() {
            return self.go_on(world, pending);
        }
        if let Some(want) = self.wants.pop() {
            return self.ask(world, want);
        }
        match &mut self.task {
            Task::Writer { files, done } if *done < files.len() as u32 * FILE_PAGES => {
                let count = files.len() as u32;
                let page = (files.start + *done % count) * FILE_PAGES + *done / count;
                *done += 1;
                self.write(world, page);
            }
            Task::Reader { .. } => self.read(world),
            Task::Huge(task) if task.small > 0 => {
                task.small -= 1;
                self.wants.push(Want::Base);
            }
            Task::Huge(task) if task.units > 0 => {
                task.units -= 1;
                task.tries = task.fault;
                self.work = 0;
                let first = task.tries.next().expect("every fault makes a try");
                self.wants.push(Want::Huge(first));
            }
            Task::Writer { files, .. } => {
                world.owner.close(&mut world.pages, files.clone());
                self.charge(world, 0);
                self.state = State::Done;
            }
            Task::Huge(_) => self.state = State::Done,
        }
        Ok(())
    }

    /// Ends the actor's wait if kswapd has come far enough by `now`.
    pub(crate) fn wake(&mut self, world: &FioWorld, now: u64) {
        let State::Stalled { since } = self.state else { return };
        let pending = self.pending.as_ref().expect("who waits has a request");
        if pending.attempt.may_resume(&world.pages) {
            self.clock = self.clock.min(now.max(since));
        }
    }

    fn write(&mut self, world: &mut FioWorld, page: u32) {
        if let Some(until) = world.owner.written_at(world.owner.load.dirty_limit) {
            // The writer comes back for the same page.
            let Task::Writer { done, .. } = &mut self.task else { unreachable!("it writes") };
            *done -= 1;
            self.clock = self.clock.max(until);
            return;
        }
        world.owner.wants(page, &mut self.random, &mut self.wants);
        if self.random.between(1, world.costs.pages_per_writeback) == 1 {
            self.wants.push(Want::Writeback);
        }
        if page.is_multiple_of(FILE_PAGES) {
            world.owner.open(page / FILE_PAGES, &mut self.wants);
            self.user_work(world, world.costs.create_file);
        }
        self.user_work(world, world.costs.write_page);
    }

    fn read(&mut self, world: &mut FioWorld) {
        let Task::Reader { files, opened, pages } = &mut self.task else {
            unreachable!("it reads")
        };
        if world.owner.load.stopping {
            let opened = files.start..files.start + *opened;
            world.owner.close(&mut world.pages, opened);
            self.charge(world, 0);
            self.state = State::Done;
            return;
        }
        if *opened < files.len() as u32 {
            world.owner.open(files.start + *opened, &mut self.wants);
            *opened += 1;
            self.user_work(world, world.costs.open_file);
            return;
        }
        let page = pages.pop().unwrap_or_else(|| {
            let file = files.start + self.random.index(files.len()) as u32;
            pages.extend(file * FILE_PAGES..(file + 1) * FILE_PAGES);
            self.random.shuffle(pages);
            pages.pop().expect("a file has pages")
        });
        world.owner.wants(page, &mut self.random, &mut self.wants);
        self.user_work(world, world.costs.read_page);
    }

    /// Advances the clock by the thread's own work: `ns`, more or less by a random share.
    fn user_work(&mut self, world: &FioWorld, ns: u64) {
        let range = ns * world.costs.jitter_percent / 100;
        self.clock += self.random.between(ns - range, ns + range);
    }

    fn ask(&mut self, world: &mut FioWorld, want: Want) -> Result<(), OutOfMemory> {
        if world.owner.at_hand(want) {
            self.charge(world, 0);
            return Ok(());
        }
        let request = world.owner.request(want);
        match world.pages.alloc(Nanos(self.clock), self.cpu, request) {
            Ok(pfn) => {
                let huge = matches!(want, Want::Huge(_));
                self.charge(world, if huge { world.costs.alloc_huge } else { world.costs.alloc });
                self.got(world, want, pfn);
                Ok(())
            }
            Err(mut attempt) => {
                let next = attempt.advance(&mut world.pages, Nanos(self.clock), Outcome::Begin);
                self.decide(world, Pending { attempt, want, next })
            }
        }
    }

    /// Does the work that the slow path asked for, and asks for the next.
    fn go_on(&mut self, world: &mut FioWorld, mut pending: Pending) -> Result<(), OutOfMemory> {
        use nofrag::page::Reclaim;
        let outcome = match &pending.next {
            Next::Reclaim(wanted) => {
                Outcome::Reclaimed(world.owner.reclaim(&mut world.pages, *wanted))
            }
            Next::Migrate(moves) => Outcome::Migrated(moves.carry_out(&mut world.owner)),
            Next::Stall { .. } => {
                if let State::Stalled { since } = self.state {
                    self.stalls.push(Nanos(self.clock - since));
                    self.work += self.clock - since;
                }
                self.state = State::Ready;
                Outcome::Waited
            }
            Next::Done(_) | Next::Fail(_) => unreachable!("the request had ended"),
        };
        self.charge(world, 0);
        pending.next = pending.attempt.advance(&mut world.pages, Nanos(self.clock), outcome);
        self.decide(world, pending)
    }

    fn decide(&mut self, world: &mut FioWorld, pending: Pending) -> Result<(), OutOfMemory> {
        self.charge(world, 0);
        match pending.next {
            Next::Done(pfn) => self.got(world, pending.want, pfn),
            Next::Fail(report) => return self.failed(pending.want, report),
            Next::Stall { until } => {
                self.state = State::Stalled { since: self.clock };
                self.clock = self.clock.max(until.0);
                self.pending = Some(pending);
            }
            Next::Reclaim(_) | Next::Migrate(_) => self.pending = Some(pending),
        }
        Ok(())
    }

    /// Takes the block for its purpose, and adds the time of the access that wanted it.
    fn got(&mut self, world: &mut FioWorld, want: Want, pfn: Pfn) {
        world.owner.fulfil(&mut world.pages, want, pfn);
        self.charge(world, 0);
        let costs = world.costs;
        match (want, &mut self.task) {
            (Want::Page(page), Task::Writer { .. }) => world.owner.dirty(page, self.clock),
            (Want::Page(_), Task::Reader { .. }) => {
                world.owner.load.read += 1;
                self.user_work(world, costs.disk_read);
            }
            (Want::Huge(_), Task::Huge(task)) => {
                task.huge_work.push(Nanos(self.work));
                self.clock += costs.fault + costs.clear_huge;
            }
            (Want::Base, Task::Huge(task)) => {
                if task.small == 0 {
                    task.base_work.push(Nanos(self.work));
                }
                self.clock += costs.fault + costs.clear_huge / UNIT_PAGES;
            }
            _ => {}
        }
    }

    fn failed(&mut self, want: Want, report: FailureReport) -> Result<(), OutOfMemory> {
        match (want, &mut self.task) {
            (Want::Huge(_), Task::Huge(task)) => {
                match task.tries.next() {
                    Some(next) => self.wants.push(Want::Huge(next)),
                    None => task.small = UNIT_PAGES,
                }
                Ok(())
            }
            _ => Err(OutOfMemory { want, report: Box::new(report) }),
        }
    }

    /// Charges the work of allocator and owner for this thread, and `ns` more.
    fn charge(&mut self, world: &mut FioWorld, ns: u64) {
        let spent = world.bill() + ns;
        self.work += spent;
        self.clock += spent;
    }
}
