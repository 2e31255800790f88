//! Random replacements: the time of one allocation or free.
//!
//! The state from which a round is timed is built first: twice the live set is allocated in 2^24 pages and half of it,
//! chosen at random, freed, so that the space is full of holes that no longer fit each other. Each round repeats this
//! from an empty space with the same operations, which makes rounds comparable: their range is the noise of the host.

use crate::contest::{Board, Contestant, CpuClock, Effort, Outcome, Stop, TimeBox, interleave};
use crate::peers::{Peer, Space};
use crate::record::{Group, Measure, Records};
use crate::roster::OFFSET;
use crate::trace::{Churn, Replacement};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};

/// Pages of the space of the timed workloads.
pub const PAGES: u32 = 1 << 24;

/// Live sets of the timed workloads.
pub const LIVE: [u32; 2] = [10_000, 100_000];

/// Operations between two looks at the clock.
const BETWEEN_LOOKS: usize = 128;

/// Result of one round, for each operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    pub ns_per_op: f64,
    pub heap_calls_per_op: f64,
}

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
fn replace<P: Peer>(
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
pub fn round<P: Peer>(
    make: &impl Fn(Space) -> P,
    churn: &Churn,
    effort: &Effort,
) -> Outcome<Timing> {
    let mut peer = make(Space { pages: PAGES, live: churn.live });
    let mut live = match build(&mut peer, churn, effort) {
        Ok(live) => live,
        Err(stop) => return Outcome::Nothing(format!("{stop} (building)")),
    };
    let heap = Region::new(&INSTRUMENTED_SYSTEM);
    let clock = TimeBox::open(effort.round);
    let (mut done, began) = (0, CpuClock::start());
    for part in churn.replacements.chunks(BETWEEN_LOOKS / 2) {
        if clock.is_over() {
            break;
        }
        if let Err(stop) = replace(&mut peer, &mut live, part) {
            return Outcome::Nothing(stop.to_string());
        }
        done += 2 * part.len();
    }
    timing(began, &heap, done, 2 * churn.replacements.len(), effort)
}

/// Returns time and heap calls of one operation, when `done` of `asked` were carried out since `began`.
pub fn timing(
    began: CpuClock,
    heap: &Region<'_, std::alloc::System>,
    done: usize,
    asked: usize,
    effort: &Effort,
) -> Outcome<Timing> {
    let elapsed = began.elapsed();
    let calls = heap.change();
    let calls = calls.allocations + calls.deallocations + calls.reallocations;
    let timing = Timing {
        ns_per_op: elapsed.as_nanos() as f64 / done as f64,
        heap_calls_per_op: calls as f64 / done as f64,
    };
    if done == asked {
        Outcome::Whole(timing)
    } else {
        Outcome::Partial(timing, format!("{done} of {asked} operations in {:?}", effort.round))
    }
}

/// Runs the rounds of all contestants, for both live sets.
pub fn run(
    records: &mut Records,
    contestants: &[Box<dyn Contestant>],
    effort: &Effort,
    seed: u64,
    progress: &dyn Fn(&str),
) {
    for live in LIVE {
        let churn = Churn::new(seed, live, effort.replacements);
        let board = Board::new(records, Group::Speed, workload(live), contestants);
        interleave(board, contestants, effort.rounds, effort, progress, |contestant, _| {
            contestant.churn(&churn, effort).map(as_samples)
        });
        records.add_ratios(&workload(live), Measure::NsPerOp, OFFSET, Measure::OverOffset);
    }
}

/// Returns the measures of a timing.
#[must_use]
pub fn as_samples(timing: Timing) -> Vec<(Measure, f64)> {
    vec![(Measure::NsPerOp, timing.ns_per_op), (Measure::HeapCallsPerOp, timing.heap_calls_per_op)]
}
