//! Bugs that really happened (docs/sources/vmap.md#bugs), each test named after the thing that broke. Where the broken
//! behaviour is a policy value, the test shows it beside the correct one.

use crate::doc_2019::RULES;
use crate::linux_rules::{empty, space};
use crate::memory::{heap_calls, without_memory};
use nofrag::check::Check;
use nofrag::mmap::{
    AddressSpace, Attributes, Layout, MapFlags, Placement, Protection, SpaceConfig,
};
use nofrag::ranges::{
    AlignRule, AllocError, Config, Index, RangeAllocator, Request, Span, Stats, TakeError,
};
use nofrag::units::PageCount;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Returns every design, the kernel's tree under each of its rules.
fn designs() -> impl Iterator<Item = Index> {
    [Index::CachedScan, Index::WideBlocks].into_iter().chain(linux_trees())
}

fn linux_trees() -> impl Iterator<Item = Index> {
    RULES.into_iter().map(Index::AugmentedTree)
}

fn sized(start: u64, size: u64) -> Span {
    Span::sized(start, size).unwrap()
}

/// A range wished for exactly, itself aligned, was refused up to 5.15, because room for alignment was demanded beside
/// it. (Only below the root: the areas on the way are tested without regard to that room.)
/// (vmap.md#exact-range-aligned)
#[test]
fn exact_range_aligned() {
    let exact = sized(0x1000, 64);
    let request = Request::new(64).align(64).within(exact);
    for index in designs() {
        let mut allocator = empty(index);
        allocator.add_span(sized(0x2000, 64)).unwrap();
        allocator.add_span(exact).unwrap();
        let expected = match index {
            Index::AugmentedTree(AlignRule::Padded) => {
                Err(AllocError::Misfit { largest: 64, align: 64, within: exact })
            }
            _ => Ok(exact),
        };
        assert_eq!(allocator.alloc(&request), expected, "{index:?}");
        allocator.check().unwrap();
    }
}

/// The kernel looks at the upper bound only after its search, which may have passed a lower fit
/// (vmap.md#vend-false-miss).
#[test]
fn vend_false_miss() {
    let lower_fit = sized(64, 32);
    let beyond = sized(1024, 512);
    let request = Request::new(32).align(64).within(Span::new(1, 1024).unwrap());
    for index in designs() {
        let mut allocator = empty(index);
        allocator.add_span(beyond).unwrap();
        allocator.add_span(lower_fit).unwrap();
        let expected = match index {
            Index::AugmentedTree(AlignRule::Padded | AlignRule::PaddedUnlessExact) => {
                let Request { align, within, .. } = request;
                Err(AllocError::Misfit { largest: 512, align, within })
            }
            _ => Ok(lower_fit),
        };
        assert_eq!(allocator.alloc(&request), expected, "{index:?}");
        // Those who missed it take it further up; those who found it have to.
        let unbounded = Request { within: Span::ALL, ..request };
        assert_eq!(allocator.alloc(&unbounded), Ok(sized(1024, 32)), "{index:?}");
    }
}

/// Start plus alignment or size beyond 64 bits is a miss, not a wrap to the bottom (vmap.md#top-overflow).
#[test]
fn top_overflow() {
    const TOP: u64 = u64::MAX;
    for index in designs() {
        for (bottom, top) in [(TOP - 100, TOP), (1, TOP), (0, TOP), (TOP - 1, TOP)] {
            let space_len = top - bottom;
            for shift in 0..64 {
                let align = 1_u64 << shift;
                for size in [1, 2, 100, 1 << 40, TOP / 2 + 1, TOP - 1, TOP] {
                    let mut allocator = space(index, bottom, top);
                    let fits = bottom
                        .checked_next_multiple_of(align)
                        .and_then(|start| start.checked_add(size))
                        .is_some_and(|end| end <= top);
                    for within in [Span::ALL, Span::new(bottom, top).unwrap()] {
                        let request = Request::new(size).align(align).within(within);
                        match allocator.alloc(&request) {
                            Ok(found) => {
                                assert!(fits && found.start() % align == 0 && found.len() == size);
                                assert!(bottom <= found.start() && found.end() <= top);
                                allocator.free(found).unwrap();
                            }
                            Err(
                                AllocError::Exhausted { largest }
                                | AllocError::Misfit { largest, .. },
                            ) => {
                                assert_eq!(largest, space_len);
                                let exact = !matches!(index, Index::AugmentedTree(rule)
                                    if rule != AlignRule::Unpadded);
                                assert!(!(fits && exact), "{index:?}: {request:?} has a fit");
                            }
                            Err(other) => panic!("{index:?}: {request:?}: {other}"),
                        }
                    }
                    allocator.check().unwrap();
                }
            }
        }
    }
}

/// A freed range between two free neighbours left a stale maximum above, which hid free space from the search. The
/// broken order of steps is shown beside the tree itself (vmap.md#merge-both-sides).
#[test]
fn merge_both_sides() {
    for index in linux_trees() {
        let mut rng = Pcg64::seed_from_u64(3);
        let mut allocator = space(index, 0, 4000);
        let pieces: Vec<Span> =
            (0..400).map(|_| allocator.alloc(&Request::new(10)).unwrap()).collect();
        let (even, mut odd): (Vec<Span>, Vec<Span>) =
            pieces.into_iter().partition(|piece| piece.start() % 20 == 0);
        for piece in even {
            allocator.free(piece).unwrap();
        }
        let before = allocator.counters().merges_both;
        while !odd.is_empty() {
            let piece = odd.swap_remove(rng.random_range(0..odd.len()));
            allocator.free(piece).unwrap();
            allocator.check().unwrap();
            let longest = allocator.iter_free().map(Span::len).max();
            assert_eq!(longest, Some(allocator.largest()), "{index:?}");
        }
        assert_eq!(allocator.counters().merges_both - before, 199);
        assert_eq!(allocator.largest(), 4000);
    }
}

/// Returns the state that a caller can see of an allocator.
fn picture(allocator: &RangeAllocator) -> (Vec<Span>, Stats) {
    (allocator.iter_free().collect(), allocator.stats())
}

/// A split needs a second record; without memory for it nothing may change (vmap.md#ne-without-memory).
#[test]
fn ne_without_memory() {
    for index in designs() {
        let mut allocator = space(index, 0, 1 << 20);
        let mut refused = 0;
        for at in (8..1 << 14).step_by(16) {
            let hole = sized(at, 4);
            let before = picture(&allocator);
            let counted = *allocator.counters();
            let taken = without_memory(|| allocator.alloc_at(hole));
            if taken.is_ok() {
                continue;
            }
            assert_eq!(taken, Err(TakeError::OutOfMetadata), "{index:?}");
            refused += 1;
            let request = Request::new(4).within(hole);
            let found = without_memory(|| allocator.alloc(&request));
            assert_eq!(found, Err(AllocError::OutOfMetadata), "{index:?}");
            allocator.check().unwrap();
            assert_eq!(picture(&allocator), before, "{index:?}");
            let now = *allocator.counters();
            assert_eq!((now.allocs, now.fit_no_edge), (counted.allocs, counted.fit_no_edge));
            assert_eq!(allocator.alloc(&request), Ok(hole), "{index:?} with memory");
        }
        assert!(refused > 5, "{index:?}: memory was refused {refused} times only");
    }
}

/// A free without memory is refused whole, or served without any.
#[test]
fn free_without_memory() {
    for index in designs() {
        let mut allocator = space(index, 0, 1 << 20);
        let taken = allocator.alloc(&Request::new(1 << 20)).unwrap();
        let mut refused = 0;
        for at in (8..1 << 14).step_by(16) {
            let part = sized(at, 4);
            let before = picture(&allocator);
            if without_memory(|| allocator.free(part)).is_err() {
                refused += 1;
                allocator.check().unwrap();
                assert_eq!(picture(&allocator), before, "{index:?}");
                allocator.free(part).unwrap();
            }
        }
        assert!(refused > 5, "{index:?}");
        let rest: Vec<Span> = gaps(taken, &allocator);
        for part in rest {
            without_memory(|| allocator.free(part))
                .expect("a free that only merges needs no memory");
        }
        assert_eq!(picture(&allocator).0, [taken], "{index:?}");
        allocator.check().unwrap();
    }
}

/// Checks made lists of their own, and ended the process where there was no memory for them.
#[test]
fn checks_do_without_memory() {
    let mut allocator = RangeAllocator::new(Config { size_index: true, ..Config::default() });
    allocator.add_span(sized(0, 1 << 20)).unwrap();
    (0..100).for_each(|at| allocator.alloc_at(sized(1024 * at, 512)).unwrap());
    without_memory(|| allocator.check()).unwrap();
    let mut space = AddressSpace::new(SpaceConfig::new(Layout::X86_64, Placement::FirstFit));
    let attributes = Attributes::anonymous(Protection::READ_WRITE);
    space.map(PageCount(7), attributes, None, MapFlags::default()).unwrap();
    without_memory(|| space.check()).unwrap();
}

/// Returns the allocated parts of `whole`.
fn gaps(whole: Span, allocator: &RangeAllocator) -> Vec<Span> {
    let mut at = whole.start();
    let mut gaps = Vec::new();
    for hole in allocator.iter_free() {
        gaps.extend(Span::new(at, hole.start()));
        at = hole.end();
    }
    gaps.extend(Span::new(at, whole.end()));
    gaps
}

/// Getting memory for records must not come back into the allocator: it is asked for at most once per operation,
/// before the change, and not at all once it was reserved (vmap.md#refill-recursion).
#[test]
fn refill_recursion() {
    const HOLES: u64 = 1000;
    for index in designs() {
        for reserved in [false, true] {
            let mut allocator = space(index, 0, 1 << 20);
            if reserved {
                allocator.reserve(2 * HOLES as usize + 8).unwrap();
            }
            let mut calls = 0;
            for at in 0..HOLES {
                let one = heap_calls(|| allocator.alloc_at(sized(2 * at + 1, 1)).unwrap());
                // One list of records each in Linux's designs, one for each kind of record in ours.
                let most = if index == Index::WideBlocks { 6 } else { 1 };
                assert!(one <= most, "{index:?}: asked {one} times for one operation");
                calls += one;
            }
            for at in 0..HOLES {
                calls += heap_calls(|| allocator.free(sized(2 * at + 1, 1)).unwrap());
                let request = Request::new(1).within(sized(2 * at + 1, 1));
                calls += heap_calls(|| assert!(allocator.alloc(&request).is_ok()));
            }
            if reserved {
                assert_eq!(calls, 0, "{index:?} asked for memory that was reserved");
            } else {
                assert!(calls <= 100, "{index:?}: {calls} calls for {} operations", 3 * HOLES);
            }
            allocator.check().unwrap();
        }
    }
}

/// A hole that grows to the length which a lane keeps for "longer than it can say", behind the last hole of its leaf.
#[test]
fn a_hole_of_the_longest_length_in_a_lane() {
    const WINDOW: u64 = 1 << 31;
    for size_index in [false, true] {
        let mut allocator = RangeAllocator::new(Config { size_index, ..Config::default() });
        allocator.add_span(sized(0, 2 * WINDOW)).unwrap();
        allocator.alloc_at(sized(0, 2 * WINDOW)).unwrap();
        // The highest hole stands beside the tree; so many that leaves are guessed.
        allocator.free(sized(2 * WINDOW - 1, 1)).unwrap();
        (0..2_000).for_each(|at| allocator.free(sized(WINDOW + 10 + 3 * at, 1)).unwrap());
        allocator.free(sized(0, 100)).unwrap();
        allocator.free(sized(100, WINDOW - 101)).unwrap();
        allocator.check().unwrap();
        assert_eq!(allocator.hole_from(0), Some(sized(0, WINDOW - 1)));
        assert_eq!(allocator.largest(), WINDOW - 1);
    }
}

/// A range that ends at the last number of all, behind the last hole of a tree whose leaves are guessed.
#[test]
fn the_last_number_is_freed_behind_many_holes() {
    const HOLES: u64 = 2_000;
    let first = u64::MAX - 3 * HOLES;
    let mut allocator = RangeAllocator::new(Config { size_index: true, ..Config::default() });
    allocator.add_span(Span::new(first, u64::MAX).unwrap()).unwrap();
    allocator.alloc_at(Span::new(first, u64::MAX).unwrap()).unwrap();
    (0..HOLES - 1).for_each(|at| allocator.free(sized(first + 3 * at, 1)).unwrap());
    let last = Span::new(u64::MAX - 1, u64::MAX).unwrap();
    for _ in 0..2 {
        allocator.free(last).unwrap();
        allocator.check().unwrap();
        allocator.alloc_at(last).unwrap();
    }
}
