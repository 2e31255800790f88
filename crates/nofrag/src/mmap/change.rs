//! The operations that split and join areas (docs/sources/mmap.md#splits and mmap.md#map-count).
//!
//! Taking a range out needs no plan: pieces go one by one, and the only step that can be refused, cutting one area in
//! two at the limit, is asked about before. A change of attributes can be refused in its middle, by the limit or by a
//! hole. So it is played on a copy of the areas concerned first, in the order in which Linux works (each area splits or
//! merges before the next is looked at), and the outcome replaces them at once.

use super::areas::{Areas, Piece};
use super::attributes::{AnonChain, AreaFlags, Attributes, Join, Merging, Protection, join};
use super::placement::Removal;
use super::request::{GrowError, ProtectError, UnmapError};
use super::space::{AddressSpace, RangeError, cuts_in_two};
use crate::lists::put;
use crate::ranges::{OutOfMetadata, Span};
use crate::units::{PageCount, Vpn};
use alloc::vec::Vec;

impl AddressSpace {
    /// Adds an area at a given place, without merging, without the area limit, and without telling the placement: so a
    /// captured space is rebuilt. O(log n).
    ///
    /// # Errors
    /// Those of [`unmap`](Self::unmap), but the range may lie anywhere; `Outside` where it overlaps an area.
    pub fn load(
        &mut self,
        start: Vpn,
        pages: PageCount,
        attributes: Attributes,
    ) -> Result<(), UnmapError> {
        if pages.0 == 0 {
            return Err(UnmapError::ZeroSize);
        }
        let span = Span::sized(start.0, pages.0).map_err(|_| UnmapError::Outside)?;
        if self.first_in(span).is_some() {
            return Err(UnmapError::Outside);
        }
        self.areas.reserve(1)?;
        self.areas.insert(span, &attributes.based(start));
        self.unmerged = true;
        Ok(())
    }

    /// Unmaps `pages` pages from `start` on: whole areas, parts of them, and holes between them. O(k log n) for k areas
    /// that go.
    ///
    /// # Errors
    /// See [`UnmapError`]; nothing changed.
    pub fn unmap(&mut self, start: Vpn, pages: PageCount) -> Result<(), UnmapError> {
        let span = self.range(start, pages)?;
        self.may_cut(span).map_err(|limit| UnmapError::TooManyAreas { limit })?;
        self.areas.reserve(1)?;
        self.counters.unmaps += 1;
        self.remove(span);
        Ok(())
    }

    /// Takes all areas and parts of areas in `span` out and tells the placement; room for one area was reserved.
    pub(super) fn remove(&mut self, span: Span) {
        match self.areas.remove_exact(span) {
            Some((below, above)) => {
                self.placer.note_removal(&self.layout, Removal::Area(span));
                self.placer.note_removal(&self.layout, Removal::Done { below, above });
            }
            None => self.remove_parts(span),
        }
    }

    /// Does what [`remove`](Self::remove) does, where `span` is anything but one area.
    fn remove_parts(&mut self, span: Span) {
        let mut found = self.areas.find(span.start());
        let below = self.areas.before(found, span.start());
        let mut below = below.map(|place| self.areas.span(place).end());
        let mut any = false;
        let above = loop {
            let Some(place) = found else { break None };
            let area = self.areas.span(place);
            let Some(gone) = area.intersection(span) else { break Some(area.start()) };
            if area.start() < span.start() {
                below = Some(span.start());
            }
            any = true;
            self.counters.splits += u64::from(cuts_in_two(area, gone));
            let next = self.areas.next(place).map(|place| self.areas.span(place).start());
            self.areas.cut(place, gone);
            self.placer.note_removal(&self.layout, Removal::Area(gone));
            if gone.end() < area.end() {
                break Some(gone.end());
            }
            match next {
                Some(next) if next < span.end() => found = self.areas.find(next),
                next => break next,
            }
        };
        if any {
            self.placer.note_removal(&self.layout, Removal::Done { below, above });
        }
    }

    /// Changes the protection of `pages` pages from `start` on (`mprotect`). O(k log n) for k areas that change.
    ///
    /// # Errors
    /// See [`ProtectError`]; nothing changed. Linux stops at the first page that is not mapped, or at the limit, and
    /// leaves the pages before it changed.
    pub fn protect(
        &mut self,
        start: Vpn,
        pages: PageCount,
        protection: Protection,
    ) -> Result<(), ProtectError> {
        self.change(start, pages, |attributes| attributes.protection = protection)
    }

    /// Changes attributes of `pages` pages from `start` on, as `mprotect`, `mlock`, `madvise`, `mbind` and their like
    /// do. O(k log n) for k areas that change.
    ///
    /// `change` is called for each area in the range, ascending, with the attributes of its part, whose offset is that
    /// of the part's first page. It may change protection, flags, memory policy, userfaultfd context and name; the
    /// identity of the memory (backing, offset, chain) stays. Where `change` changes nothing, nothing splits or merges.
    /// Each part that changes merges with its neighbours, or splits the area that it is a part of.
    ///
    /// # Errors
    /// See [`ProtectError`]; nothing changed.
    pub fn change(
        &mut self,
        start: Vpn,
        pages: PageCount,
        change: impl FnMut(&mut Attributes),
    ) -> Result<(), ProtectError> {
        let span = self.range(start, pages)?;
        let mut plan = core::mem::take(&mut self.plan);
        let planned = plan.read(&self.areas, span, change).and_then(|()| {
            plan.settle(self.areas.len(), self.map_limit)?;
            Ok(self.areas.reserve(plan.after.len())?)
        });
        if planned.is_ok() {
            plan.apply(&mut self.areas);
            self.counters.splits += plan.splits;
            self.counters.merges += plan.merges;
            self.unmerged |= plan.unmerged;
        }
        self.plan = plan;
        planned
    }

    /// Writes to `pages` pages from `start` on: each private area that has no chain yet (`anon_vma`) gets one, which
    /// keeps it apart from neighbours with another. O(k log n) for k areas.
    ///
    /// The chain is the whole area's even where only a part is touched. Linux may give the area the chain of a
    /// neighbour; here it always gets a chain of its own.
    ///
    /// # Errors
    /// See [`ProtectError`]; nothing changed, and the limit does not matter.
    pub fn touch(&mut self, start: Vpn, pages: PageCount) -> Result<(), ProtectError> {
        let span = self.range(start, pages)?;
        let mut at = span.start();
        let mut fresh = 0;
        let mut found = self.areas.find(at);
        while at < span.end() {
            let place = found.filter(|&place| self.areas.span(place).start() <= at);
            let place = place.ok_or(ProtectError::NotMapped { hole: at })?;
            fresh += usize::from(self.areas.based(place).awaits_touch());
            at = self.areas.span(place).end();
            found = self.areas.next(place);
        }
        self.areas.reserve_attributes(fresh)?;
        let mut at = span.start();
        while at < span.end() {
            let place = self.areas.find(at).expect("the range is mapped");
            let Piece { span, attributes } = self.areas.piece(place);
            if attributes.awaits_touch() {
                let chain = AnonChain::Own(self.next_chain);
                self.next_chain += 1;
                self.areas.replace(place, span, &Attributes { chain, ..attributes });
            }
            at = span.end();
        }
        Ok(())
    }

    /// Lets the stack above page `at` grow down to it, as a fault there does. Returns the number of pages that the
    /// stack gained, 0 if `at` is mapped already. O(log n).
    ///
    /// Between the stack and the area below, [`guard_gap`](super::SpaceConfig::guard_gap) pages stay free, unless that
    /// area is inaccessible (a guard that was mapped on purpose) or a part of a stack itself.
    ///
    /// # Errors
    /// See [`GrowError`]; nothing changed.
    pub fn grow_stack(&mut self, at: Vpn) -> Result<PageCount, GrowError> {
        let stack = self.areas.find(at.0).ok_or(GrowError::NoStack)?;
        let area = self.areas.span(stack);
        if area.contains(at.0) {
            return Ok(PageCount(0));
        }
        if !self.areas.based(stack).flags.any_of(AreaFlags::GROWS_DOWN) {
            return Err(GrowError::NoStack);
        }
        if at < self.layout.floor {
            return Err(GrowError::Outside);
        }
        if let Some(below) = self.areas.previous(stack) {
            let (span, attributes) = (self.areas.span(below), self.areas.based(below));
            let guards = attributes.protection == Protection::NONE
                || attributes.flags.any_of(AreaFlags::GROWS_DOWN);
            if !guards && at.0 - span.end() < self.guard_gap.0 {
                return Err(GrowError::GuardGap { neighbour: span.start() });
            }
            self.unmerged |= span.end() == at.0;
        }
        self.areas.resize(stack, Span::known(at.0, area.end()));
        Ok(PageCount(area.start() - at.0))
    }
}

/// An area in the range of a change, or a neighbour that touches the range.
#[derive(Clone, Copy, Debug)]
struct Concerned {
    area: Span,
    /// The part of the area in the range; of a neighbour, all of it.
    part: Span,
    before: Attributes,
    after: Attributes,
}

impl Concerned {
    fn changes(&self) -> bool {
        self.before != self.after
    }

    fn merging(&self) -> Merging {
        if self.part == self.area { Merging::Whole } else { Merging::Part }
    }

    /// Returns the part of the area below the range.
    fn below(&self) -> Option<Span> {
        Span::new(self.area.start(), self.part.start()).ok()
    }

    /// Returns the part of the area above the range.
    fn above(&self) -> Option<Span> {
        Span::new(self.part.end(), self.area.end()).ok()
    }
}

/// A change of attributes, played on copies: the areas concerned, and the areas that take their place.
#[derive(Debug, Default)]
pub(super) struct ChangePlan {
    concerned: Vec<Concerned>,
    after: Vec<Piece>,
    splits: u64,
    merges: u64,
    /// True if parts come to touch areas with which they could have merged.
    unmerged: bool,
}

/// The way in which the next area, which does not change, merges with the part below it.
#[derive(Clone, Copy, Debug)]
enum Carry {
    Nothing,
    /// The next area takes the part in.
    TakesIn(Piece),
    /// The next area vanishes into the area that the part belongs to by now.
    Vanishes,
}

impl ChangePlan {
    /// Notes the areas of `span`, their attributes after `change`, and the neighbours that touch `span`.
    fn read(
        &mut self,
        areas: &Areas,
        span: Span,
        mut change: impl FnMut(&mut Attributes),
    ) -> Result<(), ProtectError> {
        self.concerned.clear();
        let first = areas.find(span.start());
        let touching = areas.before(first, span.start());
        if let Some(place) = touching.filter(|&place| areas.span(place).end() == span.start()) {
            self.note(areas.piece(place), None)?;
        }
        let (mut found, mut at) = (first, span.start());
        while at < span.end() {
            let place = found.filter(|&place| areas.span(place).start() <= at);
            let place = place.ok_or(ProtectError::NotMapped { hole: at })?;
            let piece = areas.piece(place);
            let part = Span::known(at, piece.span.end().min(span.end()));
            let before = piece.attributes.at(Vpn(at));
            let mut changed = before;
            change(&mut changed);
            let Attributes { backing, offset, chain, .. } = before;
            let changed = Attributes { backing, offset, chain, ..changed };
            self.note(piece, Some((part, changed.based(Vpn(at)))))?;
            at = piece.span.end();
            found = areas.next(place);
        }
        if let Some(place) = found.filter(|&place| areas.span(place).start() == span.end()) {
            self.note(areas.piece(place), None)?;
        }
        Ok(())
    }

    fn note(
        &mut self,
        piece: Piece,
        changed: Option<(Span, Attributes)>,
    ) -> Result<(), OutOfMetadata> {
        let Piece { span: area, attributes: before } = piece;
        let (part, after) = changed.unwrap_or((area, before));
        self.concerned.try_reserve(1)?;
        put(&mut self.concerned, Concerned { area, part, before, after });
        Ok(())
    }

    /// Works out the areas after the change, and counts splits and merges; `count` areas exist, `limit` are allowed.
    fn settle(&mut self, mut count: usize, limit: usize) -> Result<(), ProtectError> {
        let ChangePlan { concerned, after, splits, merges, unmerged } = self;
        after.clear();
        // Each area leaves three pieces at most: below the range, in it, and above.
        after.try_reserve(3 * concerned.len()).map_err(|_| OutOfMetadata)?;
        (*splits, *merges, *unmerged) = (0, 0, false);
        let mut carry = Carry::Nothing;
        for (nth, one) in concerned.iter().enumerate() {
            if !one.changes() {
                let kept = Piece { span: one.area, attributes: one.before };
                push_kept(after, core::mem::replace(&mut carry, Carry::Nothing), kept);
                continue;
            }
            let piece = Piece { span: one.part, attributes: one.after };
            // A part never merges back into the area that it was cut from.
            let lower = if one.below().is_none() { after.last() } else { None };
            let lower = lower.map(|lower| lower.attributes);
            let next = concerned.get(nth + 1).filter(|_| one.above().is_none());
            let upper = next.filter(|next| !next.changes()).map(|next| &next.before);
            let joined = join(lower.as_ref(), &one.after, one.merging(), upper);
            if joined == Join::Alone {
                for _ in [one.below(), one.above()].into_iter().flatten() {
                    if count >= limit {
                        return Err(ProtectError::TooManyAreas { limit });
                    }
                    (count, *splits) = (count + 1, *splits + 1);
                }
            }
            *unmerged |= one.merging() == Merging::Part && one.before.blocker(&one.after).is_none();
            if let Some(span) = one.below() {
                put(after, Piece { span, attributes: one.before });
            }
            let vanishing = match (joined, one.merging()) {
                (Join::Alone, _) | (Join::Below | Join::Above, Merging::Part) => 0,
                (Join::Below | Join::Above, Merging::Whole) => 1,
                (Join::Both, _) => 2,
            };
            (count, *merges) = (count - vanishing, *merges + vanishing as u64);
            carry = match joined {
                Join::Above => Carry::TakesIn(piece),
                Join::Both => Carry::Vanishes,
                Join::Alone | Join::Below => Carry::Nothing,
            };
            match joined {
                Join::Alone => put(after, piece),
                Join::Below | Join::Both => extend_last(after, piece),
                Join::Above => {}
            }
            if let Some(span) = one.above() {
                put(after, Piece { span, attributes: one.before });
            }
        }
        Ok(())
    }

    /// Replaces the areas concerned by those after the change; room was reserved.
    fn apply(&self, areas: &mut Areas) {
        let (mut old, mut new) = (&self.concerned[..], &self.after[..]);
        let is_kept = |one: &Concerned, piece: &Piece| {
            *piece == Piece { span: one.area, attributes: one.before }
        };
        while let (Some((one, others)), Some((piece, pieces))) =
            (old.split_first(), new.split_first())
            && is_kept(one, piece)
        {
            (old, new) = (others, pieces);
        }
        while let (Some((one, others)), Some((piece, pieces))) =
            (old.split_last(), new.split_last())
            && is_kept(one, piece)
        {
            (old, new) = (others, pieces);
        }
        if !old.is_empty() {
            areas.splice(old.iter().map(|one| one.area), new);
        }
    }
}

/// Adds `kept`, an area that does not change, to the outcome, merged with the part below it as `carry` says.
fn push_kept(after: &mut Vec<Piece>, carry: Carry, kept: Piece) {
    match carry {
        Carry::Nothing => put(after, kept),
        Carry::TakesIn(part) => put(
            after,
            Piece {
                span: part.span.hull(kept.span),
                attributes: kept.attributes.joined_by(&part.attributes),
            },
        ),
        Carry::Vanishes => extend_last(after, kept),
    }
}

fn extend_last(after: &mut [Piece], piece: Piece) {
    let last = after.last_mut().expect("what a part merges with comes before it");
    last.span = last.span.hull(piece.span);
    last.attributes = last.attributes.joined_by(&piece.attributes);
}

impl From<RangeError> for ProtectError {
    fn from(why: RangeError) -> ProtectError {
        match why {
            RangeError::Empty => ProtectError::ZeroSize,
            RangeError::Outside => ProtectError::Outside,
        }
    }
}
