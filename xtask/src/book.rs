//! The pages of `docs` as a book: built by mdBook, and every link in it followed.
//!
//! The pages stay what they are in the repository. Only copies are changed: a link that leaves `docs` becomes one to
//! the published repository, and the decisions get a list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use regex::Regex;

use crate::figures::{links, source};
use crate::rules::without_code;
use crate::tree::{TextFile, Tree, prose};

const PAGES: &str = "docs/";
const CONTENTS: &str = "docs/SUMMARY.md";
const DECISIONS: &str = "docs/decisions/";

const SETTINGS: &str = r#"[book]
title = "nofrag"
[build]
build-dir = "html"
[output.html]
additional-css = ["width.css"]
"#;
/// Output has up to a hundred columns.
const WIDTH: &str = ":root { --content-max-width: 58rem; }\n";

/// Builds the book in `target/book/html`; true if every page is in it and every link leads somewhere.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let tree = Tree::read(root)?;
    let folder = root.join("target/book");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let repository = repository(&tree)?;
    for page in tree.markdown().filter(|file| file.path.starts_with(PAGES)) {
        let mut text = outward(page, &repository);
        if page.path == CONTENTS {
            text.push_str(&decisions(&tree));
        }
        let copy = folder.join("src").join(&page.path[PAGES.len()..]);
        fs::create_dir_all(copy.parent().context("a page lies in a folder")?)?;
        fs::write(copy, text)?;
    }
    fs::write(folder.join("book.toml"), SETTINGS)?;
    fs::write(folder.join("width.css"), WIDTH)?;
    let built = Command::new("mdbook").arg("build").arg(&folder).status();
    ensure!(built.context("mdbook")?.success(), "mdbook has failed");
    let mut findings = unlisted(&tree);
    findings.extend(dead_links(&folder.join("html"))?);
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("{}: {} findings", folder.join("html/index.html").display(), findings.len());
    Ok(findings.is_empty())
}

/// Returns the address of the published repository, from the manifest of the workspace.
fn repository(tree: &Tree) -> anyhow::Result<String> {
    let manifest: toml::Table = toml::from_str(tree.text("Cargo.toml").context("Cargo.toml")?)?;
    let named = manifest["workspace"]["package"]["repository"].as_str();
    Ok(named.context("a workspace has a repository")?.to_owned())
}

/// Returns the text of a page, in which links to files outside of `docs` lead to the published repository.
fn outward(page: &TextFile, repository: &str) -> String {
    // The text of a link may have begun on the line before.
    let target = Regex::new(r"\]\(([^)\s]+)\)").expect("a valid pattern");
    let mut lines: Vec<String> = page.text.lines().map(str::to_owned).collect();
    for (number, text) in prose(&page.text) {
        let bare = without_code(text);
        let targets: BTreeSet<&str> =
            target.captures_iter(&bare).map(|found| found.extract::<1>().1[0]).collect();
        for target in targets {
            if let Some(new) = link_of_the_book(page, target, repository) {
                let line = &mut lines[number - 1];
                *line = line.replace(&format!("]({target})"), &format!("]({new})"));
            }
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns the target that a link has in the book, if it is another one than in the page.
fn link_of_the_book(page: &TextFile, target: &str, repository: &str) -> Option<String> {
    let meant = source(&page.path, target)?;
    if meant.file.starts_with(PAGES) {
        // mdBook makes an index of each README, and leaves links to it alone.
        let is_readme = meant.file.ends_with("/README.md") && page.path != CONTENTS;
        return is_readme.then(|| target.replace("README.md", "index.md"));
    }
    // A pointer into a file of results means nothing to a browser.
    let part = meant.part.filter(|part| !part.starts_with('/'));
    let part = part.map_or_else(String::new, |part| format!("#{part}"));
    Some(format!("{repository}/blob/main/{}{part}", meant.file))
}

/// Returns the part of the book's contents about decisions: their titles.
fn decisions(tree: &Tree) -> String {
    let mut text = "\n# Decisions\n\n".to_owned();
    for page in tree.markdown().filter(|file| file.path.starts_with(DECISIONS)) {
        let title = page.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']);
        text.push_str(&format!("- [{title}]({})\n", &page.path[PAGES.len()..]));
    }
    text
}

/// Returns the pages that the book's contents do not name.
fn unlisted(tree: &Tree) -> Vec<String> {
    let contents = tree.text(CONTENTS).unwrap_or_default();
    let listed: BTreeSet<String> = links(contents)
        .iter()
        .filter_map(|link| Some(source(CONTENTS, link.target)?.file))
        .collect();
    let pages = tree.markdown().map(|file| &file.path).filter(|path| {
        path.starts_with(PAGES) && !path.starts_with(DECISIONS) && *path != CONTENTS
    });
    let missing = pages.filter(|path| !listed.contains(*path));
    missing.map(|path| format!("{path} is not in {CONTENTS}")).collect()
}

/// Returns the links between pages of the book that lead to a page or place which is not there.
fn dead_links(html: &Path) -> anyhow::Result<Vec<String>> {
    let [href, id] =
        ["href=\"([^\"]*)\"", "id=\"([^\"]*)\""].map(|it| Regex::new(it).expect("a valid pattern"));
    let mut pages: BTreeMap<String, String> = BTreeMap::new();
    let mut folders = vec![html.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "html") {
                let name = path.strip_prefix(html)?.display().to_string();
                pages.insert(name, fs::read_to_string(path)?);
            }
        }
    }
    let places = |text: &str| -> BTreeSet<String> {
        id.captures_iter(text).map(|found| found[1].to_owned()).collect()
    };
    let places: BTreeMap<&String, BTreeSet<String>> =
        pages.iter().map(|(name, text)| (name, places(text))).collect();
    let mut dead = Vec::new();
    // The page of all pages has their links without their folders.
    for (name, text) in
        pages.iter().filter(|(name, _)| !["print.html", "404.html"].contains(&name.as_str()))
    {
        for found in href.captures_iter(text) {
            let Some(target) = source(name, &found[1]) else { continue };
            let Some(known) = places.get(&target.file) else {
                if !html.join(&target.file).exists() {
                    dead.push(format!("{name}: no {}", target.file));
                }
                continue;
            };
            let is_there = |part: &&str| part.is_empty() || known.contains(*part);
            if target.part.is_some_and(|part| !is_there(&part)) {
                dead.push(format!("{name}: {} has no {}", target.file, &found[1]));
            }
        }
    }
    Ok(dead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_lead_to_the_repository() {
        let text = "````text\n```text\n````\n[a](../README.md) [x\n](../y) [b](c.md#d)\n\
                    [k](z/README.md) [m](../README.md#n) `[e](../f.md)` [g](../results/h.jsonl#/i)\n\
                    ```text\n[j](../k)\n```\n";
        let page = TextFile { path: "docs/a.md".to_owned(), text: text.to_owned() };
        let expected = "````text\n```text\n````\n\
                        [a](R/blob/main/README.md) [x\n](R/blob/main/y) [b](c.md#d)\n\
                        [k](z/index.md) [m](R/blob/main/README.md#n) `[e](../f.md)` [g](R/blob/main/results/h.jsonl)\n\
                        ```text\n[j](../k)\n```\n";
        assert_eq!(outward(&page, "R"), expected);
    }

    #[test]
    fn a_page_that_the_contents_do_not_name_is_found() {
        let tree = Tree::of(&[
            (CONTENTS, "- [a](a.md)\n"),
            ("docs/a.md", "# A\n"),
            ("docs/b.md", "# B\n"),
            ("docs/decisions/0001-x.md", "# 0001: X\n"),
        ]);
        assert_eq!(unlisted(&tree), ["docs/b.md is not in docs/SUMMARY.md"]);
        assert_eq!(decisions(&tree), "\n# Decisions\n\n- [0001: X](decisions/0001-x.md)\n");
    }

    #[test]
    fn a_link_to_a_page_or_a_place_that_is_not_there_is_found() {
        let folder = std::env::temp_dir().join(format!("nofrag-book-{}", std::process::id()));
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("a.html"), "<h1 id=\"x\"><a href=\"deep/b.html#y\">").unwrap();
        let links =
            "<h1 id=\"y\"><a href=\"../a.html#x\"><a href=\"../a.html#z\"><a href=\"c.html\">";
        fs::write(folder.join("deep/b.html"), links).unwrap();
        let dead = dead_links(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(dead, ["deep/b.html: a.html has no ../a.html#z", "deep/b.html: no deep/c.html"]);
    }
}
