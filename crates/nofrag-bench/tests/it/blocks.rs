//! Small mappings: every contestant does what it is asked, and what is counted is the engine's own.

use nofrag_bench::blocks::programs::{Program, TIMED};
use nofrag_bench::blocks::{self, BEHIND, BlockTurn, CALL, HANDLE};
use nofrag_bench::contest::{Effort, Run};
use nofrag_bench::record::{Group, Measure, Records};

use crate::value;

fn quick() -> Effort {
    Effort { rounds: 1, block_pairs: 3_000, ..Effort::quick() }
}

fn of(name: &str, turn: BlockTurn<'_>, measure: Measure) -> f64 {
    let all = blocks::contestants();
    value(&all.iter().find(|who| who.name() == name).unwrap().turn(turn), measure)
}

#[test]
fn everyone_maps_and_unmaps_every_program() {
    for program in TIMED {
        let sizes = program.sizes(1);
        for contestant in blocks::contestants() {
            let turn = BlockTurn::Pairs { sizes: &sizes, effort: &quick() };
            let outcome = contestant.turn(turn);
            assert!(outcome.is_ok(), "{}: {outcome:?}", contestant.name());
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
        assert_eq!(of(name, BlockTurn::Unmaps, Measure::LocksPerUnmap), 0.0);
        assert_eq!(of(name, BlockTurn::Unmaps, Measure::LockedPerUnmap), 1.0);
    }
    assert_eq!(of(BEHIND, BlockTurn::Unmaps, Measure::LocksPerUnmap), 1.0);
    assert!(of("linux-4.1", BlockTurn::Unmaps, Measure::LocksPerUnmap) >= 1.0);
}

#[test]
fn a_handle_takes_no_lock_for_a_pair_and_a_call_takes_one() {
    let sizes = Program::OnePage.sizes(1);
    let locked = |name| {
        let turn = BlockTurn::Threads { sizes: &sizes, cpus: &[], effort: &quick() };
        of(name, turn, Measure::LockedAlone)
    };
    // What making the first block and looking for dirty slots costs is spread over few pairs here.
    assert!((1.0..1.2).contains(&locked(HANDLE)), "{}", locked(HANDLE));
    assert!((3.0..3.2).contains(&locked(CALL)), "{}", locked(CALL));
    assert_eq!(locked(BEHIND), 4.0);
}

#[test]
fn ratios_are_of_the_same_round() {
    let (records, progress) = (Records::default(), |_, _: &str| {});
    let mut run = Run { records, effort: quick(), seed: 1, cpus: &[], progress: &progress };
    blocks::run(&mut run);
    let records = run.records;
    let workload = blocks::pairs_workload(Program::W2);
    assert_eq!(records.samples(&workload, HANDLE, Measure::OverHandle), [1.0]);
    assert_eq!(records.samples(&workload, BEHIND, Measure::OverHandle).len(), 1);
    assert!(records.0.iter().all(|record| record.group == Group::Blocks));
}
