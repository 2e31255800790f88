//! Where a kernel puts the fields of its events: the `format` files of tracefs.
//!
//! Nothing about a record is assumed but this: offsets, sizes and numbers of events change between kernels.

use thiserror::Error;

use super::bulk::BulkLayout;
use super::event::Event;
use super::kinds::{EventKind, MAX_FIELDS};

/// A `format` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The tracepoint.
    pub name: String,
    /// The number of its records.
    pub id: u16,
    /// Its fields, the common ones first.
    pub fields: Vec<FormatField>,
    /// How the kernel prints a record: the rest of the line `print fmt:`.
    pub print: String,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatField {
    /// Its name, without the length of an array.
    pub name: String,
    /// Where it begins, in bytes.
    pub offset: usize,
    /// How many bytes it has.
    pub size: usize,
    /// Whether it is signed.
    pub signed: bool,
}

/// Why a text is no `format` file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A line that every such file has is not there.
    #[error("the line `{0}` is missing: this is no tracefs format file")]
    Missing(&'static str),
    /// A line is not as such files have it.
    #[error("line {0} is not of the form `field:TYPE NAME; offset:N; size:N; signed:N;`")]
    Field(usize),
}

impl Format {
    /// Parses the text of the file.
    ///
    /// # Errors
    /// [`FormatError`].
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

    /// The field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&FormatField> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// What stands behind `field:` in a line.
pub(super) fn parse_field(text: &str) -> Option<FormatField> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")?);
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next().unwrap_or(name);
    Some(FormatField { name: name.to_owned(), offset, size, signed: signed != 0 })
}

/// Where one value is taken from a record: from a word of eight bytes that holds it, by two shifts and a mask.
///
/// A value of a record begins behind the eight bytes that all records have in common, so the word can be the one that
/// ends with the value, and no value needs a branch of its own.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    word: u16,
    up: u8,
    down: u8,
    mask: u64,
}

/// Bytes of a word.
const WORD: usize = 8;

impl Place {
    /// That of the field; one that gives 0 where the kernel has no such field, or one that is no number.
    fn of(format: &Format, name: &str) -> Place {
        let number = |field: &&FormatField| matches!(field.size, 1 | 2 | 4 | 8);
        let Some(field) = format.field(name).filter(number) else { return Place::default() };
        let end = field.offset.saturating_add(field.size);
        let word = end.saturating_sub(WORD);
        let bits = 8 * field.size as u32;
        Place {
            // A field beyond any record leaves its event unreadable.
            word: u16::try_from(word).unwrap_or(u16::MAX),
            up: (8 * (WORD - end.min(WORD))) as u8,
            down: (u64::BITS - bits) as u8,
            mask: if field.signed { u64::MAX } else { u64::MAX >> (u64::BITS - bits) },
        }
    }

    /// The value; `None` if the record ends before it.
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
    /// How many of `values` the kind has.
    len: usize,
    values: [Place; MAX_FIELDS],
}

/// What is known of a number of records.
#[derive(Clone, Copy, Debug, Default)]
enum Known {
    #[default]
    No,
    /// Its tracepoint is none of [`KINDS`].
    Other,
    /// The place of its layout.
    Layout(u16),
    /// The place of its layout among those of the probes on the bulk interface.
    Bulk(u16),
}

/// Why a record gives no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// No format has its number.
    #[error("no format file has the number {0} of the record")]
    Unknown(u16),
    /// It ends before its fields do.
    #[error("the record has {0} bytes, too few for its fields")]
    Short(usize),
}

/// Turns records into events, by the `format` files of the kernel that wrote them.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// By the number of the record.
    known: Vec<Known>,
    layouts: Vec<Layout>,
    bulk: Vec<BulkLayout>,
}

impl Decoder {
    /// For the records of these formats; of two with one number the later counts.
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

    /// Appends the events of a record: one, none if its tracepoint is none of [`KINDS`](super::KINDS), or those of all
    /// pages that it names. Takes the time of reading its fields.
    ///
    /// # Errors
    /// [`RecordError`]; nothing is appended then.
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

    /// The event of a record; `None` if its tracepoint is none of [`KINDS`](super::KINDS), or if
    /// [`decode_into`](Self::decode_into) has more than one for it. Takes the time of reading its fields.
    ///
    /// # Errors
    /// [`RecordError`].
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
