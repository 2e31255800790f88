//! Objects of any size in memory that processes share, and that stays usable to the last bytes.
//!
//! One process owns an [`ObjectStore`]: it creates objects, seals them, deletes and grows them. Others read
//! ([`Peer`](crate::shared::Peer)), by handles that stay good while objects move. So free space that lies in pieces can
//! be joined: when a new object finds no hole, objects move out of the way, by a plan that moves little (the least that
//! any plan could is known, and counted beside what was moved). Objects that somebody has pinned stay.
//!
//! # Life of an object
//!
//! [`create`](ObjectStore::create) gives a [`Writer`], whose bytes nobody else can see; [`Writer::seal`] makes them an
//! object, which no longer changes. [`grow`](ObjectStore::grow) gives a writer for the bytes to be added, while the
//! object is read as it was. After [`delete`](ObjectStore::delete) nobody can pin it any more, and its place is free
//! once nobody has it pinned.
//!
//! # When a process dies
//!
//! | in the middle of | what a successor finds |
//! |---|---|
//! | create, before seal | nothing; the place is free |
//! | grow, before seal | the object as it was |
//! | delete | the object whole, or given up |
//! | a move to a free place | the object at the old place or at the new one: one word says which |
//! | a move to a place that overlaps its own | a note of how far it was; the successor finishes it |
//! | reading | pins under a dead process's name; they are released |
//!
//! This holds for processes that die, not for machines: memory does not outlive them.
//!
//! # A slide that can be interrupted
//!
//! When an object slides by `d` bytes, it is copied in steps of at most `d`, so that no step writes where it reads. How
//! far it has come is noted after each; the next step overwrites only what the one before has copied. A step that was
//! interrupted is done again.
//!
//! # Locks
//!
//! One lock for the books. Reading takes none. Nothing is copied while somebody else waits for a pin, but others that
//! want to create or delete wait for a move in progress; [`compact`](ObjectStore::compact) takes a budget for that.
//!
//! Source: spec/backing.md, story 5.

mod books;
mod moving;
mod plan;
mod recovery;
mod writer;

use std::ops::Deref;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nofrag::check::{Check, Violation};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::shared::mapping::Mapping;
use crate::shared::patience::Waiting;
use crate::shared::{Handle, Held, Invitation, Owner, SharedError, Sizes, Succession};
use crate::sys;
use books::{Books, UNIT, units};
pub use recovery::Recovered;
pub use writer::Writer;

/// How a store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes for objects; rounded up to whole pages. Each object takes a multiple of 64.
    pub bytes: u64,
    /// So many objects at once.
    pub objects: u32,
    /// So many other processes at once.
    pub processes: u32,
    /// Who moves objects.
    pub compaction: Compaction,
    /// When memory is taken from the system.
    pub memory: Memory,
    /// How long somebody who wants to move an object waits for its pins, and a reader for the end of a move.
    pub patience: Duration,
}

/// Who moves objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compaction {
    /// Whoever finds no room; and `compact`.
    #[default]
    OnDemand,
    /// `compact` alone.
    Manual,
}

/// When memory is taken from the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// With the first write to each page. If there is none left by then, the system ends the process.
    #[default]
    OnTouch,
    /// When the store is made, which fails if there is not enough.
    AtOnce,
}

impl Config {
    /// A store of so many bytes, for 65,536 objects and 16 processes, which moves objects when it must.
    #[must_use]
    pub fn new(bytes: u64) -> Config {
        Config {
            bytes,
            objects: 1 << 16,
            processes: 16,
            compaction: Compaction::default(),
            memory: Memory::default(),
            patience: Duration::from_millis(2),
        }
    }
}

/// Why something about a store could not be done. Nothing changed, but that objects may have moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// About the memory or the handle.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// An object of no bytes, or growth by none.
    #[error("an object has at least one byte, and grows by at least one")]
    Empty,
    /// There is no hole for so many bytes, and moving objects would make none, or is not allowed.
    #[error(
        "no room for {bytes} bytes: {free} are free, the largest hole has {largest}, {pinned} objects cannot move"
    )]
    Exhausted {
        /// What was asked for, in whole units.
        bytes: u64,
        /// All that is free.
        free: u64,
        /// What would fit.
        largest: u64,
        /// Objects that are pinned or being written.
        pinned: u64,
    },
    /// It is being written.
    #[error("the object is being written; seal or drop its writer first")]
    Busy,
    /// No memory for the books.
    #[error("no memory for the books of the store; nothing changed")]
    OutOfMetadata,
}

/// Bytes, unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Sealed objects.
    pub objects: u64,
    /// What they take, in whole units, and what is being written.
    pub live: u64,
    /// Given up, and still pinned by somebody.
    pub dying: u64,
    /// What is free.
    pub free: u64,
    /// The largest hole.
    pub largest: u64,
    /// Holes.
    pub holes: u64,
    /// What has been moved since the store was made or taken over.
    pub moved: u64,
    /// The least that could have been moved instead, plan by plan.
    pub least: u64,
    /// Objects that have been moved.
    pub moves: u64,
    /// Moves that were given up since the object was pinned.
    pub refused: u64,
}

/// What a compaction has done. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// What was moved.
    pub moved: u64,
    /// The largest hole before.
    pub before: u64,
    /// The largest hole after.
    pub after: u64,
}

/// Objects of any size in memory that other processes can read.
///
/// Its owner's view; may be shared by threads. A child of a fork has no part in it: every call there is
/// refused, or says that there is nothing.
///
/// ```
/// use nofrag_backing::shared::Peer;
/// use nofrag_backing::store::{Config, ObjectStore};
///
/// let store = ObjectStore::create(Config::new(1 << 20))?;
/// let mut writer = store.create_object(5)?;
/// writer.copy_from_slice(b"hello");
/// let handle = writer.seal();
/// assert_eq!(&*store.get(handle)?, b"hello");
///
/// // In another process, which has received the invitation over a unix socket:
/// let peer = Peer::attach(&store.invite()?)?;
/// assert_eq!(peer.try_pin(handle)?.to_vec()?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// 1. No two objects share a unit, and what belongs to none is free.
/// 2. Every object is where the books, the owner's records and the table say, all three.
/// 3. Bytes of an object change only through the one writer that has them, or by a move while nobody has it pinned.
#[derive(Debug)]
pub struct ObjectStore {
    owner: Owner,
    data: Mapping,
    books: Mutex<Books>,
    config: Config,
}

/// An object of this process's own store, pinned.
#[derive(Debug)]
#[must_use = "dropping it lets the object be moved"]
pub struct Object<'a> {
    held: Held<'a>,
    store: &'a ObjectStore,
}

impl ObjectStore {
    /// An empty store.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn create(config: Config) -> Result<ObjectStore, StoreError> {
        let Config { bytes, objects, processes, memory, .. } = config;
        let data_bytes =
            bytes.checked_next_multiple_of(1 << sys::PAGE).ok_or(SharedError::Sizes)?;
        let owner = Owner::create(Sizes { entries: objects, processes, data_bytes })?;
        let data = owner.map_data()?;
        if memory == Memory::AtOnce {
            take_memory(owner.data_file().as_fd(), data_bytes).map_err(|error| {
                SharedError::System { what: "take memory for the store", error }
            })?;
        }
        let books = Mutex::new(Books::new(data_bytes, objects)?);
        Ok(ObjectStore { owner, data, books, config: Config { bytes: data_bytes, ..config } })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // What could panic while it is locked is a broken law; `check` says which.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What another process needs to read objects.
    ///
    /// # Errors
    /// See [`SharedError`].
    pub fn invite(&self) -> Result<Invitation, SharedError> {
        self.owner.is_here()?;
        self.owner.invite()
    }

    /// What another process needs to take the store over once this one has died ([`take_over`](Self::take_over)).
    ///
    /// # Errors
    /// See [`SharedError`].
    pub fn succession(&self) -> Result<Succession, SharedError> {
        self.owner.is_here()?;
        self.owner.succession()
    }

    /// A new object of so many bytes; their contents are whatever was there. Best fit; if there is no hole, and the
    /// store may, objects are moved.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn create_object(&self, bytes: u64) -> Result<Writer<'_>, StoreError> {
        self.owner.is_here()?;
        let len = units(bytes).ok_or(StoreError::Empty)?;
        let mut books = self.books();
        let span = self.room(&mut books, len)?;
        let entry = match self.owner.claim() {
            Ok(entry) => entry,
            Err(why) => {
                books.give_back(span);
                return Err(why.into());
            }
        };
        books.enter(entry, span);
        Ok(Writer::of_new(self, entry, span.start() * UNIT, bytes))
    }

    /// So many bytes more for an object, which keeps its handle: where it is if there is room behind it, else where
    /// least has to be moved. The object can be read as it was until the writer is sealed.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn grow(&self, handle: Handle, more: u64) -> Result<Writer<'_>, StoreError> {
        self.owner.is_here()?;
        let mut books = self.books();
        let entry = self.owner.live(handle)?;
        if books.is_held(entry) {
            return Err(StoreError::Busy);
        }
        let old = self.owner.place_of(entry).bytes;
        let wanted = old.checked_add(more).filter(|_| more > 0).and_then(units);
        self.widen(&mut books, entry, wanted.ok_or(StoreError::Empty)?)?;
        books.hold(entry);
        Ok(Writer::of_growth(self, entry, self.owner.place_of(entry).offset, old, more))
    }

    /// What `handle` names, pinned. Waits as long as the configuration says if it is being moved.
    ///
    /// # Errors
    /// See [`SharedError`].
    pub fn get(&self, handle: Handle) -> Result<Object<'_>, SharedError> {
        let mut waiting = Waiting::new(self.config.patience);
        loop {
            match self.owner.hold(handle) {
                Err(SharedError::Moving) if waiting.again() => {}
                Err(why) => return Err(why),
                Ok(held) => return Ok(Object { held, store: self }),
            }
        }
    }

    /// Gives an object up. Nobody can pin it any more; its place is free as soon as nobody has it pinned.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn delete(&self, handle: Handle) -> Result<(), StoreError> {
        self.owner.is_here()?;
        let mut books = self.books();
        let entry = self.owner.live(handle)?;
        if books.is_held(entry) {
            return Err(StoreError::Busy);
        }
        self.owner.give_up(entry);
        match self.owner.pinned_by(entry) {
            None => self.end(&mut books, entry),
            Some(_) => books.dying.push(entry),
        }
        Ok(())
    }

    fn end(&self, books: &mut Books, entry: u32) {
        books.strike(entry);
        self.owner.end(entry);
    }

    /// Frees the places of objects that were given up and that nobody has pinned any more, pins of dead processes not
    /// counted. Says how many bytes. Done of itself before anything is refused.
    pub fn collect(&self) -> u64 {
        if self.owner.is_here().is_err() {
            return 0;
        }
        self.collect_in(&mut self.books())
    }

    fn collect_in(&self, books: &mut Books) -> u64 {
        let before = books.free();
        if !self.end_unpinned(books) && self.owner.reap() > 0 {
            self.end_unpinned(books);
        }
        (books.free() - before) * UNIT
    }

    /// Whether none is left.
    fn end_unpinned(&self, books: &mut Books) -> bool {
        let dying = std::mem::take(&mut books.dying);
        let (pinned, free): (Vec<u32>, Vec<u32>) =
            dying.into_iter().partition(|&entry| self.owner.pinned_by(entry).is_some());
        free.into_iter().for_each(|entry| self.end(books, entry));
        books.dying = pinned;
        books.dying.is_empty()
    }

    /// Moves objects so that the largest hole becomes larger, at most so many bytes of them; objects that are pinned
    /// stay. As large as the budget allows, found by halving; with budget enough, all free space between two fixed
    /// objects becomes one hole.
    pub fn compact(&self, budget: u64) -> Compacted {
        if self.owner.is_here().is_err() {
            return Compacted::default();
        }
        let mut books = self.books();
        self.collect_in(&mut books);
        self.join(&mut books, budget)
    }

    /// Gives the memory of free whole pages back to the system, and says how many bytes. They stay part of the store.
    ///
    /// # Errors
    /// [`SharedError::System`]; what came before stays given back.
    pub fn purge(&self) -> Result<u64, SharedError> {
        self.owner.is_here()?;
        let books = self.books();
        let page = 1_u64 << sys::PAGE;
        let mut purged = 0;
        for hole in books.holes() {
            let start = (hole.start() * UNIT).next_multiple_of(page);
            let end = hole.end() * UNIT / page * page;
            if start < end {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                sys::fallocate(self.owner.data_file().as_fd(), how, start, end - start)
                    .map_err(|error| SharedError::System { what: "give memory back", error })?;
                purged += end - start;
            }
        }
        Ok(purged)
    }

    /// Releases what processes that have died hold, and says how many they were.
    pub fn reap(&self) -> usize {
        match self.owner.is_here() {
            Ok(()) => self.owner.reap(),
            Err(_) => 0,
        }
    }

    /// How many other processes are attached; those that died count until they are reaped.
    #[must_use]
    pub fn attached(&self) -> usize {
        if self.owner.is_here().is_ok() { self.owner.attached() } else { 0 }
    }

    /// What there is. O(objects given up).
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        // In a child somebody who does not exist there may have the lock.
        if self.owner.is_here().is_err() {
            return StoreStats::default();
        }
        self.books().stats()
    }

    /// Every live object, in the order of their places.
    #[must_use]
    pub fn handles(&self) -> Vec<Handle> {
        if self.owner.is_here().is_err() {
            return Vec::new();
        }
        let books = self.books();
        let handles = books.entries().map(|entry| self.owner.handle(entry));
        handles.filter(|&handle| self.owner.live(handle).is_ok()).collect()
    }

    /// Whether each of the given number of equal parts of the store is free (0) or how full it is, in eighths.
    #[must_use]
    pub fn picture(&self, parts: usize) -> Vec<u8> {
        if self.owner.is_here().is_err() {
            return Vec::new();
        }
        self.books().picture(parts)
    }
}

/// Takes memory for a whole file. A signal undoes what the call that it interrupts has done, so each call is for a part
/// that is soon done.
fn take_memory(file: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    const PART: u64 = 16 << 20;
    let mut at = 0;
    while at < bytes {
        let part = PART.min(bytes - at);
        match sys::fallocate(file, FallocateFlags::empty(), at, part) {
            Err(Errno::INTR) => {}
            taken => {
                taken?;
                at += part;
            }
        }
    }
    Ok(())
}

impl Deref for Object<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let place = self.held.place();
        assert!(self.store.data.is_here(), "a child of a fork has no part in its parent's store");
        let start = self.store.data.range(place.offset, place.bytes);
        let start = start.expect("the owner's own records stay inside the data");
        // SAFETY: inside the mapping (checked above). Sealed bytes change only by a move, which needs that nobody has
        // pinned the object in the owner's own records (law 3), and `held` has. Writers have other bytes (law 1). No
        // other process may write to the data (see `shared`).
        unsafe { std::slice::from_raw_parts(start, place.bytes as usize) }
    }
}

impl Check for ObjectStore {
    fn check(&self) -> Result<(), Violation> {
        let law = "a child of a fork has no part in the store";
        Violation::unless(law, 0, self.owner.is_here().is_ok())?;
        let books = self.books();
        books.check()?;
        for entry in books.entries() {
            let handle = self.owner.handle(entry);
            if self.owner.live(handle).is_err() {
                continue;
            }
            let law = "every object is where the books, the owner's records and the table say";
            let place = self.owner.place_of(entry);
            let span = books.span(entry);
            Violation::unless_equal(law, entry.into(), span.start() * UNIT, place.offset)?;
            let fits = units(place.bytes).is_some_and(|needed| needed <= span.len());
            Violation::unless(
                law,
                entry.into(),
                fits && (books.is_held(entry) || units(place.bytes) == Some(span.len())),
            )?;
            Violation::unless(law, entry.into(), self.owner.agrees(entry))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a child is made.
    #[derive(Clone, Copy, Debug)]
    enum Birth {
        Fork,
        /// Past the hooks of the C library.
        Clone,
    }

    /// Whether `claim` holds in a child, which has a few seconds for it.
    fn holds_in_a_child(birth: Birth, claim: impl Fn() -> bool) -> bool {
        let child = match birth {
            // SAFETY: the child asks for no memory, and ends without running anything else.
            Birth::Fork => unsafe { libc::fork() },
            // SAFETY: as above; without flags it is a fork, of this thread's stack too.
            Birth::Clone => unsafe {
                libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32
            },
        };
        if child == 0 {
            // SAFETY: ends the child if it waits for a lock that nobody will give back.
            let _ = unsafe { libc::alarm(5) };
            let holds = claim();
            // SAFETY: ends the child, and nothing else.
            unsafe { libc::_exit(i32::from(!holds)) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status == 0
    }

    #[test]
    fn a_child_waits_for_no_lock_of_its_parent() {
        let config = Config { objects: 16, processes: 2, ..Config::new(64 << 10) };
        let store = ObjectStore::create(config).unwrap();
        let handle = store.create_object(100).unwrap().seal();
        let books = store.books();
        for birth in [Birth::Fork, Birth::Clone] {
            let is_refused = holds_in_a_child(birth, || {
                store.stats() == StoreStats::default()
                    && store.handles().is_empty()
                    && store.picture(8).is_empty()
                    && store.check().is_err()
                    && store.get(handle).is_err()
                    && store.create_object(1).is_err()
                    && store.delete(handle).is_err()
                    && store.purge().is_err()
                    && store.compact(64) == Compacted::default()
                    && (store.collect(), store.reap(), store.attached()) == (0, 0, 0)
            });
            assert!(is_refused, "{birth:?}");
        }
        drop(books);
        assert_eq!(store.stats().objects, 1);
        store.check().unwrap();
    }

    #[test]
    fn a_child_past_the_hooks_keeps_no_lock_that_was_given_up() {
        let config = Config { objects: 16, processes: 2, ..Config::new(64 << 10) };
        let store = ObjectStore::create(config).unwrap();
        let succession = store.succession().unwrap();
        // SAFETY: without flags it is a fork, and the child does nothing but wait until it is killed.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 };
        if child == 0 {
            // SAFETY: ends the child should nobody kill it; and nothing but that wakes it.
            unsafe {
                libc::alarm(20);
                libc::pause();
                libc::_exit(0)
            }
        }
        drop(store);
        let successor = ObjectStore::take_over(&succession, Config::new(0)).map(drop);
        let mut status = 0;
        // SAFETY: it is our own child, and has not been waited for.
        let killed = unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: waits for our own child.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((killed, ended), (0, child));
        successor.unwrap();
    }
}
