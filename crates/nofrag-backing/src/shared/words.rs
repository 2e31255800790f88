//! Numbers in words that anybody may have written over: each carries a check of its own, so that it can be replaced by
//! one store, and a word that nobody meant is recognised.

/// Numbers below this fit.
pub(super) const LIMIT: u64 = 1 << 48;

/// What a word is about; the same number for another purpose has another check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Offset,
    Length,
    Intent,
}

/// The word for `value`, which lies below [`LIMIT`], in the life `generation` of entry `entry`.
pub(super) fn pack(about: About, entry: u32, generation: u32, value: u64) -> u64 {
    debug_assert!(value < LIMIT, "{value:#x} does not fit");
    value << 16 | check(about, entry, generation, value)
}

/// The number in a word, if it was packed for this purpose, entry and life.
pub(super) fn unpack(about: About, entry: u32, generation: u32, word: u64) -> Option<u64> {
    let value = word >> 16;
    (word & 0xffff == check(about, entry, generation, value)).then_some(value)
}

/// Sixteen bits that depend on all of it: accidents are meant, no adversary; who means harm finds bounds in its way.
fn check(about: About, entry: u32, generation: u32, value: u64) -> u64 {
    mix(&[about as u64 + 1, u64::from(entry) << 32 | u64::from(generation), value]) >> 48
}

/// One number of many, by multiplication with the golden ratio's odd fraction.
pub(super) fn mix(words: &[u64]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    words.iter().fold(0, |sum, word| {
        let next = (sum ^ word).wrapping_add(ODD).wrapping_mul(ODD);
        next ^ next >> 29
    })
}
