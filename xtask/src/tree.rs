//! The repository's files in memory, so that each rule is a function of text and can be tested on a few lines.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// A text file of the repository.
#[derive(Clone, Debug)]
pub(crate) struct TextFile {
    /// Relative to the repository root, with `/` between the parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    /// Returns true if the file is Markdown or Rust.
    pub(crate) fn is_prose_or_code(&self) -> bool {
        self.path.ends_with(".md") || self.path.ends_with(".rs")
    }
}

/// A Rust file that could be parsed.
pub(crate) struct RustFile {
    /// Relative to the repository root.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Syntax tree, with positions in the text.
    pub(crate) syntax: syn::File,
}

/// All files that git tracks or would track.
#[derive(Default)]
pub(crate) struct Tree {
    paths: BTreeSet<String>,
    files: Vec<TextFile>,
    rust: Vec<RustFile>,
}

impl Tree {
    /// Reads the working tree: tracked files, and new ones that git does not ignore.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Tree> {
        let listing = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .current_dir(root)
            .output()
            .context("git lists the files to check; is it installed?")?;
        if !listing.status.success() {
            bail!("git ls-files failed in {}: not a git checkout?", root.display());
        }
        let mut tree = Tree::default();
        for path in String::from_utf8(listing.stdout)?.split_terminator('\0') {
            // A file that is deleted but still in git's index is no longer there to check.
            if let Ok(bytes) = std::fs::read(root.join(path)) {
                tree.add(path, bytes)?;
            }
        }
        Ok(tree)
    }

    fn add(&mut self, path: &str, bytes: Vec<u8>) -> anyhow::Result<()> {
        self.paths.insert(path.to_owned());
        // A file that is not UTF-8 is data: it exists, but no rule reads it.
        let Ok(text) = String::from_utf8(bytes) else { return Ok(()) };
        if path.ends_with(".rs") {
            let syntax = syn::parse_file(&text).with_context(|| format!("{path} is not Rust"))?;
            self.rust.push(RustFile { path: path.to_owned(), text: text.clone(), syntax });
        }
        self.files.push(TextFile { path: path.to_owned(), text });
        Ok(())
    }

    /// Makes a tree of the given paths and contents.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.add(path, text.as_bytes().to_vec()).expect("a test's Rust can be parsed");
        }
        tree
    }

    pub(crate) fn files(&self) -> &[TextFile] {
        &self.files
    }

    pub(crate) fn rust(&self) -> &[RustFile] {
        &self.rust
    }

    pub(crate) fn markdown(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.path.ends_with(".md"))
    }

    /// Returns the text of the file at `path`, if there is one.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// Returns true if there is a file or a folder at `path`.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.paths.contains(path)
            || self.paths.range(folder.clone()..).next().is_some_and(|p| p.starts_with(&folder))
    }

    /// Returns the names of the files directly inside `folder`.
    pub(crate) fn files_in(&self, folder: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{folder}/");
        let below = self.paths.iter().filter_map(move |path| path.strip_prefix(&prefix));
        below.filter(|rest| !rest.contains('/'))
    }

    /// Returns the names of the folders directly inside `folder`.
    pub(crate) fn folders_in(&self, folder: &str) -> BTreeSet<&str> {
        let prefix = format!("{folder}/");
        let below = self.paths.iter().filter_map(|path| path.strip_prefix(&prefix));
        below.filter_map(|rest| rest.split_once('/')).map(|(name, _)| name).collect()
    }
}

/// Returns the numbered lines of Markdown outside fenced blocks. A fence of four backticks may hold one of three.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut opened = None;
    numbered(text).filter(move |(_, line)| {
        let line = line.trim_start();
        let ticks = line.len() - line.trim_start_matches('`').len();
        let was = opened;
        opened = match was {
            None => Some(ticks).filter(|ticks| *ticks > 2),
            Some(of) => Some(of).filter(|of| ticks < *of),
        };
        was.is_none() && opened.is_none()
    })
}

/// Returns the numbered lines of `text`, from one.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}
