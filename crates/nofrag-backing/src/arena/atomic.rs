//! Where the atomics of what threads share come from: one file, so that a model checker can put its own in its place.

pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use std::time::Duration;

/// Lets others go on while this thread waits for one of them; longer the more rounds it has waited.
#[cold]
pub(super) fn pause(round: u32) {
    match round {
        0..64 => std::hint::spin_loop(),
        64..128 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}
