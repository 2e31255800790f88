//! Every index design against sorted runs, in spaces of every shape.

use super::choices::Choices;
use super::doc_2019::RULES;
use super::range_pair::{DELICATE, Pair, Shape};
use super::starving::Heap;
use core::ops::Range;
use nofrag::check::Check;
use nofrag::ranges::{AlignClasses, Config, Fit, Index, RangeAllocator, Request, Span};
use proptest::prelude::*;

const SMALL: Shape = Shape { bases: &[100], length: 600, first: 600, largest_size: 12, ..DELICATE };

fn designs() -> impl Iterator<Item = Index> {
    let trees = RULES.into_iter().map(Index::AugmentedTree);
    [Index::WideBlocks, Index::CachedScan].into_iter().chain(trees)
}

/// Runs `steps` random steps on an allocator and the model. Returns the number of holes in the end.
fn check_run(config: Config, shape: Shape, seed: u64, steps: u64) -> usize {
    println!("seed {seed}, {shape:?} of {config:?}");
    let mut pair = Pair::new(config, shape, Choices::seed(seed));
    (0..steps).for_each(|_| pair.step());
    let holes = pair.holes();
    pair.end();
    holes
}

fn configs() -> [Config; 4] {
    let classes = AlignClasses::new(&[2, 5, 9]).unwrap();
    let plain = Config::default();
    [
        plain,
        Config { size_index: true, ..plain },
        Config { align_classes: classes, ..plain },
        Config { align_classes: classes, size_index: true, ..plain },
    ]
}

fn check_small_spaces(seeds: Range<u64>) {
    for config in configs() {
        for seed in seeds.clone() {
            check_run(config, SMALL, seed, 1500);
        }
    }
}

#[test]
fn random_operations_on_a_small_space() {
    check_small_spaces(0..2);
}

#[test]
fn random_operations_on_every_design() {
    for index in designs() {
        for shape in [SMALL, DELICATE] {
            check_run(Config { index, ..Config::default() }, shape, 5, 1500);
        }
    }
}

#[test]
fn random_operations_with_many_holes() {
    for config in configs() {
        let shape =
            Shape { length: 40_000, first: 40_000, largest_size: 6, check_every: 3001, ..SMALL };
        let holes = check_run(config, shape, 11, 30_000);
        assert!(holes >= 2_000, "{holes} holes");
    }
}

/// Holes whose lengths share bins: the longest of each bin is noted by number of leaf, and leaves split and join.
#[test]
fn random_operations_with_long_holes() {
    for config in configs().iter().filter(|config| config.size_index) {
        for (largest_size, length) in [(1200, 1 << 21), (40_000, 1 << 26)] {
            let shape = Shape { length, first: length, largest_size, check_every: 97, ..SMALL };
            check_run(*config, shape, length, 6000);
        }
    }
}

fn check_many_windows(steps: u64) {
    for config in configs() {
        for unit in [1 << 29, 1 << 31, (1 << 31) - 1, 1 << 40] {
            let shape = Shape { unit, length: 1000 * unit, first: 1000 * unit, ..SMALL };
            check_run(config, shape, unit, steps);
        }
    }
}

#[test]
fn random_operations_over_many_windows() {
    check_many_windows(150);
}

fn check_both_ends_of_the_numbers(steps: u64) {
    const BASES: [&[u64]; 6] =
        [&[0], &[1], &[(1 << 31) - 300], &[(3 << 31) - 1], &[u64::MAX - 600], &[u64::MAX - 601]];
    for config in configs() {
        for bases in BASES {
            check_run(config, Shape { bases, ..SMALL }, bases[0], steps);
        }
        for unit in [1, 1 << 30, 1 << 44] {
            let (length, largest_size) = (u64::MAX, 1 << 19);
            let all = Shape { bases: &[0], length, first: length, unit, largest_size, ..SMALL };
            check_run(config, all, unit, steps / 4);
        }
    }
}

#[test]
fn random_operations_at_both_ends_of_the_numbers() {
    check_both_ends_of_the_numbers(500);
}

#[test]
#[ignore = "a hundred thousand operations, each of them checked"]
fn random_operations_at_length() {
    check_small_spaces(2..8);
    check_many_windows(500);
    check_both_ends_of_the_numbers(1600);
}

#[test]
fn random_operations_on_a_heap_that_refuses() {
    for (seed, index) in (0..).zip(designs()) {
        for odds in [20, 128, 255] {
            let config = Config { index, size_index: true, ..Config::default() };
            let pair = Pair::new(config, SMALL, Choices::seed(seed));
            let mut pair = pair.on(Heap::new(odds, seed));
            (0..1000).for_each(|_| pair.step());
            pair.end();
        }
    }
}

proptest! {
    /// Operations by choices that proptest makes, and shrinks to the fewest when an allocator and the model differ.
    #[test]
    fn chosen_operations(
        design in 0..5_usize,
        size_index: bool,
        choices in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let index = designs().nth(design).expect("there are five");
        let config = Config { index, size_index, ..Config::default() };
        let mut pair = Pair::new(config, DELICATE, Choices::Bytes(&choices));
        while pair.choices.has_more() {
            pair.step();
        }
        pair.end();
    }
}

/// An allocator that loses the last number of each freed range is found out; a driver that did not see it would prove
/// nothing.
#[test]
#[should_panic(expected = "the holes differ")]
fn a_planted_bug_is_found() {
    let config = Config { size_index: true, ..Config::default() };
    let lose = |allocator: &mut RangeAllocator, freed: Span| {
        let last = Span::new(freed.end() - 1, freed.end()).unwrap();
        allocator.alloc_at(last).unwrap();
    };
    let mut pair = Pair::new(config, SMALL, Choices::seed(1)).with_bug(lose);
    (0..1000).for_each(|_| pair.step());
}

/// Holes that come in below the first fence of a block must be found again after the block has split: the fence of a
/// first child was compared though everything below it belongs to that child.
#[test]
fn stale_first_fence() {
    let mut allocator = RangeAllocator::new(Config::default());
    let whole = Span::new(0, 1 << 20).unwrap();
    allocator.add_span(whole).unwrap();
    allocator.alloc_at(whole).unwrap();
    let one = |at: u64| Span::sized(at, 1).unwrap();
    for at in (1000..3000).rev() {
        allocator.free(one(2 * at)).unwrap();
    }
    for at in (0..1000).rev() {
        allocator.free(one(2 * at)).unwrap();
        assert!(allocator.is_free(one(2 * at)));
    }
    allocator.check().unwrap();
    assert_eq!(allocator.iter_free().count(), 3000);
}

/// A hole that grows over the fence behind its leaf and is then cut at its left edge must not leave its leaf's stretch.
#[test]
fn hole_grown_over_a_fence() {
    let mut allocator = RangeAllocator::new(Config::default());
    let whole = Span::new(0, 2000).unwrap();
    allocator.add_span(whole).unwrap();
    allocator.alloc_at(whole).unwrap();
    for at in 0..100 {
        allocator.free(Span::sized(20 * at, 2).unwrap()).unwrap();
    }
    for at in (1..99).step_by(2) {
        // Joins two holes, which at some place belong to two leaves; then all but the last number is taken again.
        allocator.free(Span::new(20 * at + 2, 20 * at + 20).unwrap()).unwrap();
        allocator.check().unwrap();
        allocator.alloc_at(Span::new(20 * at, 20 * at + 21).unwrap()).unwrap();
        allocator.check().unwrap();
    }
}

/// A short hole that lies across a multiple of 2^31 and is cut beyond it belongs to the next window's leaf: its frees
/// were refused.
#[test]
fn hole_cut_across_a_window() {
    let boundary = 1 << 31;
    let mut allocator = RangeAllocator::new(Config::default());
    allocator.add_span(Span::new(boundary - 1000, boundary + 90).unwrap()).unwrap();
    let taken: Vec<Span> = (0..105).map(|_| allocator.alloc(&Request::new(10)).unwrap()).collect();
    allocator.check().unwrap();
    for span in taken {
        allocator.free(span).unwrap();
        allocator.check().unwrap();
    }
    assert_eq!(allocator.stats().holes, 1);
}

/// Holes that come in downwards in one window, behind a leaf of the window before, share leaves: each had one of its
/// own.
#[test]
fn downward_frees_behind_another_window() {
    let boundary: u64 = 1 << 31;
    let mut allocator = RangeAllocator::new(Config::default());
    let whole = Span::new(boundary - 10, boundary + 100_000).unwrap();
    allocator.add_span(whole).unwrap();
    allocator.alloc_at(whole).unwrap();
    allocator.reserve(20_002).unwrap();
    let reserved = allocator.metadata_bytes();
    allocator.free(Span::sized(boundary - 5, 1).unwrap()).unwrap();
    for at in (1..20_000).rev() {
        allocator.free(Span::sized(boundary + 3 * at, 1).unwrap()).unwrap();
    }
    allocator.check().unwrap();
    assert_eq!(allocator.metadata_bytes(), reserved);
}

/// Holes of pages, 4 GiB apart in bytes, share leaves as neighbours do: each had a leaf of its own, and 370 bytes.
#[test]
fn pages_far_apart_share_leaves() {
    const STRIDE: u64 = 1 << 32;
    const HOLES: usize = 10_000;
    let page = |number: u64| Span::sized(number * STRIDE, 4096).unwrap();
    let mut cut = RangeAllocator::over(Span::new(0, HOLES as u64 * STRIDE).unwrap()).unwrap();
    // The same space, which has become wide bit by bit.
    let mut grown = RangeAllocator::over(page(0)).unwrap();
    for number in 0..HOLES as u64 {
        cut.alloc_at(Span::new(page(number).end(), (number + 1) * STRIDE).unwrap()).unwrap();
        if number > 0 {
            grown.add_span(page(number)).unwrap();
        }
    }
    for space in [&mut cut, &mut grown] {
        assert_eq!(space.stats().holes, HOLES);
        let bytes = space.metadata_bytes() / HOLES;
        assert!(bytes <= 24, "{bytes} bytes a hole");
        space.check().unwrap();
        // The first byte makes the tree anew, and changes nothing else.
        let within = Span::new(page(7).start(), u64::MAX).unwrap();
        let byte = space.alloc(&Request::new(1).within(within)).unwrap();
        assert_eq!(byte, Span::sized(page(7).start(), 1).unwrap());
        assert_eq!(space.iter_free().nth(7), Span::new(byte.end(), page(7).end()).ok());
        assert!((0..HOLES as u64).filter(|&at| at != 7).map(page).all(|page| space.is_free(page)));
        space.check().unwrap();
    }
}

/// Bounds and questions need not be multiples of anything, however coarse the numbers of a space are.
#[test]
fn bounds_and_questions_lie_between_grains() {
    const PAGE: u64 = 4096;
    let all = Span::new(0, 1 << 42).unwrap();
    let align_classes = AlignClasses::new(&[16]).unwrap();
    let mut space = RangeAllocator::new(Config { align_classes, ..Config::default() });
    space.add_span(all).unwrap();
    let page = |at: u64| Span::sized(at * PAGE, PAGE).unwrap();
    let within = Span::new(1, 3 * PAGE + 1).unwrap();
    let request = Request::new(PAGE).align(PAGE).within(within);
    assert_eq!(space.alloc(&request), Ok(page(1)));
    assert_eq!(space.alloc(&request.fit(Fit::Highest)), Ok(page(2)));
    assert!(space.alloc(&request).is_err());
    assert_eq!(space.hole_below(3 * PAGE + 1), Span::new(3 * PAGE, all.end()).ok());
    assert_eq!(space.hole_below(3 * PAGE), Some(page(0)));
    assert_eq!(space.hole_from(PAGE - 1), Some(page(0)));
    assert_eq!(space.hole_from(PAGE), space.hole_below(u64::MAX));
    // A class of the configuration guides from the first request on.
    for at in 0..4_000 {
        // Leaves 20 pages that hold no 16 of which the first is a multiple of 16.
        space.alloc_at(Span::sized((25 + 32 * at) * PAGE, 12 * PAGE).unwrap()).unwrap();
    }
    let aligned = space.alloc(&Request::new(16 * PAGE).align(16 * PAGE)).unwrap();
    assert!(aligned.start().is_multiple_of(16 * PAGE));
    assert_eq!(space.counters().dead_ends, 0);
    space.check().unwrap();
}

/// The dynamic fit knows how far the live numbers would reach in whatever unit the tree counts.
#[test]
fn a_small_hole_above_the_live_numbers_is_left_alone() {
    let mut space = RangeAllocator::over(Span::new(0, 1 << 40).unwrap()).unwrap();
    let page = |at: u64| Span::sized(at * 4096, 4096).unwrap();
    space.alloc_at(page(15)).unwrap();
    space.alloc_at(page(17)).unwrap();
    assert_eq!(space.alloc(&Request::new(4096).fit(Fit::Dynamic)), Ok(page(0)));
}

/// Room that was made lasts when the tree is made anew, for a finer number.
#[test]
fn room_lasts_when_numbers_become_finer() {
    let all = Span::new(0, 1 << 40).unwrap();
    let mut space = RangeAllocator::over(all).unwrap();
    space.reserve(3_000).unwrap();
    space.alloc_at(all).unwrap();
    space.free(Span::new(0, 1).unwrap()).unwrap();
    let mut memory = Heap::new(255, 1);
    for at in 1..2_000 {
        let byte = Span::sized(3 * at, 1).unwrap();
        memory.run(|| space.free(byte)).unwrap();
    }
    space.check().unwrap();
}

/// With nearly all 64-bit numbers live, the limit of the dynamic fit was computed beyond them.
#[test]
fn dynamic_limit_at_the_top() {
    let mut allocator = RangeAllocator::new(Config { size_index: true, ..Config::default() });
    allocator.add_span(Span::ALL).unwrap();
    allocator.alloc(&Request::new(u64::MAX - 100)).unwrap();
    let last = allocator.alloc(&Request::new(50).fit(Fit::Dynamic)).unwrap();
    assert_eq!(last.start(), u64::MAX - 100);
}

/// Ten million operations over all configurations:
/// `cargo test --release -p nofrag --test it long_model_run -- --ignored`.
#[test]
#[ignore = "ten million operations; see CONTRIBUTING.md for the command"]
fn long_model_run() {
    for (round, config) in (0..).zip(configs().iter().cycle().take(40)) {
        let length = [600, 3000, 20_000, 100_000][round as usize / 4 % 4];
        let across: [&[u64]; 4] =
            [&[(1 << 31) - 300], &[(1 << 31) - 1500], &[(1 << 31) - 10_000], &[(1 << 31) - 50_000]];
        // Every second group of runs lies across the boundary of two windows.
        let bases = if round / 4 % 2 == 0 { &[100] } else { across[round as usize / 4 % 4] };
        let (first, largest_size, check_every) = (length, 16, length / 20);
        let shape = Shape { bases, length, first, largest_size, check_every, ..SMALL };
        check_run(*config, shape, round, 250_000);
    }
}
