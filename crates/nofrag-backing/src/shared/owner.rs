//! The process that says what lies where.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::FallocateFlags;

use super::Handle;
use super::descriptors::{self, Invitation, Reopen, Succession};
use super::error::SharedError;
use super::layout::Layout;
use super::lock::Lock;
use super::mapping::{Mapping, Use};
use super::patience::Waiting;
use super::process::{self, Identity, Life};
use super::protocol::{self, Phase, Refusal, State};
use super::sync::{AtomicU32, AtomicU64, Ordering, compiler_fence};
use super::words::{self, About};
use crate::sys;

/// How large a table is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// So many things can be named at once.
    pub entries: u32,
    /// So many processes besides the owner may be attached at once.
    pub processes: u32,
    /// Bytes of the data, a multiple of the page size.
    pub data_bytes: u64,
}

/// Where something lies in the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What a successor finds in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or something that was never finished.
    Nothing,
    /// Something whose place can no longer be told.
    Damaged,
    /// Something that lives.
    Live(Place),
    /// Something that was given up, and may still be pinned.
    Dying(Place),
}

/// A move to a place that overlaps the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slide {
    pub(crate) entry: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) bytes: u64,
    /// So many bytes have been moved, from the end of the object that moves first.
    pub(crate) done: u64,
}

/// What a successor finds of a slide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// None that had begun and not ended.
    Nothing,
    /// This one. Nobody has checked the places yet.
    Slide(Slide),
    /// Some of this entry's bytes may have moved, and nobody can tell which.
    Torn(u32),
}

/// What the owner itself knows of an entry: no other process can write here.
#[derive(Debug)]
struct Record {
    state: AtomicU64,
    pins: AtomicU32,
    offset: AtomicU64,
    bytes: AtomicU64,
}

/// Owns a table and the data that it points into.
///
/// 1. Only the owner writes states and places; each is written in the record first and then in the table.
/// 2. An entry is in the list of free ones exactly if its record is free and its generation can still go up.
/// 3. While a [`Held`] lives, its entry neither moves nor ends.
#[derive(Debug)]
pub struct Owner {
    table: Mapping,
    /// Before the files: it names one of them to children.
    #[expect(dead_code, reason = "held, not used")]
    lock: Lock,
    files: Invitation,
    layout: Layout,
    records: Box<[Record]>,
    free: Mutex<Vec<u32>>,
}

/// Something pinned by its owner.
#[derive(Debug)]
#[must_use = "dropping it lets the bytes be moved"]
pub struct Held<'a> {
    owner: &'a Owner,
    entry: u32,
    place: Place,
}

/// An entry that nobody uses, and nobody can begin to use, until this is dropped.
#[derive(Debug)]
pub(crate) struct Closed<'a> {
    owner: &'a Owner,
    entry: u32,
}

impl Owner {
    /// A table over a new file in memory, which has no contents yet.
    ///
    /// # Errors
    /// See [`SharedError`].
    pub fn create(sizes: Sizes) -> Result<Owner, SharedError> {
        let layout = Owner::layout_of(sizes)?;
        let data = descriptors::sealed_file(c"nofrag-data", sizes.data_bytes)?;
        Owner::over(data, layout)
    }

    /// A table over a file that exists, of `data_bytes` bytes, which has no other owner. Only what is entered here is
    /// ever moved or given up.
    ///
    /// # Errors
    /// See [`SharedError`].
    pub(crate) fn of_file(data: OwnedFd, sizes: Sizes) -> Result<Owner, SharedError> {
        Owner::over(data, Owner::layout_of(sizes)?)
    }

    fn layout_of(sizes: Sizes) -> Result<Layout, SharedError> {
        let Sizes { entries, processes, data_bytes } = sizes;
        let layout = Layout { entries, processes, data_bytes, namespace: process::namespace()? };
        let whole = data_bytes.is_multiple_of(1 << sys::PAGE);
        if layout.is_sensible() && whole { Ok(layout) } else { Err(SharedError::Sizes) }
    }

    fn over(data: OwnedFd, layout: Layout) -> Result<Owner, SharedError> {
        let table = descriptors::sealed_file(c"nofrag-table", layout.bytes() as u64)?;
        // Who else may write to the data is decided by who gets this descriptor; one owner at a time holds its lock.
        let lock = Lock::take(data.as_fd())?;
        let mapped = Mapping::new(table.as_fd(), Use::Write)?;
        layout.write(&mapped);
        let states = |_| State::new(1, Phase::Free);
        let owner = Owner::with(mapped, (lock, Invitation { table, data }), layout, states);
        for entry in 0..layout.entries {
            owner.enter(entry, State::new(1, Phase::Free));
        }
        Ok(owner)
    }

    /// Goes on where an owner that has died left off. Entries are as it left them: none is free, and the caller says of
    /// each what it shall be.
    pub(crate) fn succeed(succession: &Succession) -> Result<Owner, SharedError> {
        let Invitation { table, data } = &succession.0;
        let data = descriptors::reopened(data.as_fd(), Reopen::Write)?;
        // Says whether its holder lives.
        let lock = Lock::take_over(data.as_fd())?;
        let table = descriptors::reopened(table.as_fd(), Reopen::Write)?;
        let mapped = Mapping::new(table.as_fd(), Use::Write)?;
        let layout = Layout::read(&mapped, mapped.bytes())?;
        if process::namespace()? != layout.namespace {
            return Err(SharedError::OtherNamespace);
        }
        let states = |entry| {
            let word = layout.state(&mapped, entry).load(Ordering::Acquire);
            // A word that is none: a life that no handle was given for is the only safe one.
            State::from_word(word).unwrap_or(State::new(u32::MAX, Phase::Free))
        };
        let states: Vec<State> = (0..layout.entries).map(states).collect();
        let states = |entry: u32| states[entry as usize];
        let owner = Owner::with(mapped, (lock, Invitation { table, data }), layout, states);
        owner.lock().clear();
        Ok(owner)
    }

    fn with(
        table: Mapping,
        (lock, files): (Lock, Invitation),
        layout: Layout,
        state: impl Fn(u32) -> State,
    ) -> Owner {
        let record = |entry| Record {
            state: AtomicU64::new(state(entry).to_word()),
            pins: AtomicU32::new(0),
            offset: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        let records = (0..layout.entries).map(record).collect();
        // The lowest are taken first, so that few pages of the table are touched.
        let free = Mutex::new((0..layout.entries).rev().collect());
        Owner { table, lock, files, layout, records, free }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        // No change can be left half done by a panic: each is one call.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn entries(&self) -> u32 {
        self.layout.entries
    }

    pub(crate) fn processes(&self) -> u32 {
        self.layout.processes
    }

    /// Bytes of the data.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.layout.data_bytes
    }

    /// A mapping of the data that can be written.
    pub(crate) fn map_data(&self) -> Result<Mapping, SharedError> {
        let data = Mapping::new(self.files.data.as_fd(), Use::Write)?;
        let (expected, found) = (self.layout.data_bytes, data.bytes() as u64);
        if found == expected { Ok(data) } else { Err(SharedError::OtherData { expected, found }) }
    }

    pub(crate) fn data_file(&self) -> &OwnedFd {
        &self.files.data
    }

    /// What another process needs to attach ([`Peer::attach`](super::Peer::attach)).
    ///
    /// # Errors
    /// [`SharedError::System`].
    pub fn invite(&self) -> Result<Invitation, SharedError> {
        Ok(Invitation {
            table: descriptors::reopened(self.files.table.as_fd(), Reopen::Write)?,
            data: descriptors::reopened(self.files.data.as_fd(), Reopen::Read)?,
        })
    }

    /// What another process needs to become the owner once this one has died. It must be trusted with the data.
    ///
    /// # Errors
    /// [`SharedError::System`].
    pub fn succession(&self) -> Result<Succession, SharedError> {
        Ok(Succession(Invitation {
            table: descriptors::reopened(self.files.table.as_fd(), Reopen::Write)?,
            data: descriptors::reopened(self.files.data.as_fd(), Reopen::Write)?,
        }))
    }

    /// Whether this process is the owner, and not a child of it.
    pub(crate) fn is_here(&self) -> Result<(), SharedError> {
        if self.table.is_here() { Ok(()) } else { Err(SharedError::Forked) }
    }

    fn record(&self, entry: u32) -> &Record {
        &self.records[entry as usize]
    }

    /// What the owner knows of an entry.
    pub(crate) fn state(&self, entry: u32) -> State {
        let word = self.record(entry).state.load(Ordering::Acquire);
        State::from_word(word).expect("nobody else writes the record")
    }

    pub(crate) fn place_of(&self, entry: u32) -> Place {
        let record = self.record(entry);
        Place {
            offset: record.offset.load(Ordering::Acquire),
            // Acquire pairs with the release of `place`: what grew is seen with its new bytes.
            bytes: record.bytes.load(Ordering::Acquire),
        }
    }

    fn enter(&self, entry: u32, state: State) {
        protocol::enter(&self.record(entry).state, state);
        protocol::enter(self.layout.state(&self.table, entry), state);
    }

    fn enter_phase(&self, entry: u32, phase: Phase) {
        self.enter(entry, State { phase, ..self.state(entry) });
    }

    /// The handle that names the present life of an entry.
    pub(crate) fn handle(&self, entry: u32) -> Handle {
        Handle { entry, generation: self.state(entry).generation }
    }

    /// The entry of a handle, if what it names lives.
    pub(crate) fn live(&self, handle: Handle) -> Result<u32, SharedError> {
        let Handle { entry, generation } = handle;
        let lives =
            entry < self.layout.entries && self.state(entry) == State::new(generation, Phase::Live);
        if lives { Ok(entry) } else { Err(SharedError::Stale) }
    }

    /// A free entry, from now on in the phase of writing.
    pub(crate) fn claim(&self) -> Result<u32, SharedError> {
        let entries = self.layout.entries;
        let entry = self.lock().pop().ok_or(SharedError::TooManyEntries { entries })?;
        self.enter_phase(entry, Phase::Writing);
        Ok(entry)
    }

    /// Says where an entry's bytes are. Each number is one word: whoever looks meanwhile, also after our death, finds
    /// the old one or the new one.
    pub(crate) fn place(&self, entry: u32, place: Place) {
        let generation = self.state(entry).generation;
        let record = self.record(entry);
        let offset = words::pack(About::Offset, entry, generation, place.offset);
        let bytes = words::pack(About::Length, entry, generation, place.bytes);
        record.offset.store(place.offset, Ordering::Release);
        self.layout.offset(&self.table, entry).store(offset, Ordering::Release);
        // Release pairs with the acquires of `place_of` and `Peer::place`.
        record.bytes.store(place.bytes, Ordering::Release);
        self.layout.length(&self.table, entry).store(bytes, Ordering::Release);
    }

    /// From now on the entry may be pinned.
    pub(crate) fn publish(&self, entry: u32) -> Handle {
        self.enter_phase(entry, Phase::Live);
        self.handle(entry)
    }

    /// From now on the entry may no longer be pinned, and will end when its pins have.
    pub(crate) fn give_up(&self, entry: u32) {
        self.enter_phase(entry, Phase::Dying);
    }

    /// Ends the life of an entry that nobody has pinned.
    pub(crate) fn end(&self, entry: u32) {
        let generation = self.state(entry).generation;
        let next = generation.saturating_add(1);
        self.enter(entry, State::new(next, Phase::Free));
        // After its last generation an entry rests: a handle of its first would be taken for one of the next.
        if next != u32::MAX {
            self.lock().push(entry);
        }
    }

    /// Makes an entry free that a successor found with nothing in it. If it had a life, that has ended.
    pub(crate) fn clear(&self, entry: u32) {
        match self.state(entry) {
            // The last generation is over too; see `end`.
            State { generation: u32::MAX, .. } => {
                self.enter(entry, State::new(u32::MAX, Phase::Free));
            }
            State { phase: Phase::Free, .. } => self.lock().push(entry),
            _ => self.end(entry),
        }
    }

    /// Whether the table says of an entry what the owner knows.
    pub(crate) fn agrees(&self, entry: u32) -> bool {
        let state = self.layout.state(&self.table, entry).load(Ordering::Relaxed);
        let place = match self.find(entry) {
            Found::Nothing | Found::Damaged => None,
            Found::Live(place) | Found::Dying(place) => Some(place),
        };
        state == self.state(entry).to_word() && place == Some(self.place_of(entry))
    }

    /// Which process holds a pin, for an entry that can get no new ones. Zero is the owner.
    pub(crate) fn pinned_by(&self, entry: u32) -> Option<u32> {
        if !protocol::is_unpinned(&self.record(entry).pins) {
            return Some(0);
        }
        (0..self.layout.processes).find_map(|process| {
            // An addition of zero, so that a process that attaches later finds our change of the state: see `protocol`.
            // Acquire and release pair with those of `Peer::attach`.
            let identity =
                self.layout.identity(&self.table, process).fetch_add(0, Ordering::AcqRel);
            let identity = Identity::from_word(identity)?;
            let pins = self.layout.pins(&self.table, process, entry);
            (!protocol::is_unpinned(pins)).then(|| identity.number())
        })
    }

    /// Whether a move of the entry would have to wait at this moment. Only a hint.
    pub(crate) fn seems_pinned(&self, entry: u32) -> bool {
        self.record(entry).pins.load(Ordering::Relaxed) != 0
            || (0..self.layout.processes).any(|process| {
                self.layout.identity(&self.table, process).load(Ordering::Relaxed) != 0
                    && self.layout.pins(&self.table, process, entry).load(Ordering::Relaxed) != 0
            })
    }

    /// Keeps new pins of a live entry away and waits for the old ones at most so long. Pins of processes that have died
    /// are released.
    pub(crate) fn close(&self, entry: u32, patience: Duration) -> Result<Closed<'_>, SharedError> {
        self.enter_phase(entry, Phase::Moving);
        let closed = Closed { owner: self, entry };
        match self.wait_for_pins(entry, patience) {
            None => Ok(closed),
            Some(process) => Err(SharedError::Pinned { process }),
        }
    }

    /// As [`close`](Self::close), for an entry that a successor found moving: it becomes live, or is given up, when the
    /// caller knows what has become of it. Whether nobody has it pinned.
    pub(crate) fn is_left_alone(&self, entry: u32, patience: Duration) -> bool {
        self.enter_phase(entry, Phase::Moving);
        self.wait_for_pins(entry, patience).is_none()
    }

    /// Which process still has an entry pinned, that can get no new pins, after so long.
    fn wait_for_pins(&self, entry: u32, patience: Duration) -> Option<u32> {
        let mut waiting = Waiting::new(patience);
        loop {
            let process = self.pinned_by(entry)?;
            if !waiting.again() {
                // The dead do not unpin. Asked last, since it takes system calls.
                let dead = self.reap() > 0;
                return if dead { self.pinned_by(entry) } else { Some(process) };
            }
        }
    }

    /// Releases the pins of attached processes that have died, and their places in the table; says how many.
    pub fn reap(&self) -> usize {
        // One at a time: a row that was released may have a new process the moment after.
        let _one = self.lock();
        let has_died = |process: &u32| {
            let identity = self.layout.identity(&self.table, *process).load(Ordering::Acquire);
            Identity::from_word(identity).is_some_and(|process| process.life() == Life::Dead)
        };
        let dead = (0..self.layout.processes).filter(has_died);
        dead.map(|process| self.release_row(process)).count()
    }

    fn release_row(&self, process: u32) {
        // Nobody else writes here: its process is dead. Most of the row was never touched; to read that would take
        // memory for it, and to empty it gives back what was taken.
        let row = self.layout.row_bytes(process);
        let (start, bytes) = (row.start as u64, row.len() as u64);
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if sys::fallocate(self.files.table.as_fd(), how, start, bytes).is_err() {
            for entry in 0..self.layout.entries {
                self.layout.pins(&self.table, process, entry).store(0, Ordering::Relaxed);
            }
        }
        // Release pairs with the acquire of `Peer::attach`, so that who comes next finds zeros.
        self.layout.identity(&self.table, process).store(0, Ordering::Release);
    }

    /// How many processes besides the owner are attached, dead ones included that were not released yet.
    #[must_use]
    pub fn attached(&self) -> usize {
        let is_taken = |process: &u32| {
            self.layout.identity(&self.table, *process).load(Ordering::Relaxed) != 0
        };
        (0..self.layout.processes).filter(is_taken).count()
    }

    /// Pins what `handle` names, for this process.
    pub(crate) fn hold(&self, handle: Handle) -> Result<Held<'_>, SharedError> {
        let Handle { entry, generation } = handle;
        self.is_here()?;
        let record = self.records.get(entry as usize).ok_or(SharedError::Stale)?;
        protocol::pin(&record.pins, &record.state, generation).map_err(|why| match why {
            Refusal::Moving => SharedError::Moving,
            Refusal::TooMany => SharedError::TooManyPins,
            Refusal::Stale | Refusal::Damaged => SharedError::Stale,
        })?;
        Ok(Held { owner: self, entry, place: self.place_of(entry) })
    }

    /// What the table says of an entry, for a successor: it was written by the owner that died, or by anybody.
    pub(crate) fn find(&self, entry: u32) -> Found {
        let State { generation, phase } = self.state(entry);
        let offset = self.layout.offset(&self.table, entry).load(Ordering::Relaxed);
        let length = self.layout.length(&self.table, entry).load(Ordering::Relaxed);
        let offset = words::unpack(About::Offset, entry, generation, offset);
        let bytes = words::unpack(About::Length, entry, generation, length);
        let place = offset.zip(bytes).map(|(offset, bytes)| Place { offset, bytes });
        match (phase, place) {
            (Phase::Free | Phase::Writing, _) => Found::Nothing,
            (_, None) => Found::Damaged,
            (Phase::Live | Phase::Moving, Some(place)) => Found::Live(place),
            (Phase::Dying, Some(place)) => Found::Dying(place),
        }
    }

    /// Notes that a slide begins or how far it is. What was moved before is in place when this is, and nothing after it
    /// has begun.
    pub(crate) fn note(&self, slide: Slide) {
        let Slide { entry, from, to, done, .. } = slide;
        let generation = self.state(entry).generation;
        let pack = |value| words::pack(About::Intent, entry, generation, value);
        let [which, old, new, moved] = self.layout.intent(&self.table);
        // A process that is killed has done its stores up to some point, in the order of its program, so what the
        // compiler must not reorder is all that matters.
        compiler_fence(Ordering::SeqCst);
        moved.store(pack(done), Ordering::Release);
        if done == 0 {
            old.store(pack(from), Ordering::Release);
            new.store(pack(to), Ordering::Release);
            which.store(words::pack(About::Intent, 0, 0, u64::from(entry) + 1), Ordering::Release);
        }
        compiler_fence(Ordering::SeqCst);
    }

    /// The slide has ended, and the table says where the entry is.
    pub(crate) fn forget(&self) {
        let [which, ..] = self.layout.intent(&self.table);
        compiler_fence(Ordering::SeqCst);
        which.store(0, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    /// What an owner that died was about to do, by the table, where anybody may have written it. Read once.
    pub(crate) fn unfinished(&self) -> Unfinished {
        let words = self.layout.intent(&self.table).map(|word| word.load(Ordering::Acquire));
        let Some(which) = words::unpack(About::Intent, 0, 0, words[0]) else {
            return Unfinished::Nothing;
        };
        let entry = which.checked_sub(1).and_then(|entry| u32::try_from(entry).ok());
        let Some(entry) = entry.filter(|&entry| entry < self.layout.entries) else {
            return Unfinished::Nothing;
        };
        // A slide's entry is moving from before it is noted until after it is forgotten.
        let State { generation, phase } = self.state(entry);
        let Found::Live(Place { offset, bytes }) = self.find(entry) else {
            return Unfinished::Nothing;
        };
        if phase != Phase::Moving {
            return Unfinished::Nothing;
        }
        let unpack = |word| words::unpack(About::Intent, entry, generation, word);
        match (unpack(words[1]), unpack(words[2]), unpack(words[3])) {
            // All is moved and the new place is noted, when it is no longer at the old one.
            (Some(from), Some(to), Some(_)) if offset == to && from != to => Unfinished::Nothing,
            (Some(from), Some(to), Some(done)) if offset == from => {
                Unfinished::Slide(Slide { entry, from, to, bytes, done })
            }
            _ => Unfinished::Torn(entry),
        }
    }
}

impl Held<'_> {
    pub(crate) fn place(&self) -> Place {
        self.place
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // In a child of a fork this is a copy of our own count, which is its own.
        protocol::unpin(&self.owner.record(self.entry).pins);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.owner.enter_phase(self.entry, Phase::Live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{self, Call, Fault};
    use rustix::io::Errno;

    /// A process that does not exist: numbers end below it.
    const NOBODY: u64 = 1 << 22 | ((1 << 22) - 1);

    #[test]
    fn a_dead_process_leaves_no_memory_in_its_row() {
        let sizes = Sizes { entries: 1 << 18, processes: 4, data_bytes: 4096 };
        let owner = Owner::create(sizes).unwrap();
        let table = owner.files.table.as_fd();
        let blocks = || rustix::fs::fstat(table).unwrap().st_blocks;
        let pins = |entry| owner.layout.pins(&owner.table, 2, entry);
        let others = [1, 3].map(|process| owner.layout.pins(&owner.table, process, 0));
        others.iter().for_each(|pins| pins.store(7, Ordering::Relaxed));
        // Its first page is partly of the row before, and its last of the next one.
        [0, (1 << 18) - 1].iter().for_each(|&entry| pins(entry).store(0, Ordering::Relaxed));
        let before = blocks();
        for refused in [0, 1] {
            owner.layout.identity(&owner.table, 2).store(NOBODY, Ordering::Relaxed);
            for entry in [0, 5, (1 << 18) - 1] {
                pins(entry).store(1, Ordering::Relaxed);
            }
            let fault = Fault { times: refused, ..Fault::once(Call::Fallocate, Errno::OPNOTSUPP) };
            let armed = faults::inject([fault]);
            assert_eq!((owner.reap(), owner.attached()), (1, 0));
            drop(armed);
            if refused == 0 {
                assert!(blocks() <= before, "{before} blocks became {}", blocks());
            }
            assert!((0..1 << 18).all(|entry| pins(entry).load(Ordering::Relaxed) == 0));
            assert!(others.iter().all(|pins| pins.load(Ordering::Relaxed) == 7));
        }
    }
}
