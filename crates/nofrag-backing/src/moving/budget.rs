//! A budget of mappings for several areas.
//!
//! Source: docs/sources/backing.md#vma-limit.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::max_map_count;

/// A budget of mappings that is never passed, and the number of them that are booked.
#[derive(Debug)]
pub struct Mappings {
    budget: u64,
    used: AtomicU64,
}

impl Mappings {
    /// Returns a budget of at most `budget` mappings.
    #[must_use]
    pub fn new(budget: u64) -> Mappings {
        Mappings { budget, used: AtomicU64::new(0) }
    }

    /// Returns a budget of half of the mappings that the kernel allows: the rest of the process needs some too.
    #[must_use]
    pub fn half() -> Mappings {
        Mappings::new(max_map_count() / 2)
    }

    /// Returns the most mappings that may be booked.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Returns the number of mappings that are booked.
    #[must_use]
    pub fn used(&self) -> u64 {
        // Relaxed: a number to look at.
        self.used.load(Ordering::Relaxed)
    }

    /// Books `more` mappings. The error is the budget, if that does not allow them.
    pub(super) fn book(&self, more: u64) -> Result<(), u64> {
        let fits = |used: u64| used.checked_add(more).filter(|&sum| sum <= self.budget);
        // Relaxed: it protects no other memory.
        let booked = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        booked.map(drop).map_err(|_| self.budget)
    }

    pub(super) fn give_back(&self, count: u64) {
        let before = self.used.fetch_sub(count, Ordering::Relaxed);
        debug_assert!(before >= count, "no more is given back than was booked");
    }
}
