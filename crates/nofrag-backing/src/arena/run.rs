//! What an allocation gives.

use crate::backend::Va;

/// Who may hand out the runs of a block: a thread, a processor, a stream of a GPU. Numbers from zero on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u32);

/// Adjacent pages that were handed out together: a plain value, which names memory and does not own it.
///
/// Copies name the same run. Whoever frees through one of them makes the others stale, and a free through a stale one
/// is refused: the generation says which of the runs that have begun at this address is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub(super) va: Va,
    pub(super) pages: u32,
    pub(super) generation: u32,
}

impl Run {
    /// A run that was taken apart, for example to be stored, from its [`va`](Run::va), [`pages`](Run::pages) and
    /// [`generation`](Run::generation). What names no run is refused where it is used.
    #[must_use]
    pub const fn from_parts(va: Va, pages: u32, generation: u32) -> Run {
        Run { va, pages, generation }
    }

    /// Its first address.
    #[must_use]
    pub const fn va(&self) -> Va {
        self.va
    }

    /// How many pages it has.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Which of the runs that have begun here.
    #[must_use]
    pub const fn generation(&self) -> u32 {
        self.generation
    }
}
