//! `map_ram` and `unmap_ram` of every preset against a model too simple to be wrong: a list of what is mapped.

use super::block_pair::Pair;
use super::block_support::{GEOMETRIES, PageBook, block_space, gappy_cpus, presets_with};
use super::choices::Choices;
use super::starving::Heap;
use super::vmap_support::span;
use nofrag::ranges::Span;
use nofrag::vmap::{BlockGeometry, Preset};

/// One random run; a flush completes when it has been asked for more than `lag` times.
#[derive(Clone, Copy, Debug)]
struct Course {
    seed: u64,
    steps: u64,
    check_every: u64,
    lag: u32,
    heap: Heap,
}

fn run(preset: Preset, bounds: Span, course: Course) {
    let space = block_space(preset.policy, gappy_cpus(), PageBook::new(bounds, course.lag));
    let choices = Choices::seed(course.seed);
    let mut pair = Pair::new(&space, preset, choices, course.check_every).on(course.heap);
    (0..course.steps).for_each(|_| pair.step());
    pair.end();
}

/// Runs a course, and names preset, space and course if it fails.
fn check_run(preset: Preset, bounds: Span, course: Course) {
    let outcome = std::panic::catch_unwind(|| run(preset, bounds, course));
    if outcome.is_err() {
        let geometry = preset.policy.blocks.geometry;
        panic!("{}, {geometry:?}, {bounds:?}, {course:?}: see above", preset.name);
    }
}

/// Returns a space of about seven blocks, which neither begins nor ends where a block does.
fn bounds_of(geometry: BlockGeometry, start: u64) -> Span {
    let slots = u64::from(geometry.slots());
    span(start + slots / 2 + 1, slots * 7 + slots / 3)
}

fn check_presets(geometry: BlockGeometry, start: u64, course: Course) {
    for preset in presets_with(geometry, 300) {
        check_run(preset, bounds_of(geometry, start), course);
    }
}

#[test]
fn blocks_of_64_pages_agree_with_the_model() {
    for seed in 0..4 {
        let course = Course {
            seed,
            steps: 900,
            check_every: 1,
            lag: [0, 1, 2, 40][seed as usize % 4],
            heap: Heap::AMPLE,
        };
        check_presets(GEOMETRIES[0], 0x4000, course);
    }
}

#[test]
fn blocks_of_128_pages_agree_with_the_model() {
    for seed in 10..12 {
        let course = Course {
            seed,
            steps: 900,
            check_every: 1,
            lag: 3 * (seed as u32 % 2),
            heap: Heap::AMPLE,
        };
        check_presets(GEOMETRIES[1], 0x1000, course);
    }
}

#[test]
fn blocks_of_1024_pages_agree_with_the_model() {
    let course = Course { seed: 20, steps: 1500, check_every: 3, lag: 1, heap: Heap::AMPLE };
    check_presets(GEOMETRIES[2], 0x8000, course);
}

#[test]
fn blocks_at_the_ends_of_the_numbers_agree_with_the_model() {
    let course = Course { seed: 30, steps: 600, check_every: 1, lag: 0, heap: Heap::AMPLE };
    for preset in presets_with(GEOMETRIES[0], 200) {
        check_run(preset, span(0, 500), course);
        check_run(preset, span(u64::MAX - 500, 500), course);
    }
}

#[test]
fn blocks_on_a_heap_that_refuses_agree_with_the_model() {
    for odds in [20, 128, 255] {
        let heap = Heap::new(odds, 40);
        let course = Course { seed: 40, steps: 400, check_every: 1, lag: 1, heap };
        check_presets(GEOMETRIES[0], 0x4000, course);
    }
}

/// More than a million operations for each geometry: 125,000 for each preset, half of them with late flushes. The
/// command stands in CONTRIBUTING.
#[test]
#[ignore = "takes minutes; for an opt-in long run"]
fn a_million_operations_on_blocks_agree_with_the_model() {
    for geometry in GEOMETRIES {
        for lag in [0, 3] {
            let course =
                Course { seed: 2015, steps: 62_500, check_every: 16, lag, heap: Heap::AMPLE };
            check_presets(geometry, 0x7_0000, course);
        }
    }
}
