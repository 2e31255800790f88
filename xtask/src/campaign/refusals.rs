//! The inspector with one system call refused, each time another: they say so and end, or go on; none
//! panics, none is ended by a signal, none hangs.
//!
//! strace counts the calls of a program and then refuses one of them, by its name and its number among those of that
//! name. Which calls those are the kernel says, not a list: so calls of libraries are among them. A program that the
//! loader cannot start because of a refusal has not begun.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::parts::{commit, machine, seconds_of_children};
use super::record::{Outcome, Refused, Slice};

/// Programs that end within a second or two.
const PROGRAMS: &[&[&str]] =
    &[&["target/debug/nofrag", "host", "--all"], &["target/debug/nofrag", "host", "--json"]];

/// Errors that a call is refused with.
const ERRORS: [&str; 4] = ["ENOMEM", "EACCES", "EIO", "EINTR"];

/// Calls without which nothing can be said any more, or which cannot fail; and those of the heap, and of signals and
/// open files before `main`, whose end is that of the process in every program of the standard library.
const LEFT_OUT: [&str; 11] = [
    "brk",
    "execve",
    "exit",
    "exit_group",
    "mmap",
    "mprotect",
    "munmap",
    "poll",
    "rt_sigaction",
    "rt_sigreturn",
    "write",
];

/// A program hangs if it takes longer.
const PATIENCE: &str = "30";

/// Refuses one call after the other, from one that the seed chooses on.
pub(super) fn run(part: &str, root: &Path, seed: u64, seconds: u64) -> anyhow::Result<Slice> {
    let before = seconds_of_children()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let words = PROGRAMS[(seed % PROGRAMS.len() as u64) as usize];
    let calls = calls_of(root, words)?;
    let error = ERRORS[(seed / 7 % ERRORS.len() as u64) as usize];
    let (mut count, mut finding) = (0, None);
    let first = (seed / 64) as usize % calls.len();
    let mut at = first;
    let mut repeat = words.join(" ");
    for _ in 0..calls.len() {
        if Instant::now() >= end {
            break;
        }
        let (name, number) = &calls[at];
        let inject = format!("inject={name}:error={error}:when={number}");
        repeat = format!("strace -f -qq -o /dev/null -e {inject} {}", words.join(" "));
        count += 1;
        if let Some(why) = refuse(root, &inject, words)? {
            finding = Some(why);
            break;
        }
        at = (at + 1) % calls.len();
    }
    Ok(Slice {
        part: part.to_owned(),
        seed,
        count,
        seconds: ((seconds_of_children()? - before) * 100.0).round() / 100.0,
        machine: machine()?,
        commit: commit(root)?,
        outcome: if finding.is_some() { Outcome::Failed } else { Outcome::Held },
        finding,
        refused: Some(Refused {
            program: words[1..].join(" "),
            error: error.to_owned(),
            first: first as u64,
            total: calls.len() as u64,
        }),
        repeat,
    })
}

/// Returns the calls that the program makes, by name and number among those of the name: the first eight of each.
fn calls_of(root: &Path, words: &[&str]) -> anyhow::Result<Vec<(String, u32)>> {
    let log = std::env::temp_dir().join(format!("nofrag-calls-{}", std::process::id()));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o"]).arg(&log).args(words);
    strace.current_dir(root).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    strace.status().context("strace can be started")?;
    let text = std::fs::read(&log).with_context(|| log.display().to_string())?;
    std::fs::remove_file(&log)?;
    let calls = named(&String::from_utf8_lossy(&text));
    if calls.is_empty() {
        bail!("strace shows no call of {}", words.join(" "));
    }
    Ok(calls)
}

/// Returns the calls in a log of strace, whose lines are `PID name(...`.
fn named(log: &str) -> Vec<(String, u32)> {
    let mut counts = BTreeMap::<&str, u32>::new();
    for line in log.lines() {
        let Some((_, call)) = line.split_once(char::is_whitespace) else { continue };
        let Some((name, _)) = call.trim_start().split_once('(') else { continue };
        let is_name =
            name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if is_name && !LEFT_OUT.contains(&name) {
            *counts.entry(name).or_default() += 1;
        }
    }
    let mut calls = Vec::new();
    for (name, count) in counts {
        calls.extend((1..=count.min(8)).map(|at| (name.to_owned(), at)));
    }
    calls
}

/// Runs the program with one call refused; returns the fault in its end, if there is one.
fn refuse(root: &Path, inject: &str, words: &[&str]) -> anyhow::Result<Option<String>> {
    let output = Command::new("timeout")
        .args(["--kill-after=5", PATIENCE, "strace", "-f", "-qq", "-o", "/dev/null", "-e", inject])
        .args(words)
        .current_dir(root)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Ok(match output.status.code() {
        _ if said.contains("panicked at") => Some(format!("{inject}: {}", said.trim())),
        Some(124 | 137) => Some(format!("{inject}: it hangs")),
        // strace ends by the signal that ended the program.
        None => Some(format!("{inject}: {}: {last}", output.status)),
        Some(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_numbered_by_name() {
        let log = "7  openat(AT_FDCWD) = 3\n7  openat(AT_FDCWD) = 4\n8  fstat(3) = 0\n\
                   7  +++ exited with 0 +++\n7  <... read resumed>) = 1\n7  write(1) = 1\n";
        let expected = [("fstat", 1), ("openat", 1), ("openat", 2)];
        assert_eq!(named(log), expected.map(|(name, at)| (name.to_owned(), at)));
    }

    #[test]
    fn a_panic_a_signal_and_a_hang_are_seen() {
        if !crate::ci::succeeds(Command::new("strace").arg("--version")) {
            return;
        }
        let of = |script: &str| {
            let words = ["sh", "-c", script];
            refuse(Path::new("/"), "inject=getppid:error=EIO:when=99", &words).unwrap()
        };
        assert_eq!(of("exit 3"), None);
        assert!(of("echo panicked at a.rs >&2; exit 101").is_some());
        assert!(of("kill -SEGV $$").is_some());
    }
}
