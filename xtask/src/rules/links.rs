//! A relative link in Markdown leads to a file or a folder of the repository.

use crate::figures::{links, source};
use crate::finding::Finding;
use crate::tree::{Tree, prose};

const RULE: &str = "links";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.markdown() {
        for (line, text) in prose(&file.text) {
            for link in links(&without_code(text)) {
                let Some(target) = source(&file.path, link.target) else { continue };
                if !tree.has(&target.file) {
                    findings.push(Finding::new(
                        RULE,
                        &file.path,
                        line,
                        format!("the link leads to {}, which is not there", target.file),
                        "correct the path, or remove the link",
                    ));
                }
            }
        }
    }
    findings
}

/// Returns the line with its code spans blanked out: what stands in them is not a link.
pub(crate) fn without_code(line: &str) -> String {
    let odd_parts_blank = |(at, part): (usize, &str)| match at % 2 {
        0 => part.to_owned(),
        _ => format!("`{}`", " ".repeat(part.len())),
    };
    line.split('`').enumerate().map(odd_parts_blank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_count(text: &str, expected: usize) {
        let tree = Tree::of(&[("docs/a.md", text), ("docs/deep/b.md", ""), ("README.md", "")]);
        let findings = check(&tree);
        assert_eq!(findings.len(), expected, "{text}: {findings:?}");
    }

    #[test]
    fn dead_links_are_found() {
        check_count(
            "[b](deep/b.md) [top](../README.md) [folder](deep) [here](#a) [web](https://a.example)",
            0,
        );
        check_count("[gone](deep/c.md)", 1);
        check_count("[gone](../docs/c.md#L3)", 1);
        check_count("`[shown](x.md)` and\n```text\n[shown](x.md)\n```\n", 0);
    }
}
