//! The speed of the recorded host, and the time that interrupted work took there.
//!
//! It decides how much kswapd and kcompactd get done between two requests. An emulated host is a hundred times slower
//! than the same kernel on its own, and a background machine stands still while another thread has its CPU. Page faults
//! tell both: two anonymous pages that one CPU asks for in a row are a fault, a cleared page and an allocation apart.
//! The *typical* distance is the median, and shows how many times slower than the table of costs the host was. Some are
//! far longer, as the CPU was taken away: by the host, by interrupts, by threads that leave no event. A background
//! machine does as much work as a fault is in a time drawn from these distances, so that it is as fast as faults are
//! and stands still as often and as long. They depend on the workload alone, not on the kernel's work for memory: a
//! page that the process itself reclaimed, or a kswapd on that CPU, ends the row.

use nofrag::units::Order;

use super::request::Use;
use super::step::{Step, What};
use crate::random::Random;
use crate::world::costs::Costs;

/// Number of distances between faults that are kept, the latest ones; fewer than [`FEW`] say nothing.
const ENOUGH: usize = 4096;
const FEW: usize = 64;

/// The recorded host's speed, by its latest page faults.
#[derive(Clone, Debug)]
pub(super) struct HostPace {
    /// Costs of work on the host in nanoseconds: `slower` times the built-in table.
    pub(super) costs: Costs,
    pub(super) slower: u64,
    /// Nanoseconds from one fault to the next; empty while fewer than [`FEW`] are known.
    distances: Vec<u64>,
    typical: u64,
}

impl HostPace {
    /// Returns the pace of a host as fast as the table of costs has it, whose CPUs are never taken away.
    pub(super) fn table() -> HostPace {
        HostPace { costs: Costs::built_in(), slower: 1, distances: Vec::new(), typical: 1 }
    }

    /// Returns the nanoseconds that background work takes here with its interruptions; `work` is without them.
    pub(super) fn elapses(&self, work: u64, random: &mut Random) -> u64 {
        if self.distances.is_empty() {
            return work;
        }
        // A part of a fault's work counts as a whole fault with the probability of its share.
        let whole = (work + random.between(0, self.typical - 1)) / self.typical;
        (0..whole).map(|_| self.distances[random.index(self.distances.len())]).sum()
    }
}

/// Facts about the host's speed, gathered so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// By CPU: the time at which it asked for an anonymous page, if that was its last step.
    last: Vec<Option<u64>>,
    /// The last distances, in a ring.
    distances: Vec<u64>,
    next: usize,
}

impl Pace {
    /// Notes the distances between faults in the next steps.
    pub(super) fn look(&mut self, steps: &[Step]) {
        for step in steps {
            let cpu = usize::from(step.cpu);
            if self.last.len() <= cpu {
                self.last.resize(cpu + 1, None);
            }
            let is_fault = matches!(step.what, What::Alloc { request, .. }
                if request.order == Order::ZERO && request.used == Use::Movable);
            let before = std::mem::replace(&mut self.last[cpu], is_fault.then_some(step.at));
            if let Some(before) = before.filter(|_| is_fault) {
                self.note(step.at.saturating_sub(before));
            }
        }
    }

    fn note(&mut self, distance: u64) {
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
        let mut distances = self.distances.clone();
        let middle = distances.len() / 2;
        let typical = (*distances.select_nth_unstable(middle).1).max(1);
        let slower = (typical / fault(&table.costs)).max(1);
        HostPace { costs: table.costs.times(slower), slower, distances, typical }
    }
}

/// Returns the nanoseconds from one anonymous page to the next, by the table of costs.
fn fault(table: &Costs) -> u64 {
    table.fault + table.clear_huge / Order::PAGEBLOCK.pages() + table.alloc
}

#[cfg(test)]
mod tests {
    use nofrag::page::{Migratetype, RequestFlags, ZoneKind};

    use super::super::request::Request;
    use super::*;

    fn step(at: u64, cpu: u16, used: Use) -> Step {
        let request = Request {
            order: Order::ZERO,
            migratetype: Migratetype::Movable,
            zone: ZoneKind::Normal,
            flags: RequestFlags::NONE,
            used,
            node: None,
        };
        Step { at, cpu, what: What::Alloc { frame: 0, request, place: None } }
    }

    #[test]
    fn a_host_is_as_slow_as_its_faults_in_a_row() {
        let mut pace = Pace::default();
        let fault = fault(&Costs::built_in());
        assert_eq!(pace.host().slower, 1, "as long as nothing is known");
        // Another CPU in between changes nothing; page cache in between does.
        let steps: Vec<Step> = (0..200)
            .flat_map(|n| {
                let at = n * 100 * fault;
                let cached = (n % 10 == 0).then(|| step(at + 1, 0, Use::Cache));
                [Some(step(at, 0, Use::Movable)), Some(step(at + 2, 1, Use::Cache)), cached]
            })
            .flatten()
            .collect();
        pace.look(&steps);
        let host = pace.host();
        assert_eq!((host.slower, host.distances.len()), (100, 179));
        assert_eq!(host.costs.reclaim_page, 100 * Costs::built_in().reclaim_page);
    }

    #[test]
    fn who_works_in_the_background_stands_still_as_often_as_faults_do() {
        let mut pace = Pace::default();
        let fault = fault(&Costs::built_in());
        // Each hundredth fault comes after a thousand times as long.
        let mut at = 0;
        for n in 0..10_000 {
            at += if n % 100 == 0 { 1000 * fault } else { fault };
            pace.look(&[step(at, 0, Use::Movable)]);
        }
        let (host, mut random) = (pace.host(), Random::new(1, 0));
        assert_eq!((host.slower, host.typical, host.distances.len()), (1, fault, ENOUGH));
        let took: Vec<u64> = (0..10_000).map(|_| host.elapses(fault, &mut random)).collect();
        let stood = took.iter().filter(|&&took| took == 1000 * fault).count();
        assert!((50..200).contains(&stood), "{stood}");
        assert_eq!(took.iter().filter(|&&took| took == fault).count(), 10_000 - stood);
        let parts = (0..10_000).filter(|_| host.elapses(fault / 4, &mut random) > 0).count();
        assert!((2_300..2_700).contains(&parts), "{parts}");
        assert_eq!(HostPace::table().elapses(77, &mut random), 77);
    }
}
