//! `nofrag man`: the manual, a page for each command, made of the words that `--help` prints.
//!
//! clap_mangen writes names, synopses and options. The text behind the options in a help text has a form of its own
//! here: paragraphs, which flow, then the sections `Examples:` and `Exit status:`, whose lines stay as they are.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::{Cli, Status, output};

const AFTER_HELP: &str = "\
The Debian package brings the manual along.

Examples:
  nofrag man ~/.local/share/man/man1        then `man nofrag`, `man nofrag-host-maps`
  nofrag man pages && man -l pages/nofrag.1

Exit status:
  0  written
  2  bad use, or the pages could not be written";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The folder for the pages; it is made if it is missing, and pages in it are replaced
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes the pages to the folder that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let dir = &args.dir;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let pages = pages().context("cannot set the manual")?;
    for page in &pages {
        let path = dir.join(&page.name);
        fs::write(&path, &page.text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    output::print(&format!("{} pages in {}\n", pages.len(), dir.display()))?;
    Ok(Status::Done)
}

/// A page of the manual, named by its file.
struct Page {
    name: String,
    text: Vec<u8>,
}

/// Returns the pages of all commands, each after those of its subcommands.
fn pages() -> io::Result<Vec<Page>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add_pages(&root, &root, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, root: &Command, pages: &mut Vec<Page>) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        add_pages(subcommand, root, pages)?;
    }
    pages.push(page(command, root)?);
    Ok(())
}

/// Returns the name under which `man` knows the command: `nofrag-host-maps`.
fn full_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &Command, root: &Command) -> io::Result<Page> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let help = Help::of(&help);
    let version = root.get_version().unwrap_or_default();
    // A date that is blank: the same binary writes the same page, and an empty one would be left out.
    let man = Man::new(command.clone())
        .title(full_name(command).to_uppercase())
        .date(" ")
        .source(format!("nofrag {version}"))
        .manual("User Commands");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    help.paragraphs(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    help.verbatim("EXIT STATUS", help.exit_status, &mut text)?;
    help.verbatim("EXAMPLES", help.examples, &mut text)?;
    see_also(command, root, &mut text)?;
    Ok(Page { name: format!("{}.1", full_name(command)), text })
}

/// Adds references to the pages of the commands above and beside this one.
fn see_also(command: &Command, root: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    let name = full_name(command);
    let Some((parent, _)) = name.rsplit_once('-') else { return Ok(()) };
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let mut line = vec![bold(parent), roman("(1)")];
    if parent != root.get_name() {
        line.extend([roman(", "), bold(root.get_name()), roman("(1)")]);
    }
    roff.text(line);
    roff.to_writer(text)
}

/// The text behind the options in a help text.
struct Help<'a> {
    /// The text without a heading.
    plain: &'a str,
    examples: &'a str,
    exit_status: &'a str,
}

impl<'a> Help<'a> {
    fn of(text: &'a str) -> Help<'a> {
        const HEADINGS: [&str; 2] = ["Examples:\n", "Exit status:\n"];
        let at = |heading: &str| {
            text.match_indices(heading)
                .map(|(at, _)| at)
                .find(|&at| at == 0 || text.as_bytes()[at - 1] == b'\n')
        };
        let starts = HEADINGS.map(at);
        let section = |index: usize| {
            let Some(start) = starts[index] else { return "" };
            let next = starts.into_iter().flatten().filter(|&other| other > start).min();
            text[start + HEADINGS[index].len()..next.unwrap_or(text.len())].trim_end()
        };
        let first = starts.into_iter().flatten().min().unwrap_or(text.len());
        Help { plain: text[..first].trim_end(), examples: section(0), exit_status: section(1) }
    }

    /// Writes the text without a heading. Paragraphs flow, unless they have a line that is indented: those are lists.
    fn paragraphs(&self, text: &mut Vec<u8>) -> io::Result<()> {
        for paragraph in self.plain.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
            let mut roff = Roff::new();
            roff.control("PP", []);
            if paragraph.lines().any(|line| line.starts_with(' ')) {
                as_it_is(&mut roff, paragraph);
            } else {
                roff.text([roman(paragraph.replace('\n', " "))]);
            }
            roff.to_writer(text)?;
        }
        Ok(())
    }

    /// Writes a section whose lines stay as they are.
    fn verbatim(&self, title: &str, lines: &str, text: &mut Vec<u8>) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut roff = Roff::new();
        roff.control("SH", [title]);
        as_it_is(&mut roff, lines);
        roff.to_writer(text)
    }
}

fn as_it_is(roff: &mut Roff, lines: &str) {
    roff.control("nf", []);
    for line in lines.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_help_text_has_three_parts() {
        let help =
            Help::of("One.\n\nTwo Examples:\n\nExamples:\n  a  b\n\nExit status:\n  0  done");
        assert_eq!(help.plain, "One.\n\nTwo Examples:");
        assert_eq!((help.examples, help.exit_status), ("  a  b", "  0  done"));
        let help = Help::of("Exit status:\n  0  done\n");
        assert_eq!((help.plain, help.examples, help.exit_status), ("", "", "  0  done"));
        let help = Help::of("");
        assert_eq!((help.plain, help.examples, help.exit_status), ("", "", ""));
    }

    #[test]
    fn every_command_has_a_page() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        for name in ["nofrag.1", "nofrag-run.1", "nofrag-host-maps.1", "nofrag-trace-export.1"] {
            assert!(names.contains(&name), "no {name} in {names:?}");
        }
    }
}
