//! Checks that take longer than continuous integration has: sanitizers over the crate that touches memory, and Miri
//! where it reaches.
//!
//! Both need the nightly toolchain; Miri needs its component, and the thread sanitizer the sources of the standard
//! library, which must be instrumented too (`rustup +nightly component add miri rust-src`).

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::ci::succeeds;

/// What finds a fault that no assertion sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Finder {
    /// Uses of memory that is not there, or no longer
    Address,
    /// Accesses of two threads that nothing orders
    Thread,
    /// Undefined behaviour of any kind, in what needs no real memory
    Miri,
}

impl Finder {
    /// Whether it can be run here, or why not.
    fn missing(self) -> Option<&'static str> {
        let nightly = succeeds(Command::new("cargo").args(["+nightly", "--version"]));
        let component = match self {
            Finder::Address => true,
            Finder::Thread => sources_are_there(),
            Finder::Miri => succeeds(Command::new("cargo").args(["+nightly", "miri", "--version"])),
        };
        match (nightly, component) {
            (false, _) => {
                Some("there is no nightly toolchain (`rustup toolchain install nightly`)")
            }
            (_, false) => {
                Some("a component is missing (`rustup +nightly component add miri rust-src`)")
            }
            _ => None,
        }
    }

    fn command(self) -> Command {
        let mut command = Command::new("cargo");
        command.arg("+nightly");
        match self {
            Finder::Address => {
                command.args(["test", "--target-dir", "target/address"]);
                command.env("RUSTFLAGS", "-Zsanitizer=address");
                // What a child shares with its parent at a fork is no leak of either; and tests of faults and of placed
                // stacks need the kernel's own signals and stacks.
                let options = "detect_leaks=0:handle_segv=0:detect_stack_use_after_return=0";
                command.env("ASAN_OPTIONS", options);
            }
            Finder::Thread => {
                command.args(["test", "-Zbuild-std", "--target-dir", "target/thread"]);
                command.env("RUSTFLAGS", "-Zsanitizer=thread");
                // As above: tests of faults need the kernel's own signals.
                command.env("TSAN_OPTIONS", "handle_segv=0");
            }
            Finder::Miri => {
                command.args(["miri", "test", "--target-dir", "target/miri"]);
                // Clocks and the environment; the cases of random tests are few, for each step is interpreted.
                command.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance");
                command.env("PROPTEST_CASES", "2");
            }
        }
        command.args(["--package", "nofrag-backing", "--target", "x86_64-unknown-linux-gnu"]);
        command.arg("--lib");
        // Nearly all others need memory, which Miri does not have.
        command.args((self != Finder::Miri).then_some("--tests"));
        command
    }
}

/// Tests that a finder makes meaningless.
const fn left_out(finder: Finder) -> &'static [&'static str] {
    match finder {
        // The sanitizers make `mlock` do nothing; this test needs a page that refuses advice.
        Finder::Address | Finder::Thread => &["--skip", "partial_vector"],
        Finder::Miri => &[],
    }
}

/// Tests that make no mapping: Miri ends at the first call that it does not know, such as `memfd_create` or the advice
/// by which a child of a fork is told from its parent.
const WITHOUT_MAPPINGS: &[&str] = &[
    "arena::bins",
    "arena::run",
    "a_lease_of_long_ago",
    "a_stale_free_keeps",
    "lists_of_processors",
    "backend::books",
    "backend::submission",
    "backend::discard",
    "faults::tests",
    "frames::purge",
    "frames::word",
    "maps::tests",
    "zeroed::tests",
];

/// The tests that are run where none are named: all of them, or those that the finder reaches.
fn reached(finder: Finder, filters: &[String]) -> impl Iterator<Item = &str> {
    let usual = if finder == Finder::Miri && filters.is_empty() { WITHOUT_MAPPINGS } else { &[] };
    filters.iter().map(String::as_str).chain(usual.iter().copied())
}

/// Runs the tests of the crate that touches memory under `finder`, those alone that have `filters` in their names.
pub(crate) fn run(root: &Path, finder: Finder, filters: &[String]) -> anyhow::Result<bool> {
    if let Some(reason) = finder.missing() {
        bail!("this cannot be run: {reason}");
    }
    let mut command = finder.command();
    command
        .arg("--")
        .args(reached(finder, filters))
        .args(left_out(finder))
        .current_dir(root)
        .stdin(Stdio::null());
    Ok(command.status().context("cargo can be started")?.success())
}

fn sources_are_there() -> bool {
    let sysroot = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output();
    sysroot.is_ok_and(|output| {
        let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Path::new(&sysroot).join("lib/rustlib/src/rust/library").is_dir()
    })
}
