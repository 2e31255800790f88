//! The checks that have the night.
//!
//! Each that ends is written down in `results/nightly/ended.jsonl`, with the commit that it was run on. What has passed
//! is not run again while nothing has changed that it reads (`reads` of a stage), so a night that was cut short is gone
//! on with, also at a later commit and on another machine. `DATE.md` beside it says what is known of the commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Line, Outcome, Stage, When, counts, in_order, of, print_summary, run_all, succeeds};
use crate::deb::git;

const FOLDER: &str = "results/nightly";

/// Checks of the night to run, and whether those that passed are run again.
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

/// Runs the checks that have not passed on the content of this commit; true if nothing has failed then.
pub(crate) fn run(root: &Path, night: &Night) -> anyhow::Result<bool> {
    let all = of(When::Night)?;
    let commit = commit(root)?;
    let store = Store { path: root.join(FOLDER).join("ended.jsonl") };
    let known = holding(root, &commit, &all, store.read()?);
    let has_passed = |stage: &Stage| {
        known.iter().any(|it| it.line.name == stage.name && it.line.outcome == Outcome::Passed)
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
    run_all(root, &due, &|stage, line| {
        let _one_at_a_time = writing.lock().expect("no lane has panicked");
        store.append(&Ended { commit: commit.clone(), run: stage.run.clone(), line })
    })?;
    let known = holding(root, &commit, &all, store.read()?);
    write_report(root, &commit, &all, &known)?;
    let lines = known.into_iter().map(|it| it.line).collect();
    Ok(print_summary(&in_order(&all, lines)))
}

/// Returns the commit that is checked; an error with changes on top, as nothing can be said of those.
fn commit(root: &Path) -> anyhow::Result<String> {
    // What the night itself writes is no change.
    let changed = git(root, &["status", "--porcelain", "--", ".", ":!results"])?;
    if !changed.is_empty() {
        bail!("the night is for a commit, and files have changed:\n{changed}");
    }
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

/// A check that ended, and its commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Ended {
    commit: String,
    run: String,
    #[serde(flatten)]
    line: Line,
}

/// A line for each check that ended, the latest last.
struct Store {
    path: PathBuf,
}

impl Store {
    fn read(&self) -> anyhow::Result<Vec<Ended>> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        lines.with_context(|| self.path.display().to_string())
    }

    fn append(&self, ended: &Ended) -> anyhow::Result<()> {
        use std::io::Write as _;

        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.path)?;
        Ok(writeln!(file, "{}", serde_json::to_string(ended)?)?)
    }
}

/// Returns the last result of each check of `all` that still holds at `commit`: nothing that the check reads has
/// changed.
fn holding(root: &Path, commit: &str, all: &[Stage], ended: Vec<Ended>) -> Vec<Ended> {
    let mut kept: Vec<Ended> = Vec::new();
    for it in ended {
        let stage = all.iter().find(|stage| stage.name == it.line.name && stage.run == it.run);
        let holds = |stage: &Stage| it.commit == commit || same(root, &it.commit, commit, stage);
        if stage.is_some_and(holds) {
            kept.retain(|other| other.line.name != it.line.name);
            kept.push(it);
        }
    }
    kept
}

/// Returns true if two commits hold the same files that `stage` reads, and the same dependencies. False if one of them
/// is not here.
fn same(root: &Path, one: &str, other: &str, stage: &Stage) -> bool {
    let mut git = Command::new("git");
    git.args(["diff", "--quiet", one, other, "--"]).args(&stage.reads).current_dir(root);
    git.args(["Cargo.lock", "Cargo.toml", "rust-toolchain.toml"]);
    if !stage.tests {
        git.args(["tests/**", "tests.rs"].map(|tests| format!(":(exclude,glob)**/{tests}")));
    }
    succeeds(&mut git)
}

fn write_report(root: &Path, commit: &str, all: &[Stage], known: &[Ended]) -> anyhow::Result<()> {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?;
    let date = String::from_utf8_lossy(&date.stdout).trim().to_owned();
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{date}.md"));
    fs::write(&path, report(&date, commit, all, known))?;
    println!("\n{}", path.display());
    Ok(())
}

fn report(date: &str, commit: &str, all: &[Stage], known: &[Ended]) -> String {
    let lines: Vec<Line> = known.iter().map(|it| it.line.clone()).collect();
    let [passed, failed, skipped] = counts(&lines);
    let missing = all.len() - lines.len();
    let mut text = format!(
        "# The night of {date}\n\nCommit {commit}, `cargo xtask nightly`: {passed} passed, {failed} failed, {skipped} \
         skipped, {missing} not run. A check that names an earlier commit was run there; what it reads is the same.\n\n\
         | check | outcome | seconds | run at |\n|---|---|---|---|\n"
    );
    for stage in all {
        text += &match known.iter().find(|it| it.line.name == stage.name) {
            Some(Ended { commit, line: Line { name, outcome, seconds }, .. }) => {
                format!("| {name} | {} | {seconds} | {commit} |\n", outcome.text())
            }
            None => format!("| {} | not run | - | - |\n", stage.name),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(name: &str, outcome: Outcome, commit: &str) -> Ended {
        let line = Line { name: name.to_owned(), outcome, seconds: 7 };
        Ended { commit: commit.to_owned(), run: "true".to_owned(), line }
    }

    fn stage(name: &str) -> Stage {
        let text =
            format!("name = '{name}'\nwhen = 'night'\nlane = 'any'\nrun = 'true'\nminutes = 1");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn what_ended_is_kept_and_the_last_word_counts() {
        let folder = std::env::temp_dir().join(format!("nofrag-night-{}", std::process::id()));
        let store = Store { path: folder.join("a.jsonl") };
        assert!(store.read().unwrap().is_empty());
        let failed = Outcome::Failed("exit status: 1".to_owned());
        for (name, outcome) in [("a", failed), ("b", Outcome::Passed), ("a", Outcome::Passed)] {
            store.append(&ended(name, outcome, "abc")).unwrap();
        }
        let known = holding(&folder, "abc", &["a", "b"].map(stage), store.read().unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(known.iter().filter(|it| it.line.outcome == Outcome::Passed).count(), 2);
        assert_eq!(known.len(), 2);
    }

    #[test]
    fn a_pass_holds_while_nothing_has_changed_that_the_check_reads() {
        let folder = std::env::temp_dir().join(format!("nofrag-holds-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
            let output = git.current_dir(&folder).output().unwrap();
            assert!(output.status.success(), "{arguments:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let commit = |file: &str, text: &str| {
            fs::write(folder.join(file), text).unwrap();
            git(&["add", "."]);
            git(&["commit", "-qm", "a"]);
            git(&["rev-parse", "HEAD"])
        };
        git(&["init", "-q"]);
        fs::create_dir_all(folder.join("core/tests")).unwrap();
        let files = [("core/a", "1"), ("page", "1"), ("core/tests/a", "1"), ("core/a", "2")];
        let [first, second, third, fourth] = files.map(|(file, text)| commit(file, text));
        let core = Stage { reads: vec!["core".to_owned()], ..stage("core") };
        let stages = [
            Stage { tests: false, ..core.clone() },
            stage("all"),
            Stage { name: "tested".to_owned(), ..core },
        ];
        let known =
            ["core", "all", "tested"].map(|name| ended(name, Outcome::Passed, &first)).to_vec();
        let held = |at: &str| -> Vec<String> {
            let held = holding(&folder, at, &stages, known.clone());
            held.into_iter().map(|it| it.line.name).collect()
        };
        assert_eq!(held(&first), ["core", "all", "tested"]);
        assert_eq!(held(&second), ["core", "tested"]);
        assert_eq!(held(&third), ["core"]);
        assert!(held(&fourth).is_empty());
        assert!(held("0000000").is_empty(), "a commit that is not here");
        let other = Ended { run: "false".to_owned(), ..known[0].clone() };
        assert!(holding(&folder, &first, &stages, vec![other]).is_empty(), "another command");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_report_names_what_was_not_run() {
        let all = of(When::Night).unwrap();
        let known = [ended(&all[0].name, Outcome::Passed, "abc")];
        let text = report("2026-01-31", "abd", &all, &known);
        assert!(
            text.contains(&format!("1 passed, 0 failed, 0 skipped, {} not run", all.len() - 1))
        );
        assert!(text.contains("| passed | 7 | abc |"));
        assert_eq!(text.matches("| not run |").count(), all.len() - 1);
    }
}
