//! Every rule set of the page allocator against the naive model, on small machines of every shape: the frame handed
//! out, the events, every free list's length, the boosts and the laws are compared after each step.

use super::choices::{Choices, Random};
use super::page_pair::{KINDS, Pair, Step, machines, modelled};
use super::page_world::World;
use nofrag::page::{
    Boost, FallbackRules, Fixes, FragmentationPolicy, MemoryMap, PolicyPreset, Relist, Spread,
};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Counts that show whether steps of every kind changed something often enough, and enough events were seen.
#[derive(Default)]
struct Reach {
    changes: [u64; KINDS],
    events: u64,
    mistyped: u64,
    boosts: u64,
    spread_given_up: u64,
}

/// Runs `steps` random steps; a failure names what to repeat.
fn check_run(
    name: &str,
    map: &MemoryMap,
    policy: FragmentationPolicy,
    seed: u64,
    steps: u64,
    reach: &mut Reach,
) {
    let mut random = Random::new(seed);
    // From no reserve at all to one that small machines feel.
    let min_pages = [0, 40, 200][seed as usize % 3];
    let mut step = 0;
    let mut run = || {
        let mut pair = Pair::new(map, modelled(policy), min_pages);
        while step < steps {
            let mut bytes = [0; Step::BYTES];
            bytes.fill_with(|| random.below(256) as u8);
            pair.step(Step::from_bytes(bytes));
            step += 1;
        }
        pair
    };
    let Ok(pair) = catch_unwind(AssertUnwindSafe(&mut run)) else {
        panic!("seed {seed}, step {step} on {name} of {policy:?} fails");
    };
    reach.changes.iter_mut().zip(pair.changes).for_each(|(all, more)| *all += more);
    reach.events += pair.seen;
    reach.mistyped += pair.naive.counts.mistyped;
    reach.boosts += pair.naive.counts.boosts;
    reach.spread_given_up += pair.naive.counts.spread_given_up;
}

#[test]
fn every_preset_agrees_with_the_naive_model() {
    let mut reach = Reach::default();
    for (nth, PolicyPreset { name, policy, .. }) in FragmentationPolicy::PRESETS.iter().enumerate()
    {
        for (shape, (machine, map)) in machines().iter().enumerate() {
            let name = format!("{name}, {machine}");
            check_run(&name, map, *policy, (100 * nth + shape) as u64, 250, &mut reach);
        }
    }
    // A test that is always refused proves little.
    assert!(reach.changes.iter().all(|&count| count >= 1_000), "{:?}", reach.changes);
    let Reach { events, mistyped, boosts, spread_given_up, .. } = reach;
    let rare = events.min(mistyped).min(spread_given_up);
    assert!(rare >= 1_000 && boosts >= 50, "{events} {mistyped} {spread_given_up} {boosts}");
}

#[test]
fn every_combination_of_rules_agrees() {
    let mut reach = Reach::default();
    let fixes = [Fixes::NONE, Fixes::ALL, Fixes::ORDER_GUARD, Fixes::SMALL_ZONE];
    let mut seed = 10_000;
    for fallback in [FallbackRules::Loose, FallbackRules::StrictFirst, FallbackRules::Strict] {
        for relist in [Relist::Head, Relist::Tail] {
            for spread in [Spread::Off, Spread::FastPath, Spread::EveryRequest] {
                for (nth, (machine, map)) in machines().iter().enumerate() {
                    seed += 1;
                    let policy = FragmentationPolicy {
                        fallback,
                        relist,
                        spread,
                        boost: [None, Some(Boost { factor: 15_000 })][seed as usize % 2],
                        fixes: fixes[nth % fixes.len()],
                        ..FragmentationPolicy::LINUX_4_20
                    };
                    check_run(machine, map, policy, seed, 60, &mut reach);
                }
            }
        }
    }
    assert!(reach.changes.iter().all(|&count| count >= 1_000), "{:?}", reach.changes);
}

#[test]
fn every_preset_survives_an_owner_that_fails() {
    for (nth, PolicyPreset { name, policy, .. }) in (0..).zip(FragmentationPolicy::PRESETS) {
        for (shape, (machine, map)) in (0..).zip(machines()) {
            println!("{name}, {machine}, seed {}", 100 * nth + shape);
            let choices = Choices::seed(100 * nth + shape);
            let mut world = World::new(&map, *policy, [0, 40, 200][shape as usize % 3], choices, 1);
            (0..200).for_each(|_| world.step());
            world.end();
        }
    }
}

#[test]
#[ignore = "minutes; run it by name"]
fn a_million_steps_agree() {
    let mut reach = Reach::default();
    for seed in 0..100 {
        for PolicyPreset { name, policy, .. } in FragmentationPolicy::PRESETS {
            for (machine, map) in machines() {
                let name = format!("{name}, {machine}");
                check_run(&name, &map, *policy, 1_000_000 + seed, 100, &mut reach);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Compares an allocator and its model under steps that proptest makes, which it shrinks to the fewest when they
    /// fail.
    #[test]
    fn chosen_steps_agree(
        preset in 0..FragmentationPolicy::PRESETS.len(),
        shape in 0..machines().len(),
        min_pages in 0..300_u64,
        steps in proptest::collection::vec(any::<[u8; Step::BYTES]>(), 0..60),
    ) {
        let policy = modelled(FragmentationPolicy::PRESETS[preset].policy);
        let mut pair = Pair::new(&machines()[shape].1, policy, min_pages);
        steps.into_iter().for_each(|bytes| pair.step(Step::from_bytes(bytes)));
    }

    #[test]
    fn chosen_requests_are_survived(
        preset in 0..FragmentationPolicy::PRESETS.len(),
        shape in 0..machines().len(),
        min_pages in 0..300_u64,
        choices in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let policy = FragmentationPolicy::PRESETS[preset].policy;
        let choices = Choices::Bytes(&choices);
        let mut world = World::new(&machines()[shape].1, policy, min_pages, choices, 1);
        while world.has_more() {
            world.step();
        }
        world.end();
    }
}

/// A run that captured the block that it wanted ended among its sources: those that it had taken and not moved stayed
/// taken, and were lost when their owner freed them.
#[test]
fn a_run_that_captures_a_block_gives_its_other_sources_back() {
    carry_out_input(3_606_459_744_793_834);
}

/// Sources that waited for their turn were moved though their owner had pinned them meanwhile.
#[test]
fn sources_that_are_pinned_before_their_turn_stay() {
    carry_out_input(3_777_557_227_621_490);
}

/// A block that a run had captured counted as in use before anybody had it, so that a mistaken free of it was accepted.
#[test]
fn a_captured_block_is_nobodys_until_it_is_handed_out() {
    carry_out_input(3_267_083_333_210_906);
}

/// Runs the steps that the fuzzing campaign (`fuzz/examples/slice.rs`) draws from this seed.
fn carry_out_input(seed: u64) {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut data = vec![0; 64 + (random.next_u64() % 4096) as usize];
    random.fill_bytes(&mut data);
    let [preset, shape, min_free, rest @ ..] = data.as_slice() else { panic!("there are bytes") };
    let presets = FragmentationPolicy::PRESETS;
    let policy = presets[usize::from(*preset) % presets.len()].policy;
    let machines = machines();
    let map = &machines[usize::from(*shape / 4) % machines.len()].1;
    let mut world = World::new(map, policy, u64::from(*min_free), Choices::Bytes(rest), 8);
    for _ in 0..300 {
        if !world.has_more() {
            break;
        }
        world.step();
    }
    world.end();
}
