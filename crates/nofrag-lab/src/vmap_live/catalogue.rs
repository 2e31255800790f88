//! The programs.

use super::load::Load;
use crate::scenario::ProgramInfo;

/// The source of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A recording that comes with nofrag.
    Shipped(&'static [u8]),
    /// Recordings that the command line names.
    Given,
    /// The running kernel, while areas are made.
    Running(Load),
}

/// A program and its description in lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) source: Source,
    pub(super) info: ProgramInfo,
}

const fn spec(bit: u64, source: Source, name: &'static str, body: &'static str) -> Spec {
    Spec { source, info: ProgramInfo { name, bit, body } }
}

const MAPS: &[u8] = include_bytes!("../../data/recordings/linux-6.18-vmalloc-maps.nofrag");
const THREADS: &[u8] = include_bytes!("../../data/recordings/linux-6.18-vmalloc-threads.nofrag");
const RACING: &[u8] = include_bytes!("../../data/recordings/linux-6.18-vmalloc-racing.nofrag");

/// The recordings that come with nofrag, then the running kernel under the same programs, then recordings of any.
pub(super) const SPECS: [Spec; 7] = [
    spec(1, Source::Shipped(MAPS), "recorded_maps", "a recording of Linux 6.18 under maps"),
    spec(2, Source::Shipped(THREADS), "recorded_threads", "likewise, under threads"),
    spec(4, Source::Shipped(RACING), "recorded_racing", "likewise, under racing"),
    spec(8, Source::Running(Load::Maps), "maps", "areas of bpf maps, on one CPU after another"),
    spec(16, Source::Running(Load::Threads), "threads", "stacks of crowds of threads, likewise"),
    spec(32, Source::Running(Load::Racing), "racing", "areas of bpf maps, on all CPUs at a time"),
    spec(64, Source::Given, "given", "the recordings of --states"),
];
