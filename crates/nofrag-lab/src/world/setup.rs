//! The setup of a run of the workload, and its result.

use std::collections::BTreeMap;

use nofrag::page::{FragmentationPolicy, HugeFault, MemoryMap, MinFree, PageCounters, ZoneKind};
use nofrag::units::{Nanos, Order};

use super::costs::Costs;
use super::heard::{Compactions, Fallbacks};
use super::load::Mix;

/// Number of fio's threads, which write first and read later.
pub(crate) const FIO_THREADS: u32 = 4;

/// Everything that a run depends on; two runs of equal setups give equal results.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setup {
    /// Names of the policy and of the load: for errors.
    pub(crate) design: String,
    pub(crate) program: String,
    pub(crate) policy: FragmentationPolicy,
    pub(crate) layout: Layout,
    pub(crate) min_free: MinFree,
    pub(crate) boot: Boot,
    pub(crate) costs: Costs,
    /// Files of each of fio's threads.
    pub(crate) files: u32,
    pub(crate) warm_up: WarmUp,
    /// The requests that a touched unit makes.
    pub(crate) fault: HugeFault,
    pub(crate) mix: Mix,
    /// Units of 2 MiB that each thread touches.
    pub(crate) units: u64,
    /// The seed of all random numbers.
    pub(crate) seed: u64,
}

/// The time for which files are read before huge pages are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarmUp {
    /// As long as writing them took, as the document has it.
    AsLongAsWriting,
    /// Until this number of pages has come from disk.
    Reads(u64),
}

/// Pages that the kernel holds before the load begins; they stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Boot {
    pub(crate) unmovable: u64,
    pub(crate) reclaimable: u64,
    pub(crate) files: u64,
}

/// A moment of a run: its start, and the end of each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(crate) enum Moment {
    #[default]
    Start,
    Write,
    WarmUp,
    #[strum(serialize = "huge pages")]
    HugePages,
    End,
}

impl Moment {
    /// All moments, in their order.
    pub(crate) const ALL: &[Moment] = <Moment as strum::VariantArray>::VARIANTS;
}

/// State at the end of a phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PhaseEnd {
    pub(crate) at: Moment,
    /// The allocator's counts since the beginning.
    pub(crate) counters: PageCounters,
    /// Fallbacks between types since the beginning.
    pub(crate) fallbacks: Fallbacks,
    /// Pages of files that came from disk since the beginning.
    pub(crate) read: u64,
    /// Free blocks by kind of zone and order.
    pub(crate) free: BTreeMap<ZoneKind, [u64; Order::COUNT]>,
}

/// The machine: its memory, and the CPU of every thread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) map: MemoryMap,
    /// The CPU of each of fio's threads.
    pub(crate) fio: [u32; FIO_THREADS as usize],
    /// The CPU of each huge-page thread.
    pub(crate) huge: Vec<u32>,
    /// By node: the CPU of its kswapd and that of its kcompactd.
    pub(crate) daemons: Vec<[u32; 2]>,
    /// Pages of node 0, by which the huge-page program sizes its mapping.
    pub(crate) node_0_pages: u64,
    pub(crate) pages: u64,
}

/// The result of a run. Counts are those of the whole run unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunResult {
    /// The end of each phase: write, warm-up, huge pages.
    pub(crate) phases: Vec<PhaseEnd>,
    /// Units that got a huge page.
    pub(crate) huge: u64,
    /// Units that were served with single pages.
    pub(crate) base: u64,
    /// Allocator work of each huge fault, in virtual nanoseconds: allocation, reclaim, compaction, waiting.
    pub(crate) huge_work: Vec<Nanos>,
    /// The same work, of each unit of 512 base faults.
    pub(crate) base_work: Vec<Nanos>,
    /// The length of each wait for kswapd (patch 5 of 2018), in virtual time.
    pub(crate) stalls: Vec<Nanos>,
    /// Virtual time of the whole run.
    pub(crate) elapsed: Nanos,
    /// Allocations plus frees that the engine served.
    pub(crate) operations: u64,
    /// Boost of all zones in pages, at even distances of virtual time.
    pub(crate) boost: Vec<f64>,
    /// Contiguity at each moment: for each pageblock the largest free order in it, 0 for none to 1 for a whole block.
    pub(crate) contiguity: Vec<(Moment, Vec<f64>)>,
    /// Free pages on the lists of another type than their pageblock's: the most at the end of a phase.
    pub(crate) list_mismatches: u64,
    /// Pageblocks at the end that can serve as a huge page at once.
    pub(crate) free_blocks: u64,
    pub(crate) blocks: u64,
    /// Compaction by callers for a huge page.
    pub(crate) compactions: Compactions,
}
