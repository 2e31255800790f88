//! Writes a recording, during tracing or from another trace.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use super::column::Packer;
use super::events::Rows;
use super::layout::{CHUNK_HEAD, ChunkHead, ChunkType, FILE_HEAD, file_head, footer};
use super::parts::{
    Ending, Entry, LEVEL_LIVE, LEVEL_OF_COPY, pack_ending, pack_index, pack_meta, pack_snapshot,
};
use crate::trace::{Event, TakenSnapshot, TraceMeta};

/// Number of events of a CPU in a chunk. Larger chunks save little and lose more when a recording is cut off.
const CHUNK_EVENTS: usize = 1 << 16;
/// Longest time of a chunk of a live recording, on a clock of nanoseconds.
const LIVE_SPAN: u64 = 1_000_000_000;

/// The treatment of an existing file with the name of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    #[default]
    Keep,
    Replace,
}

/// The time at which events go to the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Events go to the file within a second of the recording's time: few are missing when the recorder is killed.
    #[default]
    Live,
    /// Events go to the file when a chunk is full: the source still has them, and the largest chunks take the fewest
    /// bytes.
    Copy,
}

/// The options with which a recording is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterOptions {
    pub existing: Existing,
    pub pace: Pace,
}

/// The reason why a recording cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// A file of that name exists.
    #[error("{0} exists already: name another file, or ask for it to be replaced")]
    Exists(PathBuf),
    /// Another process is writing to the file.
    #[error("{0}: another recording is being written there: let it end, or name another file")]
    InUse(PathBuf),
    #[error(
        "{path}: no room is left after {bytes} bytes ({cause}); what was written so far can be opened, the rest is lost"
    )]
    Full {
        path: PathBuf,
        /// Length of the file in bytes.
        bytes: u64,
        cause: io::Error,
    },
    /// The file could not be written for another reason.
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    #[error("{0}: the recording has ended, and takes no more")]
    Ended(PathBuf),
}

impl RecordingError {
    /// Returns the error of a write after `bytes` bytes.
    pub(crate) fn of_write(path: &Path, bytes: u64, cause: io::Error) -> RecordingError {
        let path = path.to_owned();
        match cause.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => RecordingError::Full { path, bytes, cause },
            _ => RecordingError::File { path, cause },
        }
    }
}

/// The size of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub bytes: u64,
    /// Bytes of the chunks of events, with their heads.
    pub event_bytes: u64,
    pub events: u64,
}

/// A recording that is being written. The file is a whole recording at any time: a chunk is added at once, and the
/// chunks before can be read whatever happens to this process.
///
/// Nothing is synchronised to the disk before [`finish`](Self::finish), so that writing disturbs the traced host as
/// little as can be: a killed process loses at most the events of a second, a machine without power also the bytes that
/// its kernel had not written back.
#[derive(Clone)]
pub struct RecordingWriter {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    pace: Pace,
    state: Mutex<State>,
    /// The packers that no stream uses at the moment: as many exist as threads that write, however many streams.
    packers: Mutex<Vec<Packer>>,
}

/// 1. `offset` is behind the last whole chunk, and the file ends there unless a chunk is being written.
/// 2. `entries` lists all chunks in the order of their offsets.
/// 3. Nothing is written once `ended`.
struct State {
    file: File,
    offset: u64,
    entries: Vec<Entry>,
    event_bytes: u64,
    events: u64,
    ended: Option<End>,
}

/// The reason why no more chunks are written.
#[derive(Clone, Copy, Debug)]
enum End {
    Finished,
    /// The chunk at this offset could not be written, with this error of the system.
    Failed {
        at: u64,
        cause: FirstCause,
    },
}

/// The first error of the system, which all later writers receive.
#[derive(Clone, Copy, Debug)]
enum FirstCause {
    Code(i32),
    Kind(io::ErrorKind),
}

impl FirstCause {
    fn of(cause: &io::Error) -> FirstCause {
        cause.raw_os_error().map_or(FirstCause::Kind(cause.kind()), FirstCause::Code)
    }

    fn again(self) -> io::Error {
        match self {
            FirstCause::Code(code) => io::Error::from_raw_os_error(code),
            FirstCause::Kind(kind) => kind.into(),
        }
    }
}

impl State {
    fn written(&self) -> Written {
        Written { bytes: self.offset, event_bytes: self.event_bytes, events: self.events }
    }
}

impl RecordingWriter {
    /// Begins a recording: writes the facts of `meta`, with the snapshots that were taken already.
    ///
    /// # Errors
    /// Those of [`RecordingError`]; with [`Exists`](RecordingError::Exists) nothing has changed.
    pub fn create(
        path: &Path,
        meta: &TraceMeta,
        options: WriterOptions,
    ) -> Result<RecordingWriter, RecordingError> {
        let mut open = OpenOptions::new();
        // The owner decides who may read a recording.
        open.write(true).mode(0o600);
        match options.existing {
            Existing::Keep => open.create_new(true),
            Existing::Replace => open.create(true).truncate(true),
        };
        let file = open.open(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => RecordingError::Exists(path.to_owned()),
            _ => RecordingError::File { path: path.to_owned(), cause },
        })?;
        RecordingWriter::begin(file, path, meta, options.pace)
    }

    /// Begins a recording as [`create`](Self::create) does, in an empty file that is open for writing; `path` is its
    /// name in messages.
    pub(crate) fn begin(
        file: File,
        path: &Path,
        meta: &TraceMeta,
        pace: Pace,
    ) -> Result<RecordingWriter, RecordingError> {
        let begun = file.write_all_at(&file_head(), 0);
        let state = State {
            file,
            offset: FILE_HEAD as u64,
            entries: Vec::new(),
            event_bytes: 0,
            events: 0,
            ended: None,
        };
        let (state, packers) = (Mutex::new(state), Mutex::default());
        let shared = Shared { path: path.to_owned(), pace, state, packers };
        let writer = RecordingWriter { shared: Arc::new(shared) };
        begun.map_err(|cause| writer.shared.error(0, cause))?;
        writer.meta(meta)?;
        for taken in &meta.snapshots {
            writer.snapshot(taken)?;
        }
        Ok(writer)
    }

    /// Returns the stream of one CPU's events, which come in the order in which the CPU traced them. Streams of
    /// different CPUs may be filled by different threads; a CPU has one stream.
    #[must_use]
    pub fn stream(&self, cpu: u16) -> CpuStream {
        let shared = Arc::clone(&self.shared);
        CpuStream { shared, cpu, rows: Rows::new(), body: Vec::new(), until: 0, written: 0 }
    }

    /// Writes the facts about the trace again, replacing the earlier ones; the snapshots in `meta` are not written.
    ///
    /// # Errors
    /// Those of [`RecordingError`].
    pub fn meta(&self, meta: &TraceMeta) -> Result<(), RecordingError> {
        let body = pack_meta(meta).map_err(|cause| self.shared.error(0, cause))?;
        self.shared.add(ChunkType::Meta, &body)
    }

    /// Adds a snapshot.
    ///
    /// # Errors
    /// Those of [`RecordingError`].
    pub fn snapshot(&self, taken: &TakenSnapshot) -> Result<(), RecordingError> {
        let level = match self.shared.pace {
            Pace::Live => LEVEL_LIVE,
            Pace::Copy => LEVEL_OF_COPY,
        };
        let body = pack_snapshot(taken, level).map_err(|cause| self.shared.error(0, cause))?;
        self.shared.add(ChunkType::Snapshot, &body)
    }

    /// Returns the present size of the file. Events that wait in a stream are not counted.
    #[must_use]
    pub fn written(&self) -> Written {
        self.shared.state().written()
    }

    /// Ends the recording: writes the losses and the index, and waits for the disk. All streams must have
    /// [ended](CpuStream::end) before.
    ///
    /// # Errors
    /// Those of [`RecordingError`]; a recording that an earlier error ended is not marked as complete, and stays
    /// unchanged.
    pub fn finish(self, ending: &Ending) -> Result<Written, RecordingError> {
        let shared = &self.shared;
        let body = pack_ending(ending).map_err(|cause| shared.error(0, cause))?;
        shared.add(ChunkType::End, &body)?;
        let (index, at) = {
            let state = shared.state();
            (pack_index(&state.entries), state.offset)
        };
        shared.add(ChunkType::Index, &index)?;
        let mut state = shared.state();
        state.ended = Some(End::Finished);
        let offset = state.offset;
        let tail = footer(at);
        let ended = state.file.write_all_at(&tail, offset).and_then(|()| state.file.sync_all());
        ended.map_err(|cause| shared.error(offset, cause))?;
        state.offset += tail.len() as u64;
        Ok(state.written())
    }
}

impl Shared {
    /// Locks the state. A thread that panicked left it whole: its laws hold between any two statements that can panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, bytes: u64, cause: io::Error) -> RecordingError {
        RecordingError::of_write(&self.path, bytes, cause)
    }

    /// Adds a chunk without events.
    fn add(&self, kind: ChunkType, body: &[u8]) -> Result<(), RecordingError> {
        let (length, body_crc) = (body.len() as u64, crc32fast::hash(body));
        self.write(ChunkHead { kind, cpu: 0, count: 0, length, first: 0, until: 0, body_crc }, body)
    }

    /// Adds a chunk. If the write fails the file ends before the chunk, and the recording has ended.
    fn write(&self, head: ChunkHead, body: &[u8]) -> Result<(), RecordingError> {
        let mut state = self.state();
        match state.ended {
            None => {}
            Some(End::Finished) => return Err(RecordingError::Ended(self.path.clone())),
            // A second writer, another reader or the snapshot, receives the reason, and not only that the recording has
            // ended.
            Some(End::Failed { at, cause }) => return Err(self.error(at, cause.again())),
        }
        let offset = state.offset;
        let behind = offset + CHUNK_HEAD as u64;
        // The head comes last: a chunk without a head is not a chunk.
        let written = state.file.write_all_at(body, behind);
        if let Err(cause) = written.and_then(|()| state.file.write_all_at(&head.to_bytes(), offset))
        {
            state.ended = Some(End::Failed { at: offset, cause: FirstCause::of(&cause) });
            // Even if this fails, a reader stops before the chunk.
            let _ = state.file.set_len(offset);
            return Err(self.error(offset, cause));
        }
        state.offset = behind + head.length;
        if head.kind == ChunkType::Events {
            state.event_bytes += state.offset - offset;
        }
        state.entries.push(Entry { offset, head });
        state.events += u64::from(head.count);
        Ok(())
    }
}

/// The events of one CPU on their way to the file.
pub struct CpuStream {
    shared: Arc<Shared>,
    cpu: u16,
    rows: Rows,
    body: Vec<u8>,
    /// Time up to which all events have arrived.
    until: u64,
    /// Time up to which the file has all events.
    written: u64,
}

impl CpuStream {
    /// Adds the next event. Only whole chunks are written, so most calls touch no file.
    ///
    /// # Errors
    /// Those of [`RecordingError`]; the events since the last chunk are lost then, and the recording has ended.
    pub fn push(&mut self, event: &Event) -> Result<(), RecordingError> {
        debug_assert_eq!(event.cpu, self.cpu, "the stream is that of another CPU");
        let full = match (self.shared.pace, self.rows.first()) {
            (_, None) => false,
            (Pace::Copy, _) => self.rows.len() >= CHUNK_EVENTS,
            (Pace::Live, Some(first)) => {
                self.rows.len() >= CHUNK_EVENTS || event.at.saturating_sub(first) >= LIVE_SPAN
            }
        };
        if full {
            self.flush()?;
        }
        self.until = self.until.max(event.at);
        self.rows.push(event);
        Ok(())
    }

    /// Writes the waiting events, and the promise that no event before `time` is still to come: for a CPU with few
    /// events. To be called about once a second; each call writes a chunk.
    ///
    /// # Errors
    /// Those of [`push`](Self::push).
    pub fn complete_until(&mut self, time: u64) -> Result<(), RecordingError> {
        self.until = self.until.max(time);
        self.flush()
    }

    /// Writes the waiting events.
    ///
    /// # Errors
    /// Those of [`push`](Self::push).
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        if self.rows.len() == 0 && self.until <= self.written {
            return Ok(());
        }
        self.body.clear();
        let packed = self.pack();
        let head = ChunkHead {
            kind: ChunkType::Events,
            cpu: self.cpu,
            count: self.rows.len() as u32,
            length: self.body.len() as u64,
            first: self.rows.first().unwrap_or(self.until),
            until: self.until,
            body_crc: crc32fast::hash(&self.body),
        };
        self.rows.clear();
        packed.map_err(|cause| self.shared.error(0, cause))?;
        self.shared.write(head, &self.body)?;
        self.written = self.until;
        Ok(())
    }

    fn pack(&mut self) -> io::Result<()> {
        let packers = || self.shared.packers.lock().unwrap_or_else(PoisonError::into_inner);
        let free = packers().pop();
        let mut packer = match free {
            Some(packer) => packer,
            None => Packer::new()?,
        };
        let packed = self.rows.pack(&mut packer, &mut self.body);
        packers().push(packer);
        packed
    }

    /// Writes the waiting events, and frees the memory of the stream.
    pub(super) fn release(&mut self) -> Result<(), RecordingError> {
        let flushed = self.flush();
        (self.rows, self.body) = (Rows::new(), Vec::new());
        flushed
    }

    /// Writes the waiting events, and ends the stream.
    ///
    /// # Errors
    /// Those of [`push`](Self::push).
    pub fn end(mut self) -> Result<(), RecordingError> {
        self.flush()
    }
}

impl Drop for CpuStream {
    /// Writes the waiting events, also in a thread that ends by a panic.
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;

    /// Writes to a file that cannot grow: every writer is told the reason. A recording that hit a limit in its first
    /// snapshot once reported "the recording has ended" alone: its readers had used the room first.
    #[test]
    fn whoever_writes_after_a_failure_hears_what_failed() {
        let file = File::from(memfd_create("full", MemfdFlags::ALLOW_SEALING).unwrap());
        let meta = TraceMeta::default();
        let begun = file.try_clone().unwrap();
        let writer = RecordingWriter::begin(begun, Path::new("full"), &meta, Pace::Copy).unwrap();
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        let first = writer.meta(&meta).unwrap_err().to_string();
        assert!(first.starts_with("full: ") && !first.contains("ended"), "{first}");
        assert_eq!(writer.meta(&meta).unwrap_err().to_string(), first);
        assert_eq!(writer.finish(&Ending::default()).unwrap_err().to_string(), first);
    }
}
