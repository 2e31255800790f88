//! Small holes below a large request: Linux's `long_busy_list` as address arithmetic.
//!
//! Twice as many pages as holes are allocated one by one and every second one freed. Then 100 pages and 1 page are
//! allocated and freed in turn: a search that walks the holes pays for each, one that knows the largest hole of a
//! subtree does not.

use crate::contest::{Contestant, CpuClock, Effort, Outcome, RangeTurn, Run, Stop, TimeBox};
use crate::peers::{OFFSET, Peer, Space};
use crate::record::{Group, Measure};
use crate::speed::{PAGES, timing};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};

/// Number of holes in the published figures of Linux's `long_busy_list`.
pub const PUBLISHED_HOLES: u32 = 15_000;

/// The numbers of holes over which the time must stay flat.
pub const FLATNESS: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Turns of one round; each is two allocations and two frees.
const TURNS: usize = 25_000;

/// Turns between two looks at the clock.
const BETWEEN_LOOKS: usize = 32;

/// Returns the name of the workload with this many holes.
#[must_use]
pub fn workload(holes: u32) -> String {
    format!("{holes} one-page holes below, 100 and 1 pages")
}

/// Makes the comb: one page allocated, one free, `holes` times. Returns the allocated ones.
///
/// # Errors
/// When the peer refuses or is too slow.
pub fn comb<P: Peer>(peer: &mut P, holes: u32, effort: &Effort) -> Result<Vec<P::Handle>, Stop> {
    let clock = TimeBox::open(effort.setup);
    let asked = 3 * holes as usize;
    let mut handles = Vec::with_capacity(2 * holes as usize);
    for page in 0..2 * holes as usize {
        if page % 1024 == 0 && clock.is_over() {
            return Err(Stop::TooSlow { done: page, asked, limit: clock.limit() });
        }
        handles.push(peer.alloc(1).ok_or(Stop::Refused { after: page })?);
    }
    // Peers differ in the order in which they hand out pages; the comb is made by address.
    handles.sort_by_key(|handle| peer.start(handle));
    let mut kept = Vec::with_capacity(holes as usize);
    for (page, handle) in handles.into_iter().enumerate() {
        if page % 1024 == 0 && clock.is_over() {
            let done = 2 * holes as usize + page / 2;
            return Err(Stop::TooSlow { done, asked, limit: clock.limit() });
        }
        if page % 2 == 1 {
            kept.push(handle);
        } else if !peer.free(handle) {
            return Err(Stop::FreeRefused);
        }
    }
    Ok(kept)
}

/// Takes turns, each of which allocates 100 pages and 1 page and frees both; nothing else is timed.
#[inline(never)]
fn take_turns<P: Peer>(peer: &mut P, turns: usize) -> Result<(), Stop> {
    for turn in 0..turns {
        let large = peer.alloc(100).ok_or(Stop::Refused { after: 4 * turn })?;
        let small = peer.alloc(1).ok_or(Stop::Refused { after: 4 * turn + 1 })?;
        if !(peer.free(large) && peer.free(small)) {
            return Err(Stop::FreeRefused);
        }
    }
    Ok(())
}

/// Runs one round of one contestant.
pub fn round<P: Peer>(make: &impl Fn(Space) -> P, holes: u32, effort: &Effort) -> Outcome {
    let mut peer = make(Space { pages: PAGES, live: holes, shift: 0 });
    comb(&mut peer, holes, effort).map_err(Stop::while_building)?;
    let heap = Region::new(&INSTRUMENTED_SYSTEM);
    let clock = TimeBox::open(effort.round);
    let (mut turns, began) = (0, CpuClock::start());
    while turns < TURNS && !clock.is_over() {
        let some = BETWEEN_LOOKS.min(TURNS - turns);
        take_turns(&mut peer, some)?;
        turns += some;
    }
    Ok(timing(began, &heap, 4 * turns, 4 * TURNS, effort))
}

/// Runs the rounds of all contestants, at the published number of holes and over the range that must be flat.
pub fn run(run: &mut Run<'_>, contestants: &[Box<dyn Contestant>]) {
    let effort = run.effort;
    let flat_rounds = (effort.rounds / 3).max(1);
    let published = [(PUBLISHED_HOLES, effort.rounds)];
    for (holes, rounds) in published.into_iter().chain(FLATNESS.map(|holes| (holes, flat_rounds))) {
        let (workload, rounds) = (workload(holes), (rounds, effort.workload));
        run.contest((Group::LowHoles, &workload), contestants, rounds, |who, _| {
            who.turn(RangeTurn::LowHoles(holes, &effort))
        });
        run.records.add_ratios(&workload, Measure::NsPerOp, OFFSET, Measure::OverOffset);
    }
}
