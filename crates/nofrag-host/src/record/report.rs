//! What a recording was.

use std::path::PathBuf;

use serde::Serialize;

use super::command::CommandReport;
use super::sensitive::Sensitive;
use crate::recording::CpuStats;
use crate::trace::ExtFragCount;

/// What was recorded, and what was not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// The file or folder.
    pub output: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// How many of these are chunks of events; the rest is snapshots. `None` of raw pages.
    pub event_bytes: Option<u64>,
    /// The kernel's release.
    pub release: Option<String>,
    /// How the recording ended.
    pub ended: Ended,
    /// The command, if one was recorded.
    pub command: Option<CommandReport>,
    /// For how long events were traced.
    pub seconds: f64,
    /// Since tracing began: when the start snapshot was complete.
    pub start_snapshot_seconds: f64,
    /// Events that are stored in the output.
    pub events: u64,
    /// Events that were read and could not be stored, since the recording was cut short.
    pub unstored: u64,
    /// By kind, those that occurred.
    pub by_kind: Vec<KindCount>,
    /// External fragmentation, by the type asked for and the type whose block was taken.
    pub extfrag: Vec<ExtFragCount>,
    /// Events that the kernel lost.
    pub lost: u64,
    /// Places where some are missing.
    pub gaps: u64,
    /// Records that could not be understood.
    pub unreadable: u64,
    /// Bytes of the pages of the ring buffer.
    pub raw_bytes: u64,
    /// What the kernel says of each CPU's buffer.
    pub cpus: Vec<CpuStats>,
    /// The size of the ring buffer of each CPU.
    pub buffer_kib_per_cpu: u64,
    /// CPU time of the recorder itself, its snapshots included; not that of a process that keeps root's rights for it.
    pub recorder_cpu_seconds: f64,
    /// The instance that was used; it is gone.
    pub instance: String,
    /// Instances of recorders that were killed, removed at the start.
    pub removed_stale: Vec<String>,
    /// What was left out as it may be private and nobody asked for it.
    pub left_out: Vec<Sensitive>,
    /// What could not be recorded, and what that costs.
    pub missing: Vec<String>,
}

/// How many events of a kind there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KindCount {
    /// The trace group.
    pub group: &'static str,
    /// The tracepoint.
    pub name: &'static str,
    /// How many.
    pub events: u64,
}

/// How a recording ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The time was over.
    Elapsed,
    /// The command had ended.
    Command,
    /// By this signal.
    Signal(&'static str),
    /// Events could not be read or written any more, for this reason. What precedes it is in the file.
    Failed(String),
}
