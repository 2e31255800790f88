//! The programs.

use super::load::Load;
use crate::oracle::ClaimKind;
use crate::scenario::spec;

/// The source of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A recording that comes with nofrag.
    Shipped(&'static [u8]),
    /// Lists that come with nofrag, of a kernel without events.
    ShippedLists(&'static [u8]),
    /// Recordings that the command line names.
    Given,
    /// The running kernel, while areas are made.
    Running(Load),
    /// Lists of the running kernel, while areas are made by turns.
    RunningLists,
}

impl Source {
    /// Returns true if it comes with nofrag.
    pub(super) fn is_shipped(self) -> bool {
        matches!(self, Source::Shipped(_) | Source::ShippedLists(_))
    }

    /// Returns the kind of its claims.
    pub(super) fn claims(self) -> ClaimKind {
        if self.is_shipped() { ClaimKind::Exact } else { ClaimKind::Environment }
    }
}

/// A source and its description in lists.
pub(super) type Spec = crate::scenario::Spec<Source>;

macro_rules! shipped {
    ($name:literal) => {
        Source::Shipped(include_bytes!(concat!("../../data/recordings/linux-", $name, ".nofrag")))
    };
}

const LISTS_5_10: &[u8] = include_bytes!("../../data/recordings/linux-5.10-vmalloc.lists");
const LISTS_6_1: &[u8] = include_bytes!("../../data/recordings/linux-6.1-vmalloc.lists");

/// The recordings that come with nofrag, then the running kernel under the same programs, then recordings of any. A
/// static: a constant would bring the recordings into the program once for each place that names it.
pub(super) static SPECS: [Spec; 16] = [
    spec(1, shipped!("6.18-vmalloc-maps"), "recorded_maps", "a recording of Linux 6.18 under maps"),
    spec(2, shipped!("6.18-vmalloc-threads"), "recorded_threads", "likewise, under threads"),
    spec(4, shipped!("6.18-vmalloc-racing"), "recorded_racing", "likewise, under racing"),
    spec(
        128,
        shipped!("6.18-vmalloc-purges"),
        "recorded_purges",
        "racing; pools serve amid purges",
    ),
    spec(256, shipped!("6.12-vmalloc-maps"), "recorded_maps_6_12", "a guest's, of 6.12 under maps"),
    spec(512, shipped!("6.12-vmalloc-threads"), "recorded_threads_6_12", "likewise, under threads"),
    spec(4096, shipped!("6.12-vmalloc-racing"), "recorded_racing_6_12", "likewise, under racing"),
    spec(1024, shipped!("7.2-vmalloc-maps"), "recorded_maps_7_2", "a guest's, of 7.2 under maps"),
    spec(2048, shipped!("7.2-vmalloc-threads"), "recorded_threads_7_2", "likewise, under threads"),
    spec(8192, Source::ShippedLists(LISTS_6_1), "recorded_lists_6_1", "a guest's, lists of 6.1"),
    spec(32768, Source::ShippedLists(LISTS_5_10), "recorded_lists_5_10", "likewise, of 5.10"),
    spec(8, Source::Running(Load::Maps), "maps", "areas of bpf maps, on one CPU after another"),
    spec(16, Source::Running(Load::Threads), "threads", "stacks of crowds of threads, likewise"),
    spec(32, Source::Running(Load::Racing), "racing", "areas of bpf maps, on all CPUs at a time"),
    spec(16384, Source::RunningLists, "lists", "before 6.9: lists around turns of requests"),
    spec(64, Source::Given, "given", "the recordings of --states"),
];
