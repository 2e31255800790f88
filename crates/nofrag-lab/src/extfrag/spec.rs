//! One run, as the catalogue names it, and the setup of the world behind it.

use nofrag::page::{Advice, FragmentationPolicy, HugeDefrag, HugeFault, HugeTries, MinFree};

use super::catalogue::Case;
use super::machine;
use crate::scenario::ThpTouch;
use crate::world::cache::files_per_thread;
use crate::world::costs::Costs;
use crate::world::setup::{Boot, Setup, WarmUp};

/// Everything that a run depends on; two runs of equal specs give equal results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunSpec {
    /// The policy's name in tables.
    pub(super) design: String,
    pub(super) policy: FragmentationPolicy,
    pub(super) case: Case,
    /// The share of the mapping that the huge-page threads touch.
    pub(super) touch: ThpTouch,
    /// The seed of all random numbers.
    pub(super) seed: u64,
}

/// The machine of a run, with its CPUs and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TestMachine {
    /// One node with DMA32 and Normal, 4 fio threads and 1 huge-page thread (the document's 1-socket Skylake).
    OneNode,
    /// Two nodes, 4 fio threads and 5 huge-page threads (the document's 2-socket Haswell).
    TwoNodes {
        /// True if huge-page requests stay on the local node.
        this_node: bool,
        /// The node on which the huge-page threads start.
        start: u8,
    },
}

/// Effort for huge pages: the three configurations of the workload (docs/sources/pages.md#thpfioscale).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HugeMode {
    /// The kernel's default: huge pages that are at hand; no daemon is woken for others.
    Default,
    /// `transparent_hugepage/defrag` is `always`: callers reclaim and compact.
    DefragAlways,
    /// The program asks by `MADV_HUGEPAGE`: callers reclaim and compact.
    Madvise,
}

/// Number of pages in a GiB.
const GIB_PAGES: u64 = 1 << 18;

impl RunSpec {
    /// Builds the world of the run.
    pub(super) fn setup(&self) -> Setup {
        self.setup_of(self.case.memory_gib * GIB_PAGES)
    }

    /// Builds the same world with `pages` pages.
    pub(super) fn setup_of(&self, pages: u64) -> Setup {
        let Case { machine, huge, mix, .. } = self.case;
        let mix = mix.scaled(pages);
        let layout = machine::layout(machine, &mix, pages);
        let half = machine::units_per_thread(layout.node_0_pages, layout.huge.len() as u32);
        Setup {
            design: self.design.clone(),
            program: format!("mix {}, {machine:?}, {huge:?}", mix.name),
            policy: self.policy,
            fault: self.huge_fault(),
            units: match self.touch {
                ThpTouch::HalfOfUnits => half,
                ThpTouch::AllUnits => 2 * half,
            },
            layout,
            min_free: MinFree::HugePages,
            boot: Boot::default(),
            costs: Costs::built_in(),
            files: files_per_thread(pages),
            warm_up: WarmUp::AsLongAsWriting,
            mix,
            seed: self.seed,
        }
    }

    /// Returns the request of a touched unit. A program that may use any node is one whose memory policy interleaves:
    /// it makes one try.
    ///
    /// By default, `transparent_hugepage/defrag` is `madvise` and the program has not asked: neither the caller nor
    /// kswapd reclaims or compacts for the unit. With a wake for each unit that fails, and files written one after the
    /// other, vanilla got huge pages for one unit in seven on the calibrated mix, where the document and the count
    /// model have none, and half of the events: kswapd's end starts kcompactd, which empties blocks.
    fn huge_fault(&self) -> HugeFault {
        let (defrag, advice) = match self.case.huge {
            HugeMode::Default => (HugeDefrag::Madvise, Advice::Unadvised),
            HugeMode::DefragAlways => (HugeDefrag::Always, Advice::Unadvised),
            HugeMode::Madvise => (HugeDefrag::Madvise, Advice::HugePage),
        };
        let tries = match self.case.machine {
            TestMachine::TwoNodes { this_node: false, .. } => HugeTries::All,
            TestMachine::OneNode | TestMachine::TwoNodes { .. } => self.policy.huge_tries,
        };
        HugeFault::new(defrag, advice, tries)
    }
}
