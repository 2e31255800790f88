//! One subject of a comparison, read from its source.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use nofrag_host::machine;
use nofrag_host::snapshot::Files;
use nofrag_host::trace::{self, SnapshotName, Trace};
use serde::Serialize;

use super::CompareError;
use crate::replay::ReplayReport;

/// A replay, a recording or a snapshot, with the name that the caller gave.
pub enum Subject {
    /// A replay that was saved as JSON.
    Replay(String, Box<ReplayReport>),
    Recording(String, Box<Trace>),
    /// The files of a snapshot.
    Snapshot(String, Box<Files>),
}

/// The kind of a subject. All subjects of a comparison have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SubjectKind {
    Replay,
    Recording,
    Snapshot,
}

impl SubjectKind {
    /// Returns the kind's name with its article, for sentences.
    pub(crate) const fn with_article(self) -> &'static str {
        match self {
            SubjectKind::Replay => "a replay",
            SubjectKind::Recording => "a recording",
            SubjectKind::Snapshot => "a snapshot",
        }
    }
}

impl Subject {
    /// Opens the subject that `name` means: a file of JSON that `nofrag replay --json` wrote, a folder with the files
    /// of a snapshot or a captured host, `FILE@start` or `FILE@end` for a snapshot of a recording, or a recording of
    /// any kind that [`trace::open`] opens.
    ///
    /// # Errors
    /// [`CompareError`].
    pub fn open(name: &str) -> Result<Subject, CompareError> {
        let path = Path::new(name);
        if let Some(snapshot) = SnapshotName::of(path) {
            return Ok(Subject::Snapshot(name.to_owned(), Box::new(snapshot.read()?)));
        }
        let snapshot = || machine::snapshot_in(path).map_err(|cause| file_error(name, cause));
        if path.is_dir()
            && let Some(files) = snapshot()?
        {
            return Ok(Subject::Snapshot(name.to_owned(), Box::new(files)));
        }
        if path.is_file() && begins_json(path).map_err(|cause| file_error(name, cause))? {
            return read_replay(name, path);
        }
        Ok(Subject::Recording(name.to_owned(), Box::new(trace::open(path)?)))
    }

    /// Opens the subject of one name, or those of several names separated by commas.
    ///
    /// # Errors
    /// [`CompareError`].
    pub fn open_all(names: &str) -> Result<Vec<Subject>, CompareError> {
        let is_one = Path::new(names).exists() || !names.contains(',');
        if is_one {
            return Ok(vec![Subject::open(names)?]);
        }
        if names.split(',').any(str::is_empty) {
            let what = "a list of runs has a name before and behind each comma".to_owned();
            return Err(CompareError::Subject { name: names.to_owned(), what });
        }
        names.split(',').map(Subject::open).collect()
    }

    /// Returns the number of runs: one for each seed of a replay, otherwise 1.
    pub(super) fn runs(&self) -> usize {
        match self {
            Subject::Replay(_, report) => {
                report.runs.iter().map(|run| run.repeats.len()).max().unwrap_or(1)
            }
            Subject::Recording(..) | Subject::Snapshot(..) => 1,
        }
    }

    /// Returns the name that the caller gave.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Subject::Replay(name, _) | Subject::Recording(name, _) | Subject::Snapshot(name, _) => {
                name
            }
        }
    }

    /// Returns the replay if the subject is one.
    #[must_use]
    pub fn replay(&self) -> Option<&ReplayReport> {
        match self {
            Subject::Replay(_, replay) => Some(replay),
            Subject::Recording(..) | Subject::Snapshot(..) => None,
        }
    }

    /// Returns the kind of the subject.
    #[must_use]
    pub fn kind(&self) -> SubjectKind {
        match self {
            Subject::Replay(..) => SubjectKind::Replay,
            Subject::Recording(..) => SubjectKind::Recording,
            Subject::Snapshot(..) => SubjectKind::Snapshot,
        }
    }
}

fn file_error(name: &str, cause: std::io::Error) -> CompareError {
    CompareError::File { name: name.to_owned(), cause }
}

/// Returns true if the first byte that is not blank opens a JSON object.
fn begins_json(path: &Path) -> std::io::Result<bool> {
    let mut start = [0; 64];
    let read = File::open(path)?.read(&mut start)?;
    Ok(start[..read].trim_ascii_start().first() == Some(&b'{'))
}

fn read_replay(name: &str, path: &Path) -> Result<Subject, CompareError> {
    let file = File::open(path).map_err(|cause| file_error(name, cause))?;
    let report = serde_json::from_reader(BufReader::new(file)).map_err(|cause| {
        let what = format!(
            "this is JSON, but no replay as `nofrag replay --json` of this version writes it: {cause}"
        );
        CompareError::Subject { name: name.to_owned(), what }
    })?;
    Ok(Subject::Replay(name.to_owned(), report))
}
