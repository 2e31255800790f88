//! A command whose run is recorded.

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
use super::signals::{Arrived, Signals};

/// Time that a command has to end after a signal. Then the recording ends without it, or kills it if its own time limit
/// is over.
const GRACE: Duration = Duration::from_secs(5);

/// A command to run during a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToRun {
    pub words: Vec<OsString>,
    /// The destination of the command's standard output.
    pub stdout: CommandStdout,
    /// Variables added to the environment of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Time limit: after it the command is asked to end, and five seconds later it is killed.
    pub most: Option<Duration>,
}

/// The outcome of the recorded command.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandReport {
    /// The words of the command, or only the name of its program where arguments were not asked for.
    pub words: Vec<String>,
    pub pid: u32,
    /// The exit code, if the command exited.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Time until the command ended, or until the recording did.
    pub seconds: f64,
    /// CPU time in user mode, including the processes for which the command waited.
    pub user_seconds: f64,
    /// CPU time in the kernel, including the processes for which the command waited.
    pub system_seconds: f64,
}

impl CommandReport {
    /// Returns true if the command exited with 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Returns true if the command had not ended when the recording did.
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

/// The treatment of a command that does not end when asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lateness {
    Allowed,
    /// The command was asked to end, and will be killed after [`GRACE`].
    Ends,
    Killed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Runs,
    Ended,
    /// The command was asked to end, and has not.
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
        let report = CommandReport { words, pid: child.id(), ..CommandReport::default() };
        let (asked_to_end, lateness) = (None, Lateness::Allowed);
        Ok(Running { child, began, cpu_before, report, asked_to_end, lateness })
    }

    /// Returns the recorded words of the command, as one line.
    pub(super) fn line(&self) -> String {
        self.report.words.join(" ")
    }

    /// Asks the command to end, since its time is over.
    pub(super) fn end(&mut self) {
        if self.lateness == Lateness::Allowed {
            self.lateness = Lateness::Ends;
            self.asked_to_end.get_or_insert(Instant::now());
            // The error is ignored: the command may just have ended.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    /// Passes a signal on, unless it has reached the command already.
    pub(super) fn signal(&mut self, arrived: Arrived) {
        self.asked_to_end.get_or_insert(Instant::now());
        // The CPU limit is ours; the command's is another.
        let signal = if arrived.signal == SIGXCPU { SIGTERM } else { arrived.signal };
        let signal = Signal::from_named_raw(signal).filter(|_| !arrived.of_terminal);
        if let Some(signal) = signal {
            // The error is ignored: the command may just have ended.
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
            // A killed command can only wait for the kernel.
            Lateness::Allowed | Lateness::Killed => State::Outlasts,
        }
    }

    fn note_times(&mut self) {
        let (user, system) = children_cpu();
        self.report.seconds = self.began.elapsed().as_secs_f64();
        self.report.user_seconds = user - self.cpu_before.0;
        self.report.system_seconds = system - self.cpu_before.1;
    }

    /// Waits until the command ends, without a recording.
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

/// Returns the seconds of user and of system time of all children that were waited for.
fn children_cpu() -> (f64, f64) {
    /// `USER_HZ`: the unit of the times in `/proc/self/stat` on every known architecture.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let mut fields = stat.rsplit(')').next().unwrap_or("").split_ascii_whitespace().skip(13);
    let mut seconds = || {
        let ticks = fields.next().and_then(|field| field.parse::<f64>().ok());
        ticks.unwrap_or(0.0) / TICKS_PER_SECOND
    };
    (seconds(), seconds())
}
