//! Long lists are published as a hash; files are known by theirs.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 of `data` in lower-case hexadecimal.
pub(crate) fn sha256(data: &[u8]) -> String {
    hexadecimal(&Sha256::digest(data))
}

/// Returns the SHA-256 of everything that can be read, without holding it.
pub(crate) fn sha256_of(mut reader: impl Read) -> io::Result<String> {
    let (mut hash, mut part) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match reader.read(&mut part)? {
            0 => return Ok(hexadecimal(&hash.finalize())),
            read => hash.update(&part[..read]),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
