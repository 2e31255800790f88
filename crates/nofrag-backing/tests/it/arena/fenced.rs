//! Frees that wait for a fence, while somebody holds the owner.

use std::sync::Arc;

use nofrag_backing::arena::{Arena, Budget, FreeError, ResizeError};
use nofrag_backing::backend::{Caps, Simulated};

use super::gpu::{config, simulated};
use super::{A, Z, check_laws};

const BLOCK: u64 = 4 << 20;

fn fenced(blocks: u64) -> (Arc<Simulated>, Arena<Arc<Simulated>>) {
    let backing = simulated(Caps::GRANT_SEPARATE | Caps::QUIESCE_BEFORE_UNMAP);
    let arena = Arena::reserve(blocks * BLOCK, config(Arc::clone(&backing))).unwrap();
    (backing, arena)
}

/// What was freed while the owner was held is not there to be resized, although nobody has taken note of the free yet.
#[test]
fn a_run_that_was_freed_does_not_grow_into_what_follows() {
    let (_backing, arena) = fenced(4);
    let [_first, run, behind] = [1, 2, 1].map(|pages| arena.alloc(A, pages, 1).unwrap());
    arena.free(behind).unwrap();
    let holder = arena.owner(A).unwrap();
    arena.free_after(run, &1).unwrap();
    drop(holder);
    assert_eq!(arena.resize(run, 3), Err(ResizeError::Run(FreeError::NotLive)));
    check_laws(&arena);
    assert_eq!(arena.stats().live, 1);
    // Parked or merged, each page is handed out once.
    let (one, three) = (arena.alloc(A, 1, 2).unwrap(), arena.alloc(A, 3, 1).unwrap());
    assert!(one.va() < three.va() || three.va().plus(3 << 16) <= one.va());
    check_laws(&arena);
}

/// A run of 65 pages is not parked, so after the first free nothing says how long it was.
#[test]
fn a_second_free_with_a_fence_does_no_harm() {
    for pages in [3, 65] {
        let (backing, arena) = fenced(8);
        let run = arena.alloc(A, pages, 1).unwrap();
        let other = arena.alloc(A, 64, 1).unwrap();
        let holder = arena.owner(A).unwrap();
        arena.free_after(run, &1).unwrap();
        arena.free_after(run, &1).unwrap();
        // Behind it in the mail, and not lost with it.
        arena.free_after(other, &1).unwrap();
        drop(holder);
        let stats = arena.stats();
        assert_eq!((stats.live, stats.frees, stats.stale_frees), (0, 2, 1));
        check_laws(&arena);
        // Nobody else's before the fence is ready.
        assert_eq!(arena.purge(Budget::ALL).blocks, 0);
        backing.pass(1);
        arena.purge(Budget::ALL);
        assert_eq!(arena.stats().blocks.clean, 8);
        check_laws(&arena);
    }
}

/// The same without a holder: the second one is refused.
#[test]
fn what_was_freed_with_a_fence_stays_with_its_owner_until_that_is_ready() {
    let (backing, arena) = fenced(3);
    let run = arena.alloc(A, 65, 1).unwrap();
    arena.free_after(run, &5).unwrap();
    assert_eq!(arena.free_after(run, &5), Err(FreeError::NotLive));
    assert!(arena.alloc(Z, 65, 1).is_err());
    let again = arena.alloc(A, 65, 1).unwrap();
    assert_eq!(again.va(), run.va());
    arena.free(again).unwrap();
    backing.pass(5);
    arena.alloc(Z, 65, 1).unwrap();
    check_laws(&arena);
    assert_eq!(backing.misuses(), 0);
}
