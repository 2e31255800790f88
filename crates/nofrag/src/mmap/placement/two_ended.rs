//! nofrag's own placement: two classes of sizes grow towards each other from the two ends of the window.
//!
//! A mapping whose size is a multiple of a huge page wants to begin on one. If such mappings share their holes with
//! others, a hole that would serve them is soon off by a few pages, and either the alignment or the hole is lost. So
//! they are kept apart, as Linux has kept movable pages apart from others since 2007:
//!
//! * *Huge* mappings, multiples of a huge page and mappings that must be aligned to one or more, go to the top. Their
//!   holes are multiples of huge pages, on boundaries of huge pages.
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
//! leaves few slivers, but treats the gaps at the frontier like all others. Rule 1 takes the strength of each: no
//! sliver is left of an exact gap, and of gaps that are about as tight the one far from the frontier is taken. The
//! alternatives that were tried stand in docs/decisions/0013; what is to be reached, in docs/sources/mmap.md#g3.

use super::gaps::HUGE_PAGE_BYTES;
use super::{Spot, View, Window, Wish};
use crate::mmap::layout::Direction;
use crate::mmap::space::MmapCounters;
use crate::ranges::{Edge, Finger, Fingers, Fit, FoundGap, GapPlace, GapRequest, Span};

/// Number of guard gaps around which one search may go before it settles for a place that may not be the best.
const SPLITS: usize = 7;

/// The end of the window from which a mapping is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Top,
    Bottom,
}

/// The border between the two classes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Boundary {
    /// Huge mappings begin at this page or above, others end at it or below, except for the spill. None before the
    /// first mapping.
    at: Option<u64>,
    /// Guesses of the places of the frontier and of the two ends of the usual window.
    frontier: Finger,
    low: Finger,
    high: Finger,
}

/// The gap at the boundary; empty where an area lies across it, or areas touch there.
#[derive(Clone, Copy, Debug)]
struct Frontier {
    start: u64,
    end: u64,
}

impl Boundary {
    /// Returns a place for `wish`. O(log n), unless many gaps of the size have no place with the alignment: then all of
    /// these are looked at.
    pub(super) fn place(
        &mut self,
        view: View<'_>,
        wish: &Wish,
        counters: &mut MmapCounters,
    ) -> Option<Spot> {
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
                let search = Search { end, ..as_told };
                return search.tightest_or_nearest(window, &mut Fingers::default(), counters);
            }
        };
        let frontier = self.frontier(view, usual);
        let home = self.on_own_side(&aligned, frontier, usual, counters);
        let frontier = Span::new(frontier.start, frontier.end).ok();
        let far = || {
            let ways = [(frontier, aligned), (Some(usual), aligned), (Some(usual), as_told)];
            ways.into_iter().chain([(Some(all), as_told)]).find_map(|(within, search)| {
                search.tightest_or_nearest(within?, &mut Fingers::default(), counters)
            })
        };
        let spot = home.or_else(far)?;
        if frontier.is_some_and(|frontier| frontier.contains(spot.start)) {
            self.make_way(end, spot.start, wish.pages);
        }
        Some(spot)
    }

    /// Returns a place on the own side of the frontier. The bounds of that side seldom move, so fingers find them.
    fn on_own_side(
        &mut self,
        search: &Search<'_>,
        frontier: Frontier,
        usual: Span,
        counters: &mut MmapCounters,
    ) -> Option<Spot> {
        let (own_side, own_end) = match search.end {
            End::Top => (Span::new(frontier.end, usual.end()), &mut self.high),
            End::Bottom => (Span::new(usual.start(), frontier.start), &mut self.low),
        };
        let own_side = own_side.ok()?;
        let mut fingers = match search.end {
            End::Top => Fingers { start: self.frontier, end: *own_end },
            End::Bottom => Fingers { start: *own_end, end: self.frontier },
        };
        let spot = search.tightest_or_nearest(own_side, &mut fingers, counters);
        *own_end = match search.end {
            End::Top => fingers.end,
            End::Bottom => fingers.start,
        };
        spot
    }

    /// Returns the gap that holds or touches the boundary. At first the boundary is the upper end of the largest gap.
    fn frontier(&mut self, view: View<'_>, window: Span) -> Frontier {
        let known = self.at.filter(|&at| window.start() <= at && at <= window.end());
        let largest = || view.areas.largest_gap(window).map_or(window.end(), Span::end);
        let at = known.unwrap_or_else(largest);
        self.at = Some(at);
        let gap = view.areas.gap_at(at, &mut self.frontier);
        let (below, above) = gap.map_or((0, u64::MAX), |gap| view.areas.gap_bounds(gap));
        if at > above {
            return Frontier { start: at, end: at };
        }
        Frontier { start: below.max(window.start()), end: above.min(window.end()) }
    }

    /// Moves the boundary, because a mapping has taken a place in the frontier.
    fn make_way(&mut self, end: End, place: u64, pages: u64) {
        self.at = self.at.map(|at| match end {
            End::Top => at.min(place),
            End::Bottom => at.max(place + pages),
        });
    }
}

/// Returns the window of the layout, and the range of all pages that the process may use.
fn usual_windows(view: View<'_>) -> Option<(Span, Span)> {
    let layout = view.layout;
    let floor = layout.floor.0.max(1);
    let all = Span::new(floor, layout.end.0).ok()?;
    let usual = Span::new(layout.base.0.max(floor), layout.top.0.min(layout.end.0));
    Some((usual.unwrap_or(all), all))
}

/// A place, and the gap that it lies in.
type Found = (FoundGap, GapPlace);

/// The search for a gap for one mapping.
#[derive(Clone, Copy, Debug)]
struct Search<'a> {
    view: View<'a>,
    end: End,
    pages: u64,
    align: u64,
    offset: u64,
}

impl Search<'_> {
    /// Returns a place in the preferred gap of `within` (rule 1 of the module): the tightest; for a mapping from the
    /// bottom the lowest, if none fits exactly and the lowest does not hold the mapping twice.
    fn tightest_or_nearest(
        &self,
        within: Span,
        fingers: &mut Fingers,
        counters: &mut MmapCounters,
    ) -> Option<Spot> {
        let spot = |(found, gap): Found| Spot { start: found.place.start(), gap: Some(gap) };
        let tightest = self.gap(within, Fit::Best, fingers, counters)?;
        if self.end == End::Top || tightest.0.gap.len() == self.pages {
            return Some(spot(tightest));
        }
        let nearest = self.gap(within, Fit::Lowest, fingers, counters)?;
        let holds_it_twice = nearest.0.gap.len() / 2 >= self.pages;
        Some(spot(if holds_it_twice { tightest } else { nearest }))
    }

    /// Returns the best gap in `within` that leaves the guard gap below each stack alone. At most a constant number of
    /// searches of the index.
    ///
    /// Where the best gap lies below a stack and the place would reach into the guard, `within` is searched again on
    /// both sides of the guard. Few areas grow down; if more than [`SPLITS`] are met, the remaining part is asked for a
    /// place with a guard's worth of room above it, which may miss the best one.
    fn gap(
        &self,
        within: Span,
        fit: Fit,
        fingers: &mut Fingers,
        counters: &mut MmapCounters,
    ) -> Option<Found> {
        let found = self.unguarded(within, fit, self.pages, fingers, counters)?;
        match self.guard_in_the_way(&found) {
            None => Some(found),
            Some(guard) => self.around_guards(within, guard, fit, counters),
        }
    }

    /// Returns the best gap as [`gap`](Self::gap) does, where the place in the best gap of all reaches into `guard`.
    #[cold]
    fn around_guards(
        &self,
        within: Span,
        guard: Span,
        fit: Fit,
        counters: &mut MmapCounters,
    ) -> Option<Found> {
        let mut best: Option<Found> = None;
        let mut parts = [None; 2 * SPLITS];
        let split = |part: Span, guard: Span| {
            let below = Span::new(part.start(), guard.start()).ok();
            [below, Span::new(guard.end(), part.end()).ok()]
        };
        [parts[0], parts[1]] = split(within, guard);
        let mut known = 2;
        let mut search =
            |part, size| self.unguarded(part, fit, size, &mut Fingers::default(), counters);
        for at in 0..parts.len() {
            let Some(part) = parts[at] else { continue };
            let Some(mut found) = search(part, self.pages) else { continue };
            if let Some(guard) = self.guard_in_the_way(&found) {
                if known < parts.len() {
                    [parts[known], parts[known + 1]] = split(part, guard);
                    known += 2;
                    continue;
                }
                let roomy = self.pages.saturating_add(self.view.guard_gap.0);
                let Some(place) = search(part, roomy) else { continue };
                found = place;
            }
            let rank = |(found, _): &Found| match fit {
                Fit::Best => self.edge().rank(found.gap),
                _ => (0, found.gap.start()),
            };
            best = Some(best.map_or(found, |best| core::cmp::min_by_key(best, found, rank)));
        }
        best
    }

    /// Returns the best gap, regardless of guards.
    fn unguarded(
        &self,
        within: Span,
        fit: Fit,
        size: u64,
        fingers: &mut Fingers,
        counters: &mut MmapCounters,
    ) -> Option<Found> {
        let Search { align, offset, .. } = *self;
        let request = GapRequest { size, align, offset, within, fit, edge: self.edge() };
        self.view.areas.search_near(&request, fingers, &mut counters.steps)
    }

    /// Returns the end of a gap that is nearer to the mapping's end of the window.
    fn edge(&self) -> Edge {
        match self.end {
            End::Top => Edge::High,
            End::Bottom => Edge::Low,
        }
    }

    /// Returns the guard gap that the place would reach into, up to the area that the guard belongs to.
    fn guard_in_the_way(&self, &(found, gap): &Found) -> Option<Span> {
        let View { areas, guard_gap, .. } = self.view;
        let above = areas.above_gap(gap)?;
        let guard = areas.based(above).guard_below(guard_gap);
        let (_, start) = areas.gap_bounds(gap);
        let guard = Span::new(start.saturating_sub(guard), start).ok()?;
        guard.intersection(found.place).map(|_| guard)
    }
}
