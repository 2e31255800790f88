//! Address spaces: contestants are right, those that promise the highest place agree, and what is counted is theirs.

use nofrag::mmap::Placement;
use nofrag::ranges::Span;
use nofrag_bench::areas::mix::{CACHED_HOLE_SIZE, FIRST_FIT};
use nofrag_bench::areas::plan::{AreaSizes, AreasPlan};
use nofrag_bench::areas::spaces::{AreaSpace, Found, GapTree, Halves, Nofrag, Walk};
use nofrag_bench::areas::turns::{self, State};
use nofrag_bench::areas::verify::{self, Promise};
use nofrag_bench::areas::{self, AreaTurn, LINUX_TREE};
use nofrag_bench::contest::{Effort, Outcome};
use nofrag_bench::record::Measure;

use crate::value;

fn quick() -> Effort {
    Effort { rounds: 1, replacements: 500, area_ageing_percent: 200, ..Effort::quick() }
}

fn check_refused<S: AreaSpace>(make: impl Fn() -> S, promise: Promise, part: &str) {
    match verify::run(&make, promise, 1) {
        Err(reason) => assert!(reason.contains(part), "{reason}"),
        outcome => panic!("not refused: {outcome:?}"),
    }
}

#[test]
fn contestants_hand_out_disjoint_areas_and_keep_their_promise() {
    for contestant in areas::contestants() {
        let outcome = contestant.turn(AreaTurn::Verify { seed: 7 });
        assert_eq!(value(&outcome, Measure::Disjoint), 1.0, "{}", contestant.name());
        let is_whole = value(&outcome, Measure::WholeAgain) == 1.0;
        // vm-allocator does not join all that it takes back, in the tables of ranges either.
        assert_eq!(is_whole, !contestant.name().starts_with("vm-allocator"));
        if contestant.promise() == Promise::Highest {
            assert_eq!(value(&outcome, Measure::HighestPercent), 100.0, "{}", contestant.name());
        }
    }
}

/// A contestant that is right but for `fault`, which changes the page that it hands out.
struct Faulty {
    inner: Walk,
    mapped: u64,
    fault: fn(u64, u64) -> u64,
}

impl AreaSpace for Faulty {
    fn map(&mut self, pages: u64) -> Option<u64> {
        self.mapped += 1;
        let start = self.inner.map(pages)?;
        Some((self.fault)(start, self.mapped))
    }

    fn map_at(&mut self, start: u64, pages: u64) -> bool {
        self.inner.map_at(start, pages)
    }

    fn unmap(&mut self, start: u64, pages: u64) -> bool {
        self.inner.unmap(start, pages)
    }
}

#[test]
fn faults_are_found() {
    let faulty = |fault| move || Faulty { inner: Walk::default(), mapped: 0, fault };
    let outside = |start, mapped| if mapped == 500 { 3 } else { start };
    check_refused(faulty(outside), Promise::Any, "outside the window");
    let overlapping = |start, mapped| start + mapped / 500;
    check_refused(faulty(overlapping), Promise::Any, "overlap");
    let lower = |start, mapped| if mapped == 500 { start - 100 } else { start };
    check_refused(faulty(lower), Promise::Highest, "is higher");
}

#[test]
fn linux_tree_keeps_its_laws_and_places_as_a_walk() {
    let window = areas::spaces::WINDOW;
    let (mut tree, mut walk) = (GapTree::new(window), Walk::default());
    let plan = AreasPlan::new(3, AreaSizes::Mixed, 300, &Effort { replacements: 3000, ..quick() });
    let mut live = Vec::new();
    for &pages in &plan.build {
        let start = walk.map(u64::from(pages));
        assert_eq!(tree.map(u64::from(pages)), start);
        live.push((start.unwrap(), pages));
        tree.check().unwrap();
    }
    for cycle in &plan.cycles {
        let area = &mut live[cycle.slot as usize];
        let pages = u64::from(area.1);
        assert!(tree.unmap(area.0, pages) && walk.unmap(area.0, pages));
        tree.check().unwrap();
        assert_eq!(tree.find(area.0), Found::Hole);
        assert!(!tree.unmap(area.0, pages), "it has gone");
        let start = walk.map(u64::from(cycle.size));
        assert_eq!(tree.map(u64::from(cycle.size)), start);
        *area = (start.unwrap(), cycle.size);
        tree.check().unwrap();
    }
    for (start, pages) in live {
        assert_eq!(tree.find(start + u64::from(pages) - 1), Found::Area(start));
        assert!(!tree.unmap(start, u64::from(pages) + 1), "it is shorter");
        assert!(tree.unmap(start, u64::from(pages)));
        tree.check().unwrap();
    }
    assert_eq!(tree.map(window.len()), Some(window.start()));
}

#[test]
fn linux_tree_refuses_what_no_gap_holds() {
    let mut tree = GapTree::new(Span::new(10, 20).unwrap());
    assert_eq!([4, 4, 3, 2, 1].map(|pages| tree.map(pages)), {
        [Some(16), Some(12), None, Some(10), None]
    });
    assert!(tree.unmap(12, 4));
    assert_eq!([5, 3, 1].map(|pages| tree.map(pages)), [None, Some(13), Some(12)]);
    tree.check().unwrap();
}

#[test]
fn rounds_at_full_length_end_with_equal_addresses() {
    let plan = AreasPlan::new(5, AreaSizes::Small, 400, &quick());
    let effort = Effort { round: std::time::Duration::from_secs(20), ..quick() };
    let hash = |outcome: Outcome| {
        assert!(outcome.as_ref().is_ok_and(|measured| measured.note.is_none()), "{outcome:?}");
        value(&outcome, Measure::PlacementHash)
    };
    let expected = hash(turns::round(&Walk::default, &plan, &effort));
    assert_eq!(hash(turns::round(&Halves::wide_blocks, &plan, &effort)), expected);
    for contestant in areas::contestants() {
        if contestant.promise() == Promise::Highest {
            let hash = hash(contestant.turn(AreaTurn::Cycles(&plan, &effort)));
            assert_eq!(hash, expected, "{}", contestant.name());
        }
    }
    let other = AreasPlan::new(6, AreaSizes::Small, 400, &quick());
    assert_ne!(hash(turns::round(&Walk::default, &other, &effort)), expected);
}

#[test]
fn bytes_are_counted_per_area_and_per_gap() {
    let plan = AreasPlan::new(1, AreaSizes::Small, 1000, &quick());
    let of =
        |state| turns::footprint(&|| GapTree::new(areas::spaces::WINDOW), &plan, state, &quick());
    let comb = of(State::Comb);
    assert_eq!(value(&comb, Measure::Areas), 1000.0);
    // One above or below the comb.
    assert!((1000.0..=1001.0).contains(&value(&comb, Measure::Holes)));
    // Only the own account: other tests use the heap, too, while this one counts.
    assert_eq!(value(&comb, Measure::OwnBytesPerArea), GapTree::NODE_BYTES as f64);
    let fresh = of(State::Fresh);
    assert_eq!((value(&fresh, Measure::Areas), value(&fresh, Measure::Holes)), (1000.0, 1.0));
}

#[test]
fn sizes_are_drawn_as_named() {
    let effort = Effort { replacements: 0, ..quick() };
    let of = |sizes| AreasPlan::new(2, sizes, 10_000, &effort).build;
    assert!(of(AreaSizes::Small).iter().all(|size| (1..=16).contains(size)));
    assert!(of(AreaSizes::Equal).iter().all(|&size| size == 2048));
    let mixed = of(AreaSizes::Mixed);
    let count = |range: std::ops::RangeInclusive<u32>| {
        mixed.iter().filter(|size| range.contains(size)).count()
    };
    assert!((8800..9200).contains(&count(1..=16)));
    assert!((700..1100).contains(&count(256..=2048)));
    assert!((50..150).contains(&count(16_384..=16_384)));
    assert_eq!(count(1..=16) + count(256..=2048) + count(16_384..=16_384), 10_000);
}

#[test]
fn everyone_stores_an_area_where_it_is_told() {
    let plan = AreasPlan::new(4, AreaSizes::Small, 200, &quick());
    for contestant in areas::contestants() {
        let comb = contestant.turn(AreaTurn::Footprint(&plan, State::Comb, &quick()));
        assert_eq!(value(&comb, Measure::Areas), 200.0, "{}", contestant.name());
    }
}

#[test]
fn areas_of_ours_that_are_put_somewhere_share_their_attributes() {
    let plan = AreasPlan::new(4, AreaSizes::Small, 2000, &quick());
    let bytes = |state| {
        let footprint =
            turns::footprint(&|| Nofrag::new(Placement::GapTree), &plan, state, &quick());
        value(&footprint, Measure::OwnBytesPerArea)
    };
    assert!(bytes(State::Comb) < 2.0 * bytes(State::Fresh));
}

fn mixed_steps(name: &str, areas: usize) -> (f64, f64) {
    let all = areas::mix::contestants();
    let contestant = all.iter().find(|contestant| contestant.name() == name).unwrap();
    let outcome = contestant.turn(AreaTurn::Mix(areas));
    (value(&outcome, Measure::StepsPerSearch).round(), value(&outcome, Measure::MostSteps))
}

#[test]
fn walks_of_the_unmergeable_mix_visit_as_many_areas_as_known() {
    assert_eq!(mixed_steps(FIRST_FIT, 1000), (502.0, 1000.0));
    assert_eq!(mixed_steps(CACHED_HOLE_SIZE, 1000), (392.0, 1000.0));
}

#[test]
fn a_tree_of_gaps_looks_at_few_nodes_in_the_unmergeable_mix() {
    let (steps, most) = mixed_steps(LINUX_TREE, 1000);
    assert!((2.0..14.0).contains(&steps) && most <= 14.0, "{steps} and {most}");
}
