//! Moves as transactions, and input that makes no sense.

use nofrag::check::Check;
use nofrag::ranges::{
    AddSpanError, AlignRule, AllocError, Config, Fit, FreeError, Index, RangeAllocator,
    RelocateError, Relocation, Request, Span, SpanError, TakeError,
};

/// Returns a space drawn as a picture: `.` is free, `#` allocated.
fn picture_of(allocator: &RangeAllocator, length: u64) -> String {
    let free = |at| allocator.is_free(Span::sized(at, 1).unwrap());
    (0..length).map(|at| if free(at) { '.' } else { '#' }).collect()
}

fn drawn(picture: &str) -> RangeAllocator {
    let mut allocator = RangeAllocator::new(Config { size_index: true, ..Config::default() });
    allocator.add_span(Span::sized(0, picture.len() as u64).unwrap()).unwrap();
    for (at, mark) in (0..).zip(picture.chars()) {
        if mark == '#' {
            allocator.alloc_at(Span::sized(at, 1).unwrap()).unwrap();
        }
    }
    allocator
}

fn span(start: u64, end: u64) -> Span {
    Span::new(start, end).unwrap()
}

/// Moves `from` to `to`, looks at the pending picture, then commits or rolls back.
fn check_move(before: &str, from: Span, to: Span, pending: &str, committed: &str) {
    for (commit, after) in [(true, committed), (false, before)] {
        let mut allocator = drawn(before);
        let moved = allocator.relocate_to(from, to).unwrap().hold();
        assert_eq!((moved.from(), moved.to()), (from, to));
        assert_eq!(picture_of(&allocator, before.len() as u64), pending);
        let ended = if commit { allocator.commit(moved) } else { allocator.rollback(moved) };
        ended.unwrap();
        assert_eq!(picture_of(&allocator, before.len() as u64), after);
        allocator.check().unwrap();
    }
}

#[test]
fn a_move_reserves_the_new_place_before_it_gives_up_the_old() {
    check_move("##......", span(0, 2), span(4, 6), "##..##..", "....##..");
}

#[test]
fn a_move_may_overlap_its_old_place() {
    check_move("..###...", span(2, 5), span(3, 6), "..####..", "...###..");
    check_move("..###...", span(2, 5), span(1, 4), ".####...", ".###....");
    check_move("..###...", span(2, 5), span(1, 7), ".######.", ".######.");
    check_move("..####..", span(2, 6), span(3, 5), "..####..", "...##...");
    check_move("..###...", span(2, 5), span(2, 5), "..###...", "..###...");
}

/// A move that is dropped, by an early return or a panic of whoever copies, has never been.
#[test]
fn a_dropped_move_is_rolled_back() {
    for (before, from, to) in [
        ("##......", span(0, 2), span(4, 6)),
        ("..###...", span(2, 5), span(3, 6)),
        ("..####..", span(2, 6), span(3, 5)),
        ("..###...", span(2, 5), span(1, 7)),
    ] {
        let mut allocator = drawn(before);
        drop(allocator.relocate_to(from, to).unwrap());
        assert_eq!(picture_of(&allocator, 8), before);
        drop(allocator.relocate(from, &Request::new(1)).unwrap());
        assert_eq!(picture_of(&allocator, 8), before);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _moved = allocator.relocate_to(from, to).unwrap();
            panic!("the copy failed");
        }));
        assert!(panicked.is_err());
        assert_eq!(picture_of(&allocator, 8), before);
        allocator.check().unwrap();
    }
}

#[test]
fn a_move_that_cannot_be_changes_nothing() {
    let before = "##..#.#.";
    let mut allocator = drawn(before);
    let cases = [
        (span(0, 2), span(3, 5), RelocateError::Taken),
        (span(0, 2), span(1, 5), RelocateError::Taken),
        (span(0, 2), span(7, 9), RelocateError::Foreign),
        (span(1, 3), span(2, 4), RelocateError::NotAllocated),
        (span(7, 9), span(2, 4), RelocateError::Foreign),
    ];
    for (from, to, why) in cases {
        let moved = allocator.relocate_to(from, to).map(Relocation::hold);
        assert_eq!(moved, Err(why), "{from:?} to {to:?}");
        assert_eq!(picture_of(&allocator, 8), before);
    }
    let large = Request::new(3);
    let exhausted = RelocateError::NoPlace(AllocError::Exhausted { largest: 2 });
    assert_eq!(allocator.relocate(span(0, 2), &large).map(Relocation::hold), Err(exhausted));
    let moved = allocator.relocate(span(0, 2), &Request::new(2)).unwrap();
    assert_eq!(moved.to(), span(2, 4));
    assert_eq!(moved.commit().unwrap(), span(2, 4));
    assert_eq!(picture_of(&allocator, 8), "..###.#.");
}

#[test]
fn input_without_sense_is_a_typed_error_and_changes_nothing() {
    assert_eq!(Span::new(3, 3), Err(SpanError::Empty));
    assert_eq!(Span::new(3, 2), Err(SpanError::Inverted));
    assert_eq!(Span::sized(u64::MAX, 1), Err(SpanError::Overflow));
    assert_eq!(Span::sized(u64::MAX - 1, 1).map(Span::end), Ok(u64::MAX));
    assert_eq!(Span::try_from(3..3), Err(SpanError::Empty));
    assert_eq!(Span::try_from(16..255).map(|span| span.to_string()), Ok("0x10..0xff".to_owned()));
    assert_eq!(std::ops::Range::from(span(3, 7)), 3..7);
    let before = "#..#";
    let mut allocator = drawn(before);
    assert_eq!(allocator.alloc(&Request::new(0)), Err(AllocError::ZeroSize));
    for align in [0, 3, u64::MAX] {
        let request = Request::new(1).align(align);
        assert_eq!(allocator.alloc(&request), Err(AllocError::AlignNotPowerOfTwo));
        assert_eq!(allocator.largest_aligned(align), 0);
    }
    for fit in [Fit::Lowest, Fit::Highest, Fit::Best, Fit::Dynamic] {
        for request in [
            Request::new(3),
            Request::new(u64::MAX),
            Request::new(1).align(1 << 63).within(span(1, 4)),
            Request::new(2).within(span(2, 9)),
            Request::new(1).within(span(4, u64::MAX)),
        ] {
            let Request { size, align, within, .. } = request;
            let why = match size > 2 {
                true => AllocError::Exhausted { largest: 2 },
                false => AllocError::Misfit { largest: 2, align, within },
            };
            assert_eq!(allocator.alloc(&request.fit(fit)), Err(why), "{request:?}");
        }
    }
    assert_eq!(allocator.free(span(0, 2)), Err(FreeError::NotAllocated));
    assert_eq!(allocator.free(span(1, 2)), Err(FreeError::NotAllocated));
    assert_eq!(allocator.free(span(3, 5)), Err(FreeError::Foreign));
    assert_eq!(allocator.alloc_at(span(0, 2)), Err(TakeError::Taken));
    assert_eq!(allocator.alloc_at(span(3, 5)), Err(TakeError::Foreign));
    assert_eq!(allocator.add_span(span(3, 5)), Err(AddSpanError::Overlaps));
    assert_eq!(allocator.remove_span(span(0, 1)), Err(TakeError::Taken));
    assert_eq!(allocator.remove_span(span(3, 5)), Err(TakeError::Foreign));
    assert_eq!(picture_of(&allocator, 4), before);
    allocator.check().unwrap();
}

/// Every fit works by default; the designs of Linux know one, and the error says which design knows more.
#[test]
fn every_fit_works_by_default() {
    let fits = [Fit::Lowest, Fit::Highest, Fit::Best, Fit::Dynamic];
    for fit in fits {
        let mut allocator = RangeAllocator::new(Config::default());
        for (start, size) in [(0, 9), (16, 3), (32, 5)] {
            allocator.add_span(Span::sized(start, size).unwrap()).unwrap();
        }
        let starts = match fit {
            Fit::Lowest | Fit::Dynamic => [0, 3],
            Fit::Highest => [34, 16],
            Fit::Best => [16, 32],
        };
        let got = starts.map(|_| allocator.alloc(&Request::new(3).fit(fit)).unwrap().start());
        assert_eq!(got, starts, "{fit:?}");
        allocator.check().unwrap();
    }
    for index in [Index::CachedScan, Index::AugmentedTree(AlignRule::Unpadded)] {
        let mut allocator = RangeAllocator::new(Config { index, ..Config::default() });
        allocator.add_span(span(0, 8)).unwrap();
        for fit in fits {
            let served = allocator.alloc(&Request::new(1).fit(fit));
            assert_eq!(served.is_ok(), fit == Fit::Lowest, "{index:?}");
            assert!(served.is_ok() || served == Err(AllocError::FitNotIndexed));
        }
    }
}

/// The index by size is made by the first request that needs it, and from then on is what it would have been from the
/// start: each best fit is as tight.
#[test]
fn an_index_by_size_can_come_late() {
    const HOLES: u64 = 100_000;
    let mut late = RangeAllocator::new(Config::default());
    let mut early = RangeAllocator::new(Config { size_index: true, ..Config::default() });
    for allocator in [&mut late, &mut early] {
        for number in 0..HOLES {
            let hole = Span::sized(number << 12, 1 + number * 7919 % 3000).unwrap();
            allocator.add_span(hole).unwrap();
        }
    }
    let without = late.metadata_bytes();
    let best = |allocator: &mut RangeAllocator, size: u64| {
        let span = allocator.alloc(&Request::new(size).fit(Fit::Best)).unwrap();
        let rest = allocator.hole_from(span.start()).filter(|rest| rest.start() == span.end());
        rest.map_or(0, Span::len)
    };
    for size in (1..2500).step_by(7) {
        assert_eq!(best(&mut late, size), best(&mut early, size), "{size}");
    }
    late.check().unwrap();
    let with = late.metadata_bytes();
    println!("{} bytes for each hole, {} with the index", without / 100_000, with / 100_000);
    assert!(with - without <= 10 * HOLES as usize && with <= early.metadata_bytes());
}

#[test]
fn parts_and_neighbours_are_freed_together() {
    let mut allocator = drawn("########");
    allocator.free(span(2, 4)).unwrap();
    assert_eq!(picture_of(&allocator, 8), "##..####");
    allocator.free(span(4, 7)).unwrap();
    allocator.free(span(0, 2)).unwrap();
    assert_eq!(picture_of(&allocator, 8), ".......#");
    assert_eq!(allocator.stats().holes, 1);
}

#[test]
fn spaces_grow_and_shrink() {
    let mut allocator = drawn("#..#");
    allocator.add_span(span(4, 6)).unwrap();
    let last = allocator.alloc(&Request::new(2).fit(Fit::Highest)).unwrap();
    assert_eq!(last, span(4, 6));
    allocator.free(last).unwrap();
    allocator.remove_span(span(4, 6)).unwrap();
    allocator.remove_span(span(1, 2)).unwrap();
    assert_eq!(allocator.stats().total, 3);
    assert_eq!(allocator.free(span(1, 2)), Err(FreeError::Foreign));
    assert_eq!(allocator.largest(), 1);
    allocator.check().unwrap();
}

/// Linux's unusable free space index, for holes in place of buddy blocks: holes of 1, 2 and 5 of 8 free.
#[test]
fn the_unusable_index_is_the_share_in_holes_that_are_too_small() {
    let allocator = drawn(".#..#.....");
    let index = |size| allocator.unusable_index(size);
    assert_eq!((index(1), index(2), index(3), index(5), index(6)), (0, 125, 375, 375, 1000));
}
