//! Designs and programs, and the ends from which each design searches.

use nofrag::mmap::{Direction, HugePages, Placement, PlacementPreset};

use super::names;
use crate::shortfall::Expected;

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

/// A program, by its name in `scenario.toml`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(super) enum Program {
    Leakme,
    LeakmeLibs,
    Leakme4,
    FiveRegions,
    #[strum(serialize = "test_str02")]
    Stacks,
    #[strum(serialize = "unmergeable_1k")]
    Unmergeable1k,
    #[strum(serialize = "unmergeable_10k")]
    Unmergeable10k,
    Mix0,
    Mix1,
    Mix2,
    #[strum(serialize = "leakme_64")]
    Leakme64,
    #[strum(serialize = "leakme_3g")]
    Window,
    Touched,
    #[strum(serialize = "touched_64")]
    Touched64,
    Survival,
}

impl Program {
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
/// pages in 32 bits. Of the pairs that are left, a default run has those of `scenario.toml`: they differ, were
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
    applies && default_run.is_none_or(|expected| expected.has(program.into_str(), &row))
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
    use strum::VariantArray as _;

    use super::super::SCENARIO;
    use super::*;

    #[test]
    fn designs_are_all_presets_in_their_order() {
        let presets: Vec<&str> = Placement::presets().map(|preset| preset.name).collect();
        assert_eq!(presets, SCENARIO.designs);
    }

    #[test]
    fn every_design_runs_every_program_from_some_end() {
        for preset in Placement::presets() {
            for &program in Program::VARIANTS {
                assert!(!ends_of(program, &preset).is_empty(), "{program:?} {}", preset.name);
            }
        }
    }
}
