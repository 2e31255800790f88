//! What an arena holds, and what it has saved.

/// Pages and blocks of an arena, and the calls that it has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStats {
    /// Pages of the arena.
    pub pages: u64,
    /// Pages in use, those that wait to be freed included.
    pub live: u64,
    /// Pages parked by size: the next request of that size gets them as they are.
    pub parked: u64,
    /// Pages free or parked that may hold contents.
    pub dirty: u64,
    /// Pages whose memory was given back since the arena was made.
    pub purged: u64,
    /// Pages of the largest run that some owner could have now without a purge.
    pub largest: u64,
    /// Blocks by what they are.
    pub blocks: BlockStats,
    /// Mappings that the arena has made and not taken away: areas of the kernel, or fewer where it joins them.
    pub mappings: u64,
    /// Runs handed out.
    pub allocs: u64,
    /// Runs given back.
    pub frees: u64,
    /// Calls to the backend, for whatever reason.
    pub calls: u64,
    /// Purges that failed; their blocks stayed with their owners.
    pub failed_purges: u64,
    /// Frees that other threads were told to be done, and that turned out to be second ones.
    pub stale_frees: u64,
    /// Owners that somebody held, so that what is theirs is missing above.
    pub busy_owners: u64,
}

impl ArenaStats {
    /// System calls that a mapping and an unmapping for each run would have made beyond those that were made.
    #[must_use]
    pub const fn calls_saved(&self) -> u64 {
        (self.allocs + self.frees).saturating_sub(self.calls)
    }
}

/// How many blocks are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// All of them.
    pub total: u64,
    /// Clean, and nobody's.
    pub clean: u64,
    /// Some owner's, with something in use or parked in them.
    pub used: u64,
    /// Some owner's, with nothing in use: they may be purged.
    pub idle: u64,
    /// A purge of them has failed: for their owners alone until one succeeds.
    pub quarantined: u64,
}

/// What a purge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Blocks that are clean now, and nobody's.
    pub blocks: u64,
    /// Pages in them that may have held contents.
    pub pages: u64,
    /// Blocks whose purge failed; they stay with their owners.
    pub failed: u64,
    /// Owners that somebody held; theirs are purged another time.
    pub busy_owners: u64,
}
