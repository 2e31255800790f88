//! Small mappings: every contestant does what it is asked, and what is counted is the engine's own.

use nofrag_bench::blocks::programs::{Program, TIMED};
use nofrag_bench::blocks::{self, BEHIND, BlockContestant, CALL, HANDLE};
use nofrag_bench::contest::{Effort, Outcome};
use nofrag_bench::record::{Group, Measure, Records};

fn quick() -> Effort {
    Effort { rounds: 1, block_pairs: 3_000, ..Effort::quick() }
}

fn check_value(
    turn: impl Fn(&(dyn BlockContestant + 'static)) -> Outcome<Vec<(Measure, f64)>>,
    name: &str,
    measure: Measure,
) -> f64 {
    let all = blocks::contestants();
    let contestant = all.iter().find(|contestant| contestant.name() == name).unwrap();
    match turn(contestant.as_ref()) {
        Outcome::Whole(samples) | Outcome::Partial(samples, _) => {
            samples.iter().find(|(known, _)| *known == measure).unwrap().1
        }
        Outcome::Nothing(reason) => panic!("{name}: {reason}"),
    }
}

#[test]
fn everyone_maps_and_unmaps_every_program() {
    for program in TIMED {
        let sizes = program.sizes(1);
        for contestant in blocks::contestants() {
            let outcome = contestant.pairs(&sizes, &quick());
            assert!(matches!(outcome, Outcome::Whole(_)), "{}: {outcome:?}", contestant.name());
        }
    }
}

#[test]
fn programs_are_pens() {
    assert_eq!(Program::W1.sizes(1).iter().sum::<u32>(), 1024 - 8);
    assert_eq!(Program::W1.sizes(1).len(), 126);
    assert_eq!(Program::W3.sizes(1).len(), 2032);
    assert!(Program::W2.sizes(1).iter().all(|size| (1..=64).contains(size)));
}

#[test]
fn ours_ends_a_mapping_by_one_exchange_and_no_lock() {
    for name in [HANDLE, CALL] {
        assert_eq!(check_value(|who| who.unmaps(), name, Measure::LocksPerUnmap), 0.0);
        assert_eq!(check_value(|who| who.unmaps(), name, Measure::LockedPerUnmap), 1.0);
    }
    assert_eq!(check_value(|who| who.unmaps(), BEHIND, Measure::LocksPerUnmap), 1.0);
    assert!(check_value(|who| who.unmaps(), "linux-4.1", Measure::LocksPerUnmap) >= 1.0);
}

#[test]
fn a_handle_takes_no_lock_for_a_pair_and_a_call_takes_one() {
    let sizes = Program::OnePage.sizes(1);
    let locked = |name| {
        let turn = |who: &(dyn BlockContestant + 'static)| who.threads(&sizes, &[], &quick());
        check_value(turn, name, Measure::LockedAlone)
    };
    // What making the first block and looking for dirty slots costs is spread over few pairs here.
    assert!((1.0..1.2).contains(&locked(HANDLE)), "{}", locked(HANDLE));
    assert!((3.0..3.2).contains(&locked(CALL)), "{}", locked(CALL));
    assert_eq!(locked(BEHIND), 4.0);
}

#[test]
fn long_lived_mappings_pin_what_the_rules_say() {
    let pinned = |name| check_value(|who| who.lifetimes(1), name, Measure::PagesPerLive);
    assert!(pinned(HANDLE) <= 2.0);
    assert!(pinned("linux-6.11") > 100.0);
}

#[test]
fn an_alias_flush_of_ours_looks_at_dirty_blocks_only() {
    for dirty in [0, 100] {
        let visited = check_value(|who| who.aliases(dirty), CALL, Measure::Visited);
        assert_eq!(visited, dirty as f64);
    }
}

#[test]
fn ratios_are_of_the_same_round() {
    let mut records = Records::default();
    let contestants = blocks::contestants();
    blocks::run(&mut records, &contestants, &quick(), 1, &[], &|_| {});
    let workload = blocks::pairs_workload(Program::W2);
    assert_eq!(records.samples(&workload, HANDLE, Measure::OverHandle), [1.0]);
    assert_eq!(records.samples(&workload, BEHIND, Measure::OverHandle).len(), 1);
    assert!(records.0.iter().all(|record| record.group == Group::Blocks));
}
