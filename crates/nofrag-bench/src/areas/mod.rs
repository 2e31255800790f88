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
use self::turns::{Samples, State};
use self::verify::Promise;
use crate::contest::{Board, Effort, Named, Outcome, interleave, shielded};
use crate::record::{Group, Measure, Record, Records};
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

/// A contestant of whatever type; its turns are measured where the type is known.
pub trait AreaContestant: Named {
    /// Checks the contestant against a list.
    fn verify(&self, seed: u64) -> Outcome<Samples>;

    /// Measures the times of one round.
    fn cycles(&self, plan: &AreasPlan, effort: &Effort) -> Outcome<Samples>;

    /// Counts the bytes that the contestant holds in a state.
    fn footprint(&self, plan: &AreasPlan, state: State, effort: &Effort) -> Outcome<Samples>;

    /// Counts the steps of searches among areas that never merge.
    fn mix(&self, areas: usize) -> Outcome<Samples>;

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
    fn verify(&self, seed: u64) -> Outcome<Samples> {
        shielded(|| verify::run(&self.make, self.promise, seed))
    }

    fn cycles(&self, plan: &AreasPlan, effort: &Effort) -> Outcome<Samples> {
        shielded(|| turns::round(&self.make, plan, effort))
    }

    fn footprint(&self, plan: &AreasPlan, state: State, effort: &Effort) -> Outcome<Samples> {
        shielded(|| turns::footprint(&self.make, plan, state, effort))
    }

    fn mix(&self, areas: usize) -> Outcome<Samples> {
        shielded(|| mix::run(&self.make, areas))
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

/// Returns the name of the workload of [`AreaContestant::cycles`].
#[must_use]
pub fn cycles_workload(sizes: AreaSizes, live: u32) -> String {
    format!("cycle: {live} areas of {}", sizes.name())
}

/// Returns the name of the workload of [`AreaContestant::footprint`].
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
pub fn run(records: &mut Records, effort: &Effort, seed: u64, progress: &dyn Fn(&str)) {
    let mut contestants = contestants();
    let board = Board::new(records, Group::Areas, verify::WORKLOAD, &contestants);
    interleave(board, &contestants, 1, effort, progress, |who, _| who.verify(seed));
    contestants
        .retain(|who| !records.samples(verify::WORKLOAD, who.name(), Measure::Disjoint).is_empty());
    for sizes in AreaSizes::ALL {
        for live in LIVE {
            run_cycles(records, &contestants, sizes, live, effort, seed, progress);
        }
    }
    let plan = AreasPlan::new(seed, AreaSizes::Small, FOOTPRINT_LIVE, effort);
    for state in State::ALL {
        let board = Board::new(records, Group::Areas, footprint_workload(state), &contestants);
        let turn = |who: &(dyn AreaContestant + 'static), _| who.footprint(&plan, state, effort);
        interleave(board, &contestants, 1, effort, progress, turn);
    }
    let walkers = mix::contestants();
    for areas in mix::AREAS {
        let board = Board::new(records, Group::Areas, mix::workload(areas), &walkers);
        interleave(board, &walkers, 1, effort, progress, |who, _| who.mix(areas));
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
    records: &mut Records,
    contestants: &[Box<dyn AreaContestant>],
    sizes: AreaSizes,
    live: u32,
    effort: &Effort,
    seed: u64,
    progress: &dyn Fn(&str),
) {
    let workload = cycles_workload(sizes, live);
    let rounds = rounds(sizes, live, effort);
    if rounds == 0 {
        return;
    }
    let plan = AreasPlan::new(seed, sizes, live, effort);
    // Building and ageing count as time of the workload, and grow with the areas.
    let per_round = turns::SLOWEST * (plan.live() + plan.ageing.len()) as u32;
    let workload_time = effort.workload + per_round * rounds as u32;
    let effort = &Effort { round: 2 * effort.round, workload: workload_time, ..*effort };
    let board = Board::new(records, Group::Areas, workload.clone(), contestants);
    interleave(board, contestants, rounds, effort, progress, |who, _| who.cycles(&plan, effort));
    if sizes == AreaSizes::Small {
        note_published(records, &workload, live);
    }
    records.add_ratios(&workload, Measure::NsPerCycle, GAP_TREE, Measure::OverNofrag);
    records.add_ratios(&workload, Measure::NsPerCycle, LINUX_TREE, Measure::OverLinuxTree);
}

/// Adds the published times, one for each round of Linux's design here.
fn note_published(records: &mut Records, workload: &str, live: u32) {
    let rounds = records.samples(workload, LINUX_TREE, Measure::NsPerCycle).len();
    let times = PUBLISHED.into_iter().filter_map(|(name, times)| {
        let at = LIVE.into_iter().position(|known| known == live)?;
        Some((name, times[at]))
    });
    records.0.extend(times.map(|(name, ns)| Record {
        group: Group::Areas,
        workload: workload.to_owned(),
        contestant: name.to_owned(),
        measure: Some(Measure::NsPerCycle),
        samples: vec![ns; rounds],
        note: Some("not measured here".to_owned()),
    }));
}
