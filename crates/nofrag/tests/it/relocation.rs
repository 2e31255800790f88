//! Moves as transactions, and input that makes no sense.

use nofrag::check::Check;
use nofrag::ranges::{
    AddSpanError, AllocError, Config, Fit, FreeError, RangeAllocator, RelocateError, Request, Span,
    SpanError, TakeError,
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
        let moved = allocator.relocate_to(from, to).unwrap();
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
        assert_eq!(allocator.relocate_to(from, to), Err(why), "{from:?} to {to:?}");
        assert_eq!(picture_of(&allocator, 8), before);
    }
    let large = Request::new(3);
    let exhausted = RelocateError::NoPlace(AllocError::Exhausted { largest: 2 });
    assert_eq!(allocator.relocate(span(0, 2), &large), Err(exhausted));
    let moved = allocator.relocate(span(0, 2), &Request::new(2)).unwrap();
    assert_eq!(moved.to(), span(2, 4));
    allocator.commit(moved).unwrap();
    assert_eq!(picture_of(&allocator, 8), "..###.#.");
}

#[test]
fn input_without_sense_is_a_typed_error_and_changes_nothing() {
    assert_eq!(Span::new(3, 3), Err(SpanError::Empty));
    assert_eq!(Span::new(3, 2), Err(SpanError::Inverted));
    assert_eq!(Span::sized(u64::MAX, 1), Err(SpanError::Overflow));
    assert_eq!(Span::sized(u64::MAX - 1, 1).map(Span::end), Ok(u64::MAX));
    let before = "#..#";
    let mut allocator = drawn(before);
    assert_eq!(allocator.alloc(&Request::new(0)), Err(AllocError::ZeroSize));
    for align in [0, 3, u64::MAX] {
        let request = Request::new(1).align(align);
        assert_eq!(allocator.alloc(&request), Err(AllocError::AlignNotPowerOfTwo));
        assert_eq!(allocator.largest_aligned(align), 0);
    }
    let exhausted = Err(AllocError::Exhausted { largest: 2 });
    for fit in [Fit::Lowest, Fit::Highest, Fit::Best, Fit::Dynamic] {
        for request in [
            Request::new(3),
            Request::new(u64::MAX),
            Request::new(1).align(1 << 63).within(span(1, 4)),
            Request::new(2).within(span(2, 9)),
            Request::new(1).within(span(4, u64::MAX)),
        ] {
            assert_eq!(allocator.alloc(&request.fit(fit)), exhausted, "{request:?}");
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

#[test]
fn fits_need_their_index() {
    let mut allocator = RangeAllocator::new(Config::default());
    allocator.add_span(span(0, 8)).unwrap();
    for fit in [Fit::Best, Fit::Dynamic] {
        let request = Request::new(1).fit(fit);
        assert_eq!(allocator.alloc(&request), Err(AllocError::FitNotIndexed));
    }
    assert_eq!(allocator.stats().free, 8);
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
