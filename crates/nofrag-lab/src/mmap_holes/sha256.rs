//! SHA-256 (FIPS 180-4), by which a long list of areas was published. Nothing secret is hashed here.

const ROUNDS: usize = 64;

/// The first 32 bits of the fractional part of a root, which the standard takes its constants from.
fn fraction(root: f64) -> u32 {
    (root.fract() * (1_u64 << 32) as f64) as u32
}

fn primes() -> impl Iterator<Item = u32> {
    (2_u32..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d)))
}

/// The digest of `message` in hexadecimal digits.
pub(super) fn sha256(message: &[u8]) -> String {
    let mut constants = [0; ROUNDS];
    for (constant, prime) in constants.iter_mut().zip(primes()) {
        *constant = fraction(f64::from(prime).cbrt());
    }
    let mut state = [0; 8];
    for (word, prime) in state.iter_mut().zip(primes()) {
        *word = fraction(f64::from(prime).sqrt());
    }
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((8 * message.len() as u64).to_be_bytes());
    for block in padded.chunks_exact(64) {
        compress(&mut state, block, &constants);
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

fn compress(state: &mut [u32; 8], block: &[u8], constants: &[u32; ROUNDS]) {
    let mut words = [0_u32; ROUNDS];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for t in 16..ROUNDS {
        let [a, b] = [words[t - 15], words[t - 2]];
        let low = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let high = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        words[t] = high.wrapping_add(words[t - 7]).wrapping_add(low).wrapping_add(words[t - 16]);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in words.iter().zip(constants) {
        let sum = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = [sum, choice, *constant, *word].into_iter().fold(h, u32::wrapping_add);
        let sum = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        let second = sum.wrapping_add(majority);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the standard, and lengths around a block.
    #[test]
    fn the_digests_of_the_standard() {
        for (message, digest) in [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            assert_eq!(sha256(message.as_bytes()), digest, "{message}");
        }
    }
}
