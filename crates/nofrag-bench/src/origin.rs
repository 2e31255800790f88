//! The origin of a result: everything that a reader needs to make it again.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::fs;
use std::process::Command;

/// Machine, compiler and command of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// Beginning of the run, in UTC.
    pub started: String,
    pub processor: String,
    /// CPUs that the process may use.
    pub cpus: usize,
    #[serde(skip)]
    pub allowed: Vec<usize>,
    /// The CPU that the run was pinned to.
    pub pinned_to: Option<usize>,
    pub kernel: String,
    pub rustc: String,
    pub profile: String,
    /// The revision of the working tree, where git can tell.
    pub revision: String,
    pub command: String,
    /// `full`, or `quick` for fewer rounds, seeds and replacements.
    pub effort: &'static str,
    pub seed: u64,
    /// Runnable tasks in the last minute, before the run and after it.
    pub load: (String, String),
}

impl Origin {
    /// Describes the present machine and binary; pins the calling thread to one CPU, where that is allowed.
    #[must_use]
    pub fn here(seed: u64, effort: &'static str) -> Origin {
        let allowed = allowed_cpus();
        Origin {
            started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            processor: processor(),
            cpus: allowed.len().max(1),
            pinned_to: allowed.last().copied().and_then(pin),
            allowed,
            kernel: trimmed("/proc/sys/kernel/osrelease"),
            rustc: env!("COMPARE_RUSTC").to_owned(),
            profile: env!("COMPARE_PROFILE").to_owned(),
            revision: revision(),
            command: command(),
            effort,
            seed,
            load: (load(), String::new()),
        }
    }

    /// Notes the load at the end of the run.
    pub fn finish(&mut self) {
        self.load.1 = load();
    }

    /// Returns the day on which the run began.
    #[must_use]
    pub fn date(&self) -> &str {
        self.started.split('T').next().unwrap_or(&self.started)
    }

    /// Returns the name and value of each fact, for people.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let pinned = self.pinned_to.map_or("no".to_owned(), |cpu| format!("to CPU {cpu}"));
        vec![
            ("started", self.started.clone()),
            ("processor", format!("{}, {} CPUs", self.processor, self.cpus)),
            ("pinned", pinned),
            ("kernel", self.kernel.clone()),
            ("compiler", format!("{}, profile {}", self.rustc, self.profile)),
            ("revision", self.revision.clone()),
            ("command", self.command.clone()),
            ("effort", self.effort.to_owned()),
            ("seed", self.seed.to_string()),
            ("load (1 min)", format!("{} before, {} after", self.load.0, self.load.1)),
        ]
    }
}

fn trimmed(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn load() -> String {
    trimmed("/proc/loadavg").split(' ').next().unwrap_or("unknown").to_owned()
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "unknown processor".to_owned(), |(_, name)| name.trim().to_owned())
}

fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Lets the calling thread run on this CPU only; returns its number, if that is allowed.
pub fn pin(cpu: usize) -> Option<usize> {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).ok().map(|()| cpu)
}

fn revision() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    if text.is_empty() { "unknown".to_owned() } else { text }
}

fn command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let separator = if arguments.is_empty() { "" } else { " -- " };
    format!("cargo run --release -p nofrag-bench{separator}{}", arguments.join(" "))
}
