//! The shipped recordings against the model, and the signs of a wrong model.

use nofrag::ranges::{AlignRule, Index};
use nofrag::vmap::{Decay, Pools, VmapPolicy};

use super::case::{Case, Change, Unusable};
use super::catalogue::Source;
use super::explain::explain;
use super::replay::Kind;
use super::*;
use crate::scenario::{Mode, Silent};

fn shipped() -> impl Iterator<Item = (&'static str, Case)> {
    SPECS.iter().filter_map(|spec| {
        let Source::Shipped(bytes) = spec.program else { return None };
        let trace = run::shipped(bytes, spec.info.name).unwrap();
        Some((spec.info.name, Case::of(trace).unwrap()))
    })
}

#[test]
fn the_model_places_as_the_recorded_kernels_did() {
    let report = SCENARIO.run(&Options::default(), &Silent).unwrap();
    assert_eq!(report.oracles.len(), 27);
    for oracle in &report.oracles {
        assert!(oracle.holds, "{}: {} {:?}", oracle.claim, oracle.measured, report.notes);
    }
    let areas: f64 = report.measurements.iter().filter_map(|row| row.count(names::AREAS)).sum();
    assert!(areas > 50_000.0, "{areas}");
}

/// Checks that a recording refutes other rules, whatever the order of its changes.
fn check_refuted(name: &str, policy: VmapPolicy) {
    let (_, case) = shipped().find(|(shipped, _)| *shipped == name).unwrap();
    let explained = explain(&case, policy, 100);
    let first = explained.first.unwrap_or_else(|| panic!("{name} fits {policy:?}"));
    assert!(first.position < case.steps.len(), "{first:?}");
}

#[test]
fn other_rules_are_refuted() {
    let rules = VmapPolicy::LINUX_6_11;
    check_refuted("recorded_threads", VmapPolicy { pools: Pools::Off, ..rules });
    let pools = Pools::ExactSize(Decay::QuarterUnderflow);
    check_refuted("recorded_maps", VmapPolicy { pools, ..rules });
    let index = Index::AugmentedTree(AlignRule::Padded);
    check_refuted("recorded_maps", VmapPolicy { index, ..rules });
}

#[test]
fn a_place_that_the_kernel_did_not_choose_is_noticed_and_told() {
    let (name, mut case) = shipped().next().unwrap();
    let steps = case.steps.iter().enumerate();
    let is_large = |change: &Change| matches!(change, Change::Alloc { pages: 257.., .. });
    let (at, _) = steps.filter(|(_, step)| is_large(&step.change)).nth(3).unwrap();
    let Change::Alloc { at: place, .. } = &mut case.steps[at].change else { unreachable!() };
    *place += 1;
    let explained = explain(&case, run::rules(&case.release).unwrap(), 100);
    let first = explained.first.unwrap_or_else(|| panic!("{name} fits"));
    assert_eq!(first.step, at);
    assert!(matches!(first.kind, Kind::Place { pooled: false, .. }), "{first:?}");
}

#[test]
fn lost_events_are_refused() {
    let (_, trace) = SPECS
        .iter()
        .find_map(|spec| match spec.program {
            Source::Shipped(bytes) => Some((spec, run::shipped(bytes, "cut").unwrap())),
            Source::Given | Source::Running(_) => None,
        })
        .unwrap();
    let events = Box::new(Lossy(trace.events));
    let refused = Case::of(nofrag_host::trace::Trace { events, ..trace }).unwrap_err();
    assert_eq!(refused, Unusable::Lost(3));
}

/// Events of which three are known to be lost.
struct Lossy(Box<dyn nofrag_host::trace::EventSource>);

impl nofrag_host::trace::EventSource for Lossy {
    fn read(
        &mut self,
        events: &mut Vec<nofrag_host::trace::Event>,
    ) -> Result<bool, nofrag_host::trace::TraceError> {
        self.0.read(events)
    }

    fn loss(&self) -> nofrag_host::trace::Loss {
        nofrag_host::trace::Loss { events: 3, ..self.0.loss() }
    }
}

#[test]
fn the_running_kernel_is_compared_where_it_can_be() {
    let options =
        Options { mask: Some("racing".to_owned()), loops: Some(500), ..Options::default() };
    let report = SCENARIO.run(&options, &Silent).unwrap();
    for note in &report.notes {
        eprintln!("{note}");
    }
    // What the host does beside it may come in the way, so the claims are not judged here.
    let skipped = report.notes.iter().any(|note| note.starts_with("skipped: "));
    assert!(skipped || report.oracles.len() == 3);
}

#[test]
fn bad_options_are_refused() {
    for options in [
        Options { loops: Some(0), ..Options::default() },
        Options { loops: Some(1_000_000), ..Options::default() },
        Options { repeat: Some(0), ..Options::default() },
        Options { threads: Some(100_000), ..Options::default() },
        Options { mode: Mode::Soak, ..Options::default() },
    ] {
        assert!(matches!(SCENARIO.run(&options, &Silent), Err(RunError::BadOption { .. })));
    }
}

#[test]
fn recordings_of_a_folder_are_compared() {
    let folder = std::env::temp_dir().join(format!("nofrag-given-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let options = Options { states: Some(folder.clone()), ..Options::default() };
    let refused = SCENARIO.run(&options, &Silent).unwrap_err().to_string();
    assert!(refused.contains("has no recording"), "{refused}");

    let Source::Shipped(bytes) = SPECS[1].program else { unreachable!() };
    for name in ["one.nofrag", "two.nofrag"] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    std::fs::write(folder.join("said.txt"), "no recording").unwrap();
    let report = SCENARIO.run(&options, &Silent).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let [row] = &report.measurements[..] else { panic!("{:?}", report.measurements) };
    assert_eq!((row.program.as_str(), row.count(names::DIFFERENCES)), ("given", Some(0.0)));
    assert!(row.count(names::AREAS) > Some(5_000.0), "{row:?}");
}

#[test]
fn given_asks_for_recordings() {
    let options = Options { mask: Some("given".to_owned()), ..Options::default() };
    let refused = SCENARIO.run(&options, &Silent).unwrap_err().to_string();
    assert!(refused.starts_with("--mask given needs --states"), "{refused}");
}
