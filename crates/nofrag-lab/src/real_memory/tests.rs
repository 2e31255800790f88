//! Small runs: exact claims hold, tables fit, bad options are refused.

use super::*;
use crate::oracle::ClaimKind;
use crate::scenario::Silent;

fn small(mask: &str) -> Options {
    Options { mask: Some(mask.to_owned()), loops: Some(200), repeat: Some(2), ..Options::default() }
}

fn check_exact(options: &Options) -> Report {
    let report = SCENARIO.run(options, &Silent).expect("the options are sensible");
    for oracle in report.oracles.iter().filter(|oracle| oracle.kind == ClaimKind::Exact) {
        assert!(oracle.holds, "{oracle:?}");
    }
    let text = nofrag_show::text(&(SCENARIO.present)(&report));
    assert!(text.lines().all(|line| line.chars().count() <= nofrag_show::COLUMNS.into()), "{text}");
    report
}

#[test]
fn every_way_serves_and_parking_needs_no_call() {
    let report = check_exact(&small("touch-first,touch-first-2,touch-all"));
    assert_eq!(report.measurements.len(), 3 * SCENARIO.designs.len());
    assert!(report.oracles.iter().any(|oracle| oracle.id == "calls/touch-first/nofrag"));
}

#[test]
fn the_kernel_refuses_a_mapping_for_each_run_where_its_limit_says() {
    let report = check_exact(&small("map-limit"));
    let tried = report.oracles.iter().any(|oracle| oracle.id == "map-limit");
    assert!(tried || report.notes.iter().any(|note| note.starts_with("skipped: ")));
}

#[test]
fn an_arena_takes_few_areas_and_serves_beside_a_purge() {
    let report = check_exact(&small("areas,pressure"));
    for id in ["target/areas-per-block", "target/budget", "target/purge-tail"] {
        assert!(report.oracles.iter().any(|oracle| oracle.id == id), "{id}");
    }
}

#[test]
fn compaction_makes_large_runs_and_loses_no_page() {
    let report = check_exact(&small("huge-runs"));
    assert!(report.oracles.iter().any(|oracle| oracle.id == "target/obtainable"));
}

#[test]
fn no_method_loses_a_write_and_the_kernel_does_what_is_relied_on() {
    let report = check_exact(&small("moves,oracles"));
    assert!(report.measurement("moves-64", "pins").is_some());
    for id in ["lost-writes/64/pins", "neighbours"] {
        assert!(report.oracles.iter().any(|oracle| oracle.id == id), "{id}");
    }
}

#[test]
fn bad_options_are_refused() {
    for options in [
        Options { loops: Some(1), ..Options::default() },
        Options { repeat: Some(0), ..Options::default() },
        Options { mode: Mode::Smoke, ..Options::default() },
    ] {
        assert!(matches!(SCENARIO.run(&options, &Silent), Err(RunError::BadOption { .. })));
    }
}
