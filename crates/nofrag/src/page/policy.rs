//! Every difference between kernels as a value. `presets` names sets of values.
//!
//! Rules: docs/sources/pages.md, by the anchors that each value names.

use crate::units::{Nanos, Order};

/// Policy of a [`PageAllocator`](super::PageAllocator) against fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentationPolicy {
    /// Rules for a request that finds the lists of its own type empty: what it may take, and what becomes of the rest.
    pub fallback: FallbackRules,
    /// End of a list to which a free block goes that changes its list.
    pub relist: Relist,
    /// Patch 1: when a request avoids mixing types and looks in another zone first.
    pub spread: Spread,
    /// Patch 3: how the code that takes a block and boosts a zone learns whether kswapd may be woken.
    pub kswapd_flag: KswapdFlag,
    /// Patch 4: how much further kswapd reclaims after blocks were mixed.
    pub boost: Option<Boost>,
    /// Patch 5: when a request waits for kswapd rather than mix.
    pub stall: Option<Stall>,
    /// Upper limit of the kernel's formula for `min_free_kbytes`, in KiB.
    pub min_free_limit_kib: u32,
    pub per_cpu: PerCpuRules,
    pub compaction: CompactionPolicy,
    /// LRU that reclaim walks, which decides when it stops for a large block.
    pub lru: Lru,
    /// The case in which a large request with `__GFP_NORETRY` ends after its first compaction.
    pub no_retry: NoRetry,
    pub huge_tries: HugeTries,
    pub choice: Choice,
    /// Repairs of later kernels that the policy includes.
    pub fixes: Fixes,
}

/// Rule sets by which requests fall back on blocks of other types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FallbackRules {
    /// 4.20 to 6.9: the largest block of another type; one buddy or all free ones of its block change lists, whatever
    /// the block's type says (pages.md#fallback-loose).
    Loose,
    /// The first form of 6.10: strict lists, and single pages stolen from the block of the largest-first scan
    /// (pages.md#strict-first-form, unconfirmed).
    StrictFirst,
    /// 6.12 and later: strict lists; claim whole blocks, else steal the smallest (pages.md#fallback-strict).
    Strict,
}

/// End of a list to which a free block goes that changes its list (pages.md#relist).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relist {
    /// The block is taken first.
    Head,
    /// The block is taken last.
    Tail,
}

/// Requests that carry `ALLOC_NOFRAGMENT`, and so avoid mixing types (pages.md#patch-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Spread {
    /// No request carries the flag (4.20).
    Off,
    /// The flag is computed and lost (5.0 as shipped, until the fix of April 2019: pages.md#trap-2).
    Lost,
    /// Requests on the fast path, as the patch has it.
    FastPath,
    /// Every request until reclaim and compaction have failed (`vm.defrag_mode`: pages.md#defrag-mode).
    EveryRequest,
}

/// Way in which the code that takes a block and boosts a zone learns whether kswapd may be woken (pages.md#patch-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KswapdFlag {
    /// No way: boosts wake it for any request (before patch 3).
    Absent,
    /// The flag `ALLOC_KSWAPD`, which mirrors `__GFP_KSWAPD_RECLAIM` of the request.
    Carried,
}

/// The boost of watermarks after an external fragmentation event (pages.md#patch-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Boost {
    /// The most that a zone's marks rise, in 1/10000 of its high watermark (`watermark_boost_factor`); 0 turns boosts
    /// off.
    pub factor: u32,
}

/// The wait for kswapd before types are mixed (never merged into Linux: pages.md#patch-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stall {
    /// Free blocks below this order are not broken into before a wait (`fragment_stall_order`), 0 to 11.
    pub order: u8,
    /// Longest time that a request waits.
    pub bound: Nanos,
}

/// Contents of per-CPU lists, and rules of their exchange with the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PerCpuRules {
    /// Single pages, with a constant batch and bound (to 5.13: pages.md#per-cpu-single).
    Single,
    /// Orders 0 to 3 and huge pages, with a constant bound and drains that grow (5.14 to 6.6:
    /// pages.md#per-cpu-orders).
    Orders,
    /// The lists of [`Orders`](Self::Orders), with a bound that follows the load and refills that grow (6.7 on:
    /// pages.md#per-cpu-tuned).
    Tuned,
}

/// LRU that reclaim walks. Its lists are the business of the owner, who takes pages in the order that the LRU names;
/// here it decides when a caller stops reclaiming for a large block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lru {
    /// Active and inactive lists: a pass is repeated until compaction can begin on the node (pages.md#pass-repeats).
    TwoLists,
    /// The multi-generational LRU: one pass of 64 pages (pages.md#guest-lru). Files' pages come into the oldest
    /// generation, and of one generation those of the highest zone go first: so as long as there are any, low zones
    /// keep what they have.
    Generations,
    /// The multi-generational LRU of 7.2: once processes have taken memory, files' pages come into a younger
    /// generation, and the oldest is used up, zone by zone.
    AgedGenerations,
}

/// The case in which a request above [`Order::COSTLY`] with `__GFP_NORETRY` ends after its first compaction
/// (pages.md#no-retry). If it goes on it gets one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoRetry {
    /// If that compaction was put off (4.20, unconfirmed).
    Deferred,
    /// If it was put off or had too little to begin with (5.10).
    NotTried,
    /// If it was put off or had too little to begin with, or if no other node may serve (6.1 to 6.12).
    NotTriedOrLocal,
    /// If no other node may serve (7.2).
    Local,
}

/// Requests that a huge-page fault makes, and the nodes that may serve them (pages.md#huge-fault-tries).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HugeTries {
    /// One, for all nodes: where the memory policy interleaves, and for advised memory in 4.20-rc3, the tree that
    /// Gorman 2018 measured.
    All,
    /// One, for this node alone (4.20 as released, to 5.3).
    Local,
    /// One for this node that gives up early, then, for a caller that may reclaim, one for all nodes (since 5.4).
    LocalThenAll,
}

/// Rules by which compaction judges and works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompactionPolicy {
    pub gap: Gap,
    /// `compaction_proactiveness`, 0 to 100; `None` before 5.9.
    pub proactiveness: Option<u8>,
    pub marks: ProactiveMarks,
    /// `extfrag_threshold`, in 1/1000.
    pub extfrag_threshold: u16,
    pub sources: SourceRules,
    pub moves: MoveRules,
    pub capture: CaptureTrace,
}

/// Trace of a capture: compaction's caller keeps a block of another type as it becomes free (pages.md#extfrag-event).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CaptureTrace {
    /// The capture goes unnoticed (up to 6.12).
    Silent,
    /// The capture is an external fragmentation event (7.2).
    Event,
}

/// Units in which compaction takes content out of a pageblock, and the way in which their target places are found (seen
/// in `data/kernel-states`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MoveRules {
    /// Single pages, one after the other: the place of one that could not be moved goes to the next (seen in 6.1).
    PageByPage,
    /// Blocks smaller than the wanted one, which get their places together and of their own size (seen in 6.12).
    Folios,
}

/// Choice of the pageblocks that compaction empties (pages.md#sources).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceRules {
    /// A caller that does not wait empties pageblocks of its own type (a movable one also CMA), all others empty any.
    Until6_12,
    /// As until 6.12, but huge pages count as movable, and CMA blocks are emptied for those alone that can use them.
    Since7_2,
    /// As since 7.2, but for a pageblock or more nobody empties one in which something must stay: it would not become
    /// free, and the moves would be in vain. With [`Choice::FullestBlock`] the pageblock with the most free pages is
    /// emptied next, wherever it lies, into the fullest others, and only if they have room for all of it (ours).
    EmptiestBlock,
}

/// Pages that must be free beyond the watermark for compaction to begin (pages.md#compaction-gap).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Gap {
    /// Twice the request (up to 6.12).
    TwiceRequest,
    /// Twice the request, at most 32 pages (7.2).
    Capped,
}

/// Formulas of the scores at which proactive compaction ends (`low`) and above which it begins (`high`), with
/// `compaction_proactiveness` as `p` (pages.md#proactive).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProactiveMarks {
    /// `low = max(100 - p, 5)`, `high = min(low + 10, 100)`.
    Until6_12,
    /// `low = 100 - p`, `high = min(low + min(10, low / 2), 100)`.
    Since7_2,
}

/// Choice among several free blocks of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Choice {
    /// The smallest order that fits, the one freed last (Linux: pages.md#buddies).
    Recent,
    /// The smallest in the pageblock with the fewest free pages (in steps of 8) that can serve it, so that
    /// emptying blocks become empty (ours).
    FullestBlock,
}

/// Repairs of later kernels, each on its own and under a name of ours. Origins: docs/sources/pages.md#repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fixes(pub u32);

impl Fixes {
    /// No repair: kernels as first written.
    pub const NONE: Fixes = Fixes(0);
    /// `order-guard` (pages.md#b-3): under `ALLOC_NOFRAGMENT` a request above a pageblock does not shrink to one.
    pub const ORDER_GUARD: Fixes = Fixes(1);
    /// `early-boot-boost` (pages.md#b-5): no boost while the high watermark is 0.
    pub const EARLY_BOOT: Fixes = Fixes(1 << 1);
    /// `small-zone-boost` (pages.md#b-6): no boost of zones below four pageblocks.
    pub const SMALL_ZONE: Fixes = Fixes(1 << 2);
    /// `slab-protected` (pages.md#b-8): boosted reclaim shrinks slabs too.
    pub const SLAB_SHRINKS: Fixes = Fixes(1 << 3);
    /// `boost-baked-in` (pages.md#b-9): a new setting zeroes the boost before it computes marks.
    pub const BOOST_ZEROED: Fixes = Fixes(1 << 4);
    /// `atomic-boosted-min` (pages.md#b-10): order-0 requests that may not wait are tested again, against the min
    /// watermark without boost (until 6.1).
    pub const ATOMIC_RETEST: Fixes = Fixes(1 << 5);
    /// `atomic-boosted-min` (pages.md#b-10): every order-0 request with `__GFP_HIGH` is tested again, against the min
    /// watermark without boost.
    pub const HIGH_RETEST: Fixes = Fixes(1 << 6);
    /// `failure-counter` (pages.md#b-11): a boosted run without progress does not count against kswapd.
    pub const BOOST_NOT_COUNTED: Fixes = Fixes(1 << 7);
    /// `wake-without-permission` (pages.md#b-12): no wake without `__GFP_KSWAPD_RECLAIM`.
    pub const WAKE_PERMISSION: Fixes = Fixes(1 << 8);
    /// `wake-without-boost` (pages.md#b-13): no wake when nothing was boosted.
    pub const WAKE_IF_BOOSTED: Fixes = Fixes(1 << 9);
    /// `kdump-boost` (pages.md#b-22): a capture kernel never boosts.
    pub const KDUMP_EXEMPT: Fixes = Fixes(1 << 10);
    /// `one-node-overreclaim` (pages.md#b-25): the fast path skips nodes whose kswapd is awake.
    pub const SKIP_AWAKE_NODES: Fixes = Fixes(1 << 11);
    /// `dead-defrag-mode` (pages.md#b-16): `ALLOC_NOFRAGMENT` is set, by patch 1 and by `vm.defrag_mode`, without a
    /// DMA32 zone too.
    pub const SPREAD_WITHOUT_DMA32: Fixes = Fixes(1 << 12);
    /// `defrag-atomic` (pages.md#b-17): in defrag mode a caller that cannot reclaim may mix types in its last pass.
    pub const DEFRAG_ATOMIC: Fixes = Fixes(1 << 13);
    /// `wake-under-lock` (pages.md#b-4): kswapd is woken after the zone's lock is released.
    pub const WAKE_AFTER_UNLOCK: Fixes = Fixes(1 << 14);
    /// `refill-rescan` (pages.md#b-18): under strict lists the pages of a refill do not all repeat the searches that
    /// failed.
    pub const STICKY_REFILL: Fixes = Fixes(1 << 15);
    /// `kswapd-flag-lost` (pages.md#b-15): the fast path may wake kswapd without a DMA32 zone too.
    pub const KSWAPD_WITHOUT_DMA32: Fixes = Fixes(1 << 16);
    pub const ALL: Fixes = Fixes((1 << 17) - 1);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Fixes) -> Fixes {
        Fixes(self.0 | other.0)
    }

    /// Returns this set without `other`.
    #[must_use]
    pub const fn without(self, other: Fixes) -> Fixes {
        Fixes(self.0 & !other.0)
    }

    /// Returns true if every fix of `other` is in.
    #[must_use]
    pub const fn has(self, other: Fixes) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Stall {
    /// Returns true if a free block of this order is left alone until the wait is over.
    #[must_use]
    pub const fn spares(self, order: Order) -> bool {
        order.get() < self.order
    }
}
