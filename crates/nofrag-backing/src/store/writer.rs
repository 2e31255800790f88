//! Bytes that are being written, and that nobody else can see.

use std::ops::{Deref, DerefMut};

use super::ObjectStore;
use super::books::units;
use crate::shared::{Handle, Place};

/// Bytes of a new object, or those by which one grows.
///
/// Dropped without [`seal`](Self::seal), it leaves no object behind, or the object as it was.
///
/// 1. Its bytes are in the room of `entry`, which is held as long as this lives; the object itself ends before them.
#[derive(Debug)]
#[must_use = "what is not sealed is given up"]
pub struct Writer<'a> {
    store: &'a ObjectStore,
    entry: u32,
    /// Where the object begins.
    offset: u64,
    /// What is sealed already.
    old: u64,
    more: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn of_new(store: &'a ObjectStore, entry: u32, offset: u64, bytes: u64) -> Self {
        Writer { store, entry, offset, old: 0, more: bytes }
    }

    pub(super) fn of_growth(
        store: &'a ObjectStore,
        entry: u32,
        offset: u64,
        old: u64,
        more: u64,
    ) -> Self {
        Writer { store, entry, offset, old, more }
    }

    /// From now on the bytes are part of the object, which others can read; nobody can change them any more.
    #[must_use = "without its handle nobody finds the object"]
    pub fn seal(self) -> Handle {
        self.must_be_here();
        let Writer { store, entry, offset, old, more } = self;
        std::mem::forget(self);
        let mut books = store.books();
        store.owner.place(entry, Place { offset, bytes: old + more });
        books.seal(entry);
        if old == 0 { store.owner.publish(entry) } else { store.owner.handle(entry) }
    }

    fn must_be_here(&self) {
        assert!(self.store.data.is_here(), "a child of a fork has no part in its parent's store");
    }

    fn start(&self) -> *mut u8 {
        self.must_be_here();
        let start = self.store.data.range(self.offset + self.old, self.more);
        start.expect("the owner's own books stay inside the data")
    }
}

impl Deref for Writer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: inside the mapping (`start` has checked); the bytes are this writer's alone (law 1), and it is
        // borrowed.
        unsafe { std::slice::from_raw_parts(self.start(), self.more as usize) }
    }
}

impl DerefMut for Writer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: inside the mapping (`start` has checked); the bytes are this writer's alone (law 1), and it is
        // borrowed exclusively. No other process may write to the data (see `shared`).
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.more as usize) }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // In a child of a fork the object is the parent's.
        if !self.store.data.is_here() {
            return;
        }
        let mut books = self.store.books();
        match units(self.old) {
            None => self.store.end(&mut books, self.entry),
            Some(len) => {
                books.let_go(self.entry);
                books.shrink(self.entry, len);
            }
        }
    }
}
