//! The files of a process, live or captured.
//!
//! | file | needed for |
//! |---|---|
//! | `proc/PID/smaps` | the reasons why neighbours do not merge; it has all that `maps` has |
//! | `proc/PID/maps` | everything, where there is no `smaps` |
//! | `proc/sys/vm/max_map_count` | the limit of areas |
//! | `proc/PID/status` | name, threads |
//! | `proc/PID/limits` | direction of placement (stack), and the room under `RLIMIT_AS` |
//! | `proc/PID/personality`, `proc/sys/vm/legacy_va_layout` | direction of placement |
//! | `proc/sys/vm/mmap_min_addr` | the lowest address |
//! | `proc/sys/kernel/arch` | the end of the address space, the size of a page |
//! | `proc/sys/kernel/osrelease` | the heading, and the placement of this kernel |
//!
//! One of the first two is required. The kernel shows both to the owner of the process, unless the process has
//! changed its identity or has made itself unreadable, and to root.

use std::fmt;
use std::io::{self, BufReader};
use std::path::PathBuf;

use serde::Serialize;
use thiserror::Error;

use super::{Files, Liveness, Missing, Root, word};
use crate::fields::{self, Limit};
use crate::proc_maps::{self, Parsed};

/// The process whose files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// The reading process itself.
    Own,
    /// The process with this process ID.
    Pid(u32),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whose::Own => f.write_str("self"),
            Whose::Pid(pid) => pid.fmt(f),
        }
    }
}

/// The detail in which the areas of a process are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Reads `maps`: a microsecond per area.
    Maps,
    /// Reads `smaps` if it can be had: the kernel walks the page tables of the whole process for it.
    Smaps,
}

/// The file that the areas come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum MapsFile {
    /// `maps`: no flags, no sizes of the memory behind the areas.
    #[default]
    Maps,
    Smaps,
}

/// The files of a process that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The file from which the areas were read.
    pub file: MapsFile,
    pub parsed: Parsed,
    pub pid: Option<u32>,
    pub name: Option<String>,
    pub threads: Option<u64>,
    pub stack_limit: Option<Limit>,
    pub address_space_limit: Option<Limit>,
    /// The flags of `personality(2)`.
    pub personality: Option<u64>,
    pub max_map_count: Option<u64>,
    pub mmap_min_addr: Option<u64>,
    pub legacy_layout: Option<u64>,
    pub release: Option<String>,
    /// Name of the architecture, as the kernel gives it.
    pub arch: Option<String>,
    /// Files that could not be had, with the parts of the report that are missing for want of them.
    pub missing: Vec<Missing>,
}

/// The reason why the areas of a process could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    #[error(
        "{path}: permission denied: the kernel shows the areas of a process to its owner and to \
         root; run this command as that user or as root (a process that has changed its identity, \
         or has made itself undumpable, shows them to root alone)"
    )]
    Denied { path: PathBuf },
    /// The process does not exist, or no longer.
    #[error("process {pid} does not exist, or has ended; `ps -e` lists those that run")]
    Gone { pid: Whose },
    /// The process has no areas.
    #[error("process {pid} has no address space: {why}")]
    NoAreas {
        pid: Whose,
        /// The state of the process, in words.
        why: &'static str,
    },
    /// The captured host has no such process.
    #[error(
        "{path}: no such file: a captured process needs it: copy it there with \
         `cat /proc/PID/smaps > DIR/proc/PID/smaps` (or both `maps`)"
    )]
    Absent { path: PathBuf },
    /// No process was named, and the folder has none, or several.
    #[error("{path}: {}", which_help(.found))]
    Which { path: PathBuf, found: Vec<u32> },
    #[error("{path}: {cause}")]
    Failed { path: PathBuf, cause: io::Error },
}

fn which_help(found: &[u32]) -> String {
    if found.is_empty() {
        return "no process is captured here: it needs a folder with a number as its name"
            .to_owned();
    }
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    format!("several processes are captured here, name one: {}", found.join(", "))
}

/// Returns the default process: the reader itself, or the only one of a captured host.
///
/// # Errors
/// [`ProcessError::Which`] when a captured host has none or several.
pub fn default_process(root: &Root) -> Result<Whose, ProcessError> {
    if *root == Root::Live {
        return Ok(Whose::Own);
    }
    match processes(root)?.as_slice() {
        &[only] => Ok(Whose::Pid(only)),
        found => Err(ProcessError::Which { path: root.path("proc"), found: found.to_vec() }),
    }
}

/// Returns the process IDs of all processes, ascending.
///
/// # Errors
/// [`ProcessError::Failed`] when the folder cannot be read.
pub fn processes(root: &Root) -> Result<Vec<u32>, ProcessError> {
    let path = root.path("proc");
    let failed = |cause| ProcessError::Failed { path: path.clone(), cause };
    let names = root.names("proc").map_err(failed)?;
    let mut found: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    found.sort_unstable();
    Ok(found)
}

/// Reads the areas of a process, and nothing else.
///
/// # Errors
/// Those of [`ProcessError`].
pub fn read_maps(root: &Root, whose: Whose) -> Result<Parsed, ProcessError> {
    let parsed = read_areas(root, whose, MapsFile::Maps)?;
    if parsed.lines == 0 {
        return Err(ProcessError::NoAreas { pid: whose, why: why_no_areas(root, whose) });
    }
    Ok(parsed)
}

/// Returns the number of a process's areas, as the kernel counts them.
///
/// # Errors
/// Those of [`ProcessError`].
pub fn count_areas(root: &Root, whose: Whose) -> Result<u64, ProcessError> {
    let relative = format!("proc/{whose}/maps");
    let counted = root.with(&relative, |file| proc_maps::count(BufReader::new(file)));
    match counted.map_err(|cause| process_error(root, whose, root.path(&relative), cause)) {
        Err(ProcessError::Absent { .. }) => {
            let smaps = read_areas(root, whose, MapsFile::Smaps)?;
            Ok(smaps.areas.iter().filter(|area| area.is_counted()).count() as u64)
        }
        counted => counted,
    }
}

/// Reads the areas of a process and the files beside them.
///
/// # Errors
/// Those of [`ProcessError`]; files that are missing beside the areas are in [`Sources::missing`].
pub fn read(root: &Root, whose: Whose, depth: Depth) -> Result<Sources, ProcessError> {
    let mut files = Files { root, missing: Vec::new() };
    let (file, parsed) = match depth {
        Depth::Maps => (MapsFile::Maps, read_maps(root, whose)?),
        Depth::Smaps => match read_areas(root, whose, MapsFile::Smaps) {
            Ok(parsed) if parsed.lines > 0 => (MapsFile::Smaps, parsed),
            Ok(_) => (MapsFile::Maps, read_maps(root, whose)?),
            Err(why) => {
                let maps = read_maps(root, whose)?;
                files.missing.push(no_smaps(root, whose, &why));
                (MapsFile::Maps, maps)
            }
        },
    };
    let sources = Sources { file, parsed, pid: pid(root, whose), ..Sources::default() };
    Ok(read_rest(files, whose, sources))
}

fn pid(root: &Root, whose: Whose) -> Option<u32> {
    match whose {
        Whose::Own => (*root == Root::Live).then(std::process::id),
        Whose::Pid(pid) => Some(pid),
    }
}

fn read_areas(root: &Root, whose: Whose, file: MapsFile) -> Result<Parsed, ProcessError> {
    let relative = format!("proc/{whose}/{}", file.into_str());
    let parsed = root.with(&relative, |file| proc_maps::parse(BufReader::new(file)));
    parsed.map_err(|cause| process_error(root, whose, root.path(&relative), cause))
}

/// Error of a read when the process ends while its file is open.
const ESRCH: i32 = 3;

fn process_error(root: &Root, whose: Whose, path: PathBuf, cause: io::Error) -> ProcessError {
    let folder_is_there = || root.path(&format!("proc/{whose}")).exists();
    match cause.kind() {
        io::ErrorKind::PermissionDenied => ProcessError::Denied { path },
        io::ErrorKind::NotFound => match root.liveness() {
            Liveness::Captured => ProcessError::Absent { path },
            Liveness::Live if folder_is_there() => ProcessError::Failed { path, cause },
            Liveness::Live => ProcessError::Gone { pid: whose },
        },
        _ if cause.raw_os_error() == Some(ESRCH) => ProcessError::Gone { pid: whose },
        _ => ProcessError::Failed { path, cause },
    }
}

fn no_smaps(root: &Root, whose: Whose, why: &ProcessError) -> Missing {
    const COSTS: &str = "the flags of areas and whether they were touched, so most merge blockers";
    let why = match (why, root.liveness()) {
        (ProcessError::Gone { .. } | ProcessError::Absent { .. }, _) => "no such file".to_owned(),
        (ProcessError::Failed { cause, .. }, Liveness::Live)
            if cause.kind() == io::ErrorKind::NotFound =>
        {
            "this kernel has none (built without CONFIG_PROC_PAGE_MONITOR)".to_owned()
        }
        (ProcessError::Failed { cause, .. }, _) => cause.to_string(),
        (other, _) => other.to_string(),
    };
    root.missing(&format!("proc/{whose}/smaps"), why, COSTS)
}

/// Returns the state of a process without a line in `maps`, from its status.
fn why_no_areas(root: &Root, whose: Whose) -> &'static str {
    let status = root.text(&format!("proc/{whose}/status")).unwrap_or_default();
    let is = |field: &str, value: &str| {
        fields::status(&status, field).is_ok_and(|found| found.starts_with(value))
    };
    if is("State", "Z") || is("State", "X") {
        "it has ended and waits to be collected by its parent (a zombie)"
    } else if is("Kthread", "1") {
        "it is a thread of the kernel"
    } else {
        "it is a thread of the kernel, or is about to end"
    }
}

fn read_rest(mut files: Files<'_>, whose: Whose, sources: Sources) -> Sources {
    let of_process = |name: &str| format!("proc/{whose}/{name}");
    let status = of_process("status");
    let name = |text: &str| fields::status(text, "Name").map(str::to_owned);
    let threads = |text: &str| fields::status(text, "Threads").and_then(fields::number);
    let limits = of_process("limits");
    let stack = |text: &str| fields::soft_limit(text, "Max stack size");
    let address_space = |text: &str| fields::soft_limit(text, "Max address space");
    let direction = "certainty about the direction of placement";
    Sources {
        name: files.value(&status, "the name of the process", name),
        threads: files.try_value(&status, threads),
        stack_limit: files.value(&limits, direction, stack),
        address_space_limit: files.try_value(&limits, address_space),
        personality: files.try_value(&of_process("personality"), fields::hexadecimal),
        max_map_count: files.value(
            "proc/sys/vm/max_map_count",
            "the limit of areas",
            fields::number,
        ),
        mmap_min_addr: files.try_value("proc/sys/vm/mmap_min_addr", fields::number),
        legacy_layout: files.try_value("proc/sys/vm/legacy_va_layout", fields::number),
        release: files.value("proc/sys/kernel/osrelease", "the kernel's version", word),
        arch: files.arch("certainty about the end of the address space"),
        missing: files.missing,
        ..sources
    }
}
