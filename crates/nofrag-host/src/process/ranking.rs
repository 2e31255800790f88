//! All processes, nearest to the limit of areas first.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::fields;
use crate::source::process::{ProcessError, Whose, count_areas, processes};
use crate::source::{Missing, Root, read_small};

/// All processes that could be read, most areas first.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ranking {
    /// Value of `vm.max_map_count`, which holds for each process alone.
    pub limit: Option<u64>,
    pub processes: Vec<Ranked>,
    /// Number of processes that the reader may not look into.
    pub denied: u64,
    /// Number of processes without an address space, most of them threads of the kernel.
    pub without_areas: u64,
    /// Files that could not be had.
    pub missing: Vec<Missing>,
}

/// A process and its areas.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ranked {
    pub pid: u32,
    pub name: Option<String>,
    /// The number of its areas, as the kernel counts them.
    pub areas: u64,
    /// The share of the limit that the areas use.
    pub share: Option<f64>,
}

/// Share of the limit from which on a process is in danger.
pub const NEAR: f64 = 0.8;

impl Ranking {
    /// Ranks `processes` by the number of their areas.
    pub(crate) fn of(mut processes: Vec<Ranked>, limit: Option<u64>) -> Ranking {
        processes.sort_by_key(|process| (std::cmp::Reverse(process.areas), process.pid));
        Ranking { limit, processes, denied: 0, without_areas: 0, missing: Vec::new() }
    }

    /// Returns true if a process is near the limit.
    #[must_use]
    pub fn warns(&self) -> bool {
        self.processes.iter().any(|process| process.share.is_some_and(|share| share >= NEAR))
    }
}

/// Time that a single request for a ranking waits at most.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Counts the areas of every process, as far as `patience` goes. A microsecond per area; no flags are read.
///
/// # Errors
/// [`ProcessError::Failed`] when the processes cannot be listed.
pub fn rank(root: &Root, patience: Duration) -> Result<Ranking, ProcessError> {
    const COSTS: &str = "whether they are near the limit of areas";
    let began = Instant::now();
    let mut missing = Vec::new();
    let limit = read_small(root, "proc/sys/vm/max_map_count", "the limit of areas", fields::number);
    let limit = limit.map_err(|why| missing.push(why)).ok();
    let (mut found, mut denied, mut without_areas) = (Vec::new(), 0, 0);
    let pids = processes(root)?;
    let mut hung: Vec<(PathBuf, String)> = Vec::new();
    for (done, &pid) in pids.iter().enumerate() {
        if began.elapsed() > patience {
            let (left, seconds) = (pids.len() - done, patience.as_secs());
            let why = format!("{left} processes are left out: {seconds} s were over");
            missing.push(root.missing("proc/PID/maps", why, COSTS));
            break;
        }
        match count_areas(root, Whose::Pid(pid)) {
            Ok(0) => without_areas += 1,
            Ok(areas) => found.push(Ranked::new(pid, name(root, pid), areas, limit)),
            Err(ProcessError::Denied { .. }) => denied += 1,
            Err(ProcessError::Failed { path, cause })
                if matches!(
                    cause.kind(),
                    ErrorKind::TimedOut | ErrorKind::InvalidInput | ErrorKind::FileTooLarge
                ) =>
            {
                hung.push((path, cause.to_string()));
            }
            Err(_) => {} // it has ended since
        }
    }
    if let [(path, why), others @ ..] = &hung[..] {
        let more = if others.is_empty() {
            String::new()
        } else {
            format!(", nor {} others", others.len())
        };
        let why = format!("{why}{more}");
        missing.push(Missing { path: path.display().to_string(), why, costs: COSTS });
    }
    Ok(Ranking { denied, without_areas, missing, ..Ranking::of(found, limit) })
}

fn name(root: &Root, pid: u32) -> Option<String> {
    let name = |text: &str| fields::status(text, "Name").map(super::printable);
    read_small(root, &format!("proc/{pid}/status"), "its name", name).ok()
}

impl Ranked {
    /// Makes the entry of a process with `areas`, of which `limit` are allowed.
    pub(crate) fn new(pid: u32, name: Option<String>, areas: u64, limit: Option<u64>) -> Ranked {
        let share = limit.map(|limit| areas as f64 / limit.max(1) as f64);
        Ranked { pid, name, areas, share }
    }
}
