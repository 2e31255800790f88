//! Times of calls: each function's, and the tail of single operations.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use nofrag_show::{Spread, Tail};

/// The calls of one function, as the kernel's function profiler prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Calls {
    pub hits: u64,
    /// Time of all calls, in microseconds.
    pub total_us: f64,
    /// Mean time of a call, in microseconds.
    pub average_us: f64,
    /// Variance of single calls (s^2), in microseconds squared.
    pub variance_us2: f64,
}

/// Adds up the times of single calls; mean and variance by Welford's method, which does not cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallTimer {
    hits: u64,
    mean_us: f64,
    squares_us2: f64,
}

impl CallTimer {
    /// Adds a call of this length.
    #[inline]
    pub fn record(&mut self, took: Duration) {
        let us = took.as_nanos() as f64 / 1000.0;
        self.hits += 1;
        let off = us - self.mean_us;
        self.mean_us += off / self.hits as f64;
        self.squares_us2 += off * (us - self.mean_us);
    }

    /// Returns number, total, mean and variance of the calls so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        Calls {
            hits: self.hits,
            total_us: self.mean_us * self.hits as f64,
            average_us: self.mean_us,
            variance_us2: self.squares_us2 / self.hits.saturating_sub(1).max(1) as f64,
        }
    }
}

/// Collects single operations for a [`Tail`].
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Histogram::new(3).expect("three significant digits are within the crate's range"))
    }
}

impl Latencies {
    /// Adds one operation; its value is kept to three significant digits.
    pub fn record(&mut self, nanos: u64) {
        self.0.record(nanos).expect("an auto-resizing histogram takes any value");
    }

    /// Adds the operations of another collector.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("an auto-resizing histogram takes any other");
    }

    /// Returns the tail of the added operations; `None` when there are none.
    #[must_use]
    pub fn tail(&self) -> Option<Tail> {
        (!self.0.is_empty()).then(|| Tail {
            count: self.0.len(),
            p50_ns: self.0.value_at_quantile(0.5),
            p99_ns: self.0.value_at_quantile(0.99),
            p999_ns: self.0.value_at_quantile(0.999),
            max_ns: self.0.max(),
        })
    }
}

/// Number of points of a course that are kept.
pub(crate) const POINTS: usize = 72;

/// Returns at most [`POINTS`] values: the largest of each stretch, so that growth shows, and what is gone soon.
pub(crate) fn thinned(values: &[f64]) -> Vec<f64> {
    let stretch = values.len().div_ceil(POINTS).max(1);
    values.chunks(stretch).map(|part| part.iter().copied().fold(0.0, f64::max)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_mean_and_the_variance_of_a_sample() {
        let mut timer = CallTimer::default();
        assert_eq!(timer.calls(), Calls::default());
        for us in [1, 2, 3, 6] {
            timer.record(Duration::from_micros(us));
        }
        let Calls { hits, total_us, average_us, variance_us2 } = timer.calls();
        assert_eq!((hits, total_us, average_us), (4, 12.0, 3.0));
        assert!((variance_us2 - 14.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn the_tail_of_a_ramp_is_its_upper_end() {
        let mut latencies = Latencies::default();
        for nanos in 1..=1000 {
            latencies.record(nanos);
        }
        let tail = latencies.tail().unwrap();
        assert_eq!(
            (tail.count, tail.p50_ns, tail.p99_ns, tail.p999_ns, tail.max_ns),
            (1000, 500, 990, 999, 1000)
        );
        assert_eq!(Latencies::default().tail(), None);
    }
}
