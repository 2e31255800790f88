//! Ranges that are freed by handle.

use super::choices::Choices;
use super::heap_pair::{Field, Pair, TOUCHING, WIDE};
use super::starving::Heap;
use nofrag::check::Check;
use nofrag::ranges::{HandleError, HeapError, RangeHeap, Span};
use proptest::prelude::*;

fn heap(size: u64) -> RangeHeap {
    RangeHeap::over(Span::sized(0, size).unwrap()).unwrap()
}

fn check_run(field: Field, seed: u64, steps: u64) {
    let mut pair = Pair::new(field, Choices::seed(seed));
    (0..steps).for_each(|_| pair.step());
    pair.end();
}

#[test]
fn random_operations() {
    for seed in 0..4 {
        check_run(TOUCHING, seed, 3000);
        check_run(WIDE, seed, 3000);
    }
}

#[test]
#[ignore = "half a million operations, each of them checked"]
fn random_operations_at_length() {
    for seed in 4..40 {
        check_run(TOUCHING, seed, 8000);
        check_run(WIDE, seed, 6000);
    }
}

#[test]
fn random_operations_on_memory_that_refuses() {
    for (seed, field) in (0..).zip([TOUCHING, WIDE]) {
        for odds in [20, 128, 255] {
            let mut pair = Pair::new(field, Choices::seed(seed)).on(Heap::new(odds, seed));
            (0..1000).for_each(|_| pair.step());
            pair.end();
        }
    }
}

proptest! {
    /// Operations by choices that proptest makes, and shrinks to the fewest when a heap and the runs differ.
    #[test]
    fn chosen_operations(is_wide: bool, choices in proptest::collection::vec(any::<u8>(), 0..400)) {
        let field = if is_wide { WIDE } else { TOUCHING };
        let mut pair = Pair::new(field, Choices::Bytes(&choices));
        while pair.choices.has_more() {
            pair.step();
        }
        pair.end();
    }
}

#[test]
fn a_handle_is_good_for_one_free() {
    let mut heap = heap(100);
    let first = heap.alloc(10).unwrap();
    assert_eq!(heap.free(first), Span::new(0, 10).map_err(|_| HandleError::Stale));
    assert_eq!(heap.free(first), Err(HandleError::Stale), "nothing is there");
    let second = heap.alloc(10).unwrap();
    assert_eq!(second.start(), first.start(), "the same numbers");
    assert_eq!(heap.free(first), Err(HandleError::Stale), "and another owner");
    assert_eq!(heap.span(second), Span::new(0, 10).ok());
}

/// Before it had numbers there were no lists, and a request for 64 looked into one.
#[test]
fn a_heap_without_numbers_refuses() {
    let mut heap = RangeHeap::new();
    for size in [1, 64, 1 << 40, u64::MAX] {
        assert_eq!(heap.alloc(size), Err(HeapError::NoPlace));
        assert_eq!(heap.alloc_aligned(size, 4096), Err(HeapError::NoPlace));
    }
    assert_eq!((heap.stats().total, heap.iter_free().count()), (0, 0));
    heap.check().unwrap();
    let all = Span::new(0, 100).unwrap();
    heap.add_span(all).unwrap();
    heap.remove_span(all).unwrap();
    assert_eq!(heap.alloc(64), Err(HeapError::NoPlace));
}

/// Of a bin with many lengths only so many holes are looked at, and others serve meanwhile.
#[test]
fn a_bin_full_of_misfits_is_passed() {
    let mut heap = heap(1 << 30);
    let mut pins = Vec::new();
    let mut short = Vec::new();
    for _ in 0..200 {
        short.push(heap.alloc(1024).unwrap());
        pins.push(heap.alloc(1).unwrap());
    }
    let long = heap.alloc(1050).unwrap();
    pins.push(heap.alloc(1).unwrap());
    let rest = heap.stats().largest;
    pins.push(heap.alloc(rest).unwrap());
    // First in its list, then behind 200 others that are too short.
    heap.free(long).unwrap();
    let long = heap.alloc(1050).unwrap();
    heap.free(long).unwrap();
    for short in short {
        heap.free(short).unwrap();
    }
    assert_eq!(heap.alloc(1050), Err(HeapError::NoPlace));
    assert_eq!(heap.alloc(1024).map(|range| range.start() < long.start()), Ok(true));
    heap.check().unwrap();
}

/// Where nothing else has a place, more of the own bin are looked at than usual.
#[test]
fn the_last_hole_of_its_bin_is_found() {
    let mut heap = heap(1 << 20);
    let mut holes = Vec::new();
    for size in [1050].into_iter().chain([1024; 20]) {
        holes.push(heap.alloc(size).unwrap());
        heap.alloc(1).unwrap();
    }
    let rest = heap.stats().largest;
    heap.alloc(rest).unwrap();
    for &hole in &holes {
        heap.free(hole).unwrap();
    }
    assert_eq!(heap.alloc(1050).map(|range| range.start()), Ok(holes[0].start()));
}

/// A hole that may be too short for the alignment is no reason to refuse what a longer one has.
#[test]
fn a_long_misaligned_hole_hides_no_longer_one() {
    let mut heap = RangeHeap::over(Span::sized(50, 1 << 20).unwrap()).unwrap();
    let mut holes = vec![heap.alloc(5000).unwrap()];
    heap.alloc(3242).unwrap();
    for size in [1024, 1056].repeat(5) {
        holes.push(heap.alloc(size).unwrap());
        heap.alloc(4096 - size).unwrap();
    }
    for hole in holes {
        assert_eq!(heap.free(hole).unwrap().lowest_fit(1000, 4096), None);
    }
    assert!(heap.alloc_aligned(1000, 4096).is_ok());
}

/// Makes a heap whose holes have these starts and sizes, and lie apart; of a bin the last one stands first in its list.
fn with_holes(holes: &[(u64, u64)]) -> RangeHeap {
    let mut heap = heap(1 << 24);
    let mut at = 0;
    let mut place = |start, size| {
        heap.alloc(start - at).unwrap();
        at = start + size;
        heap.alloc(size).unwrap()
    };
    let ranges: Vec<_> = holes.iter().map(|&(start, size)| place(start, size)).collect();
    heap.alloc((1 << 24) - at).unwrap();
    for range in ranges {
        heap.free(range).unwrap();
    }
    heap.check().unwrap();
    heap
}

/// Holes of 1,024 numbers without a place for as many that begin at a multiple of 4,096, and one of the next bin.
fn misaligned(count: u64) -> Vec<(u64, u64)> {
    let hole = |number: u64| (8192 * (number + 1) + 1, if number == 0 { 1056 } else { 1024 });
    (0..=count).map(hole).collect()
}

fn start_of_aligned(heap: &mut RangeHeap) -> Result<u64, HeapError> {
    heap.alloc_aligned(1024, 4096).map(|range| range.start())
}

#[test]
fn a_short_hole_that_is_aligned_goes_before_a_long_one() {
    let mut heap = with_holes(&[(8193, 1024), (16_384, 1056), (32_769, 9000)]);
    assert_eq!(start_of_aligned(&mut heap), Ok(16_384));
}

#[test]
fn a_hole_that_serves_wherever_it_starts_is_found_behind_misaligned_ones() {
    let mut holes = misaligned(70);
    holes.push((1 << 20 | 1, 1024 + 4096));
    assert_eq!(start_of_aligned(&mut with_holes(&holes)), Ok((1 << 20) + 4096));
}

/// A hole that is aligned, but too short to serve wherever it starts, is found if 64 holes come not before it.
#[test]
fn an_aligned_request_looks_at_64_holes() {
    for (count, found) in [(60, Ok(1 << 20)), (70, Err(HeapError::NoPlace))] {
        let mut holes = misaligned(count);
        holes.push((1 << 20, 2000));
        assert_eq!(start_of_aligned(&mut with_holes(&holes)), found, "{count}");
    }
}

#[test]
fn room_grows_by_halves() {
    let mut heap = heap(1 << 20);
    let mut growths = 0;
    for _ in 0..10_000 {
        let before = heap.metadata_bytes();
        heap.alloc(1).unwrap();
        growths += u32::from(heap.metadata_bytes() > before);
    }
    assert!(growths < 30, "{growths}");
    assert!(heap.metadata_bytes() < 32 * 15_100 + 8000, "{}", heap.metadata_bytes());
}

/// While no more ranges are in use than room was made for, no allocation fails for memory.
#[test]
fn room_that_was_made_suffices() {
    let mut heap = heap(1 << 20);
    heap.reserve(300).unwrap();
    let mut memory = Heap::new(255, 1);
    let mut own = Vec::new();
    for turn in 0..3000_u64 {
        if own.len() < 300 {
            own.push(memory.run(|| heap.alloc_aligned(1 + turn % 7, 1 << (turn % 4))).unwrap());
        }
        if turn % 3 == 0 || own.len() == 300 {
            let at = (turn * 31) as usize % own.len();
            memory.run(|| heap.free(own.swap_remove(at))).unwrap();
        }
    }
    heap.check().unwrap();
}

/// Each stretch has a hole that is behind no range, for which no room was made.
#[test]
fn room_that_was_made_suffices_in_many_stretches() {
    const RANGES: u64 = 30;
    let mut heap = RangeHeap::new();
    for number in 0..40 {
        // With one multiple of 64, in its middle.
        heap.add_span(Span::sized(128 * number + 33, 62).unwrap()).unwrap();
    }
    heap.reserve(RANGES as usize).unwrap();
    let mut memory = Heap::new(255, 1);
    for number in 0..RANGES {
        let placed = memory.run(|| heap.alloc_aligned(1, 64));
        assert!(placed.is_ok(), "range {number}: {placed:?}");
    }
    heap.check().unwrap();
}
