//! The generator of the published simulations (MT19937, Matsumoto and Nishimura 1998), so that a mean over four runs
//! can be compared run by run: means over other runs differ by more than the designs do.

use rand_mt::Mt;

pub(crate) struct Mersenne(Mt);

impl Mersenne {
    /// Returns a generator that is initialized "by array" with the one word `key`.
    pub(crate) fn new(key: u32) -> Mersenne {
        Mersenne(Mt::new_with_key([key]))
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Returns a number uniform in 0..1 with 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        let (high, low) = (u64::from(self.next() >> 5), u64::from(self.next() >> 6));
        ((high << 26) + low) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number uniform in 0..bound: as many top bits as `bound` has, drawn again while too large.
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
