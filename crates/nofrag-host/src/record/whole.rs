//! Whole files of the kernel.

use crate::lists::grow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Few calls for the files with eight bytes for each frame.
const CHUNK: usize = 1 << 20;

/// Reads a file whose size the kernel does not tell.
///
/// The first read has much room: some files of tracefs, such as `events/header_page`, give one answer and then the end,
/// however little of it was taken.
pub(super) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    read_open(File::open(path)?)
}

/// As [`read_whole`], of a file that is open.
pub(super) fn read_open(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = read_into(file, Vec::new(), &AtomicBool::new(false))?;
    bytes.shrink_to_fit();
    Ok(bytes)
}

/// As [`read_open`], into memory that is there already. Gives up when `hurry` becomes true.
pub(super) fn read_into(
    mut file: File,
    mut bytes: Vec<u8>,
    hurry: &AtomicBool,
) -> io::Result<Vec<u8>> {
    let mut filled = 0;
    loop {
        if hurry.load(Ordering::Relaxed) {
            return Err(io::Error::other("a signal came before it was read"));
        }
        if bytes.len() < filled + CHUNK {
            let more = bytes.len().max(CHUNK);
            let count = bytes.len() + more;
            grow(&mut bytes, count, 0).map_err(io::Error::other)?;
        }
        match file.read(&mut bytes[filled..filled + CHUNK]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Memory for so many bytes of a file that has pages already: reading into it asks the kernel for none.
pub(super) fn prepared(bytes: usize) -> Vec<u8> {
    let mut memory = Vec::new();
    // Zeros would come without pages. Without memory for all of it, it is read as what is not prepared.
    let _ = grow(&mut memory, bytes.saturating_add(CHUNK), 1);
    memory
}
