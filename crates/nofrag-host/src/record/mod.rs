//! Records what the running kernel does with pages, vmalloc areas and mappings.
//!
//! An own instance of the ring buffer (`instance`) collects the events that are asked for (`selection`); one thread
//! for each CPU (`reader`) moves its pages out while they fill, decodes them and hands them to the output
//! (`output`). Snapshots of the host (`host_state`) are taken right after tracing began and right after it ended.
//! However it ends, the instance is gone afterwards, and nothing else was ever touched. [`Tally`] only counts. Where it
//! is asked for, probes (`bulk`) tell what no event does; they go with the instance.
//!
//! What needs root's rights stands in `rights`. They may be kept by a process of their own (`keeper`), so that the one
//! that parses and writes has given them up. What may tell of others who use the host is left out unless it is asked
//! for (`sensitive`), and nobody else may read the output (`target`).
//!
//! The recorder cannot hide from what it records: its own pages are in it, from the threads that
//! [`TraceMeta::recorder`](crate::trace::TraceMeta::recorder) lists. They are real requests which the host had to
//! serve, so they are kept.

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

/// What is recorded, how long, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// When it ends; a signal always ends it.
    pub until: Until,
    /// Where it goes.
    pub output: Output,
    /// What to do when that is there already.
    pub existing: Existing,
    /// Which events.
    pub events: Selection,
    /// Whether what the bulk interface hands out is recorded, too.
    pub bulk: Bulk,
    /// Whether snapshots have the state of each frame.
    pub frames: Frames,
    /// What is recorded although it may be private.
    pub with: Vec<Sensitive>,
    /// How large the ring buffers are.
    pub buffer: Buffer,
    /// Which tracefs is used.
    pub tracefs: Which,
    /// The name of the instance instead of one made from this process's number. Nobody removes it after `SIGKILL`.
    pub instance: Option<String>,
}

/// When a recording ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    /// So long after the snapshot at the start.
    Elapsed(Duration),
    /// When this command has ended; it begins after the snapshot at the start.
    Command(ToRun),
    /// When a signal comes.
    Signal,
}

impl Options {
    /// Whether this is recorded although it may be private.
    fn records(&self, what: Sensitive) -> bool {
        self.with.contains(&what)
    }

    /// What would have been recorded if it had been asked for.
    fn left_out(&self) -> Vec<Sensitive> {
        let there_is = |what: &Sensitive| match what {
            Sensitive::Names | Sensitive::Addresses => true,
            Sensitive::Maps => self.events.has_mmap(),
            Sensitive::Arguments => {
                matches!(&self.until, Until::Command(command) if command.words.len() > 1)
            }
        };
        Sensitive::ALL.into_iter().filter(|what| there_is(what) && !self.records(*what)).collect()
    }
}

impl Until {
    /// How long it lasts at most.
    fn most(&self) -> Option<Duration> {
        match self {
            Until::Elapsed(time) => Some(*time),
            Until::Command(command) => command.most,
            Until::Signal => None,
        }
    }
}

/// Where the standard output of a recorded command goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommandStdout {
    /// To that of this process.
    #[default]
    Own,
    /// To standard error: that of this process is for something else.
    StandardError,
}

/// How large the ring buffers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Buffer {
    /// 64 MiB for each CPU: ten seconds of 150,000 events/s, in case the readers cannot run. All of them together take
    /// no more than a sixteenth of the memory that is available.
    #[default]
    Default,
    /// So many KiB for each CPU.
    KibPerCpu(u64),
}

/// How a recording is getting on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// What is being done.
    pub phase: Phase,
    /// Since tracing was switched on.
    pub elapsed: Duration,
    /// Events read so far.
    pub events: u64,
    /// Events that the kernel has lost so far.
    pub lost: u64,
    /// Bytes written so far.
    pub bytes: u64,
}

/// What a recording is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The host's state is being read while events already come.
    StartSnapshot,
    /// Events come.
    Recording,
    /// Tracing is off; what is left in the buffers is read.
    Draining,
    /// The host's state is being read once more.
    EndSnapshot,
}
