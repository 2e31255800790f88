//! The programs, and the extent to which each is run.

use std::sync::LazyLock;

use serde::Deserialize;

use super::SCENARIO;
use super::holes::{Churn, EverySecond, MixedParams, Room, ShrinkAndChurn, SmallHolesBelow};
use super::programs::{
    AlignShift, Below, FixAlign, FixSize, FullFit, LongBusy, PerCpu, RandomSize, RandomSizeAlign,
};
use super::worker::{Watch, Worker, drive};
use crate::scenario::Extent;
use crate::spaces::{Failure, VMALLOC_PAGES};

/// A program as `scenario.toml` has it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Bounded {
    #[serde(rename = "work")]
    pub(super) program: Program,
    #[serde(default)]
    pub(super) width: Width,
    /// The largest number of loops under any design.
    most: Option<u64>,
    /// The largest number of loops under a design that scans: in the subset, and in a full run.
    scanning: Option<[u64; 2]>,
}

/// The work of a program; the numbers in it are areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    Churn {
        live: usize,
        max_pages: u64,
        #[serde(default)]
        room: Room,
    },
    ShrinkAndChurn,
    MixedParams(usize),
}

/// Number of threads that run a program in mode `compare`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Width {
    #[default]
    Single,
    /// As many threads as `--threads` gives.
    Parallel,
}

pub(super) type Spec = crate::scenario::Spec<Bounded>;

/// Number of programs of the kernel's test module, which come first.
const OF_KERNEL: usize = 8;

/// All programs: the kernel's in its order, then ours, whose bits begin where none of the kernel's can come soon.
pub(super) static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(|| {
    let mut specs: Vec<Spec> = SCENARIO.specs();
    specs[OF_KERNEL..].iter_mut().for_each(|ours| ours.info.bit <<= 8);
    specs
});

/// The kind of a design's search: it walks over areas, or descends in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    Scans,
    Descends,
}

impl Spec {
    /// Returns the number of loops that are run where `wanted` are asked for: no more than the program's bound.
    pub(super) fn loops(&self, wanted: u64, search: Search, extent: Extent) -> u64 {
        let scanning = self.scanning.filter(|_| search == Search::Scans);
        let scanning = scanning.map(|[subset, full]| match extent {
            Extent::Subset => subset,
            Extent::Full => full,
        });
        [self.most, scanning].into_iter().flatten().fold(wanted, u64::min)
    }

    /// Returns true for a program of the kernel's test module, which the driver's modes run.
    pub(super) fn is_of_kernel(&self) -> bool {
        self.info.bit < 1 << OF_KERNEL
    }

    /// Returns true if each loop is timed too, in a repetition of its own.
    pub(super) fn times_each_loop(&self) -> bool {
        let is_random = matches!(self.program, Program::Churn { .. } | Program::MixedParams(_));
        is_random && self.width == Width::Single
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
            Program::MixedParams(areas) => drive(MixedParams { areas, turn: 0 }, worker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_names_are_distinct_and_bodies_fit_a_listing() {
        assert!(!SPECS[OF_KERNEL].is_of_kernel() && SPECS[OF_KERNEL - 1].is_of_kernel());
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
