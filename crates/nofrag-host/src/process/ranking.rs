//! All processes, nearest to the limit of areas first.

use serde::Serialize;

use crate::fields;
use crate::source::process::{ProcessError, Whose, count_areas, processes};
use crate::source::{Missing, Root, read_small};

/// Name of the schema.
pub const SCHEMA: &str = "nofrag.host.maps-ranking";
/// Its version.
pub const SCHEMA_VERSION: u32 = 1;

/// All processes that could be read, most areas first.
#[derive(Clone, Debug, Serialize)]
pub struct Ranking {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// [`SCHEMA_VERSION`].
    pub version: u32,
    /// `vm.max_map_count`, which holds for each process alone.
    pub limit: Option<u64>,
    /// The processes with areas.
    pub processes: Vec<Ranked>,
    /// Processes that the reader may not look into.
    pub denied: u64,
    /// Processes without an address space, most of them threads of the kernel.
    pub without_areas: u64,
    /// Files that could not be had.
    pub missing: Vec<Missing>,
}

/// A process and its areas.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: Option<String>,
    /// Its areas, as the kernel counts them.
    pub areas: u64,
    /// Their share of the limit.
    pub share: Option<f64>,
}

/// From this share of the limit on, a process is in danger.
pub const NEAR: f64 = 0.8;

impl Ranking {
    /// Of these processes.
    pub(crate) fn of(mut processes: Vec<Ranked>, limit: Option<u64>) -> Ranking {
        processes.sort_by_key(|process| (std::cmp::Reverse(process.areas), process.pid));
        Ranking {
            schema: SCHEMA,
            version: SCHEMA_VERSION,
            limit,
            processes,
            denied: 0,
            without_areas: 0,
            missing: Vec::new(),
        }
    }

    /// Whether a process is near the limit.
    #[must_use]
    pub fn warns(&self) -> bool {
        self.processes.iter().any(|process| process.share.is_some_and(|share| share >= NEAR))
    }
}

/// Counts the areas of every process. A microsecond per area; no flags are read.
///
/// # Errors
/// [`ProcessError::Failed`] when the processes cannot be listed.
pub fn rank(root: &Root) -> Result<Ranking, ProcessError> {
    let mut missing = Vec::new();
    let limit = read_small(root, "proc/sys/vm/max_map_count", "the limit of areas", fields::number);
    let limit = limit.map_err(|why| missing.push(why)).ok();
    let (mut found, mut denied, mut without_areas) = (Vec::new(), 0, 0);
    for pid in processes(root)? {
        match count_areas(root, Whose::Pid(pid)) {
            Ok(0) => without_areas += 1,
            Ok(areas) => found.push(Ranked::new(pid, name(root, pid), areas, limit)),
            Err(ProcessError::Denied { .. }) => denied += 1,
            Err(_) => {} // it has ended since
        }
    }
    Ok(Ranking { denied, without_areas, missing, ..Ranking::of(found, limit) })
}

fn name(root: &Root, pid: u32) -> Option<String> {
    let name = |text: &str| fields::status(text, "Name").map(super::printable);
    read_small(root, &format!("proc/{pid}/status"), "its name", name).ok()
}

impl Ranked {
    /// A process with so many areas, of which `limit` are allowed.
    pub(crate) fn new(pid: u32, name: Option<String>, areas: u64, limit: Option<u64>) -> Ranked {
        let share = limit.map(|limit| areas as f64 / limit.max(1) as f64);
        Ranked { pid, name, areas, share }
    }
}
