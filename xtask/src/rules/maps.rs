//! Maps of the code name what is there: ARCHITECTURE the modules of each crate, a module's list of files its files.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::tree::{Tree, numbered};

const RULE: &str = "maps";
const HOUSE: &str = "ARCHITECTURE.md";
/// Words with which the header of a module begins its list of files, in the order in which to read them.
const FILES: &str = "Files, bottom up:";
/// Modules of every crate that no map names.
const UNNAMED: &[&str] = &["lib", "main", "mod", "tests", "testing"];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = rooms(tree);
    for file in tree.rust().iter().filter(|file| file.path.starts_with("crates/")) {
        let Some(folder) = file.path.strip_suffix("/mod.rs") else { continue };
        let header: String = file
            .text
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .collect::<Vec<_>>()
            .join("\n");
        let Some((_, list)) = header.split_once(FILES) else { continue };
        let named = names(list);
        findings.extend(compare(tree, folder, &named, &file.path, 1));
    }
    findings
}

/// Checks the tables of ARCHITECTURE: the first cell of their heads is a crate, the first cells of their rows are
/// modules.
fn rooms(tree: &Tree) -> Vec<Finding> {
    let mut tables: Vec<(String, usize, BTreeSet<String>)> = Vec::new();
    for (line, text) in numbered(tree.text(HOUSE).unwrap_or_default()) {
        let Some(cell) = text.strip_prefix('|').and_then(|row| row.split('|').next()) else {
            continue;
        };
        let in_it = names(cell);
        let folder = in_it.iter().next().map(|name| format!("crates/{name}/src"));
        match folder.filter(|folder| tree.has(folder)) {
            Some(folder) => tables.push((folder, line, BTreeSet::new())),
            None => {
                tables.last_mut().into_iter().for_each(|(.., names)| names.extend(in_it.clone()))
            }
        }
    }
    let of_a_crate = |(folder, line, named): &(String, usize, BTreeSet<String>)| {
        compare(tree, folder, named, HOUSE, *line)
    };
    tables.iter().flat_map(of_a_crate).collect()
}

/// Returns the names between backticks.
fn names(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Finds modules of `folder` that `named` lacks, and names in `named` that are no modules.
fn compare(
    tree: &Tree,
    folder: &str,
    named: &BTreeSet<String>,
    at: &str,
    line: usize,
) -> Vec<Finding> {
    let files = tree.files_in(folder).filter_map(|name| name.strip_suffix(".rs"));
    let mut there: BTreeSet<&str> = files.collect();
    there.extend(tree.folders_in(folder));
    there.retain(|name| !UNNAMED.contains(name));
    let finding = |wrong: String, remedy| Finding::new(RULE, at, line, wrong, remedy);
    let missing = there.iter().filter(|name| !named.contains(**name)).map(|name| {
        finding(format!("`{name}` of {folder} is not on the map"), "name it, with what it is")
    });
    let gone = named.iter().filter(|name| !there.contains(name.as_str())).map(|name| {
        finding(
            format!("`{name}` is not in {folder}"),
            "take it off the map, or write it without backticks",
        )
    });
    missing.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_findings(house: &str, header: &str, expected: &[&str]) {
        let tree = Tree::of(&[
            (HOUSE, house),
            ("crates/a/src/lib.rs", ""),
            ("crates/a/src/b.rs", ""),
            ("crates/a/src/c/mod.rs", header),
            ("crates/a/src/c/d.rs", ""),
            ("crates/a/src/c/tests.rs", ""),
        ]);
        let found: Vec<String> = check(&tree).into_iter().map(|it| it.wrong).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_map_names_what_is_there_and_nothing_else() {
        let whole = "| `a` | |\n|---|---|\n| `b`, `c` | two |\n";
        check_findings(whole, "//! C.\n//!\n//! Files, bottom up: `d` (a file).\n", &[]);
        check_findings(whole, "//! C has no list, and `x`.\n", &[]);
        check_findings(
            "| `a` | |\n| `b` | `c` |\n",
            "",
            &["`c` of crates/a/src is not on the map"],
        );
        check_findings(
            whole,
            "//! Files, bottom up: `e`.\n",
            &["`d` of crates/a/src/c is not on the map", "`e` is not in crates/a/src/c"],
        );
        check_findings("| `z` | |\n| `b` | none of a crate |\n", "", &[]);
    }
}
