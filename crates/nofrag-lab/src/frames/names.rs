//! Keys of the compared quantities, that more than one place uses.

use crate::key::Key;

pub(super) const ZONES: Key = Key::count("zones of answers");
pub(super) const BULK: Key = Key::count("bulk frames");
pub(super) const REFILLS: Key = Key::count("refilled blocks");
pub(super) const DRAINS: Key = Key::count("drained blocks");
pub(super) const EXTFRAG: Key = Key::count("extfrag events");

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
pub(super) const DECISIONS: Key = Key::count("compaction put off or let in");
pub(super) const REMEMBERED: Key = Key::count("positions and pauses of compaction");
pub(super) const MARKED: Key = Key::count("number of marked pageblocks");
pub(super) const RUNS: Key = Key::count("runs of compaction");
pub(super) const RUN_MOVES: Key = Key::count("moves of runs");
pub(super) const RUN_ENDS: Key = Key::count("ends of runs");
pub(super) const AHEAD: Key = Key::count("runs of kcompactd ahead of need");
pub(super) const LRU_TAKEN: Key = Key::count("isolations of reclaim");
pub(super) const LRU_FREED: Key = Key::count("frames that reclaim freed");
pub(super) const LRU_PASSES: Key = Key::count("ends of passes of reclaim");
pub(super) const LRU_CALLS: Key = Key::count("calls of direct reclaim");
pub(super) const LRU_END: Key = Key::count("positions of LRU lists");
pub(super) const SUITABLE: Key = Key::count("whether compaction helps");
pub(super) const WOKEN: Key = Key::count("wakes of kswapd");
pub(super) const KSWAPD_RUNS: Key = Key::count("runs of kswapd");
pub(super) const SOURCES: Key = Key::count("pieces of sources");
pub(super) const TARGETS: Key = Key::count("pieces of targets");
pub(super) const ISOLATED: Key = Key::count("free blocks that compaction takes");
pub(super) const LOOKED: Key = Key::count("pageblocks looked at for sources");
pub(super) const PASSED_MARKED: Key = Key::count("pageblocks left out as marked");
pub(super) const PASSED_TYPE: Key = Key::count("pageblocks left out for their type");
