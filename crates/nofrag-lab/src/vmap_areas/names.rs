//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

pub(super) const US_PER_RUN: &str = "us per run of the test";
pub(super) const SECONDS: &str = "s";

/// Processor time of a run, and runs of a test that failed.
pub(super) const USER: &str = "user s";
pub(super) const SYSTEM: &str = "sys s";
pub(super) const FAILED: &str = "failed";

pub(super) const STEPS_PER_SEARCH: &str = "steps per search";
pub(super) const STEPS_PER_LOOP: &str = "steps per loop";
/// Shares of the allocations that lie in their hole in each way: full, left edge, right edge, no edge.
pub(super) const FITS: [&str; 4] = ["FL share", "LE share", "RE share", "NE share"];
pub(super) const POOL_SHARE: &str = "served by pools";
pub(super) const LOCKED_PER_LOOP: &str = "locked operations per loop";
pub(super) const CONFLICTS_PER_LOOP: &str = "lock conflicts per loop";
pub(super) const FREE_OBJECTS: &str = "free areas at end";
pub(super) const BUSY_OBJECTS: &str = "busy areas at end";
