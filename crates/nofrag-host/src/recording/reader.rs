//! Reads a recording, whole or cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::column::Unpacker;
use super::events::Block;
use super::layout::{
    BadHead, CHUNK_HEAD, CHUNK_MAGIC, ChunkHead, ChunkType, FILE_HEAD, FOOTER, MAJOR,
    check_file_head, parse_footer,
};
use super::parts::{
    Ending, Entry, LARGEST_SNAPSHOTS, Unusable, unpack_ending, unpack_index, unpack_meta,
    unpack_snapshot,
};
use crate::trace::{
    BATCH, Event, EventKind, EventSource, Loss, MAX_FIELDS, Merged, Moment, TraceError, TraceMeta,
};

/// Events of so many CPUs are read side by side: Linux on x86-64 has room for no more.
const MOST_CPUS: usize = 8192;

/// The largest chunks of all CPUs have no more events together, which take some 4 GiB: those of 1024 CPUs that are
/// full.
const MOST_EVENTS: u64 = 1 << 26;

/// So many damaged parts are told one by one.
const TOLD: usize = 16;

/// Where the bytes are.
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

    /// The bytes in a range; an error if it reaches beyond the end. The range is checked before memory is taken.
    fn read(&self, from: u64, count: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let beyond = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let to = from.checked_add(count).filter(|&to| to <= self.length()).ok_or_else(beyond)?;
        into.clear();
        match self {
            Store::File(file, _) => {
                into.resize(usize::try_from(count).map_err(io::Error::other)?, 0);
                file.read_exact_at(into, from)
            }
            Store::Bytes(bytes) => {
                into.extend_from_slice(&bytes[from as usize..to as usize]);
                Ok(())
            }
        }
    }
}

/// Bytes of a recording that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    from: u64,
    to: u64,
}

/// A recording that was opened. Events are read when they are asked for.
pub struct Recording {
    path: PathBuf,
    store: Arc<Store>,
    meta: TraceMeta,
    ending: Option<Ending>,
    /// The chunks of events, in the order of the file.
    events: Vec<Entry>,
    sizes: Sizes,
    /// Behind this offset no head was to be found where one belongs: whose events there were nobody knows.
    unknown: Vec<u64>,
    holes: Vec<Hole>,
    /// Bytes to which snapshots may still unpack.
    room: u64,
    /// Snapshots for which there was none left.
    too_large: u64,
}

/// What the bytes of a recording hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Sizes {
    /// The whole file.
    pub file: u64,
    /// Chunks of events, with their heads.
    pub events: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// How many chunks of events there are.
    pub chunks: u64,
    /// How many events they say they hold.
    pub count: u64,
}

impl Recording {
    /// Opens a recording. One that was cut off opens up to its last whole chunk, one that is damaged without the
    /// damaged chunks; [`meta`](Self::meta) says so in `missing`.
    ///
    /// # Errors
    /// [`TraceError`]: it cannot be read, is no recording, or of a later major version.
    pub fn open(path: &Path) -> Result<Recording, TraceError> {
        let file = File::open(path).map_err(TraceError::file(path))?;
        let length = file.metadata().map_err(TraceError::file(path))?.len();
        Recording::from_store(Store::File(file, length), path)
    }

    /// As [`open`](Self::open), from bytes in memory; `name` stands for the path in messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(bytes: Vec<u8>, name: &Path) -> Result<Recording, TraceError> {
        Recording::from_store(Store::Bytes(bytes), name)
    }

    /// Whether a file that begins with these bytes is a recording, of whatever version.
    #[must_use]
    pub fn is_one(first: &[u8]) -> bool {
        check_file_head(first) != Err(BadHead::Foreign)
    }

    fn from_store(store: Store, path: &Path) -> Result<Recording, TraceError> {
        let mut bytes = Vec::new();
        let head = store.length().min(FILE_HEAD as u64);
        store.read(0, head, &mut bytes).map_err(TraceError::file(path))?;
        check_file_head(&bytes).map_err(|bad| refusal(bad, path))?;
        let indexed = from_index(&store, &mut bytes);
        let (entries, holes) = match indexed {
            Some(entries) => (entries, Vec::new()),
            None => scan(&store).map_err(TraceError::file(path))?,
        };
        let mut recording = Recording {
            path: path.to_owned(),
            store: Arc::new(store),
            meta: TraceMeta::default(),
            ending: None,
            events: Vec::new(),
            sizes: Sizes::default(),
            unknown: holes.iter().map(|hole: &Hole| hole.from).collect(),
            holes,
            room: LARGEST_SNAPSHOTS,
            too_large: 0,
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
        let missing = recording.missing();
        recording.meta.missing.extend(missing);
        Ok(recording)
    }

    /// Takes up one chunk.
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
        let sound = read_body(&self.store, &entry, bytes)?;
        let taken = sound.then(|| match entry.head.kind {
            ChunkType::Meta => {
                let snapshots = std::mem::take(&mut self.meta.snapshots);
                unpack_meta(bytes).map(|meta| self.meta = TraceMeta { snapshots, ..meta })
            }
            ChunkType::Snapshot => match unpack_snapshot(bytes, self.room) {
                Ok(taken) => {
                    let bytes = taken.files.iter().map(|(_, bytes)| bytes.len() as u64);
                    self.room = self.room.saturating_sub(bytes.sum());
                    self.meta.snapshots.push(taken);
                    Some(())
                }
                Err(Unusable::TooLarge) => {
                    self.too_large += 1;
                    Some(())
                }
                Err(Unusable::Damaged) => None,
            },
            _ => unpack_ending(bytes).map(|ending| self.ending = Some(ending)),
        });
        if taken.flatten().is_none() {
            self.holes.push(Hole { from: entry.offset, to: entry.offset + whole });
        }
        Ok(())
    }

    /// What is known beside the events.
    #[must_use]
    pub fn meta(&self) -> &TraceMeta {
        &self.meta
    }

    /// What was said when the recording ended; `None` if it was cut off.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// What its bytes hold.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Up to when the events of each CPU are there, as the heads of its chunks say; by CPU.
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

    /// The time up to which a recording that was cut off has the events of all CPUs; `None` if it lacks a CPU
    /// altogether.
    #[must_use]
    pub fn complete_until(&self) -> Option<u64> {
        self.reaches().into_iter().map(|(_, until)| until).min().flatten()
    }

    /// Sentences on what is not there.
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
        if self.too_large > 0 {
            missing.push(format!(
                "{} snapshots are left out: with those before them they would unpack to more than {} GiB",
                self.too_large,
                LARGEST_SNAPSHOTS >> 30
            ));
        }
        missing
    }

    /// The events, in time order. Memory: a chunk of each CPU.
    ///
    /// # Errors
    /// [`TraceError::File`] without memory for decompression, [`TraceError::Unsupported`] where the chunks of all CPUs
    /// are more than memory should be asked for.
    pub fn events(&self) -> Result<Box<dyn EventSource>, TraceError> {
        self.check_bounds()?;
        let reaches = self.reaches();
        let last = reaches.iter().filter_map(|&(_, until)| until).max();
        let mut parts = self.parts();
        let unpacker = Unpacker::new().map_err(TraceError::file(&self.path))?;
        let unpacker = Arc::new(Mutex::new(unpacker));
        let mut streams = Vec::new();
        for (cpu, until) in reaches {
            let Some(mut parts) = parts.remove(&cpu) else { continue };
            // Where a file was cut off, CPUs end at different times: what is missing is lost.
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
        Ok(Box::new(Whole { events: Merged::new(streams), known, holes }))
    }

    /// Whether a chunk of each CPU is no more than memory should be asked for.
    fn check_bounds(&self) -> Result<(), TraceError> {
        let mut largest: BTreeMap<u16, u64> = BTreeMap::new();
        for ChunkHead { cpu, count, .. } in self.events.iter().map(|entry| entry.head) {
            let largest = largest.entry(cpu).or_default();
            *largest = (*largest).max(u64::from(count));
        }
        let (cpus, events) = (largest.len(), largest.values().sum::<u64>());
        if cpus <= MOST_CPUS && events <= MOST_EVENTS {
            return Ok(());
        }
        Err(TraceError::Unsupported {
            path: self.path.clone(),
            what: format!(
                "the chunks of {cpus} CPUs with {events} events side by side: {MOST_CPUS} CPUs and {MOST_EVENTS} \
                 events are the most that it has memory for"
            ),
        })
    }

    /// The chunks of each CPU in the order of the file, with the gaps between them.
    ///
    /// Nobody knows whose events a part without a head had. So it is a gap of the CPU of which the least is known
    /// before that part, from there on: no event that is missing was earlier.
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

/// A part of what a CPU traced.
#[derive(Clone, Copy, Debug)]
enum Part {
    Chunk(Entry),
    /// From this time on events are missing.
    Gap(u64),
}

/// Why a file with such a head is not read.
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

/// The chunks that the index lists; `None` without a sound index.
fn from_index(store: &Store, bytes: &mut Vec<u8>) -> Option<Vec<Entry>> {
    let at = store.length().checked_sub(FOOTER as u64)?;
    store.read(at, FOOTER as u64, bytes).ok()?;
    let offset = parse_footer(bytes[..].try_into().ok()?)?;
    let head = read_head(store, offset, bytes)?;
    if head.kind != ChunkType::Index || !read_body(store, &Entry { offset, head }, bytes).ok()? {
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

/// The chunks that are found by their heads, and what lies between them.
fn scan(store: &Store) -> io::Result<(Vec<Entry>, Vec<Hole>)> {
    let (mut entries, mut holes, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = FILE_HEAD as u64;
    while at < store.length() {
        let head = read_head(store, at, &mut bytes);
        let behind = head.and_then(|head| {
            let behind = (at + CHUNK_HEAD as u64).checked_add(head.length)?;
            (behind <= store.length()).then_some((head, behind))
        });
        if let Some((head, behind)) = behind {
            entries.push(Entry { offset: at, head });
            at = behind;
            continue;
        }
        let next = find_head(store, at + 1, &mut bytes)?;
        // What follows the last whole chunk is how a cut looks, no damage.
        if let Some(next) = next {
            holes.push(Hole { from: at, to: next });
        }
        at = next.unwrap_or(store.length());
    }
    Ok((entries, holes))
}

/// The head at an offset, if there is a sound one.
fn read_head(store: &Store, at: u64, bytes: &mut Vec<u8>) -> Option<ChunkHead> {
    store.read(at, CHUNK_HEAD as u64, bytes).ok()?;
    ChunkHead::from_bytes(bytes[..].try_into().ok()?)
}

/// The offset of the next sound head from `at` on.
fn find_head(store: &Store, mut at: u64, bytes: &mut Vec<u8>) -> io::Result<Option<u64>> {
    const WINDOW: u64 = 1 << 16;
    let mut window = Vec::new();
    while at + CHUNK_HEAD as u64 <= store.length() {
        let count = WINDOW.min(store.length() - at);
        store.read(at, count, &mut window)?;
        for found in (0..=window.len() - CHUNK_MAGIC.len())
            .filter(|&i| window[i..].starts_with(&CHUNK_MAGIC))
        {
            if read_head(store, at + found as u64, bytes).is_some() {
                return Ok(Some(at + found as u64));
            }
        }
        // A magic that begins in the last three bytes is found in the next window.
        at += count - (CHUNK_MAGIC.len() as u64 - 1);
    }
    Ok(None)
}

/// Reads the body of a chunk; whether its checksum is right.
fn read_body(store: &Store, entry: &Entry, bytes: &mut Vec<u8>) -> io::Result<bool> {
    store.read(entry.offset + CHUNK_HEAD as u64, entry.head.length, bytes)?;
    Ok(crc32fast::hash(bytes) == entry.head.body_crc)
}

/// The events of one CPU.
struct CpuSource {
    path: PathBuf,
    store: Arc<Store>,
    parts: std::vec::IntoIter<Part>,
    block: Block,
    /// That of all CPUs.
    unpacker: Arc<Mutex<Unpacker>>,
    body: Vec<u8>,
    cpu: u16,
    loss: Loss,
}

impl CpuSource {
    /// Says that events are lost here.
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
            let ChunkHead { count, first, .. } = entry.head;
            let sound = read_body(&self.store, &entry, &mut self.body)
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

/// The events of all CPUs, with what is known of their loss beside them.
struct Whole {
    events: Merged<CpuSource>,
    known: Ending,
    holes: u64,
}

impl EventSource for Whole {
    fn read(&mut self, into: &mut Vec<Event>) -> Result<bool, TraceError> {
        self.events.read(into)
    }

    fn loss(&self) -> Loss {
        let seen = self.events.loss();
        let counted = self.known.cpus.iter().fold(0_u64, |sum, cpu| sum.saturating_add(cpu.lost()));
        Loss {
            // Events and the kernel's counters tell of the same losses.
            events: seen.events.max(counted).max(self.known.loss.events),
            gaps: seen.gaps.max(self.known.loss.gaps),
            unreadable: seen
                .unreadable
                .saturating_add(self.known.loss.unreadable)
                .saturating_add(self.holes),
        }
    }
}
