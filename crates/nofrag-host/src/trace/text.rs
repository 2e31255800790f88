//! The text of ftrace (`trace`, `trace_pipe`) and of `trace-cmd report`, as people paste it.
//!
//! ```text
//! # tracer: nop
//!             bash-22363   [000] d..1. 37156.497082: mm_page_free: page=00000000f439b067 pfn=0x1c89a4 order=0
//! CPU:1 [LOST 312 EVENTS]
//! ```
//!
//! A line has the name of a process, which may have blanks and dashes, its number, the CPU, perhaps flags, the time,
//! and the event. Lines keep their order. A line that cannot be read, or whose end is missing, is counted; comments,
//! blank lines and events of other kinds are skipped.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, BufRead};
use std::path::PathBuf;

use super::event::Event;
use super::kinds::EventKind;
use super::meta::TraceMeta;
use super::perf_script;
use super::source::{BATCH, EventSource, Loss, TraceError};
use super::wording::{Unreadable, Worded, Wording};

/// Bytes of the longest line of a trace; a longer one is counted and skipped.
const LONGEST_LINE: usize = 16 * 1024;
/// Bytes without the end of a line after which reading stops: the rest of a sparse file has none.
const NO_LINE: usize = 16 << 20;

/// The parts of a line with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) comm: &'a str,
    pub(crate) pid: i32,
    pub(crate) cpu: u16,
    /// Time of the event in nanoseconds.
    pub(crate) at: u64,
    /// The event and its fields.
    pub(crate) rest: &'a str,
}

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Event(Head<'a>),
    /// Events are lost before the next one of this CPU, with their number if it is known.
    Lost(u16, Option<u64>),
    /// A comment, or an empty line.
    Blank,
    Unreadable,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Line<'a> {
        let line = line.trim_end_matches(['\r', '\n']);
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') || trimmed.starts_with("cpus=") {
            Line::Blank
        } else if let Some((cpu, count)) = lost(trimmed) {
            Line::Lost(cpu, count)
        } else {
            Head::of(line).map_or(Line::Unreadable, Line::Event)
        }
    }
}

/// Parses `CPU:1 [LOST 312 EVENTS]` of ftrace and `CPU:1 [312 EVENTS DROPPED]` of trace-cmd, both also without a
/// number.
fn lost(line: &str) -> Option<(u16, Option<u64>)> {
    let (cpu, what) = line.strip_prefix("CPU:")?.split_once(" [")?;
    let mut words = what.strip_suffix(']')?.split(' ');
    let (mut lost, mut count) = (false, None);
    for word in words.by_ref() {
        match word {
            "LOST" | "DROPPED" => lost = true,
            "EVENTS" => {}
            number => count = Some(number.parse().ok()?),
        }
    }
    lost.then_some((cpu.trim().parse().ok()?, count))
}

impl<'a> Head<'a> {
    /// Splits a line into its parts. The first dash behind which the rest reads as a head ends the name.
    fn of(line: &'a str) -> Option<Head<'a>> {
        // Most dashes that are tried: a name has 15 bytes; the instance of trace-cmd before it may have more.
        const DASHES: usize = 64;
        line.match_indices('-').take(DASHES).find_map(|(dash, _)| {
            let (pid, rest) = digits(&line[dash + 1..])?;
            let mut rest = rest.strip_prefix(' ')?.trim_start();
            // The thread group: a number or dashes in brackets.
            if let Some(group) = rest.strip_prefix('(') {
                let (group, after) = group.split_once(')')?;
                let group = group.trim();
                let is_group = |byte: u8| byte == b'-' || byte.is_ascii_digit();
                rest = group.bytes().all(is_group).then_some(after.trim_start())?;
            }
            let (cpu, rest) = digits(rest.strip_prefix('[')?)?;
            let rest = rest.strip_prefix(']')?.trim_start();
            let (at, rest) = match time(rest) {
                Some(found) => found,
                // Flags such as `d..1.`.
                None => time(rest.split_once(' ')?.1.trim_start())?,
            };
            Some(Head {
                comm: line[..dash].trim(),
                pid: pid.parse().ok()?,
                cpu: cpu.parse().ok()?,
                at,
                rest: rest.trim_start(),
            })
        })
    }
}

/// Returns the digits at the beginning, at least one, and the rest.
fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    (end > 0).then(|| text.split_at(end))
}

/// Returns a time and the text behind its colon: seconds with up to nine decimals, or the number that another clock
/// gives.
pub(crate) fn time(text: &str) -> Option<(u64, &str)> {
    const NANOS: u64 = 1_000_000_000;
    let (whole, rest) = digits(text)?;
    let whole: u64 = whole.parse().ok()?;
    let Some(rest) = rest.strip_prefix('.') else {
        return Some((whole, rest.strip_prefix(':')?));
    };
    let (part, rest) = digits(rest)?;
    let scale = 10_u64.pow(9_u32.checked_sub(u32::try_from(part.len()).ok()?)?);
    let nanos = part.parse::<u64>().ok()? * scale;
    Some((whole.checked_mul(NANOS)?.checked_add(nanos)?, rest.strip_prefix(':')?))
}

/// Returns the kind of an event, if it is in [`KINDS`](super::KINDS), and the text of its fields: `NAME: FIELDS`, or
/// `sys_NAME(FIELDS)` of a system call.
fn kind_of(text: &str) -> Result<(Option<EventKind>, &str), Unreadable> {
    let end = text.find([':', '(', ' ']).ok_or(Unreadable)?;
    let (name, fields) = (&text[..end], &text[end + 1..]);
    let kind = match text[end..].starts_with('(') {
        true => kind_of_call(name),
        false => EventKind::from_name(name),
    };
    Ok((kind, fields))
}

/// Returns the kind of a system call's entry, by a name such as `sys_munmap`.
fn kind_of_call(name: &str) -> Option<EventKind> {
    match name {
        "sys_munmap" => Some(EventKind::Munmap),
        "sys_mmap" => Some(EventKind::Mmap),
        _ => None,
    }
}

/// Returns true if `head` can be the beginning of a trace's text: comments, then a line that can be read.
pub(crate) fn begins_trace(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    // The last line may be cut.
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n') || head.len() < 4096);
    let read = lines.map(Line::of).find(|line| *line != Line::Blank);
    text.starts_with("# tracer:") || matches!(read, Some(Line::Event(_) | Line::Lost(..)))
}

/// Returns the CPUs by the head of the text: `#P:2` of ftrace, `cpus=2` of trace-cmd.
pub(crate) fn cpus(head: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(head);
    let counts = text.lines().take(20).find_map(|line| {
        let comment = line.starts_with('#').then(|| line.rsplit_once("#P:")).flatten();
        comment.map(|(_, count)| count).or_else(|| line.strip_prefix("cpus="))
    });
    let count = counts.and_then(|count| count.trim().parse::<u16>().ok());
    (0..count.unwrap_or(0)).collect()
}

/// Reads the events of a text line by line.
pub struct TraceText<R> {
    input: R,
    /// The parser of a line, by the tool that printed it.
    grammar: fn(&str) -> Line<'_>,
    path: PathBuf,
    wording: Wording,
    line: Vec<u8>,
    /// Events that were lost before the next one: CPU and number.
    lost: Vec<(u16, Option<u64>)>,
    last: u64,
    loss: Loss,
    ended: bool,
}

impl<R: BufRead + Send> TraceText<R> {
    /// Reads the events of `input`. The path is for errors; `meta` has the kernel's names of flags.
    #[must_use]
    pub fn new(input: R, path: PathBuf, meta: &TraceMeta) -> TraceText<R> {
        TraceText::by(|line| Line::of(line), input, path, meta)
    }

    /// Reads the text of `perf script` as [`new`](TraceText::new) reads that of ftrace.
    #[must_use]
    pub fn perf_script(input: R, path: PathBuf, meta: &TraceMeta) -> TraceText<R> {
        TraceText::by(perf_script::line, input, path, meta)
    }

    fn by(
        grammar: fn(&str) -> Line<'_>,
        input: R,
        path: PathBuf,
        meta: &TraceMeta,
    ) -> TraceText<R> {
        TraceText {
            input,
            grammar,
            path,
            wording: Wording::of(meta),
            line: Vec::new(),
            lost: Vec::new(),
            last: 0,
            loss: Loss::default(),
            ended: false,
        }
    }

    /// Reads the next line; the part beyond the longest line is skipped. Returns `false` at the end.
    fn next_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        let mut passed = 0;
        loop {
            let buffer = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                buffer => buffer?,
            };
            let end = buffer.iter().position(|&byte| byte == b'\n').map(|end| end + 1);
            let used = end.unwrap_or(buffer.len());
            let room = (LONGEST_LINE + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&buffer[..used.min(room)]);
            self.input.consume(used);
            passed += used;
            if passed > NO_LINE {
                let why = "a line does not end within 16 MiB: this is no text";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            if end.is_some() || used == 0 {
                return Ok(!self.line.is_empty());
            }
        }
    }

    /// Adds the events that mark losses before the next event.
    fn tell_lost(&mut self, into: &mut Vec<Event>) {
        let lost = self.lost.drain(..);
        into.extend(lost.map(|(cpu, count)| Event::lost(self.last, cpu, count)));
    }

    fn take_line(&mut self, into: &mut Vec<Event>) {
        if self.line.len() > LONGEST_LINE {
            self.loss.unreadable += 1;
            return;
        }
        let text = String::from_utf8_lossy(&self.line);
        match (self.grammar)(&text) {
            Line::Blank => {}
            Line::Unreadable => self.loss.unreadable += 1,
            Line::Lost(cpu, count) => {
                self.loss.gaps += 1;
                self.loss.events = self.loss.events.saturating_add(count.unwrap_or(0));
                self.lost.push((cpu, count));
                if self.lost.len() >= BATCH {
                    self.tell_lost(into);
                }
            }
            Line::Event(head) => {
                self.last = head.at;
                let event = event(&self.wording, &head);
                self.tell_lost(into);
                match event {
                    Ok(Some((event, lacks_flags))) => {
                        self.loss.unreadable += u64::from(lacks_flags);
                        into.push(event);
                    }
                    Ok(None) => {}
                    Err(Unreadable) => self.loss.unreadable += 1,
                }
            }
        }
    }
}

/// Returns the event of a line, and true if it lacks flags; `None` if its kind is not in [`KINDS`](super::KINDS).
fn event(wording: &Wording, head: &Head<'_>) -> Result<Option<(Event, bool)>, Unreadable> {
    let (Some(kind), fields) = kind_of(head.rest)? else { return Ok(None) };
    let Head { pid, cpu, at, .. } = *head;
    let Worded { values, lacks_flags } = wording.read(kind, fields)?;
    Ok(Some((Event { at, pid, cpu, kind, values }, lacks_flags)))
}

impl<R: BufRead + Send> EventSource for TraceText<R> {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let before = into.len();
        while into.len() < before + BATCH && !self.ended {
            match self.next_line() {
                Ok(true) => self.take_line(into),
                Ok(false) => {
                    self.ended = true;
                    self.tell_lost(into);
                }
                Err(cause) => {
                    self.ended = true;
                    return Err(TraceError::File { path: self.path.clone(), cause });
                }
            }
        }
        Ok(into.len() > before)
    }

    fn loss(&self) -> Loss {
        self.loss
    }
}

/// Writes events as the text of ftrace without its column of flags, which events do not have.
#[derive(Clone, Debug)]
pub struct TextWriter {
    wording: Wording,
    names: HashMap<i32, String>,
}

impl TextWriter {
    /// Makes a writer for the events of this trace, with its kernel's names of flags and the names of its processes.
    #[must_use]
    pub fn new(meta: &TraceMeta) -> TextWriter {
        TextWriter { wording: Wording::of(meta), names: meta.names.iter().cloned().collect() }
    }

    /// Returns the text that stands before the first event's line.
    #[must_use]
    pub fn header() -> &'static str {
        "# tracer: nop\n#\n\
         #           TASK-PID     CPU#     TIMESTAMP  FUNCTION\n\
         #              | |         |         |         |\n"
    }

    /// Adds the line of an event, as ftrace prints it: times in microseconds, rounded. O(length).
    ///
    /// A field that ftrace leaves out of a record's text (the zone in which kswapd is woken) stands at the end of the
    /// line; the pointer of a page is the one of a kernel without randomised addresses.
    pub fn add_line(&self, event: &Event, into: &mut String) {
        if event.kind == EventKind::Lost {
            let count = match event.values[0] {
                0 => String::new(),
                count => format!("{count} "),
            };
            into.push_str(&format!("CPU:{} [LOST {count}EVENTS]\n", event.cpu));
            return;
        }
        let name: Cow<'_, str> = match self.names.get(&event.pid) {
            Some(name) => name.into(),
            None if event.pid == 0 => "<idle>".into(),
            None => "<...>".into(),
        };
        let micros = event.at.saturating_add(500) / 1000;
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let (pid, cpu) = (event.pid, event.cpu);
        into.push_str(&format!("{name:>16}-{pid:<7} [{cpu:03}] {seconds:5}.{micros:06}: "));
        self.wording.print(event.kind, &event.values, into);
        into.push('\n');
    }
}
