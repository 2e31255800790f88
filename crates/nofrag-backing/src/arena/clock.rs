//! The time of an arena, and when it is next looked at.
//!
//! An allocation that takes a parked run takes a few nanoseconds, and reading a clock takes as many. So an owner looks
//! at the clock when it has allocated so many times: at every allocation where an eighth of the decay passes between
//! two looks, after twice as many as the last time where less does, and after [`MOST_CALLS`] at most. Frees that cannot
//! park their run look, too, one in [`FREES`]. When an eighth of the decay has passed for the arena, the one that sees
//! it first does a piece of background work.

use std::time::{Duration, Instant};

use super::atomic::{AtomicU64, Ordering};
use super::{Clock, Purge};

/// The most allocations of an owner between two looks at the clock.
const MOST_CALLS: u64 = 128;

/// Of so many frees that do not park their run one looks at the clock.
pub(super) const FREES: u64 = 16;

/// Pieces of background work in the time of one decay.
const PIECES: u32 = 8;

/// The time of an arena, counted from its making.
#[derive(Debug)]
pub(super) struct ArenaClock {
    clock: Clock,
    began: Instant,
    /// Nanoseconds that the caller has set.
    set: AtomicU64,
    /// Nanoseconds between two pieces of background work; none if no time makes memory go back.
    every: Option<u64>,
    /// The time from which on the next piece is due.
    next: AtomicU64,
}

/// When an owner looks at the clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    /// The number of its allocations at which it does.
    at: u64,
    /// Allocations from one look to the next.
    stride: u64,
    last: u64,
}

impl Looks {
    /// Returns true if an owner that has allocated so often is to look at the clock.
    #[inline(always)]
    pub(super) fn are_due(&self, allocs: u64) -> bool {
        allocs >= self.at
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

impl ArenaClock {
    pub(super) fn new(clock: Clock, purge: Purge) -> ArenaClock {
        let every = match purge {
            Purge::Decay { after } => Some(nanos(after / PIECES).max(1)),
            Purge::Watermark { .. } | Purge::Manual => None,
        };
        let next = AtomicU64::new(every.unwrap_or(u64::MAX));
        ArenaClock { clock, began: Instant::now(), set: AtomicU64::new(0), every, next }
    }

    pub(super) fn now(&self) -> Duration {
        match self.clock {
            Clock::System => self.began.elapsed(),
            // Relaxed, as all here: a time is a number by itself.
            Clock::Caller => Duration::from_nanos(self.set.load(Ordering::Relaxed)),
        }
    }

    pub(super) fn set(&self, now: Duration) {
        self.set.store(nanos(now), Ordering::Relaxed);
    }

    /// Looks at the clock for an owner with so many allocations. Returns true if a piece of background work is due,
    /// which the caller then does.
    pub(super) fn look(&self, looks: &mut Looks, allocs: u64) -> bool {
        let Some(every) = self.every else {
            looks.at = u64::MAX;
            return false;
        };
        let now = nanos(self.now());
        let is_rare = now.saturating_sub(looks.last) >= every;
        looks.stride = if is_rare { 1 } else { (looks.stride * 2).clamp(1, MOST_CALLS) };
        (looks.last, looks.at) = (now, allocs + looks.stride);
        let next = self.next.load(Ordering::Relaxed);
        let due = now.saturating_add(every);
        let (order, again) = (Ordering::Relaxed, Ordering::Relaxed);
        now >= next && self.next.compare_exchange(next, due, order, again).is_ok()
    }

    /// Makes the next look find a piece due, since the last one left some.
    pub(super) fn hurry(&self) {
        self.next.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_millis(800);

    /// Returns how many of `calls` calls, `apart` from each other, look at the clock, and how many find work to do.
    fn looks(apart: Duration, calls: u32) -> (u32, u32) {
        let clock = ArenaClock::new(Clock::Caller, Purge::Decay { after: AFTER });
        let (mut looks, mut looked, mut due) = (Looks::default(), 0, 0);
        for call in 0..calls {
            clock.set(apart * call);
            if looks.are_due(call.into()) {
                looked += 1;
                due += u32::from(clock.look(&mut looks, call.into()));
            }
        }
        (looked, due)
    }

    #[test]
    fn few_of_many_calls_look_at_the_clock_and_all_of_rare_ones() {
        // A second of calls each microsecond: one in 128 looks, and nearly every eighth of the decay finds work.
        let (looked, due) = looks(Duration::from_micros(1), 1_000_000);
        assert!((7_800..7_900).contains(&looked), "{looked} of a million calls look");
        assert_eq!(due, 9);
        // A call each tenth of a second.
        assert_eq!(looks(Duration::from_millis(100), 40), (40, 39));
    }

    #[test]
    fn without_decay_nobody_looks() {
        let clock = ArenaClock::new(Clock::System, Purge::Manual);
        let mut looks = Looks::default();
        assert!(looks.are_due(0) && !clock.look(&mut looks, 0));
        assert!((0..1000).all(|allocs| !looks.are_due(allocs)));
    }
}
