//! The same requests under all rule sets, and what must hold between them.

use super::choices::Random;
use super::page_pair::{machine, node, zone};
use nofrag::check::Check;
use nofrag::page::{
    FallbackRules, FragmentationPolicy, MemoryMap, Migratetype, MinFree, PageAllocator, PageConfig,
    PageCounters, PageRequest, PerCpuRules, PolicyPreset, RequestFlags, Spread, ZoneKind,
};
use nofrag::units::{Nanos, Order, Pfn};
use std::collections::BTreeMap;

/// Frames of a machine with two zones of 16 MiB.
const PAGES: u64 = 8192;

fn map() -> MemoryMap {
    let zones = [zone(ZoneKind::Dma32, 1024, PAGES / 2), zone(ZoneKind::Normal, 5120, PAGES / 2)];
    machine(&[node(&[0, 1], &zones)])
}

/// One of a string of operations, which does not know what earlier ones gave.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Takes a block of this order and type, which from then on has the next number.
    Alloc { cpu: usize, order: u8, migratetype: Migratetype },
    /// Gives the block of this number back, if it was had.
    Free { cpu: usize, number: usize },
}

/// Returns operations that keep about `pages` pages in use.
fn operations(seed: u64, pages: u64) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let mut live: Vec<(usize, u64)> = Vec::new();
    let (mut number, mut used) = (0, 0);
    let mut all = Vec::new();
    for _ in 0..9_000 {
        let cpu = random.below(2) as usize;
        if used < pages && random.below(9) < 6 {
            let order = [0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4][random.below(11) as usize];
            // One type more than the others for a while, as programs do.
            let other = usize::from(random.below(5) == 0);
            let migratetype = Migratetype::MOBILITY[(number / 700 + other) % 3];
            all.push(Operation::Alloc { cpu, order, migratetype });
            live.push((number, 1 << order));
            number += 1;
            used += 1 << order;
        } else if !live.is_empty() {
            let (number, pages) = live.swap_remove(random.below(live.len() as u64) as usize);
            all.push(Operation::Free { cpu, number });
            used -= pages;
        }
    }
    all
}

/// An allocator after the operations, and what they gave.
struct Run {
    pages: PageAllocator,
    /// Answer to each allocation, in their order.
    answers: Vec<Option<Pfn>>,
    held: BTreeMap<Pfn, u64>,
}

fn run(policy: FragmentationPolicy, operations: &[Operation]) -> Run {
    let map = map();
    let config = PageConfig {
        min_free: MinFree::Pages(0),
        watermark_scale_factor: 1,
        lowmem_reserve_ratio: [0; ZoneKind::COUNT],
        ..PageConfig::new(map.clone(), policy)
    };
    let mut pages = PageAllocator::new(&config).expect("the map is sound");
    let (mut answers, mut held) = (Vec::new(), BTreeMap::new());
    for operation in operations {
        match *operation {
            Operation::Alloc { cpu, order, migratetype } => {
                let cpu = map.cpus().by_rank(cpu).expect("there are two");
                let order = Order::new(order).expect("it is one");
                let request = PageRequest::new(order, migratetype).flags(RequestFlags::NONE);
                let page = pages.alloc(Nanos(0), cpu, request).ok();
                if let Some(page) = page {
                    pages.set_movable(page, migratetype == Migratetype::Movable).expect("in use");
                    held.insert(page, order.pages());
                }
                answers.push(page);
            }
            Operation::Free { cpu, number } => {
                if let Some(page) = answers[number] {
                    let cpu = map.cpus().by_rank(cpu).expect("there are two");
                    pages.free(cpu, page).expect("it is in use");
                    held.remove(&page);
                }
            }
        }
    }
    pages.check().expect("the laws hold");
    pages.drain_all();
    pages.check().expect("the laws hold");
    Run { pages, answers, held }
}

impl Run {
    fn counters(&self) -> &PageCounters {
        self.pages.counters()
    }

    fn free(&self) -> u64 {
        self.pages.zones().map(|zone| zone.free.0).sum()
    }

    /// Returns the free pages by the type of their list, and by that of their pageblock.
    fn free_by_type(&self) -> ([u64; 3], [u64; 3]) {
        let listed = Migratetype::MOBILITY.map(|list| {
            let of = |zone| {
                let pages = |order: Order| self.pages.free_blocks(zone, order, list) << order.get();
                Order::all().map(pages).sum::<u64>()
            };
            self.pages.zones().map(|zone| of(zone.id)).sum()
        });
        let mut typed = [0; 3];
        for start in (1024..1024 + PAGES).step_by(512) {
            let used: u64 =
                self.held.range(Pfn(start)..Pfn(start + 512)).map(|(_, pages)| pages).sum();
            let of = self.pages.block_type(Pfn(start)).expect("it is a pageblock");
            typed[of.index()] += 512 - used;
        }
        (listed, typed)
    }
}

/// Calls `check` with the run of each preset over each of four strings of operations that ask for nearly all memory.
fn check_all(check: impl Fn(&str, FragmentationPolicy, &Run)) {
    for seed in 0..4 {
        let operations = operations(seed, PAGES - 150);
        for PolicyPreset { name, policy, .. } in FragmentationPolicy::PRESETS {
            check(&format!("{name}, seed {seed}"), *policy, &run(*policy, &operations));
        }
    }
}

#[test]
fn what_is_not_in_use_is_free() {
    check_all(|name, _, run| {
        let held: u64 = run.held.values().sum();
        assert_eq!(run.free() + held, PAGES, "{name}");
    });
}

#[test]
fn what_all_have_served_leaves_all_with_as_much() {
    // With half of memory in use nobody is refused, whatever the rules.
    for seed in 0..4 {
        let operations = operations(seed, PAGES / 3);
        let runs =
            FragmentationPolicy::PRESETS.iter().map(|preset| run(preset.policy, &operations));
        let free: Vec<(u64, bool)> =
            runs.map(|run| (run.free(), run.answers.iter().all(Option::is_some))).collect();
        assert!(free.iter().all(|&one| one == (free[0].0, true)), "seed {seed}: {free:?}");
    }
}

#[test]
fn strict_lists_hold_the_pages_of_their_type_alone() {
    let mut loose = 0;
    for seed in 0..4 {
        let operations = operations(seed, PAGES - 150);
        for PolicyPreset { name, policy, .. } in FragmentationPolicy::PRESETS {
            let (listed, typed) = run(*policy, &operations).free_by_type();
            if policy.fallback == FallbackRules::Loose {
                loose += u32::from(listed != typed);
            } else {
                assert_eq!(listed, typed, "{name}, seed {seed}");
            }
        }
    }
    assert!(loose >= 10, "loose lists hold others: {loose}");
}

#[test]
fn who_never_mixes_has_no_event_and_no_page_of_another_type() {
    check_all(|name, policy, run| {
        let counters = run.counters();
        let mistyped: u64 = counters.mistyped.iter().sum();
        if policy.spread == Spread::EveryRequest {
            assert_eq!((counters.events(), mistyped), (0, 0), "{name}");
        } else {
            assert!(counters.events() > 0 && mistyped > 0, "{name} was asked too little");
        }
    });
}

#[test]
fn serious_events_are_some_of_the_events() {
    check_all(|name, _, run| {
        let counters = run.counters();
        for migratetype in Migratetype::MOBILITY {
            let serious = counters.serious[migratetype.index()];
            assert!(serious <= counters.events_of(migratetype), "{name}, {migratetype}");
        }
    });
}

/// Checks that both policies give every request the same frame, and count the same.
fn check_equal(one: FragmentationPolicy, other: FragmentationPolicy) {
    for seed in 0..4 {
        let operations = operations(seed, PAGES - 150);
        let (one, other) = (run(one, &operations), run(other, &operations));
        let differs = one.answers.iter().zip(&other.answers).position(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.counters(), other.counters(), "seed {seed}");
    }
}

#[test]
fn patch_2_changes_nothing() {
    check_equal(FragmentationPolicy::PATCHES_1_2, FragmentationPolicy::PATCH_1);
}

#[test]
fn patch_3_alone_changes_nothing() {
    check_equal(FragmentationPolicy::PATCHES_1_3, FragmentationPolicy::PATCH_1);
}

#[test]
fn the_kernel_as_shipped_is_patch_4_without_patch_1() {
    let spread = Spread::Off;
    let without = FragmentationPolicy { spread, ..FragmentationPolicy::PATCHES_1_4 };
    check_equal(FragmentationPolicy::LINUX_5_0, without);
}

#[test]
fn patch_5_leaves_the_fast_path_alone() {
    check_equal(FragmentationPolicy::PATCHES_1_5, FragmentationPolicy::PATCHES_1_4);
}

#[test]
fn a_factor_of_zero_is_no_boost() {
    for seed in 0..4 {
        let operations = operations(seed, PAGES - 150);
        let boost = Some(nofrag::page::Boost { factor: 0 });
        let zero = FragmentationPolicy { boost, ..FragmentationPolicy::PATCHES_1_4 };
        let (zero, without) =
            (run(zero, &operations), run(FragmentationPolicy::PATCHES_1_3, &operations));
        assert_eq!(zero.answers, without.answers, "seed {seed}");
        assert_eq!(zero.counters().boosts, 0);
    }
}

#[test]
fn one_seed_gives_one_result() {
    for PolicyPreset { policy, .. } in FragmentationPolicy::PRESETS {
        check_equal(*policy, *policy);
    }
    // What an order is kept on matters to the frame, and to nothing that must hold.
    let single =
        FragmentationPolicy { per_cpu: PerCpuRules::Single, ..FragmentationPolicy::LINUX_7_2 };
    let operations = operations(9, PAGES / 3);
    let (one, other) = (run(single, &operations), run(FragmentationPolicy::LINUX_7_2, &operations));
    assert_ne!(one.answers, other.answers);
    assert_eq!(one.free(), other.free());
}
