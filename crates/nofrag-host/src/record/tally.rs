//! Counts events while they happen, and keeps none of them.
//!
//! There is no thread for each CPU as in a recording: the caller asks for the counts every second or so, and each call
//! empties the buffers. That suits rare events; frequent ones overflow the buffers between two calls, and
//! [`Tally::lost`] counts the lost ones.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;

use super::Buffer;
use super::error::RecordError;
use super::reader::read_page;
use super::report::KindCount;
use super::rights::{Holder, Opened, Rights, Setup, Tracing};
use super::selection::Selection;
use super::stats;
use super::tracefs::Which;
use crate::trace::{
    Decode, Decoder, EventKind, ExtFragCount, ExtFragCounts, Loss, SUB_BUFFER, page_size,
};

/// Counts events in an instance of the ring buffer that is its own.
///
/// 1. As in a recording, nothing outside the instance is touched, and the instance is removed by [`end`](Tally::end),
///    or when the tally is dropped: on an early return and on a panic.
/// 2. Every event that was not lost is counted once.
#[derive(Debug)]
pub struct Tally {
    /// The open buffers, closed before the instance is removed, which they would keep busy.
    cpus: BTreeMap<u16, File>,
    rights: Box<Rights>,
    decoder: Decoder,
    page: Vec<u8>,
    kinds: Vec<EventKind>,
    counts: [u64; EventKind::COUNT],
    extfrag: ExtFragCounts,
    lost: u64,
    missing: Vec<String>,
}

impl Tally {
    /// Makes an instance and begins to count.
    ///
    /// # Errors
    /// Those of [`RecordError`]; the host is unchanged then.
    pub fn begin(
        which: &Which,
        selection: &Selection,
        buffer: Buffer,
    ) -> Result<Tally, RecordError> {
        let setup = Setup::for_counting(which, selection, buffer);
        let (rights, prepared) = Rights::take(&setup)?;
        let formats = prepared.formats()?;
        let page_bytes = prepared.header_page.as_deref().and_then(page_size);
        #[expect(clippy::disallowed_methods, reason = "at most `LARGEST_SUB_BUFFER`")]
        let page = vec![0; page_bytes.unwrap_or(SUB_BUFFER)];
        let names = formats.iter().map(|(_, format)| &format.name);
        let mut tally = Tally {
            cpus: BTreeMap::new(),
            decoder: Decoder::new(formats.iter().map(|(_, format)| format)),
            page,
            kinds: names.filter_map(|name| EventKind::from_name(name)).collect(),
            counts: [0; EventKind::COUNT],
            extfrag: ExtFragCounts::default(),
            lost: 0,
            missing: prepared.missing,
            rights: Box::new(rights),
        };
        tally.open_cpus()?;
        tally.rights.switch(Tracing::On)?;
        Ok(tally)
    }

    /// Counts the events since the last call.
    ///
    /// # Errors
    /// [`RecordError`] when a buffer cannot be read any more.
    pub fn update(&mut self) -> Result<(), RecordError> {
        self.open_cpus()?;
        let mut events = Vec::new();
        for (&cpu, raw) in &mut self.cpus {
            let decode = Decode { decoder: &self.decoder, cpu };
            while let Some(read) = read_page(raw, &mut self.page)
                .map_err(RecordError::instance(self.rights.path(), "a buffer cannot be read"))?
            {
                events.clear();
                decode.page(&self.page[..read], &mut events, &mut Loss::default());
                for event in &events {
                    self.counts[event.kind as usize] += 1;
                    self.extfrag.count(event);
                }
            }
        }
        let text = |cpu: u16| self.rights.open(&Opened::Stats(cpu)).and_then(io::read_to_string);
        let lost = |&cpu: &u16| Some(stats::parse(cpu, &text(cpu).ok()?).lost());
        self.lost = self.cpus.keys().filter_map(lost).sum();
        Ok(())
    }

    /// Returns the number of events of each counted kind.
    #[must_use]
    pub fn kinds(&self) -> Vec<KindCount> {
        let count = |kind: &EventKind| {
            let row = kind.info();
            KindCount { group: row.group, name: row.name, events: self.counts[*kind as usize] }
        };
        self.kinds.iter().map(count).collect()
    }

    /// Returns the number of external fragmentation events for each pair of requested and taken type.
    #[must_use]
    pub fn extfrag(&self) -> Vec<ExtFragCount> {
        self.extfrag.clone().into_counts()
    }

    /// Returns the number of events that the kernel lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns sentences on the events that were asked for and are not counted.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Switches tracing off and removes the instance.
    ///
    /// # Errors
    /// [`RecordError::Kept`] if the instance cannot be removed.
    pub fn end(self) -> Result<(), RecordError> {
        drop(self.cpus);
        self.rights.end().pop().map_or(Ok(()), |left| Err(RecordError::Kept(left)))
    }

    /// Opens the buffers of CPUs that have none open. A CPU that comes online later gets its buffer then.
    fn open_cpus(&mut self) -> Result<(), RecordError> {
        for cpu in self.rights.cpus()? {
            if let Entry::Vacant(place) = self.cpus.entry(cpu) {
                let raw = self.rights.open(&Opened::Buffer(cpu));
                let what = "the buffer of a CPU cannot be read";
                place.insert(raw.map_err(RecordError::instance(self.rights.path(), what))?);
            }
        }
        Ok(())
    }
}
