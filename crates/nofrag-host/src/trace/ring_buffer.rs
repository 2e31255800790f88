//! A page of the kernel's ring buffer, as `trace_pipe_raw` gives it.
//!
//! A page has a time stamp (u64), a commit word (the number of bytes of records that follow, and a mark of events lost
//! before them), and records. A record's first word is its length class (5 bits) and the time since the record before
//! (27 bits). Offsets are those of `events/header_page` and `events/header_event` since 2.6.31; all words are
//! little-endian.
//!
//! Source: docs/sources/trace.md#sub-buffers.

use thiserror::Error;

/// Bytes of a page on x86-64 unless `buffer_subbuf_size_kb` sets another size.
pub const SUB_BUFFER: usize = 4096;

/// The largest page that the commit word can describe.
pub(crate) const LARGEST_SUB_BUFFER: usize = HEADER + LENGTH_MASK as usize + 1;

pub(crate) const HEADER: usize = 16;
const LENGTH_MASK: u64 = 0xf_ffff;
/// Bit of the commit word: events were lost before this page.
const MISSED: u64 = 1 << 31;
/// Bit of the commit word: the number of lost events stands behind the records.
const MISSED_STORED: u64 = 1 << 30;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of a time that [`TIME_STAMP`] gives; the others are those of the page.
const STAMP_BITS: u64 = (1 << 59) - 1;

/// Returns the number of events that did not reach the reader by the text of `per_cpu/cpuN/stats`, of one CPU or of
/// several.
pub(crate) fn dropped(stats: &str) -> u64 {
    let counts = stats.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        let lost = matches!(name.trim(), "overrun" | "commit overrun" | "dropped events");
        lost.then(|| count.trim().parse::<u64>().ok()).flatten()
    });
    counts.fold(0, u64::saturating_add)
}

/// The reason why a page could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PageError {
    /// The page is too short for its header, or states more bytes than it has.
    #[error("the page says that it has {said} bytes of records, and has {has}")]
    Short {
        /// Bytes that the page states.
        said: usize,
        /// Bytes that the page has.
        has: usize,
    },
    /// A record reaches beyond the records, or has an impossible length.
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

#[inline]
fn word(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

#[inline]
fn long(data: &[u8], at: usize) -> Option<u64> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

impl<'a> SubBuffer<'a> {
    /// Reads the page in these bytes.
    ///
    /// # Errors
    /// [`PageError::Short`] if the page states more bytes than `page` has.
    #[inline]
    pub fn new(page: &'a [u8]) -> Result<SubBuffer<'a>, PageError> {
        let (sub_buffer, said) = SubBuffer::cut(page)?;
        let has = page.len() - HEADER;
        if said > has { Err(PageError::Short { said, has }) } else { Ok(sub_buffer) }
    }

    /// Reads the beginning of a page whose end may be missing; returns also the number of bytes of records that the
    /// page states.
    ///
    /// # Errors
    /// [`PageError::Short`] when not even its header is there.
    #[inline]
    pub fn cut(page: &'a [u8]) -> Result<(SubBuffer<'a>, usize), PageError> {
        let (Some(time), Some(commit)) = (long(page, 0), long(page, 8)) else {
            return Err(PageError::Short { said: 0, has: 0 });
        };
        let said = (commit & LENGTH_MASK) as usize;
        let data = &page[HEADER..];
        let lost = (commit & MISSED != 0).then(|| {
            let stored = commit & MISSED_STORED != 0;
            if stored { long(data, said).filter(|&count| count > 0) } else { None }
        });
        Ok((SubBuffer { data: &data[..said.min(data.len())], at: 0, time, lost }, said))
    }

    /// Returns the time stamp of the page, or that of the last record that was taken from it.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Returns `Some` if events were lost before this page, with their number if the kernel gives it.
    #[must_use]
    pub fn lost(&self) -> Option<Option<u64>> {
        self.lost
    }

    /// Ends the page at the broken record.
    #[cold]
    fn broken(&mut self, at: usize) -> Option<Result<(u64, &'a [u8]), PageError>> {
        self.at = self.data.len();
        Some(Err(PageError::Record(at)))
    }

    /// Takes a special record: the time moves on, or a long record follows.
    #[cold]
    fn special(&mut self, at: usize, head: u32) -> Step<'a> {
        let (class, delta) = (head & 31, u64::from(head >> 5));
        if class == PADDING && delta == 0 {
            self.at = self.data.len();
            return Step::End;
        }
        let Some(second) = word(self.data, at + 4) else { return Step::Broken };
        match class {
            TIME_EXTEND => {
                self.at = at + 8;
                self.time = self.time.wrapping_add(delta + (u64::from(second) << 27));
                Step::Time
            }
            TIME_STAMP => {
                self.at = at + 8;
                let given = delta + (u64::from(second) << 27);
                self.time = given | (self.time & !STAMP_BITS);
                Step::Time
            }
            _ => {
                // The length counts its own word.
                let end = (second as usize).checked_add(at + 4).filter(|_| second >= 4);
                let next = end.and_then(|end| end.checked_next_multiple_of(4));
                let (Some(end), Some(next)) = (end, next) else { return Step::Broken };
                self.at = next;
                self.time = self.time.wrapping_add(delta);
                match self.data.get(at + 8..end) {
                    Some(_) if class == PADDING => Step::Time,
                    Some(body) => Step::Record(body),
                    None => Step::Broken,
                }
            }
        }
    }
}

enum Step<'a> {
    /// Only the time has changed.
    Time,
    Record(&'a [u8]),
    End,
    Broken,
}

impl<'a> Iterator for SubBuffer<'a> {
    /// Time and body of a record.
    type Item = Result<(u64, &'a [u8]), PageError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            let head = word(self.data, at)?;
            let words = (head & 31) as usize;
            if !(1..=28).contains(&words) {
                match self.special(at, head) {
                    Step::Time => continue,
                    Step::Record(body) => return Some(Ok((self.time, body))),
                    Step::End => return None,
                    Step::Broken => return self.broken(at),
                }
            }
            let end = at + 4 + 4 * words;
            let Some(body) = self.data.get(at + 4..end) else { return self.broken(at) };
            self.at = end;
            self.time = self.time.wrapping_add(u64::from(head >> 5));
            return Some(Ok((self.time, body)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_those_that_the_kernel_counted() {
        let stats = "CPU: 0\nentries: 5\noverrun: 30\ncommit overrun: 2\nbytes: 220\n\
                     oldest event ts: 37336.385483\nnow ts: 37336.386967\ndropped events: 1\nread events: 0\n";
        assert_eq!(dropped(stats), 33);
        assert_eq!(dropped(&stats.repeat(2)), 66);
        assert_eq!(dropped("Buffer: nofrag"), 0);
        assert_eq!(dropped("overrun: -1"), 0);
    }
}
