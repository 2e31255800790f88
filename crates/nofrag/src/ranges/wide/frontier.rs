//! The frontier: the highest hole, which the tree does not hold.
//!
//! A young space is one long hole with a few small ones below it, and whoever asks for the lowest place is served from
//! the left edge of the long one until the small ones grow large enough. In the tree each such cut would look for that
//! hole and note its new length at every level. Beside the tree it costs a comparison and an addition, whatever the
//! length, and the maxima of the tree say at once that nothing lower serves.
//!
//! An index by size chooses by length and would have to be asked about the frontier, too: it keeps all holes in the
//! tree.

use super::WideBlocks;
use super::change::Merged;
use crate::check::Violation;
use crate::ranges::index::{FreeIndex, Rejection};
use crate::ranges::{Counters, OutOfMetadata, Span};

impl WideBlocks {
    /// Cuts `span` out of the frontier, in which it lies.
    #[inline]
    pub(super) fn cut_frontier(
        &mut self,
        span: Span,
        counters: &mut Counters,
    ) -> Result<(), OutOfMetadata> {
        let frontier = self.frontier.expect("the span lies in it");
        let below = Span::new(frontier.start(), span.start()).ok();
        let above = Span::new(span.end(), frontier.end()).ok();
        if let (Some(below), Some(_)) = (below, above) {
            self.add_last(below)?;
        }
        self.frontier = above.or(below);
        counters.note_cut(below.is_none(), above.is_none());
        Ok(())
    }

    /// Adds a hole above all holes of the tree.
    fn add_last(&mut self, hole: Span) -> Result<(), OutOfMetadata> {
        match self.tree.end() {
            Some(at) => self.insert(at, hole),
            None => self.give_first(hole),
        }
    }

    /// Frees `span` if the frontier becomes larger by it, or if it becomes the frontier. `None`, with nothing changed,
    /// if it belongs into the tree.
    #[inline]
    pub(super) fn give_frontier(&mut self, span: Span) -> Option<Result<Merged, Rejection>> {
        match self.frontier {
            Some(frontier) if span.end() < frontier.start() => None,
            Some(frontier) => Some(self.grow_frontier(frontier, span)),
            None if self.tree.sizes.is_some() => None,
            None => self.begin_frontier(span).map(Ok),
        }
    }

    fn grow_frontier(&mut self, frontier: Span, span: Span) -> Result<Merged, Rejection> {
        if span.start() > frontier.end() {
            self.add_last(frontier).map_err(|OutOfMetadata| Rejection::OutOfMetadata)?;
            self.frontier = Some(span);
            return Ok(Merged { before: false, after: false });
        }
        if span.start() == frontier.end() {
            self.frontier = Some(Span::known(frontier.start(), span.end()));
            return Ok(Merged { before: true, after: false });
        }
        if span.end() > frontier.start() {
            return Err(Rejection::Overlap);
        }
        let both = Span::known(span.start(), frontier.end());
        let before = self.put_frontier(both).ok_or(Rejection::Overlap)?;
        Ok(Merged { before, after: true })
    }

    /// Makes `span` the frontier if there is no hole above it.
    #[cold]
    fn begin_frontier(&mut self, span: Span) -> Option<Merged> {
        let before = self.put_frontier(span)?;
        Some(Merged { before, after: false })
    }

    /// Makes `frontier` the frontier, joined with the last hole of the tree if the two touch; the answer tells whether
    /// they do. `None`, with nothing changed, if that hole reaches farther.
    fn put_frontier(&mut self, frontier: Span) -> Option<bool> {
        let last = self.tree.last();
        if last.is_some_and(|(_, hole)| hole.end > frontier.start()) {
            return None;
        }
        let touching = last.filter(|(_, hole)| hole.end == frontier.start());
        self.frontier = Some(frontier);
        if let Some((at, hole)) = touching {
            self.tree.remove(at);
            self.frontier = Some(Span::known(hole.start, frontier.end()));
        }
        Some(touching.is_some())
    }

    pub(super) fn check_frontier(&self) -> Result<(), Violation> {
        let holes = [self.hole_from(0), self.hole_below(u64::MAX)];
        for hole in holes.into_iter().flatten() {
            let inside = self.reach.is_none_or(|reach| reach.covers(hole));
            Violation::unless("all holes lie inside the space", hole.start(), inside)?;
        }
        let Some(frontier) = self.frontier else { return Ok(()) };
        let law = "an index by size has no frontier";
        Violation::unless(law, frontier.start(), self.tree.sizes.is_none())?;
        let below = self.tree.last().is_none_or(|(_, last)| last.end < frontier.start());
        Violation::unless("the frontier lies above the tree's holes", frontier.start(), below)
    }
}
