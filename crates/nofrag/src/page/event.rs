//! What the kernel would trace about pages (trace groups `kmem`, `compaction`, `vmscan`), and what it counts.

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
        /// Its first frame.
        pfn: Pfn,
        /// Its size.
        order: Order,
        /// The type that was asked for.
        migratetype: Migratetype,
    },
    /// `mm_page_free`: a block came back.
    Freed {
        /// Its first frame.
        pfn: Pfn,
        /// Its size.
        order: Order,
    },
    /// `mm_page_alloc_zone_locked` of a refill: a block went from the zone to a per-CPU list.
    Refilled {
        /// Its first frame.
        pfn: Pfn,
        /// Its size.
        order: Order,
        /// The type of the list.
        migratetype: Migratetype,
    },
    /// `mm_page_pcpu_drain`: a block went from a per-CPU list back to the zone.
    Drained {
        /// Its first frame.
        pfn: Pfn,
        /// Its size.
        order: Order,
        /// The type to whose list it went.
        migratetype: Migratetype,
    },
    /// `mm_page_alloc_extfrag`: a request was served from free memory of another type.
    ExternalFragmentation(ExtFrag),
    /// A zone's watermarks were raised.
    Boosted {
        /// The zone.
        zone: ZoneId,
        /// Its boost now.
        boost: PageCount,
    },
    /// `mm_vmscan_wakeup_kswapd`.
    KswapdWoken {
        /// The node.
        node: NodeId,
        /// For a block of this size.
        order: Order,
    },
    /// `mm_vmscan_kswapd_sleep`.
    KswapdSleeps {
        /// The node.
        node: NodeId,
    },
    /// `mm_compaction_kcompactd_wake`.
    KcompactdWoken {
        /// The node.
        node: NodeId,
        /// For a block of this size.
        order: Order,
    },
    /// `mm_compaction_end`: a run of compaction over a zone ended.
    Compacted(CompactionRun),
    /// `mm_compaction_deferred`, `mm_compaction_suitable`: a caller came to a zone and made no run there.
    CompactionSpared {
        /// For what a run would have been.
        aim: CompactionAim,
        /// Why there was none.
        why: NoRun,
    },
    /// Marks on pageblocks that tell scanners to pass them by were wiped (`reset_isolation_suitable`).
    MarksWiped {
        /// The zone.
        zone: ZoneId,
        /// Who did.
        by: Wiper,
        /// Marked pageblocks before.
        before: u64,
        /// Marked pageblocks after.
        after: u64,
    },
    /// "page allocation stall" in the log: a request has taken ten seconds or more and is not served yet.
    AllocationStall {
        /// Its size.
        order: Order,
        /// Its type.
        migratetype: Migratetype,
        /// How long it has taken so far.
        waited: Nanos,
    },
    /// `mm_fragmentation_stall` (patch 5): a caller waited.
    FragmentationStall {
        /// The node.
        node: NodeId,
        /// How long.
        waited: Nanos,
    },
}

/// For what a zone is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionAim {
    /// The zone.
    pub zone: ZoneId,
    /// For a block of this size.
    pub order: Order,
    /// For a request of this type.
    pub migratetype: Migratetype,
    /// For whom.
    pub mode: Mode,
}

/// A run of compaction over a zone that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionRun {
    /// What it was for.
    pub aim: CompactionAim,
    /// Pageblocks with a mark when it began.
    pub marked: u64,
    /// All pageblocks.
    pub blocks: u64,
    /// Pages moved.
    pub moved: u64,
    /// How it ended.
    pub end: RunEnd,
}

/// How a run of compaction ended; if without a block, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RunEnd {
    /// There is what it was for.
    Success,
    /// The scanners met, and no frame had been looked at for something to move.
    NothingExamined,
    /// They met, and nothing that was looked at could be moved.
    NothingMoved,
    /// They met; pages were moved, and no block became whole.
    NoWholeBlock,
    /// There was something to move, and no place for it.
    NoTarget,
}

/// Why no run was made over a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NoRun {
    /// It failed lately.
    Deferred,
    /// Too little is free, or lack of memory is what is wrong.
    Unsuitable,
    /// There is such a block.
    Satisfied,
}

/// Who wipes marks on pageblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Wiper {
    /// kswapd as it goes to sleep.
    Kswapd,
    /// The try after the longest pause.
    LongestPause,
    /// A run that heeds no marks of others.
    Run,
}

/// The fields of `mm_page_alloc_extfrag` (docs/sources/pages.md#extfrag-event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtFrag {
    /// The free block that was used.
    pub pfn: Pfn,
    /// Where it is.
    pub zone: ZoneId,
    /// What was asked for.
    pub alloc_order: Order,
    /// The size of the free block that was used.
    pub fallback_order: Order,
    /// The type that was asked for.
    pub alloc_migratetype: Migratetype,
    /// The type from whose list it came.
    pub fallback_migratetype: Migratetype,
    /// Whether the block has the type that was asked for, now.
    pub change_ownership: bool,
}

impl ExtFrag {
    /// Whether types may mix in a pageblock because of it: the free block was smaller than one. What the document
    /// counts.
    #[must_use]
    pub fn fragmenting(&self) -> bool {
        self.fallback_order < Order::PAGEBLOCK
    }

    /// Whether the free block was below order 4: what patch 5 calls serious (docs/sources/pages.md#trap-1).
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
    /// Blocks given back.
    pub frees: u64,
    /// Events with a free block below a pageblock: `[type asked for][type of the list]`.
    pub extfrag: [[u64; Migratetype::COUNT]; Migratetype::COUNT],
    /// Those among them with a free block below order 4, by the type asked for.
    pub serious: [u64; Migratetype::COUNT],
    /// Events with a free block of a pageblock or more: whole blocks change type, nothing mixes.
    pub conversions: u64,
    /// Blocks handed out from a pageblock of another type, by the type asked for; once each, whatever their order.
    pub mistyped: [u64; Migratetype::COUNT],
    /// Pageblocks whose type changed because most of their pages fitted.
    pub claims: u64,
    /// Passes that were repeated without `ALLOC_NOFRAGMENT`.
    pub spread_given_up: u64,
    /// Times that a zone's watermarks were raised.
    pub boosts: u64,
    /// Free blocks that were spared for the sake of a wait.
    pub stall_refusals: u64,
    /// Waits of callers that took time (`fragment_stall`).
    pub stalls: u64,
    /// Their sum.
    pub stalled: Nanos,
    /// Entries into direct reclaim (`allocstall`).
    pub direct_reclaims: u64,
    /// Pages that owners took back for callers.
    pub reclaimed_direct: u64,
    /// Pages that owners took back for kswapd.
    pub reclaimed_kswapd: u64,
    /// Wakes of kswapd.
    pub kswapd_wakes: u64,
    /// Runs of kswapd (`pageoutrun`).
    pub kswapd_runs: u64,
    /// Wakes of kcompactd (`compact_daemon_wake`).
    pub kcompactd_wakes: u64,
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
    /// Those that gave the block (`compact_success`).
    pub compact_successes: u64,
    /// Those that did not (`compact_fail`).
    pub compact_failures: u64,
    /// Entries in which every zone was left alone, as it had failed lately; kernels up to 6.12 count them as failures.
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

    /// External fragmentation events as the document counts them: free blocks below a pageblock.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.extfrag.iter().flatten().sum()
    }

    /// Such events by the type that was asked for.
    #[must_use]
    pub fn events_of(&self, migratetype: Migratetype) -> u64 {
        self.extfrag[migratetype.index()].iter().sum()
    }
}
