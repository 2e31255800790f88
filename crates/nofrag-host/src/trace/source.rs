//! Events in time order, from whatever holds them.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::event::Event;
use super::folder::Folder;
use super::format::FormatError;
use super::meta::TraceMeta;

/// How many events a source adds at a time, at most.
pub const BATCH: usize = 4096;

/// What was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Loss {
    /// Events that are known to be lost.
    pub events: u64,
    /// Places where some are lost, counted or not.
    pub gaps: u64,
    /// Records that could not be understood.
    pub unreadable: u64,
}

/// Events in time order; of those at one time, those of the lower CPU first. Memory is bounded, whatever the length.
pub trait EventSource: Send {
    /// Appends up to [`BATCH`] events; `false` at the end.
    ///
    /// # Errors
    /// [`TraceError`]; the source is at its end then.
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError>;

    /// What is known to be lost so far; the whole of it at the end.
    fn loss(&self) -> Loss;
}

/// A trace that was opened.
pub struct Trace {
    /// What is known beside the events.
    pub meta: TraceMeta,
    /// The events.
    pub events: Box<dyn EventSource>,
}

/// Why a trace cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A file could not be read.
    #[error("{path}: {cause}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// A `format` file could not be understood.
    #[error("{path}: {cause}")]
    Format {
        /// Which.
        path: PathBuf,
        /// What was wrong.
        cause: FormatError,
    },
    /// It is no trace of a kind that is known.
    #[error(
        "{0}: this is no trace that nofrag knows; it reads its own recordings, folders with cpuN.trace_pipe_raw and \
         format/, trace.dat, and the text of ftrace, trace-cmd report and perf script"
    )]
    Unknown(PathBuf),
    /// What it holds contradicts itself.
    #[error("{path}: {what}")]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
}

impl TraceError {
    /// For `map_err` on file operations.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> TraceError + '_ {
        move |cause| TraceError::File { path: path.to_owned(), cause }
    }
}

/// Opens a trace of any known kind; its content says which.
///
/// # Errors
/// [`TraceError`].
pub fn open(path: &Path) -> Result<Trace, TraceError> {
    if path.is_dir() {
        let folder = Folder::open(path)?;
        return Ok(Trace { meta: folder.meta().clone(), events: folder.events()? });
    }
    std::fs::metadata(path).map_err(TraceError::file(path))?;
    Err(TraceError::Unknown(path.to_owned()))
}

/// The events of several sources, each in time order, as one.
pub struct Merged<S> {
    streams: Vec<Stream<S>>,
}

struct Stream<S> {
    source: S,
    waiting: Vec<Event>,
    next: usize,
    ended: bool,
}

impl<S: EventSource> Merged<S> {
    /// Of these; where times are equal the lower CPU goes first, then the earlier source.
    pub fn new(sources: impl IntoIterator<Item = S>) -> Merged<S> {
        let streams = sources.into_iter().map(|source| Stream {
            source,
            waiting: Vec::new(),
            next: 0,
            ended: false,
        });
        Merged { streams: streams.collect() }
    }

    /// Sees to it that each stream has an event waiting or has ended.
    fn fill(&mut self) -> Result<(), TraceError> {
        for stream in &mut self.streams {
            while stream.next == stream.waiting.len() && !stream.ended {
                stream.waiting.clear();
                stream.next = 0;
                stream.ended = !stream.source.read(&mut stream.waiting)?;
            }
        }
        Ok(())
    }
}

impl<S: EventSource> EventSource for Merged<S> {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let target = into.len() + BATCH;
        while into.len() < target {
            self.fill()?;
            let key = |event: &Event| (event.at, event.cpu);
            let heads = self.streams.iter().enumerate();
            let heads =
                heads.filter_map(|(i, stream)| Some((key(stream.waiting.get(stream.next)?), i)));
            let Some((_, first)) = heads.min() else { break };
            // What the other streams allow of this one, in one go.
            let others = self.streams.iter().enumerate().filter(|&(i, _)| i != first);
            let bound = others.filter_map(|(i, s)| Some((key(s.waiting.get(s.next)?), i))).min();
            let stream = &mut self.streams[first];
            let waiting = &stream.waiting[stream.next..];
            let limit = waiting.len().min(target - into.len());
            let run = match bound {
                None => limit,
                Some(bound) => waiting[..limit]
                    .iter()
                    .take_while(|event| (key(event), first) < bound)
                    .count()
                    .max(1),
            };
            into.extend_from_slice(&waiting[..run]);
            stream.next += run;
        }
        Ok(!into.is_empty())
    }

    fn loss(&self) -> Loss {
        self.streams.iter().fold(Loss::default(), |sum, stream| {
            let loss = stream.source.loss();
            Loss {
                events: sum.events + loss.events,
                gaps: sum.gaps + loss.gaps,
                unreadable: sum.unreadable + loss.unreadable,
            }
        })
    }
}

impl EventSource for Box<dyn EventSource> {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        (**self).read(into)
    }

    fn loss(&self) -> Loss {
        (**self).loss()
    }
}
