//! The kernel's counts since boot that concern fragmentation and its price.

use serde::Serialize;

use crate::snapshot::Counters;

use Subject::{Compaction, HugePages, Pools, Reclaim};

/// A counter of `/proc/vmstat`, or the sum of several.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counter {
    /// Name of the counter; a sum of several has a star: `allocstall_*`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub name: Name,
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

/// The name of a counter in `/proc/vmstat`, or of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Name {
    CompactStall,
    CompactSuccess,
    CompactFail,
    CompactDaemonWake,
    CompactMigrateScanned,
    CompactIsolated,
    PgmigrateSuccess,
    PgmigrateFail,
    #[serde(rename = "allocstall_*")]
    #[strum(serialize = "allocstall_*")]
    Allocstall,
    PgstealDirect,
    PgstealKswapd,
    KswapdLowWmarkHitQuickly,
    KswapdHighWmarkHitQuickly,
    ThpFaultAlloc,
    ThpFaultFallback,
    ThpCollapseAlloc,
    ThpCollapseAllocFailed,
    ThpSplitPage,
    HtlbBuddyAllocFail,
    OomKill,
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
const SHOWN: [(Option<Subject>, Name, &str); 20] = [
    (Some(Compaction), Name::CompactStall, "requests that waited for compaction"),
    (Some(Compaction), Name::CompactSuccess, "compactions for them that made a block"),
    (Some(Compaction), Name::CompactFail, "compactions for them that did not"),
    (Some(Compaction), Name::CompactDaemonWake, "times kcompactd was woken"),
    (None, Name::CompactMigrateScanned, "pages looked at for moving"),
    (None, Name::CompactIsolated, "pages taken out to be moved or filled"),
    (Some(Compaction), Name::PgmigrateSuccess, "pages moved"),
    (Some(Compaction), Name::PgmigrateFail, "pages that could not be moved"),
    (Some(Reclaim), Name::Allocstall, "requests that waited for reclaim"),
    (Some(Reclaim), Name::PgstealDirect, "pages reclaimed by those that waited"),
    (Some(Reclaim), Name::PgstealKswapd, "pages reclaimed by kswapd"),
    (Some(Reclaim), Name::KswapdLowWmarkHitQuickly, "times kswapd had to begin again soon, at low"),
    (None, Name::KswapdHighWmarkHitQuickly, "times kswapd had to begin again soon, at high"),
    (Some(HugePages), Name::ThpFaultAlloc, "huge pages given to processes on first touch"),
    (Some(HugePages), Name::ThpFaultFallback, "times small pages were given instead"),
    (Some(HugePages), Name::ThpCollapseAlloc, "huge pages made later by khugepaged"),
    (Some(HugePages), Name::ThpCollapseAllocFailed, "times khugepaged found no block"),
    (None, Name::ThpSplitPage, "huge pages split"),
    (Some(Pools), Name::HtlbBuddyAllocFail, "pages that a hugetlbfs pool asked for in vain"),
    (Some(Reclaim), Name::OomKill, "processes killed for want of memory"),
];

/// Returns the counters of the report.
pub(super) fn survey(counters: &Counters, uptime_seconds: Option<f64>) -> Vec<Counter> {
    let hours = uptime_seconds.filter(|&seconds| seconds > 0.0).map(|seconds| seconds / 3600.0);
    let known = SHOWN.iter().filter_map(|&(subject, name, what)| {
        let value = counters.total(name.into_str())?;
        let per_hour = hours.map(|hours| value as f64 / hours);
        Some(Counter { name, what, value, per_hour, subject })
    });
    known.collect()
}
