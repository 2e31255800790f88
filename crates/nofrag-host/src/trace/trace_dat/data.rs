//! The pages of one CPU as a stream of bytes, unpacked chunk by chunk.

use std::io::{self, Read};

use super::input::Span;

/// Returns the most bytes of a chunk, packed or not, of pages of `page_bytes` bytes. trace-cmd packs ten pages of
/// memory at a time, which are at least 40 KiB and at most 640.
pub(super) fn largest_chunk(page_bytes: usize) -> usize {
    const LARGEST: usize = 1 << 20;
    LARGEST.max(16 * page_bytes)
}

/// The cause of a chunk that ends too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The file has been cut: the chunks before the cut stand.
    Cut,
    /// The length of the chunk is wrong.
    Wrong,
}

/// Pages in packed chunks: a count, and for each chunk its packed size, its size, and its bytes.
pub(super) struct Chunks {
    input: Span,
    end: End,
    largest: usize,
    /// Number of chunks that follow; `None` before the first read.
    left: Option<u32>,
    packed: Vec<u8>,
    pages: Vec<u8>,
    at: usize,
    unpack: zstd::bulk::Decompressor<'static>,
}

impl Chunks {
    /// Reads the chunks in `input`, none of which has more than `largest` bytes.
    pub(super) fn new(input: Span, end: End, largest: usize) -> io::Result<Chunks> {
        let unpack = zstd::bulk::Decompressor::new()?;
        let (packed, pages) = (Vec::new(), Vec::new());
        Ok(Chunks { input, end, largest, left: None, packed, pages, at: 0, unpack })
    }

    fn word(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.input.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Unpacks the next chunk; returns `false` at the end.
    fn next(&mut self) -> io::Result<bool> {
        match self.unpack_next() {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => match self.end {
                End::Cut => Ok(false),
                End::Wrong => {
                    Err(invalid("a chunk reaches beyond the pages of its CPU".to_owned()))
                }
            },
            result => result,
        }
    }

    fn unpack_next(&mut self) -> io::Result<bool> {
        let left = match self.left {
            Some(left) => left,
            None => self.word()?,
        };
        self.left = Some(left.saturating_sub(1));
        if left == 0 {
            return Ok(false);
        }
        let (packed, unpacked) = (self.word()?, self.word()?);
        if packed.max(unpacked) as usize > self.largest {
            return Err(invalid(format!(
                "a chunk of {packed} bytes that unpack to {unpacked}: nofrag takes up to {}",
                self.largest
            )));
        }
        self.packed.clear();
        let read = (&mut self.input).take(u64::from(packed)).read_to_end(&mut self.packed)?;
        if read != packed as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.pages.clear();
        self.at = 0;
        self.pages.try_reserve_exact(unpacked as usize)?;
        let unpacked_bytes = self.unpack.decompress_to_buffer(&self.packed, &mut self.pages);
        match unpacked_bytes {
            Ok(bytes) if bytes == unpacked as usize => Ok(true),
            Ok(bytes) => Err(invalid(format!(
                "a chunk says that it unpacks to {unpacked} bytes, and has {bytes}"
            ))),
            Err(cause) => Err(invalid(format!("a chunk does not unpack: {cause}"))),
        }
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.pages.len() {
            if into.is_empty() || !self.next()? {
                return Ok(0);
            }
        }
        let count = into.len().min(self.pages.len() - self.at);
        into[..count].copy_from_slice(&self.pages[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
