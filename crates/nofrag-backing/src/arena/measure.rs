//! What an arena costs beside the system's own mapping and unmapping, measured in one run.
//!
//! [`churn`] is a loop: so many runs are live, each round one of them is freed and another of a
//! random size is allocated and touched. [`steady`] is the same while the number of live runs swings and decay purges
//! what is not needed for a millisecond. [`waves`] is the hardest case for a purge: all runs are allocated, touched and
//! freed, and everything that is idle then is purged before the next wave, so no page is ever reused as it was.
//! [`latency`] times single allocations while another thread makes waves, with purges and without. [`areas`] counts
//! what the kernel keeps for many runs.
//!
//! Each function measures one way; whoever compares calls them in turn, several times, and takes ratios.

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

/// What reserves, for all but [`areas`].
const RESERVED: u64 = 1 << 30;

/// Which pages of a run are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The first.
    First,
    /// Every one.
    All,
}

/// Where runs come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `mmap` and `munmap` for each.
    System,
    /// An arena that is shared: [`Arena::alloc`] and [`Arena::free`].
    Shared,
    /// An owner that is held: [`OwnerHandle`].
    Held,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Runs that are allocated.
    pub runs: u64,
    /// So many of them are live at once.
    pub live: usize,
    /// They have one to so many pages.
    pub most_pages: u64,
    /// What is written.
    pub touch: Touch,
    /// What the sizes are drawn from.
    pub seed: u64,
}

impl Work {
    /// 64 live runs of 1 to 64 pages.
    /// Source: docs/sources/backing.md#strategies.
    #[must_use]
    pub const fn spec(runs: u64, touch: Touch) -> Work {
        Work { runs, live: 64, most_pages: 64, touch, seed: 1 }
    }
}

/// Something could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// There is no arena.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    /// It gave no run.
    #[error(transparent)]
    Alloc(#[from] ArenaError),
    /// It took no run back.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// It has no such owner, or somebody holds it.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// The system gave or took no mapping.
    #[error(transparent)]
    System(#[from] BackendError),
    /// The kernel does not say what areas there are.
    #[error("the areas of this process cannot be read: {0}")]
    Maps(#[from] std::io::Error),
    /// Nothing to measure.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// More than can be noted.
    #[error("there is no memory for a number for each of {runs} runs")]
    Runs {
        /// So many.
        runs: u64,
    },
    /// More threads than are started.
    #[error("{threads} threads were asked for; at most {most} are started")]
    Threads {
        /// So many.
        threads: u32,
        /// At most so many.
        most: u32,
    },
}

/// What it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Nanoseconds of the thread's own processor time for each run; of wall time where there are several threads.
    pub ns: f64,
    /// Calls to the system or the backend, per run.
    pub calls: f64,
    /// Pages that were purged, per run.
    pub purged: f64,
}

/// More threads tell nothing, and the system may refuse to start them.
const MOST_THREADS: u32 = 256;

/// Draws numbers: SplitMix64, whose constants are its own.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ mixed >> 31) * u128::from(bound)) >> 64) as u64
    }
}

/// Something that gives runs.
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
        // SAFETY: without `MAP_FIXED` nothing that exists is replaced.
        let at = unsafe { sys::mmap_anonymous(ptr::null_mut(), bytes, allowed, MapFlags::PRIVATE) };
        let at = at.map_err(BackendError::from)?;
        Ok(((at, bytes), at.cast()))
    }

    #[inline]
    fn put(&mut self, (at, bytes): Self::Piece) -> Result<(), MeasureError> {
        // SAFETY: `get` mapped it, each piece is put back once, and nobody uses it afterwards.
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

/// Writes a word to each page that is wanted.
#[inline]
fn write(first: *mut u8, pages: u64, touch: Touch) {
    let pages = if touch == Touch::First { 1 } else { pages as usize };
    for page in 0..pages {
        let word: *mut u64 = first.wrapping_add(page * PAGE).cast();
        // SAFETY: the page belongs to a run of at least so many pages that a source gave a moment ago, and that is not
        // put back before this ends.
        unsafe { word.write_volatile(page as u64) };
    }
}

/// Processor time that this thread has used.
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

/// Allocates, touches and frees at random while the number of live runs stays the same. What is needed once, such as
/// the first touch of what is parked later, is done before the clock starts.
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

/// Allocates `work.live` runs, touches them, frees them, and has all of it purged by decay before the next wave; each
/// thread for itself. With [`Way::System`] each run is mapped and unmapped instead.
///
/// # Errors
/// See [`MeasureError`].
pub fn waves(way: Way, threads: u32, work: Work) -> Result<Measured, MeasureError> {
    in_threads(way, threads, work, Pattern::Waves)
}

/// Allocates, touches and frees at random while the number of live runs swings between a quarter of `work.live` and all
/// of them, and decay purges what has not been needed for a millisecond; each thread for itself. With [`Way::System`]
/// each run is mapped and unmapped instead.
///
/// # Errors
/// See [`MeasureError`].
pub fn steady(way: Way, threads: u32, work: Work) -> Result<Measured, MeasureError> {
    in_threads(way, threads, work, Pattern::Swing)
}

/// How the number of live runs goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// Up to the top, down to nothing, and then everything idle is purged.
    Waves,
    /// Up and down, while time passes as it does.
    Swing,
}

/// Runs between two steps of the background work.
const RUNS_PER_STEP: u64 = 256;

/// Runs between the turns of a swing.
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

/// Nanoseconds per run, and calls. Processor time of the thread if it is the only one, else wall time.
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

/// The time that steps are told.
struct Clock {
    pattern: Pattern,
    began: Instant,
    steps: u32,
}

impl Clock {
    /// One step in time; or, for waves, as many as make everything idle due: one that ages the bins, one that sees
    /// what is idle, and one when the decay has passed.
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

/// What the other thread does while allocations are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Waves without a purge.
    Waves,
    /// Waves, each purged.
    PurgedWaves,
}

/// Nanoseconds that single allocations took, the clock included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Half of them took less.
    pub median_ns: u64,
    /// All but one of a thousand took less.
    pub p999_ns: u64,
    /// The longest. It says more about the machine than about the arena.
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

/// What the kernel keeps for many live runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    /// Runs that were live.
    pub runs: u64,
    /// Blocks that they lay in.
    pub blocks: u64,
    /// Areas of this process in the arena, as `/proc/self/maps` lists them; one that reaches beyond it counts too.
    pub areas: u64,
    /// Mappings that the arena counts itself.
    pub mappings: u64,
}

/// Allocates so many runs of random sizes, frees every other one, and has the idle blocks purged.
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
