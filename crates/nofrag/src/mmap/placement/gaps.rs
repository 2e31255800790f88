//! The placements that descend an index of gaps: the gap tree of 3.8, the maple tree of 6.1, and the huge-page rule.
//!
//! All of them find the nearest gap, and none knows of alignment: they ask for as many pages more as alignment may
//! cost, so that an aligned gap that fits exactly is missed.
//!
//! Source: docs/sources/mmap.md#p4, mmap.md#p5, mmap.md#p5t and mmap.md#guard-gaps.

use super::{HugePages, Spot, View, Wish};
use crate::mmap::attributes::AreaFlags;
use crate::mmap::layout::Direction;
use crate::mmap::space::MmapCounters;
use crate::ranges::{AreaPlace, Edge, Fingers, Fit, GapPlace, GapRequest, Span};

/// Size of a huge page in bytes (`PMD_SIZE`).
pub(super) const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The treatment of the guard gaps of stacks in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guards {
    Ignored,
    Kept,
}

/// Returns a place in the nearest gap of the padded size, as the gap tree (P4) and the maple tree (P5) of Linux do.
/// O(log n), and as often again as guard gaps are in the way.
pub(super) fn nearest(
    view: View<'_>,
    wish: &Wish,
    guards: Guards,
    counters: &mut MmapCounters,
) -> Option<Spot> {
    let found = wish.near_then_far(view.layout, |bounds, direction| match direction {
        Direction::Up => up(view, wish, guards, bounds, counters).map(Found::At),
        Direction::Down => down(view, wish, guards, bounds, counters),
    });
    match found? {
        Found::At(spot) => Some(spot),
        Found::BeyondWindow => None,
    }
}

/// The outcome of a search after which Linux does not try again upwards.
enum Found {
    At(Spot),
    /// Linux, where the guard gap of a stack reaches address 0 and the search comes there, as seen on 6.18
    /// (docs/sources/mmap.md#guard-down-to-zero): its next bound is 0, below which it takes all addresses, and the
    /// place that it finds up there is refused.
    BeyondWindow,
}

/// Places a mapping on a huge-page boundary, as Linux since 6.7 does (P5T): asks for room for one huge page more, and
/// moves the place up in it to a boundary.
///
/// Downwards the place is the highest boundary in the highest gap with that room (docs/sources/mmap.md#p5t-down). Where
/// the placement finds none, the mapping is placed as any other.
pub(super) fn on_huge_page(
    view: View<'_>,
    wish: &Wish,
    which: HugePages,
    guards: Guards,
    counters: &mut MmapCounters,
) -> Option<Spot> {
    let huge = view.layout.pages(HUGE_PAGE_BYTES).0;
    let asks = match which {
        HugePages::Ignored => false,
        HugePages::AllSizes => wish.pages >= huge,
        HugePages::Multiples => wish.pages.is_multiple_of(huge),
    };
    let roomy = wish.pages.checked_add(huge).map(|pages| Wish { pages, ..*wish });
    let room = roomy.filter(|_| asks && wish.linux_aligns_huge_pages(view.layout));
    let Some(room) = room.and_then(|roomy| nearest(view, &roomy, guards, counters)) else {
        return nearest(view, wish, guards, counters);
    };
    let up_to_boundary = room.start.wrapping_neg() & (huge - 1);
    // The layout's direction decides, also where the search goes the other way (`MAP_32BIT`): so does 6.18
    // (docs/sources/mmap.md#habits).
    let more = match view.layout.direction {
        Direction::Down if up_to_boundary == 0 => huge,
        _ => up_to_boundary,
    };
    Some(Spot { start: room.start + more, ..room })
}

/// Returns the lowest place that the padded request has outside of guard gaps (mmap.md#p5-up).
fn up(
    view: View<'_>,
    wish: &Wish,
    guards: Guards,
    bounds: Span,
    counters: &mut MmapCounters,
) -> Option<Spot> {
    let padded = padded(wish)?;
    let mut low = bounds.start().max(view.layout.floor.0);
    loop {
        let within = Span::new(low, bounds.end()).ok()?;
        let (place, gap) = gap(view, padded, within, Fit::Lowest, counters)?;
        let at = wish.aligned_from(place.start());
        let spot = Spot { start: at, gap: Some(gap) };
        if guards == Guards::Ignored {
            return Some(spot);
        }
        let above = view.areas.find(at).filter(|&area| has_guard_below(view, area));
        let below = view.areas.find_below(at);
        low = match (above, below) {
            (Some(area), _) if guard_start(view, area) < at.saturating_add(padded) => {
                view.areas.span(area).end()
            }
            // The search does not look at the area below if the one above has a guard.
            (None, Some(area)) if guard_end(view, area) > at => guard_end(view, area),
            _ => return Some(spot),
        }
    }
}

/// Returns the highest place that the padded request has outside of guard gaps (mmap.md#p5-down).
fn down(
    view: View<'_>,
    wish: &Wish,
    guards: Guards,
    bounds: Span,
    counters: &mut MmapCounters,
) -> Option<Found> {
    let padded = padded(wish)?;
    let mut high = bounds.end();
    loop {
        let within = Span::new(bounds.start(), high).ok()?;
        let (place, gap) = gap(view, padded, within, Fit::Highest, counters)?;
        let end = place.end();
        let at = wish.aligned_below(end, bounds.start())?;
        let spot = Spot { start: at, gap: Some(gap) };
        if guards == Guards::Ignored {
            return Some(Found::At(spot));
        }
        let above = view.areas.find(at).filter(|&area| has_guard_below(view, area));
        let below = view.areas.find_below(at);
        high = match (above, below) {
            (Some(area), _) if guard_start(view, area) == 0 => return Some(Found::BeyondWindow),
            (Some(area), _) if guard_start(view, area) < end => guard_start(view, area),
            (None, Some(area)) if guard_end(view, area) > at => view.areas.span(area).start(),
            _ => return Some(Found::At(spot)),
        }
    }
}

/// Returns the number of pages that a gap needs to hold the aligned mapping wherever the gap begins; `None` on
/// overflow.
fn padded(wish: &Wish) -> Option<u64> {
    wish.pages.checked_add(wish.align - 1)
}

fn gap(
    view: View<'_>,
    size: u64,
    within: Span,
    fit: Fit,
    counters: &mut MmapCounters,
) -> Option<(Span, GapPlace)> {
    let request = GapRequest { size, align: 1, offset: 0, within, fit, edge: Edge::Low };
    let found = view.areas.search_near(&request, &mut Fingers::default(), &mut counters.steps);
    found.map(|(found, gap)| (found.place, gap))
}

fn has_guard_below(view: View<'_>, area: AreaPlace) -> bool {
    view.areas.based(area).flags.any_of(AreaFlags::GROWS_DOWN.with(AreaFlags::SHADOW_STACK))
}

/// Returns the start of the guard gap below an area.
fn guard_start(view: View<'_>, area: AreaPlace) -> u64 {
    let guard = view.areas.based(area).guard_below(view.guard_gap);
    view.areas.span(area).start().saturating_sub(guard)
}

/// Returns the end of the guard gap above an area.
fn guard_end(view: View<'_>, area: AreaPlace) -> u64 {
    let flags = view.areas.based(area).flags;
    let guard = if flags.any_of(AreaFlags::GROWS_UP) { view.guard_gap.0 } else { 0 };
    view.areas.span(area).end().saturating_add(guard)
}
