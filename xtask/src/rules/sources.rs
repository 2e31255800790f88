//! Citations of the rules in `docs/sources` lead there; which rules nothing cites is listed.
//!
//! A rule is cited by its file and its anchor, `NAME.md` and `#ID`, with or without the folder before it; further
//! anchors of the same file may follow.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::finding::Finding;
use crate::tree::{TextFile, Tree, numbered};

const RULE: &str = "sources";
const FOLDER: &str = "docs/sources";

/// A rule by the name of its file, without its ending, and the anchor.
type Anchor<'a> = (&'a str, &'a str);

/// The place of an anchor in its file.
struct Place {
    line: usize,
    /// The anchor is alone on its line, so that it names the section that begins there.
    is_section: bool,
}

/// A rule of a file of sources that a text names.
struct Citation<'a> {
    name: &'a str,
    id: Option<&'a str>,
    line: usize,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let anchors = anchors(tree, &mut findings);
    for file in texts(tree) {
        for Citation { name, id, line } in citations(tree, file) {
            let wrong = match id {
                _ if !tree.has(&format!("{FOLDER}/{name}.md")) => {
                    format!("there is no {FOLDER}/{name}.md")
                }
                Some(id) if !anchors.contains_key(&(name, id)) => {
                    format!("{FOLDER}/{name}.md has no anchor `{id}`")
                }
                _ => continue,
            };
            findings.push(Finding::new(RULE, &file.path, line, wrong, "correct the citation"));
        }
    }
    findings
}

/// Lists the rules that nothing but their own file cites, a line for each file. A section is not a rule: what it holds
/// is.
pub(crate) fn uncited(tree: &Tree) -> Vec<String> {
    let mut cited = BTreeSet::new();
    for file in texts(tree) {
        let others = citations(tree, file).into_iter().filter(|it| name_of(file) != Some(it.name));
        cited.extend(others.filter_map(|it| Some((it.name, it.id?))));
    }
    let mut lists: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((name, id), place) in anchors(tree, &mut Vec::new()) {
        if !place.is_section && !cited.contains(&(name, id)) {
            lists.entry(name).or_default().push(format!("#{id}"));
        }
    }
    let line = |(name, ids): (&str, Vec<String>)| {
        format!("{FOLDER}/{name}.md: nothing cites {}", ids.join(", "))
    };
    lists.into_iter().map(line).collect()
}

/// Returns the files in which citations count. What lies below `results` is the record itself.
fn texts(tree: &Tree) -> impl Iterator<Item = &TextFile> {
    let is_text = |file: &&TextFile| file.is_prose_or_code() || file.path.ends_with(".toml");
    tree.files().iter().filter(is_text).filter(|file| !file.path.starts_with("results/"))
}

/// Returns the name of a file of sources; `None` for other files.
fn name_of(file: &TextFile) -> Option<&str> {
    file.path.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".md")
}

/// Returns all anchors; one that stands twice in a file is a finding.
fn anchors<'a>(tree: &'a Tree, findings: &mut Vec<Finding>) -> BTreeMap<Anchor<'a>, Place> {
    static ANCHOR: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"<a id="([^"]+)"></a>"#).expect("a valid pattern"));
    let mut places = BTreeMap::new();
    for file in tree.markdown() {
        let Some(name) = name_of(file) else { continue };
        for (line, text) in numbered(&file.text) {
            for found in ANCHOR.captures_iter(text) {
                let (whole, [id]) = found.extract();
                let place = Place { line, is_section: whole == text.trim() };
                if let Some(first) = places.insert((name, id), place) {
                    let wrong = format!("the anchor `{id}` stands in line {} too", first.line);
                    findings.push(Finding::new(RULE, &file.path, line, wrong, "rename one"));
                }
            }
        }
    }
    places
}

fn citations<'a>(tree: &Tree, file: &'a TextFile) -> Vec<Citation<'a>> {
    // Further anchors may stand on the next line of a comment.
    static CITED: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"(?x) (sources/)? \b ([a-z]+) \.md
            ((?: \#[a-z0-9-]+ (?: (?: \s | //[/!]? | [,`] | \b(?:and|or|to)\b )+ \#[a-z0-9-]+ )* )?)";
        Regex::new(pattern).expect("a valid pattern")
    });
    static ID: LazyLock<Regex> =
        LazyLock::new(|| Regex::new("#([a-z0-9-]+)").expect("a valid pattern"));
    static HERE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\]\(#([a-z0-9-]+)\)").expect("a valid pattern"));
    let text = file.text.as_str();
    let part = |range: Range<usize>| &text[range];
    let line = |at: usize| 1 + text[..at].matches('\n').count();
    let mut citations = Vec::new();
    for found in CITED.captures_iter(text) {
        let of = |group| found.get(group).map(|it: regex::Match<'_>| it.range());
        let (Some(name), Some(ids)) = (of(2), of(3)) else { continue };
        let (at, name) = (name.start, part(name));
        if of(1).is_none() && !tree.has(&format!("{FOLDER}/{name}.md")) {
            continue;
        }
        if ids.is_empty() {
            citations.push(Citation { name, id: None, line: line(at) });
        }
        for id in ID.captures_iter(part(ids.clone())).filter_map(|id| id.get(1)) {
            let range = ids.start + id.start()..ids.start + id.end();
            citations.push(Citation { name, line: line(range.start), id: Some(part(range)) });
        }
    }
    if let Some(name) = name_of(file) {
        for id in HERE.captures_iter(text).filter_map(|found| found.get(1)) {
            citations.push(Citation { name, id: Some(part(id.range())), line: line(id.start()) });
        }
    }
    citations
}

#[cfg(test)]
mod tests {
    use super::*;

    // In two pieces, so that this file cites nothing.
    const HEAP: &str = concat!("docs/sources/", "heap.md");
    const RULES: &str = "<a id=\"a\"></a>\n## A\n\nSee [one](#a-1).\n\n| <a id=\"a-1\"></a>1 | rule |\n\
                         | <a id=\"a-2\"></a>2 | rule |\n";

    /// Checks that files with this text, in which `@` stands for the folder of sources, have findings on these lines
    /// alone.
    fn check_lines(text: &str, expected: &[usize]) {
        let text = text.replace('@', "docs/sources/");
        for path in ["crates/a/src/lib.rs", "docs/a.md", "data/a.toml"] {
            let text =
                if path.ends_with(".rs") { text.as_str() } else { &text.replace("//!", "#") };
            let tree = Tree::of(&[(HEAP, RULES), (path, text)]);
            let lines: Vec<usize> = check(&tree).iter().map(|finding| finding.line).collect();
            assert_eq!(lines, expected, "{path}: {text}");
        }
    }

    #[test]
    fn citations_that_lead_nowhere_are_found() {
        check_lines("//! See @heap.md#a-1.", &[]);
        check_lines("//! See @heap.md, and heap.md#a.", &[]);
        check_lines("//! See @heap.md#a-3.", &[1]);
        check_lines("//!\n//! See @gone.md#a-1.", &[2]);
        check_lines("//! See @gone.md.", &[1]);
        check_lines("//! See heap.md#b.", &[1]);
        check_lines("//! See method.md#b of others.", &[]);
    }

    #[test]
    fn further_anchors_of_a_citation_are_looked_up() {
        check_lines("//! See @heap.md#a-1, #a-2 and #a.", &[]);
        check_lines("//! See @heap.md#a-1, #b and #c.", &[1, 1]);
        let tree = Tree::of(&[
            (HEAP, RULES),
            ("crates/a/src/lib.rs", &format!("//! {FOLDER}/heap.md#a-1,\n//! #b.\n")),
        ]);
        assert_eq!(check(&tree)[0].line, 2);
    }

    #[test]
    fn anchors_stand_once_and_links_beside_them_lead_to_them() {
        let tree = |text: &str| Tree::of(&[(HEAP, text)]);
        assert_eq!(check(&tree(RULES)), []);
        assert_eq!(check(&tree(&format!("{RULES}{RULES}"))).len(), 3);
        assert_eq!(check(&tree("See [one](#a).\n")).len(), 1);
    }

    #[test]
    fn rules_that_nothing_else_cites_are_listed() {
        let list = |path, text: &str| uncited(&Tree::of(&[(HEAP, RULES), (path, text)]));
        let link = concat!("[two](sources/", "heap.md#a-2)");
        assert_eq!(list("docs/a.md", ""), [format!("{HEAP}: nothing cites #a-1, #a-2")]);
        assert_eq!(list("docs/a.md", link), [format!("{HEAP}: nothing cites #a-1")]);
        assert_eq!(list("results/a/b/README.md", link).len(), 1);
        assert_eq!(list("docs/a.md", &format!("{link} heap.md#a-1")).len(), 0);
    }
}
