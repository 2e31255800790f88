//! `/proc/iomem`: the ranges of memory, for hosts whose `kpageflags` cannot be had, or does not tell frames without
//! memory from those of the kernel.

use std::ops::Range;

use super::lines::{Malformed, numbered};

/// Returns the ranges of physical addresses of `System RAM`, ascending, and the lines that could not be read.
///
/// There are no ranges where the reader was not root: the kernel prints zeros then.
#[must_use]
pub fn system_ram(text: &str) -> (Vec<Range<u64>>, Vec<Malformed>) {
    let (mut ranges, mut malformed) = (Vec::new(), Vec::new());
    for (line, text) in numbered(text) {
        let read = text.split_once(" : ").and_then(|(range, name)| {
            let (start, end) = range.trim().split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(start)?, number(end)?, name))
        });
        match read {
            // Nested ranges are indented: each is part of the one above it.
            Some((start, end, "System RAM")) if start < end && !text.starts_with(' ') => {
                ranges.push(start..end.saturating_add(1));
            }
            Some(_) => {}
            None => malformed.push(Malformed { line, expected: "`START-END : NAME`" }),
        }
    }
    ranges.sort_by_key(|range| range.start);
    (ranges, malformed)
}

/// The ranges of memory that iomem lists, asked with rising addresses.
#[derive(Clone, Copy, Debug)]
pub struct Ram<'a> {
    /// Ranges that do not end before the address asked last.
    ranges: &'a [Range<u64>],
    /// True if iomem lists any memory.
    is_known: bool,
}

impl<'a> Ram<'a> {
    pub(super) fn new(ranges: &'a [Range<u64>]) -> Ram<'a> {
        Ram { ranges, is_known: !ranges.is_empty() }
    }

    /// Returns true if there is memory at an address, or it is not known; it is at least the one asked before. O(1)
    /// amortised.
    pub fn has(&mut self, address: u64) -> bool {
        while self.ranges.first().is_some_and(|range| range.end <= address) {
            self.ranges = &self.ranges[1..];
        }
        !self.is_known || self.ranges.first().is_some_and(|range| range.start <= address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_nothing_else() {
        let text = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n  00002000-00002fff : System RAM\n\
                    00000000-00000000 : System RAM\nx\n";
        let (ranges, malformed) = system_ram(text);
        assert_eq!((ranges.len(), &ranges[0]), (1, &(0x1000..0x9_fc00)));
        assert_eq!(malformed.len(), 1);
    }
}
