//! Every placement against the naive list, with laws, lists and statistics compared after each step.

use super::choices::Random;
use super::mmap_pair::{KINDS, Pair, SCALES, Step, configs};
use super::starving::Heap;
use nofrag::mmap::SpaceConfig;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `steps` random steps; a failure names the values to repeat. Returns the number of steps of each kind that
/// changed anything.
fn check_run(config: SpaceConfig, scale: u64, seed: u64, steps: u64) -> [u64; KINDS] {
    check_run_on(Heap::AMPLE, config, scale, seed, steps)
}

fn check_run_on(
    heap: Heap,
    config: SpaceConfig,
    scale: u64,
    seed: u64,
    steps: u64,
) -> [u64; KINDS] {
    let mut random = Random::new(seed);
    let mut pair = Pair::new(config, scale).on(heap);
    let mut step = 0;
    let run = AssertUnwindSafe(|| {
        while step < steps {
            let mut bytes = [0; Step::BYTES];
            bytes.fill_with(|| random.below(256) as u8);
            pair.step(Step::from_bytes(bytes));
            step += 1;
        }
    });
    let outcome = catch_unwind(run);
    assert!(outcome.is_ok(), "seed {seed}, scale {scale}, step {step} of {config:?} fails");
    pair.changes
}

#[test]
fn spaces_agree_with_the_naive_list() {
    let mut changes = [0; KINDS];
    for scale in SCALES {
        for (nth, config) in configs(scale).into_iter().enumerate() {
            let run = check_run(config, scale, nth as u64, 1_500);
            changes.iter_mut().zip(run).for_each(|(all, more)| *all += more);
        }
    }
    // A test that is always refused proves little.
    assert!(changes.iter().all(|&count| count >= 100), "{changes:?}");
}

#[test]
fn spaces_with_little_room_for_areas_agree() {
    for (nth, config) in configs(1).into_iter().enumerate() {
        for map_limit in [0, 2, 5] {
            check_run(SpaceConfig { map_limit, ..config }, 1, 77 + nth as u64, 600);
        }
    }
}

#[test]
fn spaces_on_a_heap_that_refuses_agree() {
    for (nth, config) in (0..).zip(configs(1)) {
        let heap = Heap::new([20, 128, 255][nth as usize % 3], nth);
        check_run_on(heap, SpaceConfig { map_limit: 40, ..config }, 1, 177 + nth, 300);
    }
}

#[test]
#[ignore = "minutes; run it by name"]
fn ten_million_operations_on_address_spaces() {
    for seed in 0..50 {
        let scale = SCALES[seed as usize % SCALES.len()];
        for (nth, config) in configs(scale).into_iter().enumerate() {
            let map_limit = [14, 30, 5, 60][seed as usize / 2 % 4];
            check_run(SpaceConfig { map_limit, ..config }, scale, 1_000 * seed + nth as u64, 2_500);
        }
    }
}
