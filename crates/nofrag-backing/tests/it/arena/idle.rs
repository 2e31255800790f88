//! Memory that a program still holds two seconds after it has given everything back, by default.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nofrag_backing::arena::{Arena, Clock, Config, OwnerId, Owners, Purge, Purger};

use super::{A, BLOCK, PAGE, Z, check_laws, small};
use nofrag_backing::backend::Anonymous;

const BYTES: u64 = 64 << 20;

/// Returns the bytes of an arena that are in memory, as the kernel says.
fn resident(arena: &Arena) -> u64 {
    let mut pages = vec![0_u8; arena.bytes() as usize / PAGE];
    let start = std::ptr::with_exposed_provenance_mut(arena.base().0 as usize);
    // SAFETY: the list has a byte for each page of the arena, whose addresses are mapped.
    let said = unsafe { libc::mincore(start, arena.bytes() as usize, pages.as_mut_ptr()) };
    assert_eq!(said, 0, "the addresses are mapped");
    pages.iter().filter(|&&page| page & 1 == 1).count() as u64 * PAGE as u64
}

/// Takes leases of all sizes, writes to them, and drops them.
fn fill_and_drop(arena: &Arena) {
    let leases: Vec<_> = (0..)
        .map_while(|at: u64| {
            let mut lease = arena.lease(arena.here(), at % 80 + 1, 1).ok()?;
            lease.fill(1);
            Some(lease)
        })
        .take(400)
        .collect();
    assert!(resident(arena) > BYTES / 2, "{} bytes", resident(arena));
    drop(leases);
    assert!(resident(arena) > BYTES / 2, "a free gives nothing back");
}

/// Calls `act` for two seconds, and where the machine is busy for as many as ten, until at most `most` bytes are
/// resident.
fn comes_down_to(most: u64, arena: &Arena, mut act: impl FnMut()) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        act();
    }
    println!("{} bytes of {BYTES} are left after 2 s", resident(arena));
    while resident(arena) > most {
        assert!(began.elapsed() < Duration::from_secs(10), "{} bytes are left", resident(arena));
        act();
    }
}

/// The bytes that may stay: the block of the page that goes on being used.
const IN_USE: u64 = 4 << 20;

#[test]
fn a_busy_program_gives_back_what_is_idle() {
    let arena = Arena::reserve(BYTES, Config::default()).unwrap();
    fill_and_drop(&arena);
    comes_down_to(IN_USE, &arena, || {
        arena.lease(A, 1, 1).unwrap()[0] = 1;
        thread::sleep(Duration::from_micros(300));
    });
    check_laws(&arena);
}

#[test]
fn a_program_with_rare_calls_gives_back_what_is_idle() {
    let arena = Arena::reserve(BYTES, Config::default()).unwrap();
    fill_and_drop(&arena);
    comes_down_to(IN_USE, &arena, || {
        arena.lease(A, 1, 1).unwrap()[0] = 1;
        thread::sleep(Duration::from_millis(5));
    });
}

#[test]
fn an_idle_program_with_a_purger_gives_everything_back() {
    let arena = Arc::new(Arena::reserve(BYTES, Config::default()).unwrap());
    let _purger = Purger::start(&arena).unwrap();
    fill_and_drop(&arena);
    comes_down_to(0, &arena, || thread::sleep(Duration::from_millis(5)));
    check_laws(&arena);
}

/// An arena whose time the caller sets: what is due goes back within calls that allocate and free, a few blocks with
/// each, also through a handle, and nothing before it is due.
#[test]
fn a_call_gives_back_a_few_blocks() {
    let after = Duration::from_millis(800);
    let purge = Purge::Decay { after };
    let config = Config { purge, clock: Clock::Caller, ..small(Anonymous::new(), 2) };
    let arena = Arena::reserve(64 * BLOCK, config).unwrap();
    let at = |ms| arena.set_time(Duration::from_millis(ms));
    let clean = || arena.stats().blocks.clean;
    let runs = [(); 40].map(|()| arena.alloc(Z, 64, 1).unwrap());
    let mut handle = arena.owner(A).unwrap();
    let mine = handle.alloc(1, 1).unwrap();
    for run in runs {
        arena.free(run).unwrap();
    }
    let mut purged = Vec::new();
    for ms in (0..2000).step_by(25) {
        at(ms);
        let before = arena.stats().purged;
        let run = handle.alloc(1, 1).unwrap();
        handle.free(run).unwrap();
        purged.push((arena.stats().purged - before) / 64);
    }
    drop(handle);
    arena.free(mine).unwrap();
    let first = purged.iter().position(|&blocks| blocks > 0).unwrap() * 25;
    assert!((800..1200).contains(&first), "the first block goes back after {first} ms");
    assert!(purged.iter().all(|&blocks| blocks <= 8), "{purged:?}");
    assert_eq!((purged.iter().sum::<u64>(), clean()), (40, 63));
    check_laws(&arena);
}

/// Under other policies no time gives anything back.
#[test]
fn time_alone_purges_nothing_where_no_decay_is_asked_for() {
    let config = Config { purge: Purge::Manual, owners: Owners::Count(1), ..Config::default() };
    let arena = Arena::reserve(8 << 22, config).unwrap();
    for _ in 0..1000 {
        arena.free(arena.alloc(OwnerId(0), 1024, 1).unwrap()).unwrap();
    }
    assert_eq!(arena.stats().purged, 0);
}
