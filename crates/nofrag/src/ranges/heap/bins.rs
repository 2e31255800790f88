//! Lists of holes by length, one for each bin, and bits that say which lists have a hole.
//!
//! Lengths below 64 have a bin each. Above, each doubling has 32 bins, so that the lengths of a bin differ by less than
//! 1/32.

use crate::lists::filled;
use crate::ranges::OutOfMetadata;
use alloc::vec::Vec;

/// Bins of a doubling, as a base-2 logarithm.
const FINE: u32 = 5;
/// Rows of bins: one of the lengths below 32, and one for each doubling from there on.
const ROWS: usize = (u64::BITS - FINE + 1) as usize;
/// Rows that a word of bits has, more than there are.
const MOST_ROWS: usize = 64;
/// Bins in a row.
const IN_ROW: usize = 1 << FINE;
/// The first bin that holds more than one length.
const FIRST_WIDE: usize = 2 * IN_ROW;

/// The end of a list.
pub(super) const NIL: u32 = u32::MAX;

/// Returns the number of the bin of holes of this length: its highest six bits, and 32 bins for each bit below them.
#[inline]
pub(super) fn bin_of(length: u64) -> usize {
    let below = (length | (FIRST_WIDE as u64 - 1)).ilog2() - FINE;
    ((below as usize) << FINE) + (length >> below) as usize
}

/// Returns true if all holes of the bin have the same length.
#[inline]
pub(super) fn is_exact(bin: usize) -> bool {
    bin < FIRST_WIDE
}

#[inline]
fn row_of(bin: usize) -> usize {
    bin / IN_ROW % MOST_ROWS
}

/// The first hole of each list.
///
/// Rows are counted up to 64, so that no access to their bits can be beyond them.
///
/// 1. A bit of `used` is set if the row has a hole, a bit of `rows` if the bin has one.
#[derive(Debug)]
pub(super) struct Bins {
    heads: Vec<u32>,
    rows: [u32; MOST_ROWS],
    used: u64,
}

impl Bins {
    pub(super) const fn new() -> Bins {
        Bins { heads: Vec::new(), rows: [0; MOST_ROWS], used: 0 }
    }

    /// Makes room for all lists.
    pub(super) fn reserve(&mut self) -> Result<(), OutOfMetadata> {
        if self.heads.is_empty() {
            self.heads = filled(ROWS * IN_ROW, NIL)?;
        }
        Ok(())
    }

    /// Returns the first hole of the bin; [`NIL`] if there is none.
    #[inline]
    pub(super) fn head(&self, bin: usize) -> u32 {
        match self.heads.get(bin) {
            Some(&head) => head,
            None => NIL,
        }
    }

    /// Makes `place` the first hole of the bin; returns the hole that was.
    #[inline]
    pub(super) fn push(&mut self, bin: usize, place: u32) -> u32 {
        let row = row_of(bin);
        self.rows[row] |= 1 << (bin % IN_ROW);
        self.used |= 1 << row;
        core::mem::replace(&mut self.heads[bin], place)
    }

    /// Makes `next`, the second hole of the bin, or [`NIL`], its first one.
    #[inline]
    pub(super) fn pop(&mut self, bin: usize, next: u32) {
        self.heads[bin] = next;
        if next == NIL {
            let row = row_of(bin);
            self.rows[row] &= !(1 << (bin % IN_ROW));
            self.used &= !(u64::from(self.rows[row] == 0) << row);
        }
    }

    /// Returns the first bin from `bin` on, which may be one above the last, that has a hole.
    #[inline]
    pub(super) fn first_from(&self, bin: usize) -> Option<usize> {
        let row = row_of(bin);
        let own = self.rows[row] & (u32::MAX << (bin % IN_ROW));
        if own != 0 {
            return Some(row * IN_ROW + own.trailing_zeros() as usize);
        }
        let above = self.used & (u64::MAX << row << 1);
        let row = above.trailing_zeros() as usize % MOST_ROWS;
        (above != 0).then(|| row * IN_ROW + self.rows[row].trailing_zeros() as usize)
    }

    /// Returns the last bin that has a hole.
    pub(super) fn last(&self) -> Option<usize> {
        let row = self.used.checked_ilog2()? as usize;
        Some(row * IN_ROW + self.rows[row].ilog2() as usize)
    }

    /// Returns all bins whose bits say that they have a hole.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        core::iter::successors(self.first_from(0), |bin| self.first_from(bin + 1))
    }

    pub(super) fn bytes(&self) -> usize {
        self.heads.capacity() * size_of::<u32>()
    }

    /// Returns true if law 1 holds.
    pub(super) fn is_sound(&self) -> bool {
        let has_hole = |bin: usize| self.heads.get(bin).is_some_and(|&head| head != NIL);
        let is_bit = |bits: u64, at: usize, says: bool| (bits >> at & 1 == 1) == says;
        (0..ROWS).all(|row| {
            let bits = u64::from(self.rows[row]);
            is_bit(self.used, row, bits != 0)
                && (0..IN_ROW).all(|place| is_bit(bits, place, has_hole(row * IN_ROW + place)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least length of a bin.
    fn floor(bin: usize) -> u64 {
        match bin / IN_ROW {
            0 => bin as u64,
            row => ((IN_ROW + bin % IN_ROW) as u64) << (row - 1),
        }
    }

    #[test]
    fn bins_rise_with_lengths_and_are_narrow() {
        for bin in 1..ROWS * IN_ROW {
            let least = floor(bin);
            let most = if bin + 1 < ROWS * IN_ROW { floor(bin + 1) - 1 } else { u64::MAX };
            assert_eq!((bin_of(least), bin_of(most)), (bin, bin), "bin {bin}");
            assert_eq!(is_exact(bin), least == most, "bin {bin}");
            assert!((most - least) < least.div_ceil(IN_ROW as u64), "bin {bin}");
        }
    }

    #[test]
    fn bits_that_say_otherwise_are_noticed() {
        let mut bins = Bins::new();
        bins.reserve().unwrap();
        bins.push(70, 0);
        assert!(bins.is_sound());
        for (row, bit) in [(2, 1 << 6), (2, 1 << 7), (5, 1)] {
            bins.rows[row] ^= bit;
            assert!(!bins.is_sound(), "row {row}");
            bins.rows[row] ^= bit;
        }
        bins.used ^= 1 << 9;
        assert!(!bins.is_sound());
    }
}
