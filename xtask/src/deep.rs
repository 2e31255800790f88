//! Checks that take longer than continuous integration has: sanitizers over the crate that touches memory, over what
//! threads share in the core, and over what reads files of strangers with a library in C; and Miri where it reaches.
//!
//! Both need the nightly toolchain; Miri needs its component, and the thread sanitizer the sources of the standard
//! library, which must be instrumented too (`rustup +nightly component add miri rust-src`).

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::ci::succeeds;

/// Tool that finds faults which no assertion sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Finder {
    /// Uses of memory that is not there, or no longer
    Address,
    /// Accesses of two threads that nothing orders
    Thread,
    /// Undefined behaviour of any kind, in what needs no real memory
    Miri,
}

/// Tests of a package that a finder looks at.
struct Part {
    package: &'static str,
    targets: &'static [&'static str],
    /// Parts of the names of the tests to run; empty for all.
    named: &'static [&'static str],
    /// Parts of the names of tests that the finder makes meaningless.
    skipped: &'static [&'static str],
}

impl Finder {
    /// Returns the reason why the finder cannot be run here, if there is one.
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
            // Tests of recordings that are skipped bound their memory, of which the sanitizer needs more for itself.
            Finder::Address => {
                command.args(["test", "--target-dir", "target/address"]);
                command.env("RUSTFLAGS", "-Zsanitizer=address");
                // What a child shares with its parent at a fork is no leak of either; and tests of faults and of placed
                // stacks need the kernel's own signals and stacks.
                let options = "detect_leaks=0:handle_segv=0:detect_stack_use_after_return=0";
                command.env("ASAN_OPTIONS", options);
                // C is instrumented, too, and GCC marks arrays as out of scope that it has made static itself.
                command.env("CFLAGS", "-fno-sanitize-address-use-after-scope");
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
        command.args(["--target", "x86_64-unknown-linux-gnu"]);
        command
    }

    const fn parts(self) -> &'static [Part] {
        match self {
            // Tests of recordings that are skipped bound their memory, of which the sanitizer needs more for itself.
            Finder::Address => &[
                BACKING,
                APPARATUS,
                Part {
                    package: "nofrag-host",
                    targets: ALL,
                    named: &[],
                    // Their memory is bounded, and the sanitizer needs more for itself.
                    skipped: &["kinds_by_turns", "thousands_of_padded_formats"],
                },
            ],
            Finder::Thread => &[
                BACKING,
                APPARATUS,
                Part {
                    package: "nofrag",
                    targets: &["--test", "it"],
                    named: SHARED_IN_THE_CORE,
                    skipped: &[],
                },
            ],
            Finder::Miri => &[Part {
                package: "nofrag-backing",
                targets: &["--lib", "--test", "it"],
                named: WITHOUT_MAPPINGS,
                skipped: &[],
            }],
        }
    }
}

const ALL: &[&str] = &["--lib", "--tests"];

/// The sanitizers make `mlock` do nothing; the test that is skipped needs a page that refuses advice.
const BACKING: Part =
    Part { package: "nofrag-backing", targets: ALL, named: &[], skipped: &["partial_vector"] };

/// The part of the lab that measures memory.
const APPARATUS: Part =
    Part { package: "nofrag-lab", targets: &["--lib"], named: &["apparatus"], skipped: &[] };

/// Modules whose tests have threads.
const SHARED_IN_THE_CORE: &[&str] =
    &["block_face", "block_hand_over", "block_limits", "block_threads", "vmap_threads"];

/// Tests that make no mapping: Miri ends at the first call that it does not know, such as `memfd_create`. An arena over
/// simulated memory makes none.
const WITHOUT_MAPPINGS: &[&str] = &[
    "arena::bins",
    "arena::run",
    "a_lease_of_long_ago",
    "a_stale_free_keeps",
    "lists_of_processors",
    "a_run_that_gets_no_memory_to_grow",
    "a_run_that_was_freed_does_not_grow",
    "refusals_leave_the_books_of_chunks",
    "the_budget_of_mappings_is_kept",
    "threads_share_simulated_memory",
    "backend::books",
    "backend::submission",
    "backend::discard",
    "backend::simulated",
    "faults::tests",
    "frames::purge",
    "frames::word",
    "zeroed::tests",
];

/// Runs the tests that `finder` looks at, those alone that have `filters` in their names.
pub(crate) fn run(root: &Path, finder: Finder, filters: &[String]) -> anyhow::Result<bool> {
    if let Some(reason) = finder.missing() {
        bail!("this cannot be run: {reason}");
    }
    let mut passed = true;
    for part in finder.parts() {
        println!("-- {finder:?}: {}", part.package);
        let mut command = finder.command();
        command.args(["--package", part.package]).args(part.targets).args(["--no-fail-fast", "--"]);
        match filters {
            [] => command.args(part.named),
            _ => command.args(filters),
        };
        command.args(part.skipped.iter().flat_map(|name| ["--skip", name]));
        command.current_dir(root).stdin(Stdio::null());
        passed &= command.status().context("cargo can be started")?.success();
    }
    Ok(passed)
}

fn sources_are_there() -> bool {
    let sysroot = Command::new("rustc").args(["+nightly", "--print", "sysroot"]).output();
    sysroot.is_ok_and(|output| {
        let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Path::new(&sysroot).join("lib/rustlib/src/rust/library").is_dir()
    })
}
