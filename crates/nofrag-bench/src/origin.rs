//! The origin of a result: everything that a reader needs to make it again.

use nofrag_show::Build;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::fs;

/// Machine, compiler and command of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    #[serde(flatten)]
    pub made: nofrag_show::Origin,
    /// CPUs that the process may use.
    #[serde(skip)]
    pub allowed: Vec<usize>,
    /// The CPU that the run was pinned to.
    pub pinned_to: Option<usize>,
    /// `full`, or `quick` for fewer rounds, seeds and replacements.
    pub effort: &'static str,
    pub seed: u64,
    /// Runnable tasks in the last minute, before the run and after it.
    pub load: (String, String),
}

/// The compiler, the profile and the revision of this binary.
const BUILD: Build = Build {
    rustc: env!("NOFRAG_RUSTC"),
    profile: env!("NOFRAG_PROFILE"),
    revision: env!("NOFRAG_REVISION"),
};

impl Origin {
    /// Describes the present machine and binary; pins the calling thread to one CPU, where that is allowed.
    #[must_use]
    pub fn here(seed: u64, effort: &'static str) -> Origin {
        let (made, allowed) = (nofrag_show::Origin::here(BUILD, command()), allowed_cpus());
        let pinned_to = allowed.last().copied().and_then(pin);
        Origin { made, allowed, pinned_to, effort, seed, load: (load(), String::new()) }
    }

    /// Notes the load at the end of the run.
    pub fn finish(&mut self) {
        self.load.1 = load();
    }

    /// Returns the name and value of each fact, for people.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let pinned = self.pinned_to.map_or("no".to_owned(), |cpu| format!("to CPU {cpu}"));
        let load = format!("{} before, {} after", self.load.0, self.load.1);
        let mut facts = nofrag_lab::saved::facts(&self.made).to_vec();
        facts.extend([("pinned", pinned), ("effort", self.effort.to_owned())]);
        facts.extend([("seed", self.seed.to_string()), ("load (1 min)", load)]);
        facts
    }
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown").to_owned()
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

fn command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let separator = if arguments.is_empty() { "" } else { " -- " };
    format!(
        "cargo run --profile {} -p nofrag-bench{separator}{}",
        BUILD.profile,
        arguments.join(" ")
    )
}
