//! Areas with attributes: the index of ranges knows their places, a table their attributes.
//!
//! An area is stored once, as a span with a tag; the tag names an entry of the [`table`](super::table) of attributes,
//! which many areas share. The offset of an entry is kept relative to the address, so that two neighbours may merge if
//! their entries say so, whatever their addresses.

use super::attributes::{Attributes, Join, MergeBlocker, Merging, join};
use super::space::AreaRecord;
use super::table::Table;
use crate::check::Violation;
use crate::ranges::{
    Area, AreaIndex, AreaPlace, Config, Finger, Fingers, FoundGap, GapPlace, GapRequest,
    OutOfMetadata, Removed, Span,
};
use crate::units::{PageCount, Vpn};

/// All areas of a space.
///
/// 1. Areas ascend and never overlap.
/// 2. The laws of the attribute table ([`Table`]) hold for the tags of the areas.
#[derive(Debug, Default)]
pub(super) struct Areas {
    index: AreaIndex,
    table: Table,
}

/// A range of pages and its attributes, the offset relative to the address ([`Attributes::based`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) span: Span,
    pub(super) attributes: Attributes,
}

impl Areas {
    /// Returns a set without areas, whose index also keeps what `config` asks for: holes by size, or by alignment
    /// class.
    pub(super) fn new(config: &Config) -> Areas {
        Areas { index: AreaIndex::new(config), ..Areas::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the lowest area that ends above `at`.
    #[inline]
    pub(super) fn find(&self, at: u64) -> Option<AreaPlace> {
        self.index.find(at)
    }

    /// Returns the highest area that starts below `end`.
    #[inline]
    pub(super) fn find_below(&self, end: u64) -> Option<AreaPlace> {
        self.index.find_below(end)
    }

    pub(super) fn next(&self, place: AreaPlace) -> Option<AreaPlace> {
        self.index.next(place)
    }

    pub(super) fn previous(&self, place: AreaPlace) -> Option<AreaPlace> {
        self.index.previous(place)
    }

    /// Returns the highest area that ends at page `at` or below; `above` is the answer of [`find`](Self::find) for
    /// `at`.
    pub(super) fn before(&self, above: Option<AreaPlace>, at: u64) -> Option<AreaPlace> {
        match above {
            Some(place) => self.index.previous(place),
            None => self.index.find_below(at),
        }
    }

    #[inline]
    pub(super) fn span(&self, place: AreaPlace) -> Span {
        self.index.span(place)
    }

    /// Returns the attributes of an area, the offset relative to the address.
    #[inline]
    pub(super) fn based(&self, place: AreaPlace) -> &Attributes {
        self.table.get(self.index.tag(place))
    }

    pub(super) fn piece(&self, place: AreaPlace) -> Piece {
        let Area { span, tag } = self.index.area(place);
        Piece { span, attributes: *self.table.get(tag) }
    }

    pub(super) fn record(&self, place: AreaPlace) -> AreaRecord {
        self.recorded(self.index.area(place))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = AreaRecord> + '_ {
        self.index.iter().map(|area| self.recorded(area))
    }

    pub(super) fn gaps(&self, within: Span) -> impl Iterator<Item = Span> + '_ {
        self.index.gaps(within)
    }

    pub(super) fn largest_gap(&self, within: Span) -> Option<Span> {
        self.index.largest_gap(within)
    }

    pub(super) fn search(&self, request: &GapRequest, steps: &mut u64) -> Option<FoundGap> {
        self.index.search(request, steps)
    }

    /// Searches as [`search`](Self::search) does, after room for an area was reserved; `fingers` guess where the bounds
    /// lie in the index. Returns the place of the gap, too.
    pub(super) fn search_near(
        &self,
        request: &GapRequest,
        fingers: &mut Fingers,
        steps: &mut u64,
    ) -> Option<(FoundGap, GapPlace)> {
        self.index.search_near(request, fingers, steps)
    }

    /// Returns the gap that holds `at` or ends there, or else the gap below the area that holds `at`; `None` in an
    /// index that never had an area.
    pub(super) fn gap_at(&self, at: u64, finger: &mut Finger) -> Option<GapPlace> {
        self.index.gap_at(at, finger)
    }

    /// Returns the start and the end of a gap.
    pub(super) fn gap_bounds(&self, gap: GapPlace) -> (u64, u64) {
        self.index.gap_bounds(gap)
    }

    /// Returns the area above a gap.
    pub(super) fn above_gap(&self, gap: GapPlace) -> Option<AreaPlace> {
        self.index.above_gap(gap)
    }

    pub(super) fn metadata_bytes(&self) -> usize {
        self.index.metadata_bytes() + self.table.metadata_bytes()
    }

    fn recorded(&self, area: Area) -> AreaRecord {
        let start = Vpn(area.span.start());
        let attributes = self.table.get(area.tag).at(start);
        AreaRecord { start, pages: PageCount(area.span.len()), attributes }
    }

    /// Reserves memory for the next `count` insertions and as many changes of attributes.
    #[inline]
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), OutOfMetadata> {
        self.index.reserve(count)?;
        self.table.reserve(count)
    }

    /// Reserves memory for the next `count` changes of attributes.
    pub(super) fn reserve_attributes(&mut self, count: usize) -> Result<(), OutOfMetadata> {
        self.table.reserve(count)
    }

    /// Returns the same areas with the attributes that `change` gives them, in an index of their own. O(n log n).
    pub(super) fn try_clone(
        &self,
        change: impl Fn(&Attributes) -> Attributes,
    ) -> Result<Areas, OutOfMetadata> {
        let mut clone = Areas { index: self.index.without_areas(), ..Areas::default() };
        clone.index.reserve(self.len())?;
        for area in self.index.iter() {
            // The room that was reserved for all of them is as much as they need where they lie close together.
            clone.reserve(1)?;
            let tag = clone.table.intern(&change(self.table.get(area.tag)));
            clone.index.insert(Area { span: area.span, tag });
        }
        Ok(clone)
    }

    /// Turns every chain of this process alone ([`AnonChain::Own`](super::attributes::AnonChain::Own)) into a shared
    /// one, as a fork does.
    pub(super) fn share_chains(&mut self) {
        self.table.share_chains();
    }

    pub(super) fn clear(&mut self) {
        self.index = self.index.without_areas();
        self.table.clear();
    }

    /// Returns the areas below and above that `span`, which lies in the gap, touches; `None` where free pages lie
    /// between.
    fn touching(&self, gap: GapPlace, span: Span) -> (Option<AreaPlace>, Option<AreaPlace>) {
        let (start, end) = self.index.gap_bounds(gap);
        let below = if start == span.start() { self.index.below_gap(gap) } else { None };
        let above = if end == span.end() { self.index.above_gap(gap) } else { None };
        (below, above)
    }

    /// Adds an area, merged with the neighbours that it touches and whose attributes agree; room for one was reserved.
    /// Returns the number of areas that vanished, the new one included: 0 to 2. `gap` holds `span`, and is looked up if
    /// `None`.
    pub(super) fn insert_merged(
        &mut self,
        span: Span,
        attributes: &Attributes,
        gap: Option<GapPlace>,
    ) -> u64 {
        let gap = gap.or_else(|| self.index.gap_at(span.start(), &mut Finger::default()));
        let gap = gap.expect("room was reserved");
        let (below, above) = self.touching(gap, span);
        let [lower, upper] = [below, above].map(|place| place.map(|place| self.based(place)));
        match (join(lower, attributes, Merging::Whole, upper), below, above) {
            (Join::Below, Some(below), _) => {
                let joined = Span::known(self.span(below).start(), span.end());
                self.grow(below, joined, attributes);
                1
            }
            (Join::Above, _, Some(above)) => {
                let joined = Span::known(span.start(), self.span(above).end());
                self.grow(above, joined, attributes);
                1
            }
            (Join::Both, Some(below), Some(above)) => {
                let joined = Span::known(self.span(below).start(), self.span(above).end());
                let merged = attributes.joined_by(self.based(above));
                self.remove(above);
                let below = self.index.find(joined.start()).expect("the lower neighbour is there");
                self.grow(below, joined, &merged);
                2
            }
            (Join::Alone | Join::Below | Join::Above | Join::Both, ..) => {
                let area = Area { span, tag: self.table.intern(attributes) };
                self.index.insert_in(gap, area);
                0
            }
        }
    }

    /// Lets the area at `place` grow to `span`, over the area or range with the attributes `merged`. An area without a
    /// chain takes over that of `merged` (docs/sources/mmap.md#bridge).
    fn grow(&mut self, place: AreaPlace, span: Span, merged: &Attributes) {
        let own = *self.based(place);
        let joined = own.joined_by(merged);
        if joined == own {
            self.resize(place, span);
        } else {
            self.replace(place, span, &joined);
        }
    }

    /// Adds an area and merges it with no neighbour; room for one was reserved.
    pub(super) fn insert(&mut self, span: Span, attributes: &Attributes) {
        let tag = self.table.intern(attributes);
        self.index.insert(Area { span, tag });
    }

    pub(super) fn remove(&mut self, place: AreaPlace) {
        self.table.release(self.index.tag(place));
        self.index.remove(place);
    }

    /// Takes out the area that begins and ends where `span` does, if there is one. Returns the end of the area below it
    /// and the start of the area above it, each `None` if there is no such area.
    pub(super) fn remove_exact(&mut self, span: Span) -> Option<(Option<u64>, Option<u64>)> {
        let Removed { tag, below, above } = self.index.remove_exact(span)?;
        self.table.release(tag);
        Some((below, above))
    }

    /// Takes `gone` out of the area at `place`, which covers it; room for one more area was reserved.
    pub(super) fn cut(&mut self, place: AreaPlace, gone: Span) {
        let Area { span, tag } = self.index.area(place);
        let below = Span::new(span.start(), gone.start()).ok();
        let above = Span::new(gone.end(), span.end()).ok();
        match (below, above) {
            (None, None) => self.remove(place),
            (Some(rest), None) | (None, Some(rest)) => self.resize(place, rest),
            (Some(below), Some(above)) => {
                self.resize(place, below);
                self.table.retain(tag);
                self.index.insert(Area { span: above, tag });
            }
        }
    }

    /// Changes the start and the end of an area; its new span overlaps no other.
    pub(super) fn resize(&mut self, place: AreaPlace, span: Span) {
        let tag = self.index.tag(place);
        self.index.set(place, Area { span, tag });
    }

    /// Changes the span and the attributes of an area; its new span overlaps no other, and room for its attributes was
    /// reserved. `place` stays valid if only the end or the attributes change.
    pub(super) fn replace(&mut self, place: AreaPlace, span: Span, attributes: &Attributes) {
        let old = self.index.tag(place);
        let tag = self.table.intern(attributes);
        self.table.release(old);
        self.index.set(place, Area { span, tag });
    }

    /// Replaces the areas `old` by `new`, which ascend without overlap and cover the same pages; neither is empty, and
    /// room for all of `new` was reserved.
    pub(super) fn splice(&mut self, mut old: impl Iterator<Item = Span>, new: &[Piece]) {
        let first = old.next().expect("areas that change exist");
        for span in old {
            let place = self.index.find(span.start()).expect("areas that change exist");
            self.remove(place);
        }
        let place = self.index.find(first.start()).expect("areas that change exist");
        let (head, tail) = new.split_first().expect("areas that change do not vanish");
        self.replace(place, head.span, &head.attributes);
        for piece in tail {
            self.insert(piece.span, &piece.attributes);
        }
    }

    /// Returns the reason why the area at `place` and the one above it stay two; `None` if a hole lies between, or if
    /// they could merge.
    pub(super) fn blocker_above(&self, place: AreaPlace) -> Option<MergeBlocker> {
        let above = self.next(place)?;
        if self.span(place).end() != self.span(above).start() {
            return None;
        }
        self.based(place).blocker(self.based(above))
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        self.index.check()?;
        self.table.check(self.index.iter().map(|area| area.tag))
    }

    /// Verifies that no two areas that could merge were left apart.
    pub(super) fn check_merged(&self) -> Result<(), Violation> {
        let mut below: Option<Area> = None;
        for area in self.index.iter() {
            if let Some(below) = below.filter(|below| below.span.end() == area.span.start()) {
                let blocker = self.table.get(below.tag).blocker(self.table.get(area.tag));
                let law = "two areas that touch differ in something that keeps them apart";
                Violation::unless(law, area.span.start(), blocker.is_some())?;
            }
            below = Some(area);
        }
        Ok(())
    }
}
