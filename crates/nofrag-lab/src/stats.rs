//! Medians, ranges and tails.
//!
//! A repetition gives one number; a [`Spread`] is what the repetitions gave together. The median stands for them
//! because a shared host disturbs upwards only, and the range says how far. Single operations, whose tail matters more
//! than their middle, go to a [`Tail`] instead.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What several repetitions of one measurement gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle sample, or the mean of the two middle ones.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// All samples in the order in which they were taken.
    pub samples: Vec<f64>,
}

impl Spread {
    /// The spread of `samples`; `None` when there is none or one is not a number.
    #[must_use]
    pub fn of(samples: Vec<f64>) -> Option<Spread> {
        if samples.is_empty() || samples.iter().any(|sample| sample.is_nan()) {
            return None;
        }
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Spread { median, min: sorted[0], max: sorted[sorted.len() - 1], samples })
    }

    /// Width of the range over the median; zero for a median of zero.
    #[must_use]
    pub fn relative_width(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median }
    }

    /// Whether the two ranges share a value, so that neither side can be called smaller.
    #[must_use]
    pub fn overlaps(&self, other: &Spread) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

/// The calls of one function, as the kernel's function profiler prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// How many.
    pub hits: u64,
    /// All of them together, in microseconds.
    pub total_us: f64,
    /// One of them, in microseconds.
    pub average_us: f64,
    /// s^2 of single calls, in microseconds squared.
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

    /// The calls so far.
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

/// The upper end of many single operations, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// How many operations.
    pub count: u64,
    /// Half took at most this.
    pub p50_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
    /// 99.9 % took at most this.
    pub p999_ns: u64,
    /// The longest one; on a shared host as often an interruption as the code's own doing.
    pub max_ns: u64,
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

    /// Adds what another collector holds.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("an auto-resizing histogram takes any other");
    }

    /// The tail of what was added; `None` when nothing was.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(samples: &[f64]) -> Spread {
        Spread::of(samples.to_vec()).unwrap()
    }

    #[test]
    fn median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(spread(&[9.0, 1.0, 5.0]).median, 5.0);
        assert_eq!(spread(&[9.0, 1.0, 5.0, 7.0]).median, 6.0);
        assert_eq!(spread(&[3.0]).median, 3.0);
        assert_eq!(Spread::of(Vec::new()), None);
        assert_eq!(Spread::of(vec![f64::NAN]), None);
    }

    #[test]
    fn range_and_order_are_kept() {
        let spread = spread(&[4.0, 2.0, 6.0]);
        assert_eq!((spread.min, spread.max), (2.0, 6.0));
        assert_eq!(spread.samples, [4.0, 2.0, 6.0]);
        assert_eq!(spread.relative_width(), 1.0);
    }

    #[test]
    fn touching_ranges_overlap_and_separate_ones_do_not() {
        assert!(spread(&[1.0, 3.0]).overlaps(&spread(&[3.0, 4.0])));
        assert!(spread(&[1.0, 9.0]).overlaps(&spread(&[3.0, 4.0])));
        assert!(!spread(&[1.0, 2.9]).overlaps(&spread(&[3.0, 4.0])));
    }

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
