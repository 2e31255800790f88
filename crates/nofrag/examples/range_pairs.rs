//! Pairs of a free and a lowest fit on a range allocator of one design, to be counted by an instruction profiler.
//!
//! 15,000 ranges of 1 to 100 numbers are live; each pair replaces one of them, drawn at random. Run twice with
//! different numbers of pairs and divide the difference of the totals by the difference of the pairs: the cost of
//! setting up cancels out. `cargo xtask counts` does so.

#![allow(clippy::disallowed_types)] // an example has the standard library

use nofrag::ranges::{AlignRule, Config, Index, RangeAllocator, Request, Span};
use std::hint::black_box;
use std::process::ExitCode;

const LIVE: usize = 15_000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

fn run(index: Index, pairs: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut allocator = RangeAllocator::new(Config { index, ..Config::default() });
    allocator.add_span(Span::sized(0x1000, 1 << 33)?)?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut live = Vec::with_capacity(LIVE);
    for _ in 0..LIVE {
        live.push(allocator.alloc(&Request::new(1 + random.below(100)))?);
    }
    for _ in 0..pairs {
        let at = random.below(LIVE as u64) as usize;
        allocator.free(black_box(live[at]))?;
        live[at] = allocator.alloc(black_box(&Request::new(1 + random.below(100))))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let index = match arguments.first().map(String::as_str) {
        Some("wide") => Some(Index::WideBlocks),
        Some("tree") => Some(Index::AugmentedTree(AlignRule::PaddedUnlessExact)),
        Some("scan") => Some(Index::CachedScan),
        _ => None,
    };
    let pairs = arguments.get(1).and_then(|pairs| pairs.parse().ok());
    let (Some(index), Some(pairs)) = (index, pairs) else {
        eprintln!("usage: range_pairs wide|tree|scan PAIRS");
        return ExitCode::from(2);
    };
    match run(index, pairs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("range_pairs: {why}");
            ExitCode::FAILURE
        }
    }
}
