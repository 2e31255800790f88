//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

use crate::key::Key;

pub(super) const NS_PER_PAIR: &str = "ns per pair";

/// Suffix to the name of a workload that went through a handle.
pub(super) const BY_HANDLE: &str = " by handle";

pub(super) const CREATED: Key = Key::count("blocks new");
pub(super) const RETURNED: Key = Key::count("blocks freed");
pub(super) const LONGEST_LIST: Key = Key::count("longest list");
pub(super) const STEPS: Key = Key::number("steps per call");
pub(super) const SECOND_STEPS: Key = Key::number("steps of second searches per call");
pub(super) const DIRTY_WORDS: Key = Key::number("words of dirty bitmaps per unmap");
pub(super) const LOCKED: Key = Key::number("locked operations per pair");
pub(super) const RECORD_BYTES: Key = Key::bytes("bytes of records at end");

/// The blocks held, over the course of the run.
pub(super) const HELD: Key = Key::count("blocks held");

/// The kernel's functions, in the profiler's order.
pub(super) const MAP: Key = Key::count("vm_map_ram");
pub(super) const UNMAP: Key = Key::count("vm_unmap_ram");
pub(super) const ALLOC_AREA: Key = Key::count("alloc_vmap_area");
pub(super) const FREE_BLOCK: Key = Key::count("free_vmap_block");
pub(super) const FUNCTIONS: [Key; 4] = [MAP, UNMAP, ALLOC_AREA, FREE_BLOCK];

/// Suffixes to the name of a count that was taken over several keys.
pub(super) const LEAST: &str = ", least";
pub(super) const MOST: &str = ", most";

/// Returns the key of a count with one key of the random workload's generator.
pub(super) fn with_key(count: &Key, key: u32) -> Key {
    count.with(format_args!(", key {key}"))
}

pub(super) const FIRST_FAILED: Key = Key::count("first call that failed");
pub(super) const FORCED_PURGES: Key = Key::count("forced purges");
pub(super) const CALLS: Key = Key::count("calls");
pub(super) const HELD_BYTES: Key = Key::bytes("bytes of space held");
pub(super) const LISTED: Key = Key::count("blocks listed");
pub(super) const SEARCH_NS: Key = Key::time("ns of one search", 1e-9);

pub(super) const PINNED: Key = Key::number("pages pinned per live page");
pub(super) const PINNED_BY_FORMULA: Key = Key::number("pages pinned by the closed form");
pub(super) const FLUSHES_PER_MILLION: Key = Key::number("flushes per million mappings");

pub(super) const SLOTS: Key = Key::count("slots of one request of each size");

pub(super) const VISITED: Key = Key::count("blocks visited");
pub(super) const LOCKS: Key = Key::count("locks taken");
pub(super) const MOST_PER_HOLD: Key = Key::count("most blocks visited in one hold");
