//! Runs of set bits in a few words: the free slots of a block.

/// The longest run that is told apart: no request is longer.
pub(super) const LONGEST: u32 = 64;

/// Sets `len` bits from `start` on, at least one.
#[inline]
pub(super) fn set(words: &mut [u64], start: u32, len: u32) {
    let Ends { first, last, low, high } = ends(start, len);
    if first == last {
        words[first] |= low & high;
    } else {
        words[first] |= low;
        words[first + 1..last].fill(u64::MAX);
        words[last] |= high;
    }
}

/// Sets the bits that are set in `more`.
#[inline]
pub(super) fn join(words: &mut [u64], more: &[u64]) {
    words.iter_mut().zip(more).for_each(|(word, more)| *word |= more);
}

/// Clears `len` bits from `start` on, at least one.
#[inline]
pub(super) fn clear(words: &mut [u64], start: u32, len: u32) {
    let Ends { first, last, low, high } = ends(start, len);
    if first == last {
        words[first] &= !(low & high);
    } else {
        words[first] &= !low;
        words[first + 1..last].fill(0);
        words[last] &= !high;
    }
}

/// First and last word of a run of bits: `low` masks the bits from its start up, `high` those up to its end.
struct Ends {
    first: usize,
    last: usize,
    low: u64,
    high: u64,
}

#[inline]
fn ends(start: u32, len: u32) -> Ends {
    debug_assert!(len > 0, "a run has a bit");
    let end = start + len - 1;
    Ends {
        first: (start / 64) as usize,
        last: (end / 64) as usize,
        low: u64::MAX << (start % 64),
        high: u64::MAX >> (63 - end % 64),
    }
}

/// Returns the first maximal run at or above `from`: its first bit and its length. A run that `from` cuts begins there.
#[inline]
pub(super) fn next_run(words: &[u64], from: u32) -> Option<(u32, u32)> {
    let mut word = (from / 64) as usize;
    let mut bits = *words.get(word)? & u64::MAX << (from % 64);
    while bits == 0 {
        word += 1;
        bits = *words.get(word)?;
    }
    let bit = bits.trailing_zeros();
    let start = word as u32 * 64 + bit;
    let mut len = (bits >> bit).trailing_ones();
    let mut reaches = bit + len == 64;
    while reaches && let Some(next) = words.get(word + 1) {
        let more = next.trailing_ones();
        len += more;
        word += 1;
        reaches = more == 64;
    }
    Some((start, len))
}

/// Returns the first run at or above `from` of at least `size` bits: its first bit and its length.
#[inline]
pub(super) fn run_of(words: &[u64], from: u32, size: u32) -> Option<(u32, u32)> {
    let mut from = from;
    loop {
        let (start, len) = next_run(words, from)?;
        if len >= size {
            return Some((start, len));
        }
        from = start + len;
    }
}

/// Returns the length of the longest run, at most [`LONGEST`], and the number of runs looked at.
pub(super) fn longest_run(words: &[u64]) -> (u32, u32) {
    let (mut longest, mut from, mut runs) = (0, 0, 0);
    while longest < LONGEST
        && let Some((start, len)) = next_run(words, from)
    {
        longest = longest.max(len);
        from = start + len;
        runs += 1;
    }
    (longest.min(LONGEST), runs)
}

#[inline]
pub(super) fn is_set(words: &[u64], at: u32) -> bool {
    words[(at / 64) as usize] >> (at % 64) & 1 == 1
}

pub(super) fn count(words: &[u64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads bits from text: `#` is set, the lowest comes first.
    fn words_of(text: &str) -> Vec<u64> {
        let mut words = vec![0; text.len().div_ceil(64)];
        for (at, _) in text.char_indices().filter(|(_, mark)| *mark == '#') {
            set(&mut words, at as u32, 1);
        }
        words
    }

    #[test]
    fn runs_cross_words() {
        let text = format!("..###.{}{}", "#".repeat(100), "..#");
        let words = words_of(&text);
        assert_eq!(next_run(&words, 0), Some((2, 3)));
        assert_eq!(next_run(&words, 3), Some((3, 2)));
        assert_eq!(next_run(&words, 5), Some((6, 100)));
        assert_eq!(run_of(&words, 0, 4), Some((6, 100)));
        assert_eq!(next_run(&words, 106), Some((108, 1)));
        assert_eq!(next_run(&words, 109), None);
        assert_eq!(next_run(&words, 128), None);
        assert_eq!(run_of(&words, 107, 2), None);
        assert_eq!((longest_run(&words), count(&words)), ((LONGEST, 2), 104));
        assert_eq!([1, 2, 107, 108].map(|at| is_set(&words, at)), [false, true, false, true]);
        let exact = words_of(&format!("{}.#", "#".repeat(LONGEST as usize)));
        assert_eq!(longest_run(&exact), (LONGEST, 1), "there is no longer one to look for");
    }

    #[test]
    fn a_full_set_is_one_run() {
        let mut words = vec![u64::MAX; 16];
        assert_eq!(next_run(&words, 0), Some((0, 1024)));
        clear(&mut words, 60, 10);
        assert_eq!(next_run(&words, 0), Some((0, 60)));
        assert_eq!(next_run(&words, 60), Some((70, 954)));
        clear(&mut words, 0, 60);
        clear(&mut words, 70, 954);
        assert_eq!((next_run(&words, 0), longest_run(&words)), (None, (0, 0)));
    }

    #[test]
    fn the_longest_run_agrees_with_counting() {
        let mut random = 1_u64;
        for density in 1..8 {
            let text: String = (0..320)
                .map(|_| {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    if random >> 61 < density { '#' } else { '.' }
                })
                .collect();
            let expected = text.split('.').map(str::len).max().unwrap_or(0) as u32;
            assert_eq!(longest_run(&words_of(&text)).0, expected.min(LONGEST));
        }
    }
}
