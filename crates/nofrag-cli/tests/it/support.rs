//! How tests call the command, and what they ask of its output.

use std::process::{Command, Output};

pub(crate) fn nofrag(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nofrag")).args(args).output().unwrap()
}

/// The exit status and everything that must be in the output.
pub(crate) fn check(output: &Output, status: i32, expected: &[&str]) {
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{out}{err}");
    let text = if status == 2 { err } else { out };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in expected {
        assert!(words(&text).contains(&words(part)), "no {part:?} in:\n{text}");
    }
}
