//! Threads that touch memory for the first time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::apparatus::huge_units::{HugeUnits, Touch};
use hdrhistogram::Histogram;

use super::host::Host;
use super::outcome::{self, Ended};
use super::phases::{Shared, WorkloadError};

/// Number of units between two looks at the available memory.
const LOOK_EVERY: u64 = 16;
/// Time between two looks whether all threads are there.
const START_TICK: Duration = Duration::from_micros(100);

/// Times that one thread, or all of them, measured. In nanoseconds.
#[derive(Debug)]
pub(super) struct Touched {
    /// Units of small pages: all of a unit, and its first fault.
    pub(super) base: Histogram<u64>,
    pub(super) base_first: Histogram<u64>,
    /// Units of one huge page, likewise.
    pub(super) huge: Histogram<u64>,
    pub(super) huge_first: Histogram<u64>,
    /// Units by the pages that their first fault brought in (docs/sources/pages.md#b-24).
    pub(super) by_pages: BTreeMap<usize, u64>,
}

impl Touched {
    pub(super) fn new() -> Touched {
        let [base, base_first, huge, huge_first] = std::array::from_fn(|_| outcome::histogram());
        Touched { base, base_first, huge, huge_first, by_pages: BTreeMap::new() }
    }

    fn record(&mut self, touch: &Touch) {
        let (whole, first) = match touch.is_huge() {
            true => (&mut self.huge, &mut self.huge_first),
            false => (&mut self.base, &mut self.base_first),
        };
        whole.saturating_record(outcome::nanos(touch.whole()));
        first.saturating_record(outcome::nanos(touch.first));
        *self.by_pages.entry(touch.pages_at_once).or_default() += 1;
    }

    /// Adds the times of another thread.
    pub(super) fn add(&mut self, other: &Touched) {
        let pairs = [
            (&mut self.base, &other.base),
            (&mut self.base_first, &other.base_first),
            (&mut self.huge, &other.huge),
            (&mut self.huge_first, &other.huge_first),
        ];
        for (into, from) in pairs {
            into.add(from).expect("all have the same bounds");
        }
        for (pages, units) in &other.by_pages {
            *self.by_pages.entry(*pages).or_default() += units;
        }
    }
}

/// Touches the first `units` of a region once `start` is set, which says that all threads are there. The region stays
/// mapped.
pub(super) fn touch(
    region: &mut HugeUnits,
    units: u64,
    floor: u64,
    start: &AtomicBool,
    shared: &Shared,
) -> Result<Touched, WorkloadError> {
    let mut touched = Touched::new();
    // A flag and not a barrier: a barrier would wait for ever for a thread that could not be made.
    while !start.load(Ordering::Acquire) && !shared.stopping() {
        thread::sleep(START_TICK);
    }
    for unit in 0..units {
        if shared.stopping() {
            break;
        }
        let low = || Host::available_now().is_some_and(|available| available < floor);
        if unit.is_multiple_of(LOOK_EVERY) && low() {
            shared.stop(Ended::MemoryLow);
            break;
        }
        let Some(touch) = region.touch_next() else { break };
        touched.record(&touch.map_err(WorkloadError::Memory)?);
        shared.count(1);
    }
    Ok(touched)
}

#[cfg(test)]
mod tests {
    use crate::apparatus::huge_units::HugeAdvice;

    use super::*;

    #[test]
    fn a_phase_that_ends_before_it_starts_keeps_nobody_waiting() {
        let mut region = HugeUnits::map(1, 2 << 20, HugeAdvice::Host).unwrap();
        let shared = Shared::default();
        shared.stop(Ended::Interrupted);
        let touched = touch(&mut region, 1, 0, &AtomicBool::new(false), &shared).unwrap();
        assert!(touched.by_pages.is_empty());
    }
}
