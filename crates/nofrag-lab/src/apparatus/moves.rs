//! Costs of moves, and lost writes: with every method, and without any for comparison.
//!
//! A mover lets a run go to and fro between two places of its file while writers count up words of it. Each word has
//! one writer, which remembers its last value: if it reads less, the difference was lost. The ways are measured in
//! turns, many short ones each, so that other work of the machine meets all of them alike; absolute times differ from
//! machine to machine, the ratio to the moves without protection less so.
//!
//! Source: docs/sources/backing.md#moves, #oracle-3.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nofrag_backing::moving::pins::Patience;
use nofrag_backing::moving::{Access, Fill, LiveArea, LiveFile, Method, MoveError, Mover, Reach};

use super::Trouble;
use crate::stats::{Latencies, Tail};

const WORDS: usize = super::sys::PAGE / size_of::<u64>();

/// Words of a cache line: each writer has lines of its own.
const LINE: usize = 8;

/// Refusals in a row after which a mover gives up.
const REFUSALS: u64 = 1000;

/// The ways in which writers are kept away from a run that moves, by their names in the published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(crate) enum Way {
    /// Not at all: the control, which loses writes.
    #[strum(serialize = "none")]
    Unprotected,
    Pins,
    WriteProtect,
    /// By userfaultfd, with page tables filled by the move.
    #[strum(serialize = "write-protect-populated")]
    WriteProtectPopulate,
    /// By `mprotect` and a signal handler.
    Mprotect,
}

impl Way {
    /// All ways, the control first.
    pub(crate) const ALL: [Way; 5] =
        [Way::Unprotected, Way::Pins, Way::WriteProtect, Way::WriteProtectPopulate, Way::Mprotect];

    /// Returns true if it needs a userfaultfd.
    pub(crate) const fn needs_userfaultfd(self) -> bool {
        matches!(self, Way::WriteProtect | Way::WriteProtectPopulate)
    }

    /// Returns the method of the library; none for the control.
    const fn method(self) -> Option<Method> {
        match self {
            Way::Unprotected => None,
            Way::Pins => Some(Method::Pins(Patience { looks: 1 << 16 })),
            Way::WriteProtect => Some(Method::WriteProtect(Fill::OnFault)),
            Way::WriteProtectPopulate => Some(Method::WriteProtect(Fill::Populate)),
            Way::Mprotect => Some(Method::Mprotect),
        }
    }
}

/// Plan of a measurement of moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MovePlan {
    /// The ways to measure, in turns.
    pub(crate) ways: Vec<Way>,
    /// Pages of the run that moves.
    pub(crate) pages: u64,
    pub(crate) moves: u64,
    /// Threads that write all the time.
    pub(crate) writers: usize,
    pub(crate) turn: u64,
    /// Time from the end of a move to the start of the next, for writers to write.
    pub(crate) pause: Duration,
}

/// Result of one way to keep writers away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MoveCosts {
    pub(crate) way: Way,
    pub(crate) moves: u64,
    /// Moves that were refused, since a pin was held all the time that the mover waited.
    pub(crate) refused: u64,
    pub(crate) writes: u64,
    pub(crate) lost: u64,
    /// Times of the moves.
    pub(crate) cost: Tail,
}

/// Returns the time since `since` in nanoseconds.
pub(super) fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Moves a run under writers, as planned.
///
/// # Errors
/// The system's. A way that it does not allow fails as a whole: plan without it.
///
/// # Panics
/// If there are more writers than a page has lines.
pub(crate) fn live_moves(plan: &MovePlan) -> Result<Vec<MoveCosts>, Trouble> {
    assert!(plan.writers <= WORDS / LINE, "each writer has a line of its own");
    let pages = plan.pages;
    let file = LiveFile::new(4 * pages)?;
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
    Ok(lanes.into_iter().map(Lane::row).collect())
}

/// Counts and samples of one way.
struct Lane {
    way: Way,
    moves: u64,
    refused: u64,
    writes: u64,
    lost: u64,
    times: Latencies,
}

impl Lane {
    fn new(way: Way) -> Lane {
        Lane { way, moves: 0, refused: 0, writes: 0, lost: 0, times: Latencies::default() }
    }

    fn row(self) -> MoveCosts {
        let Lane { way, moves, refused, writes, lost, times } = self;
        let cost = times.tail().expect("a turn has moves");
        MoveCosts { way, moves, refused, writes, lost, cost }
    }

    /// Moves the run to and fro `moves` times while writers write, and adds up the counts and samples.
    fn take_turn(
        &mut self,
        mover: &mut Mover,
        area: &LiveArea<'_>,
        plan: &MovePlan,
        moves: u64,
    ) -> Result<(), Trouble> {
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
    ) -> Result<(), Trouble> {
        let (run, span) = (0..area.pages(), 2 * area.pages());
        let (mut moved, mut refused) = (0, 0);
        while moved < moves {
            let to = (area.shows(0).expect("the area has pages") + span) % (2 * span);
            let start = Instant::now();
            let moving = match self.way.method() {
                Some(method) => mover.move_run(area, run.clone(), to, method),
                None => mover.move_idle(area, run.clone(), to),
            };
            match moving {
                Ok(()) => self.times.record(nanos(start)),
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
