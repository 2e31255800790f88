//! The designs that are compared, and the programs.

use nofrag::vmap::{BlockIndex, BlockPolicy, VmapPolicy};

use super::model::{Costs, Holds, Lines};
use crate::scenario::ProgramInfo;

/// The interface through which a design is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Face {
    ByCall,
    /// Through a handle for the CPU.
    ByHandle,
}

/// A design with its name and the calls by which it is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Design {
    pub(super) name: &'static str,
    pub(super) policy: VmapPolicy,
    pub(super) face: Face,
}

/// The pairs of programs and designs, and the number of claims.
pub(super) const EXPECTED: &str = include_str!("expected.toml");

/// The design before the document: that of Linux 6.4, but with one index of blocks for all CPUs.
pub(super) const GLOBAL: &str = "global";
/// The document's design: an index of blocks in a bucket for each CPU.
pub(super) const PER_CPU: &str = "linux-6.4";
/// The document's design with nodes and pools besides.
pub(super) const NODES: &str = "linux-6.11";
/// Ours, called like the others.
pub(super) const OURS: &str = "nofrag";
pub(super) const BY_HANDLE: &str = "nofrag-handle";

pub(super) const NAMES: [&str; 5] = [GLOBAL, PER_CPU, NODES, OURS, BY_HANDLE];

pub(super) fn designs() -> [Design; 5] {
    let blocks = BlockPolicy { index: BlockIndex::Global, ..VmapPolicy::LINUX_6_4.blocks };
    let global = VmapPolicy { blocks, ..VmapPolicy::LINUX_6_4 };
    let by_call = |name, policy| Design { name, policy, face: Face::ByCall };
    [
        by_call(GLOBAL, global),
        by_call(PER_CPU, VmapPolicy::LINUX_6_4),
        by_call(NODES, VmapPolicy::LINUX_6_11),
        by_call(OURS, VmapPolicy::NOFRAG),
        Design { name: BY_HANDLE, policy: VmapPolicy::NOFRAG, face: Face::ByHandle },
    ]
}

/// The threads or simulated CPUs that run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    /// A thread on every CPU of the machine, at most as many as `--threads` gives.
    Machine,
    /// As many threads as `--threads` gives, whatever the machine has.
    Crowd,
    /// As many simulated CPUs as `--threads` gives.
    Simulation(Costs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) info: ProgramInfo,
    pub(super) runner: Runner,
    /// Pages of each mapping; `None` for the number of `--pages`.
    pub(super) pages: Option<u64>,
}

const fn spec(
    bit: u64,
    runner: Runner,
    pages: Option<u64>,
    name: &'static str,
    body: &'static str,
) -> Spec {
    Spec { info: ProgramInfo { name, bit, body }, runner, pages }
}

/// The model of the document's first run.
pub(super) const MODEL: &str = "model_1p";

/// Programs of the model under the stated assumptions.
pub(super) const MODELS: [&str; 3] = [MODEL, "model_5p", "model_64p"];

/// The kernel's own test, the document's second run.
pub(super) const KERNEL_TEST: &str = "vm_map_ram";

pub(super) const THREADS: [&str; 4] = ["threads_1p", "threads_5p", "threads_64p", KERNEL_TEST];

const fn model(bit: u64, pages: u64, name: &'static str, body: &'static str) -> Spec {
    spec(bit, Runner::Simulation(Costs::STATED), Some(pages), name, body)
}

/// Describes `model_1p` under another assumption.
const fn assume(bit: u64, costs: Costs, name: &'static str, body: &'static str) -> Spec {
    spec(bit, Runner::Simulation(costs), Some(1), name, body)
}

/// The programs. Bit 1024 is that of the kernel's test.
pub(super) const SPECS: [Spec; 11] = [
    spec(1, Runner::Machine, Some(1), "threads_1p", "1 page, a thread on every CPU of the machine"),
    spec(2, Runner::Machine, Some(5), "threads_5p", "5 pages, likewise"),
    spec(4, Runner::Machine, Some(64), "threads_64p", "64 pages, likewise: 16 use a block up"),
    model(8, 1, MODEL, "1 page on --threads simulated CPUs"),
    model(16, 5, "model_5p", "5 pages, likewise"),
    model(32, 64, "model_64p", "64 pages, likewise"),
    assume(64, ALIKE, "assume_alike", "model_1p if all locks were held equally long"),
    assume(128, FIXED, "assume_fixed", "model_1p if each hold of a lock were equally long"),
    assume(256, CHAINED, "assume_chained", "model_1p if nothing were done between two locks"),
    assume(512, QUICK, "assume_quick", "model_1p if a cache line came in half the time"),
    spec(1024, Runner::Crowd, None, KERNEL_TEST, "test_vmalloc's: --pages (5) on --threads (64)"),
];

const ALIKE: Costs = Costs { lines: Lines::Alike(4), ..Costs::STATED };
const FIXED: Costs = Costs { holds: Holds::Alike, ..Costs::STATED };
const CHAINED: Costs = Costs { between_ns: 0, ..Costs::STATED };
const QUICK: Costs = Costs { line_ns: Costs::STATED.line_ns / 2, ..Costs::STATED };

impl Spec {
    /// Returns the assumed costs, if the program is the model under the stated assumptions or under others.
    pub(super) fn costs(&self) -> Option<Costs> {
        match self.runner {
            Runner::Machine | Runner::Crowd => None,
            Runner::Simulation(costs) => Some(costs),
        }
    }

    /// Returns true if the program is the model under other than the stated costs.
    pub(super) fn is_assumption(&self) -> bool {
        self.costs().is_some_and(|costs| costs != Costs::STATED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_designs_before_and_after_differ_in_the_index_alone() {
        let [before, after, ..] = designs();
        let blocks = BlockPolicy { index: after.policy.blocks.index, ..before.policy.blocks };
        assert_ne!(before.policy, after.policy);
        assert_eq!(VmapPolicy { blocks, ..before.policy }, after.policy);
    }

    #[test]
    fn every_design_has_its_name_and_the_presets_are_those_of_the_engine() {
        assert_eq!(designs().map(|design| design.name), NAMES);
        for name in [PER_CPU, NODES, OURS] {
            let design = designs().into_iter().find(|design| design.name == name).unwrap();
            assert_eq!(VmapPolicy::preset(name).unwrap().policy, design.policy);
        }
    }
}
