//! Per-CPU lists: blocks that one CPU can take and give back without the zone's lock.

/// The lists of one CPU in one zone.
#[derive(Clone, Debug, Default)]
pub(super) struct PerCpuPages {}
