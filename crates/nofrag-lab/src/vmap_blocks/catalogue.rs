//! The designs that are compared, and the programs.

use std::sync::LazyLock;

use nofrag::vmap::{BlockIndex, BlockPolicy, VmapPolicy};

use serde::Deserialize;

use super::SCENARIO;
use super::model::{Costs, Holds, Lines};

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

/// The design before the document: that of Linux 6.4, but with one index of blocks for all CPUs.
pub(super) const GLOBAL: &str = "global";
/// The document's design: an index of blocks in a bucket for each CPU.
pub(super) const PER_CPU: &str = "linux-6.4";
/// The document's design with nodes and pools besides.
pub(super) const NODES: &str = "linux-6.11";
/// Ours, called like the others.
pub(super) const OURS: &str = "nofrag";
pub(super) const BY_HANDLE: &str = "nofrag-handle";

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Runner {
    /// A thread on every CPU of the machine, at most as many as `--threads` gives.
    Machine,
    /// As many threads as `--threads` gives, whatever the machine has.
    Crowd,
    /// As many simulated CPUs as `--threads` gives, at the stated costs; below, with one cost changed.
    Model,
    Alike,
    Fixed,
    Chain,
    Quick,
}

/// The work of a program in `scenario.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Work {
    pub(super) runner: Runner,
    /// Pages of each mapping; `None` for the number of `--pages`.
    pub(super) pages: Option<u64>,
}

pub(super) type Spec = crate::scenario::Spec<Work>;

pub(super) static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(|| SCENARIO.specs());

/// The model of the document's first run.
pub(super) const MODEL: &str = "model_1p";

/// Programs of the model under the stated assumptions.
pub(super) const MODELS: [&str; 3] = [MODEL, "model_5p", "model_64p"];

/// The kernel's own test, the document's second run.
pub(super) const KERNEL_TEST: &str = "vm_map_ram";

pub(super) const THREADS: [&str; 4] = ["threads_1p", "threads_5p", "threads_64p", KERNEL_TEST];

impl Work {
    /// Returns the assumed costs, if the program is the model under the stated assumptions or under others.
    pub(super) fn costs(&self) -> Option<Costs> {
        let stated = Costs::STATED;
        Some(match self.runner {
            Runner::Machine | Runner::Crowd => return None,
            Runner::Model => stated,
            Runner::Alike => Costs { lines: Lines::Alike(4), ..stated },
            Runner::Fixed => Costs { holds: Holds::Alike, ..stated },
            Runner::Chain => Costs { between_ns: 0, ..stated },
            Runner::Quick => Costs { line_ns: stated.line_ns / 2, ..stated },
        })
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
        assert_eq!(designs().map(|design| design.name)[..], SCENARIO.designs);
        for name in [PER_CPU, NODES, OURS] {
            let design = designs().into_iter().find(|design| design.name == name).unwrap();
            assert_eq!(VmapPolicy::preset(name).unwrap().policy, design.policy);
        }
    }
}
