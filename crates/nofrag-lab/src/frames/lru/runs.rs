//! The turn after a pass: another pass, of some priority, or the end of the run.

use nofrag::page::Suitability;
use nofrag::units::Order;

use super::pass::{BATCH, FIRST_PRIORITY};

/// The deepest priority of a boosted run of kswapd.
const BOOSTED_PRIORITY: u8 = 10;

/// The next turn of a run of kswapd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// A pass of this priority, and boosted pages still to reclaim.
    Pass {
        priority: u8,
        boost: u64,
    },
    Ends,
}

/// The result of a pass of kswapd, and the zones after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) priority: u8,
    /// Boosted pages that were to be reclaimed before the pass.
    pub(super) boost: u64,
    pub(super) scanned: u64,
    pub(super) reclaimed: u64,
    pub(super) target: u64,
    pub(super) balanced: bool,
}

/// Returns kswapd's turn after a pass for single pages.
pub(super) fn after_pass(done: Done) -> Turn {
    let boosted = done.boost > 0;
    let content = done.scanned >= done.target || boosted && done.priority == BOOSTED_PRIORITY;
    let boost = done.boost.saturating_sub(done.reclaimed);
    let priority = match content && done.reclaimed > 0 {
        true => done.priority,
        false => done.priority - 1,
    };
    if boosted && done.reclaimed == 0 || priority == 0 || boost == 0 && done.balanced {
        Turn::Ends
    } else if boost > 0 && !done.balanced {
        Turn::Pass { priority: FIRST_PRIORITY, boost: 0 }
    } else {
        Turn::Pass { priority, boost }
    }
}

/// Stage of a caller that reclaims for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The caller asks whether this zone is ready.
    Ready {
        zone: usize,
    },
    /// The caller makes a pass, for the sake of this zone.
    Pass {
        zone: usize,
    },
    /// After a pass for the sake of zone `of`, the caller asks zone by zone whether compaction can work in `zone`: the
    /// pass is repeated if it can in none.
    Repeats {
        zone: usize,
        of: usize,
    },
    Over,
}

/// A caller of direct reclaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Direct {
    pub(super) order: Order,
    /// The index of the highest zone that it may use.
    pub(super) highest: usize,
    /// The kernel's number of the highest zone of the request.
    pub(super) class: usize,
    pub(super) priority: u8,
    pub(super) reclaimed: u64,
    pub(super) stage: Stage,
    /// The node has been shrunk at this priority.
    shrunk: bool,
    /// A zone was ready for compaction, which ends the call after this priority.
    remembers: bool,
}

/// Facts that decide in [`Direct::hears`] beside compaction's answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    /// The zone has more free pages than its high watermark, its reserve and the gap (`Counts::gap`).
    pub(super) above_high: bool,
    /// The inactive list of file pages is longer than the gap.
    pub(super) worthwhile: bool,
}

impl Direct {
    pub(super) fn new(order: Order, highest: usize, class: usize) -> Direct {
        let mut call = Direct {
            order,
            highest,
            class,
            priority: FIRST_PRIORITY,
            reclaimed: 0,
            stage: Stage::Over,
            shrunk: false,
            remembers: false,
        };
        call.goes_through_zones();
        call
    }

    /// Takes compaction's answer on a zone; returns true if it is the zone of the expected question.
    pub(super) fn hears(&mut self, about: usize, says: Suitability, stand: Stand) -> bool {
        match self.stage {
            Stage::Ready { zone } if zone == about => {
                if says == Suitability::Satisfied
                    || says == Suitability::Suitable && stand.above_high
                {
                    self.remembers = true;
                    self.leaves(zone);
                } else if self.shrunk {
                    self.leaves(zone);
                } else {
                    self.stage = Stage::Pass { zone };
                }
                true
            }
            Stage::Repeats { zone, of } if zone == about => {
                if says != Suitability::Hopeless {
                    self.leaves_shrunk(of);
                } else if zone < self.highest {
                    self.stage = Stage::Repeats { zone: zone + 1, of };
                } else if stand.worthwhile {
                    self.stage = Stage::Pass { zone: of };
                } else {
                    self.leaves_shrunk(of);
                }
                true
            }
            _ => false,
        }
    }

    /// Takes the end of a pass that reclaimed this number of pages.
    pub(super) fn passed(&mut self, reclaimed: u64) {
        let Stage::Pass { zone } = self.stage else { return };
        self.reclaimed += reclaimed;
        let may_repeat = self.order > Order::COSTLY
            || self.order > Order::ZERO && self.priority < FIRST_PRIORITY - 2;
        if may_repeat && reclaimed > 0 {
            self.stage = Stage::Repeats { zone: 0, of: zone };
        } else {
            self.leaves_shrunk(zone);
        }
    }

    fn leaves_shrunk(&mut self, zone: usize) {
        self.shrunk = true;
        self.leaves(zone);
    }

    /// Goes on to the zone below (large blocks), or ends the call, or begins the next priority.
    fn leaves(&mut self, zone: usize) {
        if self.order > Order::COSTLY && zone > 0 {
            self.stage = Stage::Ready { zone: zone - 1 };
        } else if self.reclaimed >= BATCH || self.remembers || self.priority == 0 {
            self.stage = Stage::Over;
        } else {
            self.priority -= 1;
            self.goes_through_zones();
        }
    }

    fn goes_through_zones(&mut self) {
        self.shrunk = false;
        let zone = self.highest;
        self.stage = match self.order > Order::COSTLY {
            true => Stage::Ready { zone },
            // Small blocks need no question.
            false => Stage::Pass { zone },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Done =
        Done { priority: 7, boost: 0, scanned: 90, reclaimed: 80, target: 100, balanced: false };

    fn pass(priority: u8, boost: u64) -> Turn {
        Turn::Pass { priority, boost }
    }

    #[test]
    fn a_pass_that_scanned_less_than_its_target_is_followed_by_a_deeper_one() {
        assert_eq!(after_pass(DONE), pass(6, 0));
        assert_eq!(after_pass(Done { scanned: 100, ..DONE }), pass(7, 0));
        // Scanning alone is no progress.
        assert_eq!(after_pass(Done { scanned: 100, reclaimed: 0, ..DONE }), pass(6, 0));
    }

    #[test]
    fn kswapd_rests_when_a_zone_is_above_its_high_mark_or_nothing_is_left() {
        assert_eq!(after_pass(Done { balanced: true, ..DONE }), Turn::Ends);
        assert_eq!(after_pass(Done { priority: 1, ..DONE }), Turn::Ends);
    }

    #[test]
    fn a_boosted_run_stays_at_priority_10_until_the_boost_is_reclaimed() {
        let boosted = Done { boost: 1000, balanced: true, ..DONE };
        assert_eq!(after_pass(Done { priority: 11, ..boosted }), pass(10, 920));
        assert_eq!(after_pass(Done { priority: 10, ..boosted }), pass(10, 920));
        assert_eq!(after_pass(Done { boost: 80, priority: 10, ..boosted }), Turn::Ends);
        assert_eq!(after_pass(Done { reclaimed: 0, ..boosted }), Turn::Ends);
        assert_eq!(after_pass(Done { balanced: false, ..boosted }), pass(12, 0));
    }

    const ENOUGH: Stand = Stand { above_high: true, worthwhile: true };
    const LITTLE: Stand = Stand { above_high: false, worthwhile: true };

    fn huge() -> Direct {
        Direct::new(Order::PAGEBLOCK, 1, 3)
    }

    #[test]
    fn a_huge_page_reclaims_until_compaction_could_work() {
        let mut call = huge();
        assert!(call.hears(1, Suitability::Hopeless, LITTLE));
        for _ in 0..3 {
            assert_eq!(call.stage, Stage::Pass { zone: 1 });
            call.passed(10);
            assert!(
                call.hears(0, Suitability::Hopeless, LITTLE)
                    && call.hears(1, Suitability::Hopeless, LITTLE)
            );
        }
        call.passed(10);
        assert!(
            call.hears(0, Suitability::Hopeless, LITTLE)
                && call.hears(1, Suitability::Suitable, LITTLE)
        );
        // The zone below is asked about, too; then 32 pages are enough.
        assert!(call.hears(0, Suitability::Hopeless, LITTLE));
        assert_eq!((call.stage, call.reclaimed, call.priority), (Stage::Over, 40, 12));
    }

    #[test]
    fn a_ready_zone_is_remembered_and_ends_the_call() {
        let mut call = huge();
        assert!(
            call.hears(1, Suitability::Suitable, ENOUGH)
                && call.hears(0, Suitability::Hopeless, LITTLE)
        );
        assert_eq!(call.stage, Stage::Pass { zone: 0 });
        call.passed(3);
        assert!(
            call.hears(0, Suitability::Hopeless, LITTLE)
                && call.hears(1, Suitability::Suitable, ENOUGH)
        );
        assert_eq!((call.stage, call.reclaimed), (Stage::Over, 3));
    }

    #[test]
    fn fewer_than_32_pages_make_the_next_priority() {
        let mut call = huge();
        assert!(call.hears(1, Suitability::Suitable, LITTLE));
        call.passed(31);
        assert!(
            call.hears(0, Suitability::Hopeless, LITTLE)
                && call.hears(1, Suitability::Suitable, LITTLE)
        );
        assert!(call.hears(0, Suitability::Hopeless, LITTLE));
        assert_eq!((call.stage, call.priority), (Stage::Ready { zone: 1 }, 11));
    }

    #[test]
    fn a_short_inactive_list_or_a_pass_for_nothing_is_not_repeated() {
        let short = Stand { worthwhile: false, ..LITTLE };
        let mut call = huge();
        assert!(call.hears(1, Suitability::Hopeless, short));
        call.passed(40);
        assert!(
            call.hears(0, Suitability::Hopeless, short)
                && call.hears(1, Suitability::Hopeless, short)
        );
        assert_eq!(call.stage, Stage::Ready { zone: 0 });
        let mut call = huge();
        assert!(call.hears(1, Suitability::Hopeless, LITTLE));
        call.passed(0);
        assert_eq!(call.stage, Stage::Ready { zone: 0 });
    }

    #[test]
    fn a_single_page_asks_compaction_nothing() {
        let mut call = Direct::new(Order::ZERO, 1, 3);
        call.passed(31);
        assert_eq!((call.stage, call.priority), (Stage::Pass { zone: 1 }, 11));
        call.passed(1);
        assert_eq!(call.stage, Stage::Over);
    }
}
