//! The turn of a contestant, and what is counted and timed of it.

use super::FRAMES;
use super::plan::{FragDraws, PagesPlan};
use super::sources::PageSource;
use crate::contest::{CpuClock, Effort, Outcome, Stop, TimeBox};
use crate::record::Measure;
use nofrag::units::Order;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};
use std::time::Duration;

/// Steps of the frag test.
pub const FRAG_STEPS: usize = 99;

/// The step in its middle whose figure is published.
const FRAG_MIDDLE: usize = 50;

/// Time on a CPU for a frag test, and for reaching the state in which bytes are counted: neither is timed.
pub const UNTIMED: Duration = Duration::from_secs(20);

/// Operations between two looks at the clock.
const BETWEEN_LOOKS: usize = 128;

/// A source and the blocks that it has handed out. A slot is empty when the source had no block for it.
struct Tenants<S: PageSource> {
    source: S,
    live: Vec<Option<S::Block>>,
    refused: usize,
}

impl<S: PageSource> Tenants<S> {
    fn new(source: S, slots: usize) -> Tenants<S> {
        Tenants { source, live: Vec::with_capacity(slots), refused: 0 }
    }

    #[inline]
    fn alloc(&mut self, order: Order) -> Option<S::Block> {
        let block = self.source.alloc(order);
        self.refused += usize::from(block.is_none());
        block
    }

    /// Allocates the plan's bulk; stops if that takes longer than `limit`. Returns the nanoseconds of each.
    fn fill(&mut self, plan: &PagesPlan, limit: Duration) -> Result<f64, Stop> {
        let (clock, began) = (TimeBox::open(limit), CpuClock::start());
        let asked = plan.bulk.len();
        for part in plan.bulk.chunks(BETWEEN_LOOKS) {
            if clock.is_over() {
                return Err(Stop::TooSlow { done: self.live.len(), asked, limit });
            }
            for &order in part {
                let block = self.alloc(order);
                self.live.push(block);
            }
        }
        Ok(began.ns_per(asked))
    }

    /// Frees the blocks in these slots.
    fn free(&mut self, slots: &[u32], limit: Duration) -> Result<f64, Stop> {
        let (clock, began) = (TimeBox::open(limit), CpuClock::start());
        let asked = slots.len();
        for (part, slots) in slots.chunks(BETWEEN_LOOKS).enumerate() {
            if clock.is_over() {
                let done = part * BETWEEN_LOOKS;
                return Err(Stop::TooSlow { done, asked, limit });
            }
            for &slot in slots {
                let block = self.live[slot as usize].take();
                if block.is_some_and(|block| !self.source.free(block)) {
                    return Err(Stop::FreeRefused);
                }
            }
        }
        Ok(began.ns_per(asked))
    }

    /// Frees a block and allocates another in its place, again and again, as far as the time goes.
    fn replace(&mut self, plan: &PagesPlan, limit: Duration) -> Result<f64, Stop> {
        let (clock, began) = (TimeBox::open(limit), CpuClock::start());
        let mut operations = 0;
        for part in plan.replacements.chunks(BETWEEN_LOOKS) {
            if clock.is_over() {
                break;
            }
            for &(slot, order) in part {
                let block = self.live[slot as usize].take();
                if block.is_some_and(|block| !self.source.free(block)) {
                    return Err(Stop::FreeRefused);
                }
                operations += usize::from(block.is_some()) + 1;
                self.live[slot as usize] = self.alloc(order);
            }
        }
        Ok(began.ns_per(operations))
    }
}

/// Allocates one page and frees it, again and again, with three quarters of memory in use.
pub fn repeat<S: PageSource>(
    make: &impl Fn(u32) -> S,
    plan: &PagesPlan,
    effort: &Effort,
) -> Outcome {
    let mut run = Tenants::new(make(FRAMES), plan.bulk.len());
    run.fill(plan, effort.setup)?;
    let (clock, began) = (TimeBox::open(effort.round), CpuClock::start());
    let mut pairs = 0;
    while pairs < effort.replacements && !clock.is_over() {
        for _ in 0..BETWEEN_LOOKS {
            let block = run.source.alloc(Order::ZERO).ok_or(Stop::Refused { after: pairs })?;
            if !run.source.free(std::hint::black_box(block)) {
                return Err(Stop::FreeRefused.into());
            }
        }
        pairs += BETWEEN_LOOKS;
    }
    Ok(vec![(Measure::NsPerOp, began.ns_per(2 * pairs))].into())
}

/// Allocates three quarters of memory, then frees all of it in the same order; each is timed.
pub fn bulk<S: PageSource>(make: &impl Fn(u32) -> S, plan: &PagesPlan, effort: &Effort) -> Outcome {
    let mut run = Tenants::new(make(FRAMES), plan.bulk.len());
    let slots: Vec<u32> = (0..plan.bulk.len() as u32).collect();
    let alloc_ns = run.fill(plan, effort.round)?;
    let free_ns = run.free(&slots, effort.round)?;
    Ok(vec![(Measure::AllocNs, alloc_ns), (Measure::FreeNs, free_ns)].into())
}

/// Allocates three quarters of memory, frees half of the blocks at random, then replaces the remaining ones one by one;
/// only that is timed.
pub fn random<S: PageSource>(
    make: &impl Fn(u32) -> S,
    plan: &PagesPlan,
    effort: &Effort,
) -> Outcome {
    let mut run = Tenants::new(make(FRAMES), plan.bulk.len());
    run.fill(plan, effort.setup)?;
    run.free(&plan.order[..plan.order.len() / 2], effort.setup)?;
    run.refused = 0;
    let ns = run.replace(plan, effort.round)?;
    Ok(vec![(Measure::NsPerOp, ns), (Measure::Refused, run.refused as f64)].into())
}

/// Counts the bytes that a contestant holds for each GiB of memory: when all is free, and with half of the pages in use
/// at random.
pub fn footprint<S: PageSource>(make: &impl Fn(u32) -> S, plan: &PagesPlan) -> Outcome {
    let per_gib = |bytes: usize| bytes as f64 / 1024.0 / f64::from(FRAMES) * f64::from(1 << 18);
    let heap = Region::new(&INSTRUMENTED_SYSTEM);
    let held = || {
        let change = heap.change();
        change.bytes_allocated.saturating_sub(change.bytes_deallocated)
    };
    let source = make(FRAMES);
    let fresh = held();
    let mut run = Tenants::new(source, plan.bulk.len());
    let slots = run.live.capacity() * size_of::<Option<S::Block>>();
    run.fill(plan, UNTIMED)?;
    run.free(&plan.order[..plan.order.len() / 2], UNTIMED)?;
    let used = held().saturating_sub(slots);
    let mut samples =
        vec![(Measure::KibPerGibFresh, per_gib(fresh)), (Measure::KibPerGib, per_gib(used))];
    let own = run.source.own_metadata_bytes();
    samples.extend(own.map(|own| (Measure::OwnKibPerGib, per_gib(own))));
    Ok(samples.into())
}

/// LLFree's frag test: fills memory with single pages, frees a random half, then frees and allocates a random tenth of
/// the rest, 99 times. Its figures are pageblocks without a page in use, and the pages to be moved for the others.
pub fn frag<S: PageSource>(make: &impl Fn(u32) -> S, seed: u64) -> Outcome {
    let mut source = make(FRAMES);
    let clock = TimeBox::open(UNTIMED);
    let mut draws = FragDraws::new(seed);
    let mut live: Vec<S::Block> = Vec::with_capacity(FRAMES as usize);
    while let Some(block) = source.alloc(Order::ZERO) {
        live.push(block);
        if live.len() % BETWEEN_LOOKS == 0 && clock.is_over() {
            return Err(format!("too slow: {} pages filled", live.len()));
        }
    }
    let half = live.len() / 2;
    draws.choose(&mut live, half);
    let mut samples = Vec::new();
    if !give_last(&mut source, &mut live, half, &clock) {
        return Err("too slow: freeing half of all pages".to_owned());
    }
    let moves_before = survey(&source, &live).moves;
    for step in 1..=FRAG_STEPS {
        let tenth = live.len() / 10;
        draws.choose(&mut live, tenth);
        if !give_last(&mut source, &mut live, tenth, &clock) {
            return Err(format!("too slow: {step} of {FRAG_STEPS} steps"));
        }
        for _ in 0..tenth {
            match source.alloc(Order::ZERO) {
                Some(block) => live.push(block),
                None => return Err("fails: refuses a page".to_owned()),
            }
        }
        if step == FRAG_MIDDLE {
            samples.push((Measure::WholeMiddle, survey(&source, &live).whole_percent));
        }
    }
    let end = survey(&source, &live);
    samples.push((Measure::WholeEnd, end.whole_percent));
    samples.push((Measure::MovesBefore, moves_before));
    samples.push((Measure::MovesEnd, end.moves));
    samples.push((Measure::HadPercent, pageblocks_to_be_had(&mut source)));
    Ok(samples.into())
}

/// Frees the last `count` of `live`; false when the time is over.
fn give_last<S: PageSource>(
    source: &mut S,
    live: &mut Vec<S::Block>,
    count: usize,
    clock: &TimeBox,
) -> bool {
    let kept = live.len() - count;
    for (done, block) in live.drain(kept..).enumerate() {
        if done % BETWEEN_LOOKS == 0 && clock.is_over() {
            return false;
        }
        assert!(source.free(block), "fails: refuses to free what it handed out");
    }
    true
}

/// Whole pageblocks, in a hundred, and the pages whose move would make the others whole.
struct Survey {
    whole_percent: f64,
    /// Pages that must move until free pages fill whole pageblocks, emptying those with the fewest in use.
    moves: f64,
}

fn survey<S: PageSource>(source: &S, live: &[S::Block]) -> Survey {
    let pages = Order::PAGEBLOCK.pages();
    let mut used = vec![0_u64; (u64::from(FRAMES) / pages) as usize];
    for block in live {
        used[(source.start(block) / pages) as usize] += 1;
    }
    used.sort_unstable();
    let whole = used.iter().filter(|&&used| used == 0).count();
    let could_be = (u64::from(FRAMES) - live.len() as u64) / pages;
    Survey {
        whole_percent: whole as f64 / used.len() as f64 * 100.0,
        moves: used[..could_be as usize].iter().sum::<u64>() as f64,
    }
}

/// Counts the pageblocks that can be allocated at once, in a hundred of all.
fn pageblocks_to_be_had<S: PageSource>(source: &mut S) -> f64 {
    source.settle();
    let had = std::iter::from_fn(|| source.alloc(Order::PAGEBLOCK)).count() as f64;
    had / f64::from(FRAMES >> Order::PAGEBLOCK.get()) * 100.0
}
