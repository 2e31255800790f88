//! What an allocation gives.

use std::fmt;

use crate::backend::Va;

/// Who may hand out the runs of a block: a thread, or a processor. Numbers from zero on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u32);

/// Adjacent pages that were handed out together: a plain value, which names memory and does not own it.
///
/// Copies name the same run. Whoever frees through one of them makes the others stale, and a free through a stale one
/// is refused: the generation says which of the runs that have begun at this address is meant.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    va: Va,
    /// Pages below, generation above. Two words travel in two registers; three fields would go through memory, and what
    /// is stored in pieces and loaded whole waits for the store (half of what a parked allocation and free cost).
    tag: u64,
}

impl Run {
    /// A run that was taken apart, for example to be stored, from its [`va`](Run::va), [`pages`](Run::pages) and
    /// [`generation`](Run::generation). What names no run is refused where it is used.
    #[must_use]
    #[inline]
    pub const fn from_parts(va: Va, pages: u32, generation: u32) -> Run {
        Run { va, tag: (generation as u64) << 32 | pages as u64 }
    }

    /// Its first address.
    #[must_use]
    #[inline]
    pub const fn va(&self) -> Va {
        self.va
    }

    /// How many pages it has.
    #[must_use]
    #[inline]
    pub const fn pages(&self) -> u32 {
        self.tag as u32
    }

    /// Which of the runs that have begun here.
    #[must_use]
    #[inline]
    pub const fn generation(&self) -> u32 {
        (self.tag >> 32) as u32
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, pages, generation) = (self.va.0, self.pages(), self.generation());
        write!(f, "Run at {at:#x}: {pages} pages, generation {generation}")
    }
}
