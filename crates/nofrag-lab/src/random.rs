//! Seeded randomness: the only source of chance in a scenario.

use rand::{RngExt, SeedableRng};
use rand_mt::Mt;
use rand_pcg::Pcg64Mcg;

/// A generator whose draws depend on the seed and the stream alone.
#[derive(Clone, Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// Returns the generator of `seed`. Different streams of one seed are independent: one per program, repetition or
    /// thread.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Random {
        // The golden ratio's bits part streams that differ by one; PCG mixes the rest.
        Random(Pcg64Mcg::seed_from_u64(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Draws a number in `low..=high`, each as likely.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high)
    }

    /// Draws an index below `len`, which is positive.
    pub fn index(&mut self, len: usize) -> usize {
        self.0.random_range(0..len)
    }

    /// Draws a byte, each value as likely.
    pub fn byte(&mut self) -> u8 {
        self.0.random()
    }

    /// Puts `items` in random order, each order as likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.index(i + 1);
            items.swap(i, j);
        }
    }

    /// Moves every item to another place: one random cycle through all of them (Sattolo), as the kernel's test driver
    /// does.
    pub fn shuffle_cyclic<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.index(i);
            items.swap(i, j);
        }
    }
}

/// The generator of the published simulations (MT19937), so that their counts can be compared one by one.
#[derive(Clone, Debug)]
pub struct Mersenne(Mt);

impl Mersenne {
    /// Returns the generator, seeded as by MT19937's `init_by_array` with an array of the one word `key`.
    #[must_use]
    pub fn new(key: u32) -> Mersenne {
        Mersenne(Mt::new_with_key([key]))
    }

    /// Draws uniformly in `0..bound`: takes as many top bits of a 32-bit draw as `bound` has binary digits, and draws
    /// again while they are too large.
    pub fn below(&mut self, bound: u32) -> u32 {
        loop {
            let drawn = self.0.next_u32() >> bound.leading_zeros();
            if drawn < bound {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sattolo_is_one_cycle_through_all(seed: u64, len in 2usize..200) {
            let mut order: Vec<usize> = (0..len).collect();
            Random::new(seed, 0).shuffle_cyclic(&mut order);
            let (mut at, mut length) = (order[0], 1);
            while at != 0 {
                prop_assert_ne!(order[at], at);
                at = order[at];
                length += 1;
            }
            prop_assert_eq!(length, len);
        }

        #[test]
        fn shuffle_keeps_the_items(seed: u64, len in 0usize..100) {
            let mut order: Vec<usize> = (0..len).collect();
            Random::new(seed, 1).shuffle(&mut order);
            order.sort_unstable();
            prop_assert_eq!(order, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_seed_names_its_draws_and_streams_differ() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..8).map(|_| random.between(1, 100)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 0), draw(7, 0));
        assert_ne!(draw(7, 0), draw(7, 1));
        assert_ne!(draw(7, 0), draw(8, 0));
    }

    #[test]
    fn one_item_cannot_move() {
        let mut only = [5];
        Random::new(1, 0).shuffle_cyclic(&mut only);
        assert_eq!(only, [5]);
    }

    #[test]
    fn key_0_draws_as_published() {
        let mut key_0 = Mersenne::new(0);
        assert_eq!([(); 5].map(|()| key_0.below(64) + 1), [50, 54, 6, 34, 63]);
    }
}
