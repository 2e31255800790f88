//! A trace as one Parquet table: a row for each event, a column for each name of a field.
//!
//! A column is null in the rows of events that lack its field, which costs next to nothing. Times and frame numbers are
//! near to the ones before and so are stored as differences (`DELTA_BINARY_PACKED`), all others by dictionary.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{
    Compression, ConvertedType, Encoding, Repetition, Type as Physical, ZstdLevel,
};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::ExportError;
use crate::trace::kinds::{EventKind, FieldClass, KINDS};
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
    let fields = fields();
    let mut writer =
        SerializedFileWriter::new(out, schema(&fields)?, Arc::new(properties(&fields)?))?;
    let (mut group, mut done) = (Vec::with_capacity(GROUP + super::super::BATCH), 0);
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

/// Returns the columns of fields, in the order in which their names appear in [`KINDS`].
fn fields() -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for row in KINDS.iter() {
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
        .set_created_by(concat!("nofrag ", env!("CARGO_PKG_VERSION")).to_owned());
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
