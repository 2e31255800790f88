//! What a result was made on and by.

use std::fs;
use std::num::NonZero;
use std::thread;

use serde::{Deserialize, Serialize};

/// What a binary was made from and by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The compiler.
    pub rustc: &'static str,
    /// The profile.
    pub profile: &'static str,
    /// The revision.
    pub revision: &'static str,
}

/// Where a result comes from. Everything that a reader needs to make it again, and nothing that names a person or a
/// host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// When the run began, in UTC.
    pub started: String,
    /// Processor model.
    pub processor: String,
    /// CPUs this process may use.
    pub cpus: usize,
    /// Kernel name, release and architecture.
    pub kernel: String,
    /// The compiler that made the binary.
    pub rustc: String,
    /// The profile it was built with: times of anything but `measured` are too long.
    pub profile: String,
    /// The revision that was built.
    pub revision: String,
    /// The command as it was given.
    pub command: String,
}

impl Origin {
    /// The present machine, the given binary and command line.
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

    /// The day on which the run began.
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

/// CPUs this process may use, at least one.
#[must_use]
pub fn cpus() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}
