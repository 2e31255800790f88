//! The programs.

use std::sync::LazyLock;

use super::SCENARIO;
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

/// Returns the source of a program's recordings.
fn source(program: &str) -> Source {
    match program {
        "recorded_maps" => shipped!("6.18-vmalloc-maps"),
        "recorded_threads" => shipped!("6.18-vmalloc-threads"),
        "recorded_racing" => shipped!("6.18-vmalloc-racing"),
        "recorded_purges" => shipped!("6.18-vmalloc-purges"),
        "recorded_maps_6_12" => shipped!("6.12-vmalloc-maps"),
        "recorded_threads_6_12" => shipped!("6.12-vmalloc-threads"),
        "recorded_racing_6_12" => shipped!("6.12-vmalloc-racing"),
        "recorded_maps_7_2" => shipped!("7.2-vmalloc-maps"),
        "recorded_threads_7_2" => shipped!("7.2-vmalloc-threads"),
        "maps" => Source::Running(Load::Maps),
        "threads" => Source::Running(Load::Threads),
        "racing" => Source::Running(Load::Racing),
        _ => Source::Given,
    }
}

pub(super) static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(|| {
    let spec = |info: ProgramInfo| Spec { info, program: source(info.name) };
    SCENARIO.programs().into_iter().map(spec).collect()
});
