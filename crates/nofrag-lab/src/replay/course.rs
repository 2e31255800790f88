//! Values in the course of a recording, at distances that double when there are too many.

use serde::{Deserialize, Serialize};

/// Values at even distances, counted in changes of the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Course {
    values: Vec<u64>,
    /// The greatest of all values, those that are not kept included.
    most: u64,
    /// Distance from one value that is kept to the next, in values seen.
    every: u64,
    /// Values seen since the last one that was kept.
    passed: u64,
}

impl Default for Course {
    fn default() -> Course {
        Course { values: Vec::new(), most: 0, every: 1, passed: 0 }
    }
}

impl Course {
    /// The most values that are kept.
    pub const VALUES: usize = 256;

    pub(super) fn take(&mut self, value: u64) {
        self.most = self.most.max(value);
        self.passed += 1;
        if self.passed < self.every {
            return;
        }
        if self.values.len() == Course::VALUES {
            let mut number = 0;
            self.values.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            // Half of the new distance has passed since the last one that is kept.
            self.every *= 2;
            return;
        }
        self.passed = 0;
        self.values.push(value);
    }

    /// Returns the kept values, in order.
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Returns the greatest of all values, kept or not.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_values_are_thinned_out_evenly_and_the_greatest_is_known() {
        let mut course = Course::default();
        (0..100_000).for_each(|value| course.take(value));
        let values = course.values();
        assert!((Course::VALUES / 2..=Course::VALUES).contains(&values.len()), "{}", values.len());
        let steps: Vec<u64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
        assert_eq!(course.most(), 99_999);
    }
}
