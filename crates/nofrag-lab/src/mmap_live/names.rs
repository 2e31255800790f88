//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

pub(super) const OPERATIONS: &str = "operations";
pub(super) const LISTS: &str = "lists of areas";
pub(super) const MOST_AREAS: &str = "areas at most";
pub(super) const REFUSED: &str = "refused";
pub(super) const HUGE: &str = "multiples of 2 MiB mapped";
pub(super) const DIFFERENCES: &str = "differences";

pub(super) const THREADS: &str = "threads";
pub(super) const AREAS_BEFORE: &str = "areas before";
pub(super) const AREAS: &str = "areas";
