//! The world around the allocator: who owns pages and takes them back, who runs when, and what that costs.
//!
//! [`World`] is an allocator with somebody who owns its pages. [`daemons`] (kswapd and kcompactd of each node) move in
//! its time, [`reclaim`] takes pages back in the order of [`lru`], and [`costs`] is the one table of what is assumed.
//! Two users drive it: a workload of our own, and the replay of a recording, whose owner knows pages by their traced
//! frames and whose clock is the recording's.
//!
//! The workload of 2018 in phases is [`thpfioscale`], given a [`setup`]. [`actor`] and [`schedule`]: which thread runs
//! where and when. [`owner`], [`cache`], [`contents`] and [`slab`]: who holds pages. [`load`]: what runs besides.
//! [`heard`]: how compaction ended, from the engine's events. [`real`]: real memory behind the frames.

pub(crate) mod actor;
pub(crate) mod cache;
pub(crate) mod contents;
pub(crate) mod costs;
pub(crate) mod daemons;
pub(crate) mod heard;
pub(crate) mod links;
pub(crate) mod load;
pub(crate) mod lru;
pub(crate) mod owner;
pub(crate) mod real;
pub(crate) mod reclaim;
pub(crate) mod schedule;
pub(crate) mod setup;
pub(crate) mod slab;
pub(crate) mod thpfioscale;

#[cfg(test)]
mod tests;

use nofrag::cpu::CpuId;
use nofrag::event::EventSink;
use nofrag::page::{Migrate, PageAllocator, PageCounters, Reclaim};

use self::costs::Costs;

/// Owns the pages that the allocator has handed out.
pub(crate) trait Owns<S: EventSink>: Reclaim<S> + Migrate {
    /// From now on `cpu` works, whose lists get what is freed, and it is `now` there.
    fn turn(&mut self, cpu: CpuId, now: u64);

    /// Virtual time that reclaim and moves took since the last call.
    fn take_spent(&mut self) -> u64;

    /// How long so much work of a background machine takes, as others may have its CPU.
    fn elapses(&mut self, work: u64) -> u64 {
        work
    }
}

/// An allocator and who owns its pages.
#[derive(Debug)]
pub(crate) struct World<O, S: EventSink> {
    pub(crate) pages: PageAllocator<S>,
    pub(crate) owner: O,
    pub(crate) costs: Costs,
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

impl<O: Owns<S>, S: EventSink> World<O, S> {
    /// Whatever is counted before now is billed to nobody.
    pub(crate) fn new(pages: PageAllocator<S>, owner: O, costs: Costs) -> World<O, S> {
        let billed = Counted::of(pages.counters());
        let mut world = World { pages, owner, costs, billed, woken: Wakes::default() };
        world.told();
        world
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
