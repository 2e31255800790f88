//! Shows real addresses for the time of one read, and puts the setting back.
//!
//! Setting `kernel.kptr_restrict` to 1 makes the kernel print addresses to readers with `CAP_SYSLOG`. While the setting
//! is 1 every such reader sees them, so the time is kept to one read, some milliseconds. [`Unhashed`] puts back the
//! former value
//!
//! * when [`Unhashed::restore`] is called, with an error when that fails;
//! * when it is dropped, so also on an early return and on a panic;
//! * when a signal arrives meanwhile that would end or stop the command, from the terminal or by `kill`: the signal is
//!   held back until the setting is restored and takes its usual effect then.
//!
//! `SIGKILL`, `SIGSTOP` and a crash of the machine cannot be guarded against. A value that another process wrote
//! meanwhile is left alone.
//!
//! Source: docs/sources/trace.md#t4, #degrading.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::{flag, low_level};
use thiserror::Error;

/// The value of `kernel.kptr_restrict` under which privileged readers see addresses.
const SHOWN: &str = "1";

/// The value of `kernel.kptr_restrict` while an [`Unhashed`] lives.
pub const KPTR_RESTRICT_MEANWHILE: u8 = 1;

/// The signals that end a command, and the one that stops it from the terminal.
const SIGNALS: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP];

/// Guard of the changed `kernel.kptr_restrict`, which is put back when the guard is dropped.
#[must_use = "the setting is put back when this is dropped"]
#[derive(Debug)]
pub struct Unhashed {
    setting: Setting,
    signals: HeldSignals,
}

/// The reason why `kernel.kptr_restrict` was not changed or not put back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UnhashError {
    /// The setting could not be read or set. Nothing changed.
    #[error(
        "{path}: {cause}: cannot show addresses for the time of the read; run as root, or without --unhash"
    )]
    NotChanged { path: PathBuf, cause: io::Error },
    /// The setting could not be put back.
    #[error(
        "{path}: {cause}: it was {before:?} and is now 1: put it back with `sysctl kernel.kptr_restrict={before}`"
    )]
    NotRestored {
        path: PathBuf,
        /// The former value of the setting.
        before: String,
        cause: io::Error,
    },
}

impl Unhashed {
    /// Sets the file `setting` (`/proc/sys/kernel/kptr_restrict`) to 1. Leaves the file untouched when it is 1 already.
    ///
    /// # Errors
    /// [`UnhashError::NotChanged`] if the file cannot be read or written, or signals cannot be held.
    pub fn begin(setting: &Path) -> Result<Unhashed, UnhashError> {
        let not_changed = |cause| UnhashError::NotChanged { path: setting.to_owned(), cause };
        let before = fs::read_to_string(setting).map_err(not_changed)?.trim().to_owned();
        // Held before the change: a signal in between would leave the setting changed.
        let signals = HeldSignals::hold().map_err(not_changed)?;
        let changed = before != SHOWN;
        if changed {
            fs::write(setting, SHOWN).map_err(not_changed)?;
        }
        let before = changed.then_some(before);
        Ok(Unhashed { setting: Setting { path: setting.to_owned(), before }, signals })
    }

    /// Puts the setting back, then lets held signals take effect.
    ///
    /// # Errors
    /// [`UnhashError::NotRestored`] if the file cannot be written.
    pub fn restore(mut self) -> Result<(), UnhashError> {
        let restored = self.setting.restore();
        drop(self);
        restored
    }
}

impl Drop for Unhashed {
    fn drop(&mut self) {
        // `restore` reports the error; a drop cannot.
        let _ = self.setting.restore();
        self.signals.release();
    }
}

#[derive(Debug)]
struct Setting {
    path: PathBuf,
    /// The former value; `None` once it is put back.
    before: Option<String>,
}

impl Setting {
    fn restore(&mut self) -> Result<(), UnhashError> {
        let Some(before) = self.before.take() else { return Ok(()) };
        let put_back = || {
            let present = fs::read_to_string(&self.path)?;
            if present.trim() == SHOWN { fs::write(&self.path, &before) } else { Ok(()) }
        };
        put_back().map_err(|cause| UnhashError::NotRestored {
            path: self.path.clone(),
            before: before.clone(),
            cause,
        })
    }
}

/// Signals that are held back until [`release`](Self::release). A handler stays installed for good, but after the
/// release it does what the default action does.
#[derive(Debug)]
struct HeldSignals {
    released: Arc<AtomicBool>,
    arrived: Vec<(i32, Arc<AtomicBool>)>,
}

impl HeldSignals {
    fn hold() -> io::Result<HeldSignals> {
        let released = Arc::new(AtomicBool::new(false));
        let mut arrived = Vec::new();
        for signal in SIGNALS {
            flag::register_conditional_default(signal, Arc::clone(&released))?;
            let seen = Arc::new(AtomicBool::new(false));
            flag::register(signal, Arc::clone(&seen))?;
            arrived.push((signal, seen));
        }
        Ok(HeldSignals { released, arrived })
    }

    fn release(&mut self) {
        self.released.store(true, Ordering::SeqCst);
        for (signal, seen) in self.arrived.drain(..) {
            if seen.load(Ordering::SeqCst) {
                // Fails only for signals without a default action, and none of these is.
                let _ = low_level::emulate_default_handler(signal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(value: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kptr_restrict");
        fs::write(&path, value).unwrap();
        (folder, path)
    }

    fn check_is(path: &Path, expected: &str) {
        assert_eq!(fs::read_to_string(path).unwrap().trim(), expected);
    }

    #[test]
    fn put_back_when_asked() {
        let (_folder, path) = setting("2\n");
        let unhashed = Unhashed::begin(&path).unwrap();
        check_is(&path, "1");
        unhashed.restore().unwrap();
        check_is(&path, "2");
    }

    #[test]
    fn put_back_on_early_return_and_panic() {
        let (_folder, path) = setting("0\n");
        drop(Unhashed::begin(&path).unwrap());
        check_is(&path, "0");
        let panicked = std::panic::catch_unwind(|| {
            let _unhashed = Unhashed::begin(&path).unwrap();
            panic!("while addresses are shown");
        });
        assert!(panicked.is_err());
        check_is(&path, "0");
    }

    #[test]
    fn what_somebody_else_wrote_stays() {
        let (_folder, path) = setting("0\n");
        let unhashed = Unhashed::begin(&path).unwrap();
        fs::write(&path, "2\n").unwrap();
        unhashed.restore().unwrap();
        check_is(&path, "2");
    }

    #[test]
    fn shown_already_means_nothing_to_do() {
        let (_folder, path) = setting("1\n");
        Unhashed::begin(&path).unwrap().restore().unwrap();
        check_is(&path, "1");
    }

    #[test]
    fn a_missing_setting_is_an_error() {
        let absent = Path::new("/nonexistent/kptr_restrict");
        assert!(matches!(Unhashed::begin(absent), Err(UnhashError::NotChanged { .. })));
    }

    #[test]
    fn a_failed_restoration_says_what_to_do() {
        let (folder, path) = setting("0\n");
        let unhashed = Unhashed::begin(&path).unwrap();
        folder.close().unwrap();
        let message = unhashed.restore().unwrap_err().to_string();
        assert!(message.contains("sysctl kernel.kptr_restrict=0"), "{message}");
    }

    const CHILD_SETTING: &str = "NOFRAG_TEST_SETTING";

    /// The body of the process that the next test starts: a signal reaches it while addresses are shown.
    #[test]
    #[ignore = "ends by a signal; started by `a_signal_waits_for_the_restoration`"]
    fn child() {
        let path = PathBuf::from(std::env::var_os(CHILD_SETTING).expect("set by the parent"));
        let unhashed = Unhashed::begin(&path).unwrap();
        low_level::raise(SIGTERM).unwrap();
        check_is(&path, "1");
        fs::write(path.with_extension("survived"), "").unwrap();
        unhashed.restore().unwrap();
        unreachable!("the signal takes effect when it is released");
    }

    #[test]
    fn a_signal_waits_for_the_restoration() {
        use std::os::unix::process::ExitStatusExt;
        let (_folder, path) = setting("2\n");
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "unhash::tests::child", "--ignored"])
            .env(CHILD_SETTING, &path)
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(path.with_extension("survived").exists(), "the signal did not wait");
        check_is(&path, "2");
        assert_eq!(status.signal(), Some(SIGTERM));
    }
}
