//! Plain text rules for Rust and Markdown: no tabs, no trailing space, at most 120 characters, no left-over marks.

use crate::finding::Finding;
use crate::tree::{TextFile, Tree, numbered};

const RULE: &str = "text";
/// Longest line of Rust or Markdown, in characters.
pub(crate) const WIDEST: usize = 120;

/// Split in two so that this file does not contain them.
const MARKS: &[[&str; 2]] = &[["TO", "DO"], ["FIX", "ME"], ["dbg", "!("], ["todo", "!("]];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files().iter().filter(|file| file.is_prose_or_code()).flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line, wrong: String, remedy: &str| {
        findings.push(Finding::new(RULE, &file.path, line, wrong, remedy));
    };
    let mut in_fence = false;
    for (line, text) in numbered(&file.text) {
        in_fence ^= file.path.ends_with(".md") && text.trim_start().starts_with("```");
        if text.contains('\t') {
            report(line, "has a tab".into(), "indent with spaces");
        }
        if text != text.trim_end() {
            report(line, "has space at its end".into(), "remove it");
        }
        let width = text.chars().count();
        if width > WIDEST && !may_be_wide(file, text, in_fence) {
            report(
                line,
                format!("has {width} characters, more than {WIDEST}"),
                "run `cargo xtask wrap`, or break it",
            );
        }
        for [head, tail] in MARKS {
            if text.contains(&format!("{head}{tail}")) {
                report(
                    line,
                    format!("has a left-over mark `{head}{tail}`"),
                    "do it, or file an issue",
                );
            }
        }
    }
    findings
}

/// Returns true if the line may be wide: table rows cannot be broken, shown output must not be, a link is as long as it
/// is, programs write results.
fn may_be_wide(file: &TextFile, line: &str, in_fence: bool) -> bool {
    let row_or_link = line.trim_start().starts_with('|') || line.contains("](");
    let by_program = file.path.starts_with("results/");
    file.path.ends_with(".md") && (in_fence || row_or_link || by_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_count(path: &str, text: &str, expected: usize) {
        let findings = check(&Tree::of(&[(path, text)]));
        assert_eq!(findings.len(), expected, "{text:?}: {findings:?}");
    }

    #[test]
    fn each_blemish_is_found() {
        check_count("a.md", "plain\n", 0);
        check_count("a.md", "a\tb\n", 1);
        check_count("a.rs", "// a \n", 1);
        check_count("a.txt", "a \n", 0);
        for [head, tail] in MARKS {
            check_count("a.md", &format!("{head}{tail}\n"), 1);
        }
    }

    #[test]
    fn wide_lines_are_found_except_where_they_cannot_be_broken() {
        let wide = "x".repeat(121);
        check_count("a.rs", &format!("// {}\n", "x".repeat(117)), 0);
        check_count("a.rs", &format!("// {wide}\n"), 1);
        check_count("a.md", &format!("{wide}\n"), 1);
        check_count("a.md", &format!("| {wide} |\n"), 0);
        check_count("a.md", &format!("```text\n{wide}\n```\n{wide}\n"), 1);
    }
}
