//! After a failure a zone is left alone for a while: twice as many attempts each time, up to 64
//! (docs/sources/pages.md#deferral).

use crate::units::Order;

/// The largest exponent: at most 64 attempts are counted before one is made (`COMPACT_MAX_DEFER_SHIFT`).
pub(in crate::page) const MAX_SHIFT: u8 = 6;

/// Back-off of a zone after compaction in vain.
///
/// Always true: `considered` is at most 2 to the power of `shift`, and `shift` at most [`MAX_SHIFT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) struct Deferral {
    /// Attempts since the last failure.
    considered: u8,
    shift: u8,
    /// The smallest order that failed; none below it is deferred. One above the largest order after no failure.
    failed: u8,
}

impl Default for Deferral {
    fn default() -> Deferral {
        Deferral { considered: 0, shift: 0, failed: Order::COUNT as u8 }
    }
}

/// Decision on an attempt at compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum Decision {
    Go,
    /// Make the attempt, and forget the marks and positions of earlier runs: it comes after the longest wait.
    Restart,
    Skip,
}

impl Deferral {
    /// Returns the attempts considered, the exponent, and the smallest order that failed.
    pub(in crate::page) const fn parts(self) -> (u8, u8, u8) {
        (self.considered, self.shift, self.failed)
    }

    /// Restores the attempts considered, the exponent, and the smallest order that failed.
    pub(in crate::page) fn restore(&mut self, considered: u8, shift: u8, failed: u8) {
        let shift = shift.min(MAX_SHIFT);
        *self = Deferral { considered: considered.min(1 << shift), shift, failed };
    }

    fn limit(self) -> u8 {
        1 << self.shift
    }

    /// Counts an attempt at `order`, and decides whether it is made.
    pub(in crate::page) fn consider(&mut self, order: Order) -> Decision {
        if order.get() < self.failed {
            return Decision::Go;
        }
        self.considered = self.limit().min(self.considered + 1);
        if self.considered < self.limit() { Decision::Skip } else { self.passed(order) }
    }

    /// Returns the decision on a caller that ignores deferral: nothing counts, and nothing is skipped.
    pub(in crate::page) fn passed(self, order: Order) -> Decision {
        let waited = self.shift == MAX_SHIFT && self.considered == self.limit();
        if order.get() >= self.failed && waited { Decision::Restart } else { Decision::Go }
    }

    /// Records that a run at `order` found nothing though it looked everywhere.
    pub(in crate::page) fn failed(&mut self, order: Order) {
        self.considered = 0;
        self.shift = MAX_SHIFT.min(self.shift + 1);
        self.failed = self.failed.min(order.get());
    }

    /// Records that compaction has made a block.
    pub(in crate::page) fn succeeded(&mut self) {
        self.considered = 0;
        self.shift = 0;
    }

    /// Records that a request was served: `order` is not deferred any more, whatever failed before.
    pub(in crate::page) fn served(&mut self, order: Order) {
        self.succeeded();
        self.failed = self.failed.max(order.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts attempts at `order` that are skipped before the next one is made.
    fn skipped(deferral: &mut Deferral, order: Order) -> u32 {
        (0..).find(|_| deferral.consider(order) != Decision::Skip).expect("it ends at 64")
    }

    /// Failures at order 9 let 1, 3, 7, 15, 31 and then 63 attempts be skipped, and none at order 8.
    /// Source: docs/sources/pages.md#o-17.
    #[test]
    fn each_failure_doubles_the_wait_up_to_64_attempts() {
        let order = Order::PAGEBLOCK;
        let smaller = order.smaller().expect("9 is not the smallest");
        let mut deferral = Deferral::default();
        assert_eq!(skipped(&mut deferral, order), 0);
        for expected in [1, 3, 7, 15, 31, 63, 63] {
            deferral.failed(order);
            assert_eq!(skipped(&mut deferral, smaller), 0, "a smaller order never waits");
            assert_eq!(skipped(&mut deferral, order), expected);
        }
        assert_eq!(deferral.passed(order), Decision::Restart);
        deferral.succeeded();
        assert_eq!(deferral.consider(order), Decision::Go);
    }

    #[test]
    fn an_order_that_was_served_waits_no_more() {
        let order = Order::PAGEBLOCK;
        let mut deferral = Deferral::default();
        deferral.failed(Order::COSTLY);
        deferral.served(order);
        deferral.failed(Order::MAX);
        assert_eq!(deferral.consider(order), Decision::Go);
        assert_eq!(deferral.consider(Order::MAX), Decision::Skip);
    }
}
