//! The pace at which a source may be read.

use std::time::Duration;

/// The pace of a source: readings are at least `least` apart, and so far apart that they take no more than `share` of a
/// core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The least time from one reading to the next.
    pub least: Duration,
    /// The largest share of a core that the readings may take: 0.002 is a fifth of a hundredth.
    pub share: f64,
}

impl Pace {
    /// The pace of a source that is read at every look.
    pub const ALWAYS: Pace = Pace { least: Duration::ZERO, share: 1.0 };

    /// Returns the time to wait after a reading that took `cost` of CPU time.
    #[must_use]
    pub fn wait(&self, cost: Duration) -> Duration {
        // A share of zero asks for a reading that never comes again.
        let by_cost = Duration::try_from_secs_f64(cost.as_secs_f64() / self.share);
        self.least.max(by_cost.unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_wait(least_s: u64, share: f64, cost_us: u64, wait_ms: u64) {
        let pace = Pace { least: Duration::from_secs(least_s), share };
        let waits = pace.wait(Duration::from_micros(cost_us));
        assert_eq!(waits.as_millis(), u128::from(wait_ms));
    }

    #[test]
    fn what_costs_more_is_read_less_often() {
        check_wait(5, 0.002, 4_800, 5_000);
        check_wait(5, 0.002, 48_000, 24_000);
        check_wait(0, 0.002, 100, 50);
        check_wait(0, 1.0, 0, 0);
    }

    #[test]
    fn a_share_of_nothing_is_no_reading() {
        let pace = Pace { least: Duration::ZERO, share: 0.0 };
        assert_eq!(pace.wait(Duration::from_micros(1)), Duration::MAX);
    }
}
