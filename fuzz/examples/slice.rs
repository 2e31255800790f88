//! A slice of the campaign: inputs without any order for one structure, beside its model, for a number of seconds.
//!
//! `slice ranges 7 60` runs the inputs of the seeds 7, 8, .. for a minute and prints how many operations it has
//! carried out; with 0 seconds it runs the first one alone, which is how a failure is repeated. `cargo xtask campaign`
//! starts it.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nofrag_fuzz::{arena, blocks, mmap, pages, range_heap, ranges, refused, starved, steps, vmap};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A structure, and the function that runs an input for it.
type Body = (&'static str, fn(&[u8]));

const BODIES: [Body; 9] = [
    ("ranges", ranges::run),
    ("handles", range_heap::run),
    ("areas", vmap::run),
    ("blocks", blocks::run),
    ("mappings", mmap::run),
    ("pages", pages::run),
    ("arenas", arena::run),
    ("starved", starved::run),
    ("refused", refused::run),
];

/// Inputs that are run between two looks at the clock.
const BATCH: u64 = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, seed, seconds] = arguments.as_slice() else { return usage() };
    let body = BODIES.iter().find(|(of, _)| of == name);
    let (Some(&(_, body)), Ok(seed), Ok(seconds)) = (body, seed.parse(), seconds.parse()) else {
        return usage();
    };
    run(name, body, seed, Duration::from_secs(seconds))
}

fn usage() -> ExitCode {
    let names = BODIES.map(|(name, _)| name).join(", ");
    eprintln!("slice STRUCTURE SEED SECONDS; structures are {names}");
    ExitCode::from(2)
}

fn run(name: &str, body: fn(&[u8]), first: u64, limit: Duration) -> ExitCode {
    let began = Instant::now();
    let mut seed: u64 = first;
    loop {
        if seed.wrapping_sub(first).is_multiple_of(BATCH) {
            // What ends the process at once leaves at least this.
            eprintln!("from seed {seed} on");
        }
        if catch_unwind(|| body(&input(seed))).is_err() {
            eprintln!("the input of seed {seed} fails: repeat with `slice {name} {seed} 0`");
            println!("operations {}", steps::carried_out());
            return ExitCode::FAILURE;
        }
        seed = seed.wrapping_add(1);
        let batch_is_done = seed.wrapping_sub(first).is_multiple_of(BATCH);
        if limit.is_zero() || (batch_is_done && began.elapsed() >= limit) {
            println!("operations {}", steps::carried_out());
            return ExitCode::SUCCESS;
        }
    }
}

/// Makes bytes without any order: mostly enough for as many operations as a body carries out.
fn input(seed: u64) -> Vec<u8> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut data = vec![0; 64 + (random.next_u64() % 4096) as usize];
    random.fill_bytes(&mut data);
    data
}
