//! Every folder of inputs and of results says in a README where its files come from.

use regex::Regex;

use crate::finding::Finding;
use crate::tree::Tree;

const RULE: &str = "folders";

/// The folder whose results grow over many days.
const UNDATED: &str = "campaign";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let dated = Regex::new(r"^\d{4}-\d{2}-\d{2}-[a-z0-9][a-z0-9-]*$").expect("a valid pattern");
    let mut findings = Vec::new();
    for parent in ["results", "data", "crates/nofrag-lab/data"] {
        for name in tree.folders_in(parent) {
            let readme = format!("{parent}/{name}/README.md");
            if tree.text(&readme).is_none_or(|text| text.trim().is_empty()) {
                findings.push(Finding::new(
                    RULE,
                    &readme,
                    1,
                    "the folder does not say where its files come from",
                    "write a README.md there: source or machine, command, and what each file holds",
                ));
            }
            if parent == "results" && name != UNDATED && !dated.is_match(name) {
                findings.push(Finding::new(
                    RULE,
                    &readme,
                    1,
                    format!("the results folder {name} is not named by date and machine"),
                    "name it results/YYYY-MM-DD-machine",
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_count(files: &[(&str, &str)], expected: usize) {
        let findings = check(&Tree::of(files));
        assert_eq!(findings.len(), expected, "{findings:?}");
    }

    #[test]
    fn folders_have_a_readme_and_results_a_date() {
        let raw = ("results/2026-11-20-vm/raw.jsonl", "{}");
        check_count(&[raw, ("results/2026-11-20-vm/README.md", "Made by a test.\n")], 0);
        check_count(&[raw], 1);
        check_count(&[raw, ("results/2026-11-20-vm/README.md", " \n")], 1);
        check_count(&[("crates/nofrag-lab/data/figures/a.toml", "")], 1);
        check_count(&[("results/vm/README.md", "Made by a test.\n")], 1);
    }
}
