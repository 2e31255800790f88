//! Where the atomics of what threads share come from: one file, so that a model checker can put its own in its place.

pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use std::time::Duration;

/// So many rounds of [`pause`] do not sleep. Who gives way waits for no longer than that.
pub(super) const PATIENCE: u32 = 128;

/// For so many rounds who gives way lets those go first who wait. The last of them yield the processor: who waits may
/// have none else.
pub(super) const COURTESY: u32 = 96;

/// Lets others go on while this thread waits for one of them; longer the more rounds it has waited.
#[cold]
pub(super) fn pause(round: u32) {
    match round {
        0..64 => std::hint::spin_loop(),
        64..PATIENCE => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}
