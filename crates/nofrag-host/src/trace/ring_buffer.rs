//! A page of the kernel's ring buffer, as `trace_pipe_raw` gives it.
//!
//! A page has a time stamp (u64), a commit word (how many bytes of records follow, and whether events were lost before
//! it), and records. A record's first word is its length class (5 bits) and the time since the one before (27 bits).
//! Offsets are those of `events/header_page` and `events/header_event` since 2.6.31; all words are little-endian.

use thiserror::Error;

/// Bytes of a page on x86-64 unless `buffer_subbuf_size_kb` says otherwise.
pub const SUB_BUFFER: usize = 4096;

const HEADER: usize = 16;
const LENGTH_MASK: u64 = 0xf_ffff;
/// Events were lost before this page.
const MISSED: u64 = 1 << 31;
/// How many stands behind the records.
const MISSED_STORED: u64 = 1 << 30;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Why a page could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PageError {
    /// It is too short for its header, or says that it has more bytes than it has.
    #[error("the page says that it has {said} bytes of records, and has {has}")]
    Short {
        /// What it says.
        said: usize,
        /// What there is.
        has: usize,
    },
    /// A record reaches beyond the records.
    #[error("the record at byte {0} of the page reaches beyond its end")]
    Record(usize),
}

/// The records of one page.
#[derive(Clone, Debug)]
pub struct SubBuffer<'a> {
    data: &'a [u8],
    at: usize,
    time: u64,
    lost: Option<Option<u64>>,
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

fn long(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

impl<'a> SubBuffer<'a> {
    /// The page in these bytes.
    ///
    /// # Errors
    /// [`PageError::Short`].
    pub fn new(page: &'a [u8]) -> Result<SubBuffer<'a>, PageError> {
        let short = |said| PageError::Short { said, has: page.len().saturating_sub(HEADER) };
        let time = long(page, 0).ok_or(short(0))?;
        let commit = long(page, 8).ok_or(short(0))?;
        let said = (commit & LENGTH_MASK) as usize;
        let data = page.get(HEADER..HEADER + said).ok_or(short(said))?;
        let lost = (commit & MISSED != 0).then(|| {
            let stored = commit & MISSED_STORED != 0;
            if stored { long(page, HEADER + said).filter(|&count| count > 0) } else { None }
        });
        Ok(SubBuffer { data, at: 0, time, lost })
    }

    /// The time stamp of the page.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Whether events were lost before this page, and how many if the kernel says so.
    #[must_use]
    pub fn lost(&self) -> Option<Option<u64>> {
        self.lost
    }
}

impl<'a> Iterator for SubBuffer<'a> {
    /// Time and body of a record.
    type Item = Result<(u64, &'a [u8]), PageError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            let head = word(self.data, at)?;
            let (class, delta) = (head & 31, u64::from(head >> 5));
            let (from, length, next) = match class {
                PADDING if delta == 0 => return None,
                TIME_EXTEND | TIME_STAMP => (at, 0, at + 8),
                0 | PADDING => {
                    let Some(length) = word(self.data, at + 4) else {
                        self.at = self.data.len();
                        return Some(Err(PageError::Record(at)));
                    };
                    // The length counts itself; a record of at least these four bytes.
                    let length = (length as usize).max(4);
                    (at + 8, length - 4, at + 4 + length.next_multiple_of(4))
                }
                words => (at + 4, 4 * words as usize, at + 4 + 4 * words as usize),
            };
            self.at = next;
            match class {
                TIME_EXTEND | TIME_STAMP => {
                    let Some(high) = word(self.data, at + 4) else {
                        self.at = self.data.len();
                        return Some(Err(PageError::Record(at)));
                    };
                    let value = delta + (u64::from(high) << 27);
                    if class == TIME_EXTEND {
                        self.time = self.time.wrapping_add(value);
                    } else {
                        // 59 bits are given; the rest is that of the page.
                        self.time = value | (self.time & !((1 << 59) - 1));
                    }
                }
                PADDING => self.time = self.time.wrapping_add(delta),
                _ => {
                    self.time = self.time.wrapping_add(delta);
                    let Some(body) = self.data.get(from..from + length) else {
                        self.at = self.data.len();
                        return Some(Err(PageError::Record(at)));
                    };
                    return Some(Ok((self.time, body)));
                }
            }
        }
    }
}
