//! How a structure states what is always true of it, and names the sentence that broke.

use crate::errors::errors;

/// A structure that can verify its own laws.
///
/// `check` costs at least O(n) and is meant for tests, fuzzers and post-mortems.
pub trait Check {
    /// Verifies every law; the first broken one is returned.
    ///
    /// # Errors
    /// The [`Violation`] names the law and where it broke.
    fn check(&self) -> Result<(), Violation>;
}

/// A law that does not hold, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The sentence that broke, as the structure's documentation words it.
    pub law: &'static str,
    /// The address or index at which it broke.
    pub at: u64,
    /// What the law demands there.
    pub expected: u64,
    /// What was found.
    pub found: u64,
}

impl Violation {
    /// Ok if `expected` and `found` agree, else the violation of `law` at `at`.
    ///
    /// # Errors
    /// The violation, when they differ.
    pub fn unless_equal(
        law: &'static str,
        at: u64,
        expected: u64,
        found: u64,
    ) -> Result<(), Violation> {
        if expected == found { Ok(()) } else { Err(Violation { law, at, expected, found }) }
    }

    /// Ok if `holds`, else the violation of `law` at `at`.
    ///
    /// # Errors
    /// The violation, when it does not hold.
    pub fn unless(law: &'static str, at: u64, holds: bool) -> Result<(), Violation> {
        Violation::unless_equal(law, at, 1, u64::from(holds))
    }
}

errors!(Violation { law, at, expected, found } =>
    "broken law \"{law}\" at {at:#x}: expected {expected}, found {found}");
