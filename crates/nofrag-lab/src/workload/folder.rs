//! The folder of a run: made by it, and removed by it whatever happens.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use thiserror::Error;

/// What the folders of all runs are called, before the number of the process.
const PREFIX: &str = "nofrag-thpfioscale-";

/// A folder could not be made or removed.
#[derive(Debug, Error)]
pub enum FolderError {
    /// It could not be made. Nothing was written.
    #[error("{path}: {cause}: cannot make a folder for the files there")]
    NotMade {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// It could not be removed.
    #[error("{path}: {cause}: its files are still there; remove them with `rm -r`")]
    NotRemoved {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

/// A folder that is removed, with everything in it, when this is dropped.
///
/// 1. `path` did not exist before this made it, so nothing in it is anybody else's.
/// 2. `parent` is there if and only if this made the folder above as well; it goes only if it is empty.
#[derive(Debug)]
pub(super) struct WorkFolder {
    path: PathBuf,
    parent: Option<PathBuf>,
    removed: bool,
}

impl WorkFolder {
    /// A new folder below `dir`, which is made if it is missing and its own parent is not.
    pub(super) fn make(dir: &Path) -> Result<WorkFolder, FolderError> {
        let not_made = |path: &Path, cause| FolderError::NotMade { path: path.to_owned(), cause };
        let parent = match fs::create_dir(dir) {
            Ok(()) => Some(dir.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) => return Err(not_made(dir, error)),
        };
        // From here on whatever was made goes when this is dropped.
        let mut folder = WorkFolder { path: PathBuf::new(), parent, removed: true };
        for attempt in 0..100 {
            let path = dir.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {
                    folder.path = path;
                    folder.removed = false;
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

    /// Removes it now, and says if that fails.
    pub(super) fn remove(mut self) -> Result<(), FolderError> {
        self.take_away().map_err(|cause| FolderError::NotRemoved { path: self.path.clone(), cause })
    }

    fn take_away(&mut self) -> io::Result<()> {
        if !self.removed {
            remove_side_by_side(&self.path)?;
            self.removed = true;
        }
        match self.parent.take() {
            // Somebody else has put something there meanwhile: it stays.
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
        // Reported by `remove`; here another error or a panic is on its way already.
        let _ = self.take_away();
    }
}

/// Removes a folder, the folders in it all at once: on a file system that discards what is freed each removal waits for
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

/// Folders below `dir` of runs that seem killed: processes of another pid namespace are not seen.
pub(super) fn left_behind(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_dead = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        process.is_some_and(|process| {
            process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists()
        })
    };
    entries.map(|entry| entry.path()).filter(is_dead).collect()
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

    #[test]
    fn folders_of_killed_runs_are_found_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| fs::create_dir(dir.path().join(name)).unwrap();
        // Process numbers end far below.
        make("nofrag-thpfioscale-4294967294-0");
        make("nofrag-thpfioscale-mine");
        make(&format!("nofrag-thpfioscale-{}-0", std::process::id()));
        make("other-4294967294-0");
        let found = left_behind(dir.path());
        assert_eq!(found, [dir.path().join("nofrag-thpfioscale-4294967294-0")]);
    }
}
