//! The generator of the published simulations (MT19937, Matsumoto and Nishimura 1998), so that a mean over four runs
//! can be compared run by run: means over other runs differ by more than the designs do.

const N: usize = 624;
const M: usize = 397;

pub(crate) struct Mersenne {
    state: [u32; N],
    at: usize,
}

impl Mersenne {
    /// Initialized "by array" with the one word `key`.
    pub(crate) fn new(key: u32) -> Mersenne {
        let mut state = [19_650_218_u32; N];
        for i in 1..N {
            let last = state[i - 1] ^ (state[i - 1] >> 30);
            state[i] = last.wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        let mut i = 1;
        for (round, factor) in
            (0..2 * N - 1).map(|round| (round, if round < N { 1_664_525 } else { 1_566_083_941 }))
        {
            let last = state[i - 1] ^ (state[i - 1] >> 30);
            let mixed = state[i] ^ last.wrapping_mul(factor);
            state[i] =
                if round < N { mixed.wrapping_add(key) } else { mixed.wrapping_sub(i as u32) };
            i += 1;
            if i == N {
                state[0] = state[N - 1];
                i = 1;
            }
        }
        state[0] = 1 << 31;
        Mersenne { state, at: N }
    }

    pub(crate) fn next(&mut self) -> u32 {
        if self.at == N {
            for i in 0..N {
                let joined = self.state[i] & (1 << 31) | self.state[(i + 1) % N] & !(1 << 31);
                let twist = if joined % 2 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + M) % N] ^ (joined >> 1) ^ twist;
            }
            self.at = 0;
        }
        let mut word = self.state[self.at];
        self.at += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    /// Uniform in 0..1 with 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        let (high, low) = (u64::from(self.next() >> 5), u64::from(self.next() >> 6));
        ((high << 26) + low) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in 0..bound: as many top bits as `bound` has, drawn again while too large.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        loop {
            let drawn = self.next() >> bound.leading_zeros();
            if drawn < bound {
                return drawn;
            }
        }
    }
}

#[test]
fn known_outputs() {
    let mut key_0 = Mersenne::new(0);
    assert_eq!([key_0.next(), key_0.next(), key_0.next()], [3626764237, 1654615998, 3255389356]);
}
