//! The kernel's counts since boot that concern fragmentation and its price.

use serde::Serialize;

use crate::snapshot::Counters;

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
}

/// The counters in the report, with the events that they count; those that a kernel does not have are left out.
const SHOWN: [(&str, &str); 20] = [
    ("compact_stall", "requests that waited for compaction"),
    ("compact_success", "compactions for them that made a block"),
    ("compact_fail", "compactions for them that did not"),
    ("compact_daemon_wake", "times kcompactd was woken"),
    ("compact_migrate_scanned", "pages looked at for moving"),
    ("compact_isolated", "pages taken out to be moved or filled"),
    ("pgmigrate_success", "pages moved"),
    ("pgmigrate_fail", "pages that could not be moved"),
    ("allocstall_*", "requests that waited for reclaim"),
    ("pgsteal_direct", "pages reclaimed by those that waited"),
    ("pgsteal_kswapd", "pages reclaimed by kswapd"),
    ("kswapd_low_wmark_hit_quickly", "times kswapd had to begin again soon, at low"),
    ("kswapd_high_wmark_hit_quickly", "times kswapd had to begin again soon, at high"),
    ("thp_fault_alloc", "huge pages given to processes on first touch"),
    ("thp_fault_fallback", "times small pages were given instead"),
    ("thp_collapse_alloc", "huge pages made later by khugepaged"),
    ("thp_collapse_alloc_failed", "times khugepaged found no block"),
    ("thp_split_page", "huge pages split"),
    ("htlb_buddy_alloc_fail", "pages that a hugetlbfs pool asked for in vain"),
    ("oom_kill", "processes killed for want of memory"),
];

/// Returns the counter of this name, or the sum of those that begin with the name's part before its star; `None`
/// without any.
pub(super) fn value(counters: &Counters, name: &str) -> Option<u64> {
    let Some(stem) = name.strip_suffix('*') else { return counters.get(name) };
    let of_stem = counters.iter().filter(|(name, _)| name.starts_with(stem));
    of_stem.map(|(_, value)| value).reduce(u64::saturating_add)
}

/// Returns the counters of the report.
pub(super) fn survey(counters: &Counters, uptime_seconds: Option<f64>) -> Vec<Counter> {
    let hours = uptime_seconds.filter(|&seconds| seconds > 0.0).map(|seconds| seconds / 3600.0);
    let known = SHOWN.iter().filter_map(|&(name, what)| {
        let value = value(counters, name)?;
        let per_hour = hours.map(|hours| value as f64 / hours);
        Some(Counter { name, what, value, per_hour })
    });
    known.collect()
}
