//! Costs of moves, and lost writes: with every method, and without any for comparison.
//!
//! A mover lets a run go to and fro between two places of its file while writers count up words of it. Each word has
//! one writer, which remembers its last value: if it reads less, the difference was lost. The ways are measured in
//! turns, many short ones each, so that other work of the machine meets all of them alike; absolute times differ from
//! machine to machine, the ratio to the moves without protection less so.
//!
//! Source: docs/sources/backing.md#moves, #oracle-3.

mod churn;
mod oracles;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

pub use self::churn::{Churn, ChurnPlan, churn};
pub use self::oracles::{
    Filling, References, SharedPage, filling, references_after_a_move, shared_page,
};
use super::handles::HandleError;
use super::live::{Access, LiveArea, LiveError, LiveFile, Reach};
use super::mover::{Fill, Guarding, Method, MoveError, Mover};
use super::pins::Patience;
use super::userfaultfd::{OpenError, RequestError};
use crate::frames::FramesError;
use crate::sys::PAGE;

const WORDS: usize = 1 << (PAGE - 3);

/// Words of a cache line: each writer has lines of its own.
const LINE: usize = 8;

/// Refusals in a row after which a mover gives up.
const REFUSALS: u64 = 1000;

/// Why something could not be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// There is no memory to measure with.
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Move(#[from] MoveError),
    #[error(transparent)]
    Userfaultfd(#[from] OpenError),
    #[error(transparent)]
    Frames(#[from] FramesError),
    #[error(transparent)]
    Handle(#[from] HandleError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the system refused: {0}")]
    System(#[from] Errno),
    /// There are no writers, or more than a page has lines.
    #[error("1 to {most} writers can be measured")]
    Writers { most: usize },
}

/// The ways in which writers are kept away from a run that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Not at all: the control, which loses writes.
    Unprotected,
    Pins,
    WriteProtect,
    /// By userfaultfd, with page tables filled by the move.
    WriteProtectPopulate,
    /// By `mprotect` and a signal handler.
    Mprotect,
}

impl Way {
    /// All ways, the control first.
    pub const ALL: [Way; 5] =
        [Way::Unprotected, Way::Pins, Way::WriteProtect, Way::WriteProtectPopulate, Way::Mprotect];

    /// Returns its name for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Way::Unprotected => "none (control)",
            Way::Pins => "pins",
            Way::WriteProtect => "userfaultfd",
            Way::WriteProtectPopulate => "userfaultfd, populate",
            Way::Mprotect => "mprotect, SIGSEGV",
        }
    }

    /// Returns true if it needs a userfaultfd.
    #[must_use]
    pub const fn needs_userfaultfd(self) -> bool {
        matches!(self, Way::WriteProtect | Way::WriteProtectPopulate)
    }

    const fn guarding(self) -> Guarding {
        match self {
            Way::Unprotected => Guarding::Nothing,
            Way::Pins => Guarding::By(Method::Pins(Patience { looks: 1 << 16 })),
            Way::WriteProtect => Guarding::By(Method::WriteProtect(Fill::OnFault)),
            Way::WriteProtectPopulate => Guarding::By(Method::WriteProtect(Fill::Populate)),
            Way::Mprotect => Guarding::By(Method::Mprotect),
        }
    }
}

/// Plan of a measurement of moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovePlan {
    /// The ways to measure, in turns.
    pub ways: Vec<Way>,
    /// Pages of the run that moves.
    pub pages: u64,
    pub moves: u64,
    /// Threads that write all the time.
    pub writers: usize,
    pub turn: u64,
    /// Time from the end of a move to the start of the next, for writers to write.
    pub pause: Duration,
}

/// Result of one way to keep writers away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoveCosts {
    pub way: Way,
    pub pages: u64,
    pub moves: u64,
    /// Moves that were refused, since a pin was held all the time that the mover waited.
    pub refused: u64,
    pub writes: u64,
    pub lost: u64,
    pub cost: Times,
}

/// Percentiles of some times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Half took at most this time.
    pub median_ns: u64,
    /// 99 of 100 took at most this time.
    pub p99_ns: u64,
    /// 999 of 1000 took at most this time.
    pub p999_ns: u64,
    /// The longest one, which says more about the machine than about the measured operation.
    pub max_ns: u64,
}

impl Times {
    /// Returns the times of samples, which are sorted then; all zero without any.
    #[must_use]
    pub fn of(samples: &mut [u32]) -> Times {
        samples.sort_unstable();
        let Some(last) = samples.len().checked_sub(1) else { return Times::default() };
        let at = |parts: usize| u64::from(samples[last * parts / 1000]);
        Times { median_ns: at(500), p99_ns: at(990), p999_ns: at(999), max_ns: at(1000) }
    }
}

/// Returns the time since `since` in nanoseconds, at most `u32::MAX`, as a sample.
pub(crate) fn nanos(since: Instant) -> u32 {
    u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX)
}

/// Moves a run under writers, as planned.
///
/// # Errors
/// See [`MeasureError`]. A way that this system does not allow fails as a whole: plan without it.
pub fn live_moves(plan: &MovePlan) -> Result<Vec<MoveCosts>, MeasureError> {
    let most = WORDS / LINE;
    if plan.writers == 0 || plan.writers > most {
        return Err(MeasureError::Writers { most });
    }
    let pages = plan.pages;
    let file = LiveFile::new(pages.saturating_mul(4))?;
    let direct = file.map(0, pages, Access::Direct, Reach::Processors)?;
    let pinned = file.map(pages, pages, Access::Pinned, Reach::Processors)?;
    let mut mover = Mover::new();
    let mut turn = |lane: &mut Lane, moves| {
        let area = if lane.way == Way::Pins { &pinned } else { &direct };
        lane.take_turn(&mut mover, area, plan, moves)
    };
    let mut lanes = plan.ways.iter().map(|&way| Lane::new(way)).collect::<Vec<_>>();
    // One turn of each is not counted: the first touch of a page at either place costs more.
    for lane in &mut lanes {
        turn(lane, 2)?;
        *lane = Lane::new(lane.way);
    }
    let mut left = plan.moves;
    while left > 0 {
        let moves = plan.turn.clamp(1, left);
        lanes.iter_mut().try_for_each(|lane| turn(lane, moves))?;
        left -= moves;
    }
    Ok(lanes.into_iter().map(|lane| lane.row(pages)).collect())
}

/// Counts and samples of one way.
struct Lane {
    way: Way,
    moves: u64,
    refused: u64,
    writes: u64,
    lost: u64,
    samples: Vec<u32>,
}

impl Lane {
    fn new(way: Way) -> Lane {
        Lane { way, moves: 0, refused: 0, writes: 0, lost: 0, samples: Vec::new() }
    }

    fn row(mut self, pages: u64) -> MoveCosts {
        let Lane { way, moves, refused, writes, lost, .. } = self;
        MoveCosts { way, pages, moves, refused, writes, lost, cost: Times::of(&mut self.samples) }
    }

    /// Moves the run to and fro `moves` times while writers write, and adds up the counts and samples.
    fn take_turn(
        &mut self,
        mover: &mut Mover,
        area: &LiveArea<'_>,
        plan: &MovePlan,
        moves: u64,
    ) -> Result<(), MeasureError> {
        let stop = AtomicBool::new(false);
        let writing = AtomicUsize::new(0);
        let (moved, written) = thread::scope(|scope| {
            let writer = |index| Writer { area, way: self.way, line: index * LINE };
            let start = |index| {
                let (stop, writing, writer) = (&stop, &writing, writer(index));
                scope.spawn(move || writer.write_until(stop, writing))
            };
            let writers = (0..plan.writers).map(start).collect::<Vec<_>>();
            // Relaxed, all three: they order only the beginning and the end of the turn.
            while writing.load(Ordering::Relaxed) < plan.writers {
                thread::yield_now();
            }
            let moved = self.move_about(mover, area, moves, plan.pause);
            stop.store(true, Ordering::Relaxed);
            let join = |writer: thread::ScopedJoinHandle<'_, Written>| writer.join();
            (moved, writers.into_iter().map(join).collect::<Vec<_>>())
        });
        for written in written {
            let Written { writes, lost } = written.expect("a writer does not panic");
            self.writes += writes;
            self.lost += lost;
        }
        moved
    }

    fn move_about(
        &mut self,
        mover: &mut Mover,
        area: &LiveArea<'_>,
        moves: u64,
        pause: Duration,
    ) -> Result<(), MeasureError> {
        let (run, span) = (0..area.pages(), 2 * area.pages());
        let (mut moved, mut refused) = (0, 0);
        while moved < moves {
            let to = (area.shows(0).expect("the area has pages") + span) % (2 * span);
            let start = Instant::now();
            match mover.move_guarded(area, run.clone(), to, self.way.guarding()) {
                Ok(()) => self.samples.push(nanos(start)),
                Err(MoveError::Pinned(_)) if refused < REFUSALS => {
                    refused += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            moved += 1;
            self.refused += std::mem::take(&mut refused);
            let end = Instant::now();
            while end.elapsed() < pause {
                std::hint::spin_loop();
            }
        }
        self.moves += moved;
        Ok(())
    }
}

struct Writer<'a> {
    area: &'a LiveArea<'a>,
    way: Way,
    /// Index, within each page, of the word that the writer counts up.
    line: usize,
}

struct Written {
    writes: u64,
    lost: u64,
}

impl Writer<'_> {
    /// Counts up its word of each page, page after page, until it is stopped.
    fn write_until(&self, stop: &AtomicBool, writing: &AtomicUsize) -> Written {
        let pages = self.area.pages() as usize;
        let mut last = (0..pages).map(|page| self.on(page, load)).collect::<Vec<_>>();
        let mut written = Written { writes: 0, lost: 0 };
        // Relaxed: it orders nothing.
        while !stop.load(Ordering::Relaxed) {
            for (page, last) in last.iter_mut().enumerate() {
                let found = self.on(page, |word| {
                    let found = load(word);
                    // Relaxed: no other thread writes it; pins and protections order it with moves.
                    word.store(found + 1, Ordering::Relaxed);
                    found
                });
                written.writes += 1;
                written.lost += last.saturating_sub(found);
                *last = found + 1;
            }
            if written.writes == pages as u64 {
                writing.fetch_add(1, Ordering::Relaxed);
            }
        }
        let now = (0..pages).map(|page| self.on(page, load));
        written.lost += now.zip(&last).map(|(now, last)| last.saturating_sub(now)).sum::<u64>();
        written
    }

    /// Passes its word of a page to `act`, under a pin where the area is used so.
    #[inline]
    fn on<T>(&self, page: usize, act: impl FnOnce(&AtomicU64) -> T) -> T {
        let word = page * WORDS + self.line;
        match self.way {
            Way::Pins => act(&self.area.pin().expect("pins are given back at once")[word]),
            _ => act(&self.area.words().expect("the area may be used without pins")[word]),
        }
    }
}

fn load(word: &AtomicU64) -> u64 {
    // Relaxed: no other thread writes it.
    word.load(Ordering::Relaxed)
}
