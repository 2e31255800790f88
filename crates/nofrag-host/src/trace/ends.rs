//! The two snapshots of a recording, by name: `FILE@start` and `FILE@end`.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{TraceError, TraceMeta, open};
use crate::snapshot::Files;

/// The name of one of the snapshots of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotName {
    pub recording: PathBuf,
    pub end: End,
}

/// An end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum End {
    /// Where a replay can start.
    Start,
    /// After the last event.
    End,
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.recording.display(), self.end)
    }
}

impl SnapshotName {
    /// Returns the snapshot that `FILE@start` or `FILE@end` means; `None` for other names, and where there is a file
    /// with the whole name: that is meant then.
    #[must_use]
    pub fn of(name: &Path) -> Option<SnapshotName> {
        let text = name.to_string_lossy();
        let (file, end) = text.rsplit_once('@')?;
        let end = end.parse().ok()?;
        (!name.exists()).then(|| SnapshotName { recording: file.into(), end })
    }

    /// Opens the recording and returns the files of the snapshot.
    ///
    /// # Errors
    /// [`TraceError`]; `NoSnapshot` where the recording does not have it.
    pub fn read(&self) -> Result<Files, TraceError> {
        let meta = open(&self.recording)?.meta;
        let taken = taken(&meta, self.end).ok_or_else(|| TraceError::NoSnapshot {
            path: self.recording.clone(),
            what: self.instead(&meta),
        })?;
        Ok(taken.clone())
    }

    /// Says what is missing, and which name to use instead.
    fn instead(&self, meta: &TraceMeta) -> String {
        let recording = self.recording.display();
        match self.end {
            End::End if taken(meta, End::Start).is_some() => format!(
                "no snapshot at its end, as it was cut off, or its recorder killed, before that was taken: use \
                 {recording}@start"
            ),
            End::Start if taken(meta, End::End).is_some() => {
                format!("no snapshot at its start: use {recording}@end")
            }
            _ => "no snapshots: use one that `nofrag record` or `nofrag host capture` takes"
                .to_owned(),
        }
    }
}

fn taken(meta: &TraceMeta, end: End) -> Option<&Files> {
    let taken = match end {
        End::Start => meta.start(),
        End::End => meta.end(),
    };
    taken.map(|taken| &taken.files)
}
