//! A thread that does an arena's background work.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{Arena, Budget, Purge};
use crate::backend::Backend;
use crate::worker::Worker;

/// Calls [`Arena::step`] now and then from a thread of its own, until the purger is dropped. If the thread itself drops
/// it (as the hook of [`Arena::on_purge`] may do), the thread ends soon after. A child of a fork has no such thread.
#[derive(Debug)]
pub struct Purger {
    stop: Arc<(Mutex<bool>, Condvar)>,
    worker: Worker,
}

impl Purger {
    /// Starts a thread that gives back what has been idle for long enough, also while the program is idle: a
    /// [`spawn`](Purger::spawn) with a tenth of the time in [`Purge::Decay`], and no bound.
    ///
    /// ```
    /// use nofrag_backing::arena::{Arena, Config, Purger};
    /// use std::sync::Arc;
    ///
    /// let arena = Arc::new(Arena::reserve(64 << 20, Config::default())?);
    /// let _purger = Purger::start(&arena)?; // until it is dropped
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error of the system when it starts no thread.
    pub fn start<B: Backend + 'static>(arena: &Arc<Arena<B>>) -> io::Result<Purger> {
        let every = match arena.purge {
            Purge::Decay { after } => (after / 10).max(Duration::from_millis(1)),
            Purge::Watermark { .. } | Purge::Manual => Duration::from_secs(1),
        };
        Purger::spawn(Arc::clone(arena), every, Budget::ALL)
    }

    /// Starts a thread that calls [`Arena::step`] with `budget` each time `every` has passed.
    ///
    /// # Errors
    /// The error of the system when it starts no thread.
    pub fn spawn<B>(arena: Arc<Arena<B>>, every: Duration, budget: Budget) -> io::Result<Purger>
    where
        B: Backend + 'static,
    {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let worker = Worker::spawn("arena-purger", move || {
            let (stop, bell) = &*told;
            loop {
                let stopped = stop.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = bell.wait_timeout_while(stopped, every, |stopped| !*stopped);
                if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                    break;
                }
                arena.step(budget);
            }
        })?;
        Ok(Purger { stop, worker })
    }
}

impl Drop for Purger {
    fn drop(&mut self) {
        let (stop, bell) = &*self.stop;
        // A step that panicked has said so already.
        let _ = self.worker.end(|| {
            *stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
            bell.notify_one();
        });
    }
}
