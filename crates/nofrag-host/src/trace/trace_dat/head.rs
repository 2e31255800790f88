//! The contents of a trace.dat beside the pages of the ring buffer: the parts that versions 6 and 7 share.

use std::collections::BTreeMap;
use std::io::Read;

use super::input::{Input, Words};
use crate::trace::format::{Format, FormatError, parse_field};
use crate::trace::kinds::{EventKind, KINDS};
use crate::trace::ring_buffer::{SUB_BUFFER, dropped};
use crate::trace::source::TraceError;

/// Most CPUs of one buffer: Linux on x86-64 has room for 8192.
const MOST_CPUS: u32 = 8192;

/// Most CPUs of all buffers together.
const MOST_STREAMS: usize = 1 << 16;

/// The contents of a trace.dat, without the pages of its ring buffers.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Bytes of a page of the ring buffer.
    pub(super) page_bytes: usize,
    /// The formats, by the number of their records.
    pub(super) formats: BTreeMap<u16, Format>,
    /// The texts of the formats whose tracepoints are in [`KINDS`].
    pub(super) texts: Vec<(String, String)>,
    pub(super) names: Vec<(i32, String)>,
    pub(super) uname: Option<String>,
    /// The marked word of `trace_clock`.
    pub(super) clock: Option<String>,
    /// Offset that is added to all times, in units of the trace's clock.
    pub(super) offset: i64,
    /// Events that the kernel had to drop or overwrite, by the `stats` of its CPUs.
    pub(super) dropped: u64,
    /// True if the times of this trace are to be corrected by those of another.
    pub(super) shifted: bool,
    /// A buffer for each recorded instance.
    pub(super) buffers: Vec<Buffer>,
}

/// The pages of one instance.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Name of the instance; empty for the top one.
    pub(super) name: String,
    pub(super) clock: String,
    pub(super) page_bytes: usize,
    pub(super) packing: Packing,
    pub(super) cpus: Vec<Data>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Zstd,
}

/// The place of one CPU's pages in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) cpu: u16,
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// Options that both versions have; the numbers are those of the manual page.
pub(super) mod option {
    pub(in super::super) const DONE: u16 = 0;
    pub(in super::super) const CPUSTAT: u16 = 2;
    pub(in super::super) const BUFFER: u16 = 3;
    pub(in super::super) const TRACECLOCK: u16 = 4;
    pub(in super::super) const UNAME: u16 = 5;
    pub(in super::super) const OFFSET: u16 = 7;
    pub(in super::super) const TIME_SHIFT: u16 = 12;
}

impl Head {
    /// Reads `header_page` and `header_event`: the kernel's layout of a page of its ring buffer.
    pub(super) fn read_pages(&mut self, words: &mut Words<impl Read>) -> Result<(), TraceError> {
        words.enter("header_page");
        words.expect(b"header_page\0")?;
        let bytes = words.u64()?;
        let text = words.text(bytes)?;
        let field = |name| {
            let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("field:"));
            lines.filter_map(parse_field).find(|field| field.name == name)
        };
        // A kernel before 2.6.31 has no such file, and its length is 0 here: its pages have this form too.
        self.page_bytes = match (field("commit"), field("data")) {
            _ if text.is_empty() => SUB_BUFFER,
            (Some(commit), Some(data))
                if (commit.offset, commit.size, data.offset) == (8, 8, 16) =>
            {
                page_bytes(data.offset.saturating_add(data.size), words)?
            }
            _ => {
                return Err(words.unsupported(
                    "pages of the ring buffer without a commit word of 8 bytes and data from byte 16 on: those of a \
                     32-bit kernel",
                ));
            }
        };
        words.enter("header_event");
        words.expect(b"header_event\0")?;
        let bytes = words.u64()?;
        words.skip(bytes)
    }

    /// Reads the formats of ftrace's own events.
    pub(super) fn read_ftrace(&mut self, words: &mut Words<impl Read>) -> Result<(), TraceError> {
        words.enter("ftrace event formats");
        for _ in 0..words.u32()? {
            self.read_format("ftrace", words)?;
        }
        Ok(())
    }

    /// Reads the formats of the recorded groups of tracepoints.
    pub(super) fn read_groups(&mut self, words: &mut Words<impl Read>) -> Result<(), TraceError> {
        words.enter("event formats");
        for _ in 0..words.u32()? {
            let group = words.string()?;
            for _ in 0..words.u32()? {
                self.read_format(&group, words)?;
            }
        }
        Ok(())
    }

    fn read_format(&mut self, group: &str, words: &mut Words<impl Read>) -> Result<(), TraceError> {
        let bytes = words.u64()?;
        let text = words.text(bytes)?;
        let mut format = match Format::parse(&text) {
            Ok(format) => format,
            // The events of another tracer may have any form.
            Err(_) if !KINDS.iter().any(|row| row.group == group) => return Ok(()),
            Err(cause) => return Err(words.bad_format(group, cause)),
        };
        match EventKind::from_name(&format.name) {
            Some(kind) if kind.info().group == group => {
                self.texts.push((format.name.clone(), text));
            }
            // Only the number is of use: to tell these records from unknown ones.
            _ => {
                format.name = format!("{group}:{}", format.name);
                format.fields = Vec::new();
                format.print = String::new();
            }
        }
        self.formats.insert(format.id, format);
        Ok(())
    }

    /// Reads `saved_cmdlines`: lines of a process and its name.
    pub(super) fn read_names(&mut self, words: &mut Words<impl Read>) -> Result<(), TraceError> {
        words.enter("saved command lines");
        let bytes = words.u64()?;
        let text = words.text(bytes)?;
        let names = text.lines().filter_map(|line| {
            let (pid, name) = line.trim_start().split_once(' ')?;
            Some((pid.parse().ok()?, name.to_owned()))
        });
        self.names.extend(names);
        Ok(())
    }

    /// Adds the buffer of an instance.
    pub(super) fn add(&mut self, buffer: Buffer, input: &Input) -> Result<(), TraceError> {
        let cpus: usize = self.buffers.iter().map(|buffer| buffer.cpus.len()).sum();
        if cpus + buffer.cpus.len() > MOST_STREAMS {
            let what = "its instances have more CPUs together than nofrag takes";
            return Err(input.corrupt(format!("{what}, which is {MOST_STREAMS}")));
        }
        self.buffers.push(buffer);
        Ok(())
    }

    /// Applies an option that both versions have.
    pub(super) fn apply_option(&mut self, id: u16, data: &[u8]) {
        let text = String::from_utf8_lossy(data);
        let text = text.trim_end_matches('\0').trim();
        match id {
            option::CPUSTAT => self.dropped = self.dropped.saturating_add(dropped(text)),
            option::TRACECLOCK => {
                let marked = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                self.clock = marked.map(|(clock, _)| clock.to_owned());
            }
            option::UNAME => self.uname = Some(text.to_owned()),
            option::OFFSET => self.offset = text.parse().unwrap_or(0),
            option::TIME_SHIFT => self.shifted = true,
            _ => {}
        }
    }

    /// Returns the kernel's release: the third word of the text of `uname`.
    pub(super) fn release(&self) -> Option<String> {
        self.uname.as_ref()?.split_ascii_whitespace().nth(2).map(str::to_owned)
    }
}

/// Checks that a page of a ring buffer can have this many bytes; returns the number.
pub(super) fn page_bytes(bytes: usize, words: &Words<impl Read>) -> Result<usize, TraceError> {
    if bytes.is_power_of_two() && (512..=LARGEST_PAGE).contains(&bytes) {
        return Ok(bytes);
    }
    Err(words.corrupt(&format!("pages of {bytes} bytes: they are powers of two from 512 to 1 MiB")))
}

const LARGEST_PAGE: usize = 1 << 20;

/// Checks that a machine can have this many CPUs; returns the number.
pub(super) fn cpu_count(count: u32, words: &Words<impl Read>) -> Result<u32, TraceError> {
    if count > MOST_CPUS {
        return Err(words.corrupt(&format!("{count} CPUs: Linux has at most {MOST_CPUS}")));
    }
    Ok(count)
}

impl<R: Read> Words<R> {
    fn bad_format(&self, group: &str, cause: FormatError) -> TraceError {
        self.corrupt(&format!("a format of the group {group}: {cause}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marked_clock_is_the_clock() {
        let mut head = Head::default();
        head.apply_option(option::TRACECLOCK, b"local global [mono] boot\n\0");
        assert_eq!(head.clock.as_deref(), Some("mono"));
        head.apply_option(option::UNAME, b"Linux vm 6.18.5 x86_64\0");
        assert_eq!(head.release().as_deref(), Some("6.18.5"));
    }
}
