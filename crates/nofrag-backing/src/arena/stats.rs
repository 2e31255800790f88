//! Counts of an arena's pages, blocks and calls.

/// Pages and blocks of an arena, and the calls that it has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStats {
    pub pages: u64,
    /// Pages in use, including those that wait to be freed.
    pub live: u64,
    /// Pages parked by size: the next request of that size gets them with their contents.
    pub parked: u64,
    /// Pages free or parked that may hold contents.
    pub dirty: u64,
    /// Pages whose memory was given back since the arena was made.
    pub purged: u64,
    /// Pages of the largest run that one of the owners could get now without a purge.
    pub largest: u64,
    pub blocks: BlockStats,
    /// Mappings that the arena has made and not removed: areas of the kernel, or fewer where it joins them.
    pub mappings: u64,
    pub allocs: u64,
    pub frees: u64,
    /// Calls to the backend, for any reason.
    pub calls: u64,
    /// Purges that failed; their blocks stayed with their owners.
    pub failed_purges: u64,
    /// Frees that were reported as done to other threads, though their run had been freed already.
    pub stale_frees: u64,
    /// Owners that were held, so that their pages and blocks are missing above.
    pub busy_owners: u64,
}

impl ArenaStats {
    /// Returns the number of system calls that a mapping and an unmapping for each run would have made beyond those
    /// that were made.
    #[must_use]
    pub const fn calls_saved(&self) -> u64 {
        (self.allocs + self.frees).saturating_sub(self.calls)
    }
}

/// Numbers of blocks in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStats {
    pub total: u64,
    /// Clean blocks, which have no owner.
    pub clean: u64,
    /// Owned, with something in use or parked in them.
    pub used: u64,
    /// Owned, with nothing in use: they may be purged.
    pub idle: u64,
    /// Blocks whose purge has failed: for their owners alone until one succeeds.
    pub quarantined: u64,
}

/// Counts of one purge of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Blocks that are clean now and have no owner.
    pub blocks: u64,
    /// Pages of these blocks that may have held contents.
    pub pages: u64,
    /// Blocks whose purge failed; they stay with their owners.
    pub failed: u64,
    /// Owners that were held; their blocks are purged another time.
    pub busy_owners: u64,
}
