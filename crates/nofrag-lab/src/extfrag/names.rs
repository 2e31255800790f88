//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

use crate::world::heard::QUARTERS;

/// Events with a free block below a pageblock: the figure of which a row shows the spread over seeds.
pub(super) const EVENTS: &str = "events below order 9";

pub(super) const UNMOVABLE: &str = "events, unmovable asked for";
pub(super) const MOVABLE: &str = "events, movable asked for";
pub(super) const RECLAIMABLE: &str = "events, reclaimable asked for";

/// Prefix of the events of one phase.
pub(super) const EVENTS_IN: &str = "events while ";

/// Counted in the phase in which huge pages are asked for, as in kernels' figures.
pub(super) const DIRECT_WHILE_HUGE: &str = "pages reclaimed by callers while huge pages";
pub(super) const KSWAPD_WHILE_HUGE: &str = "pages reclaimed by kswapd while huge pages";
pub(super) const EVENTS_WHILE_HUGE: &str = "events while huge pages";
pub(super) const WAKES_WHILE_HUGE: &str = "wakes of kswapd while huge pages";

/// Taken when the first huge page is asked for.
pub(super) const MARKED_AT_FIRST: &str = "percent of pageblocks marked before huge pages";

/// The events that patch 5 calls serious.
pub(super) const SERIOUS: &str = "events below order 4";
pub(super) const CONVERSIONS: &str = "events with whole pageblocks";
pub(super) const MISTYPED: &str = "mistyped allocations";
/// The highest count at the end of a phase.
pub(super) const LIST_MISMATCHES: &str = "free pages on another type's list";
pub(super) const CLAIMS: &str = "pageblocks claimed";

pub(super) const MOVED: &str = "pages moved";
pub(super) const RECLAIMED: &str = "pages reclaimed";
pub(super) const DIRECT_RECLAIMS: &str = "direct reclaims";
pub(super) const KSWAPD_WAKES: &str = "wakes of kswapd";
pub(super) const COMPACT_STALLS: &str = "direct compactions";
pub(super) const COMPACT_FAILURES: &str = "direct compactions that failed";
/// Counted in the phase in which huge pages are asked for, zone by zone: outcomes of compaction runs, reasons for none,
/// and wipers of marks.
pub(super) const NOTHING_EXAMINED: &str = "huge-page runs with nothing examined";
pub(super) const NOTHING_MOVED: &str = "huge-page runs with nothing to be moved";
pub(super) const NO_WHOLE_BLOCK: &str = "huge-page runs that moved pages in vain";
pub(super) const NO_TARGET: &str = "huge-page runs without a place to move to";
pub(super) const DEFERRED: &str = "zones deferred for huge pages";
pub(super) const UNSUITABLE: &str = "zones unsuitable for huge pages";
pub(super) const SATISFIED: &str = "zones with a huge page at hand";
pub(super) const WIPED_BY_KSWAPD: &str = "marks wiped by kswapd";
pub(super) const WIPED_AFTER_PAUSE: &str = "marks wiped after the longest pause";

/// Names the runs with one quarter of the shares of marked pageblocks, and those among them that gave a block.
pub(super) fn marked_runs(quarter: usize) -> [String; 2] {
    let [least, most] = [quarter, quarter + 1].map(|part| part * 100 / QUARTERS);
    let runs = format!("huge-page runs with {least}-{most} % marked");
    [runs.clone(), format!("{runs} that gave a block")]
}

pub(super) const MIGRATE_SCANNED: &str = "pages that the migration scanner looked at";
pub(super) const FREE_SCANNED: &str = "pages that the free scanner looked at";
pub(super) const BOOSTS: &str = "boosts";
pub(super) const PEAK_BOOST: &str = "most pages of boost at once";

pub(super) const STALLS: &str = "stalls";
pub(super) const STALLED_MS: &str = "virtual ms stalled in all";
pub(super) const LONGEST_STALL_MS: &str = "virtual ms of the longest stall";
pub(super) const SPARED: &str = "free blocks spared for a stall";

pub(super) const HUGE: &str = "units that got a huge page";
pub(super) const BASE: &str = "units that got single pages";
pub(super) const HUGE_PERCENT: &str = "percent huge";
/// Missing where there was no such fault.
pub(super) const BASE_WORK_US: &str = "virtual us of allocator work per unit of single pages";
pub(super) const HUGE_WORK_US: &str = "virtual us of allocator work per huge fault";
pub(super) const ALL_WORK_MS: &str = "virtual ms of allocator work of all faults";
/// Missing unless there were faults of both kinds.
pub(super) const WORK_RATIO: &str = "allocator work, huge over base";

pub(super) const ELAPSED_S: &str = "virtual s of the run";
pub(super) const BLOCKS: &str = "pageblocks";
pub(super) const FREE_BLOCKS: &str = "pageblocks that could serve as a huge page at the end";

/// Courses of the first seed: boost of all zones in pages, and the largest free order of the parts of memory at a
/// moment.
pub(super) const BOOST: &str = "boost";
pub(super) const CONTIGUITY: &str = "contiguity ";

/// On real memory: the time of a unit of either kind; a row's `time` is its spread over rounds.
pub(super) const UNIT_US: &str = "us until a unit is mapped, zeroed and written";
pub(super) const HUGE_FAULT_US: &str = "mean us of a unit that is a huge page";
pub(super) const BASE_FAULTS_US: &str = "mean us of a unit of 512 base pages";
pub(super) const FAULT_RATIO: &str = "huge over base";
pub(super) const WRITTEN: &str = "pages written";
pub(super) const VERIFIED: &str = "pages verified";
pub(super) const LOST: &str = "pages lost";
pub(super) const COPIED: &str = "pages copied";

/// Names a part of the distribution of units of a kind.
pub(super) fn latency(kind: &str, part: &str) -> String {
    format!("{kind} {part} us")
}
