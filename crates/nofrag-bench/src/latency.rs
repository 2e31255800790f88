//! The time of single allocations, whose tail a mean hides.
//!
//! Each allocation of the replacements is timed by itself, so each figure includes the cost of reading the clock twice,
//! which the table shows as a row of its own and nothing subtracts.

use crate::contest::{Board, Contestant, Effort, Outcome, TimeBox, interleave};
use crate::peers::{Peer, Space};
use crate::record::{Group, Measure, Record, Records};
use crate::speed::{PAGES, build};
use crate::trace::Churn;
use hdrhistogram::Histogram;
use std::hint::black_box;
use std::time::Instant;

/// Live allocations throughout the table of latencies.
pub const LIVE: u32 = 100_000;

pub const WORKLOAD: &str = "one allocation of 1..64 pages, live 100000";

/// The row of the clock's own cost.
pub const CLOCK: &str = "(reading the clock)";

/// Significant digits of a histogram: a thousandth is precise enough for a table.
const DIGITS: u8 = 3;

/// Longest time that is told apart: ten seconds.
const LONGEST_NS: u64 = 10_000_000_000;

/// Nanoseconds at some points of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Percentiles {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Percentiles {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64;
        Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: histogram.max() as f64 }
    }

    /// Returns the two percentiles between which a bound is set, and their ratio.
    pub(crate) fn as_median_and_tail(self) -> Vec<(Measure, f64)> {
        let ratio = self.p999 / self.p50;
        let clocks = [(Measure::P50Ns, self.p50), (Measure::P999Ns, self.p999)];
        clocks.into_iter().chain([(Measure::TailOverMedian, ratio)]).collect()
    }

    fn as_samples(self) -> Vec<(Measure, f64)> {
        vec![
            (Measure::P50Ns, self.p50),
            (Measure::P99Ns, self.p99),
            (Measure::P999Ns, self.p999),
            (Measure::MaxNs, self.max),
        ]
    }
}

pub(crate) fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_NS, DIGITS).expect("the limits are within the histogram's")
}

/// Runs one round of one contestant.
pub fn round<P: Peer>(
    make: &impl Fn(Space) -> P,
    churn: &Churn,
    effort: &Effort,
) -> Outcome<Percentiles> {
    let mut peer = make(Space { pages: PAGES, live: churn.live });
    let mut live = match build(&mut peer, churn, effort) {
        Ok(live) => live,
        Err(stop) => return Outcome::Nothing(format!("{stop} (building)")),
    };
    let mut histogram = empty_histogram();
    let clock = TimeBox::open(effort.round);
    for (done, replacement) in churn.replacements.iter().enumerate() {
        if done % 64 == 0 && clock.is_over() {
            let asked = churn.replacements.len();
            let note = format!("{done} of {asked} allocations in {:?}", effort.round);
            return Outcome::Partial(Percentiles::of(&histogram), note);
        }
        let handle = &mut live[replacement.slot as usize];
        if !peer.free(*handle) {
            return Outcome::Nothing("fails: refuses to free what it handed out".to_owned());
        }
        let began = Instant::now();
        let found = black_box(peer.alloc(replacement.size));
        let elapsed = began.elapsed();
        histogram.saturating_record(elapsed.as_nanos() as u64);
        match found {
            Some(new) => *handle = new,
            None => return Outcome::Nothing("fails: refuses a request".to_owned()),
        }
    }
    Outcome::Whole(Percentiles::of(&histogram))
}

/// Measures the cost of reading the clock twice with nothing in between.
fn clock_cost() -> Percentiles {
    let mut histogram = empty_histogram();
    for _ in 0..1_000_000 {
        let began = Instant::now();
        let elapsed = black_box(began).elapsed();
        histogram.saturating_record(elapsed.as_nanos() as u64);
    }
    Percentiles::of(&histogram)
}

/// Runs the rounds of all contestants.
pub fn run(
    records: &mut Records,
    contestants: &[Box<dyn Contestant>],
    effort: &Effort,
    seed: u64,
    progress: &dyn Fn(&str),
) {
    for (measure, cost) in clock_cost().as_samples() {
        records.0.push(Record {
            group: Group::Latency,
            workload: WORKLOAD.to_owned(),
            contestant: CLOCK.to_owned(),
            measure: Some(measure),
            samples: vec![cost],
            note: Some("included in each row below".to_owned()),
        });
    }
    let churn = Churn::new(seed, LIVE, effort.replacements);
    let board = Board::new(records, Group::Latency, WORKLOAD, contestants);
    interleave(board, contestants, effort.rounds.min(5), effort, progress, |contestant, _| {
        contestant.latency(&churn, effort).map(Percentiles::as_samples)
    });
}
