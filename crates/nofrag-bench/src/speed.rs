//! Random replacements: the time of one allocation or free.
//!
//! The state from which a round is timed is built first: twice the live set is allocated, in 2^24 pages or in more
//! where the set is larger than a hundred thousand, and half of it, chosen at random, freed, so that the space is full
//! of holes that no longer fit each other. Each round repeats this from an empty space with the same operations, which
//! makes rounds comparable: their range is the noise of the host.

use crate::contest::{
    Contestant, CpuClock, Effort, Measured, Outcome, RangeTurn, Run, Stop, TimeBox,
};
use crate::peers::{OFFSET, Peer, Space};
use crate::record::{Group, Measure};
use crate::trace::{Churn, Replacement};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};

/// Pages of the space of the timed workloads.
pub const PAGES: u32 = 1 << 24;

/// Live sets of the timed workloads; a quick run has the first two.
pub const LIVE: [u32; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

/// The live set up to which a round is as long as it is meant to be; the building of larger ones takes longer.
const USUAL: u32 = 100_000;

/// Operations between two looks at the clock.
const BETWEEN_LOOKS: usize = 128;

/// Returns the name of the workload with this live set.
#[must_use]
pub fn workload(live: u32) -> String {
    format!("churn 1..64, live {live}")
}

/// Allocates twice the live set and frees half of it, as `churn` says. Returns the handles of the live allocations.
///
/// # Errors
/// When the peer refuses or is too slow.
pub fn build<P: Peer>(
    peer: &mut P,
    churn: &Churn,
    effort: &Effort,
) -> Result<Vec<P::Handle>, Stop> {
    let clock = TimeBox::open(effort.setup);
    let asked = churn.build.len() + churn.order.len() / 2;
    let mut handles = Vec::with_capacity(churn.build.len());
    for sizes in churn.build.chunks(BETWEEN_LOOKS) {
        if clock.is_over() {
            return Err(Stop::TooSlow { done: handles.len(), asked, limit: clock.limit() });
        }
        for &size in sizes {
            handles.push(peer.alloc(size).ok_or(Stop::Refused { after: handles.len() })?);
        }
    }
    let (freed, kept) = churn.order.split_at(churn.order.len() / 2);
    for (chunk, slots) in freed.chunks(BETWEEN_LOOKS).enumerate() {
        if clock.is_over() {
            let done = handles.len() + chunk * BETWEEN_LOOKS;
            return Err(Stop::TooSlow { done, asked, limit: clock.limit() });
        }
        for &slot in slots {
            if !peer.free(handles[slot as usize]) {
                return Err(Stop::FreeRefused);
            }
        }
    }
    Ok(kept.iter().map(|&slot| handles[slot as usize]).collect())
}

/// Performs `part` and nothing else; this is what is timed.
#[inline(never)]
pub(crate) fn replace<P: Peer>(
    peer: &mut P,
    live: &mut [P::Handle],
    part: &[Replacement],
) -> Result<(), Stop> {
    for (after, &Replacement { slot, size }) in part.iter().enumerate() {
        let handle = &mut live[slot as usize];
        if !peer.free(*handle) {
            return Err(Stop::FreeRefused);
        }
        *handle = peer.alloc(size).ok_or(Stop::Refused { after: 2 * after })?;
    }
    Ok(())
}

/// Runs one round of one contestant.
pub fn round<P: Peer>(make: &impl Fn(Space) -> P, churn: &Churn, effort: &Effort) -> Outcome {
    let pages = PAGES.max((128 * churn.live).next_power_of_two());
    let mut peer = make(Space { pages, live: churn.live, shift: 0 });
    let mut live = build(&mut peer, churn, effort).map_err(Stop::while_building)?;
    let heap = Region::new(&INSTRUMENTED_SYSTEM);
    let clock = TimeBox::open(effort.round);
    let (mut done, began) = (0, CpuClock::start());
    for part in churn.replacements.chunks(BETWEEN_LOOKS / 2) {
        if clock.is_over() {
            break;
        }
        replace(&mut peer, &mut live, part)?;
        done += 2 * part.len();
    }
    Ok(timing(began, &heap, done, 2 * churn.replacements.len(), effort))
}

/// Returns time and heap calls of one operation, when `done` of `asked` were carried out since `began`.
pub fn timing(
    began: CpuClock,
    heap: &Region<'_, std::alloc::System>,
    done: usize,
    asked: usize,
    effort: &Effort,
) -> Measured {
    let ns_per_op = began.ns_per(done);
    let calls = heap.change();
    let calls = calls.allocations + calls.deallocations + calls.reallocations;
    let heap_calls_per_op = calls as f64 / done as f64;
    let cut = || format!("{done} of {asked} operations in {:?}", effort.round);
    Measured {
        samples: vec![(Measure::NsPerOp, ns_per_op), (Measure::HeapCallsPerOp, heap_calls_per_op)],
        note: (done != asked).then(cut),
    }
}

/// Runs the rounds of all contestants, for both live sets.
pub fn run(run: &mut Run<'_>, contestants: &[Box<dyn Contestant>]) {
    for live in LIVE {
        let Effort { rounds, setup, workload: limit, .. } = run.effort;
        let times = (live / USUAL).max(1);
        if times > 1 && !run.effort.is_full() {
            continue;
        }
        let effort = Effort { setup: setup * times, ..run.effort };
        let rounds = if times > 1 { rounds / 3 } else { rounds };
        let rounds = (rounds, limit + effort.setup * (times - 1).min(1));
        let churn = Churn::new(run.seed, live, effort.replacements);
        let workload = workload(live);
        run.contest((Group::Speed, &workload), contestants, rounds, |who, _| {
            who.turn(RangeTurn::Churn(&churn, &effort))
        });
        run.records.add_ratios(&workload, Measure::NsPerOp, OFFSET, Measure::OverOffset);
    }
}
