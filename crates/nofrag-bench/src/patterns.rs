//! The order in which ranges come and go, and the numbers of which they are made, other than random replacements of
//! pages.
//!
//! One range taken and given back, a stack and a queue begin where [`speed`] does, in a space full of
//! holes; a growing space begins empty. Bytes and sparse numbers are random replacements again, of sizes over many
//! doublings and of ranges that begin 2^32 numbers apart.

use crate::contest::{Contestant, CpuClock, Effort, Outcome, RangeTurn, Run, Stop, TimeBox};
use crate::peers::{OFFSET, Peer, Space};
use crate::record::{Group, Measure};
use crate::speed::{self, PAGES, build, timing};
use crate::trace::{Churn, Replacement, Sizes};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};

/// Live ranges of the patterns that have many.
const LIVE: u32 = 10_000;

/// Ranges that the growing space gets.
const GROWN: usize = 200_000;

/// Ranges that a stack takes before it gives them back.
const DEPTH: usize = 1_000;

/// Numbers of a page in the sparse space, as a base-2 logarithm.
pub const SPARSE_SHIFT: u32 = 32;

/// A way in which ranges come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    OneRange,
    Stack,
    Queue,
    Growing,
    Bytes,
    Sparse,
}

impl Pattern {
    /// All patterns, in the order of the tables.
    pub const ALL: [Pattern; 6] = [
        Pattern::OneRange,
        Pattern::Stack,
        Pattern::Queue,
        Pattern::Growing,
        Pattern::Bytes,
        Pattern::Sparse,
    ];

    /// Returns the name of the workload.
    #[must_use]
    pub fn workload(self) -> &'static str {
        match self {
            Pattern::OneRange => "one range taken and given back, live 10000",
            Pattern::Stack => "a stack of 1000 on top of live 10000",
            Pattern::Queue => "a queue: the oldest of 10000 replaced",
            Pattern::Growing => "growing from empty: 200000 taken, none given back",
            Pattern::Bytes => "bytes: churn 64..65536, live 10000, of 2^31",
            Pattern::Sparse => "sparse: churn 1..64 times 2^32, live 10000",
        }
    }

    fn sizes(self) -> Sizes {
        if self == Pattern::Bytes { Sizes::Bytes } else { Sizes::Uniform }
    }

    fn space(self) -> Space {
        let pages = if self == Pattern::Bytes { 1 << 31 } else { PAGES };
        let shift = if self == Pattern::Sparse { SPARSE_SHIFT } else { 0 };
        Space { pages, live: LIVE, shift }
    }
}

/// A pattern, and the operations that it consists of.
#[derive(Clone, Debug)]
pub struct Plan {
    pattern: Pattern,
    churn: Churn,
}

impl Plan {
    /// Draws the operations of a pattern.
    #[must_use]
    pub fn new(pattern: Pattern, seed: u64, effort: &Effort) -> Plan {
        let all = if pattern == Pattern::Growing { GROWN } else { effort.replacements };
        let churn = Churn::of(pattern.sizes(), seed, LIVE, all);
        Plan { pattern, churn }
    }
}

/// Runs one round of one contestant.
pub fn round<P: Peer>(make: &impl Fn(Space) -> P, plan: &Plan, effort: &Effort) -> Outcome {
    let Plan { pattern, churn } = plan;
    let live = if *pattern == Pattern::Growing { GROWN as u32 } else { LIVE };
    let mut peer = make(Space { live, ..pattern.space() });
    let mut live = match pattern {
        Pattern::Growing => room_for(GROWN, &mut peer)?,
        _ => build(&mut peer, churn, effort).map_err(Stop::while_building)?,
    };
    // One part is one look at the clock.
    let part = if *pattern == Pattern::Stack { DEPTH } else { 64 };
    let each = if *pattern == Pattern::Growing { 1 } else { 2 };
    let all = churn.replacements.len();
    let heap = Region::new(&INSTRUMENTED_SYSTEM);
    let clock = TimeBox::open(effort.round);
    let (mut done, began) = (0, CpuClock::start());
    for part in churn.replacements.chunks(part) {
        if clock.is_over() {
            break;
        }
        match pattern {
            Pattern::OneRange => one_by_one(&mut peer, part)?,
            Pattern::Stack => as_stack(&mut peer, part, &mut live)?,
            Pattern::Queue => as_queue(&mut peer, part, &mut live, done / 2)?,
            Pattern::Growing => grow(&mut peer, part, &mut live)?,
            Pattern::Bytes | Pattern::Sparse => speed::replace(&mut peer, &mut live, part)?,
        }
        done += each * part.len();
    }
    Ok(timing(began, &heap, done, each * all, effort))
}

/// Returns an empty list with room for so many ranges, in memory that has been written to: what is timed is the
/// contestant.
fn room_for<P: Peer>(ranges: usize, peer: &mut P) -> Result<Vec<P::Handle>, Stop> {
    let range = peer.alloc(1).ok_or(Stop::Refused { after: 0 })?;
    let mut room = vec![range; ranges];
    room.clear();
    if peer.free(range) { Ok(room) } else { Err(Stop::FreeRefused) }
}

#[inline(never)]
fn one_by_one<P: Peer>(peer: &mut P, part: &[Replacement]) -> Result<(), Stop> {
    for (after, &Replacement { size, .. }) in part.iter().enumerate() {
        let range = peer.alloc(size).ok_or(Stop::Refused { after: 2 * after })?;
        if !peer.free(range) {
            return Err(Stop::FreeRefused);
        }
    }
    Ok(())
}

#[inline(never)]
fn as_stack<P: Peer>(
    peer: &mut P,
    part: &[Replacement],
    stack: &mut Vec<P::Handle>,
) -> Result<(), Stop> {
    let bottom = stack.len();
    grow(peer, part, stack)?;
    while stack.len() > bottom {
        let top = stack.pop().expect("it is above the bottom");
        if !peer.free(top) {
            return Err(Stop::FreeRefused);
        }
    }
    Ok(())
}

#[inline(never)]
fn as_queue<P: Peer>(
    peer: &mut P,
    part: &[Replacement],
    queue: &mut [P::Handle],
    before: usize,
) -> Result<(), Stop> {
    for (after, &Replacement { size, .. }) in part.iter().enumerate() {
        let oldest = (before + after) % queue.len();
        if !peer.free(queue[oldest]) {
            return Err(Stop::FreeRefused);
        }
        queue[oldest] = peer.alloc(size).ok_or(Stop::Refused { after: 2 * after })?;
    }
    Ok(())
}

#[inline(never)]
fn grow<P: Peer>(
    peer: &mut P,
    part: &[Replacement],
    live: &mut Vec<P::Handle>,
) -> Result<(), Stop> {
    for &Replacement { size, .. } in part {
        live.push(peer.alloc(size).ok_or(Stop::Refused { after: live.len() })?);
    }
    Ok(())
}

/// Runs the rounds of all contestants.
pub fn run(run: &mut Run<'_>, contestants: &[Box<dyn Contestant>]) {
    let effort = run.effort;
    for pattern in Pattern::ALL {
        let plan = Plan::new(pattern, run.seed, &effort);
        let (workload, rounds) = (pattern.workload(), (effort.rounds, effort.workload));
        run.contest((Group::Patterns, workload), contestants, rounds, |who, _| {
            who.turn(RangeTurn::Pattern(&plan, &effort))
        });
        run.records.add_ratios(workload, Measure::NsPerOp, OFFSET, Measure::OverOffset);
    }
}
