//! The speed of the recorded host, and the time that interrupted work took there.
//!
//! It decides how much kswapd and kcompactd get done between two requests. An emulated host is a hundred times slower
//! than the same kernel on its own, and a background machine waits while another thread has its CPU. Page faults tell
//! both: two anonymous pages that one process asks for in a row are a fault, a cleared page and an allocation apart.
//! The *typical* distance is the median, and shows how many times slower than the table of costs the host was. Some are
//! far longer, as another process had the CPU: *waits*. A background machine does as much work as a fault is in each of
//! these distances, one after the other, so that it is as fast as faults are and waits as often and as long. After a
//! sleep it begins where a process came back from a wait and then had the CPU for long, as a scheduler gives it to who
//! has slept.
//!
//! The distances depend on the workload alone, not on the kernel's work for memory: whatever else the process does ends
//! its row, and so does reclaim or compaction by anybody on its CPU. A long distance on a CPU that nobody else used was
//! no wait: the process slept.

use foldhash::HashMap;
use nofrag::units::Order;

use crate::random::Random;
use crate::world::costs::Costs;

/// Number of distances between faults that are kept, the latest ones; fewer than [`FEW`] say nothing.
const ENOUGH: usize = 4096;
const FEW: usize = 64;

/// A distance that is so many times as long as the typical one has a wait for the CPU in it.
const WAIT: u64 = 64;
/// Nanoseconds beyond which a process between two faults is taken to sleep, and not to wait for a CPU.
const LONGEST_WAIT: u64 = 300_000_000;

/// Processes in the middle of a row that are followed at a time.
const MOST_PROCESSES: usize = 1 << 16;

/// The recorded host's speed, by its latest page faults.
#[derive(Clone, Debug)]
pub(super) struct HostPace {
    /// Costs of work on the host in nanoseconds: `slower` times the built-in table.
    pub(super) costs: Costs,
    pub(super) slower: u64,
    /// Nanoseconds from one fault to the next; empty while fewer than [`FEW`] are known.
    distances: Vec<u64>,
    /// Places in `distances` right after a wait, from which on the next one is farther than from half of all such.
    fresh: Vec<usize>,
    typical: u64,
}

impl HostPace {
    /// Returns the pace of a host as fast as the table of costs has it, whose CPUs are never taken away.
    pub(super) fn table() -> HostPace {
        HostPace {
            costs: Costs::built_in(),
            slower: 1,
            distances: Vec::new(),
            fresh: Vec::new(),
            typical: 1,
        }
    }

    /// Returns the nanoseconds that background work takes here with its waits; `work` is without them. `place` is where
    /// the machine is in the row of distances, `None` after a sleep.
    pub(super) fn elapses(&self, work: u64, place: &mut Option<usize>, random: &mut Random) -> u64 {
        if self.distances.is_empty() {
            return work;
        }
        let mut at = place.unwrap_or_else(|| match self.fresh.len() {
            0 => random.index(self.distances.len()),
            count => self.fresh[random.index(count)],
        });
        // A part of a fault's work counts as a whole fault with the probability of its share.
        let whole = (work + random.between(0, self.typical - 1)) / self.typical;
        let mut elapsed = 0;
        for _ in 0..whole {
            elapsed += self.distances[at % self.distances.len()];
            at = (at + 1) % self.distances.len();
        }
        *place = Some(at);
        elapsed
    }
}

/// The kind of work that a process did at an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// A request for an anonymous page.
    Fault,
    /// Reclaim or compaction, for the kernel.
    Reclaim,
    Other,
}

/// The last event of a process, which was a fault.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: u64,
    cpu: u16,
    /// Number of events on that CPU, this one among them.
    events: u64,
}

/// Work on a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct OnCpu {
    events: u64,
    /// The time at which memory was last reclaimed or compacted there.
    reclaimed: u64,
}

/// The time from one fault of a process to its next.
#[derive(Clone, Copy, Debug)]
struct Distance {
    nanos: u64,
    /// True if another process was at work on its CPU meanwhile.
    taken: bool,
}

/// Facts about the host's speed, gathered so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    last: HashMap<i32, Last>,
    cpus: Vec<OnCpu>,
    /// The last distances, in a ring.
    distances: Vec<Distance>,
    next: usize,
}

impl Pace {
    /// Notes an event of a process: the distance from its last one if both are faults.
    pub(super) fn look(&mut self, at: u64, cpu: u16, pid: i32, activity: Activity) {
        let number = usize::from(cpu);
        if self.cpus.len() <= number {
            self.cpus.resize(number + 1, OnCpu::default());
        }
        self.cpus[number].events += 1;
        if activity == Activity::Reclaim {
            self.cpus[number].reclaimed = at;
        }
        if activity != Activity::Fault {
            self.last.remove(&pid);
            return;
        }
        if self.last.len() >= MOST_PROCESSES {
            self.last.clear();
        }
        let now = Last { at, cpu, events: self.cpus[number].events };
        let Some(before) = self.last.insert(pid, now) else { return };
        let there = self.cpus[usize::from(before.cpu)];
        let nanos = at.saturating_sub(before.at);
        let is_reclaimed = there.reclaimed.max(self.cpus[number].reclaimed) > before.at;
        if nanos <= LONGEST_WAIT && !is_reclaimed {
            let own = u64::from(before.cpu == cpu);
            self.note(Distance { nanos, taken: there.events > before.events + own });
        }
    }

    fn note(&mut self, distance: Distance) {
        if self.distances.len() < ENOUGH {
            self.distances.push(distance);
        } else {
            self.distances[self.next] = distance;
            self.next = (self.next + 1) % ENOUGH;
        }
    }

    /// Returns the host's pace by the distances so far.
    pub(super) fn host(&self) -> HostPace {
        let table = HostPace::table();
        if self.distances.len() < FEW {
            return table;
        }
        let mut sorted: Vec<u64> = self.distances.iter().map(|distance| distance.nanos).collect();
        let middle = sorted.len() / 2;
        let typical = (*sorted.select_nth_unstable(middle).1).max(1);
        // In the order of time, the oldest first. Who lets time pass on a CPU that nobody else uses is asleep.
        let (new, old) = self.distances.split_at(self.next);
        let in_order = old.iter().chain(new);
        let awake = in_order.filter(|distance| distance.taken || distance.nanos <= WAIT * typical);
        let distances: Vec<u64> = awake.map(|distance| distance.nanos).collect();
        let is_wait = |at: &usize| distances[*at] > WAIT * typical;
        let waits: Vec<usize> = (0..distances.len()).filter(is_wait).collect();
        let turns = waits.windows(2).map(|pair| (pair[1] - pair[0], pair[0] + 1));
        let mut turns: Vec<(usize, usize)> = turns.collect();
        turns.sort_unstable();
        let fresh = turns[turns.len() / 2..].iter().map(|(_, at)| *at).collect();
        let slower = (typical / fault(&table.costs)).max(1);
        HostPace { costs: table.costs.times(slower), slower, distances, fresh, typical }
    }
}

/// Returns the nanoseconds from one anonymous page to the next, by the table of costs.
fn fault(table: &Costs) -> u64 {
    table.fault + table.clear_huge / Order::PAGEBLOCK.pages() + table.alloc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults of process 1 on CPU 0, `distances` apart, each of which another process uses if it is a wait.
    fn faults(pace: &mut Pace, distances: impl IntoIterator<Item = u64>) {
        let (mut at, wait) = (1_000_000_000, WAIT * fault(&Costs::built_in()));
        pace.look(at, 0, 1, Activity::Fault);
        for distance in distances {
            if distance > wait {
                pace.look(at + 1, 0, 2, Activity::Other);
            }
            at += distance;
            pace.look(at, 0, 1, Activity::Fault);
        }
    }

    fn elapsed(host: &HostPace, work: u64, times: usize) -> Vec<u64> {
        let (mut random, mut place) = (Random::new(1, 0), None);
        (0..times).map(|_| host.elapses(work, &mut place, &mut random)).collect()
    }

    #[test]
    fn a_host_is_as_slow_as_its_faults_in_a_row() {
        let mut pace = Pace::default();
        let fault = fault(&Costs::built_in());
        assert_eq!(pace.host().slower, 1, "as long as nothing is known");
        faults(&mut pace, [100 * fault; 200]);
        let host = pace.host();
        assert_eq!((host.slower, host.distances.len()), (100, 200));
        assert_eq!(host.costs.reclaim_page, 100 * Costs::built_in().reclaim_page);
        assert_eq!(elapsed(&HostPace::table(), 77, 1), [77]);
    }

    #[test]
    fn what_else_happens_on_the_way_is_no_distance() {
        let mut pace = Pace::default();
        let mut count = |at, cpu, pid, activity| {
            pace.look(at, cpu, pid, activity);
            pace.distances.len()
        };
        assert_eq!(count(10, 0, 1, Activity::Fault), 0);
        assert_eq!(count(20, 0, 1, Activity::Fault), 1);
        // The process itself does something else.
        assert_eq!(count(30, 0, 1, Activity::Other), 1);
        assert_eq!(count(40, 0, 1, Activity::Fault), 1);
        // Another one reclaims on its CPU, or on the one that it comes to; elsewhere that changes nothing.
        count(45, 0, 9, Activity::Reclaim);
        assert_eq!(count(50, 0, 1, Activity::Fault), 1);
        count(55, 1, 9, Activity::Reclaim);
        assert_eq!(count(60, 1, 1, Activity::Fault), 1);
        count(65, 2, 9, Activity::Reclaim);
        assert_eq!(count(70, 1, 1, Activity::Fault), 2);
        // It slept.
        assert_eq!(count(71 + LONGEST_WAIT, 1, 1, Activity::Fault), 2);
    }

    #[test]
    fn a_long_distance_on_an_idle_cpu_is_a_sleep() {
        let fault = fault(&Costs::built_in());
        let row = |activity: Option<u16>| {
            let mut pace = Pace::default();
            faults(&mut pace, [fault; 100]);
            let at = 1_000_000_000 + 100 * fault;
            if let Some(cpu) = activity {
                pace.look(at + 1, cpu, 2, Activity::Other);
            }
            pace.look(at + 1000 * fault, 0, 1, Activity::Fault);
            pace.host().distances.len()
        };
        assert_eq!([row(None), row(Some(1)), row(Some(0))], [100, 100, 101]);
    }

    #[test]
    fn who_works_in_the_background_waits_as_often_as_faults_do() {
        let mut pace = Pace::default();
        let fault = fault(&Costs::built_in());
        // Each hundredth fault comes after a thousand times as long.
        let distance = |n| if n % 100 == 0 { 1000 * fault } else { fault };
        faults(&mut pace, (0..10_000).map(distance));
        let host = pace.host();
        assert_eq!((host.slower, host.typical, host.distances.len()), (1, fault, ENOUGH));
        let took = elapsed(&host, fault, 10_000);
        let waits = took.iter().filter(|&&took| took == 1000 * fault).count();
        assert!((97..104).contains(&waits), "{waits}");
        assert!(took[..99].iter().all(|&took| took == fault), "it has slept");
        let parts = elapsed(&host, fault / 4, 10_000).into_iter().filter(|took| *took > 0).count();
        assert!((2_300..2_700).contains(&parts), "{parts}");
    }

    #[test]
    fn who_has_slept_gets_a_long_turn() {
        let mut pace = Pace::default();
        let fault = fault(&Costs::built_in());
        // Turns of 10 and of 50 faults.
        let distance = |n| if matches!(n % 60, 0 | 10) { 1000 * fault } else { fault };
        faults(&mut pace, (0..3_000).map(distance));
        let host = pace.host();
        for seed in 0..50 {
            let mut random = Random::new(seed, 0);
            let took = host.elapses(49 * fault, &mut None, &mut random);
            assert_eq!(took, 49 * fault, "seed {seed}");
        }
    }
}
