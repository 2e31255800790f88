//! Decision records: `docs/decisions/NNNN-title.md`, each number once, the number repeated in the heading.

use std::collections::BTreeMap;

use regex::Regex;

use crate::finding::Finding;
use crate::tree::Tree;

const RULE: &str = "decisions";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let name = Regex::new(r"^docs/decisions/(\d{4})-[a-z0-9-]+\.md$").expect("a valid pattern");
    let mut first_of: BTreeMap<String, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| file.path.starts_with("docs/decisions/")) {
        let Some(found) = name.captures(&file.path) else {
            findings.push(Finding::new(
                RULE,
                &file.path,
                1,
                "a decision record is named otherwise",
                "name it docs/decisions/NNNN-words-joined-by-hyphens.md",
            ));
            continue;
        };
        let number = found[1].to_owned();
        if !file.text.starts_with(&format!("# {number}. ")) {
            findings.push(Finding::new(
                RULE,
                &file.path,
                1,
                "the heading does not repeat the number",
                format!("begin with `# {number}. Title`"),
            ));
        }
        if let Some(other) = first_of.get(number.as_str()) {
            findings.push(Finding::new(
                RULE,
                &file.path,
                1,
                format!("{other} has the number {number} already"),
                "give this one the next free number",
            ));
        } else {
            first_of.insert(number, &file.path);
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
    fn numbers_are_unique_and_stand_in_the_heading() {
        let one = ("docs/decisions/0001-first.md", "# 0001. First\n");
        let two = ("docs/decisions/0002-second.md", "# 0002. Second\n");
        check_count(&[one, two], 0);
        check_count(&[one, ("docs/decisions/0001-again.md", "# 0001. Again\n")], 1);
        check_count(&[("docs/decisions/0002-second.md", "# Second\n")], 1);
        check_count(&[("docs/decisions/second.md", "# Second\n")], 1);
    }
}
