//! Results of a run of the workload.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::plan::WorkloadPlan;

/// All results of one run. Times are nanoseconds. A unit is as much as a huge page holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThpFioOutcome {
    /// The plan that the run followed.
    pub plan: WorkloadPlan,
    pub ended: Ended,
    /// The phases that were run, in order.
    pub phases: Vec<PhaseResult>,
    pub written: Written,
    /// Reads beside the touching of memory.
    pub reads: Reads,
    /// Units of memory that were touched.
    pub units: Units,
    /// `fault-base`: the whole of a unit of small pages; `None` without any.
    pub fault_base: Option<Latency>,
    /// `fault-huge`: the whole of a unit of one huge page; `None` without any.
    pub fault_huge: Option<Latency>,
    /// The first fault alone of a unit of small pages.
    pub first_base: Option<Latency>,
    /// The first fault alone of a unit of one huge page.
    pub first_huge: Option<Latency>,
    /// Cautions on the use of the figures; sentences.
    pub cautions: Vec<String>,
}

/// End of a run: complete, or its reason to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    Complete,
    /// The time that was allowed was over.
    TimeUp,
    Interrupted,
    /// Too little memory was available to go on.
    MemoryLow,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Phase {
    Write,
    /// Written data goes to the disk.
    Sync,
    #[strum(serialize = "warm up")]
    WarmUp,
    /// Memory is touched while files are read.
    Touch,
}

/// Duration and counters of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseResult {
    pub phase: Phase,
    pub seconds: f64,
    /// The kernel's counts during the phase, on the whole machine.
    pub counters: Counters,
}

/// Number and size of the files that were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Written {
    /// Whole files.
    pub files: u64,
    pub bytes: u64,
}

/// Reads of the files, and the time of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reads {
    /// The time of a read of 4 KiB; `None` without any.
    pub latency: Option<Latency>,
}

/// Units of memory that were touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Units {
    /// Units of one huge page.
    pub huge: u64,
    /// Units of smaller pages.
    pub base: u64,
    /// Number of units by the pages that their first fault brought in.
    pub by_pages_at_once: BTreeMap<usize, u64>,
    /// `AnonHugePages` of the process when all had been touched, in KiB: the kernel's own count. The kernel may have
    /// made more of them meanwhile, or split some.
    pub anon_huge_kib: Option<u64>,
}

impl Units {
    /// Returns `Percentage huge`; `None` without any unit.
    pub(crate) fn percent_huge(&self) -> Option<f64> {
        let all = self.huge + self.base;
        (all > 0).then(|| 100.0 * self.huge as f64 / all as f64)
    }
}

/// Times in nanoseconds, each to three digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// Number of samples; positive.
    pub samples: u64,
    pub mean: f64,
    pub min: u64,
    /// Half of the times are at most this.
    pub p50: u64,
    /// Nine in ten times are at most this.
    pub p90: u64,
    /// All times but one in a hundred are at most this.
    pub p99: u64,
    /// All times but one in a thousand are at most this.
    pub p999: u64,
    pub max: u64,
}

impl Latency {
    /// Summarizes the times; `None` without a sample: a mean of nothing is not zero.
    pub(super) fn of(times: &Histogram<u64>) -> Option<Latency> {
        let at = |quantile| times.value_at_quantile(quantile);
        (!times.is_empty()).then(|| Latency {
            samples: times.len(),
            mean: times.mean(),
            min: times.min(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: times.max(),
        })
    }
}

/// Returns an empty histogram for times from a nanosecond to a minute; longer ones count as that.
pub(super) fn histogram() -> Histogram<u64> {
    const MINUTE: u64 = 60_000_000_000;
    Histogram::new_with_bounds(1, MINUTE, 3).expect("the bounds are those of a histogram")
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
