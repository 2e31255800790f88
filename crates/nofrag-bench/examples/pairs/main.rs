//! Pairs of an allocation and a free, to be counted by an instruction profiler, or timed.
//!
//! A run builds its state and makes `PAIRS` pairs. The cost of one is the difference of the totals of two runs over the
//! difference of their pairs: the cost of setting up cancels out. `cargo xtask counts` does so for the rows of its
//! table; for one by hand:
//!
//! ```text
//! cargo build -p nofrag-bench --profile measured --example pairs
//! for pairs in 50000 350000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/measured/examples/pairs pages nofrag random $pairs 2>&1 | grep Collected
//! done
//! ```
//!
//! Without a profiler it prints nanoseconds per pair.

mod areas;
mod arena;
mod mappings;
mod pages;
mod ram;
mod ranges;

use clap::Parser;
use std::error::Error;
use std::time::Instant;

/// 32 TiB, the vmalloc range of x86-64 with four levels of page tables.
const SPACE_PAGES: u64 = 1 << 33;

type Outcome = Result<(), Box<dyn Error>>;

/// Makes pairs of an allocation and a free.
#[derive(Parser)]
enum Subject {
    /// Ranges of numbers: 15,000 of 1 to 100 numbers are live, and each pair replaces one of them.
    Ranges { design: ranges::Design, pairs: u64 },
    /// The same ranges, freed by handle.
    Handles { pairs: u64 },
    /// Ranges of numbers: one is taken and freed in a single hole of 2^BITS numbers.
    Hole { kept: ranges::Kept, bits: u32, pairs: u64 },
    /// Virtual areas of one preset; `purge` frees half of PAIRS areas and purges them.
    Areas { preset: String, workload: areas::Workload, pairs: u64 },
    /// Small mappings of one preset, through a CPU's handle or with a lock for each call.
    Ram { preset: String, way: ram::Way, workload: ram::Workload, pairs: u64 },
    /// An address space of AREAS areas under one placement: each pair replaces one of them.
    Mappings { placement: String, areas: usize, pairs: u64 },
    /// Page frames of one preset, half of 1 GiB in use.
    Pages { preset: String, workload: pages::Workload, pairs: u64 },
    /// Runs of an arena, parked: PAIRS pairs through a handle, then as many through the shared arena.
    Arena { pairs: u64 },
}

fn main() -> Outcome {
    match Subject::parse() {
        Subject::Ranges { design, pairs } => ranges::run(design, pairs),
        Subject::Handles { pairs } => ranges::run_by_handle(pairs),
        Subject::Hole { kept, bits, pairs } => ranges::run_in_one_hole(kept, bits, pairs),
        Subject::Areas { preset, workload, pairs } => areas::run(&preset, workload, pairs),
        Subject::Ram { preset, way, workload, pairs } => ram::run(&preset, way, workload, pairs),
        Subject::Mappings { placement, areas, pairs } => mappings::run(&placement, areas, pairs),
        Subject::Pages { preset, workload, pairs } => pages::run(&preset, workload, pairs),
        Subject::Arena { pairs } => arena::run(pairs),
    }
}

/// Makes the pairs and prints the time of one.
fn timed<T>(pairs: u64, make: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let made = make();
    println!("{:.1} ns per pair", begin.elapsed().as_secs_f64() * 1e9 / pairs as f64);
    made
}

/// Says which preset runs, if it has another name.
fn note_alias(asked: &str, runs: &str) {
    if asked != runs {
        println!("{asked} was asked for: {runs} is what runs");
    }
}

/// Random numbers by xorshift.
struct Random(u64);

impl Random {
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

/// Random numbers of which the high bits are good: a linear congruence, the cheapest that will do.
struct Congruence(u64);

impl Congruence {
    const SEED: u64 = 0x2545_f491_4f6c_dd1d;

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        self.0
    }
}
