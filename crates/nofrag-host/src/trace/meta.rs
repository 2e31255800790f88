//! The facts about a trace beside its events.

use serde::{Deserialize, Serialize};

use super::flags::FlagTable;
use crate::snapshot::{Files, PageFlags};

/// The facts about a trace beside its events. Each may be missing: pasted text has none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceMeta {
    /// The kernel's release, such as `6.1.0-53-cloud-amd64`.
    pub release: Option<String>,
    /// Name of the clock of the times.
    pub clock: Option<String>,
    /// The CPUs that were traced.
    pub cpus: Vec<u16>,
    /// The texts of the `format` files, by tracepoint.
    pub formats: Vec<(String, String)>,
    /// The names of the bits of `gfp_flags`.
    pub gfp: FlagTable,
    /// The command that was recorded, if one was.
    pub command: Option<String>,
    /// Names of processes, by number.
    pub names: Vec<(i32, String)>,
    /// The threads of the recorder: their events are in the trace, too.
    #[serde(default)]
    pub recorder: Vec<i32>,
    /// The states of the host, in order of time. The first is the one at the start, if there is one.
    pub snapshots: Vec<TakenSnapshot>,
    /// Facts that could not be recorded, with the reasons, as sentences.
    pub missing: Vec<String>,
}

/// The files of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenSnapshot {
    pub moment: Moment,
    pub files: Files,
}

/// The moment of a snapshot, on the trace's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Moment {
    Before,
    /// Between these two times: the snapshot may show an event between them or not.
    During {
        /// Time at which the first file was opened.
        begin: u64,
        /// Time at which the last file had been read.
        end: u64,
    },
    After,
}

impl TraceMeta {
    /// Returns the snapshot from which a replay can start: one taken before or during the recording, not after it.
    #[must_use]
    pub fn start(&self) -> Option<&TakenSnapshot> {
        self.snapshots.first().filter(|taken| taken.moment != Moment::After)
    }

    /// Returns the frames whose flags in the snapshot at the start are such, a word for 64; none without that file.
    pub(super) fn frames_at_start(&self, are_such: impl Fn(PageFlags) -> bool) -> Vec<u64> {
        let flags = self.start().and_then(|taken| taken.files.bytes("kpageflags")).unwrap_or(&[]);
        let (flags, _) = flags.as_chunks::<8>();
        let is_in = |bytes: &[u8; 8]| u64::from(are_such(PageFlags(u64::from_le_bytes(*bytes))));
        let word = |frames: &[[u8; 8]]| {
            frames.iter().rev().fold(0, |word, frame| word << 1 | is_in(frame))
        };
        flags.chunks(64).map(word).collect()
    }

    /// Returns the snapshot taken at the end of the recording.
    #[must_use]
    pub fn end(&self) -> Option<&TakenSnapshot> {
        self.snapshots.last().filter(|taken| taken.moment == Moment::After)
    }
}
