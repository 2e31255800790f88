//! Single calls and their results.

use std::time::Duration;

use nofrag_backing::arena::{
    Arena, ArenaError, Budget, Clock, Config, FreeError, HoldError, OwnerId, Owners, Purge,
    ReserveError, ResizeError, Run,
};
use nofrag_backing::backend::{Anonymous, BackendError, Va};
use nofrag_backing::faults;

use super::{A, BLOCK, PAGE, Z, arena_of, check_laws, small, stamp, stamps};

fn shared_by_threads<T: Send + Sync>() {}

#[test]
fn an_arena_and_its_leases_may_be_shared() {
    shared_by_threads::<Arena<Anonymous>>();
    shared_by_threads::<nofrag_backing::arena::Lease<'static, Anonymous>>();
}

#[test]
fn what_was_parked_comes_back_without_a_call() {
    let arena =
        Arena::reserve(64 << 20, Config { owners: Owners::Count(1), ..Config::default() }).unwrap();
    for pages in 1..=64 {
        arena.free(arena.alloc(A, pages, 1).unwrap()).unwrap();
    }
    let before = faults::made();
    for round in 0..1000 {
        let pages = round % 64 + 1;
        let run = arena.alloc(A, pages, 1).unwrap();
        assert_eq!(u64::from(run.pages()), pages);
        arena.free(run).unwrap();
    }
    assert_eq!(faults::made().since(&before).total(), 0);
    check_laws(&arena);
}

#[test]
fn a_free_is_verified() {
    let arena = arena_of(4, 2);
    let run = arena.alloc(A, 3, 1).unwrap();
    let named = |va, pages, generation| Run::from_parts(va, pages, generation).unwrap();
    let longer = named(run.va(), 4, run.generation());
    assert_eq!(arena.free(longer), Err(FreeError::WrongLength { pages: 3 }));
    for bit in 0..56 {
        let other = named(run.va(), 3, run.generation() ^ 1 << bit);
        arena.free(other).unwrap_err();
        arena.resize(other, 2).unwrap_err();
    }
    let inside = named(run.va().plus(PAGE as u64), 2, run.generation());
    assert_eq!(arena.free(inside), Err(FreeError::NotLive));
    let last = (1 << 52) - PAGE as u64;
    for foreign in [0, arena.base().0 - PAGE as u64, arena.base().0 + arena.bytes(), last] {
        let foreign = named(Va(foreign), 3, run.generation());
        assert_eq!(arena.free(foreign), Err(FreeError::Foreign));
    }
    arena.free(run).unwrap();
    assert_eq!(arena.free(run), Err(FreeError::NotLive));
    let again = arena.alloc(A, 3, 1).unwrap();
    assert_eq!((again.va(), arena.free(run)), (run.va(), Err(FreeError::NotLive)));
    arena.free(again).unwrap();
    check_laws(&arena);
}

#[test]
fn a_remote_free_is_verified_and_collected() {
    let arena = arena_of(4, 2);
    let run = arena.alloc(A, 3, 1).unwrap();
    let mut holder = arena.owner(A).unwrap();
    arena.free(run).unwrap();
    assert_eq!(arena.free(run), Err(FreeError::NotLive));
    assert_eq!(holder.free(run), Err(FreeError::NotLive));
    let again = holder.alloc(3, 1).unwrap();
    assert_eq!(again.va(), run.va(), "what others have freed is looked at first");
    drop(holder);
    assert_eq!(arena.stats().stale_frees, 0);
    check_laws(&arena);
}

#[test]
fn a_holder_resizes_and_leases() {
    let arena = arena_of(4, 2);
    let theirs = arena.alloc(Z, 2, 1).unwrap();
    let mut holder = arena.owner(A).unwrap();
    let run = holder.alloc(3, 1).unwrap();
    stamp(&arena, run, 4);
    let longer = holder.resize(run, 80).unwrap();
    assert_eq!((longer.va(), longer.pages()), (run.va(), 80));
    assert_eq!(stamps(&arena, longer)[..6], [4; 6]);
    assert_eq!(holder.resize(run, 1), Err(ResizeError::Run(FreeError::NotLive)));
    assert_eq!(holder.resize(theirs, 1), Err(ResizeError::OtherOwner { owner: Z }));
    let mut lease = holder.lease(2, 1).unwrap();
    lease.fill(9);
    drop(holder);
    assert!(lease.iter().all(|&byte| byte == 9));
    drop(lease);
    [longer, theirs].iter().for_each(|&run| arena.free(run).unwrap());
    assert_eq!(arena.stats().live, 0);
    check_laws(&arena);
}

/// Resizes a run to the most pages that a refusal names: over free pages, parked runs, clean blocks, and own blocks
/// behind these.
#[test]
fn a_run_can_grow_as_far_as_is_said() {
    let arena = arena_of(8, 2);
    let run = arena.alloc(A, 60, 1).unwrap();
    let [parked, _second, third, fourth] =
        [4, 64, 64, 64].map(|pages| arena.alloc(A, pages, 1).unwrap());
    [parked, fourth].iter().for_each(|&run| arena.free(run).unwrap());
    assert_eq!(arena.resize(run, 1 << 40), Err(ResizeError::NoRoom { most: 64 }));
    assert_eq!(arena.resize(run, 65), Err(ResizeError::NoRoom { most: 64 }));
    let refused = arena.resize(third, 7 * 64);
    assert_eq!(refused, Err(ResizeError::NoRoom { most: 6 * 64 }));
    let longest = arena.resize(third, 6 * 64).unwrap();
    check_laws(&arena);
    arena.free(longest).unwrap();
    arena.purge(Budget::ALL);
    check_laws(&arena);
}

#[test]
fn sizes_and_budgets_at_their_limits_are_refused() {
    let huge = 1 << 40;
    let config = Config { page: huge, block: huge, align: huge, ..small(Anonymous::new(), 1) };
    let refused = Arena::reserve(u64::MAX, config).unwrap_err();
    assert!(matches!(refused, ReserveError::BadConfig { what: "the size", .. }), "{refused:?}");
    let config = Config { max_mappings: Some(0), ..small(Anonymous::new(), 1) };
    let refused = Arena::reserve(4 * BLOCK, config).unwrap_err();
    let none = BackendError::MappingBudget { budget: 0 };
    assert_eq!(refused, ReserveError::Backend(none));
    let config = Config { max_mappings: Some(1), ..small(Anonymous::new(), 1) };
    assert_eq!(Arena::reserve(4 * BLOCK, config).unwrap().stats().mappings, 1);
}

#[test]
fn one_holder_at_a_time() {
    let arena = arena_of(4, 2);
    let holder = arena.owner(A).unwrap();
    assert!(matches!(arena.owner(A), Err(HoldError::Busy(_))));
    assert!(matches!(arena.owner(OwnerId(2)), Err(HoldError::UnknownOwner { owners: 2, .. })));
    assert_eq!(arena.owner(Z).unwrap().id(), Z);
    drop(holder);
    assert!(arena.owner(A).is_ok());
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let arena = arena_of(4, 1);
    let refused = |pages, align| arena.alloc(A, pages, align).unwrap_err();
    assert_eq!(refused(0, 1), ArenaError::NoPages);
    assert_eq!(refused(1, 3), ArenaError::AlignNotPowerOfTwo { align: 3 });
    assert_eq!(refused(1, 0), ArenaError::AlignNotPowerOfTwo { align: 0 });
    assert_eq!(refused(1, 128), ArenaError::AlignTooLarge { align: 128, most: 64 });
    assert!(matches!(refused(u64::MAX, 1), ArenaError::Exhausted(_)));
    assert!(matches!(refused(257, 1), ArenaError::Exhausted(why) if why.largest == 256));
    let unknown = arena.alloc(OwnerId(7), 1, 1).unwrap_err();
    assert_eq!(unknown, ArenaError::UnknownOwner { owner: OwnerId(7), owners: 1 });
}

#[test]
fn alignments_hold_in_bins_too() {
    let arena = arena_of(32, 1);
    for round in 0..200_u64 {
        let align = 1 << (round % 7);
        let run = arena.alloc(A, round % 5 + 1, align).unwrap();
        assert!(run.va().0.is_multiple_of(align * PAGE as u64));
        if round % 3 > 0 {
            arena.free(run).unwrap();
        }
    }
    check_laws(&arena);
}

/// Runs parked in sizes that are no longer asked for make room for other sizes, without any purge.
#[test]
fn sizes_that_are_no_longer_asked_for_make_room() {
    let arena = arena_of(256, 1);
    let long: Vec<Run> = (0..90).map(|at| arena.alloc(A, 20 + at % 45, 1).unwrap()).collect();
    long.into_iter().for_each(|run| arena.free(run).unwrap());
    let full = arena.stats().parked;
    assert!((1900..=2048).contains(&full), "{full} of 2048 pages are parked");
    let short: Vec<Run> = (0..300).map(|at| arena.alloc(A, at % 3 + 1, 1).unwrap()).collect();
    short.into_iter().for_each(|run| arena.free(run).unwrap());
    assert!(arena.stats().parked <= 2048);
    check_laws(&arena);
    let mut owner = arena.owner(A).unwrap();
    for pages in 1..=3 {
        let parked = std::iter::from_fn(|| owner.alloc_parked(pages, 1)).count();
        assert!(parked >= 10, "{parked} runs of {pages} pages are parked");
    }
}

#[test]
fn a_long_run_takes_whole_blocks_and_leaves_its_tail() {
    let arena = arena_of(8, 1);
    let long = arena.alloc(A, 65, 1).unwrap();
    assert_eq!(arena.stats().blocks.used, 2);
    let tail = arena.alloc(A, 63, 1).unwrap();
    assert_eq!((tail.va().0 - long.va().0, arena.stats().blocks.used), (65 * PAGE as u64, 2));
    check_laws(&arena);
}

#[test]
fn memory_changes_owners_clean() {
    let arena = arena_of(2, 2);
    let run = arena.alloc(A, 128, 1).unwrap();
    stamp(&arena, run, 7);
    arena.free(run).unwrap();
    // There is no clean block: the idle ones of the other owner are purged.
    let run = arena.alloc(Z, 128, 1).unwrap();
    assert!(stamps(&arena, run).iter().all(|&stamp| stamp == 0));
    assert_eq!(arena.stats().purged, 128);
    check_laws(&arena);
}

#[test]
fn who_holds_what_is_said() {
    let arena = arena_of(2, 2);
    let _live = arena.alloc(A, 100, 1).unwrap();
    let ArenaError::Exhausted(why) = arena.alloc(Z, 30, 1).unwrap_err() else {
        panic!("there is another reason");
    };
    assert_eq!((why.asked, why.clean_blocks, why.owners.len()), (30, 0, 2));
    assert_eq!((why.owners[0].live, why.owners[0].free), (100, 28));
    let held = arena.owner(A).unwrap();
    let ArenaError::Exhausted(why) = arena.alloc(Z, 30, 1).unwrap_err() else {
        panic!("there is another reason");
    };
    assert_eq!(why.busy, [held.id()]);
}

#[test]
fn decay_purges_what_has_been_idle_for_long_enough() {
    let after = Duration::from_millis(100);
    let (purge, clock) = (Purge::Decay { after }, Clock::Caller);
    let config = Config { purge, clock, ..small(Anonymous::new(), 1) };
    let arena = Arena::reserve(8 * BLOCK, config).unwrap();
    let at = |ms| {
        arena.set_time(Duration::from_millis(ms));
        arena.step(Budget::ALL).blocks
    };
    let runs = [0; 2].map(|_| arena.alloc(A, 64, 1).unwrap());
    runs.iter().for_each(|&run| arena.free(run).unwrap());
    assert_eq!((at(1000), at(1050), at(1099)), (0, 0, 0));
    let again = arena.alloc(A, 64, 1).unwrap();
    assert_eq!((at(1100), arena.stats().blocks.clean), (1, 7));
    arena.free(again).unwrap();
    assert_eq!((at(1150), at(1240), at(1250)), (0, 0, 1));
    assert_eq!((arena.stats().purged, arena.stats().dirty), (128, 0));
    check_laws(&arena);
}

#[test]
fn a_budget_bounds_a_step() {
    let arena = arena_of(8, 2);
    let runs = [A, Z].map(|owner| arena.alloc(owner, 192, 1).unwrap());
    runs.iter().for_each(|&run| arena.free(run).unwrap());
    assert_eq!(arena.purge(Budget { blocks: 4 }).blocks, 4);
    assert_eq!(arena.purge(Budget { blocks: 4 }).blocks, 2);
    check_laws(&arena);
}

#[test]
fn above_the_watermark_whoever_frees_purges() {
    let config = Config { purge: Purge::Watermark { pages: 256 }, ..small(Anonymous::new(), 1) };
    let arena = Arena::reserve(32 * BLOCK, config).unwrap();
    let runs: Vec<Run> = (0..16).map(|_| arena.alloc(A, 100, 1).unwrap()).collect();
    for run in runs {
        let purged = arena.stats().purged;
        arena.free(run).unwrap();
        let stats = arena.stats();
        assert!(stats.dirty <= 256 + 100);
        assert!(stats.purged == purged || stats.dirty <= 128, "until half is left: {stats:?}");
    }
    assert!(arena.stats().purged > 1000);
    check_laws(&arena);
}

#[test]
fn a_run_grows_and_shrinks_where_it_is() {
    let arena = arena_of(4, 1);
    let run = arena.alloc(A, 10, 1).unwrap();
    stamp(&arena, run, 9);
    let grown = arena.resize(run, 150).unwrap();
    assert_eq!((grown.va(), grown.pages()), (run.va(), 150));
    assert_eq!(arena.free(run), Err(FreeError::NotLive), "the old value is stale");
    assert!(stamps(&arena, grown)[..20].iter().all(|&stamp| stamp == 9));
    let wall = arena.alloc(A, 1, 1).unwrap();
    assert_eq!(arena.resize(grown, 200), Err(ResizeError::NoRoom { most: 150 }));
    arena.free(wall).unwrap();
    let all = arena.resize(grown, 256).unwrap();
    assert!(matches!(arena.resize(all, 257), Err(ResizeError::NoRoom { most: 256 })));
    assert_eq!(arena.resize(all, 0), Err(ResizeError::NoPages));
    let shrunk = arena.resize(all, 1).unwrap();
    check_laws(&arena);
    arena.free(shrunk).unwrap();
    assert_eq!(arena.purge(Budget::ALL).blocks, 4);
    assert_eq!(arena.stats().blocks.clean, 4);
    check_laws(&arena);
}

#[test]
fn a_lease_is_its_memory_and_nobody_elses() {
    let arena = arena_of(4, 1);
    let mut lease = arena.lease(A, 2, 1).unwrap();
    assert_eq!((lease.len(), lease[PAGE]), (2 * PAGE, 0));
    lease.fill(7);
    for generation in 0..4 {
        // The lease cannot be named without its generation, and with it the free is refused.
        let guess = Run::from_parts(lease.va(), 2, generation).unwrap();
        assert!(arena.free(guess).is_err());
    }
    let second = arena.lease(A, 2, 1).unwrap();
    assert_ne!(second.va(), lease.va());
    drop(lease);
    assert_eq!(arena.stats().live, 2);
    drop(second);
    check_laws(&arena);
}

#[test]
fn what_cannot_be_configured_is_said() {
    let base = || small(Anonymous::new(), 1);
    let refused = |config| Arena::reserve(BLOCK, config).unwrap_err();
    let is_bad = |why| matches!(why, ReserveError::BadConfig { .. });
    assert!(is_bad(refused(Config { block: 3 * PAGE as u64, ..base() })));
    assert!(is_bad(refused(Config { page: 0, ..base() })));
    assert!(is_bad(refused(Config { page: 2 << 10, ..base() })));
    assert!(is_bad(refused(Config { page: 1 << 40, ..base() })));
    assert!(is_bad(refused(Config { align: 100, ..base() })));
    assert!(is_bad(refused(Config { owners: Owners::Count(0), ..base() })));
    assert!(is_bad(Arena::reserve(0, base()).unwrap_err()));
    assert!(is_bad(Arena::reserve(u64::MAX, base()).unwrap_err()));
}

#[test]
fn here_is_some_owner_and_serves() {
    let arena = Arena::reserve(64 << 20, Config::default()).unwrap();
    assert!(arena.here().0 < arena.owners());
    let held: Vec<_> = (0..arena.owners()).map(|id| arena.owner(OwnerId(id)).unwrap()).collect();
    drop(held);
    let run = arena.alloc_here(5, 1).unwrap();
    arena.free(run).unwrap();
    check_laws(&arena);
}
