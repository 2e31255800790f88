//! Names for policies: the kernels, and the series of 2018 patch by patch.
//!
//! A preset is what that kernel does, with its mistakes. Where the source has no date for a repair, the preset before
//! the first kernel that is known to have it lacks it. Sections are those of spec/pages.md.
//!
//! Crashes are not kept: a request that no zone may serve fails everywhere (§13.4, B-2, which is of 5.0). And what a
//! policy cannot name is left out: kernels for machines with discontiguous memory but one node had a boost factor of 0
//! (§13.4, B-7), which is [`PageAllocator::set_boost_factor`](super::PageAllocator::set_boost_factor).

use core::fmt;

use super::policy::{
    Boost, CaptureTrace, Choice, CompactionPolicy, FallbackRules, Fixes, FragmentationPolicy, Gap,
    KswapdFlag, MoveRules, PerCpuRules, ProactiveMarks, Relist, SourceRules, Spread, Stall,
};
use crate::units::Nanos;

/// A name for a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyPreset {
    /// The name it resolved to.
    pub name: &'static str,
    /// What it stands for.
    pub policy: FragmentationPolicy,
}

/// There is no preset of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such preset; the presets are")?;
        FragmentationPolicy::PRESETS.iter().try_for_each(|preset| write!(f, " {}", preset.name))
    }
}

impl core::error::Error for UnknownPolicy {}

/// Compaction before it worked ahead (5.9, §4.5), with the gap of 6.1 and 6.12 (§4.2): no older one is known.
const COMPACTION: CompactionPolicy = CompactionPolicy {
    gap: Gap::TwiceRequest,
    proactiveness: None,
    marks: ProactiveMarks::Until6_12,
    extfrag_threshold: 500, // §4.2
    sources: SourceRules::Until6_12,
    moves: MoveRules::PageByPage, // §15, exact states of 6.1
    capture: CaptureTrace::Silent,
};

/// `compaction_proactiveness` by default (§4.5).
const PROACTIVENESS: Option<u8> = Some(20);

/// The upper end of the reserve's formula in 4.20, in KiB (§2.2), and the one that the formula has today.
const MIN_FREE_LIMIT_4_20: u32 = 65_536;
const MIN_FREE_LIMIT: u32 = 262_144;

/// 5.3: slabs shrink in boosted runs (B-8); patch 1 works again (B-1, April 2019), which is [`Spread::FastPath`].
const FIXES_5_3: Fixes = Fixes::SLAB_SHRINKS;

/// 6.1: all of §13.4 (§0.3), but for what is said to be later below. Order-0 requests are tested again if they may not
/// wait (§2.3).
const FIXES_6_1: Fixes = FIXES_5_3
    .with(Fixes::ORDER_GUARD)
    .with(Fixes::WAKE_AFTER_UNLOCK)
    .with(Fixes::EARLY_BOOT)
    .with(Fixes::SMALL_ZONE)
    .with(Fixes::BOOST_ZEROED)
    .with(Fixes::ATOMIC_RETEST)
    .with(Fixes::WAKE_IF_BOOSTED)
    .with(Fixes::KSWAPD_WITHOUT_DMA32);

/// 6.12: refills that remember where they looked (B-18), no wake without permission (B-12, "not in 6.1.192"), kernels
/// that write a dump do not boost (B-22), and every order-0 request with `__GFP_HIGH` is tested again (§2.3).
const FIXES_6_12: Fixes = FIXES_6_1
    .without(Fixes::ATOMIC_RETEST)
    .with(Fixes::HIGH_RETEST)
    .with(Fixes::STICKY_REFILL)
    .with(Fixes::WAKE_PERMISSION)
    .with(Fixes::KDUMP_EXEMPT);

/// 7.2: boosted runs do not count as failures (§3.4, step 7), nodes with an awake kswapd are skipped (B-25), callers
/// that cannot reclaim get memory in defrag mode (§5.2, step 5); kernels that write a dump boost again (B-22).
const FIXES_7_2: Fixes = FIXES_6_12
    .without(Fixes::KDUMP_EXEMPT)
    .with(Fixes::BOOST_NOT_COUNTED)
    .with(Fixes::SKIP_AWAKE_NODES)
    .with(Fixes::DEFRAG_ATOMIC);

impl FragmentationPolicy {
    /// Linux 4.20, before the series ("vanilla"): loose lists (§2.6), re-listing at the head (§2.4), per-CPU lists of
    /// single pages (§2.9), neither spread nor boost nor wait (§0.3).
    pub const LINUX_4_20: FragmentationPolicy = FragmentationPolicy {
        fallback: FallbackRules::Loose,
        relist: Relist::Head,
        spread: Spread::Off,
        kswapd_flag: KswapdFlag::Absent,
        boost: None,
        stall: None,
        min_free_limit_kib: MIN_FREE_LIMIT_4_20,
        per_cpu: PerCpuRules::Single,
        compaction: COMPACTION,
        choice: Choice::Recent,
        fixes: Fixes::NONE,
    };
    /// Patch 1 as designed: spread over zones (§3.1).
    pub const PATCH_1: FragmentationPolicy =
        FragmentationPolicy { spread: Spread::FastPath, ..FragmentationPolicy::LINUX_4_20 };
    /// Patches 1 and 2: the second renames a field and adds accessors (§3.2), so that nothing differs.
    pub const PATCHES_1_2: FragmentationPolicy = FragmentationPolicy::PATCH_1;
    /// Patches 1 to 3 as designed: deep code knows whether kswapd may be woken (§3.3), and patch 1 stays alive (it did
    /// not in the posted form, trap 2).
    pub const PATCHES_1_3: FragmentationPolicy = FragmentationPolicy {
        kswapd_flag: KswapdFlag::Carried,
        ..FragmentationPolicy::PATCHES_1_2
    };
    /// Patches 1 to 4 as designed: boost, by a factor of 15000 (§3.4). Boosted runs spare the slabs (§3.6).
    pub const PATCHES_1_4: FragmentationPolicy = FragmentationPolicy {
        boost: Some(Boost { factor: 15_000 }),
        ..FragmentationPolicy::PATCHES_1_3
    };
    /// Patches 1 to 5 as designed: waits of at most HZ/50 before blocks below order 4 are broken into (§3.5).
    pub const PATCHES_1_5: FragmentationPolicy = FragmentationPolicy {
        stall: Some(Stall { order: 4, bound: Nanos(20_000_000) }),
        ..FragmentationPolicy::PATCHES_1_4
    };
    /// Linux 5.0 as shipped: patch 3 had switched patch 1 off (§1, trap 2).
    pub const LINUX_5_0: FragmentationPolicy =
        FragmentationPolicy { spread: Spread::Lost, ..FragmentationPolicy::PATCHES_1_4 };
    /// Linux 5.3: patch 1 works, and slabs shrink in boosted runs (§13.4, B-1 and B-8).
    pub const LINUX_5_3: FragmentationPolicy = FragmentationPolicy {
        spread: Spread::FastPath,
        fixes: FIXES_5_3,
        ..FragmentationPolicy::PATCHES_1_4
    };
    /// Linux 5.14: per-CPU lists of more orders (§2.9).
    pub const LINUX_5_14: FragmentationPolicy =
        FragmentationPolicy { per_cpu: PerCpuRules::Orders, ..FragmentationPolicy::LINUX_5_3 };
    /// Linux 6.1: re-listing at the tail (§2.4), more orders on per-CPU lists (§2.9), compaction that works ahead
    /// (§4.5), and the repairs of §13.4.
    pub const LINUX_6_1: FragmentationPolicy = FragmentationPolicy {
        relist: Relist::Tail,
        min_free_limit_kib: MIN_FREE_LIMIT,
        compaction: CompactionPolicy { proactiveness: PROACTIVENESS, ..COMPACTION },
        fixes: FIXES_6_1,
        ..FragmentationPolicy::LINUX_5_14
    };
    /// Linux 6.7: per-CPU lists that follow the load (§2.9).
    pub const LINUX_6_7: FragmentationPolicy =
        FragmentationPolicy { per_cpu: PerCpuRules::Tuned, ..FragmentationPolicy::LINUX_6_1 };
    /// Linux 6.10: strict lists in their first form (§2.7, history; what it repaired otherwise has no date).
    pub const LINUX_6_10: FragmentationPolicy = FragmentationPolicy {
        fallback: FallbackRules::StrictFirst,
        ..FragmentationPolicy::LINUX_6_7
    };
    /// Linux 6.12: strict lists in two passes (§2.7).
    pub const LINUX_6_12: FragmentationPolicy = FragmentationPolicy {
        fallback: FallbackRules::Strict,
        per_cpu: PerCpuRules::Tuned,
        compaction: CompactionPolicy {
            moves: MoveRules::Folios, // exact states of 6.12
            ..FragmentationPolicy::LINUX_6_1.compaction
        },
        fixes: FIXES_6_12,
        ..FragmentationPolicy::LINUX_6_1
    };
    /// Linux 7.2: a gap of at most 32 pages, other sources and other marks for compaction (§4.2, §4.3, §4.5).
    pub const LINUX_7_2: FragmentationPolicy = FragmentationPolicy {
        compaction: CompactionPolicy {
            gap: Gap::Capped,
            proactiveness: PROACTIVENESS,
            marks: ProactiveMarks::Since7_2,
            sources: SourceRules::Since7_2,
            moves: MoveRules::Folios,
            capture: CaptureTrace::Event,
            ..COMPACTION
        },
        fixes: FIXES_7_2,
        ..FragmentationPolicy::LINUX_6_12
    };
    /// Linux 7.2 with `vm.defrag_mode`, as it ships: without a DMA32 zone its allocator half does nothing (§3.1, B-16).
    pub const LINUX_7_2_DEFRAG_SHIPPED: FragmentationPolicy =
        FragmentationPolicy { spread: Spread::EveryRequest, ..FragmentationPolicy::LINUX_7_2 };
    /// Linux 7.2 with `vm.defrag_mode` (§5.2), alive in every layout (B-16).
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
    pub const PRESETS: &'static [PolicyPreset] = &[
        named("linux-4.20", FragmentationPolicy::LINUX_4_20),
        named("linux-4.20+patch1", FragmentationPolicy::PATCH_1),
        named("linux-4.20+patch2", FragmentationPolicy::PATCHES_1_2),
        named("linux-4.20+patch3", FragmentationPolicy::PATCHES_1_3),
        named("linux-4.20+patch4", FragmentationPolicy::PATCHES_1_4),
        named("linux-4.20+patch5", FragmentationPolicy::PATCHES_1_5),
        named("linux-5.0", FragmentationPolicy::LINUX_5_0),
        named("linux-5.3", FragmentationPolicy::LINUX_5_3),
        named("linux-5.14", FragmentationPolicy::LINUX_5_14),
        named("linux-6.1", FragmentationPolicy::LINUX_6_1),
        named("linux-6.7", FragmentationPolicy::LINUX_6_7),
        named("linux-6.10", FragmentationPolicy::LINUX_6_10),
        named("linux-6.12", FragmentationPolicy::LINUX_6_12),
        named("linux-7.2", FragmentationPolicy::LINUX_7_2),
        named("linux-7.2-defrag-shipped", FragmentationPolicy::LINUX_7_2_DEFRAG_SHIPPED),
        named("linux-7.2-defrag", FragmentationPolicy::LINUX_7_2_DEFRAG),
        named("nofrag", FragmentationPolicy::NOFRAG),
    ];

    /// The preset of this name. `linux-X.Y` means the newest rule set that is not newer; `+patchN` alone means
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

const fn named(name: &'static str, policy: FragmentationPolicy) -> PolicyPreset {
    PolicyPreset { name, policy }
}

/// The kernel that a name is the version of, and nothing more.
fn version(name: &str) -> Option<(u32, u32)> {
    let (major, minor) = name.strip_prefix("linux-")?.split_once('.')?;
    Some((number(major)?, number(minor)?))
}

/// A number written with digits alone.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

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
        check_resolves("linux-5.13", Some("linux-5.3"));
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
