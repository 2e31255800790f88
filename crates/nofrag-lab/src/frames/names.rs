//! The names of what is compared, as JSON and tables have them.

pub(super) const ZONES: &str = "zones of answers";
pub(super) const BULK: &str = "bulk frames";
pub(super) const REFILLS: &str = "refilled blocks";
pub(super) const DRAINS: &str = "drained blocks";
pub(super) const EXTFRAG: &str = "extfrag events";

pub(super) const FREE_LISTS: &str = "free lists";
pub(super) const FREE_ENTRIES: &str = "entries of free lists";
pub(super) const CPU_LISTS: &str = "per-CPU lists";
pub(super) const CPU_ENTRIES: &str = "entries of per-CPU lists";
pub(super) const CPU_COUNTS: &str = "per-CPU counts and factors";
pub(super) const TYPES: &str = "pageblock types";
pub(super) const MARKS: &str = "skip marks";
pub(super) const BOOSTS: &str = "boosts";
pub(super) const FLAGS: &str = "zone flags and reserves";
pub(super) const POSITIONS: &str = "scanner positions";
pub(super) const DEFERRAL: &str = "deferral";
pub(super) const DECISIONS: &str = "compaction put off or let in";
pub(super) const REMEMBERED: &str = "positions and pauses of compaction";
pub(super) const MARKED: &str = "number of marked pageblocks";
pub(super) const RUNS: &str = "runs of compaction";
pub(super) const RUN_MOVES: &str = "moves of runs";
pub(super) const RUN_ENDS: &str = "ends of runs";
pub(super) const LRU_TAKEN: &str = "isolations of reclaim";
pub(super) const LRU_FREED: &str = "frames that reclaim freed";
pub(super) const LRU_PASSES: &str = "ends of passes of reclaim";
pub(super) const LRU_CALLS: &str = "calls of direct reclaim";
pub(super) const LRU_END: &str = "positions of LRU lists";
