//! The shipped recordings against the model, and the signs of a wrong model.

use nofrag::ranges::{AlignRule, Index};
use nofrag::vmap::{Decay, Pools, VmapPolicy};

use super::case::{Case, Change, Unusable};
use super::catalogue::Source;
use super::explain::explain;
use super::lists::{Entry, Lists};
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
    assert_eq!(report.oracles.len(), 36);
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
            _ => None,
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

fn listed() -> Lists {
    let lists = SPECS.iter().find_map(|spec| match spec.program {
        Source::ShippedLists(bytes) => Some(Lists::of_bytes(bytes).unwrap()),
        _ => None,
    });
    lists.unwrap()
}

#[test]
fn lists_are_read_as_they_were_written() {
    let lists = listed();
    assert_eq!(Lists::of_bytes(&lists.to_bytes().unwrap()).as_ref(), Ok(&lists));
    for (text, wrong) in [
        ("0xffffc90000000000\n", "line 1 is of no list"),
        ("@total x\n", "line 1: x"),
        ("@release 6.1\n@take 3 y\n", "line 2: y"),
        ("@tale 3\n", "line 1: @tale 3"),
    ] {
        let packed = zstd::bulk::compress(text.as_bytes(), 1).unwrap();
        let refused = Lists::of_bytes(&packed).unwrap_err();
        assert!(refused.contains(wrong), "{refused}");
    }
}

#[test]
fn lists_refute_other_rules_and_other_places() {
    let lists = listed();
    let rules = run::rules(&lists.release).unwrap();
    let sound = lists::compare(&lists, rules).unwrap();
    assert!(sound.differences.is_empty() && sound.purges > 0, "{sound:?}");
    let differ =
        |lists: &Lists, policy| lists::compare(lists, policy).unwrap().differences.len() as u64;
    let older = VmapPolicy { index: VmapPolicy::LINUX_4_19.index, ..rules };
    assert!(differ(&lists, older) * 2 > sound.turns, "the search of 4.19 begins where it ended");
    assert_eq!(differ(&swapped(lists), rules), 1);
}

/// The requests of the first turn in the opposite order.
fn swapped(mut lists: Lists) -> Lists {
    let taken = lists.entries.iter_mut().find_map(|entry| match entry {
        Entry::Take(sizes) => Some(sizes),
        Entry::List(_) => None,
    });
    taken.unwrap().reverse();
    lists
}

/// Until 5.15 a hole of exactly the size is passed over, unless the way through the tree comes by it.
#[test]
fn lists_of_5_10_ask_for_a_page_more() {
    let lists = SPECS.iter().find_map(|spec| match spec.program {
        Source::ShippedLists(bytes) if spec.info.name == "recorded_lists_5_10" => Some(bytes),
        _ => None,
    });
    let lists = Lists::of_bytes(lists.unwrap()).unwrap();
    let sound = lists::compare(&lists, run::rules(&lists.release).unwrap()).unwrap();
    assert!(sound.differences.is_empty(), "{:?}", sound.differences);
    let lists::Placed { alone, told, taken } = sound.placed;
    assert!(0 < taken && taken < told && told * 10 < alone, "{sound:?}");
    let swapped = lists::compare(&swapped(lists.clone()), run::rules(&lists.release).unwrap());
    assert_eq!(swapped.unwrap().differences.len(), 1);
    let later = lists::compare(&lists, VmapPolicy::LINUX_6_11).unwrap();
    assert_eq!(later.differences.len() as u64, sound.turns, "each turn refutes the later rule");
    // An area that is said to have come elsewhere.
    let mut moved = lists.clone();
    let Some(Entry::List(last)) = moved.entries.last_mut() else { panic!("a list ends the file") };
    let taken =
        last.lines().rev().find(|line| line.contains("array_map") && line.contains(" 12288 "));
    let taken = taken.unwrap().to_owned();
    let start = u64::from_str_radix(&taken[2..18], 16).unwrap() + (1 << 40);
    let elsewhere = format!("{start:#x}-{:#x}{}", start + 12288, &taken[37..]);
    *last = last.replace(&taken, &elsewhere);
    let moved = lists::compare(&moved, run::rules(&lists.release).unwrap()).unwrap();
    assert_eq!(moved.differences.len() as u64 + moved.disturbed, 1, "{moved:?}");
}

#[test]
fn a_turn_with_areas_of_others_is_left_out() {
    let mut lists = listed();
    let sound = lists::compare(&lists, run::rules(&lists.release).unwrap()).unwrap();
    let taken = lists.entries.iter_mut().filter_map(|entry| match entry {
        Entry::Take(sizes) => Some(sizes),
        Entry::List(_) => None,
    });
    // A request less than areas that came.
    taken.last().unwrap().pop();
    let disturbed = lists::compare(&lists, run::rules(&lists.release).unwrap()).unwrap();
    assert_eq!(disturbed.disturbed, sound.disturbed + 1);
    assert!(disturbed.placed.alone < sound.placed.alone && disturbed.differences.is_empty());
}

#[test]
fn given_asks_for_recordings() {
    let options = Options { mask: Some("given".to_owned()), ..Options::default() };
    let refused = SCENARIO.run(&options, &Silent).unwrap_err().to_string();
    assert!(refused.starts_with("--mask given needs --states"), "{refused}");
}
