//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

pub(super) const AREAS: &str = "areas";
pub(super) const POOLED: &str = "of them from pools";
pub(super) const ALIGNED: &str = "of them aligned to more than a page, from the tree";
pub(super) const GIVEN: &str = "places taken from the recording";
pub(super) const MOVED: &str = "changes in another order than reported";
pub(super) const LEARNED: &str = "owners learned";
pub(super) const PURGES: &str = "purges";
pub(super) const DIFFERENCES: &str = "differences";
