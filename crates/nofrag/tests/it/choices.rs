//! The source of the drivers' choices: the bytes of a fuzzer or of proptest, or a seed.

/// A source of choices for a driver.
#[derive(Clone, Debug)]
pub(crate) enum Choices<'a> {
    /// These bytes, and zeros behind their end.
    Bytes(&'a [u8]),
    /// Choices without an end, from a seed.
    Seed(Random),
}

impl Choices<'_> {
    pub(crate) fn seed(seed: u64) -> Choices<'static> {
        Choices::Seed(Random::new(seed))
    }

    pub(crate) fn has_more(&self) -> bool {
        !matches!(self, Choices::Bytes([]))
    }

    /// Returns a number of `0..bound`; zero if there is none. It uses up as many bytes as the bound has.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let bytes = match self {
            Choices::Seed(random) => return random.below(bound),
            Choices::Bytes(bytes) => bytes,
        };
        let Some(most) = bound.checked_sub(1).filter(|&most| most > 0) else { return 0 };
        let mut number = 0;
        for _ in 0..most.ilog2() / 8 + 1 {
            let Some((&first, rest)) = bytes.split_first() else { break };
            *bytes = rest;
            number = number << 8 | u64::from(first);
        }
        number % bound
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    /// Returns true once in `times` times, on average.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        // Not at zero, which is what follows when bytes are used up.
        self.below(times) == 1
    }

    /// Returns one of these; `None` if there are none.
    pub(crate) fn any<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        of.get(self.below(of.len() as u64) as usize).copied()
    }
}

/// xorshift64*: enough for tests, and one seed replays a run.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number of `0..bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(drawn) * u128::from(bound)) >> 64) as u64
    }
}
