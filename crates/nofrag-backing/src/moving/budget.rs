//! How many mappings may be made.
//!
//! Source: docs/sources/backing.md#vma-limit.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::maps::max_map_count;

/// A number of mappings that is never passed.
#[derive(Debug)]
pub struct Mappings {
    budget: u64,
    used: AtomicU64,
}

impl Mappings {
    /// At most so many.
    #[must_use]
    pub fn new(budget: u64) -> Mappings {
        Mappings { budget, used: AtomicU64::new(0) }
    }

    /// Half of what the kernel allows: the rest of the process needs some too.
    #[must_use]
    pub fn half() -> Mappings {
        Mappings::new(max_map_count() / 2)
    }

    /// At most so many.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// So many there are.
    #[must_use]
    pub fn used(&self) -> u64 {
        // Relaxed: a number to look at.
        self.used.load(Ordering::Relaxed)
    }

    /// Books `more`, if the budget allows.
    pub(super) fn book(&self, more: u64) -> Result<(), u64> {
        let fits = |used: u64| used.checked_add(more).filter(|&sum| sum <= self.budget);
        // Relaxed: it protects no other memory.
        let booked = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        booked.map(drop).map_err(|_| self.budget)
    }

    /// Gives so many back.
    pub(super) fn give_back(&self, count: u64) {
        let before = self.used.fetch_sub(count, Ordering::Relaxed);
        debug_assert!(before >= count, "no more is given back than was booked");
    }
}
