//! `--report FILE.html`: the result as a page for a browser.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nofrag_lab::saved::replace;
use nofrag_show::page::{MOST_BYTES, Page};
use nofrag_show::{Build, Origin, bytes_text};

/// The origin of this binary, from `build.rs`.
const BUILD: Build = Build {
    rustc: env!("NOFRAG_RUSTC"),
    profile: env!("NOFRAG_PROFILE"),
    revision: env!("NOFRAG_REVISION"),
};

/// Returns the origin of the results of this command.
pub(crate) fn origin() -> Origin {
    Origin::here(BUILD, command())
}

/// Arguments of a command with a report.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub(crate) struct ReportFile {
    /// Write the result as one HTML file too: charts and sortable tables, for any browser, without a network
    #[arg(id = "report", long = "report", value_name = "FILE.html")]
    file: Option<PathBuf>,
}

impl ReportFile {
    /// Returns the report that was asked for, begun now; refuses a place where no file can be written, before any work
    /// is done.
    pub(crate) fn begin(&self) -> Result<Pending> {
        let Some(file) = &self.file else { return Ok(Pending(None)) };
        ensure!(!file.is_dir(), "--report {} is a folder: name a file in it", file.display());
        let folder = folder_of(file);
        ensure!(
            folder.is_dir(),
            "--report {}: there is no folder {}; create it first",
            file.display(),
            folder.display()
        );
        Ok(Pending(Some((file.clone(), origin()))))
    }
}

/// A report that will be written when its result is there, if one was asked for.
pub(crate) struct Pending(Option<(PathBuf, Origin)>);

impl Pending {
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Writes the page that `page` makes, and prints its path on standard error.
    pub(crate) fn write(&self, page: impl FnOnce(&Origin) -> Page) -> Result<()> {
        let Some((file, origin)) = &self.0 else { return Ok(()) };
        let html = page(origin).html();
        replace(file, html.as_bytes(), None)
            .with_context(|| format!("cannot write the report {}", file.display()))?;
        let file = file.display();
        eprintln!("report: {file} ({})", bytes_text(html.len() as u64));
        if html.len() > MOST_BYTES {
            eprintln!(
                "the report is larger than 1 MB: choose fewer programs or designs for a smaller one"
            );
        }
        Ok(())
    }
}

fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns the command as it was given, without the path to the binary; words that a shell would split are quoted.
fn command() -> String {
    joined(["nofrag".to_owned()].into_iter().chain(arguments()))
}

/// Returns the command for one scenario of those that this one runs, without the files that it writes beside the
/// result.
pub(crate) fn command_for(scenario: &str) -> String {
    let mut words = vec!["nofrag".to_owned()];
    let mut arguments = arguments();
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--report" | "--save" => drop(arguments.next()),
            "all" => words.push(scenario.to_owned()),
            "--json" => {}
            _ if word.starts_with("--report=") || word.starts_with("--save=") => {}
            _ => words.push(word),
        }
    }
    joined(words.into_iter())
}

fn arguments() -> impl Iterator<Item = String> {
    env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned())
}

fn joined(words: impl Iterator<Item = String>) -> String {
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

/// Quotes `word` so that a shell takes it for one word.
fn quoted(word: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+~".contains(c);
    match !word.is_empty() && word.chars().all(is_safe) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_shell_would_split_are_quoted() {
        let words = ["nofrag", "replay", "my file", "it's", "a=b,c", ""].map(str::to_owned);
        assert_eq!(joined(words.into_iter()), r"nofrag replay 'my file' 'it'\''s' a=b,c ''");
    }

    #[test]
    fn a_place_where_no_file_can_be_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = |file: PathBuf| ReportFile { file: Some(file) }.begin().map(drop);
        assert!(wanted(folder.path().to_owned()).unwrap_err().to_string().contains("is a folder"));
        let nowhere = wanted(folder.path().join("no/a.html")).unwrap_err().to_string();
        assert!(nowhere.contains("create it first"), "{nowhere}");
        assert!(wanted(folder.path().join("a.html")).is_ok());
        assert!(wanted(PathBuf::from("a.html")).is_ok());
    }
}
