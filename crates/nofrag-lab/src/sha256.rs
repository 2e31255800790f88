//! Long lists are published as a hash.

use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 of `data` in lower-case hexadecimal.
pub(crate) fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}
