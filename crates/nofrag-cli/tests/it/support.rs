//! Calls of the command in tests, and checks of its output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns a call of the command, for lines as wide as a pipe's, whatever `COLUMNS` the tests run with.
pub(crate) fn call(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.env_remove("COLUMNS").args(args);
    command
}

pub(crate) fn nofrag(args: &[&str]) -> Output {
    call(args).output().unwrap()
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a call of the command in the repository's folder, so that paths are those of the documents.
pub(crate) fn call_there(args: &[&str]) -> Command {
    let mut command = call(args);
    command.current_dir(repository());
    command
}

/// Copies the command into a folder, for callers who may not enter the one in which it was built. A child copies it: a
/// file that this process has open for writing is inherited so by children that other tests start meanwhile, and no
/// program that is open for writing can be started (`ETXTBSY`).
pub(crate) fn copied_into(folder: &Path) -> PathBuf {
    let program = folder.join("nofrag");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_nofrag")).arg(&program).status();
    assert!(copied.unwrap().success());
    program
}

/// Checks the exit status and everything that must be in the output.
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

/// Returns every command that ends with a status of its own, such as `nofrag host maps`, with its help text.
pub(crate) fn commands() -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    check(&nofrag(&["man", folder.path().to_str().unwrap()]), 0, &[]);
    let mut commands = Vec::new();
    for page in fs::read_dir(folder.path()).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        let words: Vec<&str> = name.strip_suffix(".1").unwrap().split('-').skip(1).collect();
        let help = nofrag(&[&words[..], &["--help"]].concat());
        let help = String::from_utf8(help.stdout).unwrap();
        if !words.is_empty() && help.contains("Exit status:") {
            commands.push((format!("nofrag {}", words.join(" ")), help));
        }
    }
    assert!(commands.len() > 10, "{commands:?}");
    commands
}
