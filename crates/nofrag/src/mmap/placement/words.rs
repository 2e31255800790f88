//! The two words that the cached placements remember, and their life cycle (docs/sources/mmap.md#life-cycle).
//!
//! `free_area_cache` is the start of the next search, `cached_hole_size` the largest size of a hole on the side of it
//! that searches no longer see: below it upwards, above it downwards. Neither is ever compared with the areas, so both
//! may be wrong: too careful a word costs visits, too bold a one leaves holes unused.

use super::Removal;
use crate::mmap::layout::{Direction, Layout};
use crate::ranges::Span;

/// `free_area_cache` and `cached_hole_size`, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// The start of the next search.
    pub(super) free_area_cache: u64,
    /// The largest hole known on the near side of that start; [`UNKNOWN`] forces a full search.
    pub(super) cached_hole_size: u64,
}

/// No hole is known (`~0`).
pub(super) const UNKNOWN: u64 = u64::MAX;

/// The effect of an unmapping on the words: docs/sources/mmap.md#p1b, mmap.md#p2k, mmap.md#p2a and mmap.md#p2b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    Idle,
    /// Each removed piece pulls `free_area_cache` back to the piece's near edge.
    PullBack,
    /// Upwards a removed piece counts as a hole, of its size in bytes modulo 2^32; downwards it pulls `free_area_cache`
    /// back.
    GrowHole,
    /// Each unmapping pulls `free_area_cache` back once, to the end of the neighbour on the near side.
    ToNeighbour(BelowBase),
    /// As [`ToNeighbour`](Self::ToNeighbour); upwards, `cached_hole_size` is [`UNKNOWN`] after it.
    ToNeighbourAndForget(BelowBase),
    /// `free_area_cache` goes to the near edge of each removed piece, wherever it stood before.
    Follow,
}

/// The effect when the neighbour on the near side of the unmapped range ends below the base, as a static program does
/// (docs/sources/mmap.md#below-base).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BelowBase {
    /// None: the hook takes the unmapping for one outside the window.
    Ignored,
    /// `free_area_cache` goes to the base.
    Clamped,
}

/// Returns the start of a search that knows nothing: `mmap_base`, which is the base itself in upward layouts.
fn home(layout: &Layout) -> u64 {
    match layout.direction {
        Direction::Up => layout.base.0,
        Direction::Down => layout.top.0,
    }
}

impl Words {
    /// Returns the cached words of a new process; a child of `fork` begins with them too, since it inherits none.
    pub(super) fn new(layout: &Layout) -> Words {
        Words { free_area_cache: home(layout), cached_hole_size: UNKNOWN }
    }

    /// Returns the words of a new program in an old process. Upwards "no hole" and "nothing known" mean the same here:
    /// either way the first search begins at the base.
    pub(super) fn after_exec(layout: &Layout) -> Words {
        Words { free_area_cache: home(layout), cached_hole_size: 0 }
    }

    pub(super) fn note_removal(&mut self, hook: Hook, layout: &Layout, removal: Removal) {
        match (removal, layout.direction) {
            (Removal::Area(area), Direction::Up) => self.area_went_up(hook, layout, area),
            (Removal::Area(area), Direction::Down) => self.area_went_down(hook, layout, area),
            (Removal::Done { below, .. }, Direction::Up) => {
                self.range_went_up(hook, layout, below);
            }
            (Removal::Done { above, .. }, Direction::Down) => {
                self.range_went_down(hook, layout, above);
            }
        }
    }

    fn area_went_up(&mut self, hook: Hook, layout: &Layout, area: Span) {
        let in_window = layout.base.0 <= area.start();
        let is_below_cache = in_window && area.start() < self.free_area_cache;
        match hook {
            Hook::PullBack if is_below_cache => self.free_area_cache = area.start(),
            Hook::GrowHole if is_below_cache => {
                // The patch as posted kept the size in 32 bits: an area of 4 GiB counts as nothing
                // (docs/sources/mmap.md#p2a).
                let bytes = area.len().wrapping_mul(layout.page.bytes()) as u32;
                let pages = u64::from(bytes) / layout.page.bytes();
                let grows = self.cached_hole_size < pages;
                self.cached_hole_size = if grows { pages } else { UNKNOWN };
            }
            Hook::Follow if in_window => self.free_area_cache = area.start(),
            _ => {}
        }
    }

    fn area_went_down(&mut self, hook: Hook, layout: &Layout, area: Span) {
        match hook {
            Hook::PullBack | Hook::GrowHole => {
                self.free_area_cache = self.free_area_cache.max(area.end()).min(layout.top.0);
            }
            Hook::Follow => self.free_area_cache = area.end().min(layout.top.0),
            Hook::Idle | Hook::ToNeighbour(_) | Hook::ToNeighbourAndForget(_) => {}
        }
    }

    fn range_went_up(&mut self, hook: Hook, layout: &Layout, below: Option<u64>) {
        let (Hook::ToNeighbour(below_base) | Hook::ToNeighbourAndForget(below_base)) = hook else {
            return;
        };
        let base = layout.base.0;
        let edge = match below_base {
            BelowBase::Ignored => below.unwrap_or(base),
            BelowBase::Clamped => below.map_or(base, |end| end.max(base)),
        };
        if base <= edge && edge < self.free_area_cache {
            self.free_area_cache = edge;
            if let Hook::ToNeighbourAndForget(_) = hook {
                self.cached_hole_size = UNKNOWN;
            }
        }
    }

    fn range_went_down(&mut self, hook: Hook, layout: &Layout, above: Option<u64>) {
        if let Hook::ToNeighbour(_) | Hook::ToNeighbourAndForget(_) = hook {
            let edge = above.unwrap_or(layout.top.0);
            self.free_area_cache = self.free_area_cache.max(edge).min(layout.top.0);
        }
    }
}
