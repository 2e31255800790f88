//! Small runs: the same result twice, and memory that comes back.

use nofrag::check::Check;
use nofrag::page::{FragmentationPolicy, PolicyPreset};

use super::catalogue::{Case, SILENT};
use super::mixes::mixes;
use super::spec::{HugeMode, RunSpec, TestMachine};
use crate::scenario::ThpTouch;
use crate::world::thpfioscale::Run;

/// Runs a preset with 256 MiB.
fn run(spec: &RunSpec) -> Run {
    Run::new(spec.setup_of(256 << 8)).expect("there is such a machine")
}

fn spec(preset: &PolicyPreset) -> RunSpec {
    RunSpec {
        design: preset.name.to_owned(),
        policy: preset.policy,
        case: Case {
            machine: TestMachine::OneNode,
            huge: HugeMode::Default,
            mix: mixes()[0],
            memory_gib: 1,
        },
        touch: ThpTouch::HalfOfUnits,
        seed: 1,
    }
}

#[test]
fn equal_specs_give_equal_results() {
    let spec = spec(&FragmentationPolicy::PRESETS[0]);
    let result = || run(&spec).run().expect("memory suffices");
    let (first, second) = (result(), result());
    assert_eq!(first, second);
    let other = RunSpec { seed: 2, ..spec.clone() };
    assert_ne!(first, run(&other).run().expect("memory suffices"));
}

#[test]
fn designs_that_change_nothing_count_the_same() {
    for (silent, beside) in SILENT {
        let [silent, beside] = [silent, beside].map(|name| {
            let preset = FragmentationPolicy::preset(name).expect("it is a preset");
            run(&spec(&preset)).run().expect("memory suffices")
        });
        assert_eq!(silent, beside);
    }
}

/// Returns runs in the three ways of asking for huge pages, one of them on the machine with two nodes.
fn ways(preset: &PolicyPreset) -> [RunSpec; 3] {
    let two = TestMachine::TwoNodes { this_node: true, start: 1 };
    let one = spec(preset).case;
    [
        one,
        Case { huge: HugeMode::Madvise, ..one },
        Case { huge: HugeMode::DefragAlways, machine: two, ..one },
    ]
    .map(|case| RunSpec { case, ..spec(preset) })
}

#[test]
fn every_preset_gets_through_all_phases_and_gives_its_memory_back() {
    for (number, preset) in FragmentationPolicy::PRESETS.iter().enumerate() {
        check_run(&ways(preset)[number % 3]);
    }
}

#[test]
#[ignore = "every preset in every way"]
fn every_preset_gets_through_all_phases_in_every_way() {
    FragmentationPolicy::PRESETS.iter().flat_map(ways).for_each(|spec| check_run(&spec));
}

fn check_run(spec: &RunSpec) {
    let mut run = run(spec);
    run.all_phases().unwrap_or_else(|out| panic!("{spec:?}: {out:?}"));
    let world = &mut run.world;
    world.owner.check(&world.pages);
    world.pages.drain_all();
    world.pages.check().unwrap_or_else(|broken| panic!("{}: {broken}", spec.design));
    let held: u64 = world.pages.zones().map(|zone| zone.managed.0 - zone.free.0).sum();
    assert_eq!(held, 0, "{}: all else comes back", spec.design);
    let result = run.finish();
    let bound = spec.policy.stall.map_or(0, |stall| stall.bound.0);
    assert!(result.stalls.iter().all(|stall| stall.0 <= bound), "{}", spec.design);
    assert_eq!(
        result.huge + result.base,
        result.huge_work.len() as u64 + result.base_work.len() as u64
    );
    assert!(result.huge + result.base > 0);
}
