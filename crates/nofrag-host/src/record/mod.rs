//! Records the running kernel's events on pages, vmalloc areas and mappings.
//!
//! An instance of the ring buffer for this recording alone (`instance`) collects the selected events (`selection`); one
//! thread for each CPU (`reader`) moves the buffer's pages out while they fill, decodes them and hands them to the
//! output (`output`). Snapshots of the host (`host_state`) are taken right after tracing began and right after it
//! ended. However the recording ends, the instance is gone afterwards, and nothing outside it was ever touched.
//! [`Tally`] only counts. If the user asks for them, probes (`bulk`) record calls that no event covers; they go with
//! the instance.
//!
//! All code that needs root's rights stands in `rights`. A process of its own (`keeper`) may keep the rights, so that
//! the process that parses and writes has given them up. Facts about other users of the host are left out unless they
//! are asked for (`sensitive`), and only the user who records may read the output (`target`).
//!
//! The recorder cannot hide from its own recording: its pages are in it, from the threads that
//! [`TraceMeta::recorder`](crate::trace::TraceMeta::recorder) lists. Requests of the recorder are real, and the host
//! had to serve them, so they are kept.

mod btf;
mod bulk;
mod clock;
mod command;
mod error;
mod host_state;
mod instance;
mod keeper;
mod output;
mod reader;
mod report;
mod rights;
mod selection;
mod sensitive;
mod session;
mod signals;
mod stats;
mod tally;
mod target;
mod tracefs;
mod whole;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use bulk::Bulk;
pub use command::{CommandReport, ToRun};
pub use error::RecordError;
pub use host_state::Frames;
pub use keeper::{Keeper, keep};
pub use output::Output;
pub use report::{Ended, KindCount, Recorded};
pub use selection::{Orders, PRESETS, Preset, Selection};
pub use sensitive::Sensitive;
pub use session::{record, record_with};
pub use tally::Tally;
pub use tracefs::Which;

use crate::recording::Existing;

/// The options of a recording: contents, length and destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The event that ends the recording; a signal always ends it.
    pub until: Until,
    pub output: Output,
    /// The treatment of an output that exists already.
    pub existing: Existing,
    pub events: Selection,
    /// The choice whether pages handed out by the bulk interface are recorded, too.
    pub bulk: Bulk,
    /// The choice whether snapshots have the state of each frame.
    pub frames: Frames,
    /// Facts that are recorded although they may be private.
    pub with: Vec<Sensitive>,
    /// Size of the ring buffers.
    pub buffer: Buffer,
    pub tracefs: Which,
    /// Name of the instance instead of one made from this process's number. An instance with such a name stays after
    /// `SIGKILL`.
    pub instance: Option<String>,
}

/// Event that ends a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    /// This time after the snapshot at the start is over.
    Elapsed(Duration),
    /// This command has ended; it begins after the snapshot at the start.
    Command(ToRun),
    Signal,
}

impl Options {
    /// Returns true if `what` is recorded although it may be private.
    fn records(&self, what: Sensitive) -> bool {
        self.with.contains(&what)
    }

    /// Returns the private facts that the recording lacks because they were not asked for.
    fn left_out(&self) -> Vec<Sensitive> {
        let there_is = |what: &Sensitive| match what {
            Sensitive::Names | Sensitive::Addresses => true,
            Sensitive::Maps => self.events.has_mmap(),
            Sensitive::Arguments => {
                matches!(&self.until, Until::Command(command) if command.words.len() > 1)
            }
        };
        Sensitive::ALL
            .iter()
            .copied()
            .filter(|what| there_is(what) && !self.records(*what))
            .collect()
    }
}

impl Until {
    /// Returns the time limit of the recording.
    fn most(&self) -> Option<Duration> {
        match self {
            Until::Elapsed(time) => Some(*time),
            Until::Command(command) => command.most,
            Until::Signal => None,
        }
    }
}

/// Destination of the standard output of a recorded command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandStdout {
    /// The standard output of this process.
    #[default]
    Own,
    /// Standard error: the standard output of this process has another use.
    StandardError,
}

/// Size of the ring buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Buffer {
    /// 64 MiB for each CPU: ten seconds of 150,000 events/s, in case the readers cannot run. All buffers together take
    /// no more than a sixteenth of the available memory.
    #[default]
    Default,
    /// This number of KiB for each CPU.
    KibPerCpu(u64),
}

/// Progress of a recording at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    pub phase: Phase,
    /// Time since tracing was switched on.
    pub elapsed: Duration,
    pub events: u64,
    /// Events that the kernel has lost so far.
    pub lost: u64,
    pub bytes: u64,
}

/// Phase of a recording, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The host's state is being read while events already arrive.
    StartSnapshot,
    Recording,
    /// Tracing is off; the remaining events in the buffers are read.
    Draining,
    /// The host's state is being read once more.
    EndSnapshot,
}
