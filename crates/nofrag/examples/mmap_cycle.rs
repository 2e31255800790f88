//! Cycles of an address space: take a random area out, find a place for another, put that one in.
//!
//! No two areas merge, so the index holds as many as are asked for. The space is filled from the top, then aged by two
//! cycles for each area, and only then are cycles timed.
//!
//! ```text
//! cargo run -p nofrag --release --example mmap_cycle linux-3.8 100000 1000000
//! ```
//!
//! To count instructions, run twice with different numbers of cycles and divide the difference of the totals by the
//! difference of the cycles: the cost of setting up cancels out. A fourth word, `mean`, leaves out the second round,
//! which looks at the clock in each cycle. `cargo xtask counts` does so.
//!
//! ```text
//! for cycles in 20000 120000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/mmap_cycle linux-3.8 100000 $cycles mean 2>&1 | grep Collected
//! done
//! ```

#![allow(clippy::disallowed_types)] // an example has the standard library

use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, Layout, MapFlags, Placement, Protection, SpaceConfig,
};
use nofrag::units::{PageCount, Vpn};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Sizes are 1 to this many pages.
const LARGEST: u64 = 16;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

struct Bench {
    space: AddressSpace,
    live: Vec<(Vpn, PageCount)>,
    random: Random,
}

impl Bench {
    fn new(placement: Placement, areas: usize) -> Result<Bench, Box<dyn std::error::Error>> {
        let config = SpaceConfig::new(Layout::X86_64, placement);
        let space = AddressSpace::new(SpaceConfig { map_limit: areas + 1, ..config });
        let mut bench = Bench { space, live: Vec::new(), random: Random(0x9e37_79b9_7f4a_7c15) };
        for _ in 0..areas {
            let area = bench.map()?;
            bench.live.push(area);
        }
        for _ in 0..2 * areas {
            bench.cycle()?;
        }
        Ok(bench)
    }

    fn map(&mut self) -> Result<(Vpn, PageCount), Box<dyn std::error::Error>> {
        let pages = PageCount(1 + self.random.below(LARGEST));
        let attributes = Attributes::anonymous(Protection::READ_WRITE).with(AreaFlags::OPAQUE);
        Ok((self.space.map(pages, attributes, None, MapFlags::default())?, pages))
    }

    fn cycle(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let at = self.random.below(self.live.len() as u64) as usize;
        let (start, pages) = self.live[at];
        self.space.unmap(start, pages)?;
        self.live[at] = self.map()?;
        Ok(())
    }
}

/// Returns the quantile of sorted durations.
fn quantile(sorted: &[Duration], share: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

/// The times that are measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Mean,
    /// The mean, and the time of each cycle.
    Each,
}

fn run(
    preset: &str,
    areas: usize,
    cycles: usize,
    what: What,
) -> Result<(), Box<dyn std::error::Error>> {
    let asked = preset;
    let preset = Placement::preset(asked)?;
    if preset.name != asked {
        println!("{asked} was asked for: {} is what runs", preset.name);
    }
    let mut bench = Bench::new(preset.placement, areas)?;
    let before = *bench.space.counters();
    let began = Instant::now();
    for _ in 0..cycles {
        bench.cycle()?;
    }
    let mean = began.elapsed() / cycles as u32;
    let after = *bench.space.counters();
    if what == What::Mean {
        println!("{} {areas} areas: {mean:?} per cycle", preset.name);
        return Ok(());
    }
    // Once more with a look at the clock in each cycle, of which the mean above is free.
    let mut each: Vec<Duration> = Vec::with_capacity(cycles);
    for _ in 0..cycles {
        let began = Instant::now();
        bench.cycle()?;
        each.push(began.elapsed());
    }
    each.sort_unstable();
    let stats = bench.space.hole_stats();
    println!(
        "{} {areas} areas: {mean:?} per cycle; each looked at: median {:?}, p99.9 {:?}; {:.2} steps and {:.2} visits \
         per search; {:.2} bytes per area, {} holes",
        preset.name,
        quantile(&each, 0.5),
        quantile(&each, 0.999),
        (after.steps - before.steps) as f64 / cycles as f64,
        (after.visits - before.visits) as f64 / cycles as f64,
        bench.space.metadata_bytes() as f64 / areas as f64,
        stats.holes,
    );
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let numbers = |at: usize| arguments.get(at).and_then(|text| text.parse().ok());
    let (Some(preset), Some(areas @ 1..), Some(cycles @ 1..)) =
        (arguments.get(1), numbers(2), numbers(3))
    else {
        eprintln!("usage: mmap_cycle PLACEMENT AREAS CYCLES [mean]");
        return ExitCode::from(2);
    };
    let mean = arguments.get(4).is_some_and(|word| word == "mean");
    match run(preset, areas, cycles, if mean { What::Mean } else { What::Each }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mmap_cycle: {why}");
            ExitCode::FAILURE
        }
    }
}
