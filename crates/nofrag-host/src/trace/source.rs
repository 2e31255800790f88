//! Events in time order, from any kind of file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::event::Event;
use super::folder;
use super::format::FormatError;
use super::meta::TraceMeta;
use super::perf_script;
use super::text::{TraceText, begins_trace, cpus};
use super::trace_dat;
use crate::budget::{Budget, Needs, Room};
use crate::recording::Recording;

/// Number of events that a source adds at a time, except for the rest of the page or chunk in which it reaches this
/// number.
pub const BATCH: usize = 4096;

/// The losses of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Loss {
    /// Events that are known to be lost.
    pub events: u64,
    /// Places where events are missing, whether their number is known or not.
    pub gaps: u64,
    /// Records that could not be understood.
    pub unreadable: u64,
}

impl Loss {
    /// Returns the sum of both losses.
    #[must_use]
    pub fn plus(self, other: Loss) -> Loss {
        Loss {
            events: self.events.saturating_add(other.events),
            gaps: self.gaps.saturating_add(other.gaps),
            unreadable: self.unreadable.saturating_add(other.unreadable),
        }
    }
}

/// A source of events in time order; of events at one time, the lower CPU's first. Memory is bounded, whatever the
/// length.
///
/// The order is that of the kernel's own stamps: a damaged file may have a stamp that goes back.
pub trait EventSource: Send {
    /// Appends about [`BATCH`] events to `into`; returns `false` if there are no more and nothing was appended.
    ///
    /// # Errors
    /// Those of [`TraceError`]; the source is at its end then.
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError>;

    /// Returns the losses known so far; all of them at the end.
    fn loss(&self) -> Loss;

    /// Returns the number of all events where the file states it; `None` where only reading tells.
    fn stated(&self) -> Option<u64> {
        None
    }
}

/// The progress of a reader of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progressed {
    /// Events that were read so far; those that are read twice count twice.
    pub events: u64,
    /// The number of these at the end, where it is known.
    pub of: Option<u64>,
}

/// A trace that was opened: its events and the facts beside them.
pub struct Trace {
    /// Facts about the trace beside its events.
    pub meta: TraceMeta,
    pub events: Box<dyn EventSource>,
    /// The remainder of the budget, for the code that works on the events.
    pub room: Room,
}

/// The reason why a trace cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A file could not be read.
    #[error("{path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    /// A `format` file could not be understood.
    #[error("{path}: {cause}")]
    Format { path: PathBuf, cause: FormatError },
    /// The file is not a trace of a known kind.
    #[error(
        "{0}: this is no trace that nofrag knows; it reads its own recordings, folders with cpuN.trace_pipe_raw and \
         format/, trace.dat, and the text of ftrace, trace-cmd report and perf script"
    )]
    Unknown(PathBuf),
    /// The file is of a known kind, but in a form that is not read.
    #[error("{path}: nofrag does not read {what}")]
    Unsupported {
        path: PathBuf,
        /// The form that is not read, and a way around it.
        what: String,
    },
    /// A later nofrag wrote the file.
    #[error(
        "{path}: this recording has version {found} of the format, and this nofrag reads versions up to {known}: read \
         it with a newer nofrag"
    )]
    Version {
        path: PathBuf,
        /// Major version of the file.
        found: u16,
        known: u16,
    },
    /// The file needs more than its reader may spend.
    #[error(
        "{path}: {needs}, and a file like this may take {budget}; a sound file is read with more by `--budget GIB`"
    )]
    Budget { path: PathBuf, needs: Needs, budget: Budget },
    /// The recording does not have the snapshot that was named.
    #[error("{path} has {what}")]
    NoSnapshot {
        path: PathBuf,
        /// The snapshot that is missing, and the one to use instead.
        what: String,
    },
    /// The contents of the file contradict each other.
    #[error("{path}: {what}")]
    Corrupt {
        path: PathBuf,
        /// The contradiction, and its place.
        what: String,
    },
}

impl TraceError {
    /// Makes an error for `map_err` after file operations.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> TraceError + '_ {
        move |cause| TraceError::File { path: path.to_owned(), cause }
    }
}

/// Bytes at the start of a file that show its kind.
const START: u64 = 4096;

/// Opens a trace of any known kind, which its content shows. Takes no more than [`Budget::of_path`] allows.
///
/// # Errors
/// Those of [`TraceError`].
pub fn open(path: &Path) -> Result<Trace, TraceError> {
    open_within(path, Budget::of_path(path).map_err(TraceError::file(path))?)
}

/// Opens a trace as [`open`] does, with the caller's budget.
///
/// # Errors
/// Those of [`TraceError`]; reading the events ends with [`TraceError::Budget`] where they are more than the budget
/// allows.
pub fn open_within(path: &Path, budget: Budget) -> Result<Trace, TraceError> {
    let Trace { meta, events, room } = open_any(path, budget)?;
    let (path, read) = (path.to_owned(), 0);
    Ok(Trace { meta, events: Box::new(Within { events, path, budget, read }), room })
}

fn open_any(path: &Path, budget: Budget) -> Result<Trace, TraceError> {
    if path.is_dir() {
        return folder::open(path, &budget);
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(TraceError::file(path))?;
    file.take(START).read_to_end(&mut start).map_err(TraceError::file(path))?;
    if start.starts_with(trace_dat::MAGIC) {
        let file = File::open(path).map_err(TraceError::file(path))?;
        return trace_dat::open_bytes(Arc::new(file), path, budget);
    }
    if Recording::is_one(&start) {
        return Recording::open_within(path, budget)?.try_into();
    }
    open_text(path, &budget)?.ok_or_else(|| TraceError::Unknown(path.to_owned()))
}

/// Events that end where a budget does.
struct Within {
    events: Box<dyn EventSource>,
    path: PathBuf,
    budget: Budget,
    read: u64,
}

impl EventSource for Within {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let before = into.len();
        let more = self.events.read(into)?;
        self.read += (into.len() - before) as u64;
        if self.read > self.budget.events {
            return Err(self.budget.refuse(&self.path, Needs::Events(self.read)));
        }
        if !self.budget.has_time() {
            return Err(self.budget.refuse(&self.path, Needs::Time));
        }
        Ok(more)
    }

    fn stated(&self) -> Option<u64> {
        self.events.stated()
    }

    fn loss(&self) -> Loss {
        self.events.loss()
    }
}

/// Opens the text of ftrace or perf in the file, which may be packed by zstd; `None` if it is neither.
fn open_text(path: &Path, budget: &Budget) -> Result<Option<Trace>, TraceError> {
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    const HEAD: usize = 64 * 1024;
    let file = File::open(path).map_err(TraceError::file(path))?;
    #[expect(clippy::disallowed_methods, reason = "64 KiB")]
    let mut file = BufReader::with_capacity(HEAD, file);
    let is_packed = file.fill_buf().map_err(TraceError::file(path))?.starts_with(&ZSTD);
    let plain: Box<dyn Read + Send> = if is_packed {
        let plain = zstd::Decoder::with_buffer(file).map_err(TraceError::file(path))?;
        Box::new(budget.unpacking(plain))
    } else {
        Box::new(file)
    };
    #[expect(clippy::disallowed_methods, reason = "64 KiB")]
    let mut input = BufReader::with_capacity(HEAD, plain);
    let head = input.fill_buf().map_err(TraceError::file(path))?;
    let room = Room::new(path, *budget);
    if perf_script::begins(head) {
        let meta = perf_script::meta(head);
        let events = Box::new(TraceText::perf_script(input, path.to_owned(), &meta));
        return Ok(Some(Trace { meta, events, room }));
    }
    if !begins_trace(head) {
        return Ok(None);
    }
    let meta = TraceMeta { cpus: cpus(head), ..TraceMeta::default() };
    let events = Box::new(TraceText::new(input, path.to_owned(), &meta));
    Ok(Some(Trace { meta, events, room }))
}

/// The events of several sources, each in time order, as one source.
///
/// The streams stand in a heap by their first waiting event. Of the first stream all events up to the next stream's
/// first one are taken at once; so an event costs one comparison, and a change of streams O(log streams).
pub struct Merged<S> {
    streams: Vec<Stream<S>>,
    /// The streams with a waiting event, by that event.
    first: BinaryHeap<Reverse<Head>>,
    /// The streams that must be asked for more.
    empty: Vec<usize>,
}

/// Time and CPU of a stream's first waiting event, and the stream's number.
type Head = (u64, u16, usize);

struct Stream<S> {
    source: S,
    waiting: Vec<Event>,
    next: usize,
}

impl<S: EventSource> Merged<S> {
    /// Merges these sources; where times are equal the lower CPU goes first, then the earlier source.
    pub fn new(sources: impl IntoIterator<Item = S>) -> Merged<S> {
        let stream = |source| Stream { source, waiting: Vec::new(), next: 0 };
        let streams: Vec<_> = sources.into_iter().map(stream).collect();
        let empty = (0..streams.len()).collect();
        Merged { streams, first: BinaryHeap::new(), empty }
    }

    /// Makes sure that each stream has an event waiting or has ended.
    fn fill(&mut self) -> Result<(), TraceError> {
        while let Some(place) = self.empty.pop() {
            let stream = &mut self.streams[place];
            stream.waiting.clear();
            stream.next = 0;
            match stream.source.read(&mut stream.waiting) {
                Ok(_) => self.first.extend(stream.head(place).map(Reverse)),
                Err(error) => {
                    self.first.clear();
                    self.empty.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl<S> Stream<S> {
    fn head(&self, place: usize) -> Option<Head> {
        self.waiting.get(self.next).map(|event| (event.at, event.cpu, place))
    }
}

impl<S: EventSource> EventSource for Merged<S> {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let before = into.len();
        while into.len() < before + BATCH {
            self.fill()?;
            let Some(Reverse((_, _, place))) = self.first.pop() else { break };
            let stream = &mut self.streams[place];
            let waiting = &stream.waiting[stream.next..];
            let waiting = &waiting[..waiting.len().min(before + BATCH - into.len())];
            let run = match self.first.peek() {
                None => waiting.len(),
                Some(Reverse(bound)) => {
                    let goes_first = |event: &&Event| (event.at, event.cpu, place) < *bound;
                    // The first event goes first, which also holds where a damaged file goes back in time.
                    1 + waiting[1..].iter().take_while(goes_first).count()
                }
            };
            into.extend_from_slice(&waiting[..run]);
            stream.next += run;
            match stream.head(place) {
                Some(head) => self.first.push(Reverse(head)),
                None => self.empty.push(place),
            }
        }
        Ok(into.len() > before)
    }

    fn loss(&self) -> Loss {
        self.streams.iter().fold(Loss::default(), |sum, stream| sum.plus(stream.source.loss()))
    }
}

impl EventSource for Box<dyn EventSource> {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        (**self).read(into)
    }

    fn loss(&self) -> Loss {
        (**self).loss()
    }

    fn stated(&self) -> Option<u64> {
        (**self).stated()
    }
}
