//! Events that a kernel traced: one vocabulary for every kind of file that can hold them.
//!
//! Bottom up: `kinds` and `event` (the vocabulary), `format` (the kernel's layout of a record, from its `format`
//! files), `bulk` (records of our own probes), `flags` (names of flag bits), `ring_buffer` (a page of the kernel's
//! buffer), `folder` (such pages and snapshots in a folder), `trace_dat` (the files of trace-cmd), `meta` (facts about
//! a trace beside its events), `source` (events in time order), `wording` and `text` (events as ftrace prints them),
//! `perf_script` (events as perf prints them), `ends` (snapshots of a recording by name), `unseen` (requests without an
//! event), `summary` (a trace in figures), `export` (events for other programs).

mod bulk;
mod ends;
mod event;
pub mod export;
mod flags;
mod folder;
mod format;
mod kinds;
mod meta;
mod perf_script;
mod ring_buffer;
mod source;
mod summary;
mod text;
mod trace_dat;
mod unseen;
mod wording;

pub(crate) use bulk::{
    ENTER as BULK_ENTER, ENTRIES as BULK_ENTRIES, LEAVE as BULK_LEAVE, PAGES as BULK_PAGES,
    PARTS as BULK_PARTS,
};
pub use ends::{End, SnapshotName};
pub use event::{BulkMoment, CompactionRun, Event, NO_FRAME, View};
pub use flags::FlagTable;
pub use folder::RawPages;
pub(crate) use folder::{Decode, MISSING, RELEASE, START_WINDOW, STATS, page_size};
pub use format::{Decoder, Format, FormatError, FormatField, RecordError};
pub use kinds::{EventKind, Field, FieldClass, KINDS, KindInfo, MAX_FIELDS};
pub use meta::{Moment, TakenSnapshot, TraceMeta};
pub use ring_buffer::{PageError, SUB_BUFFER, SubBuffer};
pub use source::{
    BATCH, EventSource, Loss, Merged, Progressed, Trace, TraceError, open, open_within,
};
pub(crate) use summary::ExtFragCounts;
pub use summary::{
    ExtFragCount, FlagCount, KindCount, Lifetimes, ORDERS, Pairing, Rate, Summary, TYPES,
    summarise, type_name,
};
pub use text::{TextWriter, TraceText};
pub use trace_dat::{ReadAt, open_bytes as open_trace_dat};
pub use unseen::{BulkEvents, Unseen, UnseenTracker};
