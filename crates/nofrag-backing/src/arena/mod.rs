//! Memory for runtimes, databases and pools: one big reservation, blocks per owner, late purges in batches.
//!
//! ```
//! use nofrag_backing::arena::{Arena, Config, Purger};
//! use std::sync::Arc;
//!
//! let arena = Arena::reserve(256 << 20, Config::default())?;
//! let mut owner = arena.owner(arena.here())?; // held by one thread: no lock for each call
//! let run = owner.alloc(16, 1)?; // 16 pages of 4 KiB, any alignment
//! let bytes = arena.pointer(run);
//! // SAFETY: the run is 16 pages long and ours until it is freed.
//! unsafe { bytes.write_bytes(1, 16 << 12) };
//! owner.free(run)?; // the pages stay, and the next 16 pages of this owner are these
//! assert!(arena.free(run).is_err(), "a second free is refused, from whatever thread");
//! drop(owner);
//!
//! // The same without `unsafe`: a lease is a slice of bytes, and ends when it is dropped.
//! let mut lease = arena.lease(arena.here(), 4, 1)?;
//! lease[0] = 1;
//! drop(lease);
//!
//! // While calls go on, they give back what has been idle for a second. Who may go idle starts a thread for that.
//! let arena = Arc::new(arena);
//! let _purger = Purger::start(&arena)?; // until it is dropped
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A lease cannot outlive its arena:
//!
//! ```compile_fail
//! use nofrag_backing::arena::{Arena, Config, OwnerId};
//!
//! let arena = Arena::reserve(256 << 20, Config::default()).unwrap();
//! let lease = arena.lease(OwnerId(0), 4, 1).unwrap();
//! drop(arena);
//! println!("{}", lease[0]);
//! ```
//!
//! # Theory
//!
//! The search is cheap; the system's part is not: mapping, the first touch of each page, and unmapping, which
//! interrupts every processor that runs the process. So a free keeps its pages mapped and full (*parked*), and memory
//! goes back late, in whole *blocks*, many in one call. Whether that is right depends on the next request, so
//! everything belongs to *owners*: a thread, or a processor.
//!
//! - The arena is one reservation, cut into blocks (4 MiB). A block belongs to one owner, or to none; then it is clean.
//! - An owner first looks into its bins of parked runs of exactly the wanted size. A run from there costs a few
//!   nanoseconds and no call. Next come the free ranges over all its blocks (`nofrag::ranges`), so runs may span
//!   blocks; then clean blocks. A run longer than a block takes as many as it needs, and the remainder of the last one
//!   is free for other runs.
//! - A block in which nothing is in use is *idle*. It is taken off its owner's books under the owner's lock, purged
//!   without any lock, and belongs to no owner afterwards. (A purge through a handle keeps the owner meanwhile; and
//!   blocks that were taken from the pool, but could not get memory, are purged at once.) [`Purge`] says when that is
//!   done; before a request fails it is always done, for all owners that are not held.
//! - By default calls that allocate and free do it, a few blocks at a time, when a second has passed (`clock`): no
//!   thread is started unasked, and none is needed while calls go on. A [`Purger`] is such a thread, for programs that
//!   go idle.
//! - A record for each page says which run begins there and how often one has, so every free is verified in O(1).
//! - A thread that frees a run of an owner that another thread holds appends it to that owner's list, without waiting;
//!   the owner takes it from there when it needs memory, and background work does.
//!
//! Contents: an owner may get its own runs back with their contents. Another one gets the memory only after a purge
//! that succeeded; a block whose purge failed stays with its owner until one does, however short memory is.
//!
//! Fork: a child neither allocates nor frees nor purges; every call fails with [`ArenaError::Forked`]. By default it
//! does not even see the memory ([`Fork`]).
//!
//! Locks: that of an owner, then the pool of clean blocks or an owner's mail, never both. Background work and frees
//! only try an owner's lock, and background work gives way between its pieces to waiting threads. Handles
//! ([`Arena::owner`]) hold it for long and pay nothing per call.
//!
//! Costs: parked allocation and free O(1); from free ranges O(log n); a purge is one call for up to `vector_max` runs
//! of adjacent blocks. Records take 16 bytes per page that was ever the first of a run, a page of them at a time; and
//! another 8 for one that was so 2^32 times.
//!
//! Source: docs/sources/backing.md#r1, #r2, #r4, #r6.
//!
//! Files, bottom up: `atomic` and `cpu`, `run` (a handle), `config`, `clock`, `error`, `stats`, `table` (a record of
//! each page), `ground` (what threads share), `bins` (parked runs), `books` (the records of an owner), `lock`, `remote`
//! (frees by other threads), `owner`, `pool` (clean blocks), `backing` (the memory), `setup`, `pressure` (when nothing
//! parked fits), `resize`, `purge`, `handle` and `lease` (the faces of an owner and of a run), `layout` (bytes in place
//! of pages), `background`, `laws`.

mod atomic;
mod background;
mod backing;
mod bins;
mod books;
mod clock;
mod config;
mod cpu;
mod error;
mod ground;
mod handle;
mod laws;
mod layout;
mod lease;
mod lock;
mod owner;
mod pool;
mod pressure;
mod purge;
mod remote;
mod resize;
mod run;
mod setup;
mod stats;
mod table;

use std::fmt;
use std::mem::ManuallyDrop;

use self::atomic::{AtomicU64, Ordering};
pub use self::background::Purger;
use self::backing::Backing;
use self::books::{Freed, OwnerBooks};
use self::clock::ArenaClock;
pub use self::config::{Budget, Clock, Config, Fork, Owners, Purge};
use self::cpu::Processors;
pub use self::error::{
    ArenaError, Busy, FreeError, HoldError, ReserveError, ResizeError, Share, Shortage,
};
use self::ground::Ground;
pub use self::handle::OwnerHandle;
pub use self::lease::Lease;
use self::owner::Owner;
use self::pool::Pool;
use self::pressure::Want;
pub use self::run::{OwnerId, Run};
pub use self::stats::{ArenaStats, BlockStats, Purged};
use self::table::Use;
use crate::backend::{Anonymous, Backend, HostMemory, Va};
use crate::forks::Forks;

/// The function that is called before memory goes back to the system, with the first address and the bytes.
type Hook = Box<dyn Fn(Va, u64) + Send + Sync>;

/// Memory in blocks of owners. See the [module](self).
///
/// 1. A block is in the pool, on the books or in the mail of one owner, or taken by one purge.
/// 2. Blocks in the pool are clean, and their records name no owner.
pub struct Arena<B: Backend = Anonymous> {
    ground: Ground,
    owners: Box<[Owner<B>]>,
    pool: Pool,
    /// Not dropped in a child of a fork, where the addresses may hold other mappings.
    backing: ManuallyDrop<Backing<B>>,
    parent: Forks,
    processors: Processors,
    purge: Purge,
    clock: ArenaClock,
    on_purge: Option<Hook>,
    /// Bytes that were asked for; `ground` says how many there are.
    asked: u64,
    align: u64,
    purged: AtomicU64,
    failed_purges: AtomicU64,
    /// Number of rounds of background work so far: each begins one owner further on than the last.
    cursor: AtomicU64,
}

/// Why an attempt to allocate under an owner's lock failed.
enum Miss {
    /// A purge, or memory of other owners, could help.
    Pressure(ArenaError),
    Final(ArenaError),
}

impl<B: Backend> Arena<B> {
    /// Allocates a run of `pages` pages for `owner`, whose first address is a multiple of `align` pages.
    ///
    /// It may hold the contents that this owner has left there, but none of other owners. Waits while another thread
    /// holds the owner; the thread that has its [handle](Arena::owner) calls the handle instead.
    ///
    /// # Errors
    /// See [`ArenaError`].
    #[inline]
    pub fn alloc(&self, owner: OwnerId, pages: u64, align: u64) -> Result<Run, ArenaError> {
        self.alloc_as(owner, pages, align, Use::Live)
    }

    /// Allocates as [`alloc`](Arena::alloc) does, for the owner of this processor, or for another one while that is
    /// held.
    ///
    /// # Errors
    /// See [`ArenaError`].
    #[inline]
    pub fn alloc_here(&self, pages: u64, align: u64) -> Result<Run, ArenaError> {
        self.alloc_here_as(pages, align, Use::Live)
    }

    #[inline]
    fn alloc_here_as(&self, pages: u64, align: u64, used: Use) -> Result<Run, ArenaError> {
        self.check_parent()?;
        let here = self.here();
        let count = self.owners.len();
        let ours = here.0 as usize;
        for at in (ours..count).chain(0..ours) {
            if let Some(mut books) = self.owners[at].books.0.try_lock() {
                if let Some(run) = self.at_hand(&mut books, pages, align, used) {
                    return Ok(run);
                }
                drop(books);
                return self.alloc_as(OwnerId(at as u32), pages, align, used);
            }
        }
        self.alloc_as(here, pages, align, used)
    }

    /// Returns the owner of the current processor; the thread may be elsewhere a moment later.
    #[must_use]
    #[inline]
    pub fn here(&self) -> OwnerId {
        self.processors.owner()
    }

    #[inline]
    fn alloc_as(
        &self,
        owner: OwnerId,
        pages: u64,
        align: u64,
        used: Use,
    ) -> Result<Run, ArenaError> {
        // Before the lock: in a child it may be held for ever, by a thread of the parent.
        self.check_parent()?;
        let slot = self.slot(owner)?;
        let mut books = slot.books.0.lock();
        if let Some(run) = self.at_hand(&mut books, pages, align, used) {
            return Ok(run);
        }
        self.alloc_slowly(slot, books, Want { pages, align, used })
    }

    #[inline(always)]
    fn check_parent(&self) -> Result<(), ArenaError> {
        if self.parent.is_same() { Ok(()) } else { Err(ArenaError::Forked) }
    }

    fn slot(&self, owner: OwnerId) -> Result<&Owner<B>, ArenaError> {
        let owners = self.owners.len() as u32;
        self.owners.get(owner.0 as usize).ok_or(ArenaError::UnknownOwner { owner, owners })
    }

    /// Returns the largest alignment of a run, in pages.
    #[inline(always)]
    fn most_align(&self) -> u64 {
        self.align >> self.ground.page_shift
    }

    /// Hands out a parked run of exactly that size, unless it is time to look at the clock. Not for a child of a fork.
    #[inline(always)]
    fn at_hand(&self, books: &mut OwnerBooks<B>, pages: u64, align: u64, used: Use) -> Option<Run> {
        if books.looks.are_due(books.allocs) {
            return None;
        }
        self.parked(books, pages, align, used)
    }

    /// Hands out a parked run of exactly that size. Not for a child of a fork.
    #[inline(always)]
    fn parked(&self, books: &mut OwnerBooks<B>, pages: u64, align: u64, used: Use) -> Option<Run> {
        // Pages are numbered from the first one, which is a multiple of `most_align` and no more.
        if !align.is_power_of_two() || align > self.most_align() {
            return None;
        }
        let page = books.bins.pop(pages, align)?;
        books.allocs += 1;
        Some(self.ground.begin(page, pages as u32, used))
    }

    /// Gives a run back, from any thread and without waiting. Its pages stay as they are.
    ///
    /// # Errors
    /// See [`FreeError`]; nothing changed. Should two threads free the same run at once, both may be told that it is
    /// done; it is freed once, and [`ArenaStats::stale_frees`] counts the other later.
    #[inline]
    pub fn free(&self, run: Run) -> Result<(), FreeError> {
        self.free_as(run, Use::Live)
    }

    #[inline]
    fn free_as(&self, run: Run, used: Use) -> Result<(), FreeError> {
        let slot = self.owner_of(run)?;
        match slot.books.0.try_lock() {
            Some(mut books) => {
                let page = self.find_in(&books, run, used)?;
                let freed = books.free(&self.ground, page, run.pages());
                if freed.map_err(|_| FreeError::OutOfMetadata)? == Freed::Merged {
                    self.after_merge(slot, books);
                }
                Ok(())
            }
            None => self.free_remotely(slot, run, used),
        }
    }

    /// Frees as [`free`](Arena::free) does, but the owner takes note only when it needs memory. Takes no lock and no
    /// memory at all, so a signal handler may call it.
    ///
    /// # Errors
    /// Those of [`free`](Arena::free), and [`FreeError::Uncollected`].
    pub fn free_later(&self, run: Run) -> Result<(), FreeError> {
        let slot = self.owner_of(run)?;
        let page = self.ground.find(run, Use::Live)?;
        let claim = self.ground.claim(run, Use::Live);
        slot.remote.0.push(&self.ground.table, page, claim).map_err(|other| {
            let same = other.generation == claim.generation;
            if same { FreeError::NotLive } else { FreeError::Uncollected }
        })
    }

    /// Returns the owner of the block where a run begins.
    #[inline(always)]
    fn owner_of(&self, run: Run) -> Result<&Owner<B>, FreeError> {
        if !self.parent.is_same() {
            return Err(FreeError::Forked);
        }
        let page = self.ground.page_at(run.va())?;
        let owner = self.ground.owner_of(self.ground.block_of(page)).ok_or(FreeError::NotLive)?;
        Ok(&self.owners[owner.0 as usize])
    }

    /// Returns the first page of a run that is in use, if the holder of these books owns it.
    #[inline(always)]
    fn find_in(&self, books: &OwnerBooks<B>, run: Run, used: Use) -> Result<u32, FreeError> {
        let page = self.ground.find(run, used)?;
        // The owner was looked up before its books were held. A run of the caller cannot have changed hands since; one
        // that was put together from parts can.
        if self.ground.owner_of(self.ground.block_of(page)) != Some(books.owner) {
            return Err(FreeError::NotLive);
        }
        Ok(page)
    }

    #[cold]
    fn free_remotely(&self, slot: &Owner<B>, run: Run, used: Use) -> Result<(), FreeError> {
        let page = self.ground.find(run, used)?;
        let claim = self.ground.claim(run, used);
        slot.leave(&self.ground, page, claim).map_err(|_| FreeError::NotLive)
    }

    /// Leaves a lease to its owner, to be freed when the owner has memory to note the hole.
    #[cold]
    fn free_lease_later(&self, run: Run) -> Result<(), FreeError> {
        self.free_remotely(self.owner_of(run)?, run, Use::Leased)
    }

    /// Returns the size of this arena: less than was asked for if there was no room for that.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ground.bytes()
    }

    /// Returns the bytes that were asked for.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Returns the first address of the arena.
    #[must_use]
    pub fn base(&self) -> Va {
        self.ground.base
    }

    /// Returns the number of the arena's owners.
    #[must_use]
    pub fn owners(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Returns the bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        1 << self.ground.page_shift
    }

    /// Has `hook` called before memory goes back, with its first address and bytes: outside all locks, except that of
    /// an owner whose handle purges.
    pub fn on_purge(&mut self, hook: impl Fn(Va, u64) + Send + Sync + 'static) {
        self.on_purge = Some(Box::new(hook));
    }

    /// Counts pages, blocks and calls. Owners that are held are left out, and counted as busy; in a child of a fork all
    /// owners are, and the clean blocks are not known.
    #[must_use]
    pub fn stats(&self) -> ArenaStats {
        let ground = &self.ground;
        let mut stats = ArenaStats {
            pages: u64::from(ground.pages()),
            purged: self.purged.load(Ordering::Relaxed),
            mappings: self.backing.mappings.load(Ordering::Relaxed),
            calls: self.backing.calls.load(Ordering::Relaxed),
            failed_purges: self.failed_purges.load(Ordering::Relaxed),
            ..ArenaStats::default()
        };
        stats.blocks.total = u64::from(ground.blocks);
        if !self.parent.is_same() {
            // Any lock may be held for ever, by a thread of the parent.
            stats.busy_owners = self.owners.len() as u64;
            return stats;
        }
        let clean = self.pool.stats();
        stats.largest = clean.largest << ground.block_shift;
        stats.blocks.clean = clean.free;
        for slot in &self.owners {
            let Some(mut books) = slot.books.0.try_lock() else {
                stats.busy_owners += 1;
                continue;
            };
            slot.collect(ground, &self.backing, &mut books);
            stats.live += books.live();
            stats.parked += books.bins.pages();
            stats.dirty += books.dirty();
            stats.largest = stats.largest.max(books.ranges.largest());
            stats.allocs += books.allocs;
            stats.frees += books.frees;
            stats.stale_frees += books.stale_frees;
            let idle = books.idle_blocks(ground);
            stats.blocks.idle += idle;
            stats.blocks.used += books.blocks.len() as u64 - idle;
            let quarantined = books.blocks.values().filter(|block| block.quarantined).count();
            stats.blocks.quarantined += quarantined as u64 + slot.returned_blocks();
        }
        stats
    }
}

impl<B: HostMemory> Arena<B> {
    /// Returns the address of a run. It may be read and written up to the run's length, until the run is freed; the
    /// caller takes care that no two threads do so at once.
    #[must_use]
    #[inline]
    pub fn pointer(&self, run: Run) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(run.va().0 as usize)
    }

    /// Allocates a run as a slice of bytes that is freed when it is dropped. Waits while another thread holds the
    /// owner; the thread that has its [handle](Arena::owner) calls the handle instead.
    ///
    /// # Errors
    /// See [`ArenaError`].
    pub fn lease(
        &self,
        owner: OwnerId,
        pages: u64,
        align: u64,
    ) -> Result<Lease<'_, B>, ArenaError> {
        let run = self.alloc_as(owner, pages, align, Use::Leased)?;
        Ok(Lease::new(self, run))
    }
}

impl<B: Backend> fmt::Debug for Arena<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ground { base, blocks, .. } = &self.ground;
        let owners = self.owners.len();
        write!(f, "Arena at {:#x}: {blocks} blocks, {owners} owners, {:?}", base.0, self.purge)
    }
}
