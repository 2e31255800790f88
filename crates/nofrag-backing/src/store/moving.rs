//! Making room: what is moved, and how.

use nofrag::ranges::Span;

use super::books::{Books, UNIT};
use super::plan::{self, Plan, Space};
use super::{Compacted, Compaction, ObjectStore, StoreError};
use crate::shared::{Place, SharedError, Slide};

/// How often a plan is made anew after one met a pin that was not there before.
const ATTEMPTS: u32 = 8;

/// How often the budget's largest hole is halved before it is taken as it is.
const HALVINGS: u32 = 10;

/// A plan met an object that is pinned.
#[derive(Clone, Copy, Debug)]
struct Refused;

impl ObjectStore {
    /// A free place of so many units.
    pub(super) fn room(&self, books: &mut Books, len: u64) -> Result<Span, StoreError> {
        if let Some(span) = books.take(len) {
            return Ok(span);
        }
        if self.collect_in(books) > 0
            && let Some(span) = books.take(len)
        {
            return Ok(span);
        }
        for _ in 0..self.attempts() {
            if books.free() < len {
                break;
            }
            let (pieces, entries) = books.pieces(|entry| self.owner.seems_pinned(entry));
            let space = Space { pieces: &pieces, end: books.end() };
            let Some(plan) = plan::plan(space, len) else { break };
            books.least += plan::least(space, len).unwrap_or(0);
            let carried_out = self.carry_out(books, &plan, &entries);
            if let Some(span) = books.take(len) {
                return Ok(span);
            }
            debug_assert!(carried_out.is_err(), "a plan that was carried out made no room");
        }
        Err(self.exhausted(books, len))
    }

    fn attempts(&self) -> u32 {
        match self.config.compaction {
            Compaction::OnDemand => ATTEMPTS,
            Compaction::Manual => 0,
        }
    }

    fn exhausted(&self, books: &Books, len: u64) -> StoreError {
        let is_fixed = |entry: &u32| books.is_held(*entry) || self.owner.seems_pinned(*entry);
        StoreError::Exhausted {
            bytes: len.saturating_mul(UNIT),
            free: books.free() * UNIT,
            largest: books.largest() * UNIT,
            pinned: books.entries().filter(is_fixed).count() as u64,
        }
    }

    /// Makes the room of an object at least so many units long.
    pub(super) fn widen(&self, books: &mut Books, entry: u32, len: u64) -> Result<(), StoreError> {
        let now = books.span(entry).len();
        if len <= now || books.extend(entry, len) {
            return Ok(());
        }
        self.collect_in(books);
        if books.extend(entry, len) || self.move_elsewhere(books, entry, len) {
            return Ok(());
        }
        for _ in 0..self.attempts() {
            if books.free() < len - now || !self.make_room_to_widen(books, entry, len) {
                break;
            }
            if books.extend(entry, len) || self.move_elsewhere(books, entry, len) {
                return Ok(());
            }
        }
        Err(self.exhausted(books, len - now))
    }

    /// Moves others out of the way, behind the object or where it could go, whichever is cheaper. Whether there was a
    /// plan; what it met may have spoilt it.
    fn make_room_to_widen(&self, books: &mut Books, entry: u32, len: u64) -> bool {
        let now = books.span(entry).len();
        let (pieces, entries) = books.pieces(|entry| self.owner.seems_pinned(entry));
        let space = Space { pieces: &pieces, end: books.end() };
        let which = entries.iter().position(|&other| other == entry);
        let which = which.expect("the object is one of the pieces");
        let here = plan::plan_gap_behind(space, which, len - now);
        let elsewhere = plan::plan(space, len).filter(|_| !pieces[which].is_fixed);
        let (least, plan) = match (here, elsewhere) {
            // Elsewhere the object itself is moved too.
            (Some(here), Some(there)) if there.cost + now < here.cost => (there.cost, there),
            (Some(here), _) => (here.cost, here),
            (None, Some(there)) => (there.cost, there),
            (None, None) => return false,
        };
        books.least += least;
        // What met a pin is planned around next time.
        let _ = self.carry_out(books, &plan, &entries);
        true
    }

    /// Moves the object to a hole that takes all of it, if there is one and nobody has the object pinned.
    fn move_elsewhere(&self, books: &mut Books, entry: u32, len: u64) -> bool {
        let Some(to) = books.take(len) else { return false };
        let from = books.span(entry);
        let moved = self.move_bytes(books, entry, to.start()).is_ok();
        if moved {
            books.least += from.len();
            books.set_span(entry, to);
            books.give_back(from);
        } else {
            books.refused += 1;
            books.give_back(to);
        }
        moved
    }

    /// Makes the largest hole larger, for at most so many bytes of moves.
    pub(super) fn join(&self, books: &mut Books, budget: u64) -> Compacted {
        let before = books.largest();
        let moved_before = books.moved;
        let mut left = budget / UNIT;
        for _ in 0..ATTEMPTS {
            let (pieces, entries) = books.pieces(|entry| self.owner.seems_pinned(entry));
            let space = Space { pieces: &pieces, end: books.end() };
            let Some((need, plan)) = affordable(space, books.largest(), books.free(), left) else {
                break;
            };
            books.least += plan::least(space, need).unwrap_or(0);
            let moved = books.moved;
            // What met a pin is planned around next time.
            let _ = self.carry_out(books, &plan, &entries);
            left = left.saturating_sub(books.moved - moved);
        }
        Compacted {
            moved: (books.moved - moved_before) * UNIT,
            before: before * UNIT,
            after: books.largest() * UNIT,
        }
    }

    /// Moves what the plan says, in its order, up to the first object that somebody has pinned.
    fn carry_out(&self, books: &mut Books, plan: &Plan, entries: &[u32]) -> Result<(), Refused> {
        for &(piece, to) in &plan.moves {
            let entry = entries[piece];
            let relocation = books.begin_move(entry, to).ok_or(Refused)?;
            if self.move_bytes(books, entry, to).is_err() {
                books.undo_move(relocation);
                books.refused += 1;
                return Err(Refused);
            }
            books.end_move(entry, relocation);
        }
        Ok(())
    }

    /// Moves an object's bytes to a place that was reserved, and says so in the table.
    fn move_bytes(&self, books: &mut Books, entry: u32, to: u64) -> Result<(), SharedError> {
        let closed = self.owner.close(entry, self.config.patience)?;
        let Place { offset: from, bytes } = self.owner.place_of(entry);
        let to = to * UNIT;
        if from.abs_diff(to) >= bytes {
            self.copy(from, to, bytes);
            self.owner.place(entry, Place { offset: to, bytes });
        } else {
            let slide = Slide { entry, from, to, bytes, done: 0 };
            self.owner.note(slide);
            self.slide(slide);
            self.owner.place(entry, Place { offset: to, bytes });
            self.owner.forget();
        }
        drop(closed);
        books.moved += books.span(entry).len();
        books.moves += 1;
        Ok(())
    }

    /// Does what is left of a slide.
    pub(super) fn slide(&self, mut slide: Slide) {
        let Slide { from, to, bytes, .. } = slide;
        let step = from.abs_diff(to);
        while slide.done < bytes {
            let next = step.min(bytes - slide.done);
            // The end that faces the new place goes first.
            let at = if to < from { slide.done } else { bytes - slide.done - next };
            self.copy(from + at, to + at, next);
            slide.done += next;
            self.owner.note(slide);
        }
    }

    /// Copies bytes inside the data to a place that does not overlap theirs.
    fn copy(&self, from: u64, to: u64, bytes: u64) {
        assert!(from.abs_diff(to) >= bytes, "the places overlap");
        let inside =
            |at| self.data.range(at, bytes).expect("the owner's books stay inside the data");
        let (from, to) = (inside(from), inside(to));
        // SAFETY: both are inside the mapping and do not overlap (checked above). The old place is of an object that is
        // closed, and the new one is reserved for it or its own, so no reference to either exists.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes as usize) };
    }
}

/// The largest hole up to `most`, beyond `largest`, that costs at most `budget` to make; by halving.
fn affordable(space: Space<'_>, largest: u64, most: u64, budget: u64) -> Option<(u64, Plan)> {
    let try_for = |need| plan::plan(space, need).filter(|plan| plan.cost <= budget);
    if most <= largest {
        return None;
    }
    if let Some(plan) = try_for(most) {
        return Some((most, plan));
    }
    let (mut low, mut high) = (largest, most);
    let mut best = None;
    for _ in 0..HALVINGS {
        let middle = low + (high - low).div_ceil(2);
        if middle == high {
            break;
        }
        match try_for(middle) {
            Some(plan) => (best, low) = (Some((middle, plan)), middle),
            None => high = middle,
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use nofrag::check::Check as _;

    fn pattern(bytes: u64) -> Vec<u8> {
        (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    /// An owner dies in a slide: after so many whole steps, and in the middle of the next. Its successor finds the
    /// object whole, at the new place.
    fn check_interrupted(bytes: u64, shift: u64, upwards: bool, steps: u64) {
        let store = ObjectStore::create(Config::new(1 << 20)).unwrap();
        let before = store.create_object(shift).unwrap();
        let mut writer = store.create_object(bytes).unwrap();
        writer.copy_from_slice(&pattern(bytes));
        let handle = writer.seal();
        // With the neighbour below gone there is room on both sides.
        drop(before);
        let succession = store.succession().unwrap();
        let entry = store.owner.live(handle).unwrap();
        let from = store.owner.place_of(entry).offset;
        let to = if upwards { from + shift } else { from - shift };
        std::mem::forget(store.owner.close(entry, store.config.patience).unwrap());
        let mut slide = Slide { entry, from, to, bytes, done: 0 };
        store.owner.note(slide);
        for step in 0..=steps {
            let next = shift.min(bytes - slide.done);
            // The last one is torn: half of it is copied, and none of it noted.
            let copied = if step == steps { next / 2 } else { next };
            let at = if upwards { bytes - slide.done - next } else { slide.done };
            if copied > 0 {
                store.copy(from + at, to + at, copied);
            }
            if step < steps {
                slide.done += next;
                store.owner.note(slide);
            }
        }
        drop(store);
        let (store, recovered) = ObjectStore::take_over(&succession, Config::new(0)).unwrap();
        assert!(recovered.finished_move);
        assert_eq!((recovered.objects, recovered.damaged), (1, 0));
        store.check().unwrap();
        assert_eq!(&*store.get(handle).unwrap(), pattern(bytes));
        assert_eq!(store.owner.place_of(entry).offset, to);
    }

    #[test]
    fn a_slide_can_be_interrupted_anywhere() {
        for upwards in [false, true] {
            for steps in 0..=16 {
                check_interrupted(1000, 64, upwards, steps);
            }
            for steps in 0..=2 {
                check_interrupted(1000, 512, upwards, steps);
            }
        }
    }

    #[test]
    fn an_owner_that_died_after_the_last_word_of_a_slide_has_nothing_to_finish() {
        let store = ObjectStore::create(Config::new(1 << 20)).unwrap();
        let mut writer = store.create_object(1000).unwrap();
        writer.copy_from_slice(&pattern(1000));
        let handle = writer.seal();
        let entry = store.owner.live(handle).unwrap();
        let succession = store.succession().unwrap();
        let slide = Slide { entry, from: 0, to: 64, bytes: 1000, done: 0 };
        store.owner.note(slide);
        store.slide(slide);
        store.owner.place(entry, Place { offset: 64, bytes: 1000 });
        drop(store);
        let (store, recovered) = ObjectStore::take_over(&succession, Config::new(0)).unwrap();
        assert!(!recovered.finished_move);
        assert_eq!(&*store.get(handle).unwrap(), pattern(1000));
    }
}
