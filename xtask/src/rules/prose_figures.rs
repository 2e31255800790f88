//! A figure in prose equals the file that it comes from, and a speed that comes from no file does not stand in prose.
//!
//! docs/method.md tells writers how to mark a figure.

use std::sync::LazyLock;

use regex::Regex;

use super::links::without_code;
use crate::figures::{excerpt, expected_text, fences, figure_source, links};
use crate::finding::Finding;
use crate::tree::{RustFile, TextFile, Tree, numbered, prose};

const RULE: &str = "figures";

const REFRESH: &str = "run `cargo xtask figures`, then read the sentence again";
const MARK: &str =
    "link it to its value under results/ or in the lab's figures (docs/method.md), or take it out";

/// A number with a unit of speed, or one that compares speeds.
const SPEED: &str = r"(?ix)
    \b\d[\d.,_]*\s*
        (?: ns|us|µs|μs|ms | (?:nano|micro|milli)seconds? | instr|instructions | cycles )\b
    | \b\d[\d.,]*\s* (?:x|times)\s+ (?:as\ fast|faster|slower|quicker)
    | \b\d[\d.,]*x (?: $ | [\s.,;:)|\]] )";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let speed = Regex::new(SPEED).expect("a valid pattern");
    let mut findings = Vec::new();
    for file in tree.markdown() {
        findings.extend(check_marked(tree, file));
        findings.extend(check_excerpts(tree, file));
        // What lies in these folders is the record itself, not prose about it.
        let is_record = ["results/", "data/", "docs/sources/"];
        if !is_record.iter().any(|folder| file.path.starts_with(folder)) {
            findings.extend(check_unmarked(&speed, file));
        }
    }
    findings.extend(tree.rust().iter().flat_map(|file| check_comments(&speed, file)));
    findings
}

/// Checks that figures equal their files.
fn check_marked(tree: &Tree, file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in prose(&file.text) {
        for link in links(&without_code(text)) {
            let Some((source, pointer)) = figure_source(&file.path, &link) else { continue };
            match expected_text(tree, &source, pointer, link.text) {
                Ok(expected) if expected == link.text => {}
                Ok(expected) => {
                    let wrong = format!("`{}` stands for {expected} in {source}", link.text);
                    findings.push(Finding::new(RULE, &file.path, line, wrong, REFRESH));
                }
                Err(why) => {
                    let remedy = "correct the link, or save the value there";
                    findings.push(Finding::new(RULE, &file.path, line, why, remedy));
                }
            }
        }
    }
    findings
}

/// Checks that excerpts equal their files.
fn check_excerpts(tree: &Tree, file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for fence in fences(&file.text) {
        let Some(target) = fence.excerpt_target() else { continue };
        match excerpt(tree, &file.path, target) {
            Ok(lines) if lines == fence.body => {}
            Ok(_) => {
                let wrong = format!("the block differs from {target}");
                findings.push(Finding::new(RULE, &file.path, fence.line, wrong, REFRESH));
            }
            Err(why) => {
                let remedy = "correct the path and the lines after the opening fence";
                findings.push(Finding::new(RULE, &file.path, fence.line, why, remedy));
            }
        }
    }
    findings
}

/// Checks that no speed in prose or in shown output is without a source.
fn check_unmarked(speed: &Regex, file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line, figure: &str| {
        let wrong = format!("the speed `{}` has no source", figure.trim());
        findings.push(Finding::new(RULE, &file.path, line, wrong, MARK));
    };
    for (line, text) in prose(&file.text) {
        let bare = without_links(&without_code(text));
        for found in speed.find_iter(&bare) {
            if !is_demand(&bare, found.start()) {
                report(line, found.as_str());
            }
        }
    }
    for fence in fences(&file.text) {
        let shown = matches!(fence.info.split_whitespace().next(), None | Some("text" | "console"));
        if shown && fence.excerpt_target().is_none() {
            for (at, text) in fence.body.iter().enumerate() {
                if let Some(found) = speed.find(text) {
                    report(fence.line + 1 + at, found.as_str());
                }
            }
        }
    }
    findings
}

/// Checks that no speed in a comment of the code is without a source, unless the comment quotes or demands it.
fn check_comments(speed: &Regex, file: &RustFile) -> Vec<Finding> {
    static EXCUSED: LazyLock<Regex> = LazyLock::new(|| {
        let words = r"(?i)published|results/|data/figures/|at most|at least|limit|budget|target|spec\b|measured by";
        Regex::new(words).expect("a valid pattern")
    });
    let mut findings = Vec::new();
    for block in comment_blocks(&file.text) {
        if block.iter().any(|(_, text)| EXCUSED.is_match(text)) {
            continue;
        }
        for (line, text) in block {
            if let Some(found) = speed.find(text) {
                findings.push(Finding::new(
                    RULE,
                    &file.path,
                    line,
                    format!("the speed `{}` has no source", found.as_str().trim()),
                    "name the file under results/ or say who published it, or take it out",
                ));
            }
        }
    }
    findings
}

/// Returns whole-line comments, adjacent ones together, and comments at the end of a line alone.
fn comment_blocks(text: &str) -> Vec<Vec<(usize, &str)>> {
    let mut blocks: Vec<Vec<(usize, &str)>> = Vec::new();
    let mut open = false;
    for (line, content) in numbered(text) {
        if content.trim_start().starts_with("//") {
            if !open {
                blocks.push(Vec::new());
            }
            blocks.last_mut().expect("a block is open").push((line, content));
            open = true;
        } else {
            open = false;
            // With a quotation mark in the line, the slashes may stand in a string.
            if let Some((_, comment)) =
                content.split_once("; // ").filter(|_| !content.contains('"'))
            {
                blocks.push(vec![(line, comment)]);
            }
        }
    }
    blocks
}

/// Returns the line with its links cut out.
fn without_links(line: &str) -> String {
    let mut out = line.to_owned();
    for link in links(line).into_iter().rev() {
        out.replace_range(link.place, "");
    }
    out
}

/// Returns true if the figure at `at` is a demand and not a measurement: "a target of at most 50 us".
fn is_demand(line: &str, at: usize) -> bool {
    let before = line[..at].trim_end().to_lowercase();
    let bounded = ["at most", "at least", "<=", ">="].iter().any(|word| before.ends_with(word));
    let named = ["target", "limit", "budget"].iter().any(|w| line.to_lowercase().contains(w));
    bounded && named
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: (&str, &str) = ("results/churn/2026-11-20-full/a.toml", "sum = 3.352\n");
    const TEXT: (&str, &str) = ("results/churn/2026-11-20-full/a.txt", "97 ns\n98 ns\n");

    fn check_count(path: &str, text: &str, expected: usize) {
        let findings = check(&Tree::of(&[TOML, TEXT, (path, text)]));
        assert_eq!(findings.len(), expected, "{text}: {findings:?}");
    }

    #[test]
    fn marked_figures_equal_their_files() {
        check_count("README.md", "[3.35x](results/churn/2026-11-20-full/a.toml#/sum) here\n", 0);
        check_count("README.md", "[3.36x](results/churn/2026-11-20-full/a.toml#/sum) here\n", 1);
        check_count("README.md", "[3.35x](results/churn/2026-11-20-full/a.toml#/total) here\n", 1);
        check_count("README.md", "[3.35x](results/churn/2026-11-20-full/b.toml#/sum) here\n", 1);
    }

    #[test]
    fn excerpts_equal_their_files() {
        let open = "```text results/churn/2026-11-20-full/a.txt";
        check_count("README.md", &format!("{open}#L2\n98 ns\n```\n"), 0);
        check_count("README.md", &format!("{open}#L2\n97 ns\n```\n"), 1);
        check_count("README.md", &format!("{open}#L2-L3\n98 ns\n```\n"), 1);
        check_count("README.md", "```text\n97 ns\n```\n", 1);
        check_count("README.md", "```rust\nlet ns = 97; // 97 ns\n```\n", 0);
    }

    #[test]
    fn speeds_without_a_source_are_found() {
        for claim in [
            "it takes 97 ns.",
            "it takes 1,097.5 µs, mostly.",
            "that is 3.35x",
            "that is 3 times faster",
            "300 instructions each",
        ] {
            check_count("docs/a.md", claim, 1);
            check_count("crates/a/src/lib.rs", &format!("// {claim}\n"), 1);
        }
        for plain in ["at 15,000 areas", "0x3f", "a target of at most 50 us", "`97 ns`", "1 MB"] {
            check_count("docs/a.md", plain, 0);
        }
        check_count("docs/a.md", "it takes at most 50 us", 1);
        check_count("results/churn/2026-11-20-full/README.md", "it took 97 ns", 0);
        check_count(concat!("docs/sources/", "a.md"), "it took 97 ns", 0);
    }

    #[test]
    fn comments_may_quote_and_demand() {
        check_count("crates/a/src/lib.rs", "// Published: 24,676 us\n// and 30 ms.\n", 0);
        check_count("crates/a/src/lib.rs", "// Holds take at most 50 us.\nfn f() {}\n", 0);
        check_count("crates/a/src/lib.rs", "const A: u8 = 1; // takes 97 ns\n", 1);
        check_count("crates/a/src/lib.rs", "// As published.\nfn f() {}\n// 97 ns here.\n", 1);
    }
}
