//! The free ranges under their lock, with room for every record that giving areas back can need.
//!
//! Between two holes of one contiguous span lies at least one outstanding range, so there are at most `outstanding + 1`
//! holes. Room for that many is reserved before a range goes out; giving it back then cannot fail.

use super::counters::HoldCounters;
use crate::check::{Check, Violation};
use crate::ranges::{
    AddSpanError, AllocError, Config, OutOfMetadata, RangeAllocator, Request, Span, TakeError,
};

/// The free ranges of a space, and the number of ranges that are outstanding: handed out and not given back.
///
/// 1. There is room for the records of `outstanding + 1` holes.
#[derive(Debug)]
pub(super) struct FreeSpace {
    pub(super) ranges: RangeAllocator,
    outstanding: usize,
    reserved: usize,
    holds: HoldCounters,
}

impl FreeSpace {
    pub(super) fn new(config: Config, span: Span) -> Result<FreeSpace, OutOfMetadata> {
        let mut ranges = RangeAllocator::new(config);
        ranges.add_span(span).map_err(|why| {
            assert!(why != AddSpanError::Overlaps, "the first span overlaps nothing");
            OutOfMetadata
        })?;
        let mut space =
            FreeSpace { ranges, outstanding: 0, reserved: 0, holds: HoldCounters::default() };
        space.secure()?;
        Ok(space)
    }

    /// Makes room for one more outstanding range.
    fn secure(&mut self) -> Result<(), OutOfMetadata> {
        if self.outstanding + 2 > self.reserved {
            let target = (2 * self.reserved).max(64);
            self.ranges.reserve(target)?;
            self.reserved = target;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn take(&mut self, request: &Request) -> Result<Span, AllocError> {
        self.secure()?;
        let span = self.ranges.alloc(request)?;
        self.outstanding += 1;
        Ok(span)
    }

    pub(super) fn take_at(&mut self, span: Span) -> Result<(), TakeError> {
        self.secure()?;
        self.ranges.alloc_at(span)?;
        self.outstanding += 1;
        Ok(())
    }

    /// Takes all pieces at `base`, or nothing.
    pub(super) fn take_group(
        &mut self,
        base: u64,
        pieces: Pieces<'_>,
    ) -> Result<(), OutOfMetadata> {
        for (done, (offset, size)) in pieces.iter().enumerate() {
            let piece = Span::known(base + offset, base + offset + size);
            if let Err(why) = self.take_at(piece) {
                assert!(why == TakeError::OutOfMetadata, "the base was chosen where pieces fit");
                for (offset, size) in pieces.iter().take(done) {
                    self.give(Span::known(base + offset, base + offset + size), 1);
                }
                return Err(OutOfMetadata);
            }
        }
        Ok(())
    }

    /// Gives back `areas` adjacent ranges that went out, as one.
    #[inline]
    pub(super) fn give(&mut self, span: Span, areas: usize) {
        self.ranges.free(span).expect("the range is outstanding and its record has room");
        self.outstanding -= areas;
    }

    /// Gives all pieces at `base` back.
    pub(super) fn give_group(&mut self, base: u64, pieces: Pieces<'_>) {
        for (offset, size) in pieces.iter() {
            self.give(Span::known(base + offset, base + offset + size), 1);
        }
    }

    /// Notes that one hold of the lock gave back `areas` areas as `runs` ranges.
    pub(super) fn note_hold(&mut self, areas: u64, runs: u64) {
        self.holds.holds += 1;
        self.holds.max_areas = self.holds.max_areas.max(areas);
        self.holds.runs += runs;
    }

    pub(super) fn holds(&self) -> HoldCounters {
        self.holds
    }

    /// Returns the highest base, a multiple of `align`, at which all pieces `(offset, size)` are free.
    ///
    /// Top-down as Linux's `pcpu_get_vm_areas`: a piece that does not fit lowers the base, and the round starts again.
    pub(super) fn find_group(&self, bounds: Span, pieces: &Pieces<'_>, align: u64) -> Option<u64> {
        let mut base = bounds.end().checked_sub(pieces.extent())? & !(align - 1);
        'round: loop {
            for (offset, size) in pieces.iter() {
                let start = base.checked_add(offset)?;
                let wanted = Span::sized(start, size).ok()?;
                let Some(end) = self.lower_end(wanted)? else { continue };
                base = end.checked_sub(size)?.checked_sub(offset)? & !(align - 1);
                continue 'round;
            }
            return (base >= bounds.start()).then_some(base);
        }
    }

    /// Returns `Some(None)` if `wanted` is free; `Some(Some(end))` with the highest end that it may have instead, if it
    /// is not; `None` if it fits nowhere below.
    fn lower_end(&self, wanted: Span) -> Option<Option<u64>> {
        let hole = self.ranges.hole_below(wanted.end())?;
        if hole.covers(wanted) {
            return Some(None);
        }
        if hole.end() < wanted.end() {
            return Some(Some(hole.end()));
        }
        let previous = self.ranges.hole_below(hole.start())?;
        Some(Some(previous.end()))
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        Check::check(&self.ranges)?;
        let holes = self.ranges.stats().holes;
        let law = "there is room for the records of outstanding + 1 holes";
        Violation::unless(law, 0, holes <= self.outstanding + 1 && holes <= self.reserved)
    }
}

/// The pieces of a group: offsets from the base, and sizes, in pages. As many of each, no size zero, no overlaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces<'a> {
    pub(super) offsets: &'a [u64],
    pub(super) sizes: &'a [u64],
}

impl Pieces<'_> {
    /// Returns offset and size of each piece, highest first, as long as the caller lists them in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.offsets.iter().copied().zip(self.sizes.iter().copied()).rev()
    }

    /// Returns the end of the highest piece.
    fn extent(&self) -> u64 {
        self.iter().map(|(offset, size)| offset.saturating_add(size)).max().unwrap_or(0)
    }
}
