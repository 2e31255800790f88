//! Taking over from an owner that died.
//!
//! The successor has the lock of the data, so the old owner has ended: the system says so, nobody guesses. What the
//! table says was written by the old owner, one word at a time, or by anybody who may write there; so each entry is
//! believed only as far as its place is inside the data and nobody else's.

use nofrag::ranges::Span;

use super::books::{Books, UNIT, units};
use super::{Config, ObjectStore, StoreError};
use crate::shared::{Found, Owner, Place, Slide, Succession};

/// What a successor found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Objects that live.
    pub objects: u64,
    /// Objects that were given up and may still be pinned.
    pub dying: u64,
    /// Entries whose place was none, or another object's: their handles name nothing now.
    pub damaged: u64,
    /// Whether a move was finished that the old owner had begun.
    pub finished_move: bool,
}

impl ObjectStore {
    /// Goes on where an owner that has died left off. Readers go on meanwhile, with the handles that they have. Of the
    /// configuration, sizes are those of the store.
    ///
    /// # Errors
    /// See [`StoreError`]; in particular the owner may live.
    pub fn take_over(
        succession: &Succession,
        config: Config,
    ) -> Result<(ObjectStore, Recovered), StoreError> {
        let owner = Owner::succeed(succession)?;
        let data = owner.map_data()?;
        let objects = owner.entries();
        let books = Books::new(owner.data_bytes(), objects)?;
        let config =
            Config { bytes: owner.data_bytes(), objects, processes: owner.processes(), ..config };
        let store = ObjectStore { owner, data, books: books.into(), config };
        let finished_move = store.finish_move();
        let mut recovered = Recovered { finished_move, ..Recovered::default() };
        // The highest first, so that the lowest free entries are taken next.
        for entry in (0..objects).rev() {
            store.adopt(entry, &mut recovered);
        }
        Ok((store, recovered))
    }

    /// Ends the slide that the old owner was in, if it makes sense.
    fn finish_move(&self) -> bool {
        let Some(slide) = self.owner.unfinished() else {
            self.owner.forget();
            return false;
        };
        let Slide { entry, from, to, bytes, done } = slide;
        let Found::Live(place) = self.owner.find(entry) else { return false };
        let step = from.abs_diff(to);
        let is_ours = [from, to]
            .iter()
            .all(|&at| at.is_multiple_of(UNIT) && self.data.range(at, bytes).is_some());
        let sensible = is_ours && (1..bytes).contains(&step) && done <= bytes;
        let begun = sensible && place.offset == from;
        if begun {
            self.slide(slide);
            self.owner.place(entry, Place { offset: to, bytes });
        }
        self.owner.forget();
        begun
    }

    fn adopt(&self, entry: u32, recovered: &mut Recovered) {
        let mut books = self.books();
        let found = self.owner.find(entry);
        let place = match found {
            Found::Nothing => return self.owner.clear(entry),
            Found::Damaged => None,
            Found::Live(place) | Found::Dying(place) => Some(place),
        };
        let room = |place| self.room_of(place).map(|span| (place, span));
        let believed = place.and_then(room).filter(|&(_, span)| books.take_at(span));
        let Some((place, span)) = believed else {
            recovered.damaged += 1;
            return self.owner.clear(entry);
        };
        books.enter(entry, span);
        books.let_go(entry);
        self.owner.place(entry, place);
        if matches!(found, Found::Live(_)) {
            recovered.objects += 1;
            let _ = self.owner.publish(entry);
        } else {
            recovered.dying += 1;
            books.dying.push(entry);
        }
    }

    /// The units of a place, if it is one.
    fn room_of(&self, Place { offset, bytes }: Place) -> Option<Span> {
        self.data.range(offset, bytes)?;
        let aligned = offset.is_multiple_of(UNIT);
        Span::sized(offset / UNIT, units(bytes)?).ok().filter(|_| aligned)
    }
}
