//! Reasons why memory could not be had: from reports of the kernel log, a snapshot, or a recording.
//!
//! A report or a snapshot becomes a `Scene` of zones; the core's own watermark test says why each zone refuses
//! ([`nofrag::page::ZoneState`]); the zone that came nearest gives the cause; and the cause decides which requests
//! would have succeeded, which policies avoid it, and the advice. Verdicts by the policies' rules are marked so;
//! recorded requests are replayed, and the results stand beside those verdicts.

mod advice;
mod answer;
mod cause;
mod obtain;
mod policies;
mod recording;
mod reports;
mod scene;
#[cfg(all(test, not(packed)))]
mod tests;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use nofrag_host::failure;
use nofrag_host::machine;
use nofrag_host::snapshot::{Files, Snapshot};
use nofrag_host::trace::{self, Progressed, SnapshotName, TraceError};
use thiserror::Error;

pub use answer::{
    Advice, Asked, Basis, Case, Cause, Explanation, Mixing, Obtainable, PolicyCase, PolicyVerdict,
    SourceKind, ZoneCase,
};

/// The source of an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Text that the caller has read.
    Text(String),
    /// A file or folder, told apart by content.
    Path(PathBuf),
    /// One of the snapshots in a recording.
    SnapshotOf(SnapshotName),
}

impl Subject {
    /// Returns the subject of the name `FILE`, `FILE@start` or `FILE@end`; if there is a file with the whole name, that
    /// is meant.
    #[must_use]
    pub fn named(name: &Path) -> Subject {
        match SnapshotName::of(name) {
            Some(snapshot) => Subject::SnapshotOf(snapshot),
            None => Subject::Path(name.to_owned()),
        }
    }
}

/// Choice of replaying recorded requests under other policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replays {
    Run,
    /// Verdicts follow from the policies' rules alone.
    Skip,
}

/// The reason why nothing was explained.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExplainError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The source has nothing to explain.
    #[error(
        "{0}: nothing here that nofrag explains: no recording, no snapshot (a folder with buddyinfo and \
         zoneinfo), and no \
         line with `page allocation failure`, `page allocation stalls`, `invoked oom-killer`, `vmap \
         allocation for size`, \
         `vmalloc error` or `Mem-Info:`; give it the whole report, to its last line"
    )]
    Nothing(String),
}

/// Texts above this many bytes are not searched for reports: no log of the kernel is as long.
pub const LONGEST_LOG: u64 = 256 << 20;

/// Explains the subject. `progress` is told the number of events read so far.
///
/// # Errors
/// [`ExplainError`].
pub fn explain(
    subject: &Subject,
    replays: Replays,
    progress: &dyn Fn(Progressed),
) -> Result<Explanation, ExplainError> {
    match subject {
        Subject::Text(text) => of_text("standard input", text),
        Subject::SnapshotOf(snapshot) => Ok(of_files(&snapshot.to_string(), &snapshot.read()?)),
        Subject::Path(path) => of_path(path, replays, progress),
    }
}

fn of_path(
    path: &Path,
    replays: Replays,
    progress: &dyn Fn(Progressed),
) -> Result<Explanation, ExplainError> {
    let name = path.display().to_string();
    let file = |cause| TraceError::File { path: path.to_owned(), cause };
    let meta = std::fs::metadata(path).map_err(file)?;
    if meta.is_dir() {
        // A folder of raw pages, which may be larger than memory, has none.
        if let Some(files) = machine::snapshot_in(path).map_err(file)? {
            return Ok(of_files(&name, &files));
        }
    } else if meta.len() <= LONGEST_LOG
        && let Some(text) = text_of(path).map_err(file)?
        && let Ok(explained) = of_text(&name, &text)
    {
        return Ok(explained);
    }
    match trace::open(path) {
        Ok(trace) => recording::explain(path, trace, replays, progress),
        Err(TraceError::Unknown(_)) => Err(ExplainError::Nothing(name)),
        Err(error) => Err(error.into()),
    }
}

/// Returns the text of a file; `None` for a binary one. No text of the kernel has a zero byte; every binary format has
/// one near its beginning.
fn text_of(path: &Path) -> std::io::Result<Option<String>> {
    const BEGINNING: u64 = 1 << 16;
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(BEGINNING).read_to_end(&mut bytes)?;
    if bytes.contains(&0) {
        return Ok(None);
    }
    file.take(LONGEST_LOG).read_to_end(&mut bytes)?;
    if bytes.contains(&0) {
        return Ok(None);
    }
    let lossy = |bad: FromUtf8Error| String::from_utf8_lossy(bad.as_bytes()).into_owned();
    Ok(Some(String::from_utf8(bytes).unwrap_or_else(lossy)))
}

fn empty(source: &str, kind: SourceKind) -> Explanation {
    Explanation { source: source.to_owned(), kind, ..Explanation::default() }
}

/// Returns the files of a snapshot that cannot be read to their end, in a sentence; `None` if there is none.
pub(crate) fn damaged(snapshot: &Snapshot<'_>, files: &Files) -> Option<String> {
    let is_there = |name: &str| files.bytes(name).is_some_and(|bytes| !bytes.is_empty());
    let damaged = snapshot.missing.iter().filter(|missing| is_there(&missing.path));
    let named: Vec<String> =
        damaged.map(|missing| format!("{}: {}", missing.path, missing.why)).collect();
    (!named.is_empty()).then(|| format!("NOT WHOLE: {}", named.join("; ")))
}

fn of_text(source: &str, text: &str) -> Result<Explanation, ExplainError> {
    let reports = failure::parse(text);
    if reports.is_empty() {
        return Err(ExplainError::Nothing(source.to_owned()));
    }
    let mut explanation = empty(source, SourceKind::Reports);
    explanation.release = reports.iter().find_map(|report| report.release.clone());
    explanation.cases = reports::cases(&reports);
    if explanation.cases.iter().any(|case| !case.policies.is_empty()) {
        explanation.cautions.push(
            "A report shows one moment. What is said of policies follows from their rules; to run them on these \
             requests, \
             record the host: nofrag record."
                .to_owned(),
        );
    }
    Ok(explanation)
}

fn of_files(source: &str, files: &Files) -> Explanation {
    let snapshot = Snapshot::parse(files);
    let mut explanation = empty(source, SourceKind::Snapshot);
    explanation.release.clone_from(&snapshot.release);
    explanation.damage = damaged(&snapshot, files);
    obtain::add(&mut explanation, &snapshot, files);
    explanation
}
