//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

pub(super) const NS_PER_PAIR: &str = "ns per pair";

/// Suffix to the name of a workload that went through a handle.
pub(super) const BY_HANDLE: &str = " by handle";

pub(super) const CREATED: &str = "blocks new";
pub(super) const RETURNED: &str = "blocks freed";
pub(super) const LONGEST_LIST: &str = "longest list";
pub(super) const STEPS: &str = "steps per call";
pub(super) const SECOND_STEPS: &str = "steps of second searches per call";
pub(super) const DIRTY_WORDS: &str = "words of dirty bitmaps per unmap";
pub(super) const LOCKED: &str = "locked operations per pair";
pub(super) const RECORD_BYTES: &str = "bytes of records at end";

/// The blocks held, over the course of the run.
pub(super) const HELD: &str = "blocks held";

/// The kernel's functions, in the profiler's order.
pub(super) const MAP: &str = "vm_map_ram";
pub(super) const UNMAP: &str = "vm_unmap_ram";
pub(super) const ALLOC_AREA: &str = "alloc_vmap_area";
pub(super) const FREE_BLOCK: &str = "free_vmap_block";
pub(super) const FUNCTIONS: [&str; 4] = [MAP, UNMAP, ALLOC_AREA, FREE_BLOCK];

/// Suffixes to the name of a count that was taken over several keys.
pub(super) const LEAST: &str = ", least";
pub(super) const MOST: &str = ", most";

pub(super) const FIRST_FAILED: &str = "first call that failed";
pub(super) const FORCED_PURGES: &str = "forced purges";
pub(super) const CALLS: &str = "calls";
pub(super) const HELD_BYTES: &str = "bytes of space held";
pub(super) const LISTED: &str = "blocks listed";
pub(super) const SEARCH_NS: &str = "ns of one search";

pub(super) const PINNED: &str = "pages pinned per live page";
pub(super) const FLUSHES_PER_MILLION: &str = "flushes per million mappings";

pub(super) const SLOTS: &str = "slots of one request of each size";

pub(super) const VISITED: &str = "blocks visited";
pub(super) const LOCKS: &str = "locks taken";
pub(super) const MOST_PER_HOLD: &str = "most blocks visited in one hold";
