//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

use crate::key::Key;

pub(super) const AREAS: Key = Key::count("areas");
pub(super) const POOLED: Key = Key::count("of them from pools");
pub(super) const ALIGNED: Key = Key::count("of them aligned to more than a page, from the tree");
pub(super) const GIVEN: Key = Key::count("places taken from the recording");
pub(super) const TOLD: Key =
    Key::count("places beyond holes that the recording says are passed by");
pub(super) const MOVED: Key = Key::count("changes in another order than reported");
pub(super) const LEARNED: Key = Key::count("owners learned");
pub(super) const PURGES: Key = Key::count("purges");
pub(super) const TURNS: Key = Key::count("turns of requests between two lists");
pub(super) const DISTURBED: Key = Key::count("turns in which others made areas");
pub(super) const DIFFERENCES: Key = Key::count("differences");
