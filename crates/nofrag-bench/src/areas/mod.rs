//! Areas in an address space: one cycle removes an area at random, finds the highest gap that fits, and stores an area
//! of another size there.
//!
//! nofrag's `AddressSpace` against Linux's design of 3.8 to 6.0 in this language, against the same job done with two
//! structures, and against what is published and what one writes ([`spaces`]). Areas never merge, so that their number
//! stays what it is. Each round starts from an empty space, is built and aged by the same operations ([`plan`]), and
//! then timed ([`turns`]); before that everyone is checked against a list ([`verify`]), and those that promise the
//! highest place must agree on every address, at full size too.
//!
//! Beside it: bytes per area and per gap, and what searches look at when areas of four sizes never merge ([`mix`]).
//! Figures that were published for Linux's own trees, on another machine, have rows of their own ([`PUBLISHED`]); their
//! times are told as multiples of what Linux's design reaches here.

pub mod mix;
pub mod plan;
pub mod spaces;
pub mod turns;
pub mod verify;

use self::plan::{AreaSizes, AreasPlan};
use self::spaces::{
    AreaSpace, DbsAllocator, GapTree, Halves, Nofrag, RangeMapGaps, VmAllocator, WINDOW, Walk,
};
use self::turns::State;
use self::verify::Promise;
use crate::contest::{Effort, Named, Outcome, Run, shielded};
use crate::record::{Group, Measure};
use nofrag::mmap::Placement;

/// nofrag's own placement.
pub const OURS: &str = "nofrag TwoEnded";
/// nofrag with exact highest fit.
pub const GAP_TREE: &str = "nofrag GapTree";
/// Linux's gap tree of 3.8 to 6.0, written anew in Rust.
pub const LINUX_TREE: &str = "Linux's gap tree (3.8)";
/// Linux's tree of free ranges and a map of areas.
pub const AUGMENTED: &str = "AugmentedTree + BTreeMap";
/// nofrag's wide blocks of holes and a map of areas.
pub const WIDE: &str = "WideBlocks + BTreeMap";

pub const LIVE: [u32; 3] = [1_000, 100_000, 1_000_000];

/// Areas of the states in which bytes are counted.
const FOOTPRINT_LIVE: u32 = 100_000;

/// Nanoseconds per cycle of Linux's own trees at [`LIVE`] areas of 1 to 16 pages, smallest of three, kernel 6.12's code
/// in user space, on another machine; the gap tree with nodes of 200 bytes.
pub const PUBLISHED: [(&str, [f64; 3]); 2] = [
    ("(published: gap tree, another machine)", [578.0, 2122.0, 5660.0]),
    ("(published: maple tree, another machine)", [1562.0, 2656.0, 5545.0]),
];

/// A turn of a contestant.
#[derive(Clone, Copy, Debug)]
pub enum AreaTurn<'a> {
    /// Is checked against a list.
    Verify { seed: u64 },
    /// The times of one round are measured.
    Cycles(&'a AreasPlan, &'a Effort),
    /// The bytes that it holds in a state are counted.
    Footprint(&'a AreasPlan, State, &'a Effort),
    /// The steps of searches are counted among so many areas that never merge.
    Mix(usize),
}

/// A contestant of whatever type; its turns are measured where the type is known.
pub trait AreaContestant: Named {
    /// Takes a turn.
    fn turn(&self, turn: AreaTurn<'_>) -> Outcome;

    /// Returns the place that the contestant promises.
    fn promise(&self) -> Promise;
}

/// A contestant made by `make` for each turn anew.
pub struct AreaEntry<M> {
    name: &'static str,
    promise: Promise,
    make: M,
}

impl<M> AreaEntry<M> {
    /// Makes a contestant that places somewhere.
    pub fn new(name: &'static str, make: M) -> AreaEntry<M> {
        AreaEntry { name, promise: Promise::Any, make }
    }

    /// Makes a contestant that promises the highest place.
    pub fn highest(name: &'static str, make: M) -> AreaEntry<M> {
        AreaEntry { name, promise: Promise::Highest, make }
    }
}

impl<M> Named for AreaEntry<M> {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl<S: AreaSpace, M: Fn() -> S> AreaContestant for AreaEntry<M> {
    fn turn(&self, turn: AreaTurn<'_>) -> Outcome {
        let make = &self.make;
        shielded(|| match turn {
            AreaTurn::Verify { seed } => verify::run(make, self.promise, seed),
            AreaTurn::Cycles(plan, effort) => turns::round(make, plan, effort),
            AreaTurn::Footprint(plan, state, effort) => turns::footprint(make, plan, state, effort),
            AreaTurn::Mix(areas) => mix::run(make, areas),
        })
    }

    fn promise(&self) -> Promise {
        self.promise
    }
}

/// Makes all contestants, in the order of the tables.
#[must_use]
pub fn contestants() -> Vec<Box<dyn AreaContestant>> {
    vec![
        Box::new(AreaEntry::new(OURS, || Nofrag::new(Placement::TwoEnded))),
        Box::new(AreaEntry::highest(GAP_TREE, || Nofrag::new(Placement::GapTree))),
        Box::new(AreaEntry::highest(LINUX_TREE, || GapTree::new(WINDOW))),
        Box::new(AreaEntry::highest(WIDE, Halves::wide_blocks)),
        Box::new(AreaEntry::highest(AUGMENTED, Halves::augmented_tree)),
        Box::new(AreaEntry::highest("BTreeMap, walked", Walk::default)),
        Box::new(AreaEntry::highest("rangemap 1.8.0 gaps", RangeMapGaps::default)),
        Box::new(AreaEntry::new("vm-allocator 0.1.4", VmAllocator::default)),
        Box::new(AreaEntry::new("dbs-allocator 0.1.1", DbsAllocator::default)),
    ]
}

/// Returns the name of the workload of [`AreaTurn::Cycles`].
#[must_use]
pub fn cycles_workload(sizes: AreaSizes, live: u32) -> String {
    format!("cycle: {live} areas of {}", sizes.name())
}

/// Returns the name of the workload of [`AreaTurn::Footprint`].
#[must_use]
pub fn footprint_workload(state: State) -> String {
    match state {
        State::Fresh => format!("bytes of {FOOTPRINT_LIVE} areas, just mapped"),
        State::Aged => format!("bytes of {FOOTPRINT_LIVE} areas, replaced"),
        State::Comb => format!("bytes of {FOOTPRINT_LIVE} areas of one page, one page apart"),
    }
}

/// Runs all workloads. The time of one cycle includes that of reading the clock twice, which the table of latencies
/// shows.
pub fn run(run: &mut Run<'_>) {
    let (seed, effort) = (run.seed, run.effort);
    let once = (1, effort.workload);
    let mut contestants = contestants();
    run.contest((Group::Areas, verify::WORKLOAD), &contestants, once, |who, _| {
        who.turn(AreaTurn::Verify { seed })
    });
    contestants.retain(|who| run.records.is_right(verify::WORKLOAD, who.name()));
    for (sizes, live) in AreaSizes::ALL.into_iter().flat_map(|it| LIVE.map(|live| (it, live))) {
        run_cycles(run, &contestants, sizes, live);
    }
    let plan = AreasPlan::new(seed, AreaSizes::Small, FOOTPRINT_LIVE, &effort);
    for state in State::ALL {
        run.contest((Group::Areas, &footprint_workload(state)), &contestants, once, |who, _| {
            who.turn(AreaTurn::Footprint(&plan, state, &effort))
        });
    }
    for areas in mix::AREAS {
        let of = (Group::Areas, mix::workload(areas));
        run.contest((of.0, &of.1), &mix::contestants(), once, |who, _| {
            who.turn(AreaTurn::Mix(areas))
        });
    }
}

/// Returns the number of rounds of `live` areas: fewer of sizes that have no target, and of a million areas, whose
/// rounds take long; of both together none in a quick run.
fn rounds(sizes: AreaSizes, live: u32, effort: &Effort) -> usize {
    match (sizes, live) {
        (AreaSizes::Small, 0..1_000_000) => effort.rounds,
        (AreaSizes::Small, _) | (_, 0..1_000_000) => effort.rounds / 3,
        _ => effort.rounds / 4,
    }
}

fn run_cycles(
    run: &mut Run<'_>,
    contestants: &[Box<dyn AreaContestant>],
    sizes: AreaSizes,
    live: u32,
) {
    let effort = run.effort;
    let (workload, rounds) = (cycles_workload(sizes, live), rounds(sizes, live, &effort));
    if rounds == 0 {
        return;
    }
    let plan = AreasPlan::new(run.seed, sizes, live, &effort);
    // Building and ageing count as time of the workload, and grow with the areas.
    let per_round = turns::SLOWEST * (plan.live() + plan.ageing.len()) as u32;
    let limit = effort.workload + per_round * rounds as u32;
    let effort = Effort { round: 2 * effort.round, ..effort };
    run.contest((Group::Areas, &workload), contestants, (rounds, limit), |who, _| {
        who.turn(AreaTurn::Cycles(&plan, &effort))
    });
    if sizes == AreaSizes::Small {
        note_published(run, &workload, live);
    }
    run.records.add_ratios(&workload, Measure::NsPerCycle, GAP_TREE, Measure::OverNofrag);
    run.records.add_ratios(&workload, Measure::NsPerCycle, LINUX_TREE, Measure::OverLinuxTree);
}

/// Adds the published times, one for each round of Linux's design here.
fn note_published(run: &mut Run<'_>, workload: &str, live: u32) {
    let rounds = run.records.samples(workload, LINUX_TREE, Measure::NsPerCycle).len();
    for (name, times) in PUBLISHED {
        if let Some(at) = LIVE.into_iter().position(|known| known == live) {
            let samples = (Measure::NsPerCycle, vec![times[at]; rounds]);
            run.add((Group::Areas, workload), name, samples, Some("not measured here"));
        }
    }
}
