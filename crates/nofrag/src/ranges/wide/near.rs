//! A table that guesses which leaf a number belongs to.
//!
//! A leaf keeps its holes for long, so where one range was freed the next one nearby belongs to the same leaf. The
//! table has one entry per stretch of numbers, four to eight per leaf, with the leaf that was last found there. A guess
//! costs one load; the tree accepts it only if the number lies between two holes of that leaf, so a stale guess is
//! harmless.

use super::leaf::NIL;
use crate::lists::grow;
use crate::ranges::OutOfMetadata;
use alloc::vec::Vec;

/// Most guesses for each leaf; [`MOST`] bounds the whole table.
const PER_LEAF: usize = 8;
const MOST: usize = 1 << 20;

/// A table of guesses: the leaf that was last found in each stretch of numbers.
#[derive(Debug, Default)]
pub(super) struct Near {
    leaves: Vec<u32>,
    /// Start of the first stretch.
    first: u64,
    /// Numbers in a stretch, as a base-2 logarithm.
    shift: u32,
}

impl Near {
    /// Returns the leaf that was last found near `at`; [`NIL`] when none was.
    #[inline]
    pub(super) fn leaf(&self, at: u64) -> u32 {
        match self.leaves.get(self.entry(at)) {
            Some(&leaf) => leaf,
            None => NIL,
        }
    }

    /// Notes that `at` was found to belong to `leaf`.
    #[inline]
    pub(super) fn note(&mut self, at: u64, leaf: u32) {
        let entry = self.entry(at);
        if let Some(near) = self.leaves.get_mut(entry) {
            *near = leaf;
        }
    }

    /// Returns the entry for `at`; numbers beyond the table share entries with those in it.
    #[inline]
    fn entry(&self, at: u64) -> usize {
        (at.wrapping_sub(self.first) >> self.shift) as usize & self.leaves.len().wrapping_sub(1)
    }

    /// Returns true if the table is too small for `leaves` leaves.
    pub(super) fn wants(&self, leaves: usize) -> bool {
        self.leaves.len() < (leaves * PER_LEAF / 2).min(MOST)
    }

    /// Makes room for a table that fits `leaves` leaves.
    pub(super) fn reserve(&mut self, leaves: usize) -> Result<(), OutOfMetadata> {
        let missing = Near::size_for(leaves).saturating_sub(self.leaves.len());
        self.leaves.try_reserve_exact(missing).map_err(|_| OutOfMetadata)
    }

    fn size_for(leaves: usize) -> usize {
        (leaves * PER_LEAF).next_power_of_two().min(MOST)
    }

    /// Makes the table fit `leaves` leaves whose holes start from `first` to `last`. It forgets its guesses; without
    /// memory it stays as it is, for guesses are a convenience.
    pub(super) fn resize(&mut self, leaves: usize, first: u64, last: u64) {
        let size = Near::size_for(leaves);
        if grow(&mut self.leaves, size, NIL).is_err() {
            return;
        }
        self.leaves.truncate(size);
        self.leaves.fill(NIL);
        self.first = first;
        self.shift = (u64::BITS - (last - first).leading_zeros()).saturating_sub(size.ilog2());
    }

    pub(super) fn bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 1_000;

    #[test]
    fn a_guess_is_what_was_noted_last_in_its_stretch() {
        let mut near = Near::default();
        near.note(FIRST, 7);
        assert_eq!(near.leaf(FIRST), NIL, "there is no table yet");
        near.resize(100, FIRST, FIRST + (1 << 20) - 1);
        assert_eq!((near.leaves.len(), near.first, near.shift), (1_024, FIRST, 10));
        near.note(FIRST + 2_048 + 5, 7);
        let around =
            [2_047, 2_048, 3_071, 3_072, 2_048 + (1 << 20)].map(|at| near.leaf(FIRST + at));
        assert_eq!(around, [NIL, 7, 7, NIL, 7]);
        near.note(FIRST + 2_048, 8);
        assert_eq!(near.leaf(FIRST + 2_048 + 5), 8);
        assert_eq!(near.bytes(), near.leaves.capacity() * 4);
        near.resize(50, FIRST, FIRST + 3);
        assert_eq!((near.leaves.len(), near.shift), (512, 0));
        assert!(near.leaves.iter().all(|&leaf| leaf == NIL), "guesses are forgotten");
    }

    #[test]
    fn a_table_has_four_to_eight_guesses_for_each_leaf_up_to_a_million() {
        let mut near = Near::default();
        assert!(near.wants(1) && !near.wants(0));
        near.reserve(100).unwrap();
        assert!((1_024..2_048).contains(&near.leaves.capacity()));
        near.resize(100, 0, 1 << 20);
        assert!(!near.wants(256) && near.wants(257));
        near.reserve(128).unwrap();
        assert!(near.leaves.capacity() < 2_048, "it is there already");
        near.resize(1 << 20, 0, 1 << 40);
        assert_eq!((near.leaves.len(), near.shift), (MOST, 41 - 20));
        assert!(!near.wants(1 << 30));
    }
}
