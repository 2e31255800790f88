//! How much memory and time a file that somebody else wrote may cost.
//!
//! A few bytes of a recording can honestly say that a million equal events follow, and a packed file of a hundred
//! bytes unpacks to gigabytes. So what a reader holds is bounded before it is taken, by a [`Budget`] that its caller
//! chooses. The default has three parts:
//!
//! * 64 times the bytes that the file takes on the disk. Honest recordings unpack to some 20 times their length; the
//!   holes of a sparse file count nothing.
//! * At least [`FLOOR`]. The flags of an idle host's frames pack by a thousand and more, so no ratio tells them from a
//!   bomb: the floor has room for the flags and counts of 64 GiB, before and after (512 MiB), and for full chunks of
//!   64 CPUs (some 400 MiB).
//! * At most a quarter of the memory that is available, floor or not.
//!
//! Events are bounded apart, since whoever reads them keeps something of each, and since they take time: one for each
//! byte of the file, and [`LEAST_EVENTS`] in any case.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::fields;
use crate::finding::bytes_text;
use crate::source::{Root, read_small};
use crate::trace::TraceError;

/// Bytes that any file may cost where a quarter of the available memory is more.
pub const FLOOR: u64 = 1 << 30;
/// Bytes that a file may cost for each of its own.
const RATIO: u64 = 64;
/// Events that any file may have.
pub const LEAST_EVENTS: u64 = 1 << 23;

/// What the reading of one file may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of memory that are held at a time.
    pub bytes: u64,
    /// Events that are read in all.
    pub events: u64,
    /// When reading ends; `None` for whoever shows progress and can be interrupted.
    pub deadline: Option<Instant>,
}

/// What [`Budget::allow`] was told; 0 before.
static ALLOWED: AtomicU64 = AtomicU64::new(0);

impl Budget {
    /// The default of a file that takes so many bytes on the disk, without a deadline; the module says how it is
    /// chosen.
    #[must_use]
    pub fn of_length(length: u64) -> Budget {
        let allowed = ALLOWED.load(Ordering::Relaxed);
        if allowed > 0 {
            return Budget { bytes: allowed, events: allowed, deadline: None };
        }
        let bytes = length.saturating_mul(RATIO).max(FLOOR).min(available() / 4);
        Budget { bytes, events: length.max(LEAST_EVENTS), deadline: None }
    }

    /// The default of an open file.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_file(file: &File) -> io::Result<Budget> {
        Ok(Budget::of_length(stored(&file.metadata()?)))
    }

    /// The default of a file, or of a folder with all files in it.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_path(path: &Path) -> io::Result<Budget> {
        let file = fs::metadata(path)?;
        let length = if file.is_dir() { stored_below(path, 2)? } else { stored(&file) };
        Ok(Budget::of_length(length))
    }

    /// From now on the default of every file, in this process, is so many bytes of memory, and as many events.
    pub fn allow(bytes: u64) {
        ALLOWED.store(bytes, Ordering::Relaxed);
    }

    /// Whether there is time left.
    #[must_use]
    pub fn has_time(&self) -> bool {
        self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// That a file needs more than this.
    pub(crate) fn refuse(&self, path: &Path, needs: Needs) -> TraceError {
        let (path, budget): (PathBuf, Budget) = (path.to_owned(), *self);
        TraceError::Budget { path, needs, budget }
    }

    pub(crate) fn refuse_folder(&self) -> io::Error {
        let most = bytes_text(self.bytes);
        let why = format!("its files unpack to more than {most}; `--budget GIB` allows more");
        io::Error::new(io::ErrorKind::FileTooLarge, why)
    }
}

/// What a file needs more of than it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// So many bytes of memory at a time.
    Bytes(u64),
    /// More memory than the system has.
    Memory,
    /// So many events.
    Events(u64),
    /// Time.
    Time,
}

impl std::fmt::Display for Needs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Needs::Bytes(bytes) => write!(f, "to read it takes {} of memory", bytes_text(*bytes)),
            Needs::Memory => f.write_str("the system has no memory left to read it"),
            Needs::Events(events) => write!(f, "it says that it has {events} events"),
            Needs::Time => f.write_str("it could not be read in time"),
        }
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of memory and {} events", bytes_text(self.bytes), self.events)
    }
}

/// Bytes on the disk: the holes of a sparse file are none.
fn stored(file: &fs::Metadata) -> u64 {
    file.len().min(file.blocks().saturating_mul(512))
}

/// Those of the files in a folder and in so many folders below it. Links are not followed.
fn stored_below(folder: &Path, depth: u32) -> io::Result<u64> {
    let mut sum = 0_u64;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let file = entry.metadata()?;
        if file.is_file() {
            sum = sum.saturating_add(stored(&file));
        } else if file.is_dir() && depth > 0 {
            sum = sum.saturating_add(stored_below(&entry.path(), depth - 1)?);
        }
    }
    Ok(sum)
}

/// Memory that can be had without harm: `MemAvailable`, or what the control group of this process leaves of its limit.
/// Asked once.
fn available() -> u64 {
    static AVAILABLE: OnceLock<u64> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let memory = |text: &str| fields::meminfo_bytes(text, "MemAvailable");
        let memory = read_small(&Root::Live, "proc/meminfo", "", memory).unwrap_or(4 * FLOOR);
        memory.min(left_of_group().unwrap_or(u64::MAX))
    })
}

fn left_of_group() -> Option<u64> {
    let group = |text: &str| {
        let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
        own.map(str::to_owned).ok_or(fields::FieldError::Missing)
    };
    let group = read_small(&Root::Live, "proc/self/cgroup", "", group).ok()?;
    let number = |name: &str| {
        let path = Path::new("sys/fs/cgroup").join(&group).join(name);
        read_small(&Root::Live, path.to_str()?, "", fields::number).ok()
    };
    number("memory.max")?.checked_sub(number("memory.current")?)
}
