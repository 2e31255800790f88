//! Version 7: sections anywhere in the file, found by the options; each may be compressed.

use std::collections::BTreeSet;
use std::io::{BufReader, Read};

use super::head::{Buffer, Data, Head, Packing, cpu_count, option, page_bytes};
use super::input::{Input, Span, Words};
use crate::trace::source::TraceError;

const HEADER_INFO: u16 = 16;
const FTRACE_EVENTS: u16 = 17;
const EVENT_FORMATS: u16 = 18;
const CMDLINES: u16 = 21;
const BUFFER_TEXT: u16 = 22;

/// Number of the section with the pages of an instance.
const FLYRECORD: u16 = 3;
/// Number of a section of options.
const OPTIONS: u16 = 0;

/// Flag of a compressed section.
const COMPRESSED: u16 = 1;

/// Reads the head from behind the size of a page of memory on.
pub(super) fn read(input: &Input, words: &mut Words<impl Read>) -> Result<Head, TraceError> {
    words.enter("the method of compression");
    let name = words.string()?;
    words.string()?;
    let packing = match name.as_str() {
        "none" => Packing::Plain,
        "zstd" => Packing::Zstd,
        other => {
            return Err(words.unsupported(&format!(
                "compression with {other}; `trace-cmd convert --compression zstd` makes a file that nofrag reads"
            )));
        }
    };
    let mut options = Options::default();
    let mut at = words.u64()?;
    let mut seen = BTreeSet::new();
    while at != 0 {
        if !seen.insert(at) {
            return Err(input.corrupt("its options lead back to where they came from"));
        }
        let section = Section::open(input, at, OPTIONS, packing, "options")?;
        at = options.read(section.words(input, "options")?)?;
    }
    options.follow(input, packing)
}

/// The contents of the options, and the places of the sections.
#[derive(Default)]
struct Options {
    head: Head,
    pages: Option<u64>,
    ftrace: Option<u64>,
    groups: Option<u64>,
    names: Option<u64>,
    buffers: Vec<Vec<u8>>,
    text: bool,
}

impl Options {
    /// Reads one section of options; returns the place of the next, or 0.
    fn read(&mut self, mut words: Words<Box<dyn Read>>) -> Result<u64, TraceError> {
        loop {
            let (id, bytes) = (words.u16()?, words.u32()?);
            let data = words.take(u64::from(bytes))?;
            let place = || {
                let place = data.first_chunk().copied().map(u64::from_le_bytes);
                place.ok_or_else(|| words.corrupt("the place of a section has fewer than 8 bytes"))
            };
            match id {
                option::DONE => return place(),
                HEADER_INFO => self.pages = Some(place()?),
                FTRACE_EVENTS => self.ftrace = Some(place()?),
                EVENT_FORMATS => self.groups = Some(place()?),
                CMDLINES => self.names = Some(place()?),
                option::BUFFER => self.buffers.push(data),
                BUFFER_TEXT => self.text = true,
                _ => self.head.apply_option(id, &data),
            }
        }
    }

    /// Reads the sections that the options name.
    fn follow(mut self, input: &Input, packing: Packing) -> Result<Head, TraceError> {
        let section = |at: Option<u64>, id, part| {
            let at = at.ok_or_else(|| input.corrupt(format!("it has no section of {part}")))?;
            Section::open(input, at, id, packing, part)?.words(input, part)
        };
        self.head.read_pages(&mut section(self.pages, HEADER_INFO, "headers")?)?;
        if self.ftrace.is_some() {
            self.head.read_ftrace(&mut section(self.ftrace, FTRACE_EVENTS, "ftrace formats")?)?;
        }
        self.head.read_groups(&mut section(self.groups, EVENT_FORMATS, "event formats")?)?;
        if self.names.is_some() {
            self.head.read_names(&mut section(self.names, CMDLINES, "saved command lines")?)?;
        }
        for data in &self.buffers {
            let buffer = read_buffer(data, input, packing)?;
            self.head.add(buffer, input)?;
        }
        if self.text && self.head.buffers.iter().all(|buffer| buffer.cpus.is_empty()) {
            return Err(TraceError::Unsupported {
                path: input.path().to_owned(),
                what: "the text of a latency tracer instead of pages; save what `trace-cmd report` prints of it, and \
                       open that"
                    .to_owned(),
            });
        }
        Ok(self.head)
    }
}

/// Reads the option of an instance, which has the places of its pages.
fn read_buffer(data: &[u8], input: &Input, file_packing: Packing) -> Result<Buffer, TraceError> {
    let mut words = Words::new(data, input, "the option of an instance");
    let at = words.u64()?;
    let (name, clock) = (words.string()?, words.string()?);
    let bytes = words.u32()? as usize;
    let page_bytes = page_bytes(bytes, &words)?;
    let count = words.u32()?;
    let mut cpus = Vec::new();
    for _ in 0..cpu_count(count, &words)? {
        let (cpu, at, bytes) = (words.u32()?, words.u64()?, words.u64()?);
        let cpu =
            u16::try_from(cpu).map_err(|_| words.corrupt("the number of a CPU is too large"))?;
        cpus.push(Data { cpu, at, bytes });
    }
    let section = Section::open(input, at, FLYRECORD, file_packing, "the pages of an instance")?;
    let packing = if section.compressed { Packing::Zstd } else { Packing::Plain };
    if packing == Packing::Zstd {
        // Not in the manual page: the size covers all of the chunks, but not their count before them.
        for data in cpus.iter_mut().filter(|data| data.bytes > 0) {
            data.bytes = data.bytes.saturating_add(4);
        }
    }
    Ok(Buffer { name, clock, page_bytes, packing, cpus })
}

/// A section: a header, and bytes that may be compressed.
struct Section {
    body: Span,
    compressed: bool,
}

impl Section {
    fn open(
        input: &Input,
        at: u64,
        id: u16,
        file_packing: Packing,
        part: &'static str,
    ) -> Result<Section, TraceError> {
        let mut words = input.words(at, part);
        let (found, flags) = (words.u16()?, words.u16()?);
        let _description = words.u32()?;
        let bytes = words.u64()?;
        if found != id {
            return Err(
                words.corrupt(&format!("section {found} stands where section {id} belongs"))
            );
        }
        let compressed = flags & COMPRESSED != 0;
        if compressed && file_packing == Packing::Plain {
            return Err(
                words.corrupt("the section is compressed, and the file says that nothing is")
            );
        }
        // The body lies behind fields of two, two, four and eight bytes.
        Ok(Section { body: input.span(at.saturating_add(16), bytes), compressed })
    }

    /// Returns the words of the section, unpacked while they are read.
    fn words(self, input: &Input, part: &'static str) -> Result<Words<Box<dyn Read>>, TraceError> {
        let mut body = self.body;
        if !self.compressed {
            return Ok(Words::new(Box::new(BufReader::new(body)), input, part));
        }
        let mut words = Words::new(&mut body, input, part);
        let (packed, unpacked) = (words.u32()?, words.u32()?);
        let packed = body.take(u64::from(packed));
        let unpacked_bytes = zstd::Decoder::new(packed).map_err(TraceError::file(input.path()))?;
        let unpacked_bytes = BufReader::new(unpacked_bytes.take(u64::from(unpacked)));
        Ok(Words::new(Box::new(unpacked_bytes), input, part))
    }
}
