//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

use crate::key::Key;
use crate::world::heard::QUARTERS;
use crate::world::setup::Moment;

/// Events with a free block below a pageblock: the figure of which a row shows the spread over seeds.
pub(super) const EVENTS: Key = Key::count("events below order 9");

pub(super) const UNMOVABLE: Key = Key::count("events, unmovable asked for");
pub(super) const MOVABLE: Key = Key::count("events, movable asked for");
pub(super) const RECLAIMABLE: Key = Key::count("events, reclaimable asked for");

/// Prefix of the events of one phase.
pub(super) const EVENTS_IN: &str = "events while ";

/// Counted in the phase in which huge pages are asked for, as in kernels' figures.
pub(super) const DIRECT_WHILE_HUGE: Key = Key::count("pages reclaimed by callers while huge pages");
pub(super) const KSWAPD_WHILE_HUGE: Key = Key::count("pages reclaimed by kswapd while huge pages");
pub(super) const EVENTS_WHILE_HUGE: Key = Key::count("events while huge pages");
pub(super) const WAKES_WHILE_HUGE: Key = Key::count("wakes of kswapd while huge pages");

/// Taken when the first huge page is asked for.
pub(super) const MARKED_AT_FIRST: Key =
    Key::number("percent of pageblocks marked before huge pages");

/// The events that patch 5 calls serious.
pub(super) const SERIOUS: Key = Key::count("events below order 4");
pub(super) const CONVERSIONS: Key = Key::count("events with whole pageblocks");
pub(super) const MISTYPED: Key = Key::count("mistyped allocations");
/// The highest count at the end of a phase.
pub(super) const LIST_MISMATCHES: Key = Key::count("free pages on another type's list");
pub(super) const CLAIMS: Key = Key::count("pageblocks claimed");

pub(super) const MOVED: Key = Key::count("pages moved");
pub(super) const RECLAIMED: Key = Key::count("pages reclaimed");
pub(super) const DIRECT_RECLAIMS: Key = Key::count("direct reclaims");
pub(super) const KSWAPD_WAKES: Key = Key::count("wakes of kswapd");
pub(super) const COMPACT_STALLS: Key = Key::count("direct compactions");
pub(super) const COMPACT_FAILURES: Key = Key::count("direct compactions that failed");
/// Counted in the phase in which huge pages are asked for, zone by zone: outcomes of compaction runs, reasons for none,
/// and wipers of marks.
pub(super) const NOTHING_EXAMINED: Key = Key::count("huge-page runs with nothing examined");
pub(super) const NOTHING_MOVED: Key = Key::count("huge-page runs with nothing to be moved");
pub(super) const NO_WHOLE_BLOCK: Key = Key::count("huge-page runs that moved pages in vain");
pub(super) const NO_TARGET: Key = Key::count("huge-page runs without a place to move to");
pub(super) const DEFERRED: Key = Key::count("zones deferred for huge pages");
pub(super) const UNSUITABLE: Key = Key::count("zones unsuitable for huge pages");
pub(super) const SATISFIED: Key = Key::count("zones with a huge page at hand");
pub(super) const WIPED_BY_KSWAPD: Key = Key::count("marks wiped by kswapd");
pub(super) const WIPED_AFTER_PAUSE: Key = Key::count("marks wiped after the longest pause");

/// Names the runs with one quarter of the shares of marked pageblocks, and those among them that gave a block.
pub(super) fn marked_runs(quarter: usize) -> [Key; 2] {
    let [least, most] = [quarter, quarter + 1].map(|part| part * 100 / QUARTERS);
    let runs = Key::count("huge-page runs with ").with(format_args!("{least}-{most} % marked"));
    [runs.clone(), runs.with(" that gave a block")]
}

pub(super) const MIGRATE_SCANNED: Key = Key::count("pages that the migration scanner looked at");
pub(super) const FREE_SCANNED: Key = Key::count("pages that the free scanner looked at");
pub(super) const BOOSTS: Key = Key::count("boosts");
pub(super) const PEAK_BOOST: Key = Key::count("most pages of boost at once");

pub(super) const STALLS: Key = Key::count("stalls");
pub(super) const STALLED_MS: Key = Key::time("virtual ms stalled in all", 1e-3);
pub(super) const LONGEST_STALL_MS: Key = Key::time("virtual ms of the longest stall", 1e-3);
pub(super) const SPARED: Key = Key::count("free blocks spared for a stall");

pub(super) const HUGE: Key = Key::count("units that got a huge page");
pub(super) const BASE: Key = Key::count("units that got single pages");
pub(super) const HUGE_PERCENT: Key = Key::number("percent huge");
/// Missing where there was no such fault.
pub(super) const BASE_WORK_US: Key =
    Key::number("virtual us of allocator work per unit of single pages");
pub(super) const HUGE_WORK_US: Key = Key::number("virtual us of allocator work per huge fault");
pub(super) const ALL_WORK_MS: Key = Key::time("virtual ms of allocator work of all faults", 1e-3);
/// Missing unless there were faults of both kinds.
pub(super) const WORK_RATIO: Key = Key::number("allocator work, huge over base");

/// Only published: waits in all, exactly or about; mean latencies of the faults of a unit.
pub(super) const STALLED_US: Key = Key::time("us stalled", 1e-6);
pub(super) const STALLED_ABOUT_US: Key = Key::time("us stalled, about", 1e-6);
pub(super) const BASE_LATENCY: Key = Key::number("us of a unit of single pages");
pub(super) const HUGE_LATENCY: Key = Key::number("us of a huge page");

pub(super) const ELAPSED_S: Key = Key::time("virtual s of the run", 1.0);
pub(super) const BLOCKS: Key = Key::count("pageblocks");
pub(super) const FREE_BLOCKS: Key =
    Key::count("pageblocks that could serve as a huge page at the end");

/// Course of the first seed: boost of all zones in pages.
pub(super) const BOOST: Key = Key::count("boost");
/// Returns the key of the largest free order of each part of memory at a moment of the first seed.
pub(super) fn contiguity(moment: Moment) -> Key {
    let number = moment as usize;
    Key::number("contiguity").with(format_args!(" {number:02} {}", moment.into_str()))
}

/// On real memory: the time of a unit of either kind; a row's `time` is its spread over rounds.
pub(super) const UNIT_US: Key = Key::number("us until a unit is mapped, zeroed and written");
pub(super) const HUGE_FAULT_US: Key = Key::number("mean us of a unit that is a huge page");
pub(super) const BASE_FAULTS_US: Key = Key::number("mean us of a unit of 512 base pages");
pub(super) const FAULT_RATIO: Key = Key::number("huge over base");
pub(super) const WRITTEN: Key = Key::count("pages written");
pub(super) const VERIFIED: Key = Key::count("pages verified");
pub(super) const LOST: Key = Key::count("pages lost");
pub(super) const COPIED: Key = Key::count("pages copied");

/// Names a part of the distribution of units of a kind.
pub(super) fn latency(kind: &'static str, part: &str) -> Key {
    Key::number(kind).with(format_args!(" {part} us"))
}
