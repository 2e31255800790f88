//! The reader of nofrag's own recordings, on arbitrary bytes.

use std::path::Path;

use nofrag_host::recording::Recording;
use nofrag_host::trace::{Event, Loss};

/// So many events are read: a few bytes can honestly say that a million equal events follow.
const ENOUGH: usize = 1 << 16;
const FILE_HEAD: usize = 16;
const CHUNK_HEAD: usize = 48;

/// Reads `data` behind its first byte as the file; if that byte is odd, its checksums are made right first, so that
/// damage reaches what lies behind them. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((&mode, file)) = data.split_first() else { return };
    let mut file = file.to_vec();
    if mode & 1 == 1 {
        seal(&mut file);
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
    let recording = Recording::from_bytes(file.to_vec(), Path::new("recording")).ok()?;
    let mut source = recording.events().ok()?;
    let mut events = Vec::new();
    while events.len() < ENOUGH && source.read(&mut events).expect("bytes can be read") {}
    Some((events, source.loss()))
}

/// Makes the checksums of the head and of all chunks right, and lengths that reach beyond the end end there.
fn seal(file: &mut [u8]) {
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
        let length = (file.len() - body).min(usize::try_from(length).unwrap_or(usize::MAX));
        file[at + 16..at + 24].copy_from_slice(&(length as u64).to_le_bytes());
        checksum(file, body..body + length, at + 40);
        checksum(file, at..at + 44, at + 44);
        at = body + length;
    }
}

fn checksum(file: &mut [u8], of: std::ops::Range<usize>, to: usize) {
    let crc = crc32fast::hash(&file[of]);
    file[to..to + 4].copy_from_slice(&crc.to_le_bytes());
}
