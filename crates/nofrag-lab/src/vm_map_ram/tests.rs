use super::*;
use crate::key::Key;
use crate::oracle::ClaimKind;
use crate::scenario::{Mode, Silent};

/// Returns the options of a run that ends at once.
fn small(mask: &str) -> Options {
    Options { mask: Some(mask.to_owned()), repeat: Some(2), loops: Some(20), ..Options::default() }
}

fn run(options: &Options) -> Report {
    let report = SCENARIO.run(options, &Silent).unwrap();
    let broken: Vec<_> = report.broken().map(|oracle| oracle.id.as_str()).collect();
    assert_eq!(broken, [""; 0]);
    fits_a_hundred_columns(&report);
    report
}

fn fits_a_hundred_columns(report: &Report) {
    let text = nofrag_show::text(&(SCENARIO.present)(report));
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

fn count(report: &Report, program: &str, design: &str, key: Key) -> f64 {
    report.measurement(program, design).unwrap().count(key).unwrap()
}

fn exact_claims(report: &Report) -> usize {
    report.oracles.iter().filter(|oracle| oracle.kind == ClaimKind::Exact).count()
}

#[test]
fn a_few_loops_show_what_a_thousand_do() {
    let report = run(&small("w1,w2,w3"));
    let created = |program, design| count(&report, program, design, names::CREATED);
    assert_eq!(created("w1", BEFORE), 20.0, "each loop loses a block");
    assert_eq!(created("w1", AFTER), 20.0, "20 times 1016 slots need 20 blocks too");
    let returned = |program, design| count(&report, program, design, names::RETURNED);
    assert_eq!((returned("w1", BEFORE), returned("w1", AFTER)), (0.0, 19.0));
    assert_eq!((created("w3", BEFORE), created("w3", AFTER)), (141.0, 140.0));
    let second = |design| count(&report, "w1", design, names::SECOND_STEPS) > 0.0;
    let designs = ["linux-3.19", "linux-3.19+patch1", "linux-3.19+patch2", AFTER, OURS];
    assert_eq!(designs.map(second), [true, true, false, false, false]);
    let words = |design| count(&report, "w2", design, names::DIRTY_WORDS) > 0.0;
    assert_eq!(["linux-3.19+patch2", "linux-3.19+patch3"].map(words), [true, false]);
}

#[test]
fn functions_are_called_as_often_as_blocks_come_and_go() {
    let report = run(&small("w3"));
    for design in pairs::PROFILED {
        let row = report.measurement("w3", design).unwrap();
        let hits = |key: Key| row.functions.get(&key).map_or(0, |calls| calls.hits);
        assert_eq!(hits(names::MAP), 20 * 2032, "{design}");
        assert_eq!(hits(names::UNMAP), 20 * 2032, "{design}");
        assert_eq!(hits(names::ALLOC_AREA) as f64, row.count(names::CREATED).unwrap(), "{design}");
        assert_eq!(hits(names::FREE_BLOCK) as f64, row.count(names::RETURNED).unwrap(), "{design}");
        assert!(!row.series[&names::HELD].is_empty(), "{design}");
    }
    let text = nofrag_show::text(&(SCENARIO.present)(&report));
    for part in ["Pen, before", "467,124", "alloc_vmap_area", "Blocks held while w3 runs"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert_eq!(report.comparisons.len(), 4);
}

#[test]
fn pens_counts_of_his_first_workload_are_met() {
    let designs = [BEFORE, AFTER, OURS].map(str::to_owned).to_vec();
    let report = run(&Options { loops: None, repeat: Some(1), designs, ..small("w1") });
    assert_eq!(count(&report, "w1", BEFORE, names::CREATED), 1000.0);
    assert_eq!(count(&report, "w1", AFTER, names::RETURNED), 992.0);
    assert!(exact_claims(&report) >= 10);
}

#[test]
fn every_claim_around_the_workloads_holds() {
    let report = run(&small("w2_keys,creators,rounding"));
    assert!(exact_claims(&report) >= 49, "{}", exact_claims(&report));
    let ids: Vec<_> = report.oracles.iter().map(|oracle| oracle.id.as_str()).collect();
    for id in ["w2-keys-new/nofrag", "creators-64/linux-4.1", "rounding/nofrag"] {
        assert!(ids.contains(&id), "no {id} in {ids:?}");
    }
}

#[test]
fn head_insertion_uses_up_any_space_and_the_others_none() {
    let report = run(&small("exhaustion"));
    let first = |arena, design: &str| {
        count(&report, &exhaustion::program_in(arena), design, names::FIRST_FAILED)
    };
    assert_eq!(first("32-bit 128 MiB", BEFORE), 32.0 * 126.0 + 1.0);
    assert_eq!(first(exhaustion::LARGEST, BEFORE), 4096.0 * 126.0 + 1.0);
    assert_eq!([AFTER, OURS].map(|design| first(exhaustion::LARGEST, design)), [0.0; 2]);
}

#[test]
fn long_lived_pages_pin_blocks_of_linux_and_few_pages_of_ours() {
    let report = run(&small("lifetimes"));
    let pinned = |design| count(&report, &lifetimes::program_of(256), design, names::PINNED);
    assert!(pinned(AFTER) > 240.0 && pinned(OURS) <= 2.0);
    assert!(report.oracles.iter().all(|oracle| oracle.holds));
}

#[test]
fn an_alias_flush_of_ours_looks_at_dirty_blocks_only() {
    let report = run(&small("aliases"));
    let visited = |design| count(&report, &aliases::program_of(100), design, names::VISITED);
    assert_eq!((visited("linux-6.11"), visited(OURS)), (100_000.0, 100.0));
}

#[test]
fn the_same_key_counts_the_same_and_another_one_differs() {
    let counts = |seed| {
        let designs = [BEFORE, OURS].map(str::to_owned).to_vec();
        let report = run(&Options { seed: Some(seed), designs, ..small("w2") });
        report.measurements.into_iter().map(|m| m.counts).collect::<Vec<_>>()
    };
    assert_eq!(counts(3), counts(3));
    assert_ne!(counts(3), counts(4));
}

#[test]
fn json_gives_the_same_report_back() {
    let report = run(&small("w1"));
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: Options| SCENARIO.run(&options, &Silent).unwrap_err().to_string();
    assert!(refused(Options { mode: Mode::Stress, ..small("w1") }).contains("compare"));
    assert!(refused(Options { repeat: Some(0), ..small("w1") }).starts_with("--repeat"));
    assert!(refused(Options { loops: Some(0), ..small("w1") }).starts_with("--loops"));
    assert!(refused(Options { loops: Some(u64::MAX), ..small("w1") }).starts_with("--loops"));
    assert!(refused(Options { seed: Some(1 << 32), ..small("w1") }).starts_with("--seed"));
    assert!(refused(small("fix_size_alloc")).contains("other_bits (16)"));
}
