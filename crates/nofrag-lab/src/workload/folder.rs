//! The folder of a run: the run makes it, and removes it in any case; a killed run's folder is removed by the next run.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use nofrag_host::process::started;
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

/// Prefix of the folders of all runs; process ID and start time of the process follow.
const PREFIX: &str = "nofrag-thpfioscale-";
/// Suffix of the folder's name if the run made the parent folder as well.
const WITH_ABOVE: &str = "-above";

/// A folder could not be made or removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The folder could not be made. Nothing was written.
    #[error("{path}: {cause}: cannot make a folder for the files there")]
    NotMade { path: PathBuf, cause: io::Error },
    /// The folder could not be removed.
    #[error("{path}: {cause}: its files are still there; remove them with `rm -r`")]
    NotRemoved { path: PathBuf, cause: io::Error },
}

/// A folder that is removed, with everything in it, when the value is dropped.
///
/// 1. `path` did not exist before this run made it, so all files in it are the run's.
/// 2. `parent` is there if and only if this run made the folder above as well; that is removed only if it is empty.
/// 3. It is locked as long as the value lives, and its name tells its owner: a folder that is neither locked nor that
///    of a running process was left behind.
#[derive(Debug)]
pub(super) struct WorkFolder {
    path: PathBuf,
    parent: Option<PathBuf>,
    removed: bool,
    lock: Option<File>,
}

impl WorkFolder {
    /// Makes a new folder below `dir`, which is made if it is missing and its own parent is not.
    pub(super) fn make(dir: &Path) -> Result<WorkFolder, FolderError> {
        let not_made = |path: &Path, cause| FolderError::NotMade { path: path.to_owned(), cause };
        let parent = match fs::create_dir(dir) {
            Ok(()) => Some(dir.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(not_made(dir, error)),
        };
        // From here on dropping the value removes the folders that were made.
        let above = if parent.is_some() { WITH_ABOVE } else { "" };
        let mut folder = WorkFolder { path: PathBuf::new(), parent, removed: true, lock: None };
        let own = std::process::id();
        let since = started(own).unwrap_or(0);
        for attempt in 0..100 {
            let path = dir.join(format!("{PREFIX}{own}-{since}-{attempt}{above}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    folder.path = path;
                    folder.removed = false;
                    let lock =
                        File::open(&folder.path).map_err(|cause| not_made(&folder.path, cause))?;
                    flock(&lock, FlockOperation::NonBlockingLockExclusive)
                        .map_err(|error| not_made(&folder.path, error.into()))?;
                    folder.lock = Some(lock);
                    return Ok(folder);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(not_made(&path, error)),
            }
        }
        Err(not_made(&dir.join(PREFIX), io::ErrorKind::AlreadyExists.into()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder now, and reports a failure.
    pub(super) fn remove(mut self) -> Result<(), FolderError> {
        self.take_away().map_err(|cause| FolderError::NotRemoved { path: self.path.clone(), cause })
    }

    fn take_away(&mut self) -> io::Result<()> {
        if !self.removed {
            remove_side_by_side(&self.path)?;
            self.removed = true;
        }
        match self.parent.take() {
            // Another process has put something there meanwhile: it stays.
            Some(parent) => match fs::remove_dir(parent) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
                removed => removed,
            },
            None => Ok(()),
        }
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // `remove` reports errors; here another error or a panic is under way already.
        let _ = self.take_away();
    }
}

/// Removes a folder, the folders in it all at once: on a file system that discards freed blocks each removal waits for
/// the disk, and waits that overlap cost a fraction of waits in a row.
fn remove_side_by_side(path: &Path) -> io::Result<()> {
    thread::scope(|scope| {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                // An error shows when the folder itself cannot be removed.
                let remove = move || fs::remove_dir_all(entry.path());
                // Without a thread for it, it goes with the folder itself.
                let _ = thread::Builder::new().spawn_scoped(scope, remove);
            }
        }
        io::Result::Ok(())
    })?;
    fs::remove_dir_all(path)
}

/// A folder that a killed run left, locked so that no other run removes it, too.
#[derive(Debug)]
struct Left {
    path: PathBuf,
    _lock: File,
}

/// Returns process ID and start time of the process that made a folder of this name; `None` if no run made it.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut words = name.strip_suffix(WITH_ABOVE).unwrap_or(name).strip_prefix(PREFIX)?.split('-');
    let (process, since, attempt) = (words.next()?, words.next()?, words.next()?);
    attempt.parse::<u32>().ok()?;
    let is_whole = words.next().is_none();
    is_whole.then_some(())?;
    Some((process.parse().ok()?, since.parse().ok()?))
}

/// Returns the folders below `dir` that killed runs of this user left.
fn left(dir: &Path) -> Vec<Left> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let left = entries.filter_map(|entry| {
        let (process, since) = owner(entry.file_name().to_str()?)?;
        let path = entry.path();
        // A link has no owner here, and folders of other users are not ours to remove.
        let is_own = fs::symlink_metadata(&path).is_ok_and(|found| {
            found.is_dir() && found.uid() == rustix::process::geteuid().as_raw()
        });
        if !is_own || started(process) == Some(since) {
            return None;
        }
        // Processes of another namespace are not seen, but their locks are.
        let lock = File::open(&path).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Left { path, _lock: lock })
    });
    left.collect()
}

/// Returns the paths of the folders below `dir` that killed runs of this user left.
pub(super) fn left_behind(dir: &Path) -> Vec<PathBuf> {
    left(dir).into_iter().map(|left| left.path).collect()
}

/// Removes the folders below `dir` that killed runs of this user left, and `dir` itself if one of them made it and
/// nothing else is there. Returns sentences on the removed ones, and on those that could not be removed.
#[must_use]
pub fn remove_left_behind(dir: &Path) -> Vec<String> {
    let said = |left: Left| {
        let path = left.path.display();
        if let Err(cause) = remove_side_by_side(&left.path) {
            return format!(
                "{path} was left behind by a run that was killed, and cannot be removed: {cause}; remove it with \
                 `rm -r`"
            );
        }
        if left.path.to_string_lossy().ends_with(WITH_ABOVE) {
            // If it holds anything else, it stays.
            let _ = fs::remove_dir(dir);
        }
        format!("Removed {path}, left behind by a run that was killed.")
    };
    left(dir).into_iter().map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_and_all_in_it_go_with_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        let neighbour = dir.path().join("neighbour");
        fs::write(&neighbour, "stays").unwrap();
        let folder = WorkFolder::make(dir.path()).unwrap();
        let second = WorkFolder::make(dir.path()).unwrap();
        assert_ne!(folder.path(), second.path());
        fs::create_dir(folder.path().join("job.0")).unwrap();
        fs::write(folder.path().join("job.0/workfile.0"), "x").unwrap();
        drop(folder);
        second.remove().unwrap();
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(left, [neighbour]);
    }

    #[test]
    fn a_missing_folder_above_is_made_and_goes_unless_somebody_uses_it() {
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("above");
        WorkFolder::make(&above).unwrap().remove().unwrap();
        assert!(!above.exists());
        let folder = WorkFolder::make(&above).unwrap();
        fs::write(above.join("file"), "stays").unwrap();
        folder.remove().unwrap();
        assert_eq!(fs::read_dir(&above).unwrap().count(), 1);
        assert!(matches!(
            WorkFolder::make(&dir.path().join("no/such")),
            Err(FolderError::NotMade { .. })
        ));
    }

    #[test]
    fn a_panic_removes_it_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let thread = std::thread::spawn(move || {
            let _folder = WorkFolder::make(&path).unwrap();
            panic!("as planned");
        });
        assert!(thread.join().is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Checks that a run removes the folder that a killed run left, and nothing else. It once only named the folder,
    /// and went by the process ID alone, which another process may have by now.
    #[test]
    fn what_a_killed_run_left_goes_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            fs::create_dir_all(dir.path().join(name).join("job.0")).unwrap();
            fs::write(dir.path().join(name).join("job.0/workfile.0"), "x").unwrap();
        };
        let own = std::process::id();
        let since = started(own).unwrap();
        // Process numbers end far below; and this one has the number of a process that has ended.
        let dead = ["nofrag-thpfioscale-4294967294-7-0", &format!("nofrag-thpfioscale-{own}-1-0")];
        let kept = [
            "nofrag-thpfioscale-mine",
            "nofrag-thpfioscale-4294967294-7-0-more",
            "other-4294967294-7-0",
            &format!("nofrag-thpfioscale-{own}-{since}-77"),
        ];
        dead.iter().chain(&kept).for_each(|name| make(name));
        // Another run is active there, in another namespace of processes.
        let locked = "nofrag-thpfioscale-4294967293-7-0";
        make(locked);
        let lock = File::open(dir.path().join(locked)).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let linked = dir.path().join("nofrag-thpfioscale-4294967292-7-0");
        std::os::unix::fs::symlink(dir.path().join(kept[0]), &linked).unwrap();
        let live = WorkFolder::make(dir.path()).unwrap();
        let said = remove_left_behind(dir.path());
        assert_eq!(said.len(), dead.len(), "{said:?}");
        for name in dead {
            assert!(said.iter().any(|line| line.contains(name)), "{name} in {said:?}");
            assert!(!dir.path().join(name).exists());
        }
        for name in kept.iter().chain(&[locked]) {
            assert!(dir.path().join(name).join("job.0/workfile.0").exists(), "{name}");
        }
        assert!(linked.is_symlink() && live.path().exists());
        drop(lock);
        assert_eq!(remove_left_behind(dir.path()).len(), 1);
    }

    #[test]
    fn the_folder_above_goes_with_what_a_killed_run_left() {
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("above");
        for (name, stays) in [("7-0-above", false), ("7-0", true)] {
            fs::create_dir_all(above.join(format!("nofrag-thpfioscale-4294967294-{name}")))
                .unwrap();
            assert_eq!(left_behind(&above).len(), 1);
            assert_eq!(remove_left_behind(&above).len(), 1);
            assert_eq!(above.exists(), stays, "{name}");
        }
        // The name that a run uses which makes the folder above.
        let folder = WorkFolder::make(&dir.path().join("new")).unwrap();
        assert!(folder.path().to_str().unwrap().ends_with(WITH_ABOVE));
    }
}
