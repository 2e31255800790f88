//! Help texts for terminals of any width: paragraphs are broken there and not in the source, and rows of a command and
//! what it does stand one below the other where the line is too short for both.

use clap::Command;
use nofrag_show::Look;

/// Columns of a name beside which text may be broken into several lines.
const NAME: usize = 16;

/// Fits the texts behind the options of a command, and of those below it, to the line.
pub(crate) fn fitted(command: Command, look: Look) -> Command {
    let look = Look { width: look.text_width(), ..look };
    let command = match command.get_after_help().map(|text| fit(&text.to_string(), look)) {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(|below| fitted(below, look))
}

/// Lines of a help text that belong together.
enum Part<'a> {
    /// A heading, or nothing.
    Line(&'a str),
    Paragraph(String),
    /// Commands, files or numbers, each with what it means.
    Rows(Vec<(&'a str, String)>),
}

fn fit(text: &str, look: Look) -> String {
    let mut parts: Vec<Part<'_>> = Vec::new();
    for line in text.lines() {
        let plain = line.trim_start();
        match (line.len() - plain.len(), parts.last_mut()) {
            (0, _) if line.is_empty() || line.ends_with(':') => parts.push(Part::Line(line)),
            (0, Some(Part::Paragraph(before))) => *before += &format!(" {line}"),
            (0, _) => parts.push(Part::Paragraph(line.to_owned())),
            (1..=2, Some(Part::Rows(rows))) => rows.push(row(plain)),
            (1..=2, _) => parts.push(Part::Rows(vec![row(plain)])),
            (_, Some(Part::Rows(rows))) => {
                let (_, means) = rows.last_mut().expect("rows begin with one");
                *means += &format!("{}{plain}", if means.is_empty() { "" } else { " " });
            }
            (_, _) => parts.push(Part::Line(line)),
        }
    }
    let shown = parts.iter().map(|part| match part {
        Part::Line(line) => format!("{line}\n"),
        Part::Paragraph(text) => look.wrapped("", text),
        Part::Rows(rows) => columns(rows, look),
    });
    shown.collect::<String>().trim_end().to_owned()
}

/// Splits a row at its first two blanks.
fn row(line: &str) -> (&str, String) {
    let (name, means) = line.split_once("  ").unwrap_or((line, ""));
    (name, means.trim_start().to_owned())
}

fn columns(rows: &[(&str, String)], look: Look) -> String {
    let explained = rows.iter().filter(|(_, means)| !means.is_empty());
    let widest = explained.map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let longest = rows.iter().map(|(_, means)| means.chars().count()).max().unwrap_or(0);
    let is_beside = widest <= NAME || 4 + widest + longest <= look.width;
    let row = |(name, means): &(&str, String)| match is_beside {
        true => {
            let indent = " ".repeat(4 + widest);
            let means = look.wrapped(&indent, means);
            format!("  {name:widest$}  {}\n", means.trim())
        }
        false if means.is_empty() => format!("  {name}\n"),
        false => format!("  {name}\n{}", look.wrapped("      ", means)),
    };
    rows.iter().map(row).map(|row| format!("{}\n", row.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
One sentence that was broken
in the source.

Examples:
  nofrag host                 this machine
  nofrag host --root FOLDER   one that was captured, here
                              or elsewhere

Exit status:
  0  done
  2  bad use";

    fn fit_to(width: usize) -> String {
        fit(TEXT, Look { width, ..Look::FILE })
    }

    #[test]
    fn a_wide_line_has_both_columns() {
        let text = fit_to(100);
        assert!(text.starts_with("One sentence that was broken in the source.\n\n"), "{text}");
        let row = "  nofrag host --root FOLDER  one that was captured, here or elsewhere\n";
        assert!(text.contains(row), "{text}");
        assert!(text.ends_with("Exit status:\n  0  done\n  2  bad use"), "{text}");
    }

    #[test]
    fn a_short_line_has_them_one_below_the_other() {
        let text = fit_to(40);
        let row =
            "  nofrag host --root FOLDER\n      one that was captured, here or\n      elsewhere\n";
        assert!(text.contains(row), "{text}");
        assert!(text.ends_with("Exit status:\n  0  done\n  2  bad use"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 40), "{text}");
    }
}
