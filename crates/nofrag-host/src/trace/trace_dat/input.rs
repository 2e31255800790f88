//! Bytes at places of a file, and words one after the other. No length that a file states is believed: memory grows
//! with the bytes that the file has.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::trace::source::TraceError;

/// Most bytes that are kept from the head of one file: the formats of a whole kernel are less than a tenth of it.
const KEPT: u64 = 64 << 20;

/// A source of bytes at offsets: a file, or memory.
pub trait ReadAt: Send + Sync {
    /// Reads some bytes from offset `at` on; returns their number, 0 behind the end.
    ///
    /// # Errors
    /// The error of the system.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;

    /// Returns the number of bytes.
    ///
    /// # Errors
    /// The error of the system.
    fn size(&self) -> io::Result<u64>;
}

impl ReadAt for File {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, into, at)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or(&[]);
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// The bytes of a trace, with their name for errors.
#[derive(Clone)]
pub(super) struct Input {
    bytes: Arc<dyn ReadAt>,
    path: PathBuf,
    size: u64,
    /// Bytes that were kept so far, from all parts.
    kept: Arc<AtomicU64>,
}

impl Input {
    pub(super) fn new(bytes: Arc<dyn ReadAt>, path: &Path) -> Result<Input, TraceError> {
        let size = bytes.size().map_err(TraceError::file(path))?;
        Ok(Input { bytes, path: path.to_owned(), size, kept: Arc::default() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of bytes of the trace.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns up to `bytes` bytes from offset `at` on, as far as the file has them.
    pub(super) fn span(&self, at: u64, bytes: u64) -> Span {
        Span { input: self.clone(), at, left: bytes.min(self.size.saturating_sub(at)) }
    }

    /// Returns the words from offset `at` on.
    pub(super) fn words(&self, at: u64, part: &'static str) -> Words<io::BufReader<Span>> {
        let bytes = io::BufReader::new(self.span(at, u64::MAX));
        Words::new(bytes, self, part)
    }

    pub(super) fn corrupt(&self, what: impl Into<String>) -> TraceError {
        TraceError::Corrupt { path: self.path.clone(), what: what.into() }
    }
}

/// A range of a trace's bytes, which are read in order.
pub(super) struct Span {
    input: Input,
    at: u64,
    left: u64,
}

impl Read for Span {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let read = self.input.bytes.read_at(&mut into[..room], self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Little-endian words, texts and strings, one after the other.
pub(super) struct Words<R> {
    bytes: R,
    path: PathBuf,
    part: &'static str,
    kept: Arc<AtomicU64>,
}

impl<R: Read> Words<R> {
    /// Reads the words of the part of this name, which is for errors.
    pub(super) fn new(bytes: R, of: &Input, part: &'static str) -> Words<R> {
        Words { bytes, path: of.path.clone(), part, kept: Arc::clone(&of.kept) }
    }

    /// Sets the part that later errors name.
    pub(super) fn enter(&mut self, part: &'static str) {
        self.part = part;
    }

    pub(super) fn corrupt(&self, what: &str) -> TraceError {
        TraceError::Corrupt { path: self.path.clone(), what: format!("{}: {what}", self.part) }
    }

    pub(super) fn unsupported(&self, what: &str) -> TraceError {
        TraceError::Unsupported { path: self.path.clone(), what: what.to_owned() }
    }

    fn error(&self, cause: io::Error) -> TraceError {
        match cause.kind() {
            io::ErrorKind::UnexpectedEof => self.corrupt("the file ends here: it has been cut"),
            // Bytes that do not unpack.
            io::ErrorKind::Other | io::ErrorKind::InvalidData => self.corrupt(&cause.to_string()),
            _ => TraceError::File { path: self.path.clone(), cause },
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TraceError> {
        let mut bytes = [0; N];
        self.bytes.read_exact(&mut bytes).map_err(|cause| self.error(cause))?;
        Ok(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, TraceError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, TraceError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, TraceError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, TraceError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Takes `count` bytes; refuses them where the file's head has more than [`KEPT`] with them.
    pub(super) fn take(&mut self, count: u64) -> Result<Vec<u8>, TraceError> {
        // A refused count is not added: it may be any number.
        let fits = |kept: u64| kept.checked_add(count).filter(|&kept| kept <= KEPT);
        if self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return Err(self.corrupt("its texts are longer than those of any kernel"));
        }
        let mut bytes = Vec::new();
        let read = (&mut self.bytes).take(count).read_to_end(&mut bytes);
        let read = read.map_err(|cause| self.error(cause))?;
        if read as u64 != count {
            return Err(self.error(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(bytes)
    }

    /// Takes `count` bytes as text; bytes that are not UTF-8 are replaced, and the text behind a null byte is left out.
    pub(super) fn text(&mut self, count: u64) -> Result<String, TraceError> {
        let bytes = self.take(count)?;
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or(&[]);
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Takes a string up to its null byte.
    pub(super) fn string(&mut self) -> Result<String, TraceError> {
        /// Most bytes of a string: names of groups, instances, clocks and methods of compression are far shorter.
        const LONGEST: usize = 4096;
        let mut bytes = Vec::new();
        loop {
            match self.u8()? {
                0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                _ if bytes.len() == LONGEST => {
                    return Err(self.corrupt("a name does not end within 4096 bytes"));
                }
                byte => bytes.push(byte),
            }
        }
    }

    /// Skips `count` bytes: no more than may be kept, since no text of a kernel is longer.
    pub(super) fn skip(&mut self, count: u64) -> Result<(), TraceError> {
        if count > KEPT {
            return Err(self.corrupt("its texts are longer than those of any kernel"));
        }
        let skipped = io::copy(&mut (&mut self.bytes).take(count), &mut io::sink());
        let skipped = skipped.map_err(|cause| self.error(cause))?;
        if skipped == count { Ok(()) } else { Err(self.error(io::ErrorKind::UnexpectedEof.into())) }
    }

    /// Takes the bytes `expected`, which every file has here.
    pub(super) fn expect(&mut self, expected: &[u8]) -> Result<(), TraceError> {
        let bytes = self.take(expected.len() as u64)?;
        if bytes == expected {
            return Ok(());
        }
        let name = String::from_utf8_lossy(expected);
        Err(self.corrupt(&format!("`{}` does not stand where it belongs", name.trim_matches('\0'))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_of_a_file_share_what_may_be_kept() {
        let bytes: Arc<dyn ReadAt> = Arc::new(vec![0; 100]);
        let input = Input::new(bytes, Path::new("a.dat")).unwrap();
        let said = |count| input.words(0, "a part").take(count).map_err(|error| error.to_string());
        assert_eq!(said(90).map(|bytes| bytes.len()), Ok(90));
        assert!(said(u64::MAX).unwrap_err().contains("longer than those of any kernel"));
        assert!(said(KEPT - 100).unwrap_err().contains("has been cut"));
        assert!(said(11).unwrap_err().contains("longer than those of any kernel"));
        assert!(said(10).is_ok());
    }
}
