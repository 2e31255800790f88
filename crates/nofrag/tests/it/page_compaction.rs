//! Compaction seen from outside: what it makes of a zone, and that whatever its owner does meanwhile, no page is lost.

use std::collections::{BTreeMap, BTreeSet};

use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::page::{
    Compaction, CompactionStep, FragmentationPolicy, FrameState, Kcompactd, MemoryMap, Migrate,
    Migratetype, MinFree, MoveResults, Next, NodeId, NodeMap, Outcome, PageAllocator, PageBudget,
    PageConfig, PageRequest, Reclaimed, ZoneId, ZoneKind, ZoneMap,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};

const NOW: Nanos = Nanos(0);
const BLOCK: u64 = Order::PAGEBLOCK.pages();

/// The owner of single pages, each with a name that moves with it.
struct Owner {
    pages: PageAllocator,
    names: BTreeMap<Pfn, u64>,
    movable: BTreeSet<u64>,
    chance: u64,
}

/// The part of an [`Owner`] that moves its pages for compaction.
struct Mover<'a> {
    names: &'a mut BTreeMap<Pfn, u64>,
    movable: &'a BTreeSet<u64>,
    /// The mover refuses one move in this many; 0 stands for none.
    refuses: u64,
    chance: &'a mut u64,
}

impl Migrate for Mover<'_> {
    fn migrate(&mut self, from: Pfn, to: Pfn, order: Order) -> bool {
        assert_eq!(order, Order::ZERO, "there are single pages alone");
        let name = self.names[&from];
        assert!(self.movable.contains(&name), "page {name} at frame {from} must not move");
        if self.refuses > 0 && below(self.chance, self.refuses) == 0 {
            return false;
        }
        self.names.remove(&from);
        assert_eq!(self.names.insert(to, name), None, "frame {to} is in use");
        true
    }
}

fn below(chance: &mut u64, bound: u64) -> u64 {
    *chance =
        chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*chance >> 33) % bound
}

fn cpu() -> CpuId {
    CpuSet::first(1).expect("there is memory").by_rank(0).expect("it has one CPU")
}

impl Owner {
    /// Makes an owner of all pages of a zone, of which one in `keeps` stays unmovable (0: none), and half of which are
    /// freed at random.
    fn half_full(blocks: u64, keeps: u64, policy: FragmentationPolicy, seed: u64) -> Owner {
        let zones = vec![ZoneMap::new(ZoneKind::Normal, Pfn(0), PageCount(blocks * BLOCK))];
        let map = MemoryMap::new(vec![NodeMap { cpus: vec![0], zones }], &[]).expect("one zone");
        let config = PageConfig { min_free: MinFree::Pages(0), ..PageConfig::new(map, policy) };
        let pages = PageAllocator::new(&config).expect("there is memory");
        let mut owner =
            Owner { pages, names: BTreeMap::new(), movable: BTreeSet::new(), chance: seed };
        while let Ok(pfn) = owner.pages.alloc(NOW, cpu(), PageRequest::user(Order::ZERO)) {
            owner.take_in(pfn, keeps);
        }
        let frames: Vec<Pfn> = owner.names.keys().copied().collect();
        for pfn in frames {
            if below(&mut owner.chance, 2) == 0 {
                owner.drop_page(pfn);
            }
        }
        owner.pages.drain_all();
        owner.check();
        owner
    }

    fn take_in(&mut self, pfn: Pfn, keeps: u64) {
        let name = self.names.len() as u64 + pfn.0 * 1_000_000 + self.chance % 1_000;
        assert_eq!(self.names.insert(pfn, name), None, "frame {pfn} is in use");
        if keeps == 0 || below(&mut self.chance, keeps) > 0 {
            self.pages.set_movable(pfn, true).expect("it is in use");
            self.movable.insert(name);
        }
    }

    fn drop_page(&mut self, pfn: Pfn) {
        let name = self.names.remove(&pfn).expect("it is the owner's");
        self.movable.remove(&name);
        self.pages.free(cpu(), pfn).expect("it is in use");
    }

    fn mover(&mut self, refuses: u64) -> (&mut PageAllocator, Mover<'_>) {
        let Owner { pages, names, movable, chance } = self;
        (pages, Mover { names, movable, refuses, chance })
    }

    fn zone(&self) -> ZoneId {
        self.pages.zones().next().expect("there is one").id
    }

    /// Returns the number of pageblocks that are wholly free.
    fn whole_blocks(&self) -> u64 {
        let of = |order: Order| -> u64 {
            let of_type = |kind| self.pages.free_blocks(self.zone(), order, kind);
            Migratetype::MOBILITY.into_iter().map(of_type).sum::<u64>() * order.pages() / BLOCK
        };
        of(Order::PAGEBLOCK) + of(Order::MAX)
    }

    /// Checks that nothing is lost, nothing is twice.
    fn check(&self) {
        assert_eq!(self.check_amid_a_run(), 0, "nothing is set aside any more");
    }

    /// Checks that nothing is lost or twice in the middle of a run; returns the number of pages that the run keeps:
    /// free ones to move to, and those that it has emptied.
    fn check_amid_a_run(&self) -> u64 {
        self.pages.check().expect("the laws hold");
        let mut taken = 0;
        for (&pfn, name) in &self.names {
            let expected =
                if self.movable.contains(name) { FrameState::Movable } else { FrameState::Used };
            let (state, head, order) = self.pages.frame(pfn).expect("there is memory");
            assert_eq!((head, order), (pfn, Order::ZERO), "page {name}");
            match state {
                FrameState::Moving => taken += 1,
                state => assert_eq!(state, expected, "page {name}"),
            }
        }
        let zone = self.pages.zones().next().expect("there is one");
        let span = (0..zone.present.0).map(Pfn);
        let moving = |&pfn: &Pfn| {
            self.pages.frame(pfn).is_some_and(|(state, ..)| state == FrameState::Moving)
        };
        let kept = span.filter(moving).count() as u64 - taken;
        let free = zone.free.0 + self.pages.per_cpu_pages(zone.id).0;
        assert_eq!(
            free + kept + self.names.len() as u64,
            zone.managed.0,
            "every page is somewhere"
        );
        if taken > 0 { kept.max(1) } else { kept }
    }
}

#[test]
fn a_half_full_zone_gives_nearly_every_block_that_it_could() {
    for policy in [FragmentationPolicy::LINUX_4_20, FragmentationPolicy::LINUX_7_2] {
        for seed in 1..4 {
            let mut owner = Owner::half_full(32, 0, policy, seed);
            assert_eq!(owner.whole_blocks(), 0, "it is all in pieces");
            let zone = owner.zone();
            let (pages, mut mover) = owner.mover(0);
            let landed = pages.compact(zone, &mut mover).expect("there is such a zone");
            assert_eq!(landed.stayed, 0);
            owner.check();
            let free = owner.pages.zones().next().expect("there is one").free.0;
            // The pageblocks in which the scanners meet remain in pieces.
            let possible = free / BLOCK;
            let found = owner.whole_blocks();
            assert!(found + 2 >= possible, "{found} of {possible}, seed {seed}");
            assert!(landed.moved <= owner.names.len() as u64, "no page moves twice");
        }
    }
}

#[test]
fn pages_that_must_not_move_stay_and_refusals_lose_nothing() {
    for seed in 1..4 {
        let mut owner = Owner::half_full(16, 50, FragmentationPolicy::LINUX_6_1, seed);
        let fixed = |owner: &Owner| -> BTreeMap<Pfn, u64> {
            let names = owner.names.iter().map(|(&pfn, &name)| (pfn, name));
            names.filter(|(_, name)| !owner.movable.contains(name)).collect()
        };
        let before = fixed(&owner);
        assert!(before.len() > 50);
        let zone = owner.zone();
        let (pages, mut mover) = owner.mover(3);
        let landed = pages.compact(zone, &mut mover).expect("there is such a zone");
        assert!(landed.moved > landed.stayed && landed.stayed > 0, "{landed:?}");
        assert_eq!(fixed(&owner), before);
        owner.check();
    }
}

/// Use after migrate (docs/sources/pages.md#b-21): compaction moved a page that its owner had not published yet and
/// went on to use at its old place.
#[test]
fn a_page_moves_only_once_its_owner_says_so() {
    let mut owner = Owner::half_full(4, 0, FragmentationPolicy::LINUX_7_2, 1);
    let young =
        owner.pages.alloc(NOW, cpu(), PageRequest::user(Order::ZERO)).expect("half is free");
    owner.names.insert(young, 0);
    for _ in 0..2 {
        let zone = owner.zone();
        let (pages, mut mover) = owner.mover(0);
        pages.compact(zone, &mut mover).expect("there is such a zone");
        assert_eq!(owner.names.get(&young), Some(&0), "it stays where its owner knows it");
        owner.check();
    }
    owner.pages.set_movable(young, true).expect("it is in use");
    owner.movable.insert(0);
    owner.check();
}

#[test]
fn pages_freed_and_allocated_during_a_move_are_nobodys_loss() {
    for seed in 1..6 {
        let mut owner = Owner::half_full(8, 0, FragmentationPolicy::LINUX_7_2, seed);
        let zone = owner.zone();
        let mut run = Compaction::of_zone(&mut owner.pages, zone).expect("there is one");
        loop {
            let moves = match run.step(&mut owner.pages, PageBudget { pages: 200 }) {
                CompactionStep::Migrate(moves) => moves,
                CompactionStep::Continue => continue,
                CompactionStep::Done(_) => break,
            };
            for pair in moves.pairs() {
                if below(&mut owner.chance, 4) == 0 {
                    owner.drop_page(pair.from);
                    assert!(owner.pages.free(cpu(), pair.from).is_err(), "once is enough");
                }
                assert!(owner.pages.free(cpu(), pair.to).is_err(), "it is nobody's yet");
            }
            if let Ok(pfn) = owner.pages.alloc(NOW, cpu(), PageRequest::user(Order::ZERO)) {
                owner.take_in(pfn, 0);
            }
            owner.pages.check().expect("the laws hold in the middle");
            let mut results = 0;
            for (index, pair) in moves.pairs().iter().enumerate() {
                // An owner that has freed a page may still say that it has moved.
                results |= 1 << index;
                if let Some(name) = owner.names.remove(&pair.from) {
                    assert_eq!(owner.names.insert(pair.to, name), None, "it is in use");
                }
            }
            run.migrated(&mut owner.pages, MoveResults(results));
            owner.check_amid_a_run();
        }
        owner.check();
    }
}

#[test]
fn a_request_for_a_huge_page_compacts_and_gets_one() {
    for policy in [FragmentationPolicy::LINUX_4_20, FragmentationPolicy::LINUX_7_2] {
        let mut owner = Owner::half_full(16, 0, policy, 7);
        let request = PageRequest::user(Order::PAGEBLOCK);
        let missed = owner.pages.alloc(NOW, cpu(), request);
        let mut attempt = missed.expect_err("all is in pieces");
        let mut outcome = Outcome::Begin;
        let found = loop {
            outcome = match attempt.advance(&mut owner.pages, NOW, outcome) {
                Next::Done(pfn) => break pfn,
                Next::Migrate(moves) => {
                    let first = moves.pairs()[0].from;
                    owner.drop_page(first);
                    let (_, mut mover) = owner.mover(0);
                    let mut results = 0;
                    for (index, pair) in moves.pairs().iter().enumerate().skip(1) {
                        results |=
                            u32::from(mover.migrate(pair.from, pair.to, pair.order)) << index;
                    }
                    Outcome::Migrated(MoveResults(results))
                }
                Next::Reclaim(_) => Outcome::Reclaimed(Reclaimed::default()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(found.0 % BLOCK, 0);
        assert_eq!(owner.pages.counters().compact_successes, 1);
        owner.pages.free(cpu(), found).expect("it is in use");
        owner.check();
    }
}

#[test]
fn kcompactd_works_ahead_in_small_steps() {
    let mut owner = Owner::half_full(16, 0, FragmentationPolicy::LINUX_7_2, 3);
    let mut daemon = Kcompactd::new(NodeId(0));
    let mut now = Nanos(0);
    let mut moved = 0;
    for _ in 0..100_000 {
        let (pages, mut mover) = owner.mover(0);
        let done = daemon.step(now, pages, &mut mover, PageBudget { pages: 100 });
        moved += done.pages;
        if !done.more {
            match done.wake_at {
                Some(at) if moved == 0 => now = at,
                _ => break,
            }
        }
    }
    assert!(moved > 0);
    owner.check();
    let indices = owner.pages.indices(owner.zone(), Order::PAGEBLOCK).expect("there is one");
    assert!(indices.extfrag <= 80, "{indices:?}");
}

/// Prints how fast compaction is on this machine:
/// `cargo test --release -p nofrag --test it compaction_speed -- --ignored --nocapture`
#[test]
#[ignore = "prints how fast compaction is on this machine"]
fn compaction_speed() {
    struct Willing;
    impl Migrate for Willing {
        fn migrate(&mut self, _: Pfn, _: Pfn, _: Order) -> bool {
            true
        }
    }
    let mut owner = Owner::half_full(2048, 0, FragmentationPolicy::LINUX_7_2, 1);
    let start = std::time::Instant::now();
    let zone = owner.zone();
    let landed = owner.pages.compact(zone, &mut Willing).expect("there is one");
    let took = start.elapsed().as_secs_f64();
    let counters = owner.pages.counters();
    let scanned = counters.migrate_scanned + counters.free_scanned;
    println!("{scanned} frames scanned, {} pages moved in {took:.4} s", landed.moved);
    println!("{:.1} million frames/s", scanned as f64 / took / 1e6);
    let start = std::time::Instant::now();
    owner.pages.compact(zone, &mut Willing).expect("there is one");
    println!("again, with nothing to do: {:.6} s", start.elapsed().as_secs_f64());
}
