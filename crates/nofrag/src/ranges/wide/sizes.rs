//! The index by size: for each length, the leaves that have a hole of it.
//!
//! Lengths fall into bins: one for each length below 512, sixteen per doubling above, so that a bin's lengths differ by
//! at most 6.25 %. A bin is a set of leaf numbers, kept as bits in words of 64 leaves, with a word of words above and
//! one more above that; the words of all bins for the same 64 leaves lie together, so the index grows with the leaves
//! and by nothing else. Holes of equal length in one leaf share a bit: the leaf itself tells whether another one is
//! left.
//!
//! Every hole of a bin above that of a request is long enough. In the request's own bin, where that is one of the
//! sixteen, any number of holes may be too short. So each word of these bins also notes its *longest* hole and the
//! child that has it: the top tells whether the bin serves the request, and three steps down lead to a leaf that does.
//! A search looks at a few leaves in their order, since one of these may hold a smaller one, and then goes that way.
//!
//! The longest holes are noted exactly. A hole that comes in, or grows, is noted upwards while it is the longest. When
//! the longest hole of a word shrinks or goes, the word's at most 64 children are searched for the longest one that
//! remains.

use super::entry::Note;
use super::leaf::Leaves;
use super::row::{LANE_MAX, Row, lanes_below};
use crate::check::Violation;
use crate::lists::grow;
use crate::ranges::{Counters, OutOfMetadata};
use alloc::vec::Vec;

/// Lengths below this have a bin each.
const EXACT: u32 = 512;
const EXACT_BITS: u32 = EXACT.ilog2();
/// Bins for each doubling of the length from [`EXACT`] on, as a base-2 logarithm.
const STEP_BITS: u32 = 4;
const BINS: usize = EXACT as usize + ((31 - EXACT_BITS as usize) << STEP_BITS);
const WORD: usize = u64::BITS as usize;
const WORD_BITS: u32 = WORD.ilog2();
/// Number of coarse bins: those of which each word notes the longest hole.
const COARSE: usize = BINS - EXACT as usize;
/// Number of leaves without a long enough hole that a search looks at before it goes to the longest hole of the bin.
const SHORT: u32 = 8;

/// Returns the bin of a length as a lane holds it.
#[inline]
fn bin_of(length: u32) -> usize {
    if length < EXACT {
        return length as usize;
    }
    let doubling = length.ilog2();
    let step = (length >> (doubling - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    EXACT as usize + (((doubling - EXACT_BITS) << STEP_BITS) + step) as usize
}

/// Returns the smallest length in a bin.
#[inline]
fn smallest_in(bin: usize) -> u32 {
    if bin < EXACT as usize {
        return bin as u32;
    }
    let above = (bin - EXACT as usize) as u32;
    let (doubling, step) = (EXACT_BITS + (above >> STEP_BITS), above & ((1 << STEP_BITS) - 1));
    (1 << doubling) + (step << (doubling - STEP_BITS))
}

/// Returns the largest length in a bin.
#[inline]
fn largest_in(bin: usize) -> u32 {
    if bin + 1 == BINS { LANE_MAX } else { smallest_in(bin + 1) - 1 }
}

/// The longest hole of a word in one bin, and which of the word's 64 children has it, in 32 bits.
///
/// A bin spans at most 2^26 lengths, so 26 bits tell them apart and leave 6 for the child. [`NONE`](Self::NONE) is
/// zero, which costs the longest bin its last length: [`LANE_MAX`], which no search by size asks for, counts as one
/// less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Longest(u32);

impl Longest {
    const NONE: Longest = Longest(0);
    const MOST: u32 = (1 << (u32::BITS - WORD_BITS)) - 1;

    /// Returns how far `length` reaches into `bin`: its rank among the bin's lengths, from 1, or 0 for a length of a
    /// lower bin.
    #[inline]
    fn reach(bin: usize, length: u32) -> u32 {
        (length + 1).saturating_sub(smallest_in(bin)).min(Longest::MOST)
    }

    /// Returns how far `length`, [`EXACT`] or more, reaches into its own bin.
    #[inline]
    fn reach_of(length: u32) -> u32 {
        let step = 1 << (length.ilog2() - STEP_BITS);
        ((length & (step - 1)) + 1).min(Longest::MOST)
    }

    #[inline]
    fn of(reach: u32, child: usize) -> Longest {
        Longest(reach << WORD_BITS | child as u32)
    }

    /// Returns how far the hole reaches into its bin; 0 if there is no hole.
    #[inline]
    fn reaches(self) -> u32 {
        self.0 >> WORD_BITS
    }

    #[inline]
    fn child(self) -> usize {
        self.0 as usize % WORD
    }
}

/// One level of the index: for every 64 children, leaves or words of the level below, a word of bits for each bin, and
/// the longest hole of each coarse bin.
#[derive(Debug, Default)]
struct Level {
    bits: Vec<u64>,
    longest: Vec<Longest>,
}

impl Level {
    #[inline]
    fn longest(&self, word: usize, bin: usize) -> Longest {
        self.longest[word * COARSE + bin - EXACT as usize]
    }

    #[inline]
    fn longest_mut(&mut self, word: usize, bin: usize) -> &mut Longest {
        &mut self.longest[word * COARSE + bin - EXACT as usize]
    }

    fn words(&self) -> usize {
        self.bits.len() / BINS
    }
}

/// Leaves by the lengths of their holes.
#[derive(Debug)]
pub(super) struct SizeBins {
    /// One bit for each bin; set if the bin has a leaf.
    filled: [u64; BINS.div_ceil(WORD)],
    /// Lowest first: a bit of the first level stands for a leaf, a bit of the others for a word of the level below.
    levels: [Level; 3],
}

impl SizeBins {
    pub(super) fn new() -> SizeBins {
        SizeBins { filled: [0; BINS.div_ceil(WORD)], levels: Default::default() }
    }

    /// Makes room for leaf numbers below `leaves`.
    pub(super) fn reserve(&mut self, leaves: usize) -> Result<(), OutOfMetadata> {
        let mut words = leaves;
        for level in &mut self.levels {
            words = words.div_ceil(WORD);
            if words * BINS > level.bits.capacity() {
                // An eighth more, as leaves do: a word of all bins takes half of what its 64 leaves take.
                let missing = (words - level.words()).max(level.words() / 8);
                level.bits.try_reserve_exact(missing * BINS)?;
                level.longest.try_reserve_exact(missing * COARSE)?;
            }
        }
        let mut words = leaves;
        for level in &mut self.levels {
            words = words.div_ceil(WORD).max(level.words());
            grow(&mut level.bits, words * BINS, 0)?;
            grow(&mut level.longest, words * COARSE, Longest::NONE)?;
        }
        Ok(())
    }

    /// Notes that `leaf` has a hole of `length`.
    #[inline]
    pub(super) fn add(&mut self, leaf: u32, length: u32) {
        self.add_to(bin_of(length), leaf, length);
    }

    #[inline]
    fn add_to(&mut self, bin: usize, leaf: u32, length: u32) {
        let mut number = leaf as usize;
        if length >= EXACT {
            self.lengthen(leaf, bin, Longest::reach_of(length));
        }
        for level in &mut self.levels {
            let word = &mut level.bits[number / WORD * BINS + bin];
            let was = core::mem::replace(word, *word | 1 << (number % WORD));
            if was != 0 {
                return;
            }
            number /= WORD;
        }
        self.filled[bin / WORD] |= 1 << (bin % WORD);
    }

    /// Notes that `leaf` has lost a hole of `length`; `lengths` are the remaining ones.
    #[inline]
    pub(super) fn remove<N: Note>(
        &mut self,
        leaf: u32,
        length: u32,
        lengths: &Row,
        leaves: &Leaves<N>,
    ) {
        self.remove_from(bin_of(length), leaf, length, lengths, leaves);
    }

    #[inline]
    fn remove_from<N: Note>(
        &mut self,
        bin: usize,
        leaf: u32,
        length: u32,
        lengths: &Row,
        leaves: &Leaves<N>,
    ) {
        if lanes_in(bin, lengths) == 0 {
            self.clear(leaf, bin);
        }
        if length >= EXACT {
            self.shorten(leaf, bin, Longest::reach_of(length), None, leaves);
        }
    }

    /// Notes that a hole of `leaf` has changed from length `old` to `new`; the longest of the leaf now is `largest`,
    /// where that is known.
    #[inline]
    pub(super) fn change<N: Note>(
        &mut self,
        leaf: u32,
        (old, new): (u32, u32),
        largest: Option<u32>,
        leaves: &Leaves<N>,
    ) {
        let (from, to) = (bin_of(old), bin_of(new));
        if from != to {
            self.add_to(to, leaf, new);
            self.remove_from(from, leaf, old, leaves.lengths(leaf), leaves);
        } else if new > old {
            self.lengthen(leaf, to, Longest::reach_of(new));
        } else if new < old {
            // Most often the only hole of its bin, and the longest of its leaf: the free end of the space.
            let own = largest.filter(|&largest| largest == new);
            let (reached, own) = (Longest::reach_of(old), own.map(Longest::reach_of));
            self.shorten(leaf, to, reached, own, leaves);
        }
    }

    /// Notes that no hole of `leaf` belongs to `bin` any more.
    #[inline]
    fn clear(&mut self, leaf: u32, bin: usize) {
        let mut number = leaf as usize;
        for level in &mut self.levels {
            let word = &mut level.bits[number / WORD * BINS + bin];
            *word &= !(1 << (number % WORD));
            if *word != 0 {
                return;
            }
            number /= WORD;
        }
        let top = &self.levels[2];
        if (0..top.words()).all(|word| top.bits[word * BINS + bin] == 0) {
            self.filled[bin / WORD] &= !(1 << (bin % WORD));
        }
    }

    /// Notes that a hole of `leaf` now reaches as far as `reach` into `bin`, a coarse one.
    #[inline(never)]
    fn lengthen(&mut self, leaf: u32, bin: usize, reach: u32) {
        let mut number = leaf as usize;
        for level in &mut self.levels {
            let longest = level.longest_mut(number / WORD, bin);
            if reach <= longest.reaches() {
                return;
            }
            *longest = Longest::of(reach, number % WORD);
            number /= WORD;
        }
    }

    /// Notes that a hole of `leaf` no longer reaches as far as `reached` into `bin`, a coarse one. `own` is how far the
    /// leaf reaches now, where that is known.
    #[inline(never)]
    fn shorten<N: Note>(
        &mut self,
        leaf: u32,
        bin: usize,
        reached: u32,
        own: Option<u32>,
        leaves: &Leaves<N>,
    ) {
        let mut number = leaf as usize;
        // How far the child that had the longest hole reaches now; of a word, its own longest.
        let mut own = own;
        for height in 0..self.levels.len() {
            let (word, child) = (number / WORD, number % WORD);
            if self.levels[height].longest(word, bin) != Longest::of(reached, child) {
                return;
            }
            let longest = match (self.levels[height].bits[word * BINS + bin], own) {
                (0, _) => Longest::NONE,
                (children, Some(own)) if children == 1 << child => Longest::of(own, child),
                _ if height == 0 => self.longest_of_leaves(word, bin, reached, leaves),
                _ => self.longest_of_words(height, word, bin),
            };
            *self.levels[height].longest_mut(word, bin) = longest;
            if longest.reaches() == reached {
                return;
            }
            (number, own) = (word, Some(longest.reaches()));
        }
    }

    /// Returns the longest hole of `bin` in the leaves of a word, of which none reaches farther than `most`.
    #[inline(never)]
    fn longest_of_leaves<N: Note>(
        &self,
        word: usize,
        bin: usize,
        most: u32,
        leaves: &Leaves<N>,
    ) -> Longest {
        let mut longest = Longest::NONE;
        for child in bits(self.levels[0].bits[word * BINS + bin]) {
            let lengths = leaves.lengths((word * WORD + child) as u32);
            let reach = Longest::reach(bin, lengths.max_up_to(largest_in(bin)));
            if reach > longest.reaches() {
                longest = Longest::of(reach, child);
            }
            if reach >= most {
                break;
            }
        }
        longest
    }

    /// Returns the longest hole of `bin` in the words of a word above.
    #[inline(never)]
    fn longest_of_words(&self, height: usize, word: usize, bin: usize) -> Longest {
        let mut longest = Longest::NONE;
        for child in bits(self.levels[height].bits[word * BINS + bin]) {
            let reach = self.levels[height - 1].longest(word * WORD + child, bin).reaches();
            if reach > longest.reaches() {
                longest = Longest::of(reach, child);
            }
        }
        longest
    }

    /// Returns true if `bin`, a coarse one, has a hole of at least `length`.
    #[inline]
    fn serves(&self, bin: usize, length: u32) -> bool {
        let top = &self.levels[2];
        let reach = Longest::reach(bin, length);
        (0..top.words()).any(|word| top.longest(word, bin).reaches() >= reach)
    }

    /// Returns the leaf with the longest hole of `bin`, a coarse one that has some.
    fn leaf_of_longest(&self, bin: usize) -> u32 {
        let top = &self.levels[2];
        let longest = (0..top.words()).max_by_key(|&word| top.longest(word, bin).reaches());
        let mut number = longest.expect("a bin with holes has words");
        for level in self.levels.iter().rev() {
            number = number * WORD + level.longest(number, bin).child();
        }
        number as u32
    }

    /// Returns the lowest bin from `bin` on that has a leaf.
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

    /// Returns the lowest leaf number from `from` on in `bin`.
    #[inline]
    fn leaf_from(&self, bin: usize, from: usize) -> Option<u32> {
        // Climb until a word has a bit at or above the number, then descend along lowest bits.
        let (mut number, mut height) = (from, 0);
        loop {
            let bits = self.levels[height].bits.get(number / WORD * BINS + bin)?;
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
            let bits = level.bits[number * BINS + bin];
            number = number * WORD + bits.trailing_zeros() as usize;
        }
        Some(number as u32)
    }

    /// Returns a search for the smallest holes of at least `length`.
    #[inline]
    pub(super) fn search(&self, length: u32) -> Search {
        let mut own = bin_of(length);
        if length >= EXACT && !self.serves(own, length) {
            own += 1;
        }
        Search { length, bin: self.filled_from(own), from: 0, short: 0 }
    }

    /// Returns the next leaf that may have the smallest hole that `search` looks for, in the order of the bins.
    ///
    /// After [`SHORT`] leaves without a long enough hole, the leaf with the longest hole of the bin comes next, and the
    /// bin's other leaves are left out.
    #[inline(always)]
    pub(super) fn next<N: Note>(
        &self,
        search: &mut Search,
        leaves: &Leaves<N>,
        counters: &mut Counters,
    ) -> Option<Candidates> {
        loop {
            let bin = search.bin?;
            let Some(leaf) = self.leaf_from(bin, search.from) else {
                search.bin = self.filled_from(bin + 1);
                search.from = 0;
                continue;
            };
            search.from = leaf as usize + 1;
            counters.steps += 1;
            let lanes = long_lanes_in(bin, search.length, leaves.lengths(leaf));
            if lanes != 0 {
                return Some(Candidates { bin, leaf, lanes });
            }
            // Only in the bin of the length itself.
            search.short += 1;
            if search.short == SHORT {
                return Some(self.next_longest(bin, search, leaves, counters));
            }
        }
    }

    /// Returns the leaf with the longest hole of `bin`, which is long enough; the search goes on behind the bin.
    #[cold]
    fn next_longest<N: Note>(
        &self,
        bin: usize,
        search: &mut Search,
        leaves: &Leaves<N>,
        counters: &mut Counters,
    ) -> Candidates {
        search.bin = self.filled_from(bin + 1);
        search.from = 0;
        counters.steps += self.levels.len() as u64 + 1;
        let leaf = self.leaf_of_longest(bin);
        let lanes = long_lanes_in(bin, search.length, leaves.lengths(leaf));
        debug_assert!(lanes != 0, "the longest of a bin that serves is long enough");
        Candidates { bin, leaf, lanes }
    }

    /// Returns the bytes of memory that the index takes, spare room included.
    pub(super) fn bytes(&self) -> usize {
        let level = |level: &Level| {
            level.bits.capacity() * size_of::<u64>()
                + level.longest.capacity() * size_of::<Longest>()
        };
        size_of::<SizeBins>() + self.levels.iter().map(level).sum::<usize>()
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
        for (word, bits) in self.levels[0].bits.iter().enumerate() {
            for bit in (0..WORD).filter(|bit| bits >> bit & 1 == 1) {
                let leaf = word / BINS * WORD + bit;
                let used = leaves_in_use.get(leaf).copied().unwrap_or(false);
                Violation::unless("a vacant leaf stands in no bin", leaf as u64, used)?;
            }
        }
        for height in 1..3 {
            self.check_summaries(height)?;
        }
        for bin in 0..BINS {
            let has = self.levels[2].bits.iter().skip(bin).step_by(BINS).any(|&bits| bits != 0);
            let noted = self.filled[bin / WORD] >> (bin % WORD) & 1 == 1;
            let law = "a bin is filled if a leaf stands in it";
            Violation::unless_equal(law, bin as u64, u64::from(has), u64::from(noted))?;
        }
        Ok(())
    }

    /// Verifies that each word tells which words of the level below have a bit. Looks only at words with a bit, as
    /// nearly all have none.
    fn check_summaries(&self, height: usize) -> Result<(), Violation> {
        let (below, above) = (&self.levels[height - 1].bits, &self.levels[height].bits);
        let law = "a word of words tells which words below have a bit";
        for (word, &set) in above.iter().enumerate().filter(|&(_, &set)| set != 0) {
            for bit in bits(set) {
                let at = (word / BINS * WORD + bit) * BINS + word % BINS;
                let has = below.get(at).is_some_and(|&set| set != 0);
                Violation::unless(law, word as u64, has)?;
            }
        }
        for (word, _) in below.iter().enumerate().filter(|&(_, &set)| set != 0) {
            let (number, bin) = (word / BINS, word % BINS);
            let noted = above.get(number / WORD * BINS + bin);
            let noted = noted.is_some_and(|set| set >> (number % WORD) & 1 == 1);
            Violation::unless(law, word as u64, noted)?;
        }
        Ok(())
    }

    /// Verifies that each word notes the longest hole of each coarse bin and a child that has it.
    pub(super) fn check_longest<N: Note>(&self, leaves: &Leaves<N>) -> Result<(), Violation> {
        for (height, level) in self.levels.iter().enumerate() {
            for word in 0..level.words() {
                for bin in EXACT as usize..BINS {
                    let noted = level.longest(word, bin);
                    let reach = |child: usize| match height {
                        0 => {
                            let lengths = leaves.lengths((word * WORD + child) as u32);
                            Longest::reach(bin, lengths.max_up_to(largest_in(bin)))
                        }
                        _ => self.levels[height - 1].longest(word * WORD + child, bin).reaches(),
                    };
                    let children = level.bits[word * BINS + bin];
                    let longest = bits(children).map(reach).max().unwrap_or(0);
                    let law = "a word notes the longest hole of a bin";
                    let reached = u64::from(noted.reaches());
                    Violation::unless_equal(law, bin as u64, u64::from(longest), reached)?;
                    let has_it = children == 0
                        || children >> noted.child() & 1 == 1 && reach(noted.child()) == longest;
                    Violation::unless("the noted child has the longest hole", bin as u64, has_it)?;
                }
            }
        }
        Ok(())
    }
}

/// The state of a search for the smallest holes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    length: u32,
    /// The current bin; none at the end.
    bin: Option<usize>,
    /// Leaves of the bin with lower numbers have been looked at.
    from: usize,
    /// Number of leaves of the bin that had no long enough hole.
    short: u32,
}

/// Holes of one leaf whose lengths belong to one bin, their lanes as a bit mask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidates {
    pub(super) bin: usize,
    pub(super) leaf: u32,
    pub(super) lanes: u32,
}

impl Candidates {
    /// Returns true if all holes of the bin have the same length.
    #[inline]
    pub(super) fn same_length(&self) -> bool {
        self.bin < EXACT as usize
    }
}

/// Returns the lanes whose lengths belong to `bin`, as a bit mask.
#[inline]
fn lanes_in(bin: usize, lengths: &Row) -> u32 {
    if bin < EXACT as usize {
        return if bin == 0 { 0 } else { lengths.equal_to(bin as u32) };
    }
    lengths.between(smallest_in(bin), largest_in(bin))
}

/// Returns the lanes whose lengths belong to `bin` and are at least `length`, as a bit mask. `length` belongs to that
/// bin or to one below.
#[inline]
fn long_lanes_in(bin: usize, length: u32, lengths: &Row) -> u32 {
    if bin < EXACT as usize {
        return lengths.equal_to(bin as u32);
    }
    lengths.between(smallest_in(bin).max(length), largest_in(bin))
}

/// Returns the set bits of a word, lowest first.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

/// Returns the set bits of a mask, lowest first.
pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let lane = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= !lanes_below(lane + 1);
        Some(lane)
    })
}

const _: () = assert!(BINS == EXACT as usize + 22 * 16 && LANE_MAX.ilog2() == 30);
