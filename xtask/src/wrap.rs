//! Fills the paragraphs of Markdown and of whole-line comments again where a line is too long.
//!
//! Code, tables, headings, quotations and fenced blocks stay as they are.

use crate::rules::WIDEST;

/// Returns the text with every paragraph that has a line wider than [`WIDEST`] filled again.
pub(crate) fn wrap(path: &str, text: &str) -> String {
    let lines: Vec<Line<'_>> = text.lines().map(|line| Line::split(path, line)).collect();
    let mut out = String::new();
    let mut at = 0;
    let mut in_fence = false;
    while at < lines.len() {
        in_fence ^= lines[at].words.starts_with("```");
        let mut end = at + 1;
        if !in_fence && lines[at].begins_paragraph() {
            while end < lines.len() && lines[end].continues(&lines[at]) {
                end += 1;
            }
        }
        let paragraph = &lines[at..end];
        if paragraph.iter().any(|line| line.width() > WIDEST)
            && lines[at].begins_paragraph()
            && !in_fence
        {
            fill(paragraph, &mut out);
        } else {
            for line in paragraph {
                out.push_str(&format!("{}{}{}\n", line.mark, line.indent, line.words));
            }
        }
        at = end;
    }
    out
}

/// A line of text: `    /// * first words`.
struct Line<'a> {
    /// Marks that make it a comment, with the space before it; empty in Markdown.
    mark: &'a str,
    indent: &'a str,
    words: &'a str,
    is_text: bool,
}

impl<'a> Line<'a> {
    fn split(path: &str, line: &'a str) -> Line<'a> {
        let code = line.trim_start();
        let slashes = code.len() - code.trim_start_matches('/').len();
        let bang = usize::from(code[slashes..].starts_with('!'));
        let is_comment = path.ends_with(".rs") && slashes >= 2;
        let is_text = is_comment || path.ends_with(".md");
        let mark_len = if is_comment { line.len() - code.len() + slashes + bang } else { 0 };
        let (mark, rest) = line.split_at(mark_len);
        let words = rest.trim_start();
        Line { mark, indent: &rest[..rest.len() - words.len()], words, is_text }
    }

    fn width(&self) -> usize {
        self.mark.chars().count() + self.indent.len() + self.words.chars().count()
    }

    /// Returns the list mark at its beginning, with the space after it.
    fn list_mark(&self) -> &'a str {
        let first = self.words.split(' ').next().unwrap_or("");
        if is_list_mark(first) && first.len() < self.words.len() {
            &self.words[..first.len() + 1]
        } else {
            ""
        }
    }

    fn begins_paragraph(&self) -> bool {
        let special = ["#", "|", "```", ">", "<", "["];
        let deep = self.indent.len() >= 5;
        let is_definition = self.words.starts_with('[') && self.words.contains("]: ");
        let plain = !special[..5].iter().any(|start| self.words.starts_with(start));
        self.is_text && !self.words.is_empty() && plain && !deep && !is_definition
    }

    fn continues(&self, first: &Line<'_>) -> bool {
        let inside = self.indent.len() >= first.indent.len() + first.list_mark().len().min(2);
        self.begins_paragraph() && self.mark == first.mark && inside && self.list_mark().is_empty()
    }
}

fn is_list_mark(word: &str) -> bool {
    let number = word.strip_suffix('.').unwrap_or("");
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    matches!(word, "*" | "-" | "+") || is_number
}

fn fill(paragraph: &[Line<'_>], out: &mut String) {
    let first = &paragraph[0];
    let indent = match paragraph.get(1) {
        Some(second) => second.indent.to_owned(),
        None => format!("{}{}", first.indent, " ".repeat(first.list_mark().len())),
    };
    let mut line = format!("{}{}{}", first.mark, first.indent, first.list_mark());
    let mut is_empty = true;
    let after_mark = first.words[first.list_mark().len()..].split_whitespace();
    let others = paragraph[1..].iter().flat_map(|line| line.words.split_whitespace());
    for word in unbreakable(after_mark.chain(others)) {
        let wide = line.chars().count() + usize::from(!is_empty) + word.chars().count() > WIDEST;
        if wide && !is_empty {
            out.push_str(&line);
            out.push('\n');
            line = format!("{}{indent}", first.mark);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word);
        is_empty = false;
    }
    out.push_str(&line);
    out.push('\n');
}

/// Returns the words, those joined to the one before that would begin a list or a heading at the beginning of a line.
fn unbreakable<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in words {
        let starts_block = is_list_mark(word) || word.starts_with(['#', '>', '|']);
        match all.last_mut() {
            Some(last) if starts_block => {
                last.push(' ');
                last.push_str(word);
            }
            _ => all.push(word.to_owned()),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_wrap(path: &str, text: &str, expected: &str) {
        assert_eq!(wrap(path, text), expected);
    }

    #[test]
    fn wide_paragraphs_are_filled_again() {
        let (a, b) = ("a".repeat(60), "b".repeat(59));
        check_wrap("a.md", &format!("{a} {b} c\nd\n"), &format!("{a} {b}\nc d\n"));
        check_wrap("a.md", &format!("* {a} {b} c\n  d\n"), &format!("* {a}\n  {b} c d\n"));
        check_wrap(
            "a.rs",
            &format!("    /// {a} {b}\n    /// c\n"),
            &format!("    /// {a}\n    /// {b} c\n"),
        );
        check_wrap("a.md", &format!("{a} {b} - c\n"), &format!("{a}\n{b} - c\n"));
        check_wrap("a.md", &format!("1. {a} {b} c\n2. d\n"), &format!("1. {a}\n   {b} c\n2. d\n"));
    }

    #[test]
    fn what_is_narrow_or_no_prose_stays() {
        let wide = "a ".repeat(70);
        for text in ["a\nb\n", "* a\n* b\n"] {
            check_wrap("a.md", text, text);
        }
        for line in [format!("| {wide}|"), format!("# {wide}."), format!("```text\n{wide}.\n```")] {
            check_wrap("a.md", &format!("{line}\n"), &format!("{line}\n"));
        }
        check_wrap("a.rs", &format!("let a = \"{wide}\";\n"), &format!("let a = \"{wide}\";\n"));
    }
}
