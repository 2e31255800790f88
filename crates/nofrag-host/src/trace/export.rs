//! Writes traces for other programs.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use thiserror::Error;

use super::event::{Event, NO_FRAME};
use super::kinds::FieldClass;
use super::meta::TraceMeta;
use super::source::{EventSource, TraceError};
use super::text::TextWriter;

#[cfg(feature = "parquet")]
mod table;

#[cfg(feature = "parquet")]
pub use table::{COLUMNS_VERSION, Place, dataset, parquet};

/// The reason why a trace was not exported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The result could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// Other programs would not open a file of this name.
    #[error(
        "{0}: the name of a Parquet file has to end in .parquet; duckdb and datafusion refuse others"
    )]
    Name(PathBuf),
    /// A dataset has no such place: what was named, and why.
    #[error("{0:?}: {1}")]
    Place(String, &'static str),
    /// A dataset has a file of this trace already.
    #[error("{0} exists already: give --replace, or export the trace under another name")]
    Exists(PathBuf),
    /// The table could not be written.
    #[cfg(feature = "parquet")]
    #[error("the table could not be written: {0}")]
    Table(#[from] ::parquet::errors::ParquetError),
}

/// Refuses names that readers of Parquet refuse.
///
/// # Errors
/// [`ExportError::Name`] for such a name.
pub fn check_parquet_name(path: &Path) -> Result<(), ExportError> {
    let fits = path.extension().is_some_and(|end| end == "parquet");
    if fits { Ok(()) } else { Err(ExportError::Name(path.to_owned())) }
}

/// Returns a value as people and programs read it: frames and addresses are never negative, and `None` stands for no
/// frame.
fn number(class: FieldClass, value: u64) -> Option<i128> {
    match class {
        FieldClass::Pfn if value == NO_FRAME => None,
        FieldClass::Pfn | FieldClass::Address => Some(i128::from(value)),
        FieldClass::Few | FieldClass::Number => Some(i128::from(value as i64)),
    }
}

fn object(event: &Event) -> Value {
    let mut object = Map::new();
    object.insert("at".to_owned(), event.at.into());
    object.insert("cpu".to_owned(), event.cpu.into());
    object.insert("pid".to_owned(), event.pid.into());
    object.insert("event".to_owned(), event.kind.name().into());
    for (field, &value) in event.kind.fields().iter().zip(&event.values) {
        let value = match number(field.class, value) {
            None => Value::Null,
            Some(value) => match (u64::try_from(value), i64::try_from(value)) {
                (Ok(value), _) => value.into(),
                (_, Ok(value)) => value.into(),
                _ => Value::Null,
            },
        };
        object.insert(field.name.to_owned(), value);
    }
    Value::Object(object)
}

/// Writes each event as an object on a line: `at` (nanoseconds), `cpu`, `pid`, `event`, and the fields by name;
/// [`NO_FRAME`] becomes `null`. Returns the number of events; `progress` receives it on the way.
///
/// # Errors
/// Those of [`ExportError`].
pub fn json_lines(
    events: &mut dyn EventSource,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ExportError> {
    let (mut batch, mut done) = (Vec::new(), 0);
    while events.read(&mut batch)? {
        for event in &batch {
            serde_json::to_writer(&mut *out, &object(event)).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        }
        done += batch.len() as u64;
        progress(done);
        batch.clear();
    }
    Ok(done)
}

/// Writes the events as lines of the kernel's own text. Returns the number of events; `progress` receives it on the
/// way.
///
/// # Errors
/// Those of [`ExportError`].
pub fn ftrace(
    meta: &TraceMeta,
    events: &mut dyn EventSource,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, ExportError> {
    let writer = TextWriter::new(meta);
    out.write_all(TextWriter::header().as_bytes())?;
    let (mut batch, mut done, mut text) = (Vec::new(), 0, String::new());
    while events.read(&mut batch)? {
        text.clear();
        batch.iter().for_each(|event| writer.add_line(event, &mut text));
        out.write_all(text.as_bytes())?;
        done += batch.len() as u64;
        progress(done);
        batch.clear();
    }
    Ok(done)
}
