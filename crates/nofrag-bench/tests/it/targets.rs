//! The table of targets judges what was measured and hides nothing.

use nofrag_bench::areas;
use nofrag_bench::areas::plan::AreaSizes;
use nofrag_bench::blocks::programs::Program;
use nofrag_bench::blocks::{self, CALL, HANDLE};
use nofrag_bench::packing::{packing_workload, shrink_workload};
use nofrag_bench::peers::{BEST, BEST_FIT, DYNAMIC, LOWEST, OFFSET};
use nofrag_bench::record::{Group, Measure, Record, Records, ratios};
use nofrag_bench::speed;
use nofrag_bench::targets::{Bound, Target, TargetVerdict, all};
use nofrag_bench::trace::{Refill, Sizes};

fn record(workload: &str, contestant: &str, measure: Measure, samples: &[f64]) -> Record {
    Record {
        group: Group::Speed,
        workload: workload.to_owned(),
        contestant: contestant.to_owned(),
        measure: Some(measure),
        samples: samples.to_vec(),
        note: None,
    }
}

fn check_row<'a>(rows: &'a [Target], part: &str, verdict: TargetVerdict) -> &'a Target {
    let row = rows.iter().find(|row| row.what.contains(part)).expect("the row exists");
    assert_eq!(row.verdict, verdict, "{row:?}");
    row
}

#[test]
fn bounds_judge() {
    assert_eq!(Bound::AtMost(4.0).judge(4.0), TargetVerdict::Met);
    assert_eq!(Bound::AtMost(4.0).judge(4.1), TargetVerdict::Missed);
    assert_eq!(Bound::AtLeast(15.0).judge(14.9), TargetVerdict::Missed);
    let gate = Bound::Gate { gate: 2.5, goal: 1.5 };
    assert_eq!(
        [1.5, 2.0, 2.6].map(|value| gate.judge(value)),
        [TargetVerdict::Met, TargetVerdict::GateOnly, TargetVerdict::Missed]
    );
}

#[test]
fn nothing_measured_means_nothing_met() {
    let rows = all(&Records::default());
    assert!(rows.len() >= 20);
    let is_open =
        |row: &Target| matches!(row.verdict, TargetVerdict::NotMeasured | TargetVerdict::Elsewhere);
    assert!(rows.iter().all(is_open));
}

#[test]
fn speed_is_judged_by_the_median_of_the_ratios_of_rounds() {
    let workload = speed::workload(10_000);
    let samples = [1.4, 9.0, 1.6];
    let records = Records(vec![record(&workload, LOWEST, Measure::OverOffset, &samples)]);
    let rows = all(&records);
    let row = check_row(&rows, "live 10000: Lowest over offset", TargetVerdict::GateOnly);
    assert_eq!(row.reached, "1.60x (1.40..9.00)");
}

#[test]
fn best_is_compared_with_exact_best_fit_of_the_same_seed() {
    let workload = packing_workload(Sizes::Bimodal, Refill::OneForOne);
    let measure = Measure::LargestOverFree;
    let with = |own: [f64; 2]| {
        Records(vec![
            record(&workload, BEST, measure, &own),
            record(&workload, BEST_FIT, measure, &[0.5, 0.3]),
        ])
    };
    check_row(
        &all(&with([0.5, 0.3])),
        "one for one: Best, largest/free, minus",
        TargetVerdict::Met,
    );
    check_row(
        &all(&with([0.4, 0.2])),
        "one for one: Best, largest/free, minus",
        TargetVerdict::Missed,
    );
}

#[test]
fn a_peer_that_also_packs_and_shrinks_is_named() {
    let packing = packing_workload(Sizes::Uniform, Refill::OneForOne);
    let shrinking = shrink_workload(Sizes::Uniform);
    let mut records = Records::default();
    for name in [DYNAMIC, OFFSET] {
        records.0.push(record(&packing, name, Measure::LargestOverFree, &[0.81]));
        let mut span = record(&shrinking, name, Measure::SpanOverLiveAfter, &[1.1]);
        span.group = Group::Shrink;
        records.0.push(span);
    }
    let rows = all(&records);
    let row = check_row(&rows, "peers that have both", TargetVerdict::Missed);
    assert!(row.reached.contains(OFFSET), "{row:?}");
}

#[test]
fn a_handle_and_a_call_have_bounds_of_their_own() {
    let workload = blocks::pairs_workload(Program::OnePage);
    let of = |name| record(&workload, name, Measure::NsPerPair, &[20.0, 16.0, 15.5]);
    let rows = all(&Records(vec![of(HANDLE), of(CALL)]));
    check_row(&rows, &format!("{workload}: {HANDLE}"), TargetVerdict::Missed);
    check_row(&rows, &format!("{workload}: {CALL}"), TargetVerdict::Met);
}

#[test]
fn a_second_thread_must_not_add_locked_operations() {
    let workload = blocks::threads_workload(Program::Largest);
    let with = |beside: f64| {
        all(&Records(vec![
            record(&workload, CALL, Measure::LockedAlone, &[3.0]),
            record(&workload, CALL, Measure::LockedBeside, &[beside]),
        ]))
    };
    let what = format!("{workload}: {CALL}, locked");
    check_row(&with(3.1), &what, TargetVerdict::Met);
    check_row(&with(4.0), &what, TargetVerdict::Missed);
}

#[test]
fn ratios_are_of_samples_of_the_same_round() {
    assert_eq!(ratios(&[4.0, 9.0], &[2.0, 3.0]), [2.0, 3.0]);
}

#[test]
fn cycles_have_a_gate_and_a_goal_and_a_tail() {
    let workload = areas::cycles_workload(AreaSizes::Small, 1_000);
    let of = |measure, value| record(&workload, areas::OURS, measure, &[value]);
    let rows = all(&Records(vec![
        of(Measure::NsPerCycle, 300.0),
        of(Measure::OverLinuxTree, 0.751),
        of(Measure::TailOverMedian, 10.5),
    ]));
    let row = check_row(&rows, &format!("{workload}: {}", areas::OURS), TargetVerdict::GateOnly);
    assert_eq!(row.reached, "300 ns (300..300), 0.75x of Linux's here");
    assert_eq!(row.bound, "gate 500 ns, goal 200 ns (0.87x, 0.35x of Linux's published)");
    check_row(&rows, &format!("{workload}: {}, p99.9", areas::OURS), TargetVerdict::Missed);
}

#[test]
fn who_promises_the_highest_place_and_ends_elsewhere_is_named() {
    let workload = areas::cycles_workload(AreaSizes::Small, 100_000);
    let with = |ours: f64| {
        all(&Records(vec![
            record(&workload, areas::LINUX_TREE, Measure::PlacementHash, &[7.0]),
            record(&workload, areas::GAP_TREE, Measure::PlacementHash, &[ours]),
        ]))
    };
    let what = format!("{workload}: addresses");
    check_row(&with(7.0), &what, TargetVerdict::Met);
    let rows = with(8.0);
    assert!(check_row(&rows, &what, TargetVerdict::Missed).reached.starts_with(areas::GAP_TREE));
}
