//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

use super::locks::{LockKind, Site};
use crate::key::Key;

pub(super) const PAIRS: Key = Key::count("pairs");
pub(super) const BLOCKS: Key = Key::count("blocks created");
pub(super) const LOCKED_PER_PAIR: Key = Key::number("locked operations per pair");
pub(super) const CONFLICTS_PER_PAIR: Key = Key::number("lock conflicts per pair");

/// A column of the tables of `lock_stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub(super) enum Column {
    /// Number of locks of the kind that were taken.
    Instances,
    Acquisitions,
    /// Acquisitions that found the lock held.
    Contentions,
    /// Contentions by another CPU than the last one to take the lock.
    #[strum(serialize = "con-bounces")]
    ConBounces,
    #[strum(serialize = "wait max us")]
    WaitMaxUs,
    #[strum(serialize = "wait avg us")]
    WaitAvgUs,
}

/// Returns the key of the figure that a column holds for the locks of one kind.
pub(super) fn of_lock(kind: LockKind, column: Column) -> Key {
    kind.key().with(": ").with(column.into_str())
}

/// Returns the key of the count of contentions in which `site` waited.
pub(super) fn waiting(kind: LockKind, site: Site) -> Key {
    kind.key().with(": waiting at ").with(site.into_str())
}

/// Returns the key of the count of contentions in which `site` held the lock.
pub(super) fn holding(kind: LockKind, site: Site) -> Key {
    kind.key().with(": held by ").with(site.into_str())
}
