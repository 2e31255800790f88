//! Small runs: the laws of the owner, the same result twice, and memory that comes back.

use nofrag::check::Check;
use nofrag::page::{
    FragmentationPolicy, Lru, NodeId, PageConfig, PolicyPreset, Reclaim, ReclaimRequest,
    ReclaimScope,
};
use nofrag::units::Nanos;

use super::machine::layout;
use super::mixes::mixes;
use super::spec::{HugeMode, Machine, RunSpec, Touch};
use crate::random::Random;
use crate::world::cache::FILE_PAGES;
use crate::world::costs::Costs;
use crate::world::heard::{Heard, Pages};
use crate::world::load::Mix;
use crate::world::lru::LruZone;
use crate::world::owner::Owner;
use crate::world::setup::Layout;
use crate::world::thpfioscale::Run;

/// A machine of 64 MiB and an owner with files of 150 % of that.
fn small(mix: &Mix) -> (Pages, Owner, Layout) {
    let pages = 64 << 8;
    let layout = layout(Machine::OneNode, mix, pages);
    let config = PageConfig::new(layout.map.clone(), FragmentationPolicy::LINUX_4_20);
    let allocator = Pages::with_events(&config, Heard::default()).expect("the map is sound");
    let mut end = 0;
    let zones: Vec<_> = allocator
        .zones()
        .map(|zone| {
            end += zone.present.0 as u32;
            LruZone { zone: zone.id, node: zone.node.0, end }
        })
        .collect();
    let cpu = layout.map.cpus().by_rank(0).expect("there are eight");
    let files = pages as u32 * 3 / 2 / FILE_PAGES;
    let owner =
        Owner::new(&zones, files, mix, Lru::TwoLists, Costs::built_in(), cpu, Random::new(1, 0));
    (allocator, owner, layout)
}

/// Reads pages at random, reclaiming when there is nothing; checks the laws now and then.
fn check_reading(mix: &Mix, scope: ReclaimScope) {
    let (mut pages, mut owner, layout) = small(mix);
    let cpu = layout.map.cpus().by_rank(0).expect("there are eight");
    let mut random = Random::new(2, 0);
    let highest = pages.zones().last().expect("there are two zones").id;
    let mut wants = Vec::new();
    for access in 0..60_000u64 {
        let file = random.index(layout.pages as usize * 3 / 2 / FILE_PAGES as usize) as u32;
        let page = file * FILE_PAGES + random.index(FILE_PAGES as usize) as u32;
        owner.turn(cpu, access * 1000);
        owner.wants(page, mix, &mut random, &mut wants);
        owner.open(file, &mut wants);
        while let Some(want) = wants.pop() {
            if owner.at_hand(want) {
                continue;
            }
            let request = owner.request(want);
            let pfn = loop {
                if let Ok(pfn) = pages.alloc(Nanos(access), cpu, request) {
                    break pfn;
                }
                let wanted =
                    ReclaimRequest { node: NodeId(0), highest, pages: 32, priority: 0, may: scope };
                assert!(owner.reclaim(&mut pages, wanted).pages > 0, "there is page cache");
            };
            owner.fulfil(&mut pages, want, pfn);
        }
        if access.is_multiple_of(3) {
            owner.dirty(page, access * 1000);
        }
        owner.close(&mut pages, file..file + 1);
        if access.is_multiple_of(6000) {
            owner.check(&pages);
        }
    }
    owner.check(&pages);
    owner.end_transients(&mut pages);
    owner.delete_files(&mut pages);
    owner.check(&pages);
}

#[test]
fn reading_at_random_keeps_the_laws_of_the_owner() {
    for mix in mixes() {
        check_reading(&mix.scaled(64 << 8), ReclaimScope::ALL);
    }
}

/// A run of a preset with 256 MiB.
fn run(spec: &RunSpec) -> Run {
    Run::new(spec.setup_of(256 << 8)).expect("there is such a machine")
}

fn spec(preset: &PolicyPreset) -> RunSpec {
    RunSpec {
        design: preset.name.to_owned(),
        policy: preset.policy,
        machine: Machine::OneNode,
        huge: HugeMode::Default,
        mix: mixes()[0],
        memory_gib: 1,
        touch: Touch::HalfOfUnits,
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
fn every_preset_gets_through_all_phases_and_gives_its_memory_back() {
    let two = Machine::TwoNodes { this_node: true, start: 1 };
    for preset in FragmentationPolicy::PRESETS {
        check_run(&spec(preset));
        check_run(&RunSpec { huge: HugeMode::Madvise, ..spec(preset) });
        check_run(&RunSpec { huge: HugeMode::DefragAlways, machine: two, ..spec(preset) });
    }
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
