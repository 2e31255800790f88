//! An allocation and a free of page frames under one preset.

use crate::{Congruence, Outcome, note_alias, timed};
use clap::ValueEnum;
use nofrag::cpu::CpuId;
use nofrag::page::{
    FragmentationPolicy, MemoryMap, Migratetype, PageAllocator, PageConfig, PageRequest,
    PolicyPreset,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};
use std::error::Error;
use std::hint::black_box;

/// Frames of memory: 1 GiB, a quarter of it in DMA32.
const FRAMES: u64 = 1 << 18;

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Workload {
    /// One page, taken and freed.
    Repeat,
    /// Single movable pages, chosen at random and replaced.
    Random,
    /// Blocks of orders 0 to 3 and 9 of all three types, chosen at random and replaced.
    Mixed,
    /// A pageblock, taken and freed.
    Huge,
}

/// A machine with some blocks in use.
struct Driver {
    pages: PageAllocator,
    cpu: CpuId,
    live: Vec<Pfn>,
    random: Congruence,
}

impl Driver {
    /// Builds a machine with half of its memory in use, by requests that `ask` draws.
    fn half_full(
        preset: &str,
        ask: fn(&mut Driver) -> PageRequest,
    ) -> Result<Driver, Box<dyn Error>> {
        let PolicyPreset { name, policy, .. } = FragmentationPolicy::preset(preset)?;
        note_alias(preset, name);
        let map = MemoryMap::uma(PageCount(FRAMES), 250, 1)?;
        let cpu = map.cpus().by_rank(0).ok_or("no CPU")?;
        let pages = PageAllocator::new(&PageConfig::new(map, policy))?;
        let random = Congruence(Congruence::SEED);
        let mut driver = Driver { pages, cpu, live: Vec::new(), random };
        let mut used = 0;
        while used < FRAMES / 2 {
            let request = ask(&mut driver);
            used += request.order.pages();
            let block = driver.take(request);
            driver.live.push(block);
        }
        Ok(driver)
    }

    /// Returns a random number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        (((self.random.next() >> 32) * bound as u64) >> 32) as usize
    }

    fn take(&mut self, request: PageRequest) -> Pfn {
        self.pages.alloc(Nanos(0), self.cpu, request).expect("half of memory is free")
    }

    fn give(&mut self, block: Pfn) {
        self.pages.free(self.cpu, block).expect("it is in use");
    }

    fn repeat(&mut self, request: PageRequest, pairs: u64) {
        for _ in 0..pairs {
            let block = self.take(black_box(request));
            self.give(black_box(block));
        }
    }

    fn replace(&mut self, ask: fn(&mut Driver) -> PageRequest, pairs: u64) {
        for _ in 0..pairs {
            let slot = self.below(self.live.len());
            self.give(self.live[slot]);
            let request = ask(self);
            self.live[slot] = self.take(request);
        }
    }
}

fn page(_: &mut Driver) -> PageRequest {
    PageRequest::user(Order::ZERO)
}

/// Returns a random request, of which 80 in a hundred are movable: 75 single pages, 4 of order 2 and a pageblock. The
/// others are unmovable or reclaimable, of orders 0 to 3.
fn mixed(driver: &mut Driver) -> PageRequest {
    let order = |order| Order::new(order).expect("no larger than the largest");
    match driver.below(100) {
        0..75 => PageRequest::user(Order::ZERO),
        75..79 => PageRequest::user(order(2)),
        79 => PageRequest::user(Order::PAGEBLOCK),
        draw => {
            let kinds = [Migratetype::Unmovable, Migratetype::Reclaimable];
            PageRequest::new(order(draw as u8 / 2 % 4), kinds[draw % 2])
        }
    }
}

pub(crate) fn run(preset: &str, workload: Workload, pairs: u64) -> Outcome {
    let ask = if let Workload::Mixed = workload { mixed } else { page };
    let mut driver = Driver::half_full(preset, ask)?;
    timed(pairs, || match workload {
        Workload::Repeat => driver.repeat(PageRequest::user(Order::ZERO), pairs),
        Workload::Huge => driver.repeat(PageRequest::user(Order::PAGEBLOCK), pairs),
        Workload::Random => driver.replace(page, pairs),
        Workload::Mixed => driver.replace(mixed, pairs),
    });
    Ok(())
}
