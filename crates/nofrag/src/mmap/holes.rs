//! The free ranges between areas, and forecasts of how long they will last.
//!
//! A process dies of addresses in two ways: no hole is large enough, or there are too many areas. So holes are counted
//! in whole and by size, and the distance to the limit of areas with them.

use super::attributes::Protection;
use super::layout::Direction;
use super::space::AddressSpace;
use crate::ranges::Span;
use crate::units::PageCount;

/// Number and sizes of the holes in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoleStats {
    pub holes: usize,
    /// Pages of all holes together.
    pub free: PageCount,
    /// Pages of the largest hole.
    pub largest: PageCount,
}

/// The holes of one bucket of a [`HoleHistogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoleBucket {
    pub holes: usize,
    /// Pages of all these holes together.
    pub pages: PageCount,
}

/// Holes by size: those of 2^k to 2^(k+1) - 1 pages are in bucket k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoleHistogram {
    buckets: [HoleBucket; 64],
}

impl HoleHistogram {
    /// Returns the 64 buckets, of which bucket k counts the holes of 2^k to 2^(k+1) - 1 pages.
    #[must_use]
    pub fn buckets(&self) -> &[HoleBucket] {
        &self.buckets
    }

    /// Returns each bucket k that holds anything, ascending, behind the least pages that a hole in it can have, 2^k.
    pub fn occupied(&self) -> impl Iterator<Item = (PageCount, HoleBucket)> + '_ {
        let named = self.buckets.iter().enumerate();
        named.filter(|(_, bucket)| bucket.holes > 0).map(|(k, &bucket)| (PageCount(1 << k), bucket))
    }
}

/// Inaccessible areas: guards and reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardShare {
    pub areas: usize,
    /// Pages of all these areas together.
    pub pages: PageCount,
}

/// The distances of a space from its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Number of areas that may still be added before mapping fails.
    pub maps: usize,
    /// Number of areas that may still be added before cutting one in two fails: unmapping or protecting its middle.
    pub cuts: usize,
    /// Pages that are mapped in the usual window.
    pub mapped: PageCount,
    /// Pages from the start of searches to the farthest mapped page: the window that would have sufficed. Divided by
    /// `mapped`, it is the survival ratio of this moment.
    pub reach: PageCount,
}

impl AddressSpace {
    /// Returns the holes of at least one page between the layout's floor and end, ascending.
    pub fn holes(&self) -> impl Iterator<Item = Span> + '_ {
        self.layout.all().into_iter().flat_map(|all| self.areas.gaps(all))
    }

    /// Returns the holes in `within`, cut to it, ascending.
    pub fn holes_in(&self, within: Span) -> impl Iterator<Item = Span> + '_ {
        self.areas.gaps(within)
    }

    /// Returns number and sizes of the holes between the layout's floor and end. O(n).
    #[must_use]
    pub fn hole_stats(&self) -> HoleStats {
        in_numbers(self.holes())
    }

    /// Returns the holes between the layout's floor and end, by size. O(n).
    #[must_use]
    pub fn hole_histogram(&self) -> HoleHistogram {
        let mut buckets = [HoleBucket::default(); 64];
        for hole in self.holes() {
            let bucket = &mut buckets[hole.len().ilog2() as usize];
            bucket.holes += 1;
            bucket.pages.0 += hole.len();
        }
        HoleHistogram { buckets }
    }

    /// Returns the longest free range between the layout's floor and end that begins at a multiple of `align` pages, of
    /// equal ones the lowest; exact. `None` if no such multiple is free, or `align` is zero. O(n).
    #[must_use]
    pub fn largest_aligned(&self, align: u64) -> Option<Span> {
        let aligned = self.holes().filter_map(|hole| {
            Span::new(hole.start().checked_next_multiple_of(align)?, hole.end()).ok()
        });
        aligned.reduce(|best, next| if next.len() > best.len() { next } else { best })
    }

    /// Returns number and pages of the inaccessible areas. O(n).
    #[must_use]
    pub fn guard_share(&self) -> GuardShare {
        let guards = self.areas().filter(|area| area.attributes.protection == Protection::NONE);
        guards.fold(GuardShare::default(), |share, area| GuardShare {
            areas: share.areas + 1,
            pages: PageCount(share.pages.0 + area.pages.0),
        })
    }

    /// Returns the distances of the space from its limits. O(n).
    #[must_use]
    pub fn headroom(&self) -> Headroom {
        let count = self.area_count();
        let window = match self.layout.direction {
            Direction::Up => Span::new(self.layout.base.0, self.layout.end.0),
            Direction::Down => Span::new(self.layout.floor.0, self.layout.top.0),
        };
        let (mut mapped, mut reach) = (0, 0);
        if let Ok(window) = window {
            let parts = self.areas().filter_map(|area| {
                Span::new(area.start.0, area.end().0).ok()?.intersection(window)
            });
            for part in parts {
                mapped += part.len();
                reach = match self.layout.direction {
                    Direction::Up => part.end() - window.start(),
                    Direction::Down => reach.max(window.end() - part.start()),
                };
            }
        }
        Headroom {
            maps: self.map_limit.saturating_add(1).saturating_sub(count),
            cuts: self.map_limit.saturating_sub(count),
            mapped: PageCount(mapped),
            reach: PageCount(reach),
        }
    }
}

fn in_numbers(holes: impl Iterator<Item = Span>) -> HoleStats {
    holes.fold(HoleStats::default(), |stats, hole| HoleStats {
        holes: stats.holes + 1,
        free: PageCount(stats.free.0 + hole.len()),
        largest: PageCount(stats.largest.0.max(hole.len())),
    })
}
