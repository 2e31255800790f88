//! No file names a folder of one machine, or of material that lies beside the repository.

use regex::Regex;

use crate::finding::Finding;
use crate::tree::{Tree, numbered};

const RULE: &str = "machine-paths";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    // Written so that the patterns do not match themselves.
    let own = Regex::new(r"(?:^|[^\w.\-])(/(?:work|root|home)/)").expect("a valid pattern");
    let shared = Regex::new(r"\.\./(?:shared)\b").expect("a valid pattern");
    let mut findings = Vec::new();
    for file in tree.files() {
        for (line, text) in numbered(&file.text) {
            if let Some(found) = own.captures(text) {
                findings.push(Finding::new(
                    RULE,
                    &file.path,
                    line,
                    format!("names the folder {} of one machine", &found[1]),
                    "use a path relative to the repository, or one that the caller gives",
                ));
            }
            if shared.is_match(text) {
                findings.push(Finding::new(
                    RULE,
                    &file.path,
                    line,
                    "names the folder of shared material, which a clone does not have",
                    "copy what is needed into data/, or let the caller name the folder",
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_count(path: &str, line: &str, expected: usize) {
        let findings = check(&Tree::of(&[(path, line)]));
        assert_eq!(findings.len(), expected, "{line}: {findings:?}");
    }

    #[test]
    fn folders_of_a_machine_are_found() {
        for folder in ["work", "root", "home"] {
            check_count("README.md", &format!("see /{folder}/me/x"), 1);
            check_count("README.md", &format!("see `/{folder}/x`"), 1);
            check_count("README.md", &format!("see docs/{folder}/x"), 0);
            check_count("README.md", &format!("see docs/a-{folder}/x"), 0);
        }
        check_count("README.md", "/proc/vmallocinfo", 0);
    }

    #[test]
    fn material_beside_the_repository_is_found() {
        let line = format!("// {}/shared/data", "..");
        check_count("crates/a/src/lib.rs", &line, 1);
        check_count("crates/a/tests/it/main.rs", &line, 1);
    }
}
