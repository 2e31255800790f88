//! The report on a recording.

use std::path::PathBuf;

use serde::Serialize;

use super::command::CommandReport;
use super::sensitive::Sensitive;
use crate::recording::CpuStats;
use crate::trace::ExtFragCount;

/// The result of a recording. The events are in the output (docs/format.md).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recorded {
    pub output: PathBuf,
    /// Size of the output in bytes.
    pub bytes: u64,
    /// Bytes of the output that are chunks of events; the rest is snapshots. `None` for raw pages.
    pub event_bytes: Option<u64>,
    pub release: Option<String>,
    pub ended: Ended,
    /// The outcome of the command, if one was recorded.
    pub command: Option<CommandReport>,
    /// Seconds for which events were traced.
    pub seconds: f64,
    /// Seconds from the start of tracing to the end of the start snapshot.
    pub start_snapshot_seconds: f64,
    /// Events that are stored in the output.
    pub events: u64,
    /// Events that were read and could not be stored, since the recording was cut short.
    pub unstored: u64,
    /// The number of events of each kind that occurred.
    pub by_kind: Vec<KindCount>,
    /// External fragmentation, by the requested type and the type whose block was taken.
    pub extfrag: Vec<ExtFragCount>,
    /// Events that the kernel lost.
    pub lost: u64,
    /// Number of places where events are missing.
    pub gaps: u64,
    /// Records that could not be understood.
    pub unreadable: u64,
    /// Bytes of the pages of the ring buffer.
    pub raw_bytes: u64,
    /// The kernel's counters of each CPU's buffer.
    pub cpus: Vec<CpuStats>,
    /// The size of the ring buffer of each CPU.
    pub buffer_kib_per_cpu: u64,
    /// CPU time of the recorder itself, its snapshots included; without the process that keeps root's rights for it.
    pub recorder_cpu_seconds: f64,
    /// The part of this that the snapshots took: reading the kernel's files, and packing them.
    pub snapshot_cpu_seconds: f64,
    /// Name of the instance; it is gone.
    pub instance: String,
    /// Instances of recorders that were killed, removed at the start.
    pub removed_stale: Vec<String>,
    /// Facts that were left out, as they may be private and were not asked for.
    pub left_out: Vec<Sensitive>,
    /// Facts that could not be recorded, with the consequences, as sentences.
    pub missing: Vec<String>,
}

/// Number of events of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KindCount {
    pub group: &'static str,
    pub name: &'static str,
    pub events: u64,
}

/// The cause of a recording's end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    #[default]
    Elapsed,
    Command,
    /// The signal with this name came.
    Signal(&'static str),
    /// Events could not be read or written any more, for this reason. The events before are in the file.
    Failed(String),
}
