//! Every check, each with its time. A check whose tools are missing is skipped, and says so.
//!
//! There are two sets (`stages.toml`): the checks before a change lands, and those of the night ([`night`]). The checks
//! of a set run in two lanes side by side, each in its own order: much of the work of one (linking, emulation, fuzzing)
//! leaves a processor idle. The lanes share no build folder, so neither waits for the other's lock. A lane that is done
//! goes on with checks that have folders of their own. The output of a check is kept and printed whole when it ends.

mod night;
mod stages;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Context;
use serde::{Deserialize, Serialize};

pub(crate) use night::{Night, run as nightly};
use stages::{Lane, Stage, When, has_program, stages};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Line of the summary for one check.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    name: String,
    outcome: Outcome,
    seconds: u64,
}

/// Runs the checks before a change lands, also after one failed; true if none did.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let stages = of(When::Merge)?;
    let lines = Mutex::new(Vec::new());
    run_all(root, &stages, &|_, line| {
        lines.lock().expect("no lane has panicked").push(line);
        Ok(())
    })?;
    Ok(print_summary(&in_order(&stages, lines.into_inner().expect("no lane has panicked"))))
}

fn of(when: When) -> anyhow::Result<Vec<Stage>> {
    Ok(stages()?.into_iter().filter(|stage| stage.when == when).collect())
}

fn in_order(stages: &[Stage], mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by_key(|line| stages.iter().position(|stage| stage.name == line.name));
    lines
}

/// Runs `stages` in two lanes; `done` hears of each.
fn run_all(
    root: &Path,
    stages: &[Stage],
    done: &(dyn Fn(&Stage, Line) -> anyhow::Result<()> + Sync),
) -> anyhow::Result<()> {
    let of = |lane| stages.iter().filter(move |stage| stage.lane == lane);
    let spare = Mutex::new(of(Lane::Any));
    std::thread::scope(|scope| {
        let spare = &spare;
        let lanes = [Lane::Host, Lane::Others].map(|lane| {
            // The lock is held while the next one is chosen, not while it runs.
            let next = move || spare.lock().expect("no lane has panicked").next();
            let stages = of(lane).chain(std::iter::from_fn(next));
            scope.spawn(move || run_lane(root, stages, done))
        });
        lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic"))
    })
}

fn run_lane<'a>(
    root: &Path,
    stages: impl Iterator<Item = &'a Stage>,
    done: &(dyn Fn(&Stage, Line) -> anyhow::Result<()> + Sync),
) -> anyhow::Result<()> {
    for stage in stages {
        println!("== begins: {}", stage.name);
        let start = Instant::now();
        let outcome = match stage.missing() {
            Some(reason) => Outcome::Skipped(reason),
            None => stage.run_and_print(root)?,
        };
        let seconds = start.elapsed().as_secs();
        done(stage, Line { name: stage.name.clone(), outcome, seconds })?;
    }
    Ok(())
}

impl Outcome {
    fn text(&self) -> String {
        match self {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed(why) => format!("FAILED: {why}"),
            Outcome::Skipped(why) => format!("skipped: {why}"),
        }
    }
}

/// Counts the checks that passed, failed, and were skipped.
fn counts(lines: &[Line]) -> [usize; 3] {
    let count = |is: fn(&Outcome) -> bool| lines.iter().filter(|line| is(&line.outcome)).count();
    [
        count(|it| *it == Outcome::Passed),
        count(|it| matches!(it, Outcome::Failed(_))),
        count(|it| matches!(it, Outcome::Skipped(_))),
    ]
}

/// Prints the summary; true if nothing failed.
fn print_summary(lines: &[Line]) -> bool {
    println!("\n== summary");
    for Line { name, outcome, seconds } in lines {
        println!("{name:<22} {seconds:>4} s  {}", outcome.text());
    }
    let [passed, failed, skipped] = counts(lines);
    println!("stages: {passed} passed, {failed} failed, {skipped} skipped");
    failed == 0
}

impl Stage {
    /// Runs the check, and prints its output once it has ended, so that two lanes do not talk at once.
    fn run_and_print(&self, root: &Path) -> anyhow::Result<Outcome> {
        let folder = root.join("target/ci");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let path = folder.join(self.name.replace([' ', ','], "-"));
        let said = File::create(&path).with_context(|| path.display().to_string())?;
        let outcome = self.execute(root, said.try_clone()?.into(), said.into())?;
        let mut out = io::stdout().lock();
        writeln!(out, "\n== {}: {}", self.name, self.run)?;
        io::copy(&mut File::open(&path)?, &mut out)?;
        Ok(outcome)
    }

    fn execute(&self, root: &Path, stdout: Stdio, stderr: Stdio) -> anyhow::Result<Outcome> {
        let mut words = self.run.split_ascii_whitespace();
        let program = words.next().with_context(|| format!("{}: no command", self.name))?;
        let limit = self.limit().as_secs();
        let mut command = if has_program("timeout") {
            let mut command = Command::new("timeout");
            command.args(["--kill-after=10", &limit.to_string(), program]);
            command
        } else {
            Command::new(program)
        };
        command.args(words).envs(&self.env);
        command.current_dir(root).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let status = command.status()?;
        Ok(match status.code() {
            Some(0) => Outcome::Passed,
            Some(124 | 137) => Outcome::Failed(format!("ran past {limit} s")),
            _ => Outcome::Failed(status.to_string()),
        })
    }
}

/// Returns true if the command can be run and exits with success; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, outcome: Outcome) -> Line {
        Line { name: name.to_owned(), outcome, seconds: 60 }
    }

    #[test]
    fn a_failed_stage_fails_the_run() {
        let passed = line("a", Outcome::Passed);
        let skipped = line("b", Outcome::Skipped("a reason".into()));
        let failed = line("c", Outcome::Failed("exit status: 1".into()));
        assert!(print_summary(&[passed.clone(), skipped.clone()]));
        assert!(!print_summary(&[passed, skipped, failed]));
    }

    #[test]
    fn a_stage_that_fails_or_hangs_is_seen() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let execute = |run: &str, minutes| {
            let text = format!(
                "name = 'a'\nwhen = 'merge'\nlane = 'any'\nrun = '{run}'\nminutes = {minutes}"
            );
            let stage: Stage = toml::from_str(&text).unwrap();
            stage.execute(root, Stdio::null(), Stdio::null()).expect("it can be started")
        };
        assert_eq!(execute("true", 1), Outcome::Passed);
        assert!(matches!(execute("false", 1), Outcome::Failed(_)));
        if has_program("timeout") {
            // `timeout 0` would have no limit, so the command itself says that it was too slow.
            assert_eq!(execute("timeout 1 sleep 60", 1), Outcome::Failed("ran past 60 s".into()));
        }
    }

    #[test]
    fn every_stage_is_run_once_and_heard_of() {
        let stage = |lane: &str| -> Stage {
            let text = format!(
                "name = '{lane}'\nwhen = 'merge'\nlane = '{lane}'\nrun = 'true'\nminutes = 1"
            );
            toml::from_str(&text).unwrap()
        };
        let stages = ["host", "others", "any"].map(stage);
        let folder = std::env::temp_dir().join(format!("nofrag-ci-{}", std::process::id()));
        let heard = Mutex::new(Vec::new());
        fs::create_dir_all(&folder).unwrap();
        run_all(&folder, &stages, &|_, line| {
            heard.lock().unwrap().push(line);
            Ok(())
        })
        .unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let lines = in_order(&stages, heard.into_inner().unwrap());
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["host", "others", "any"]);
        assert_eq!(counts(&lines), [3, 0, 0]);
    }
}
