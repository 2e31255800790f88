//! The world around the allocator: who owns pages and takes them back, who runs when, and what that costs.
//!
//! Scenarios drive it: [`thpfioscale`] is the workload of 2018 in phases, given a [`setup`]. [`actor`] and
//! [`schedule`]: who runs where and when. [`owner`], [`cache`], [`lru`] and [`slab`]: who holds pages. [`load`]: what
//! runs besides.
//! [`costs`]: the one table of what is assumed. [`heard`]: how compaction ended, from the engine's events. [`real`]:
//! real memory behind the frames.

pub(crate) mod actor;
pub(crate) mod cache;
pub(crate) mod costs;
pub(crate) mod heard;
pub(crate) mod load;
pub(crate) mod lru;
pub(crate) mod owner;
pub(crate) mod real;
pub(crate) mod schedule;
pub(crate) mod setup;
pub(crate) mod slab;
pub(crate) mod thpfioscale;

#[cfg(test)]
mod tests;

use nofrag::page::PageCounters;

use self::costs::Costs;
use self::heard::Pages;
use self::load::Mix;
use self::owner::Owner;

/// What all actors share.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) pages: Pages,
    pub(crate) owner: Owner,
    pub(crate) costs: Costs,
    pub(crate) mix: Mix,
    /// Pages that may be dirty before writers wait.
    pub(crate) dirty_limit: u64,
    /// Pages of files that came from disk.
    pub(crate) read: u64,
    /// Whether readers shall end.
    pub(crate) stopping: bool,
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
    pub(crate) fn new(pages: Pages, owner: Owner, costs: Costs, mix: Mix) -> World {
        let memory: u64 = pages.zones().map(|zone| zone.managed.0).sum();
        World {
            pages,
            owner,
            costs,
            mix,
            dirty_limit: memory * costs.dirty_percent / 100,
            read: 0,
            stopping: false,
            billed: Counted::default(),
            woken: Wakes::default(),
        }
    }

    /// Virtual time that the owner and the engine's lists and scanners took since the last call.
    pub(crate) fn bill(&mut self) -> u64 {
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
    pub(crate) fn has_woken(&self) -> bool {
        self.wakes() != self.woken
    }

    /// The background machines have been told.
    pub(crate) fn told(&mut self) {
        self.woken = self.wakes();
    }

    /// Boost of all zones, in pages.
    pub(crate) fn boost(&self) -> u64 {
        self.pages.zones().map(|zone| zone.boost.0).sum()
    }
}
