//! Where allocations end up is read off what is live.

use nofrag_bench::packing::holes_between;

fn check_holes(busy: &mut [(u64, u32)], expected: &[(u64, u64)]) {
    let holes: Vec<_> = holes_between(busy, 10).map(|hole| (hole.start, hole.end)).collect();
    assert_eq!(holes, expected);
}

#[test]
fn holes_reach_to_both_ends_of_the_space() {
    check_holes(&mut [], &[(0, 10)]);
    check_holes(&mut [(6, 2), (2, 3)], &[(0, 2), (5, 6), (8, 10)]);
    check_holes(&mut [(5, 5), (0, 5)], &[]);
}
