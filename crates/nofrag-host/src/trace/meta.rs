//! What is known of a trace beside its events.

use serde::{Deserialize, Serialize};

use super::flags::FlagTable;
use crate::snapshot::Files;

/// What is known of a trace beside its events. Everything may be missing: pasted text has nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceMeta {
    /// The kernel's release, such as `6.1.0-53-cloud-amd64`.
    pub release: Option<String>,
    /// The clock of the times.
    pub clock: Option<String>,
    /// The CPUs that were traced.
    pub cpus: Vec<u16>,
    /// The texts of the `format` files, by tracepoint.
    pub formats: Vec<(String, String)>,
    /// The names of the bits of `gfp_flags`.
    pub gfp: FlagTable,
    /// The command that was recorded, if one was.
    pub command: Option<String>,
    /// Names of processes.
    pub names: Vec<(i32, String)>,
    /// The threads of the recorder: their events are in the trace, too.
    #[serde(default)]
    pub recorder: Vec<i32>,
    /// The state of the host, in order of time. The first is that at the start where there is one.
    pub snapshots: Vec<TakenSnapshot>,
    /// What could not be recorded, and why; sentences.
    pub missing: Vec<String>,
}

/// The files of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenSnapshot {
    /// When.
    pub moment: Moment,
    /// What was read.
    pub files: Files,
}

/// When a snapshot was taken, on the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
    /// Before the first event.
    Before,
    /// Between these two times: what happened meanwhile may be in it or not.
    During {
        /// When the first file was opened.
        begin: u64,
        /// When the last one had been read.
        end: u64,
    },
    /// After the last event.
    After,
}

impl TraceMeta {
    /// The snapshot from which a replay can start: one taken before or during the recording, not after it.
    #[must_use]
    pub fn start(&self) -> Option<&TakenSnapshot> {
        self.snapshots.first().filter(|taken| taken.moment != Moment::After)
    }

    /// The snapshot at the end.
    #[must_use]
    pub fn end(&self) -> Option<&TakenSnapshot> {
        self.snapshots.last().filter(|taken| taken.moment == Moment::After)
    }
}
