//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

use crate::key::Key;

pub(super) const OPERATIONS: Key = Key::count("operations");
pub(super) const LISTS: Key = Key::count("lists of areas");
pub(super) const MOST_AREAS: Key = Key::count("areas at most");
pub(super) const REFUSED: Key = Key::count("refused");
pub(super) const HUGE: Key = Key::count("multiples of 2 MiB mapped");
pub(super) const DIFFERENCES: Key = Key::count("differences");

pub(super) const THREADS: Key = Key::count("threads");
pub(super) const AREAS_BEFORE: Key = Key::count("areas before");
pub(super) const AREAS: Key = Key::count("areas");
