//! Pen 2015, "fix possible exhaustion of vmalloc space": his three workloads, exactly, and what else can be counted.
//!
//! The counts follow from the rules alone: they were published, or computed by independent simulations of the same
//! rules, so every one is an equality.

use crate::mersenne::Mersenne;
use crate::vmap_support::span;
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::vmap::{BlockCounters, BlockPolicy, VmapConfig, VmapPolicy, VmapSpace};

/// One CPU that maps and unmaps at once, and what its searches cost.
struct Bench {
    space: VmapSpace,
    cpu: CpuId,
}

impl Bench {
    fn new(blocks: BlockPolicy) -> Bench {
        let cpus = CpuSet::first(1).unwrap();
        let cpu = cpus.by_rank(0).unwrap();
        let policy = VmapPolicy { blocks, ..VmapPolicy::LINUX_6_11 };
        let config = VmapConfig { span: span(0, 1 << 22), cpus, policy };
        let space = VmapSpace::new(config, (), ()).unwrap();
        Bench { space, cpu }
    }

    /// Maps `pages` and unmaps them at once.
    fn pair(&self, pages: u64) {
        let area = self.space.map_ram(self.cpu, pages, &()).unwrap();
        self.space.unmap_ram(self.cpu, area).unwrap();
    }

    fn slots(&self) -> u64 {
        u64::from(self.space.policy().blocks.geometry.slots())
    }

    /// Each block keeps a hole of 8 slots, too small for the 16.
    fn w1(&self) {
        for _ in 0..1000 {
            self.pair(16);
            (0..(self.slots() - 16) / 8 - 1).for_each(|_| self.pair(8));
        }
    }

    fn w2(&self, key: u32) {
        let mut random = Mersenne::new(key);
        let max_pages = self.space.policy().blocks.geometry.max_pages();
        for _ in 0..10_000 {
            // One digit more than the numbers below the maximum need, as the simulation drew.
            let pages = loop {
                let drawn = random.next() >> (31 - max_pages.ilog2());
                if drawn < max_pages {
                    break drawn + 1;
                }
            };
            self.pair(u64::from(pages));
        }
    }

    /// A hole of each order stays; then each is asked for.
    fn w3(&self) {
        for _ in 0..1000 {
            for order in 0..=6 {
                (0..(self.slots() >> order) - 1).for_each(|_| self.pair(1 << order));
            }
            (0..=6).for_each(|order| self.pair(1 << order));
        }
    }

    fn outcome(&self) -> Outcome {
        self.space.check().unwrap();
        let counters = self.space.counters();
        let BlockCounters { maps, created, returned, longest_list, search_steps, .. } =
            counters.blocks;
        assert_eq!(counters.blocks.index_inserts, created);
        Outcome { maps, created, returned, longest_list, steps: search_steps }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    maps: u64,
    created: u64,
    returned: u64,
    longest_list: u64,
    steps: u64,
}

impl Outcome {
    fn blocks(&self) -> (u64, u64) {
        (self.created, self.returned)
    }

    fn steps_per_call(&self) -> f64 {
        self.steps as f64 / self.maps as f64
    }

    /// To three decimals, as they were computed elsewhere.
    fn check(&self, blocks: (u64, u64), longest_list: u64, steps_per_call: f64) {
        assert_eq!(self.blocks(), blocks);
        assert_eq!(self.longest_list, longest_list);
        let off = (self.steps_per_call() - steps_per_call).abs();
        assert!(off <= 0.000_5, "{} steps per call, not {steps_per_call}", self.steps_per_call());
    }
}

const BEFORE: BlockPolicy = BlockPolicy::LINUX_3_19;
const AFTER: BlockPolicy = BlockPolicy::LINUX_4_1;

/// The rules that make new blocks and find old ones as Pen left them.
const AFTERS: [BlockPolicy; 5] = [
    BlockPolicy::PATCH_1,
    BlockPolicy::PATCH_2,
    BlockPolicy::LINUX_4_1,
    BlockPolicy::LINUX_6_4,
    BlockPolicy::LINUX_6_11,
];

fn run(policy: BlockPolicy, workload: impl Fn(&Bench)) -> Outcome {
    let bench = Bench::new(policy);
    workload(&bench);
    bench.outcome()
}

#[test]
fn w1() {
    let before = run(BEFORE, Bench::w1);
    assert_eq!(before.maps, 126_000);
    before.check((1000, 0), 1000, 4.956);
    for policy in AFTERS {
        run(policy, Bench::w1).check((993, 992), 2, 0.992);
    }
}

/// Created and returned for keys 0 to 7; the ranges are those of keys 0 to 19.
#[test]
fn w2() {
    let before =
        [(422, 49), (423, 38), (423, 51), (426, 36), (426, 40), (423, 36), (425, 43), (420, 58)];
    let after = [
        (416, 415),
        (416, 414),
        (417, 416),
        (421, 419),
        (420, 418),
        (417, 415),
        (418, 416),
        (415, 412),
    ];
    check_w2(BEFORE, &before, (420, 427), (33, 58), (363, 390), 9.13);
    check_w2(AFTER, &after, (414, 421), (412, 419), (4, 6), 2.22);
    check_w2(BlockPolicy::LINUX_6_11, &after, (414, 421), (412, 419), (4, 6), 2.22);
}

type Bounds = (u64, u64);

fn check_w2(
    policy: BlockPolicy,
    known: &[(u64, u64)],
    created: Bounds,
    returned: Bounds,
    longest: Bounds,
    mean_steps: f64,
) {
    let outcomes: Vec<Outcome> = (0..20).map(|key| run(policy, |bench| bench.w2(key))).collect();
    let blocks: Vec<_> = outcomes.iter().map(Outcome::blocks).collect();
    assert_eq!(blocks[..known.len()], *known);
    let bounds = |of: fn(&Outcome) -> u64| {
        let values = || outcomes.iter().map(of);
        (values().min().unwrap(), values().max().unwrap())
    };
    assert_eq!(bounds(|outcome| outcome.created), created);
    assert_eq!(bounds(|outcome| outcome.returned), returned);
    assert_eq!(bounds(|outcome| outcome.longest_list), longest);
    let mean = outcomes.iter().map(Outcome::steps_per_call).sum::<f64>() / 20.0;
    assert!((mean - mean_steps).abs() <= 0.005, "{mean} steps per call, not {mean_steps}");
}

#[test]
fn w3() {
    let before = run(BEFORE, Bench::w3);
    assert_eq!(before.maps, 2_032_000);
    before.check((7001, 6993), 8, 1.010);
    for policy in [AFTER, BlockPolicy::LINUX_6_11] {
        run(policy, Bench::w3).check((7000, 7000), 7, 1.931);
    }
}
