//! Ours: two classes of sizes grow towards each other from the two ends of the window.
//!
//! A mapping whose size is a multiple of a huge page wants to begin on one. If such mappings share their holes with
//! others, a hole that would serve them is soon off by a few pages, and either the alignment or the hole is lost. So
//! they are kept apart, as Linux has kept movable pages apart from others since 2007:
//!
//! * *Huge* mappings, multiples of a huge page and whatever must be aligned to one or more, go to the top. Their holes
//!   are multiples of huge pages, on boundaries of huge pages.
//! * All *others* go to the bottom.
//!
//! The largest gap of the window is the *frontier*; what lies above it is the huge mappings' side, what lies below it
//! the others'. A mapping takes the smallest gap of its own side that has a place for it, at the edge that is nearer
//! to its own end, and the frontier only if there is no other.
//!
//! Nothing is remembered but the areas. When the frontiers have met, the *spill* rule holds: a huge mapping without an
//! aligned place on its side takes an unaligned one; a mapping without a place on its side takes the smallest gap of
//! the whole window; and what does not fit between base and top may use what lies below and above them.

use super::{View, Window, Wish};
use crate::mmap::attributes::AreaFlags;
use crate::mmap::space::MmapCounters;
use crate::ranges::{Edge, Fit, FoundGap, GapRequest, Span};

/// Bytes of a huge page (`PMD_SIZE`).
const HUGE_PAGE: u64 = 2 << 20;

/// How often one search may go around a guard.
const SPLITS: usize = 7;

/// The place of least leftover on the side of the mapping's class. O(log n).
pub(super) fn place(view: View<'_>, wish: &Wish, counters: &mut MmapCounters) -> Option<u64> {
    let huge = view.layout.pages(HUGE_PAGE).0;
    let is_multiple = wish.huge_pages_apply && wish.pages.is_multiple_of(huge);
    let edge = if is_multiple || wish.align >= huge { Edge::High } else { Edge::Low };
    let aligned = is_multiple.then_some((huge, 0));
    let as_told = Some((wish.align, wish.offset));
    for window in windows(view, wish).into_iter().flatten() {
        let side = side(view, window, edge);
        let tries = [(side, aligned), (side, as_told), (Some(window), as_told)];
        for (within, alignment) in tries {
            let (Some(within), Some((align, offset))) = (within, alignment) else { continue };
            let request =
                GapRequest { size: wish.pages, align, offset, within, fit: Fit::Best, edge };
            if let Some(found) = search(view, &request, counters) {
                return Some(found.place.start());
            }
        }
    }
    None
}

/// The part of the window that belongs to the class of this edge: its side, and the frontier.
fn side(view: View<'_>, window: Span, edge: Edge) -> Option<Span> {
    let frontier = view.areas.largest_gap(window)?;
    match edge {
        Edge::High => Span::new(frontier.start(), window.end()).ok(),
        Edge::Low => Span::new(window.start(), frontier.end()).ok(),
    }
}

/// Where to look, in this order.
fn windows(view: View<'_>, wish: &Wish) -> [Option<Span>; 2] {
    let layout = view.layout;
    match wish.window {
        Window::Usual => {
            let floor = layout.floor.0.max(1);
            let inner = Span::new(layout.base.0.max(floor), layout.top.0.min(layout.end.0));
            let all = Span::new(floor, layout.end.0);
            [inner.ok(), all.ok()]
        }
        Window::Other(span) => [Some(span), None],
    }
}

/// The best gap for `request` that leaves the guard gap below each stack alone. At most a constant number of searches.
///
/// Where the best gap lies below a stack and the place would reach into the guard, the window is searched again on
/// both sides of the guard. Few areas grow down; if more than [`SPLITS`] are met, what remains is asked for a place
/// with a guard's worth of room above it, which may miss the best one.
fn search(view: View<'_>, request: &GapRequest, counters: &mut MmapCounters) -> Option<FoundGap> {
    let mut best: Option<FoundGap> = None;
    let mut parts = [None; 1 + 2 * SPLITS];
    parts[0] = Some(request.within);
    let mut known = 1;
    for at in 0..parts.len() {
        let Some(within) = parts[at] else { continue };
        let part = GapRequest { within, ..*request };
        let Some(mut found) = view.areas.search(&part, &mut counters.steps) else { continue };
        if let Some(guard) = guard_in_the_way(view, &found) {
            if known < parts.len() {
                parts[known] = Span::new(within.start(), guard.start()).ok();
                parts[known + 1] = Span::new(guard.end(), within.end()).ok();
                known += 2;
                continue;
            }
            let Some(size) = request.size.checked_add(view.guard_gap.0) else { continue };
            let roomy = GapRequest { size, ..part };
            let Some(place) = view.areas.search(&roomy, &mut counters.steps) else { continue };
            found = place;
        }
        best = Some(best.map_or(found, |best| smaller(best, found)));
    }
    best
}

/// The smaller gap, of equal ones the lower.
fn smaller(one: FoundGap, other: FoundGap) -> FoundGap {
    core::cmp::min_by_key(one, other, |found| (found.gap.len(), found.gap.start()))
}

/// The guard gap that the place would reach into, up to the area that it belongs to.
fn guard_in_the_way(view: View<'_>, found: &FoundGap) -> Option<Span> {
    let above = view.areas.find(found.place.end())?;
    let flags = view.areas.based(above).flags;
    let guard = if flags.any_of(AreaFlags::GROWS_DOWN) {
        view.guard_gap.0
    } else if flags.any_of(AreaFlags::SHADOW_STACK) {
        1
    } else {
        0
    };
    let start = view.areas.span(above).start();
    let guard = Span::new(start.saturating_sub(guard), start).ok()?;
    guard.intersection(found.place).map(|_| guard)
}
