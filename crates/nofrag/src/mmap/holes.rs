//! What is left between areas.

use super::space::AddressSpace;
use crate::ranges::Span;
use crate::units::PageCount;

/// The holes of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoleStats {
    /// How many.
    pub holes: usize,
    /// Their pages together.
    pub free: PageCount,
    /// Pages of the largest.
    pub largest: PageCount,
}

impl AddressSpace {
    /// The holes of at least one page between floor and end, ascending.
    pub fn holes(&self) -> impl Iterator<Item = Span> + '_ {
        self.layout.all().into_iter().flat_map(|all| self.areas.gaps(all))
    }

    /// The holes between floor and end, in numbers. O(n).
    #[must_use]
    pub fn hole_stats(&self) -> HoleStats {
        self.holes().fold(HoleStats::default(), |stats, hole| HoleStats {
            holes: stats.holes + 1,
            free: PageCount(stats.free.0 + hole.len()),
            largest: PageCount(stats.largest.0.max(hole.len())),
        })
    }
}
