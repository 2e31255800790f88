//! The programs.

use std::sync::LazyLock;

use super::SCENARIO;
use super::load::Load;
use crate::oracle::ClaimKind;
use crate::scenario::ProgramInfo;

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

/// A program and the source of its recordings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) info: ProgramInfo,
    pub(super) program: Source,
}

macro_rules! shipped {
    ($name:literal) => {
        Source::Shipped(include_bytes!(concat!("../../data/recordings/linux-", $name, ".nofrag")))
    };
}

const LISTS_5_10: &[u8] = include_bytes!("../../data/recordings/linux-5.10-vmalloc.lists");
const LISTS_6_1: &[u8] = include_bytes!("../../data/recordings/linux-6.1-vmalloc.lists");

/// Returns the source of a program's recordings.
fn source(program: &str) -> Source {
    match program {
        "recorded_maps" => shipped!("6.18-vmalloc-maps"),
        "recorded_threads" => shipped!("6.18-vmalloc-threads"),
        "recorded_racing" => shipped!("6.18-vmalloc-racing"),
        "recorded_purges" => shipped!("6.18-vmalloc-purges"),
        "recorded_reads" => shipped!("6.18-vmalloc-reads"),
        "recorded_maps_6_12" => shipped!("6.12-vmalloc-maps"),
        "recorded_threads_6_12" => shipped!("6.12-vmalloc-threads"),
        "recorded_racing_6_12" => shipped!("6.12-vmalloc-racing"),
        "recorded_maps_7_2" => shipped!("7.2-vmalloc-maps"),
        "recorded_threads_7_2" => shipped!("7.2-vmalloc-threads"),
        "recorded_lists_6_1" => Source::ShippedLists(LISTS_6_1),
        "recorded_lists_5_10" => Source::ShippedLists(LISTS_5_10),
        "maps" => Source::Running(Load::Maps),
        "threads" => Source::Running(Load::Threads),
        "racing" => Source::Running(Load::Racing),
        "reads" => Source::Running(Load::Reads),
        "lists" => Source::RunningLists,
        "given" => Source::Given,
        unknown => unreachable!("nothing says where the recordings of {unknown} come from"),
    }
}

pub(super) static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(|| {
    let spec = |info: ProgramInfo| Spec { info, program: source(info.name) };
    SCENARIO.programs().into_iter().map(spec).collect()
});
