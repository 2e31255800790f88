//! Signals that would end the recorder ask it to end in order instead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

const SIGNALS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Catches signals while it lives. A handler stays installed for good, but afterwards it does what the default does.
#[derive(Debug)]
pub(super) struct Signals {
    arrived: Arc<AtomicUsize>,
    released: Arc<AtomicBool>,
}

impl Signals {
    pub(super) fn catch() -> io::Result<Signals> {
        let arrived = Arc::new(AtomicUsize::new(0));
        let released = Arc::new(AtomicBool::new(false));
        for signal in SIGNALS {
            flag::register_conditional_default(signal, Arc::clone(&released))?;
            flag::register_usize(signal, Arc::clone(&arrived), signal as usize)?;
        }
        Ok(Signals { arrived, released })
    }

    /// The last signal that arrived since this was asked.
    pub(super) fn take(&self) -> Option<i32> {
        match self.arrived.swap(0, Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.released.store(true, Ordering::SeqCst);
    }
}

/// What people call the signal.
pub(super) fn name(signal: i32) -> &'static str {
    match signal {
        SIGINT => "SIGINT",
        SIGTERM => "SIGTERM",
        SIGHUP => "SIGHUP",
        SIGQUIT => "SIGQUIT",
        _ => "a signal",
    }
}
