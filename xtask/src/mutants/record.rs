//! The outcomes of breaks: a line for each file of a slice, and their sums.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::Context;
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
pub(super) fn latest<'a>(
    lines: impl IntoIterator<Item = &'a Line>,
) -> BTreeMap<&'a str, Known<'a>> {
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

/// Returns Git's name of a file's code, which is what stands before its tests: they may change and leave all breaks as
/// they are.
pub(super) fn name_of_code(text: &str) -> anyhow::Result<String> {
    let (code, _) = text.split_once("\n#[cfg(test)]\nmod tests {").unwrap_or((text, ""));
    let mut git = Command::new("git");
    git.args(["hash-object", "--stdin"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut git = git.spawn().context("git can be started")?;
    git.stdin.take().expect("it is piped").write_all(code.as_bytes())?;
    Ok(String::from_utf8(git.wait_with_output()?.stdout)?.trim().to_owned())
}

/// Returns the last outcome of each break of the code as it stands, which `text` returns: those of an earlier code say
/// nothing about it.
pub(super) fn standing(
    lines: &[Line],
    text: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<BTreeMap<&str, Known<'_>>> {
    let mut files = BTreeMap::new();
    for (file, mut known) in latest(lines) {
        let Some(text) = text(file) else { continue };
        if name_of_code(&text)? != known.text {
            known.breaks.clear();
        }
        files.insert(file, known);
    }
    Ok(files)
}

/// Returns the survivors, by the names that cargo-mutants gives them.
fn survivors(files: &BTreeMap<&str, Known>) -> BTreeSet<String> {
    let all = files.iter().flat_map(|(file, known)| known.breaks.iter().map(move |it| (file, it)));
    let left = all.filter(|(_, (_, outcome))| **outcome == Outcome::Survived);
    left.map(|(file, (name, _))| format!("{file}:{name}")).collect()
}

/// Writes the sums of each file, then the survivors with their reasons.
pub(super) fn summary(files: &BTreeMap<&str, Known>, reasons: &Reasons) -> String {
    let mut text = String::from("   of tried caught hung unviable survived file\n");
    let mut row = |of: usize, tried: usize, counts: [usize; 4], name: &str| {
        let [caught, hung, unviable, survived] = counts;
        text += &format!(
            "{of:>5} {tried:>5} {caught:>6} {hung:>4} {unviable:>8} {survived:>8} {name}\n"
        );
    };
    let kinds = [Outcome::Caught, Outcome::Hung, Outcome::Unviable, Outcome::Survived];
    let (mut of, mut tried, mut sums) = (0, 0, [0; 4]);
    for (file, known) in files {
        let counts = kinds.map(|outcome| known.count(outcome));
        row(known.of, known.breaks.len(), counts, file);
        of += known.of;
        tried += known.breaks.len();
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    row(of, tried, sums, "all");
    text += "\nsurvivors\n";
    for name in survivors(files) {
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
    let text = |file: &str| tree.text(file).map(str::to_owned);
    let standing = match standing(&lines, text) {
        Ok(standing) => standing,
        Err(why) => return of("raw.jsonl", format!("{why:#}"), "install git"),
    };
    // Reasons stay until the code that has changed is tried: most hold for it, too, under another line's number.
    let survivors = survivors(&latest(lines.iter().filter(|line| !line.breaks.is_empty())));
    if let Some(name) = reasons.reason.keys().find(|name| !survivors.contains(*name)) {
        return of("reasons.toml", format!("`{name}` is no survivor"), "take the reason out");
    }
    if lines.is_empty() || file("summary.txt") == summary(&standing, &reasons) {
        return Vec::new();
    }
    let remedy = "run `cargo xtask mutants --for 0`, which writes the sums";
    of("summary.txt", "the sums are not those of raw.jsonl and of the code".to_owned(), remedy)
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
        let text = summary(&latest(&lines), &Reasons::default());
        assert!(text.contains("    9     3      1    0        1        1 a.rs\n"), "{text}");
        assert!(text.ends_with("survivors\na.rs:2: no reason\n"), "{text}");
    }

    #[test]
    fn sums_and_reasons_are_held() {
        let code = "fn a() {}";
        let raw = line(&name_of_code(code).unwrap(), &[("survived", &["2"])]);
        let lines: Vec<Line> = record::parse(&raw).unwrap();
        let of = |code: &str, reasons: &str, sums: &str| {
            let file = |name: &str| format!("{FOLDER}/{name}");
            let [a, b, c] = ["raw.jsonl", "reasons.toml", "summary.txt"].map(file);
            let files = [("a.rs", code), (&a, &raw), (&b, reasons), (&c, sums)];
            check(&Tree::of(&files)).len()
        };
        let reasons = "[reason]\n\"a.rs:2\" = \"the same\"\n";
        let sums = summary(&latest(&lines), &toml::from_str(reasons).unwrap());
        assert!(sums.ends_with("a.rs:2: the same\n"), "{sums}");
        assert_eq!(of(code, reasons, &sums), 0);
        assert_eq!(of(code, "", &sums), 1);
        assert_eq!(of(code, "[reason]\n\"a.rs:7\" = \"gone\"\n", &sums), 1);
        assert_eq!(of(code, reasons, &sums.replace('9', "8")), 1);
        let tests = "\n#[cfg(test)]\nmod tests {}";
        assert_eq!(of(&format!("{code}{tests}"), reasons, &sums), 0, "tests may change");
        assert_eq!(of("fn a() {\n}", reasons, &sums), 1, "the code has changed");
        let [one, other] =
            ["a", "b"].map(|it| format!("\n#[cfg(test)]\nmod tests;\nfn {it}() {{}}"));
        let [one, other] = [one, other].map(|text| name_of_code(&text).unwrap());
        assert_ne!(one, other, "code may stand below tests that have a file of their own");
    }

    #[test]
    fn what_was_tried_of_an_earlier_code_does_not_count() {
        let raw = line("old", &[("survived", &["2"]), ("caught", &["3"])]);
        let lines: Vec<Line> = record::parse(&raw).unwrap();
        let files = standing(&lines, |_| Some("fn a() {}".to_owned())).unwrap();
        let text = summary(&files, &Reasons::default());
        assert!(text.contains("    9     0      0    0        0        0 a.rs\n"), "{text}");
        assert!(text.ends_with("survivors\n"), "{text}");
        assert!(standing(&lines, |_| None).unwrap().is_empty(), "a file that is gone");
    }
}
