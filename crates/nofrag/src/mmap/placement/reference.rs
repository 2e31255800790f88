//! Placements for comparison, which no kernel has (docs/sources/mmap.md#references).
//!
//! Best fit, worst fit, and fewest lost units look at every gap of the window, and visit each once: a reference must be
//! easy to believe, not fast.

use super::gaps::HUGE_PAGE_BYTES;
use super::{View, Wish};
use crate::mmap::layout::Direction;
use crate::mmap::space::MmapCounters;
use crate::ranges::{Edge, Fit, GapRequest, Span};

/// Returns a place in the smallest gap, at the edge where the direction begins, among equal ones in the nearest. O(n).
pub(super) fn best_fit(view: View<'_>, wish: &Wish, counters: &mut MmapCounters) -> Option<u64> {
    wish.near_then_far(view.layout, |bounds, direction| {
        least_cost(view, wish, bounds, direction, counters, Span::len)
    })
}

/// Returns a place in the largest gap; edge, ties and cost are those of [`best_fit`].
pub(super) fn worst_fit(view: View<'_>, wish: &Wish, counters: &mut MmapCounters) -> Option<u64> {
    wish.near_then_far(view.layout, |bounds, direction| {
        least_cost(view, wish, bounds, direction, counters, |gap| u64::MAX - gap.len())
    })
}

/// Returns the near edge of the gap for which `cost` is least, among equal ones of the nearest.
fn least_cost(
    view: View<'_>,
    wish: &Wish,
    bounds: Span,
    direction: Direction,
    counters: &mut MmapCounters,
    cost: impl Fn(Span) -> u64,
) -> Option<u64> {
    let mut best = None;
    for_each_gap(view, bounds, counters, |gap| {
        let Some(at) = near_edge(wish, gap, direction) else { return };
        let cost = cost(gap);
        let is_better = match (best, direction) {
            (None, _) => true,
            (Some((least, _)), Direction::Up) => cost < least,
            (Some((least, _)), Direction::Down) => cost <= least,
        };
        if is_better {
            best = Some((cost, at));
        }
    });
    best.map(|(_, at)| at)
}

/// Calls `each` with the gaps of `bounds`, cut to them, ascending. One visit for each area that reaches into the
/// bounds, and one for the space behind the last.
fn for_each_gap(
    view: View<'_>,
    bounds: Span,
    counters: &mut MmapCounters,
    mut each: impl FnMut(Span),
) {
    let mut gap_start = bounds.start();
    let mut area = view.areas.find(gap_start);
    loop {
        counters.visits += 1;
        let span = area.map(|place| view.areas.span(place));
        let gap_end = span.map_or(u64::MAX, Span::start).min(bounds.end());
        if let Ok(gap) = Span::new(gap_start, gap_end) {
            each(gap);
        }
        let (Some(place), Some(span)) = (area, span) else { return };
        if span.start() >= bounds.end() {
            return;
        }
        gap_start = span.end();
        area = view.areas.next(place);
    }
}

/// Returns the aligned place in `gap` that is nearest to the end where the direction begins; `None` if there is none.
fn near_edge(wish: &Wish, gap: Span, direction: Direction) -> Option<u64> {
    match direction {
        Direction::Up => {
            let at = wish.aligned_from(gap.start());
            (at.checked_add(wish.pages)? <= gap.end()).then_some(at)
        }
        Direction::Down => wish.aligned_below(gap.end(), gap.start()),
    }
}

/// Returns the wish, aligned to a huge page if its size is a multiple of one and it has no alignment of its own.
fn aligned_by_size(view: View<'_>, wish: &Wish) -> Wish {
    let huge = view.layout.pages(HUGE_PAGE_BYTES).0;
    if wish.align == 1 && wish.pages.is_multiple_of(huge) {
        Wish { align: huge, offset: 0, ..*wish }
    } else {
        *wish
    }
}

/// Places multiples of a huge page on a boundary of huge pages, other mappings anywhere, in the nearest gap; unaligned
/// if there is no such place. O(log n).
pub(super) fn exact_aligned(
    view: View<'_>,
    wish: &Wish,
    counters: &mut MmapCounters,
) -> Option<u64> {
    let aligned = aligned_by_size(view, wish);
    wish.near_then_far(view.layout, |bounds, direction| {
        let fit = match direction {
            Direction::Up => Fit::Lowest,
            Direction::Down => Fit::Highest,
        };
        let mut search = |wish: &Wish| search(view, wish, bounds, fit, counters);
        search(&aligned).or_else(|| search(wish))
    })
}

/// Places as [`exact_aligned`] does, in the gap of least leftover, among equal ones the nearest. O(n).
pub(super) fn exact_aligned_best(
    view: View<'_>,
    wish: &Wish,
    counters: &mut MmapCounters,
) -> Option<u64> {
    let aligned = aligned_by_size(view, wish);
    wish.near_then_far(view.layout, |bounds, direction| {
        let mut best = |wish: &Wish| least_cost(view, wish, bounds, direction, counters, Span::len);
        best(&aligned).or_else(|| best(wish))
    })
}

/// Places multiples of a huge page from the top, on boundaries, other mappings from the bottom, each by first fit
/// (docs/sources/mmap.md#two-ended). O(log n).
pub(super) fn two_ended_first(
    view: View<'_>,
    wish: &Wish,
    counters: &mut MmapCounters,
) -> Option<u64> {
    let huge = view.layout.pages(HUGE_PAGE_BYTES).0;
    let fit = if wish.pages.is_multiple_of(huge) { Fit::Highest } else { Fit::Lowest };
    let aligned = aligned_by_size(view, wish);
    wish.near_then_far(view.layout, |bounds, _| {
        let mut search = |wish: &Wish| search(view, wish, bounds, fit, counters);
        search(&aligned).or_else(|| search(wish))
    })
}

fn search(
    view: View<'_>,
    wish: &Wish,
    within: Span,
    fit: Fit,
    counters: &mut MmapCounters,
) -> Option<u64> {
    let Wish { pages: size, align, offset, .. } = *wish;
    let request = GapRequest { size, align, offset, within, fit, edge: Edge::Low };
    view.areas.search(&request, &mut counters.steps).map(|found| found.place.start())
}

/// Places by best fit at the high edge. A mapping that is not a multiple of a huge page prefers the edge, of both edges
/// of all gaps, at which it destroys the fewest whole huge pages. Equal gaps: the lowest. Gaps below and above all
/// areas come last, the highest first, and are used at their high edge only. O(n).
pub(super) fn fewest_lost_units(
    view: View<'_>,
    wish: &Wish,
    counters: &mut MmapCounters,
) -> Option<u64> {
    let huge = view.layout.pages(HUGE_PAGE_BYTES).0;
    let aligned = aligned_by_size(view, wish);
    wish.near_then_far(view.layout, |bounds, _| {
        fewest_lost(view, &aligned, huge, bounds, counters)
            .or_else(|| fewest_lost(view, wish, huge, bounds, counters))
    })
}

fn fewest_lost(
    view: View<'_>,
    wish: &Wish,
    huge: u64,
    bounds: Span,
    counters: &mut MmapCounters,
) -> Option<u64> {
    let both_edges = !wish.pages.is_multiple_of(huge);
    let mut best = None;
    for_each_gap(view, bounds, counters, |gap| {
        let is_outside = is_outside(view, gap);
        let high = near_edge(wish, gap, Direction::Down);
        let low = near_edge(wish, gap, Direction::Up).filter(|_| both_edges && !is_outside);
        for at in high.into_iter().chain(low) {
            let lost = if both_edges { lost_units(gap, at, wish.pages, huge) } else { 0 };
            let by_address = if is_outside { u64::MAX - gap.start() } else { gap.start() };
            let cost = (is_outside, lost, gap.len(), by_address);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, at));
            }
        }
    });
    best.map(|(_, at)| at)
}

/// Returns true if a gap lies below or above all areas.
fn is_outside(view: View<'_>, gap: Span) -> bool {
    view.areas.find_below(gap.start()).is_none() || view.areas.find(gap.end()).is_none()
}

/// Returns the number of whole huge pages in `gap`.
fn units(gap: Span, huge: u64) -> u64 {
    (gap.end() / huge).saturating_sub(gap.start().div_ceil(huge))
}

/// Returns the number of whole huge pages in `gap` that a mapping at `at` destroys.
fn lost_units(gap: Span, at: u64, pages: u64, huge: u64) -> u64 {
    let rest = [Span::new(gap.start(), at), Span::new(at + pages, gap.end())];
    units(gap, huge) - rest.into_iter().flatten().map(|rest| units(rest, huge)).sum::<u64>()
}
