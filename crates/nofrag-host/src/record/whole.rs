//! Whole files of the kernel.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file whose size the kernel does not tell.
///
/// The first read has much room: some files of tracefs, such as `events/header_page`, give one answer and then the end,
/// however little of it was taken.
pub(super) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    /// Few calls for the files with eight bytes for each frame.
    const CHUNK: usize = 1 << 20;
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    let mut filled = 0;
    loop {
        if bytes.len() < filled + CHUNK {
            let more = bytes.len().max(CHUNK);
            bytes.try_reserve(more).map_err(io::Error::other)?;
            bytes.resize(bytes.len() + more, 0);
        }
        match file.read(&mut bytes[filled..filled + CHUNK]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    bytes.shrink_to_fit();
    Ok(bytes)
}
