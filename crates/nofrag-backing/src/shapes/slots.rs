//! Memories of one size for many short-lived users, such as sandboxes: each guarded at its end, all in one area.
//!
//! A memory of its own by `mmap` costs system calls for each user, and areas of the process, of which there are some
//! 65,000. Here addresses for all are reserved at once; guards stand in the page tables (Linux 6.13), where they split
//! no area. A slot that was given back is *dirty*: it is not handed out before its contents are gone. These go many
//! slots at a time, in one call that the kernel can answer with one flush of the processors' translation caches.
//!
//! Where the system refuses to take contents back, slots stay dirty and are tried again; when there is no clean one, a
//! dirty one is overwritten with zeros by hand. So contents never reach the next user, whichever call fails.
//!
//! Source: docs/sources/backing.md#r6.

use std::ffi::c_void;
use std::iter::repeat_n;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::mm::MprotectFlags;

use super::{ShapeError, pages, to};
use crate::backend::{Anonymous, Backend as _, BackendError, Op, Va};
use crate::forks::Forks;
use crate::sys;
use crate::zeroed::{NoMemory, collected};

/// `MADV_GUARD_INSTALL` of Linux 6.13, which no binding has yet.
const GUARD_INSTALL: i32 = 102;

/// Sizes of a pool and its memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSizes {
    pub slots: u32,
    /// Bytes of each memory; rounded up to pages.
    pub memory: usize,
    /// Bytes behind each memory that raise `SIGSEGV` when they are touched; rounded up to pages.
    pub guard: usize,
    /// Number of slots that are given back before they are purged together. Until then their memory stays in use.
    pub batch: u32,
}

impl PoolSizes {
    /// Returns sizes of `slots` memories of `memory` bytes, each with 64 KiB of guard, purged by 64.
    #[must_use]
    pub const fn new(slots: u32, memory: usize) -> PoolSizes {
        PoolSizes { slots, memory, guard: 64 << 10, batch: 64 }
    }
}

/// The place of the guards of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guards {
    /// In the page tables: the pool is one area.
    PageTables,
    /// As areas of their own: two areas for each slot. The kernel is older than 6.13.
    Areas,
}

/// Counts of a pool's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    pub taken: u64,
    /// Slots whose contents the system took back.
    pub purged: u64,
    /// Submissions to purge slots; each is one system call or a few.
    pub purges: u64,
    /// Slots whose contents the system refused to take back, counted at each refusal.
    pub refused: u64,
    /// Slots that were overwritten with zeros by hand, since the system refused.
    pub zeroed: u64,
}

/// Guarded memories of one size.
///
/// ```
/// use nofrag_backing::shapes::{PoolSizes, SlotPool};
///
/// let pool = SlotPool::new(PoolSizes::new(2, 4096))?;
/// let mut slot = pool.take()?;
/// assert_eq!((slot.len(), slot[0]), (4096, 0));
/// slot[0] = 1;
/// drop(slot); // nobody else sees what was in it
/// # Ok::<(), nofrag_backing::shapes::ShapeError>(())
/// ```
///
/// 1. A slot is clean, dirty, or has one user; one that is being purged is none of these.
/// 2. A clean slot is zero.
/// 3. The reservation is `base..`, `slots` times a stride of memory and guard, until the pool is dropped.
#[derive(Debug)]
pub struct SlotPool {
    backend: Anonymous,
    base: Va,
    /// Sizes, of which memory and guard are whole pages.
    sizes: PoolSizes,
    guards: Guards,
    lists: Mutex<Lists>,
    counts: Counts,
    forks: Forks,
}

#[derive(Debug)]
struct Lists {
    clean: Vec<u32>,
    dirty: Vec<u32>,
}

#[derive(Debug, Default)]
struct Counts {
    taken: AtomicU64,
    purged: AtomicU64,
    purges: AtomicU64,
    refused: AtomicU64,
    zeroed: AtomicU64,
}

/// A memory of a pool, zero at first, and given back when dropped.
#[derive(Debug)]
pub struct Slot<'a> {
    pool: &'a SlotPool,
    number: u32,
}

impl SlotPool {
    /// Makes a pool of clean slots. It takes addresses and page tables at once, and memory as slots are used.
    ///
    /// # Errors
    /// See [`ShapeError`].
    pub fn new(sizes: PoolSizes) -> Result<SlotPool, ShapeError> {
        let guard = sizes.guard.checked_next_multiple_of(1 << sys::PAGE);
        let (memory, guard) = pages(sizes.memory).zip(guard).ok_or(ShapeError::Sizes)?;
        let sizes = PoolSizes { memory, guard, ..sizes };
        let stride = memory.checked_add(guard).ok_or(ShapeError::Sizes)?;
        let bytes = stride.checked_mul(sizes.slots as usize).filter(|&bytes| bytes > 0);
        let bytes = bytes.ok_or(ShapeError::Sizes)?;
        let forks = Forks::now().map_err(to("watch for forks"))?;
        let backend = Anonymous::new();
        let base = mapped(&backend, bytes as u64).map_err(refused)?;
        // The lowest slots are taken first.
        let clean = collected(sizes.slots as usize, (0..sizes.slots).rev());
        let clean = clean.map_err(|NoMemory| to("note the slots")(Errno::NOMEM))?;
        let lists = Lists { clean, dirty: Vec::new() };
        let mut pool = SlotPool {
            backend,
            base,
            sizes,
            guards: Guards::PageTables,
            lists: Mutex::new(lists),
            counts: Counts::default(),
            forks,
        };
        pool.backend.hide_from_children(base, bytes as u64).map_err(refused)?;
        pool.guards = pool.install_guards()?;
        Ok(pool)
    }

    /// Returns the first address of a slot.
    fn address(&self, slot: u32) -> *mut u8 {
        let stride = (self.sizes.memory + self.sizes.guard) as u64;
        let at = self.base.plus(stride * u64::from(slot));
        ptr::with_exposed_provenance_mut(at.0 as usize)
    }

    fn guard_of(&self, slot: u32) -> *mut c_void {
        self.address(slot).wrapping_add(self.sizes.memory).cast()
    }

    fn install_guards(&self) -> Result<Guards, ShapeError> {
        let PoolSizes { slots, guard, .. } = self.sizes;
        if guard == 0 {
            return Ok(Guards::PageTables);
        }
        for slot in 0..slots {
            let at = self.guard_of(slot);
            // SAFETY: the range lies in our reservation (law 3), and the slot has no user yet.
            match unsafe { sys::madvise(at, guard, GUARD_INSTALL) } {
                Ok(()) => {}
                Err(Errno::INVAL) if slot == 0 => return self.protect_guards(),
                Err(error) => return Err(to("install a guard")(error)),
            }
        }
        Ok(Guards::PageTables)
    }

    fn protect_guards(&self) -> Result<Guards, ShapeError> {
        let PoolSizes { slots, guard, .. } = self.sizes;
        let (areas, budget) = (u64::from(slots) * 2, crate::limits::max_map_count() / 2);
        if areas > budget {
            return Err(ShapeError::TooManyAreas { slots, areas, budget });
        }
        for slot in 0..slots {
            let at = self.guard_of(slot);
            // SAFETY: the range lies in our reservation (law 3), and the slot has no user yet.
            let protected = unsafe { sys::mprotect(at, guard, MprotectFlags::empty()) };
            protected.map_err(to("protect a guard"))?;
        }
        Ok(Guards::Areas)
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        // Numbers move from list to list by single calls: a panic leaves none half moved.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the place of the guards.
    #[must_use]
    pub fn guards(&self) -> Guards {
        self.guards
    }

    /// Returns the bytes of each memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.sizes.memory
    }

    /// Takes a memory that is all zero. Purges if there is no clean one.
    ///
    /// # Errors
    /// [`ShapeError::NoSlot`], [`ShapeError::Forked`].
    pub fn take(&self) -> Result<Slot<'_>, ShapeError> {
        if !self.forks.is_same() {
            return Err(ShapeError::Forked);
        }
        let clean = || self.lists().clean.pop();
        let number = clean().or_else(|| {
            self.purge();
            clean().or_else(|| self.zero_one())
        });
        let number = number.ok_or(ShapeError::NoSlot { slots: self.sizes.slots })?;
        self.counts.taken.fetch_add(1, Ordering::Relaxed);
        Ok(Slot { pool: self, number })
    }

    /// Gives the contents of all dirty slots back to the system, and returns the number of slots for which that was
    /// done. The others stay dirty.
    pub fn purge(&self) -> usize {
        if !self.forks.is_same() {
            return 0;
        }
        // No other thread has these numbers until they are back on a list, so no lock is held during the calls.
        let mut dirty = mem::take(&mut self.lists().dirty);
        if dirty.is_empty() {
            return 0;
        }
        dirty.sort_unstable();
        // Guards are purged along with memories, which they survive, so that slots in a row are one range.
        let bytes = (self.sizes.memory + self.sizes.guard) as u64;
        let purge = |&slot: &u32| Op::Purge { va: Va(self.address(slot).addr() as u64), bytes };
        let count = dirty.len();
        let purges = collected(count, dirty.iter().map(purge));
        let done = collected(count, repeat_n(Ok(()), count));
        let (Ok(purges), Ok(mut done)) = (purges, done) else {
            self.lists().dirty.append(&mut dirty);
            return 0;
        };
        self.backend.submit(&purges, &mut done);
        let mut purged = 0;
        let mut lists = self.lists();
        for (slot, done) in dirty.into_iter().zip(done) {
            if done.is_ok() {
                purged += 1;
                lists.clean.push(slot);
            } else {
                lists.dirty.push(slot);
            }
        }
        drop(lists);
        self.counts.purges.fetch_add(1, Ordering::Relaxed);
        self.counts.purged.fetch_add(purged as u64, Ordering::Relaxed);
        let refused = (purges.len() - purged) as u64;
        self.counts.refused.fetch_add(refused, Ordering::Relaxed);
        purged
    }

    /// Overwrites a dirty slot with zeros, which takes memory for all of it, and returns its number; `None` if no slot
    /// is dirty.
    fn zero_one(&self) -> Option<u32> {
        let slot = self.lists().dirty.pop()?;
        // SAFETY: the memory of a slot lies in our reservation and can be written (law 3); the slot is on no list and
        // has no user (law 1), so no other thread touches it.
        unsafe { ptr::write_bytes(self.address(slot), 0, self.sizes.memory) };
        self.counts.zeroed.fetch_add(1, Ordering::Relaxed);
        Some(slot)
    }

    fn give_back(&self, slot: u32) {
        let mut lists = self.lists();
        lists.dirty.push(slot);
        let is_full = lists.dirty.len() >= self.sizes.batch as usize;
        drop(lists);
        if is_full {
            self.purge();
        }
    }

    /// Returns the counts of the pool's work so far.
    #[must_use]
    pub fn counts(&self) -> PoolCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { taken, purged, purges, refused, zeroed } = &self.counts;
        PoolCounts {
            taken: read(taken),
            purged: read(purged),
            purges: read(purges),
            refused: read(refused),
            zeroed: read(zeroed),
        }
    }
}

impl Slot<'_> {
    /// Returns the slot's number in the pool.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    fn start(&self) -> *mut u8 {
        assert!(self.pool.forks.is_same(), "a child of a fork does not have its parent's pool");
        self.pool.address(self.number)
    }
}

impl Deref for Slot<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory of a slot is reserved to be read and written as long as the pool is (law 3), which is
        // borrowed; it is zero or was written; the slot has one user (law 1), which is this.
        unsafe { std::slice::from_raw_parts(self.start(), self.pool.sizes.memory) }
    }
}

impl DerefMut for Slot<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and it is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.pool.sizes.memory) }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // In a child of a fork the slot is the parent's.
        if self.pool.forks.is_same() {
            self.pool.give_back(self.number);
        }
    }
}

/// Maps `bytes` bytes of private memory, readable and writable.
fn mapped(backend: &Anonymous, bytes: u64) -> Result<Va, BackendError> {
    let va = backend.reserve(bytes, 1 << sys::PAGE, None)?;
    let phys = backend.create(bytes)?;
    let mut done = [Ok(())];
    backend.submit(&[Op::Map { va, phys, offset: 0, bytes }], &mut done);
    done[0].map(|()| va)
}

/// Returns the error of a pool for a backend's refusal to make memory.
fn refused(error: BackendError) -> ShapeError {
    match error {
        BackendError::System(error) => to("make memory for slots")(error),
        _ => ShapeError::Sizes,
    }
}
