//! Designs and programs, and the ends from which each design searches.

use nofrag::mmap::{Direction, HugePages, Placement, PlacementPreset};

use super::names;
use crate::scenario::ProgramInfo;
use crate::shortfall::Expected;

/// The rows of a default run, and the number of its claims.
pub(super) const EXPECTED: &str = include_str!("expected.toml");

/// The design of first fit, than which ours may be at most one percent worse (docs/sources/mmap.md#oracle-11).
pub(super) const FIRST_FIT: &str = "linux-2.4";
/// First fit from the top downwards.
pub(super) const FIRST_FIT_DOWN: &str = "linux-3.8";
/// The design with `free_area_cache` alone, the subject of the document.
pub(super) const CACHED: &str = "linux-2.5.44";
/// The design with `free_area_cache` and `cached_hole_size`, the document's result.
pub(super) const MERGED: &str = "linux-2.6.13";
/// Rules that align multiples of a huge page.
pub(super) const HUGE_ALIGNED: &str = "linux-6.12";
pub(super) const OURS: &str = "nofrag";

/// All designs: Linux's, oldest first, then the others, ours last.
pub(super) const DESIGNS: [&str; 21] = [
    FIRST_FIT,
    CACHED,
    MERGED,
    "linux-3.4",
    FIRST_FIT_DOWN,
    "linux-6.1",
    "linux-6.3",
    "linux-6.7",
    HUGE_ALIGNED,
    "molnar-2002",
    "chen-2005",
    "wander-2005",
    "last-unmapped",
    "best-fit",
    "worst-fit",
    "next-fit",
    "exact-aligned",
    "exact-aligned-best",
    "fewest-lost-units",
    "two-ended-first",
    OURS,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    Leakme,
    LeakmeLibs,
    Leakme4,
    FiveRegions,
    Stacks,
    Unmergeable1k,
    Unmergeable10k,
    Mix0,
    Mix1,
    Mix2,
    Leakme64,
    Window,
    Touched,
    Touched64,
    Survival,
}

/// Describes a program for lists.
const fn spec(program: Program, name: &'static str, body: &'static str) -> (Program, ProgramInfo) {
    (program, ProgramInfo { name, bit: 1 << program as u64, body })
}

/// All programs: those of the document, then its predecessors and successors, then those of 64 bits.
pub(super) const SPECS: [(Program, ProgramInfo); 15] = [
    spec(
        Program::Leakme,
        "leakme",
        "600 slots of 1 to 9 MiB in turn, 540 live; 32 bits, 92 % full",
    ),
    spec(Program::LeakmeLibs, "leakme_libs", "the same with libraries at the base of the window"),
    spec(Program::Leakme4, "leakme4", "128 of 1 MiB, every other one replaced, half by one page"),
    spec(Program::FiveRegions, "five_regions", "five regions, three unmapped: who is replaced?"),
    spec(Program::Stacks, "test_str02", "20,000 stacks of 8 MiB with a guard page each"),
    spec(Program::Unmergeable1k, "unmergeable_1k", "1,000 areas that never merge, one replaced"),
    spec(Program::Unmergeable10k, "unmergeable_10k", "10,000 of them"),
    spec(Program::Mix0, "mix0", "up to 256 KiB, 4 MiB or 16 MiB at random, 70 % of the window"),
    spec(Program::Mix1, "mix1", "powers of two up to 8 MiB at random, 70 % of the window"),
    spec(Program::Mix2, "mix2", "up to 2 MiB at random, 70 % of the window"),
    spec(Program::Leakme64, "leakme_64", "leakme in 64 bits: 37.5 % are multiples of 2 MiB"),
    spec(Program::Window, "leakme_3g", "leakme in a window of 3 GiB of a 64-bit space"),
    spec(Program::Touched, "touched", "leakme whose mappings are touched: bridges do not merge"),
    spec(Program::Touched64, "touched_64", "the same in 64 bits"),
    spec(Program::Survival, "survival", "the smallest window in which leakme survives"),
];

impl Program {
    pub(super) fn name(self) -> &'static str {
        SPECS[self as usize].1.name
    }

    /// Returns the program of this name.
    pub(super) fn named(name: &str) -> Option<Program> {
        Program::all().find(|program| program.name() == name)
    }

    pub(super) fn all() -> impl Iterator<Item = Program> {
        SPECS.iter().map(|(program, _)| *program)
    }

    /// Returns true if the program runs in a space of 64 bits, where searches usually begin at the upper end.
    pub(super) fn is_64_bit(self) -> bool {
        matches!(self, Program::Leakme64 | Program::Window | Program::Touched64)
    }
}

pub(super) const MIXES: [Program; 3] = [Program::Mix0, Program::Mix1, Program::Mix2];

/// The end from which a design searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Up,
    Down,
    /// Each class of requests has its own end.
    Both,
}

impl End {
    pub(super) fn direction(self) -> Direction {
        match self {
            End::Up | End::Both => Direction::Up,
            End::Down => Direction::Down,
        }
    }
}

/// Returns the name of a design's row: the design, with a suffix if it searches downwards alone.
pub(super) fn named(design: &str, end: End) -> String {
    match end {
        End::Down => format!("{design}{}", names::DOWNWARDS),
        End::Up | End::Both => design.to_owned(),
    }
}

/// Returns the ends from which a placement searches.
fn ends(placement: Placement) -> &'static [End] {
    match placement {
        Placement::TwoEndedFirst | Placement::TwoEnded => &[End::Both],
        Placement::FirstFit
        | Placement::FirstHole
        | Placement::LastUnmapped
        | Placement::WorstFit
        | Placement::NextFit => &[End::Up],
        Placement::ExactAligned | Placement::ExactAlignedBest | Placement::FewestLostUnits => {
            &[End::Down]
        }
        _ => &[End::Up, End::Down],
    }
}

/// Returns the ends from which a design searches in a program: in 64 bits only the one that its last kernels used.
/// Rules that upwards give the same addresses as first fit run downwards only, as their kernels did.
pub(super) fn ends_of(program: Program, preset: &PlacementPreset) -> Vec<End> {
    let all = ends(preset.placement);
    let last = all[all.len() - 1];
    if program.is_64_bit() {
        return vec![last];
    }
    let first_fit_above_all = |end: &End| {
        *end != End::Up
            || !matches!(
                preset.placement,
                Placement::GapTree | Placement::MapleTree(_) | Placement::MapleTreeGuarded(_)
            )
            || program == Program::FiveRegions
    };
    match program {
        Program::Stacks => vec![if all.contains(&End::Up) { End::Up } else { last }],
        _ => all.iter().copied().filter(first_fit_above_all).collect(),
    }
}

/// Returns true if a design that searches from this end of the window takes part in a program: no process has huge
/// pages in 32 bits. Of the pairs that are left, a default run has those of `expected.toml`: they differ, were
/// published, and end soon.
pub(super) fn takes_part(
    program: Program,
    preset: &PlacementPreset,
    end: End,
    default_run: Option<&Expected>,
) -> bool {
    let has_huge_pages =
        program.is_64_bit() || matches!(program, Program::Survival | Program::FiveRegions);
    let applies = has_huge_pages || !asks_for_huge_pages(preset.placement);
    let row = named(preset.name, end);
    applies && default_run.is_none_or(|expected| expected.has(program.name(), &row))
}

/// Returns true if a rule of Linux aligns to huge pages of its own accord.
pub(super) fn asks_for_huge_pages(placement: Placement) -> bool {
    matches!(
        placement,
        Placement::MapleTree(HugePages::AllSizes | HugePages::Multiples)
            | Placement::MapleTreeGuarded(HugePages::AllSizes | HugePages::Multiples)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designs_are_all_presets_in_their_order() {
        assert!(Placement::presets().map(|preset| preset.name).eq(DESIGNS));
    }

    #[test]
    fn programs_stand_at_their_places_and_fit_a_listing() {
        for (at, (program, info)) in SPECS.iter().enumerate() {
            assert_eq!((*program as usize, info.bit), (at, 1 << at));
            assert!(info.body.len() < 70 && info.name.len() <= 20, "{}", info.name);
        }
    }

    #[test]
    fn every_design_runs_every_program_from_some_end() {
        for preset in Placement::presets() {
            for (program, _) in SPECS {
                assert!(!ends_of(program, &preset).is_empty(), "{program:?} {}", preset.name);
            }
        }
    }
}
