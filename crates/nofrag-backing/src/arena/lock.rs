//! The lock of an owner's books: one locked operation to take it, a plain store to give it back.
//!
//! `std::sync::Mutex` needs a second locked operation, to learn whether somebody sleeps on it, and two of these pairs
//! are most of what a parked allocation and its free cost. Here nobody sleeps *on* the lock: frees never wait for it
//! (they go to the remote list), background work tries it and comes back later, and an allocation that finds its owner
//! taken spins, yields, and then sleeps for short whiles.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::atomic::{AtomicU32, Ordering, pause};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A value that one thread at a time may use.
///
/// 1. The value is reached through a [`Held`] alone, and one exists at most: it is made only by the exchange that
///    turns `state` from free to held.
#[derive(Debug)]
pub(super) struct OwnerLock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by one thread at a time (law 1), and moves between them with the lock; so it is enough that
// it may be sent.
unsafe impl<T: Send> Sync for OwnerLock<T> {}

impl<T> OwnerLock<T> {
    pub(super) fn new(value: T) -> OwnerLock<T> {
        OwnerLock { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// The value, unless somebody holds it.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<Held<'_, T>> {
        // Acquire pairs with the release in `Held::drop`: what the holder before has written is seen.
        let taken = self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| Held { lock: self, exclusive: PhantomData })
    }

    /// The value, after everybody else.
    #[inline]
    pub(super) fn lock(&self) -> Held<'_, T> {
        match self.try_lock() {
            Some(held) => held,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> Held<'_, T> {
        let mut round = 0;
        loop {
            pause(round);
            round = round.saturating_add(1);
            // A look that does not take the line away from the holder.
            if self.state.load(Ordering::Relaxed) == FREE
                && let Some(held) = self.try_lock()
            {
                return held;
            }
        }
    }

    /// The value of a lock that nobody shares any more.
    pub(super) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// The right to use the value, until it is dropped.
#[derive(Debug)]
pub(super) struct Held<'a, T> {
    lock: &'a OwnerLock<T>,
    /// May be shared between threads only as `&mut T` may.
    exclusive: PhantomData<&'a mut T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only `Held` (law 1), and it is borrowed for as long as the reference lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only `Held` (law 1), and it is borrowed mutably for as long as the reference lives.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the acquire in `try_lock`: the next holder sees all that was written here.
        self.lock.state.store(FREE, Ordering::Release);
    }
}
