//! Placements that walk from area to area.

use super::{View, Window, Wish};
use crate::mmap::space::MmapCounters;

/// P0, upwards: the lowest gap that fits.
pub(super) fn first_fit_up(
    view: View<'_>,
    wish: &Wish,
    counters: &mut MmapCounters,
) -> Option<u64> {
    let (low, end) = match wish.window {
        Window::Usual => (view.layout.base.0, view.layout.end.0),
        Window::Other(span) => (span.start(), span.end()),
    };
    let last = end.checked_sub(wish.pages)?;
    let mut at = low;
    let mut area = view.areas.find(at);
    loop {
        counters.visits += 1;
        if last < at {
            return None;
        }
        let Some(place) = area else { return Some(at) };
        let span = view.areas.span(place);
        if at + wish.pages <= span.start() {
            return Some(at);
        }
        at = span.end();
        area = view.areas.next(place);
    }
}
