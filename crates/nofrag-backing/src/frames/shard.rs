//! An allocator behind a lock that counts its waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use nofrag::page::{Move, Moves, PageAllocator};
use nofrag::units::Pfn;

/// The contents of a lock: the allocator of some frames.
///
/// 1. `moving` has each move that was asked for and not yet reported.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) pages: PageAllocator,
    moving: Vec<Asked>,
}

/// A move that residents are asked for.
#[derive(Debug)]
struct Asked {
    to: Pfn,
    from: Pfn,
    /// The residents have answered: a later move comes too late.
    over: bool,
}

impl Pool {
    pub(super) fn new(pages: PageAllocator) -> Pool {
        Pool { pages, moving: Vec::new() }
    }

    /// Takes note of moves before residents are asked to carry them out. As soon as one is done, the block has its new
    /// name for all but the allocator.
    pub(super) fn begin(&mut self, moves: &Moves) {
        let asked = |pair: &Move| Asked { to: pair.to, from: pair.from, over: false };
        self.moving.extend(moves.pairs().iter().map(asked));
    }

    /// Forgets moves, right after the allocator was told their outcome.
    pub(super) fn end(&mut self, moves: &Moves) {
        let ended = |to| moves.pairs().iter().any(|pair| pair.to == to);
        self.moving.retain(|asked| !ended(asked.to));
    }

    /// Returns true if residents are being asked for this move.
    pub(super) fn is_asked(&self, from: Pfn, to: Pfn) -> bool {
        self.moving.iter().any(|asked| (asked.from, asked.to) == (from, to) && !asked.over)
    }

    /// Returns the name by which the allocator knows a block in use.
    pub(super) fn known_as(&self, pfn: Pfn) -> Pfn {
        let moved = self.moving.iter().find(|asked| asked.to == pfn);
        moved.map_or(pfn, |asked| asked.from)
    }
}

/// A pool, its lock, and a count of waits. On cache lines of its own, or threads at different locks would slow each
/// other down.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Shard {
    pool: Mutex<Pool>,
    /// Held shared, and taken before the pool, by threads that copy to a target that was set aside; held alone, without
    /// the pool, to close moves.
    carrying: RwLock<()>,
    waits: AtomicU64,
}

impl Shard {
    pub(super) fn new(pages: PageAllocator) -> Shard {
        let (pool, carrying) = (Mutex::new(Pool::new(pages)), RwLock::new(()));
        Shard { pool, carrying, waits: AtomicU64::new(0) }
    }

    /// Returns a guard: as long as it lives, a move that is asked for stays so.
    pub(super) fn carrying(&self) -> RwLockReadGuard<'_, ()> {
        self.carrying.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes moves that residents have answered: they can no longer be carried out, and a thread that was at it has
    /// ended.
    pub(super) fn close(&self, moves: &Moves) {
        let closed = |asked: &Asked| moves.pairs().iter().any(|pair| pair.to == asked.to);
        let mut pool = self.lock();
        pool.moving.iter_mut().filter(|asked| closed(asked)).for_each(|asked| asked.over = true);
        drop(pool);
        drop(self.carrying.write().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Pool> {
        match self.pool.try_lock() {
            Ok(pool) => pool,
            Err(TryLockError::WouldBlock) => self.wait(),
            Err(TryLockError::Poisoned(_)) => panic!("{BROKEN}"),
        }
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, Pool> {
        // Relaxed: a mere count; nothing is read by its order.
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.pool.lock().expect(BROKEN)
    }

    /// Returns how often a caller found the lock taken.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

const BROKEN: &str = "no thread panics while it holds the allocator";
