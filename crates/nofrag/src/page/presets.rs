//! Names for policies: the kernels, and the series of 2018 patch by patch.
//!
//! A preset is what that kernel does, with its mistakes. [`Basis`] says who judges it: the source of a kernel that was
//! read, the texts of the series, or nobody, where it follows from its neighbours. Where the source has no date for a
//! repair, the preset before the first kernel that is known to have it lacks it.
//!
//! Every value names its source, a rule of docs/sources/pages.md (which says where that comes from) or a recording, at
//! the preset that brings it in; what a preset does not name it has from the one that it builds on.
//!
//! Crashes are not kept: a request that no zone may serve fails everywhere (5.0 crashed: pages.md#b-2). And what a
//! policy cannot name is left out: kernels for machines with discontiguous memory but one node had a boost factor of 0
//! (pages.md#b-7), which is [`PageAllocator::set_boost_factor`](super::PageAllocator::set_boost_factor).

use core::fmt;

use super::policy::{
    Boost, CaptureTrace, Choice, CompactionPolicy, FallbackRules, Fixes, FragmentationPolicy, Gap,
    HugeTries, KswapdFlag, Lru, MoveRules, NoRetry, PerCpuRules, ProactiveMarks, Relist,
    SourceRules, Spread, Stall,
};
use crate::units::Nanos;

/// Basis on which a preset is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Basis {
    /// The texts of the series of 2018: what they say of the kernel before and after each patch.
    Document,
    /// A description in words of what this kernel does (docs/sources/pages.md). Its authors read that kernel; those of
    /// this code read the description alone.
    Kernel,
    /// Nothing of this version: it follows from the presets beside it and from dates.
    Derived,
    /// No kernel: the preset is ours.
    Ours,
}

/// A policy with its name and the basis on which it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyPreset {
    /// Name that was resolved to this preset.
    pub name: &'static str,
    pub basis: Basis,
    pub policy: FragmentationPolicy,
}

/// Error of a name that no preset has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such preset; the presets are")?;
        FragmentationPolicy::PRESETS.iter().try_for_each(|preset| write!(f, " {preset}"))
    }
}

/// The name, and a mark if nothing judges the preset: `linux-5.3 (derived)`.
impl fmt::Display for PolicyPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        f.write_str(if self.basis == Basis::Derived { " (derived)" } else { "" })
    }
}

impl core::error::Error for UnknownPolicy {}

/// Compaction before 5.9, when it did not yet work ahead, with the gap of 6.1 and 6.12: no older one is known.
const COMPACTION: CompactionPolicy = CompactionPolicy {
    gap: Gap::TwiceRequest,           // pages.md#compaction-gap
    proactiveness: None,              // pages.md#proactive: since 5.9
    marks: ProactiveMarks::Until6_12, // pages.md#proactive
    extfrag_threshold: 500,           // pages.md#extfrag-threshold
    sources: SourceRules::Until6_12,  // pages.md#sources
    moves: MoveRules::PageByPage,     // data/kernel-states, 6.1.187
    capture: CaptureTrace::Silent,    // pages.md#extfrag-event: an event in 7.2
};

/// Default of `compaction_proactiveness` in kernels (pages.md#proactive).
const PROACTIVENESS: Option<u8> = Some(20);

/// The upper end of the reserve's formula in 4.20, in KiB (unconfirmed), and the one that the formula has today
/// (pages.md#reserves).
const MIN_FREE_LIMIT_4_20: u32 = 65_536;
const MIN_FREE_LIMIT: u32 = 262_144;

/// 5.3: slabs shrink in boosted runs (pages.md#b-8); patch 1 works again (pages.md#b-1), which is
/// [`Spread::FastPath`].
const FIXES_5_3: Fixes = Fixes::SLAB_SHRINKS;

/// 5.10: small zones are not boosted (pages.md#b-6: 5.7), and a boost is zeroed before the marks are set (pages.md#b-9:
/// May 2020).
const FIXES_5_10: Fixes = FIXES_5_3.with(Fixes::SMALL_ZONE).with(Fixes::BOOST_ZEROED);

/// 6.1: all repairs (pages.md#rule-sets) but those that are said to be later below. Order-0 requests are tested again
/// if they may not wait (pages.md#boosted-retest). A request that may not wake kswapd boosts without waking it: so did
/// 6.1.187 in the stretch `linux-6.1-normal-fallbacks-boosted` (lines 73843 and 73918), although pages.md#b-12 has the
/// repair from 6.12 on.
const FIXES_6_1: Fixes = FIXES_5_10
    .with(Fixes::ORDER_GUARD)
    .with(Fixes::WAKE_AFTER_UNLOCK)
    .with(Fixes::EARLY_BOOT)
    .with(Fixes::ATOMIC_RETEST)
    .with(Fixes::WAKE_IF_BOOSTED)
    .with(Fixes::WAKE_PERMISSION)
    .with(Fixes::KSWAPD_WITHOUT_DMA32);

/// 6.12: refills that remember where they looked (pages.md#b-18), kernels that write a dump do not boost
/// (pages.md#b-22), and every order-0 request with `__GFP_HIGH` is tested again (pages.md#boosted-retest).
const FIXES_6_12: Fixes = FIXES_6_1
    .without(Fixes::ATOMIC_RETEST)
    .with(Fixes::HIGH_RETEST)
    .with(Fixes::STICKY_REFILL)
    .with(Fixes::KDUMP_EXEMPT);

/// 7.2: boosted runs do not count as failures (pages.md#b-11), nodes with an awake kswapd are skipped (pages.md#b-25),
/// callers that cannot reclaim get memory in defrag mode (pages.md#b-17); kernels that write a dump boost again
/// (pages.md#b-22).
const FIXES_7_2: Fixes = FIXES_6_12
    .without(Fixes::KDUMP_EXEMPT)
    .with(Fixes::BOOST_NOT_COUNTED)
    .with(Fixes::SKIP_AWAKE_NODES)
    .with(Fixes::DEFRAG_ATOMIC);

impl FragmentationPolicy {
    /// Linux 4.20, before the series ("vanilla"), rebuilt from the patch texts, 5.10 and 6.1.
    pub const LINUX_4_20: FragmentationPolicy = FragmentationPolicy {
        fallback: FallbackRules::Loose,          // pages.md#fallback-loose
        relist: Relist::Head,                    // pages.md#relist, unconfirmed
        spread: Spread::Off,                     // pages.md#rule-sets
        kswapd_flag: KswapdFlag::Absent,         // pages.md#patch-3
        boost: None,                             // pages.md#rule-sets
        stall: None,                             // pages.md#rule-sets
        min_free_limit_kib: MIN_FREE_LIMIT_4_20, // pages.md#reserves, unconfirmed
        per_cpu: PerCpuRules::Single,            // pages.md#per-cpu-single
        compaction: COMPACTION,
        lru: Lru::TwoLists,           // pages.md#guest-lru: as in 5.10
        no_retry: NoRetry::Deferred,  // pages.md#no-retry, unconfirmed
        huge_tries: HugeTries::Local, // pages.md#huge-fault-tries: the final release, unconfirmed
        choice: Choice::Recent,       // pages.md#buddies: the list's head
        fixes: Fixes::NONE,           // pages.md#repairs: each is later
    };
    /// Patch 1 as designed: spread over zones (pages.md#patch-1).
    pub const PATCH_1: FragmentationPolicy =
        FragmentationPolicy { spread: Spread::FastPath, ..FragmentationPolicy::LINUX_4_20 };
    /// Patches 1 and 2: the second renames a field and adds accessors (pages.md#patch-2), so that nothing differs.
    pub const PATCHES_1_2: FragmentationPolicy = FragmentationPolicy::PATCH_1;
    /// Patches 1 to 3 as designed: a flag tells the code that boosts whether kswapd may be woken (pages.md#patch-3),
    /// and patch 1 stays alive (it did not in the posted form: pages.md#trap-2).
    pub const PATCHES_1_3: FragmentationPolicy = FragmentationPolicy {
        kswapd_flag: KswapdFlag::Carried,
        ..FragmentationPolicy::PATCHES_1_2
    };
    /// Patches 1 to 4 as designed: boost, by a factor of 15000 (pages.md#patch-4). Boosted runs spare the slabs
    /// (pages.md#review).
    pub const PATCHES_1_4: FragmentationPolicy = FragmentationPolicy {
        boost: Some(Boost { factor: 15_000 }),
        ..FragmentationPolicy::PATCHES_1_3
    };
    /// Patches 1 to 5 as designed: waits of at most HZ/50 before blocks below order 4 are broken into
    /// (pages.md#patch-5).
    pub const PATCHES_1_5: FragmentationPolicy = FragmentationPolicy {
        stall: Some(Stall { order: 4, bound: Nanos(20_000_000) }),
        ..FragmentationPolicy::PATCHES_1_4
    };
    /// Linux 5.0 as shipped: patch 3 had switched patch 1 off (pages.md#trap-2).
    pub const LINUX_5_0: FragmentationPolicy =
        FragmentationPolicy { spread: Spread::Lost, ..FragmentationPolicy::PATCHES_1_4 };
    /// Linux 5.3, of which there is no description: patch 1 works (pages.md#b-1), and slabs shrink in boosted runs
    /// (pages.md#b-8); all else as in 5.0. It stands for 5.3 to 5.9, whose later repairs have no dates here.
    pub const LINUX_5_3: FragmentationPolicy = FragmentationPolicy {
        spread: Spread::FastPath,
        fixes: FIXES_5_3,
        ..FragmentationPolicy::PATCHES_1_4
    };
    /// Linux 5.10 (per-CPU lists, reclaim, compaction and huge faults by a description of 5.10.223), where huge faults
    /// make two tries (since 5.4) and compaction works ahead (since 5.9: pages.md#proactive). Of the repairs it has
    /// those that are dated before it.
    pub const LINUX_5_10: FragmentationPolicy = FragmentationPolicy {
        min_free_limit_kib: MIN_FREE_LIMIT, // pages.md#reserves
        compaction: CompactionPolicy { proactiveness: PROACTIVENESS, ..COMPACTION },
        no_retry: NoRetry::NotTried,         // pages.md#no-retry
        huge_tries: HugeTries::LocalThenAll, // pages.md#huge-fault-tries
        fixes: FIXES_5_10,
        ..FragmentationPolicy::LINUX_5_3
    };
    /// Linux 5.14, of which there is no description: per-CPU lists of more orders (pages.md#per-cpu-orders); all else
    /// as in 5.10.
    pub const LINUX_5_14: FragmentationPolicy =
        FragmentationPolicy { per_cpu: PerCpuRules::Orders, ..FragmentationPolicy::LINUX_5_10 };
    /// Linux 6.1, by a description of 6.1.192.
    pub const LINUX_6_1: FragmentationPolicy = FragmentationPolicy {
        relist: Relist::Tail,               // pages.md#relist
        no_retry: NoRetry::NotTriedOrLocal, // pages.md#no-retry
        fixes: FIXES_6_1,
        ..FragmentationPolicy::LINUX_5_14
    };
    /// Linux 6.7, of which there is no description: per-CPU lists that follow the load (pages.md#per-cpu-tuned); all
    /// else as in 6.1.
    pub const LINUX_6_7: FragmentationPolicy =
        FragmentationPolicy { per_cpu: PerCpuRules::Tuned, ..FragmentationPolicy::LINUX_6_1 };
    /// Linux 6.10, of which there is no description: strict lists in their first form, as mails tell of it
    /// (pages.md#strict-first-form, unconfirmed; what it repaired otherwise has no date).
    pub const LINUX_6_10: FragmentationPolicy = FragmentationPolicy {
        fallback: FallbackRules::StrictFirst,
        ..FragmentationPolicy::LINUX_6_7
    };
    /// Linux 6.12, by a description of 6.12.117: strict lists in two passes, and the multi-generational LRU.
    pub const LINUX_6_12: FragmentationPolicy = FragmentationPolicy {
        fallback: FallbackRules::Strict, // pages.md#fallback-strict
        lru: Lru::Generations,           // pages.md#guest-lru
        compaction: CompactionPolicy {
            moves: MoveRules::Folios, // data/kernel-states, 6.12.107
            ..FragmentationPolicy::LINUX_6_1.compaction
        },
        fixes: FIXES_6_12,
        ..FragmentationPolicy::LINUX_6_7
    };
    /// Linux 7.2, by a description of 7.2.13.
    pub const LINUX_7_2: FragmentationPolicy = FragmentationPolicy {
        lru: Lru::AgedGenerations, // pgalloc by zone in data/guests-2018
        compaction: CompactionPolicy {
            gap: Gap::Capped, // pages.md#compaction-gap: at most 32 pages
            proactiveness: PROACTIVENESS,
            marks: ProactiveMarks::Since7_2, // pages.md#proactive
            sources: SourceRules::Since7_2,  // pages.md#sources
            moves: MoveRules::Folios,        // data/kernel-states, 6.12.107
            capture: CaptureTrace::Event,    // pages.md#extfrag-event
            ..COMPACTION
        },
        no_retry: NoRetry::Local, // pages.md#no-retry
        fixes: FIXES_7_2,
        ..FragmentationPolicy::LINUX_6_12
    };
    /// Linux 7.2 with `vm.defrag_mode` (pages.md#defrag-mode), as it ships: without a DMA32 zone its allocator half
    /// does nothing (pages.md#b-16).
    pub const LINUX_7_2_DEFRAG_SHIPPED: FragmentationPolicy =
        FragmentationPolicy { spread: Spread::EveryRequest, ..FragmentationPolicy::LINUX_7_2 };
    /// Linux 7.2 with `vm.defrag_mode`, alive in every layout (pages.md#b-16): with a DMA32 zone it is what ships.
    pub const LINUX_7_2_DEFRAG: FragmentationPolicy = FragmentationPolicy {
        fixes: FIXES_7_2.with(Fixes::SPREAD_WITHOUT_DMA32),
        ..FragmentationPolicy::LINUX_7_2_DEFRAG_SHIPPED
    };

    /// Ours: the newest kernel's defrag mode, which keeps types apart on every request and produces whole blocks in
    /// advance, with all repairs. Small blocks are taken where memory is fullest, whole ones made where it is emptiest;
    /// CPUs keep little on their lists, and kswapd reclaims room for two huge pages before it leaves the rest to
    /// kcompactd (docs/decisions/0015).
    pub const NOFRAG: FragmentationPolicy = FragmentationPolicy {
        choice: Choice::FullestBlock,
        per_cpu: PerCpuRules::Single,
        compaction: CompactionPolicy {
            gap: Gap::TwiceRequest,
            sources: SourceRules::EmptiestBlock,
            ..FragmentationPolicy::LINUX_7_2.compaction
        },
        fixes: Fixes::ALL,
        ..FragmentationPolicy::LINUX_7_2_DEFRAG
    };

    /// Every preset, oldest first, ours last.
    pub const PRESETS: &'static [PolicyPreset] = {
        use Basis::{Derived, Document, Kernel, Ours};
        &[
            named("linux-4.20", Document, FragmentationPolicy::LINUX_4_20),
            named("linux-4.20+patch1", Document, FragmentationPolicy::PATCH_1),
            named("linux-4.20+patch2", Document, FragmentationPolicy::PATCHES_1_2),
            named("linux-4.20+patch3", Document, FragmentationPolicy::PATCHES_1_3),
            named("linux-4.20+patch4", Document, FragmentationPolicy::PATCHES_1_4),
            named("linux-4.20+patch5", Document, FragmentationPolicy::PATCHES_1_5),
            named("linux-5.0", Document, FragmentationPolicy::LINUX_5_0),
            named("linux-5.3", Derived, FragmentationPolicy::LINUX_5_3),
            named("linux-5.10", Kernel, FragmentationPolicy::LINUX_5_10),
            named("linux-5.14", Derived, FragmentationPolicy::LINUX_5_14),
            named("linux-6.1", Kernel, FragmentationPolicy::LINUX_6_1),
            named("linux-6.7", Derived, FragmentationPolicy::LINUX_6_7),
            named("linux-6.10", Derived, FragmentationPolicy::LINUX_6_10),
            named("linux-6.12", Kernel, FragmentationPolicy::LINUX_6_12),
            named("linux-7.2", Kernel, FragmentationPolicy::LINUX_7_2),
            named(
                "linux-7.2-defrag-shipped",
                Kernel,
                FragmentationPolicy::LINUX_7_2_DEFRAG_SHIPPED,
            ),
            named("linux-7.2-defrag", Kernel, FragmentationPolicy::LINUX_7_2_DEFRAG),
            named("nofrag", Ours, FragmentationPolicy::NOFRAG),
        ]
    };

    /// Returns the preset of this name. `linux-X.Y` means the newest rule set that is not newer; `+patchN` alone means
    /// `linux-4.20+patchN`, which is the first N patches.
    ///
    /// # Errors
    /// [`UnknownPolicy`], also for kernels before 4.20.
    pub fn preset(name: &str) -> Result<PolicyPreset, UnknownPolicy> {
        let presets = FragmentationPolicy::PRESETS;
        let is_meant = |preset: &&PolicyPreset| {
            let short = name.starts_with('+').then(|| preset.name.strip_prefix("linux-4.20"));
            short.unwrap_or(Some(preset.name)) == Some(name)
        };
        let asked = version(name);
        let not_newer =
            |preset: &&PolicyPreset| version(preset.name).is_some_and(|of| Some(of) <= asked);
        presets
            .iter()
            .find(is_meant)
            .or_else(|| presets.iter().rfind(not_newer))
            .copied()
            .ok_or(UnknownPolicy)
    }
}

const fn named(name: &'static str, basis: Basis, policy: FragmentationPolicy) -> PolicyPreset {
    PolicyPreset { name, basis, policy }
}

/// Returns the major and minor number of a name `linux-X.Y`; `None` for every other name.
fn version(name: &str) -> Option<(u32, u32)> {
    let (major, minor) = name.strip_prefix("linux-")?.split_once('.')?;
    Some((number(major)?, number(minor)?))
}

/// Parses a number written with digits alone.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::*;

    fn check_resolves(name: &str, to: Option<&str>) {
        let found = FragmentationPolicy::preset(name).ok().map(|preset| preset.name);
        assert_eq!(found, to, "{name}");
    }

    #[test]
    fn names_resolve_to_the_newest_rule_set_that_is_not_newer() {
        for preset in FragmentationPolicy::PRESETS {
            check_resolves(preset.name, Some(preset.name));
        }
        check_resolves("+patch3", Some("linux-4.20+patch3"));
        check_resolves("linux-4.20", Some("linux-4.20"));
        check_resolves("linux-5.2", Some("linux-5.0"));
        check_resolves("linux-5.9", Some("linux-5.3"));
        check_resolves("linux-5.13", Some("linux-5.10"));
        check_resolves("linux-5.19", Some("linux-5.14"));
        check_resolves("linux-6.6", Some("linux-6.1"));
        check_resolves("linux-6.9", Some("linux-6.7"));
        check_resolves("linux-6.11", Some("linux-6.10"));
        check_resolves("linux-6.18", Some("linux-6.12"));
        check_resolves("linux-7.1", Some("linux-6.12"));
        check_resolves("linux-9.0", Some("linux-7.2"));
    }

    #[test]
    fn unknown_names_list_the_presets() {
        let unknown = [
            "",
            "linux",
            "linux-",
            "linux-4.19",
            "linux-2.6",
            "linux-6",
            "linux-6.+1",
            "linux-6.12.3",
        ];
        for name in
            unknown.into_iter().chain(["+patch0", "+patch6", "patch1", "linux-7.2-nothing", "+"])
        {
            check_resolves(name, None);
        }
        let text = UnknownPolicy.to_string();
        assert!(text.ends_with("linux-7.2-defrag-shipped linux-7.2-defrag nofrag"), "{text}");
    }

    #[test]
    fn a_preset_that_neither_a_kernel_nor_the_document_judges_says_so() {
        let derived = FragmentationPolicy::PRESETS.iter().filter(|it| it.basis == Basis::Derived);
        let shown: Vec<_> = derived.map(ToString::to_string).collect();
        let names = ["linux-5.3", "linux-5.14", "linux-6.7", "linux-6.10"];
        assert_eq!(shown, names.map(|name| format!("{name} (derived)")));
        let text = UnknownPolicy.to_string();
        assert!(text.contains(" linux-5.14 (derived) linux-6.1 linux-6.7 (derived) "), "{text}");
    }

    #[test]
    fn patch_2_changes_nothing() {
        assert_eq!(FragmentationPolicy::PATCHES_1_2, FragmentationPolicy::PATCH_1);
    }

    #[test]
    fn the_patches_of_5_0_differ_from_the_design_by_the_lost_flag_alone() {
        let repaired =
            FragmentationPolicy { spread: Spread::FastPath, ..FragmentationPolicy::LINUX_5_0 };
        assert_eq!(repaired, FragmentationPolicy::PATCHES_1_4);
        assert_ne!(FragmentationPolicy::LINUX_5_0, FragmentationPolicy::PATCHES_1_4);
    }
}
