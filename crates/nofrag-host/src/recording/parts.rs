//! The bodies of the chunks without events: what is known of the trace, snapshots, the end, the index.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use super::layout::{ChunkHead, HEAD_CONTENT, u32_at, u64_at};
use crate::snapshot::Files;
use crate::trace::{EventKind, KINDS, Loss, Moment, TakenSnapshot, TraceMeta};

/// The level of compression of snapshots: they are written once.
const LEVEL: i32 = 9;
/// All snapshots of a file together unpack to no more bytes: flags and counts of 2 TiB of memory have eight, before and
/// after.
pub(super) const LARGEST_SNAPSHOTS: u64 = 17 << 30;

/// What the kernel says of its buffer of one CPU when the recording ends: the lines of `per_cpu/cpuN/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuStats {
    /// The CPU.
    pub cpu: u16,
    /// Events that are still in the buffer.
    pub entries: u64,
    /// Events that were overwritten before they were read.
    pub overrun: u64,
    /// Events lost because the buffer was busy.
    pub commit_overrun: u64,
    /// Events that found no room.
    pub dropped: u64,
    /// Events that were read.
    pub read: u64,
}

impl CpuStats {
    /// How many events the kernel lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.overrun.saturating_add(self.commit_overrun).saturating_add(self.dropped)
    }
}

/// What is known when a recording ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ending {
    /// What was lost on the way, as the source of the events says.
    pub loss: Loss,
    /// What the kernel says of each CPU's buffer; empty where there was none.
    pub cpus: Vec<CpuStats>,
}

/// A kind as the file describes it, for readers without this program.
#[derive(Serialize)]
struct Described {
    number: u8,
    group: &'static str,
    name: &'static str,
    fields: Vec<&'static str>,
}

#[derive(Serialize)]
struct MetaOut<'a> {
    kinds: Vec<Described>,
    trace: &'a TraceMeta,
}

#[derive(Deserialize)]
struct MetaIn {
    trace: TraceMeta,
}

/// What is known of a trace, without its snapshots, which have chunks of their own.
pub(super) fn pack_meta(meta: &TraceMeta) -> io::Result<Vec<u8>> {
    let meta = TraceMeta { snapshots: Vec::new(), ..meta.clone() };
    let kinds = KINDS.iter().map(|row| Described {
        number: row.kind as u8,
        group: row.group,
        name: row.name,
        fields: row.fields.iter().map(|field| field.name).collect(),
    });
    Ok(serde_json::to_vec(&MetaOut { kinds: kinds.collect(), trace: &meta })?)
}

pub(super) fn unpack_meta(body: &[u8]) -> Option<TraceMeta> {
    let meta: MetaIn = serde_json::from_slice(body).ok()?;
    Some(TraceMeta { snapshots: Vec::new(), ..meta.trace })
}

pub(super) fn pack_ending(ending: &Ending) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(ending)?)
}

pub(super) fn unpack_ending(body: &[u8]) -> Option<Ending> {
    serde_json::from_slice(body).ok()
}

/// What stands before the packed files of a snapshot.
#[derive(Serialize, Deserialize)]
struct SnapshotHead {
    moment: Moment,
    files: Vec<FileHead>,
}

#[derive(Serialize, Deserialize)]
struct FileHead {
    name: String,
    /// Bytes of the file, and of what is packed.
    bytes: u64,
    packed: u64,
}

pub(super) fn pack_snapshot(taken: &TakenSnapshot) -> io::Result<Vec<u8>> {
    let mut files = Vec::new();
    let mut packed = Vec::new();
    for (name, bytes) in taken.files.iter() {
        let frame = zstd::bulk::compress(bytes, LEVEL)?;
        let (bytes, length) = (bytes.len() as u64, frame.len() as u64);
        files.push(FileHead { name: name.to_owned(), bytes, packed: length });
        packed.extend_from_slice(&frame);
    }
    let head = serde_json::to_vec(&SnapshotHead { moment: taken.moment, files })?;
    let length =
        u32::try_from(head.len()).map_err(|_| io::Error::other("a snapshot of too many files"))?;
    let mut body = length.to_le_bytes().to_vec();
    body.extend_from_slice(&head);
    body.extend_from_slice(&packed);
    Ok(body)
}

/// Why a snapshot is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    Damaged,
    /// It says that it unpacks to more than there is room for.
    TooLarge,
}

/// The snapshot in a body, which may unpack to `room` bytes. Memory grows with what is unpacked, never with what a
/// length says.
pub(super) fn unpack_snapshot(body: &[u8], room: u64) -> Result<TakenSnapshot, Unusable> {
    let (head, mut rest) = snapshot_head(body).ok_or(Unusable::Damaged)?;
    let said = head.files.iter().try_fold(0, |sum: u64, file| sum.checked_add(file.bytes));
    if said.is_none_or(|said| said > room) {
        return Err(Unusable::TooLarge);
    }
    let mut files = Files::default();
    for file in head.files {
        let bytes = unpack_file(&file, &mut rest).ok_or(Unusable::Damaged)?;
        files.insert(file.name, bytes);
    }
    let whole = rest.is_empty().then_some(TakenSnapshot { moment: head.moment, files });
    whole.ok_or(Unusable::Damaged)
}

fn snapshot_head(body: &[u8]) -> Option<(SnapshotHead, &[u8])> {
    let (length, rest) = body.split_at_checked(4)?;
    let (head, rest) = rest.split_at_checked(u32_at(length, 0) as usize)?;
    Some((serde_json::from_slice(head).ok()?, rest))
}

/// Takes a file off the front of what is packed.
fn unpack_file(file: &FileHead, rest: &mut &[u8]) -> Option<Vec<u8>> {
    let (packed, after) = rest.split_at_checked(usize::try_from(file.packed).ok()?)?;
    *rest = after;
    let mut bytes = Vec::new();
    zstd::Decoder::new(packed).ok()?.take(file.bytes + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == file.bytes).then_some(bytes)
}

/// Where a chunk begins, and its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) head: ChunkHead,
}

/// An offset and what a head says, without the magic and the checksum: what is found by its magic is no index.
const ENTRY: usize = 8 + HEAD_CONTENT;

pub(super) fn pack_index(entries: &[Entry]) -> Vec<u8> {
    // Bounded: as long as the entries, which are there.
    let mut body = Vec::with_capacity(ENTRY * entries.len());
    for entry in entries {
        body.extend_from_slice(&entry.offset.to_le_bytes());
        body.extend_from_slice(&entry.head.content());
    }
    body
}

pub(super) fn unpack_index(body: &[u8]) -> Option<Vec<Entry>> {
    let (entries, rest) = body.as_chunks::<ENTRY>();
    let entry = |entry: &[u8; ENTRY]| {
        let content = entry[8..].try_into().expect("the rest of the entry");
        Entry { offset: u64_at(entry, 0), head: ChunkHead::from_content(content) }
    };
    rest.is_empty().then(|| entries.iter().map(entry).collect())
}

/// The number of a kind is part of the format.
const _: () = assert!(EventKind::COUNT <= 255, "a column's owner is a byte");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_has_the_room_that_it_says_it_needs_or_is_left_out() {
        let mut files = Files::default();
        files.insert("kpageflags", vec![0; 1000]);
        files.insert("version", vec![7; 24]);
        let taken = TakenSnapshot { moment: Moment::After, files };
        let body = pack_snapshot(&taken).unwrap();
        assert_eq!(unpack_snapshot(&body, 1024), Ok(taken));
        assert_eq!(unpack_snapshot(&body, 1023), Err(Unusable::TooLarge));
        assert_eq!(unpack_snapshot(&body[..body.len() - 1], 1024), Err(Unusable::Damaged));
    }
}
