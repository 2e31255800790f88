//! The arena over simulated memory: blocks made of chunks, where nothing is purged in place.

use std::sync::Arc;
use std::time::Duration;

use nofrag_backing::arena::{
    Arena, ArenaError, Budget, Clock, Config, FreeError, Owners, Purge, ReserveError, ResizeError,
    Run,
};
use nofrag_backing::backend::{Backend, BackendError, Caps, Geometry};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::io::Errno;

use super::ghosts::{SimCall, Simulated};
use super::{A, Z, check_laws};

const BLOCK: u64 = 4 << 20;
const PAGE: u64 = 64 << 10;
const OWNERS: u32 = 3;

/// Capabilities for purges in place, with the whole arena in one mapping.
const IN_PLACE: Caps = Caps::PURGE_IN_PLACE.with(Caps::SUBRANGE_MAP).with(Caps::PARTIAL_UNMAP);
/// Capabilities for memory that comes and goes by whole mappings.
const CHUNKS: Caps = Caps::NONE;

const REFUSED: BackendError = BackendError::System(Errno::NOMEM);

fn config<B: Backend>(backing: B) -> Config<B> {
    let (owners, after) = (Owners::Count(OWNERS), Duration::from_millis(100));
    let (purge, clock) = (Purge::Decay { after }, Clock::Caller);
    Config { page: PAGE, owners, purge, clock, ..Config::over(backing) }
}

type Ghosts = Arena<Arc<Simulated>>;

fn in_chunks(blocks: u64) -> (Arc<Simulated>, Ghosts) {
    let backing = simulated(CHUNKS);
    let arena = Arena::reserve(blocks * BLOCK, config(Arc::clone(&backing))).unwrap();
    (backing, arena)
}

fn touch(backing: &Simulated, run: Run) {
    backing.touch(run.va(), u64::from(run.pages()) * PAGE).expect("a run is mapped");
}

#[test]
fn memory_that_is_not_cleared_is_refused() {
    let backing = Simulated::new(geometry(IN_PLACE)).unwrap();
    let refused = Arena::reserve(BLOCK, config(backing)).unwrap_err();
    assert_eq!(refused, ReserveError::NotZeroed);
}

/// Refuses calls of each kind for a while: books stay in order, nothing is lost, and nothing is released twice.
#[test]
fn refusals_leave_the_books_of_chunks_in_order() {
    for call in [SimCall::Create, SimCall::Map, SimCall::Unmap] {
        let (backing, arena) = in_chunks(8);
        for after in 0..3 {
            backing.refuse(call, after, 2, REFUSED);
            let runs: Vec<_> = (0..4).filter_map(|_| arena.alloc(A, 70, 1).ok()).collect();
            runs.iter().for_each(|&run| touch(&backing, run));
            check_laws(&arena);
            runs.iter().for_each(|&run| arena.free(run).unwrap());
            arena.purge(Budget::ALL);
            check_laws(&arena);
            backing.allow_all();
            // Refused calls are made the next time: owners take their blocks back and give them up again.
            for _ in 0..3 {
                arena.purge(Budget::ALL);
            }
            let stats = arena.stats();
            let left = (backing.pages_held(), stats.mappings, stats.live);
            assert_eq!(left, (0, 0, 0), "{call:?} {after}");
        }
        drop(arena);
        assert_eq!(backing.areas(), 0);
        backing.check();
    }
}

/// A run that could grow but gets no memory is refused with the backend's error, not for want of room.
#[test]
fn a_run_that_gets_no_memory_to_grow_is_told_why() {
    let (backing, arena) = in_chunks(8);
    let run = arena.alloc(A, 64, 1).unwrap();
    backing.refuse(SimCall::Create, 0, 1, REFUSED);
    assert_eq!(arena.resize(run, 100), Err(ResizeError::Backend(REFUSED)));
    check_laws(&arena);
    assert_eq!(arena.resize(run, 513), Err(ResizeError::NoRoom { most: 512 }));
    assert_eq!(arena.resize(run, 100).unwrap().pages(), 100);
    check_laws(&arena);
}

/// A run that was freed while the owner was held cannot be resized, although the free is not collected yet.
#[test]
fn a_run_that_was_freed_does_not_grow_into_what_follows() {
    let (_backing, arena) = in_chunks(4);
    let [_first, run, behind] = [1, 2, 1].map(|pages| arena.alloc(A, pages, 1).unwrap());
    arena.free(behind).unwrap();
    let holder = arena.owner(A).unwrap();
    arena.free(run).unwrap();
    drop(holder);
    assert_eq!(arena.resize(run, 3), Err(ResizeError::Run(FreeError::NotLive)));
    check_laws(&arena);
    assert_eq!(arena.stats().live, 1);
    // Parked or merged, each page is handed out once.
    let (one, three) = (arena.alloc(A, 1, 2).unwrap(), arena.alloc(A, 3, 1).unwrap());
    assert!(one.va() < three.va() || three.va().plus(3 << 16) <= one.va());
    check_laws(&arena);
}

fn geometry(caps: Caps) -> Geometry {
    Geometry {
        granule: 1 << 20,
        recommended: 1 << 20,
        va_align: 1 << 20,
        max_va: 1 << 40,
        caps,
        max_mappings: None,
        vector_max: 64,
    }
}

fn simulated(caps: Caps) -> Arc<Simulated> {
    Arc::new(Simulated::new(geometry(caps | Caps::ZEROED)).unwrap())
}

/// Runs a random trace, with purges in place and with chunks: what is freed and purged has no contents left.
#[test]
fn a_simulated_trace_leaves_nothing() {
    for caps in [IN_PLACE, CHUNKS] {
        let backing = simulated(caps);
        let arena = Arena::reserve(16 * BLOCK, config(Arc::clone(&backing))).unwrap();
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        for _ in 0..20 {
            let runs: Vec<Run> =
                (0..5).map(|_| arena.alloc(A, rng.random_range(1..150), 1).unwrap()).collect();
            runs.iter().for_each(|&run| touch(&backing, run));
            runs.iter().for_each(|&run| arena.free(run).unwrap());
            assert!(backing.pages_held() > 0);
            arena.purge(Budget::ALL);
            assert_eq!(backing.pages_held(), 0);
            check_laws(&arena);
        }
    }
}

/// Uses up the budget of mappings, one for each chunk: a request of another owner is refused, and served after a free.
#[test]
fn the_budget_of_mappings_is_kept() {
    let backing = simulated(CHUNKS);
    let limited = Config { max_mappings: Some(16), ..config(Arc::clone(&backing)) };
    let arena = Arena::reserve(16 * BLOCK, limited).unwrap();
    let runs: Vec<Run> = (0..4).map(|_| arena.alloc(A, 64, 1).unwrap()).collect();
    let refused = arena.alloc(Z, 1, 1).unwrap_err();
    assert_eq!(refused, ArenaError::Backend(BackendError::MappingBudget { budget: 16 }));
    arena.free(runs[3]).unwrap();
    arena.alloc(Z, 1, 1).unwrap();
    // The rest of the reservation is one area.
    assert_eq!((arena.stats().mappings, backing.areas()), (16, 17));
    check_laws(&arena);
}

/// Purges twelve adjacent blocks in one call. When that is refused, all of them stay for the next purge.
/// Source: docs/sources/backing.md#nearcore-16414-batch.
#[test]
fn nearcore_16414_batch() {
    let backing = simulated(IN_PLACE);
    let arena = Arena::reserve(16 * BLOCK, config(Arc::clone(&backing))).unwrap();
    let run = arena.alloc(A, 64 * 12, 1).unwrap();
    backing.touch(run.va(), 12 * BLOCK).unwrap();
    arena.free(run).unwrap();
    backing.refuse(SimCall::Purge, 1, u32::MAX, BackendError::Skipped);
    assert_eq!(arena.purge(Budget::ALL).blocks, 12, "one call, for a second is refused");
    backing.allow_all();
    backing.refuse(SimCall::Purge, 0, 1, BackendError::Skipped);
    let run = arena.alloc(A, 64 * 12, 1).unwrap();
    arena.free(run).unwrap();
    assert_eq!(arena.purge(Budget::ALL).failed, 12);
    assert_eq!(arena.purge(Budget::ALL).blocks, 12);
    check_laws(&arena);
}
