//! The checks that have the night.
//!
//! Each that ends is written down in `target/nightly`, under the commit that it was run on. What has passed there is
//! not run again, so a night that was cut short is gone on with. `results/nightly/DATE.md` says what is known of the
//! commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, bail, ensure};
use clap::Args;

use super::{Line, Outcome, Stage, When, counts, in_order, of, print_summary, run_all};

/// Which checks, and whether those that passed are run again.
#[derive(Debug, Args)]
pub(crate) struct Night {
    /// Only checks with one of these in their names
    filters: Vec<String>,
    /// Also those that have passed on this commit
    #[arg(long)]
    again: bool,
    /// Say what there is, what has passed, and what is missing here
    #[arg(long)]
    list: bool,
}

/// Runs what has not passed on this commit; true if then nothing has failed.
pub(crate) fn run(root: &Path, night: &Night) -> anyhow::Result<bool> {
    let all = of(When::Night)?;
    let commit = commit(root)?;
    let store = Store { path: root.join("target/nightly").join(format!("{commit}.jsonl")) };
    let known = store.read()?;
    let has_passed = |stage: &Stage| {
        known.iter().any(|line| line.name == stage.name && line.outcome == Outcome::Passed)
    };
    let is_asked = |stage: &Stage| {
        night.filters.is_empty() || night.filters.iter().any(|part| stage.name.contains(part))
    };
    if night.list {
        for stage in &all {
            let state = match stage.missing() {
                _ if has_passed(stage) => "passed".to_owned(),
                Some(why) => format!("cannot be run here: {why}"),
                None => "to be run".to_owned(),
            };
            println!("{:<22} {state}", stage.name);
        }
        return Ok(true);
    }
    let due: Vec<Stage> =
        all.iter().filter(|it| is_asked(it) && (night.again || !has_passed(it))).cloned().collect();
    ensure!(
        !all.is_empty() && (night.filters.is_empty() || all.iter().any(is_asked)),
        "no check has {:?} in its name; `cargo xtask nightly --list` names them",
        night.filters
    );
    let writing = Mutex::new(());
    run_all(root, &due, &|line| {
        let _one_at_a_time = writing.lock().expect("no lane has panicked");
        store.append(&line)
    })?;
    let lines = in_order(&all, latest(store.read()?));
    write_report(root, &commit, &all, &lines)?;
    Ok(print_summary(&lines))
}

/// The commit that is checked; with changes on top nothing can be said of it.
fn commit(root: &Path) -> anyhow::Result<String> {
    let git = |arguments: &[&str]| -> anyhow::Result<String> {
        let output = Command::new("git").args(arguments).current_dir(root).output()?;
        ensure!(output.status.success(), "git {}: {}", arguments.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // What the night itself writes is no change.
    let changed = git(&["status", "--porcelain", "--", ".", ":!results"])?;
    if !changed.is_empty() {
        bail!("the night is for a commit, and files have changed:\n{changed}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

/// What is known of a commit: a line for each check that ended, the latest last.
struct Store {
    path: PathBuf,
}

impl Store {
    fn read(&self) -> anyhow::Result<Vec<Line>> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        lines.with_context(|| self.path.display().to_string())
    }

    fn append(&self, line: &Line) -> anyhow::Result<()> {
        use std::io::Write as _;

        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.path)?;
        Ok(writeln!(file, "{}", serde_json::to_string(line)?)?)
    }
}

/// The last line of each check.
fn latest(lines: Vec<Line>) -> Vec<Line> {
    let mut kept: Vec<Line> = Vec::new();
    for line in lines {
        kept.retain(|other| other.name != line.name);
        kept.push(line);
    }
    kept
}

fn write_report(root: &Path, commit: &str, all: &[Stage], lines: &[Line]) -> anyhow::Result<()> {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?;
    let date = String::from_utf8_lossy(&date.stdout).trim().to_owned();
    let folder = root.join("results/nightly");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{date}.md"));
    fs::write(&path, report(&date, commit, all, lines))?;
    println!("\n{}", path.display());
    Ok(())
}

fn report(date: &str, commit: &str, all: &[Stage], lines: &[Line]) -> String {
    let [passed, failed, skipped] = counts(lines);
    let missing = all.len() - lines.len();
    let mut text = format!(
        "# The night of {date}\n\nCommit {commit}, `cargo xtask nightly`: {passed} passed, {failed} failed, {skipped} \
         skipped, {missing} not run.\n\n| check | outcome | seconds |\n|---|---|---|\n"
    );
    for stage in all {
        let line = lines.iter().find(|line| line.name == stage.name);
        text += &match line {
            Some(line) => {
                format!("| {} | {} | {} |\n", line.name, line.outcome.text(), line.seconds)
            }
            None => format!("| {} | not run | - |\n", stage.name),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, outcome: Outcome) -> Line {
        Line { name: name.to_owned(), outcome, seconds: 7 }
    }

    #[test]
    fn what_ended_is_kept_and_the_last_word_counts() {
        let folder = std::env::temp_dir().join(format!("nofrag-night-{}", std::process::id()));
        let store = Store { path: folder.join("a.jsonl") };
        assert!(store.read().unwrap().is_empty());
        let failed = Outcome::Failed("exit status: 1".to_owned());
        for (name, outcome) in [("a", failed), ("b", Outcome::Passed), ("a", Outcome::Passed)] {
            store.append(&line(name, outcome)).unwrap();
        }
        let lines = latest(store.read().unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(counts(&lines), [2, 0, 0]);
    }

    #[test]
    fn a_report_names_what_was_not_run() {
        let all = of(When::Night).unwrap();
        let text = report("2026-01-31", "abc", &all, &[line(&all[0].name, Outcome::Passed)]);
        assert!(
            text.contains(&format!("1 passed, 0 failed, 0 skipped, {} not run", all.len() - 1))
        );
        assert_eq!(text.matches("| not run |").count(), all.len() - 1);
    }
}
