//! Why something about shared memory could not be done.

use rustix::io::Errno;

/// Why something about shared memory could not be done. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharedError {
    /// The system refused.
    #[error("the system refused to {what}: {error}")]
    System {
        /// What was asked.
        what: &'static str,
        /// What it said.
        error: Errno,
    },
    /// The file is no table of this version, or was damaged before it was opened.
    #[error("this file is no table of handles of this version; was the right descriptor passed?")]
    NotATable,
    /// The file that the table points into has another size.
    #[error(
        "the data has {found} bytes where the table says {expected}; pass both descriptors of one store"
    )]
    OtherData {
        /// Bytes by the table.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The file could shrink under its users, which would kill them (`SIGBUS`).
    #[error("the file is not sealed against shrinking, and will not be mapped")]
    Unsealed,
    /// Sizes that a table cannot have.
    #[error("a table has 1 to 16777216 entries, 1 to 1024 processes, and data below 256 TiB")]
    Sizes,
    /// The process lives in another namespace of process numbers or of time, where nobody could tell whether it has
    /// died.
    #[error("attached processes must share the namespaces of process numbers and of time")]
    OtherNamespace,
    /// As many processes are attached as the table has room for.
    #[error(
        "{processes} processes are attached, which is all that the table has room for; \
             the owner can release those that died (`reap`)"
    )]
    TooManyProcesses {
        /// So many.
        processes: u32,
    },
    /// The owner lives, or somebody else holds the lock of the data.
    #[error("the data has an owner that lives; try again when it has ended")]
    OwnerLives,
    /// All entries are in use.
    #[error("all {entries} entries of the table are in use")]
    TooManyEntries {
        /// So many.
        entries: u32,
    },
    /// The handle names nothing: it was given up, or never existed.
    #[error("the handle names nothing any more, or never did")]
    Stale,
    /// It is being moved, and did not come to rest in time. If its owner has died, a successor will finish the move.
    #[error(
        "it is being moved and did not come to rest in time; if the owner has died, wait for its successor"
    )]
    Moving,
    /// It is pinned, and remained so for as long as we were ready to wait.
    #[error("pinned by process {process}, and not released in time")]
    Pinned {
        /// The number of a process that holds a pin.
        process: u32,
    },
    /// One more pin could wrap the counter.
    #[error(
        "pinned more than two thousand million times by one process; are guards being forgotten?"
    )]
    TooManyPins,
    /// A word of the entry is none that the protocol writes, or points outside the data.
    #[error("entry {entry} is damaged: a process wrote where it must not")]
    Damaged {
        /// Which.
        entry: u32,
    },
    /// The process is a child of the one that attached; it has no part in what its parent holds.
    #[error("this process was forked from the one that attached; attach again")]
    Forked,
    /// An area was to be made of no handles.
    #[error("no handles were given; an area is made of at least one")]
    NoHandles,
    /// Bytes outside of what is pinned were asked for.
    #[error("bytes {at} to {end} were asked for, and there are {bytes}")]
    Outside {
        /// The first byte.
        at: u64,
        /// The end.
        end: u64,
        /// So many are there.
        bytes: u64,
    },
}

/// Says of a system call what it was for.
pub(crate) fn to(what: &'static str) -> impl FnOnce(Errno) -> SharedError {
    move |error| SharedError::System { what, error }
}
