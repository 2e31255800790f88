//! Every difference between the engines as a value, and the presets that name sets of values.
//!
//! When Linux did what: docs/sources/vmap.md#versions. Comments beside the values of presets name sections of that
//! file.

use super::BlockPolicy;
use crate::errors::errors;
use crate::ranges::{AlignRule, Index};
use crate::units::PageSize;

/// The rules by which a [`VmapSpace`](super::VmapSpace) works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmapPolicy {
    /// The index of free ranges.
    pub index: Index,
    pub layout: Layout,
    pub lazy: LazyStore,
    pub pools: Pools,
    pub lookup: Lookup,
    pub lazy_limit: LazyLimit,
    pub drain: Drain,
    pub drain_yield: DrainYield,
    pub blocks: BlockPolicy,
}

/// The division of the bookkeeping of areas, and with it of the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// Busy areas and free ranges under one lock (Linux up to 5.4).
    OneLock,
    /// One lock for busy areas and one for free ranges (5.5 to 6.8).
    SplitLocks,
    /// Busy, lazy and pooled areas per node, nodes by address (6.9 and later); one lock for free ranges.
    Nodes,
    /// nofrag's own: pools per CPU, busy and lazy areas in shards by address, flushed areas handed over in batches.
    Shards,
}

/// The store in which freed areas wait for their flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LazyStore {
    /// In the busy index too, and on an unsorted list (up to 5.3).
    InBusyIndex,
    /// In one sorted structure, merged with their neighbours (5.11 to 6.8).
    Merged,
    /// Per node or shard and unmerged, since pools need the areas' identity.
    Separate,
}

/// The flushed areas that are kept at hand instead of being merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pools {
    Off,
    /// Per node, for each exact size up to 256 pages, last in first out; a purge lets some decay (6.9 and later).
    ExactSize(Decay),
    /// Per CPU, for each exact size up to 256 pages, last in first out; areas not needed between two purges go back.
    ByDemand,
}

/// The share of a pool's areas that a partial decay merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Decay {
    /// A quarter, rounded down; so pools of up to three stay.
    Quarter,
    /// As 6.12 shipped the decay: on pools of one to three the count underflows and everything goes. Kept for the
    /// comparison with such kernels; no preset has it.
    QuarterUnderflow,
}

/// The places in which the area of an interior address is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lookup {
    /// In the address's own node only: an area that starts in another one is missed. Kept for tests.
    HomeNode,
    /// In every node in which the area can be.
    AllNodes,
}

/// The number of lazy pages (freed, not flushed) that may gather before a purge begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LazyLimit {
    /// Linux's rule: 32 MiB times the number of binary digits of the CPU count, in pages of this size.
    PerCpuLog2(PageSize),
    Pages(u64),
}

impl LazyLimit {
    /// Returns the limit in pages for `cpus` CPUs.
    #[must_use]
    pub fn pages(self, cpus: usize) -> u64 {
        match self {
            LazyLimit::Pages(pages) => pages,
            LazyLimit::PerCpuLog2(size) => {
                let digits = u64::from(usize::BITS - cpus.leading_zeros());
                digits * (32 << 20) / size.bytes()
            }
        }
    }
}

/// The thread that purges when more pages are lazy than the lazy limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Drain {
    /// The caller that freed, unless a purge runs already.
    ByFreer,
    /// The thread that calls `step`, usually one that waits until `drain_wanted`.
    Posted,
}

/// The cases in which a step of the purge stops at its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DrainYield {
    /// Always: frees can outrun the purge (Linux 4.10 to 5.1).
    Always,
    /// Only while fewer pages than twice the lazy limit wait (5.2 and later).
    BelowTwiceLimit,
}

impl VmapPolicy {
    /// Linux 3.19: blocks as before Pen's changes. Areas as in 4.19, the oldest rules that are written down.
    pub const LINUX_3_19: VmapPolicy =
        VmapPolicy { blocks: BlockPolicy::LINUX_3_19, ..VmapPolicy::LINUX_4_19 };

    /// Linux 4.19: busy areas only, found by next fit; one lock.
    pub const LINUX_4_19: VmapPolicy = VmapPolicy {
        index: Index::CachedScan,                           // vmap.md#next-fit
        layout: Layout::OneLock,                            // vmap.md#locks
        lazy: LazyStore::InBusyIndex,                       // vmap.md#next-fit, vmap.md#lazy-store
        pools: Pools::Off,                                  // none before vmap.md#nodes
        lookup: Lookup::AllNodes, // one tree has all areas: vmap.md#next-fit
        lazy_limit: LazyLimit::PerCpuLog2(PageSize::KIB_4), // vmap.md#lazy-limit
        // vmap.md#lazy-limit. Linux has a worker for it since 5.18; no preset here needs a thread.
        drain: Drain::ByFreer,
        drain_yield: DrainYield::Always, // vmap.md#drain-yield
        blocks: BlockPolicy::LINUX_4_1,
    };

    /// Linux 5.2: free areas in an augmented tree; still one lock.
    pub const LINUX_5_2: VmapPolicy = VmapPolicy {
        index: Index::AugmentedTree(AlignRule::Padded), // vmap.md#lowest-match, vmap.md#length-rule
        drain_yield: DrainYield::BelowTwiceLimit,       // vmap.md#drain-yield
        ..VmapPolicy::LINUX_4_19
    };

    /// Linux 5.11 to 5.15: separate locks for busy areas, free ranges and the sorted, merged tree of lazy areas.
    pub const LINUX_5_11: VmapPolicy = VmapPolicy {
        layout: Layout::SplitLocks, // vmap.md#locks
        lazy: LazyStore::Merged,    // vmap.md#lazy-store
        ..VmapPolicy::LINUX_5_2
    };

    /// Linux 5.16 and 5.17: the search makes no room for alignment (commit 9f531973dff3).
    pub const LINUX_5_16: VmapPolicy = VmapPolicy {
        index: Index::AugmentedTree(AlignRule::Unpadded), // vmap.md#length-rule
        ..VmapPolicy::LINUX_5_11
    };

    /// Linux 5.18 to 6.3: room for alignment again, except for bounds as long as the request and alignments of a page.
    pub const LINUX_5_18: VmapPolicy = VmapPolicy {
        index: Index::AugmentedTree(AlignRule::PaddedUnlessExact), // vmap.md#length-rule
        ..VmapPolicy::LINUX_5_16
    };

    /// Linux 6.4: blocks found through buckets (Rezki 2023).
    pub const LINUX_6_4: VmapPolicy =
        VmapPolicy { blocks: BlockPolicy::LINUX_6_4, ..VmapPolicy::LINUX_5_18 };

    /// Linux 6.9: nodes and pools. With the decay of pools as 7.3 corrected it.
    pub const LINUX_6_9: VmapPolicy = VmapPolicy {
        layout: Layout::Nodes,                   // vmap.md#nodes, vmap.md#locks
        lazy: LazyStore::Separate,               // vmap.md#lazy-store
        pools: Pools::ExactSize(Decay::Quarter), // vmap.md#pool-purge, vmap.md#pool-decay
        ..VmapPolicy::LINUX_6_4
    };

    /// Linux 6.11: the repaired index of blocks.
    pub const LINUX_6_11: VmapPolicy =
        VmapPolicy { blocks: BlockPolicy::LINUX_6_11, ..VmapPolicy::LINUX_6_9 };

    /// The rules of nofrag's own engine.
    pub const NOFRAG: VmapPolicy = VmapPolicy {
        index: Index::WideBlocks,                           // vmap.md#exact-index
        layout: Layout::Shards,                             // vmap.md#global-lookup-lock
        lazy: LazyStore::Separate,                          // pools need it: vmap.md#lazy-store
        pools: Pools::ByDemand,                             // vmap.md#pools-by-demand
        lookup: Lookup::AllNodes,                           // vmap.md#interior-lookup
        lazy_limit: LazyLimit::PerCpuLog2(PageSize::KIB_4), // as Linux: vmap.md#lazy-limit
        drain: Drain::ByFreer,                              // vmap.md#bounded-purge
        drain_yield: DrainYield::BelowTwiceLimit,           // vmap.md#drain-outrun
        blocks: BlockPolicy::NOFRAG,
    };

    /// Returns the rule set for `name`: `nofrag`, or `linux-X.Y`, which resolves to the newest rule set not newer than
    /// X.Y, or `linux-3.19+patchN`, which adds the first N of Pen's three changes.
    ///
    /// # Errors
    /// [`UnknownPreset`] for other names and for versions older than the oldest rule set.
    pub fn preset(name: &str) -> Result<Preset, UnknownPreset> {
        if name == "nofrag" {
            return Ok(Preset { name: "nofrag", policy: VmapPolicy::NOFRAG });
        }
        if let Some(patched) = PATCHED.iter().find(|preset| preset.name == name) {
            return Ok(*patched);
        }
        let version = name.strip_prefix("linux-").and_then(parse_version).ok_or(UnknownPreset)?;
        let newest = RULE_SETS.iter().rev().find(|rules| rules.since <= version);
        newest.map(|rules| rules.preset).ok_or(UnknownPreset)
    }

    /// Returns all presets, oldest first, ours last.
    pub fn presets() -> impl Iterator<Item = Preset> {
        let ours = Preset { name: "nofrag", policy: VmapPolicy::NOFRAG };
        RULE_SETS.iter().map(|rules| rules.preset).chain([ours])
    }
}

impl Default for VmapPolicy {
    /// Returns the best policy: [`VmapPolicy::NOFRAG`].
    fn default() -> Self {
        VmapPolicy::NOFRAG
    }
}

/// A policy and the name of its rule set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name of the rule set that the wanted name resolved to.
    pub name: &'static str,
    pub policy: VmapPolicy,
}

/// No rule set has this name, or the version is older than all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPreset;

struct RuleSet {
    since: (u32, u32),
    preset: Preset,
}

/// All rule sets but ours, ascending by version. From 3.19 to 4.18 only the blocks differ: the areas have 4.19's rules.
static RULE_SETS: [RuleSet; 10] = [
    RuleSet::new((3, 19), "linux-3.19", VmapPolicy::LINUX_3_19),
    RuleSet::new((4, 1), "linux-4.1", VmapPolicy::LINUX_4_19),
    RuleSet::new((4, 19), "linux-4.19", VmapPolicy::LINUX_4_19),
    RuleSet::new((5, 2), "linux-5.2", VmapPolicy::LINUX_5_2),
    RuleSet::new((5, 11), "linux-5.11", VmapPolicy::LINUX_5_11),
    RuleSet::new((5, 16), "linux-5.16", VmapPolicy::LINUX_5_16),
    RuleSet::new((5, 18), "linux-5.18", VmapPolicy::LINUX_5_18),
    RuleSet::new((6, 4), "linux-6.4", VmapPolicy::LINUX_6_4),
    RuleSet::new((6, 9), "linux-6.9", VmapPolicy::LINUX_6_9),
    RuleSet::new((6, 11), "linux-6.11", VmapPolicy::LINUX_6_11),
];

/// Pen's changes one by one, each with those before it.
static PATCHED: [Preset; 3] = [
    patched("linux-3.19+patch1", BlockPolicy::PATCH_1),
    patched("linux-3.19+patch2", BlockPolicy::PATCH_2),
    patched("linux-3.19+patch3", BlockPolicy::LINUX_4_1),
];

const fn patched(name: &'static str, blocks: BlockPolicy) -> Preset {
    Preset { name, policy: VmapPolicy { blocks, ..VmapPolicy::LINUX_3_19 } }
}

impl RuleSet {
    const fn new(since: (u32, u32), name: &'static str, policy: VmapPolicy) -> RuleSet {
        RuleSet { since, preset: Preset { name, policy } }
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

errors!(UnknownPreset => "no such preset: use `nofrag` or `linux-X.Y` from 3.19 on");
