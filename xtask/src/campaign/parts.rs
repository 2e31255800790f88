//! The parts of the campaign: what each runs, what it counts, and its goals.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

use super::record::{Outcome, Slice, Sum};
use super::refusals;
use crate::ci::succeeds;
use crate::deb::git;
use crate::fuzz;

/// Amount that is wanted over all nights.
#[derive(Debug)]
pub(super) struct Goal {
    pub(super) count: Option<u64>,
    /// Seconds of a processor's time.
    pub(super) seconds: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: &'static str,
    /// Name of the things that the part counts.
    pub(super) counts: &'static str,
    pub(super) goal: Goal,
    runs: Runs,
}

/// Program that a slice starts.
#[derive(Debug)]
enum Runs {
    /// A fuzz body beside its model, on inputs of one seed after the other.
    Model,
    /// The model of the address space beside the running kernel.
    Kernel,
    /// One of the fuzz targets, under libFuzzer with a limit of memory.
    Fuzzer,
    /// A program under strace, with one of its system calls refused.
    Refusal,
}

const fn model(name: &'static str, counts: &'static str) -> Part {
    let goal = Goal { count: Some(100_000_000), seconds: Some(1800) };
    Part { name, counts, goal, runs: Runs::Model }
}

pub(super) const PARTS: &[Part] = &[
    model("ranges", "operations, each compared with a list of runs"),
    model("handles", "operations on ranges by handle, each compared with a list of runs"),
    model("areas", "operations, each compared with a list of areas"),
    model("blocks", "operations, each compared with a list of mappings"),
    model("mappings", "operations, each compared with a list of areas"),
    model("pages", "operations, each compared with a book of blocks"),
    model("arenas", "operations, each compared with a list of runs"),
    Part {
        name: "kernel",
        counts: "placements, each compared with the running kernel's",
        goal: Goal { count: Some(100_000_000), seconds: None },
        runs: Runs::Kernel,
    },
    Part {
        name: "starved",
        counts: "operations on a heap that refuses at random",
        goal: Goal { count: None, seconds: Some(1800) },
        runs: Runs::Model,
    },
    Part {
        name: "refused",
        counts: "uses of memory in which the kernel refused a call",
        goal: Goal { count: Some(1_000_000), seconds: None },
        runs: Runs::Model,
    },
    Part {
        name: "fuzz",
        counts: "inputs of the fuzz targets under a limit of memory",
        goal: Goal { count: None, seconds: Some(7200) },
        runs: Runs::Fuzzer,
    },
    Part {
        name: "host",
        counts: "runs of `nofrag host` in which the kernel refused a call",
        goal: Goal { count: Some(1000), seconds: None },
        runs: Runs::Refusal,
    },
];

/// Bytes in MiB that a fuzz target may take.
const MOST_MIB: u32 = 1024;

impl Part {
    /// Returns the reached share of the goal that is farthest away.
    pub(super) fn reached(&self, sum: &Sum) -> f64 {
        let count = self.goal.count.map(|goal| sum.count as f64 / goal as f64);
        let seconds = self.goal.seconds.map(|goal| sum.seconds / goal as f64);
        count.into_iter().chain(seconds).fold(f64::INFINITY, f64::min)
    }

    /// Builds the program that a slice starts.
    pub(super) fn prepare(&self, root: &Path) -> anyhow::Result<()> {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(root).stdin(Stdio::null());
        match self.runs {
            Runs::Model => cargo.args(["build", "--manifest-path", "fuzz/Cargo.toml"]).args([
                "--profile",
                "campaign",
                "--example",
                "slice",
            ]),
            // Addresses are compared, which no checks in the code change.
            Runs::Kernel => cargo.args(["build", "--release", "--package", "nofrag-cli"]),
            Runs::Refusal => {
                if !succeeds(Command::new("strace").arg("--version")) {
                    bail!("strace is not installed");
                }
                cargo.args(["build", "--package", "nofrag-cli"])
            }
            Runs::Fuzzer => {
                if let Some(why) = fuzz::missing() {
                    bail!("{why}");
                }
                cargo.args(["+nightly", "fuzz", "build", "--release"])
            }
        };
        if !cargo.status().context("cargo can be started")?.success() {
            bail!("it cannot be built");
        }
        Ok(())
    }

    pub(super) fn run(&self, root: &Path, seed: u64, seconds: u64) -> anyhow::Result<Slice> {
        let arguments: Vec<String> = match self.runs {
            Runs::Model => {
                let program = "fuzz/target/campaign/examples/slice";
                [program, self.name, &seed.to_string(), &seconds.to_string()]
                    .map(str::to_owned)
                    .into()
            }
            // A second is about this many operations of each program; the operations that the program reports are
            // counted.
            Runs::Kernel => {
                let loops = seconds.saturating_mul(10_000).to_string();
                let seed = seed.to_string();
                let program = "target/release/nofrag";
                let programs = ["run", "mmap-live", "--check", "--json", "--seed", &seed];
                let words = [program].into_iter().chain(programs).chain(["--loops", &loops]);
                words.map(str::to_owned).collect()
            }
            Runs::Fuzzer => fuzzing(root, seed, seconds)?,
            Runs::Refusal => return refusals::run(self.name, root, seed, seconds),
        };
        let before = seconds_of_children()?;
        let [program, rest @ ..] = arguments.as_slice() else { bail!("a slice starts a program") };
        let output = Command::new(root.join(program))
            .args(rest)
            .env("RUST_BACKTRACE", "0")
            .current_dir(root)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{program} can be started"))?;
        let seconds = seconds_of_children()? - before;
        let (count, missing) = match self.count(&output) {
            Ok(count) => (count, None),
            Err(why) => (0, Some(format!("{why:#}"))),
        };
        let finding = match missing {
            _ if !output.status.success() => Some(last_words(&output)),
            other => other,
        };
        Ok(Slice {
            part: self.name.to_owned(),
            seed,
            count,
            seconds: (seconds * 100.0).round() / 100.0,
            machine: machine()?,
            commit: commit(root)?,
            outcome: if finding.is_some() { Outcome::Failed } else { Outcome::Held },
            finding,
            refused: None,
            repeat: arguments.join(" "),
        })
    }

    /// Returns the count that the program reports.
    fn count(&self, output: &Output) -> anyhow::Result<u64> {
        let text = std::str::from_utf8(&output.stdout)?;
        match self.runs {
            Runs::Model => {
                let last = text.lines().rev().find_map(|line| line.strip_prefix("operations "));
                Ok(last.context("it does not say how many operations it carried out")?.parse()?)
            }
            Runs::Kernel => placements(&serde_json::from_str(text)?),
            Runs::Fuzzer => {
                // libFuzzer speaks on the other channel.
                let said = String::from_utf8_lossy(&output.stderr);
                let prefix = "stat::number_of_executed_units:";
                let count = said.lines().find_map(|line| line.strip_prefix(prefix));
                Ok(count.context("it does not say how many inputs it ran")?.trim().parse()?)
            }
            Runs::Refusal => bail!("it counts for itself"),
        }
    }
}

/// Makes the command of a slice of fuzzing: the target that the seed chooses.
fn fuzzing(root: &Path, seed: u64, seconds: u64) -> anyhow::Result<Vec<String>> {
    let targets = fuzz::targets(root)?;
    // The one that is broken on purpose is fuzzed elsewhere.
    let sound: Vec<&String> = targets.iter().filter(|target| *target != fuzz::CANARY).collect();
    let target = sound[(seed % sound.len() as u64) as usize];
    std::fs::create_dir_all(root.join("fuzz/corpus").join(target))?;
    let seeds = format!("fuzz/seeds/{target}");
    let folders = [format!("fuzz/corpus/{target}"), seeds];
    let options = [
        format!("-max_total_time={seconds}"),
        format!("-seed={}", seed % u64::from(u32::MAX)),
        format!("-rss_limit_mb={MOST_MIB}"),
        format!("-malloc_limit_mb={MOST_MIB}"),
        "-print_final_stats=1".to_owned(),
        "-max_len=8192".to_owned(),
        "-timeout=10".to_owned(),
        format!("-artifact_prefix=fuzz/artifacts/{target}-"),
    ];
    std::fs::create_dir_all(root.join("fuzz/artifacts"))?;
    let program = format!("fuzz/target/x86_64-unknown-linux-gnu/release/{target}");
    let there = folders.into_iter().filter(|folder| root.join(folder).is_dir());
    Ok([program].into_iter().chain(there).chain(options).collect())
}

/// Returns the placements of all programs, of which one and the same number stands beside each of two designs.
fn placements(run: &serde_json::Value) -> anyhow::Result<u64> {
    let rows = run["reports"][0]["measurements"].as_array().context("it has no measurements")?;
    let of_kernel = rows.iter().filter(|row| row["design"] == "linux");
    let counts = of_kernel.filter_map(|row| row["counts"]["placements"].as_f64());
    let sum = counts.sum::<f64>() as u64;
    // A kernel whose rules are not known is not compared.
    if sum == 0 { bail!("nothing was compared here") } else { Ok(sum) }
}

/// Returns the processor time of all children that have ended, in seconds.
pub(super) fn seconds_of_children() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat names its process")?;
    // cutime and cstime, fields 16 and 17 of proc_pid_stat(5), in hundredths of a second.
    let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}

/// Bytes that are kept of a program's output.
const LONGEST_WORDS: usize = 600;

/// Returns the last words of a program that failed: where it panicked and how to repeat it.
fn last_words(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(4)..].join(" | ");
    // A comparison shows both sides on pages; the seed shows it again.
    let from = last.floor_char_boundary(last.len().saturating_sub(LONGEST_WORDS));
    format!("{}: {}", output.status, &last[from..])
}

/// Returns the processor and the kernel.
pub(crate) fn machine() -> anyhow::Result<String> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(format!("{count} x {model}, Linux {}", release.trim()))
}

pub(super) fn commit(root: &Path) -> anyhow::Result<String> {
    let of_sources = ["status", "--porcelain", "--untracked-files=no", "--", "crates", "fuzz"];
    let changed = git(root, &of_sources)?;
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    Ok(if changed.is_empty() { commit } else { format!("{commit}, changed") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_counted_once() {
        let row = |design: &str, count: u64| serde_json::json!({ "design": design, "counts": { "placements": count } });
        let other = serde_json::json!({ "design": "linux", "counts": { "threads": 7 } });
        let rows = [row("linux", 10), row("nofrag", 10), row("linux", 5), other];
        let run = serde_json::json!({ "reports": [{ "measurements": rows }] });
        assert_eq!(placements(&run).unwrap(), 15);
        assert!(placements(&serde_json::json!({ "reports": [{ "measurements": [] }] })).is_err());
        assert!(placements(&serde_json::json!({})).is_err());
    }

    #[test]
    fn what_cannot_be_counted_is_a_failure() {
        let program = Command::new("true").output().unwrap();
        assert!(PARTS[0].count(&program).is_err());
    }
}
