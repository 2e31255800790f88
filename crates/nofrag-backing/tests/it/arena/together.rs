//! Several threads, and signals, in one arena.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use nofrag_backing::arena::{
    Arena, Budget, Clock, Config, FreeError, OwnerId, Owners, Purge, Purger, ResizeError, Run,
};
use nofrag_backing::backend::{Anonymous, Backend};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::pair::Ghosts;
use super::{A, BLOCK, Z, arena_of, check_laws, small, stamp, stamps};

#[test]
fn threads_allocate_free_each_others_runs_and_purge() {
    const THREADS: u32 = 4;
    let after = Duration::from_millis(1);
    let config = Config {
        purge: Purge::Decay { after },
        clock: Clock::System,
        ..small(Anonymous::new(), 2)
    };
    let arena = Arc::new(Arena::reserve(256 * BLOCK, config).unwrap());
    let purger =
        Purger::spawn(Arc::clone(&arena), Duration::from_micros(200), Budget::ALL).unwrap();
    let start = Barrier::new(THREADS as usize);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::sync_channel(64)).unzip();
    thread::scope(|scope| {
        for (id, inbox) in (0..THREADS).zip(receivers) {
            let (arena, start, senders) = (&arena, &start, senders.clone());
            scope.spawn(move || {
                let mut rng = Pcg64Mcg::seed_from_u64(u64::from(id));
                start.wait();
                for number in 0..3000_u64 {
                    let owner = OwnerId(rng.random_range(0..2));
                    let run = arena.alloc(owner, rng.random_range(1..80), 1).unwrap();
                    let mark = u64::from(id + 1) << 32 | number;
                    stamp(arena, run, mark);
                    let to = rng.random_range(0..THREADS) as usize;
                    if senders[to].try_send((run, mark)).is_err() {
                        arena.free(run).unwrap();
                    }
                    while let Ok((run, mark)) = inbox.try_recv() {
                        assert!(stamps(arena, run).iter().all(|&found| found == mark));
                        arena.free(run).unwrap();
                    }
                }
                drop(senders);
                // Runs that are still on their way when their receiver has ended stay live.
                start.wait();
                inbox.try_iter().for_each(|(run, _)| arena.free(run).unwrap());
            });
        }
        drop(senders);
    });
    drop(purger);
    arena.purge(Budget::ALL);
    let stats = arena.stats();
    assert_eq!((stats.live, stats.allocs, stats.frees), (0, 12_000, 12_000));
    assert_eq!((stats.stale_frees, stats.blocks.clean), (0, stats.blocks.total));
    check_laws(&arena);
}

fn check_freed_once<B: Backend>(arena: &Arena<B>, rounds: u32) {
    for _ in 0..rounds {
        let run = arena.alloc(A, 3, 1).unwrap();
        let start = Barrier::new(2);
        let free = || {
            start.wait();
            u64::from(arena.free(run).is_ok())
        };
        let done = thread::scope(|scope| {
            let other = scope.spawn(free);
            free() + other.join().unwrap()
        });
        assert!(done >= 1);
        let first = arena.alloc(A, 3, 1).unwrap();
        let second = arena.alloc(A, 3, 1).unwrap();
        assert_ne!(first.va(), second.va(), "one run handed out twice");
        arena.free(first).unwrap();
        arena.free(second).unwrap();
        check_laws(arena);
    }
    assert_eq!(arena.stats().live, 0);
}

#[test]
fn a_run_that_two_threads_free_is_freed_once() {
    check_freed_once(&arena_of(16, 2), 300);
}

fn check_never_waits<B: Backend>(arena: &Arena<B>) {
    let runs: Vec<_> = (0..100).map(|_| arena.alloc(A, 2, 1).unwrap()).collect();
    let holder = arena.owner(A).unwrap();
    thread::scope(|scope| {
        for half in runs.chunks(50) {
            scope.spawn(move || half.iter().for_each(|&run| arena.free(run).unwrap()));
        }
    });
    assert_eq!(arena.stats().busy_owners, 1);
    drop(holder);
    assert_eq!(arena.stats().live, 0);
    check_laws(arena);
}

#[test]
fn a_free_never_waits_for_a_holder() {
    check_never_waits(&arena_of(16, 2));
}

/// Does the checks of frees by several threads over simulated memory, the only kind that Miri has.
#[test]
fn threads_share_simulated_memory_alike() {
    let (arena, _ghosts) = Ghosts::arena(Purge::Manual);
    check_freed_once(&arena, if cfg!(miri) { 10 } else { 300 });
    check_never_waits(&arena);
}

/// Resizes by a name for a run that is not there yet, while the block goes from one owner to another: a thread that
/// waits for the first owner must not touch its books for a run of the second.
#[test]
fn a_block_that_changes_hands_is_looked_at_again() {
    let arena = arena_of(4, 2);
    let run = arena.alloc(A, 2, 1).unwrap();
    // It is the first run that begins there, and the names of later ones differ by the generation.
    let next = Run::from_parts(run.va(), 2, run.generation() ^ 1 ^ 2).unwrap();
    let mut holder = arena.owner(A).unwrap();
    let begun = Barrier::new(2);
    thread::scope(|scope| {
        let resized = scope.spawn(|| {
            begun.wait();
            arena.resize(next, 1)
        });
        begun.wait();
        // Long enough to ask for the owner and wait for it; a thread that comes later finds the other owner, which is
        // right too.
        thread::sleep(Duration::from_millis(50));
        holder.free(run).unwrap();
        assert_eq!(holder.purge(Budget::ALL).blocks, 1);
        assert_eq!(arena.alloc(Z, 2, 1), Ok(next));
        drop(holder);
        let refused = resized.join().unwrap();
        assert!(
            matches!(refused, Ok(_) | Err(ResizeError::Run(FreeError::NotLive))),
            "{refused:?}"
        );
    });
    check_laws(&arena);
}

static SHARED: AtomicPtr<Arena> = AtomicPtr::new(std::ptr::null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Does the things that a signal handler may do in any interrupted code: holds an owner if it is free, takes a parked
/// run, and leaves it to be freed.
extern "C" fn handler(_: libc::c_int) {
    let arena = SHARED.load(Ordering::Acquire);
    if arena.is_null() {
        return;
    }
    // SAFETY: the test sets the pointer while the arena lives, and takes it away and stops the signals before it ends.
    let arena = unsafe { &*arena };
    if let Ok(mut owner) = arena.owner(Z) {
        // There may be none: a run that was freed here waits until it is collected.
        if let Some(run) = owner.alloc_parked(1, 1) {
            let freed = arena.free_later(run).is_ok() && arena.free_later(run).is_err();
            BROKEN.fetch_or(!freed, Ordering::Relaxed);
            TAKEN.fetch_add(1, Ordering::Relaxed);
        }
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_signal_during_a_call_does_no_harm() {
    let config = Config { owners: Owners::Count(2), ..small(Anonymous::new(), 2) };
    let mut arena = Arena::reserve(64 * BLOCK, config).unwrap();
    // Enough parked runs, so that the handler needs no memory of its own.
    let parked: Vec<_> = (0..8).map(|_| arena.alloc(Z, 1, 1).unwrap()).collect();
    parked.iter().for_each(|&run| arena.free(run).unwrap());
    SHARED.store(&raw mut arena, Ordering::Release);
    // SAFETY: the handler does only what may be done in one, and no other test in this program uses the signal.
    let before = unsafe { libc::signal(libc::SIGUSR2, handler as *const () as usize) };
    let target = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: names the calling thread.
    let thread_id = unsafe { libc::gettid() };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: sends a signal that has a handler to a thread of this process.
                unsafe { libc::syscall(libc::SYS_tgkill, target, thread_id, libc::SIGUSR2) };
                thread::sleep(Duration::from_micros(50));
            }
        });
        for round in 0..20_000_u64 {
            // SAFETY: the arena lives until the end of the test, and is only shared here.
            let arena = unsafe { &*SHARED.load(Ordering::Relaxed) };
            let owner = if round % 2 == 0 { A } else { Z };
            let run = arena.alloc(owner, round % 70 + 1, 1).unwrap();
            stamp(arena, run, round);
            assert!(stamps(arena, run).iter().all(|&found| found == round));
            arena.free(run).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    SHARED.store(std::ptr::null_mut(), Ordering::Release);
    // SAFETY: restores the action from before.
    unsafe { libc::signal(libc::SIGUSR2, before) };
    let [handled, taken] = [&HANDLED, &TAKEN].map(|count| count.load(Ordering::Relaxed));
    println!("{handled} signals handled, {taken} runs taken");
    assert!(!BROKEN.load(Ordering::Relaxed), "a handler was refused");
    assert_eq!(arena.stats().live, 0);
    check_laws(&arena);
}

/// Drops a purger in the hook that its own thread calls before memory goes back. The thread waited for itself then.
#[test]
fn a_purger_may_be_dropped_by_its_own_thread() {
    let after = Duration::ZERO;
    let config = Config {
        purge: Purge::Decay { after },
        clock: Clock::System,
        ..small(Anonymous::new(), 1)
    };
    let mut arena = Arena::reserve(4 * BLOCK, config).unwrap();
    let purger = Arc::new(std::sync::Mutex::new(None::<Purger>));
    let (own, (tell, told)) = (Arc::clone(&purger), mpsc::sync_channel(8));
    arena.on_purge(move |_, _| {
        drop(own.lock().unwrap().take());
        let _ = tell.try_send(());
    });
    let run = arena.alloc(A, 1, 1).unwrap();
    // SAFETY: the run is one page long, and this test's.
    unsafe { arena.pointer(run).write_volatile(1) };
    arena.free(run).unwrap();
    let arena = Arc::new(arena);
    let mut held = purger.lock().unwrap();
    *held = Some(Purger::spawn(arena, Duration::from_millis(1), Budget::ALL).unwrap());
    drop(held);
    told.recv_timeout(Duration::from_secs(60)).expect("it is called, and returns");
    assert!(purger.lock().unwrap().is_none());
}
