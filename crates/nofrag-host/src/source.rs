//! The files of a host, live or captured. No other module reads any, except the recorder (`record`), which holds the
//! memory for its snapshots before it begins. `reading` holds the one way in which files are opened.
//!
//! A captured host is a folder with the files under their own paths:
//!
//! | file | needed for |
//! |---|---|
//! | `proc/vmallocinfo` | everything; read it with `kernel.kptr_restrict` 1, or there is no hole map |
//! | `proc/meminfo` | the length of the vmalloc range (`VmallocTotal`) |
//! | `sys/devices/system/cpu/online`, else `proc/cpuinfo` | the limit of lazily freed areas |
//! | `proc/sys/kernel/kptr_restrict` | advice on hashed addresses |
//! | `proc/sys/kernel/arch` | telling modules from the vmalloc range |
//! | `proc/sys/kernel/osrelease` | the same on arm64, and the heading |
//!
//! Only the first is required. Each file is read once and whole: 120 bytes or less per area, and a busy host has some
//! thousand. The files of a process are read by [`process`].

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use crate::fields::{self, FieldError};

pub mod machine;
pub mod process;
mod reading;

pub(crate) use reading::Entry;
pub use reading::end_reader;

/// The host whose files are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    Live,
    /// The host captured in this folder.
    Captured(PathBuf),
}

/// Path of the kernel's list of vmalloc areas, relative to the root.
pub const VMALLOCINFO: &str = "proc/vmallocinfo";
pub(crate) const CPUS_ONLINE: &str = "sys/devices/system/cpu/online";
/// Path of the setting that hides kernel addresses, relative to the root.
pub const KPTR_RESTRICT: &str = "proc/sys/kernel/kptr_restrict";

impl Root {
    /// Returns the path of the file at `relative` to the root.
    #[must_use]
    pub fn path(&self, relative: &str) -> PathBuf {
        match self {
            Root::Live => Path::new("/").join(relative),
            Root::Captured(folder) => folder.join(relative),
        }
    }
}

/// The contents of the files from which [`vmalloc::survey`](crate::vmalloc::survey) computes its report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    pub vmallocinfo: Vec<u8>,
    /// `kernel.kptr_restrict` while the areas were read.
    pub kptr_restrict: Option<u8>,
    pub cpus_online: Option<u32>,
    pub vmalloc_total: Option<u64>,
    /// `VmallocUsed` in bytes: the memory behind areas, as the kernel counts it.
    pub vmalloc_used: Option<u64>,
    pub release: Option<String>,
    /// Name of the architecture, as the kernel gives it.
    pub arch: Option<String>,
    /// Files that could not be had, with the parts of the report that are missing for want of them.
    pub missing: Vec<Missing>,
}

/// A file that could not be read or understood, with the part of the report that is missing for want of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Missing {
    pub path: String,
    pub why: String,
    /// The part of the report that is missing.
    pub costs: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Missing { path, why, costs } = self;
        write!(f, "{path}: {why}; it costs {costs}")
    }
}

impl Root {
    /// Returns the entry for a file, by its path below the root, that is missing for this reason.
    pub(crate) fn missing(
        &self,
        path: &str,
        why: impl Into<String>,
        costs: &'static str,
    ) -> Missing {
        Missing { path: self.path(path).display().to_string(), why: why.into(), costs }
    }

    /// Tells the running host from a captured one.
    fn liveness(&self) -> Liveness {
        if *self == Root::Live { Liveness::Live } else { Liveness::Captured }
    }
}

/// The reason why `/proc/vmallocinfo` could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    #[error(
        "{path}: permission denied: the kernel lets only root read it (mode 0400), since it \
         shows where kernel memory lies; run this command as root, or look at a captured host \
         with --root DIR"
    )]
    Denied { path: PathBuf },
    /// The file does not exist.
    #[error("{path}: no such file: {}", absent_help(*.live))]
    Absent { path: PathBuf, live: Liveness },
    #[error("{path}: {cause}")]
    Failed { path: PathBuf, cause: io::Error },
}

/// Distinguishes the running host from a captured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Live,
    /// A host captured in a folder.
    Captured,
}

fn absent_help(live: Liveness) -> &'static str {
    match live {
        Liveness::Live => {
            "this kernel does not list its vmalloc areas (no MMU, or /proc is not mounted)"
        }
        Liveness::Captured => {
            "a captured host needs this file: copy it there with `cat /proc/vmallocinfo > DIR/proc/vmallocinfo`"
        }
    }
}

/// Reads `/proc/vmallocinfo`, once.
///
/// # Errors
/// Those of [`ReadError`].
pub fn read_vmallocinfo(root: &Root) -> Result<Vec<u8>, ReadError> {
    let path = root.path(VMALLOCINFO);
    root.read(VMALLOCINFO).map_err(|cause| match cause.kind() {
        io::ErrorKind::PermissionDenied => ReadError::Denied { path },
        io::ErrorKind::NotFound => ReadError::Absent { path, live: root.liveness() },
        _ => ReadError::Failed { path, cause },
    })
}

/// Reads the files beside `vmallocinfo`. Never fails: files that could not be had are in [`Sources::missing`].
#[must_use]
pub fn read_rest(root: &Root, vmallocinfo: Vec<u8>) -> Sources {
    let mut files = Files { root, missing: Vec::new() };
    let limit = "the limit of lazily freed areas";
    let cpus_online = files
        .try_value(CPUS_ONLINE, fields::cpu_count)
        .or_else(|| files.value("proc/cpuinfo", limit, fields::cpuinfo_count));
    let length = "the bounds of the vmalloc range";
    let total = |text: &str| fields::meminfo_bytes(text, "VmallocTotal");
    let used = |text: &str| fields::meminfo_bytes(text, "VmallocUsed");
    let advice = "advice on hidden addresses";
    let arch = files.arch("telling modules from the vmalloc range");
    Sources {
        vmallocinfo,
        cpus_online,
        arch,
        kptr_restrict: files.value(KPTR_RESTRICT, advice, fields::kptr_restrict),
        vmalloc_total: files.value("proc/meminfo", length, total),
        vmalloc_used: files.try_value("proc/meminfo", used),
        release: files.value("proc/sys/kernel/osrelease", "the kernel's version", word),
        missing: files.missing,
    }
}

/// Returns the reason why a file could not be read, and a hint at the users who may read it.
pub(crate) fn why(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => "permission denied: only root may read it".to_owned(),
        io::ErrorKind::NotFound => "no such file".to_owned(),
        _ => cause.to_string(),
    }
}

/// Parses a file that is one word.
fn word(text: &str) -> Result<String, FieldError> {
    match text.trim() {
        "" => Err(FieldError::Missing),
        word => Ok(word.to_owned()),
    }
}

/// Returns the architecture of this program, which is the host's. The kernel has had `/proc/sys/kernel/arch` since 6.1
/// only.
fn own_arch() -> Option<String> {
    Some(std::env::consts::ARCH.to_owned())
}

/// Reads one small file; the error names the part of the report that is missing for want of it.
pub(crate) fn read_small<T>(
    root: &Root,
    relative: &str,
    costs: &'static str,
    parse: impl FnOnce(&str) -> Result<T, FieldError>,
) -> Result<T, Missing> {
    let text = root.text(relative).map_err(|cause| why(&cause));
    let value = text.and_then(|text| parse(&text).map_err(|error| error.to_string()));
    value.map_err(|why| root.missing(relative, why, costs))
}

struct Files<'a> {
    root: &'a Root,
    missing: Vec<Missing>,
}

impl Files<'_> {
    /// Returns the architecture as the kernel names it.
    fn arch(&mut self, costs: &'static str) -> Option<String> {
        const ARCH: &str = "proc/sys/kernel/arch";
        match self.root {
            Root::Live => self.try_value(ARCH, word).or_else(own_arch),
            Root::Captured(_) => self.value(ARCH, costs, word),
        }
    }

    fn value<T>(
        &mut self,
        relative: &str,
        costs: &'static str,
        parse: impl FnOnce(&str) -> Result<T, FieldError>,
    ) -> Option<T> {
        read_small(self.root, relative, costs, parse).map_err(|it| self.missing.push(it)).ok()
    }

    /// Reads a value as [`value`](Self::value) does, for a file that has a substitute or whose absence costs nothing.
    fn try_value<T>(
        &self,
        relative: &str,
        parse: impl FnOnce(&str) -> Result<T, FieldError>,
    ) -> Option<T> {
        read_small(self.root, relative, "nothing", parse).ok()
    }
}
