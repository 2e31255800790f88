//! Programs, cases and designs; which of them meet, and with how many seeds.
//!
//! A *case* is everything that a result depends on besides design and seed: machine, huge-page mode, mix, memory. A
//! program is a group of cases that is chosen together. Crossing everything would take days; [`seeds_of`] decides which
//! pairs run: all designs with the calibrated mix on one node; the most telling ones with all mixes there, and with the
//! calibrated one on two nodes.

use std::fmt;

use nofrag::page::{FallbackRules, FragmentationPolicy, Stall};
use nofrag::units::Nanos;

use super::mixes::mixes;
use super::spec::{HugeMode, TestMachine};
use crate::figures::Gorman2018;
use crate::shortfall::Expected;
use crate::world::load::Mix;

/// The design that all others are compared with.
pub(super) const VANILLA: &str = Gorman2018::DESIGNS[0];
pub(super) const PATCH_1: &str = Gorman2018::DESIGNS[1];
/// The merged patches 1 to 4, as designed.
pub(super) const MERGED: &str = Gorman2018::DESIGNS[2];
pub(super) const ALL_FIVE: &str = Gorman2018::DESIGNS[3];
/// The merged patches as shipped: patch 3 had switched patch 1 off.
pub(super) const SHIPPED: &str = "linux-5.0";
/// The last preset with the rules of fallback of the document's time, among the kernels whose source was read.
pub(super) const LAST_LOOSE: &str = "linux-6.1";
/// The first preset with strict lists.
pub(super) const FIRST_STRICT: &str = "linux-6.10";
pub(super) const NEWEST: &str = "linux-7.2";
/// The newest preset with `vm.defrag_mode`.
pub(super) const DEFRAG_MODE: &str = "linux-7.2-defrag";
pub(super) const OURS: &str = "nofrag";

/// Designs that change nothing here, each with the one that it must agree with: accessors; a flag that only later
/// patches read; and a mistake that shows only on machines without DMA32.
pub(super) const SILENT: [(&str, &str); 3] = [
    ("linux-4.20+patch2", PATCH_1),
    ("linux-4.20+patch3", PATCH_1),
    ("linux-7.2-defrag-shipped", DEFRAG_MODE),
];

/// Returns the design with which `design` must agree, if it is one that changes nothing.
pub(super) fn silent_beside(design: &str) -> Option<&'static str> {
    SILENT.iter().find(|(silent, _)| *silent == design).map(|(_, beside)| *beside)
}

/// Returns true if the lists of a design agree with the types of their blocks, as from 6.10 on: then every stolen page
/// is an event, and counts of events compare with those of the older rules only beside mistyped allocations.
pub(super) fn is_strict(design: &str) -> bool {
    FragmentationPolicy::preset(design)
        .is_ok_and(|preset| preset.policy.fallback != FallbackRules::Loose)
}

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
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(super) enum Program {
    SDefault,
    SDefrag,
    #[strum(serialize = "s-madv")]
    SMadvise,
    HDefault,
    HDefrag,
    #[strum(serialize = "h-madv")]
    HMadvise,
    MixesDefault,
    #[strum(serialize = "mixes-madv")]
    MixesMadvise,
    BoostCurve,
    StallCurve,
}

/// Everything that a run depends on besides design and seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) machine: TestMachine,
    /// The effort for huge pages.
    pub(super) huge: HugeMode,
    /// The load beside the page cache.
    pub(super) mix: Mix,
    /// All of memory, in GiB.
    pub(super) memory_gib: u64,
}

impl Case {
    /// Returns the document's name of machine and mode, such as `s-default`.
    pub(super) fn configuration(&self) -> &'static str {
        match (self.machine, self.huge) {
            (TestMachine::OneNode, HugeMode::Default) => "s-default",
            (TestMachine::OneNode, HugeMode::DefragAlways) => "s-defrag",
            (TestMachine::OneNode, HugeMode::Madvise) => "s-madv",
            (TestMachine::TwoNodes { .. }, HugeMode::Default) => "h-default",
            (TestMachine::TwoNodes { .. }, HugeMode::DefragAlways) => "h-defrag",
            (TestMachine::TwoNodes { .. }, HugeMode::Madvise) => "h-madv",
        }
    }

    /// Names the nodes that the huge-page threads use, on a machine with two nodes; `None` on one with a single node.
    pub(super) fn nodes(&self) -> Option<String> {
        match self.machine {
            TestMachine::OneNode => None,
            TestMachine::TwoNodes { this_node, start } => {
                let reach = if this_node { "local" } else { "any" };
                Some(format!("{reach} {start}"))
            }
        }
    }

    pub(super) fn is_calibrated(&self) -> bool {
        self.mix.name == mixes()[0].name
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.configuration())?;
        if let Some(nodes) = self.nodes() {
            write!(f, " {nodes}")?;
        }
        write!(f, ", {}, {} GiB", self.mix.name, self.memory_gib)
    }
}

/// Returns the machines on which a program runs.
fn machines(program: Program) -> Vec<TestMachine> {
    match program {
        Program::HDefault | Program::HDefrag | Program::HMadvise => {
            let variants = [(true, 0), (true, 1), (false, 0), (false, 1)];
            variants.map(|(this_node, start)| TestMachine::TwoNodes { this_node, start }).to_vec()
        }
        _ => vec![TestMachine::OneNode],
    }
}

fn huge_modes(program: Program) -> &'static [HugeMode] {
    match program {
        Program::SDefault | Program::HDefault | Program::MixesDefault => &[HugeMode::Default],
        Program::SDefrag | Program::HDefrag => &[HugeMode::DefragAlways],
        Program::SMadvise | Program::HMadvise | Program::MixesMadvise => &[HugeMode::Madvise],
        Program::BoostCurve | Program::StallCurve => &[HugeMode::Default, HugeMode::Madvise],
    }
}

impl Program {
    /// Returns the program's cases with this much memory.
    pub(super) fn cases(self, memory_gib: u64) -> Vec<Case> {
        let other_mixes = matches!(self, Program::MixesDefault | Program::MixesMadvise);
        let mixes = if other_mixes { &mixes()[1..] } else { &mixes()[..1] };
        let mut cases = Vec::new();
        for machine in machines(self) {
            for huge in huge_modes(self) {
                for mix in mixes {
                    cases.push(Case { machine, huge: *huge, mix: *mix, memory_gib });
                }
            }
        }
        cases
    }

    /// Returns true if the program varies a setting, and not the design.
    pub(super) fn is_curve(self) -> bool {
        matches!(self, Program::BoostCurve | Program::StallCurve)
    }
}

/// Returns the name of a program's case in the report.
pub(super) fn title(program: Program, case: &Case) -> String {
    if program.is_curve() { format!("{}: {case}", program.into_str()) } else { case.to_string() }
}

/// Returns the points of a curve: the setting's name in tables, and the policy with it. A program that is no curve has
/// none.
pub(super) fn curve(program: Program) -> Vec<(String, FragmentationPolicy)> {
    match program {
        Program::BoostCurve => BOOST_FACTORS.map(boost_point).to_vec(),
        Program::StallCurve => {
            let points = STALL_BOUNDS_MS
                .into_iter()
                .flat_map(|bound| STALL_ORDERS.map(move |order| stall_point(order, bound)));
            points.collect()
        }
        _ => Vec::new(),
    }
}

/// Values of `watermark_boost_factor`, in 1/10000.
pub(super) const BOOST_FACTORS: [u32; 4] = [0, 5_000, 15_000, 30_000];
/// Values of `fragment_stall_order`.
pub(super) const STALL_ORDERS: std::ops::RangeInclusive<u8> = 0..=10;
/// Values of the longest wait of patch 5, in milliseconds.
pub(super) const STALL_BOUNDS_MS: [u64; 3] = [5, 20, 100];

pub(super) fn boost_name(factor: u32) -> String {
    format!("factor {factor}")
}

pub(super) fn stall_name(order: u8, bound_ms: u64) -> String {
    format!("order {order}, {bound_ms} ms")
}

fn boost_point(factor: u32) -> (String, FragmentationPolicy) {
    let boost = Some(nofrag::page::Boost { factor });
    (boost_name(factor), FragmentationPolicy { boost, ..FragmentationPolicy::PATCHES_1_4 })
}

fn stall_point(order: u8, bound_ms: u64) -> (String, FragmentationPolicy) {
    let stall = Some(Stall { order, bound: Nanos(bound_ms * 1_000_000) });
    let policy = FragmentationPolicy { stall, ..FragmentationPolicy::PATCHES_1_5 };
    (stall_name(order, bound_ms), policy)
}

/// Returns the number of seeds with which a design runs a case of a program; `wanted` of them unless there is a reason
/// for fewer. `size` is the index of the size of memory among those that are compared. A default run has the rows of
/// `scenario.toml`, with the memory that it is run with, and ends within half a minute: the calibrated mix on one node,
/// and with one seed the mixes on which the patches reduce events least in the count model.
pub(super) fn seeds_of(
    (program, case): (Program, &Case),
    design: &str,
    size: usize,
    (default_run, wanted): (Option<&Expected>, usize),
) -> usize {
    match default_run {
        Some(expected) => {
            let row = title(program, &Case { memory_gib: MEMORY_GIB, ..*case });
            let seeds = if program == Program::SDefault { wanted } else { 1 };
            if expected.has(&row, design) { seeds } else { 0 }
        }
        // These are run only to see that nothing changes.
        None if silent_beside(design).is_some() => {
            usize::from(program == Program::SDefault && size == 0)
        }
        None => full_seeds(program, design, size, wanted),
    }
}

/// Returns the seeds of a run with `--full`, or of a program that is named.
fn full_seeds(program: Program, design: &str, size: usize, wanted: usize) -> usize {
    let is_first = size == 0;
    match program {
        Program::SDefault | Program::SMadvise => wanted,
        Program::MixesDefault if MIX_DESIGNS.contains(&design) => wanted,
        Program::MixesMadvise if is_first && MIX_DESIGNS.contains(&design) => wanted,
        Program::MixesDefault | Program::MixesMadvise => 0,
        Program::HDefault | Program::HDefrag | Program::HMadvise
            if is_first && MIX_DESIGNS.contains(&design) =>
        {
            wanted
        }
        Program::HDefault | Program::HDefrag | Program::HMadvise => 0,
        Program::BoostCurve | Program::StallCurve if is_first => wanted.min(CURVE_SEEDS),
        _ if is_first => wanted,
        _ => 0,
    }
}

/// The designs that run on every mix and on two nodes: those that differ from the one before in the document's subject.
pub(super) const MIX_DESIGNS: [&str; 10] = [
    VANILLA,
    PATCH_1,
    MERGED,
    ALL_FIVE,
    SHIPPED,
    LAST_LOOSE,
    "linux-6.12",
    NEWEST,
    DEFRAG_MODE,
    OURS,
];

/// The most seeds of a point of a curve: points are many, and their differences large.
pub(super) const CURVE_SEEDS: usize = 3;

/// The memory of a default run.
pub(super) const MEMORY_GIB: u64 = 4;

/// The designs of a run on real memory.
pub(super) const SUBSET_DESIGNS: [&str; 9] =
    [VANILLA, PATCH_1, MERGED, ALL_FIVE, SHIPPED, LAST_LOOSE, "linux-6.12", DEFRAG_MODE, OURS];

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::super::SCENARIO;
    use super::*;

    #[test]
    fn every_program_has_cases_of_its_own() {
        let mut names = Vec::new();
        for program in Program::VARIANTS {
            let cases = program.cases(4);
            assert!(!cases.is_empty(), "{program:?}");
            if !program.is_curve() {
                names.extend(cases.iter().map(Case::to_string));
            }
        }
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len());
        assert!(names.contains(&"h-madv any 1, calibrated, 4 GiB".to_owned()));
    }

    #[test]
    fn the_document_s_columns_are_designs() {
        for design in Gorman2018::DESIGNS {
            assert!(SCENARIO.designs.contains(&design), "{design}");
        }
        assert!(SCENARIO.designs.contains(&SHIPPED));
        let presets = FragmentationPolicy::PRESETS.iter().map(|preset| preset.name);
        assert!(presets.eq(SCENARIO.designs.iter().copied()));
    }

    #[test]
    fn curves_change_one_setting_each() {
        let stalls = curve(Program::StallCurve);
        assert_eq!((curve(Program::BoostCurve).len(), stalls.len()), (4, 33));
        let merged = FragmentationPolicy::PATCHES_1_4;
        let usual = curve(Program::BoostCurve).into_iter().find(|(name, _)| name == "factor 15000");
        assert_eq!(usual.unwrap().1, merged);
        let (name, policy) = &stalls[15];
        assert_eq!(name, "order 4, 20 ms");
        assert_eq!(*policy, FragmentationPolicy::PATCHES_1_5);
    }
}
