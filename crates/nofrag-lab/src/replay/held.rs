//! A trace in memory, for many replays of it.

use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

use nofrag_host::budget::Room;
use nofrag_host::trace::{BATCH, Event, EventSource, Loss, Trace, TraceError, TraceMeta};

/// The events of a trace with the facts beside them: 80 bytes for each event.
#[derive(Clone)]
pub struct Held(Arc<Content>);

struct Content {
    /// The name and the SHA-256 of what was read.
    name: String,
    digest: String,
    meta: TraceMeta,
    events: Vec<Event>,
    loss: Loss,
    /// The remainder of the trace's budget, for those who work on it.
    room: Room,
}

impl Held {
    /// Reads a trace, with this name and SHA-256, to its end.
    pub(super) fn read(trace: Trace, name: String, digest: String) -> Result<Held, TraceError> {
        let Trace { meta, events: mut source, mut room } = trace;
        let (mut events, mut taken) = (Vec::new(), 0);
        while source.read(&mut events)? {
            let more = events.len() - taken;
            room.take((more * size_of::<Event>()) as u64)?;
            taken += more;
        }
        let loss = source.loss();
        Ok(Held(Arc::new(Content { name, digest, meta, events, loss, room })))
    }

    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) fn digest(&self) -> &str {
        &self.0.digest
    }

    /// Returns the trace as from its beginning.
    pub(super) fn open(&self) -> Trace {
        let Content { meta, room, .. } = &*self.0;
        let events = Box::new(Again { content: Arc::clone(&self.0), next: 0 });
        Trace { meta: meta.clone(), events, room: room.clone() }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({}, {} events)", self.0.name, self.0.events.len())
    }
}

/// The events once more.
struct Again {
    content: Arc<Content>,
    next: usize,
}

impl EventSource for Again {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let rest = &self.content.events[self.next..];
        let batch = &rest[..rest.len().min(BATCH)];
        into.extend_from_slice(batch);
        self.next += batch.len();
        Ok(!batch.is_empty())
    }

    fn loss(&self) -> Loss {
        self.content.loss
    }

    fn stated(&self) -> Option<u64> {
        Some(self.content.events.len() as u64)
    }
}
