//! The origin of a result: binary, machine and command.

use std::fs;
use std::num::NonZero;
use std::thread;

use serde::{Deserialize, Serialize};

/// The origin of a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    pub rustc: &'static str,
    pub profile: &'static str,
    pub revision: &'static str,
}

/// The origin of a result: everything that a reader needs to make it again, and nothing that names a person or a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Origin {
    /// When the run began, in UTC.
    pub started: String,
    pub processor: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Kernel name, release and architecture.
    pub kernel: String,
    pub rustc: String,
    /// The profile of the build: times of any other than `measured` are too long.
    pub profile: String,
    pub revision: String,
    /// The command as it was given.
    pub command: String,
}

impl Origin {
    /// Returns the origin of a run on this machine, with the given binary and command line.
    #[must_use]
    pub fn here(build: Build, command: String) -> Origin {
        let Build { rustc, profile, revision } = build;
        Origin {
            started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            processor: processor(),
            cpus: cpus(),
            kernel: format!("{} {} {}", env_os(), kernel_release(), std::env::consts::ARCH),
            rustc: rustc.to_owned(),
            profile: profile.to_owned(),
            revision: revision.to_owned(),
            command,
        }
    }

    /// Returns the day on which the run began.
    #[must_use]
    pub fn date(&self) -> &str {
        self.started.split('T').next().unwrap_or(&self.started)
    }
}

fn env_os() -> &'static str {
    match std::env::consts::OS {
        "linux" => "Linux",
        other => other,
    }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "unknown processor".to_owned(), |(_, name)| name.trim().to_owned())
}

fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Returns the number of CPUs that this process may use, at least one.
#[must_use]
pub fn cpus() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}
