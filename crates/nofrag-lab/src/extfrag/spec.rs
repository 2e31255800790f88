//! One run: what it is given, and what comes of it. The seam between the simulation and what is made of it.

use nofrag::page::{FragmentationPolicy, PageCounters};
use nofrag::units::Nanos;

use super::compactions::Compactions;

/// Everything that a run depends on; two runs of equal specs give equal results.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunSpec {
    /// The policy's name in tables.
    pub(super) design: String,
    /// How the page allocator behaves.
    pub(super) policy: FragmentationPolicy,
    /// Nodes, CPUs and threads.
    pub(super) machine: Machine,
    /// Who asks for huge pages, and how hard.
    pub(super) huge: HugeMode,
    /// What runs besides the page cache.
    pub(super) mix: Mix,
    /// All of memory, in GiB.
    pub(super) memory_gib: u64,
    /// The share of the mapping that the huge-page threads touch.
    pub(super) touch: Touch,
    /// Where all chance begins.
    pub(super) seed: u64,
}

/// Nodes, CPUs and threads of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    /// One node with DMA32 and Normal, 4 fio threads and 1 huge-page thread (the document's 1-socket Skylake).
    OneNode,
    /// Two nodes, 4 fio threads and 5 huge-page threads (its 2-socket Haswell).
    TwoNodes {
        /// Whether huge-page requests stay on the local node.
        this_node: bool,
        /// The node on which the huge-page threads start.
        start: u8,
    },
}

/// Who asks for huge pages, and how hard: the three configurations of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HugeMode {
    /// The kernel's default: huge pages that are at hand; nobody is woken for others.
    Default,
    /// `transparent_hugepage/defrag` is `always`: callers reclaim and compact.
    DefragAlways,
    /// The program asks by `MADV_HUGEPAGE`: callers reclaim and compact.
    Madvise,
}

/// How much of what is mapped is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    /// Every second unit: 37.5 % of a node (what the program does).
    HalfOfUnits,
    /// Every unit: 75 % of a node (what the document's words say).
    AllUnits,
}

/// What runs besides the page cache, and how reclaim treats it (spec/pages.md §9.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mix {
    /// Its name in tables.
    pub(super) name: &'static str,
    /// The share of memory in DMA32, in 1/1000.
    pub(super) dma32: u64,
    /// Per so many reclaimed pages the shrinker runs.
    pub(super) burst: u64,
    /// How many transient unmovable blocks are live.
    pub(super) transients: usize,
    /// The chance of a transient per page-cache miss, in 1/1000.
    pub(super) transient_chance: u64,
    /// Slab allocations per miss beyond those of the page cache, in 1/1000 (0 but in the slab-intensive mix).
    pub(super) extra_slab: u64,
    /// Orders of the slab caches: inode, dentry, radix node, misc.
    pub(super) slab_orders: [u8; 4],
}

/// What came of a run. Counts are those of the whole run unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RunResult {
    /// The allocator's counts at the end of each phase: write, warm-up, huge pages.
    pub(super) phases: Vec<(&'static str, PageCounters)>,
    /// Units that got a huge page.
    pub(super) huge: u64,
    /// Units that did not.
    pub(super) base: u64,
    /// Allocator work of each huge fault, in virtual nanoseconds: allocation, reclaim, compaction, waiting.
    pub(super) huge_work: Vec<Nanos>,
    /// The same of each unit of 512 base faults.
    pub(super) base_work: Vec<Nanos>,
    /// Each wait of patch 5.
    pub(super) stalls: Vec<Nanos>,
    /// Virtual time of the whole run.
    pub(super) elapsed: Nanos,
    /// Allocations plus frees that the engine served.
    pub(super) operations: u64,
    /// Boost of all zones in pages, at even distances of virtual time.
    pub(super) boost: Vec<f64>,
    /// At some times of the run: name of the moment, and for each pageblock the largest free order in it, 0 for none
    /// to 1 for a whole block.
    pub(super) contiguity: Vec<(String, Vec<f64>)>,
    /// Free pages on the lists of another type than their pageblock's: the most at the end of a phase.
    pub(super) list_mismatches: u64,
    /// Pageblocks at the end: how many can serve as a huge page at once, and how many there are.
    pub(super) free_blocks: u64,
    /// All pageblocks.
    pub(super) blocks: u64,
    /// Compaction by callers for a huge page.
    pub(super) compactions: Compactions,
}
