//! The settings of the recorded host, which every policy is replayed with.

use nofrag::page::{
    Boost, FragmentationPolicy, MemoryMap, MinFree, PageAllocator, PageConfig, ZoneKind,
};
use nofrag_host::snapshot::Snapshot;

use super::super::ReplayError;
use super::super::settings::{Setting, Settings};

const PAGE_KIB: u64 = 4;

/// Settings of the recorded host; the kernel's default where the snapshot does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostSettings {
    /// Memory kept free on the recorded host.
    min_free: MinFree,
    /// The kernel's rule that gives this amount, used for other sizes of memory; `Pages` if no rule does.
    rule: MinFree,
    watermark_scale_factor: Option<u32>,
    lowmem_reserve_ratio: Option<[u32; ZoneKind::COUNT]>,
    boost_factor: Option<u32>,
    proactiveness: Option<u8>,
    extfrag_threshold: Option<u16>,
}

impl HostSettings {
    pub(super) fn of(
        snapshot: &Snapshot<'_>,
        map: &MemoryMap,
    ) -> Result<HostSettings, ReplayError> {
        let sysctl = &snapshot.sysctl;
        let small = |name: &str| sysctl.get(name).and_then(|value| u32::try_from(value).ok());
        let mut settings = HostSettings {
            watermark_scale_factor: small("watermark_scale_factor")
                .filter(|f| (1..=3000).contains(f)),
            lowmem_reserve_ratio: ratio(snapshot),
            boost_factor: small("watermark_boost_factor"),
            proactiveness: small("compaction_proactiveness")
                .and_then(|value| u8::try_from(value).ok()),
            extfrag_threshold: small("extfrag_threshold")
                .and_then(|value| u16::try_from(value).ok()),
            ..HostSettings::default()
        };
        if let Some(kib) = sysctl.get("min_free_kbytes") {
            let pages = kib / PAGE_KIB;
            settings.min_free = MinFree::Pages(pages);
            settings.rule = settings.rule_for(pages, map)?;
        }
        Ok(settings)
    }

    /// Returns the kernel's rule by which `pages` pages are kept free, to within a tenth: watermarks are set early,
    /// while the amount of memory still changes.
    fn rule_for(&self, pages: u64, map: &MemoryMap) -> Result<MinFree, ReplayError> {
        for rule in [MinFree::Formula, MinFree::HugePages] {
            let config = PageConfig {
                min_free: rule,
                ..PageConfig::new(map.clone(), FragmentationPolicy::LINUX_6_1)
            };
            let fresh = PageAllocator::new(&config)
                .map_err(|error| ReplayError::Host(format!("the host's memory: {error}")))?;
            let by_rule: u64 = fresh.zones().map(|zone| zone.watermarks.min).sum();
            if by_rule.abs_diff(pages) <= pages / 10 {
                return Ok(rule);
            }
        }
        Ok(MinFree::Pages(pages))
    }

    /// Returns the host's settings, with those of `asked` in place of its own.
    pub(super) fn with(&self, asked: &Settings) -> HostSettings {
        let small =
            |setting| asked.get(setting).map(|value| u32::try_from(value).unwrap_or(u32::MAX));
        let pages = asked.get(Setting::MinFree).map(|kib| MinFree::Pages(kib / PAGE_KIB));
        HostSettings {
            min_free: pages.unwrap_or(self.min_free),
            rule: pages.unwrap_or(self.rule),
            watermark_scale_factor: small(Setting::Scale).or(self.watermark_scale_factor),
            lowmem_reserve_ratio: self.lowmem_reserve_ratio,
            boost_factor: small(Setting::Boost).or(self.boost_factor),
            proactiveness: small(Setting::Proactiveness)
                .map(|percent| percent.min(100) as u8)
                .or(self.proactiveness),
            extfrag_threshold: small(Setting::ExtfragThreshold)
                .map(|value| value.min(1000) as u16)
                .or(self.extfrag_threshold),
        }
    }

    /// Returns a policy with this host's settings.
    pub(super) fn policy(&self, policy: FragmentationPolicy) -> FragmentationPolicy {
        let mut policy = policy;
        if let (Some(boost), Some(factor)) = (&mut policy.boost, self.boost_factor) {
            *boost = Boost { factor };
        }
        let compaction = &mut policy.compaction;
        if let (Some(ours), Some(set)) = (&mut compaction.proactiveness, self.proactiveness) {
            *ours = set.min(100);
        }
        if let Some(threshold) = self.extfrag_threshold {
            compaction.extfrag_threshold = threshold.min(1000);
        }
        policy
    }

    /// Returns the configuration of an allocator of this host, with memory of a size in percent.
    pub(super) fn config(
        &self,
        map: MemoryMap,
        policy: FragmentationPolicy,
        memory_percent: u32,
    ) -> PageConfig {
        let defaults = PageConfig::new(map, policy);
        PageConfig {
            min_free: if memory_percent == 100 { self.min_free } else { self.rule },
            watermark_scale_factor: self
                .watermark_scale_factor
                .unwrap_or(defaults.watermark_scale_factor),
            lowmem_reserve_ratio: self
                .lowmem_reserve_ratio
                .unwrap_or(defaults.lowmem_reserve_ratio),
            ..defaults
        }
    }
}

/// Returns `lowmem_reserve_ratio` by kind: the setting has a number for each zone that the kernel knows, lowest first.
fn ratio(snapshot: &Snapshot<'_>) -> Option<[u32; ZoneKind::COUNT]> {
    let set = snapshot.sysctl.list("lowmem_reserve_ratio")?;
    let node = snapshot.zones.first()?.zone.node;
    let names = snapshot.zones.iter().filter(|zone| zone.zone.node == node);
    let mut ratio = [0; ZoneKind::COUNT];
    for (zone, value) in names.zip(set) {
        if let Some(kind) = zone.zone.kind() {
            ratio[kind.index()] = u32::try_from(value).unwrap_or(u32::MAX);
        }
    }
    Some(ratio)
}
