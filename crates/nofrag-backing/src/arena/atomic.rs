//! The home of the atomics that threads share: one file, so that a model checker can put its own in their place.

pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use std::time::Duration;

/// Rounds of [`pause`] that do not sleep; also the most rounds that a thread which gives way waits.
pub(super) const PATIENCE: u32 = 128;

/// Rounds in which a thread that gives way lets the waiting threads go first. The last of them yield the processor,
/// since a waiting thread may have no other.
pub(super) const COURTESY: u32 = 96;

/// Waits a moment for another thread: spins in early rounds, then yields the processor, then sleeps for
/// fifty microseconds.
#[cold]
pub(super) fn pause(round: u32) {
    match round {
        0..64 => std::hint::spin_loop(),
        64..PATIENCE => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}
