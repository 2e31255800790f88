//! Signals that would end the command ask it to end in order instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
use signal_hook::flag;

/// The signals that end a process that does not catch them, except those that tell of a defect of its own.
const SIGNALS: [i32; 8] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU];

/// A flag that is set when the command is asked to end.
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Catches signals from now on.
    pub(crate) fn on_signals() -> Result<Stop> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in SIGNALS {
            flag::register(signal, Arc::clone(&asked)).context("signals cannot be caught")?;
        }
        Ok(Stop(asked))
    }

    /// Returns true if a signal came.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
