//! The contestants of [`blocks`](super) behind one interface, with the same counting mapper.

use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::{Config, Fit, Index, RangeAllocator, Request, Span};
use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{
    BlockGeometry, BlockIndex, CpuHandle, Drain, Epoch, LockCounters, Mapper, RamArea, VmapConfig,
    VmapPolicy, VmapSpace,
};
use std::cell::Cell;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// 32 TiB in pages: the vmalloc range of x86-64 with four levels of page tables.
const PAGES: u64 = 1 << 33;

/// Cost of locks and atomic operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Locks taken, and locks waited for.
    pub locks: LockCounters,
    /// Locked (atomic) operations besides those of locks.
    pub atomics: u64,
}

impl Cost {
    /// Returns all locked operations: two for each lock.
    #[must_use]
    pub fn locked_operations(self) -> u64 {
        2 * self.locks.acquisitions + self.atomics
    }

    /// Returns the cost that has come since `before`.
    #[must_use]
    pub fn since(self, before: Cost) -> Cost {
        let locks = LockCounters {
            acquisitions: self.locks.acquisitions - before.locks.acquisitions,
            conflicts: self.locks.conflicts - before.locks.conflicts,
        };
        Cost { locks, atomics: self.atomics - before.atomics }
    }
}

/// A space that threads map in.
pub trait Stage: Sync {
    /// Handle by which one thread maps and unmaps.
    type Caller<'a>: Caller
    where
        Self: 'a;

    /// Returns the caller of the CPU of this rank.
    fn caller(&self, rank: usize) -> Self::Caller<'_>;

    /// Returns the cost of the space so far, by its own count; `unmaps` mappings have ended.
    fn cost(&self, unmaps: u64) -> Cost;
}

/// One CPU's way to map and to end mappings.
pub trait Caller {
    /// Token by which the caller ends a mapping.
    type Area: Copy;

    /// Maps `pages` pages at one place.
    fn map(&mut self, pages: u32) -> Option<Self::Area>;

    /// Ends a mapping; returns false if it is refused.
    fn unmap(&mut self, area: Self::Area) -> bool;
}

thread_local! {
    // Each thread counts for itself: a common counter would be what two threads fight for.
    static INSTALLED: Cell<u64> = const { Cell::new(0) };
    static CLEARED: Cell<u64> = const { Cell::new(0) };
}

/// A mapper that counts pages in place of mapping them. A flush has completed when it returns. It has its cache lines
/// for itself: the space that owns it keeps beside it what every call reads.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counting {
    flushes: AtomicU64,
}

impl Counting {
    /// Returns the pages that this thread has had installed and cleared in its life.
    #[must_use]
    pub fn pages() -> (u64, u64) {
        (INSTALLED.get(), CLEARED.get())
    }
}

impl Mapper for Counting {
    type Context = ();
    type Error = Infallible;

    #[inline]
    fn install(&self, area: RamArea, _context: &()) -> Result<(), Infallible> {
        INSTALLED.set(INSTALLED.get() + area.pages.get());
        Ok(())
    }

    #[inline]
    fn clear(&self, area: Span) {
        CLEARED.set(CLEARED.get() + area.len());
    }

    fn flush(&self, _ranges: &[Span]) -> Epoch {
        Epoch(self.flushes.fetch_add(1, Ordering::AcqRel) + 1)
    }

    #[inline]
    fn completed(&self) -> Epoch {
        Epoch(self.flushes.load(Ordering::Acquire))
    }
}

/// nofrag's space over the counting mapper.
pub type Space = VmapSpace<Counting>;

fn all_pages() -> Span {
    Span::sized(1 << 20, PAGES).expect("the space is not empty")
}

/// Makes a space with blocks like those of Linux, in which who frees flushes when much waits for it.
fn space_of(preset: &str, cpus: u32) -> Space {
    let mut policy = VmapPolicy::preset(preset).expect("the preset exists").policy;
    policy.blocks.geometry = BlockGeometry::LINUX_64;
    policy.drain = Drain::ByFreer;
    let cpus = CpuSet::first(cpus).expect("there is memory for a few CPUs");
    let config = VmapConfig { span: all_pages(), cpus, policy };
    VmapSpace::new(config, Counting::default(), ()).expect("a preset's policy is sound")
}

fn cpu_of(space: &Space, rank: usize) -> CpuId {
    space.cpus().by_rank(rank).expect("the space has a CPU for each thread")
}

/// Returns the cost that the space counted, and what it does not count: ours ends a mapping by a compare-exchange.
fn cost_of(space: &Space, unmaps: u64) -> Cost {
    let counters = space.counters();
    let exchanges = match space.policy().blocks.index {
        BlockIndex::Direct => unmaps,
        _ => 0,
    };
    Cost { locks: counters.locks.total(), atomics: counters.atomic_updates + exchanges }
}

/// A preset of nofrag, each call by itself.
#[derive(Debug)]
pub struct ByCall(Space);

impl ByCall {
    /// Makes a space under this preset.
    #[must_use]
    pub fn new(preset: &str, cpus: u32) -> ByCall {
        ByCall(space_of(preset, cpus))
    }
}

impl Stage for ByCall {
    type Caller<'a> = (&'a Space, CpuId);

    fn caller(&self, rank: usize) -> (&Space, CpuId) {
        (&self.0, cpu_of(&self.0, rank))
    }

    fn cost(&self, unmaps: u64) -> Cost {
        cost_of(&self.0, unmaps)
    }
}

impl Caller for (&Space, CpuId) {
    type Area = RamArea;

    #[inline]
    fn map(&mut self, pages: u32) -> Option<RamArea> {
        self.0.map_ram(self.1, u64::from(pages), &()).ok()
    }

    #[inline]
    fn unmap(&mut self, area: RamArea) -> bool {
        self.0.unmap_ram(self.1, area).is_ok()
    }
}

/// A preset of nofrag by handles, each of which holds its CPU throughout.
#[derive(Debug)]
pub struct ByHandle(Space);

impl ByHandle {
    /// Makes a space under this preset.
    #[must_use]
    pub fn new(preset: &str, cpus: u32) -> ByHandle {
        ByHandle(space_of(preset, cpus))
    }
}

impl Stage for ByHandle {
    type Caller<'a> = CpuHandle<'a, Counting>;

    fn caller(&self, rank: usize) -> CpuHandle<'_, Counting> {
        self.0.cpu(cpu_of(&self.0, rank)).expect("each CPU has one caller at a time")
    }

    fn cost(&self, unmaps: u64) -> Cost {
        cost_of(&self.0, unmaps)
    }
}

impl Caller for CpuHandle<'_, Counting> {
    type Area = RamArea;

    #[inline]
    fn map(&mut self, pages: u32) -> Option<RamArea> {
        self.map_ram(u64::from(pages), &()).ok()
    }

    #[inline]
    fn unmap(&mut self, area: RamArea) -> bool {
        self.unmap_ram(area).is_ok()
    }
}

/// The range allocator behind one lock. It hands a range out again without a flush between, so it does less for a
/// mapping than the others do.
#[derive(Debug)]
pub struct Behind {
    held: Mutex<Held>,
    mapper: Counting,
}

#[derive(Debug)]
struct Held {
    ranges: RangeAllocator,
    cost: LockCounters,
}

impl Behind {
    /// Makes an allocator of all pages, behind the lock.
    #[must_use]
    pub fn new(_cpus: u32) -> Behind {
        let config = Config { index: Index::WideBlocks, size_index: false, ..Config::default() };
        let mut ranges = RangeAllocator::new(config);
        ranges.add_span(all_pages()).expect("an empty allocator accepts its first span");
        let held = Held { ranges, cost: LockCounters::default() };
        Behind { held: Mutex::new(held), mapper: Counting::default() }
    }

    /// Takes the lock, and counts as nofrag's own locks do.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Held> {
        let (mut held, conflicts) = match self.held.try_lock() {
            Ok(held) => (held, 0),
            Err(TryLockError::Poisoned(held)) => (held.into_inner(), 0),
            Err(TryLockError::WouldBlock) => {
                (self.held.lock().unwrap_or_else(PoisonError::into_inner), 1)
            }
        };
        held.cost.acquisitions += 1;
        held.cost.conflicts += conflicts;
        held
    }
}

impl Stage for Behind {
    type Caller<'a> = &'a Behind;

    fn caller(&self, _rank: usize) -> &Behind {
        self
    }

    fn cost(&self, _unmaps: u64) -> Cost {
        Cost { locks: self.lock().cost, atomics: 0 }
    }
}

impl Caller for &Behind {
    type Area = Span;

    #[inline]
    fn map(&mut self, pages: u32) -> Option<Span> {
        let request = Request::new(u64::from(pages)).fit(Fit::Lowest);
        let span = self.lock().ranges.alloc(&request).ok()?;
        let area = RamArea { start: Vpn(span.start()), pages: PageCount(span.len()) };
        self.mapper.install(area, &()).ok().map(|()| span)
    }

    #[inline]
    fn unmap(&mut self, span: Span) -> bool {
        self.mapper.clear(span);
        self.lock().ranges.free(span).is_ok()
    }
}
