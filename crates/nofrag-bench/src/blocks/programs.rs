//! The sizes that are mapped and unmapped, one pair each, again and again.

use crate::trace::{Draws, Sizes};

const SLOTS: usize = 1024;

/// The orders of the sizes up to the largest that is cut from a block.
const ORDERS: std::ops::RangeInclusive<u32> = 0..=6;

/// A sequence of sizes to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    OnePage,
    /// The largest that is cut from a block: sixteen fill one.
    Largest,
    /// Pen's first (docs/sources/vmap.md#w1): 16 pages, then 8 until a hole of 8 is left.
    W1,
    /// Pen's second (docs/sources/vmap.md#w2): any size from one page to the largest.
    W2,
    /// Pen's third (docs/sources/vmap.md#w3): each power of two until it leaves a hole of its size; then one of each.
    W3,
}

/// Programs that one thread is timed with.
pub const TIMED: [Program; 5] =
    [Program::OnePage, Program::Largest, Program::W1, Program::W2, Program::W3];

impl Program {
    /// Programs that two threads are timed with: one with hardly a block per thousand pairs, one with many.
    pub const THREADED: [Program; 2] = [Program::OnePage, Program::Largest];

    /// Returns the name used in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Program::OnePage => "1 page",
            Program::Largest => "64 pages",
            Program::W1 => "W1",
            Program::W2 => "W2",
            Program::W3 => "W3",
        }
    }

    /// Draws one turn of the sequence, long enough that going round costs nothing.
    #[must_use]
    pub fn sizes(self, seed: u64) -> Vec<u32> {
        match self {
            Program::OnePage => vec![1; SLOTS],
            Program::Largest => vec![64; SLOTS],
            Program::W1 => std::iter::once(16).chain(vec![8; (SLOTS - 16) / 8 - 1]).collect(),
            Program::W2 => {
                let mut draws = Draws::new(seed, Sizes::Uniform);
                (0..10_000).map(|_| draws.size()).collect()
            }
            Program::W3 => {
                let but_one = |order: u32| vec![1 << order; (SLOTS >> order) - 1];
                ORDERS.flat_map(but_one).chain(ORDERS.map(|order| 1 << order)).collect()
            }
        }
    }
}
