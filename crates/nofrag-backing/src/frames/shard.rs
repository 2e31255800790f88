//! An allocator behind a lock that knows how often it was waited for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use nofrag::page::{Moves, PageAllocator};
use nofrag::units::Pfn;

/// What a lock protects: the allocator of some frames.
///
/// 1. `moving` names each target of moves that were asked for and not yet reported, with the source that it replaces.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) pages: PageAllocator,
    moving: Vec<(Pfn, Pfn)>,
}

impl Pool {
    pub(super) fn new(pages: PageAllocator) -> Pool {
        Pool { pages, moving: Vec::new() }
    }

    /// Takes note of moves before their owner is asked to carry them out. As soon as one is done, the block has its new
    /// name for everybody but the allocator.
    pub(super) fn begin(&mut self, moves: &Moves) {
        self.moving.extend(moves.pairs().iter().map(|pair| (pair.to, pair.from)));
    }

    /// Forgets moves, right after the allocator was told what came of them.
    pub(super) fn end(&mut self, moves: &Moves) {
        let ended = |to| moves.pairs().iter().any(|pair| pair.to == to);
        self.moving.retain(|&(to, _)| !ended(to));
    }

    /// Whether this move was asked for and not reported yet.
    pub(super) fn is_asked(&self, from: Pfn, to: Pfn) -> bool {
        self.moving.contains(&(to, from))
    }

    /// By which name the allocator knows a block in use.
    pub(super) fn known_as(&self, pfn: Pfn) -> Pfn {
        let moved = self.moving.iter().find(|&&(to, _)| to == pfn);
        moved.map_or(pfn, |&(_, from)| from)
    }
}

/// A pool, its lock, and how often callers waited. On cache lines of its own, or two locks would be one.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Shard {
    pool: Mutex<Pool>,
    waits: AtomicU64,
}

impl Shard {
    pub(super) fn new(pages: PageAllocator) -> Shard {
        Shard { pool: Mutex::new(Pool::new(pages)), waits: AtomicU64::new(0) }
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
