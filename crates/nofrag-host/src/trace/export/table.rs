//! A trace as Parquet: one table with a row for each event and a column for each name of a field, or a dataset of many
//! traces in folders by host, day and kind, each file with the columns of its kind.
//!
//! A column is null in the rows of events that lack its field, which costs next to nothing. Times and frame numbers are
//! near to the ones before and so are stored as differences (`DELTA_BINARY_PACKED`), all others by dictionary.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{
    Compression, ConvertedType, Encoding, Repetition, Type as Physical, ZstdLevel,
};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::ExportError;
use crate::recording::Existing;
use crate::trace::kinds::{EventKind, FieldClass, KINDS, KindInfo};
use crate::trace::{Event, EventSource, NO_FRAME};

/// Events of a row group, which are held in memory at a time.
const GROUP: usize = 1 << 20;

/// Writes the events as a Parquet table with the columns `at` (nanoseconds), `cpu`, `pid`, `event` (its name) and those
/// of all fields; [`NO_FRAME`] becomes null. Returns the number of events; `progress` receives it on the way. Memory: a
/// million events.
///
/// # Errors
/// Those of [`ExportError`].
pub fn parquet<W: Write + Send>(
    events: &mut dyn EventSource,
    out: W,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ExportError> {
    let fields = fields(&KINDS);
    let mut writer =
        SerializedFileWriter::new(out, schema(&fields)?, Arc::new(properties(&fields)?))?;
    let (mut group, mut done) = (Vec::new(), 0);
    loop {
        let before = group.len();
        let more = events.read(&mut group)?;
        done += (group.len() - before) as u64;
        progress(done);
        if group.len() >= GROUP || !more && !group.is_empty() {
            write_group(&mut writer, &fields, &group)?;
            group.clear();
        }
        if !more {
            writer.close()?;
            return Ok(done);
        }
    }
}

/// A column with the fields of one name, of all kinds that have such a field.
struct Column {
    name: &'static str,
    class: FieldClass,
    /// Index of the column's value in each kind that has the field.
    places: BTreeMap<EventKind, usize>,
}

/// Returns the columns of the fields of these kinds, in the order in which their names appear.
fn fields(kinds: &[KindInfo]) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for row in kinds {
        for (place, field) in row.fields.iter().enumerate() {
            let known = columns.iter_mut().find(|column| column.name == field.name);
            match known {
                Some(column) => drop(column.places.insert(row.kind, place)),
                None => columns.push(Column {
                    name: field.name,
                    class: field.class,
                    places: BTreeMap::from([(row.kind, place)]),
                }),
            }
        }
    }
    columns
}

fn is_unsigned(class: FieldClass) -> bool {
    matches!(class, FieldClass::Pfn | FieldClass::Address)
}

fn schema(fields: &[Column]) -> Result<TypePtr, ParquetError> {
    let column = |name: &str, physical, converted, repetition| {
        let builder = Type::primitive_type_builder(name, physical);
        builder.with_converted_type(converted).with_repetition(repetition).build().map(Arc::new)
    };
    let (required, optional) = (Repetition::REQUIRED, Repetition::OPTIONAL);
    let mut columns = vec![
        column("at", Physical::INT64, ConvertedType::UINT_64, required)?,
        column("cpu", Physical::INT32, ConvertedType::UINT_16, required)?,
        column("pid", Physical::INT32, ConvertedType::INT_32, required)?,
        column("event", Physical::BYTE_ARRAY, ConvertedType::UTF8, required)?,
    ];
    for field in fields {
        let signed =
            if is_unsigned(field.class) { ConvertedType::UINT_64 } else { ConvertedType::INT_64 };
        columns.push(column(field.name, Physical::INT64, signed, optional)?);
    }
    Type::group_type_builder("event").with_fields(columns).build().map(Arc::new)
}

fn properties(fields: &[Column]) -> Result<WriterProperties, ParquetError> {
    let mut properties: WriterPropertiesBuilder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by(concat!("nofrag ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new(
            "nofrag.schema".to_owned(),
            COLUMNS_VERSION.to_string(),
        )]));
    let near = fields.iter().filter(|field| is_unsigned(field.class)).map(|field| field.name);
    for name in near.chain(["at"]) {
        let path = ColumnPath::from(name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties.build())
}

fn write_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    fields: &[Column],
    events: &[Event],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    let mut next = |events: &[Event], content: Content<'_>| {
        let mut column = group.next_column()?.expect("the schema has a column for each content");
        match content {
            Content::Times => {
                let times: Vec<i64> = events.iter().map(|event| event.at as i64).collect();
                column.typed::<Int64Type>().write_batch(&times, None, None)?;
            }
            Content::Numbers(number) => {
                let numbers: Vec<i32> = events.iter().map(number).collect();
                column.typed::<Int32Type>().write_batch(&numbers, None, None)?;
            }
            Content::Names => {
                let names = KINDS.map(|row| ByteArray::from(row.name));
                let names: Vec<ByteArray> =
                    events.iter().map(|event| names[event.kind as usize].clone()).collect();
                column.typed::<ByteArrayType>().write_batch(&names, None, None)?;
            }
            Content::Field(field) => {
                let values = || events.iter().map(|event| field.value(event));
                let present: Vec<i16> = values().map(|value| i16::from(value.is_some())).collect();
                let values: Vec<i64> = values().flatten().map(|value| value as i64).collect();
                column.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
            }
        }
        column.close()
    };
    next(events, Content::Times)?;
    next(events, Content::Numbers(&|event| i32::from(event.cpu)))?;
    next(events, Content::Numbers(&|event| event.pid))?;
    next(events, Content::Names)?;
    for field in fields {
        next(events, Content::Field(field))?;
    }
    group.close().map(drop)
}

/// Source of a column's values.
enum Content<'a> {
    Times,
    Numbers(&'a dyn Fn(&Event) -> i32),
    Names,
    Field(&'a Column),
}

impl Column {
    fn value(&self, event: &Event) -> Option<u64> {
        let value = event.values[*self.places.get(&event.kind)?];
        (self.class != FieldClass::Pfn || value != NO_FRAME).then_some(value)
    }
}

/// The version of columns and folders, which each file states as `nofrag.schema`: raised when one goes or changes its
/// meaning.
pub const COLUMNS_VERSION: u32 = 1;

/// The place of a trace in a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    host: String,
    day: String,
    name: String,
}

impl Place {
    /// Returns the place of a trace of this host and day (`2026-11-26`), in files of this name.
    ///
    /// # Errors
    /// [`ExportError::Place`] for what cannot be the name of a folder in a dataset, or is no day.
    pub fn new(host: &str, day: &str, name: &str) -> Result<Place, ExportError> {
        let is_name = |text: &&str| {
            let is_plain = |c: char| c.is_alphanumeric() || "-_.:".contains(c);
            !text.is_empty() && !text.starts_with('.') && text.chars().all(is_plain)
        };
        if let Some(bad) = [host, name].iter().find(|text| !is_name(text)) {
            let why = "a name in a dataset has letters, digits and -_.: alone, and no dot in front";
            return Err(ExportError::Place((*bad).to_owned(), why));
        }
        let is_digit = |(at, c): (usize, char)| match at {
            4 | 7 => c == '-',
            _ => c.is_ascii_digit(),
        };
        if day.len() != 10 || !day.chars().enumerate().all(is_digit) {
            return Err(ExportError::Place(day.to_owned(), "a day is written as 2026-11-26"));
        }
        let [host, day, name] = [host, day, name].map(str::to_owned);
        Ok(Place { host, day, name })
    }
}

/// Writes the events into a folder that many traces share: `host=H/day=D/kind=K/NAME.parquet`, with the columns `at`,
/// `cpu`, `pid`, `event` and those of the kind's fields. Each row group has the least and the most of every column.
/// Files are complete or not there. Returns the number of
/// events; `progress` receives it on the way. Memory: 131,072 events of each kind.
///
/// # Errors
/// Those of [`ExportError`].
pub fn dataset(
    events: &mut dyn EventSource,
    folder: &Path,
    place: &Place,
    existing: Existing,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ExportError> {
    let mut parts: BTreeMap<EventKind, Part> = BTreeMap::new();
    let (mut batch, mut done) = (Vec::new(), 0);
    while events.read(&mut batch)? {
        done += batch.len() as u64;
        for event in batch.drain(..) {
            let part = match parts.entry(event.kind) {
                Entry::Occupied(part) => part.into_mut(),
                Entry::Vacant(none) => {
                    none.insert(Part::begin(event.kind, folder, place, existing)?)
                }
            };
            part.group.push(event);
            if part.group.len() == PART_GROUP {
                part.write()?;
            }
        }
        progress(done);
    }
    // All are there before the first gets its name.
    let ended: Result<Vec<_>, _> = parts.into_values().map(Part::end).collect();
    for (draft, path) in ended? {
        fs::rename(&draft.0, path)?;
    }
    Ok(done)
}

/// Events of a row group in a dataset.
const PART_GROUP: usize = 1 << 17;

/// The file of one kind in a dataset. Unless it is ended, its draft goes.
struct Part {
    draft: Draft,
    path: PathBuf,
    fields: Vec<Column>,
    group: Vec<Event>,
    writer: SerializedFileWriter<File>,
}

/// A file that is not complete yet.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        // It is gone if it got its name.
        drop(fs::remove_file(&self.0));
    }
}

impl Part {
    fn begin(
        kind: EventKind,
        folder: &Path,
        place: &Place,
        existing: Existing,
    ) -> Result<Part, ExportError> {
        let Place { host, day, name } = place;
        let below = format!("host={host}/day={day}/kind={}", kind.info().name);
        let folder = folder.join(below);
        let path = folder.join(format!("{name}.parquet"));
        if existing == Existing::Keep && path.exists() {
            return Err(ExportError::Exists(path));
        }
        fs::create_dir_all(&folder)?;
        let draft = Draft(folder.join(format!(".{name}.{}", std::process::id())));
        let fields = fields(&KINDS[kind as usize..=kind as usize]);
        let of = Arc::new(properties(&fields)?);
        let writer = SerializedFileWriter::new(File::create(&draft.0)?, schema(&fields)?, of)?;
        Ok(Part { draft, path, fields, group: Vec::new(), writer })
    }

    fn write(&mut self) -> Result<(), ParquetError> {
        write_group(&mut self.writer, &self.fields, &self.group)?;
        self.group.clear();
        Ok(())
    }

    /// Returns the draft, complete, and the name that it is to have.
    fn end(mut self) -> Result<(Draft, PathBuf), ParquetError> {
        if !self.group.is_empty() {
            self.write()?;
        }
        self.writer.close()?;
        Ok((self.draft, self.path))
    }
}
