//! Every folder of inputs and of results says in a README where its files come from.

use crate::finding::Finding;
use crate::tree::Tree;

const RULE: &str = "folders";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let data = ["data", "crates/nofrag-lab/data"].into_iter().flat_map(|parent| {
        tree.folders_in(parent).into_iter().map(move |name| format!("{parent}/{name}"))
    });
    let results = crate::results::folders(tree);
    let results = results.iter().map(|name| format!("results/{name}"));
    let mut findings = Vec::new();
    for folder in
        data.chain(results).chain(["campaign", "mutants"].map(|name| format!("results/{name}")))
    {
        let readme = format!("{folder}/README.md");
        if tree.has(&folder) && tree.text(&readme).is_none_or(|text| text.trim().is_empty()) {
            findings.push(Finding::new(
                RULE,
                &readme,
                1,
                "the folder does not say where its files come from",
                "write a README.md there: source or machine, command, and what each file holds",
            ));
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
    fn folders_have_a_readme() {
        let raw = ("results/churn/2026-11-20-full/raw.jsonl", "{}");
        let readme = "results/churn/2026-11-20-full/README.md";
        check_count(&[raw, (readme, "Made by a test.\n")], 0);
        check_count(&[raw], 1);
        check_count(&[raw, (readme, " \n")], 1);
        check_count(&[("data/hosts/a/vmstat", "")], 1);
        check_count(&[("crates/nofrag-lab/data/figures/a.toml", "")], 1);
        check_count(&[("results/nightly/2026-11-20.md", "a night\n")], 0);
    }
}
