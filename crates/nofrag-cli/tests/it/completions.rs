//! `nofrag completions`: a script for each shell, which the shell itself accepts and uses.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::support::{check, nofrag};

fn script(shell: &str) -> String {
    let output = nofrag(&["completions", shell]);
    check(&output, 0, &[]);
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a shell with commands on its standard input; `None`, with the reason printed, where there is no such shell.
fn told(shell: &str, arguments: &[&str], commands: &str) -> Option<Output> {
    let mut command = Command::new(shell);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: there is no {shell}");
        return None;
    };
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

#[test]
fn each_shell_gets_all_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = script(shell);
        for part in ["thpfioscale", "vmalloc", "explain", "unhash", "completions"] {
            assert!(script.contains(part), "no {part} for {shell}");
        }
    }
    check(&nofrag(&["completions"]), 2, &["<SHELL>"]);
    check(&nofrag(&["completions", "tcsh"]), 2, &["possible values: bash, elvish, fish"]);
}

#[test]
fn shells_accept_their_scripts() {
    for (shell, arguments) in [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])] {
        let Some(output) = told(shell, &arguments, &script(shell)) else { continue };
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && err.is_empty(), "{shell}: {err}");
    }
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = script("bash");
    let completed = |words: &[&str]| {
        let list = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let [.., before, current] = words else { panic!("a command and a word") };
        let last = words.len() - 1;
        let commands = format!(
            "{script}\nCOMP_WORDS=({list}); COMP_CWORD={last}\n_nofrag nofrag '{current}' '{before}'\n\
             echo \"${{COMPREPLY[*]}}\"\n"
        );
        told("bash", &["--norc"], &commands)
            .map(|output| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    for (words, expected) in [
        (&["nofrag", "exp"][..], "explain"),
        (&["nofrag", "host", "vm"], "vmalloc"),
        (&["nofrag", "host", "maps", "--maps"], "--maps-only"),
        (&["nofrag", "host", "maps", "--replay", "q"], "quick"),
        (&["nofrag", "completions", "z"], "zsh"),
        (&["nofrag", "run", "extf"], "extfrag-2018"),
        (&["nofrag", "run", "all", "--mode", "so"], "soak"),
        (&["nofrag", "replay", "--policy", "linux-6"], "linux-6.1"),
    ] {
        let Some(found) = completed(words) else { return };
        assert!(found.split_whitespace().any(|word| word == expected), "{words:?}: {found:?}");
    }
}

/// Checks that values other than the offered ones may be given, and that the commands judge them.
#[test]
fn other_values_are_still_judged_by_the_commands() {
    check(&nofrag(&["run", "no-such"]), 2, &["no-such"]);
    check(&nofrag(&["run", "all", "--mode", "no-such"]), 2, &["there is no mode", "performance"]);
    check(&nofrag(&["replay", "--policy", "no-such"]), 2, &["no such preset", "linux-6.1"]);
}

/// Checks the completions of fish itself.
#[test]
fn fish_completes_values() {
    let script = script("fish");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nofrag.fish");
    std::fs::write(&file, script).unwrap();
    for (line, expected) in [
        ("nofrag ho", "host"),
        ("nofrag top --without m", "maps"),
        ("nofrag run --mode so", "soak"),
    ] {
        let commands = format!("source {}; complete -C '{line}'\n", file.display());
        let Some(output) = told("fish", &["--no-config"], &commands) else { return };
        let found = String::from_utf8(output.stdout).unwrap();
        assert!(
            found.lines().any(|line| line.split('\t').next() == Some(expected)),
            "{line}: {found:?}"
        );
    }
}
