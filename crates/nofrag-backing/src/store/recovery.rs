//! Taking over from an owner that died.
//!
//! The successor has the lock of the data, so the old owner has ended: the system says so, nobody guesses. What the
//! table says was written by the old owner, one word at a time, or by anybody who may write there; so each entry is
//! believed only as far as its place is inside the data and nobody else's. A move that was noted is believed least,
//! since carrying it out writes to the data: only when all others have their places, and then only if the object was
//! moving, nobody has it pinned, and the place that it is to have is its own or free.

use nofrag::ranges::Span;

use super::books::{Books, UNIT, units};
use super::{Config, ObjectStore, StoreError};
use crate::shared::{Found, Owner, Place, Slide, Succession, Unfinished};

/// What a successor found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Objects that live.
    pub objects: u64,
    /// Objects that were given up and may still be pinned.
    pub dying: u64,
    /// Entries whose place was none, or another object's, and objects that were moving and cannot be made whole: their
    /// handles name nothing now.
    pub damaged: u64,
    /// Whether a move was finished that the old owner had begun.
    pub finished_move: bool,
}

impl ObjectStore {
    /// Goes on where an owner that has died left off. Readers go on meanwhile, with the handles that they have. Of the
    /// configuration, sizes are those of the store.
    ///
    /// # Errors
    /// See [`StoreError`]; in particular the owner may live, which is said after a quarter of a second. So may a child
    /// of it that was made by a raw `clone`, past the C library's `fork`: that counts as the owner until it ends or
    /// executes another program.
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
        let unfinished = store.owner.unfinished();
        let torn = match unfinished {
            Unfinished::Nothing => None,
            Unfinished::Slide(Slide { entry, .. }) | Unfinished::Torn(entry) => Some(entry),
        };
        let mut recovered = Recovered::default();
        // The highest first, so that the lowest free entries are taken next.
        for entry in (0..objects).rev().filter(|&entry| Some(entry) != torn) {
            let found = store.owner.find(entry);
            store.adopt(entry, found, &mut recovered);
        }
        match unfinished {
            Unfinished::Nothing => {}
            Unfinished::Slide(slide) => store.finish(slide, &mut recovered),
            Unfinished::Torn(entry) => store.give_up_torn(entry, &mut recovered),
        }
        // Last: who takes over from us finds it if we die here.
        store.owner.forget();
        Ok((store, recovered))
    }

    /// Ends the slide that the old owner was in, if it can be believed; all other entries have been adopted.
    fn finish(&self, slide: Slide, recovered: &mut Recovered) {
        let Slide { entry, from, to, bytes, done } = slide;
        let place = Place { offset: to, bytes };
        let is_slide = (1..bytes).contains(&from.abs_diff(to)) && done <= bytes;
        let rooms = self.room_of(Place { offset: from, bytes }).zip(self.room_of(place));
        let mut books = self.books();
        let whole = rooms.filter(|_| is_slide).map(|(old, new)| (old.hull(new), new));
        let Some((both, new)) = whole.filter(|&(both, _)| books.take_at(both)) else {
            drop(books);
            return self.give_up_torn(entry, recovered);
        };
        if !self.owner.is_left_alone(entry, self.config.patience) {
            books.give_back(both);
            drop(books);
            return self.give_up_torn(entry, recovered);
        }
        self.slide(slide);
        self.owner.place(entry, place);
        books.give_back(both);
        drop(books);
        recovered.finished_move = true;
        self.adopt(entry, Found::Live(place), recovered);
        debug_assert!(self.books().span(entry) == new, "the new place was free a moment ago");
    }

    /// Gives up an object that is neither at the old place nor at the new one. Its place stays its own as long as it is
    /// pinned: who has pinned it may have done so before it moved.
    fn give_up_torn(&self, entry: u32, recovered: &mut Recovered) {
        let found = match self.owner.find(entry) {
            Found::Live(place) | Found::Dying(place) => Found::Dying(place),
            other => other,
        };
        let mut kept = Recovered::default();
        self.adopt(entry, found, &mut kept);
        if kept.dying > 0 {
            self.owner.give_up(entry);
        }
        recovered.damaged += 1;
    }

    fn adopt(&self, entry: u32, found: Found, recovered: &mut Recovered) {
        let mut books = self.books();
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
        books.seal(entry);
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::time::Duration;

    use nofrag::check::Check as _;

    use super::*;
    use crate::shared::{Handle, Peer, SharedError};

    const BYTES: u64 = 1024;

    fn small() -> Config {
        let patience = Duration::from_micros(10);
        Config { objects: 16, processes: 2, patience, ..Config::new(64 << 10) }
    }

    fn put(store: &ObjectStore, byte: u8) -> Handle {
        let mut writer = store.create_object(BYTES).unwrap();
        writer.fill(byte);
        writer.seal()
    }

    fn is_whole(store: &ObjectStore, handle: Handle, byte: u8) -> bool {
        let object = store.get(handle).unwrap();
        object.len() as u64 == BYTES && object.iter().all(|&found| found == byte)
    }

    /// A note of a slide over the next object, such as anybody can write who may pin.
    fn note_of_harm(store: &ObjectStore, victim: Handle) {
        let entry = store.owner.live(victim).unwrap();
        let Place { offset: from, bytes } = store.owner.place_of(entry);
        let to = from + bytes - UNIT;
        store.owner.note(Slide { entry, from, to, bytes, done: 0 });
    }

    fn close_for_good(store: &ObjectStore, handle: Handle) {
        let entry = store.owner.live(handle).unwrap();
        std::mem::forget(store.owner.close(entry, Duration::ZERO).unwrap());
    }

    #[test]
    fn a_note_of_a_slide_that_nobody_made_moves_nothing() {
        for is_moving in [false, true] {
            let store = ObjectStore::create(small()).unwrap();
            let all = [1, 2, 3].map(|byte| put(&store, byte));
            note_of_harm(&store, all[0]);
            if is_moving {
                close_for_good(&store, all[0]);
            }
            let succession = store.succession().unwrap();
            drop(store);
            let (store, recovered) = ObjectStore::take_over(&succession, small()).unwrap();
            store.check().unwrap();
            assert!(!recovered.finished_move);
            assert!(is_whole(&store, all[1], 2) && is_whole(&store, all[2], 3));
            // An object that was not moving is where it is; of one that was, nobody can tell.
            assert_eq!(recovered.damaged, u64::from(is_moving));
            assert_eq!(recovered.objects, 3 - u64::from(is_moving));
            assert!(is_moving || is_whole(&store, all[0], 1));
        }
    }

    #[test]
    fn a_slide_leaves_an_object_that_somebody_has_pinned() {
        let store = ObjectStore::create(small()).unwrap();
        let all = [1, 2].map(|byte| put(&store, byte));
        store.delete(all[1]).unwrap();
        let peer = Peer::attach(&store.invite().unwrap()).unwrap();
        let pin = peer.try_pin(all[0]).unwrap();
        note_of_harm(&store, all[0]);
        // The owner would not have gone on, but anybody can write this too.
        let entry = store.owner.live(all[0]).unwrap();
        assert!(!store.owner.is_left_alone(entry, Duration::ZERO));
        let succession = store.succession().unwrap();
        drop(store);
        let (store, recovered) = ObjectStore::take_over(&succession, small()).unwrap();
        store.check().unwrap();
        assert_eq!((recovered.objects, recovered.damaged), (0, 1));
        // Whatever comes next goes elsewhere, as long as it is pinned.
        let others: Vec<Handle> = (0..14).map(|_| put(&store, 9)).collect();
        assert!(pin.to_vec().unwrap().iter().all(|&byte| byte == 1));
        assert_eq!(peer.try_pin(all[0]).unwrap_err(), SharedError::Stale);
        drop(pin);
        assert_eq!(store.collect(), BYTES);
        assert!(others.iter().all(|&other| is_whole(&store, other, 9)));
        store.check().unwrap();
    }

    #[test]
    fn a_damaged_entry_in_its_last_generation_names_nothing() {
        let store = ObjectStore::create(small()).unwrap();
        let kept = put(&store, 1);
        // The state of entry 5: header, processes, then four words for each entry.
        let (table, data) = store.invite().unwrap().into_descriptors();
        let at = (64 + 2 * 8 + 5 * 4) * 8;
        drop(data);
        let live = u64::from(u32::MAX) << 32 | 2;
        File::from(table).write_at(&live.to_le_bytes(), at).unwrap();
        let succession = store.succession().unwrap();
        drop(store);
        let (store, recovered) = ObjectStore::take_over(&succession, small()).unwrap();
        assert_eq!((recovered.objects, recovered.damaged), (1, 1));
        let handle = Handle::from_bits(u64::from(u32::MAX) << 32 | 5);
        assert_eq!(store.get(handle).unwrap_err(), SharedError::Stale);
        assert_eq!(store.grow(handle, 1).unwrap_err(), SharedError::Stale.into());
        assert_eq!(store.delete(handle).unwrap_err(), SharedError::Stale.into());
        assert!(is_whole(&store, kept, 1));
        store.check().unwrap();
    }
}
