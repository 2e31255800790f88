//! Bytes that tell by themselves whether they are whole: a seed, then what follows from it, then their checksum.

/// FNV-1a over words: quick, and every byte counts.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words
        .chain(rest.iter().map(|&byte| u64::from(byte)))
        .fold(0xcbf2_9ce4_8422_2325, |sum, word| {
            (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
        })
}

/// Makes contents, at least 16 bytes.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    let (body, sum) = bytes.split_last_chunk_mut::<8>().expect("objects have at least 16 bytes");
    let mut state = seed | 1;
    for part in body.chunks_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        part.copy_from_slice(&state.to_le_bytes()[..part.len()]);
    }
    *sum = (checksum(body) ^ body.len() as u64).to_le_bytes();
}

/// Whether these are contents that `fill` made, all of them and nothing else.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk::<8>()
        .is_some_and(|(body, sum)| u64::from_le_bytes(*sum) == checksum(body) ^ body.len() as u64)
}
