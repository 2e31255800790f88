//! Opens and reads files of a host within a bound of bytes, and within a time.
//!
//! A captured folder comes from a stranger. Only regular files below the folder are opened: each part of a path is
//! looked up in the folder before it without following links, and the type of an entry is checked before it is opened,
//! so that no device is touched and no pipe waited for.
//!
//! The kernel may let a reader wait for as long as it likes: for the lock of an address space, or for a file system
//! that is gone. So the calls that may wait are made by a worker thread, one for each thread that reads, which is kept.
//! A worker that does not answer in time is left behind, and ends when its file answers; until then that file is
//! refused at once, so that a file that hangs costs one thread and one wait, however often it is asked for. Handing a
//! file over takes some ten microseconds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat};

use super::Root;
use crate::budget::Limited;
use crate::finding::bytes_text;

/// Most bytes of a file of a host, and the longest wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    most: u64,
    patience: Duration,
    group: Group,
}

/// Files that hang for one reason: only a few of them are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// Files of the host as a whole.
    Host,
    /// Files of single processes: each process has locks of its own.
    Process,
}

impl Group {
    /// Returns the most files that may hang at a time: with their patience it bounds the total wait for a host.
    const fn most(self) -> usize {
        match self {
            Group::Host => 3,
            Group::Process => 4,
        }
    }
}

/// Returns the bound of the file at `relative` to the root.
fn bound(relative: &str) -> Bound {
    const MIB: u64 = 1 << 20;
    let mut parts = relative.split('/');
    let is_process = parts.next() == Some("proc")
        && parts.next().is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    let name = relative.rsplit('/').next().unwrap_or(relative);
    let (most, patience_ms) = match name.strip_suffix(".zst").unwrap_or(name) {
        // Two million areas of the vmalloc space, or of a process.
        "vmallocinfo" => (256 * MIB, 3_000),
        "maps" => (256 * MIB, 1_000),
        // The kernel walks the page tables of the whole process for it.
        "smaps" => (2048 * MIB, 60_000),
        // Eight bytes for each frame: 16 TiB of memory, read in pieces, each within this time.
        "kpageflags" => (32 << 30, 10_000),
        // Lines for each CPU of each zone.
        "zoneinfo" | "pagetypeinfo" | "cpuinfo" | "iomem" => (64 * MIB, 2_000),
        _ if is_process => (MIB, 1_000),
        _ => (MIB, 2_000),
    };
    let group = if is_process { Group::Process } else { Group::Host };
    Bound { most, patience: Duration::from_millis(patience_ms), group }
}

/// An open file of a host. Reading fails where it is longer than such a file can be.
pub(crate) type HostFile = Limited<Box<dyn Read + Send>>;

fn too_long(most: u64) -> io::Error {
    let why = format!("it is longer than {}: no such file of a kernel is", bytes_text(most));
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) is_file: bool,
    pub(crate) is_folder: bool,
}

impl Root {
    /// Reads a whole file; a captured one also if it is packed.
    ///
    /// # Errors
    /// The error of the system; `TimedOut` for a file that does not answer, `FileTooLarge` for one that is longer than
    /// any kernel's, `InvalidInput` for an entry of a captured folder that is not a regular file.
    pub fn read(&self, relative: &str) -> io::Result<Vec<u8>> {
        let (root, name, bound) = (self.clone(), relative.to_owned(), bound(relative));
        within(self.path(relative), bound, move || root.read_here(&name, bound.most))
    }

    /// Reads a file as [`read`](Self::read) does, but of no more than `most` bytes and on this thread: for a folder
    /// whose files do not come from a kernel.
    pub(crate) fn read_here(&self, relative: &str, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_here(relative, most)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a text; bytes that are not UTF-8 are replaced: a process may name itself with any bytes.
    pub(crate) fn text(&self, relative: &str) -> io::Result<String> {
        self.read(relative).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a file with a function of the caller's, on the worker thread.
    pub(crate) fn with<T: Send + 'static>(
        &self,
        relative: &str,
        read: impl FnOnce(HostFile) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (root, name, bound) = (self.clone(), relative.to_owned(), bound(relative));
        within(self.path(relative), bound, move || read(root.open_here(&name, bound.most)?))
    }

    /// Runs a function of the caller's on the worker thread, within the time that a file at the path `folder` may take.
    pub(crate) fn in_time<T: Send + 'static>(
        &self,
        folder: &str,
        read: impl FnOnce(&Root) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let root = self.clone();
        within(self.path(folder), bound(folder), move || read(&root))
    }

    /// Opens a file too long for one wait: each piece has a time limit of its own.
    pub(crate) fn stream(&self, relative: &str) -> io::Result<Stream> {
        let (path, bound) = (self.path(relative), bound(relative));
        let (root, name) = (self.clone(), relative.to_owned());
        let file = within(path.clone(), bound, move || root.open_here(&name, bound.most))?;
        Ok(Stream { file: Some(file), path, bound, piece: Vec::new(), at: 0 })
    }

    /// Returns the entries of a folder, by name; names that are not UTF-8 are skipped.
    pub(crate) fn entries(&self, relative: &str) -> io::Result<Vec<Entry>> {
        let (root, name) = (self.clone(), relative.to_owned());
        within(self.path(relative), bound(relative), move || root.entries_here(&name))
    }

    /// Returns the names in a folder, in order.
    pub(crate) fn names(&self, relative: &str) -> io::Result<Vec<String>> {
        Ok(self.entries(relative)?.into_iter().map(|entry| entry.name).collect())
    }

    /// Opens a file on this thread.
    fn open_here(&self, relative: &str, most: u64) -> io::Result<HostFile> {
        let plain = self.open_regular(relative);
        let (file, is_packed) = match (self, plain) {
            (Root::Captured(_), Err(cause)) if cause.kind() == io::ErrorKind::NotFound => {
                (self.open_regular(&format!("{relative}.zst")).map_err(|_| cause)?, true)
            }
            (_, plain) => (plain?, relative.ends_with(".zst")),
        };
        if !is_packed && file.metadata()?.len() > most {
            return Err(too_long(most));
        }
        let from: Box<dyn Read + Send> = match is_packed {
            true => Box::new(zstd::Decoder::with_buffer(BufReader::new(file))?),
            false => Box::new(file),
        };
        Ok(Limited::new(from, most, too_long))
    }

    /// Opens a file on this thread; of a captured folder only a regular file below it.
    pub(crate) fn open_regular(&self, relative: &str) -> io::Result<File> {
        match self {
            Root::Live => File::open(self.path(relative)),
            Root::Captured(folder) => open_below(folder, relative),
        }
    }

    /// Returns the entries of a folder as [`entries`](Self::entries) does, on this thread.
    pub(crate) fn entries_here(&self, relative: &str) -> io::Result<Vec<Entry>> {
        /// Most entries of a folder: 4 million is the most processes that Linux has.
        const MOST: usize = 1 << 23;
        let folder = match self {
            Root::Live => open_folder(CWD, self.path(relative).as_os_str(), OFlags::empty())?,
            Root::Captured(folder) => folder_below(folder, parts_of(relative)?)?,
        };
        let mut entries = Vec::new();
        for entry in Dir::read_from(&folder)?.take(MOST) {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(&folder, OsStr::new(name))?,
                known => known,
            };
            entries.push(Entry {
                name: name.to_owned(),
                is_file: kind == FileType::RegularFile,
                is_folder: kind == FileType::Directory,
            });
        }
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }
}

/// Returns the parts of a path that stays below its folder.
fn parts_of(relative: &str) -> io::Result<Vec<&OsStr>> {
    let parts = relative.split('/').filter(|part| !part.is_empty());
    let checked = parts.map(|part| match part {
        "." | ".." => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        part => Ok(OsStr::new(part)),
    });
    checked.collect()
}

fn open_folder(within: impl AsFd, name: &OsStr, more: OFlags) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    Ok(openat(within, name, flags, Mode::empty())?)
}

/// Opens the folder at `parts` below `folder`. Only `folder` itself, which the user names, may be a link.
fn folder_below(folder: &Path, parts: Vec<&OsStr>) -> io::Result<OwnedFd> {
    let mut at = open_folder(CWD, folder.as_os_str(), OFlags::empty())?;
    for part in parts {
        if kind_of(&at, part)? != FileType::Directory {
            return Err(not_regular());
        }
        at = open_folder(&at, part, OFlags::NOFOLLOW)?;
    }
    Ok(at)
}

fn kind_of(folder: &OwnedFd, name: &OsStr) -> io::Result<FileType> {
    let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(found.st_mode))
}

fn not_regular() -> io::Error {
    let why = "it is no regular file: of a captured host no links, pipes and devices are read";
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn open_below(folder: &Path, relative: &str) -> io::Result<File> {
    let mut parts = parts_of(relative)?;
    let name = parts.pop().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = folder_below(folder, parts)?;
    // Opening some devices has an effect; so the type is checked before, and again in case the entry was changed.
    if kind_of(&folder, name)? != FileType::RegularFile {
        return Err(not_regular());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&folder, name, flags | OFlags::NOCTTY, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(File::from(file)),
        _ => Err(not_regular()),
    }
}

/// A file that is read in pieces, each within its time.
pub(crate) struct Stream {
    /// `None` once the file did not answer.
    file: Option<HostFile>,
    path: PathBuf,
    bound: Bound,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        const PIECE: u64 = 1 << 19;
        if self.at == self.piece.len() {
            let mut file = self.file.take().ok_or(io::ErrorKind::TimedOut)?;
            let mut piece = std::mem::take(&mut self.piece);
            let (file, piece) = within(self.path.clone(), self.bound, move || {
                piece.clear();
                file.by_ref().take(PIECE).read_to_end(&mut piece)?;
                Ok((file, piece))
            })?;
            (self.file, self.piece, self.at) = (Some(file), piece, 0);
        }
        let count = into.len().min(self.piece.len() - self.at);
        into[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread for the calls that may wait.
struct Worker {
    jobs: mpsc::Sender<Job>,
    thread: thread::JoinHandle<()>,
}

thread_local! {
    /// The worker that reads files for this thread.
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// Ends the worker of this thread, if there is one; the next file makes another. For a caller that is about to give up
/// rights: each thread has rights of its own. A worker that waits for a file that hangs stays.
pub fn end_reader() {
    if let Some(Worker { jobs, thread }) = WORKER.take() {
        drop(jobs);
        // The worker has no job, so it ends at once; a panic was reported where it happened.
        let _ = thread.join();
    }
}

/// The files that readers gave up and that have not answered since.
static HUNG: Mutex<BTreeMap<PathBuf, Group>> = Mutex::new(BTreeMap::new());

/// Runs `job` on the worker thread, and gives it up when it takes too long.
fn within<T: Send + 'static>(
    path: PathBuf,
    bound: Bound,
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    admit(&path, bound.group)?;
    let (reply, answer) = mpsc::sync_channel(1);
    // Set by the worker when it is done, or by the caller when it gives up, whichever is first.
    let ended = Arc::new(AtomicBool::new(false));
    let (seen, name) = (Arc::clone(&ended), path.clone());
    hand_over(Box::new(move || {
        let outcome = job();
        if seen.swap(true, Ordering::AcqRel) {
            hung().remove(&name);
        }
        // The caller may have given up.
        let _ = reply.send(outcome);
    }))?;
    match answer.recv_timeout(bound.patience) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its reader has panicked")),
        Err(RecvTimeoutError::Timeout) => {
            // Under the lock, so that the worker cannot take the name away before it is there.
            let mut hung = hung();
            if ended.swap(true, Ordering::AcqRel) {
                drop(hung);
                return answer.recv().unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            }
            hung.insert(path, bound.group);
            WORKER.with_borrow_mut(|worker| *worker = None);
            let why = format!("it did not answer within {} s", bound.patience.as_secs_f64());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}

/// Refuses a file that hangs, or one more of a group in which too many hang.
fn admit(path: &Path, group: Group) -> io::Result<()> {
    let hung = hung();
    if hung.is_empty() {
        return Ok(());
    }
    let why = if hung.contains_key(path) {
        "it has not answered since it was first asked for".to_owned()
    } else if hung.values().filter(|&&other| other == group).count() >= group.most() {
        format!("it was not asked for: {} other files do not answer", group.most())
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::TimedOut, why))
}

fn hung() -> std::sync::MutexGuard<'static, BTreeMap<PathBuf, Group>> {
    HUNG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a job to this thread's worker, which is made where there is none.
fn hand_over(job: Job) -> io::Result<()> {
    WORKER.with_borrow_mut(|worker| {
        let job = match worker {
            None => job,
            Some(worker) => match worker.jobs.send(job) {
                Ok(()) => return Ok(()),
                // The worker has panicked.
                Err(mpsc::SendError(job)) => job,
            },
        };
        let (jobs, more) = mpsc::channel::<Job>();
        let thread = thread::Builder::new().name("nofrag-files".to_owned()).spawn(move || {
            more.into_iter().for_each(|job| job());
        })?;
        *worker = jobs.send(job).is_ok().then_some(Worker { jobs, thread });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Instant;

    use super::*;

    fn folder() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        let root = Root::Captured(folder.path().to_owned());
        (folder, root)
    }

    #[test]
    fn a_packed_file_that_does_not_end_is_refused() {
        let (folder, root) = folder();
        let packed = zstd::bulk::compress(&[0; 5000], 1).unwrap();
        fs::write(folder.path().join("long.zst"), packed).unwrap();
        assert_eq!(root.read_here("long", 5000).unwrap().len(), 5000);
        let why = root.read_here("long", 4096).unwrap_err().to_string();
        assert!(why.contains("longer than 4 KiB"), "{why}");
    }

    #[test]
    fn of_a_captured_folder_only_regular_files_below_it_are_read() {
        let (folder, root) = folder();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("proc/version"), "Linux version 6.1.0").unwrap();
        fs::write(at("outside"), "private").unwrap();
        symlink("/dev/zero", at("proc/meminfo")).unwrap();
        symlink("../outside", at("proc/vmstat")).unwrap();
        symlink("/proc", at("sys")).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, at("proc/buddyinfo"), FileType::Fifo, mode, 0).unwrap();
        assert_eq!(root.text("proc/version").unwrap(), "Linux version 6.1.0");
        for name in ["proc/meminfo", "proc/vmstat", "proc/buddyinfo", "sys/version", "proc"] {
            let why = root.read(name).unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::InvalidInput, "{name}: {why}");
        }
        assert!(root.read("../outside").is_err());
        assert_eq!(root.read("proc/uptime").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(root.names("proc").unwrap(), ["buddyinfo", "meminfo", "version", "vmstat"]);
    }

    #[test]
    fn a_sparse_file_longer_than_any_of_its_kind_is_refused_unread() {
        let (folder, root) = folder();
        let file = File::create(folder.path().join("proc/vmallocinfo")).unwrap();
        file.set_len(64 << 30).unwrap();
        let why = root.read("proc/vmallocinfo").unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::FileTooLarge, "{why}");
    }

    /// Reads a file that hangs on a lock of the test's, in place of one of the kernel's.
    #[test]
    fn a_file_that_hangs_is_given_up_once_and_asked_for_again_when_it_answers() {
        static HELD: Mutex<()> = Mutex::new(());
        let path = PathBuf::from("/a test/proc/7/maps");
        let patience = Duration::from_millis(50);
        let bound = Bound { most: 0, patience, group: Group::Process };
        let ask = |path: &Path| {
            within(path.to_owned(), bound, || {
                drop(HELD.lock());
                Ok(7)
            })
        };
        let held = HELD.lock().unwrap();
        let why = ask(&path).unwrap_err();
        assert!(why.to_string().contains("did not answer within 0.05 s"), "{why}");
        let why = ask(&path).unwrap_err();
        assert!(why.to_string().contains("since it was first asked"), "{why}");
        // Another file is read meanwhile, by another thread.
        assert_eq!(within(PathBuf::from("/other"), bound, || Ok(8)).unwrap(), 8);
        for more in 1..Group::Process.most() {
            assert!(ask(Path::new(&format!("/a test/proc/{more}0/maps"))).is_err());
        }
        let why = ask(Path::new("/a test/proc/99/maps")).unwrap_err();
        assert!(why.to_string().contains("4 other files"), "{why}");
        drop(held);
        let until = Instant::now() + Duration::from_secs(60);
        while ask(&path).is_err() {
            assert!(Instant::now() < until, "it answers now");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
