//! The reader of nofrag's own recordings, on arbitrary bytes.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nofrag_host::budget::Budget;
use nofrag_host::recording::Recording;
use nofrag_host::trace::{Event, Loss};

/// Events that are read at most: a few bytes can honestly say that a million equal events follow.
const ENOUGH: usize = 1 << 16;
const FILE_HEAD: usize = 16;
const CHUNK_HEAD: usize = 48;

/// Bytes that a file may cost: far less than the limits under which targets run, so that these show code that believes
/// a length.
const MOST_BYTES: u64 = 64 << 20;

/// Reads `data` behind its first byte as the file. If bit 0 of that byte is set, the checksums of the file are made
/// right first, so that damage reaches what lies behind them; with bit 1 it has a hole at its end, from 16 MiB to
/// beyond any disk, and is read as a file. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((&mode, file)) = data.split_first() else { return };
    Budget::allow(MOST_BYTES);
    let mut file = file.to_vec();
    let hole = if mode & 2 == 2 { 1_u64 << (24 + (mode >> 2 & 31)) } else { 0 };
    if mode & 1 == 1 {
        seal(&mut file, hole);
    }
    if hole > 0 {
        drop(read_sparse(&file, hole));
        return;
    }
    let Some((events, loss)) = read(&file) else { return };
    for event in &events {
        let rest = &event.values[event.kind.fields().len()..];
        assert!(rest.iter().all(|&value| value == 0), "a value that the kind does not have");
        let _ = event.view();
    }
    let again = read(&file).expect("it could be read before");
    assert!(again == (events, loss), "reading depends on more than the bytes");
}

fn read(file: &[u8]) -> Option<(Vec<Event>, Loss)> {
    events_of(&Recording::from_bytes(file.to_vec(), Path::new("recording")).ok()?)
}

/// Reads a file in memory, with a hole at its end.
fn read_sparse(file: &[u8], hole: u64) -> Option<(Vec<Event>, Loss)> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let sparse = File::from(rustix::fs::memfd_create("recording", flags).ok()?);
    sparse.write_all_at(file, 0).ok()?;
    sparse.set_len(file.len() as u64 + hole).ok()?;
    let path = format!("/proc/self/fd/{}", sparse.as_raw_fd());
    events_of(&Recording::open(Path::new(&path)).ok()?)
}

fn events_of(recording: &Recording) -> Option<(Vec<Event>, Loss)> {
    // What stays packed until it is used is used here.
    for taken in &recording.meta().snapshots {
        assert!(taken.files.iter().count() <= taken.files.names().count());
    }
    let mut source = recording.events().ok()?;
    let mut events = Vec::new();
    while events.len() < ENOUGH && source.read(&mut events).expect("bytes can be read") {}
    Some((events, source.loss()))
}

/// Makes the checksums of the head and of all chunks right, and cuts lengths that reach beyond the end of the file, its
/// hole included.
fn seal(file: &mut [u8], hole: u64) {
    if file.len() < FILE_HEAD {
        return;
    }
    checksum(file, 0..12, 12);
    let mut at = FILE_HEAD;
    while at + CHUNK_HEAD <= file.len() {
        if &file[at..at + 4] != b"NFck" {
            at += 1;
            continue;
        }
        let body = at + CHUNK_HEAD;
        let length = u64::from_le_bytes(file[at + 16..at + 24].try_into().expect("eight bytes"));
        let length = length.min((file.len() - body) as u64 + hole);
        file[at + 16..at + 24].copy_from_slice(&length.to_le_bytes());
        let length = (file.len() - body).min(usize::try_from(length).unwrap_or(usize::MAX));
        checksum(file, body..body + length, at + 40);
        checksum(file, at..at + 44, at + 44);
        at = body + length;
    }
}

fn checksum(file: &mut [u8], of: std::ops::Range<usize>, to: usize) {
    let crc = crc32fast::hash(&file[of]);
    file[to..to + 4].copy_from_slice(&crc.to_le_bytes());
}
