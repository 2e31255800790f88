//! How many operations the bodies carry out: sums of a campaign are counted, never estimated.

use std::cell::Cell;

thread_local! {
    static CARRIED_OUT: Cell<u64> = const { Cell::new(0) };
}

/// Notes an operation that is about to be carried out and checked.
pub(crate) fn count() {
    CARRIED_OUT.set(CARRIED_OUT.get() + 1);
}

/// How many operations this thread has carried out.
#[must_use]
pub fn carried_out() -> u64 {
    CARRIED_OUT.get()
}
