//! Pairs of `map_ram` and `unmap_ram` under one preset, to be counted by an instruction profiler, or timed.
//!
//! Run twice with different loop counts and divide the difference of the totals by the difference of the pairs: the
//! cost of setting up cancels out. Without a profiler it prints nanoseconds per pair.
//!
//! ```text
//! cargo build -p nofrag --release --example ram_pairs
//! for pairs in 200000 1200000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/ram_pairs nofrag handle one $pairs 2>&1 | grep Collected
//! done
//! ```
//!
//! `results/ram-pairs/2026-11-21-instructions/measure.sh` does so for every workload and four presets.

#![allow(clippy::disallowed_types)] // an example has the standard library

use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::vmap::{CpuHandle, Epoch, Mapper, Preset, RamArea, VmapConfig, VmapPolicy, VmapSpace};
use std::convert::Infallible;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// 32 TiB, the vmalloc range of x86-64 with four levels of page tables.
const SPACE_PAGES: u64 = 1 << 33;

/// Counts the calls; one thread uses it, so plain loads and stores suffice.
#[derive(Debug, Default)]
struct Counting {
    installed: AtomicU64,
    cleared: AtomicU64,
    flushes: AtomicU64,
}

fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

impl Mapper for Counting {
    type Context = ();
    type Error = Infallible;

    fn install(&self, area: RamArea, _context: &()) -> Result<(), Infallible> {
        bump(&self.installed, area.pages.get());
        Ok(())
    }

    fn clear(&self, area: Span) {
        bump(&self.cleared, area.len());
    }

    fn flush(&self, _ranges: &[Span]) -> Epoch {
        bump(&self.flushes, 1);
        Epoch(self.flushes.load(Ordering::Relaxed))
    }

    fn completed(&self) -> Epoch {
        Epoch(self.flushes.load(Ordering::Relaxed))
    }
}

/// The maker of a pair: the CPU's handle, or the space with a lock for each call.
trait Way {
    fn pair(&mut self, pages: u64);
}

impl Way for CpuHandle<'_, Counting> {
    #[inline(always)]
    fn pair(&mut self, pages: u64) {
        let area = self.map_ram(black_box(pages), &()).expect("it is roomy");
        black_box(area.start);
        self.unmap_ram(area).expect("the area is mapped");
    }
}

impl Way for (&VmapSpace<Counting>, CpuId) {
    #[inline(always)]
    fn pair(&mut self, pages: u64) {
        let (space, cpu) = *self;
        let area = space.map_ram(cpu, black_box(pages), &()).expect("it is roomy");
        black_box(area.start);
        space.unmap_ram(cpu, area).expect("the area is mapped");
    }
}

/// Makes pairs of one size.
fn same(way: &mut impl Way, pages: u64, pairs: u64) {
    (0..pairs).for_each(|_| way.pair(pages));
}

/// Pen's first workload: 16 pages, then 8 until the block has 8 left.
fn w1(way: &mut impl Way, pairs: u64) {
    let mut left = pairs;
    while left > 0 {
        let others = left.min(126) - 1;
        way.pair(16);
        same(way, 8, others);
        left -= others + 1;
    }
}

/// Pen's second workload: any size.
fn w2(way: &mut impl Way, pairs: u64) {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..pairs {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        way.pair(1 + (random >> 58));
    }
}

/// Pen's third workload: each power of two until it leaves a hole of its size, then each into its hole.
fn w3(way: &mut impl Way, pairs: u64) {
    let mut left = pairs;
    let mut some = |pages, pairs: u64| {
        let pairs = pairs.min(left);
        same(way, pages, pairs);
        left -= pairs;
        left > 0
    };
    while (0..7).all(|order| some(1 << order, (1024 >> order) - 1))
        && (0..7).all(|order| some(1 << order, 1))
    {}
}

fn drive(way: &mut impl Way, program: &str, pairs: u64) -> Option<f64> {
    let begin = Instant::now();
    match program {
        "one" => same(way, 1, pairs),
        "max" => same(way, 64, pairs),
        "w1" => w1(way, pairs),
        "w2" => w2(way, pairs),
        "w3" => w3(way, pairs),
        _ => return None,
    }
    Some(begin.elapsed().as_secs_f64() * 1e9 / pairs as f64)
}

fn run(preset: &str, way: &str, program: &str, pairs: u64) -> Option<f64> {
    let Preset { name, policy } = VmapPolicy::preset(preset).ok()?;
    if name != preset {
        println!("{preset} was asked for: {name} is what runs");
    }
    let span = Span::sized(1 << 20, SPACE_PAGES).expect("the space is not empty");
    let config = VmapConfig { span, cpus: CpuSet::first(2).ok()?, policy };
    let space = VmapSpace::new(config, Counting::default(), ()).expect("the policy is sound");
    let cpu = space.cpus().by_rank(0)?;
    match way {
        "handle" => drive(&mut space.cpu(cpu).expect("nobody else has it"), program, pairs),
        "call" => drive(&mut (&space, cpu), program, pairs),
        _ => None,
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let answer = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [preset, way, program, pairs] => {
            pairs.parse().ok().and_then(|pairs| run(preset, way, program, pairs))
        }
        _ => None,
    };
    match answer {
        Some(ns) => {
            println!("{ns:.2} ns per pair");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("usage: ram_pairs PRESET handle|call one|max|w1|w2|w3 PAIRS");
            ExitCode::from(2)
        }
    }
}
