//! The two words that the cached placements remember, and their life cycle.

use crate::mmap::layout::{Direction, Layout};

/// `free_area_cache` and `cached_hole_size`, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// Where the next search begins.
    pub(super) free_area_cache: u64,
    /// The largest hole known on the near side of it; [`UNKNOWN`] forces a full search.
    pub(super) cached_hole_size: u64,
}

/// Nothing is known of holes (`~0`).
pub(super) const UNKNOWN: u64 = u64::MAX;

impl Words {
    pub(super) fn new(layout: &Layout) -> Words {
        let start = match layout.direction {
            Direction::Up => layout.base,
            Direction::Down => layout.top,
        };
        Words { free_area_cache: start.0, cached_hole_size: UNKNOWN }
    }
}
