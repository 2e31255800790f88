//! Holes in nofrag's range allocator, areas in a standard map beside it: two structures for what is one list of
//! boundaries.

use super::walk::AreaMap;
use super::{AreaSpace, Found, WINDOW, mirrored};
use nofrag::ranges::{AlignRule, Config, Fit, Index, RangeAllocator, Request, Span};

/// A space with one structure for holes and another for areas.
#[derive(Debug)]
pub struct Halves {
    holes: RangeAllocator,
    areas: AreaMap,
    way: Way,
}

/// Way of asking for the highest place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Straight,
    /// The lowest place of the mirrored space: Linux's trees of free ranges know no other.
    Mirrored,
}

impl Halves {
    /// Makes holes over wide blocks.
    #[must_use]
    pub fn wide_blocks() -> Halves {
        Halves::new(Index::WideBlocks, Way::Straight)
    }

    /// Makes holes over Linux's tree of free ranges (since 5.2).
    #[must_use]
    pub fn augmented_tree() -> Halves {
        Halves::new(Index::AugmentedTree(AlignRule::default()), Way::Mirrored)
    }

    fn new(index: Index, way: Way) -> Halves {
        let config = Config { index, size_index: false, ..Config::default() };
        let mut holes = RangeAllocator::new(config);
        holes.add_span(WINDOW).expect("an empty allocator accepts its first span");
        Halves { holes, areas: AreaMap::default(), way }
    }

    /// Translates the start of a range from holes to space, or the other way round.
    fn translate(&self, start: u64, pages: u64) -> u64 {
        match self.way {
            Way::Straight => start,
            Way::Mirrored => mirrored(start, pages),
        }
    }
}

impl AreaSpace for Halves {
    #[inline]
    fn map(&mut self, pages: u64) -> Option<u64> {
        let fit = match self.way {
            Way::Straight => Fit::Highest,
            Way::Mirrored => Fit::Lowest,
        };
        let hole = self.holes.alloc(&Request::new(pages).fit(fit)).ok()?;
        let start = self.translate(hole.start(), pages);
        self.areas.insert(start, pages);
        Some(start)
    }

    fn map_at(&mut self, start: u64, pages: u64) -> bool {
        self.areas.insert(start, pages);
        let hole = Span::sized(self.translate(start, pages), pages);
        hole.is_ok_and(|hole| self.holes.alloc_at(hole).is_ok())
    }

    #[inline]
    fn unmap(&mut self, start: u64, pages: u64) -> bool {
        let hole = Span::sized(self.translate(start, pages), pages);
        let is_freed = hole.is_ok_and(|hole| self.holes.free(hole).is_ok());
        self.areas.remove(start, pages) && is_freed
    }

    #[inline]
    fn find(&self, at: u64) -> Found {
        self.areas.find(at)
    }

    fn steps(&self) -> Option<u64> {
        Some(self.holes.counters().steps)
    }
}
