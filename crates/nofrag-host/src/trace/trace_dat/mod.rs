//! `trace.dat`: the files of trace-cmd, versions 6 and 7.
//!
//! The file holds the kernel's own texts (its layout of pages and records), some options, and the unchanged pages of
//! the ring buffer, by CPU: in one piece, or in compressed chunks. Written after trace-cmd.dat.v6(5) and
//! trace-cmd.dat.v7(5); facts that the manual leaves out are stated where they are used.
//!
//! Read: little-endian files of 64-bit kernels, not compressed or with zstd. Refused, with advice: files of another
//! byte order or of 32-bit kernels, other compression, text of latency tracers. Times stay those of the trace's clock,
//! with the offset of `--ts-offset`; `--date`, the times of guests against their host's, and cycles of a TSC are not
//! converted, and [`TraceMeta::missing`] names the last two.
//!
//! Bottom up: `input` (words of a file that may lie), `head` (the parts that both versions have), `version6`,
//! `version7` (the places of these parts), `data` (compressed pages as a stream).

mod data;
mod head;
mod input;
mod version6;
mod version7;

use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

pub use input::ReadAt;

use self::data::{Chunks, End, largest_chunk};
use self::head::{Buffer, Data, Head, Packing};
use self::input::Input;
use super::event::Event;
use super::flags::FlagTable;
use super::folder::RawPages;
use super::format::Decoder;
use super::kinds::EventKind;
use super::meta::TraceMeta;
use super::source::{EventSource, Loss, Merged, Trace, TraceError};
use crate::budget::{Budget, Room};

/// The first bytes of a trace.dat.
pub(super) const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Bytes that are read at a time, unless a page is larger.
const READ_BYTES: usize = 1 << 18;

/// Opens a trace from any source of bytes: reads all but the pages. The path is for errors.
///
/// # Errors
/// Those of [`TraceError`].
pub fn open_bytes(
    bytes: Arc<dyn ReadAt>,
    path: &Path,
    budget: Budget,
) -> Result<Trace, TraceError> {
    let input = Input::new(bytes, path)?;
    let head = read_head(&input)?;
    let buffers = with_one_clock(&head);
    let gfp = head.formats.values().find(|format| format.name == EventKind::PageAlloc.name());
    let gfp = gfp.and_then(|format| FlagTable::from_print_fmt(&format.print));
    let streams =
        || buffers.iter().flat_map(|buffer| buffer.cpus.iter().map(move |data| (buffer, data)));
    let mut cpus: Vec<u16> = streams().map(|(_, data)| data.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let decoder = Arc::new(Decoder::new(head.formats.values()));
    let meta = TraceMeta {
        release: head.release(),
        clock: buffers.first().map(|buffer| clock(buffer, &head)),
        cpus,
        missing: missing(&head, &buffers, &input),
        gfp: gfp.unwrap_or_default(),
        formats: head.texts,
        names: head.names,
        ..TraceMeta::default()
    };
    let room = left(path, budget, &buffers)?;
    let filled = || streams().filter(|(_, data)| data.bytes > 0);
    let sources = filled().map(|(buffer, data)| pages(&input, buffer, data, Arc::clone(&decoder)));
    let merged = Merged::new(sources.collect::<Result<Vec<_>, TraceError>>()?);
    let gaps = filled().filter(|(_, data)| input.ends_before(data)).count() as u64;
    let said = Loss { events: head.dropped, gaps, unreadable: 0 };
    let events = Box::new(Corrected { merged, offset: head.offset, said });
    Ok(Trace { meta, events, room })
}

/// Returns what is left of the budget once the readers of all these CPUs hold their memory.
fn left(path: &Path, budget: Budget, buffers: &[Buffer]) -> Result<Room, TraceError> {
    let mut room = Room::new(path, budget);
    let filled = |buffer: &Buffer| buffer.cpus.iter().filter(|data| data.bytes > 0).count() as u64;
    let bytes = buffers.iter().map(|buffer| held(buffer).saturating_mul(filled(buffer)));
    room.take(bytes.fold(0, u64::saturating_add))?;
    Ok(room)
}

/// Returns the bytes of memory that the reader of one CPU holds: a buffer, a page that lies across its end, and events
/// on their way.
fn held(buffer: &Buffer) -> u64 {
    let chunks = match buffer.packing {
        Packing::Plain => 0,
        Packing::Zstd => 2 * largest_chunk(buffer.page_bytes),
    };
    (READ_BYTES.max(buffer.page_bytes) + buffer.page_bytes + READ_BYTES + chunks) as u64
}

/// Returns the events of one CPU in one instance.
fn pages(
    input: &Input,
    buffer: &Buffer,
    data: &Data,
    decoder: Arc<Decoder>,
) -> Result<impl EventSource + use<>, TraceError> {
    let span = input.span(data.at, data.bytes);
    let path = input.path();
    let bytes: Box<dyn Read + Send> = match buffer.packing {
        Packing::Plain => Box::new(span),
        Packing::Zstd => {
            let end = if input.ends_before(data) { End::Cut } else { End::Wrong };
            let largest = largest_chunk(buffer.page_bytes);
            Box::new(Chunks::new(span, end, largest).map_err(TraceError::file(path))?)
        }
    };
    #[expect(clippy::disallowed_methods, reason = "`READ_BYTES` or `LARGEST_PAGE`")]
    let bytes = BufReader::with_capacity(READ_BYTES.max(buffer.page_bytes), bytes);
    Ok(RawPages::new(bytes, path.to_owned(), data.cpu, decoder, buffer.page_bytes))
}

fn read_head(input: &Input) -> Result<Head, TraceError> {
    let mut words = input.words(0, "the beginning");
    let magic = words.take(MAGIC.len() as u64)?;
    if magic != MAGIC {
        return Err(TraceError::Unknown(input.path().to_owned()));
    }
    let version = words.string()?;
    let big_endian = words.u8()?;
    let _long_of_programs = words.u8()?;
    if big_endian != 0 {
        return Err(words.unsupported("a file of a big-endian machine"));
    }
    let _page_of_memory = words.u32()?;
    match version.as_str() {
        "6" => version6::read(input, &mut words),
        "7" => version7::read(input, &mut words),
        other => Err(words.unsupported(&format!(
            "version {} of the format; `trace-cmd convert --file-version 7` makes one that nofrag reads",
            other.escape_debug()
        ))),
    }
}

/// Returns the clock of an instance. An instance names `local` also when another clock was asked for; then the clock of
/// the file is right.
fn clock(buffer: &Buffer, head: &Head) -> String {
    let of_file =
        head.clock.as_deref().filter(|_| buffer.clock.is_empty() || buffer.clock == "local");
    of_file.unwrap_or(&buffer.clock).to_owned()
}

/// Returns the instances with events whose times can be compared with those of the first.
fn with_one_clock(head: &Head) -> Vec<Buffer> {
    let has_pages = |buffer: &&Buffer| buffer.cpus.iter().any(|data| data.bytes > 0);
    let mut buffers = head.buffers.iter().filter(has_pages).peekable();
    let first = buffers.peek().map(|buffer| clock(buffer, head)).unwrap_or_default();
    buffers.filter(|buffer| clock(buffer, head) == first).cloned().collect()
}

/// Returns sentences on the parts that the file lacks, or that are not taken from it.
fn missing(head: &Head, buffers: &[Buffer], input: &Input) -> Vec<String> {
    let mut missing = Vec::new();
    for buffer in &head.buffers {
        let has_pages = buffer.cpus.iter().any(|data| data.bytes > 0);
        if has_pages && !buffers.iter().any(|taken| taken.name == buffer.name) {
            missing.push(format!(
                "the instance {} has another clock ({}) than the first, and was left out",
                name(buffer),
                clock(buffer, head)
            ));
        }
    }
    if buffers.len() > 1 {
        let names: Vec<_> = buffers.iter().map(name).collect();
        missing.push(format!(
            "{} instances were recorded ({}): an event that several of them had switched on is there as often",
            names.len(),
            names.join(", ")
        ));
    }
    if let Some(clock) = buffers.first().map(|buffer| clock(buffer, head))
        && matches!(clock.as_str(), "counter" | "uptime" | "x86-tsc" | "ppc-tb")
    {
        missing.push(format!(
            "the clock {clock} does not count nanoseconds: orders of events hold, durations do not"
        ));
    }
    if head.shifted {
        let shifted = "the times of this guest were not corrected by those of its host";
        missing.push(shifted.to_owned());
    }
    for data in buffers.iter().flat_map(|buffer| &buffer.cpus) {
        if input.ends_before(data) {
            missing.push(format!(
                "the file has been cut: the pages of CPU {} end before their end",
                data.cpu
            ));
        }
    }
    missing
}

impl Input {
    /// Returns true if the file ends before these pages do.
    fn ends_before(&self, data: &Data) -> bool {
        data.at.saturating_add(data.bytes) > self.size()
    }
}

/// Returns the name of an instance as it stands in a sentence.
fn name(buffer: &Buffer) -> String {
    if buffer.name.is_empty() { "at the top".to_owned() } else { buffer.name.clone() }
}

/// Events with the file's own offset of times, and the losses that the file states.
struct Corrected<S> {
    merged: S,
    offset: i64,
    said: Loss,
}

impl<S: EventSource> EventSource for Corrected<S> {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let before = into.len();
        let more = self.merged.read(into)?;
        if self.offset != 0 {
            for event in &mut into[before..] {
                event.at = event.at.saturating_add_signed(self.offset);
            }
        }
        Ok(more)
    }

    /// Returns the larger count of lost events: the pages tell most losses, the kernel's own counters those before the
    /// first page and those of a full buffer, and the larger count includes the other.
    fn loss(&self) -> Loss {
        let seen = self.merged.loss();
        let events = seen.events.max(self.said.events);
        let unseen = u64::from(events > 0 && seen.gaps == 0);
        Loss { events, gaps: seen.gaps + self.said.gaps + unseen, unreadable: seen.unreadable }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_would_fill_the_memory_are_not_started() {
        let input = Input::new(Arc::new(vec![0; 100]), Path::new("a.dat")).unwrap();
        let with = |cpus: u16, page_bytes, packing| {
            let cpus = (0..cpus).map(|cpu| Data { cpu, at: 0, bytes: 50 }).collect();
            let name = String::new();
            let buffer = Buffer { name, clock: String::new(), page_bytes, packing, cpus };
            let mut head = Head::default();
            head.add(buffer, &input)?;
            let budget = Budget { bytes: 8 << 30, events: 0, deadline: None };
            left(Path::new("a.dat"), budget, &head.buffers)
        };
        with(8192, 4096, Packing::Plain).unwrap();
        with(2048, 4096, Packing::Zstd).unwrap();
        for (cpus, page_bytes) in [(8192, 1 << 20), (8192, 4096)] {
            let error = with(cpus, page_bytes, Packing::Zstd).unwrap_err().to_string();
            assert!(error.contains("GiB of memory"), "{error}");
        }
    }

    #[test]
    fn instances_have_no_more_cpus_than_can_be_listed() {
        let input = Input::new(Arc::new(vec![0; 100]), Path::new("a.dat")).unwrap();
        let mut head = Head::default();
        let cpus = vec![Data { cpu: 0, at: 0, bytes: 0 }; 8192];
        let (name, clock, packing) = (String::new(), String::new(), Packing::Plain);
        let buffer = Buffer { name, clock, page_bytes: 4096, packing, cpus };
        for _ in 0..8 {
            head.add(buffer.clone(), &input).unwrap();
        }
        let error = head.add(buffer, &input).unwrap_err().to_string();
        assert!(error.contains("65536"), "{error}");
    }
}
