//! The body of a chunk of events: the events of one CPU in one stretch of time, as columns.
//!
//! Three columns have a value for each event, in the order in which the CPU traced them: its kind, its time, its
//! process. Each field of each kind has a column with a value for each event of that kind. So the order of events is
//! kept exactly, those of one time included; a kind costs nothing where it does not occur; and the further kinds or
//! fields of a later version can be skipped.

use std::io;

use super::column::{ColumnId, Damaged, Packer, Shape, Unpacker, columns, fill};
use super::layout::MAX_EVENTS;
use crate::trace::{Event, EventKind, FieldClass, Loss, MAX_FIELDS};

const KINDS_OF_EVENTS: ColumnId = ColumnId { owner: 0, field: 0 };
const TIMES: ColumnId = ColumnId { owner: 0, field: 1 };
const PROCESSES: ColumnId = ColumnId { owner: 0, field: 2 };

fn field_id(kind: EventKind, field: usize) -> ColumnId {
    ColumnId { owner: kind as u8 + 1, field: field as u8 }
}

fn shape(class: FieldClass) -> Shape {
    match class {
        FieldClass::Pfn | FieldClass::Address => Shape::Near,
        FieldClass::Few => Shape::Few,
        FieldClass::Number => Shape::Any,
    }
}

/// Events that wait for a chunk, already as columns.
pub(super) struct Rows {
    kinds: Vec<u64>,
    times: Vec<u64>,
    processes: Vec<u64>,
    /// The values of fields, by the number of the kind, then by field.
    fields: Vec<[Vec<u64>; MAX_FIELDS]>,
}

impl Rows {
    pub(super) fn new() -> Rows {
        let fields = (0..EventKind::COUNT).map(|_| std::array::from_fn(|_| Vec::new())).collect();
        Rows { kinds: Vec::new(), times: Vec::new(), processes: Vec::new(), fields }
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Returns the time of the first event.
    pub(super) fn first(&self) -> Option<u64> {
        self.times.first().copied()
    }

    pub(super) fn push(&mut self, event: &Event) {
        self.kinds.push(event.kind as u64);
        self.times.push(event.at);
        self.processes.push(u64::from(event.pid as u32));
        let count = event.kind.fields().len();
        for (column, &value) in
            self.fields[event.kind as usize].iter_mut().zip(&event.values[..count])
        {
            column.push(value);
        }
    }

    pub(super) fn clear(&mut self) {
        self.kinds.clear();
        self.times.clear();
        self.processes.clear();
        self.fields.iter_mut().flatten().for_each(Vec::clear);
    }

    /// Appends the body of a chunk with these events; appends nothing if there are none.
    pub(super) fn pack(&self, packer: &mut Packer, body: &mut Vec<u8>) -> io::Result<()> {
        if self.kinds.is_empty() {
            return Ok(());
        }
        packer.column(KINDS_OF_EVENTS, Shape::Few, &self.kinds, body)?;
        packer.column(TIMES, Shape::Near, &self.times, body)?;
        packer.column(PROCESSES, Shape::Few, &self.processes, body)?;
        for (number, columns) in self.fields.iter().enumerate() {
            let kind =
                EventKind::from_number(number).expect("there is a set of columns for each kind");
            for (field, values) in
                columns.iter().enumerate().filter(|(_, values)| !values.is_empty())
            {
                packer.column(
                    field_id(kind, field),
                    shape(kind.fields()[field].class),
                    values,
                    body,
                )?;
            }
        }
        Ok(())
    }
}

/// The columns of a kind in a chunk.
#[derive(Default)]
struct KindRows {
    columns: [Vec<u64>; MAX_FIELDS],
    /// Number of the kind's events that were taken.
    next: usize,
}

/// A chunk of events that is being read.
pub(super) struct Block {
    cpu: u16,
    kinds: Vec<u64>,
    times: Vec<u64>,
    processes: Vec<u64>,
    rows: Vec<KindRows>,
    next: usize,
}

impl Block {
    pub(super) fn new(cpu: u16) -> Block {
        let rows = (0..EventKind::COUNT).map(|_| KindRows::default()).collect();
        Block { cpu, kinds: Vec::new(), times: Vec::new(), processes: Vec::new(), rows, next: 0 }
    }

    /// Replaces the columns by those of a body with `count` events.
    pub(super) fn load(
        &mut self,
        count: u32,
        body: &[u8],
        unpacker: &mut Unpacker,
    ) -> Result<(), Damaged> {
        self.clear();
        let loaded = self.unpack(count, body, unpacker);
        if loaded.is_err() {
            self.clear();
        }
        loaded
    }

    fn clear(&mut self) {
        self.next = 0;
        self.kinds.clear();
        self.times.clear();
        self.processes.clear();
        for row in &mut self.rows {
            row.next = 0;
            row.columns.iter_mut().for_each(Vec::clear);
        }
    }

    fn unpack(&mut self, count: u32, body: &[u8], unpacker: &mut Unpacker) -> Result<(), Damaged> {
        if count > MAX_EVENTS {
            return Err(Damaged);
        }
        let all = count as usize;
        let mut counts = [0_usize; EventKind::COUNT];
        for column in columns(body) {
            let column = column?;
            match column.id {
                KINDS_OF_EVENTS => {
                    unpacker.column(&column, all, &mut self.kinds)?;
                    counts = counted(&self.kinds);
                    self.give_back(&counts);
                }
                TIMES => unpacker.column(&column, all, &mut self.times)?,
                PROCESSES => unpacker.column(&column, all, &mut self.processes)?,
                ColumnId { owner: 0, .. } => {}
                ColumnId { owner, field } => {
                    let Some(kind) = EventKind::from_number(usize::from(owner) - 1) else {
                        continue;
                    };
                    if usize::from(field) < kind.fields().len() {
                        let values = &mut self.rows[kind as usize].columns[usize::from(field)];
                        unpacker.column(&column, counts[kind as usize], values)?;
                    }
                }
            }
        }
        if self.kinds.len() != all || self.times.len() != all || self.processes.len() != all {
            return Err(Damaged);
        }
        // A field that the writer did not know is 0.
        for (row, count) in self.rows.iter_mut().zip(counts) {
            for values in row.columns.iter_mut().filter(|values| values.len() != count) {
                values.clear();
                fill(values, count, 0)?;
            }
        }
        Ok(())
    }

    /// Frees columns of earlier chunks that have far more room than this chunk needs: else a file could have each kind
    /// by turns, and hold the memory of all.
    fn give_back(&mut self, counts: &[usize; EventKind::COUNT]) {
        const FEW: usize = 64;
        for (row, &count) in self.rows.iter_mut().zip(counts) {
            let large = row.columns.iter_mut().filter(|values| values.capacity() > 2 * count + FEW);
            large.for_each(|values| *values = Vec::new());
        }
    }

    /// Appends up to `limit` of the chunk's events in their order; events of kinds that only a later version knows are
    /// counted in `loss` as unreadable.
    pub(super) fn take(&mut self, limit: usize, into: &mut Vec<Event>, loss: &mut Loss) {
        let to = self.kinds.len().min(self.next.saturating_add(limit));
        for at in self.next..to {
            let Some(kind) = EventKind::from_number(self.kinds[at] as usize) else {
                loss.unreadable += 1;
                continue;
            };
            let row = &mut self.rows[kind as usize];
            let mut values = [0; MAX_FIELDS];
            for (value, column) in values.iter_mut().zip(&row.columns[..kind.fields().len()]) {
                *value = column[row.next];
            }
            row.next += 1;
            if kind == EventKind::Lost {
                loss.gaps += 1;
                loss.events = loss.events.saturating_add(values[0]);
            }
            let pid = self.processes[at] as u32 as i32;
            into.push(Event { at: self.times[at], pid, cpu: self.cpu, kind, values });
        }
        self.next = to;
    }

    /// Returns true if all events of the chunk were taken.
    pub(super) fn is_spent(&self) -> bool {
        self.next == self.kinds.len()
    }
}

/// Returns the number of events of each known kind.
fn counted(kinds: &[u64]) -> [usize; EventKind::COUNT] {
    let mut counts = [0; EventKind::COUNT];
    for &number in kinds {
        if let Some(count) = usize::try_from(number).ok().and_then(|number| counts.get_mut(number))
        {
            *count += 1;
        }
    }
    counts
}
