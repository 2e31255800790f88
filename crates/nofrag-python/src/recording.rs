//! A recording as columns: a table for each kind of events, and one of all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, UInt64Builder};
use arrow_array::types::UInt8Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, StringArray, UInt8Array, UInt16Array, UInt64Array,
};
use arrow_schema::ArrowError;
use nofrag_host::trace::{self, Event, EventKind, Field, FieldClass, KINDS, NO_FRAME, TraceError};
use pyo3::prelude::*;

use crate::error;
use crate::table::Table;

/// The events of a recording.
#[pyclass(frozen, module = "nofrag")]
pub(crate) struct Recording {
    path: String,
    release: Option<String>,
    clock: Option<String>,
    command: Option<String>,
    missing: Vec<String>,
    loss: trace::Loss,
    events: Table,
    kinds: BTreeMap<&'static str, Table>,
}

/// Reads a recording, or any trace that nofrag knows.
#[pyfunction]
pub(crate) fn open(py: Python<'_>, path: PathBuf) -> PyResult<Recording> {
    py.detach(|| Recording::read(&path))
}

/// The values of a field.
enum Values {
    /// Frames, null for none.
    Frames(UInt64Builder),
    Unsigned(Vec<u64>),
    Signed(Int64Builder),
}

impl Values {
    fn new(field: &Field) -> Values {
        match field.class {
            FieldClass::Pfn => Values::Frames(UInt64Builder::new()),
            FieldClass::Address => Values::Unsigned(Vec::new()),
            _ => Values::Signed(Int64Builder::new()),
        }
    }

    #[inline]
    fn push(&mut self, value: u64) {
        match self {
            Values::Frames(values) => values.append_option((value != NO_FRAME).then_some(value)),
            Values::Unsigned(values) => values.push(value),
            Values::Signed(values) => values.append_value(value as i64),
        }
    }

    fn array(self) -> ArrayRef {
        match self {
            Values::Frames(mut values) => Arc::new(values.finish()),
            Values::Unsigned(values) => Arc::new(UInt64Array::from(values)),
            Values::Signed(mut values) => Arc::new(values.finish()),
        }
    }
}

/// The time, CPU and thread of each event of a table.
#[derive(Default)]
struct Heads {
    at: Vec<u64>,
    cpu: Vec<u16>,
    pid: Vec<i32>,
}

impl Heads {
    #[inline]
    fn push(&mut self, event: &Event) {
        self.at.push(event.at);
        self.cpu.push(event.cpu);
        self.pid.push(event.pid);
    }

    fn columns(self) -> Vec<(String, ArrayRef)> {
        let columns: [(&str, ArrayRef); 3] = [
            ("at", Arc::new(UInt64Array::from(self.at))),
            ("cpu", Arc::new(UInt16Array::from(self.cpu))),
            ("pid", Arc::new(Int32Array::from(self.pid))),
        ];
        columns.map(|(name, column)| (name.to_owned(), column)).into()
    }
}

/// The events of one kind so far.
struct OfKind {
    fields: &'static [Field],
    heads: Heads,
    values: Vec<Values>,
}

impl OfKind {
    fn new(kind: EventKind) -> OfKind {
        let fields = kind.fields();
        OfKind { fields, heads: Heads::default(), values: fields.iter().map(Values::new).collect() }
    }

    fn table(self) -> Result<Table, ArrowError> {
        let mut columns = self.heads.columns();
        let named = self.fields.iter().map(|field| field.name.to_owned());
        columns.extend(named.zip(self.values.into_iter().map(Values::array)));
        Table::of(columns)
    }
}

impl Recording {
    fn read(path: &Path) -> PyResult<Recording> {
        let trace::Trace { meta, mut events, .. } = trace::open(path).map_err(said)?;
        let mut kinds: Vec<OfKind> = KINDS.iter().map(|row| OfKind::new(row.kind)).collect();
        let (mut heads, mut names) = (Heads::default(), Vec::new());
        let mut batch = Vec::new();
        while events.read(&mut batch).map_err(said)? {
            for event in batch.drain(..) {
                heads.push(&event);
                names.push(event.kind as u8);
                let of = &mut kinds[event.kind as usize];
                of.heads.push(&event);
                for (values, value) in of.values.iter_mut().zip(event.values) {
                    values.push(value);
                }
            }
        }
        let mut columns = heads.columns();
        let known = StringArray::from_iter_values(KINDS.iter().map(|row| row.name));
        let names = DictionaryArray::<UInt8Type>::try_new(UInt8Array::from(names), Arc::new(known));
        columns.push(("event".to_owned(), Arc::new(names.map_err(error)?)));
        let mut tables = BTreeMap::new();
        for (row, of) in KINDS.iter().zip(kinds) {
            if !of.heads.at.is_empty() {
                tables.insert(row.name, of.table().map_err(error)?);
            }
        }
        Ok(Recording {
            path: path.display().to_string(),
            release: meta.release,
            clock: meta.clock,
            command: meta.command,
            missing: meta.missing,
            loss: events.loss(),
            events: Table::of(columns).map_err(error)?,
            kinds: tables,
        })
    }
}

/// Says of an error of the command's what a caller in Python can do.
fn said(why: TraceError) -> PyErr {
    match why {
        TraceError::Budget { .. } => error(format!(
            "{why}; a recording that is larger than memory: `nofrag trace export --to parquet`, and read its columns \
             from there"
        )),
        why => error(why),
    }
}

#[pymethods]
impl Recording {
    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    /// The release of the recorded kernel.
    #[getter]
    fn release(&self) -> Option<&str> {
        self.release.as_deref()
    }

    #[getter]
    fn clock(&self) -> Option<&str> {
        self.clock.as_deref()
    }

    #[getter]
    fn command(&self) -> Option<&str> {
        self.command.as_deref()
    }

    /// The facts that the recording lacks, with the consequences, as sentences.
    #[getter]
    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    /// Events lost, gaps, and records that could not be read.
    #[getter]
    fn loss(&self) -> (u64, u64, u64) {
        (self.loss.events, self.loss.gaps, self.loss.unreadable)
    }

    /// All events: `at` in nanoseconds, `cpu`, `pid`, `event`.
    #[getter]
    fn events(&self) -> Table {
        self.events.shared()
    }

    /// The kinds of its events.
    #[getter]
    fn kinds(&self) -> Vec<&'static str> {
        self.kinds.keys().copied().collect()
    }

    fn __len__(&self) -> usize {
        self.events.rows()
    }

    fn __getitem__(&self, kind: &str) -> PyResult<Table> {
        let name = kind.rsplit(':').next().unwrap_or_default();
        self.kinds.get(name).map(Table::shared).ok_or_else(|| {
            error(format!("it has no events {kind:?}; it has {}", self.kinds().join(", ")))
        })
    }

    fn __repr__(&self) -> String {
        let release = self.release.as_deref().unwrap_or("an unknown kernel");
        format!("<nofrag.Recording {}: {} events of {release}>", self.path, self.events.rows())
    }
}
