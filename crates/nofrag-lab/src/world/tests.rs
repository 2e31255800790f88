//! The world in small: the laws of the owner, the holders of pages and their times, and the notes of phases.

use std::collections::BTreeMap;

use nofrag::check::Check;
use nofrag::cpu::CpuId;
use nofrag::page::{
    Advice, FragmentationPolicy, HugeDefrag, HugeFault, Lru, MemoryMap, MinFree, NodeId,
    PageConfig, Reclaim, ReclaimRequest, ReclaimScope, Reclaimed, ZoneId, ZoneInfo,
};
use nofrag::units::{Nanos, Order, PageCount};

use super::Owns;
use super::World;
use super::actor::{Actor, State, Task};
use super::cache::{FILE_PAGES, files_per_thread};
use super::contents::LruZone;
use super::costs::Costs;
use super::heard::{Heard, Pages};
use super::load::{Load, Mix};
use super::owner::{Owner, Want};
use super::setup::{Boot, Layout, Moment, Setup, WarmUp};
use super::thpfioscale::{FioWorld, Run};
use crate::random::Random;

const QUIET: Mix = Mix {
    name: "quiet",
    dma32: 375,
    burst: 1,
    transients: 0,
    transient_chance: 0,
    writeback: 100,
    extra_slab: 0,
    slab_orders: [2, 0, 1, 2, 0, 0],
};

/// Load with short-lived blocks, spare objects, and larger slabs.
const BUSY: Mix = Mix {
    transients: 900,
    transient_chance: 500,
    extra_slab: 3000,
    slab_orders: [3, 1, 2, 3, 1, 1],
    ..QUIET
};

/// 64 MiB of memory.
const PAGES: u64 = 64 << 8;
const FILES: u32 = PAGES as u32 * 3 / 2 / FILE_PAGES;

/// A machine of 64 MiB and an owner with files of 150 % of that.
struct Small {
    world: FioWorld,
    cpu: CpuId,
    highest: ZoneId,
    random: Random,
}

impl Small {
    fn new(mix: Mix, lru: Lru) -> Small {
        let map = MemoryMap::numa(1, PageCount(PAGES), mix.dma32 as u32, 8).unwrap();
        let cpu = map.cpus().by_rank(0).unwrap();
        let config = PageConfig::new(map, FragmentationPolicy::LINUX_4_20);
        let heard = Heard::default();
        let pages = Pages::with_events(&config, heard.clone()).unwrap();
        heard.know(pages.zones().map(|zone| zone.kind));
        let mut end = 0;
        let zones = pages.zones().map(|zone| {
            end += zone.present.0 as u32;
            LruZone { node: zone.node, end }
        });
        let zones: Vec<_> = zones.collect();
        let highest = pages.zones().last().unwrap().id;
        let costs = Costs::built_in();
        let load = Load::new(mix, PAGES, &costs);
        let owner = Owner::new(&zones, FILES, load, lru, costs, cpu, Random::new(1, 0));
        Small { world: World::new(pages, owner, costs), cpu, highest, random: Random::new(2, 0) }
    }

    fn reclaim(&mut self, pages: u64) -> Reclaimed {
        let may = ReclaimScope::ALL;
        let wanted =
            ReclaimRequest { node: NodeId(0), highest: self.highest, pages, priority: 0, may };
        self.world.owner.reclaim(&mut self.world.pages, wanted)
    }

    /// Serves wants, the last one first; reclaims memory when there is none.
    fn get(&mut self, mut wants: Vec<Want>) {
        while let Some(want) = wants.pop() {
            if self.world.owner.at_hand(want) {
                continue;
            }
            let request = self.world.owner.request(want);
            let pfn = loop {
                if let Ok(pfn) = self.world.pages.alloc(Nanos(0), self.cpu, request) {
                    break pfn;
                }
                assert!(self.reclaim(32).pages > 0, "there is page cache");
            };
            self.world.owner.fulfil(&mut self.world.pages, want, pfn);
        }
    }

    /// Opens a file and reads a page of it.
    fn read(&mut self, page: u32) {
        let owner = &mut self.world.owner;
        let mut wants = Vec::new();
        owner.wants(page, &mut self.random, &mut wants);
        owner.open(page / FILE_PAGES, &mut wants);
        self.get(wants);
    }

    fn close(&mut self, page: u32) {
        let file = page / FILE_PAGES;
        self.world.owner.close(&mut self.world.pages, file..file + 1);
    }

    fn is_cached(&self, page: u32) -> bool {
        self.world.owner.is_cached(page)
    }

    fn check(&self) {
        self.world.owner.check(&self.world.pages);
    }
}

/// Returns the number of pages that are in use.
fn held(pages: &mut Pages) -> u64 {
    pages.drain_all();
    pages.check().unwrap();
    pages.zones().map(|zone| zone.managed.0 - zone.free.0).sum()
}

#[test]
fn reading_at_random_keeps_the_laws_of_the_owner() {
    for mix in [QUIET, BUSY] {
        let mut small = Small::new(mix, Lru::TwoLists);
        let mut random = Random::new(3, 0);
        for access in 0..60_000u64 {
            let page = random.index((FILES * FILE_PAGES) as usize) as u32;
            small.world.owner.turn(small.cpu, access * 1000);
            small.read(page);
            if access.is_multiple_of(3) {
                small.world.owner.dirty(page, access * 1000);
            }
            small.close(page);
            if access.is_multiple_of(6000) {
                small.check();
            }
        }
        small.check();
        let World { owner, pages, .. } = &mut small.world;
        owner.end_transients(pages);
        owner.delete_files(pages);
        owner.check(pages);
        assert_eq!(held(pages), 0);
    }
}

#[test]
fn a_page_read_twice_more_is_the_youngest_with_two_lists_and_not_with_generations() {
    let [one, other] = [0, FILE_PAGES];
    let goes_first = |lru, reads_again| {
        let mut small = Small::new(QUIET, lru);
        [one, other].into_iter().for_each(|page| small.read(page));
        (0..reads_again).for_each(|_| small.read(one));
        assert_eq!(small.reclaim(1).pages, 1);
        assert_ne!(small.is_cached(one), small.is_cached(other));
        !small.is_cached(one)
    };
    let after = |lru| [0, 1, 2].map(|reads_again| goes_first(lru, reads_again));
    assert_eq!(after(Lru::TwoLists), [true, true, false]);
    assert_eq!(after(Lru::Generations), [true; 3]);
}

/// Reads old pages, lets a process come, reads new ones, and reclaims. Page cache of two lists goes by age, whatever
/// its zone; of one generation, low zones keep theirs as long as the highest has any. A younger generation stays until
/// the older one is used up in every zone.
#[test]
fn low_zones_keep_their_pages_until_generations_age() {
    let unused = |small: &Small| {
        let zones = small.world.pages.zones();
        let low = zones.take_while(|zone| zone.id != small.highest);
        let of = |zone: ZoneInfo| zone.free.0 + small.world.pages.per_cpu_pages(zone.id).0;
        low.map(of).sum::<u64>()
    };
    let kept = |lru| {
        let mut small = Small::new(QUIET, lru);
        let old = 3 * PAGES as u32 / 4;
        (0..old).for_each(|page| small.read(page));
        // The highest zone was filled first; now some of its pages are younger than those below.
        small.reclaim(2000);
        (old..old + 1500).for_each(|page| small.read(page));
        let before = unused(&small);
        small.reclaim(u64::from(old) / 2 + 1000);
        let low_zones_keep = unused(&small) == before;
        small.get(vec![Want::Base]);
        let new = old + 1500..old + 2000;
        new.clone().for_each(|page| small.read(page));
        let older = (0..new.start).filter(|&page| small.is_cached(page)).count() as u64;
        small.reclaim(older);
        (low_zones_keep, new.filter(|&page| small.is_cached(page)).count())
    };
    assert_eq!(kept(Lru::TwoLists), (false, 500));
    assert_eq!(kept(Lru::Generations), (true, 0));
    assert_eq!(kept(Lru::AgedGenerations), (true, 500));
}

#[test]
fn a_writer_goes_round_its_files_and_has_them_open_to_the_end() {
    let mut small = Small::new(QUIET, Lru::TwoLists);
    let mut writer =
        Actor::new(small.cpu, 0, Task::Writer { files: 0..4, done: 0 }, Random::new(3, 0));
    let pages = 4 * FILE_PAGES;
    let mut written = Vec::new();
    while written.len() < pages as usize {
        writer.step(&mut small.world).unwrap();
        let new = |page: &u32| small.is_cached(*page) && !written.contains(page);
        let new: Vec<u32> = (0..pages).filter(new).collect();
        written.extend(new);
    }
    let round = (0..FILE_PAGES).flat_map(|page| (0..4).map(move |file| file * FILE_PAGES + page));
    assert_eq!(written, round.collect::<Vec<u32>>());

    // The shrinker looks at an inode for each page that is reclaimed; another file stays open throughout.
    let shrink = |small: &mut Small| {
        small.reclaim(u64::from(pages));
        for _ in 0..100 {
            small.read(pages);
            assert!(small.reclaim(1).pages > 0);
        }
        small.check();
        small.world.owner.inodes()
    };
    assert_eq!(shrink(&mut small), 5);
    while writer.state != State::Done {
        writer.step(&mut small.world).unwrap();
    }
    assert_eq!(shrink(&mut small), 1);
}

#[test]
fn writeback_holds_its_bound_at_most_and_a_tenth_when_all_is_written() {
    let mut small = Small::new(QUIET, Lru::TwoLists);
    for _ in 0..20 * QUIET.writeback {
        small.get(vec![Want::Writeback]);
        assert!(small.world.owner.writeback() <= QUIET.writeback);
    }
    let World { owner, pages, .. } = &mut small.world;
    assert_eq!(owner.writeback(), QUIET.writeback);
    owner.synced(pages);
    let left = owner.writeback();
    assert!((1..=QUIET.writeback / 5).contains(&left), "{left}");
    assert_eq!(held(pages), 8 * left as u64);
    owner.end_transients(pages);
    assert_eq!(held(pages), 0);
}

/// Creates a run with 64 MiB whose requests for huge pages may compact and reclaim.
fn run(boot: Boot) -> Run {
    let policy = FragmentationPolicy::LINUX_6_1;
    let setup = Setup {
        design: "linux-6.1".to_owned(),
        program: "test".to_owned(),
        policy,
        layout: Layout {
            map: MemoryMap::numa(1, PageCount(PAGES), QUIET.dma32 as u32, 8).unwrap(),
            fio: [0, 1, 2, 3],
            huge: vec![4],
            daemons: vec![[5, 6]],
            node_0_pages: PAGES,
            pages: PAGES,
        },
        min_free: MinFree::HugePages,
        boot,
        costs: Costs::built_in(),
        files: files_per_thread(PAGES),
        warm_up: WarmUp::AsLongAsWriting,
        fault: HugeFault::new(HugeDefrag::Madvise, Advice::HugePage, policy.huge_tries),
        mix: QUIET,
        units: 8,
        seed: 1,
    };
    Run::new(setup).unwrap()
}

#[test]
fn what_the_kernel_holds_from_the_beginning_on_stays() {
    let boot = Boot { unmovable: 700, reclaimable: 300, files: 200 };
    let mut run = run(boot);
    run.all_phases().unwrap();
    let held = held(&mut run.world.pages);
    // Less than the largest block of each type is left out.
    assert!((1200 - 2 * 7..=1200).contains(&held), "{held}");
}

#[test]
fn phases_note_all_free_blocks_of_each_zone() {
    let mut run = run(Boot::default());
    run.up_to_huge_pages().unwrap();
    let mut free = BTreeMap::new();
    for zone in run.world.pages.zones() {
        *free.entry(zone.kind).or_default() += zone.free.0;
    }
    let result = run.finish();
    let phase = result.phases.last().unwrap();
    assert_eq!(phase.at, Moment::HugePages);
    let pages = |blocks: &[u64; Order::COUNT]| -> u64 {
        Order::all().zip(blocks).map(|(order, blocks)| order.pages() * blocks).sum()
    };
    let noted: BTreeMap<_, _> = phase.free.iter().map(|(kind, it)| (*kind, pages(it))).collect();
    assert_eq!(noted, free);
    assert_eq!(noted.len(), 2);
}
