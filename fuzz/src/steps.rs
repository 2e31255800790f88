//! The number of operations that the bodies carry out: sums of a campaign are counted, never estimated.

use std::cell::Cell;

thread_local! {
    static CARRIED_OUT: Cell<u64> = const { Cell::new(0) };
}

/// Notes an operation that is about to be carried out and checked.
pub(crate) fn count() {
    CARRIED_OUT.set(CARRIED_OUT.get() + 1);
}

/// Carries out steps of `pair`, at most `most` of them, until its input is used up.
pub(crate) fn carry_out<P>(
    most: usize,
    pair: &mut P,
    has_more: impl Fn(&P) -> bool,
    mut step: impl FnMut(&mut P),
) {
    for _ in 0..most {
        if !has_more(pair) {
            break;
        }
        count();
        step(pair);
    }
}

/// Returns the number of operations that this thread has carried out.
#[must_use]
pub fn carried_out() -> u64 {
    CARRIED_OUT.get()
}
