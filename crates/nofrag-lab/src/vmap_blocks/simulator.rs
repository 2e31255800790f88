//! Many CPUs and their locks in virtual time, one event after the other.
//!
//! Each CPU has a clock, and the CPU with the lowest one moves next: it works, takes a lock or gives one back. A lock
//! that is held keeps its takers in a queue, first come first served. So a wait here has one cause, the holds of
//! others; no scheduler, cache or interrupt takes part, and a run is the same on every machine.
//!
//! The notes on each lock are those of Linux's `lock_stat`: a *contention* is an acquisition that found the lock held,
//! a *bounce* one by another CPU than the last one, and each contention has two callers, the waiting and the holding
//! one.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::locks::{Lock, LockKind, Site};

/// The next step of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Work that other CPUs do not notice, for a number of nanoseconds.
    Work(u64),
    Take(Lock, Site),
    Release(Lock),
}

/// Tells whether a CPU has a next operation, whose steps were appended, or is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Steps,
    Done,
}

/// The simulated machine, which gives each CPU its next operation.
pub(super) trait Machine {
    type Error;

    /// Appends the next operation of this CPU to `steps`. It happens when its first step is due.
    fn operate(&mut self, cpu: usize, steps: &mut VecDeque<Step>) -> Result<Next, Self::Error>;
}

/// Counts of a lock, or of all locks of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockStat {
    pub(super) acquisitions: u64,
    /// Acquisitions by another CPU than the one before.
    pub(super) bounces: u64,
    /// Acquisitions that found the lock held.
    pub(super) contentions: u64,
    /// Contentions by another CPU than the last to have taken the lock.
    pub(super) con_bounces: u64,
    pub(super) wait_total_ns: u64,
    pub(super) wait_max_ns: u64,
    /// Number of waits, by the waiter's call site.
    pub(super) waiting: BTreeMap<Site, u64>,
    /// Number of waits, by the call site of the holder.
    pub(super) holding: BTreeMap<Site, u64>,
}

impl LockStat {
    fn add(&mut self, other: &LockStat) {
        self.acquisitions += other.acquisitions;
        self.bounces += other.bounces;
        self.contentions += other.contentions;
        self.con_bounces += other.con_bounces;
        self.wait_total_ns += other.wait_total_ns;
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
        for (mine, others) in
            [(&mut self.waiting, &other.waiting), (&mut self.holding, &other.holding)]
        {
            for (site, count) in others {
                *mine.entry(*site).or_default() += count;
            }
        }
    }

    /// Returns the mean wait of a contention.
    pub(super) fn wait_avg_ns(&self) -> f64 {
        self.wait_total_ns as f64 / self.contentions.max(1) as f64
    }
}

/// Result of a simulated run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The locks of each kind together.
    pub(super) locks: BTreeMap<LockKind, LockStat>,
    /// Number of locks of each kind that were taken at all; of several runs, the largest.
    pub(super) instances: BTreeMap<LockKind, u64>,
    /// Time of each CPU from its begin to its end.
    pub(super) cpu_ns: Vec<u64>,
}

impl Outcome {
    /// Adds another run of as many CPUs.
    pub(super) fn add(&mut self, other: &Outcome) {
        for (kind, stat) in &other.locks {
            self.locks.entry(*kind).or_default().add(stat);
        }
        for (kind, count) in &other.instances {
            let most = self.instances.entry(*kind).or_default();
            *most = (*most).max(*count);
        }
        for (mine, others) in self.cpu_ns.iter_mut().zip(&other.cpu_ns) {
            *mine += others;
        }
    }
}

#[derive(Debug, Default)]
struct LockState {
    stat: LockStat,
    held: Option<(usize, Site)>,
    last: Option<usize>,
    queue: VecDeque<Waiter>,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    cpu: usize,
    site: Site,
    since: u64,
}

/// CPUs that may move, by the time on the clock and then by number.
type Ready = BinaryHeap<Reverse<(u64, usize)>>;

/// Runs all CPUs to their ends; CPU `i` begins at `begins[i]`.
///
/// # Panics
/// If a CPU releases a lock that it does not hold, or is done while it holds one: a machine's mistake.
pub(super) fn simulate<M: Machine>(begins: &[u64], machine: &mut M) -> Result<Outcome, M::Error> {
    let mut ready: Ready =
        begins.iter().enumerate().map(|(cpu, begin)| Reverse((*begin, cpu))).collect();
    let mut steps: Vec<VecDeque<Step>> = begins.iter().map(|_| VecDeque::new()).collect();
    let mut locks: BTreeMap<Lock, LockState> = BTreeMap::new();
    let mut cpu_ns = vec![0; begins.len()];
    loop {
        let Some(mut first) = ready.peek_mut() else { return Ok(outcome(locks, cpu_ns)) };
        let Reverse((now, cpu)) = *first;
        let steps = &mut steps[cpu];
        if steps.is_empty() && machine.operate(cpu, steps)? == Next::Done {
            cpu_ns[cpu] = now - begins[cpu];
            PeekMut::pop(first);
            continue;
        }
        match steps.pop_front() {
            None => {}
            // The heap sifts once, which is the main cost of an operation here.
            Some(Step::Work(ns)) => *first = Reverse((now + ns, cpu)),
            Some(Step::Take(lock, site)) => {
                let waits = !locks.entry(lock).or_default().take(now, cpu, site);
                if waits {
                    PeekMut::pop(first);
                }
            }
            Some(Step::Release(lock)) => {
                drop(first);
                let next = locks.entry(lock).or_default().release(now, cpu);
                ready.extend(next.map(|next| Reverse((now, next))));
            }
        }
    }
}

fn outcome(locks: BTreeMap<Lock, LockState>, cpu_ns: Vec<u64>) -> Outcome {
    let mut outcome = Outcome { cpu_ns, ..Outcome::default() };
    for (lock, state) in locks {
        assert!(state.held.is_none() && state.queue.is_empty(), "{lock:?} is still held");
        outcome.locks.entry(lock.kind).or_default().add(&state.stat);
        *outcome.instances.entry(lock.kind).or_default() += 1;
    }
    outcome
}

impl LockState {
    /// Gives the lock to the CPU, or puts it into the queue. Returns true if it has the lock.
    fn take(&mut self, now: u64, cpu: usize, site: Site) -> bool {
        let Some((_, holder)) = self.held else {
            self.grant(cpu, site);
            return true;
        };
        let stat = &mut self.stat;
        stat.contentions += 1;
        stat.con_bounces += u64::from(self.last != Some(cpu));
        *stat.waiting.entry(site).or_default() += 1;
        *stat.holding.entry(holder).or_default() += 1;
        self.queue.push_back(Waiter { cpu, site, since: now });
        false
    }

    /// Gives the lock to the CPU that has waited longest, and returns that CPU.
    fn release(&mut self, now: u64, cpu: usize) -> Option<usize> {
        assert!(self.held.is_some_and(|(holder, _)| holder == cpu), "CPU {cpu} does not hold it");
        self.held = None;
        let next = self.queue.pop_front()?;
        let wait = now - next.since;
        self.stat.wait_total_ns += wait;
        self.stat.wait_max_ns = self.stat.wait_max_ns.max(wait);
        self.grant(next.cpu, next.site);
        Some(next.cpu)
    }

    fn grant(&mut self, cpu: usize, site: Site) {
        self.stat.acquisitions += 1;
        self.stat.bounces += u64::from(self.last.is_some_and(|last| last != cpu));
        self.held = Some((cpu, site));
        self.last = Some(cpu);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const AREA: Lock = Lock { kind: LockKind::AreaBusy, instance: 0 };
    const INDEX: Lock = Lock { kind: LockKind::BlockIndex, instance: 0 };
    const OTHER_INDEX: Lock = Lock { kind: LockKind::BlockIndex, instance: 1 };

    /// CPUs that follow scripts of whole operations.
    struct Scripts(Vec<VecDeque<Vec<Step>>>);

    impl Machine for Scripts {
        type Error = Infallible;

        fn operate(&mut self, cpu: usize, steps: &mut VecDeque<Step>) -> Result<Next, Infallible> {
            let Some(operation) = self.0[cpu].pop_front() else { return Ok(Next::Done) };
            steps.extend(operation);
            Ok(Next::Steps)
        }
    }

    fn hold(lock: Lock, site: Site, ns: u64) -> Vec<Step> {
        vec![Step::Take(lock, site), Step::Work(ns), Step::Release(lock)]
    }

    fn run(begins: &[u64], scripts: &[&[Vec<Step>]]) -> Outcome {
        let scripts = scripts.iter().map(|script| script.iter().cloned().collect()).collect();
        simulate(begins, &mut Scripts(scripts)).unwrap()
    }

    #[test]
    fn who_comes_first_is_served_first_and_the_others_wait() {
        // CPU 0 holds [10,40); 1 comes at 20, 2 at 15: 2 gets [40,70), 1 gets [70,100).
        let script = |site| [hold(AREA, site, 30)];
        let [map, unmap] = [script(Site::Map), script(Site::Unmap)];
        let outcome = run(&[10, 20, 15], &[&map, &unmap, &unmap]);
        let area = &outcome.locks[&LockKind::AreaBusy];
        assert_eq!((area.acquisitions, area.contentions, area.con_bounces), (3, 2, 2));
        assert_eq!((area.wait_total_ns, area.wait_max_ns), (25 + 50, 50));
        assert_eq!(area.waiting, BTreeMap::from([(Site::Unmap, 2)]));
        assert_eq!(area.holding, BTreeMap::from([(Site::Map, 2)]));
        assert_eq!(outcome.cpu_ns, [30, 80, 55]);
    }

    #[test]
    fn a_lock_of_ones_own_is_neither_contended_nor_bounced() {
        let own = |lock| [hold(lock, Site::Map, 5), hold(lock, Site::Unmap, 5)];
        let outcome = run(&[0, 0], &[&own(INDEX), &own(OTHER_INDEX)]);
        let index = &outcome.locks[&LockKind::BlockIndex];
        assert_eq!((index.acquisitions, index.contentions, index.bounces), (4, 0, 0));
        assert_eq!(outcome.instances[&LockKind::BlockIndex], 2);
        assert_eq!(outcome.cpu_ns, [10, 10]);
    }

    #[test]
    fn a_free_lock_bounces_between_cpus_without_contention() {
        let once = [hold(AREA, Site::Map, 5)];
        let outcome = run(&[0, 100], &[&once, &once]);
        let area = &outcome.locks[&LockKind::AreaBusy];
        assert_eq!((area.bounces, area.contentions, area.con_bounces), (1, 0, 0));
    }

    #[test]
    fn a_later_lock_of_an_operation_is_not_taken_before_its_time() {
        // CPU 0 reaches the index at 100, CPU 1 at 10: no CPU waits, though CPU 0's operation began first.
        let both = [[Step::Work(100)].into_iter().chain(hold(INDEX, Site::Map, 20)).collect()];
        let index = [hold(INDEX, Site::Unmap, 20)];
        let outcome = run(&[0, 10], &[&both, &index]);
        assert_eq!(outcome.locks[&LockKind::BlockIndex].contentions, 0);
    }

    #[test]
    fn an_outer_lock_is_held_while_an_inner_one_is_waited_for() {
        let outer = Lock { kind: LockKind::Purge, instance: 0 };
        let mut nested = vec![Step::Take(outer, Site::Purge)];
        nested.extend(hold(AREA, Site::Purge, 10));
        nested.push(Step::Release(outer));
        let outcome = run(
            &[0, 5, 6],
            &[&[hold(AREA, Site::Map, 50)], &[nested], &[hold(outer, Site::Purge, 1)]],
        );
        // CPU 1 waits for the area lock from 5 to 50 and holds the purge lock until 60; so CPU 2 waits from 6 to 60.
        assert_eq!(outcome.locks[&LockKind::Purge].wait_max_ns, 54);
        assert_eq!(outcome.locks[&LockKind::AreaBusy].wait_max_ns, 45);
    }

    #[test]
    fn two_servers_in_a_closed_loop_keep_the_slower_one_busy() {
        // With many CPUs and hardly any work, the slower lock sets the pace, and nearly all of them queue there.
        let operation: Vec<Step> =
            hold(AREA, Site::Map, 30).into_iter().chain(hold(INDEX, Site::Map, 10)).collect();
        let script = vec![operation; 100];
        let outcome = run(&[0; 8], &[&script[..]; 8]);
        assert!(outcome.cpu_ns.iter().all(|ns| (23_000..=24_500).contains(ns)), "{outcome:?}");
        assert!(outcome.locks[&LockKind::AreaBusy].contentions > 790);
        assert_eq!(outcome.locks[&LockKind::BlockIndex].contentions, 0);
    }
}
