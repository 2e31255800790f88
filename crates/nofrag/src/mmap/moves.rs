//! A move that holds both places until it is committed or rolled back.

use crate::ranges::Span;

/// An area that has been given a second place; see `AddressSpace::begin_move`.
#[must_use = "a pending move holds both places until it is committed or rolled back"]
#[derive(Debug, PartialEq, Eq)]
pub struct PendingMove {
    pub(super) from: Span,
    pub(super) to: Span,
}

impl PendingMove {
    /// The old place, in pages.
    #[must_use]
    pub fn from(&self) -> Span {
        self.from
    }

    /// The new place, in pages.
    #[must_use]
    pub fn to(&self) -> Span {
        self.to
    }
}
