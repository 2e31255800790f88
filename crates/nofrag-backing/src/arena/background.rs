//! A thread that does an arena's background work.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Arena, Budget};
use crate::backend::Backend;

/// Calls [`Arena::step`] now and then from a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Purger {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Purger {
    /// A step each time `every` has passed. A tenth of the decay is sensible.
    ///
    /// # Errors
    /// What making a thread says.
    pub fn spawn<B>(arena: Arc<Arena<B>>, every: Duration, budget: Budget) -> io::Result<Purger>
    where
        B: Backend + 'static,
    {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = thread::Builder::new().name("arena-purger".into()).spawn(move || {
            let began = Instant::now();
            let (stop, bell) = &*told;
            let mut stopped = stop.lock().unwrap_or_else(PoisonError::into_inner);
            while !*stopped {
                let waited = bell.wait_timeout(stopped, every);
                stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
                if !*stopped {
                    arena.step(began.elapsed(), budget);
                }
            }
        })?;
        Ok(Purger { stop, thread: Some(thread) })
    }
}

impl Drop for Purger {
    fn drop(&mut self) {
        let (stop, bell) = &*self.stop;
        *stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_one();
        if let Some(thread) = self.thread.take() {
            // A step that panicked has said so already.
            let _ = thread.join();
        }
    }
}
