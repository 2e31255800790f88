//! Signals that would end the recorder ask it to end in order instead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ,
};
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

/// What ends a process that does not catch it, but for what tells of a defect of its own, and what it is called.
const NAMES: [(i32, &str); 8] = [
    (SIGINT, "SIGINT"),
    (SIGTERM, "SIGTERM"),
    (SIGHUP, "SIGHUP"),
    (SIGQUIT, "SIGQUIT"),
    (SIGALRM, "SIGALRM"),
    (SIGUSR1, "SIGUSR1"),
    (SIGUSR2, "SIGUSR2"),
    (SIGXCPU, "SIGXCPU"),
];

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) signal: i32,
    pub(super) reached: Reached,
}

/// Whom a signal has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// This process; another one has sent it, or it ran into a limit of its own.
    Us,
    /// All processes of the terminal: a key was pressed there, or it is gone.
    Terminal,
}

/// Catches signals while it lives. A handler stays installed for good, but afterwards it does what the default does.
pub(super) struct Signals {
    arrived: SignalsInfo<WithRawSiginfo>,
    released: Arc<AtomicBool>,
}

impl Signals {
    pub(super) fn catch() -> io::Result<Signals> {
        let released = Arc::new(AtomicBool::new(false));
        let signals = NAMES.map(|(signal, _)| signal);
        // A write beyond the largest file that is allowed fails then, and a failed write ends a recording in order.
        flag::register_conditional_default(SIGXFSZ, Arc::clone(&released))?;
        flag::register(SIGXFSZ, Arc::default())?;
        for signal in signals {
            flag::register_conditional_default(signal, Arc::clone(&released))?;
        }
        Ok(Signals { arrived: SignalsInfo::new(signals)?, released })
    }

    /// The last signal that arrived since this was asked.
    pub(super) fn take(&mut self) -> Option<Arrived> {
        let last = self.arrived.pending().last()?;
        let signal = last.si_signo;
        // Codes above zero are the kernel's; kill(2) and its kin have others.
        let of_terminal = last.si_code > 0 && matches!(signal, SIGINT | SIGQUIT | SIGHUP);
        Some(Arrived { signal, reached: if of_terminal { Reached::Terminal } else { Reached::Us } })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.released.store(true, Ordering::SeqCst);
    }
}

/// Ignores them for good: whoever sends them means another process.
pub(super) fn ignore() -> io::Result<()> {
    for (signal, _) in NAMES {
        flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// What people call the signal.
pub(super) fn name(signal: i32) -> &'static str {
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or("a signal", |(_, name)| name)
}
