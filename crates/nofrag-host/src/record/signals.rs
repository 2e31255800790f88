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

/// Signals that end a process that does not catch them, except those that report a defect of the process; with their
/// names.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) signal: i32,
    /// True if the signal has reached all processes of the terminal: a key was pressed there, or the terminal is gone.
    /// False if only this process has it: another one sent it, or this process ran into a limit of its own.
    pub(super) of_terminal: bool,
}

/// Catches signals while it lives. A handler stays installed for good, but afterwards it does what the default action
/// does.
pub(super) struct Signals {
    arrived: SignalsInfo<WithRawSiginfo>,
    released: Arc<AtomicBool>,
}

impl Signals {
    pub(super) fn catch() -> io::Result<Signals> {
        let released = Arc::new(AtomicBool::new(false));
        let signals = NAMES.map(|(signal, _)| signal);
        // A write beyond the largest allowed file fails then, and a failed write ends a recording in order.
        flag::register_conditional_default(SIGXFSZ, Arc::clone(&released))?;
        flag::register(SIGXFSZ, Arc::default())?;
        for signal in signals {
            flag::register_conditional_default(signal, Arc::clone(&released))?;
        }
        Ok(Signals { arrived: SignalsInfo::new(signals)?, released })
    }

    /// Returns the last signal that arrived since the last call.
    pub(super) fn take(&mut self) -> Option<Arrived> {
        let last = self.arrived.pending().last()?;
        let signal = last.si_signo;
        // Codes above zero are the kernel's; kill(2) and its relatives have others.
        let of_terminal = last.si_code > 0 && matches!(signal, SIGINT | SIGQUIT | SIGHUP);
        Some(Arrived { signal, of_terminal })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.released.store(true, Ordering::SeqCst);
    }
}

/// Ignores the signals for good: their sender means another process.
pub(super) fn ignore() -> io::Result<()> {
    for (signal, _) in NAMES {
        flag::register(signal, Arc::default())?;
    }
    Ok(())
}

/// Returns the usual name of the signal.
pub(super) fn name(signal: i32) -> &'static str {
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or("a signal", |(_, name)| name)
}
