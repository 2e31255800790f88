//! A thread that works in the background until it is told to end.

use std::io;
use std::mem;
use std::thread::{self, JoinHandle};

use crate::forks::Forks;

/// A background thread, as its owner holds it.
#[derive(Debug)]
pub(crate) struct Worker {
    thread: Option<JoinHandle<()>>,
    process: Forks,
}

impl Worker {
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Worker> {
        let process = Forks::now()?;
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Worker { thread: Some(thread), process })
    }

    /// Returns true if this process has the thread. A child of a fork has none, and finds locks that the thread takes
    /// as they were when the copy was made.
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_same()
    }

    /// Calls `tell`, which tells the thread to end, and waits for it; the result is an error if it has panicked. The
    /// thread itself does not wait; in a child of a fork nothing is done.
    pub(crate) fn end(&mut self, tell: impl FnOnce()) -> thread::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        if !self.is_here() {
            // The handle names a thread of the parent.
            mem::forget(thread);
            return Ok(());
        }
        tell();
        if thread.thread().id() == thread::current().id() { Ok(()) } else { thread.join() }
    }
}
