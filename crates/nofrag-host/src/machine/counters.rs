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

/// Declares the counters of the report, with the sentences' subjects and the events that they count; those that a
/// kernel does not have are left out.
macro_rules! counters {
    ($($(#[$named:meta])* $name:ident: $subject:expr, $what:literal;)*) => {
        /// The name of a counter in `/proc/vmstat`, or of a sum.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case", const_into_str)]
        pub enum Name { $($(#[$named])* $name),* }

        const SHOWN: &[(Option<Subject>, Name, &str)] = &[$(($subject, Name::$name, $what)),*];
    };
}

counters! {
    CompactStall: Some(Compaction), "requests that waited for compaction";
    CompactSuccess: Some(Compaction), "compactions for them that made a block";
    CompactFail: Some(Compaction), "compactions for them that did not";
    CompactDaemonWake: Some(Compaction), "times kcompactd was woken";
    CompactMigrateScanned: None, "pages looked at for moving";
    CompactIsolated: None, "pages taken out to be moved or filled";
    PgmigrateSuccess: Some(Compaction), "pages moved";
    PgmigrateFail: Some(Compaction), "pages that could not be moved";
    #[serde(rename = "allocstall_*")]
    #[strum(serialize = "allocstall_*")]
    Allocstall: Some(Reclaim), "requests that waited for reclaim";
    PgstealDirect: Some(Reclaim), "pages reclaimed by those that waited";
    PgstealKswapd: Some(Reclaim), "pages reclaimed by kswapd";
    KswapdLowWmarkHitQuickly: Some(Reclaim), "times kswapd had to begin again soon, at low";
    KswapdHighWmarkHitQuickly: None, "times kswapd had to begin again soon, at high";
    ThpFaultAlloc: Some(HugePages), "huge pages given to processes on first touch";
    ThpFaultFallback: Some(HugePages), "times small pages were given instead";
    ThpCollapseAlloc: Some(HugePages), "huge pages made later by khugepaged";
    ThpCollapseAllocFailed: Some(HugePages), "times khugepaged found no block";
    ThpSplitPage: None, "huge pages split";
    HtlbBuddyAllocFail: Some(Pools), "pages that a hugetlbfs pool asked for in vain";
    OomKill: Some(Reclaim), "processes killed for want of memory";
}

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
