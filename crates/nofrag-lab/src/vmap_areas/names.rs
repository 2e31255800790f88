//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

use crate::key::Key;

pub(super) const US_PER_RUN: &str = "us per run of the test";
pub(super) const SECONDS: &str = "s";

/// Processor time of a run, and runs of a test that failed.
pub(super) const USER: Key = Key::number("user s");
pub(super) const SYSTEM: Key = Key::number("sys s");
pub(super) const FAILED: Key = Key::count("failed");

pub(super) const STEPS_PER_SEARCH: Key = Key::number("steps per search");
pub(super) const STEPS_PER_LOOP: Key = Key::number("steps per loop");
/// Shares of the allocations that lie in their hole in each way: full, left edge, right edge, no edge.
pub(super) const FITS: [Key; 4] = [
    Key::number("FL share"),
    Key::number("LE share"),
    Key::number("RE share"),
    Key::number("NE share"),
];
pub(super) const POOL_SHARE: Key = Key::number("served by pools");
pub(super) const LOCKED_PER_LOOP: Key = Key::number("locked operations per loop");
pub(super) const CONFLICTS_PER_LOOP: Key = Key::number("lock conflicts per loop");
pub(super) const FREE_OBJECTS: Key = Key::count("free areas at end");
pub(super) const BUSY_OBJECTS: Key = Key::count("busy areas at end");

/// Only published: the cost of the kernels' own code in user space.
pub(super) const NS_PER_PAIR: Key = Key::number("ns per pair");
