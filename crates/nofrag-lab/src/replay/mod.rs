//! The requests of a real kernel, replayed under other policies and sizes of memory.
//!
//! A replay is open-loop: the requests stay as they were recorded. It says what each policy does with these requests,
//! and claims nothing that would need the workload to react. [`Fidelity`] says how near the replay under the recorded
//! kernel's own rules comes to what that kernel did.

mod outcome;
mod present;
#[allow(dead_code, reason = "the replay that begins with it is being built")]
mod start;

use std::path::{Path, PathBuf};

use nofrag_host::recording::Recording;
use nofrag_host::trace::{self, Trace, TraceError};
use thiserror::Error;

pub use outcome::{
    Assumptions, ByOrder, ByType, Contiguity, Counts, Fidelity, FidelityFigure, PolicyRun,
    Recorded, ReplayReport, Sample, Tolerance, Verdict,
};

pub use present::sections;

/// The policies that are compared when none is named: each stands for what changed then.
pub const DEFAULT_POLICIES: [&str; 8] = [
    "linux-4.20",
    "linux-4.20+patch4",
    "linux-5.3",
    "linux-6.1",
    "linux-6.12",
    "linux-7.2",
    "linux-7.2-defrag",
    "nofrag",
];

/// A trace that can be opened as often as it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Anything that [`nofrag_host::trace::open`] opens.
    File(PathBuf),
    /// The recording that comes with nofrag: `data/recordings/linux-6.1-guest-768m.nofrag`.
    Shipped,
}

impl Input {
    /// Opens it.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn open(&self) -> Result<Trace, TraceError> {
        match self {
            Input::File(path) => trace::open(path),
            Input::Shipped => {
                let recording = Recording::from_bytes(SHIPPED.to_vec(), Path::new(SHIPPED_NAME))?;
                Ok(Trace { meta: recording.meta().clone(), events: recording.events()? })
            }
        }
    }

    /// What it is called in reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Input::File(path) => path.display().to_string(),
            Input::Shipped => SHIPPED_NAME.to_owned(),
        }
    }
}

/// The shipped recording.
const SHIPPED: &[u8] = include_bytes!("../../../../data/recordings/linux-6.1-guest-768m.nofrag");
const SHIPPED_NAME: &str = "linux-6.1-guest-768m";

/// What is replayed, and under what.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The trace.
    pub trace: Input,
    /// Names of policies ([`FragmentationPolicy::PRESETS`](nofrag::page::FragmentationPolicy::PRESETS)).
    pub policies: Vec<String>,
    /// Sizes of memory in percent of the recorded host's; 100 where none is named.
    pub memory: Vec<u32>,
    /// Where all chance begins.
    pub seed: u64,
    /// How many samples over time each run takes.
    pub samples: usize,
    /// How many runs go at a time; 0 for one per CPU.
    pub threads: usize,
}

/// Why nothing was replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is no such policy.
    #[error("{0}")]
    Policy(String),
    /// The trace does not say enough of its host.
    #[error("{0}")]
    Host(String),
}

/// Replays a trace under each policy and size of memory. The events are read once, however many runs there are, and
/// never held at once; memory is bounded by the frames of the host.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(
    options: &ReplayOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<ReplayReport, ReplayError> {
    let _ = (options, progress);
    Err(ReplayError::Host("not built yet".to_owned()))
}
