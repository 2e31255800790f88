//! The bodies of the chunks without events: facts about the trace, snapshots, the end, the index.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::layout::{ChunkHead, HEAD_CONTENT, u32_at, u64_at};
use crate::budget::Room;
use crate::snapshot::{Files, Packed};
use crate::trace::{EventKind, KINDS, Loss, Moment, TakenSnapshot, TraceMeta};

/// Level of compression of snapshots in a copy: a high one, since it is written once. The flags of 6.55 million frames
/// take 2.87 MB and, on one core of a machine with Linux 6.18, 0.9 s.
pub(super) const LEVEL_OF_COPY: i32 = 9;
/// Level of compression of snapshots while the host is traced: the same flags take 3.69 MB and 0.14 s; level 6 takes
/// 3.00 MB and 0.65 s.
pub(super) const LEVEL_LIVE: i32 = 3;
/// Bytes of the longest body of JSON: the formats of a whole kernel and the names of a hundred thousand processes are
/// less than half of it.
pub(super) const LONGEST_JSON: u64 = 16 << 20;

/// The kernel's counters of one CPU's buffer when the recording ends: the lines of `per_cpu/cpuN/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuStats {
    pub cpu: u16,
    /// Events that are still in the buffer.
    pub entries: u64,
    /// Events that were overwritten before they were read.
    pub overrun: u64,
    /// Events that were lost because the buffer was busy.
    pub commit_overrun: u64,
    /// Events that found no room.
    pub dropped: u64,
    /// Events that a reader has taken from the buffer.
    pub read: u64,
}

impl CpuStats {
    /// Returns the number of events that the kernel lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.overrun.saturating_add(self.commit_overrun).saturating_add(self.dropped)
    }
}

/// Facts that are known when a recording ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ending {
    /// Losses on the way, as counted by the source of the events.
    pub loss: Loss,
    /// The kernel's counters of each CPU's buffer; empty where there was none.
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

/// Packs the facts about a trace, without its snapshots, which have chunks of their own.
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

/// The head before the packed files of a snapshot.
#[derive(Serialize, Deserialize)]
struct SnapshotHead {
    moment: Moment,
    files: Vec<FileHead>,
}

#[derive(Serialize, Deserialize)]
struct FileHead {
    name: String,
    /// Bytes of the file, and of its packed form.
    bytes: u64,
    packed: u64,
}

pub(super) fn pack_snapshot(taken: &TakenSnapshot, level: i32) -> io::Result<Vec<u8>> {
    let mut files = Vec::new();
    let mut packed = Vec::new();
    for (name, bytes) in taken.files.iter() {
        let frame = zstd::bulk::compress(bytes, level)?;
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

/// A snapshot, and the names of its files for which there was no room.
pub(super) struct Unpacked {
    pub(super) taken: TakenSnapshot,
    pub(super) left_out: Vec<String>,
}

/// Reads the snapshot in a body; `None` if it is damaged. Its files stay packed, and the body is kept for them; their
/// unpacked size is taken from `room`.
pub(super) fn unpack_snapshot(body: Vec<u8>, room: &mut Room) -> Option<Unpacked> {
    let (head, frames) = snapshot_head(&body)?;
    let packed = head.files.iter().try_fold(0, |sum: u64, file| sum.checked_add(file.packed));
    if packed != Some(frames.len() as u64) {
        return None;
    }
    let (body, mut at) = (Arc::new(body), frames.start);
    let (mut files, mut left_out) = (Files::default(), Vec::new());
    for file in head.files {
        let frame = at..at + usize::try_from(file.packed).ok()?;
        at = frame.end;
        if room.take(file.bytes).is_err() {
            left_out.push(file.name);
            continue;
        }
        let bytes = usize::try_from(file.bytes).ok()?;
        files.insert_packed(file.name, Packed::new(&body, frame, bytes)?);
    }
    Some(Unpacked { taken: TakenSnapshot { moment: head.moment, files }, left_out })
}

/// Returns the head of a snapshot, and the range of its packed files in `body`; `None` if the head is damaged.
fn snapshot_head(body: &[u8]) -> Option<(SnapshotHead, Range<usize>)> {
    let (length, rest) = body.split_at_checked(4)?;
    let (head, rest) = rest.split_at_checked(u32_at(length, 0) as usize)?;
    Some((serde_json::from_slice(head).ok()?, body.len() - rest.len()..body.len()))
}

/// The offset of a chunk, and its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) head: ChunkHead,
}

/// Bytes of an entry: an offset and the contents of a head, without the magic and the checksum, so that a search for
/// the magic does not find entries of an index.
const ENTRY: usize = 8 + HEAD_CONTENT;

pub(super) fn pack_index(entries: &[Entry]) -> Vec<u8> {
    let mut body = Vec::new();
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
    let mut all = Vec::new();
    all.try_reserve_exact(entries.len()).ok()?;
    all.extend(entries.iter().map(entry));
    rest.is_empty().then_some(all)
}

/// Checks that the number of a kind, which is part of the format, fits the byte of a column's owner.
const _: () = assert!(EventKind::COUNT <= 255, "a column's owner is a byte");

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::budget::Budget;

    #[test]
    fn files_without_room_are_left_out_of_a_snapshot_and_the_others_stay() {
        let mut files = Files::default();
        files.insert("kpageflags", vec![0; 1000]);
        files.insert("version", vec![7; 24]);
        let taken = TakenSnapshot { moment: Moment::After, files };
        let body = pack_snapshot(&taken, LEVEL_LIVE).unwrap();
        let room_of = |bytes| {
            let budget = Budget { bytes, events: 0, deadline: None };
            Room::new(Path::new("test"), budget)
        };
        let mut room = room_of(1024);
        let whole = unpack_snapshot(body.clone(), &mut room).unwrap();
        assert_eq!((whole.taken, whole.left_out.len(), room.left()), (taken, 0, 0));
        let mut room = room_of(999);
        let part = unpack_snapshot(body.clone(), &mut room).unwrap();
        assert_eq!(part.left_out, ["kpageflags"]);
        assert_eq!(part.taken.files.bytes("version"), Some(&[7; 24][..]));
        assert_eq!(room.left(), 999 - 24);
        assert!(unpack_snapshot(body[..body.len() - 1].to_vec(), &mut room_of(1024)).is_none());
    }
}
