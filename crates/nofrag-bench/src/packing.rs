//! The places of allocations, as the comparison itself sees them: from the addresses that are live, not from a
//! contestant's report.
//!
//! **Packing.** 2^20 pages are filled to 90 %, then 3e5 random allocations are freed and replaced. *Largest over free*
//! is the largest hole over all free pages; then allocations go on until the first refusal, which gives the *first
//! failure*. Two ways to replace are shown. One for one, each free is followed by one allocation: the occupancy then
//! drifts with the sizes drawn, by some percent. Refilled, each free is followed by as many allocations, in the order
//! drawn, as 90 % allow: the occupancy stays within one request of 90 %. The time of an allocation or a free is that of
//! the replacements, at the occupancy of which the rest of the table speaks.
//!
//! **Footprint.** 1e4 allocations are made and 2e5 replaced, 90 % are freed at random, then each of the rest is
//! replaced 20 times on average. *Span over live* is the highest live page over the number of live pages: the pages
//! that a caller who gives back the top of the space still has to keep.

use crate::contest::{
    BOTH_SIZES, Contestant, CpuClock, Effort, Outcome, RangeTurn, Run, Samples, Stop, TimeBox,
};
use crate::peers::{OFFSET, Peer, Space};
use crate::record::{Group, Measure};
use crate::trace::{Draws, PackingPlan, Refill, Sizes};

pub const PAGES: u32 = 1 << 20;

pub const FILLED: u32 = PAGES / 10 * 9;

/// Number of allocations before the live set shrinks.
pub const SHRINK_FROM: usize = 10_000;

const SHRINK_AFTER: usize = 200_000;

/// Replacements of each remaining allocation after shrinking, on average.
const CHURN_AFTER_SHRINK: usize = 20;

/// Returns the name of the packing workload.
#[must_use]
pub fn packing_workload(sizes: Sizes, refill: Refill) -> String {
    format!("at 90 %, {}, {}", sizes.name(), refill.name())
}

/// Returns the name of the shrinking workload.
#[must_use]
pub fn shrink_workload(sizes: Sizes) -> String {
    format!("shrunk to 10 %, {}", sizes.name())
}

/// Returns the holes of pages `0..pages` between the busy ranges, which are sorted on the way.
pub fn holes_between(
    busy: &mut [(u64, u32)],
    pages: u32,
) -> impl Iterator<Item = std::ops::Range<u64>> {
    busy.sort_unstable();
    let starts = busy.iter().map(|&(start, _)| start).chain([u64::from(pages)]);
    let ends = [0].into_iter().chain(busy.iter().map(|&(start, size)| start + u64::from(size)));
    ends.zip(starts).filter(|(end, start)| end < start).map(|(end, start)| end..start)
}

/// A peer and the allocations that it has handed out.
pub struct Tenants<P: Peer> {
    peer: P,
    live: Vec<(P::Handle, u32)>,
    pages: u32,
}

impl<P: Peer> Tenants<P> {
    /// Makes a peer without allocations.
    pub fn new(peer: P) -> Tenants<P> {
        Tenants { peer, live: Vec::new(), pages: 0 }
    }

    /// Returns true if `size` pages could be had.
    pub(crate) fn admit(&mut self, size: u32) -> bool {
        let Some(handle) = self.peer.alloc(size) else { return false };
        self.live.push((handle, size));
        self.pages += size;
        true
    }

    /// Frees the allocation at `index`, whose place the last one takes.
    pub(crate) fn evict(&mut self, index: usize) -> Result<(), Stop> {
        let (handle, size) = self.live.swap_remove(index);
        self.pages -= size;
        if self.peer.free(handle) { Ok(()) } else { Err(Stop::FreeRefused) }
    }

    /// Returns the first page of the allocation at `index`, and its pages.
    pub(crate) fn place(&self, index: usize) -> (u64, u32) {
        let (handle, size) = &self.live[index];
        (self.peer.start(handle), *size)
    }

    /// Returns the number of live allocations.
    pub(crate) fn count(&self) -> usize {
        self.live.len()
    }

    /// Returns the pages of all live allocations.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    fn busy(&self) -> Vec<(u64, u32)> {
        (0..self.count()).map(|index| self.place(index)).collect()
    }

    fn largest_over_free(&self) -> f64 {
        let mut busy = self.busy();
        let largest = holes_between(&mut busy, PAGES).map(|hole| hole.end - hole.start).max();
        largest.unwrap_or(0) as f64 / f64::from(PAGES - self.pages)
    }

    fn span_over_live(&self) -> f64 {
        let ends = self.busy().into_iter().map(|(start, size)| start + u64::from(size));
        ends.max().unwrap_or(0) as f64 / f64::from(self.pages)
    }

    fn too_slow(&self, what: &str, clock: &TimeBox) -> String {
        format!("too slow {what}: {:.1} % in {:?}", self.percent(), clock.limit())
    }

    fn percent(&self) -> f64 {
        f64::from(self.pages()) / f64::from(PAGES) * 100.0
    }
}

/// Runs one seed of the packing workload for one contestant.
pub fn pack<P: Peer>(make: &impl Fn(Space) -> P, plan: &PackingPlan) -> Outcome {
    let mut draws = plan.draws.clone();
    let mut tenants = Tenants::new(make(Space { pages: PAGES, live: PAGES / 16, shift: 0 }));
    let clock = TimeBox::open(plan.limit);
    let mut next = draws.size();
    while tenants.pages + next <= FILLED {
        if tenants.live.len().is_multiple_of(64) && clock.is_over() {
            return Err(tenants.too_slow("to fill", &clock));
        }
        if !tenants.admit(next) {
            return Err(format!("refuses at {:.1} % already", tenants.percent()));
        }
        next = draws.size();
    }
    let (mut refused, mut operations, began) = (0, 0, CpuClock::start());
    for done in 0..plan.replacements {
        if done % 64 == 0 && clock.is_over() {
            let (asked, limit) = (plan.replacements, clock.limit());
            return Err(format!("too slow: {done} of {asked} in {limit:?}"));
        }
        if tenants.live.is_empty() {
            return Err(format!("fails: refuses all, nothing is live after {done} frees"));
        }
        tenants.evict(draws.pick(tenants.live.len()))?;
        operations += 2;
        match plan.refill {
            Refill::OneForOne => refused += usize::from(!tenants.admit(draws.size())),
            Refill::ToNinetyPercent => {
                while tenants.pages + next <= FILLED && tenants.admit(next) {
                    next = draws.size();
                    operations += 1;
                }
            }
        }
    }
    let ns_per_op = began.ns_per(operations);
    let (largest_over_free, occupancy) = (tenants.largest_over_free(), tenants.percent());
    while tenants.admit(draws.size()) {
        if tenants.live.len().is_multiple_of(64) && clock.is_over() {
            return Err(tenants.too_slow("to fill up", &clock));
        }
    }
    let samples = vec![
        (Measure::LargestOverFree, largest_over_free),
        (Measure::FirstFailurePercent, tenants.percent()),
        (Measure::OccupancyPercent, occupancy),
        (Measure::Refused, refused as f64),
        (Measure::NsPerOp, ns_per_op),
    ];
    Ok(samples.into())
}

/// Replaces `count` allocations one for one in a roomy space.
fn churn<P: Peer>(
    tenants: &mut Tenants<P>,
    draws: &mut Draws,
    count: usize,
    clock: &TimeBox,
) -> Result<(), Stop> {
    for done in 0..count {
        if done % 64 == 0 && clock.is_over() {
            return Err(Stop::TooSlow { done: 2 * done, asked: 2 * count, limit: clock.limit() });
        }
        tenants.evict(draws.pick(tenants.live.len()))?;
        if !tenants.admit(draws.size()) {
            return Err(Stop::Refused { after: 2 * done });
        }
    }
    Ok(())
}

/// Measures span over live, before and after shrinking.
fn shrink_and_churn<P: Peer>(
    tenants: &mut Tenants<P>,
    draws: &mut Draws,
    clock: &TimeBox,
) -> Result<Samples, Stop> {
    for after in 0..SHRINK_FROM {
        if !tenants.admit(draws.size()) {
            return Err(Stop::Refused { after });
        }
    }
    churn(tenants, draws, SHRINK_AFTER, clock)?;
    let before = tenants.span_over_live();
    while tenants.live.len() > SHRINK_FROM / 10 {
        tenants.evict(draws.pick(tenants.live.len()))?;
    }
    churn(tenants, draws, CHURN_AFTER_SHRINK * SHRINK_FROM / 10, clock)?;
    let after = tenants.span_over_live();
    Ok(vec![(Measure::SpanOverLiveBefore, before), (Measure::SpanOverLiveAfter, after)])
}

/// Runs one seed of the shrinking workload for one contestant.
pub fn shrink<P: Peer>(make: &impl Fn(Space) -> P, mut draws: Draws, effort: &Effort) -> Outcome {
    let mut tenants =
        Tenants::new(make(Space { pages: PAGES, live: SHRINK_FROM as u32, shift: 0 }));
    let clock = TimeBox::open(effort.untimed);
    Ok(shrink_and_churn(&mut tenants, &mut draws, &clock)?.into())
}

/// Makes the draws of one seed of an untimed workload.
fn draws(seed: u64, round: usize, sizes: Sizes) -> Draws {
    Draws::new(seed.wrapping_add(round as u64), sizes)
}

/// Runs packing at 90 % for all contestants.
pub fn run_packing(run: &mut Run<'_>, contestants: &[Box<dyn Contestant>]) {
    let (effort, seed) = (run.effort, run.seed);
    let all = [Sizes::Uniform, Sizes::Bimodal, Sizes::Cache];
    for (refill, sizes) in Refill::BOTH.into_iter().flat_map(|it| all.map(|by| (it, by))) {
        let (workload, rounds) = (packing_workload(sizes, refill), (effort.seeds, effort.workload));
        run.contest((Group::Packing, &workload), contestants, rounds, |who, round| {
            let draws = draws(seed, round, sizes);
            let replacements = effort.packing_replacements;
            let plan = PackingPlan { draws, refill, replacements, limit: effort.untimed };
            who.turn(RangeTurn::Pack(&plan))
        });
        run.records.add_ratios(&workload, Measure::NsPerOp, OFFSET, Measure::OverOffset);
    }
}

/// Runs footprint after shrinking for all contestants, with more seeds: the footprint at one moment depends on the seed
/// more than the packing does, and is cheaper to measure.
pub fn run_shrink(run: &mut Run<'_>, contestants: &[Box<dyn Contestant>]) {
    let (effort, seed) = (run.effort, run.seed);
    for sizes in BOTH_SIZES {
        let (workload, rounds) = (shrink_workload(sizes), (4 * effort.seeds, effort.workload));
        run.contest((Group::Shrink, &workload), contestants, rounds, |who, round| {
            who.turn(RangeTurn::Shrink(&draws(seed, round, sizes), &effort))
        });
    }
}
