//! Compaction: moving pages together so that large blocks become free.

/// What compaction remembers of a zone.
#[derive(Clone, Debug, Default)]
pub(super) struct ZoneCompaction {}
