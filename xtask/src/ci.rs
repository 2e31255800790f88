//! Every check, each with its time. A check whose tools are missing is skipped, and says so.
//!
//! The checks run in two lanes side by side, each in its own order: much of the work of one (linking, emulation,
//! fuzzing) leaves a processor idle. The lanes share no build folder, so neither waits for the other's lock. A lane
//! that is done goes on with checks that have folders of their own. What a check prints is kept and printed whole when
//! it ends.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::fuzz;

/// One check: a command line, and what it needs.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    pub(crate) lane: Lane,
    pub(crate) program: &'static str,
    pub(crate) arguments: &'static [&'static str],
    pub(crate) environment: &'static [(&'static str, &'static str)],
    pub(crate) needs: &'static [Need],
    /// After so long it has failed: twice what it takes beside the other lane on a busy machine.
    pub(crate) limit: Duration,
}

/// Checks of one lane run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// What builds into `target` for this machine.
    Host,
    /// What builds for other targets.
    Others,
    /// What builds in a folder of neither: whichever lane is free first does it.
    Either,
}

/// What a check cannot do without.
pub(crate) enum Need {
    /// A file or folder of the repository.
    Path(&'static str),
    /// A program on the search path.
    Program(&'static str),
    /// The standard library of a target.
    Target(&'static str),
    /// A C compiler that links 32-bit programs.
    Link32,
    /// The nightly toolchain and cargo-fuzz.
    Fuzzer,
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Quick checks first, so that a slip is seen early.
const STAGES: &[Stage] = &[
    Stage {
        name: "format",
        lane: Lane::Host,
        program: "cargo",
        arguments: &["fmt", "--all", "--check"],
        environment: &[],
        needs: &[],
        limit: MINUTE,
    },
    Stage {
        name: "format of fuzz",
        lane: Lane::Host,
        program: "cargo",
        arguments: &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"],
        environment: &[],
        needs: &[Need::Path("fuzz/Cargo.toml")],
        limit: MINUTE,
    },
    Stage {
        name: "tidy",
        lane: Lane::Host,
        program: "cargo",
        arguments: &["xtask", "tidy"],
        environment: &[],
        needs: &[],
        limit: MINUTE,
    },
    Stage {
        name: "tests",
        lane: Lane::Host,
        program: "cargo",
        arguments: &["test", "--workspace"],
        environment: &[],
        needs: &[],
        limit: MINUTE.saturating_mul(30),
    },
    Stage {
        name: "clippy",
        lane: Lane::Host,
        program: "cargo",
        arguments: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
        environment: &[],
        needs: &[],
        limit: MINUTE.saturating_mul(10),
    },
    Stage {
        name: "documentation",
        lane: Lane::Host,
        program: "cargo",
        arguments: &["doc", "--workspace", "--no-deps"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        needs: &[],
        limit: MINUTE.saturating_mul(8),
    },
    Stage {
        name: "examples",
        lane: Lane::Host,
        program: "cargo",
        arguments: &["build", "--workspace", "--examples"],
        environment: &[],
        needs: &[],
        limit: MINUTE.saturating_mul(8),
    },
    Stage {
        name: "scenarios",
        lane: Lane::Host,
        // What the tests have built; `cargo run` would build it again, with the features of this program alone. Claims
        // that decide do not depend on optimisation.
        program: "target/debug/nofrag",
        arguments: &["run", "all", "--check"],
        environment: &[],
        needs: &[],
        limit: MINUTE.saturating_mul(15),
    },
    Stage {
        name: "core without std",
        lane: Lane::Others,
        program: "cargo",
        arguments: &[
            "build",
            "--package",
            "nofrag",
            "--no-default-features",
            "--target",
            "x86_64-unknown-none",
            "--target-dir",
            "target/others",
        ],
        environment: &[],
        needs: &[Need::Target("x86_64-unknown-none")],
        limit: MINUTE.saturating_mul(3),
    },
    Stage {
        name: "core with spin locks",
        lane: Lane::Others,
        program: "cargo",
        arguments: &[
            "build",
            "--package",
            "nofrag",
            "--no-default-features",
            "--features",
            "spin",
            "--target",
            "x86_64-unknown-none",
            "--target-dir",
            "target/others",
        ],
        environment: &[],
        needs: &[Need::Target("x86_64-unknown-none")],
        limit: MINUTE.saturating_mul(3),
    },
    Stage {
        name: "core on i686",
        lane: Lane::Others,
        program: "cargo",
        arguments: &[
            "test",
            "--package",
            "nofrag",
            "--tests",
            "--target",
            "i686-unknown-linux-gnu",
            "--target-dir",
            "target/others",
            // As on aarch64: the word size does not matter to them.
            "--",
            "--skip=doc_20",
            "--skip=linux_rules",
            "--skip=mmap_model",
            "--skip=mmap_ours",
            "--skip=page_model",
            "--skip=placement_regressions",
        ],
        // The word size matters here, not the number of cases: all of them run natively.
        environment: &[("PROPTEST_CASES", "32")],
        needs: &[Need::Target("i686-unknown-linux-gnu"), Need::Link32],
        limit: MINUTE.saturating_mul(10),
    },
    Stage {
        name: "core on aarch64",
        lane: Lane::Others,
        program: "cargo",
        arguments: &[
            "test",
            "--package",
            "nofrag",
            "--tests",
            "--target",
            "aarch64-unknown-linux-gnu",
            "--target-dir",
            "target/others",
            // Long replays and models whose outcome is arithmetic: an emulator would take minutes for what two machines
            // have shown. What threads do to each other is left.
            "--",
            "--skip=doc_20",
            "--skip=linux_rules",
            "--skip=mmap_model",
            "--skip=mmap_ours",
            "--skip=model::random",
            "--skip=page_model",
            "--skip=placement_regressions",
        ],
        environment: &[
            ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
            (
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                "qemu-aarch64-static -L /usr/aarch64-linux-gnu",
            ),
            // Emulation is slow, and the cases are the same ones that run natively.
            ("PROPTEST_CASES", "8"),
        ],
        needs: &[
            Need::Target("aarch64-unknown-linux-gnu"),
            Need::Program("aarch64-linux-gnu-gcc"),
            Need::Program("qemu-aarch64-static"),
        ],
        limit: MINUTE.saturating_mul(12),
    },
    Stage {
        name: "fuzz targets",
        lane: Lane::Either,
        program: "cargo",
        arguments: &["xtask", "fuzz", "--seconds", "4", "--quick-build"],
        environment: &[],
        needs: &[Need::Path("fuzz/Cargo.toml"), Need::Fuzzer],
        limit: MINUTE.saturating_mul(15),
    },
    Stage {
        name: "interleavings",
        lane: Lane::Either,
        program: "cargo",
        arguments: &[
            "test",
            "--package",
            "nofrag",
            "--package",
            "nofrag-backing",
            "--profile",
            "quick",
            "--test",
            "loom*",
            "--target-dir",
            "target/loom",
        ],
        environment: &[("RUSTFLAGS", "--cfg loom"), ("LOOM_MAX_PREEMPTIONS", "2")],
        needs: &[Need::Path("crates/nofrag/tests/loom_vmap")],
        limit: MINUTE.saturating_mul(12),
    },
    Stage {
        name: "fuzz bodies, seeded",
        lane: Lane::Either,
        program: "cargo",
        arguments: &["test", "--manifest-path", "fuzz/Cargo.toml"],
        environment: &[],
        needs: &[Need::Path("fuzz/Cargo.toml")],
        limit: MINUTE.saturating_mul(10),
    },
    Stage {
        name: "clippy of fuzz",
        lane: Lane::Either,
        program: "cargo",
        arguments: &[
            "clippy",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[],
        needs: &[Need::Path("fuzz/Cargo.toml")],
        limit: MINUTE.saturating_mul(8),
    },
];

enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Runs every stage, also after one failed; true if none did.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    run_all(root, STAGES)
}

/// Runs these stages.
pub(crate) fn run_all(root: &Path, all: &'static [Stage]) -> anyhow::Result<bool> {
    let of = |lane: Lane| all.iter().filter(move |stage| stage.lane == lane);
    let report = Mutex::new(Vec::new());
    let spare = Mutex::new(of(Lane::Either));
    std::thread::scope(|scope| {
        let (report, spare) = (&report, &spare);
        let lanes = [Lane::Host, Lane::Others].map(|lane| {
            // The lock is held while the next one is chosen, not while it runs.
            let next = move || spare.lock().expect("no lane has panicked").next();
            let stages = of(lane).chain(std::iter::from_fn(next));
            scope.spawn(move || run_lane(root, stages, report))
        });
        lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic"))
    })?;
    let mut report = report.into_inner().expect("no lane has panicked");
    report.sort_by_key(|&(name, ..)| all.iter().position(|stage| stage.name == name));
    Ok(print_report(&report))
}

/// What is said of a stage at the end.
type Line = (&'static str, Outcome, Duration);

fn run_lane(
    root: &Path,
    stages: impl Iterator<Item = &'static Stage>,
    report: &Mutex<Vec<Line>>,
) -> anyhow::Result<()> {
    for stage in stages {
        println!("== begins: {}", stage.name);
        let start = Instant::now();
        let outcome = match stage.needs.iter().find_map(|need| need.missing(root)) {
            Some(reason) => Outcome::Skipped(reason),
            None => stage.run_and_print(root)?,
        };
        report.lock().expect("no lane has panicked").push((stage.name, outcome, start.elapsed()));
    }
    Ok(())
}

fn print_report(report: &[Line]) -> bool {
    println!("\n== summary");
    let [mut passed, mut failed, mut skipped] = [0; 3];
    for (name, outcome, time) in report {
        let (count, text) = match outcome {
            Outcome::Passed => (&mut passed, "passed".to_owned()),
            Outcome::Failed(why) => (&mut failed, format!("FAILED: {why}")),
            Outcome::Skipped(why) => (&mut skipped, format!("skipped: {why}")),
        };
        *count += 1;
        println!("{name:<22} {:>4} s  {text}", time.as_secs());
    }
    println!("stages: {passed} passed, {failed} failed, {skipped} skipped");
    failed == 0
}

impl Stage {
    /// Runs it, and prints what it said once it has ended, so that two lanes do not talk at once.
    fn run_and_print(&self, root: &Path) -> anyhow::Result<Outcome> {
        let folder = root.join("target/ci");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let path = folder.join(self.name.replace([' ', ','], "-"));
        let said = File::create(&path).with_context(|| path.display().to_string())?;
        let outcome = self.run(root, said.try_clone()?.into(), said.into())?;
        let mut out = io::stdout().lock();
        writeln!(out, "\n== {}: {} {}", self.name, self.program, self.arguments.join(" "))?;
        io::copy(&mut File::open(&path)?, &mut out)?;
        Ok(outcome)
    }

    fn run(&self, root: &Path, stdout: Stdio, stderr: Stdio) -> anyhow::Result<Outcome> {
        let mut command = if has_program("timeout") {
            let mut command = Command::new("timeout");
            command.args(["--kill-after=10", &self.limit.as_secs().to_string(), self.program]);
            command
        } else {
            Command::new(self.program)
        };
        command.args(self.arguments).envs(self.environment.iter().copied());
        command.current_dir(root).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let status = command.status()?;
        Ok(match status.code() {
            Some(0) => Outcome::Passed,
            Some(124 | 137) => Outcome::Failed(format!("ran past {} s", self.limit.as_secs())),
            _ => Outcome::Failed(status.to_string()),
        })
    }
}

impl Need {
    /// Why the need is not met, if it is not.
    fn missing(&self, root: &Path) -> Option<String> {
        match self {
            Need::Path(path) => {
                let there = root.join(path).exists() || root.join(format!("{path}.rs")).exists();
                (!there).then(|| format!("the repository has no {path}"))
            }
            Need::Program(name) => (!has_program(name)).then(|| format!("{name} is not installed")),
            Need::Target(name) => {
                (!has_target(name)).then(|| format!("`rustup target add {name}` was not done"))
            }
            Need::Link32 => (!links_32_bit())
                .then(|| "the C compiler links no 32-bit programs (gcc-multilib)".to_owned()),
            Need::Fuzzer => fuzz::missing(),
        }
    }
}

fn has_program(name: &str) -> bool {
    succeeds(Command::new(name).arg("--version"))
}

fn has_target(name: &str) -> bool {
    // A target's standard library lies where the compiler looks for it, also without rustup.
    let found = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", name])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    found.is_ok_and(|folder| !folder.is_empty() && Path::new(&folder).is_dir())
}

fn links_32_bit() -> bool {
    let program = std::env::temp_dir().join(format!("nofrag-link32-{}", std::process::id()));
    let linked = Command::new("cc")
        .args(["-m32", "-x", "c", "-", "-o"])
        .arg(&program)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .and_then(|mut compiler| {
            let mut source = compiler.stdin.take().expect("the input was asked for");
            std::io::Write::write_all(&mut source, b"int main(void) { return 0; }")?;
            drop(source);
            compiler.wait()
        })
        .is_ok_and(|status| status.success());
    // It may never have been made.
    let _ = std::fs::remove_file(program);
    linked
}

/// Whether the command can be run and exits with success; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_without_its_tool_is_skipped_with_a_reason() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(Need::Path("src").missing(root).is_none());
        assert!(Need::Path("src/main").missing(root).is_none());
        assert!(Need::Path("no/such/folder").missing(root).is_some());
        assert!(Need::Program("no-such-program-here").missing(root).is_some());
        assert!(Need::Target("no-such-target").missing(root).is_some());
    }

    #[test]
    fn a_failed_stage_fails_the_run() {
        let passed = ("a", Outcome::Passed, MINUTE);
        let skipped = ("b", Outcome::Skipped("a reason".into()), MINUTE);
        let failed = ("c", Outcome::Failed("exit status: 1".into()), MINUTE);
        assert!(print_report(&[passed, skipped]));
        assert!(!print_report(&[failed]));
    }

    #[test]
    fn a_stage_that_fails_or_hangs_is_seen() {
        let stage = |arguments: &'static [&'static str]| Stage {
            name: "a",
            lane: Lane::Host,
            program: "sh",
            arguments,
            environment: &[],
            needs: &[],
            limit: Duration::from_secs(1),
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let run = |arguments| {
            let outcome = stage(arguments).run(root, Stdio::null(), Stdio::null());
            outcome.expect("sh can be started")
        };
        assert!(matches!(run(&["-c", "exit 0"]), Outcome::Passed));
        assert!(matches!(run(&["-c", "exit 3"]), Outcome::Failed(_)));
        if has_program("timeout") {
            let Outcome::Failed(why) = run(&["-c", "sleep 60"]) else { panic!("it cannot pass") };
            assert_eq!(why, "ran past 1 s");
        }
    }
}
