//! The kernel's counts since boot that concern fragmentation and its price.

use serde::Serialize;

use crate::snapshot::Counters;

use Subject::{Compaction, HugePages, Pools, Reclaim};

/// A counter of `/proc/vmstat`, or the sum of several.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counter {
    /// Name of the counter; a sum of several has a star: `allocstall_*`.
    pub name: &'static str,
    /// The counted events, in words.
    pub what: &'static str,
    /// Count since boot.
    pub value: u64,
    /// Count per hour since boot; `null` where the time since boot is not known.
    pub per_hour: Option<f64>,
    /// The subject of the sentence in which the counter stands; `None` for one that only tables have.
    #[serde(skip)]
    pub subject: Option<Subject>,
}

/// A subject of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(const_into_str)]
pub enum Subject {
    Compaction,
    Reclaim,
    #[strum(serialize = "Huge pages")]
    HugePages,
    Pools,
}

impl Subject {
    /// All subjects, in the order in which a text has them.
    pub const ALL: &[Subject] = <Subject as strum::VariantArray>::VARIANTS;
}

/// The counters in the report, with their subjects and the events that they count; those that a kernel does not have
/// are left out.
const SHOWN: [(Option<Subject>, &str, &str); 20] = [
    (Some(Compaction), "compact_stall", "requests that waited for compaction"),
    (Some(Compaction), "compact_success", "compactions for them that made a block"),
    (Some(Compaction), "compact_fail", "compactions for them that did not"),
    (Some(Compaction), "compact_daemon_wake", "times kcompactd was woken"),
    (None, "compact_migrate_scanned", "pages looked at for moving"),
    (None, "compact_isolated", "pages taken out to be moved or filled"),
    (Some(Compaction), "pgmigrate_success", "pages moved"),
    (Some(Compaction), "pgmigrate_fail", "pages that could not be moved"),
    (Some(Reclaim), "allocstall_*", "requests that waited for reclaim"),
    (Some(Reclaim), "pgsteal_direct", "pages reclaimed by those that waited"),
    (Some(Reclaim), "pgsteal_kswapd", "pages reclaimed by kswapd"),
    (Some(Reclaim), "kswapd_low_wmark_hit_quickly", "times kswapd had to begin again soon, at low"),
    (None, "kswapd_high_wmark_hit_quickly", "times kswapd had to begin again soon, at high"),
    (Some(HugePages), "thp_fault_alloc", "huge pages given to processes on first touch"),
    (Some(HugePages), "thp_fault_fallback", "times small pages were given instead"),
    (Some(HugePages), "thp_collapse_alloc", "huge pages made later by khugepaged"),
    (Some(HugePages), "thp_collapse_alloc_failed", "times khugepaged found no block"),
    (None, "thp_split_page", "huge pages split"),
    (Some(Pools), "htlb_buddy_alloc_fail", "pages that a hugetlbfs pool asked for in vain"),
    (Some(Reclaim), "oom_kill", "processes killed for want of memory"),
];

/// Returns the counters of the report.
pub(super) fn survey(counters: &Counters, uptime_seconds: Option<f64>) -> Vec<Counter> {
    let hours = uptime_seconds.filter(|&seconds| seconds > 0.0).map(|seconds| seconds / 3600.0);
    let known = SHOWN.iter().filter_map(|&(subject, name, what)| {
        let value = counters.total(name)?;
        let per_hour = hours.map(|hours| value as f64 / hours);
        Some(Counter { name, what, value, per_hour, subject })
    });
    known.collect()
}
