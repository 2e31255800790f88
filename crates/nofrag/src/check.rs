//! A trait for structures that verify their own laws, and the violation that names a broken law.

use crate::errors::errors;

/// A structure that can verify its own laws.
///
/// `check` costs at least O(n) and is meant for tests, fuzzers and post-mortems.
pub trait Check {
    /// Verifies every law and returns the first broken one.
    ///
    /// # Errors
    /// The [`Violation`] names the law and where it broke.
    fn check(&self) -> Result<(), Violation>;
}

/// A broken law, and the place where it does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The sentence that broke, as the structure's documentation words it.
    pub law: &'static str,
    /// The address, or the index of an entry or block, at which the law is broken; 0 for most laws about the whole
    /// structure.
    pub at: u64,
    /// The value that the law demands at `at`; 1 for a law that only holds or does not.
    pub expected: u64,
    pub found: u64,
}

impl Violation {
    /// Returns Ok if `expected` and `found` agree, else the violation of `law` at `at`.
    ///
    /// # Errors
    /// The violation, when `expected` and `found` differ.
    pub fn unless_equal(
        law: &'static str,
        at: u64,
        expected: u64,
        found: u64,
    ) -> Result<(), Violation> {
        if expected == found { Ok(()) } else { Err(Violation { law, at, expected, found }) }
    }

    /// Returns Ok if `holds`, else the violation of `law` at `at`.
    ///
    /// # Errors
    /// The violation, with 1 expected and 0 found, when `holds` is false.
    pub fn unless(law: &'static str, at: u64, holds: bool) -> Result<(), Violation> {
        Violation::unless_equal(law, at, 1, u64::from(holds))
    }
}

errors!(Violation { law, at, expected, found } =>
    "broken law \"{law}\" at {at:#x}: expected {expected}, found {found}");
