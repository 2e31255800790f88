//! nofrag's own files of recorded events, `.nofrag`.
//!
//! A recording is a head and then chunks, each with a head and a checksum of its own. A chunk of events holds the
//! events of one CPU in one stretch of time, as columns. Chunks are added while events happen, so a recording that is
//! cut off opens up to its last whole chunk; an index at the end spares a reader the way through all heads, and nothing
//! else depends on it. `docs/format.md` describes every byte.
//!
//! Bottom up: `layout` (the fixed parts), `column` (many values, few bytes), `events` (events as columns), `parts`
//! (the other chunks), `writer`, `reader`.

mod column;
mod events;
mod layout;
mod parts;
mod reader;
mod writer;

use std::path::Path;

use thiserror::Error;

pub use layout::{MAGIC, MAJOR, MINOR};
pub use parts::{CpuStats, Ending};
pub use reader::{Recording, Sizes};
pub use writer::{
    CpuStream, Existing, Pace, RecordingError, RecordingWriter, WriterOptions, Written,
};

use crate::trace::{Event, Trace, TraceError};

/// The reason why a trace could not be converted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The recording could not be written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
}

/// Most events that wait in the streams of all CPUs: about a gigabyte.
const MOST_WAITING: u64 = 1 << 24;

/// Writes a trace as a recording; `progress` receives the number of events that are done. Memory: a chunk of each CPU,
/// and no more than a gigabyte.
///
/// # Errors
/// Those of [`ConvertError`]; the chunks written so far stay, and the recording is not marked as complete.
pub fn convert(
    mut trace: Trace,
    path: &Path,
    existing: Existing,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, ConvertError> {
    let options = WriterOptions { existing, pace: Pace::Copy };
    let writer = RecordingWriter::create(path, &trace.meta, options)?;
    let mut streams: Vec<Option<CpuStream>> = Vec::new();
    let mut batch: Vec<Event> = Vec::new();
    let (mut done, mut waiting) = (0, 0);
    while trace.events.read(&mut batch)? {
        for event in &batch {
            let cpu = usize::from(event.cpu);
            if streams.len() <= cpu {
                #[expect(clippy::disallowed_methods, reason = "at most 65,536 numbers of CPUs")]
                streams.resize_with(cpu + 1, || None);
            }
            match &mut streams[cpu] {
                Some(stream) => stream.push(event)?,
                none => none.insert(writer.stream(event.cpu)).push(event)?,
            }
        }
        waiting += batch.len() as u64;
        if waiting >= MOST_WAITING {
            streams.iter_mut().flatten().try_for_each(CpuStream::release)?;
            waiting = 0;
        }
        done += batch.len() as u64;
        progress(done);
        batch.clear();
    }
    for stream in streams.into_iter().flatten() {
        stream.end()?;
    }
    Ok(writer.finish(&Ending { loss: trace.events.loss(), cpus: Vec::new() })?)
}
