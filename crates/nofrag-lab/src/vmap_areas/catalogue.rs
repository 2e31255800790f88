//! The programs, and the extent to which each is run.

use super::holes::{Churn, EverySecond, MixedParams, Room, ShrinkAndChurn, SmallHolesBelow};
use super::programs::{
    AlignShift, Below, FixAlign, FixSize, FullFit, LongBusy, PerCpu, RandomSize, RandomSizeAlign,
};
use super::worker::{Watch, Worker, drive};
use crate::scenario::{Extent, ProgramInfo};
use crate::spaces::{Failure, VMALLOC_PAGES};

/// The work of a program; the numbers in it are areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    FixSize,
    FullFit,
    LongBusyList,
    RandomSize,
    FixAlign,
    RandomSizeAlign,
    AlignShift,
    PerCpu,
    LongBusyHole,
    SmallHolesBelow,
    EverySecond,
    Churn { live: usize, max_pages: u64, room: Room },
    ShrinkAndChurn,
    MixedParams { areas: usize },
}

/// Origin of a program, which decides whether the driver's modes run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Programs of the kernel's test module.
    Kernel,
    Lab,
}

/// Number of threads that run a program in mode `compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Single,
    /// As many threads as `--threads` gives.
    Parallel,
}

/// Tells whether each loop of a program is timed too, in a repetition of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tails {
    Shown,
    Left,
}

/// A program with its name and its bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) info: ProgramInfo,
    pub(super) program: Program,
    pub(super) source: Source,
    pub(super) width: Width,
    pub(super) tails: Tails,
    /// The largest number of loops under any design.
    most: u64,
    /// The largest number of loops under a design that scans: in the subset, and in a full run.
    most_scanning: [u64; 2],
}

const ANY: u64 = u64::MAX;

const fn kernel(bit: u64, program: Program, name: &'static str, body: &'static str) -> Spec {
    Spec {
        info: ProgramInfo { name, bit, body },
        program,
        source: Source::Kernel,
        width: Width::Single,
        tails: Tails::Left,
        most: ANY,
        most_scanning: [ANY, ANY],
    }
}

/// Describes a program of the lab. Their bits begin where no program of the kernel's test can come soon.
const fn ours(bit: u32, program: Program, name: &'static str, body: &'static str) -> Spec {
    let spec = kernel(1 << bit, program, name, body);
    Spec { source: Source::Lab, most_scanning: [2_000, 20_000], ..spec }
}

const fn churn(live: usize, max_pages: u64, room: Room) -> Program {
    Program::Churn { live, max_pages, room }
}

const fn mixed(bit: u32, areas: usize, name: &'static str, scanning: [u64; 2]) -> Spec {
    let body = "alignments 64 pages/none and lower bounds start/middle in turn";
    let spec = ours(bit, Program::MixedParams { areas }, name, body);
    Spec { tails: Tails::Shown, most: 100_000, most_scanning: scanning, ..spec }
}

impl Spec {
    const fn tails(self) -> Spec {
        Spec { tails: Tails::Shown, ..self }
    }

    const fn parallel(self) -> Spec {
        Spec { width: Width::Parallel, ..self }
    }

    const fn scanning(self, most_scanning: [u64; 2]) -> Spec {
        Spec { most_scanning, ..self }
    }

    const fn unbounded(self) -> Spec {
        Spec { most: ANY, most_scanning: [ANY, ANY], ..self }
    }

    const fn at_most(self, most: u64) -> Spec {
        Spec { most, ..self }
    }
}

/// All programs: the kernel's in its order, then ours.
pub(super) static SPECS: [Spec; 25] = [
    kernel(1, Program::FixSize, "fix_size_alloc", "1 page (--pages), freed at once"),
    kernel(2, Program::FullFit, "full_fit_alloc", "1 page into one of J one-page holes"),
    kernel(4, Program::LongBusyList, "long_busy_list_alloc", "100 pages + 1 page above 15,000"),
    kernel(8, Program::RandomSize, "random_size_alloc", "1..100 pages, freed at once"),
    kernel(16, Program::FixAlign, "fix_align_alloc", "5 pages aligned to 32 KiB"),
    kernel(32, Program::RandomSizeAlign, "random_size_align", "1..10 pages aligned up to 4 MiB"),
    kernel(64, Program::AlignShift, "align_shift", "1 page aligned to 2^0, 2^1, .. until refused")
        .at_most(200),
    kernel(128, Program::PerCpu, "pcpu_alloc", "the chunks of 35,000 per-CPU objects, 2 nodes")
        .at_most(20),
    ours(
        16,
        Program::LongBusyHole,
        "long_busy_hole",
        "as long_busy_list, over 8 holes of 50 pages",
    ),
    ours(
        17,
        Program::SmallHolesBelow,
        "small_holes_below",
        "100 + 1 pages above 15,000 2-page holes",
    ),
    ours(18, Program::EverySecond, "every_second", "15,000 of 30,000 freed and allocated again")
        .at_most(1),
    ours(
        19,
        churn(15_000, 100, Room::Roomy),
        "churn_15k",
        "one of 15,000 areas of 1..100 pages replaced",
    )
    .tails(),
    ours(
        20,
        churn(10_000, 64, Room::Roomy),
        "churn_10k",
        "one of 10,000 areas of 1..64 pages replaced",
    )
    .tails(),
    ours(21, churn(10_000, 64, Room::Tight), "churn_10k_tight", "the same in a space 85 % full")
        .tails(),
    ours(22, churn(100_000, 64, Room::Roomy), "churn_100k", "one of 100,000 areas replaced")
        .tails()
        .scanning([500, 2_000]),
    ours(23, churn(100_000, 64, Room::Tight), "churn_100k_tight", "the same in a space 85 % full")
        .tails()
        .scanning([500, 2_000]),
    SHRINK,
    mixed(25, 1_000, "mixed_params_1k", [2_000, 20_000]),
    mixed(26, 10_000, "mixed_params_10k", [2_000, 10_000]),
    mixed(27, 100_000, "mixed_params_100k", [500, 2_000]),
    mixed(28, 1_000_000, "mixed_params_1m", [100, 400]),
    ours(29, Program::FixSize, "fix_size_threads", "fix_size on all threads")
        .parallel()
        .at_most(ANY),
    ours(
        30,
        churn(15_000, 100, Room::Roomy),
        "churn_15k_threads",
        "churn_15k, shared by all threads",
    )
    .parallel(),
    ours(31, Program::RandomSize, "random_size_threads", "random_size on all threads")
        .parallel()
        .unbounded(),
    ours(32, Program::LongBusyHole, "long_busy_threads", "long_busy_hole on all threads")
        .parallel(),
];

/// The churn whose live set has shrunk: every design replaces twenty times the live areas; otherwise the layouts could
/// not be compared.
const SHRINK: Spec = Spec {
    most: 20_000,
    most_scanning: [20_000, 20_000],
    ..ours(
        24,
        Program::ShrinkAndChurn,
        "shrink_and_churn",
        "10,000 areas shrunk to 1,000, then churned",
    )
};

/// The kind of a design's search: it walks over areas, or descends in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    Scans,
    Descends,
}

impl Spec {
    /// Returns the number of loops that are run where `wanted` are asked for: no more than the program's bound.
    pub(super) fn loops(&self, wanted: u64, search: Search, extent: Extent) -> u64 {
        let bound = match search {
            Search::Descends => self.most,
            Search::Scans => self.most.min(match extent {
                Extent::Subset => self.most_scanning[0],
                Extent::Full => self.most_scanning[1],
            }),
        };
        wanted.min(bound)
    }

    /// Returns the pages of the space that the program runs in.
    pub(super) fn space_pages(&self) -> u64 {
        match self.program {
            Program::Churn { live, max_pages, room: Room::Tight } => {
                Churn::space_for(live, max_pages, 85)
            }
            _ => VMALLOC_PAGES,
        }
    }
}

impl Program {
    /// Runs the program once in the worker's space, with the number of loops in the worker's size.
    pub(super) fn run<W: Watch>(self, worker: &mut Worker<'_, W>) -> Result<(), Failure> {
        match self {
            Program::FixSize => drive(FixSize, worker),
            Program::FullFit => drive(FullFit, worker),
            Program::LongBusyList => drive(LongBusy(Below::Nothing), worker),
            Program::RandomSize => drive(RandomSize, worker),
            Program::FixAlign => drive(FixAlign, worker),
            Program::RandomSizeAlign => drive(RandomSizeAlign, worker),
            Program::AlignShift => drive(AlignShift, worker),
            Program::PerCpu => drive(PerCpu::default(), worker),
            Program::LongBusyHole => drive(LongBusy(Below::SmallHoles), worker),
            Program::SmallHolesBelow => drive(SmallHolesBelow, worker),
            Program::EverySecond => drive(EverySecond, worker),
            Program::Churn { live, max_pages, room } => {
                let share = (live / worker.size.threads).max(1);
                drive(Churn::new(share, max_pages, room), worker)
            }
            Program::ShrinkAndChurn => drive(ShrinkAndChurn::new(), worker),
            Program::MixedParams { areas } => drive(MixedParams { areas, turn: 0 }, worker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_names_are_distinct_and_bodies_fit_a_listing() {
        for (i, spec) in SPECS.iter().enumerate() {
            assert!(spec.info.bit.is_power_of_two());
            assert!(spec.info.body.len() < 65 && spec.info.name.len() <= 20, "{}", spec.info.name);
            for other in &SPECS[..i] {
                assert_ne!(other.info.bit, spec.info.bit);
                assert_ne!(other.info.name, spec.info.name);
            }
        }
    }

    #[test]
    fn only_scanning_designs_are_bounded_where_they_are_slow() {
        let spec = SPECS.iter().find(|spec| spec.program == Program::LongBusyHole).unwrap();
        assert_eq!(spec.loops(100_000, Search::Descends, Extent::Subset), 100_000);
        assert_eq!(spec.loops(100_000, Search::Scans, Extent::Subset), 2_000);
        assert_eq!(spec.loops(100_000, Search::Scans, Extent::Full), 20_000);
        assert_eq!(spec.loops(100, Search::Scans, Extent::Full), 100);
    }
}
