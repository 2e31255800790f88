//! The errors of a recorder.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::recording::RecordingError;

/// The reason why nothing was recorded. The host is unchanged, unless the error tells otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Tracefs is not mounted, or missing.
    #[error(
        "no tracefs {looked}: mount it with `mount -t tracefs nodev /sys/kernel/tracing`, or let this command use a \
         mount of its own that nobody else sees with --mount-tracefs; a kernel without CONFIG_TRACING has none"
    )]
    NoTracefs {
        /// The places that were searched.
        looked: String,
    },
    /// The caller may not trace.
    #[error(
        "{path}: permission denied: the kernel lets only root trace (tracefs has mode 0700); run this command as root; \
         a container needs the host's tracefs and the right to write to it"
    )]
    Denied { path: PathBuf },
    /// An instance of this name exists already.
    #[error(
        "{path}: there is an instance of this name already: another recording uses it, or was killed; choose another \
         with --instance NAME, or if nobody uses it remove it with `rmdir {path}`"
    )]
    Taken { path: PathBuf },
    #[error("the instance cannot be called {0:?}: it must be one word without `/`")]
    Name(String),
    /// The kernel refused an operation on the instance.
    #[error("{path}: {cause}: {what}")]
    Instance {
        path: PathBuf,
        /// The failed operation, in words.
        what: &'static str,
        cause: io::Error,
    },
    /// There is no memory for the buffers.
    #[error(
        "no memory for ring buffers of {kib} KiB for each CPU, nor for smaller ones down to {least} KiB; free some, or \
         ask for less with --buffer-kib"
    )]
    NoMemory {
        /// Requested KiB for each CPU.
        kib: u64,
        /// The smallest size that was tried.
        least: u64,
    },
    /// The buffers would take more memory than there is.
    #[error(
        "ring buffers of {kib} KiB for each of {cpus} CPUs are {} KiB together, and {available} KiB of memory are \
         available: ask for at most {} with --buffer-kib",
        kib.saturating_mul(*cpus), available / cpus
    )]
    TooMuch {
        /// Requested KiB for each CPU.
        kib: u64,
        /// Number of online CPUs.
        cpus: u64,
        /// Value of `MemAvailable` in KiB.
        available: u64,
    },
    /// A name that is neither an event nor a set of events.
    #[error("there is no event or set of events {name:?}; sets: {sets}; events: {events}")]
    NoSuchEvent {
        name: String,
        /// The names of all sets.
        sets: String,
        /// The names of all events.
        events: String,
    },
    /// This kernel has none of the events.
    #[error("this kernel has none of the tracepoints that were asked for: {0}")]
    NothingToRecord(String),
    /// Probes on the bulk interface cannot be made.
    #[error(
        "--bulk: {why}. Record without --bulk: all else is recorded as ever, and `nofrag trace info` counts what the \
         recording shows to be missing"
    )]
    Bulk { why: String },
    #[error("{0} (-o FILE names another, --force replaces it)")]
    Exists(RecordingError),
    /// The output could not be made.
    #[error(transparent)]
    Output(RecordingError),
    /// The command could not be started.
    #[error("{command}: {cause}: the command could not be started; nothing was recorded")]
    Command { command: String, cause: io::Error },
    /// The error of the process that keeps root's rights, in words.
    #[error("{0}")]
    Kept(String),
    /// The process that keeps root's rights could not be started, or has ended.
    #[error("root's rights are kept by a process of their own: {0}")]
    Keeper(io::Error),
    /// Signals cannot be caught, so an end by Ctrl-C would leave tracing on.
    #[error("signals cannot be caught: {0}")]
    Signals(io::Error),
}

impl From<RecordingError> for RecordError {
    fn from(error: RecordingError) -> RecordError {
        match error {
            RecordingError::Exists(_) => RecordError::Exists(error),
            _ => RecordError::Output(error),
        }
    }
}

impl RecordError {
    /// Makes an error for `map_err` after an operation on the instance: denial has a variant of its own.
    pub(super) fn instance(
        path: &Path,
        what: &'static str,
    ) -> impl FnOnce(io::Error) -> RecordError {
        let path = path.to_owned();
        move |cause| match cause.kind() {
            io::ErrorKind::PermissionDenied => RecordError::Denied { path },
            _ => RecordError::Instance { path, what, cause },
        }
    }
}
