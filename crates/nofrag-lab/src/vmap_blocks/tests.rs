use nofrag::check::Check;

use super::catalogue::{BY_HANDLE, GLOBAL, MODEL, NODES, OURS, PER_CPU, designs};
use super::claims::lock_of;
use super::locks::LockKind;
use super::model::{Readings, SimulationSize};
use super::names::Column;
use super::turns::model_space;
use super::*;
use crate::oracle::ClaimKind;
use crate::scenario::{Mode, Silent};

fn small() -> Options {
    let (repeat, loops, seed) = (Some(2), Some(600), Some(7));
    Options { repeat, loops, seed, threads: Some(24), ..Options::default() }
}

fn with_mask(mask: &str) -> Options {
    Options { mask: Some(mask.to_owned()), ..small() }
}

fn run(options: &Options) -> Report {
    SCENARIO.run(options, &Silent).unwrap()
}

fn size(readings: Readings) -> SimulationSize {
    SimulationSize { readings, ..SimulationSize::stated(1, 600, 3) }
}

#[test]
fn reading_at_signs_counts_what_reading_each_time_counts() {
    for design in designs().into_iter().filter(|design| design.face == catalogue::Face::ByCall) {
        let simulated = |readings| {
            let space = model_space(&design, 4).unwrap();
            let simulated = model::run(&space, size(readings)).unwrap();
            space.check().unwrap();
            (simulated.outcome, simulated.taken)
        };
        let (at_signs, always) = (simulated(Readings::AtSigns), simulated(Readings::Always));
        assert_eq!(at_signs, always, "{}", design.name);
    }
}

#[test]
fn the_model_takes_every_shared_lock_that_the_engine_took() {
    for design in designs().into_iter().filter(|design| design.face == catalogue::Face::ByCall) {
        let space = model_space(&design, 5).unwrap();
        let simulated = model::run(&space, size(Readings::AtSigns)).unwrap();
        for (kind, lock) in simulated.taken.iter().filter(|(kind, _)| !kind.is_private()) {
            let modelled = simulated.outcome.locks.get(&kind).map_or(0, |stat| stat.acquisitions);
            assert_eq!(modelled, lock.acquisitions, "{} of {}", kind.into_str(), design.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_model_and_another_one_differs() {
    let model = |seed| {
        let options = Options { seed: Some(seed), ..with_mask("model_1p") };
        run(&options).measurements.into_iter().map(|row| (row.counts, row.time)).collect::<Vec<_>>()
    };
    assert_eq!(model(1), model(1));
    assert_ne!(model(1), model(2));
}

#[test]
fn an_index_per_cpu_loses_its_contentions_and_no_other_lock_does() {
    let report = run(&Options { loops: Some(100_000), threads: Some(64), ..with_mask("model_1p") });
    let contended = |design, kind| {
        lock_of(report.measurement(MODEL, design).unwrap(), kind, Column::Contentions)
    };
    let [before, after] = [GLOBAL, PER_CPU].map(|design| contended(design, LockKind::BlockIndex));
    assert!(before > 10.0 * after.max(1.0), "{before} {after}");
    let [before, after] = [GLOBAL, PER_CPU].map(|design| contended(design, LockKind::AreaBusy));
    assert!(after > 0.5 * before, "{before} {after}");
    assert_eq!(report.broken().map(|oracle| oracle.id.as_str()).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_small_run_holds_every_exact_claim_and_fits_the_page() {
    let report = run(&small());
    assert_eq!(report.broken().map(|oracle| oracle.id.as_str()).collect::<Vec<_>>(), [""; 0]);
    assert!(report.oracles.iter().filter(|oracle| oracle.kind == ClaimKind::Exact).count() >= 3);
    let names: Vec<&str> = SPECS.iter().map(|spec| spec.info.name).collect();
    assert_eq!(report.programs(), names);
    // The model has no handles, and its assumptions are tried on two designs.
    assert_eq!(report.measurements.len(), 4 * 5 + 3 * 4 + 4 * 2);
    for part in ["index-contentions", "throughput", "turnover-64p"] {
        assert!(report.comparisons.iter().any(|comparison| comparison.figure == part), "{part}");
    }
    let text = nofrag_show::text(&(SCENARIO.present)(&report));
    for part in ["vmap_blocks.xa_lock", "waits at map", "held by unmap", "1,250,000", "Piggin"] {
        let noted = report.notes.iter().any(|note| note.contains(part));
        assert!(noted || text.contains(part), "no {part:?} in:\n{text}");
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
}

#[test]
fn any_choice_of_designs_can_be_shown() {
    for design in [GLOBAL, NODES, OURS, BY_HANDLE] {
        let designs = vec![design.to_owned()];
        let report = run(&Options { designs, ..with_mask("threads_64p,model_64p,1024") });
        assert!(!nofrag_show::text(&(SCENARIO.present)(&report)).is_empty());
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: Options| SCENARIO.run(&options, &Silent).unwrap_err().to_string();
    assert!(refused(Options { repeat: Some(0), ..small() }).starts_with("--repeat"));
    assert!(refused(Options { loops: Some(0), ..small() }).starts_with("--loops"));
    assert!(refused(Options { pages: Some(65), ..small() }).starts_with("--pages"));
    assert!(refused(Options { threads: Some(0), ..small() }).starts_with("--threads"));
    assert!(refused(Options { mode: Mode::Soak, ..small() }).starts_with("--mode"));
    assert!(
        refused(Options { designs: vec!["linux-2.4".to_owned()], ..small() }).contains("global")
    );
}
