//! The programs.

use super::load::Load;
use crate::scenario::spec;

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

/// A source and its description in lists.
pub(super) type Spec = crate::scenario::Spec<Source>;

const MAPS: &[u8] = include_bytes!("../../data/recordings/linux-6.18-vmalloc-maps.nofrag");
const THREADS: &[u8] = include_bytes!("../../data/recordings/linux-6.18-vmalloc-threads.nofrag");
const RACING: &[u8] = include_bytes!("../../data/recordings/linux-6.18-vmalloc-racing.nofrag");

/// The recordings that come with nofrag, then the running kernel under the same programs, then recordings of any. A
/// static: a constant would bring the recordings into the program once for each place that names it.
pub(super) static SPECS: [Spec; 7] = [
    spec(1, Source::Shipped(MAPS), "recorded_maps", "a recording of Linux 6.18 under maps"),
    spec(2, Source::Shipped(THREADS), "recorded_threads", "likewise, under threads"),
    spec(4, Source::Shipped(RACING), "recorded_racing", "likewise, under racing"),
    spec(8, Source::Running(Load::Maps), "maps", "areas of bpf maps, on one CPU after another"),
    spec(16, Source::Running(Load::Threads), "threads", "stacks of crowds of threads, likewise"),
    spec(32, Source::Running(Load::Racing), "racing", "areas of bpf maps, on all CPUs at a time"),
    spec(64, Source::Given, "given", "the recordings of --states"),
];
