//! The outcomes of breaks: a line for each file of a slice, and their sums.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::FOLDER;
use crate::campaign::record;
use crate::finding::Finding;
use crate::tree::Tree;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// A test failed.
    Caught,
    /// A test did not end in time.
    Hung,
    /// The break does not compile.
    Unviable,
    Survived,
}

/// The outcomes of a file's breaks in a slice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) file: String,
    /// Number of breaks that the file has.
    pub(super) of: usize,
    /// Git's name of the file's code.
    pub(super) text: String,
    pub(super) commit: String,
    pub(super) machine: String,
    pub(super) seconds: u64,
    /// Names of breaks, without that of the file.
    #[serde(flatten)]
    pub(super) breaks: BTreeMap<Outcome, Vec<String>>,
}

/// Survivors that people have looked at, with the reason why each is no gap.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Reasons {
    #[serde(default)]
    reason: BTreeMap<String, String>,
}

/// The outcomes for the latest code of a file that was tried.
#[derive(Debug, Default)]
pub(super) struct Known<'a> {
    of: usize,
    pub(super) text: &'a str,
    pub(super) breaks: BTreeMap<&'a str, Outcome>,
}

impl Known<'_> {
    fn count(&self, outcome: Outcome) -> usize {
        self.breaks.values().filter(|it| **it == outcome).count()
    }
}

/// Returns the last outcome of each break of the latest code.
pub(super) fn latest(lines: &[Line]) -> BTreeMap<&str, Known<'_>> {
    let mut files = BTreeMap::<&str, Known>::new();
    for line in lines {
        let known = files.entry(&line.file).or_default();
        if known.text != line.text {
            *known = Known { of: line.of, text: &line.text, breaks: BTreeMap::new() };
        }
        for (outcome, names) in &line.breaks {
            known.breaks.extend(names.iter().map(|name| (name.as_str(), *outcome)));
        }
    }
    files
}

/// Returns the survivors, by the names that cargo-mutants gives them.
fn survivors(files: &BTreeMap<&str, Known>) -> BTreeSet<String> {
    let all = files.iter().flat_map(|(file, known)| known.breaks.iter().map(move |it| (file, it)));
    let left = all.filter(|(_, (_, outcome))| **outcome == Outcome::Survived);
    left.map(|(file, (name, _))| format!("{file}:{name}")).collect()
}

/// Writes the sums of each file, then the survivors with their reasons.
pub(super) fn summary(lines: &[Line], reasons: &Reasons) -> String {
    let files = latest(lines);
    let mut text = String::from("   of tried caught hung unviable survived file\n");
    let mut row = |of: usize, tried: usize, counts: [usize; 4], name: &str| {
        let [caught, hung, unviable, survived] = counts;
        text += &format!(
            "{of:>5} {tried:>5} {caught:>6} {hung:>4} {unviable:>8} {survived:>8} {name}\n"
        );
    };
    let kinds = [Outcome::Caught, Outcome::Hung, Outcome::Unviable, Outcome::Survived];
    let (mut of, mut tried, mut sums) = (0, 0, [0; 4]);
    for (file, known) in &files {
        let counts = kinds.map(|outcome| known.count(outcome));
        row(known.of, known.breaks.len(), counts, file);
        of += known.of;
        tried += known.breaks.len();
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    row(of, tried, sums, "all");
    text += "\nsurvivors\n";
    for name in survivors(&files) {
        let why = reasons.reason.get(&name).map_or("no reason", String::as_str);
        text += &format!("{name}: {why}\n");
    }
    text
}

/// Checks that the sums are those of the lines, and that each reason is one of a survivor.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let file = |name: &str| tree.text(&format!("{FOLDER}/{name}")).unwrap_or_default();
    let of = |name: &str, wrong: String, remedy: &str| {
        vec![Finding::new("mutants", &format!("{FOLDER}/{name}"), 1, wrong, remedy)]
    };
    let lines: Vec<Line> = match record::parse(file("raw.jsonl")) {
        Ok(lines) => lines,
        Err(why) => return of("raw.jsonl", format!("{why:#}"), "take the line out"),
    };
    let reasons: Reasons = match toml::from_str(file("reasons.toml")) {
        Ok(reasons) => reasons,
        Err(why) => return of("reasons.toml", why.to_string(), "write NAME = \"reason\""),
    };
    let survivors = survivors(&latest(&lines));
    if let Some(name) = reasons.reason.keys().find(|name| !survivors.contains(*name)) {
        return of("reasons.toml", format!("`{name}` is no survivor"), "take the reason out");
    }
    if lines.is_empty() || file("summary.txt") == summary(&lines, &reasons) {
        return Vec::new();
    }
    let remedy = "run `cargo xtask mutants --for 0`, which writes the sums";
    of("summary.txt", "the sums are not those of raw.jsonl".to_owned(), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, breaks: &[(&str, &[&str])]) -> String {
        let mut line = serde_json::json!({
            "file": "a.rs", "of": 9, "text": text, "commit": "c", "machine": "m", "seconds": 1
        });
        for (outcome, names) in breaks {
            line[*outcome] = serde_json::json!(names);
        }
        format!("{line}\n")
    }

    #[test]
    fn the_last_word_on_the_latest_text_counts() {
        let lines = [
            line("old", &[("survived", &["1"])]),
            line("new", &[("survived", &["2", "3"]), ("unviable", &["4"])]),
            line("new", &[("caught", &["3"])]),
        ];
        let lines: Vec<Line> = record::parse(&lines.concat()).unwrap();
        let text = summary(&lines, &Reasons::default());
        assert!(text.contains("    9     3      1    0        1        1 a.rs\n"), "{text}");
        assert!(text.ends_with("survivors\na.rs:2: no reason\n"), "{text}");
    }

    #[test]
    fn sums_and_reasons_are_held() {
        let raw = line("new", &[("survived", &["2"])]);
        let lines: Vec<Line> = record::parse(&raw).unwrap();
        let of = |reasons: &str, sums: &str| {
            let file = |name: &str| format!("{FOLDER}/{name}");
            let [a, b, c] = ["raw.jsonl", "reasons.toml", "summary.txt"].map(file);
            check(&Tree::of(&[(&a, &raw), (&b, reasons), (&c, sums)])).len()
        };
        let reasons = "[reason]\n\"a.rs:2\" = \"the same\"\n";
        let sums = summary(&lines, &toml::from_str(reasons).unwrap());
        assert!(sums.ends_with("a.rs:2: the same\n"), "{sums}");
        assert_eq!(of(reasons, &sums), 0);
        assert_eq!(of("", &sums), 1);
        assert_eq!(of("[reason]\n\"a.rs:7\" = \"gone\"\n", &sums), 1);
        assert_eq!(of(reasons, &sums.replace('9', "8")), 1);
    }
}
