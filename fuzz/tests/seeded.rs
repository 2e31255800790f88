//! The fuzz bodies driven by a seeded generator, for machines without a fuzzer.

use std::panic::catch_unwind;

use nofrag_fuzz::{canary, ranges};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Runs `body` on `inputs` random inputs; a failure names the seed.
fn drive(body: fn(&[u8]), inputs: u64) {
    for seed in 0..inputs {
        if catch_unwind(|| body(&input(seed))).is_err() {
            panic!("the input of seed {seed} fails");
        }
    }
}

/// The bytes of one input.
fn input(seed: u64) -> Vec<u8> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut data = vec![0; 64 + (seed as usize % 16) * 128];
    random.fill_bytes(&mut data);
    data
}

#[test]
fn ranges_hold() {
    drive(ranges::run, 4_000);
}

#[test]
fn the_planted_bug_is_found() {
    let found = (0..4_000).find(|&seed| catch_unwind(|| canary::run(&input(seed))).is_err());
    assert!(found.is_some(), "the driver does not see a lost number");
}
