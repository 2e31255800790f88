//! Medians, ranges and tails.
//!
//! A repetition gives one number; a [`Spread`] has the numbers of several repetitions. The median stands for them
//! because a shared host disturbs upwards only, and the range says how far. Single operations, whose tail matters more
//! than their middle, go to a [`Tail`] instead.

use serde::{Deserialize, Serialize};

/// Results of several repetitions of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// The middle sample, or the mean of the two middle ones.
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// All samples in the order in which they were taken.
    pub samples: Vec<f64>,
}

impl Spread {
    /// Returns the spread of `samples`; `None` when there is none or one is not a number.
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

    /// Returns the width of the range over the median; zero for a median of zero.
    #[must_use]
    pub fn relative_width(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median }
    }

    /// Returns true if the two ranges share a value, so that neither side can be called smaller.
    #[must_use]
    pub fn overlaps(&self, other: &Spread) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

/// The upper end of many single operations, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tail {
    pub count: u64,
    /// Half of the operations took at most this.
    pub p50_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
    /// 99.9 % took at most this.
    pub p999_ns: u64,
    /// The longest one; on a shared host as often an interruption as the code's own doing.
    pub max_ns: u64,
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
}
