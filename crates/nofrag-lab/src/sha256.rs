//! SHA-256 (FIPS 180-4), for lists that are published as a hash.

/// The hash of `data` in lower-case hexadecimal.
pub(crate) fn sha256(data: &[u8]) -> String {
    let mut message = data.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend_from_slice(&(8 * data.len() as u64).to_be_bytes());
    let mut state: [u32; 8] = fractions(2);
    for block in message.chunks_exact(64) {
        absorb(&mut state, block);
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

/// The first 32 bits of the fractions of the roots, of this degree, of the first primes.
fn fractions<const N: usize>(degree: u32) -> [u32; N] {
    let mut primes = (2u128..).filter(|n| (2..*n).all(|divisor| n % divisor != 0));
    std::array::from_fn(|_| {
        let prime = primes.next().expect("primes do not end");
        // The root of the prime with 32 bits of fraction: the largest number whose power does not exceed it.
        let scaled = prime << (32 * degree);
        let below = (0..40).rev().fold(0u128, |root, bit| {
            let larger = root | 1 << bit;
            if larger.pow(degree) <= scaled { larger } else { root }
        });
        below as u32
    })
}

fn absorb(state: &mut [u32; 8], block: &[u8]) {
    let constants: [u32; 64] = fractions(3);
    let mut schedule = [0u32; 64];
    for (word, bytes) in schedule.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes(bytes.try_into().expect("chunks of four"));
    }
    for i in 16..64 {
        let (early, late) = (schedule[i - 15], schedule[i - 2]);
        let early = early.rotate_right(7) ^ early.rotate_right(18) ^ early >> 3;
        let late = late.rotate_right(17) ^ late.rotate_right(19) ^ late >> 10;
        schedule[i] =
            schedule[i - 16].wrapping_add(early).wrapping_add(schedule[i - 7]).wrapping_add(late);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (constant, word) in constants.iter().zip(schedule) {
        let mix = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = e & f ^ !e & g;
        let first =
            h.wrapping_add(mix).wrapping_add(choice).wrapping_add(*constant).wrapping_add(word);
        let mix = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = mix.wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (word, value) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_hold() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), abc);
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        let hash = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
        assert_eq!(sha256(two_blocks), hash);
    }
}
