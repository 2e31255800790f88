//! An arena under refusals of the system: every call that it makes, made to fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::maps;
use nofrag::check::Check;
use nofrag_backing::arena::{Arena, ArenaError, Budget, Clock, Config, Fork, Purge, ReserveError};
use nofrag_backing::backend::{Anonymous, BackendError, HostMemory, Memfd};
use nofrag_backing::faults::{self, Call, Fault};
use rustix::io::Errno;

use super::{A, BLOCK, Z, arena_of, check_laws, small, stamp, stamps};

/// Checks that a purge that fails leaves the bytes to their owner: no other owner gets the block before one succeeds.
fn check_no_leak<B: HostMemory>(backing: B, purge: Call) {
    let arena = Arena::reserve(2 * BLOCK, small(backing, 2)).unwrap();
    let run = arena.alloc(A, 128, 1).unwrap();
    stamp(&arena, run, 7);
    arena.free(run).unwrap();
    {
        let _refused = faults::inject(
            [Call::Madvise, purge, Call::ProcessMadvise]
                .map(|call| Fault::always(call, Errno::NOMEM)),
        );
        let report = arena.purge(Budget::ALL);
        assert_eq!((report.blocks, report.failed), (0, 2));
        // Even when there is no other block.
        arena.alloc(Z, 1, 1).unwrap_err();
        check_laws(&arena);
    }
    let stats = arena.stats();
    assert_eq!((stats.blocks.quarantined, stats.blocks.clean), (2, 0));
    assert!(stats.failed_purges >= 2);
    // The owner itself may have the run with its contents.
    let again = arena.alloc(A, 128, 1).unwrap();
    assert!(stamps(&arena, again).iter().all(|&stamp| stamp == 7));
    arena.free(again).unwrap();
    check_laws(&arena);
    // After a purge that succeeds any owner may have it.
    let others = arena.alloc(Z, 128, 1).unwrap();
    assert!(stamps(&arena, others).iter().all(|&stamp| stamp == 0));
    assert_eq!(arena.stats().blocks.quarantined, 0);
    check_laws(&arena);
}

/// After a refused purge no owner finds the bytes of another (docs/sources/backing.md#wasmtime-13070-leak).
#[test]
fn wasmtime_13070_leak() {
    check_no_leak(Anonymous::new(), Call::Madvise);
}

#[test]
fn wasmtime_13070_leak_of_shared_memory() {
    match Memfd::new(Default::default()) {
        Ok(memfd) => check_no_leak(memfd, Call::Fallocate),
        Err(why) => println!("skipped: no file in memory: {why}"),
    }
}

/// Counts the areas of this process that lie in a range.
fn areas(base: u64, bytes: u64) -> usize {
    let lines = maps::own();
    lines.iter().filter(|line| line.start < base + bytes && base < line.end).count()
}

#[test]
fn reserving_fails_whole_wherever_it_fails() {
    // Lets one call more through each time, of each kind, until it works.
    for call in [Call::Mmap, Call::Madvise] {
        for after in 0.. {
            let config = || Config { least: Some(4 * BLOCK), ..small(Anonymous::new(), 1) };
            let refused = Fault { call, after, times: 1, error: Errno::PERM };
            let armed = faults::inject([refused]);
            let made = Arena::reserve(4 * BLOCK, config());
            drop(armed);
            match made {
                Err(ReserveError::Backend(BackendError::System(Errno::PERM))) => {}
                Err(why) => panic!("{why}"),
                Ok(arena) => {
                    check_laws(&arena);
                    break;
                }
            }
            assert!(after < 20, "it fails without a reason");
        }
    }
}

#[test]
fn it_asks_halves_and_reports() {
    let refused = Fault { call: Call::Mmap, after: 0, times: 2, error: Errno::NOMEM };
    let armed = faults::inject([refused]);
    let arena = Arena::reserve(64 * BLOCK, small(Anonymous::new(), 1)).unwrap();
    drop(armed);
    assert_eq!((arena.asked(), arena.bytes()), (64 * BLOCK, 16 * BLOCK));
    let _armed = faults::inject([Fault::always(Call::Mmap, Errno::NOMEM)]);
    let config = Config { least: Some(16 * BLOCK), ..small(Anonymous::new(), 1) };
    let refused = Arena::reserve(64 * BLOCK, config).unwrap_err();
    let (asked, least) = (64 * BLOCK, 16 * BLOCK);
    let why = BackendError::System(Errno::NOMEM);
    assert_eq!(refused, ReserveError::NoRoom { asked, least, why });
}

#[test]
fn background_work_survives_refusals() {
    let after = Duration::from_millis(10);
    let (purge, clock) = (Purge::Decay { after }, Clock::Caller);
    let config = Config { purge, clock, ..small(Anonymous::new(), 2) };
    let arena = Arena::reserve(8 * BLOCK, config).unwrap();
    let mut now = Duration::ZERO;
    for error in [Errno::NOMEM, Errno::AGAIN, Errno::INTR, Errno::PERM] {
        let run = arena.alloc(A, 100, 1).unwrap();
        stamp(&arena, run, 3);
        arena.free(run).unwrap();
        let armed = faults::inject(
            [Call::Madvise, Call::ProcessMadvise].map(|call| Fault::always(call, error)),
        );
        for _ in 0..6 {
            now += Duration::from_millis(10);
            arena.set_time(now);
            assert_eq!(arena.step(Budget::ALL).blocks, 0);
            check_laws(&arena);
        }
        drop(armed);
        for _ in 0..3 {
            now += Duration::from_millis(10);
            arena.set_time(now);
            arena.step(Budget::ALL);
        }
        assert_eq!(arena.stats().blocks.clean, 8, "{error}");
    }
}

#[test]
fn an_arena_is_one_area_and_leaves_none() {
    let (base, bytes) = {
        let arena = arena_of(64, 2);
        let runs: Vec<_> = (1..=60).map(|pages| arena.alloc(A, pages, 1).unwrap()).collect();
        runs.iter().step_by(2).for_each(|&run| arena.free(run).unwrap());
        arena.purge(Budget::ALL);
        assert_eq!((areas(arena.base().0, arena.bytes()), arena.stats().mappings), (1, 1));
        (arena.base().0, arena.bytes())
    };
    // Another test may be given the addresses, but not all of them at once.
    assert!((0..100).any(|_| areas(base, bytes) == 0 || areas(base, bytes) > 1));
}

/// A mapping that cannot be removed when the arena ends is emptied, and kept by the backend; nothing panics.
/// Source: docs/sources/backing.md#ocaml-14865-munmap-enomem.
#[test]
fn matrixone_28736_panic() {
    let arena = arena_of(8, 1);
    let run = arena.alloc(A, 100, 1).unwrap();
    stamp(&arena, run, 5);
    let _refused = faults::inject(
        [Call::Munmap, Call::Madvise, Call::Mmap].map(|call| Fault::always(call, Errno::NOMEM)),
    );
    drop(arena);
}

/// A hook that panics stops the purge; the other blocks stay with their owner.
#[test]
fn a_hook_that_panics_loses_no_block() {
    let mut arena = arena_of(8, 2);
    let times = AtomicU32::new(0);
    arena.on_purge(move |_, _| assert!(times.fetch_add(1, Ordering::Relaxed) != 1, "as wanted"));
    // Blocks 0, 1 and 3: the hook is called with two runs of them, and panics at the second.
    let [first, kept, second] = [128, 64, 64].map(|pages| arena.alloc(A, pages, 1).unwrap());
    stamp(&arena, first, 5);
    [first, second].iter().for_each(|&run| arena.free(run).unwrap());
    catch_unwind(AssertUnwindSafe(|| arena.purge(Budget::ALL))).unwrap_err();
    check_laws(&arena);
    assert_eq!(arena.purge(Budget::ALL).blocks, 3);
    arena.free(kept).unwrap();
    arena.purge(Budget::ALL);
    assert_eq!(arena.stats().blocks.clean, 8);
    check_laws(&arena);
}

/// Checks the child of a fork: by default it sees no memory, and it can never allocate, free or purge.
fn check_fork(fork: Fork) {
    let config = Config { fork, ..small(Anonymous::new(), 2) };
    let arena = Arena::reserve(8 * BLOCK, config).unwrap();
    let run = arena.alloc(A, 8, 1).unwrap();
    let idle = arena.alloc(Z, 64, 1).unwrap();
    stamp(&arena, run, 11);
    arena.free(idle).unwrap();
    let mut holder = arena.owner(A).unwrap();
    // SAFETY: the child makes only calls that neither allocate nor take a lock that another thread may hold, and ends
    // without running code of the test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child by a signal, should it wait for the owner that is held.
        unsafe { libc::alarm(10) };
        let forked = |refused: Result<nofrag_backing::arena::Run, ArenaError>| {
            matches!(refused, Err(ArenaError::Forked))
        };
        let refused = holder.alloc(1, 1).is_err()
            && forked(arena.alloc(A, 8, 1))
            && forked(arena.alloc_here(8, 1))
            && arena.lease(A, 8, 1).is_err()
            && arena.stats().busy_owners == 2
            && arena.check().is_ok()
            && holder.free(run).is_err()
            && arena.alloc(Z, 64, 1).is_err()
            && arena.free(run).is_err()
            && arena.free_later(run).is_err()
            && arena.resize(run, 1).is_err()
            && arena.purge(Budget::ALL).blocks == 0
            && arena.step(Budget::ALL).blocks == 0;
        let seen = fork == Fork::Hidden || stamps_in_child(&arena, run);
        // SAFETY: ends the child, with all locks that it holds.
        unsafe { libc::_exit(i32::from(!(refused && seen))) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and `status` is where the answer goes.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    drop(holder);
    assert!(stamps(&arena, run).iter().all(|&stamp| stamp == 11));
    assert_eq!(arena.purge(Budget::ALL).blocks, 1);
    check_laws(&arena);
}

/// Returns true if the first word of the run is the stamp that the parent wrote, without allocating.
fn stamps_in_child<B: HostMemory>(arena: &Arena<B>, run: nofrag_backing::arena::Run) -> bool {
    let first: *const u64 = arena.pointer(run).cast();
    // SAFETY: the child has inherited the run.
    unsafe { first.read_volatile() == 11 }
}

#[test]
fn a_child_can_do_nothing_with_hidden_memory() {
    check_fork(Fork::Hidden);
}

#[test]
fn a_child_can_look_at_inherited_memory() {
    check_fork(Fork::Inherited);
}

#[test]
fn hidden_memory_faults_in_a_child() {
    let arena = arena_of(4, 1);
    let run = arena.alloc(A, 1, 1).unwrap();
    stamp(&arena, run, 1);
    // SAFETY: the child reads one word and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _seen = stamps_in_child(&arena, run);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: as above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV);
}
