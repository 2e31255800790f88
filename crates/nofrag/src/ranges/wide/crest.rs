//! The crest: the highest hole, which the tree does not hold.
//!
//! A young space is one long hole with a few small ones below it, and whoever asks for the lowest place is served from
//! the left edge of the long one until the small ones grow large enough. In the tree each such cut would look for that
//! hole and note its new length at every level. Beside the tree it costs a comparison and an addition, whatever the
//! length, and the maxima of the tree say at once that nothing lower serves.
//!
//! An index by size chooses by length and would have to be asked about the crest, too: it keeps all holes in the
//! tree.

use super::GrainBlocks;
use super::usual::Merged;
use crate::check::Violation;
use crate::ranges::index::Rejection;
use crate::ranges::{Counters, OutOfMetadata, Span};

impl GrainBlocks {
    /// Cuts `span` out of the crest, in which it lies.
    #[inline]
    pub(super) fn cut_crest(
        &mut self,
        span: Span,
        counters: &mut Counters,
    ) -> Result<(), OutOfMetadata> {
        let crest = self.crest.expect("the span lies in it");
        let below = Span::new(crest.start(), span.start()).ok();
        let above = Span::new(span.end(), crest.end()).ok();
        if let (Some(below), Some(_)) = (below, above) {
            self.add_last(below)?;
        }
        self.crest = above.or(below);
        counters.note_cut(below.is_none(), above.is_none());
        Ok(())
    }

    /// Cuts `size` grains off the left edge of the crest. `None` if there is none, or if it is too short.
    #[inline]
    pub(super) fn cut_crest_edge(&mut self, size: u64, counters: &mut Counters) -> Option<Span> {
        let crest = self.crest.filter(|crest| crest.len() >= size)?;
        let end = crest.start() + size;
        counters.steps += 1;
        self.crest = Span::new(end, crest.end()).ok();
        counters.note_cut(true, end == crest.end());
        Some(Span::known(crest.start(), end))
    }

    /// Adds a hole above all holes of the tree.
    fn add_last(&mut self, hole: Span) -> Result<(), OutOfMetadata> {
        match self.tree.end() {
            Some(at) => self.insert(at, hole),
            None => self.give_first(hole),
        }
    }

    /// Frees `span` if the crest becomes larger by it, or if it becomes the crest. `None`, with nothing changed,
    /// if it belongs into the tree.
    #[inline]
    pub(super) fn give_crest(&mut self, span: Span) -> Option<Result<Merged, Rejection>> {
        match self.crest {
            Some(crest) if span.end() < crest.start() => None,
            Some(crest) => Some(self.grow_crest(crest, span)),
            None if self.tree.sizes.is_some() => None,
            None => self.begin_crest(span).map(Ok),
        }
    }

    #[inline(never)]
    fn grow_crest(&mut self, crest: Span, span: Span) -> Result<Merged, Rejection> {
        if span.start() > crest.end() {
            self.add_last(crest).map_err(|OutOfMetadata| Rejection::OutOfMetadata)?;
            self.crest = Some(span);
            return Ok(Merged { before: false, after: false });
        }
        if span.start() == crest.end() {
            self.crest = Some(Span::known(crest.start(), span.end()));
            return Ok(Merged { before: true, after: false });
        }
        if span.end() > crest.start() {
            return Err(Rejection::Overlap);
        }
        let both = Span::known(span.start(), crest.end());
        let before = self.put_crest(both).ok_or(Rejection::Overlap)?;
        Ok(Merged { before, after: true })
    }

    /// Makes `span` the crest if there is no hole above it.
    #[cold]
    fn begin_crest(&mut self, span: Span) -> Option<Merged> {
        let before = self.put_crest(span)?;
        Some(Merged { before, after: false })
    }

    /// Makes `crest` the crest, joined with the last hole of the tree if the two touch; the answer tells whether
    /// they do. `None`, with nothing changed, if that hole reaches farther.
    fn put_crest(&mut self, crest: Span) -> Option<bool> {
        let last = self.tree.last();
        if last.is_some_and(|(_, hole)| hole.end > crest.start()) {
            return None;
        }
        let touching = last.filter(|(_, hole)| hole.end == crest.start());
        self.crest = Some(crest);
        if let Some((at, hole)) = touching {
            self.tree.remove(at);
            self.crest = Some(Span::known(hole.start, crest.end()));
        }
        Some(touching.is_some())
    }

    /// Keeps bins by size from now on, and with them all holes in the tree. The first time this looks at each hole.
    pub(super) fn index_sizes(&mut self) -> Result<(), OutOfMetadata> {
        if let Some(crest) = self.crest {
            self.add_last(crest)?;
            self.crest = None;
        }
        self.tree.index_sizes()
    }

    pub(super) fn check_crest(&self) -> Result<(), Violation> {
        let Some(crest) = self.crest else { return Ok(()) };
        let law = "an index by size has no crest";
        Violation::unless(law, crest.start(), self.tree.sizes.is_none())?;
        let below = self.tree.last().is_none_or(|(_, last)| last.end < crest.start());
        Violation::unless("the crest lies above the tree's holes", crest.start(), below)
    }
}
