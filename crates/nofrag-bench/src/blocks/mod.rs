//! Small mappings: the cost of a pair of `map_ram` and `unmap_ram`, and the pages that stay pinned.
//!
//! Against the block rules of Linux under nofrag's presets, and against what one writes without blocks: nofrag's range
//! allocator behind a `Mutex`. All drive the same counting mapper ([`stage`]) through the same programs ([`programs`]),
//! in the same interleaved rounds ([`turns`]):
//!
//! * one thread, each program: time on the CPU per pair, over that of nofrag's handle in the same round;
//! * two threads, each on a CPU of its own: time on the wall, since waiting takes no time on a CPU; beside it
//!   locked operations and conflicts, which a noisy host does not change;
//! * what ends a mapping that another CPU made: locks taken, by the space's own counters.
//!
//! What long-lived mappings pin, and what an alias flush looks at, `nofrag run vm-map-ram-2015` counts and judges.
//!
//! Every contestant's pairs are checked by the mapper: as many pages are cleared as were installed.

pub mod programs;
pub mod stage;
pub mod turns;

use self::programs::{Program, TIMED};
use self::stage::{Behind, ByCall, ByHandle, Stage};
use crate::contest::{Effort, Entry, Named, Outcome, Run, shielded};
use crate::record::{Group, Measure};

/// nofrag, each CPU held by its thread throughout.
pub const HANDLE: &str = "nofrag by handle";
/// nofrag, each call by itself.
pub const CALL: &str = "nofrag by call";
/// The range allocator that one writes without blocks.
pub const BEHIND: &str = "WideBlocks behind a Mutex";

/// A turn of a contestant.
#[derive(Clone, Copy, Debug)]
pub enum BlockTurn<'a> {
    /// Pairs of a mapping and its end by one thread are timed.
    Pairs { sizes: &'a [u32], effort: &'a Effort },
    /// Time and costs of one thread's pairs, then of two threads', each on one of `cpus`, are measured.
    Threads { sizes: &'a [u32], cpus: &'a [usize], effort: &'a Effort },
    /// The cost of ending mappings is counted.
    Unmaps,
}

/// A contestant of whatever type; its turns are measured where the type is known.
pub trait BlockContestant: Named {
    /// Takes a turn.
    fn turn(&self, turn: BlockTurn<'_>) -> Outcome;
}

impl<S: Stage, M: Fn(u32) -> S> BlockContestant for Entry<M> {
    fn turn(&self, turn: BlockTurn<'_>) -> Outcome {
        let make = &self.make;
        shielded(|| match turn {
            BlockTurn::Pairs { sizes, effort } => turns::pairs(make, sizes, effort),
            BlockTurn::Threads { sizes, cpus, effort } => turns::threads(make, sizes, cpus, effort),
            BlockTurn::Unmaps => turns::unmaps(make),
        })
    }
}

/// Makes all contestants, in the order of the tables.
#[must_use]
pub fn contestants() -> Vec<Box<dyn BlockContestant>> {
    let by_call = |preset: &'static str| move |cpus: u32| ByCall::new(preset, cpus);
    vec![
        Box::new(Entry::new(HANDLE, |cpus: u32| ByHandle::new("nofrag", cpus))),
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

/// The workload of [`BlockTurn::Unmaps`].
pub const UNMAPS: &str = "ending one page that another CPU mapped";

/// Runs all workloads; two threads run on the first two CPUs of the run.
pub fn run(run: &mut Run<'_>) {
    let (effort, cpus, contestants) = (run.effort, run.cpus, contestants());
    let timed = (effort.rounds, effort.workload);
    for program in TIMED {
        let (sizes, workload) = (program.sizes(run.seed), pairs_workload(program));
        run.contest((Group::Blocks, &workload), &contestants, timed, |who, _| {
            who.turn(BlockTurn::Pairs { sizes: &sizes, effort: &effort })
        });
        run.records.add_ratios(&workload, Measure::NsPerPair, HANDLE, Measure::OverHandle);
    }
    for program in Program::THREADED {
        let (sizes, workload) = (program.sizes(run.seed), threads_workload(program));
        run.contest((Group::Blocks, &workload), &contestants, timed, |who, _| {
            who.turn(BlockTurn::Threads { sizes: &sizes, cpus, effort: &effort })
        });
    }
    run.contest((Group::Blocks, UNMAPS), &contestants, (1, effort.workload), |who, _| {
        who.turn(BlockTurn::Unmaps)
    });
}
