//! How fast the recorded host was: how many times slower than the machine of the table of costs.
//!
//! What kswapd and kcompactd get done between two requests depends on it, and an emulated host is a hundred times
//! slower than the same kernel on its own. A page fault says it: two anonymous pages that one CPU asks for in a row
//! are a fault, a cleared page and an allocation apart. The median of the first such distances is taken; the workload
//! alone decides of them, not what the kernel did about memory.

use nofrag::units::Order;

use super::request::Use;
use super::step::{Step, What};
use crate::world::costs::Costs;

/// Distances that are enough, and those that are too few to say anything.
const ENOUGH: usize = 4096;
const FEW: usize = 64;

/// What is known of it so far.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    table: Costs,
    /// By CPU: when it asked for an anonymous page, if that was the last thing it did.
    last: Vec<Option<u64>>,
    distances: Vec<u64>,
    slower: u64,
}

impl Pace {
    pub(super) fn new() -> Pace {
        let table = Costs::built_in();
        Pace { table, last: Vec::new(), distances: Vec::new(), slower: 1 }
    }

    /// Looks at what comes next.
    pub(super) fn look(&mut self, steps: &[Step]) {
        if self.distances.len() >= ENOUGH {
            return;
        }
        for step in steps {
            let cpu = usize::from(step.cpu);
            if self.last.len() <= cpu {
                self.last.resize(cpu + 1, None);
            }
            let is_fault = matches!(step.what, What::Alloc { request, .. }
                if request.order == Order::ZERO && request.used == Use::Movable);
            let before = std::mem::replace(&mut self.last[cpu], is_fault.then_some(step.at));
            if let Some(before) = before.filter(|_| is_fault) {
                self.distances.push(step.at.saturating_sub(before));
            }
        }
        if self.distances.len() >= FEW {
            let middle = self.distances.len() / 2;
            let (_, median, _) = self.distances.select_nth_unstable(middle);
            self.slower = (*median / self.fault()).max(1);
        }
    }

    /// How many times slower the host is.
    pub(super) fn slower(&self) -> u64 {
        self.slower
    }

    /// What things cost there.
    pub(super) fn costs(&self) -> Costs {
        self.table.times(self.slower)
    }

    /// From one anonymous page to the next, by the table.
    fn fault(&self) -> u64 {
        self.table.fault + self.table.clear_huge / Order::PAGEBLOCK.pages() + self.table.alloc
    }
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
        let mut pace = Pace::new();
        let fault = pace.fault();
        assert_eq!(pace.slower(), 1, "as long as nothing is known");
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
        assert_eq!((pace.slower(), pace.distances.len()), (100, 179));
        assert_eq!(pace.costs().reclaim_page, 100 * Costs::built_in().reclaim_page);
    }
}
