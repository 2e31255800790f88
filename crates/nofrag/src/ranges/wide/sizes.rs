//! The index by size: which leaves have a hole of which length.
//!
//! Lengths fall into bins: one for each length below 512, sixteen per doubling above, so that a bin's lengths differ by
//! at most 6.25 %. A bin is a set of leaf numbers, kept as bits in words of 64 leaves, with a word of words above and
//! one more above that; the words of all bins for the same 64 leaves lie together, so the index grows with the leaves
//! and by nothing else. Holes of equal length in one leaf share a bit: the leaf itself tells whether another one is
//! left.

use super::row::{LANE_MAX, Row, lanes_below};
use crate::check::Violation;
use crate::ranges::OutOfMetadata;
use alloc::vec::Vec;

/// Lengths below this have a bin each.
const EXACT: u32 = 512;
const EXACT_BITS: u32 = EXACT.ilog2();
/// Bins per doubling above, as a base-2 logarithm.
const STEP_BITS: u32 = 4;
const BINS: usize = EXACT as usize + ((31 - EXACT_BITS as usize) << STEP_BITS);
const WORD: usize = u64::BITS as usize;

/// The bin of a length as a lane holds it.
#[inline]
fn bin_of(length: u32) -> usize {
    if length < EXACT {
        return length as usize;
    }
    let doubling = length.ilog2();
    let step = (length >> (doubling - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    EXACT as usize + (((doubling - EXACT_BITS) << STEP_BITS) + step) as usize
}

/// The smallest length in a bin.
#[inline]
fn smallest_in(bin: usize) -> u32 {
    if bin < EXACT as usize {
        return bin as u32;
    }
    let above = (bin - EXACT as usize) as u32;
    let (doubling, step) = (EXACT_BITS + (above >> STEP_BITS), above & ((1 << STEP_BITS) - 1));
    (1 << doubling) + (step << (doubling - STEP_BITS))
}

/// Leaves by the lengths of their holes.
#[derive(Debug)]
pub(super) struct SizeBins {
    /// Which bins have a leaf.
    filled: [u64; BINS.div_ceil(WORD)],
    /// Words of leaves, words of words, words of words of words: for each the word of every bin.
    levels: [Vec<u64>; 3],
}

impl SizeBins {
    pub(super) fn new() -> SizeBins {
        SizeBins { filled: [0; BINS.div_ceil(WORD)], levels: [Vec::new(), Vec::new(), Vec::new()] }
    }

    /// Makes room for leaf numbers below `leaves`.
    pub(super) fn reserve(&mut self, leaves: usize) -> Result<(), OutOfMetadata> {
        let mut words = leaves;
        for level in &mut self.levels {
            words = words.div_ceil(WORD);
            let missing = (words * BINS).saturating_sub(level.len());
            level.try_reserve(missing).map_err(|_| OutOfMetadata)?;
        }
        let mut words = leaves;
        for level in &mut self.levels {
            words = words.div_ceil(WORD);
            level.resize(level.len().max(words * BINS), 0);
        }
        Ok(())
    }

    /// Notes that `leaf` has a hole of `length`.
    #[inline]
    pub(super) fn add(&mut self, leaf: u32, length: u32) {
        let bin = bin_of(length);
        let mut number = leaf as usize;
        for level in &mut self.levels {
            level[number / WORD * BINS + bin] |= 1 << (number % WORD);
            number /= WORD;
        }
        self.filled[bin / WORD] |= 1 << (bin % WORD);
    }

    /// Notes that `leaf` has lost a hole of `length`; `lengths` are those that are left.
    #[inline]
    pub(super) fn remove(&mut self, leaf: u32, length: u32, lengths: &Row) {
        let bin = bin_of(length);
        if lanes_in(bin, lengths) != 0 {
            return;
        }
        let mut number = leaf as usize;
        for level in &mut self.levels {
            let word = &mut level[number / WORD * BINS + bin];
            *word &= !(1 << (number % WORD));
            if *word != 0 {
                return;
            }
            number /= WORD;
        }
        let tops = self.levels[2].len() / BINS;
        if (0..tops).all(|top| self.levels[2][top * BINS + bin] == 0) {
            self.filled[bin / WORD] &= !(1 << (bin % WORD));
        }
    }

    /// The lowest bin from `bin` on that has a leaf.
    #[inline]
    fn filled_from(&self, bin: usize) -> Option<usize> {
        let mut word = bin / WORD;
        let mut bits = *self.filled.get(word)? & (u64::MAX << (bin % WORD));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * WORD + bits.trailing_zeros() as usize)
    }

    /// The lowest leaf number from `from` on in `bin`.
    #[inline]
    fn leaf_from(&self, bin: usize, from: usize) -> Option<u32> {
        // Climb until a word has a bit at or above the number, then descend along lowest bits.
        let (mut number, mut height) = (from, 0);
        loop {
            let bits = self.levels[height].get(number / WORD * BINS + bin)?;
            let bits = bits & (u64::MAX << (number % WORD));
            if bits != 0 {
                number = number / WORD * WORD + bits.trailing_zeros() as usize;
                break;
            }
            number = number / WORD + 1;
            if height < 2 {
                height += 1;
            } else {
                number *= WORD;
            }
            // At the top a whole word is passed at a time; below, the next number is looked at one level up.
        }
        for level in self.levels[..height].iter().rev() {
            let bits = level[number * BINS + bin];
            number = number * WORD + bits.trailing_zeros() as usize;
        }
        Some(number as u32)
    }

    /// The leaves that may have the smallest hole of at least `length`, in the order of their bins; each with the lanes
    /// of that bin that are long enough in `lengths_of` it.
    pub(super) fn candidates<'a>(
        &'a self,
        length: u32,
        lengths_of: impl Fn(u32) -> &'a Row + 'a,
    ) -> impl Iterator<Item = Candidates> + 'a {
        let mut bin = self.filled_from(bin_of(length));
        let mut from = 0;
        core::iter::from_fn(move || {
            loop {
                let current = bin?;
                let Some(leaf) = self.leaf_from(current, from) else {
                    bin = self.filled_from(current + 1);
                    from = 0;
                    continue;
                };
                from = leaf as usize + 1;
                let row = lengths_of(leaf);
                let lanes = lanes_in(current, row) & row.at_least(length);
                if lanes != 0 {
                    return Some(Candidates { bin: current, leaf, lanes });
                }
            }
        })
    }

    /// Bytes that the index holds.
    pub(super) fn bytes(&self) -> usize {
        size_of::<SizeBins>()
            + self.levels.iter().map(|level| level.capacity() * size_of::<u64>()).sum::<usize>()
    }

    /// Verifies that `leaf` stands in the bins of `lengths` and in no other.
    pub(super) fn check_leaf(&self, leaf: u32, lengths: &Row) -> Result<(), Violation> {
        for bin in 1..BINS {
            let has = lanes_in(bin, lengths) != 0;
            let noted = self.leaf_from(bin, leaf as usize) == Some(leaf);
            let law = "a leaf stands in the bins of its holes and in no other";
            Violation::unless_equal(law, bin as u64, u64::from(has), u64::from(noted))?;
        }
        Ok(())
    }

    /// Verifies that each word above is the summary of the words below, and that vacant leaves stand nowhere.
    pub(super) fn check_words(&self, leaves_in_use: &[bool]) -> Result<(), Violation> {
        for (word, bits) in self.levels[0].iter().enumerate() {
            for bit in (0..WORD).filter(|bit| bits >> bit & 1 == 1) {
                let leaf = word / BINS * WORD + bit;
                let used = leaves_in_use.get(leaf).copied().unwrap_or(false);
                Violation::unless("a vacant leaf stands in no bin", leaf as u64, used)?;
            }
        }
        for height in 1..3 {
            for (word, &bits) in self.levels[height].iter().enumerate() {
                let below = (0..WORD).filter(|bit| {
                    let at = (word / BINS * WORD + bit) * BINS + word % BINS;
                    self.levels[height - 1].get(at).is_some_and(|&bits| bits != 0)
                });
                let expected = below.fold(0, |bits, bit| bits | 1_u64 << bit);
                let law = "a word of words tells which words below have a bit";
                Violation::unless_equal(law, word as u64, expected, bits)?;
            }
        }
        for bin in 0..BINS {
            let has = self.leaf_from(bin, 0).is_some();
            let noted = self.filled[bin / WORD] >> (bin % WORD) & 1 == 1;
            let law = "a bin is filled if a leaf stands in it";
            Violation::unless_equal(law, bin as u64, u64::from(has), u64::from(noted))?;
        }
        Ok(())
    }
}

/// Holes of one leaf and bin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidates {
    pub(super) bin: usize,
    pub(super) leaf: u32,
    pub(super) lanes: u32,
}

impl Candidates {
    /// Whether all holes of the bin have the same length.
    #[inline]
    pub(super) fn same_length(&self) -> bool {
        self.bin < EXACT as usize
    }
}

/// The lanes whose lengths belong to `bin`.
#[inline]
fn lanes_in(bin: usize, lengths: &Row) -> u32 {
    if bin < EXACT as usize {
        return if bin == 0 { 0 } else { lengths.equal_to(bin as u32) };
    }
    let from = lengths.at_least(smallest_in(bin));
    if bin + 1 == BINS { from } else { from & !lengths.at_least(smallest_in(bin + 1)) }
}

/// The set bits of a mask, lowest first.
pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let lane = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= !lanes_below(lane + 1);
        Some(lane)
    })
}

const _: () = assert!(BINS == EXACT as usize + 22 * 16 && LANE_MAX.ilog2() == 30);
