//! Whether this process is still the one that made something.
//!
//! What is shared through a table belongs to a process by name. A child of a fork has copies of its parent's guards,
//! and must not give back what it does not hold; the mappings themselves are not passed on to it.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How often the line of processes that ends here has forked, seen from the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forks(u64);

impl Forks {
    /// For what is made now.
    pub(crate) fn now() -> Forks {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            extern "C" fn in_the_child() {
                FORKS.fetch_add(1, Ordering::Relaxed);
            }
            // SAFETY: the hook does one atomic addition, which may be done after any fork. Without memory for it the
            // mappings are still not passed on, so that a child's use ends the child and nobody else.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
        });
        Forks(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this process is the one that called [`now`](Self::now).
    pub(crate) fn is_same(self) -> bool {
        // Relaxed: only this process writes it, before anything else in a child runs.
        FORKS.load(Ordering::Relaxed) == self.0
    }
}
