//! Reclaim by callers and kswapd for a block (docs/sources/pages.md#reclaim-by-order), and the requests of a huge-page
//! fault (pages.md#huge-fault-flags): a zone of single pages, every other one of page cache, and nothing that could be
//! moved.

use super::page_bench::order;
use super::page_pair::{Log, machine, node, zone};
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::page::{
    Advice, FragmentationPolicy, HugeDefrag, HugeFault, HugeTries, Kswapd, Lru, MemoryMap, Migrate,
    Migratetype, MinFree, NodeId, PageAllocator, PageBudget, PageConfig, PageRequest, Reclaim,
    ReclaimRequest, Reclaimed, RequestFlags, ZoneKind,
};
use nofrag::units::{Nanos, Order, Pfn};
use std::collections::VecDeque;

const NOW: Nanos = Nanos(0);
const NODE: NodeId = NodeId(0);
/// Pages in 64 MiB of memory.
const PAGES: u64 = 16_384;
/// The marks of a zone of that size: the reserve is its minimum, and 256 pages lie between two of them.
const MIN: u64 = 1_024;
const LOW: u64 = 1_280;
const HIGH: u64 = 1_536;

/// A page cache that owns every second page.
#[derive(Debug, Default)]
struct Cache {
    cpu: Option<CpuId>,
    pages: VecDeque<Pfn>,
    asked: Vec<ReclaimRequest>,
    /// The most that the cache gives for a request.
    most: Option<u64>,
    /// True if the cache says that nothing is left.
    spent: bool,
}

impl Reclaim<Log> for Cache {
    fn reclaim(&mut self, pages: &mut PageAllocator<Log>, wanted: ReclaimRequest) -> Reclaimed {
        self.asked.push(wanted);
        let most = self.most.unwrap_or(u64::MAX).min(wanted.pages);
        let mut freed = 0;
        while freed < most
            && let Some(pfn) = self.pages.pop_front()
        {
            pages.free(self.cpu.expect("it was given one"), pfn).expect("the cache owns it");
            freed += 1;
        }
        let left = if self.spent { 0 } else { self.pages.len() as u64 };
        Reclaimed { pages: freed, scanned: freed, left }
    }
}

impl Migrate for Cache {
    fn migrate(&mut self, _: Pfn, _: Pfn, _: Order) -> bool {
        false
    }
}

/// A machine all of whose pages are in use, but for some of the cache's.
struct Bench {
    pages: PageAllocator<Log>,
    cache: Cache,
    cpu: CpuId,
}

impl Bench {
    /// Makes a machine of which `free` pages are free, each beside two that are not.
    fn new(policy: FragmentationPolicy, free: u64) -> Bench {
        Bench::of(machine(&[node(&[0], &[zone(ZoneKind::Normal, 0, PAGES)])]), policy, &[free])
    }

    /// Makes a machine as [`new`](Bench::new) does, with so many free pages in each zone of `map`.
    fn of(map: MemoryMap, policy: FragmentationPolicy, free: &[u64]) -> Bench {
        // A CPU of another machine has no lists, so that each page counts at once.
        let cpu = CpuSet::first(9).expect("there is memory").by_rank(8).expect("it has nine");
        let min = MinFree::Pages(MIN * free.len() as u64);
        let config = PageConfig {
            min_free: min,
            lowmem_reserve_ratio: [0; ZoneKind::COUNT],
            ..PageConfig::new(map, policy)
        };
        let mut pages =
            PageAllocator::with_events(&config, Log::default()).expect("there is memory");
        for frame in 0..PAGES * free.len() as u64 {
            pages.alloc_at(Pfn(frame), Order::ZERO).expect("all is free");
        }
        let mut cache = Cache { cpu: Some(cpu), ..Cache::default() };
        for (number, &count) in free.iter().enumerate() {
            let start = PAGES * number as u64;
            let mut odd = (start..start + PAGES).step_by(2).map(Pfn);
            for pfn in odd.by_ref().take(count as usize) {
                pages.free(cpu, pfn).expect("it is in use");
            }
            cache.pages.extend(odd);
        }
        let bench = Bench { pages, cache, cpu };
        assert!(bench.pages.zones().all(|zone| zone.watermarks.low == LOW), "as said above");
        bench
    }

    fn free_pages(&self) -> u64 {
        self.pages.zones().map(|zone| zone.free.0).sum()
    }

    /// Makes a request that gets nothing. Returns the priorities at which the cache was asked, and the pages reclaimed.
    fn call(&mut self, request: PageRequest) -> (Vec<u8>, u64) {
        let served = self.pages.serve(NOW, self.cpu, request, &mut self.cache);
        assert!(served.is_err(), "only single pages are free");
        let priorities = self.cache.asked.iter().map(|asked| asked.priority).collect();
        (priorities, self.pages.counters().reclaimed_direct)
    }

    fn wake_kswapd(&mut self, order: Order) {
        let request = PageRequest::user(order).flags(RequestFlags::KSWAPD_RECLAIM);
        assert!(self.pages.serve(NOW, self.cpu, request, &mut self.cache).is_err());
    }

    fn run_kswapd(&mut self, order: Order) {
        self.wake_kswapd(order);
        let mut kswapd = Kswapd::new(NODE);
        while self.pages.kswapd(NODE).expect("there is one").awake {
            let all = PageBudget { pages: u64::MAX };
            kswapd.step(NOW, &mut self.pages, &mut self.cache, all);
        }
    }
}

/// A request that the caller reclaims for; kswapd is left alone.
fn waiting(size: u8) -> PageRequest {
    PageRequest::user(order(size)).flags(RequestFlags::DIRECT_RECLAIM)
}

fn with_lists(policy: FragmentationPolicy) -> FragmentationPolicy {
    FragmentationPolicy { lru: Lru::TwoLists, ..policy }
}

const OLD: FragmentationPolicy = FragmentationPolicy::LINUX_6_1;
const NEW: FragmentationPolicy = FragmentationPolicy::LINUX_7_2;

/// A request for a huge page reclaims until its zone has more than the low mark and the gap free.
/// Source: pages.md#pass-repeats.
#[test]
fn a_caller_reclaims_until_a_huge_page_could_be_compacted() {
    // The mark itself is not enough, and a pass gives a batch.
    for (policy, enough) in [(OLD, LOW + 1_024), (with_lists(NEW), LOW + 32)] {
        let mut bench = Bench::new(policy, MIN);
        let (priorities, came) = bench.call(waiting(9));
        assert!(priorities.iter().all(|&priority| priority == 12), "{priorities:?}");
        assert_eq!(came, (enough - MIN) / 32 * 32 + 32);
        assert!(bench.free_pages() > enough && bench.free_pages() <= enough + 32);
    }
}

/// On the multi-generational LRU a request for a huge page reclaims 64 pages at priority 12 and no more.
/// Source: pages.md#guest-lru.
#[test]
fn on_the_multi_generational_lru_a_caller_reclaims_one_batch_of_64() {
    for policy in [FragmentationPolicy::LINUX_6_12, NEW] {
        let mut bench = Bench::new(policy, MIN);
        assert_eq!(bench.call(waiting(9)), (vec![12], 64));
    }
}

#[test]
fn a_pass_is_repeated_only_while_enough_is_left_and_something_came() {
    let mut bench = Bench::new(OLD, MIN);
    bench.cache.spent = true;
    assert_eq!(bench.call(waiting(9)), (vec![12], 32), "nothing is left");
    let mut bench = Bench::new(OLD, MIN);
    // 1 056 pages are left: after one pass no more than a compaction's worth.
    bench.cache.pages.truncate(1_056);
    assert_eq!(bench.call(waiting(9)), (vec![12], 32));
    let mut bench = Bench::new(OLD, MIN);
    bench.cache.most = Some(0);
    let (priorities, came) = bench.call(waiting(9));
    assert_eq!((came, priorities), (0, (0..=12).rev().collect()));
}

#[test]
fn passes_are_repeated_for_small_blocks_below_priority_10_alone() {
    let mut bench = Bench::new(OLD, MIN);
    bench.cache.most = Some(1);
    let mut attempt = bench.pages.alloc(NOW, bench.cpu, waiting(2)).expect_err("no such block");
    let mut outcome = nofrag::page::Outcome::Begin;
    let mut asked = Vec::new();
    while asked.len() < 12 {
        match attempt.advance(&mut bench.pages, NOW, outcome) {
            nofrag::page::Next::Reclaim(wanted) => {
                asked.push(wanted.priority);
                assert_eq!(wanted.pages, 32, "also where the share of the priority is larger");
                outcome =
                    nofrag::page::Outcome::Reclaimed(bench.cache.reclaim(&mut bench.pages, wanted));
            }
            other => panic!("a batch has not come yet: {other:?}"),
        }
    }
    // At 12, 11 and 10 once each; at 9 until compaction can begin, which is above MIN + 8; then once each again.
    assert_eq!(asked, [12, 11, 10, 9, 9, 9, 9, 9, 9, 8, 7, 6]);
    attempt.abandon(&mut bench.pages);
}

/// Returns the number of pages that a caller reclaims for a huge page where `free` are free.
fn came_for(policy: FragmentationPolicy, free: u64) -> u64 {
    Bench::new(policy, free).call(waiting(9)).1
}

#[test]
fn a_zone_where_compaction_can_begin_above_its_high_mark_is_left_alone() {
    let new = with_lists(NEW);
    // Ready above HIGH + gap; below, compaction is suitable and the pass is not repeated.
    assert_eq!([HIGH + 1_024, HIGH + 1_025].map(|free| came_for(OLD, free)), [32, 0]);
    // In 7.2 what is between LOW and MIN is added, and the gap is 32.
    let edge = HIGH + (LOW - MIN) + 32;
    assert_eq!([edge, edge + 1].map(|free| came_for(new, free)), [32, 0]);
    // Small blocks know no such rule.
    let mut bench = Bench::new(OLD, HIGH + 2_000);
    assert!(bench.call(waiting(3)).1 >= 32);
}

/// Zones in which compaction can begin well above the high mark are passed over, and end the call after the priority.
/// Source: pages.md#ready.
#[test]
fn a_zone_that_is_ready_ends_the_call_after_the_priority() {
    let map = || {
        let zones = [zone(ZoneKind::Dma32, 0, PAGES), zone(ZoneKind::Normal, PAGES, PAGES)];
        machine(&[node(&[0], &zones)])
    };
    let call = |free: [u64; 2], most| {
        let mut bench = Bench::of(map(), OLD, &free);
        bench.cache.most = Some(most);
        bench.call(waiting(9))
    };
    // Normal is ready and DMA32 is not: its node is reclaimed from, once, as compaction can begin in Normal.
    assert_eq!(call([MIN, HIGH + 2_000], 1), (vec![12], 1));
    // So it is the other way round.
    assert_eq!(call([HIGH + 2_000, MIN], 1), (vec![12], 1));
    // Both are: nobody is asked.
    assert_eq!(call([HIGH + 2_000; 2], 1), (vec![], 0));
    // Neither is, and nothing comes: the node they share has its turn once at each priority.
    assert_eq!(call([MIN; 2], 0), ((0..=12).rev().collect(), 0));
}

#[test]
fn in_defrag_mode_what_cannot_be_moved_is_reclaimed_for_as_for_a_pageblock() {
    let request = PageRequest::new(order(1), Migratetype::Unmovable);
    let request = request.flags(RequestFlags::DIRECT_RECLAIM.with(RequestFlags::NO_RETRY));
    let called = |policy| {
        let mut bench = Bench::new(with_lists(policy), MIN);
        bench.call(request).1
    };
    assert_eq!(called(NEW), 32);
    assert_eq!(called(FragmentationPolicy::LINUX_7_2_DEFRAG), (LOW + 32 - MIN) / 32 * 32 + 32);
}

#[test]
fn a_pass_of_a_caller_ends_whatever_the_owner_claims() {
    struct Liar(u64);
    impl Reclaim<Log> for Liar {
        fn reclaim(&mut self, _: &mut PageAllocator<Log>, _: ReclaimRequest) -> Reclaimed {
            self.0 += 1;
            Reclaimed { pages: 1, scanned: 1, left: u64::MAX }
        }
    }
    impl Migrate for Liar {
        fn migrate(&mut self, _: Pfn, _: Pfn, _: Order) -> bool {
            false
        }
    }
    let mut bench = Bench::new(OLD, MIN);
    let mut liar = Liar(0);
    let served = bench.pages.serve(NOW, bench.cpu, waiting(9), &mut liar);
    assert!(served.is_err());
    assert_eq!(liar.0, PAGES / 32, "as often as it takes to reclaim all by batches");
}

/// Woken for order 9, kswapd goes on for single pages once it has reclaimed the gap: 32 pages in 7.2, 1024 in 6.1 and
/// 6.12. Source: pages.md#o-16.
#[test]
fn kswapd_goes_down_to_single_pages_after_a_gap() {
    // Above the high mark, so that single pages are all that is missing.
    let free = HIGH + 1;
    let reclaimed = |policy| {
        let mut bench = Bench::new(policy, free);
        bench.run_kswapd(Order::PAGEBLOCK);
        bench.pages.counters().reclaimed_kswapd
    };
    assert_eq!(reclaimed(NEW), 32);
    assert_eq!(reclaimed(with_lists(NEW)), 32);
    // Larger and larger shares of the zone: 4 times 32, then 64, 128, 256 and 512 pages.
    assert_eq!(reclaimed(FragmentationPolicy::LINUX_6_12), 1_088);
    // Pass after pass at priority 12: 800 pages until compaction can begin, then those of the next priorities.
    let mut bench = Bench::new(OLD, free);
    bench.run_kswapd(Order::PAGEBLOCK);
    let asked = bench.cache.asked.iter();
    let first = asked.filter(|asked| asked.priority == 12).map(|asked| asked.pages).sum::<u64>();
    assert_eq!(first, (LOW + 1_024 - free) / 32 * 32 + 32);
    assert!((1_024..1_024 + 64).contains(&bench.pages.counters().reclaimed_kswapd));
}

#[test]
fn kswapd_passes_once_for_single_pages() {
    let mut bench = Bench::new(OLD, MIN);
    bench.run_kswapd(Order::ZERO);
    let priorities = bench.cache.asked.iter().map(|asked| asked.priority);
    let distinct: Vec<u8> = priorities.collect();
    assert!(distinct.windows(2).all(|two| two[0] > two[1]), "{distinct:?}");
    assert!(bench.free_pages() > HIGH);
}

/// Of the pages that CPU 0 frees it keeps fewer than four batches during a run of kswapd, and all 200 once the run has
/// ended or was given up. Source: pages.md#frames-reclaim-active.
#[test]
fn cpus_keep_little_while_kswapd_reclaims() {
    let kept = |ended: fn(&mut Bench, Kswapd)| {
        let mut bench = Bench::new(OLD, MIN);
        bench.wake_kswapd(Order::ZERO);
        let mut kswapd = Kswapd::new(NODE);
        let first = PageBudget { pages: 32 };
        assert!(kswapd.step(NOW, &mut bench.pages, &mut bench.cache, first).more);
        ended(&mut bench, kswapd);
        let cpu = CpuSet::first(1).expect("there is memory").by_rank(0).expect("it has one");
        let id = bench.pages.zones().next().expect("there is one").id;
        let kept = (1..400).step_by(2).map(|frame| {
            bench.pages.free(cpu, Pfn(frame)).expect("it is in use");
            bench.pages.per_cpu_pages(id).get()
        });
        kept.max()
    };
    // The batch of such a zone is 3 pages, and its bound is the low mark.
    assert_eq!(kept(|_, _| {}), Some(4 * 3 - 1));
    assert_eq!(kept(|bench, kswapd| kswapd.abandon(&mut bench.pages)), Some(200));
    let to_the_end = |bench: &mut Bench, mut kswapd: Kswapd| {
        let all = PageBudget { pages: u64::MAX };
        assert!(!kswapd.step(NOW, &mut bench.pages, &mut bench.cache, all).more);
    };
    assert_eq!(kept(to_the_end), Some(200));
}

#[test]
fn a_run_that_is_given_up_is_left_to_the_next_kswapd() {
    let mut bench = Bench::new(OLD, MIN);
    bench.wake_kswapd(order(3));
    let mut kswapd = Kswapd::new(NODE);
    kswapd.step(NOW, &mut bench.pages, &mut bench.cache, PageBudget { pages: 32 });
    let asked = |bench: &Bench| bench.pages.kswapd(NODE).expect("there is one").asked;
    assert_eq!(asked(&bench), None, "it has taken it up");
    kswapd.abandon(&mut bench.pages);
    assert_eq!(asked(&bench), Some((order(3), ZoneKind::Movable)));
}

/// The reserve for huge pages counts the populated zones of all nodes, and is at most a twentieth of the memory
/// (pages.md#huge-reserve).
#[test]
fn the_reserve_for_huge_pages_counts_the_zones_that_have_pages() {
    let reserve = |map| {
        let config = PageConfig {
            min_free: MinFree::HugePages,
            ..PageConfig::new(map, FragmentationPolicy::LINUX_6_1)
        };
        let pages = PageAllocator::new(&config).expect("there is memory");
        pages.zones().map(|zone| zone.watermarks.min).sum::<u64>()
    };
    let gib = 1 << 18;
    let uma = |dma32| MemoryMap::uma(nofrag::units::PageCount(4 * gib), dma32, 1).expect("sound");
    assert_eq!(reserve(uma(0)), 5_632);
    // Each zone's share is rounded down.
    assert_eq!(reserve(uma(375)).div_ceil(2) * 2, 11_264);
    let numa = MemoryMap::numa(2, nofrag::units::PageCount(4 * gib), 375, 1).expect("sound");
    assert!((16_894..=16_896).contains(&reserve(numa)), "three zones on two nodes");
    let small = MemoryMap::uma(nofrag::units::PageCount(gib / 4), 375, 1).expect("sound");
    assert!((3_275..=3_276).contains(&reserve(small)), "a twentieth of 256 MiB");
}

/// Returns the flags of the requests that a huge-page fault makes, one after the other.
fn tries(defrag: HugeDefrag, advice: Advice, rules: HugeTries) -> Vec<RequestFlags> {
    let fault = HugeFault::new(defrag, advice, rules);
    let requests: Vec<PageRequest> = fault.collect();
    assert!(requests.iter().all(|it| *it == PageRequest::user(Order::PAGEBLOCK).flags(it.flags)));
    requests.iter().map(|request| request.flags).collect()
}

/// Setting and advice decide who reclaims for a huge page; only unadvised memory under `always` gives up early.
/// Source: pages.md#b-30.
#[test]
fn flags_of_a_huge_fault_by_setting_and_advice() {
    use Advice::{HugePage, Unadvised};
    let plain = |defrag, advice| tries(defrag, advice, HugeTries::All);
    let (none, caller) = (RequestFlags::NONE, RequestFlags::DIRECT_RECLAIM);
    let (kswapd, once) = (RequestFlags::KSWAPD_RECLAIM, caller.with(RequestFlags::NO_RETRY));
    for (defrag, unadvised, advised) in [
        (HugeDefrag::Always, once, caller),
        (HugeDefrag::Defer, kswapd, kswapd),
        (HugeDefrag::DeferMadvise, kswapd, caller),
        (HugeDefrag::Madvise, none, caller),
        (HugeDefrag::Never, none, none),
    ] {
        assert_eq!(plain(defrag, Unadvised), [unadvised], "{defrag:?}");
        assert_eq!(plain(defrag, HugePage), [advised], "{defrag:?}");
    }
    assert_eq!(HugeDefrag::default(), HugeDefrag::Madvise);
}

/// Since 5.4 a fault tries its own node, then all nodes if it may reclaim; 4.20 tries its own node alone.
/// Source: pages.md#huge-fault-tries.
#[test]
fn a_fault_tries_its_node_and_then_all_if_it_may_reclaim() {
    use Advice::{HugePage, Unadvised};
    let local = RequestFlags::THIS_NODE;
    let early = local.with(RequestFlags::NO_RETRY);
    let caller = RequestFlags::DIRECT_RECLAIM;
    let since_5_4 = |defrag, advice| tries(defrag, advice, HugeTries::LocalThenAll);
    assert_eq!(since_5_4(HugeDefrag::Madvise, HugePage), [caller.with(early), caller]);
    let once = caller.with(RequestFlags::NO_RETRY);
    assert_eq!(since_5_4(HugeDefrag::Always, Unadvised), [caller.with(early), once]);
    assert_eq!(since_5_4(HugeDefrag::Madvise, Unadvised), [early]);
    let kswapd = RequestFlags::KSWAPD_RECLAIM;
    assert_eq!(since_5_4(HugeDefrag::Defer, HugePage), [kswapd.with(early)]);
    let in_4_20 = |advice| tries(HugeDefrag::Madvise, advice, HugeTries::Local);
    assert_eq!(in_4_20(HugePage), [caller.with(local)]);
    assert_eq!(in_4_20(Unadvised), [local]);
    assert_eq!(FragmentationPolicy::LINUX_4_20.huge_tries, HugeTries::Local);
    for policy in [OLD, FragmentationPolicy::LINUX_6_12, NEW] {
        assert_eq!(policy.huge_tries, HugeTries::LocalThenAll);
    }
}
