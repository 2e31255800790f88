//! The areas of a region, loaded into the engine and asked what would still succeed.
//!
//! The engine is [`RangeAllocator`] with the region as its space, in pages, each area taken by `alloc_at`. Its answers
//! are exact for the layout that the file shows, and the kernel knows more than the file shows:
//!
//! * The file is not a snapshot: areas come and go while it is read, so two lines may claim one range. The later one is
//!   counted in [`Layout::overlaps`] and otherwise ignored.
//! * From 6.9 on, purged ranges of up to 256 pages wait in pools per node. No file lists them, and they look like holes
//!   here; a request that misses empties the pools, so they are indeed room, but not before a purge.
//! * Linux searches with `size + align - 1` above a page of alignment, so it can miss a place that the engine finds.

use nofrag::ranges::{AlignClasses, Config, FreeError, RangeAllocator, Request, Span, TakeError};
use serde::Serialize;
use thiserror::Error;

use crate::region::{Region, State};

/// The areas of a region, loaded into an engine that has the region as its space.
#[derive(Debug)]
pub struct Layout {
    engine: RangeAllocator,
    page_bytes: u64,
    lazy: Vec<Span>,
    overlaps: u32,
}

/// The reason why a region could not be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// There is no memory for the engine's records of areas and holes.
    #[error("no memory for the records of the layout")]
    OutOfMemory,
    /// The page size is not a power of two.
    #[error("the size of a page does not suit the region")]
    BadPage,
}

/// Free address space of a region. Sizes are bytes of address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Room {
    pub free_bytes: u64,
    pub holes: usize,
    /// The largest area that would succeed, its guard page included.
    pub largest_area_bytes: u64,
    /// The largest `vmalloc` request: one guard page less.
    pub largest_request_bytes: u64,
    /// The largest area at each alignment, guard page included.
    pub largest_by_align: Vec<AlignedRoom>,
    /// The holes by power of two, ascending; classes without holes are left out.
    pub classes: Vec<HoleClass>,
}

/// The largest area that would succeed at one alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AlignedRoom {
    pub align_bytes: u64,
    /// The largest area in bytes; zero when none fits.
    pub largest_area_bytes: u64,
}

/// The holes of `from_bytes` up to twice as many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HoleClass {
    /// The smallest size in the class, a power of two.
    pub from_bytes: u64,
    pub holes: usize,
    /// Sum of the holes' sizes.
    pub bytes: u64,
}

/// Alignments in bytes for which the largest area is reported, beside that of one page: those that large pages need on
/// some architecture.
pub(crate) const ALIGNS: [u64; 3] = [64 << 10, 2 << 20, 1 << 30];

impl Layout {
    /// Loads the areas of `region`. O(n log n).
    ///
    /// # Errors
    /// Those of [`LayoutError`].
    pub fn load(region: &Region, page_bytes: u64) -> Result<Layout, LayoutError> {
        if !page_bytes.is_power_of_two() {
            return Err(LayoutError::BadPage);
        }
        let config = Config { align_classes: align_classes(page_bytes), ..Config::default() };
        let mut engine = RangeAllocator::new(config);
        let space = in_pages(region.span, page_bytes).ok_or(LayoutError::BadPage)?;
        // A new engine has no span with which this one could overlap.
        engine.add_span(space).map_err(|_| LayoutError::OutOfMemory)?;
        let mut layout = Layout { engine, page_bytes, lazy: Vec::new(), overlaps: 0 };
        for area in &region.areas {
            let Some(span) = in_pages(area.span, page_bytes) else { continue };
            match layout.engine.alloc_at(span) {
                Ok(()) if area.state == State::Lazy => layout.lazy.push(span),
                Ok(()) => {}
                Err(TakeError::Taken | TakeError::Foreign) => layout.overlaps += 1,
                Err(_) => return Err(LayoutError::OutOfMemory),
            }
        }
        Ok(layout)
    }

    /// Returns the number of areas that were left out because an earlier one holds a part of their range.
    #[must_use]
    pub fn overlaps(&self) -> u32 {
        self.overlaps
    }

    /// Frees every lazy area, as a full purge does. Doing it twice changes nothing.
    ///
    /// # Errors
    /// [`LayoutError::OutOfMemory`]; the areas not yet freed stay lazy.
    pub fn purge(&mut self) -> Result<(), LayoutError> {
        while let Some(&span) = self.lazy.last() {
            match self.engine.free(span) {
                Ok(()) => {}
                Err(FreeError::Foreign | FreeError::NotAllocated) => {
                    unreachable!("a lazy area was taken by `load` and is freed once")
                }
                Err(_) => return Err(LayoutError::OutOfMemory),
            }
            self.lazy.pop();
        }
        Ok(())
    }

    /// Returns the space that is free at present. O(holes).
    #[must_use]
    pub fn room(&self) -> Room {
        let page = self.page_bytes;
        let stats = self.engine.stats();
        let aligns = ALIGNS.into_iter().filter(|&align| align > page);
        let largest_by_align = std::iter::once(page)
            .chain(aligns)
            .map(|align| AlignedRoom {
                align_bytes: align,
                largest_area_bytes: self.largest_at(align),
            })
            .collect();
        let largest = stats.largest * page;
        Room {
            free_bytes: stats.free * page,
            holes: stats.holes,
            largest_area_bytes: largest,
            largest_request_bytes: largest.saturating_sub(page),
            largest_by_align,
            classes: self.classes(),
        }
    }

    /// Returns true if an area of `bytes` at `align` would succeed: the area is allocated and freed again.
    #[must_use]
    pub fn would_succeed(&mut self, bytes: u64, align: u64) -> bool {
        let request =
            Request::new(bytes.div_ceil(self.page_bytes)).align((align / self.page_bytes).max(1));
        let Ok(span) = self.engine.alloc(&request) else { return false };
        self.engine.free(span).expect("what was allocated a moment ago can be freed");
        true
    }

    fn largest_at(&self, align_bytes: u64) -> u64 {
        self.engine.largest_aligned(align_bytes / self.page_bytes) * self.page_bytes
    }

    fn classes(&self) -> Vec<HoleClass> {
        let mut classes = [(0_usize, 0_u64); u64::BITS as usize];
        for hole in self.engine.iter_free() {
            let bytes = hole.len() * self.page_bytes;
            let (holes, sum) = &mut classes[bytes.ilog2() as usize];
            *holes += 1;
            *sum += bytes;
        }
        let class =
            |(exponent, &(holes, bytes))| HoleClass { from_bytes: 1_u64 << exponent, holes, bytes };
        classes.iter().enumerate().filter(|(_, (holes, _))| *holes > 0).map(class).collect()
    }
}

/// Returns the pages that `span` touches; `None` would be an empty span, which rounding outwards does not make.
fn in_pages(span: Span, page_bytes: u64) -> Option<Span> {
    Span::new(span.start() / page_bytes, span.end().div_ceil(page_bytes)).ok()
}

fn align_classes(page_bytes: u64) -> AlignClasses {
    let exponents: Vec<u8> = ALIGNS
        .into_iter()
        .filter(|&align| align > page_bytes)
        .map(|align| (align / page_bytes).ilog2() as u8)
        .collect();
    AlignClasses::new(&exponents).unwrap_or(AlignClasses::NONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Bounds, Name, Placed};

    const PAGE: u64 = 4096;
    const BASE: u64 = 0xffff_c900_0000_0000;

    /// Returns a region drawn one character per page: `.` free, `#` live, `~` lazy; equal neighbours are one area.
    fn region(picture: &str) -> Region {
        let span = |start: usize, end: usize| {
            Span::new(BASE + start as u64 * PAGE, BASE + end as u64 * PAGE).expect("not empty")
        };
        let cells = picture.as_bytes();
        let mut areas = Vec::new();
        let mut start = 0;
        for run in cells.chunk_by(|a, b| a == b) {
            let end = start + run.len();
            let state = if run[0] == b'~' { State::Lazy } else { State::Live };
            if run[0] != b'.' {
                areas.push(Placed { span: span(start, end), state, line: 0 });
            }
            start = end;
        }
        let bounds = Bounds::Exact { why: String::new() };
        Region { name: Name::Vmalloc, span: span(0, cells.len()), bounds, areas }
    }

    fn check_largest(picture: &str, now: u64, after_purge: u64) {
        let mut layout = Layout::load(&region(picture), PAGE).unwrap();
        for expected in [now, after_purge] {
            assert_eq!(layout.room().largest_area_bytes, expected * PAGE, "{picture}");
            assert!(expected == 0 || layout.would_succeed(expected * PAGE, PAGE), "{picture}");
            assert!(!layout.would_succeed((expected + 1) * PAGE, PAGE), "{picture}");
            layout.purge().unwrap();
        }
    }

    #[test]
    fn a_purge_joins_holes_across_lazy_areas() {
        check_largest("##..##", 2, 2);
        check_largest("#..~~..#", 2, 6);
        check_largest("~~~~", 0, 4);
        check_largest("####", 0, 0);
        check_largest(".#~#.~", 1, 2);
    }

    #[test]
    fn holes_by_class_and_alignment() {
        let mut picture = "#".repeat(600);
        picture.replace_range(1..4, "...");
        picture.replace_range(8..13, ".....");
        picture.replace_range(496..530, &".".repeat(34));
        let room = Layout::load(&region(&picture), PAGE).unwrap().room();
        let class = |from: u64, holes, pages: u64| HoleClass {
            from_bytes: from * PAGE,
            holes,
            bytes: pages * PAGE,
        };
        assert_eq!(room.classes, [class(2, 1, 3), class(4, 1, 5), class(32, 1, 34)]);
        assert_eq!((room.holes, room.free_bytes), (3, 42 * PAGE));
        assert_eq!(room.largest_request_bytes, 33 * PAGE);
        let by_align: Vec<u64> =
            room.largest_by_align.iter().map(|aligned| aligned.largest_area_bytes / PAGE).collect();
        assert_eq!(by_align, [34, 34, 18, 0]);
    }

    #[test]
    fn overlapping_lines_are_counted_once() {
        let mut overlapping = region("##~~..");
        let first = overlapping.areas[0];
        overlapping.areas.push(Placed { state: State::Lazy, ..first });
        let mut layout = Layout::load(&overlapping, PAGE).unwrap();
        assert_eq!(layout.overlaps(), 1);
        layout.purge().unwrap();
        assert_eq!(layout.room().free_bytes, 4 * PAGE);
    }
}
