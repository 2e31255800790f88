//! The names of this scenario's units and counts, as its JSON and its tables have them.

pub(super) const NS_PER_CHANGE: &str = "ns per change";

pub(super) const AREAS: &str = "areas";
pub(super) const EQUAL: &str = "areas where the kernel put them";
pub(super) const POOLED: &str = "of them from pools";
pub(super) const ALIGNED: &str = "of them aligned to more than a page, from the tree";
pub(super) const GIVEN: &str = "places taken from the recording";
pub(super) const MOVED: &str = "changes in another order than reported";
pub(super) const LEARNED: &str = "owners learned";
pub(super) const FREES: &str = "frees";
pub(super) const LAZY_EQUAL: &str = "frees with the kernel's count of lazy pages";
pub(super) const PURGES: &str = "purges";
pub(super) const PURGED: &str = "areas purged";
pub(super) const LISTED: &str = "areas listed at the end";
pub(super) const LISTED_APART: &str = "areas of one list at the end only";
pub(super) const DIFFERENCES: &str = "differences";
