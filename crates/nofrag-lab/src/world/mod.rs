//! The world around the allocator: owners of pages, reclaim, the order in which threads run, and costs in virtual time.
//!
//! [`World`] is an allocator together with the owner of its pages. [`daemons`] (kswapd and kcompactd of each node) move
//! in its time, [`reclaim`] takes pages back in the order of [`lru`], and [`costs`] is the one table of assumptions.
//! Two users drive it: a workload of our own, and the replay of a recording, whose owner knows pages by their traced
//! frames and whose clock is the recording's.
//!
//! The workload of 2018 in phases is [`thpfioscale`], given a [`setup`]. [`actor`] and [`schedule`]: threads, their
//! CPUs, and the order in which they move. [`owner`], [`cache`], [`contents`] and [`slab`]: holders of pages. [`load`]:
//! load beside the page cache. [`heard`]: ends of compaction, from the engine's events. [`real`]: real memory behind
//! the frames.

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

/// An owner of the pages that the allocator has handed out.
pub(crate) trait Owns<S: EventSink>: Reclaim<S> + Migrate {
    /// Makes `cpu`, whose lists get freed pages, the CPU that works from now on; its clock stands at `now`.
    fn turn(&mut self, cpu: CpuId, now: u64);

    /// Returns the virtual time that reclaim and moves took since the last call.
    fn take_spent(&mut self) -> u64;

    /// Returns the virtual time that a background machine takes for `work`: longer than the work itself where others
    /// may have its CPU. `place` is the owner's, kept for each machine, and `None` after that has slept.
    fn elapses(&mut self, work: u64, _place: &mut Option<usize>) -> u64 {
        work
    }
}

/// An allocator and the owner of its pages.
#[derive(Debug)]
pub(crate) struct World<O, S: EventSink> {
    pub(crate) pages: PageAllocator<S>,
    pub(crate) owner: O,
    pub(crate) costs: Costs,
    billed: Counted,
    woken: Wakes,
}

/// Counters of the engine that virtual time is charged for.
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

/// Wakes of background machines, as the engine counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wakes {
    kswapd: u64,
    kcompactd: u64,
}

impl<O: Owns<S>, S: EventSink> World<O, S> {
    /// Creates a world in which nothing that was counted before is billed.
    pub(crate) fn new(pages: PageAllocator<S>, owner: O, costs: Costs) -> World<O, S> {
        let billed = Counted::of(pages.counters());
        let mut world = World { pages, owner, costs, billed, woken: Wakes::default() };
        world.told();
        world
    }

    /// Returns the virtual time that the owner and the engine's lists and scanners took since the last call.
    pub(crate) fn bill(&mut self) -> u64 {
        let now = Counted::of(self.pages.counters());
        let before = std::mem::replace(&mut self.billed, now);
        self.owner.take_spent()
            + (now.list_visits - before.list_visits) * self.costs.list_visit
            + (now.scanned - before.scanned) * self.costs.compact_scan
    }

    fn wakes(&self) -> Wakes {
        let counters = self.pages.counters();
        Wakes { kswapd: counters.kswapd_wakes, kcompactd: counters.kcompactd_signals }
    }

    /// Returns true if a background machine was woken since the last [`told`](Self::told).
    pub(crate) fn has_woken(&self) -> bool {
        self.wakes() != self.woken
    }

    /// Notes that the background machines know of all wakes so far.
    pub(crate) fn told(&mut self) {
        self.woken = self.wakes();
    }

    /// Returns the boost of all zones, in pages.
    pub(crate) fn boost(&self) -> u64 {
        self.pages.zones().map(|zone| zone.boost.0).sum()
    }
}
