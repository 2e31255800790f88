//! The speed of the recorded host, and the time that interrupted work took there.
//!
//! It decides how much kswapd and kcompactd get done between two requests. An emulated host is a hundred times slower
//! than the same kernel on its own, and a background machine waits while another thread has its CPU. Page faults tell
//! both: two anonymous pages that one process asks for in a row are a fault, a cleared page and an allocation apart. So
//! do pages that one process reclaims in a row, of which as many make a *distance* as are the work of a fault: for
//! seconds nobody may fault, and whoever reclaims shows how busy the CPUs are just then. The *typical* distance is the
//! median, and shows how many times slower than the table of costs the host was. Some are far longer, as another
//! process had the CPU: *waits*. A background machine does as much work as a fault is in each of these distances, one
//! after the other (in those of reclaim alone where there are enough), so that it is as fast as the host was and waits
//! as often and as long. After a sleep it begins where the recorded kswapd woke.
//!
//! The distances depend on the host's scheduler, not on what the kernel decided for memory: whatever else the process
//! does ends its row, a run of kswapd begins a new one, and reclaim or compaction by anybody on its CPU ends a row of
//! faults. A long distance on a CPU that nobody else used was no wait: the process slept.

use std::collections::VecDeque;

use foldhash::HashMap;
use nofrag::page::Moves;
use nofrag::units::Order;

use crate::random::Random;
use crate::world::costs::Costs;

/// Number of distances between faults that are kept, the latest ones; fewer than [`FEW`] say nothing.
const ENOUGH: usize = 4096;
const FEW: usize = 64;

/// Number of moves of each mover that are kept, the latest ones; fewer than [`FEW_MOVES`] say nothing.
const ENOUGH_MOVES: usize = 256;
const FEW_MOVES: usize = 8;
/// Nanoseconds and pages beyond which a move is taken for a fault of the recording.
const LONGEST_MOVE: u64 = 60_000_000_000;
const MOST_MOVED: u64 = 1 << 16;
/// Pages that are moved at a time, and frames that kcompactd may scan before others move on.
const BATCH: u64 = Moves::MAX as u64;

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
    /// Nanoseconds that the work of a fault took; empty while fewer than [`FEW`] are known.
    distances: Vec<u64>,
    /// Places in `distances` at which somebody began to work after a sleep.
    fresh: Vec<usize>,
    /// Nanoseconds of a fault by `costs`.
    fault: u64,
    /// By mover: the latest moves.
    moves: [Vec<Moved>; 2],
}

/// Pages that were moved at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moved {
    nanos: u64,
    pages: u64,
    /// Pages of this move and of all before it.
    until: u64,
}

/// A mover of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mover {
    /// A process that compacts for itself.
    Caller,
    /// kcompactd.
    Background,
}

impl HostPace {
    /// Returns the pace of a host as fast as the table of costs has it, whose CPUs are never taken away.
    pub(super) fn table() -> HostPace {
        HostPace {
            costs: Costs::built_in(),
            slower: 1,
            distances: Vec::new(),
            fresh: Vec::new(),
            fault: 1,
            moves: Default::default(),
        }
    }

    /// Returns the nanoseconds that somebody's moves and other work take here, with waits. Moves are other work like
    /// any while hardly any are known.
    pub(super) fn elapses_for(
        &self,
        who: Mover,
        [moving, other]: [u64; 2],
        place: &mut Option<usize>,
        random: &mut Random,
    ) -> u64 {
        match self.elapses_moving(who, moving, random) {
            Some(moving) => moving + self.elapses(other, place, random),
            None => self.elapses(moving + other, place, random),
        }
    }

    /// Returns the nanoseconds that moves take here, with the waits between them; `work` is without them. `None` while
    /// hardly any moves are known.
    fn elapses_moving(&self, who: Mover, work: u64, random: &mut Random) -> Option<u64> {
        let [callers, background] = &self.moves;
        let is_known = |moves: &&Vec<Moved>| moves.len() >= FEW_MOVES;
        let moves = match who {
            Mover::Caller => Some(callers).filter(is_known),
            Mover::Background => [background, callers].into_iter().find(is_known),
        };
        let moves = moves?;
        let mut left = work / self.costs.migrate_page.max(1);
        let all = moves.last().map_or(0, |last| last.until);
        let mut elapsed = 0;
        while left > 0 {
            let at = random.between(0, all - 1);
            let Moved { nanos, pages, .. } = moves[moves.partition_point(|it| it.until <= at)];
            let here = left.min(BATCH);
            elapsed += nanos.saturating_mul(here) / pages;
            left -= here;
        }
        Some(elapsed)
    }

    /// Returns the nanoseconds that background work takes here with its waits; `work` is without them. `place` is where
    /// the machine is in the row of distances, `None` after a sleep.
    fn elapses(&self, work: u64, place: &mut Option<usize>, random: &mut Random) -> u64 {
        if self.distances.is_empty() {
            return work;
        }
        let mut at = place.unwrap_or_else(|| match self.fresh.len() {
            0 => random.index(self.distances.len()),
            count => self.fresh[random.index(count)],
        });
        // A part of a fault's work counts as a whole fault with the probability of its share.
        let whole = (work + random.between(0, self.fault - 1)) / self.fault;
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
    /// A page that was reclaimed.
    Reclaimed,
    /// kswapd woke, to reclaim.
    Woke,
    /// Anything else in reclaim or compaction.
    Reclaim,
    Other,
}

impl Activity {
    /// Returns the nanoseconds of work by the table of costs, for work that comes in rows.
    fn work(self, table: &Costs) -> Option<u64> {
        match self {
            Activity::Fault => Some(fault(table)),
            Activity::Reclaimed => Some(table.reclaim_scan + table.reclaim_page),
            Activity::Woke | Activity::Reclaim | Activity::Other => None,
        }
    }
}

/// Work of one kind that a process does in a row, since the end of its last distance.
#[derive(Clone, Copy, Debug)]
struct Row {
    activity: Activity,
    since: u64,
    /// True if it began to work then, after a sleep.
    woke: bool,
    work: u64,
    /// True if another process was at work on its CPU meanwhile.
    taken: bool,
    /// CPU of the last event, and the number of events there, this one among them.
    cpu: u16,
    events: u64,
}

/// Work on a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct OnCpu {
    events: u64,
    /// The time at which memory was last reclaimed or compacted there.
    reclaimed: u64,
}

/// The time that a process took for the work of a fault.
#[derive(Clone, Copy, Debug)]
struct Distance {
    nanos: u64,
    /// True if another process was at work on its CPU meanwhile.
    taken: bool,
    /// True for the first work after a sleep.
    woke: bool,
    /// True if pages were reclaimed in it, and not asked for.
    reclaims: bool,
}

/// Facts about the host's speed, gathered so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    rows: HashMap<i32, Row>,
    cpus: Vec<OnCpu>,
    /// The last distances, in a ring.
    distances: Vec<Distance>,
    next: usize,
    /// By mover: the latest moves.
    moves: [VecDeque<Moved>; 2],
    /// The times at which processes that compact had last moved pages, or begun to.
    compacting: HashMap<i32, u64>,
}

impl Pace {
    /// Notes an event of a process: a distance, if the row that it goes on with amounts to the work of a fault.
    pub(super) fn look(&mut self, at: u64, cpu: u16, pid: i32, activity: Activity) {
        let number = usize::from(cpu);
        if self.cpus.len() <= number {
            self.cpus.resize(number + 1, OnCpu::default());
        }
        self.cpus[number].events += 1;
        if matches!(activity, Activity::Woke | Activity::Reclaimed | Activity::Reclaim) {
            self.cpus[number].reclaimed = at;
        }
        if self.rows.len() >= MOST_PROCESSES {
            self.rows.clear();
        }
        let (here, table) = (self.cpus[number], Costs::built_in());
        let (woke, taken, events) = (activity == Activity::Woke, false, here.events);
        let fresh = Row { activity, since: at, woke, work: 0, taken, cpu, events };
        if woke {
            self.rows.insert(pid, Row { activity: Activity::Reclaimed, ..fresh });
            return;
        }
        let Some(work) = activity.work(&table) else {
            self.rows.remove(&pid);
            return;
        };
        let Some(before) = self.rows.insert(pid, fresh) else { return };
        let there = self.cpus[usize::from(before.cpu)];
        let ends =
            activity == Activity::Fault && there.reclaimed.max(here.reclaimed) > before.since;
        let nanos = at.saturating_sub(before.since);
        if before.activity != activity || ends || nanos > LONGEST_WAIT {
            return;
        }
        let own = u64::from(before.cpu == cpu);
        let taken = before.taken || there.events > before.events + own;
        let Row { since, woke, .. } = before;
        let row = Row { since, woke, work: before.work + work, taken, ..fresh };
        let left = row.work.checked_sub(fault(&table));
        self.rows.insert(pid, left.map_or(row, |work| Row { work, ..fresh }));
        if left.is_some() {
            let reclaims = activity == Activity::Reclaimed;
            self.note(Distance { nanos, taken, woke, reclaims });
        }
    }

    /// Notes that a process begins to compact.
    pub(super) fn compacts(&mut self, at: u64, pid: i32) {
        if self.compacting.len() >= MOST_PROCESSES {
            self.compacting.clear();
        }
        self.compacting.insert(pid, at);
    }

    /// Notes that a process has moved pages.
    pub(super) fn has_moved(&mut self, at: u64, pid: i32, who: Mover, pages: u64) {
        let Some(since) = self.compacting.insert(pid, at) else { return };
        let nanos = at.saturating_sub(since);
        if !(1..=MOST_MOVED).contains(&pages) || nanos > LONGEST_MOVE {
            return;
        }
        let moves = &mut self.moves[who as usize];
        if moves.len() >= ENOUGH_MOVES {
            moves.pop_front();
        }
        moves.push_back(Moved { nanos, pages, until: 0 });
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
        let awake: Vec<Distance> = awake.copied().collect();
        // What reclaim takes is told best by reclaim.
        let reclaims: Vec<Distance> = awake.iter().filter(|it| it.reclaims).copied().collect();
        let awake = if reclaims.len() < FEW { awake } else { reclaims };
        let distances = awake.iter().map(|distance| distance.nanos).collect();
        let fresh = (0..awake.len()).filter(|at| awake[*at].woke).collect();
        let slower = (typical / fault(&table.costs)).max(1);
        let costs = Costs { kcompactd_step_frames: BATCH, ..table.costs.times(slower) };
        let summed = |moves: VecDeque<Moved>| {
            let sums = moves.into_iter().scan(0, |until, moved| {
                *until += moved.pages;
                Some(Moved { until: *until, ..moved })
            });
            sums.collect()
        };
        let moves = self.moves.clone().map(summed);
        HostPace { costs, slower, distances, fresh, fault: slower * fault(&table.costs), moves }
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
        assert_eq!((host.slower, host.fault, host.distances.len()), (1, fault, ENOUGH));
        let took = elapsed(&host, fault, 10_000);
        let waits = took.iter().filter(|&&took| took == 1000 * fault).count();
        assert!((97..104).contains(&waits), "{waits}");
        let parts = elapsed(&host, fault / 4, 10_000).into_iter().filter(|took| *took > 0).count();
        assert!((2_300..2_700).contains(&parts), "{parts}");
    }

    /// A kswapd wakes 20 times, with sleeps between; it reclaims 100 pages, waits while another process has its CPU,
    /// and reclaims 100 more.
    #[test]
    fn whoever_reclaims_shows_how_long_kswapd_works_and_waits() {
        let table = Costs::built_in();
        let (page, wait) = (table.reclaim_scan + table.reclaim_page, 1000 * fault(&table));
        let (mut pace, mut at) = (Pace::default(), 1_000_000_000);
        for _ in 0..20 {
            at += 200_000_000;
            pace.look(at, 0, 9, Activity::Woke);
            for number in 1..=200 {
                if number == 101 {
                    pace.look(at + 1, 0, 2, Activity::Other);
                    at += wait;
                }
                at += page;
                pace.look(at, 0, 9, Activity::Reclaimed);
            }
        }
        let host = pace.host();
        let waits = host.distances.iter().filter(|&&nanos| nanos >= wait);
        assert_eq!((waits.count(), host.fresh.len(), host.slower), (20, 20, 1));
        for seed in 0..50 {
            let took = host.elapses(90 * page, &mut None, &mut Random::new(seed, 0));
            assert!(took < wait, "it has slept: seed {seed}");
        }
        faults(&mut pace, [fault(&table); 2000]);
        let with_faults = pace.host();
        assert_eq!(with_faults.distances, host.distances, "faults do not make kswapd faster");
    }

    #[test]
    fn moves_wait_for_the_cpu_like_other_work_until_some_are_known() {
        let mut pace = Pace::default();
        let typical = fault(&Costs::built_in());
        faults(
            &mut pace,
            (0..200).map(|number| if number % 10 == 0 { 1000 * typical } else { typical }),
        );
        let work = 10_000 * Costs::built_in().migrate_page;
        let took = |pace: &Pace, parts| {
            pace.host().elapses_for(Mover::Background, parts, &mut None, &mut Random::new(1, 0))
        };
        assert_eq!(took(&pace, [work, 0]), took(&pace, [0, work]));
        assert!(took(&pace, [work, 0]) > 50 * work, "it waits in every tenth");
        for at in 1..=FEW_MOVES as u64 {
            pace.compacts(at, 8);
            pace.has_moved(at + 1, 8, Mover::Background, 32);
        }
        assert!(took(&pace, [work, 0]) < work, "these are known, and were fast");
    }

    /// A caller moves 32 pages in some time, and 512 in twice that; kcompactd takes ten times as long.
    #[test]
    fn who_moves_pages_takes_as_long_as_the_recorded_host_took() {
        let mut pace = Pace::default();
        faults(&mut pace, [fault(&Costs::built_in()); 100]);
        let mut at = 2_000_000_000;
        for number in 0..64 {
            for (who, pid, times) in [(Mover::Caller, 7, 1), (Mover::Background, 8, 10)] {
                let (pages, nanos) = [(32, 1_000_000), (512, 2_000_000)][number % 2];
                pace.compacts(at, pid);
                at += nanos * times;
                pace.has_moved(at, pid, who, pages);
            }
        }
        let (host, mut random) = (pace.host(), Random::new(1, 0));
        let work = 10_000 * host.costs.migrate_page;
        let [caller, background] = [Mover::Caller, Mover::Background]
            .map(|who| host.elapses_moving(who, work, &mut random).expect("moves are known"));
        // 544 pages in three times 1,000,000, wherever in them a page is.
        let each = caller / 10_000;
        assert!((4_500..6_500).contains(&each), "{each}");
        assert!((45_000..65_000).contains(&(background / 10_000)), "{background}");
        assert_eq!(host.elapses_moving(Mover::Caller, 0, &mut random), Some(0));
        assert_eq!(HostPace::table().elapses_moving(Mover::Caller, 77, &mut random), None);
        pace.has_moved(at + 1, 9, Mover::Caller, 32);
        pace.has_moved(at + LONGEST_MOVE + 2, 7, Mover::Caller, 32);
        pace.has_moved(at + LONGEST_MOVE + 3, 7, Mover::Caller, u64::MAX);
        assert_eq!(
            pace.host().moves,
            host.moves,
            "it did not compact, took too long, moved too much"
        );
    }
}
