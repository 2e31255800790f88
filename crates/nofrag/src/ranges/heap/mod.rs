//! A space whose ranges are freed by handle, in O(1) however many holes there are.
//!
//! A [`RangeAllocator`](super::RangeAllocator) keeps holes by address, so that anybody may free any part of anything;
//! to find where a freed range belongs is most of what a free costs there. Whoever keeps a handle of each range names
//! the place with it: each range and each hole has a record, which knows its neighbours (Knuth's boundary tags, "The
//! Art of Computer Programming", 2.5). Holes stand in lists by length, found by two levels of bits (Masmano, Ripoll,
//! Crespo and Real, "TLSF", ECRTS 2004). A bin here is half as wide as usual, and a request looks at a few holes of its
//! own bin first, which is why it packs like best fit.
//!
//! Costs: O(1) for an allocation and for a free, with 32 bytes for each range and each hole.

mod bins;

use super::{AddSpanError, HandleError, HeapError, OutOfMetadata, Span, Stats, TakeError};
use crate::check::{Check, Violation};
use crate::lists::put;
use alloc::vec::Vec;
use bins::{Bins, NIL, bin_of, is_exact};

/// Holes of its own bin at which a request looks before it takes one of the next.
const FIRST_CANDIDATES: u32 = 4;
/// Holes at which a request looks before it is refused.
const LAST_CANDIDATES: u32 = 64;

/// Tag of what is no range and no hole: of a wall, of a record that is made.
const WALL: u64 = 0;
/// Tag of a vacant record; no stamp reaches it.
const VACANT: u64 = u64::MAX;

/// The bit that says that a record is no hole, beside the number of the record below.
const USED: u32 = 1 << 31;

/// The name and the first number of a range of a [`RangeHeap`]. Copies name the same range; once it is freed, all are
/// stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeapRange {
    start: u64,
    stamp: u64,
    place: u32,
}

impl HeapRange {
    /// Returns the lowest number of the range.
    #[inline]
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }
}

/// A range, a hole, or a wall at an end of a stretch.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Record {
    start: u64,
    /// The length of a hole; the stamp of a range's handle; 0 of a wall.
    tag: u64,
    /// The record below, and the bit [`USED`].
    before: u32,
    /// The record above.
    after: u32,
    /// Of a hole, those before and behind it in the list of its bin; of a vacant record, the next vacant one.
    previous: u32,
    next: u32,
}

impl Record {
    #[inline]
    fn is_used(&self) -> bool {
        self.before & USED != 0
    }

    #[inline]
    fn before(&self) -> u32 {
        self.before & !USED
    }

    #[inline]
    fn set_before(&mut self, before: u32) {
        self.before = self.before & USED | before;
    }
}

/// Numbers of the space without a gap, between two walls.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    span: Span,
    low: u32,
    high: u32,
}

/// Hands out ranges of the numbers it owns, each with a handle by which it is freed.
///
/// A request takes a hole of its own bin of lengths, of which it looks at four, else the first of the next bin that has
/// any. Sizes below 64 have a bin each, so for them that is the best fit. A request is refused although a hole fits
/// only where no other bin has a hole for it, and 64 holes of its own were looked at that are too short, or with an
/// alignment misaligned.
///
/// 1. The records of a stretch follow each other from wall to wall without a gap.
/// 2. No hole touches another.
/// 3. Each hole is in the list of its bin, once.
/// 4. The counts are those of the records; a record that stands for nothing is vacant.
///
/// Single owner: every change takes `&mut self`.
///
/// ```
/// use nofrag::ranges::{RangeHeap, Span};
///
/// let mut heap = RangeHeap::over(Span::new(0, 8 << 30)?)?; // 8 GiB on a device
/// let weights = heap.alloc_aligned(640 << 20, 2 << 20)?;
/// let cache = heap.alloc(2 << 20)?;
/// assert_eq!(cache.start(), 640 << 20); // the offset that the driver is told
/// heap.free(weights)?;
/// assert!(heap.free(weights).is_err(), "a handle is good for one free");
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RangeHeap {
    records: Vec<Record>,
    bins: Bins,
    stretches: Vec<Stretch>,
    vacant: u32,
    /// Records that are not vacant.
    kept: usize,
    /// The stamp of the last handle; never given out twice.
    stamp: u64,
    free: u64,
    total: u64,
    holes: usize,
}

impl Default for RangeHeap {
    fn default() -> RangeHeap {
        RangeHeap::new()
    }
}

impl RangeHeap {
    /// Returns an empty space; [`add_span`](Self::add_span) gives it numbers.
    #[must_use]
    pub const fn new() -> RangeHeap {
        RangeHeap {
            records: Vec::new(),
            bins: Bins::new(),
            stretches: Vec::new(),
            vacant: NIL,
            kept: 0,
            stamp: 0,
            free: 0,
            total: 0,
            holes: 0,
        }
    }

    /// Returns a heap of the numbers in `space`, all of them free.
    ///
    /// # Errors
    /// [`AddSpanError::OutOfMetadata`].
    pub fn over(space: Span) -> Result<RangeHeap, AddSpanError> {
        let mut heap = RangeHeap::new();
        heap.add_span(space)?;
        Ok(heap)
    }

    /// Takes `size` numbers. O(1).
    ///
    /// # Errors
    /// See [`HeapError`]; nothing changed.
    #[inline]
    pub fn alloc(&mut self, size: u64) -> Result<HeapRange, HeapError> {
        if size == 0 {
            return Err(HeapError::ZeroSize);
        }
        let hole = self.find(size).ok_or(HeapError::NoPlace)?;
        self.make_room(1)?;
        Ok(self.cut_low_end(hole, size))
    }

    /// Takes `size` numbers of which the first is a multiple of `align`. O(1).
    ///
    /// # Errors
    /// See [`HeapError`]; nothing changed.
    pub fn alloc_aligned(&mut self, size: u64, align: u64) -> Result<HeapRange, HeapError> {
        if size == 0 {
            return Err(HeapError::ZeroSize);
        }
        if !align.is_power_of_two() {
            return Err(HeapError::AlignNotPowerOfTwo);
        }
        let (place, start) = self.find_aligned(size, align).ok_or(HeapError::NoPlace)?;
        self.make_room(2)?;
        Ok(self.cut(place, start, size))
    }

    /// Frees a range, and returns it. O(1).
    ///
    /// # Errors
    /// [`HandleError::Stale`]; nothing changed.
    #[inline]
    pub fn free(&mut self, range: HeapRange) -> Result<Span, HandleError> {
        let span = self.span(range).ok_or(HandleError::Stale)?;
        self.release(range.place, span);
        Ok(span)
    }

    /// Returns all numbers of a range; `None` if it was freed. O(1).
    #[inline]
    #[must_use]
    pub fn span(&self, range: HeapRange) -> Option<Span> {
        let record = self.records.get(range.place as usize)?;
        if record.tag != range.stamp || !record.is_used() {
            return None;
        }
        Some(Span::known(record.start, self.records[record.after as usize].start))
    }

    /// Adds `span` to the space, all of it free. Where it touches numbers of the space, ranges may lie across.
    /// O(stretches): a stretch is a part of the space without a gap.
    ///
    /// # Errors
    /// See [`AddSpanError`]; nothing changed.
    pub fn add_span(&mut self, span: Span) -> Result<(), AddSpanError> {
        let above = self.stretches.partition_point(|stretch| stretch.span.start() < span.start());
        let below = above.checked_sub(1).map(|below| self.stretches[below]);
        let next = self.stretches.get(above).copied();
        if below.is_some_and(|stretch| stretch.span.end() > span.start())
            || next.is_some_and(|stretch| stretch.span.start() < span.end())
        {
            return Err(AddSpanError::Overlaps);
        }
        self.bins.reserve()?;
        self.make_room(3)?;
        self.stretches.try_reserve(1).map_err(OutOfMetadata::from)?;
        let below = below.filter(|stretch| stretch.span.end() == span.start());
        let next = next.filter(|stretch| stretch.span.start() == span.end());
        let low = below.map_or_else(|| self.put_used(span.start(), WALL), |stretch| stretch.low);
        let high = next.map_or_else(|| self.put_used(span.end(), WALL), |stretch| stretch.high);
        // The walls between what touches go.
        let record = |place: u32| self.records[place as usize];
        let before = below.map_or(low, |stretch| record(stretch.high).before());
        let after = next.map_or(high, |stretch| record(stretch.low).after);
        let walls = [below.map(|stretch| stretch.high), next.map(|stretch| stretch.low)];
        walls.into_iter().flatten().for_each(|wall| self.take_out(wall));
        let place = self.put_used(span.start(), WALL);
        self.join(before, place);
        self.join(place, after);
        let hull = [below, next].into_iter().flatten().fold(span, |all, one| all.hull(one.span));
        let first = above - usize::from(below.is_some());
        self.stretches.drain(first..above + usize::from(next.is_some()));
        self.put_stretch(first, Stretch { span: hull, low, high });
        self.total += span.len();
        self.release(place, span);
        Ok(())
    }

    /// Removes `span`, which must be free, from the space. O(records below it in its stretch).
    ///
    /// # Errors
    /// See [`TakeError`]; nothing changed.
    pub fn remove_span(&mut self, span: Span) -> Result<(), TakeError> {
        let number = self.stretches.iter().position(|stretch| stretch.span.covers(span));
        let number = number.ok_or(TakeError::Foreign)?;
        let stretch = self.stretches[number];
        let hole = self.hole_around(stretch, span).ok_or(TakeError::Taken)?;
        self.make_room(4)?;
        self.stretches.try_reserve(1).map_err(OutOfMetadata::from)?;
        let place = self.cut(hole, span.start(), span.len()).place;
        let record = self.records[place as usize];
        let (before, after) = (record.before(), record.after);
        self.take_out(place);
        self.stretches.remove(number);
        if after == stretch.high {
            self.take_out(stretch.high);
        } else {
            let low = self.put_used(span.end(), WALL);
            self.join(low, after);
            let rest = Span::known(span.end(), stretch.span.end());
            self.put_stretch(number, Stretch { span: rest, low, ..stretch });
        }
        if before == stretch.low {
            self.take_out(stretch.low);
        } else {
            let high = self.put_used(span.start(), WALL);
            self.join(before, high);
            let rest = Span::known(stretch.span.start(), span.start());
            self.put_stretch(number, Stretch { span: rest, high, ..stretch });
        }
        self.total -= span.len();
        Ok(())
    }

    /// Returns all holes, by ascending address within each stretch. O(1) a step, and O(1) for each range between.
    pub fn iter_free(&self) -> impl Iterator<Item = Span> {
        let records = self.stretches.iter().flat_map(|stretch| self.inside(*stretch));
        records
            .map(|place| &self.records[place as usize])
            .filter(|record| !record.is_used())
            .map(hole_span)
    }

    /// Returns the present counts. O(holes in the highest bin that has one).
    #[must_use]
    pub fn stats(&self) -> Stats {
        let lengths = |bin| self.list(bin).map(|place| self.records[place as usize].tag);
        let largest = self.bins.last().and_then(|bin| lengths(bin).max()).unwrap_or(0);
        Stats { free: self.free, total: self.total, holes: self.holes, largest }
    }

    /// Makes room for `ranges` ranges, with a hole behind each of them: while there are no more, no allocation fails
    /// for memory. O(ranges).
    ///
    /// # Errors
    /// [`OutOfMetadata`]; nothing changed.
    pub fn reserve(&mut self, ranges: usize) -> Result<(), OutOfMetadata> {
        // Two walls, and the hole that is behind no range.
        let stretches = 3 * self.stretches.len();
        self.fit_in(ranges.saturating_mul(2).saturating_add(stretches + 4))
    }

    /// Returns the bytes of memory that records and lists take, spare room included. O(1).
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        let stretches = self.stretches.capacity() * size_of::<Stretch>();
        self.records.capacity() * size_of::<Record>() + self.bins.bytes() + stretches
    }
}

/// The choice of a hole.
impl RangeHeap {
    #[inline]
    fn find(&self, size: u64) -> Option<u32> {
        let own = bin_of(size);
        if !is_exact(own)
            && let Some(place) = self.first_in(own, FIRST_CANDIDATES, |hole| hole.tag >= size)
        {
            return Some(place);
        }
        match self.bins.first_from(own + usize::from(!is_exact(own))) {
            Some(bin) => Some(self.bins.head(bin)),
            None => self.first_in(own, LAST_CANDIDATES, |hole| hole.tag >= size),
        }
    }

    /// Returns a hole, and the aligned start in it.
    fn find_aligned(&self, size: u64, align: u64) -> Option<(u32, u64)> {
        let fits = |hole: &Record| hole_span(hole).lowest_fit(size, align).is_some();
        let place = self.find_place_aligned(size, align, fits)?;
        let start = hole_span(&self.records[place as usize]).lowest_fit(size, align)?;
        Some((place, start))
    }

    fn find_place_aligned(
        &self,
        size: u64,
        align: u64,
        fits: impl Fn(&Record) -> bool,
    ) -> Option<u32> {
        let (own, mut left) = (bin_of(size), LAST_CANDIDATES);
        let mut bin = self.bins.first_from(own);
        for _ in 0..2 {
            let place = bin.and_then(|bin| self.first_in(bin, FIRST_CANDIDATES, &fits));
            if place.is_some() {
                return place;
            }
            bin = bin.and_then(|bin| self.bins.first_from(bin + 1));
        }
        // Long enough wherever it starts.
        let padded = size.checked_add(align - 1).map(bin_of);
        let padded = padded.map(|bin| bin + usize::from(!is_exact(bin)));
        if let Some(bin) = padded.and_then(|bin| self.bins.first_from(bin)) {
            return Some(self.bins.head(bin));
        }
        let mut bin = self.bins.first_from(own);
        while let Some(looked) = bin.filter(|_| left > 0) {
            let place = self.list(looked).take(left as usize).find(|&place| {
                left -= 1;
                fits(&self.records[place as usize])
            });
            if place.is_some() {
                return place;
            }
            bin = self.bins.first_from(looked + 1);
        }
        None
    }

    /// Returns the first of the bin's first `most` holes that fits.
    #[inline]
    fn first_in(&self, bin: usize, most: u32, fits: impl Fn(&Record) -> bool) -> Option<u32> {
        let mut place = self.bins.head(bin);
        for _ in 0..most {
            let record = self.records.get(place as usize)?;
            if fits(record) {
                return Some(place);
            }
            place = record.next;
        }
        None
    }

    #[inline]
    fn list(&self, bin: usize) -> impl Iterator<Item = u32> {
        let some = |place: u32| (place != NIL).then_some(place);
        let head = self.bins.head(bin);
        core::iter::successors(some(head), move |&place| some(self.records[place as usize].next))
    }
}

#[inline]
fn hole_span(hole: &Record) -> Span {
    Span::known(hole.start, hole.start + hole.tag)
}

/// Changes of records, for which there is room.
impl RangeHeap {
    /// Makes room for `more` records.
    #[inline]
    fn make_room(&mut self, more: usize) -> Result<(), OutOfMetadata> {
        if self.records.capacity() - self.kept < more { self.grow(more) } else { Ok(()) }
    }

    #[cold]
    fn grow(&mut self, more: usize) -> Result<(), OutOfMetadata> {
        self.fit_in(self.kept + more.max(self.kept / 2))
    }

    /// Makes room for so many records in all.
    fn fit_in(&mut self, records: usize) -> Result<(), OutOfMetadata> {
        if records > USED as usize {
            return Err(OutOfMetadata);
        }
        Ok(self.records.try_reserve_exact(records.saturating_sub(self.records.len()))?)
    }

    /// Puts a record that is no hole, of a range or a wall, which has no neighbours yet.
    #[inline]
    fn put_used(&mut self, start: u64, tag: u64) -> u32 {
        let record = Record { start, tag, before: USED, after: NIL, previous: NIL, next: NIL };
        self.put(record)
    }

    #[inline]
    fn put(&mut self, record: Record) -> u32 {
        self.kept += 1;
        let place = self.vacant;
        if place == NIL {
            let place = self.records.len() as u32;
            put(&mut self.records, record);
            return place;
        }
        self.vacant = self.records[place as usize].next;
        self.records[place as usize] = record;
        place
    }

    /// Makes a record vacant that stands in no list.
    #[inline]
    fn take_out(&mut self, place: u32) {
        self.kept -= 1;
        let next = core::mem::replace(&mut self.vacant, place);
        let record = &mut self.records[place as usize];
        (record.tag, record.next) = (VACANT, next);
        record.before |= USED;
    }

    /// Makes two records neighbours.
    #[inline]
    fn join(&mut self, below: u32, above: u32) {
        self.records[below as usize].after = above;
        self.records[above as usize].set_before(below);
    }

    /// Returns the stamp of a new handle.
    #[inline]
    fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// Cuts a range off the low end of a hole; there is room for a record.
    #[inline]
    fn cut_low_end(&mut self, hole: u32, size: u64) -> HeapRange {
        let stamp = self.next_stamp();
        self.free -= size;
        let record = &mut self.records[hole as usize];
        let (start, rest, before) = (record.start, record.tag - size, record.before());
        if rest == 0 {
            record.before |= USED;
            record.tag = stamp;
            self.unlink(hole, size);
            return HeapRange { start, stamp, place: hole };
        }
        record.start = start + size;
        self.resize(hole, rest);
        let place = self.put_used(start, stamp);
        self.join(before, place);
        self.join(place, hole);
        HeapRange { start, stamp, place }
    }

    /// Cuts a range out of a hole that has it; there is room for two records.
    fn cut(&mut self, hole: u32, start: u64, size: u64) -> HeapRange {
        let Record { start: bottom, tag, after, .. } = self.records[hole as usize];
        if start == bottom {
            return self.cut_low_end(hole, size);
        }
        let stamp = self.next_stamp();
        self.free -= size;
        self.resize(hole, start - bottom);
        let place = self.put_used(start, stamp);
        self.join(hole, place);
        self.join(place, after);
        let rest = bottom + tag - start - size;
        if rest > 0 {
            let above = self.put_used(start + size, WALL);
            self.join(above, after);
            self.join(place, above);
            self.link(above, rest);
        }
        HeapRange { start, stamp, place }
    }

    /// Makes a range a hole, joined with those that it touches.
    #[inline]
    fn release(&mut self, place: u32, span: Span) {
        self.free += span.len();
        let record = &self.records[place as usize];
        let (before, after) = (record.before(), record.after);
        let below = &self.records[before as usize];
        let above = &self.records[after as usize];
        let (hole, length) = match (below.is_used(), above.is_used()) {
            (true, true) => return self.link(place, span.len()),
            (false, true) => {
                let length = below.tag + span.len();
                self.join(before, after);
                (before, length)
            }
            (true, false) => {
                let length = above.tag + span.len();
                self.records[after as usize].start = span.start();
                self.join(before, after);
                (after, length)
            }
            (false, false) => {
                let (length, top, upper) =
                    (below.tag + span.len() + above.tag, above.tag, above.after);
                self.unlink(after, top);
                self.take_out(after);
                self.join(before, upper);
                (before, length)
            }
        };
        self.take_out(place);
        self.resize(hole, length);
    }

    /// Makes a record a hole of this length, in the list of its bin.
    #[inline]
    fn link(&mut self, place: u32, length: u64) {
        self.holes += 1;
        let record = &mut self.records[place as usize];
        record.tag = length;
        record.before &= !USED;
        self.enlist(place, bin_of(length));
    }

    /// Takes a hole of this length out of its list; whoever calls this makes something else of it.
    #[inline]
    fn unlink(&mut self, place: u32, length: u64) {
        self.holes -= 1;
        self.delist(place, bin_of(length));
    }

    /// Notes another length of a hole.
    #[inline(always)]
    fn resize(&mut self, hole: u32, length: u64) {
        let tag = core::mem::replace(&mut self.records[hole as usize].tag, length);
        let (old, new) = (bin_of(tag), bin_of(length));
        if old != new {
            self.delist(hole, old);
            self.enlist(hole, new);
        }
    }

    /// Puts a hole into the list of a bin.
    #[inline]
    fn enlist(&mut self, place: u32, bin: usize) {
        let next = self.bins.push(bin, place);
        let record = &mut self.records[place as usize];
        (record.previous, record.next) = (NIL, next);
        if let Some(next) = self.records.get_mut(next as usize) {
            next.previous = place;
        }
    }

    /// Takes a hole out of the list of a bin.
    #[inline]
    fn delist(&mut self, place: u32, bin: usize) {
        let record = &self.records[place as usize];
        let (previous, next) = (record.previous, record.next);
        match self.records.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.bins.pop(bin, next),
        }
        if let Some(next) = self.records.get_mut(next as usize) {
            next.previous = previous;
        }
    }

    fn put_stretch(&mut self, at: usize, stretch: Stretch) {
        put(&mut self.stretches, stretch);
        self.stretches[at..].rotate_right(1);
    }

    /// Returns the records between the walls of a stretch.
    fn inside(&self, stretch: Stretch) -> impl Iterator<Item = u32> {
        let above = |place: u32| self.records[place as usize].after;
        core::iter::successors(Some(above(stretch.low)), move |&place| Some(above(place)))
            .take_while(move |&place| place != stretch.high)
    }

    /// Returns the hole of the stretch that holds all of `span`.
    fn hole_around(&self, stretch: Stretch, span: Span) -> Option<u32> {
        self.inside(stretch).find(|&place| {
            let record = &self.records[place as usize];
            !record.is_used() && hole_span(record).covers(span)
        })
    }
}

impl Check for RangeHeap {
    fn check(&self) -> Result<(), Violation> {
        Violation::unless("the bits of bins say which have holes", 0, self.bins.is_sound())?;
        let (mut free, mut total, mut holes, mut records) = (0, 0, 0, 0);
        for stretch in &self.stretches {
            let (mut place, mut was_hole) = (stretch.low, false);
            let mut at = stretch.span.start();
            while place != stretch.high {
                let record = &self.records[place as usize];
                let above = &self.records[record.after as usize];
                Violation::unless("records follow without a gap", at, record.start == at)?;
                Violation::unless("neighbours know each other", at, above.before() == place)?;
                Violation::unless("no hole touches another", at, record.is_used() || !was_hole)?;
                was_hole = !record.is_used();
                if was_hole {
                    let length = above.start - record.start;
                    Violation::unless_equal("a hole knows its length", at, length, record.tag)?;
                    (free, holes) = (free + length, holes + 1);
                }
                (place, at, records) = (record.after, above.start, records + 1);
            }
            Violation::unless_equal("a stretch ends at its wall", at, stretch.span.end(), at)?;
            (total, records) = (total + stretch.span.len(), records + 1);
        }
        Violation::unless_equal("free is the sum of the holes", 0, free, self.free)?;
        Violation::unless_equal("total is the sum of the stretches", 0, total, self.total)?;
        Violation::unless_equal("the holes are counted", 0, holes, self.holes as u64)?;
        let listed = self.check_lists()?;
        Violation::unless_equal("each hole is in a list", 0, holes, listed)?;
        let some = |place: u32| self.records.get(place as usize);
        let vacant = core::iter::successors(some(self.vacant), |record| some(record.next));
        let vacant = vacant.take(self.records.len() + 1).count() as u64;
        Violation::unless_equal("records in use are counted", 0, records, self.kept as u64)?;
        let all = self.records.len() as u64;
        Violation::unless_equal(
            "a record that stands for nothing is vacant",
            0,
            all,
            records + vacant,
        )
    }
}

impl RangeHeap {
    /// Checks the lists of all bins; returns the number of holes in them.
    fn check_lists(&self) -> Result<u64, Violation> {
        let mut listed = 0;
        for bin in self.bins.all() {
            let mut previous = NIL;
            for place in self.list(bin) {
                let hole = &self.records[place as usize];
                let is_there = !hole.is_used() && bin_of(hole.tag) == bin;
                Violation::unless("a bin has holes of its lengths", hole.start, is_there)?;
                let is_linked = hole.previous == previous;
                Violation::unless("a hole knows the one before it", hole.start, is_linked)?;
                (previous, listed) = (place, listed + 1);
            }
        }
        Ok(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a heap with a hole of 10 numbers above a range, and a vacant record.
    fn heap() -> RangeHeap {
        let mut heap = RangeHeap::over(Span::known(0, 40)).expect("there is memory");
        let ranges = [10, 5, 5, 10, 10].map(|size| heap.alloc(size).expect("there is a place"));
        heap.free(ranges[1]).expect("it is in use");
        heap.free(ranges[2]).expect("it is in use");
        heap
    }

    #[test]
    fn what_is_broken_is_named() {
        type Break = fn(&mut RangeHeap, usize);
        let breaks: [(&str, Break); 10] = [
            ("records follow without a gap", |heap, _| heap.stretches[0].span = Span::known(1, 40)),
            ("neighbours know each other", |heap, hole| heap.records[hole].set_before(7)),
            ("a hole knows its length", |heap, hole| heap.records[hole].tag += 1),
            ("free is the sum of the holes", |heap, _| heap.free += 1),
            ("total is the sum of the stretches", |heap, _| heap.total += 1),
            ("the holes are counted", |heap, _| heap.holes += 1),
            // The range there has the stamp 5.
            ("a bin has holes of its lengths", |heap, _| _ = heap.bins.push(5, heap.last_range())),
            ("a hole knows the one before it", |heap, hole| heap.records[hole].previous = 0),
            ("each hole is in a list", |heap, _| heap.bins.pop(10, NIL)),
            ("records in use are counted", |heap, _| heap.kept += 1),
        ];
        heap().check().expect("nothing is broken yet");
        for (law, break_it) in breaks {
            let mut heap = heap();
            let hole = heap.bins.head(10) as usize;
            break_it(&mut heap, hole);
            assert_eq!(heap.check().map_err(|violation| violation.law), Err(law));
        }
        let mut heap = heap();
        assert_ne!(heap.vacant, NIL, "a record is vacant");
        heap.vacant = NIL;
        let law = "a record that stands for nothing is vacant";
        assert_eq!(heap.check().map_err(|violation| violation.law), Err(law));
    }

    impl RangeHeap {
        /// Returns the record of the range that was taken last.
        fn last_range(&self) -> u32 {
            let is_last = |record: &Record| record.is_used() && record.tag == self.stamp;
            self.records.iter().position(is_last).expect("a range was taken") as u32
        }
    }
}
