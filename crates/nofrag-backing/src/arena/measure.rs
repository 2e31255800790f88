//! The cost of an arena beside that of the system's own mapping and unmapping, measured in one run.
//!
//! [`churn`] is a loop: a number of runs is live, each round one of them is freed and another of a random size is
//! allocated and touched. [`steady`] is the same while the number of live runs swings and decay purges the runs that
//! were not needed for a millisecond. [`waves`] is the hardest case for a purge: all runs are allocated, touched and
//! freed, and everything that is idle then is purged before the next wave, so no page is ever reused as it was.
//! [`latency`] times single allocations while another thread makes waves, with purges and without. [`areas`] counts the
//! kernel's areas for many runs.
//!
//! Each function measures one way; a comparison calls them in turn, several times, and takes ratios.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags};

use super::{
    Arena, ArenaError, Budget, Config, FreeError, HoldError, OwnerHandle, OwnerId, Owners, Purge,
    ReserveError, Run,
};
use crate::backend::{Anonymous, BackendError};
use crate::maps;
use crate::sys;

const PAGE: usize = 1 << sys::PAGE;

/// Bytes reserved by all but [`areas`].
const RESERVED: u64 = 1 << 30;

/// The pages of a run that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    First,
    All,
}

/// Source of the runs of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `mmap` and `munmap` for each run.
    System,
    /// An arena that is shared: [`Arena::alloc`] and [`Arena::free`].
    Shared,
    /// An owner that is held: [`OwnerHandle`].
    Held,
}

/// The work of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Number of runs to allocate.
    pub runs: u64,
    /// Number of runs that are live at once.
    pub live: usize,
    /// Runs have from one to this many pages.
    pub most_pages: u64,
    pub touch: Touch,
    pub seed: u64,
}

impl Work {
    /// Returns work with 64 live runs of 1 to 64 pages.
    /// Source: docs/sources/backing.md#strategies.
    #[must_use]
    pub const fn spec(runs: u64, touch: Touch) -> Work {
        Work { runs, live: 64, most_pages: 64, touch, seed: 1 }
    }
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    #[error(transparent)]
    Alloc(#[from] ArenaError),
    #[error(transparent)]
    Free(#[from] FreeError),
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error(transparent)]
    System(#[from] BackendError),
    /// The kernel does not list the areas of the process.
    #[error("the areas of this process cannot be read: {0}")]
    Maps(#[from] std::io::Error),
    /// The work has a zero in it, so that there is nothing to measure.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// There is no memory to note a number for each run.
    #[error("there is no memory for a number for each of {runs} runs")]
    Runs { runs: u64 },
    /// More threads than this measures with.
    #[error("{threads} threads were asked for; at most {most} are started")]
    Threads {
        /// Threads that were asked for.
        threads: u32,
        most: u32,
    },
}

/// Costs per run of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Nanoseconds of the thread's own processor time for each run; of wall time with several threads.
    pub ns: f64,
    /// Calls to the system or the backend, per run.
    pub calls: f64,
    pub purged: f64,
}

/// The most threads: more tell nothing, and the system may refuse to start them.
const MOST_THREADS: u32 = 256;

/// A generator of random numbers: SplitMix64, with the constants of that generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ mixed >> 31) * u128::from(bound)) >> 64) as u64
    }
}

trait Source {
    type Piece: Copy;

    fn get(&mut self, pages: u64) -> Result<(Self::Piece, *mut u8), MeasureError>;
    fn put(&mut self, piece: Self::Piece) -> Result<(), MeasureError>;
}

struct System;

impl Source for System {
    type Piece = (*mut c_void, usize);

    #[inline]
    fn get(&mut self, pages: u64) -> Result<(Self::Piece, *mut u8), MeasureError> {
        let bytes = (pages as usize).checked_mul(PAGE).ok_or(BackendError::Misfit)?;
        let allowed = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without `MAP_FIXED` no mapping that exists is replaced.
        let at = unsafe { sys::mmap_anonymous(ptr::null_mut(), bytes, allowed, MapFlags::PRIVATE) };
        let at = at.map_err(BackendError::from)?;
        Ok(((at, bytes), at.cast()))
    }

    #[inline]
    fn put(&mut self, (at, bytes): Self::Piece) -> Result<(), MeasureError> {
        // SAFETY: `get` mapped it, each piece is put back once, and it is not used afterwards.
        Ok(unsafe { sys::munmap(at, bytes) }.map_err(BackendError::from)?)
    }
}

struct Shared<'a>(&'a Arena, OwnerId);

impl Source for Shared<'_> {
    type Piece = Run;

    #[inline]
    fn get(&mut self, pages: u64) -> Result<(Run, *mut u8), MeasureError> {
        let run = self.0.alloc(self.1, pages, 1)?;
        Ok((run, self.0.pointer(run)))
    }

    #[inline]
    fn put(&mut self, run: Run) -> Result<(), MeasureError> {
        Ok(self.0.free(run)?)
    }
}

struct Held<'a>(&'a Arena, OwnerHandle<'a, Anonymous>);

impl Source for Held<'_> {
    type Piece = Run;

    #[inline]
    fn get(&mut self, pages: u64) -> Result<(Run, *mut u8), MeasureError> {
        let run = self.1.alloc(pages, 1)?;
        Ok((run, self.0.pointer(run)))
    }

    #[inline]
    fn put(&mut self, run: Run) -> Result<(), MeasureError> {
        Ok(self.1.free(run)?)
    }
}

/// Writes a word to the first page or to every page.
#[inline]
fn write(first: *mut u8, pages: u64, touch: Touch) {
    let pages = if touch == Touch::First { 1 } else { pages as usize };
    for page in 0..pages {
        let word: *mut u64 = first.wrapping_add(page * PAGE).cast();
        // SAFETY: the page belongs to a run of at least `pages` pages that a source gave a moment ago, and that is not
        // put back before this ends.
        unsafe { word.write_volatile(page as u64) };
    }
}

/// Returns the processor time that this thread has used.
fn thread_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and `now` is where the answer goes.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn check(work: Work) -> Result<(), MeasureError> {
    let Work { runs, live, most_pages, .. } = work;
    match live == 0 || runs == 0 || most_pages == 0 {
        true => Err(MeasureError::Zero("the number of runs, live ones and pages")),
        false => Ok(()),
    }
}

fn arena_of(owners: u32) -> Result<Arena, MeasureError> {
    let owners = Owners::Count(owners);
    Ok(Arena::reserve(RESERVED, Config { owners, purge: Purge::Manual, ..Config::default() })?)
}

/// Allocates, touches and frees at random while the number of live runs stays the same. Work that is needed once, such
/// as the first touch of pages that are parked later, is done before the clock starts.
///
/// # Errors
/// See [`MeasureError`].
pub fn churn(way: Way, work: Work) -> Result<Measured, MeasureError> {
    let arena = arena_of(1)?;
    let mut measured = match way {
        Way::System => churn_in(&mut System, work)?,
        Way::Shared => churn_in(&mut Shared(&arena, OwnerId(0)), work)?,
        Way::Held => churn_in(&mut Held(&arena, arena.owner(OwnerId(0))?), work)?,
    };
    measured.purged = arena.stats().purged as f64 / work.runs as f64;
    Ok(measured)
}

fn churn_in<S: Source>(source: &mut S, work: Work) -> Result<Measured, MeasureError> {
    check(work)?;
    let Work { runs, live, most_pages, touch, seed } = work;
    let mut random = Random(seed);
    let mut pieces = Vec::new();
    for _ in 0..live {
        let pages = random.below(most_pages) + 1;
        let (piece, first) = source.get(pages)?;
        write(first, pages, Touch::All);
        pieces.push(piece);
    }
    let mut rounds = |source: &mut S, count: u64, touch| -> Result<(), MeasureError> {
        for _ in 0..count {
            let at = random.below(live as u64) as usize;
            source.put(pieces[at])?;
            let pages = random.below(most_pages) + 1;
            let (piece, first) = source.get(pages)?;
            write(first, pages, touch);
            pieces[at] = black_box(piece);
        }
        Ok(())
    };
    rounds(source, runs / 4, Touch::All)?;
    let (made, began) = (crate::faults::made(), thread_time());
    rounds(source, runs, touch)?;
    let taken = thread_time().saturating_sub(began);
    let calls = crate::faults::made().since(&made).total();
    for piece in pieces {
        source.put(piece)?;
    }
    let per_run = |total: f64| total / runs as f64;
    Ok(Measured { ns: per_run(taken.as_nanos() as f64), calls: per_run(calls as f64), purged: 0.0 })
}

/// Allocates `work.live` runs, touches them, frees them, and has all of them purged by decay before the next wave; each
/// thread on its own. With [`Way::System`] each run is mapped and unmapped instead.
///
/// # Errors
/// See [`MeasureError`].
pub fn waves(way: Way, threads: u32, work: Work) -> Result<Measured, MeasureError> {
    in_threads(way, threads, work, Pattern::Waves)
}

/// Allocates, touches and frees at random while the number of live runs swings between a quarter of `work.live` and all
/// of them, and decay purges the runs that have not been needed for a millisecond; each thread on its own. With
/// [`Way::System`] each run is mapped and unmapped instead.
///
/// # Errors
/// See [`MeasureError`].
pub fn steady(way: Way, threads: u32, work: Work) -> Result<Measured, MeasureError> {
    in_threads(way, threads, work, Pattern::Swing)
}

/// Course of the number of live runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// Up to the most, down to zero, and then everything idle is purged.
    Waves,
    /// Up and down in real time.
    Swing,
}

/// Number of runs between two steps of the background work.
const RUNS_PER_STEP: u64 = 256;

/// Number of runs between the turns of a swing.
const RUNS_PER_SWING: u64 = 8192;

fn in_threads(
    way: Way,
    threads: u32,
    work: Work,
    pattern: Pattern,
) -> Result<Measured, MeasureError> {
    check(work)?;
    let runs = work.runs;
    if threads == 0 {
        return Err(MeasureError::Zero("the number of threads"));
    }
    if threads > MOST_THREADS {
        return Err(MeasureError::Threads { threads, most: MOST_THREADS });
    }
    let after = Duration::from_millis(1);
    let config = Config { owners: Owners::Count(threads), ..Config::default() };
    let arena = Arena::reserve(RESERVED, Config { purge: Purge::Decay { after }, ..config })?;
    let start = Barrier::new(threads as usize);
    let results: Vec<Result<(f64, u64), MeasureError>> = std::thread::scope(|scope| {
        let one = |owner| {
            let (arena, start) = (&arena, &start);
            move || one_thread(arena, way, OwnerId(owner), work, pattern, start)
        };
        let running: Vec<_> = (0..threads).map(|owner| scope.spawn(one(owner))).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|result| result.expect("a measuring thread does not panic")).collect()
    });
    let all = runs as f64 * f64::from(threads);
    let mut measured =
        Measured { purged: arena.stats().purged as f64 / all, ..Measured::default() };
    for result in results {
        let (ns, calls) = result?;
        measured.ns += ns / f64::from(threads);
        measured.calls += calls as f64 / all;
    }
    Ok(measured)
}

/// Returns nanoseconds per run, and calls: processor time of the thread if it is the only one, else wall time.
fn one_thread(
    arena: &Arena,
    way: Way,
    owner: OwnerId,
    work: Work,
    pattern: Pattern,
    start: &Barrier,
) -> Result<(f64, u64), MeasureError> {
    start.wait();
    let (made, wall, own) = (crate::faults::made(), Instant::now(), thread_time());
    let mut clock = Clock { pattern, began: wall, steps: 0 };
    match way {
        Way::System => pattern_loop(&mut System, work, pattern, |_| {})?,
        Way::Shared => pattern_loop(&mut Shared(arena, owner), work, pattern, |source| {
            clock.due(|now| source.0.step(now, Budget::ALL).blocks);
        })?,
        Way::Held => {
            pattern_loop(&mut Held(arena, arena.owner(owner)?), work, pattern, |source| {
                clock.due(|now| source.1.step(now, Budget::ALL).blocks);
            })?;
        }
    }
    let (wall, own) = (wall.elapsed(), thread_time().saturating_sub(own));
    let taken = if arena.owners() == 1 { own } else { wall };
    let calls = crate::faults::made().since(&made).total();
    Ok((taken.as_nanos() as f64 / work.runs as f64, calls))
}

/// The clock that steps are given.
struct Clock {
    pattern: Pattern,
    began: Instant,
    steps: u32,
}

impl Clock {
    /// Makes one step at the real time; or, for waves, as many as make everything idle due: one that ages the bins, one
    /// that sees the idle blocks, and one when the decay has passed.
    fn due(&mut self, mut step: impl FnMut(Duration) -> u64) {
        if self.pattern == Pattern::Swing {
            step(self.began.elapsed());
            return;
        }
        for _ in 0..3 {
            self.steps += 1;
            step(Duration::from_secs(1) * self.steps);
        }
    }
}

fn pattern_loop<S: Source>(
    source: &mut S,
    work: Work,
    pattern: Pattern,
    mut step: impl FnMut(&mut S),
) -> Result<(), MeasureError> {
    let Work { runs, live, most_pages, touch, seed } = work;
    let mut random = Random(seed);
    let mut pieces = Vec::new();
    for at in 0..runs {
        let low = (at / RUNS_PER_SWING) % 2 == 1;
        let most = if pattern == Pattern::Swing && low { (live / 4).max(1) } else { live };
        while pieces.len() >= most {
            let at = random.below(pieces.len() as u64) as usize;
            source.put(pieces.swap_remove(at))?;
            if pattern == Pattern::Waves {
                pieces.drain(..).try_for_each(|piece| source.put(piece))?;
                step(source);
            }
        }
        let pages = random.below(most_pages) + 1;
        let (piece, first) = source.get(pages)?;
        write(first, pages, touch);
        pieces.push(black_box(piece));
        if pattern == Pattern::Swing && at % RUNS_PER_STEP == 0 {
            step(source);
        }
    }
    pieces.into_iter().try_for_each(|piece| source.put(piece))
}

/// The other thread's work while allocations are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Waves,
    /// Waves with a purge after each.
    PurgedWaves,
}

/// Nanoseconds taken by single allocations, the clock included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Half of the allocations took less.
    pub median_ns: u64,
    /// All but one of a thousand took less.
    pub p999_ns: u64,
    /// The longest one, which says more about the machine than about the arena.
    pub most_ns: u64,
    /// Pages that were purged meanwhile.
    pub purged: u64,
}

/// Times `work.runs` allocations of a shared arena while another thread makes waves in it.
///
/// # Errors
/// See [`MeasureError`].
pub fn latency(beside: Beside, work: Work) -> Result<Latency, MeasureError> {
    check(work)?;
    let arena = arena_of(2)?;
    let stop = AtomicBool::new(false);
    let (timed, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let wave = Work {
                    runs: (work.live as u64).saturating_add(1),
                    touch: Touch::First,
                    ..work
                };
                pattern_loop(&mut Shared(&arena, OwnerId(1)), wave, Pattern::Waves, |source| {
                    if beside == Beside::PurgedWaves {
                        source.0.purge(Budget::ALL);
                    }
                })?;
            }
            Ok::<(), MeasureError>(())
        });
        let timed = time_allocations(&arena, work);
        stop.store(true, Ordering::Relaxed);
        (timed, other.join().expect("a measuring thread does not panic"))
    });
    other?;
    Ok(Latency { purged: arena.stats().purged, ..timed? })
}

fn time_allocations(arena: &Arena, work: Work) -> Result<Latency, MeasureError> {
    let Work { runs, live, most_pages, touch, seed } = work;
    let (mut random, owner) = (Random(seed), OwnerId(0));
    let (mut pieces, mut times) = (Vec::new(), Vec::new());
    let room = usize::try_from(runs).ok().and_then(|runs| times.try_reserve_exact(runs).ok());
    room.ok_or(MeasureError::Runs { runs })?;
    for _ in 0..runs {
        if pieces.len() == live {
            let at = random.below(live as u64) as usize;
            arena.free(pieces.swap_remove(at))?;
        }
        let pages = random.below(most_pages) + 1;
        let began = Instant::now();
        let run = arena.alloc(owner, pages, 1)?;
        times.push(began.elapsed().as_nanos() as u64);
        write(arena.pointer(run), pages, touch);
        pieces.push(run);
    }
    times.sort_unstable();
    let share = |thousandths: usize| times[(times.len() - 1) * thousandths / 1000];
    Ok(Latency { median_ns: share(500), p999_ns: share(999), most_ns: share(1000), purged: 0 })
}

/// The kernel's records of many live runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    pub runs: u64,
    /// Number of blocks in which they lay.
    pub blocks: u64,
    /// Number of areas of this process in the arena, as `/proc/self/maps` lists them; one that reaches beyond it counts
    /// too.
    pub areas: u64,
    /// Number of mappings that the arena counts itself.
    pub mappings: u64,
}

/// Allocates `runs` runs of random sizes, frees every other one, and has the idle blocks purged.
///
/// # Errors
/// See [`MeasureError`].
pub fn areas(runs: u64, most_pages: u64, seed: u64) -> Result<Areas, MeasureError> {
    if runs == 0 || most_pages == 0 {
        return Err(MeasureError::Zero("the number of runs and pages"));
    }
    let pages = runs.saturating_mul(2).saturating_mul(most_pages);
    let bytes = pages.max(1 << 12).saturating_mul(PAGE as u64);
    let config = Config { owners: Owners::Count(2), purge: Purge::Manual, ..Config::default() };
    let arena = Arena::reserve(bytes, config)?;
    let mut random = Random(seed);
    let mut live = Vec::new();
    for at in 0..2 * runs {
        let owner = OwnerId(random.below(2) as u32);
        let run = arena.alloc(owner, random.below(most_pages) + 1, 1)?;
        if at % 2 == 0 {
            live.push(run);
        } else {
            arena.free(run)?;
        }
    }
    arena.purge(Budget::ALL);
    let (base, end) = (arena.base().0, arena.base().0 + arena.bytes());
    let lines = maps::of_process(rustix::process::getpid())?;
    let inside = lines.iter().filter(|line| line.start < end && base < line.end);
    let stats = arena.stats();
    let blocks = stats.blocks.used + stats.blocks.idle;
    let (areas, mappings) = (inside.count() as u64, stats.mappings);
    Ok(Areas { runs: live.len() as u64, blocks, areas, mappings })
}
