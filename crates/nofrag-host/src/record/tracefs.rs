//! Finds tracefs, or mounts one for this process alone.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use serde::{Deserialize, Serialize};

use super::error::RecordError;
use super::whole::read_whole;

/// The tracefs in which a recording makes its instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// The mounted one; it is not mounted for this purpose.
    #[default]
    Mounted,
    /// The mounted one, else a mount of our own. That mount is attached to no folder, so that no other process sees it
    /// and it ends with the process.
    MountIfMissing,
    /// The one in this folder.
    At(PathBuf),
}

impl Which {
    /// Returns the choice of a user who may name a folder, or allow a mount.
    #[must_use]
    pub fn asked(folder: Option<PathBuf>, may_mount: bool) -> Which {
        let named = folder.map(Which::At);
        named.unwrap_or(if may_mount { Which::MountIfMissing } else { Which::Mounted })
    }
}

#[derive(Debug)]
pub(super) struct Tracefs {
    root: PathBuf,
    /// Keeps our own mount of tracefs alive.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Finds the tracefs by `which`, or mounts it.
    pub(super) fn find(which: &Which) -> Result<Tracefs, RecordError> {
        let root = match which {
            Which::At(folder) => Some(folder.clone()),
            Which::Mounted | Which::MountIfMissing => {
                mounted(&fs::read_to_string("/proc/self/mounts").unwrap_or_default())
            }
        };
        match (root, which) {
            (Some(root), _) => Tracefs::at(root, None),
            (None, Which::MountIfMissing) => {
                let denied = RecordError::instance(Path::new("tracefs"), "cannot be mounted");
                let mount = detached_mount().map_err(|error| denied(error.into()))?;
                Tracefs::at(format!("/proc/self/fd/{}", mount.as_raw_fd()).into(), Some(mount))
            }
            (None, _) => Err(RecordError::NoTracefs { looked: "is mounted".to_owned() }),
        }
    }

    fn at(root: PathBuf, mount: Option<OwnedFd>) -> Result<Tracefs, RecordError> {
        match fs::metadata(root.join("instances")) {
            Ok(found) if found.is_dir() => Ok(Tracefs { root, _mount: mount }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(RecordError::Denied { path: root })
            }
            _ => Err(RecordError::NoTracefs {
                looked: format!("at {}: it has no folder `instances`", root.display()),
            }),
        }
    }

    /// Returns the folder of the instances.
    pub(super) fn instances(&self) -> PathBuf {
        self.root.join("instances")
    }

    /// Returns the path of a file of the whole tracefs.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the text of a file of the whole tracefs; `None` if it cannot be read.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let bytes = read_whole(&self.root.join(name)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Returns the mount point of tracefs from `/proc/self/mounts`: its own, else inside debugfs.
fn mounted(mounts: &str) -> Option<PathBuf> {
    let place = |kind: &str| {
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let at = words.next()?;
            // The kernel writes a blank as `\040`.
            (words.next()? == kind).then(|| PathBuf::from(at.replace("\\040", " ")))
        })
    };
    place("tracefs").or_else(|| Some(place("debugfs")?.join("tracing")))
}

/// Mounts tracefs without attaching it to any folder.
fn detached_mount() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_mounted(mounts: &str, expected: Option<&str>) {
        assert_eq!(mounted(mounts), expected.map(PathBuf::from));
    }

    #[test]
    fn its_own_mount_goes_before_that_inside_debugfs() {
        let debugfs = "nodev /sys/kernel/debug debugfs rw 0 0\n";
        let tracefs = "nodev /mnt/a\\040b tracefs rw 0 0\n";
        check_mounted(&format!("{debugfs}{tracefs}"), Some("/mnt/a b"));
        check_mounted(debugfs, Some("/sys/kernel/debug/tracing"));
        check_mounted("proc /proc proc rw 0 0\nshort\n", None);
    }

    #[test]
    fn a_folder_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Tracefs::find(&Which::At(folder.path().to_owned())).unwrap_err().to_string();
        assert!(error.contains("it has no folder `instances`"), "{error}");
        assert!(error.contains("--mount-tracefs"), "{error}");
    }
}
