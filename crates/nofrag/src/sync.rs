//! The only file that names a lock or an atomic's home: `std`, `spin` without it, `loom` under its model checker.
//!
//! A [`Mutex`] has a [`Rank`] and counts what it costs: the times it was taken, and the times the taker had to wait. A
//! thread that holds a lock may only take one of a higher rank; debug builds with `std` verify that, so a deadlock
//! shows in any test that takes the two locks at all.
//!
//! [`Published`] is a slot that is written once and then read without a lock.

use core::ops::{Deref, DerefMut};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use portable::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
mod portable {
    pub(crate) use core::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
    };
}

/// Orders two `SeqCst` accesses that must not pass each other: a write, then a read of what the other side wrote.
///
/// Outside loom the accesses are ordered by themselves; loom's model treats `SeqCst` accesses as weaker ones, and needs
/// a fence.
#[inline(always)]
pub(crate) fn full_barrier() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Lets other threads go on while this one waits for them.
#[inline]
pub(crate) fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    core::hint::spin_loop();
}

/// The order in which locks nest: a holder may take only locks of a higher rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Held during an alias flush: one runs at a time.
    Aliases,
    /// A CPU's stock: its blocks, as far as handing out slots goes.
    Stock,
    /// A CPU's recycler: the slots that its blocks have got back.
    Recycler,
    /// Held during a purge: one runs at a time.
    Purge,
    /// One block of Linux's block engine.
    Block,
    /// A CPU's list of blocks in Linux's block engine.
    BlockQueue,
    /// The index of blocks in Linux's block engine, or a bucket of it.
    BlockIndex,
    /// A CPU's pools of flushed areas.
    Cpu,
    /// A CPU's inbox: flushed areas that other CPUs hand to it.
    Inbox,
    /// A node's or a shard's busy areas.
    Busy,
    /// A node's lazily freed areas.
    Lazy,
    /// A node's pools of flushed areas.
    Pools,
    /// The index of free ranges.
    Free,
    Notifiers,
}

/// Costs of a lock since construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounters {
    /// Times the lock was taken. Each time costs two locked operations of the processor.
    pub acquisitions: u64,
    /// Times the taker found the lock held and had to wait.
    pub conflicts: u64,
}

impl LockCounters {
    /// Returns the sum of two locks' counts, field by field.
    #[must_use]
    pub fn plus(self, other: LockCounters) -> LockCounters {
        LockCounters {
            acquisitions: self.acquisitions + other.acquisitions,
            conflicts: self.conflicts + other.conflicts,
        }
    }
}

#[derive(Debug)]
struct Counted<T> {
    cost: LockCounters,
    value: T,
}

/// A mutual exclusion lock with a rank that counts acquisitions and conflicts.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    inner: imp::Mutex<Counted<T>>,
    rank: Rank,
}

/// The value of a held [`Mutex`].
pub(crate) struct Guard<'a, T> {
    inner: imp::Guard<'a, Counted<T>>,
    _held: ranks::Held,
}

impl<T> Mutex<T> {
    pub(crate) fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex { inner: imp::new(Counted { cost: LockCounters::default(), value }), rank }
    }

    /// Takes the lock, waiting if it is held.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let held = ranks::Held::enter(self.rank);
        let mut inner = match imp::try_lock(&self.inner) {
            Some(inner) => inner,
            None => self.lock_contended(),
        };
        inner.cost.acquisitions += 1;
        Guard { inner, _held: held }
    }

    #[cold]
    fn lock_contended(&self) -> imp::Guard<'_, Counted<T>> {
        let mut inner = imp::lock(&self.inner);
        inner.cost.conflicts += 1;
        inner
    }

    /// Takes the lock unless it is held.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let held = ranks::Held::enter(self.rank);
        let mut inner = imp::try_lock(&self.inner)?;
        inner.cost.acquisitions += 1;
        Some(Guard { inner, _held: held })
    }
}

impl<T> Guard<'_, T> {
    /// Returns the costs of the lock so far, this acquisition included.
    pub(crate) fn cost(&self) -> LockCounters {
        self.inner.cost
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner.value
    }
}

/// A value on cache lines of its own, so that two CPUs' data never share one (128 bytes: lines are fetched in pairs).
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(all(feature = "std", not(loom)))]
mod imp {
    use std::sync::TryLockError;
    pub(super) use std::sync::{Mutex, MutexGuard as Guard};

    const POISONED: &str = "no thread panicked while it held this lock";

    pub(super) fn new<T>(value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    #[inline]
    pub(super) fn lock<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
        mutex.lock().expect(POISONED)
    }

    #[inline]
    pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<Guard<'_, T>> {
        match mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("{POISONED}"),
        }
    }
}

#[cfg(loom)]
mod imp {
    pub(super) use loom::sync::{Mutex, MutexGuard as Guard};

    pub(super) fn new<T>(value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
        mutex.lock().expect("no modelled thread panicked while it held this lock")
    }

    pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<Guard<'_, T>> {
        mutex.try_lock().ok()
    }
}

#[cfg(all(feature = "spin", not(feature = "std"), not(loom)))]
mod imp {
    pub(super) use spin::{Mutex, MutexGuard as Guard};

    pub(super) fn new<T>(value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    #[inline]
    pub(super) fn lock<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
        mutex.lock()
    }

    #[inline]
    pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<Guard<'_, T>> {
        mutex.try_lock()
    }
}

/// A value that is set once and then read without a lock.
#[derive(Debug)]
pub(crate) struct Published<T> {
    #[cfg(any(feature = "std", loom))]
    cell: std::sync::OnceLock<T>,
    #[cfg(not(any(feature = "std", loom)))]
    cell: spin::Once<T>,
    /// Orders for the model what std's cell orders, which the model does not see.
    #[cfg(loom)]
    is_set: AtomicBool,
}

impl<T> Published<T> {
    /// Returns a cell that has no value yet.
    pub(crate) fn empty() -> Published<T> {
        Published {
            #[cfg(any(feature = "std", loom))]
            cell: std::sync::OnceLock::new(),
            #[cfg(not(any(feature = "std", loom)))]
            cell: spin::Once::new(),
            #[cfg(loom)]
            is_set: AtomicBool::new(false),
        }
    }

    /// Returns the value; `None` until one is published.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        #[cfg(loom)]
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        self.cell.get()
    }

    /// Publishes `value`; the first value stays for good.
    pub(crate) fn publish(&self, value: T) {
        #[cfg(any(feature = "std", loom))]
        let _ = self.cell.set(value);
        #[cfg(not(any(feature = "std", loom)))]
        let _ = self.cell.call_once(|| value);
        #[cfg(loom)]
        self.is_set.store(true, Ordering::Release);
    }
}

/// Verifies in debug builds that locks are taken in the order of their ranks.
#[cfg(all(debug_assertions, feature = "std", not(loom)))]
mod ranks {
    use super::Rank;
    use std::cell::Cell;

    std::thread_local! {
        /// One bit for each rank of which this thread holds a lock.
        static HELD: Cell<u32> = const { Cell::new(0) };
    }

    /// A mark that a lock of some rank is held, for as long as the mark lives.
    pub(super) struct Held(Rank);

    impl Held {
        pub(super) fn enter(rank: Rank) -> Held {
            HELD.with(|held| {
                let higher = held.get() >> rank as u32;
                assert!(higher == 0, "a lock of rank {rank:?} taken under one of no lower rank");
                held.set(held.get() | 1 << rank as u32);
            });
            Held(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with(|held| held.set(held.get() & !(1 << self.0 as u32)));
        }
    }
}

#[cfg(not(all(debug_assertions, feature = "std", not(loom))))]
mod ranks {
    use super::Rank;

    pub(super) struct Held;

    impl Held {
        #[inline]
        pub(super) fn enter(_rank: Rank) -> Held {
            Held
        }
    }
}
