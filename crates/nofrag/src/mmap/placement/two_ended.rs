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
//! One word is remembered, the *boundary* between the classes. The gap at the boundary is the *frontier*; it is kept
//! whole as long as it can be, for it is the largest hole while there is room. A mapping goes
//!
//! 1. into a gap of its own side, cut from the end of its class: a huge one into the tightest, of equal ones the
//!    nearest to the top; another one into a gap of just its size, else into the nearest to the bottom, unless that
//!    gap would hold it twice: then into the tightest;
//! 2. else into the frontier, which moves the boundary as far as the mapping reaches over it;
//! 3. else anywhere in the window, by the same rule: the *spill*. A huge mapping that finds no aligned place takes an
//!    unaligned one. The boundary stays, so each class comes home as soon as its own side has room;
//! 4. else below or above the window of the layout, as far as the process reaches.
//!
//! In any other window than the usual one there is no boundary, and the direction tells the end.
//!
//! First fit keeps low gaps in use and lets high ones drain, but leaves a sliver in each gap that it touches; best fit
//! leaves few slivers, but treats the gaps at the frontier like all others. Rule 1 takes what each is good at: nothing
//! is left over of an exact gap, and of those that are about as tight the one far from the frontier is taken.
//! What else was tried stands in docs/decisions/0013.

use super::gaps::HUGE_PAGE_BYTES;
use super::{View, Window, Wish};
use crate::mmap::attributes::AreaFlags;
use crate::mmap::layout::Direction;
use crate::mmap::space::MmapCounters;
use crate::ranges::{Edge, Fit, FoundGap, GapRequest, Span};

/// How often one search may go around a guard.
const SPLITS: usize = 7;

/// From which end of the window a mapping is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Top,
    Bottom,
}

/// Where the classes meet: huge mappings begin at this page or above, others end at it or below, but for the spill.
/// None before the first mapping.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Boundary(Option<u64>);

/// The gap at the boundary; empty where an area lies across it, or areas touch there.
#[derive(Clone, Copy, Debug)]
struct Frontier {
    start: u64,
    end: u64,
}

impl Boundary {
    /// The first page of a place for `wish`. O(log n).
    pub(super) fn place(
        &mut self,
        view: View<'_>,
        wish: &Wish,
        counters: &mut MmapCounters,
    ) -> Option<u64> {
        let huge = view.layout.pages(HUGE_PAGE_BYTES).0;
        let is_multiple = wish.huge_pages_apply && wish.pages.is_multiple_of(huge);
        let end = if is_multiple || wish.align >= huge { End::Top } else { End::Bottom };
        let as_told =
            Search { view, end, pages: wish.pages, align: wish.align, offset: wish.offset };
        let aligned =
            if is_multiple { Search { align: huge, offset: 0, ..as_told } } else { as_told };
        let (usual, all) = match wish.window {
            Window::Usual => usual_windows(view)?,
            Window::Other(window) => {
                let end = match wish.direction {
                    Direction::Up => End::Bottom,
                    Direction::Down => End::Top,
                };
                return Search { end, ..as_told }.tightest_or_nearest(window, counters);
            }
        };
        let frontier = self.frontier(view, usual);
        let own_side = match end {
            End::Top => Span::new(frontier.end, usual.end()),
            End::Bottom => Span::new(usual.start(), frontier.start),
        };
        let frontier = Span::new(frontier.start, frontier.end);
        let near = [own_side.ok(), frontier.ok(), Some(usual)];
        let near = near.into_iter().map(|within| (within, aligned));
        let far = [usual, all].into_iter().map(|within| (Some(within), as_told));
        let place = near
            .chain(far)
            .find_map(|(within, search)| search.tightest_or_nearest(within?, counters))?;
        if frontier.is_ok_and(|frontier| frontier.contains(place)) {
            self.make_way(end, place, wish.pages);
        }
        Some(place)
    }

    /// The gap that holds or touches the boundary. At first the boundary is the upper end of the largest gap.
    fn frontier(&mut self, view: View<'_>, window: Span) -> Frontier {
        let known = self.0.filter(|&at| window.start() <= at && at <= window.end());
        let largest = || view.areas.largest_gap(window).map_or(window.end(), Span::end);
        let at = known.unwrap_or_else(largest);
        self.0 = Some(at);
        let below = view.areas.find_below(at).map_or(0, |place| view.areas.span(place).end());
        if below > at {
            return Frontier { start: at, end: at };
        }
        let above = view.areas.find(at).map_or(u64::MAX, |place| view.areas.span(place).start());
        Frontier { start: below.max(window.start()), end: above.min(window.end()) }
    }

    /// A mapping has taken a place in the frontier.
    fn make_way(&mut self, end: End, place: u64, pages: u64) {
        self.0 = self.0.map(|at| match end {
            End::Top => at.min(place),
            End::Bottom => at.max(place + pages),
        });
    }
}

/// The window of the layout, and all that the process reaches.
fn usual_windows(view: View<'_>) -> Option<(Span, Span)> {
    let layout = view.layout;
    let floor = layout.floor.0.max(1);
    let all = Span::new(floor, layout.end.0).ok()?;
    let usual = Span::new(layout.base.0.max(floor), layout.top.0.min(layout.end.0));
    Some((usual.unwrap_or(all), all))
}

/// A mapping that looks for a gap.
#[derive(Clone, Copy, Debug)]
struct Search<'a> {
    view: View<'a>,
    end: End,
    pages: u64,
    align: u64,
    offset: u64,
}

impl Search<'_> {
    /// The place in the gap that is preferred of those in `within`.
    fn tightest_or_nearest(&self, within: Span, counters: &mut MmapCounters) -> Option<u64> {
        let tightest = self.gap(within, Fit::Best, counters)?;
        if self.end == End::Top || tightest.gap.len() == self.pages {
            return Some(tightest.place.start());
        }
        let nearest = self.gap(within, Fit::Lowest, counters)?;
        let holds_it_twice = nearest.gap.len() / 2 >= self.pages;
        let chosen = if holds_it_twice { tightest } else { nearest };
        Some(chosen.place.start())
    }

    /// The best gap in `within` that leaves the guard gap below each stack alone. At most a constant number of
    /// searches of the index.
    ///
    /// Where the best gap lies below a stack and the place would reach into the guard, `within` is searched again on
    /// both sides of the guard. Few areas grow down; if more than [`SPLITS`] are met, what remains is asked for a
    /// place with a guard's worth of room above it, which may miss the best one.
    fn gap(&self, within: Span, fit: Fit, counters: &mut MmapCounters) -> Option<FoundGap> {
        let mut best: Option<FoundGap> = None;
        let mut parts = [None; 1 + 2 * SPLITS];
        parts[0] = Some(within);
        let mut known = 1;
        for at in 0..parts.len() {
            let Some(part) = parts[at] else { continue };
            let Some(mut found) = self.unguarded(part, fit, self.pages, counters) else { continue };
            if let Some(guard) = self.guard_in_the_way(&found) {
                if known < parts.len() {
                    parts[known] = Span::new(part.start(), guard.start()).ok();
                    parts[known + 1] = Span::new(guard.end(), part.end()).ok();
                    known += 2;
                    continue;
                }
                let roomy = self.pages.saturating_add(self.view.guard_gap.0);
                let Some(place) = self.unguarded(part, fit, roomy, counters) else { continue };
                found = place;
            }
            let rank = |found: &FoundGap| match fit {
                Fit::Best => self.edge().rank(found.gap),
                _ => (0, found.gap.start()),
            };
            best = Some(best.map_or(found, |best| core::cmp::min_by_key(best, found, rank)));
        }
        best
    }

    /// The best gap, whatever guards there are.
    fn unguarded(
        &self,
        within: Span,
        fit: Fit,
        size: u64,
        counters: &mut MmapCounters,
    ) -> Option<FoundGap> {
        let Search { align, offset, .. } = *self;
        let request = GapRequest { size, align, offset, within, fit, edge: self.edge() };
        self.view.areas.search(&request, &mut counters.steps)
    }

    /// The end of a gap that is nearer to the end of the mapping.
    fn edge(&self) -> Edge {
        match self.end {
            End::Top => Edge::High,
            End::Bottom => Edge::Low,
        }
    }

    /// The guard gap that the place would reach into, up to the area that it belongs to.
    fn guard_in_the_way(&self, found: &FoundGap) -> Option<Span> {
        let View { areas, guard_gap, .. } = self.view;
        let above = areas.find(found.place.end())?;
        let flags = areas.based(above).flags;
        let guard = if flags.any_of(AreaFlags::GROWS_DOWN) {
            guard_gap.0
        } else if flags.any_of(AreaFlags::SHADOW_STACK) {
            1
        } else {
            0
        };
        let start = areas.span(above).start();
        let guard = Span::new(start.saturating_sub(guard), start).ok()?;
        guard.intersection(found.place).map(|_| guard)
    }
}
