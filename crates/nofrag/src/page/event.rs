//! Events that the kernel would trace about pages (trace groups `kmem`, `compaction`, `vmscan`), and its counters.

use super::compaction::Mode;
use super::map::NodeId;
use super::migratetype::Migratetype;
use super::zone::ZoneId;
use crate::units::{Nanos, Order, PageCount, Pfn};

/// One thing that the page allocator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageEvent {
    /// `mm_page_alloc`: a block was handed out.
    Allocated {
        pfn: Pfn,
        order: Order,
        /// The type that was asked for.
        migratetype: Migratetype,
    },
    /// `mm_page_free`: a block came back.
    Freed { pfn: Pfn, order: Order },
    /// `mm_page_alloc_zone_locked` of a refill: a block went from the zone to a per-CPU list.
    Refilled {
        pfn: Pfn,
        order: Order,
        /// The type of the list.
        migratetype: Migratetype,
    },
    /// `mm_page_pcpu_drain`: a block went from a per-CPU list back to the zone.
    Drained {
        pfn: Pfn,
        order: Order,
        /// The type to whose list it went.
        migratetype: Migratetype,
    },
    /// `mm_page_alloc_extfrag`: a request was served from free memory of another type.
    ExternalFragmentation(ExtFrag),
    /// A zone's watermarks were raised.
    Boosted {
        zone: ZoneId,
        /// Boost of the zone after the rise.
        boost: PageCount,
    },
    /// `mm_vmscan_wakeup_kswapd`: the node's kswapd was woken.
    KswapdWoken {
        node: NodeId,
        /// Order of the wanted block.
        order: Order,
    },
    /// `mm_vmscan_kswapd_sleep`: the node's kswapd went to sleep.
    KswapdSleeps { node: NodeId },
    /// The node's kcompactd was asked for a block (`wakeup_kcompactd`).
    KcompactdAsked {
        node: NodeId,
        /// Order of the wanted block.
        order: Order,
        /// True if it was woken for that (`mm_compaction_wakeup_kcompactd`), as compaction has room for such a block.
        woken: bool,
    },
    /// `mm_compaction_end`: a run of compaction over a zone ended.
    Compacted(CompactionRun),
    /// `mm_compaction_deferred`, `mm_compaction_suitable`: a caller came to a zone and made no run there.
    CompactionSpared {
        /// Aim that a run would have had.
        aim: CompactionAim,
        why: NoRun,
    },
    /// Marks on pageblocks that tell scanners to pass them by were wiped (`reset_isolation_suitable`).
    MarksWiped {
        zone: ZoneId,
        by: Wiper,
        /// Number of marked pageblocks before the wipe.
        before: u64,
        /// Number of marked pageblocks after the wipe.
        after: u64,
    },
    /// "page allocation stall" in the log: a request has taken ten seconds or more and is not served yet.
    AllocationStall {
        order: Order,
        migratetype: Migratetype,
        /// Time that the request has taken so far.
        waited: Nanos,
    },
    /// `mm_fragmentation_stall` (patch 5): a caller has waited for the node's kswapd.
    FragmentationStall { node: NodeId, waited: Nanos },
}

/// Aim of compacting a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionAim {
    pub zone: ZoneId,
    /// Order of the wanted block.
    pub order: Order,
    /// Type of the request for the block.
    pub migratetype: Migratetype,
    pub mode: Mode,
}

/// A run of compaction over a zone that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionRun {
    pub aim: CompactionAim,
    /// Pageblocks of the zone that scanners were told to pass by when the run began.
    pub marked: u64,
    /// All pageblocks of the zone.
    pub blocks: u64,
    pub moved: u64,
    pub end: RunEnd,
}

/// End of a run of compaction, with the reason if no block came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RunEnd {
    /// The run has reached its goal.
    Success,
    /// The scanners met, and no frame had been looked at for something to move.
    NothingExamined,
    /// The scanners met, and nothing that was looked at could be moved.
    NothingMoved,
    /// The scanners met; pages were moved, and no block became whole.
    NoWholeBlock,
    /// There was something to move, and no place for it.
    NoTarget,
}

/// Reason why no run was made over a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NoRun {
    /// Compaction of the zone failed lately.
    Deferred,
    /// Too little is free, or lack of memory is the cause.
    Unsuitable,
    /// A block of the wanted order is free.
    Satisfied,
}

/// Cause of a wipe of marks on pageblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Wiper {
    /// kswapd as it goes to sleep.
    Kswapd,
    /// An attempt after the longest pause of compaction in the zone.
    LongestPause,
    /// The start of a run under `SourceRules::EmptiestBlock`, which heeds its own marks alone.
    Run,
}

/// The fields of `mm_page_alloc_extfrag` (docs/sources/pages.md#extfrag-event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtFrag {
    /// The free block that was used.
    pub pfn: Pfn,
    pub zone: ZoneId,
    /// The order that was asked for.
    pub alloc_order: Order,
    /// The size of the free block that was used.
    pub fallback_order: Order,
    /// The type that was asked for.
    pub alloc_migratetype: Migratetype,
    /// The type from whose list the free block came.
    pub fallback_migratetype: Migratetype,
    /// True if the pageblock now has the type that was asked for.
    pub change_ownership: bool,
}

impl ExtFrag {
    /// Returns true if types may mix in a pageblock because of the event: the free block was smaller than a pageblock.
    /// Gorman 2018 counts these events.
    #[must_use]
    pub fn fragmenting(&self) -> bool {
        self.fallback_order < Order::PAGEBLOCK
    }

    /// Returns true if the free block was below order 4, which patch 5 calls serious (docs/sources/pages.md#trap-1).
    #[must_use]
    pub fn serious(&self) -> bool {
        self.fallback_order <= Order::COSTLY
    }
}

/// Counts since the allocator was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageCounters {
    /// Blocks handed out, by the type asked for.
    pub allocations: [u64; Migratetype::COUNT],
    pub frees: u64,
    /// External fragmentation events with a free block below a pageblock: `[type asked for][type of the list]`.
    pub extfrag: [[u64; Migratetype::COUNT]; Migratetype::COUNT],
    /// External fragmentation events with a free block below order 4, by the type asked for.
    pub serious: [u64; Migratetype::COUNT],
    /// `mm_page_alloc_extfrag` with a free block of a pageblock or more: whole pageblocks change type, nothing mixes.
    pub conversions: u64,
    /// Blocks handed out from a pageblock of another type, by the type asked for; once each, whatever their order.
    pub mistyped: [u64; Migratetype::COUNT],
    /// Pageblocks whose type changed because most of their pages suited the new one.
    pub claims: u64,
    /// Passes that were repeated without `ALLOC_NOFRAGMENT`.
    pub spread_given_up: u64,
    /// Times that a zone's watermarks were raised.
    pub boosts: u64,
    /// Free blocks of another type that were left alone, so that the request waits for kswapd instead (patch 5).
    pub stall_refusals: u64,
    /// Waits of callers that took time (`fragment_stall`).
    pub stalls: u64,
    /// Total time that callers have waited.
    pub stalled: Nanos,
    /// Entries into direct reclaim (`allocstall`).
    pub direct_reclaims: u64,
    /// Pages that owners took back for callers.
    pub reclaimed_direct: u64,
    /// Pages that owners took back for kswapd.
    pub reclaimed_kswapd: u64,
    pub kswapd_wakes: u64,
    /// Runs of kswapd (`pageoutrun`).
    pub kswapd_runs: u64,
    /// Times that kcompactd took up what it was asked for (`compact_daemon_wake`).
    pub kcompactd_wakes: u64,
    /// Times that kcompactd was woken for what it was asked for, as compaction had room for it.
    pub kcompactd_signals: u64,
    /// Blocks whose content was moved elsewhere (`pgmigrate_success`), in pages.
    pub moved: u64,
    /// Moves that the owner refused, in pages.
    pub not_moved: u64,
    /// Frames that the migration scanner looked at (`compact_migrate_scanned`).
    pub migrate_scanned: u64,
    /// Frames that the free scanner looked at (`compact_free_scanned`).
    pub free_scanned: u64,
    /// Entries into direct compaction (`compact_stall`).
    pub compact_stalls: u64,
    /// Direct compactions that gave the block (`compact_success`).
    pub compact_successes: u64,
    /// Direct compactions that did not give it (`compact_fail`).
    pub compact_failures: u64,
    /// Direct compactions in which every zone was left alone, as it had failed lately; kernels up to 6.12 count them as
    /// failures.
    pub compact_put_off: u64,
    /// Requests that failed, by order.
    pub failures: [u64; Order::COUNT],
    /// Searches of the free lists, those that found nothing included, and drains of per-CPU lists: the work under the
    /// zone lock.
    pub list_visits: u64,
}

impl PageCounters {
    pub(super) fn count_extfrag(&mut self, event: &ExtFrag) {
        let (to, from) = (event.alloc_migratetype.index(), event.fallback_migratetype.index());
        if event.fragmenting() {
            self.extfrag[to][from] += 1;
            self.serious[to] += u64::from(event.serious());
        } else {
            self.conversions += 1;
        }
    }

    /// Returns the number of external fragmentation events as Gorman 2018 counts them: free blocks below a pageblock.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.extfrag.iter().flatten().sum()
    }

    /// Returns the number of external fragmentation events by the type that was asked for.
    #[must_use]
    pub fn events_of(&self, migratetype: Migratetype) -> u64 {
        self.extfrag[migratetype.index()].iter().sum()
    }
}
