//! Reads a recording, whole or cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::SeekFrom;

use super::column::Unpacker;
use super::events::Block;
use super::layout::{
    BadHead, CHUNK_HEAD, CHUNK_MAGIC, ChunkHead, ChunkType, FILE_HEAD, FOOTER, MAJOR,
    check_file_head, parse_footer,
};
use super::parts::{
    Ending, Entry, LONGEST_JSON, Unpacked, unpack_ending, unpack_index, unpack_meta,
    unpack_snapshot,
};
use crate::budget::{Budget, Needs, Room};
use crate::finding::bytes_text;
use crate::lists::grow;
use crate::trace::{
    BATCH, Event, EventKind, EventSource, Loss, MAX_FIELDS, Merged, Moment, Trace, TraceError,
    TraceMeta,
};

/// Most CPUs whose events are read side by side: Linux on x86-64 supports no more.
const MOST_CPUS: usize = 8192;

/// Most damaged parts that are listed one by one.
const TOLD: usize = 16;

/// The bytes of a recording.
enum Store {
    File(File, u64),
    Bytes(Vec<u8>),
}

impl Store {
    fn length(&self) -> u64 {
        match self {
            Store::File(_, length) => *length,
            Store::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Reads the bytes in a range; fails if it reaches beyond the end. The range is checked before memory is taken.
    fn read(&self, from: u64, count: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let beyond = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let to = from.checked_add(count).filter(|&to| to <= self.length()).ok_or_else(beyond)?;
        into.clear();
        let room = usize::try_from(count).map_err(io::Error::other)?;
        let no_memory = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        match self {
            Store::File(file, _) => {
                grow(into, room, 0).map_err(no_memory)?;
                file.read_exact_at(into, from)
            }
            Store::Bytes(bytes) => {
                into.try_reserve_exact(room).map_err(no_memory)?;
                into.extend_from_slice(&bytes[from as usize..to as usize]);
                Ok(())
            }
        }
    }
}

impl Store {
    /// Returns the offset of the next bytes that a sparse file has, from `at` on; `at` itself where the system cannot
    /// tell.
    fn next_data(&self, at: u64) -> u64 {
        match self {
            Store::File(file, length) => match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(rustix::io::Errno::NXIO) => *length,
                Err(_) => at,
            },
            Store::Bytes(_) => at,
        }
    }
}

/// Bytes of a recording that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    from: u64,
    to: u64,
}

/// An opened recording. Events are read when they are asked for.
pub struct Recording {
    path: PathBuf,
    store: Arc<Store>,
    meta: TraceMeta,
    ending: Option<Ending>,
    /// The chunks of events, in the order of the file.
    events: Vec<Entry>,
    sizes: Sizes,
    /// Offsets at which a chunk's head should begin and none was found: the CPU of the events there is unknown.
    unknown: Vec<u64>,
    holes: Vec<Hole>,
    budget: Budget,
    /// The remainder of the budget after the snapshots and the list of chunks.
    room: Room,
    /// Files of snapshots, and whole snapshots, for which the budget did not suffice.
    left_out: Vec<String>,
}

/// The sizes of a recording's parts, in bytes, and two counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sizes {
    /// Bytes of the whole file.
    pub file: u64,
    /// Bytes of the chunks of events, with their heads.
    pub events: u64,
    /// Bytes of the snapshots.
    pub snapshots: u64,
    /// Number of chunks of events.
    pub chunks: u64,
    /// Number of events by the heads of these chunks.
    pub count: u64,
}

impl Recording {
    /// Opens a recording. One that was cut off opens up to its last whole chunk, one that is damaged without the
    /// damaged chunks; the missing parts are named in `missing` of [`meta`](Self::meta), and so are parts that need
    /// more than [`Budget::of_file`].
    ///
    /// # Errors
    /// [`TraceError`] if the file cannot be read, is not a recording, or is of a later major version.
    pub fn open(path: &Path) -> Result<Recording, TraceError> {
        let file = File::open(path).map_err(TraceError::file(path))?;
        let budget = Budget::of_file(&file).map_err(TraceError::file(path))?;
        Recording::from_file(file, path, budget)
    }

    /// Opens a recording as [`open`](Self::open) does, with the caller's budget.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_within(path: &Path, budget: Budget) -> Result<Recording, TraceError> {
        Recording::from_file(File::open(path).map_err(TraceError::file(path))?, path, budget)
    }

    fn from_file(file: File, path: &Path, budget: Budget) -> Result<Recording, TraceError> {
        let length = file.metadata().map_err(TraceError::file(path))?.len();
        Recording::from_store(Store::File(file, length), path, budget)
    }

    /// Opens a recording as [`open`](Self::open) does, from bytes in memory; `name` stands for the path in messages.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn from_bytes(bytes: Vec<u8>, name: &Path) -> Result<Recording, TraceError> {
        let budget = Budget::of_length(bytes.len() as u64);
        Recording::from_store(Store::Bytes(bytes), name, budget)
    }

    /// Returns true if a file that begins with these bytes is a recording, of any version.
    #[must_use]
    pub fn is_one(first: &[u8]) -> bool {
        check_file_head(first) != Err(BadHead::Foreign)
    }

    fn from_store(store: Store, path: &Path, budget: Budget) -> Result<Recording, TraceError> {
        let mut bytes = Vec::new();
        let head = store.length().min(FILE_HEAD as u64);
        store.read(0, head, &mut bytes).map_err(TraceError::file(path))?;
        check_file_head(&bytes).map_err(|bad| refusal(bad, path))?;
        let indexed = from_index(&store, &mut bytes, &budget);
        let (entries, holes) = match indexed {
            Some(entries) => (entries, Vec::new()),
            None => scan(&store, &budget).map_err(|stopped| match stopped {
                Stopped::Read(cause) => TraceError::file(path)(cause),
                Stopped::Needs(needs) => budget.refuse(path, needs),
            })?,
        };
        let listed = entries.len() as u64 * BYTES_OF_ENTRY;
        let mut room = Room::new(path, budget);
        room.take(listed)?;
        let mut recording = Recording {
            path: path.to_owned(),
            store: Arc::new(store),
            meta: TraceMeta::default(),
            ending: None,
            events: Vec::new(),
            sizes: Sizes::default(),
            unknown: holes.iter().map(|hole: &Hole| hole.from).collect(),
            holes,
            budget,
            room,
            left_out: Vec::new(),
        };
        recording.sizes.file = recording.store.length();
        for entry in entries {
            recording.take(entry, &mut bytes).map_err(TraceError::file(path))?;
        }
        recording.meta.snapshots.sort_by_key(|taken| match taken.moment {
            Moment::Before => (0, 0),
            Moment::During { begin, .. } => (1, begin),
            Moment::After => (2, 0),
        });
        // A recorder that was killed early did not know the release: the snapshot at its start does.
        if recording.meta.release.is_none() {
            recording.meta.release = recording.meta.start().and_then(|taken| taken.files.release());
        }
        let missing = recording.missing();
        recording.meta.missing.extend(missing);
        Ok(recording)
    }

    /// Adds one chunk to the recording's parts; a chunk without events is read at once.
    fn take(&mut self, entry: Entry, bytes: &mut Vec<u8>) -> io::Result<()> {
        let whole = CHUNK_HEAD as u64 + entry.head.length;
        match entry.head.kind {
            ChunkType::Events => {
                self.sizes.events += whole;
                self.sizes.chunks += 1;
                self.sizes.count += u64::from(entry.head.count);
                self.events.push(entry);
                return Ok(());
            }
            ChunkType::Index | ChunkType::Unknown(_) => return Ok(()),
            ChunkType::Snapshot => self.sizes.snapshots += whole,
            ChunkType::Meta | ChunkType::End => {}
        }
        if !self.take_known(entry, bytes)? {
            self.holes.push(Hole { from: entry.offset, to: entry.offset + whole });
        }
        Ok(())
    }

    /// Reads a chunk without events; returns `false` if it is damaged.
    fn take_known(&mut self, entry: Entry, bytes: &mut Vec<u8>) -> io::Result<bool> {
        let ChunkHead { kind, length, .. } = entry.head;
        let is_snapshot = kind == ChunkType::Snapshot;
        if is_snapshot && self.room.take(length).is_err() {
            self.left_out.push(format!("a snapshot of {}", bytes_text(length)));
            return Ok(true);
        }
        if !is_snapshot && length > LONGEST_JSON || !read_body(&self.store, &entry, bytes)? {
            return Ok(false);
        }
        Ok(match kind {
            ChunkType::Meta => unpack_meta(bytes).map(|meta| {
                let snapshots = std::mem::take(&mut self.meta.snapshots);
                self.meta = TraceMeta { snapshots, ..meta };
            }),
            ChunkType::Snapshot => {
                let unpacked = unpack_snapshot(std::mem::take(bytes), &mut self.room);
                unpacked.map(|Unpacked { taken, left_out }| {
                    self.meta.snapshots.push(taken);
                    self.left_out.extend(left_out);
                })
            }
            _ => unpack_ending(bytes).map(|ending| self.ending = Some(ending)),
        }
        .is_some())
    }

    /// Returns the facts about the trace beside its events.
    #[must_use]
    pub fn meta(&self) -> &TraceMeta {
        &self.meta
    }

    /// Returns the facts that were written when the recording ended; `None` if it was cut off.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Returns the sizes of the parts of the recording.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Returns for each CPU the time up to which its events are there, by the heads of its chunks; `None` for a CPU
    /// without chunks.
    #[must_use]
    pub fn reaches(&self) -> Vec<(u16, Option<u64>)> {
        let mut cpus: BTreeMap<u16, Option<u64>> =
            self.meta.cpus.iter().map(|&cpu| (cpu, None)).collect();
        for ChunkHead { cpu, until, .. } in self.events.iter().map(|entry| entry.head) {
            let reach = cpus.entry(cpu).or_default();
            *reach = (*reach).max(Some(until));
        }
        cpus.into_iter().collect()
    }

    /// Returns the time up to which a recording that was cut off has the events of all CPUs; `None` if it lacks a CPU
    /// altogether.
    #[must_use]
    pub fn complete_until(&self) -> Option<u64> {
        self.reaches().into_iter().map(|(_, until)| until).min().flatten()
    }

    /// Returns sentences on the parts that the recording lacks.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if self.ending.is_none() {
            let until = match self.complete_until() {
                Some(until) => format!(
                    "the events of all CPUs are there up to {}.{:09} s of its clock",
                    until / 1_000_000_000,
                    until % 1_000_000_000
                ),
                None => "of at least one CPU there is no event".to_owned(),
            };
            missing.push(format!("the recording was cut off before its end: {until}"));
        }
        for hole in self.holes.iter().take(TOLD) {
            missing.push(format!(
                "bytes {} to {} of the file are damaged and left out",
                hole.from, hole.to
            ));
        }
        if self.holes.len() > TOLD {
            let more = self.holes.len() - TOLD;
            missing.push(format!("{more} more parts of the file are damaged and left out"));
        }
        if !self.left_out.is_empty() {
            let told: Vec<&str> = self.left_out.iter().take(TOLD).map(String::as_str).collect();
            missing.push(format!(
                "{} files of snapshots are left out ({}): with the others they would unpack to more than {}, which is \
                 what this recording may take; `--budget GIB` allows more",
                self.left_out.len(),
                told.join(", "),
                bytes_text(self.budget.bytes)
            ));
        }
        missing
    }

    /// Returns the events, in time order. Memory: a chunk of each CPU.
    ///
    /// # Errors
    /// [`TraceError::File`] without memory for decompression, [`TraceError::Budget`] where the heads of the chunks
    /// announce more than the budget has, [`TraceError::Unsupported`] with more CPUs than any host has.
    pub fn events(&self) -> Result<Box<dyn EventSource>, TraceError> {
        self.left()?;
        let reaches = self.reaches();
        let last = reaches.iter().filter_map(|&(_, until)| until).max();
        let mut parts = self.parts();
        let unpacker = Unpacker::new().map_err(TraceError::file(&self.path))?;
        let unpacker = Arc::new(Mutex::new(unpacker));
        let mut streams = Vec::new();
        for (cpu, until) in reaches {
            let Some(mut parts) = parts.remove(&cpu) else { continue };
            // Where a file was cut off, CPUs end at different times: the missing events are lost.
            if self.ending.is_none() && until < last {
                parts.extend(until.map(Part::Gap));
            }
            streams.push(CpuSource {
                path: self.path.clone(),
                store: Arc::clone(&self.store),
                parts: parts.into_iter(),
                block: Block::new(cpu),
                unpacker: Arc::clone(&unpacker),
                body: Vec::new(),
                cpu,
                loss: Loss::default(),
            });
        }
        let known = self.ending.clone().unwrap_or_default();
        let holes = self.holes.len() as u64;
        Ok(Box::new(Whole { events: Merged::new(streams), stated: self.sizes.count, known, holes }))
    }

    /// Returns the remainder of the budget when a chunk of events of each CPU is held, the largest by the heads of all
    /// chunks.
    fn left(&self) -> Result<Room, TraceError> {
        if self.sizes.count > self.budget.events {
            return Err(self.budget.refuse(&self.path, Needs::Events(self.sizes.count)));
        }
        let mut cpus: BTreeMap<u16, Largest> = BTreeMap::new();
        for head in self.events.iter().map(|entry| entry.head) {
            let largest = cpus.entry(head.cpu).or_default();
            largest.count = largest.count.max(u64::from(head.count));
            largest.body = largest.body.max(head.length.min(most_body(head.count)));
            largest.all = largest.all.saturating_add(u64::from(head.count));
        }
        if cpus.len() > MOST_CPUS {
            return Err(TraceError::Unsupported {
                path: self.path.clone(),
                what: format!("chunks of {} CPUs: {MOST_CPUS} are the most", cpus.len()),
            });
        }
        let needs = cpus.values().map(Largest::bytes).fold(0, u64::saturating_add);
        let mut room = self.room.clone();
        room.take(needs)?;
        Ok(room)
    }

    /// Returns the chunks of each CPU in the order of the file, with the gaps between them.
    ///
    /// The CPU of a part without a head is unknown. So the part becomes a gap of the CPU whose known events end
    /// earliest before that part, from their end on: no missing event was earlier.
    fn parts(&self) -> BTreeMap<u16, Vec<Part>> {
        let mut parts: BTreeMap<u16, Vec<Part>> = BTreeMap::new();
        let mut known: BTreeMap<u16, u64> = BTreeMap::new();
        for ChunkHead { cpu, first, .. } in self.events.iter().map(|entry| entry.head) {
            known.entry(cpu).or_insert(first);
        }
        let mut least: BTreeSet<(u64, u16)> = known.iter().map(|(&cpu, &to)| (to, cpu)).collect();
        let gap = |least: &BTreeSet<(u64, u16)>, parts: &mut BTreeMap<u16, Vec<Part>>| {
            if let Some(&(to, cpu)) = least.first() {
                parts.entry(cpu).or_default().push(Part::Gap(to));
            }
        };
        let mut unknown = self.unknown.iter().peekable();
        for entry in &self.events {
            while unknown.next_if(|&&from| from < entry.offset).is_some() {
                gap(&least, &mut parts);
            }
            let ChunkHead { cpu, until, .. } = entry.head;
            parts.entry(cpu).or_default().push(Part::Chunk(*entry));
            let to = known.entry(cpu).or_default();
            least.remove(&(*to, cpu));
            *to = (*to).max(until);
            least.insert((*to, cpu));
        }
        unknown.for_each(|_| gap(&least, &mut parts));
        parts
    }
}

impl TryFrom<Recording> for Trace {
    type Error = TraceError;

    fn try_from(recording: Recording) -> Result<Trace, TraceError> {
        let (events, room) = (recording.events()?, recording.left()?);
        Ok(Trace { meta: recording.meta, events, room })
    }
}

/// Bytes of a chunk's entry in three lists: as found, of its CPU, and while these grow.
const BYTES_OF_ENTRY: u64 = 4 * size_of::<Entry>() as u64;

/// Returns the most bytes of a body of `count` events: eight for each value, with room for kinds and fields of later
/// versions.
fn most_body(count: u32) -> u64 {
    (1 << 20) + 256 * u64::from(count)
}

/// The largest number of events and the longest body among the chunks of a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Largest {
    count: u64,
    body: u64,
    /// Number of events in all chunks of the CPU.
    all: u64,
}

impl Largest {
    /// Returns the bytes that reading the chunks of this CPU one by one holds: a body, its columns, and events on their
    /// way.
    fn bytes(&self) -> u64 {
        const STREAM: u64 = 16 << 10;
        let waiting = self.all.min(2 * BATCH as u64) * size_of::<Event>() as u64;
        let columns = self.count * 8 * (3 + 2 * MAX_FIELDS as u64);
        STREAM.saturating_add(self.body).saturating_add(columns).saturating_add(waiting)
    }
}

/// A part of a CPU's events.
#[derive(Clone, Copy, Debug)]
enum Part {
    Chunk(Entry),
    /// Events are missing from this time on.
    Gap(u64),
}

/// Returns the error for a file whose first bytes have this defect.
fn refusal(bad: BadHead, path: &Path) -> TraceError {
    match bad {
        BadHead::Foreign => TraceError::Unknown(path.to_owned()),
        BadHead::Damaged => TraceError::Corrupt {
            path: path.to_owned(),
            what: "its first 16 bytes are damaged, so its version cannot be known".to_owned(),
        },
        BadHead::Major(major) => {
            TraceError::Version { path: path.to_owned(), found: major, known: MAJOR }
        }
    }
}

/// Returns the chunks that the index lists; `None` without a sound index.
fn from_index(store: &Store, bytes: &mut Vec<u8>, budget: &Budget) -> Option<Vec<Entry>> {
    let at = store.length().checked_sub(FOOTER as u64)?;
    store.read(at, FOOTER as u64, bytes).ok()?;
    let offset = parse_footer(bytes[..].try_into().ok()?)?;
    let head = read_head(store, offset, bytes)?;
    // An index too long for the budget is left alone: the search finds its head, and refuses it there.
    let is_index = head.kind == ChunkType::Index && head.length <= budget.bytes / 4;
    if !is_index || !read_body(store, &Entry { offset, head }, bytes).ok()? {
        return None;
    }
    let entries = unpack_index(bytes)?;
    let mut free = FILE_HEAD as u64;
    for entry in &entries {
        let behind = entry.offset.checked_add(CHUNK_HEAD as u64)?.checked_add(entry.head.length)?;
        if entry.offset < free || behind > offset {
            return None;
        }
        free = behind;
    }
    Some(entries)
}

/// The reason why the search for chunks ended.
enum Stopped {
    Read(io::Error),
    Needs(Needs),
}

impl From<io::Error> for Stopped {
    fn from(cause: io::Error) -> Stopped {
        Stopped::Read(cause)
    }
}

/// Finds the chunks by their heads; returns them with the holes between them.
fn scan(store: &Store, budget: &Budget) -> Result<(Vec<Entry>, Vec<Hole>), Stopped> {
    let (mut entries, mut holes, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = FILE_HEAD as u64;
    while at < store.length() {
        let head = read_head(store, at, &mut bytes);
        let behind = head.and_then(|head| {
            let behind = (at + CHUNK_HEAD as u64).checked_add(head.length)?;
            (behind <= store.length()).then_some((head, behind))
        });
        let needs = (entries.len() + holes.len()) as u64 * BYTES_OF_ENTRY;
        if needs > budget.bytes {
            return Err(Stopped::Needs(Needs::Bytes(needs)));
        }
        if let Some((head, behind)) = behind {
            entries.push(Entry { offset: at, head });
            at = behind;
            continue;
        }
        let next = find_head(store, at + 1, &mut bytes, budget)?;
        // Bytes behind the last whole chunk are the sign of a cut, not damage.
        if let Some(next) = next {
            holes.push(Hole { from: at, to: next });
        }
        at = next.unwrap_or(store.length());
    }
    Ok((entries, holes))
}

/// Returns the head of the chunk at an offset, if there is a sound one.
fn read_head(store: &Store, at: u64, bytes: &mut Vec<u8>) -> Option<ChunkHead> {
    store.read(at, CHUNK_HEAD as u64, bytes).ok()?;
    ChunkHead::from_bytes(bytes[..].try_into().ok()?)
}

/// Returns the offset of the next sound head from `at` on. Holes of sparse files are skipped.
fn find_head(
    store: &Store,
    mut at: u64,
    bytes: &mut Vec<u8>,
    budget: &Budget,
) -> Result<Option<u64>, Stopped> {
    const WINDOW: u64 = 1 << 16;
    /// Bytes before the end of a window that are searched again: a magic may begin in the bytes before a hole.
    const BEFORE: u64 = CHUNK_MAGIC.len() as u64 - 1;
    let mut window = Vec::new();
    while at + CHUNK_HEAD as u64 <= store.length() {
        if !budget.has_time() {
            return Err(Stopped::Needs(Needs::Time));
        }
        let count = WINDOW.min(store.length() - at);
        store.read(at, count, &mut window)?;
        for found in memchr::memmem::find_iter(&window, &CHUNK_MAGIC) {
            if read_head(store, at + found as u64, bytes).is_some() {
                return Ok(Some(at + found as u64));
            }
        }
        // A magic that begins in the last three bytes is found in the next window.
        let next = at + count - BEFORE;
        at = next.max(store.next_data(at + count).saturating_sub(BEFORE));
    }
    Ok(None)
}

/// Reads the body of a chunk; returns true if its checksum is right.
fn read_body(store: &Store, entry: &Entry, bytes: &mut Vec<u8>) -> io::Result<bool> {
    store.read(entry.offset + CHUNK_HEAD as u64, entry.head.length, bytes)?;
    Ok(crc32fast::hash(bytes) == entry.head.body_crc)
}

struct CpuSource {
    path: PathBuf,
    store: Arc<Store>,
    parts: std::vec::IntoIter<Part>,
    block: Block,
    /// The one unpacker that all CPUs share.
    unpacker: Arc<Mutex<Unpacker>>,
    body: Vec<u8>,
    cpu: u16,
    loss: Loss,
}

impl CpuSource {
    /// Adds an event at the time `at` that marks `count` lost ones; 0 stands for an unknown number.
    fn lose(&mut self, at: u64, count: u64, into: &mut Vec<Event>) {
        self.loss.gaps += 1;
        self.loss.events = self.loss.events.saturating_add(count);
        let mut values = [0; MAX_FIELDS];
        values[0] = count;
        into.push(Event { at, pid: 0, cpu: self.cpu, kind: EventKind::Lost, values });
    }
}

impl EventSource for CpuSource {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        let before = into.len();
        while into.len() < before + BATCH {
            if !self.block.is_spent() {
                self.block.take(before + BATCH - into.len(), into, &mut self.loss);
                continue;
            }
            let entry = match self.parts.next() {
                Some(Part::Chunk(entry)) => entry,
                Some(Part::Gap(at)) => {
                    self.lose(at, 0, into);
                    continue;
                }
                None => break,
            };
            let ChunkHead { count, first, length, .. } = entry.head;
            let sound = length <= most_body(count)
                && read_body(&self.store, &entry, &mut self.body)
                    .map_err(TraceError::file(&self.path))?;
            if count == 0 && sound {
                continue;
            }
            let mut unpacker = self.unpacker.lock().unwrap_or_else(PoisonError::into_inner);
            let loaded = sound && self.block.load(count, &self.body, &mut unpacker).is_ok();
            drop(unpacker);
            if !loaded {
                self.lose(first, u64::from(count), into);
            }
        }
        Ok(into.len() > before)
    }

    fn loss(&self) -> Loss {
        self.loss
    }
}

/// The events of all CPUs, and the losses that were written at the end.
struct Whole {
    events: Merged<CpuSource>,
    /// Number of events by the heads of the chunks.
    stated: u64,
    known: Ending,
    holes: u64,
}

impl EventSource for Whole {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        self.events.read(into)
    }

    fn stated(&self) -> Option<u64> {
        Some(self.stated)
    }

    fn loss(&self) -> Loss {
        let seen = self.events.loss();
        let counted = self.known.cpus.iter().fold(0_u64, |sum, cpu| sum.saturating_add(cpu.lost()));
        Loss {
            // The gaps between events and the kernel's counters tell of the same losses.
            events: seen.events.max(counted).max(self.known.loss.events),
            gaps: seen.gaps.max(self.known.loss.gaps),
            unreadable: seen
                .unreadable
                .saturating_add(self.known.loss.unreadable)
                .saturating_add(self.holes),
        }
    }
}
