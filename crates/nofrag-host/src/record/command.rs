//! The command that is recorded.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use signal_hook::consts::{SIGTERM, SIGXCPU};

use super::CommandStdout;
use super::error::RecordError;
use super::signals::{Arrived, Reached, Signals};

/// How long a command may take to end after a signal, until the recording ends without it; one whose time is over is
/// killed then.
const GRACE: Duration = Duration::from_secs(5);

/// A command to record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToRun {
    /// Its words.
    pub words: Vec<OsString>,
    /// Where its standard output goes.
    pub stdout: CommandStdout,
    /// What is set for it beside the environment of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// It is asked to end after so long, and killed five seconds later.
    pub most: Option<Duration>,
}

/// What became of the command.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommandReport {
    /// Its words, or the name of its program alone where arguments were not asked for.
    pub words: Vec<String>,
    /// Its process.
    pub pid: u32,
    /// Its exit code, if it exited.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// How long it ran, or until the recording ended.
    pub seconds: f64,
    /// CPU time in its own code, with that of the processes it waited for.
    pub user_seconds: f64,
    /// CPU time in the kernel, likewise.
    pub system_seconds: f64,
}

impl CommandReport {
    /// Whether it ended, and with 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Whether it had not ended when the recording did.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.exit_code.is_none() && self.signal.is_none()
    }
}

/// The command while it runs.
pub(super) struct Running {
    child: Child,
    began: Instant,
    cpu_before: (f64, f64),
    report: CommandReport,
    asked_to_end: Option<Instant>,
    lateness: Lateness,
}

/// What happens to a command that does not end when it is asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lateness {
    /// The recording ends without it.
    Allowed,
    /// It will be killed.
    Ends,
    /// It was killed.
    Killed,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Runs,
    Ended,
    /// It was asked to end, and has not.
    Outlasts,
}

impl Running {
    pub(super) fn start(command: &ToRun, with_arguments: bool) -> Result<Running, RecordError> {
        let refused = |program: &OsStr, cause| RecordError::Command {
            command: program.to_string_lossy().into_owned(),
            cause,
        };
        let ToRun { words, stdout, environment, .. } = command;
        let (program, arguments) = words
            .split_first()
            .ok_or_else(|| refused(OsStr::new(""), io::ErrorKind::InvalidInput.into()))?;
        let cpu_before = children_cpu();
        let began = Instant::now();
        let stdout = match stdout {
            CommandStdout::Own => Stdio::inherit(),
            CommandStdout::StandardError => io::stderr().into(),
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(environment.iter().cloned()).stdout(stdout);
        let child = command.spawn().map_err(|cause| refused(program, cause))?;
        let text = |word: &OsStr| word.to_string_lossy().into_owned();
        let words = match with_arguments {
            true => words.iter().map(|word| text(word)).collect(),
            false => vec![text(Path::new(program).file_name().unwrap_or(program))],
        };
        let report = CommandReport {
            words,
            pid: child.id(),
            exit_code: None,
            signal: None,
            seconds: 0.0,
            user_seconds: 0.0,
            system_seconds: 0.0,
        };
        let (asked_to_end, lateness) = (None, Lateness::Allowed);
        Ok(Running { child, began, cpu_before, report, asked_to_end, lateness })
    }

    /// What of its words is recorded, as one line.
    pub(super) fn line(&self) -> String {
        self.report.words.join(" ")
    }

    /// Asks it to end, since its time is over.
    pub(super) fn end(&mut self) {
        if self.lateness == Lateness::Allowed {
            self.lateness = Lateness::Ends;
            self.asked_to_end.get_or_insert(Instant::now());
            // It may just have ended.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    /// Passes a signal on, unless it has reached the command already.
    pub(super) fn signal(&mut self, arrived: Arrived) {
        self.asked_to_end.get_or_insert(Instant::now());
        // That limit is ours and says nothing of the command's.
        let signal = if arrived.signal == SIGXCPU { SIGTERM } else { arrived.signal };
        let signal = Signal::from_named_raw(signal).filter(|_| arrived.reached == Reached::Us);
        if let Some(signal) = signal {
            // It may just have ended.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    pub(super) fn state(&mut self) -> State {
        if !self.report.is_running() {
            return State::Ended;
        }
        if let Ok(Some(status)) = self.child.try_wait() {
            self.report.exit_code = status.code();
            self.report.signal = status.signal();
            self.note_times();
            return State::Ended;
        }
        let late = self.asked_to_end.is_some_and(|since| since.elapsed() >= GRACE);
        match self.lateness {
            _ if !late => State::Runs,
            Lateness::Ends => {
                self.lateness = Lateness::Killed;
                self.asked_to_end = Some(Instant::now());
                let _ = self.child.kill();
                State::Runs
            }
            // Killed, it can only wait for the kernel.
            Lateness::Allowed | Lateness::Killed => State::Outlasts,
        }
    }

    fn note_times(&mut self) {
        let (user, system) = children_cpu();
        self.report.seconds = self.began.elapsed().as_secs_f64();
        self.report.user_seconds = user - self.cpu_before.0;
        self.report.system_seconds = system - self.cpu_before.1;
    }

    /// Waits until it ends, without a recording.
    pub(super) fn wait(&mut self, signals: &mut Signals) {
        const TICK: Duration = Duration::from_millis(50);
        while self.state() == State::Runs {
            if let Some(signal) = signals.take() {
                self.signal(signal);
            }
            thread::sleep(TICK);
        }
    }

    pub(super) fn report(mut self) -> CommandReport {
        if self.report.is_running() {
            self.note_times();
        }
        self.report
    }
}

/// Seconds of user and of system time of all children that were waited for.
fn children_cpu() -> (f64, f64) {
    /// `USER_HZ`: the unit of these fields on every architecture that we know.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let mut fields = stat.rsplit(')').next().unwrap_or("").split_ascii_whitespace().skip(13);
    let mut seconds = || {
        let ticks = fields.next().and_then(|field| field.parse::<f64>().ok());
        ticks.unwrap_or(0.0) / TICKS_PER_SECOND
    };
    (seconds(), seconds())
}
