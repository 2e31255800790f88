//! An allocator behind a lock that knows how often it was waited for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use nofrag::page::{Move, Moves, PageAllocator};
use nofrag::units::Pfn;

/// What a lock protects: the allocator of some frames.
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
    /// Their answer is in: what they do now comes too late.
    over: bool,
}

impl Pool {
    pub(super) fn new(pages: PageAllocator) -> Pool {
        Pool { pages, moving: Vec::new() }
    }

    /// Takes note of moves before their owner is asked to carry them out. As soon as one is done, the block has its new
    /// name for everybody but the allocator.
    pub(super) fn begin(&mut self, moves: &Moves) {
        let asked = |pair: &Move| Asked { to: pair.to, from: pair.from, over: false };
        self.moving.extend(moves.pairs().iter().map(asked));
    }

    /// Forgets moves, right after the allocator was told what came of them.
    pub(super) fn end(&mut self, moves: &Moves) {
        let ended = |to| moves.pairs().iter().any(|pair| pair.to == to);
        self.moving.retain(|asked| !ended(asked.to));
    }

    /// Whether residents are being asked for this move.
    pub(super) fn is_asked(&self, from: Pfn, to: Pfn) -> bool {
        self.moving.iter().any(|asked| (asked.from, asked.to) == (from, to) && !asked.over)
    }

    /// By which name the allocator knows a block in use.
    pub(super) fn known_as(&self, pfn: Pfn) -> Pfn {
        let moved = self.moving.iter().find(|asked| asked.to == pfn);
        moved.map_or(pfn, |asked| asked.from)
    }
}

/// A pool, its lock, and how often callers waited. On cache lines of its own, or two locks would be one.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Shard {
    pool: Mutex<Pool>,
    /// Shared by who copies to what was set aside; taken before the pool, and by who closes moves with no pool held.
    carrying: RwLock<()>,
    waits: AtomicU64,
}

impl Shard {
    pub(super) fn new(pages: PageAllocator) -> Shard {
        let (pool, carrying) = (Mutex::new(Pool::new(pages)), RwLock::new(()));
        Shard { pool, carrying, waits: AtomicU64::new(0) }
    }

    /// As long as the result lives, a move that is asked for stays so.
    pub(super) fn carrying(&self) -> RwLockReadGuard<'_, ()> {
        self.carrying.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to moves is in: nobody carries them out from now on, and who was at it has ended.
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
        // A count and no more: nothing is read by its order.
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.pool.lock().expect(BROKEN)
    }

    /// How often a caller found the lock taken.
    pub(super) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

const BROKEN: &str = "no thread panics while it holds the allocator";
