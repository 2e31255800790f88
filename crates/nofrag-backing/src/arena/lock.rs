//! The lock of an owner's books: one locked operation to take it, a plain store to give it back.
//!
//! `std::sync::Mutex` needs a second locked operation, to learn whether a thread sleeps on it, and two of these pairs
//! are most of what a parked allocation and its free cost. Here no thread sleeps *on* the lock: frees never wait for it
//! (they go to the remote list), background work tries it and comes back later, and an allocation that finds its owner
//! taken spins, yields, and then sleeps for short whiles. Waiting threads are counted, so that background work, which
//! may need the books for long, can give way between its pieces ([`Held::give_way`]).

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::atomic::{AtomicU32, COURTESY, Ordering, PATIENCE, pause};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A value that one thread at a time may use.
///
/// 1. The value is reached through a [`Held`] alone, and one exists at most: it is made only by the exchange that
///    turns `state` from free to held.
#[derive(Debug)]
pub(super) struct OwnerLock<T> {
    state: AtomicU32,
    waiting: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by one thread at a time (law 1), and moves between them with the lock; so it is enough that
// it may be sent.
unsafe impl<T: Send> Sync for OwnerLock<T> {}

impl<T> OwnerLock<T> {
    pub(super) fn new(value: T) -> OwnerLock<T> {
        OwnerLock {
            state: AtomicU32::new(FREE),
            waiting: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock, unless it is held.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<Held<'_, T>> {
        // Acquire pairs with the release in `Held::drop`: the writes of the holder before are seen.
        let taken = self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| Held { lock: self, exclusive: PhantomData })
    }

    /// Takes the lock; waits while other threads have it, in no fair order.
    #[inline]
    pub(super) fn lock(&self) -> Held<'_, T> {
        match self.try_lock() {
            Some(held) => held,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> Held<'_, T> {
        // Relaxed, as every access to it: it only says that giving way helps some thread.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut round = 0;
        let held = loop {
            pause(round);
            round = round.saturating_add(1);
            if let Some(held) = self.look() {
                break held;
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        held
    }

    /// Takes the lock if it is free, by a look that does not take the cache line away from the holder.
    fn look(&self) -> Option<Held<'_, T>> {
        if self.state.load(Ordering::Relaxed) == FREE { self.try_lock() } else { None }
    }

    /// Returns the value of a lock that is shared no more.
    pub(super) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// The right to use the value of an [`OwnerLock`], until this is dropped.
#[derive(Debug)]
pub(super) struct Held<'a, T> {
    lock: &'a OwnerLock<T>,
    /// May be shared between threads only as `&mut T` may.
    exclusive: PhantomData<&'a mut T>,
}

impl<'a, T> Held<'a, T> {
    /// Lets the threads that wait for the value go first, if there are any. Returns `None` if one of them keeps it.
    pub(super) fn give_way(self) -> Option<Held<'a, T>> {
        let lock = self.lock;
        if lock.waiting.load(Ordering::Relaxed) == 0 {
            return Some(self);
        }
        drop(self);
        (0..PATIENCE).find_map(|round| {
            pause(round);
            // The threads that were there first; but not for ever, where some thread always waits.
            let courteous = round < COURTESY && lock.waiting.load(Ordering::Relaxed) > 0;
            if courteous { None } else { lock.look() }
        })
    }
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
        // Release pairs with the acquire in `try_lock`: the next holder sees all writes made under this one.
        self.lock.state.store(FREE, Ordering::Release);
    }
}
