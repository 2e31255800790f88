//! The layout of a kernel's events: the `format` files of tracefs.
//!
//! All facts about a record come from these files: offsets, sizes and numbers of events change between kernels.
//!
//! Source: docs/sources/trace.md#tracepoints.

use thiserror::Error;

use super::bulk::BulkLayout;
use super::event::Event;
use super::kinds::{EventKind, MAX_FIELDS};

/// The contents of a `format` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    pub name: String,
    /// The number by which a record names its tracepoint.
    pub id: u16,
    /// The fields, common ones first.
    pub fields: Vec<FormatField>,
    /// The kernel's format for printing a record: the rest of the line `print fmt:`.
    pub print: String,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatField {
    /// The name, without the length of an array.
    pub name: String,
    /// Offset of the field in bytes.
    pub offset: usize,
    /// Size of the field in bytes.
    pub size: usize,
    pub signed: bool,
}

/// The reason why a text is not a `format` file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A line that every such file has is missing.
    #[error("the line `{0}` is missing: this is no tracefs format file")]
    Missing(&'static str),
    /// A line does not have the form of such files.
    #[error("line {0} is not of the form `field:TYPE NAME; offset:N; size:N; signed:N;`")]
    Field(usize),
}

impl Format {
    /// Parses the text of a `format` file.
    ///
    /// # Errors
    /// Those of [`FormatError`].
    pub fn parse(text: &str) -> Result<Format, FormatError> {
        let value = |key: &'static str| {
            let found = text.lines().find_map(|line| line.strip_prefix(key));
            found.map(str::trim).ok_or(FormatError::Missing(key))
        };
        let id = value("ID:")?.parse().map_err(|_| FormatError::Missing("ID:"))?;
        let mut fields = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if let Some(field) = line.trim_start().strip_prefix("field:") {
                fields.push(parse_field(field).ok_or(FormatError::Field(number + 1))?);
            }
        }
        Ok(Format {
            name: value("name:")?.to_owned(),
            id,
            fields,
            print: value("print fmt:")?.to_owned(),
        })
    }

    /// Returns the field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&FormatField> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// Parses the part of a line behind `field:`.
pub(super) fn parse_field(text: &str) -> Option<FormatField> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")?);
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next().unwrap_or(name);
    Some(FormatField { name: name.to_owned(), offset, size, signed: signed != 0 })
}

/// The place of one value in a record: a word of eight bytes that holds it, two shifts and a mask.
///
/// A value of a record begins behind the eight bytes that all records have in common, so the word can be the eight
/// bytes that end with the value, and no value needs a branch of its own.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    word: u16,
    up: u8,
    down: u8,
    mask: u64,
}

const WORD: usize = 8;

impl Place {
    /// Returns the place of a field; a place that gives 0 where the kernel has no such field, or one that is not a
    /// number.
    fn of(format: &Format, name: &str) -> Place {
        let number = |field: &&FormatField| matches!(field.size, 1 | 2 | 4 | 8);
        let Some(field) = format.field(name).filter(number) else { return Place::default() };
        let end = field.offset.saturating_add(field.size);
        let word = end.saturating_sub(WORD);
        let bits = 8 * field.size as u32;
        Place {
            // The event of a field beyond any record is unreadable.
            word: u16::try_from(word).unwrap_or(u16::MAX),
            up: (8 * (WORD - end.min(WORD))) as u8,
            down: (u64::BITS - bits) as u8,
            mask: if field.signed { u64::MAX } else { u64::MAX >> (u64::BITS - bits) },
        }
    }

    /// Returns the value; `None` if the record ends before it.
    #[inline]
    fn read(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(usize::from(self.word)..)?.first_chunk()?;
        let word = u64::from_le_bytes(*bytes) << self.up;
        Some((word as i64 >> self.down) as u64 & self.mask)
    }
}

#[derive(Clone, Copy, Debug)]
struct Layout {
    kind: EventKind,
    pid: Place,
    /// Number of `values` that the kind has.
    len: usize,
    values: [Place; MAX_FIELDS],
}

/// The decoder's knowledge of the records with one number.
#[derive(Clone, Copy, Debug, Default)]
enum Known {
    #[default]
    No,
    /// The records have a tracepoint that is not in [`KINDS`].
    Other,
    /// Index of the layout.
    Layout(u16),
    /// Index of the layout among those of the probes on the bulk interface.
    Bulk(u16),
}

/// The reason why a record gives no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// No format has the record's number.
    #[error("no format file has the number {0} of the record")]
    Unknown(u16),
    /// The record ends before its fields do.
    #[error("the record has {0} bytes, too few for its fields")]
    Short(usize),
}

/// Turns records into events, by the `format` files of the kernel that wrote them.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// Knowledge by the number of the record.
    known: Vec<Known>,
    layouts: Vec<Layout>,
    bulk: Vec<BulkLayout>,
}

impl Decoder {
    /// Makes a decoder for the records of these formats; of two formats with one number the later counts.
    #[must_use]
    pub fn new<'a>(formats: impl IntoIterator<Item = &'a Format>) -> Decoder {
        let mut decoder = Decoder::default();
        for format in formats {
            let id = usize::from(format.id);
            if decoder.known.len() <= id {
                #[expect(clippy::disallowed_methods, reason = "at most 65,536 numbers of events")]
                decoder.known.resize(id + 1, Known::No);
            }
            decoder.known[id] = match EventKind::from_name(&format.name) {
                Some(kind) => match u16::try_from(decoder.layouts.len()) {
                    Ok(place) => {
                        decoder.layouts.push(Layout::of(format, kind));
                        Known::Layout(place)
                    }
                    Err(_) => Known::Other,
                },
                None => decoder.bulk(format),
            };
        }
        decoder
    }

    fn bulk(&mut self, format: &Format) -> Known {
        match (BulkLayout::of(format), u16::try_from(self.bulk.len())) {
            (Some(layout), Ok(place)) => {
                self.bulk.push(layout);
                Known::Bulk(place)
            }
            _ => Known::Other,
        }
    }

    /// Appends the events of a record: one, none if its tracepoint is not in [`KINDS`](super::KINDS), or one for each
    /// page that it names. Takes the time of reading its fields.
    ///
    /// # Errors
    /// Those of [`RecordError`]; nothing is appended then.
    #[inline]
    pub fn decode_into(
        &self,
        record: &[u8],
        at: u64,
        cpu: u16,
        into: &mut Vec<Event>,
    ) -> Result<(), RecordError> {
        match self.decode(record, at, cpu) {
            Ok(Some(event)) => into.push(event),
            Ok(None) => return self.decode_bulk(record, at, cpu, into),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    #[cold]
    fn decode_bulk(
        &self,
        record: &[u8],
        at: u64,
        cpu: u16,
        into: &mut Vec<Event>,
    ) -> Result<(), RecordError> {
        let id = record.first_chunk().map_or(0, |id| u16::from_le_bytes(*id));
        let Some(&Known::Bulk(place)) = self.known.get(usize::from(id)) else { return Ok(()) };
        let read = self.bulk[usize::from(place)].read(record, at, cpu, into);
        read.ok_or(RecordError::Short(record.len()))
    }

    /// Returns the event of a record; `None` if its tracepoint is not in [`KINDS`](super::KINDS), or if
    /// [`decode_into`](Self::decode_into) makes more than one event of it. Takes the time of reading its fields.
    ///
    /// # Errors
    /// Those of [`RecordError`].
    #[inline]
    pub fn decode(&self, record: &[u8], at: u64, cpu: u16) -> Result<Option<Event>, RecordError> {
        let Some(id) = record.first_chunk() else { return Err(RecordError::Short(record.len())) };
        let id = u16::from_le_bytes(*id);
        let layout = match self.known.get(usize::from(id)) {
            Some(&Known::Layout(place)) => &self.layouts[usize::from(place)],
            Some(Known::Other | Known::Bulk(_)) => return Ok(None),
            Some(Known::No) | None => return Err(RecordError::Unknown(id)),
        };
        match layout.read(record, at, cpu) {
            Some(event) => Ok(Some(event)),
            None => Err(RecordError::Short(record.len())),
        }
    }
}

impl Layout {
    fn of(format: &Format, kind: EventKind) -> Layout {
        let mut values = [Place::default(); MAX_FIELDS];
        for (place, field) in values.iter_mut().zip(kind.fields()) {
            *place = Place::of(format, field.name);
        }
        Layout { kind, pid: Place::of(format, "common_pid"), len: kind.fields().len(), values }
    }

    #[inline]
    fn read(&self, record: &[u8], at: u64, cpu: u16) -> Option<Event> {
        let mut values = [0; MAX_FIELDS];
        for (value, place) in values.iter_mut().zip(self.values.iter().take(self.len)) {
            *value = place.read(record)?;
        }
        let pid = self.pid.read(record)? as i32;
        Some(Event { at, pid, cpu, kind: self.kind, values })
    }
}
