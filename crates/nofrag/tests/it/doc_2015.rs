//! Pen 2015, "fix possible exhaustion of vmalloc space": his three workloads, exactly, and what else can be counted.
//!
//! The counts follow from the rules alone: they were published, or computed by independent simulations of the same
//! rules, so every one is an equality. Rules, workloads and counts: docs/sources/vmap.md#blocks, vmap.md#pen-workloads
//! and vmap.md#pen-counts (vmap.md#oracle-2).

use crate::choices::Random;
use crate::mersenne::Mersenne;
use crate::vmap_support::span;
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::vmap::{
    BlockCounters, BlockGeometry, BlockIndex, BlockPolicy, BlockRecord, RamArea, SizeClasses,
    VmapConfig, VmapPolicy, VmapSpace,
};
use proptest::prelude::*;

/// One CPU that maps and unmaps at once, and the costs of its searches.
struct Bench {
    space: VmapSpace,
    cpu: CpuId,
    counts: BlockCounters,
    /// The most steps of a search that found a block, and of one that did not.
    longest_hit: u64,
    longest_miss: u64,
}

impl Bench {
    fn new(blocks: BlockPolicy) -> Bench {
        let cpus = CpuSet::first(1).unwrap();
        let cpu = cpus.by_rank(0).unwrap();
        let is_ours = blocks.index == BlockIndex::Direct;
        let around = if is_ours { VmapPolicy::NOFRAG } else { VmapPolicy::LINUX_6_11 };
        let policy = VmapPolicy { blocks, ..around };
        let config = VmapConfig { span: span(0, 1 << 23), cpus, policy };
        let space = VmapSpace::new(config, (), ()).unwrap();
        let counts = BlockCounters::default();
        Bench { space, cpu, counts, longest_hit: 0, longest_miss: 0 }
    }

    fn map(&self, pages: u64) -> RamArea {
        self.space.map_ram(self.cpu, pages, &()).unwrap()
    }

    fn unmap(&self, area: RamArea) {
        self.space.unmap_ram(self.cpu, area).unwrap();
    }

    /// Maps `pages` and unmaps them at once.
    fn pair(&self, pages: u64) {
        self.unmap(self.map(pages));
    }

    /// Maps `pages` and unmaps them at once, and notes the cost of the search.
    fn watched_pair(&mut self, pages: u64) {
        self.pair(pages);
        let now = self.space.counters().blocks;
        let steps = now.search_steps - self.counts.search_steps;
        if now.failed_searches > self.counts.failed_searches {
            self.longest_miss = self.longest_miss.max(steps);
        } else {
            self.longest_hit = self.longest_hit.max(steps);
        }
        self.counts = now;
    }

    fn slots(&self) -> u64 {
        u64::from(self.space.policy().blocks.geometry.slots())
    }

    /// Runs Pen's first workload: each block keeps a hole of 8 slots, too small for the next 16.
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

    /// Runs Pen's third workload: a hole of each order from 0 to 6 stays; then each order is asked for once.
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

    /// Verifies the counts, the steps per call to three decimals, as they were computed elsewhere.
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

fn with_slots(policy: BlockPolicy, slots: u32) -> BlockPolicy {
    BlockPolicy { geometry: BlockGeometry::new(slots, 64).unwrap(), ..policy }
}

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

/// Blocks created and returned by Pen's second workload under seeds (keys) 0 to 7, and the ranges of the counts under
/// seeds 0 to 19.
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

fn run_counters(policy: BlockPolicy, workload: impl Fn(&Bench)) -> BlockCounters {
    let bench = Bench::new(policy);
    workload(&bench);
    bench.space.check().unwrap();
    bench.space.counters().blocks
}

/// docs/sources/vmap.md#other-bits: W1 and W2 (key 0) by the number of slots; W3, and W1 before the changes, do not
/// depend on it.
#[test]
fn other_block_sizes() {
    for (slots, w1, w2) in [
        (512, (985, 984), (832, 831)),
        (256, (969, 968), (1664, 1663)),
        (128, (938, 937), (3328, 3327)),
    ] {
        let (before, after) = (with_slots(BEFORE, slots), with_slots(AFTER, slots));
        assert_eq!(run(before, Bench::w1).blocks(), (1000, 0));
        assert_eq!(run(after, Bench::w1).blocks(), w1);
        assert_eq!(run(after, |bench| bench.w2(0)).blocks(), w2);
        assert_eq!(run(before, Bench::w3).blocks(), (7001, 6993));
        assert_eq!(run(after, Bench::w3).blocks(), (7000, 7000));
    }
}

/// docs/sources/vmap.md#oracle-3: W1 leaves one block behind, of which so much is free that alias flushes keep it;
/// space running out does not.
#[test]
fn what_w1_leaves() {
    for policy in [AFTER, BlockPolicy::NOFRAG] {
        let bench = Bench::new(policy);
        bench.w1();
        bench.space.purge_all();
        let BlockCounters { created, returned, .. } = bench.space.counters().blocks;
        assert_eq!(created, returned);
        assert!(policy == BlockPolicy::NOFRAG || created == 993);
    }
    let bench = Bench::new(BlockPolicy::LINUX_6_11);
    bench.w1();
    let [BlockRecord { free, dirty, live, .. }] = bench.space.blocks().unwrap()[..] else {
        panic!("W1 leaves one block");
    };
    assert_eq!((free, dirty, live), (832, 192, 0));
    assert_eq!(bench.space.unmap_aliases().returned, 0);
    assert_eq!(bench.outcome().blocks(), (993, 992));
    bench.space.purge_all();
    assert_eq!(bench.outcome().blocks(), (993, 993));
    assert_eq!(bench.space.counters().blocks.purged, 1);
    assert_eq!(bench.space.blocks().unwrap(), []);
}

/// docs/sources/vmap.md#oracle-4: the longest list, and the longest searches, of W3.
#[test]
fn the_bound_of_seven_is_reached() {
    let mut bench = Bench::new(AFTER);
    let mut round = || {
        for order in 0..=6 {
            (0..(1024 >> order) - 1).for_each(|_| bench.watched_pair(1 << order));
        }
        (0..=6).for_each(|order| bench.watched_pair(1 << order));
    };
    (0..8).for_each(|_| round());
    assert_eq!(bench.outcome().longest_list, 7);
    assert_eq!((bench.longest_hit, bench.longest_miss), (7, 6));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// docs/sources/vmap.md#oracle-4: sizes that are powers of two up to 64 never make a list longer than 7.
    #[test]
    fn at_most_seven_blocks_are_listed(
        orders in proptest::collection::vec((0_u32..=6, 0_usize..64), 1..1500),
        digits in 7_u32..=10,
    ) {
        let mut bench = Bench::new(with_slots(AFTER, 1 << digits));
        let mut live = Vec::new();
        for (order, victim) in orders {
            bench.watched_pair(1 << order);
            // Searches do not depend on what is live, but blocks must survive some mappings.
            live.push(bench.map(1 << order));
            if victim < live.len() {
                bench.unmap(live.swap_remove(victim));
            }
            bench.counts = bench.space.counters().blocks;
        }
        prop_assert!(bench.outcome().longest_list <= 7);
        prop_assert!(bench.longest_hit <= 7 && bench.longest_miss <= 6);
    }
}

/// docs/sources/vmap.md#oracle-5, Joonsoo Kim's objection: blocks of 256 slots, 85 times 3 pages leave a hole of one.
/// They do not: 3 pages take 4 slots.
#[test]
fn kims_objection() {
    let pairs = |bench: &Bench| (0..85 * 85).for_each(|_| bench.pair(3));
    for policy in [BEFORE, AFTER, BlockPolicy::LINUX_6_11] {
        let outcome = run(with_slots(policy, 256), pairs);
        assert_eq!(outcome.blocks(), (113, 112));
        assert!(outcome.longest_list <= 1);
    }
    assert!(run_counters(with_slots(BlockPolicy::NOFRAG, 256), pairs).created <= 113);
}

/// With exact sizes the hole is there, and nothing of 3 pages ever fits: hence powers of two (docs/sources/vmap.md#v7).
#[test]
fn a_rest_that_never_fits() {
    let exact = BlockPolicy { classes: SizeClasses::Exact, ..with_slots(AFTER, 256) };
    let outcome = run(exact, |bench| (0..85 * 85).for_each(|_| bench.pair(3)));
    assert_eq!((outcome.blocks(), outcome.longest_list), ((85, 0), 85));
}

/// docs/sources/vmap.md#oracle-6, mixed lifetimes: the pages of space that a live page pins, against
/// `(1 - (1 - p)^BITS) / p`.
#[test]
fn mixed_lifetimes() {
    for (one_in, published) in
        [(1, 1.0), (2, 2.0), (10, 10.0), (100, 100.0), (256, 251.3), (1024, 647.5), (4096, 906.1)]
    {
        let bench = Bench::new(BlockPolicy::LINUX_6_11);
        let mut random = Random::new(one_in);
        let mut live = 0_u64;
        while live < 5000 {
            let area = bench.map(1);
            if random.below(one_in) == 0 {
                live += 1;
            } else {
                bench.unmap(area);
            }
        }
        let pinned = bench.space.block_stats().blocks * 1024;
        let per_page = pinned as f64 / live as f64;
        let off = (per_page / published - 1.0).abs();
        assert!(off <= 0.03, "1 in {one_in}: {per_page} pages, not {published}");
    }
}

/// The second search finds the new block at once if that is in front, and behind all others if it is behind: hence
/// Pen's second change.
#[test]
fn second_search() {
    let in_front = run_counters(BEFORE, Bench::w3);
    assert_eq!(in_front.second_search_steps, in_front.created);
    let behind = Bench::new(BlockPolicy::PATCH_1);
    let counts = || behind.space.counters().blocks;
    for order in (0..=6).cycle().take(700) {
        let before = counts();
        behind.pair(1 << order);
        let (after, second) = (counts(), counts().second_search_steps - before.second_search_steps);
        let missed = after.search_steps - before.search_steps;
        let created = after.created > before.created;
        assert_eq!(second, if created { missed + 1 } else { 0 });
    }
    assert!(counts().created > 5 && counts().second_search_steps > counts().created);
    assert_eq!(run_counters(BlockPolicy::PATCH_2, Bench::w3).second_search_steps, 0);
}

/// The bitmap costs a word or two per unmapping, and a pass over all words per flush; two integers cost none.
#[test]
fn dirty_words() {
    let bench = Bench::new(BEFORE);
    bench.w1();
    assert_eq!(bench.space.counters().blocks.dirty_words, 126_000);
    let bench = Bench::new(BEFORE);
    let (kept, gone) = (bench.map(60), bench.map(60));
    bench.unmap(gone); // slots 64 to 128: rounded up, one word
    bench.space.unmap_aliases();
    assert_eq!(bench.space.counters().blocks.dirty_words, 1 + 1024 / 64);
    bench.unmap(kept);
    for policy in [BlockPolicy::LINUX_4_1, BlockPolicy::LINUX_6_11] {
        assert_eq!(run_counters(policy, Bench::w1).dirty_words, 0);
    }
}

/// Finer classes waste less and leave rests behind that lengthen the lists (docs/sources/vmap.md#size-classes).
#[test]
fn finer_classes() {
    for (classes, created) in [
        (SizeClasses::Eighths, (323, 329)),
        (SizeClasses::Quarters, (336, 342)),
        (SizeClasses::Exact, (315, 321)),
    ] {
        let policy = BlockPolicy { classes, ..AFTER };
        let outcomes: Vec<_> = (0..20).map(|key| run(policy, |bench| bench.w2(key))).collect();
        let blocks = || outcomes.iter().map(|outcome| outcome.created);
        assert_eq!((blocks().min().unwrap(), blocks().max().unwrap()), created, "{classes:?}");
        if classes == SizeClasses::Eighths {
            assert_eq!(blocks().sum::<u64>() / 20, 326);
            assert_eq!(outcomes.iter().map(|outcome| outcome.longest_list).max(), Some(19));
            let steps = outcomes.iter().map(Outcome::steps_per_call).sum::<f64>() / 20.0;
            assert!((steps - 5.2).abs() <= 0.05, "{steps} steps per call");
        }
    }
}
