//! Linux up to 5.1: busy areas in a tree and in a list by address, and a scan from where the last search ended.
//!
//! Nothing knows where holes are; a search walks from busy area to busy area until the gap between two is large enough:
//! O(n). The cache, the area allocated last, makes that bearable: the scan starts at its end (next fit). The cache is
//! dropped, and the scan starts from the bottom, when the request may fit below it: it is smaller than the largest hole
//! that the scan has passed, or its lower bound or its alignment is smaller than before. Freeing below the cache moves
//! it down. So a clean space costs one step, and a hole near the bottom that is too small for one caller but not for
//! another costs the whole walk, over and over: the case that Rezki's 2019 series removed.
//!
//! Numbers outside the space are busy areas too, *walls*: at first there is one wall and nothing else, and giving the
//! space its numbers cuts them out of it. The space ends where the topmost wall starts, and with it every scan, so the
//! gap below is not noted as passed.
//!
//! The rule has a flaw, kept as it was: a request of exactly the largest passed hole's size does not drop the cache.
//!
//! Source: docs/sources/vmap.md#next-fit.
//!
//! Records are of busy areas, not of holes, so `reserve` makes room for areas. `largest` is O(n) and `hole_from` is
//! O(log n) plus the areas that touch each other up to the hole: this design has no better, and no search uses them.

use super::augmented_tree::round_up;
use super::index::{FreeIndex, Refusal, Rejection};
use super::red_black::{NodeId, RedBlackTree};
use super::{Counters, Fit, OutOfMetadata, Request, Span};
use crate::check::Violation;

/// Busy areas by address, and where the last search ended.
///
/// 1. The laws of the red-black tree hold.
/// 2. The holes counted are the gaps between busy areas.
/// 3. The cache is a busy area.
#[derive(Debug)]
pub(crate) struct CachedScan {
    busy: RedBlackTree<()>,
    /// True once the first wall has been built; before, there is no space.
    walled: bool,
    holes: usize,
    cache: Cache,
}

/// Facts about earlier searches that decide where the next one starts.
#[derive(Clone, Copy, Debug, Default)]
struct Cache {
    /// The area allocated last (Linux: `free_vmap_cache`).
    area: Option<NodeId>,
    /// The largest hole that the searches since the last full scan passed below the cache.
    hole_size: u64,
    /// The lower bound of the last request.
    lower: u64,
    /// The alignment of the last request, as the padding that it would ask for: so one byte is less than one page.
    align: u64,
}

impl Cache {
    /// Forgets the area allocated last and the largest hole passed: the next search starts at its own lower bound.
    fn drop(&mut self) {
        self.area = None;
        self.hole_size = 0;
    }
}

/// A gap between two busy areas that holds the request.
struct Gap {
    start: u64,
    /// The busy area above the gap.
    above: Option<NodeId>,
}

impl CachedScan {
    pub(crate) fn new() -> CachedScan {
        CachedScan { busy: RedBlackTree::new(), walled: false, holes: 0, cache: Cache::default() }
    }

    /// Finds a gap by the rule of Linux 4.19 and updates the cache's bookkeeping.
    fn scan(&mut self, request: &Request, steps: &mut u64) -> Option<Gap> {
        let Request { size, align, within, .. } = *request;
        let Cache { hole_size, lower, align: cached_align, .. } = self.cache;
        if size < hole_size || within.start() < lower || request.padding() < cached_align {
            self.cache.drop();
        }
        self.cache.lower = within.start();
        self.cache.align = request.padding();
        let (mut start, mut above) = self.first_candidate(request, steps)?;
        // The highest aligned start that leaves enough room; a start at or below it does not overflow.
        let padding = align - 1;
        let last = within.end().min(self.top()).checked_sub(size)? & !padding;
        if start > last {
            return None;
        }
        let mut passed = self.cache.hole_size;
        let mut visits = 0;
        let found = loop {
            let Some(id) = above else { break true };
            visits += 1;
            let area = self.busy.span(id);
            let gap = area.start().saturating_sub(start);
            if gap >= size {
                break true;
            }
            passed = passed.max(gap);
            if area.end() > last {
                break false;
            }
            start = (area.end() + padding) & !padding;
            above = self.busy.next(id);
        };
        *steps += visits;
        self.cache.hole_size = passed;
        found.then_some(Gap { start, above })
    }

    /// Returns the end of the space: the start of the topmost wall, if there is one.
    fn top(&self) -> u64 {
        let last = self.busy.previous(None).map(|id| self.busy.span(id));
        last.filter(|last| last.end() == u64::MAX).map_or(u64::MAX, Span::start)
    }

    /// Returns the aligned number at which the scan starts, and the first busy area that may be in the way, if any;
    /// `None` if that number exceeds 64 bits.
    fn first_candidate(
        &mut self,
        request: &Request,
        steps: &mut u64,
    ) -> Option<(u64, Option<NodeId>)> {
        let Request { align, within, .. } = *request;
        if let Some(cached) = self.cache.area {
            *steps += 1;
            let start = round_up(self.busy.span(cached).end(), align)?;
            if start >= within.start() {
                return Some((start, self.busy.next(cached)));
            }
        }
        self.cache.drop();
        let start = round_up(within.start(), align)?;
        let (above, visits) = self.busy.first_ending_above(start);
        *steps += visits;
        Some((start, above))
    }

    /// Makes `span`, which lies in the gap below the area `above`, busy. Memory for its node was reserved.
    fn occupy(&mut self, span: Span, above: Option<NodeId>, counters: &mut Counters) -> NodeId {
        let link = self.busy.link_before(above);
        let (below, _) = self.busy.neighbours(link);
        let at_left_edge = self.end_of(below) == span.start();
        let at_right_edge = self.start_of(above) == span.end();
        counters.note_cut(at_left_edge, at_right_edge);
        self.holes = self.holes + 1 - usize::from(at_left_edge) - usize::from(at_right_edge);
        self.busy.insert(link, span)
    }

    /// Returns the end of an area, where the gap above it starts; 0 without an area.
    fn end_of(&self, area: Option<NodeId>) -> u64 {
        area.map_or(0, |id| self.busy.span(id).end())
    }

    /// Returns the start of an area, where the gap below it ends; `u64::MAX` without an area.
    fn start_of(&self, area: Option<NodeId>) -> u64 {
        area.map_or(u64::MAX, |id| self.busy.span(id).start())
    }

    fn build_wall(&mut self) -> Result<(), OutOfMetadata> {
        if !self.walled {
            self.busy.reserve(2)?;
            let link = self.busy.link_before(None);
            self.busy.insert(link, Span::ALL);
            self.walled = true;
        }
        Ok(())
    }

    /// Returns the lowest area of the run that covers `span` without a gap; `None` if a part of `span` is free.
    fn first_covering(&self, span: Span) -> Option<NodeId> {
        let (first, _) = self.busy.first_ending_above(span.start());
        let first = first.filter(|&id| self.busy.span(id).start() <= span.start())?;
        let mut id = first;
        loop {
            let end = self.busy.span(id).end();
            if end >= span.end() {
                return Some(first);
            }
            id = self.busy.next(id).filter(|&next| self.busy.span(next).start() == end)?;
        }
    }

    /// Cuts `span` out of the areas that cover it, of which `first` is the lowest. Returns the areas directly below and
    /// above the new gap. A cut inside one area needs a node, which was reserved.
    fn vacate(&mut self, span: Span, first: NodeId) -> (Option<NodeId>, Option<NodeId>) {
        let mut area = self.busy.span(first);
        if area.start() < span.start() && span.end() < area.end() {
            self.busy.set_end(first, span.start());
            let link = self.busy.link_before(self.busy.next(first));
            let right = self.busy.insert(link, Span::known(span.end(), area.end()));
            return (Some(first), Some(right));
        }
        let mut rest = Some(first);
        let mut below = self.busy.previous(rest);
        if area.start() < span.start() {
            self.busy.set_end(first, span.start());
            below = rest;
            rest = self.busy.next(first);
        }
        while let Some(id) = rest {
            area = self.busy.span(id);
            if area.start() >= span.end() {
                break;
            }
            if area.end() > span.end() {
                self.busy.set_start(id, span.end());
                break;
            }
            rest = self.busy.next(id);
            self.busy.remove(id);
        }
        (below, rest)
    }
}

impl FreeIndex for CachedScan {
    #[inline(never)]
    fn alloc(
        &mut self,
        request: &Request,
        _limit: u64,
        counters: &mut Counters,
    ) -> Result<Span, Refusal> {
        if request.fit != Fit::Lowest {
            return Err(Refusal::FitNotIndexed);
        }
        if !self.walled {
            return Err(Refusal::NoFit);
        }
        self.busy.reserve_one()?;
        let gap = self.scan(request, &mut counters.steps).ok_or(Refusal::NoFit)?;
        let span = Span::known(gap.start, gap.start + request.size);
        self.cache.area = Some(self.occupy(span, gap.above, counters));
        Ok(span)
    }

    fn take(&mut self, span: Span, counters: &mut Counters) -> Result<(), Refusal> {
        if !self.walled {
            return Err(Refusal::NoFit);
        }
        let (above, _) = self.busy.first_ending_above(span.start());
        if self.start_of(above) < span.end() {
            return Err(Refusal::NoFit);
        }
        self.busy.reserve_one()?;
        self.occupy(span, above, counters);
        Ok(())
    }

    #[inline(never)]
    fn give(&mut self, span: Span, counters: &mut Counters) -> Result<(), Rejection> {
        self.build_wall()?;
        let first = self.first_covering(span).ok_or(Rejection::Overlap)?;
        let area = self.busy.span(first);
        if area.start() < span.start() && span.end() < area.end() {
            self.busy.reserve_one()?;
        }
        let cached_start = self.cache.area.map(|id| self.busy.span(id).start());
        let (below, above) = self.vacate(span, first);
        match cached_start {
            Some(_) if span.end() < self.cache.lower => self.cache.area = None,
            Some(start) if span.start() <= start => self.cache.area = below,
            _ => {}
        }
        let with_previous = self.end_of(below) < span.start();
        let with_next = self.start_of(above) > span.end();
        self.holes = self.holes + 1 - usize::from(with_previous) - usize::from(with_next);
        counters.note_merge(with_previous, with_next);
        Ok(())
    }

    fn hole_from(&self, at: u64) -> Option<Span> {
        if !self.walled {
            return None;
        }
        let (mut above, _) = self.busy.first_ending_above(at);
        let mut start = self.end_of(self.busy.previous(above));
        loop {
            if let Ok(hole) = Span::new(start, self.start_of(above))
                && hole.end() > at
            {
                return Some(hole);
            }
            start = self.busy.span(above?).end();
            above = self.busy.next(above?);
        }
    }

    /// Looks at every gap, since the design keeps no sizes of holes. O(n).
    fn largest(&self) -> u64 {
        if !self.walled {
            return 0;
        }
        let mut below = 0;
        let mut largest = 0;
        for area in self.busy.iter() {
            largest = largest.max(area.start() - below);
            below = area.end();
        }
        largest.max(u64::MAX - below)
    }

    fn holes(&self) -> usize {
        self.holes
    }

    /// Makes room for the records of `holes` busy areas, walls included.
    fn reserve(&mut self, holes: usize) -> Result<(), OutOfMetadata> {
        self.busy.reserve(holes)
    }

    fn metadata_bytes(&self) -> usize {
        self.busy.metadata_bytes()
    }

    fn check(&self) -> Result<(), Violation> {
        self.busy.check()?;
        if !self.walled {
            return Violation::unless_equal(
                "before the first wall nothing is busy",
                0,
                0,
                self.busy.len() as u64,
            );
        }
        let mut gaps = 0;
        let mut below = 0;
        for area in self.busy.iter() {
            gaps += u64::from(area.start() > below);
            below = area.end();
        }
        gaps += u64::from(below < u64::MAX);
        Violation::unless_equal(
            "holes are the gaps between busy areas",
            0,
            gaps,
            self.holes as u64,
        )?;
        let Some(cached) = self.cache.area else { return Ok(()) };
        let known = core::iter::successors(self.busy.first(), |&id| self.busy.next(id))
            .any(|id| id == cached);
        Violation::unless("the cache is a busy area", self.end_of(Some(cached)), known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_broken_is_named() {
        let law_of = |scan: &CachedScan| scan.check().map_err(|violation| violation.law);
        let mut scan = CachedScan::new();
        assert_eq!(law_of(&scan), Ok(()));
        scan.give(Span::known(10, 20), &mut Counters::default()).unwrap();
        assert_eq!(law_of(&scan), Ok(()));
        scan.holes += 1;
        assert_eq!(law_of(&scan), Err("holes are the gaps between busy areas"));
    }
}
