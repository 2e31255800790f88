//! Areas with attributes: the index of ranges knows where they are, a table what they are.
//!
//! An area is stored once, as a span with a tag; the tag names an entry of the table of attributes, which many areas
//! share. The offset of an entry is kept relative to the address, so that two neighbours may merge if their entries
//! say so, whatever their addresses.

use super::attributes::{AnonChain, Attributes, MergeBlocker};
use super::space::AreaRecord;
use crate::check::Violation;
use crate::ranges::{Area, AreaIndex, FoundGap, GapRequest, OutOfMetadata, Place, Span};
use crate::units::{PageCount, Vpn};
use alloc::vec::Vec;

/// All areas of a space.
///
/// 1. Areas ascend and never overlap.
/// 2. Two areas that touch differ in something that keeps them apart, or were apart before they came to touch.
/// 3. Each entry of the table counts the areas that use it.
#[derive(Debug, Default)]
pub(super) struct Areas {
    index: AreaIndex,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Relative to the address.
    attributes: Attributes,
    areas: u32,
}

impl Areas {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The lowest area that ends above `at`.
    pub(super) fn find(&self, at: u64) -> Option<Place> {
        self.index.find(at)
    }

    /// The highest area that starts below `end`.
    pub(super) fn find_below(&self, end: u64) -> Option<Place> {
        self.index.find_below(end)
    }

    pub(super) fn next(&self, place: Place) -> Option<Place> {
        self.index.next(place)
    }

    pub(super) fn previous(&self, place: Place) -> Option<Place> {
        self.index.previous(place)
    }

    pub(super) fn span(&self, place: Place) -> Span {
        self.index.area(place).span
    }

    /// The attributes of an area, relative to its address.
    pub(super) fn based(&self, place: Place) -> &Attributes {
        self.entry(self.index.area(place).tag)
    }

    pub(super) fn record(&self, place: Place) -> AreaRecord {
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

    pub(super) fn metadata_bytes(&self) -> usize {
        self.index.metadata_bytes() + self.entries.capacity() * size_of::<Entry>()
    }

    fn recorded(&self, area: Area) -> AreaRecord {
        let start = Vpn(area.span.start());
        let attributes = self.entry(area.tag).at(start);
        AreaRecord { start, pages: PageCount(area.span.len()), attributes }
    }

    fn entry(&self, tag: u32) -> &Attributes {
        &self.entries[tag as usize].attributes
    }

    /// Makes sure that the next `count` insertions find room.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), OutOfMetadata> {
        self.index.reserve(count)?;
        self.entries.try_reserve(count).map_err(|_| OutOfMetadata)
    }

    /// Adds an area, merged with the neighbours that it touches and that agree; room for one was reserved.
    ///
    /// An area that would bridge two neighbours whose own chains differ joins the lower one only.
    pub(super) fn insert_merged(&mut self, span: Span, attributes: Attributes) {
        let below = self.index.find_below(span.start());
        let below = below.filter(|&place| self.span(place).end() == span.start());
        let below = below.filter(|&place| self.based(place).blocker(&attributes).is_none());
        let above = self.index.find(span.start());
        let above = above.filter(|&place| self.span(place).start() == span.end());
        let above = above.filter(|&place| attributes.blocker(self.based(place)).is_none());
        match (below, above) {
            (None, None) => self.insert(span, attributes),
            (Some(place), None) => {
                self.grow(place, Span::known(self.span(place).start(), span.end()), &attributes)
            }
            (None, Some(place)) => {
                self.grow(place, Span::known(span.start(), self.span(place).end()), &attributes)
            }
            (Some(lower), Some(upper)) => {
                let start = self.span(lower).start();
                if self.based(lower).blocker(self.based(upper)).is_some() {
                    return self.grow(lower, Span::known(start, span.end()), &attributes);
                }
                let joined = Span::known(start, self.span(upper).end());
                let upper_attributes = *self.based(upper);
                self.remove(upper);
                let lower = self.index.find(start).expect("the lower neighbour is still there");
                self.grow(lower, joined, &attributes);
                let lower = self.index.find(start).expect("the lower neighbour is still there");
                self.grow(lower, joined, &upper_attributes);
            }
        }
    }

    /// Lets an area grow over what it merges with, whose chain it takes over if it has none.
    fn grow(&mut self, place: Place, span: Span, merged: &Attributes) {
        let own = *self.based(place);
        let chain = if own.chain == AnonChain::Untouched { merged.chain } else { own.chain };
        self.replace(place, span, Attributes { chain, ..own });
    }

    /// Adds an area that merges with none; room for one was reserved.
    pub(super) fn insert(&mut self, span: Span, attributes: Attributes) {
        let tag = self.intern(attributes);
        self.index.insert(Area { span, tag });
    }

    /// Takes an area out.
    pub(super) fn remove(&mut self, place: Place) {
        self.release(self.index.area(place).tag);
        self.index.remove(place);
    }

    /// Changes an area; its new span overlaps no other. The place stays good if only the end or the tag changes.
    pub(super) fn replace(&mut self, place: Place, span: Span, attributes: Attributes) {
        let old = self.index.area(place).tag;
        let tag = self.intern(attributes);
        self.release(old);
        self.index.set(place, Area { span, tag });
    }

    /// The number of the entry with these attributes; one more area uses it.
    fn intern(&mut self, attributes: Attributes) -> u32 {
        let same = |entry: &Entry| entry.areas > 0 && entry.attributes == attributes;
        let at = match self.entries.iter().position(same) {
            Some(at) => at,
            None => {
                let fresh = Entry { attributes, areas: 0 };
                match self.entries.iter().position(|entry| entry.areas == 0) {
                    Some(at) => {
                        self.entries[at] = fresh;
                        at
                    }
                    None => {
                        self.entries.push(fresh);
                        self.entries.len() - 1
                    }
                }
            }
        };
        self.entries[at].areas += 1;
        at as u32
    }

    fn release(&mut self, tag: u32) {
        self.entries[tag as usize].areas -= 1;
    }

    /// What keeps the area at `place` and the one above it apart, if they touch.
    pub(super) fn blocker_above(&self, place: Place) -> Option<MergeBlocker> {
        let above = self.next(place)?;
        if self.span(place).end() != self.span(above).start() {
            return None;
        }
        self.based(place).blocker(self.based(above))
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        self.index.check()?;
        let mut used: Vec<u32> = self.entries.iter().map(|_| 0).collect();
        for area in self.index.iter() {
            used[area.tag as usize] += 1;
        }
        for (tag, entry) in self.entries.iter().enumerate() {
            let law = "each entry counts the areas that use it";
            Violation::unless_equal(law, tag as u64, u64::from(used[tag]), u64::from(entry.areas))?;
        }
        Ok(())
    }
}
