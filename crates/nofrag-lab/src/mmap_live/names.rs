//! The names of this scenario's units and counts, as its JSON and its tables have them.

pub(super) const NS_PER_OPERATION: &str = "ns per operation";
pub(super) const US_PER_THREAD: &str = "us of a processor in the kernel per thread";

pub(super) const OPERATIONS: &str = "operations";
pub(super) const PLACEMENTS: &str = "placements";
pub(super) const LISTS: &str = "lists of areas";
pub(super) const MOST_AREAS: &str = "areas at most";
pub(super) const REFUSED: &str = "refused";
pub(super) const HUGE: &str = "multiples of 2 MiB mapped";
pub(super) const DIFFERENCES: &str = "differences";

pub(super) const THREADS: &str = "threads";
pub(super) const AREAS_BEFORE: &str = "areas before";
pub(super) const AREAS: &str = "areas";
