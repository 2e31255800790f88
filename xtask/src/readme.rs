//! Runs the commands that README tells people to type.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, ensure};
use regex::Regex;

/// Commands of README that do not end by themselves, or need a value, and the commands that are run for them.
const INSTEAD: [(&str, &str); 3] = [
    ("nofrag export", "nofrag export --once"),
    ("nofrag host maps PID", "nofrag host maps self"),
    ("nofrag top", "nofrag top --once"),
];

/// Commands that are not run here, and the reasons.
const NOT_HERE: [(&str, &str); 2] = [
    ("nofrag record", "it would trace the kernel of whoever runs the checks"),
    ("nofrag run extfrag-2018", "`run all` runs it"),
];

/// Commands that take minutes where the program is not optimised.
const LONG: [(&str, &str); 1] = [("nofrag run all", "the night runs it, with --check")];

/// File that stands for the kernel's log, which commands read from `-`.
const LOG: &str = "data/reports/order-4-kernel.txt";

/// Plan of a sweep that README's command is given: it ends in a second.
const PLAN: (&str, &str) = (
    "plan.toml",
    "[[scenario]]\nname = 'mmap-holes-2005'\nloops = 1000\nrepeats = 8\ndesigns = ['nofrag']\n",
);

/// Share of README that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    All,
    /// All but the commands that take minutes.
    Soon,
}

/// Runs README's commands with a program that is built, in a folder of its own.
pub(crate) fn run(root: &Path, program: &Path) -> anyhow::Result<bool> {
    let program = root.join(program);
    ensure!(program.is_file(), "{} is not built", program.display());
    let folder = std::env::temp_dir().join(format!("nofrag-readme-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let passed = hold(root, &program, &folder, Extent::Soon);
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    passed
}

/// Returns true if README's commands succeed with a program, in a folder that gets the files which they name.
pub(crate) fn hold(
    root: &Path,
    program: &Path,
    folder: &Path,
    extent: Extent,
) -> anyhow::Result<bool> {
    let readme = fs::read_to_string(root.join("README.md"))?;
    let commands = commands(&readme);
    ensure!(commands.len() > 5, "README has no commands");
    fs::write(folder.join(PLAN.0), PLAN.1)?;
    let mut passed = true;
    for command in commands {
        let long = if extent == Extent::Soon { &LONG[..] } else { &[] };
        if let Some((_, why)) = NOT_HERE.iter().chain(long).find(|(name, _)| *name == command) {
            println!("-- {command}: not run, {why}");
            continue;
        }
        let instead = INSTEAD.iter().find(|(name, _)| *name == command);
        let typed = instead.map_or(command.as_str(), |(_, typed)| typed);
        let status = type_in(root, program, folder, typed)?;
        println!("-- {typed}: {status}");
        // 1 is a finding about the host, or less than all was allowed.
        passed &= matches!(status.code(), Some(0 | 1));
    }
    Ok(passed)
}

/// Runs a command line in the folder, which gets the files of the repository that it names.
fn type_in(root: &Path, program: &Path, folder: &Path, line: &str) -> anyhow::Result<ExitStatus> {
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    for word in words.iter().chain([&LOG]).filter(|word| root.join(word).is_file()) {
        let copy = folder.join(word);
        fs::create_dir_all(copy.parent().context("a file lies in a folder")?)?;
        fs::copy(root.join(word), copy)?;
    }
    let input = match words.last() {
        Some(&"-") => Stdio::from(fs::File::open(folder.join(LOG))?),
        _ => Stdio::null(),
    };
    let mut command = Command::new(program);
    command.args(words).current_dir(folder).env_clear().env("HOME", folder).stdin(input);
    command.stdout(Stdio::null()).status().with_context(|| format!("cannot run {line}"))
}

/// Returns the commands of a page, each once, as an installed program is called. Options and values in capitals stay.
fn commands(page: &str) -> Vec<String> {
    let pattern = r"(?m)(?:`|^|\| |sudo )(?:cargo run --release -- |nofrag )([a-z][^`#\n]*)";
    let pattern = Regex::new(pattern).expect("a valid pattern");
    let mut commands: Vec<String> = Vec::new();
    for found in pattern.captures_iter(page) {
        let command = format!("nofrag {}", found[1].trim_end());
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stand_in_code_after_pipes_and_behind_sudo() {
        let page = "`dmesg | nofrag explain -` and `sudo nofrag host`; nofrag has no unsafe code.\n\
                    ```sh\ncargo run --release -- run all   # here\nnofrag top\n```\n`nofrag top`";
        let expected = ["nofrag explain -", "nofrag host", "nofrag run all", "nofrag top"];
        assert_eq!(commands(page), expected);
    }

    #[test]
    fn the_readme_is_read_to_its_end() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = fs::read_to_string(own.join("../README.md")).unwrap();
        let (lines, bytes) = (page.lines().count(), page.len());
        assert!(lines <= 180 && bytes <= 12_000, "{lines} lines, {bytes} bytes: move some to docs");
    }

    #[test]
    fn what_is_not_run_as_it_stands_stands_in_the_readme() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = fs::read_to_string(own.join("../README.md")).unwrap();
        let commands = commands(&page);
        for (command, _) in INSTEAD.iter().chain(&NOT_HERE).chain(&LONG) {
            assert!(commands.iter().any(|it| it == command), "{command} is gone: {commands:?}");
        }
    }
}
