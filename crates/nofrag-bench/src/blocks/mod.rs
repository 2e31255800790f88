//! Small mappings: the cost of a pair of `map_ram` and `unmap_ram`, and the pages that stay pinned.
//!
//! Against the block rules of Linux under nofrag's presets, and against what one writes without blocks: nofrag's range
//! allocator behind a `Mutex`. All drive the same counting mapper ([`stage`]) through the same programs ([`programs`]),
//! in the same interleaved rounds ([`turns`]):
//!
//! * one thread, each program: time on the CPU per pair, over that of nofrag's handle in the same round;
//! * two threads, each on a CPU of its own: time on the wall, since waiting takes no time on a CPU; beside it
//!   locked operations and conflicts, which a noisy host does not change;
//! * what ends a mapping that another CPU made: locks taken, by the space's own counters;
//! * one long-lived mapping in 1,024: pages of blocks per mapped page;
//! * `unmap_aliases` over a hundred thousand blocks: those that it looks at.
//!
//! Every contestant's pairs are checked by the mapper: as many pages are cleared as were installed.

pub mod programs;
pub mod stage;
pub mod turns;

use self::programs::{Program, TIMED};
use self::stage::{Behind, ByCall, ByHandle, Setup, Stage};
use self::turns::{ALIAS_DIRTY, Samples};
use crate::contest::{Board, Effort, Entry, Named, Outcome, interleave, shielded};
use crate::record::{Group, Measure, Records};

/// nofrag, each CPU held by its thread throughout.
pub const HANDLE: &str = "nofrag by handle";
/// nofrag, each call by itself.
pub const CALL: &str = "nofrag by call";
/// The range allocator that one writes without blocks.
pub const BEHIND: &str = "WideBlocks behind a Mutex";

/// A contestant of whatever type; its turns are measured where the type is known.
pub trait BlockContestant: Named {
    /// Times pairs of a mapping and its end by one thread.
    fn pairs(&self, sizes: &[u32], effort: &Effort) -> Outcome<Samples>;

    /// Measures time and costs of one thread's pairs, then of two threads', each on one of `cpus`.
    fn threads(&self, sizes: &[u32], cpus: &[usize], effort: &Effort) -> Outcome<Samples>;

    /// Counts the cost of ending mappings.
    fn unmaps(&self) -> Outcome<Samples>;

    /// Counts the pages that mappings of mixed lifetimes pin.
    fn lifetimes(&self, seed: u64) -> Outcome<Samples>;

    /// Times an alias flush with `dirty` blocks to look at.
    fn aliases(&self, dirty: usize) -> Outcome<Samples>;
}

impl<S: Stage, M: Fn(Setup) -> S> BlockContestant for Entry<M> {
    fn pairs(&self, sizes: &[u32], effort: &Effort) -> Outcome<Samples> {
        shielded(|| turns::pairs(&self.make, sizes, effort))
    }

    fn threads(&self, sizes: &[u32], cpus: &[usize], effort: &Effort) -> Outcome<Samples> {
        shielded(|| turns::threads(&self.make, sizes, cpus, effort))
    }

    fn unmaps(&self) -> Outcome<Samples> {
        shielded(|| turns::unmaps(&self.make))
    }

    fn lifetimes(&self, seed: u64) -> Outcome<Samples> {
        shielded(|| turns::lifetimes(&self.make, seed))
    }

    fn aliases(&self, dirty: usize) -> Outcome<Samples> {
        shielded(|| turns::aliases(&self.make, dirty))
    }
}

/// Makes all contestants, in the order of the tables.
#[must_use]
pub fn contestants() -> Vec<Box<dyn BlockContestant>> {
    let by_call = |preset: &'static str| move |setup: Setup| ByCall::new(preset, setup);
    vec![
        Box::new(Entry::new(HANDLE, |setup: Setup| ByHandle::new("nofrag", setup))),
        Box::new(Entry::new(CALL, by_call("nofrag"))),
        Box::new(Entry::new("linux-4.1", by_call("linux-4.1"))),
        Box::new(Entry::new("linux-6.4", by_call("linux-6.4"))),
        Box::new(Entry::new("linux-6.11", by_call("linux-6.11"))),
        Box::new(Entry::new(BEHIND, Behind::new)),
    ]
}

/// Returns the name of the workload of one thread.
#[must_use]
pub fn pairs_workload(program: Program) -> String {
    format!("{}: pairs of one thread", program.name())
}

/// Returns the name of the workload of two threads.
#[must_use]
pub fn threads_workload(program: Program) -> String {
    format!("{}: pairs of two threads", program.name())
}

/// The workload of [`BlockContestant::unmaps`].
pub const UNMAPS: &str = "ending one page that another CPU mapped";

/// The workload of [`BlockContestant::lifetimes`].
pub const LIFETIMES: &str = "one page, one mapping in 1024 lives long";

/// Returns the name of the workload of [`BlockContestant::aliases`].
#[must_use]
pub fn aliases_workload(dirty: usize) -> String {
    format!("unmap_aliases over 1e5 blocks, {dirty} of them dirty")
}

/// Runs all workloads; two threads run on the first two of `cpus`.
pub fn run(
    records: &mut Records,
    contestants: &[Box<dyn BlockContestant>],
    effort: &Effort,
    seed: u64,
    cpus: &[usize],
    progress: &dyn Fn(&str),
) {
    let mut contest = |workload: String, rounds: usize, turn: &Turn| {
        let board = Board::new(records, Group::Blocks, workload, contestants);
        interleave(board, contestants, rounds, effort, progress, turn);
    };
    for program in TIMED {
        let sizes = program.sizes(seed);
        contest(pairs_workload(program), effort.rounds, &|who, _| who.pairs(&sizes, effort));
    }
    for program in Program::THREADED {
        let sizes = program.sizes(seed);
        let turn: &Turn = &|who, _| who.threads(&sizes, cpus, effort);
        contest(threads_workload(program), effort.rounds, turn);
    }
    contest(UNMAPS.to_owned(), 1, &|who, _| who.unmaps());
    let turn: &Turn = &|who, round| who.lifetimes(seed + round as u64);
    contest(LIFETIMES.to_owned(), effort.seeds, turn);
    for dirty in ALIAS_DIRTY {
        contest(aliases_workload(dirty), effort.seeds, &|who, _| who.aliases(dirty));
    }
    for program in TIMED {
        let workload = pairs_workload(program);
        records.add_ratios(&workload, Measure::NsPerPair, HANDLE, Measure::OverHandle);
    }
}

/// Turn of a contestant in a round.
type Turn<'a> = dyn Fn(&(dyn BlockContestant + 'static), usize) -> Outcome<Samples> + 'a;
