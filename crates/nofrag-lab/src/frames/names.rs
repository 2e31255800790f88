//! Keys of the compared quantities, that more than one place uses.

use crate::key::Key;

/// Declares the quantities that are compared on the way, but for the answers' frames and reclaim, in their order.
macro_rules! on_the_way {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub(super) const $name: Key = Key::count($text);)*

        pub(super) const ON_THE_WAY: &[Key] = &[$($name),*];
    };
}

on_the_way! {
    /// Zones that the answers' frames lie in.
    ZONES = "zones of answers";
    /// Frames that the bulk interface handed out.
    BULK = "bulk frames";
    /// Refills: all frames in order.
    REFILLS = "refilled blocks";
    /// Drains of per-CPU lists: all frames in order.
    DRAINS = "drained blocks";
    /// Events `mm_page_alloc_extfrag`, all fields.
    EXTFRAG = "extfrag events";
    /// Attempts to compact: whether each was put off or let in, and the number of those put off.
    DECISIONS = "compaction put off or let in";
    /// Compaction's memory of a zone when a run is let in: positions of its scanners, and the pause after failures.
    REMEMBERED = "positions and pauses of compaction";
    /// The number of marked pageblocks when a run is let in.
    MARKED = "number of marked pageblocks";
    /// Runs of compaction: all moves in order, and the end.
    RUNS = "runs of compaction";
    /// The moves alone, of runs that move anything.
    RUN_MOVES = "moves of runs";
    RUN_ENDS = "ends of runs";
    /// The moves of kcompactd's runs that work ahead.
    AHEAD = "runs of kcompactd ahead of need";
    /// Answers on whether compaction can help.
    SUITABLE = "whether compaction helps";
    /// Wakes of a kswapd that slept or dozed: the waker and the order.
    WOKEN = "wakes of kswapd";
    /// Runs of kswapd: the order.
    KSWAPD_RUNS = "runs of kswapd";
    /// Pieces of sources: range, frames scanned, pages taken.
    SOURCES = "pieces of sources";
    /// Pieces of targets, compared likewise.
    TARGETS = "pieces of targets";
    /// Pieces of quick searches for targets, where a kernel tells of them.
    SEARCHES = "searches for targets";
    /// Free blocks taken, in order.
    ISOLATED = "free blocks that compaction takes";
    /// Pageblocks that kernel or engine looked at for sources; the same if both did.
    LOOKED = "pageblocks looked at for sources";
    /// Pageblocks that the engine left out, by its reason; the same if the kernel left them out, too.
    PASSED_MARKED = "pageblocks left out as marked";
    PASSED_TYPE = "pageblocks left out for their type";
    PASSED_HUGE = "pageblocks left out as one block";
    PASSED_ABSENT = "pageblocks left out without memory";
}

pub(super) const FREE_LISTS: Key = Key::count("free lists");
pub(super) const FREE_ENTRIES: Key = Key::count("entries of free lists");
pub(super) const CPU_LISTS: Key = Key::count("per-CPU lists");
pub(super) const CPU_ENTRIES: Key = Key::count("entries of per-CPU lists");
pub(super) const CPU_COUNTS: Key = Key::count("per-CPU counts and factors");
pub(super) const TYPES: Key = Key::count("pageblock types");
pub(super) const MARKS: Key = Key::count("skip marks");
pub(super) const BOOSTS: Key = Key::count("boosts");
pub(super) const FLAGS: Key = Key::count("zone flags and reserves");
pub(super) const POSITIONS: Key = Key::count("scanner positions");
pub(super) const DEFERRAL: Key = Key::count("deferral");
pub(super) const LRU_TAKEN: Key = Key::count("isolations of reclaim");
pub(super) const LRU_FREED: Key = Key::count("frames that reclaim freed");
pub(super) const LRU_PASSES: Key = Key::count("ends of passes of reclaim");
pub(super) const LRU_CALLS: Key = Key::count("calls of direct reclaim");
pub(super) const LRU_END: Key = Key::count("positions of LRU lists");
