//! Resizing and moving mappings: `mremap`, and a move that holds both places until it is committed or rolled back.
//!
//! `mremap` moves at once. An owner who moves a device's window, or pages that are busy, needs the new place before the
//! old one can be given up: freeing first and then failing to allocate would lose both. A [`PendingMove`] reserves the
//! new place, sealed so that it merges with nothing; a commit puts the area there, a rollback leaves everything as it
//! was.

use super::areas::Piece;
use super::attributes::{AreaFlags, Attributes, Backing};
use super::request::{MapFlags, MoveError, RemapTarget, UnmapError};
use super::space::{AddressSpace, RangeError};
use crate::ranges::{AreaPlace, Span};
use crate::units::{PageCount, Vpn};

/// A move is refused unless more areas than this are left below the limit (docs/sources/mmap.md#map-count): it adds an
/// area and may cut two.
const MOVE_HEADROOM: usize = 3;

/// A move that has reserved its new place; see [`AddressSpace::begin_move`].
#[must_use = "a pending move holds both places until it is committed or rolled back"]
#[derive(Debug, PartialEq, Eq)]
pub struct PendingMove {
    from: Span,
    to: Span,
}

impl PendingMove {
    /// Returns the old place, in pages.
    #[must_use]
    pub fn from(&self) -> Span {
        self.from
    }

    /// Returns the new place, in pages.
    #[must_use]
    pub fn to(&self) -> Span {
        self.to
    }

    /// Returns the parts of the new place that are reserved: those outside the old one.
    fn reserved(&self) -> impl Iterator<Item = Span> + use<> {
        self.to.outside(self.from).into_iter().flatten()
    }
}

impl AddressSpace {
    /// Makes the mapping of `pages` pages from `start` on `new_pages` long, and moves it if it must or shall
    /// (`mremap`). Returns its start afterwards.
    ///
    /// The mapping shrinks by unmapping its end. It grows in place if it is the end of its area and the pages that
    /// follow are free; no guard gap counts. Else, if it may move, it goes where the placement says, or to the page
    /// that was named, and areas mapped there go. Untouched anonymous memory takes the offset of its new place, as if
    /// it had been mapped there, and so merges with its new neighbours; touched memory keeps its offsets. O(log n)
    /// beside the placement.
    ///
    /// # Errors
    /// [`MoveError::NotOneArea`] if the pages that stay are not a part of one area, [`MoveError::NotExpandable`] if
    /// areas of its kind never grow, [`MoveError::Taken`] or [`MoveError::Outside`] if the mapping cannot grow in place
    /// and may not move. [`MoveError::TooManyAreas`] if a move finds three areas or fewer left below the limit, a move
    /// to a given place five or fewer. All this is checked before the first change: nothing changed.
    pub fn remap(
        &mut self,
        start: Vpn,
        pages: PageCount,
        new_pages: PageCount,
        target: RemapTarget,
    ) -> Result<Vpn, MoveError> {
        if new_pages.0 == 0 {
            return Err(MoveError::ZeroSize);
        }
        let old = self.range(start, pages)?;
        let kept = Span::known(old.start(), old.start() + pages.0.min(new_pages.0));
        let grows = new_pages > pages;
        if let RemapTarget::To(to) = target {
            return self.remap_to(old, kept, new_pages, to);
        }
        if !grows {
            self.area_of(Span::known(old.start(), old.start() + 1))?;
            if let Ok(tail) = Span::new(kept.end(), old.end()) {
                self.unmap(Vpn(tail.start()), PageCount(tail.len()))?;
            }
            return Ok(start);
        }
        let place = self.area_of(old)?;
        let attributes = self.growing(place, old)?;
        match self.room_above(place, old, new_pages) {
            Ok(more) => {
                self.areas.reserve(2)?;
                self.extend(place, more);
                Ok(start)
            }
            Err(why) if target == RemapTarget::InPlace => Err(why),
            Err(_) => {
                self.may_move(0)?;
                self.areas.reserve(2)?;
                let wish = self.wish(new_pages, &attributes, None, MapFlags::default());
                let to = self.search(&wish.map_err(MoveError::NoPlace)?);
                let to = to.map_err(MoveError::NoPlace)?.start;
                self.copy_and_remove(old, Span::known(to, to + new_pages.0), attributes);
                Ok(Vpn(to))
            }
        }
    }

    /// Moves a mapping to a given place; `kept` is the part of `old` that goes there.
    fn remap_to(
        &mut self,
        old: Span,
        kept: Span,
        new_pages: PageCount,
        to: Vpn,
    ) -> Result<Vpn, MoveError> {
        let new = self.range(to, new_pages)?;
        if new.start() < self.layout.floor.0 {
            return Err(MoveError::Outside);
        }
        if new.intersection(old).is_some() {
            return Err(MoveError::Overlap);
        }
        let place = self.area_of(kept)?;
        let attributes = if new_pages.0 > old.len() {
            self.growing(place, kept)?
        } else {
            self.attributes_at(place, kept)
        };
        // The areas at the new place may be cut, and so may the end that goes.
        self.may_move(2)?;
        self.areas.reserve(6)?;
        self.remove(new);
        if let Ok(tail) = Span::new(kept.end(), old.end()) {
            self.remove(tail);
        }
        self.copy_and_remove(kept, new, attributes);
        Ok(to)
    }

    /// Verifies that more than [`MOVE_HEADROOM`] areas are left below the limit, after the `more` that a move may add
    /// before it begins.
    fn may_move(&self, more: usize) -> Result<(), MoveError> {
        let limit = self.map_limit;
        let full = self.areas.len().saturating_add(more) >= limit.saturating_sub(MOVE_HEADROOM);
        if full { Err(MoveError::TooManyAreas { limit }) } else { Ok(()) }
    }

    /// Returns the area that holds all of `span`.
    fn area_of(&self, span: Span) -> Result<AreaPlace, MoveError> {
        let place = self.areas.find(span.start());
        place.filter(|&place| self.areas.span(place).covers(span)).ok_or(MoveError::NotOneArea)
    }

    fn attributes_at(&self, place: AreaPlace, part: Span) -> Attributes {
        self.areas.based(place).at(Vpn(part.start()))
    }

    /// Returns the attributes of the mapping that grows, if areas of its kind may.
    fn growing(&self, place: AreaPlace, part: Span) -> Result<Attributes, MoveError> {
        let fixed = AreaFlags::DONT_EXPAND.with(AreaFlags::PFN_MAP);
        let attributes = self.attributes_at(place, part);
        if attributes.flags.any_of(fixed) { Err(MoveError::NotExpandable) } else { Ok(attributes) }
    }

    /// Returns the free range right above `old`, a range in the area at `place`, over which it would grow to
    /// `new_pages`.
    fn room_above(
        &self,
        place: AreaPlace,
        old: Span,
        new_pages: PageCount,
    ) -> Result<Span, MoveError> {
        let area = self.areas.span(place);
        if old.end() < area.end() {
            return Err(MoveError::Taken { area: area.start() });
        }
        let new = self.range(Vpn(old.start()), new_pages)?;
        let more = Span::known(old.end(), new.end());
        match self.first_in(more) {
            Some(above) => Err(MoveError::Taken { area: above.start() }),
            None => Ok(more),
        }
    }

    /// Lets the area at `place` grow over `more`, and merges it with the area above if they touch and agree.
    fn extend(&mut self, place: AreaPlace, more: Span) {
        let Piece { span, attributes } = self.areas.piece(place);
        self.areas.resize(place, span.hull(more));
        let place = self.areas.find(more.start()).expect("the area has just grown over it");
        let above = self.areas.next(place).map(|above| self.areas.piece(above));
        let above = above.filter(|above| above.span.start() == more.end());
        let Some(above) = above.filter(|above| attributes.blocker(&above.attributes).is_none())
        else {
            return;
        };
        let old = [span.hull(more), above.span];
        let attributes = attributes.joined_by(&above.attributes);
        self.areas.splice(old.into_iter(), &[Piece { span: old[0].hull(old[1]), attributes }]);
        self.counters.merges += 1;
    }

    /// Maps memory with these attributes at `new` and unmaps it at `old`; room for two areas was reserved.
    fn copy_and_remove(&mut self, old: Span, new: Span, attributes: Attributes) {
        self.insert_merged(new, &moved(attributes, new.start()));
        self.remove(old);
        self.counters.moves += 1;
    }

    /// Begins to move `pages` pages from `start` on, a part of one area, to where the placement says.
    ///
    /// Until [`commit_move`](Self::commit_move) or [`rollback_move`](Self::rollback_move) the area is where it was, and
    /// the new place is held by an area of its own that merges with nothing ([`AreaFlags::OPAQUE`]).
    /// O(log n) beside the placement.
    ///
    /// # Errors
    /// See [`MoveError`]; `TooManyAreas` if three areas or fewer are left below the limit, so that the commit cannot
    /// meet it. Nothing changed.
    pub fn begin_move(
        &mut self,
        start: Vpn,
        pages: PageCount,
        flags: MapFlags,
    ) -> Result<PendingMove, MoveError> {
        let from = self.range(start, pages)?;
        let attributes = self.attributes_at(self.area_of(from)?, from);
        self.may_move(0)?;
        self.areas.reserve(1)?;
        let wish = self.wish(pages, &attributes, None, flags).map_err(MoveError::NoPlace)?;
        let to = self.search(&wish).map_err(MoveError::NoPlace)?.start;
        let to = Span::known(to, to + pages.0);
        self.areas.insert(to, &sealed(attributes, to));
        Ok(PendingMove { from, to })
    }

    /// Begins to move as [`begin_move`](Self::begin_move) does, to the pages from `to` on, which may overlap the old
    /// place.
    ///
    /// # Errors
    /// Those of [`begin_move`](Self::begin_move); [`MoveError::Taken`] if another area is in the way. Nothing changed.
    pub fn begin_move_to(
        &mut self,
        start: Vpn,
        pages: PageCount,
        to: Vpn,
    ) -> Result<PendingMove, MoveError> {
        let from = self.range(start, pages)?;
        let to = self.range(to, pages)?;
        if to.start() < self.layout.floor.0 {
            return Err(MoveError::Outside);
        }
        let attributes = self.attributes_at(self.area_of(from)?, from);
        let pending = PendingMove { from, to };
        for part in pending.reserved() {
            if let Some(area) = self.first_in(part) {
                return Err(MoveError::Taken { area: area.start() });
            }
        }
        self.may_move(0)?;
        self.areas.reserve(1)?;
        for part in pending.reserved() {
            self.areas.insert(part, &sealed(attributes, to));
        }
        Ok(pending)
    }

    /// Ends a move: the area at the old place goes to the new one, and merges there. O(log n).
    ///
    /// # Errors
    /// [`MoveError::NotOneArea`] if the old place is not a part of one area any more, or the new one not reserved;
    /// [`MoveError::OutOfMetadata`]. Nothing changed, and the move, still pending, is handed back.
    pub fn commit_move(&mut self, pending: PendingMove) -> Result<(), (PendingMove, MoveError)> {
        let ready = self.area_of(pending.from).and_then(|place| {
            self.must_be_reserved(&pending)?;
            let attributes = self.attributes_at(place, pending.from);
            self.areas.reserve(4)?;
            Ok(attributes)
        });
        let attributes = match ready {
            Ok(attributes) => attributes,
            Err(why) => return Err((pending, why)),
        };
        let PendingMove { from, to } = pending;
        if from == to {
            return Ok(());
        }
        for part in pending.reserved() {
            let place = self.area_of(part).expect("the reservation is there");
            self.areas.remove(place);
        }
        if let Some(shared) = from.intersection(to) {
            let place = self.area_of(shared).expect("the old place is there");
            self.areas.cut(place, shared);
        }
        // Before the new place merges: the parts that go are no neighbours of it.
        for part in from.outside(to).into_iter().flatten() {
            self.remove(part);
        }
        self.insert_merged(to, &moved(attributes, to.start()));
        self.counters.moves += 1;
        Ok(())
    }

    /// Abandons a move: the new place becomes free, as by [`unmap`](Self::unmap). O(log n).
    ///
    /// # Errors
    /// [`MoveError::NotOneArea`] if the new place is not reserved any more. Nothing changed, and the move is handed
    /// back.
    pub fn rollback_move(&mut self, pending: PendingMove) -> Result<(), (PendingMove, MoveError)> {
        if let Err(why) = self.must_be_reserved(&pending) {
            return Err((pending, why));
        }
        for part in pending.reserved() {
            self.remove(part);
        }
        Ok(())
    }

    /// Verifies that the new place is held as it was when the move began.
    fn must_be_reserved(&self, pending: &PendingMove) -> Result<(), MoveError> {
        for part in pending.reserved() {
            let place = self.area_of(part)?;
            let is_sealed = self.areas.based(place).flags.any_of(AreaFlags::OPAQUE);
            if self.areas.span(place) != part || !is_sealed {
                return Err(MoveError::NotOneArea);
            }
        }
        Ok(())
    }
}

/// Returns the attributes of memory that moves to page `to`, [`based`](Attributes::based) there; memory never written
/// to gets the offset that it would have if mapped there.
fn moved(attributes: Attributes, to: u64) -> Attributes {
    let fresh = attributes.backing == Backing::Anonymous && attributes.awaits_touch();
    let offset = if fresh { to } else { attributes.offset };
    Attributes { offset, ..attributes }.based(Vpn(to))
}

/// Returns the attributes as [`moved`] does, with the flag by which the area merges with nothing.
fn sealed(attributes: Attributes, to: Span) -> Attributes {
    moved(attributes, to.start()).with(AreaFlags::OPAQUE)
}

impl From<RangeError> for MoveError {
    fn from(why: RangeError) -> MoveError {
        UnmapError::from(why).into()
    }
}

impl From<UnmapError> for MoveError {
    fn from(why: UnmapError) -> MoveError {
        match why {
            UnmapError::ZeroSize => MoveError::ZeroSize,
            UnmapError::Outside => MoveError::Outside,
            UnmapError::TooManyAreas { limit } => MoveError::TooManyAreas { limit },
            UnmapError::OutOfMetadata => MoveError::OutOfMetadata,
        }
    }
}
