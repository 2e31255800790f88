//! `same-figures`: what the commands say, before a change and after it.
//!
//! `save` runs the command lines of `plan.toml` and keeps what they say as (key, unit, value), a line each: every
//! number, truth value and word of their JSON under the path where it stands, and whole, as text, what they print for
//! people and what a browser shows of their pages. `compare` says it again, or reads a second file, and lists every key
//! that is gone, new, or has another value. What two runs of one program do not agree in, processor time above all, is
//! left out by rules of the plan, each with its reason.

mod plan;
mod said;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use regex::Regex;
use serde_json::Value;

use plan::Plan;
use said::TEXT;

/// Unit and value by key.
type Figures = BTreeMap<String, (String, Value)>;

/// Request to save or to compare what the commands say.
#[derive(Debug, Args)]
pub(crate) struct Request {
    #[command(subcommand)]
    task: Task,
    /// The program that is run; others of the plan lie beside it
    #[arg(long, global = true, default_value = "target/release/nofrag")]
    program: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Keep it in a file, packed if its name ends in .zst
    Save { file: PathBuf },
    /// Compare a file with what they say now, or with a second file; fails if anything differs
    Compare {
        old: PathBuf,
        new: Option<PathBuf>,
        /// Leave out keys that this pattern matches
        #[arg(long, value_name = "PATTERN")]
        without: Option<Regex>,
    },
}

/// Saves or compares; true if nothing differs.
pub(crate) fn run(root: &Path, request: &Request) -> anyhow::Result<bool> {
    let plan = Plan::read()?;
    let program = root.join(&request.program);
    match &request.task {
        Task::Save { file } => {
            let figures = plan.without_chance(said::all(root, &program, &plan)?);
            write(file, &figures)?;
            println!("{}: {}", file.display(), summary(&plan, &figures));
            Ok(true)
        }
        Task::Compare { old, new, without } => {
            let old = plan.renamed(plan.without_chance(read(old)?))?;
            let new = match new {
                Some(file) => read(file)?,
                None => said::all(root, &program, &plan)?,
            };
            let new = plan.without_chance(new);
            let [old, new] = [old, new].map(|mut figures| {
                let left_out = |key: &str| without.as_ref().is_some_and(|it| it.is_match(key));
                figures.retain(|key, _| !left_out(key));
                figures
            });
            println!("old: {}\nnew: {}", summary(&plan, &old), summary(&plan, &new));
            let found = differences(&old, &new);
            found.iter().for_each(|line| println!("{line}"));
            println!("{} differ", found.len());
            Ok(found.is_empty())
        }
    }
}

fn summary(plan: &Plan, figures: &Figures) -> String {
    let texts = figures.values().filter(|(unit, _)| unit == TEXT).count();
    let verdicts = figures.keys().filter(|key| plan.is_verdict(key)).count();
    let numbers = figures.values().map(|(_, value)| value.as_array().map_or(1, Vec::len));
    let numbers = numbers.sum::<usize>() - texts;
    format!(
        "{numbers} figures under {} keys, {verdicts} of them verdicts, and {texts} texts",
        figures.len() - texts
    )
}

/// Returns a line for each key that only one side has, or that both have with other values.
fn differences(old: &Figures, new: &Figures) -> Vec<String> {
    let shown = |(unit, value): &(String, Value)| match unit.as_str() {
        TEXT => "a text".to_owned(),
        "" => value.to_string(),
        unit => format!("{value} {unit}"),
    };
    let compare = |key: &String, was: &(String, Value)| {
        Some(match new.get(key) {
            None => format!("missing {key}: was {}", shown(was)),
            // A unit that was not said before may be said now, and none may be lost.
            Some(is) if is_same(&was.1, &is.1) && (is.0 == was.0 || was.0.is_empty()) => {
                return None;
            }
            Some((_, is)) if was.0 == TEXT => format!("differs {key}\n{}", diff(&was.1, is)),
            Some(is) => format!("differs {key}: {} -> {}", shown(was), shown(is)),
        })
    };
    let mut found: Vec<_> = old.iter().filter_map(|(key, was)| compare(key, was)).collect();
    let added = new.iter().filter(|(key, _)| !old.contains_key(*key));
    found.extend(added.map(|(key, is)| format!("new {key}: {}", shown(is))));
    found
}

/// Returns true if two values are equal, whether written with a point or without.
fn is_same(old: &Value, new: &Value) -> bool {
    const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    match (old, new) {
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same(old, new))
        }
        _ => {
            old == new
                || old.as_f64().is_some_and(|it| it.abs() < EXACT && Some(it) == new.as_f64())
        }
    }
}

/// Returns the lines of two texts that are not in both, in as many words as `diff` has for them.
fn diff(old: &Value, new: &Value) -> String {
    let folder = std::env::temp_dir();
    let [old, new] = [("old", old), ("new", new)].map(|(name, text)| {
        let path = folder.join(format!("nofrag-same-figures-{}-{name}", std::process::id()));
        let written = fs::write(&path, text.as_str().unwrap_or_default());
        written.map(|()| path)
    });
    let (Ok(old), Ok(new)) = (old, new) else { return "  (cannot be written down)".to_owned() };
    let output = Command::new("diff")
        .args(["-U0", "--label=old", "--label=new"])
        .args([&old, &new])
        .output();
    [old, new].iter().for_each(|path| drop(fs::remove_file(path)));
    output.map_or("  (there is no diff)".to_owned(), |it| {
        String::from_utf8_lossy(&it.stdout).into_owned()
    })
}

fn is_packed(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "zst")
}

fn write(file: &Path, figures: &Figures) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    for (key, (unit, value)) in figures {
        serde_json::to_writer(&mut bytes, &(key, unit, value))?;
        bytes.push(b'\n');
    }
    let bytes = if is_packed(file) { zstd::encode_all(&bytes[..], 19)? } else { bytes };
    fs::write(file, bytes).with_context(|| file.display().to_string())
}

fn read(file: &Path) -> anyhow::Result<Figures> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let bytes = if is_packed(file) { zstd::decode_all(&bytes[..])? } else { bytes };
    let mut figures = Figures::new();
    for line in String::from_utf8(bytes)?.lines() {
        let (key, unit, value) = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let twice = figures.insert(key, (unit, value));
        ensure!(twice.is_none(), "{}: a key comes twice: {line}", file.display());
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figures(of: &[(&str, &str, Value)]) -> Figures {
        let entry = |(key, unit, value): &(&str, &str, Value)| {
            ((*key).to_owned(), ((*unit).to_owned(), value.clone()))
        };
        of.iter().map(entry).collect()
    }

    #[track_caller]
    fn check_differences(new: &[(&str, &str, Value)], expected: &[&str]) {
        let old = figures(&[
            ("a: x", "", json!(1)),
            ("a: y", "pages", json!(2.5)),
            ("a: holds", "", json!(true)),
        ]);
        let found = differences(&old, &figures(new));
        assert_eq!(found, expected);
    }

    #[test]
    fn every_difference_is_found() {
        let [x, y] = [("a: x", "", json!(1)), ("a: y", "pages", json!(2.5))];
        let holds = ("a: holds", "", json!(true));
        check_differences(&[x.clone(), y.clone(), holds.clone()], &[]);
        check_differences(&[("a: x", "events", json!(1.0)), y.clone(), holds.clone()], &[]);
        check_differences(&[x.clone(), holds.clone()], &["missing a: y: was 2.5 pages"]);
        let more = ("a: z", "", json!(null));
        check_differences(&[x.clone(), y.clone(), more, holds.clone()], &["new a: z: null"]);
        let other = ("a: y", "pages", json!(2.6));
        check_differences(
            &[x.clone(), other, holds.clone()],
            &["differs a: y: 2.5 pages -> 2.6 pages"],
        );
        let bare = ("a: y", "", json!(2.5));
        check_differences(&[x.clone(), bare, holds], &["differs a: y: 2.5 pages -> 2.5"]);
        let broken = ("a: holds", "", json!(false));
        check_differences(&[x, y, broken], &["differs a: holds: true -> false"]);
    }

    #[test]
    fn lines_of_texts_that_differ_are_shown() {
        let [old, new] =
            ["one\ntwo\n", "one\n2\n"].map(|text| figures(&[("a: text", TEXT, json!(text))]));
        let found = differences(&old, &new);
        assert!(found[0].ends_with("-two\n+2\n"), "{found:?}");
    }

    #[test]
    fn what_is_written_is_read() {
        let saved =
            figures(&[("a: x", "", json!(0.1)), ("a: text", TEXT, json!("one\n\"two\"\n"))]);
        for name in ["plain", "packed.zst"] {
            let file =
                std::env::temp_dir().join(format!("nofrag-figures-{}-{name}", std::process::id()));
            write(&file, &saved).unwrap();
            assert_eq!(read(&file).unwrap(), saved);
            fs::remove_file(&file).unwrap();
        }
    }
}
