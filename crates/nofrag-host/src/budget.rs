//! The memory and time that reading a file of unknown origin may cost.
//!
//! A few bytes of a recording can honestly say that a million equal events follow, and a packed file of a hundred bytes
//! unpacks to gigabytes. So a reader's memory is bounded before it is allocated, by a [`Budget`] that the caller
//! chooses. The default has three parts:
//!
//! * 64 times the bytes that the file takes on the disk. Honest recordings unpack to some 20 times their length; the
//!   holes of a sparse file count nothing.
//! * At least [`FLOOR`]. The flags of an idle host's frames pack by a thousand and more, so no ratio tells them from a
//!   bomb: the floor has room for the flags and counts of 64 GiB, before and after (512 MiB), and for full chunks of
//!   64 CPUs (some 400 MiB).
//! * At most a quarter of the memory that is available, and half of the addresses that `ulimit -v` leaves, floor or
//!   not.
//!
//! Events have a bound of their own, since a reader keeps something of each event, and since events take time: one for
//! each byte of the file, and [`LEAST_EVENTS`] in any case.

use std::fs::{self, File};
use std::hash::Hash;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use foldhash::HashMap;
use rustix::process::{Resource, getrlimit};

use crate::fields;
use crate::finding::bytes_text;
use crate::source::{Root, read_small};
use crate::trace::TraceError;

/// Bytes of memory that reading a file may take however small the file is, where a quarter of the available memory is
/// more.
pub const FLOOR: u64 = 1 << 30;
/// Bytes of memory that reading a file may take for each of its bytes on the disk.
const RATIO: u64 = 64;
/// Number of events that a file may have however small it is.
pub const LEAST_EVENTS: u64 = 1 << 23;

/// The most that the reading of one file may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of memory that the reader may hold at a time.
    pub bytes: u64,
    /// Events that the reader may read in all.
    pub events: u64,
    /// The time at which reading ends; `None` for a caller that shows progress and can be interrupted.
    pub deadline: Option<Instant>,
}

/// The argument of the last [`Budget::allow`]; 0 before the first call.
static ALLOWED: AtomicU64 = AtomicU64::new(0);

/// A reader that fails when there are more bytes than it may read.
pub(crate) struct Limited<R> {
    from: R,
    most: u64,
    left: u64,
    /// The error for more than so many bytes.
    why: fn(u64) -> io::Error,
}

impl<R> Limited<R> {
    pub(crate) fn new(from: R, most: u64, why: fn(u64) -> io::Error) -> Limited<R> {
        Limited { from, most, left: most, why }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(into)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| (self.why)(self.most))?;
        Ok(read)
    }
}

impl Budget {
    /// Returns a reader of unpacked bytes that fails when they are more than the budget has: so long a file does not
    /// come from a kernel.
    pub(crate) fn unpacking<R>(&self, from: R) -> Limited<R> {
        Limited::new(from, self.bytes, |_| {
            let why =
                "it unpacks to more than a file of its length may; `--budget GIB` allows more";
            io::Error::new(io::ErrorKind::FileTooLarge, why)
        })
    }

    /// Returns the default budget for a file of `length` bytes on the disk, without a deadline; the module's comment
    /// says how it is chosen.
    #[must_use]
    pub fn of_length(length: u64) -> Budget {
        let allowed = ALLOWED.load(Ordering::Relaxed);
        if allowed > 0 {
            return Budget { bytes: allowed, events: allowed, deadline: None };
        }
        let bytes = length.saturating_mul(RATIO).max(FLOOR).min(most());
        Budget { bytes, events: length.max(LEAST_EVENTS), deadline: None }
    }

    /// Returns the default budget for an open file.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn of_file(file: &File) -> io::Result<Budget> {
        Ok(Budget::of_length(stored(&file.metadata()?)))
    }

    /// Returns the default budget for a file, or for a folder with all files in it.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn of_path(path: &Path) -> io::Result<Budget> {
        let file = fs::metadata(path)?;
        let length = if file.is_dir() { stored_below(path, 2)? } else { stored(&file) };
        Ok(Budget::of_length(length))
    }

    /// Makes `bytes` of memory, and as many events, the default for every file that this process opens from now on.
    pub fn allow(bytes: u64) {
        ALLOWED.store(bytes, Ordering::Relaxed);
    }

    /// Returns true while the deadline has not passed, and always without one.
    #[must_use]
    pub fn has_time(&self) -> bool {
        self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Returns the error which says that the file `path` needs more than this budget.
    pub(crate) fn refuse(&self, path: &Path, needs: Needs) -> TraceError {
        let (path, budget): (PathBuf, Budget) = (path.to_owned(), *self);
        TraceError::Budget { path, needs, budget }
    }
}

/// The remainder of a budget, for the later stages that work on the contents of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    path: PathBuf,
    budget: Budget,
    left: u64,
}

impl Room {
    /// Makes a room with the whole budget; errors name the file `path`.
    #[must_use]
    pub fn new(path: &Path, budget: Budget) -> Room {
        Room { path: path.to_owned(), budget, left: budget.bytes }
    }

    /// Returns the number of bytes that can still be taken.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes `bytes` from the remainder.
    ///
    /// # Errors
    /// [`TraceError::Budget`] if the remainder is smaller; nothing is taken then.
    pub fn take(&mut self, bytes: u64) -> Result<(), TraceError> {
        self.check(bytes)?;
        self.left -= bytes;
        Ok(())
    }

    /// Takes the remainder divided by `part`, but at most `most` bytes; returns the number of bytes taken.
    pub fn take_part(&mut self, part: u64, most: u64) -> u64 {
        let bytes = (self.left / part.max(1)).min(most);
        self.left -= bytes;
        bytes
    }

    /// Checks that `bytes` could be taken.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn check(&self, bytes: u64) -> Result<(), TraceError> {
        if bytes <= self.left {
            return Ok(());
        }
        let needs = bytes.saturating_add(self.budget.bytes - self.left);
        Err(self.budget.refuse(&self.path, Needs::Bytes(needs)))
    }

    /// Returns the error which says that the files of a folder need more than the budget.
    pub(crate) fn refuse_folder(&self) -> io::Error {
        let most = bytes_text(self.budget.bytes);
        let why = format!("its files unpack to more than {most}; `--budget GIB` allows more");
        io::Error::new(io::ErrorKind::FileTooLarge, why)
    }

    /// Makes room in a map for one more entry, and takes the bytes that this costs.
    pub(crate) fn grow<K: Eq + Hash, V>(
        &mut self,
        map: &mut HashMap<K, V>,
    ) -> Result<(), TraceError> {
        if map.len() < map.capacity() {
            return Ok(());
        }
        let before = table_bytes::<(K, V)>(map.capacity());
        let wanted = (2 * map.capacity()).max(LEAST_ENTRIES);
        // While it grows, the old table is there too.
        self.check(table_bytes::<(K, V)>(wanted))?;
        self.take(table_bytes::<(K, V)>(wanted) - before)?;
        let no_memory = |_| self.budget.refuse(&self.path, Needs::Memory);
        map.try_reserve(wanted - map.len()).map_err(no_memory)
    }
}

/// Number of entries for which [`Room::grow`] makes room in an empty map.
const LEAST_ENTRIES: usize = 1 << 10;

/// Returns the bytes of a hash table with room for `entries`: at most seven of eight places are filled, the number of
/// places is a power of two, and each place has a control byte beside its entry.
pub(crate) const fn table_bytes<T>(entries: usize) -> u64 {
    if entries == 0 {
        return 0;
    }
    let places = (entries as u64 * 8 / 7).next_power_of_two();
    places * (size_of::<T>() as u64 + 1)
}

/// The resource of which a file needs more than its budget allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Needs {
    /// The file needs this many bytes of memory at a time.
    #[error("to read it takes {} of memory", bytes_text(*.0))]
    Bytes(u64),
    /// The file needs more memory than the system has left.
    #[error("the system has no memory left to read it")]
    Memory,
    /// The file has this many events.
    #[error("it says that it has {0} events")]
    Events(u64),
    #[error("it could not be read in time")]
    Time,
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of memory and {} events", bytes_text(self.bytes), self.events)
    }
}

/// Returns a file's bytes on the disk: the holes of a sparse file count nothing.
fn stored(file: &fs::Metadata) -> u64 {
    file.len().min(file.blocks().saturating_mul(512))
}

/// Returns the bytes on the disk of the files in a folder and in `depth` levels of folders below it. Links are not
/// followed.
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

/// Returns the most bytes of memory that reading any file may take: a quarter of `MemAvailable` or of the memory that
/// the control group's limit leaves to this process, and at most half of the addresses that `RLIMIT_AS` leaves to it.
/// Computed once.
fn most() -> u64 {
    static MOST: OnceLock<u64> = OnceLock::new();
    *MOST.get_or_init(|| {
        let memory = |text: &str| fields::meminfo_bytes(text, "MemAvailable");
        let memory = read_small(&Root::Live, "proc/meminfo", "", memory).unwrap_or(4 * FLOOR);
        let memory = memory.min(left_of_group().unwrap_or(u64::MAX)) / 4;
        memory.min(left_of_addresses().unwrap_or(u64::MAX) / 2)
    })
}

/// Returns the bytes that `RLIMIT_AS` (`ulimit -v`) leaves to this process; `None` without a limit.
fn left_of_addresses() -> Option<u64> {
    let most = getrlimit(Resource::As).current?;
    let used = |text: &str| fields::meminfo_bytes(text, "VmSize");
    let used = read_small(&Root::Live, "proc/self/status", "", used).ok()?;
    Some(most.saturating_sub(used))
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
