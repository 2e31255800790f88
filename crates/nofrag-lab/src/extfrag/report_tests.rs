//! Reports made of runs, over a stand-in for the simulation: a table that answers at once.

use nofrag::page::PageCounters;
use nofrag::units::Nanos;

use super::catalogue::Program;
use super::spec::{HugeMode, RunSpec};
use super::*;
use crate::oracle::{ClaimKind, Oracle};
use crate::scenario::{Mode, Silent};
use crate::world::setup::{Moment, PhaseEnd, RunResult};

/// Derives events from the policy, and other counts from the seed.
fn fake(spec: &RunSpec) -> Result<RunResult, RunError> {
    let policy = spec.policy;
    let vanilla = 1000 * spec.seed;
    let events = match (policy.spread, policy.boost) {
        (nofrag::page::Spread::FastPath, Some(_)) => vanilla / 20,
        (nofrag::page::Spread::FastPath, None) => vanilla / 2,
        (nofrag::page::Spread::EveryRequest, _) => 0,
        (_, Some(_)) => vanilla / 10,
        _ => vanilla,
    };
    let mut counters = PageCounters::default();
    counters.extfrag[1][2] = events;
    counters.mistyped[1] = 10 * events;
    let madvise = spec.case.huge == HugeMode::Madvise;
    let huge = if madvise { 5 } else { u64::from(policy.boost.is_some()) };
    let huge_work = vec![Nanos(2_000); huge as usize];
    let stalls = policy.stall.map(|stall| stall.bound).into_iter().collect();
    Ok(RunResult {
        phases: vec![PhaseEnd { at: Moment::Write, counters, ..PhaseEnd::default() }],
        huge,
        base: 10 - huge,
        huge_work,
        base_work: vec![Nanos(100_000); (10 - huge) as usize],
        stalls,
        boost: policy.boost.map_or_else(Vec::new, |_| vec![0.0, 512.0, 0.0]),
        contiguity: vec![(Moment::Write, vec![0.0, 0.5, 1.0])],
        blocks: 3,
        ..RunResult::default()
    })
}

fn report(options: &Options) -> Report {
    run(options, fake, &Silent).unwrap()
}

fn named(mask: &str) -> Options {
    Options { mask: Some(mask.to_owned()), threads: Some(2), ..Options::default() }
}

fn full() -> Options {
    Options { extent: Extent::Full, threads: Some(3), ..Options::default() }
}

fn text(report: &Report) -> String {
    nofrag_show::text(&present::sections(report))
}

fn oracle<'a>(report: &'a Report, id: &str) -> &'a Oracle {
    report.oracles.iter().find(|oracle| oracle.id == id).unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn results_do_not_depend_on_how_many_runs_go_at_a_time() {
    let one = report(&Options { threads: Some(1), ..full() });
    let many = report(&Options { threads: Some(16), ..full() });
    assert_eq!(one.measurements, many.measurements);
    assert_eq!(one.oracles, many.oracles);
}

#[test]
fn a_row_has_the_median_and_the_range_of_its_seeds() {
    let report = report(&Options { repeat: Some(3), ..named("s-default") });
    let row = report.measurement("s-default, calibrated, 4 GiB", "linux-4.20").unwrap();
    assert_eq!(row.time.samples, [1000.0, 2000.0, 3000.0]);
    assert_eq!(row.count(names::MISTYPED), Some(20_000.0));
    assert_eq!(row.spreads[&names::MISTYPED].max, 30_000.0);
    assert_eq!(row.count(names::HUGE_WORK_US), None, "no huge fault is no sample");
}

#[test]
fn every_table_fits_and_says_no_sample_where_there_was_none() {
    let report = report(&full());
    let text = text(&report);
    let parts = [
        "97.7",
        "no sample",
        "7.2-defrag †",
        "local 1",
        "fragment_stall_order",
        "watermark_boost_factor",
        "as shipped",
        "largest free block: █",
        "~1.90 s",
    ];
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for published in ["804,694", "804694", "408,912", "18,421", "16,788", "662.92", "178.93"] {
        assert!(!text.contains(published), "{published} is no figure to compare with:\n{text}");
    }
}

/// Looks through all tables: events of loose and of strict rules stand together only beside mistyped allocations
/// (docs/sources/pages.md#b-29).
#[test]
fn events_of_both_rules_stand_together_only_beside_mistyped_allocations() {
    let report = report(&named("s-default,mixes-default"));
    let view = view::View { report: &report };
    let case = view.cases(Program::SDefault)[0];
    let fewer = |design, beside| view.fewer_events(&case, design, beside);
    assert_eq!(fewer("linux-6.12", view::Beside::Nothing), Err(view::OtherRules));
    assert!(fewer("linux-6.12", view::Beside::Mistyped).unwrap().is_some());
    assert_eq!(fewer("linux-6.1", view::Beside::Nothing).unwrap().unwrap().median, 95.0);
    assert_eq!(fewer("linux-4.20", view::Beside::Nothing), Ok(None));
    for section in present::sections(&report) {
        let nofrag_show::Section::Table(table) = section else { continue };
        let nofrag_show::Table { title, header, rows, .. } = table;
        let shows = |word: &str| title.contains(word) || header.iter().any(|it| it.contains(word));
        let strict = rows.iter().any(|row| row[0].to_string().contains('†'))
            || header.iter().any(|it| it.contains('†'));
        let counts = shows("events") || shows("Events");
        // The breakdown by type counts a design's own events and compares shares.
        if strict && counts && !title.contains("by the type") {
            assert!(shows("mistyped"), "{title}: {header:?}");
        }
    }
}

#[test]
fn exact_claims_hold_and_a_broken_one_is_seen() {
    let report_of = |simulate: Simulate| run(&named("s-default"), simulate, &Silent).unwrap();
    let good = report_of(fake);
    assert_eq!(good.broken().map(|oracle| &oracle.id).collect::<Vec<_>>(), Vec::<&String>::new());
    let stall = oracle(&good, "stall-bound/linux-4.20+patch5/s-default, calibrated, 4 GiB");
    assert_eq!((stall.measured, stall.kind), (20.0, ClaimKind::Exact));

    let too_long = |spec: &RunSpec| {
        let mut result = fake(spec)?;
        result.stalls.iter_mut().for_each(|stall| stall.0 += 1);
        Ok(result)
    };
    let broken: Vec<String> = report_of(too_long).broken().map(|it| it.id.clone()).collect();
    assert_eq!(broken, ["stall-bound/linux-4.20+patch5/s-default, calibrated, 4 GiB"]);
}

#[test]
fn a_run_that_differs_when_made_again_breaks_determinism() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let drifting = |spec: &RunSpec| {
        let elapsed = Nanos(RUNS.fetch_add(1, Ordering::Relaxed));
        Ok(RunResult { elapsed, ..fake(spec)? })
    };
    let options = Options { designs: vec!["linux-4.20".to_owned()], ..named("s-default") };
    let report = run(&options, drifting, &Silent).unwrap();
    assert!(oracle(&report, "determinism").is_broken());
}

#[test]
fn the_gate_is_exact_where_it_was_stated_and_breaks_below_70_percent() {
    let gate = "gate/s-default, calibrated, 4 GiB";
    let good = report(&named("s-default"));
    assert_eq!((oracle(&good, gate).kind, oracle(&good, gate).holds), (ClaimKind::Exact, true));
    let other = report(&Options { memory: vec![1], ..named("s-default") });
    assert_eq!(oracle(&other, "gate/s-default, calibrated, 1 GiB").kind, ClaimKind::Ratio);

    let weak = |spec: &RunSpec| {
        let mut result = fake(spec)?;
        let is_weak = spec.design == catalogue::MERGED;
        let counters = &mut result.phases[0].counters;
        counters.extfrag[1][2] = if is_weak { 310 * spec.seed } else { counters.extfrag[1][2] };
        Ok(result)
    };
    let report = run(&named("s-default"), weak, &Silent).unwrap();
    assert!(oracle(&report, gate).is_broken());
}

#[test]
fn a_default_run_is_a_small_part_of_a_full_one_and_says_so() {
    let runs = |options: &Options| plan(options).unwrap().rows().len();
    let [few, all] = [runs(&Options::default()), runs(&full())];
    assert!(few * 10 < all, "{few} of {all}");
    let report = report(&Options::default());
    assert!(report.notes.iter().any(|note| note.starts_with("a default run")));
    assert!(report.settings.conditions[1].contains("4 GiB"));
}

#[test]
fn names_of_cases_lead_back_to_them() {
    let report = report(&Options { memory: vec![8, 1], ..named("s-default,h-madv,stall-curve") });
    let view = view::View { report: &report };
    assert_eq!(view.cases(Program::SDefault).len(), 2);
    assert_eq!(view.cases(Program::HMadvise).len(), 4, "two nodes with the first size only");
    assert_eq!(view.cases(Program::StallCurve).len(), 2);
    assert!(view.cases(Program::MixesDefault).is_empty());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: Options| SCENARIO.run(&options, &Silent).unwrap_err().to_string();
    assert!(refused(Options { repeat: Some(0), ..named("1") }).starts_with("--repeat"));
    assert!(refused(Options { threads: Some(0), ..named("1") }).starts_with("--threads"));
    assert!(refused(Options { memory: vec![4, 0], ..named("1") }).starts_with("--memory"));
    assert!(refused(Options { mode: Mode::Soak, ..named("1") }).contains("compare"));
    assert!(refused(named("1024")).contains("stall-curve (512)"));
    let unknown = Options { designs: vec!["linux-2.6".to_owned()], ..named("1") };
    assert!(refused(unknown).contains("linux-4.20+patch1"));
    let silent = Options { designs: vec!["+patch2".to_owned()], ..named("s-madv") };
    assert!(refused(silent).starts_with("--design"));
}
