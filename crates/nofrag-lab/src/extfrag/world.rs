//! What all actors share: the allocator, the owner of its pages, and the bill of virtual time.

use nofrag::page::PageCounters;

use super::compactions::Pages;
use super::costs::Costs;
use super::owner::Owner;
use super::spec::Mix;

/// What all actors share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) pages: Pages,
    pub(super) owner: Owner,
    pub(super) costs: Costs,
    pub(super) mix: Mix,
    /// Pages that may be dirty before writers wait.
    pub(super) dirty_limit: u64,
    /// Whether readers shall end.
    pub(super) stopping: bool,
    billed: Counted,
    woken: Wakes,
}

/// What the engine counts and virtual time is charged for.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    list_visits: u64,
    scanned: u64,
}

impl Counted {
    fn of(counters: &PageCounters) -> Counted {
        Counted {
            list_visits: counters.list_visits,
            scanned: counters.migrate_scanned + counters.free_scanned,
        }
    }
}

/// How often background machines were woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wakes {
    kswapd: u64,
    kcompactd: u64,
}

impl World {
    pub(super) fn new(pages: Pages, owner: Owner, costs: Costs, mix: Mix) -> World {
        let memory: u64 = pages.zones().map(|zone| zone.managed.0).sum();
        World {
            pages,
            owner,
            costs,
            mix,
            dirty_limit: memory * costs.dirty_percent / 100,
            stopping: false,
            billed: Counted::default(),
            woken: Wakes::default(),
        }
    }

    /// Virtual time that the owner and the engine's lists and scanners took since the last call.
    pub(super) fn bill(&mut self) -> u64 {
        let now = Counted::of(self.pages.counters());
        let before = std::mem::replace(&mut self.billed, now);
        self.owner.take_spent()
            + (now.list_visits - before.list_visits) * self.costs.list_visit
            + (now.scanned - before.scanned) * self.costs.compact_scan
    }

    fn wakes(&self) -> Wakes {
        let counters = self.pages.counters();
        Wakes { kswapd: counters.kswapd_wakes, kcompactd: counters.kcompactd_wakes }
    }

    /// Whether a background machine was woken that has not been told.
    pub(super) fn has_woken(&self) -> bool {
        self.wakes() != self.woken
    }

    /// The background machines have been told.
    pub(super) fn told(&mut self) {
        self.woken = self.wakes();
    }

    /// Boost of all zones, in pages.
    pub(super) fn boost(&self) -> u64 {
        self.pages.zones().map(|zone| zone.boost.0).sum()
    }
}
