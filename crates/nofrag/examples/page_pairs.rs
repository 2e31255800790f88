//! Allocations and frees of page frames under one preset, to be counted by an instruction profiler, or timed.
//!
//! Run twice with different loop counts and divide the difference of the totals by the difference of the pairs: the
//! cost of setting up cancels out. Without a profiler it prints nanoseconds per pair and operations per second.
//!
//! ```text
//! cargo build -p nofrag --release --example page_pairs
//! for pairs in 200000 1200000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/page_pairs nofrag random $pairs 2>&1 | grep Collected
//! done
//! ```
//!
//! Programs: `repeat` takes one page and frees it; `random` replaces single pages, movable, chosen at random; `mixed`
//! replaces blocks of orders 0 to 3 and 9 of all three types; `huge` takes a pageblock and frees it. Half of 1 GiB is
//! in use meanwhile.

#![allow(clippy::disallowed_types)] // an example has the standard library

use nofrag::cpu::CpuId;
use nofrag::page::{
    FragmentationPolicy, MemoryMap, Migratetype, PageAllocator, PageConfig, PageRequest,
    PolicyPreset,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

/// Frames of memory: 1 GiB, a quarter of it in DMA32.
const FRAMES: u64 = 1 << 18;

/// A machine with some blocks in use.
struct Driver {
    pages: PageAllocator,
    cpu: CpuId,
    live: Vec<Pfn>,
    random: u64,
}

impl Driver {
    /// Half of memory in use, by requests that `ask` draws.
    fn half_full(preset: &str, ask: fn(&mut Driver) -> PageRequest) -> Option<Driver> {
        let PolicyPreset { name, policy, .. } = FragmentationPolicy::preset(preset).ok()?;
        if name != preset {
            println!("{preset} was asked for: {name} is what runs");
        }
        let map = MemoryMap::uma(PageCount(FRAMES), 250, 1).ok()?;
        let cpu = map.cpus().by_rank(0)?;
        let pages = PageAllocator::new(&PageConfig::new(map, policy)).ok()?;
        let mut driver = Driver { pages, cpu, live: Vec::new(), random: 0x2545_f491_4f6c_dd1d };
        let mut used = 0;
        while used < FRAMES / 2 {
            let request = ask(&mut driver);
            used += request.order.pages();
            let block = driver.take(request);
            driver.live.push(block);
        }
        Some(driver)
    }

    /// Returns a random number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.random =
            self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (((self.random >> 32) * bound as u64) >> 32) as usize
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

/// Of a hundred requests 80 are movable: 75 single pages, 4 of order 2 and a pageblock. The others are unmovable or
/// reclaimable, of orders 0 to 3.
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

/// Returns the nanoseconds per pair.
fn run(preset: &str, program: &str, pairs: u64) -> Option<f64> {
    let mut driver = Driver::half_full(preset, if program == "mixed" { mixed } else { page })?;
    let begin = Instant::now();
    match program {
        "repeat" => driver.repeat(PageRequest::user(Order::ZERO), pairs),
        "huge" => driver.repeat(PageRequest::user(Order::PAGEBLOCK), pairs),
        "random" => driver.replace(page, pairs),
        "mixed" => driver.replace(mixed, pairs),
        _ => return None,
    }
    Some(begin.elapsed().as_secs_f64() * 1e9 / pairs as f64)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let answer = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [preset, program, pairs] => {
            pairs.parse().ok().and_then(|pairs| run(preset, program, pairs))
        }
        _ => None,
    };
    match answer {
        Some(ns) => {
            println!("{ns:.1} ns per pair, {:.1} million operations a second", 2e3 / ns);
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("usage: page_pairs PRESET repeat|random|mixed|huge PAIRS");
            ExitCode::from(2)
        }
    }
}
