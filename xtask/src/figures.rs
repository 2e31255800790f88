//! Figures in prose, and the files that they come from.
//!
//! A *figure* is a Markdown link into a file of values: `[3.35x](results/DATE-MACHINE/a.toml#/sum/i5)`. The part after
//! `#` is a path into the file, as a JSON pointer; in a list, and among the lines of JSON lines, a part
//! `id=churn&of.n=2` chooses the first entry whose `id` is `churn` and whose `of` has an `n` of 2. The value is a
//! number, a text, or a table with a `value` and perhaps a `unit`. The reader can follow the link; `tidy` compares;
//! `figures` rewrites the link's text, and keeps the number of decimals that the writer chose.
//!
//! An *excerpt* is a fenced block whose info string names a file: "text
//! results/churn/2026-11-20-full/areas.txt#L1-L20". It equals those lines, or the whole file if no lines are given.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::tree::{TextFile, Tree};

/// Rounding for the reader may move a figure by this share of it.
const MOST_ROUNDING: f64 = 0.05;

/// Figures that authors published: a folder of the crate that compares with it.
const PUBLISHED: &str = "crates/nofrag-lab/data/figures/";

/// A link in a Markdown line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    pub(crate) text: &'a str,
    pub(crate) target: &'a str,
    /// The bytes of the whole link in its line.
    pub(crate) place: Range<usize>,
    text_at: Range<usize>,
}

/// Returns the links of one line, in order.
pub(crate) fn links(line: &str) -> Vec<Link<'_>> {
    static LINK: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\[([^\[\]]*)\]\(([^()\s]+)\)").expect("a valid pattern"));
    let all = LINK.captures_iter(line).map(|found| {
        let part = |group| found.get(group).expect("every group of the pattern takes part");
        Link {
            text: part(1).as_str(),
            target: part(2).as_str(),
            place: part(0).range(),
            text_at: part(1).range(),
        }
    });
    all.collect()
}

/// A file named in Markdown, and the part of it that is meant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source<'a> {
    /// Relative to the repository root.
    pub(crate) file: String,
    pub(crate) part: Option<&'a str>,
}

/// Returns the file and part that `target`, written in the Markdown file `from`, names in the repository; `None` for
/// addresses of the web.
pub(crate) fn source<'a>(from: &str, target: &'a str) -> Option<Source<'a>> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, part) = match target.split_once('#') {
        Some((path, part)) => (path, Some(part)),
        None => (target, None),
    };
    let mut parts: Vec<&str> = from.split('/').collect();
    if path.is_empty() {
        return Some(Source { file: from.to_owned(), part });
    }
    parts.pop();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(step),
        }
    }
    Some(Source { file: parts.join("/"), part })
}

/// Returns the value that a link shows, if the link is a figure.
pub(crate) fn figure_source<'a>(from: &str, link: &Link<'a>) -> Option<(String, &'a str)> {
    let source = source(from, link.target)?;
    let of_values = source.file.starts_with("results/") || source.file.starts_with(PUBLISHED);
    let pointer = source.part.filter(|part| part.starts_with('/'))?;
    of_values.then_some((source.file, pointer))
}

/// Returns the text that a figure ought to have: the value in its file, in the form of the text that it has.
pub(crate) fn expected_text(
    tree: &Tree,
    file: &str,
    pointer: &str,
    shown: &str,
) -> Result<String, String> {
    let text = tree.text(file).ok_or_else(|| format!("there is no text file {file}"))?;
    let document = parse(file, text)?;
    let value = look_up(&document, pointer).ok_or_else(|| format!("{file} has no {pointer}"))?;
    render(value, shown)
}

fn parse(file: &str, text: &str) -> Result<Value, String> {
    let failed = |why: String| format!("{file} cannot be read: {why}");
    match file.rsplit_once('.').map(|(_, ending)| ending) {
        Some("toml") => toml::from_str(text).map_err(|why| failed(why.to_string())),
        Some("json") => serde_json::from_str(text).map_err(|why| failed(why.to_string())),
        Some("jsonl") => {
            let lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>();
            lines.map(Value::Array).map_err(|why| failed(why.to_string()))
        }
        _ => Err(format!("{file} is neither TOML, JSON nor JSON lines")),
    }
}

/// Returns the value at a path such as `/a/0/id=x/b`, where `id=x` picks the entry of an array by a field.
fn look_up<'v>(value: &'v Value, pointer: &str) -> Option<&'v Value> {
    pointer.split('/').skip(1).try_fold(value, |at, step| {
        let step = step.replace("~1", "/").replace("~0", "~");
        match at {
            Value::Object(fields) => fields.get(&step),
            Value::Array(entries) if step.contains('=') => {
                entries.iter().find(|entry| step.split('&').all(|demand| meets(entry, demand)))
            }
            Value::Array(entries) => entries.get(step.parse::<usize>().ok()?),
            _ => None,
        }
    })
}

/// Returns true if `entry` meets `a.b=text`.
fn meets(entry: &Value, demand: &str) -> bool {
    let Some((path, wanted)) = demand.split_once('=') else { return false };
    match path.split('.').try_fold(entry, |at, key| at.get(key)) {
        Some(Value::String(text)) => text == wanted,
        Some(Value::Number(number)) => number.to_string() == wanted,
        _ => false,
    }
}

/// Renders the value in the form of `shown`: as many decimals, thousands separated alike, the same words around it.
fn render(value: &Value, shown: &str) -> Result<String, String> {
    let (value, unit) = match value {
        Value::Object(fields) => {
            let value = fields.get("value").ok_or("the table there has no `value`")?;
            (value, fields.get("unit").and_then(Value::as_str))
        }
        _ => (value, None),
    };
    let number = match value {
        Value::String(text) => return Ok(text.clone()),
        Value::Number(number) => number.as_f64().ok_or("the number there is out of range")?,
        _ => return Err("the value there is neither a number nor a text".into()),
    };
    static NUMBER: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"-?\d[\d,]*(?:\.(\d+))?").expect("a valid pattern"));
    let (before, digits, decimals, after) = match NUMBER.captures(shown) {
        Some(found) => {
            let whole = found.get(0).expect("a match has a whole");
            let decimals = found.get(1).map_or(0, |part| part.len());
            (&shown[..whole.start()], whole.as_str(), decimals, &shown[whole.end()..])
        }
        None => ("", "", 0, ""),
    };
    let plain = format!("{number:.decimals$}");
    let rounded: f64 = plain.parse().expect("a formatted number can be parsed");
    if (rounded - number).abs() > MOST_ROUNDING * number.abs() {
        return Err(format!("the value is {number}, and `{plain}` rounds too much: add decimals"));
    }
    let grouped = if digits.contains(',') { group_thousands(&plain) } else { plain };
    let after = match unit {
        Some(unit) if !after.trim_start().starts_with(unit) => {
            if unit == "x" {
                "x".to_owned()
            } else {
                format!(" {unit}")
            }
        }
        _ => after.to_owned(),
    };
    Ok(format!("{before}{grouped}{after}"))
}

fn group_thousands(plain: &str) -> String {
    let (whole, fraction) = match plain.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (plain, String::new()),
    };
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

/// A fenced block of a Markdown file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fence<'a> {
    /// The line of the opening fence, from one.
    pub(crate) line: usize,
    /// Text behind the opening backquotes.
    pub(crate) info: &'a str,
    /// The lines between the fences.
    pub(crate) body: Vec<&'a str>,
}

impl<'a> Fence<'a> {
    /// Returns the file that the block is taken from, if its info string names one.
    pub(crate) fn excerpt_target(&self) -> Option<&'a str> {
        self.info.split_whitespace().nth(1).filter(|word| word.contains('/'))
    }
}

/// Returns the fenced blocks of a Markdown text.
pub(crate) fn fences(text: &str) -> Vec<Fence<'_>> {
    let mut all: Vec<Fence<'_>> = Vec::new();
    let mut open = false;
    for (line, content) in crate::tree::numbered(text) {
        match content.trim_start().strip_prefix("```") {
            Some(_) if open => open = false,
            Some(info) => {
                open = true;
                all.push(Fence { line, info: info.trim(), body: Vec::new() });
            }
            None if open => {
                all.last_mut().expect("an open fence was pushed").body.push(content);
            }
            None => {}
        }
    }
    all
}

/// Returns the lines that an excerpt ought to show.
pub(crate) fn excerpt<'t>(
    tree: &'t Tree,
    from: &str,
    target: &str,
) -> Result<Vec<&'t str>, String> {
    let source =
        source(from, target).ok_or("an excerpt must come from a file of the repository")?;
    let file = source.file;
    let text = tree.text(&file).ok_or_else(|| format!("there is no text file {file}"))?;
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let Some(part) = source.part else { return Ok(lines) };
    let number = |word: &str| word.strip_prefix('L')?.parse::<usize>().ok();
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if 1 <= first && first <= last && last <= lines.len() => {
            Ok(lines[first - 1..last].to_vec())
        }
        _ => Err(format!("{file} has no lines {part}; write #L3-L9")),
    }
}

/// Returns the text of `file` with every figure and excerpt as its source has it. What has no source stays; `tidy`
/// reports it.
pub(crate) fn refresh(tree: &Tree, file: &TextFile) -> String {
    if !file.path.ends_with(".md") {
        return file.text.clone();
    }
    let mut out = String::new();
    let mut in_fence = false;
    let excerpts: Vec<(usize, Vec<&str>)> = fences(&file.text)
        .iter()
        .filter_map(|fence| {
            let lines = excerpt(tree, &file.path, fence.excerpt_target()?).ok()?;
            Some((fence.line, lines))
        })
        .collect();
    let mut replaced = false;
    for (line, content) in crate::tree::numbered(&file.text) {
        if content.trim_start().starts_with("```") {
            in_fence = !in_fence;
            replaced = false;
            push_line(&mut out, content);
            if let Some((_, lines)) = excerpts.iter().find(|(at, _)| in_fence && *at == line) {
                lines.iter().for_each(|line| push_line(&mut out, line));
                replaced = true;
            }
        } else if !in_fence {
            push_line(&mut out, &refresh_line(tree, &file.path, content));
        } else if !replaced {
            push_line(&mut out, content);
        }
    }
    out
}

fn push_line(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

fn refresh_line(tree: &Tree, path: &str, line: &str) -> String {
    let mut out = line.to_owned();
    for link in links(line).into_iter().rev() {
        if let Some((file, pointer)) = figure_source(path, &link)
            && let Ok(text) = expected_text(tree, &file, pointer, link.text)
        {
            out.replace_range(link.text_at.clone(), &text);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &str = r#"
plain = 16583.4
text = "1.2..1.4x"
[tests.fix_size]
value = 3.352
unit = "x"
[[row]]
id = "churn"
ns = 97
"#;

    const LINES: &str = r#"{"kind": "a", "of": {"n": 1}, "ns": 5}
{"kind": "a", "of": {"n": 2}, "ns": 6}
"#;

    fn tree(prose: &str) -> Tree {
        Tree::of(&[
            ("results/churn/2026-11-20-full/a.toml", VALUES),
            ("results/churn/2026-11-20-full/a.jsonl", LINES),
            ("results/churn/2026-11-20-full/a.txt", "one\ntwo  \nthree\n"),
            ("docs/a.md", prose),
        ])
    }

    fn check_refresh(before: &str, after: &str) {
        let tree = tree(before);
        let file = tree.markdown().next().expect("the tree has one Markdown file");
        assert_eq!(refresh(&tree, file), after);
    }

    #[test]
    fn figures_follow_their_files() {
        let toml = "../results/churn/2026-11-20-full/a.toml#";
        check_refresh(
            &format!("[1.00x]({toml}/tests/fix_size) and [16,000 ns]({toml}/plain)\n"),
            &format!("[3.35x]({toml}/tests/fix_size) and [16,583 ns]({toml}/plain)\n"),
        );
        check_refresh(
            &format!("[1]({toml}/row/id=churn/ns)\n"),
            &format!("[97]({toml}/row/id=churn/ns)\n"),
        );
        check_refresh(&format!("[?]({toml}/text)\n"), &format!("[1.2..1.4x]({toml}/text)\n"));
        check_refresh(
            &format!("[9.9 ns]({toml}/tests/fix_size)\n"),
            &format!("[3.4x]({toml}/tests/fix_size)\n"),
        );
        let lines = "../results/churn/2026-11-20-full/a.jsonl#";
        check_refresh(&format!("[7]({lines}/1/ns)\n"), &format!("[6]({lines}/1/ns)\n"));
        let chosen = format!("{lines}/kind=a&of.n=2/ns");
        check_refresh(&format!("[7]({chosen})\n"), &format!("[6]({chosen})\n"));
    }

    #[test]
    fn what_has_no_source_stays() {
        for line in
            ["[1](../results/none.toml#/a)\n", "[1](https://a.example/#/a)\n", "[1](a.md)\n"]
        {
            check_refresh(line, line);
        }
    }

    #[test]
    fn excerpts_follow_their_files() {
        let open = "```text ../results/churn/2026-11-20-full/a.txt";
        check_refresh(
            &format!("{open}#L2-L3\nold\n```\nend\n"),
            &format!("{open}#L2-L3\ntwo\nthree\n```\nend\n"),
        );
        check_refresh(&format!("{open}\n```\n"), &format!("{open}\none\ntwo\nthree\n```\n"));
        check_refresh(&format!("{open}#L9\nold\n```\n"), &format!("{open}#L9\nold\n```\n"));
        check_refresh("```text\n[1](x)\n```\n", "```text\n[1](x)\n```\n");
    }

    #[test]
    fn coarse_rounding_is_refused() {
        let fine = render(&serde_json::json!(3.352), "3.4x");
        assert_eq!(fine.as_deref(), Ok("3.4x"));
        assert!(render(&serde_json::json!(3.352), "3x").is_err());
        assert!(render(&serde_json::json!(0.2), "0").is_err());
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(group_thousands("1234567.5"), "1,234,567.5");
        assert_eq!(group_thousands("-123"), "-123");
        assert_eq!(group_thousands("1000"), "1,000");
    }
}
