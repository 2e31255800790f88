//! Where things stand in the memory of a table.
//!
//! ```text
//! header     what never changes (words 0 to 5), and what a mover is about to do (words 8 to 11)
//! processes  64 bytes each: who is attached
//! entries    32 bytes each: state, offset, length
//! pins       for each process a row with a count for each entry
//! ```
//!
//! Rows are written by their process alone, so that the pins of one that died can be told from those of others. A row
//! that is not used costs addresses and no memory.

use std::ops::Range;

use super::error::SharedError;
use super::mapping::Mapping;
use super::sync::{AtomicU32, AtomicU64, Ordering};
use super::words;

/// Names the format and its version.
const MAGIC: u64 = u64::from_le_bytes(*b"nofragT1");

/// Words of the header.
const CONSTANTS: usize = 6;
const INTENT: usize = 8;

const PROCESSES_AT: usize = 64;
const PROCESS_WORDS: usize = 8;
const ENTRY_WORDS: usize = 4;

/// More of either is a mistake, or harm.
pub(super) const MOST_ENTRIES: u32 = 1 << 24;
pub(super) const MOST_PROCESSES: u32 = 1 << 10;

/// The numbers from which all places follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) entries: u32,
    pub(super) processes: u32,
    /// Bytes of the file that entries point into.
    pub(super) data_bytes: u64,
    /// Processes know each other by numbers and times of these namespaces.
    pub(super) namespace: u64,
}

impl Layout {
    /// Bytes of the whole table, whole pages.
    pub(super) fn bytes(&self) -> usize {
        let words = PROCESSES_AT
            + self.processes as usize * PROCESS_WORDS
            + self.entries as usize * ENTRY_WORDS;
        let pins = self.processes as usize * self.row();
        (words * 8 + pins * 4).next_multiple_of(1 << crate::sys::PAGE)
    }

    /// Counts in a row: whole cache lines, so that no two processes write to one.
    fn row(&self) -> usize {
        (self.entries as usize).next_multiple_of(16)
    }

    fn check(&self) -> u64 {
        let Layout { entries, processes, data_bytes, namespace } = *self;
        words::mix(&[MAGIC, u64::from(entries), u64::from(processes), data_bytes, namespace])
    }

    fn constants(&self) -> [u64; CONSTANTS] {
        let Layout { entries, processes, data_bytes, namespace } = *self;
        let counts = [u64::from(entries), u64::from(processes)];
        [MAGIC, counts[0], counts[1], data_bytes, namespace, self.check()]
    }

    /// Whether a table may have these numbers.
    pub(super) fn is_sensible(&self) -> bool {
        (1..=MOST_ENTRIES).contains(&self.entries)
            && (1..=MOST_PROCESSES).contains(&self.processes)
            && (1..words::LIMIT).contains(&self.data_bytes)
    }

    /// Writes the header of a new table.
    pub(super) fn write(&self, table: &Mapping) {
        for (at, word) in self.constants().into_iter().enumerate() {
            // Who reads it gets the file later, from us.
            table.word(at).store(word, Ordering::Relaxed);
        }
    }

    /// Reads the header once; nothing of it is read again. `bytes` is the size of the file.
    pub(super) fn read(table: &Mapping, bytes: usize) -> Result<Layout, SharedError> {
        if bytes < PROCESSES_AT * 8 {
            return Err(SharedError::NotATable);
        }
        let word = |at| table.word(at).load(Ordering::Relaxed);
        if word(0) != MAGIC {
            return Err(SharedError::NotATable);
        }
        let narrow = |at| u32::try_from(word(at)).map_err(|_| SharedError::NotATable);
        let layout = Layout {
            entries: narrow(1)?,
            processes: narrow(2)?,
            data_bytes: word(3),
            namespace: word(4),
        };
        let fits = layout.is_sensible() && word(5) == layout.check() && bytes == layout.bytes();
        if fits { Ok(layout) } else { Err(SharedError::NotATable) }
    }

    /// Who is attached as `process`.
    pub(super) fn identity(self, table: &Mapping, process: u32) -> &AtomicU64 {
        assert!(process < self.processes, "process {process} is none of the table");
        table.word(PROCESSES_AT + process as usize * PROCESS_WORDS)
    }

    fn entry(&self, entry: u32) -> usize {
        assert!(entry < self.entries, "entry {entry} is none of the table");
        let processes = self.processes as usize * PROCESS_WORDS;
        PROCESSES_AT + processes + entry as usize * ENTRY_WORDS
    }

    pub(super) fn state(self, table: &Mapping, entry: u32) -> &AtomicU64 {
        table.word(self.entry(entry))
    }

    pub(super) fn offset(self, table: &Mapping, entry: u32) -> &AtomicU64 {
        table.word(self.entry(entry) + 1)
    }

    pub(super) fn length(self, table: &Mapping, entry: u32) -> &AtomicU64 {
        table.word(self.entry(entry) + 2)
    }

    /// Where the pins of `process` stand in the file.
    pub(super) fn row_bytes(self, process: u32) -> Range<usize> {
        assert!(process < self.processes, "process {process} is none of the table");
        let start = (self.rows() * 2 + process as usize * self.row()) * 4;
        start..start + self.row() * 4
    }

    /// The word with which the rows begin.
    fn rows(&self) -> usize {
        let entries = self.entries as usize * ENTRY_WORDS;
        PROCESSES_AT + self.processes as usize * PROCESS_WORDS + entries
    }

    /// How often `process` has pinned `entry`.
    pub(super) fn pins(self, table: &Mapping, process: u32, entry: u32) -> &AtomicU32 {
        assert!(process < self.processes, "process {process} is none of the table");
        assert!(entry < self.entries, "entry {entry} is none of the table");
        table.half(self.rows() * 2 + process as usize * self.row() + entry as usize)
    }

    /// The words of a mover's intent: which entry, from where, to where, how far.
    pub(super) fn intent(self, table: &Mapping) -> [&AtomicU64; 4] {
        [0, 1, 2, 3].map(|at| table.word(INTENT + at))
    }
}
