//! Areas in address order, each stored once together with the gap before it, and a search for gaps.
//!
//! An *area* is a range that is in use, with a number, its *tag*, that the owner gives a meaning. Areas never overlap;
//! two that touch have a gap of zero numbers between them. The last gap reaches from the highest area to the end of
//! all numbers.

use super::{Fit, OutOfMetadata, Span};
use crate::check::Violation;
use alloc::vec::Vec;

/// Where an area is; any change of the index makes it stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

/// A range in use and what its owner says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) span: Span,
    pub(crate) tag: u32,
}

/// A wish for a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GapRequest {
    pub(crate) size: u64,
    /// A power of two.
    pub(crate) align: u64,
    /// The start leaves this remainder when divided by `align`.
    pub(crate) offset: u64,
    /// The place must lie in here; gaps count as cut to it.
    pub(crate) within: Span,
    /// [`Fit::Best`] takes the smallest gap, among equals the lowest, among places in it that at `edge`.
    pub(crate) fit: Fit,
    pub(crate) edge: Edge,
}

/// The end of a gap that a best fit is cut from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    Low,
    High,
}

/// A gap, cut to the bounds of the request, and the place in it that serves the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundGap {
    pub(crate) gap: Span,
    pub(crate) place: Span,
}

/// The index.
#[derive(Clone, Debug, Default)]
pub(crate) struct AreaIndex {
    areas: Vec<Area>,
}

impl AreaIndex {
    /// How many areas.
    pub(crate) fn len(&self) -> usize {
        self.areas.len()
    }

    /// The lowest area that ends above `at`. O(log n).
    pub(crate) fn find(&self, at: u64) -> Option<Place> {
        let place = self.areas.partition_point(|area| area.span.end() <= at);
        (place < self.areas.len()).then_some(Place(place))
    }

    /// The highest area that starts below `end`. O(log n).
    pub(crate) fn find_below(&self, end: u64) -> Option<Place> {
        self.areas.partition_point(|area| area.span.start() < end).checked_sub(1).map(Place)
    }

    /// The area above; amortised O(1).
    pub(crate) fn next(&self, place: Place) -> Option<Place> {
        (place.0 + 1 < self.areas.len()).then_some(Place(place.0 + 1))
    }

    /// The area below; amortised O(1).
    pub(crate) fn previous(&self, place: Place) -> Option<Place> {
        place.0.checked_sub(1).map(Place)
    }

    /// The area at `place`.
    pub(crate) fn area(&self, place: Place) -> Area {
        self.areas[place.0]
    }

    /// Makes sure that the next `count` calls of [`insert`](Self::insert) find room.
    pub(crate) fn reserve(&mut self, count: usize) -> Result<(), OutOfMetadata> {
        self.areas.try_reserve(count).map_err(|_| OutOfMetadata)
    }

    /// Adds an area, which lies in a gap; room was reserved. O(log n).
    pub(crate) fn insert(&mut self, area: Area) {
        let at = self.areas.partition_point(|other| other.span.end() <= area.span.start());
        let above = self.areas.get(at);
        assert!(above.is_none_or(|other| area.span.end() <= other.span.start()), "areas overlap");
        self.areas.insert(at, area);
    }

    /// Takes an area out. O(log n).
    pub(crate) fn remove(&mut self, place: Place) {
        self.areas.remove(place.0);
    }

    /// Changes the bounds or the tag of an area; its new span overlaps no other area. O(log n).
    pub(crate) fn set(&mut self, place: Place, area: Area) {
        self.areas[place.0] = area;
    }

    /// A place for `request`; adds to `steps` how many entries were inspected.
    pub(crate) fn search(&self, request: &GapRequest, steps: &mut u64) -> Option<FoundGap> {
        let found = self.gaps(request.within).filter_map(|gap| {
            *steps += 1;
            Some(FoundGap { gap, place: place_in(gap, request)? })
        });
        match request.fit {
            Fit::Lowest => found.min_by_key(|found| found.gap.start()),
            Fit::Highest => found.max_by_key(|found| found.gap.start()),
            Fit::Best | Fit::Dynamic => found.min_by_key(|found| found.gap.len()),
        }
    }

    /// The largest gap in `within`, cut to it, of equal ones the lowest. O(log n).
    pub(crate) fn largest_gap(&self, within: Span) -> Option<Span> {
        self.gaps(within).reduce(|best, gap| if gap.len() > best.len() { gap } else { best })
    }

    /// The gaps of at least one number, cut to `within`, ascending.
    pub(crate) fn gaps(&self, within: Span) -> impl Iterator<Item = Span> + '_ {
        let ends = core::iter::once(0).chain(self.areas.iter().map(|area| area.span.end()));
        let starts = self.areas.iter().map(|area| area.span.start()).chain([Span::ALL.end()]);
        let gaps = ends.zip(starts).filter_map(|(start, end)| Span::new(start, end).ok());
        gaps.filter_map(move |gap| gap.intersection(within))
    }

    /// All areas, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Area> + '_ {
        self.areas.iter().copied()
    }

    /// Bytes that the index holds.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.areas.capacity() * size_of::<Area>()
    }

    pub(crate) fn check(&self) -> Result<(), Violation> {
        let mut end = 0;
        for area in &self.areas {
            let apart = end <= area.span.start();
            Violation::unless("areas ascend and never overlap", area.span.start(), apart)?;
            end = area.span.end();
        }
        Ok(())
    }
}

/// The place in `gap` that serves `request`.
fn place_in(gap: Span, request: &GapRequest) -> Option<Span> {
    let GapRequest { size, align, offset, fit, edge, .. } = *request;
    let low = matches!((fit, edge), (Fit::Lowest, _) | (Fit::Best | Fit::Dynamic, Edge::Low));
    let start = if low {
        let misfit = offset.wrapping_sub(gap.start()) & (align - 1);
        gap.start().checked_add(misfit)?
    } else {
        let start = gap.end().checked_sub(size)?;
        start.checked_sub(start.wrapping_sub(offset) & (align - 1))?
    };
    let place = Span::sized(start, size).ok()?;
    gap.covers(place).then_some(place)
}
