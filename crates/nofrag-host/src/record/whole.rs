//! Whole files of the kernel.

use crate::lists::grow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of one read: few calls for the files with eight bytes for each frame.
const CHUNK: usize = 1 << 20;

/// Reads a file whose size the kernel does not tell.
///
/// The first read has much room: some files of tracefs, such as `events/header_page`, give one answer and then the end,
/// even if only a part of the answer was read.
pub(super) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    read_open(File::open(path)?)
}

/// Reads an open file as [`read_whole`] does.
pub(super) fn read_open(file: File) -> io::Result<Vec<u8>> {
    let mut pieces = Pieces::new(file, Vec::new());
    while pieces.next()? {}
    let mut bytes = pieces.into_bytes();
    bytes.shrink_to_fit();
    Ok(bytes)
}

/// A file that is read into memory one piece at a time.
pub(super) struct Pieces {
    file: File,
    bytes: Vec<u8>,
    filled: usize,
}

impl Pieces {
    /// Makes a reader of `file` into the memory of `bytes`, which grows if it is too short.
    pub(super) fn new(file: File, bytes: Vec<u8>) -> Pieces {
        Pieces { file, bytes, filled: 0 }
    }

    /// Reads the next piece; `false` at the end.
    pub(super) fn next(&mut self) -> io::Result<bool> {
        if self.bytes.len() < self.filled + CHUNK {
            let count = self.bytes.len() + self.bytes.len().max(CHUNK);
            grow(&mut self.bytes, count, 0).map_err(io::Error::other)?;
        }
        loop {
            match self.file.read(&mut self.bytes[self.filled..self.filled + CHUNK]) {
                Ok(read) => {
                    self.filled += read;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the bytes that were read.
    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.filled);
        self.bytes
    }
}

/// Returns memory for a file of `bytes` bytes that has pages already: reading into it requests none from the kernel.
pub(super) fn prepared(bytes: usize) -> Vec<u8> {
    let mut memory = Vec::new();
    // Zeros would come without pages. Where memory is too short, the file is read into unprepared memory.
    let _ = grow(&mut memory, bytes.saturating_add(CHUNK), 1);
    memory
}
