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

#[cfg(test)]
mod tests {
    use super::super::entry::{Entry, Hole};
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// Leaves at the edges of words and of words of words.
    const SOME: [u32; 10] = [0, 1, 63, 64, 70, 71, 4_095, 4_096, 4_100, 8_200];
    const NUMBERS: usize = 8_300;

    /// Leaves with holes, and the index that is kept in step with them.
    struct Pair {
        leaves: Leaves<()>,
        sizes: SizeBins,
    }

    impl Pair {
        fn new() -> Pair {
            let mut pair = Pair { leaves: Leaves::default(), sizes: SizeBins::new() };
            pair.leaves.reserve(NUMBERS).unwrap();
            pair.sizes.reserve(pair.leaves.numbers()).unwrap();
            pair
        }

        fn of(holes: &[(u32, u32)]) -> Pair {
            let mut pair = Pair::new();
            holes.iter().for_each(|&(leaf, length)| pair.add(leaf, length));
            pair.check().unwrap();
            pair
        }

        fn add(&mut self, leaf: u32, length: u32) {
            let lane = self.leaves.count(leaf);
            let hole = Hole::known(0, u64::from(length));
            self.leaves.insert(leaf, lane, Entry { hole, note: () });
            self.sizes.add(leaf, length);
        }

        fn remove(&mut self, leaf: u32, lane: usize) {
            let length = self.leaves.lengths(leaf).0[lane];
            self.leaves.remove(leaf, lane);
            self.sizes.remove(leaf, length, self.leaves.lengths(leaf), &self.leaves);
        }

        fn change(&mut self, leaf: u32, lane: usize, new: u32, is_told: bool) {
            let old = self.leaves.lengths(leaf).0[lane];
            self.leaves.set_length(leaf, lane, u64::from(new));
            let largest = (is_told && new < old).then(|| self.leaves.lengths(leaf).max());
            self.sizes.change(leaf, (old, new), largest, &self.leaves);
        }

        fn check(&self) -> Result<(), Violation> {
            let in_use: Vec<bool> =
                (0..self.leaves.numbers() as u32).map(|leaf| self.leaves.count(leaf) > 0).collect();
            for leaf in SOME {
                self.sizes.check_leaf(leaf, self.leaves.lengths(leaf))?;
            }
            self.sizes.check_words(&in_use)?;
            self.sizes.check_longest(&self.leaves)
        }

        /// Returns bin, leaf and lanes of the holes of at least `length`, in the order of bins and leaves.
        fn long(&self, length: u32) -> Vec<(usize, u32, u32)> {
            let mut all = std::collections::BTreeMap::new();
            for leaf in SOME {
                for (lane, &own) in self.leaves.lengths(leaf).0.iter().enumerate() {
                    if own >= length {
                        *all.entry((bin_of(own), leaf)).or_insert(0) |= 1 << lane;
                    }
                }
            }
            all.into_iter().map(|((bin, leaf), lanes)| (bin, leaf, lanes)).collect()
        }

        fn found(&self, length: u32) -> (Vec<(usize, u32, u32)>, u64) {
            let (mut search, mut counters) = (self.sizes.search(length), Counters::default());
            let mut all = Vec::new();
            while let Some(it) = self.sizes.next(&mut search, &self.leaves, &mut counters) {
                all.push((it.bin, it.leaf, it.lanes));
                assert_eq!(it.same_length(), it.bin < 512);
            }
            (all, counters.steps)
        }
    }

    #[test]
    fn the_index_follows_what_leaves_hold_and_finds_it() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut pair = Pair::new();
        let lengths =
            [1, 2, 63, 64, 65, 510, 511, 512, 513, 543, 600, 1 << 20, LANE_MAX - 1, LANE_MAX];
        for step in 0..400 {
            let leaf = SOME[random.random_range(0..SOME.len())];
            let length = lengths[random.random_range(0..lengths.len())];
            let length = if length == 600 { random.random_range(600..640) } else { length };
            let count = pair.leaves.count(leaf);
            match random.random_range(0..4) {
                0 if count > 0 => pair.remove(leaf, random.random_range(0..count)),
                1 if count > 1 => pair.remove(leaf, count - 1),
                2 if count > 0 => {
                    pair.change(leaf, random.random_range(0..count), length, random.random());
                }
                _ if count < 4 => pair.add(leaf, length),
                _ => {}
            }
            if step % 8 == 0 {
                pair.check().unwrap();
            }
            let wanted = random.random_range(1..700);
            let (found, _) = pair.found(wanted);
            // At most nine leaves can be passed over, of which one ends the search in their order.
            let (own, long) = (bin_of(wanted), pair.long(wanted));
            let above = |all: &[(usize, u32, u32)]| -> Vec<_> {
                all.iter().copied().filter(|it| it.0 > own).collect()
            };
            assert_eq!(above(&found), above(&long), "{wanted}");
            assert!(found.iter().all(|it| long.contains(it)), "{wanted}: {found:?} {long:?}");
            assert_eq!(found.first().map(|it| it.0), long.first().map(|it| it.0), "{wanted}");
        }
    }

    #[test]
    fn after_eight_short_leaves_the_longest_hole_comes() {
        let short =
            |count: u32| -> Vec<(u32, u32)> { (0..count).map(|leaf| (leaf, 600)).collect() };
        let [seven, eight] =
            [7, 8].map(|count| [short(count), vec![(8_200, 607), (8_201, 605)]].concat());
        let both = [8_200, 8_201].map(|leaf| (bin_of(600), leaf, 1));
        assert_eq!(Pair::of(&seven).found(605), (both.to_vec(), 9));
        assert_eq!(Pair::of(&eight).found(605), (both[..1].to_vec(), 8 + 4));
        assert_eq!(
            Pair::of(&eight).found(608),
            (Vec::new(), 0),
            "the bin says that it does not serve"
        );
        assert_eq!(Pair::of(&eight).found(607).0, both[..1]);
    }

    #[test]
    fn a_bin_has_the_lengths_from_its_smallest_to_its_largest() {
        let edges = [1, 2, 511, 512, 543, 544, 575, 576, 1_023, 1_024, 1_087, 1_088, LANE_MAX];
        for length in edges {
            let bin = bin_of(length);
            assert!((smallest_in(bin)..=largest_in(bin)).contains(&length), "{length}");
            assert_eq!((bin_of(smallest_in(bin)), bin_of(largest_in(bin))), (bin, bin));
        }
        for bin in 1..BINS {
            assert_eq!(largest_in(bin - 1) + 1, smallest_in(bin), "no length lies between bins");
        }
        assert_eq!((bin_of(LANE_MAX), largest_in(BINS - 1)), (BINS - 1, LANE_MAX));
    }

    /// Checks that harm to an index breaks this law, at this place.
    #[track_caller]
    fn check_harm(law: &str, at: usize, harm: impl FnOnce(&mut SizeBins)) {
        let holes = [(0, 4), (70, 4), (70, 605), (71, 600), (71, 4), (4_100, 4), (4_100, 610)];
        let mut pair = Pair::of(&holes);
        harm(&mut pair.sizes);
        let violation = pair.check().unwrap_err();
        assert_eq!((violation.law, violation.at), (law, at as u64));
    }

    #[test]
    fn laws_of_bins_are_looked_at() {
        let coarse = bin_of(605);
        let own = "a leaf stands in the bins of its holes and in no other";
        check_harm(own, 4, |sizes| sizes.levels[0].bits[BINS + 4] &= !(1 << (70 - 64)));
        check_harm(own, 9, |sizes| sizes.add(70, 9));
        check_harm("a vacant leaf stands in no bin", 4_101, |sizes| sizes.add(4_101, 4));
        let filled = "a bin is filled if a leaf stands in it";
        check_harm(filled, 100, |sizes| sizes.filled[1] |= 1 << (100 - 64));
        let words = "a word of words tells which words below have a bit";
        check_harm(words, 4, |sizes| sizes.levels[1].bits[4] |= 1 << 5);
        check_harm(words, BINS + 4, |sizes| sizes.levels[1].bits[BINS + 4] |= 1 << 5);
        check_harm(words, 4, |sizes| sizes.levels[2].bits[4] |= 1 << 2);
        let longest = "a word notes the longest hole of a bin";
        let noted = |height: usize, word: usize| {
            move |sizes: &mut SizeBins| {
                let noted = sizes.levels[height].longest_mut(word, coarse);
                *noted = Longest::of(noted.reaches() + 1, noted.child());
            }
        };
        check_harm(longest, coarse, noted(0, 1));
        check_harm(longest, coarse, noted(1, 0));
        check_harm(longest, coarse, noted(2, 0));
        let child = "the noted child has the longest hole";
        let of = |child: usize| {
            move |sizes: &mut SizeBins| {
                let noted = sizes.levels[0].longest_mut(1, coarse);
                *noted = Longest::of(noted.reaches(), child);
            }
        };
        check_harm(child, coarse, of(71 - 64));
        check_harm(child, coarse, of(9));
    }

    #[test]
    fn bits_that_words_above_have_lost_are_missed() {
        let mut pair = Pair::of(&[(4_100, 4), (4_100, 605)]);
        pair.sizes.levels[2].bits[4] = 0;
        let in_use: Vec<bool> = (0..pair.leaves.numbers()).map(|leaf| leaf == 4_100).collect();
        let violation = pair.sizes.check_words(&in_use).unwrap_err();
        let law = "a word of words tells which words below have a bit";
        assert_eq!((violation.law, violation.at), (law, BINS as u64 + 4));
        let mut pair = Pair::of(&[(4_100, 4), (4_100, 605)]);
        pair.sizes.levels[1].bits[BINS + 4] = 0;
        let violation = pair.sizes.check_words(&in_use).unwrap_err();
        assert_eq!((violation.law, violation.at), (law, 64 * BINS as u64 + 4));
        let mut pair = Pair::of(&[(4_100, 4), (4_100, 605)]);
        pair.sizes.filled[0] = 0;
        let violation = pair.sizes.check_words(&in_use).unwrap_err();
        assert_eq!((violation.law, violation.at), ("a bin is filled if a leaf stands in it", 4));
    }
}
