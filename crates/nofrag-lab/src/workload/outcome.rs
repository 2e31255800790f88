//! What a run of the workload found.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::plan::Plan;

/// Everything that one run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThpFioOutcome {
    /// What was to be done.
    pub plan: Plan,
    /// How it ended.
    pub ended: Ended,
    /// The phases that were run, in order.
    pub phases: Vec<PhaseResult>,
    /// What was written.
    pub written: Written,
    /// What was read meanwhile.
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
    /// What to know before the figures are used; sentences.
    pub cautions: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Everything planned was done.
    Complete,
    /// The time that was allowed was over.
    TimeUp,
    /// It was interrupted.
    Interrupted,
    /// Too little memory was available to go on.
    MemoryLow,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Files are written.
    Write,
    /// What is written goes to the disk.
    Sync,
    /// Files are read.
    WarmUp,
    /// Memory is touched while files are read.
    Touch,
}

impl Phase {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Write => "write",
            Phase::Sync => "sync",
            Phase::WarmUp => "warm up",
            Phase::Touch => "touch",
        }
    }
}

/// What happened in a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// Which one.
    pub phase: Phase,
    /// How long it took.
    pub seconds: f64,
    /// What the kernel counted meanwhile, on the whole machine.
    pub counters: Counters,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Whole files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    /// The time of a read of 4 KiB; `None` without any.
    pub latency: Option<Latency>,
}

/// Units that were touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// Of one huge page.
    pub huge: u64,
    /// Of smaller ones.
    pub base: u64,
    /// How many there are by the pages that their first fault brought in.
    pub by_pages_at_once: BTreeMap<usize, u64>,
    /// `AnonHugePages` of the process when all had been touched, in KiB: what the kernel itself calls huge. It may have
    /// made more of them meanwhile, or split some.
    pub anon_huge_kib: Option<u64>,
}

impl Units {
    /// `Percentage huge`; `None` without any unit.
    #[must_use]
    pub fn percent_huge(&self) -> Option<f64> {
        let all = self.huge + self.base;
        (all > 0).then(|| 100.0 * self.huge as f64 / all as f64)
    }
}

/// Times in nanoseconds, each to three digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many times there are; more than none.
    pub samples: u64,
    /// Their mean.
    pub mean: f64,
    /// The least.
    pub min: u64,
    /// Half are at most this.
    pub p50: u64,
    /// Nine of ten are.
    pub p90: u64,
    /// All but one in a hundred are.
    pub p99: u64,
    /// All but one in a thousand are.
    pub p999: u64,
    /// The greatest.
    pub max: u64,
}

impl Latency {
    /// `None` without a sample: a mean of nothing is not zero.
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

/// For times from a nanosecond to a minute; longer ones count as that.
pub(super) fn histogram() -> Histogram<u64> {
    const MINUTE: u64 = 60_000_000_000;
    Histogram::new_with_bounds(1, MINUTE, 3).expect("the bounds are those of a histogram")
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
