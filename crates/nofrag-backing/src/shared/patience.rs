//! Waiting for others, not for ever.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// How often to look before others are let run.
const SPINS: u32 = 64;

/// A wait that ends.
#[derive(Debug)]
pub(crate) struct Waiting {
    patience: Duration,
    looks: u32,
    began: Option<Instant>,
}

impl Waiting {
    /// Of at most so long.
    pub(crate) fn new(patience: Duration) -> Waiting {
        Waiting { patience, looks: 0, began: None }
    }

    /// Waits a moment; false once there was enough of it. The clock is not asked before that is needed.
    pub(crate) fn again(&mut self) -> bool {
        if self.patience.is_zero() {
            return false;
        }
        self.looks += 1;
        if self.looks <= SPINS {
            hint::spin_loop();
            return true;
        }
        thread::yield_now();
        self.began.get_or_insert_with(Instant::now).elapsed() < self.patience
    }
}
