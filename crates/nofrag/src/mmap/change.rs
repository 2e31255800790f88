//! What splits and joins areas.

use super::attributes::Attributes;
use super::placement::Removal;
use super::request::UnmapError;
use super::space::AddressSpace;
use crate::ranges::Span;
use crate::units::{PageCount, Vpn};

impl AddressSpace {
    /// Puts an area where it is, without merging, limit, or a word to the placement: how a captured space begins.
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap); `Outside` also where the range overlaps an area.
    pub fn load(
        &mut self,
        start: Vpn,
        pages: PageCount,
        attributes: Attributes,
    ) -> Result<(), UnmapError> {
        let span = Span::sized(start.0, pages.0).map_err(|_| UnmapError::Outside)?;
        if self
            .areas
            .find(span.start())
            .is_some_and(|place| self.areas.span(place).start() < span.end())
        {
            return Err(UnmapError::Outside);
        }
        self.areas.reserve(1).map_err(|_| UnmapError::OutOfMetadata)?;
        self.areas.insert(span, attributes.based(start));
        Ok(())
    }

    /// Unmaps `pages` pages from `start` on: whole areas, parts of them, and holes between them.
    ///
    /// # Errors
    /// See [`UnmapError`]; nothing changed.
    pub fn unmap(&mut self, start: Vpn, pages: PageCount) -> Result<(), UnmapError> {
        let span = Span::sized(start.0, pages.0).map_err(|_| UnmapError::Outside)?;
        if span.end() > self.layout.end.0 {
            return Err(UnmapError::Outside);
        }
        self.areas.reserve(1).map_err(|_| UnmapError::OutOfMetadata)?;
        let first = self.areas.find(span.start()).map(|place| self.areas.span(place));
        let splits =
            first.is_some_and(|area| area.start() < span.start() && span.end() < area.end());
        if splits && self.areas.len() >= self.map_limit {
            return Err(UnmapError::TooManyAreas { limit: self.map_limit });
        }
        self.counters.unmaps += 1;
        self.counters.splits += u64::from(splits);
        self.remove(span);
        Ok(())
    }

    /// Takes everything in `span` out; room for one area was reserved.
    pub(super) fn remove(&mut self, span: Span) {
        let mut any = false;
        while let Some(place) = self.areas.find(span.start()) {
            let area = self.areas.span(place);
            let Some(gone) = area.intersection(span) else { break };
            let attributes = *self.areas.based(place);
            self.areas.remove(place);
            if area.start() < gone.start() {
                self.areas.insert(Span::known(area.start(), gone.start()), attributes);
            }
            if gone.end() < area.end() {
                self.areas.insert(Span::known(gone.end(), area.end()), attributes);
            }
            self.placer.note_removal(&self.layout, Removal::Area(gone));
            any = true;
        }
        if any {
            let below =
                self.areas.find_below(span.start()).map(|place| self.areas.span(place).end());
            let above = self.areas.find(span.end()).map(|place| self.areas.span(place).start());
            self.placer.note_removal(&self.layout, Removal::Done { below, above });
        }
    }
}
