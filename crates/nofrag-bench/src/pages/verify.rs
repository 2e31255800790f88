//! Before anything is timed: every block lies in memory, at a multiple of its size, and overlaps no other.

use super::plan::{Blocks, PagesPlan};
use super::sources::PageSource;
use crate::contest::{Effort, Outcome};
use crate::record::Measure;
use crate::verify::Taken;
use nofrag::units::Order;

pub const WORKLOAD: &str =
    "page frames of 64 MiB: three quarters taken, half freed, replaced, all freed; untimed";

const FRAMES: u32 = 1 << 14;

/// A contestant under observation. A slot is empty when there was no block of the size.
struct Observed<S: PageSource> {
    source: S,
    taken: Taken,
    live: Vec<Option<(S::Block, Order)>>,
}

impl<S: PageSource> Observed<S> {
    fn alloc(&mut self, order: Order) -> Result<Option<(S::Block, Order)>, String> {
        let Some(block) = self.source.alloc(order) else {
            let refused = "wrong: refuses a page although there are plenty".to_owned();
            return if order == Order::ZERO { Err(refused) } else { Ok(None) };
        };
        let (start, size) = (self.source.start(&block), order.pages());
        if !start.is_multiple_of(size) {
            return Err(format!("wrong: {size} pages at {start} are not aligned"));
        }
        self.taken.take(start, size as u32).map(|()| Some((block, order)))
    }

    fn free(&mut self, slot: usize) -> Result<(), String> {
        let Some((block, order)) = self.live[slot].take() else { return Ok(()) };
        self.taken.free(self.source.start(&block), order.pages() as u32);
        self.source.free(block).then_some(()).ok_or("wrong: refuses to free".to_owned())
    }

    fn run(&mut self, plan: &PagesPlan) -> Result<(), String> {
        for &order in &plan.bulk {
            let block = self.alloc(order)?;
            self.live.push(block);
        }
        for &slot in &plan.order[plan.order.len() / 2..] {
            self.free(slot as usize)?;
        }
        for &(slot, order) in &plan.replacements {
            self.free(slot as usize)?;
            self.live[slot as usize] = self.alloc(order)?;
        }
        (0..self.live.len()).try_for_each(|slot| self.free(slot))?;
        self.live.clear();
        Ok(())
    }
}

/// Checks one contestant against the map.
pub fn run<S: PageSource>(make: &impl Fn(u32) -> S, seed: u64) -> Outcome {
    let taken = Taken::none_of(FRAMES);
    let mut observed = Observed { source: make(FRAMES), taken, live: Vec::new() };
    let effort = Effort { replacements: 20_000, ..Effort::quick() };
    for blocks in Blocks::ALL {
        observed.run(&PagesPlan::new(seed, blocks, FRAMES, &effort))?;
    }
    observed.source.settle();
    let whole = Order::MAX;
    let wholes =
        (0..FRAMES / whole.pages() as u32).filter(|_| observed.source.alloc(whole).is_some());
    let is_whole = wholes.count() as f64 >= f64::from(FRAMES / whole.pages() as u32 - 2);
    let samples = vec![
        (Measure::Disjoint, 1.0),
        (Measure::Aligns, 1.0),
        (Measure::WholeAgain, f64::from(u8::from(is_whole))),
    ];
    Ok(samples.into())
}
