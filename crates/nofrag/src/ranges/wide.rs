//! Placeholder index while the wide blocks are being written: holes in one sorted list.

use super::index::{FreeIndex, Refusal, Rejection};
use super::{Config, Counters, Fit, OutOfMetadata, Request, Span};
use crate::check::Violation;
use alloc::vec::Vec;

#[derive(Debug, Default)]
pub(crate) struct WideBlocks {
    holes: Vec<Span>,
}

impl WideBlocks {
    pub(crate) fn new(_config: &Config) -> WideBlocks {
        WideBlocks::default()
    }

    fn first_ending_above(&self, at: u64) -> usize {
        self.holes.partition_point(|hole| hole.end() <= at)
    }
}

impl FreeIndex for WideBlocks {
    fn alloc(&mut self, request: &Request, counters: &mut Counters) -> Result<Span, Refusal> {
        let mut found: Option<(u64, u64)> = None;
        for hole in &self.holes {
            counters.steps += 1;
            let Some(part) = hole.intersection(request.within) else { continue };
            let (start, rank) = match request.fit {
                Fit::Highest => {
                    (part.highest_fit(request.size, request.align), u64::MAX - hole.start())
                }
                Fit::Lowest => (part.lowest_fit(request.size, request.align), hole.start()),
                Fit::Best | Fit::Dynamic => {
                    (part.lowest_fit(request.size, request.align), hole.len())
                }
            };
            if let Some(start) = start
                && found.is_none_or(|(best, _)| rank < best)
            {
                found = Some((rank, start));
            }
        }
        let (_, start) = found.ok_or(Refusal::NoFit)?;
        let span = Span::known(start, start + request.size);
        self.take(span, counters)?;
        Ok(span)
    }

    fn take(&mut self, span: Span, counters: &mut Counters) -> Result<(), Refusal> {
        let at = self.first_ending_above(span.start());
        let hole = *self.holes.get(at).filter(|hole| hole.covers(span)).ok_or(Refusal::NoFit)?;
        counters.note_cut(hole.start() == span.start(), hole.end() == span.end());
        let left = Span::new(hole.start(), span.start()).ok();
        let right = Span::new(span.end(), hole.end()).ok();
        self.holes.splice(at..=at, left.into_iter().chain(right));
        Ok(())
    }

    fn give(&mut self, span: Span, counters: &mut Counters) -> Result<(), Rejection> {
        let at = self.first_ending_above(span.start());
        if self.holes.get(at).is_some_and(|next| next.start() < span.end()) {
            return Err(Rejection::Overlap);
        }
        let previous = at.checked_sub(1).filter(|&p| self.holes[p].end() == span.start());
        let next = Some(at).filter(|&n| self.holes.get(n).is_some_and(|h| h.start() == span.end()));
        counters.note_merge(previous.is_some(), next.is_some());
        let start = previous.map_or(span.start(), |p| self.holes[p].start());
        let end = next.map_or(span.end(), |n| self.holes[n].end());
        let replaced = previous.unwrap_or(at)..next.map_or(at, |n| n + 1);
        self.holes.splice(replaced, [Span::known(start, end)]);
        Ok(())
    }

    fn hole_from(&self, at: u64) -> Option<Span> {
        self.holes.get(self.first_ending_above(at)).copied()
    }

    fn largest(&self) -> u64 {
        self.holes.iter().map(|hole| hole.len()).max().unwrap_or(0)
    }

    fn holes(&self) -> usize {
        self.holes.len()
    }

    fn reserve(&mut self, holes: usize) -> Result<(), OutOfMetadata> {
        let more = holes.saturating_sub(self.holes.len());
        self.holes.try_reserve(more).map_err(|_| OutOfMetadata)
    }

    fn metadata_bytes(&self) -> usize {
        self.holes.capacity() * size_of::<Span>()
    }

    fn check(&self) -> Result<(), Violation> {
        for pair in self.holes.windows(2) {
            Violation::unless(
                "holes are disjoint and apart",
                pair[1].start(),
                pair[0].end() < pair[1].start(),
            )?;
        }
        Ok(())
    }
}
