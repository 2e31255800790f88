//! One error for each thing that can be asked; each says what to do.

use std::fmt;

use super::OwnerId;
use crate::backend::BackendError;

/// Why there is no arena.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// A size of the configuration cannot be.
    #[error("{what} is {found}; it must be {must}")]
    BadConfig {
        /// Which one.
        what: &'static str,
        /// What it is.
        found: u64,
        /// What it must be.
        must: &'static str,
    },
    /// The backend does not promise that what was purged reads as zero.
    #[error("this backend does not clear what was purged: use one that does")]
    NotZeroed,
    /// Not even the least that was asked for.
    #[error("no room for {least} bytes of addresses (asked for {asked}, then for halves): {why}")]
    NoRoom {
        /// What was asked for first.
        asked: u64,
        /// What would have been enough.
        least: u64,
        /// What the backend said last.
        why: BackendError,
    },
    /// The backend refused something else.
    #[error("the backend refused: {0}")]
    Backend(#[from] BackendError),
    /// No memory for the arena's own records.
    #[error("no memory for the arena's own records; reserve less")]
    OutOfMetadata,
}

/// Why nothing was allocated. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// A run of no pages.
    #[error("a run has at least one page")]
    NoPages,
    /// The alignment is not a power of two.
    #[error("an alignment of {align} pages is not a power of two")]
    AlignNotPowerOfTwo {
        /// What was asked for.
        align: u64,
    },
    /// The arena's first address is not a multiple of that.
    #[error(
        "an alignment of {align} pages: this arena can promise {most} at most (`Config::align`)"
    )]
    AlignTooLarge {
        /// What was asked for.
        align: u64,
        /// What can be had.
        most: u64,
    },
    /// There is no such owner.
    #[error("there is no owner {}; the arena has {owners}", owner.0)]
    UnknownOwner {
        /// Who was named.
        owner: OwnerId,
        /// They are numbered below this.
        owners: u32,
    },
    /// No place, although all that could be had was purged.
    #[error("{0}")]
    Exhausted(Box<Shortage>),
    /// The backend gave no memory, although all that could be had was given back to it.
    #[error("no memory behind the run: {0}")]
    Backend(BackendError),
    /// No memory for the arena's own records.
    #[error("no memory for the arena's own records; nothing changed")]
    OutOfMetadata,
    /// This process is a child of the one that made the arena.
    #[error("this arena belongs to the parent process; make one of your own")]
    Forked,
}

/// Why there was no place, and who holds what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Pages that were asked for.
    pub asked: u64,
    /// Pages of the largest run that could be had by this owner, unaligned.
    pub largest: u64,
    /// Blocks of nobody.
    pub clean_blocks: u64,
    /// Each owner that could be asked.
    pub owners: Vec<Share>,
    /// Owners that somebody held, so that nothing could be had from them.
    pub busy: Vec<OwnerId>,
}

/// What an owner holds, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Who.
    pub owner: OwnerId,
    /// In use.
    pub live: u64,
    /// Parked by size.
    pub parked: u64,
    /// Free in its blocks.
    pub free: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { asked, largest, clean_blocks, owners, busy } = self;
        write!(f, "no place for {asked} pages; the largest run that can be had has {largest}, ")?;
        write!(f, "and {clean_blocks} blocks belong to nobody")?;
        for Share { owner, live, parked, free } in owners {
            write!(f, "; owner {}: {live} live, {parked} parked, {free} free", owner.0)?;
        }
        match busy.len() {
            0 => Ok(()),
            n => write!(f, "; {n} owners were held by others: release them and ask again"),
        }
    }
}

/// Why a run was not freed. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// No page of this arena begins there.
    #[error("no page of this arena begins at that address")]
    Foreign,
    /// The run was freed before, or never was.
    #[error("the run is not in use: freed before, resized since, or never handed out")]
    NotLive,
    /// The run in use there has another length.
    #[error("the run there has {pages} pages")]
    WrongLength {
        /// The pages that it has.
        pages: u64,
    },
    /// It is a lease, which ends when it is dropped.
    #[error("the run is a lease; drop that")]
    Leased,
    /// Another free of an earlier run there came late, and is not collected yet.
    #[error(
        "a late free of an earlier run there is not collected yet; use `free`, or try again later"
    )]
    Uncollected,
    /// No memory for the arena's own records; try again later.
    #[error("no memory for the arena's own records; nothing changed, try again later")]
    OutOfMetadata,
    /// This process is a child of the one that made the arena.
    #[error("this arena belongs to the parent process")]
    Forked,
}

/// Why a run kept its length. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// It is no run in use, or one that cannot be changed.
    #[error(transparent)]
    Run(#[from] FreeError),
    /// A run has at least one page.
    #[error("a run has at least one page; free it instead")]
    NoPages,
    /// It belongs to another owner than the one that is held.
    #[error("the run belongs to owner {}, which is not the one that is held: resize it through the arena", owner.0)]
    OtherOwner {
        /// Whose it is.
        owner: OwnerId,
    },
    /// What lies behind it is in use, or the arena ends there.
    #[error("no room behind the run: it can have {most} pages at most where it is")]
    NoRoom {
        /// So many pages it could have.
        most: u64,
    },
    /// There are free addresses behind it, but the backend gave no memory for them.
    #[error("no memory behind the run: {0}")]
    Backend(BackendError),
}

/// Somebody holds the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("somebody else holds this owner")]
pub struct Busy;

/// Why nobody was made the holder of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// Somebody else holds it.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// There is no such owner.
    #[error("there is no owner {}; the arena has {owners}", owner.0)]
    UnknownOwner {
        /// Who was named.
        owner: OwnerId,
        /// They are numbered below this.
        owners: u32,
    },
}
