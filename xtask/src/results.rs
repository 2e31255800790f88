//! The index of saved results, `results/README.md`: a row for each folder `results/<scenario>/<date>-<what>`.
//!
//! People write what a result is, its state, and whether the machine was quiet. The rest of a row comes from the first
//! line of the folder's `raw.jsonl`, where it tells, and from the pages that cite the folder; `cargo xtask figures`
//! writes it, and adds and removes rows.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use crate::finding::Finding;
use crate::tree::{Tree, numbered};

const RULE: &str = "results";

pub(crate) const INDEX: &str = "results/README.md";

/// Folders of tools that add a file or a line each time; they are not in the index.
const OF_TOOLS: &[&str] = &["campaign", "mutants", "nightly", "sanitizers"];

const HEAD: &str = "| result | what | state | quiet | machine | profile | commit | cited from |";
const COLUMNS: usize = 8;

/// Cell in which a writer has yet to say something.
const UNSAID: &str = "?";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let name = Regex::new(r"^\d{4}-\d{2}-\d{2}-[a-z0-9][a-z0-9-]*$").expect("a valid pattern");
    let mut findings = Vec::new();
    let mut report = |file: &str, line, wrong: String, remedy: &str| {
        findings.push(Finding::new(RULE, file, line, wrong, remedy));
    };
    for file in tree.files_in("results").filter(|file| format!("results/{file}") != INDEX) {
        report(
            &format!("results/{file}"),
            1,
            "a file among the scenarios".to_owned(),
            "move it into results/SCENARIO/YYYY-MM-DD-WHAT",
        );
    }
    for scenario in scenarios(tree) {
        let parent = format!("results/{scenario}");
        let strays = tree.files_in(&parent).chain(tree.folders_in(&parent));
        for stray in strays.filter(|entry| !name.is_match(entry)) {
            report(
                &format!("{parent}/{stray}"),
                1,
                format!("{stray} is not a result of {scenario}"),
                "a result is a folder results/SCENARIO/YYYY-MM-DD-WHAT",
            );
        }
    }
    let Some(index) = tree.text(INDEX) else {
        if !folders(tree).is_empty() {
            report(
                INDEX,
                1,
                "there is no index".to_owned(),
                "write one, with the head of its table",
            );
        }
        return findings;
    };
    if refresh(tree, index) != index {
        let wrong = "the index differs from the folders or from who cites them";
        report(INDEX, 1, wrong.to_owned(), "run `cargo xtask figures`, then fill in each `?`");
    }
    for (line, text) in numbered(index) {
        let Some(row) = cells(text) else { continue };
        if row[1..COLUMNS - 1].contains(&UNSAID) {
            report(INDEX, line, format!("{} leaves a `?`", row[0]), "say it in the row");
        }
        if row[COLUMNS - 1] == UNSAID {
            report(
                INDEX,
                line,
                format!("nobody cites {}", row[0]),
                "cite it, or delete the folder",
            );
        }
    }
    findings
}

/// Returns the index with every row brought up to date, from its folder and from the pages that cite it.
pub(crate) fn refresh(tree: &Tree, index: &str) -> String {
    let said: BTreeMap<&str, [&str; COLUMNS]> =
        index.lines().filter_map(cells).map(|row| (linked(row[0]), row)).collect();
    let mut out = String::new();
    for line in index.lines().filter(|line| cells(line).is_none()) {
        out.push_str(line);
        out.push('\n');
        if line.starts_with("|---") {
            for folder in folders(tree) {
                out.push_str(&row(tree, &folder, said.get(folder.as_str())));
            }
        }
    }
    out
}

fn row(tree: &Tree, folder: &str, said: Option<&[&str; COLUMNS]>) -> String {
    let origin = origin(tree, folder);
    let kept = |column: usize| said.map_or(UNSAID, |row| row[column]).to_owned();
    let told = |column, of: &dyn Fn(&Value) -> Option<String>| {
        origin.as_ref().and_then(of).unwrap_or_else(|| kept(column))
    };
    let text = |origin: &Value, key| origin.get(key).and_then(Value::as_str).map(str::to_owned);
    let machine = told(4, &|origin| {
        let cpus = origin.get("cpus").and_then(Value::as_u64)?;
        Some(format!("{}, {cpus} CPUs", text(origin, "processor")?))
    });
    let cells = [
        format!("[{folder}]({folder}/README.md)"),
        kept(1),
        kept(2),
        kept(3),
        machine,
        told(5, &|origin| text(origin, "profile")),
        told(6, &|origin| text(origin, "revision")),
        cited_from(tree, folder),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// Returns the origin that the folder's `raw.jsonl` names.
fn origin(tree: &Tree, folder: &str) -> Option<Value> {
    let raw = tree.text(&format!("results/{folder}/raw.jsonl"))?;
    serde_json::from_str::<Value>(raw.lines().next()?).ok()?.get("origin").cloned()
}

/// Returns links to the pages and the files of figures that cite the folder.
fn cited_from(tree: &Tree, folder: &str) -> String {
    let path = format!("results/{folder}/");
    let cites = tree.files().iter().filter(|file| {
        let is_source = file.path.ends_with(".md") || file.path.ends_with(".toml");
        is_source && !file.path.starts_with("results/") && file.text.contains(&path)
    });
    let links: Vec<String> = cites
        .map(|file| {
            let name = file.path.rsplit('/').next().unwrap_or(&file.path);
            let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
            format!("[{name}](../{})", file.path)
        })
        .collect();
    if links.is_empty() { UNSAID.to_owned() } else { links.join(", ") }
}

/// Returns the cells of a row of the index, if the line is one.
fn cells(line: &str) -> Option<[&str; COLUMNS]> {
    if line == HEAD || !line.starts_with("| [") {
        return None;
    }
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    cells.try_into().ok()
}

/// Returns the `a` of `[a](b)`.
fn linked(cell: &str) -> &str {
    cell.trim_start_matches('[').split(']').next().unwrap_or(cell)
}

fn scenarios(tree: &Tree) -> Vec<&str> {
    tree.folders_in("results").into_iter().filter(|name| !OF_TOOLS.contains(name)).collect()
}

/// Returns the `<scenario>/<date>-<what>` of every result.
pub(crate) fn folders(tree: &Tree) -> Vec<String> {
    let of = |scenario: &&str| {
        let names = tree.folders_in(&format!("results/{scenario}"));
        names.into_iter().map(|name| format!("{scenario}/{name}")).collect::<Vec<String>>()
    };
    scenarios(tree).iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "|---|---|---|---|---|---|---|---|\n";
    const ORIGIN: &str =
        r#"{"origin":{"processor":"A","cpus":2,"profile":"release","revision":"abc"}}"#;
    const ROW: &str = "| [s/2026-01-02-full](s/2026-01-02-full/README.md) | a run | holds | yes \
                       | A, 2 CPUs | release | abc | [a](../docs/a.md) |\n";

    fn check_index(rows: &str, more: &[(&str, &str)], expected: &[&str]) {
        let index = format!("# Results\n\n{HEAD}\n{LINE}{rows}");
        let mut files = vec![
            (INDEX, index.as_str()),
            ("results/s/2026-01-02-full/raw.jsonl", ORIGIN),
            ("results/nightly/2026-01-02.md", "a night\n"),
        ];
        files.extend(more);
        let findings = check(&Tree::of(&files));
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
        for (finding, expected) in findings.iter().zip(expected) {
            assert!(finding.to_string().contains(expected), "no {expected:?} in {finding}");
        }
    }

    const CITES: (&str, &str) = ("docs/a.md", "[x](../results/s/2026-01-02-full/raw.jsonl)\n");

    #[test]
    fn every_folder_has_its_row_and_every_row_its_folder() {
        check_index(ROW, &[CITES], &[]);
        check_index("", &[CITES], &["differs"]);
        let gone = ROW.replace("2026-01-02", "2026-01-03");
        check_index(&format!("{ROW}{gone}"), &[CITES], &["differs"]);
        check_index(&ROW.replace("abc", "abd"), &[CITES], &["differs"]);
        check_index(&ROW.replace("yes", "?"), &[CITES], &["leaves a `?`"]);
    }

    #[test]
    fn what_nobody_cites_is_found() {
        check_index(&ROW.replace("[a](../docs/a.md)", "?"), &[], &["nobody cites"]);
    }

    #[test]
    fn nothing_else_lies_among_the_results() {
        for stray in ["results/raw.jsonl", "results/s/raw.jsonl", "results/s/vm/raw.jsonl"] {
            let findings: &[&str] = if stray == "results/s/vm/raw.jsonl" {
                &["not a result", "differs"]
            } else {
                &["a"]
            };
            check_index(ROW, &[CITES, (stray, "{}")], findings);
        }
    }

    #[test]
    fn rows_are_made_of_what_the_folder_says() {
        let index = format!("{HEAD}\n{LINE}");
        let tree = Tree::of(&[("results/s/2026-01-02-full/raw.jsonl", ORIGIN), CITES]);
        let made = refresh(&tree, &index);
        assert!(made.contains("| ? | ? | ? | A, 2 CPUs | release | abc | [a](../docs/a.md) |"));
    }
}
