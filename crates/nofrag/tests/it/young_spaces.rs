//! The highest hole of a space stands beside the tree of the others: what serves from it must not depend on its length,
//! nor on the number of holes below.

use nofrag::check::Check;
use nofrag::ranges::{AlignClasses, Config, Fit, RangeAllocator, Request, Span};

const BASE: u64 = 0x1000;

fn space_of(bits: u32, align_classes: AlignClasses) -> (RangeAllocator, Span) {
    let mut allocator = RangeAllocator::new(Config { align_classes, ..Config::default() });
    let span = Span::sized(BASE, 1 << bits).unwrap();
    allocator.add_span(span).unwrap();
    (allocator, span)
}

fn classes() -> [AlignClasses; 2] {
    [AlignClasses::NONE, AlignClasses::new(&[6, 9]).unwrap()]
}

#[test]
fn a_cut_of_a_young_space_looks_at_one_hole() {
    for classes in classes() {
        for bits in [20, 40] {
            let (mut allocator, space) = space_of(bits, classes);
            for number in 0..500 {
                let span = allocator.alloc(&Request::new(100).within(space)).unwrap();
                assert_eq!(span.start(), BASE + number * 100);
            }
            assert_eq!(allocator.counters().steps, 500, "2^{bits} numbers, {classes:?}");
        }
    }
}

/// Small holes below that serve nobody cost one look at the maxima of the whole tree, however many they are.
#[test]
fn holes_too_small_for_a_request_are_not_looked_at() {
    for classes in classes() {
        for count in [10, 3000] {
            let (mut allocator, space) = space_of(40, classes);
            for number in 0..count {
                allocator.alloc_at(Span::sized(BASE + number * 10 + 5, 5).unwrap()).unwrap();
            }
            let before = allocator.counters().steps;
            let span = allocator.alloc(&Request::new(6).within(space)).unwrap();
            assert_eq!(span.start(), BASE + count * 10);
            assert_eq!(allocator.counters().steps - before, 1, "{count} holes, {classes:?}");
            allocator.check().unwrap();
        }
    }
}

/// Takes from both ends and the middle of the highest hole, and gives back above it, below it and beside it.
#[test]
fn the_highest_hole_follows_what_is_taken_and_freed() {
    let (mut allocator, _) = space_of(6, AlignClasses::NONE);
    let at = |from: u64, to: u64| Span::new(BASE + from, BASE + to).unwrap();
    let holes = |allocator: &RangeAllocator| -> Vec<(u64, u64)> {
        allocator.check().unwrap();
        allocator.iter_free().map(|hole| (hole.start() - BASE, hole.end() - BASE)).collect()
    };
    let highest = Request::new(4).fit(Fit::Highest);
    assert_eq!(allocator.alloc(&highest).unwrap(), at(60, 64));
    allocator.alloc_at(at(20, 30)).unwrap();
    assert_eq!(holes(&allocator), [(0, 20), (30, 60)]);
    allocator.free(at(62, 64)).unwrap();
    assert_eq!(holes(&allocator), [(0, 20), (30, 60), (62, 64)]);
    assert_eq!(allocator.alloc(&highest).unwrap(), at(56, 60));
    allocator.free(at(60, 62)).unwrap();
    assert_eq!(holes(&allocator), [(0, 20), (30, 56), (60, 64)]);
    assert!(allocator.free(at(59, 61)).is_err() && allocator.free(at(55, 60)).is_err());
    allocator.free(at(56, 60)).unwrap();
    assert_eq!(holes(&allocator), [(0, 20), (30, 64)]);
    allocator.alloc_at(at(30, 64)).unwrap();
    assert_eq!((holes(&allocator), allocator.largest()), (vec![(0, 20)], 20));
    assert_eq!(allocator.alloc(&highest).unwrap(), at(16, 20));
    allocator.free(at(16, 64)).unwrap();
    assert_eq!(holes(&allocator), [(0, 64)]);
}
