//! The turn of a contestant, and what is counted and timed of it.

use super::plan::AreasPlan;
use super::spaces::{AreaSpace, Found, WINDOW};
use crate::contest::{CpuClock, Effort, Measured, Outcome, Samples, Stop, TimeBox};
use crate::record::Measure;
use crate::trace::Replacement;
use nofrag_lab::stats::Latencies;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Operations between two looks at the clock.
const BETWEEN_LOOKS: usize = 64;

/// Time for each operation, on top of [`Effort::setup`], beyond which a contestant is not waited for.
pub(super) const SLOWEST: Duration = Duration::from_micros(20);

/// An area that the contestant handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    pub start: u64,
    pub pages: u32,
}

/// The progress of a contestant to the state from which something is measured.
struct Setup {
    clock: TimeBox,
    done: usize,
    asked: usize,
}

impl Setup {
    fn open(plan: &AreasPlan, effort: &Effort) -> Setup {
        let asked = plan.live() + plan.ageing.len();
        Setup { clock: TimeBox::open(effort.setup), done: 0, asked }
    }

    /// Notes that `operations` come next; an error if those before took too long.
    fn go_on(&mut self, operations: usize) -> Result<(), Stop> {
        let limit = self.clock.limit() + SLOWEST * self.done as u32;
        if self.clock.has_passed(limit) {
            return Err(Stop::TooSlow { done: self.done, asked: self.asked, limit });
        }
        self.done += operations;
        Ok(())
    }
}

/// Maps the areas of `plan.build`.
fn build<S: AreaSpace>(
    space: &mut S,
    plan: &AreasPlan,
    setup: &mut Setup,
) -> Result<Vec<Mapped>, Stop> {
    let mut live = Vec::with_capacity(plan.live());
    for sizes in plan.build.chunks(BETWEEN_LOOKS) {
        setup.go_on(sizes.len())?;
        for &pages in sizes {
            let start = space.map(u64::from(pages)).ok_or(Stop::Refused { after: live.len() })?;
            live.push(Mapped { start, pages });
        }
    }
    Ok(live)
}

/// Replaces areas until the space is in the state in which it stays.
fn age<S: AreaSpace>(
    space: &mut S,
    live: &mut [Mapped],
    plan: &AreasPlan,
    setup: &mut Setup,
) -> Result<(), Stop> {
    for part in plan.ageing.chunks(BETWEEN_LOOKS) {
        setup.go_on(part.len())?;
        replace(space, live, part)?;
    }
    Ok(())
}

/// Performs `part` and nothing else; this is what is timed.
#[inline(never)]
fn replace<S: AreaSpace>(
    space: &mut S,
    live: &mut [Mapped],
    part: &[Replacement],
) -> Result<(), Stop> {
    for (after, &Replacement { slot, size }) in part.iter().enumerate() {
        let area = &mut live[slot as usize];
        if !space.unmap(area.start, u64::from(area.pages)) {
            return Err(Stop::FreeRefused);
        }
        let start = space.map(u64::from(size)).ok_or(Stop::Refused { after: 2 * after })?;
        *area = Mapped { start, pages: size };
    }
    Ok(())
}

/// Runs one round of one contestant.
pub fn round<S: AreaSpace>(make: &impl Fn() -> S, plan: &AreasPlan, effort: &Effort) -> Outcome {
    let mut space = make();
    let mut setup = Setup::open(plan, effort);
    let began = CpuClock::start();
    let mut live = build(&mut space, plan, &mut setup).map_err(Stop::while_building)?;
    let build_ns = began.ns_per(plan.live());
    age(&mut space, &mut live, plan, &mut setup).map_err(Stop::while_building)?;
    let mut samples = vec![
        (Measure::BuildNs, build_ns),
        (Measure::UtilisationPercent, utilisation(&live) * 100.0),
        (Measure::PlacementHash, placement_hash(&live)),
    ];
    let cycles = together(&mut space, &mut live, plan, effort, &mut samples)?;
    let singles = one_by_one(&mut space, &mut live, plan, effort, &mut samples)?;
    look_up(&space, &live, plan, &mut samples)?;
    let (asked, limit) = ((plan.cycles.len(), plan.singles.len()), effort.round);
    let cut = || format!("{cycles} and {singles} of {} cycles in {limit:?} each", asked.0);
    Ok(Measured { samples, note: ((cycles, singles) != asked).then(cut) })
}

/// Times the plan's cycles together, and notes time and steps of one. Returns the number of cycles done.
fn together<S: AreaSpace>(
    space: &mut S,
    live: &mut [Mapped],
    plan: &AreasPlan,
    effort: &Effort,
    samples: &mut Samples,
) -> Result<usize, Stop> {
    let steps = space.steps();
    let clock = TimeBox::open(effort.round);
    let (mut done, began) = (0, CpuClock::start());
    for part in plan.cycles.chunks(BETWEEN_LOOKS) {
        if clock.is_over() {
            break;
        }
        replace(space, live, part)?;
        done += part.len();
    }
    let elapsed = began.elapsed();
    let per_cycle = |count: f64| count / done as f64;
    samples.push((Measure::NsPerCycle, per_cycle(elapsed.as_nanos() as f64)));
    let steps = steps.zip(space.steps()).map(|(before, after)| (after - before) as f64);
    samples.extend(steps.map(|steps| (Measure::StepsPerSearch, per_cycle(steps))));
    Ok(done)
}

/// Times the plan's single cycles one by one, and notes median and tail. Returns the number of cycles done.
fn one_by_one<S: AreaSpace>(
    space: &mut S,
    live: &mut [Mapped],
    plan: &AreasPlan,
    effort: &Effort,
    samples: &mut Samples,
) -> Result<usize, Stop> {
    let mut times = Latencies::default();
    let clock = TimeBox::open(effort.round);
    let mut done = 0;
    for cycle in plan.singles.chunks(1) {
        if done % BETWEEN_LOOKS == 0 && clock.is_over() {
            break;
        }
        let began = Instant::now();
        let result = black_box(replace(space, live, cycle));
        times.record(began.elapsed().as_nanos() as u64);
        result?;
        done += 1;
    }
    if let Some(tail) = times.tail() {
        let (median, tail) = (tail.p50_ns as f64, tail.p999_ns as f64);
        samples.extend([(Measure::P50Ns, median), (Measure::P999Ns, tail)]);
        samples.push((Measure::TailOverMedian, tail / median));
    }
    Ok(done)
}

/// Times look-ups by an address in the middle of an area.
fn look_up<S: AreaSpace>(
    space: &S,
    live: &[Mapped],
    plan: &AreasPlan,
    samples: &mut Samples,
) -> Result<(), String> {
    let area = |slot: &u32| live[*slot as usize];
    let middle = |area: Mapped| area.start + u64::from(area.pages / 2);
    let addresses: Vec<u64> = plan.lookups.iter().map(area).map(middle).collect();
    if space.find(addresses[0]) == Found::Unsupported {
        return Ok(());
    }
    let expected = plan.lookups.iter().map(area).fold(0, |sum: u64, area| sum ^ area.start);
    let began = CpuClock::start();
    let found = addresses.iter().fold(0, |sum, &at| match space.find(at) {
        Found::Area(start) => sum ^ start,
        Found::Hole | Found::Unsupported => !sum,
    });
    let elapsed = began.elapsed();
    if found != expected {
        return Err("wrong: looks up an area that is not there".to_owned());
    }
    samples.push((Measure::FindNs, elapsed.as_nanos() as f64 / addresses.len() as f64));
    Ok(())
}

/// Returns the pages of each gap, between areas and to the ends of the window, by ascending address.
fn gaps(live: &[Mapped]) -> Vec<u64> {
    let mut areas: Vec<(u64, u64)> =
        live.iter().map(|area| (area.start, area.start + u64::from(area.pages))).collect();
    areas.sort_unstable();
    let ends = std::iter::once(WINDOW.start()).chain(areas.iter().map(|area| area.1));
    let starts = areas.iter().map(|area| area.0).chain([WINDOW.end()]);
    ends.zip(starts).map(|(end, start)| start - end).filter(|&gap| gap > 0).collect()
}

/// Returns mapped pages over themselves and all gaps but the largest.
fn utilisation(live: &[Mapped]) -> f64 {
    let gaps = gaps(live);
    let holes = gaps.iter().sum::<u64>() - gaps.iter().max().copied().unwrap_or(0);
    let mapped: u64 = live.iter().map(|area| u64::from(area.pages)).sum();
    mapped as f64 / (mapped + holes) as f64
}

/// Hashes the addresses of all areas to a number with few enough bits for a sample to hold.
fn placement_hash(live: &[Mapped]) -> f64 {
    let mix = |sum: u64, area: &Mapped| (sum ^ area.start).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sum = live.iter().fold(0, |sum, area| mix(sum, area).rotate_left(29));
    (sum >> 32) as f64
}

/// A state in which bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As built: area beside area.
    Fresh,
    Aged,
    /// One page mapped, one not, as many areas as gaps, mapped at random.
    Comb,
}

impl State {
    pub const ALL: [State; 3] = [State::Fresh, State::Aged, State::Comb];
}

/// Brings a contestant into a state and counts the bytes that it holds.
pub fn footprint<S: AreaSpace>(
    make: &impl Fn() -> S,
    plan: &AreasPlan,
    state: State,
    effort: &Effort,
) -> Outcome {
    let heap = Region::new(&INSTRUMENTED_SYSTEM);
    let mut space = make();
    let live = brought_into(&mut space, plan, state, effort)?;
    let change = heap.change();
    let held = change.bytes_allocated.saturating_sub(change.bytes_deallocated);
    let held = held.saturating_sub(live.capacity() * size_of::<Mapped>()) as f64;
    let (areas, gaps) = (live.len() as f64, gaps(&live).len() as f64);
    let mut samples = vec![(Measure::BytesPerArea, held / areas)];
    let own = space.own_metadata_bytes();
    samples.extend(own.map(|own| (Measure::OwnBytesPerArea, own as f64 / areas)));
    if state != State::Fresh {
        samples.push((Measure::BytesPerGap, held / gaps));
    }
    samples.push((Measure::Areas, areas));
    samples.push((Measure::Holes, gaps));
    Ok(samples.into())
}

fn brought_into<S: AreaSpace>(
    space: &mut S,
    plan: &AreasPlan,
    state: State,
    effort: &Effort,
) -> Result<Vec<Mapped>, Stop> {
    let mut setup = Setup::open(plan, effort);
    match state {
        State::Fresh => build(space, plan, &mut setup),
        State::Aged => {
            let mut live = build(space, plan, &mut setup)?;
            age(space, &mut live, plan, &mut setup)?;
            Ok(live)
        }
        State::Comb => comb(space, plan, &mut setup),
    }
}

/// Maps single pages, every second one of a row, in the plan's order.
fn comb<S: AreaSpace>(
    space: &mut S,
    plan: &AreasPlan,
    setup: &mut Setup,
) -> Result<Vec<Mapped>, Stop> {
    let mut live = Vec::with_capacity(plan.live());
    for &slot in &plan.order {
        setup.go_on(1)?;
        let start = WINDOW.end() - 2 * (u64::from(slot) + 1);
        if !space.map_at(start, 1) {
            return Err(Stop::Refused { after: live.len() });
        }
        live.push(Mapped { start, pages: 1 });
    }
    Ok(live)
}
