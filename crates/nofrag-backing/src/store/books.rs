//! What the owner keeps of its objects' places.

use std::collections::BTreeMap;

use nofrag::check::{Check, Violation};
use nofrag::ranges::{self, Fit, RangeAllocator, Relocation, Request, Span};

use super::plan::Piece;
use super::{StoreError, StoreStats};

/// Bytes of a unit: places and sizes are multiples of it, so that objects share no cache line.
pub(super) const UNIT: u64 = 64;

/// Units for so many bytes; `None` for no bytes.
pub(super) fn units(bytes: u64) -> Option<u64> {
    (bytes > 0).then(|| bytes.div_ceil(UNIT))
}

/// What an object has.
#[derive(Clone, Copy, Debug)]
struct Room {
    span: Span,
    /// A writer has it, or a part of it.
    is_held: bool,
    /// It has bytes that can be read.
    is_sealed: bool,
}

/// Places in units.
///
/// 1. Every room is allocated in `ranges`, no two overlap, and nothing else is allocated.
/// 2. `starts` has each room once, by its start.
/// 3. `unsealed` rooms are those of objects that nobody can read yet.
#[derive(Debug)]
pub(super) struct Books {
    ranges: RangeAllocator,
    rooms: Vec<Option<Room>>,
    starts: BTreeMap<u64, u32>,
    end: u64,
    unsealed: u64,
    /// Entries that were given up and were pinned then.
    pub(super) dying: Vec<u32>,
    pub(super) moved: u64,
    pub(super) least: u64,
    pub(super) moves: u64,
    pub(super) refused: u64,
}

impl Books {
    pub(super) fn new(bytes: u64, objects: u32) -> Result<Books, StoreError> {
        let config = ranges::Config { size_index: true, ..ranges::Config::default() };
        let mut ranges = RangeAllocator::new(config);
        let end = bytes / UNIT;
        let all = Span::new(0, end).map_err(|_| StoreError::Empty)?;
        ranges.add_span(all).map_err(|_| StoreError::OutOfMetadata)?;
        // Between any two objects is one hole at most, and a move has two places for its object.
        ranges.reserve(objects as usize + 2).map_err(|_| StoreError::OutOfMetadata)?;
        Ok(Books {
            ranges,
            rooms: vec![None; objects as usize],
            starts: BTreeMap::new(),
            end,
            unsealed: 0,
            dying: Vec::new(),
            moved: 0,
            least: 0,
            moves: 0,
            refused: 0,
        })
    }

    /// The smallest hole that holds so many units.
    pub(super) fn take(&mut self, len: u64) -> Option<Span> {
        self.ranges.alloc(&Request::new(len).fit(Fit::Best)).ok()
    }

    /// Exactly this place, if it is free.
    pub(super) fn take_at(&mut self, span: Span) -> bool {
        self.ranges.alloc_at(span).is_ok()
    }

    pub(super) fn give_back(&mut self, span: Span) {
        self.ranges.free(span).expect("it was allocated, and records for all holes were reserved");
    }

    /// A place that was taken belongs to an object now, which is being written.
    pub(super) fn enter(&mut self, entry: u32, span: Span) {
        self.rooms[entry as usize] = Some(Room { span, is_held: true, is_sealed: false });
        self.unsealed += 1;
        self.starts.insert(span.start(), entry);
    }

    /// The object and its place are gone.
    pub(super) fn strike(&mut self, entry: u32) {
        let room = self.rooms[entry as usize].take().expect("only objects are struck off");
        self.starts.remove(&room.span.start());
        self.unsealed -= u64::from(!room.is_sealed);
        self.give_back(room.span);
    }

    fn room(&mut self, entry: u32) -> &mut Room {
        self.rooms[entry as usize].as_mut().expect("every object has room")
    }

    pub(super) fn span(&self, entry: u32) -> Span {
        self.rooms[entry as usize].expect("every object has room").span
    }

    pub(super) fn hold(&mut self, entry: u32) {
        self.room(entry).is_held = true;
    }

    /// The object can be read, and no writer has it.
    pub(super) fn seal(&mut self, entry: u32) {
        let room = self.room(entry);
        room.is_held = false;
        let is_new = !std::mem::replace(&mut room.is_sealed, true);
        self.unsealed -= u64::from(is_new);
    }

    /// The object is as it was before a writer had it.
    pub(super) fn let_go(&mut self, entry: u32) {
        self.room(entry).is_held = false;
    }

    pub(super) fn is_held(&self, entry: u32) -> bool {
        self.rooms[entry as usize].is_some_and(|room| room.is_held)
    }

    /// Makes the room of an object longer where it is, if what is behind it is free.
    pub(super) fn extend(&mut self, entry: u32, len: u64) -> bool {
        let span = self.span(entry);
        let Ok(more) = Span::sized(span.end(), len - span.len()) else { return false };
        let extended = self.ranges.alloc_at(more).is_ok();
        if extended {
            self.room(entry).span = span.hull(more);
        }
        extended
    }

    /// Gives the end of an object's room back.
    pub(super) fn shrink(&mut self, entry: u32, len: u64) {
        let span = self.span(entry);
        if let Ok(end) = Span::new(span.start() + len, span.end()) {
            self.give_back(end);
            self.room(entry).span = Span::sized(span.start(), len).expect("something is left");
        }
    }

    /// Reserves the place that an object will move to; it may overlap the present one.
    pub(super) fn begin_move(&mut self, entry: u32, to: u64) -> Option<Relocation> {
        let from = self.span(entry);
        let to = Span::sized(to, from.len()).ok()?;
        self.ranges.relocate_to(from, to).ok()
    }

    pub(super) fn end_move(&mut self, entry: u32, relocation: Relocation) {
        let to = relocation.to();
        self.ranges.commit(relocation).expect("records for all holes were reserved");
        self.set_span(entry, to);
    }

    pub(super) fn undo_move(&mut self, relocation: Relocation) {
        self.ranges.rollback(relocation).expect("records for all holes were reserved");
    }

    /// The object has another place, which was taken; the old one is given back by the caller.
    pub(super) fn set_span(&mut self, entry: u32, span: Span) {
        let old = self.span(entry);
        self.starts.remove(&old.start());
        self.starts.insert(span.start(), entry);
        self.room(entry).span = span;
    }

    /// All objects in the order of their places, and which entry each is; fixed are those that are being written, and
    /// those of which `is_fixed` says so.
    pub(super) fn pieces(&self, is_fixed: impl Fn(u32) -> bool) -> (Vec<Piece>, Vec<u32>) {
        let entries: Vec<u32> = self.entries().collect();
        let piece = |&entry: &u32| {
            let span = self.span(entry);
            let is_fixed = self.is_held(entry) || is_fixed(entry);
            Piece { start: span.start(), len: span.len(), is_fixed }
        };
        (entries.iter().map(piece).collect(), entries)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = u32> {
        self.starts.values().copied()
    }

    pub(super) fn holes(&self) -> impl Iterator<Item = Span> {
        self.ranges.iter_free()
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn free(&self) -> u64 {
        self.ranges.stats().free
    }

    pub(super) fn largest(&self) -> u64 {
        self.ranges.largest()
    }

    pub(super) fn stats(&self) -> StoreStats {
        let ranges = self.ranges.stats();
        let dying: u64 = self.dying.iter().map(|&entry| self.span(entry).len()).sum();
        StoreStats {
            objects: self.starts.len() as u64 - self.unsealed - self.dying.len() as u64,
            live: (self.end - ranges.free - dying) * UNIT,
            dying: dying * UNIT,
            free: ranges.free * UNIT,
            largest: ranges.largest * UNIT,
            holes: ranges.holes as u64,
            moved: self.moved * UNIT,
            least: self.least * UNIT,
            moves: self.moves,
            refused: self.refused,
        }
    }

    /// How full each of so many equal parts is, in eighths, rounded up.
    pub(super) fn picture(&self, parts: usize) -> Vec<u8> {
        let parts = parts.clamp(1, self.end as usize);
        let bound = |part: usize| (u128::from(self.end) * part as u128 / parts as u128) as u64;
        let mut used: Vec<u64> = (0..parts).map(|part| bound(part + 1) - bound(part)).collect();
        let mut part = 0;
        for hole in self.holes() {
            let mut at = hole.start();
            while at < hole.end() {
                while bound(part + 1) <= at {
                    part += 1;
                }
                let end = hole.end().min(bound(part + 1));
                used[part] -= end - at;
                at = end;
            }
        }
        let eighths =
            |(part, &used): (usize, &u64)| (used * 8).div_ceil(bound(part + 1) - bound(part)) as u8;
        used.iter().enumerate().map(eighths).collect()
    }
}

impl Check for Books {
    fn check(&self) -> Result<(), Violation> {
        self.ranges.check()?;
        let law = "every room is allocated, no two overlap, and nothing else is allocated";
        let mut end = 0;
        for (&start, &entry) in &self.starts {
            let span = self.span(entry);
            let by_start = "every room stands once among the starts";
            Violation::unless_equal(by_start, entry.into(), start, span.start())?;
            Violation::unless(law, start, start >= end)?;
            let gap = Span::new(end, start).ok();
            Violation::unless(law, end, gap.is_none_or(|gap| self.ranges.is_free(gap)))?;
            let hole = self.ranges.hole_from(start);
            Violation::unless(law, start, hole.is_none_or(|hole| hole.start() >= span.end()))?;
            end = span.end();
        }
        let rest = Span::new(end, self.end).ok();
        Violation::unless(law, end, rest.is_none_or(|rest| self.ranges.is_free(rest)))?;
        let rooms = self.rooms.iter().flatten().count() as u64;
        Violation::unless_equal(
            "every room stands once among the starts",
            0,
            rooms,
            self.starts.len() as u64,
        )?;
        let unsealed = self.rooms.iter().flatten().filter(|room| !room.is_sealed).count() as u64;
        let law = "as many rooms are of objects that nobody can read yet as were counted";
        Violation::unless_equal(law, 0, unsealed, self.unsealed)
    }
}
