//! Where a kernel puts the fields of its events: the `format` files of tracefs.
//!
//! Nothing about a record is assumed but this: offsets, sizes and numbers of events change between kernels.

use thiserror::Error;

use super::event::Event;
use super::kinds::{EventKind, KINDS, MAX_FIELDS};

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

fn parse_field(text: &str) -> Option<FormatField> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")?);
    let name = declaration.rsplit([' ', '*']).next()?;
    let name = name.split('[').next().unwrap_or(name);
    Some(FormatField { name: name.to_owned(), offset, size, signed: signed != 0 })
}

/// Where one value is taken from a record; no bytes where the kernel has no such field.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    offset: u16,
    size: u8,
    signed: bool,
}

impl Place {
    fn of(format: &Format, name: &str) -> Place {
        let found = format.field(name).filter(|field| matches!(field.size, 1 | 2 | 4 | 8));
        found.map_or(Place::default(), |field| Place {
            offset: u16::try_from(field.offset).unwrap_or(u16::MAX),
            size: field.size as u8,
            signed: field.signed,
        })
    }

    /// The value; `None` if the record ends before it.
    #[inline]
    fn read(self, record: &[u8]) -> Option<u64> {
        let bytes = record.get(usize::from(self.offset)..)?.get(..usize::from(self.size))?;
        Some(match (bytes, self.signed) {
            (&[a], false) => u64::from(a),
            (&[a], true) => i64::from(a as i8) as u64,
            (&[a, b], false) => u64::from(u16::from_le_bytes([a, b])),
            (&[a, b], true) => i64::from(i16::from_le_bytes([a, b])) as u64,
            (&[a, b, c, d], false) => u64::from(u32::from_le_bytes([a, b, c, d])),
            (&[a, b, c, d], true) => i64::from(i32::from_le_bytes([a, b, c, d])) as u64,
            (&[a, b, c, d, e, f, g, h], _) => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => 0,
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Layout {
    kind: EventKind,
    pid: Place,
    values: [Place; MAX_FIELDS],
}

/// Turns records into events, by the `format` files of the kernel that wrote them.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// By the number of the record.
    layouts: Vec<Option<Layout>>,
}

impl Decoder {
    /// For the records of these formats. Those of tracepoints that are not in [`KINDS`] are passed over.
    #[must_use]
    pub fn new<'a>(formats: impl IntoIterator<Item = &'a Format>) -> Decoder {
        let mut layouts = Vec::new();
        for format in formats {
            let Some(row) = KINDS.iter().find(|row| row.name == format.name) else { continue };
            let mut values = [Place::default(); MAX_FIELDS];
            for (place, field) in values.iter_mut().zip(row.fields) {
                *place = Place::of(format, field.name);
            }
            let id = usize::from(format.id);
            if layouts.len() <= id {
                layouts.resize(id + 1, None);
            }
            let pid = Place::of(format, "common_pid");
            layouts[id] = Some(Layout { kind: row.kind, pid, values });
        }
        Decoder { layouts }
    }

    /// The event of a record; `None` if its number is none of the formats', or if it is too short for its fields.
    #[inline]
    #[must_use]
    pub fn decode(&self, record: &[u8], at: u64, cpu: u16) -> Option<Event> {
        let id = u16::from_le_bytes([*record.first()?, *record.get(1)?]);
        let layout = self.layouts.get(usize::from(id))?.as_ref()?;
        let mut values = [0; MAX_FIELDS];
        for (value, place) in values.iter_mut().zip(&layout.values[..layout.kind.fields().len()]) {
            *value = place.read(record)?;
        }
        let pid = layout.pid.read(record)? as i32;
        Some(Event { at, pid, cpu, kind: layout.kind, values })
    }
}
