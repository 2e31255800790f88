//! No text refers to one that its reader does not have: sections of unpublished papers, numbers of private lists.

use regex::Regex;

use crate::finding::Finding;
use crate::tree::{Tree, numbered};

const RULE: &str = "unpublished";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    // Written so that the patterns do not match themselves.
    let pattern = Regex::new(
        r"(?ix) \bspec[/]\w+ | \x{a7} | \bspec\.?\x20(?:\d|[a-z]-?\d) | \boracle\x20\d | \btrap\x20t\d
            | \(B-\d | \bO-\d+[:,)] | \bissue\x20(?:item|that\x20ordered) | \bscenario's\x20specification
            | \bthe\x20specification\b
            | \bfn\x20[biot]_?\d+_ | `[biot]_?\d+_ | (?-i:\bB\d+[:,]\x20|\(T\d+\))",
    )
    .expect("a valid pattern");
    let mut findings = Vec::new();
    for file in tree.files() {
        // What lies below results and beside recordings is the record itself.
        let is_text = [".md", ".rs", ".toml"].iter().any(|ending| file.path.ends_with(ending));
        if !is_text || file.path.starts_with("results/") {
            continue;
        }
        let mut in_excerpt = false;
        for (line, text) in numbered(&file.text) {
            if let Some(info) = text.trim_start().strip_prefix("```") {
                in_excerpt = !in_excerpt && info.contains("results/");
            }
            if let Some(found) = pattern.find(text).filter(|_| !in_excerpt) {
                findings.push(Finding::new(
                    RULE,
                    &file.path,
                    line,
                    format!("`{}` refers to a text that no reader has", found.as_str()),
                    "name the public source: a rule of docs/sources, a document and section, a man page, a commit",
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_count(line: &str, expected: usize) {
        for path in ["crates/a/src/lib.rs", "docs/a.md", "data/a.toml"] {
            let file = if path.ends_with(".md") { line.to_owned() } else { format!("// {line}") };
            let file = if path.ends_with(".toml") { format!("# {line}") } else { file };
            let findings = check(&Tree::of(&[(path, &file)]));
            assert_eq!(findings.len(), expected, "{line}: {findings:?}");
        }
    }

    #[test]
    fn references_to_private_texts_are_found() {
        for [head, tail] in [
            ["Source: spec", "/pages.md"],
            ["as in \u{a7}", "2.4"],
            ["(spec", " B-21)"],
            ["(oracle", " 7)"],
            ["zones never spread (B", "-1)"],
            ["the issue", " item 3"],
            ["the issue", " that ordered it"],
            ["section 8.3 of the scenario's", " specification"],
            ["what the", " specification found"],
            ["fn o", "_12_events_are_counted() {}"],
            ["named `t", "5_unpurged`"],
            ["B", "10: a caller that must not wait"],
            ["ranges of compaction (T", "9)"],
        ] {
            check_count(&format!("{head}{tail}"), 1);
        }
        for plain in
            ["the ELF specification", "a spec of a run", "an issue", "section 3 of the RFC"]
        {
            check_count(plain, 0);
        }
    }

    #[test]
    fn saved_results_and_excerpts_of_them_stay_as_they_are() {
        let line = format!("kernel 6.1 (spec{} 14)\n", "/pages.md");
        let page = format!("```text ../results/a/b/summary.txt#L1\n{line}```\n");
        let tree = Tree::of(&[("results/a/b/README.md", &line), ("docs/a.md", &page)]);
        assert_eq!(check(&tree), []);
    }
}
