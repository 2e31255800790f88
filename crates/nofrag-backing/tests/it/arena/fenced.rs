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
