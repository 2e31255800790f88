//! The area form: every area once, together with the gap before it.
//!
//! An entry is a gap, which may be empty, and the tag of the area behind it; the area reaches from the end of its gap
//! to the start of the next one. One last entry is the gap above the highest area, up to the end of all numbers, with
//! no area behind it. So n areas are n + 1 entries, laid out, balanced and searched as holes are.

use super::entry::{Entry, Hole};
use super::laws;
use super::leaf::{NIL, window_of};
use super::search::Wish;
use super::tree::{At, BySize, Tree};
use crate::check::Violation;
use crate::ranges::{Area, Config, Counters, Fit, FoundGap, GapRequest, OutOfMetadata, Span};

/// End of the last gap.
const END: u64 = Span::ALL.end();

/// The place of an area; any change of the index makes it stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaPlace(At);

/// The place of a gap, which may be empty; any change of the index makes it stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GapPlace(At);

/// The place where a number was found last, a guess for the next search: it may be stale, and saves a descent if it is
/// not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finger(At);

/// Places where the bounds of a search were found last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingers {
    pub(crate) start: Finger,
    pub(crate) end: Finger,
}

/// The tag of an area that [`AreaIndex::remove_exact`] has taken out, and the bounds of its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    pub(crate) tag: u32,
    /// End of the area below the removed one, if there is one.
    pub(crate) below: Option<u64>,
    /// Start of the area above the removed one, if there is one.
    pub(crate) above: Option<u64>,
}

impl Default for Finger {
    fn default() -> Finger {
        Finger(At { leaf: NIL, lane: 0 })
    }
}

/// Areas in address order, and a search for gaps.
///
/// 1. The first gap starts at 0 and the last one ends at the end of all numbers.
/// 2. The last entry has the tag 0, and an index that never had an area has no entry.
/// 3. The laws of the tree hold; among them: gaps ascend, and between two there is an area.
#[derive(Debug)]
pub(crate) struct AreaIndex {
    tree: Tree<u32>,
}

impl Default for AreaIndex {
    fn default() -> AreaIndex {
        AreaIndex::new(&Config::default())
    }
}

impl AreaIndex {
    /// A best fit is exact while no more leaves than this have gaps that may be the smallest.
    #[cfg(test)]
    pub(crate) const CANDIDATES: usize = super::brackets::CANDIDATES;

    /// Returns an index without areas. [`Config::index`] is ignored: the design is always `WideBlocks`.
    pub(crate) fn new(config: &Config) -> AreaIndex {
        let by_size = if config.size_index { BySize::Brackets } else { BySize::No };
        AreaIndex { tree: Tree::new(config.align_classes, by_size) }
    }

    /// Returns an index of the same kind without areas.
    pub(crate) fn without_areas(&self) -> AreaIndex {
        let by_size = if self.tree.has_brackets() { BySize::Brackets } else { BySize::No };
        AreaIndex { tree: Tree::new(self.tree.classes, by_size) }
    }

    pub(crate) fn len(&self) -> usize {
        self.tree.holes.saturating_sub(1)
    }

    #[inline]
    fn above(&self, at: At) -> Option<At> {
        if at.lane + 1 < self.tree.leaves.count(at.leaf) {
            return Some(At { lane: at.lane + 1, ..at });
        }
        self.tree.first_after(at.leaf)
    }

    #[inline]
    fn below(&self, at: At) -> Option<At> {
        match at.lane {
            0 => self.tree.last_before(at.leaf),
            _ => Some(At { lane: at.lane - 1, ..at }),
        }
    }

    /// Returns the area behind the gap of this entry; none behind the last.
    #[inline]
    fn place(&self, at: At) -> Option<AreaPlace> {
        (self.tree.hole(at).end < END).then_some(AreaPlace(at))
    }

    /// Returns the lowest area that ends above `at`. O(log n).
    pub(crate) fn find(&self, at: u64) -> Option<AreaPlace> {
        self.tree.entry_at(at).and_then(|entry| self.place(entry))
    }

    /// Returns the highest area that starts below `end`. O(log n).
    pub(crate) fn find_below(&self, end: u64) -> Option<AreaPlace> {
        let entry = self.tree.entry_at(end.checked_sub(1)?)?;
        if self.tree.hole(entry).end < end {
            self.place(entry)
        } else {
            self.below(entry).map(AreaPlace)
        }
    }

    /// Returns the next area above; amortised O(1).
    pub(crate) fn next(&self, place: AreaPlace) -> Option<AreaPlace> {
        self.above(place.0).and_then(|entry| self.place(entry))
    }

    /// Returns the next area below; amortised O(1).
    pub(crate) fn previous(&self, place: AreaPlace) -> Option<AreaPlace> {
        self.below(place.0).map(AreaPlace)
    }

    #[inline]
    pub(crate) fn span(&self, place: AreaPlace) -> Span {
        let AreaPlace(At { leaf, lane }) = place;
        let (start, end) = if lane + 1 < self.tree.leaves.count(leaf) {
            self.tree.leaves.between(leaf, lane)
        } else {
            let above = self.tree.first_after(leaf).expect("a gap follows each area");
            (self.tree.leaves.hole(leaf, lane).end, self.tree.leaves.start(above.leaf, above.lane))
        };
        Span::known(start, end)
    }

    #[inline]
    pub(crate) fn tag(&self, place: AreaPlace) -> u32 {
        self.tree.note(place.0)
    }

    #[inline]
    pub(crate) fn area(&self, place: AreaPlace) -> Area {
        Area { span: self.span(place), tag: self.tag(place) }
    }

    /// Returns the gap that holds `at` or ends there, or else the one below the area that holds it; none in an index
    /// that never had an area. O(log n), or O(1) if `finger`, which moves to it, points to it already.
    #[inline]
    pub(crate) fn gap_at(&self, at: u64, finger: &mut Finger) -> Option<GapPlace> {
        let entry = self.tree.entry_near(at, finger.0)?;
        *finger = Finger(entry);
        Some(GapPlace(entry))
    }

    /// Returns the start and the end of a gap.
    #[inline]
    pub(crate) fn gap_bounds(&self, gap: GapPlace) -> (u64, u64) {
        let Hole { start, end } = self.tree.hole(gap.0);
        (start, end)
    }

    #[inline]
    pub(crate) fn above_gap(&self, gap: GapPlace) -> Option<AreaPlace> {
        self.place(gap.0)
    }

    #[inline]
    pub(crate) fn below_gap(&self, gap: GapPlace) -> Option<AreaPlace> {
        self.below(gap.0).map(AreaPlace)
    }

    /// Makes sure that the next `count` calls of [`insert`](Self::insert) find room, and one more: a caller that takes
    /// an area out and puts its two ends back counts one.
    ///
    /// As many calls of [`set`](Self::set) find room instead; [`remove`](Self::remove) needs none.
    pub(crate) fn reserve(&mut self, count: usize) -> Result<(), OutOfMetadata> {
        self.tree.reserve_insertions(count.saturating_add(1))?;
        if self.tree.root == NIL {
            self.tree.insert(Entry { hole: Hole::known(0, END), note: 0 });
            self.tree.reserve_insertions(count.saturating_add(1))?;
        }
        Ok(())
    }

    /// Adds an area that lies in a gap; room was reserved. O(log n).
    pub(crate) fn insert(&mut self, area: Area) {
        let at = self.tree.entry_at(area.span.start()).expect("room was reserved");
        self.insert_in(GapPlace(at), area);
    }

    /// Adds an area that lies in the given gap; room was reserved. No descent.
    pub(crate) fn insert_in(&mut self, gap: GapPlace, area: Area) {
        let GapPlace(at) = gap;
        let hole = self.tree.hole(at);
        assert!(area.span.end() <= hole.end && area.span.start() >= hole.start, "areas overlap");
        self.tree.near.note(area.span.start(), at.leaf);
        let above =
            Entry { hole: Hole::known(area.span.end(), hole.end), note: self.tree.note(at) };
        self.tree.set_note(at, area.tag);
        self.tree.replace(at, Hole::known(hole.start, area.span.start()));
        self.add(At { lane: at.lane + 1, ..at }, above);
    }

    fn add(&mut self, at: At, entry: Entry<u32>) {
        if !self.tree.has_room(at.leaf, entry.hole.start) && self.tree.lacks_blocks(at.leaf) {
            // Only if far more was reserved at a time than a dense index needs: see `reserve_insertions`.
            self.tree.reserve_insertions(1).expect("room was reserved");
        }
        self.tree.insert_at(at, entry);
    }

    /// Takes the area at `place` out. O(log n).
    pub(crate) fn remove(&mut self, place: AreaPlace) {
        let AreaPlace(at) = place;
        let above = self.above(at).expect("a gap follows each area");
        let Hole { start, end: area_start } = self.tree.hole(at);
        let joined = Hole::known(start, self.tree.hole(above).end);
        self.remove_between(at, area_start, above, joined);
    }

    /// Takes out the area that begins and ends where `span` does. Returns its tag, the end of the area below, and the
    /// start of the area above; none, with nothing changed, if there is no such area. O(log n).
    pub(crate) fn remove_exact(&mut self, span: Span) -> Option<Removed> {
        let at = self.tree.entry_at(span.start())?;
        let Hole { start, end: area_start } = self.tree.hole(at);
        if area_start != span.start() {
            return None;
        }
        let above = self.above(at)?;
        let above_gap = self.tree.hole(above);
        if above_gap.start != span.end() {
            return None;
        }
        let tag = self.tree.note(at);
        self.remove_between(at, area_start, above, Hole::known(start, above_gap.end));
        let below = (start > 0).then_some(start);
        Some(Removed { tag, below, above: (above_gap.end < END).then_some(above_gap.end) })
    }

    /// Takes out the area between two neighbouring gaps, which become the gap `joined`.
    #[inline]
    fn remove_between(&mut self, at: At, area_start: u64, above: At, joined: Hole) {
        self.tree.near.note(area_start, at.leaf);
        self.tree.set_note(at, self.tree.note(above));
        self.join(at, above, joined);
    }

    /// Makes the gap at `at`, with the one at `above`, the gap `joined`.
    #[inline]
    fn join(&mut self, at: At, above: At, joined: Hole) {
        self.tree.replace(at, joined);
        if above.leaf == at.leaf {
            self.tree.remove_joined(above);
        } else {
            self.tree.remove(above);
            self.fence_in(joined.start);
        }
    }

    /// Moves the fence behind the leaf of the gap that starts at `start` up to the end of the leaf's last gap, if that
    /// reaches beyond.
    fn fence_in(&mut self, start: u64) {
        let leaf = self.tree.leaf_for(start);
        self.tree.fence_in(leaf);
    }

    /// Changes the bounds or the tag of an area; its new span overlaps no other area, and room was reserved as for an
    /// insertion unless only the start or the tag changes. O(log n).
    pub(crate) fn set(&mut self, place: AreaPlace, area: Area) {
        let AreaPlace(at) = place;
        let above = self.above(at).expect("a gap follows each area");
        let (below_gap, above_gap) = (self.tree.hole(at), self.tree.hole(above));
        let (start, end) = (area.span.start(), area.span.end());
        assert!(below_gap.start <= start && end <= above_gap.end, "areas overlap");
        self.tree.set_note(at, area.tag);
        let below_gap = Hole::known(below_gap.start, start);
        let above_gap = Hole::known(end, above_gap.end);
        if end == self.tree.leaves.start(above.leaf, above.lane) {
            self.tree.replace(at, below_gap);
        } else if window_of(end) == self.tree.leaves.head(above.leaf).window {
            if above.leaf != at.leaf {
                self.tree.move_fence_behind(at.leaf, |_| end);
            }
            self.tree.replace(above, above_gap);
            self.tree.replace(at, below_gap);
        } else {
            self.set_far(at, below_gap, above, above_gap);
            return;
        }
        if above.leaf != at.leaf {
            self.tree.fence_in(at.leaf);
        }
    }

    /// Changes the gaps below and above an area where the upper one comes to start in another window.
    fn set_far(&mut self, at: At, below_gap: Hole, above: At, above_gap: Hole) {
        let entry = Entry { hole: above_gap, note: self.tree.note(above) };
        self.join(at, above, Hole::known(below_gap.start, above_gap.end));
        let at = self.tree.entry_at(below_gap.start).expect("the gap below is still there");
        self.tree.replace(at, below_gap);
        self.add(At { lane: at.lane + 1, ..at }, entry);
    }

    /// Returns a place for `request`; adds the number of inspected entries and blocks to `steps`.
    pub(crate) fn search(&self, request: &GapRequest, steps: &mut u64) -> Option<FoundGap> {
        if self.tree.root == NIL {
            *steps += 1;
            let gap = request.within;
            return Some(FoundGap { gap, place: request.place_in(gap)? });
        }
        self.search_near(request, &mut Fingers::default(), steps).map(|(found, _)| found)
    }

    /// Searches as [`search`](Self::search), with `fingers` as guesses where the bounds lie, in an index for whose
    /// areas room was reserved. Returns the place of the gap, too.
    pub(crate) fn search_near(
        &self,
        request: &GapRequest,
        fingers: &mut Fingers,
        steps: &mut u64,
    ) -> Option<(FoundGap, GapPlace)> {
        let mut counters = Counters::default();
        let wish = Wish::congruent(request, &self.tree);
        let found = match request.fit {
            Fit::Lowest => {
                let GapPlace(first) = self.gap_at(request.within.start(), &mut fingers.start)?;
                self.tree.lowest_from(first, &wish, &mut counters)
            }
            Fit::Highest => self.tree.highest(&wish, &mut counters),
            Fit::Best | Fit::Dynamic if !self.tree.has_brackets() => {
                return self.smallest_of_all(request, steps);
            }
            Fit::Best | Fit::Dynamic => {
                let GapPlace(first) = self.gap_at(request.within.start(), &mut fingers.start)?;
                let GapPlace(last) = self.gap_at(request.within.end(), &mut fingers.end)?;
                let found = self.tree.smallest(&wish, request.edge, (first, last), &mut counters);
                *steps += counters.steps + counters.misfits;
                return found.map(|(found, at)| (found, GapPlace(at)));
            }
        };
        *steps += counters.steps + counters.misfits;
        let found = found?;
        let gap = found.hole.intersection(request.within).expect("the place is in it");
        Some((FoundGap { gap, place: found.span }, GapPlace(found.at)))
    }

    /// Returns the smallest gap that serves `request`, by a look at all gaps inside its bounds: there is no index by
    /// size.
    fn smallest_of_all(
        &self,
        request: &GapRequest,
        steps: &mut u64,
    ) -> Option<(FoundGap, GapPlace)> {
        let found = self.gaps(request.within).filter_map(|gap| {
            *steps += 1;
            Some(FoundGap { gap, place: request.place_in(gap)? })
        });
        let found = found.min_by_key(|found| request.edge.rank(found.gap))?;
        Some((found, GapPlace(self.tree.entry_at(found.gap.start())?)))
    }

    /// Returns the largest gap in `within`, cut to it, of equal ones the lowest. O(log n).
    pub(crate) fn largest_gap(&self, within: Span) -> Option<Span> {
        match self.tree.root {
            NIL => Some(within),
            _ => self.tree.largest_within(within),
        }
    }

    /// Returns the gaps of at least one number, cut to `within`, ascending.
    pub(crate) fn gaps(&self, within: Span) -> impl Iterator<Item = Span> + '_ {
        let never_used = (self.tree.root == NIL).then_some(within);
        let first = self.tree.entry_at(within.start());
        let entries = core::iter::successors(first, |&at| self.above(at));
        let holes = entries.map(|at| self.tree.hole(at));
        let reached = holes.take_while(move |hole| hole.start < within.end());
        never_used.into_iter().chain(reached.filter_map(move |hole| hole.intersection(within)))
    }

    /// Returns all areas, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Area> + '_ {
        let places = core::iter::successors(self.find(0), |&place| self.next(place));
        places.map(|place| self.area(place))
    }

    /// Returns the bytes of memory that the index takes, spare room included.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.tree.bytes()
    }

    pub(crate) fn check(&self) -> Result<(), Violation> {
        laws::check(&self.tree)?;
        if self.tree.root == NIL {
            return Ok(());
        }
        let first = self.tree.entry_at(0).map(|at| self.tree.hole(at).start);
        Violation::unless("the first gap starts at 0", 0, first == Some(0))?;
        let last = self.tree.entry_at(u64::MAX).expect("an entry starts at 0");
        let end = self.tree.hole(last).end;
        Violation::unless_equal("the last gap ends at the end of all numbers", 0, END, end)?;
        let tag = u64::from(self.tree.note(last));
        Violation::unless_equal("the last entry has the tag 0", 0, 0, tag)
    }
}
