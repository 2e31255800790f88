//! First fit from area to area: upwards the lowest gap that fits (Linux 2.4: docs/sources/mmap.md#p0), downwards its
//! mirror image.

use super::{View, Wish};
use crate::mmap::layout::Direction;
use crate::mmap::space::MmapCounters;
use crate::ranges::Span;

/// Returns the place in the nearest gap that fits, found from area to area: upwards as Linux 2.4 (P0), downwards in
/// mirror image. O(n).
pub(super) fn first_fit(view: View<'_>, wish: &Wish, counters: &mut MmapCounters) -> Option<u64> {
    wish.near_then_far(view.layout, |bounds, direction| match direction {
        Direction::Up => up(view, wish, bounds, counters, |_| {}),
        Direction::Down => down(view, wish, bounds, counters, |_| {}),
    })
}

/// Returns the lowest place in `bounds` that fits. `stepped_over` is called with each gap that is too small. One visit
/// for each area and one for the answer.
pub(super) fn up(
    view: View<'_>,
    wish: &Wish,
    bounds: Span,
    counters: &mut MmapCounters,
    mut stepped_over: impl FnMut(Span),
) -> Option<u64> {
    // Never `at + pages > end`, which overflows.
    let last = bounds.end().checked_sub(wish.pages)?;
    let mut gap_start = bounds.start();
    let mut area = view.areas.find(gap_start);
    loop {
        counters.visits += 1;
        let at = wish.aligned_from(gap_start);
        if last < at {
            return None;
        }
        let Some(place) = area else { return Some(at) };
        let span = view.areas.span(place);
        if at + wish.pages <= span.start() {
            return Some(at);
        }
        if gap_start < span.start() {
            stepped_over(Span::known(gap_start, span.start()));
        }
        gap_start = span.end();
        area = view.areas.next(place);
    }
}

/// Returns the highest place in `bounds` that fits; else as [`up`], but an area that holds the last page is not a
/// visit: the lookup of that page has found its start.
pub(super) fn down(
    view: View<'_>,
    wish: &Wish,
    bounds: Span,
    counters: &mut MmapCounters,
    mut stepped_over: impl FnMut(Span),
) -> Option<u64> {
    let at_end = view.areas.find(bounds.end() - 1).map(|place| view.areas.span(place).start());
    let mut gap_end = bounds.end().min(at_end.unwrap_or(u64::MAX));
    let mut area = view.areas.find_below(gap_end);
    loop {
        counters.visits += 1;
        let at = wish.aligned_below(gap_end, bounds.start())?;
        let Some(place) = area else { return Some(at) };
        let span = view.areas.span(place);
        if span.end() <= at {
            return Some(at);
        }
        if span.end() < gap_end {
            stepped_over(Span::known(span.end(), gap_end));
        }
        gap_end = span.start();
        area = view.areas.previous(place);
    }
}
