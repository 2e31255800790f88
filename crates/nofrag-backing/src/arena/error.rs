//! One error for each operation; each says what to do.

use std::fmt;

use super::OwnerId;
use crate::backend::BackendError;

/// Why an arena was not reserved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// A size of the configuration is out of its range.
    #[error("{what} is {found}; it must be {must}")]
    BadConfig { what: &'static str, found: u64, must: &'static str },
    /// The backend does not promise that purged memory reads as zero.
    #[error("this backend does not clear what was purged: use one that does")]
    NotZeroed,
    /// There is no room even for the least size that was acceptable.
    #[error("no room for {least} bytes of addresses (asked for {asked}, then for halves): {why}")]
    NoRoom {
        /// Bytes that were asked for first.
        asked: u64,
        /// Bytes that would have been enough.
        least: u64,
        /// The backend's answer to the last try.
        why: BackendError,
    },
    /// The backend refused an operation other than the reservation.
    #[error("the backend refused: {0}")]
    Backend(#[from] BackendError),
    #[error("no memory for the arena's own records; reserve less")]
    OutOfMetadata,
}

/// Why a run was not allocated. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The request was for no pages.
    #[error("a run has at least one page")]
    NoPages,
    #[error("an alignment of {align} pages is not a power of two")]
    AlignNotPowerOfTwo { align: u64 },
    /// The arena's first address is not a multiple of the alignment.
    #[error(
        "an alignment of {align} pages: this arena can promise {most} at most (`Config::align`)"
    )]
    AlignTooLarge {
        align: u64,
        /// The largest alignment that the arena can promise, in pages.
        most: u64,
    },
    #[error("there is no owner {}; the arena has {owners}", owner.0)]
    UnknownOwner {
        owner: OwnerId,
        /// Number of owners, which are numbered from zero.
        owners: u32,
    },
    /// There is no place for the run, although everything that could be purged was.
    #[error("{0}")]
    Exhausted(Box<Shortage>),
    /// The backend gave no memory, although all idle memory was given back to it.
    #[error("no memory behind the run: {0}")]
    Backend(BackendError),
    #[error("no memory for the arena's own records; nothing changed")]
    OutOfMetadata,
    /// This process is a child of the one that made the arena.
    #[error("this arena belongs to the parent process; make one of your own")]
    Forked,
}

/// Why there was no place for a run, with the pages that each owner holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Pages that were asked for.
    pub asked: u64,
    /// Pages of the largest run that the asking owner could get, unaligned.
    pub largest: u64,
    /// Number of blocks without an owner.
    pub clean_blocks: u64,
    /// The pages of each owner that no other thread held.
    pub owners: Vec<Share>,
    /// Owners that were held, so that nothing could be had from them.
    pub busy: Vec<OwnerId>,
}

/// The pages that an owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub owner: OwnerId,
    pub live: u64,
    pub parked: u64,
    /// Free pages in its blocks.
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
    /// No page of this arena begins at the address of the run.
    #[error("no page of this arena begins at that address")]
    Foreign,
    /// The run was freed or resized before, or never was.
    #[error("the run is not in use: freed before, resized since, or never handed out")]
    NotLive,
    /// The run in use at that address has another length.
    #[error("the run there has {pages} pages")]
    WrongLength {
        /// Pages of the run in use.
        pages: u64,
    },
    /// The run is a lease, which ends when it is dropped.
    #[error("the run is a lease; drop that")]
    Leased,
    /// Another free of an earlier run at that address came late, and is not collected yet.
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
    /// The run is not in use, or cannot be changed.
    #[error(transparent)]
    Run(#[from] FreeError),
    /// The new length is zero; a run has at least one page.
    #[error("a run has at least one page; free it instead")]
    NoPages,
    /// The run belongs to another owner than the one that is held.
    #[error("the run belongs to owner {}, which is not the one that is held: resize it through the arena", owner.0)]
    OtherOwner {
        /// The owner of the run.
        owner: OwnerId,
    },
    /// The addresses behind the run are in use, or the arena ends there.
    #[error("no room behind the run: it can have {most} pages at most where it is")]
    NoRoom {
        /// The most pages that the run can have where it is.
        most: u64,
    },
    /// The addresses behind the run are free, but the backend gave no memory for them.
    #[error("no memory behind the run: {0}")]
    Backend(BackendError),
}

/// The owner is held already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("somebody else holds this owner")]
pub struct Busy;

/// Why an owner was not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The owner is held already.
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error("there is no owner {}; the arena has {owners}", owner.0)]
    UnknownOwner {
        owner: OwnerId,
        /// Number of owners, which are numbered from zero.
        owners: u32,
    },
}
