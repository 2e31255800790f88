//! The file or folder of a recording.
//!
//! 1. Only this user may read the output, from its first moment on.
//! 2. No link is followed: a new output is made where nothing has its name, and an older one, or a link, is replaced by
//!    a rename, so that the name leads to one of the two at any time. The folder above is opened once.
//! 3. The writer of an output holds its lock. A locked older output is not replaced, and an older output stays locked
//!    until it is replaced, so that of two recorders one is refused.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, flock, fstat, mkdirat,
    open, openat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::recording::{Existing, RecordingError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetKind {
    File,
    Folder,
}

/// An output that is being written.
#[derive(Debug)]
pub(super) struct Target {
    kind: TargetKind,
    /// The folder that holds the output.
    above: OwnedFd,
    name: OsString,
    /// The temporary place of the output until it replaces an older one. If it never does, a drop removes it.
    beside: Option<Beside>,
    /// The output itself, locked.
    output: File,
}

#[derive(Debug)]
struct Beside {
    name: OsString,
    /// The output to replace, locked; `None` for a link.
    _older: Option<File>,
}

impl Target {
    /// Makes an output. An older one is untouched until [`replace`](Self::replace). `is_ours` decides whether an older
    /// folder may be replaced.
    pub(super) fn create(
        kind: TargetKind,
        path: &Path,
        existing: Existing,
        is_ours: impl Fn(&Path) -> io::Result<bool>,
    ) -> Result<Target, RecordingError> {
        let failed = |cause: io::Error| match cause.kind() {
            io::ErrorKind::AlreadyExists => RecordingError::Exists(path.to_owned()),
            io::ErrorKind::WouldBlock => RecordingError::InUse(path.to_owned()),
            _ => RecordingError::File { path: path.to_owned(), cause },
        };
        let (above, name) = above(path).map_err(failed)?;
        let older = match existing {
            Existing::Keep => Older::None,
            Existing::Replace => older(kind, &above, &name, is_ours).map_err(failed)?,
        };
        let (output, beside) = match older {
            Older::None => (make(kind, &above, &name).map_err(failed)?, None),
            Older::There(older) => {
                let (output, name) = make_beside(kind, &above, &name).map_err(failed)?;
                (output, Some(Beside { name, _older: older }))
            }
        };
        let target = Target { kind, above, name, beside, output };
        lock(&target.output).map_err(failed)?;
        Ok(target)
    }

    /// Returns the output, open for writing if it is a file.
    pub(super) fn output(&self) -> &File {
        &self.output
    }

    /// Returns a path that leads to the output under whatever name it has by now, in this process.
    pub(super) fn place(&self) -> PathBuf {
        reopened(&self.output)
    }

    /// Puts the output in the place of the older one, if there is one.
    pub(super) fn replace(&mut self) -> io::Result<()> {
        let Some(beside) = &self.beside else { return Ok(()) };
        let rename =
            |flags| renameat_with(&self.above, &beside.name, &self.above, &self.name, flags);
        let replaced = match self.kind {
            TargetKind::File => rename(RenameFlags::empty()),
            TargetKind::Folder => rename(RenameFlags::EXCHANGE).or_else(|error| match error {
                // The file system cannot exchange two names.
                Errno::INVAL | Errno::NOSYS if self.remove(&self.name).is_ok() => {
                    rename(RenameFlags::empty())
                }
                error => Err(error),
            }),
        };
        replaced.map_err(|cause| {
            let cause = io::Error::from(cause);
            io::Error::new(cause.kind(), format!("{cause}: it cannot be replaced"))
        })?;
        if self.kind == TargetKind::Folder {
            // The older output has the other name now; a remainder that cannot be removed does no harm.
            let _ = self.remove(&beside.name);
        }
        self.beside = None;
        Ok(())
    }

    /// Removes the output again, if its name still leads to it. Errors are ignored: the caller reports the reason why
    /// nothing was recorded.
    pub(super) fn discard(&mut self) {
        if self.beside.is_none() && is_at(&self.above, &self.name, &self.output) {
            let _ = self.remove(&self.name);
        }
        self.take_away();
    }

    fn take_away(&mut self) {
        if let Some(beside) = self.beside.take() {
            let _ = self.remove(&beside.name);
        }
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        match self.kind {
            TargetKind::File => Ok(unlinkat(&self.above, name, AtFlags::empty())?),
            TargetKind::Folder => fs::remove_dir_all(reopened(&self.above).join(name)),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.take_away();
    }
}

/// The older output with the same name: its locked file or folder, or no file for a link.
enum Older {
    None,
    There(Option<File>),
}

/// Returns the folder of a path, and the name there.
fn above(path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let odd = || io::Error::new(io::ErrorKind::InvalidInput, "it names no file");
    let name = path.file_name().ok_or_else(odd)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((open(above.unwrap_or(Path::new(".")), flags, Mode::empty())?, name.to_owned()))
}

/// Finds and locks the older output to replace.
fn older(
    kind: TargetKind,
    above: &OwnedFd,
    name: &OsStr,
    is_ours: impl Fn(&Path) -> io::Result<bool>,
) -> io::Result<Older> {
    /// Most tries: another process may replace the output between two looks, but not for ever.
    const LOOKS: u32 = 16;
    for _ in 0..LOOKS {
        let found = match statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => FileType::from_raw_mode(found.st_mode),
            Err(Errno::NOENT) => return Ok(Older::None),
            Err(error) => return Err(error.into()),
        };
        match (kind, found) {
            (TargetKind::File, FileType::Symlink) => return Ok(Older::There(None)),
            (TargetKind::File, FileType::RegularFile)
            | (TargetKind::Folder, FileType::Directory) => {}
            (TargetKind::File, _) => {
                return Err(io::Error::other("only a file is replaced by one"));
            }
            // The creation will fail since the name is taken.
            (TargetKind::Folder, _) => return Ok(Older::None),
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let older = match openat(above, name, flags, Mode::empty()) {
            Ok(older) => File::from(older),
            Err(Errno::NOENT | Errno::LOOP) => continue,
            Err(error) => {
                let cause = io::Error::from(error);
                let why = format!("{cause}: whether somebody writes to it cannot be seen");
                return Err(io::Error::new(cause.kind(), why));
            }
        };
        if kind == TargetKind::Folder && !is_ours(&reopened(&older))? {
            return Ok(Older::None);
        }
        lock(&older)?;
        if is_at(above, name, &older) {
            return Ok(Older::There(Some(older)));
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Locks an output; fails if another process holds the lock.
fn lock(output: &File) -> io::Result<()> {
    Ok(flock(output, FlockOperation::NonBlockingLockExclusive)?)
}

/// Returns true if the name in the folder `above` leads to `file`.
fn is_at(above: &OwnedFd, name: &OsStr, file: &File) -> bool {
    let key = |stat: Stat| (stat.st_dev, stat.st_ino);
    let named = statat(above, name, AtFlags::SYMLINK_NOFOLLOW).map(key);
    named.is_ok_and(|named| fstat(file).map(key) == Ok(named))
}

fn reopened(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Makes a file or folder that only this user may open, under an unused name.
fn make(kind: TargetKind, above: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let made = match kind {
        TargetKind::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            openat(above, name, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?
        }
        TargetKind::Folder => {
            mkdirat(above, name, Mode::RWXU)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(above, name, flags, Mode::empty())?
        }
    };
    Ok(made.into())
}

/// Makes a file or folder as [`make`] does, under an unused name beside `name`.
fn make_beside(kind: TargetKind, above: &OwnedFd, name: &OsStr) -> io::Result<(File, OsString)> {
    /// Most names that are tried: taken ones are left by recorders that were killed, or belong to other programs.
    const NAMES: u32 = 16;
    for number in 0..NAMES {
        let mut beside = OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}.{number}.new", std::process::id()));
        match make(kind, above, &beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((made?, beside)),
        }
    }
    Err(io::Error::other("no name for it is left in this folder"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn create(path: &Path, existing: Existing) -> Result<Target, RecordingError> {
        Target::create(TargetKind::File, path, existing, |_| Ok(false))
    }

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn nobody_else_may_read_what_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let target = create(&path, Existing::Keep).unwrap();
        assert_eq!(mode(&path), 0o600);
        drop(target);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let mut target = create(&path, Existing::Replace).unwrap();
        for name in names(folder.path()).iter().filter(|name| *name != "a") {
            assert_eq!(mode(&folder.path().join(name)), 0o600);
        }
        target.replace().unwrap();
        assert_eq!(mode(&path), 0o600, "the older one's mode is not taken over");
        let path = folder.path().join("raw");
        drop(Target::create(TargetKind::Folder, &path, Existing::Keep, |_| Ok(true)).unwrap());
        assert_eq!(mode(&path), 0o700);
    }

    /// Makes an output where a link has its name: the link is replaced. The bug `link_followed`: the file behind the
    /// link was overwritten.
    #[test]
    fn link_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("a"), folder.path().join("victim"));
        fs::write(&victim, "stays").unwrap();
        symlink(&victim, &path).unwrap();
        assert!(matches!(create(&path, Existing::Keep), Err(RecordingError::Exists(_))));
        let mut target = create(&path, Existing::Replace).unwrap();
        target.output().write_all(b"new").unwrap();
        target.replace().unwrap();
        drop(target);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "stays");
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "the link itself is replaced");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let dangling = folder.path().join("dangling");
        symlink(folder.path().join("elsewhere"), &dangling).unwrap();
        create(&dangling, Existing::Replace).unwrap().replace().unwrap();
        assert!(!folder.path().join("elsewhere").exists());
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        for name in ["folder", "..", "none/a"] {
            let refused = create(&folder.path().join(name), Existing::Replace).unwrap_err();
            assert!(matches!(refused, RecordingError::File { .. }), "{name}: {refused}");
        }
        let refused = create(Path::new("/dev/null"), Existing::Replace).unwrap_err().to_string();
        assert!(refused.contains("only a file"), "{refused}");
    }

    #[test]
    fn of_two_recorders_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let check_refused = || {
            let refused = create(&path, Existing::Replace).unwrap_err();
            assert!(matches!(refused, RecordingError::InUse(_)), "{refused}");
        };
        let mut first = create(&path, Existing::Keep).unwrap();
        check_refused();
        drop(first);
        first = create(&path, Existing::Replace).unwrap();
        // The older output still exists, and will be replaced.
        check_refused();
        first.replace().unwrap();
        check_refused();
        drop(first);
        drop(create(&path, Existing::Replace).unwrap());
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn what_was_not_recorded_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        create(&path, Existing::Keep).unwrap().discard();
        assert_eq!(names(folder.path()).len(), 0);
        fs::write(&path, "older").unwrap();
        create(&path, Existing::Replace).unwrap().discard();
        drop(create(&path, Existing::Replace).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "older");
        assert_eq!(names(folder.path()), ["a"]);
        // Another process has put a file in its place.
        let mut target = create(&folder.path().join("b"), Existing::Keep).unwrap();
        fs::rename(&path, folder.path().join("b")).unwrap();
        target.discard();
        assert_eq!(names(folder.path()), ["b"]);
    }
}
