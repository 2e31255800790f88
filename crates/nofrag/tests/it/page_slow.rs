//! The slow path of page requests and the machines behind it: what callers are asked to do, how kswapd works off a
//! boost, and that every attempt ends. Rules: docs/sources/pages.md#slow-path, pages.md#patch-4, pages.md#patch-5.

use super::page_bench::order;
use nofrag::check::Check;
use nofrag::cpu::CpuId;
use nofrag::event::{Event, EventSink};
use nofrag::page::{
    Attempt, FailureReason, FailureReport, FallbackRules, FragmentationPolicy, Kswapd, MemoryMap,
    Migrate, Migratetype, MinFree, MoveResults, Next, NodeId, NodeMap, Outcome, PageAllocator,
    PageBudget, PageConfig, PageEvent, PageRequest, Reclaim, ReclaimRequest, Reclaimed, Refusal,
    RequestFlags, ZoneKind, ZoneMap,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

const MIB: u64 = 256;
const NOW: Nanos = Nanos(0);
const NODE: NodeId = NodeId(0);
/// The flags with which a request is served as long as anything is free.
const ALL_OF_IT: RequestFlags = RequestFlags(RequestFlags::RECLAIM.0 | RequestFlags::MEMALLOC.0);

fn zone(kind: ZoneKind, start: u64, pages: u64) -> ZoneMap {
    ZoneMap::new(kind, Pfn(start), PageCount(pages))
}

fn machine(nodes: &[&[ZoneMap]]) -> MemoryMap {
    let cpus = |node: usize| vec![node as u32];
    let nodes = nodes.iter().enumerate();
    let map =
        |(node, zones): (usize, &&[ZoneMap])| NodeMap { cpus: cpus(node), zones: zones.to_vec() };
    MemoryMap::new(nodes.map(map).collect(), &[]).expect("the map is sound")
}

/// Returns a machine of 64 MiB in one zone, Normal.
fn small() -> MemoryMap {
    machine(&[&[zone(ZoneKind::Normal, 0, 64 * MIB)]])
}

/// An event sink that keeps the events of a page allocator.
#[derive(Clone, Debug, Default)]
struct Log(Rc<RefCell<Vec<PageEvent>>>);

impl EventSink for Log {
    fn record(&self, event: Event) {
        if let Event::Page(event) = event {
            self.0.borrow_mut().push(event);
        }
    }
}

/// A page cache: pages that can be reclaimed, oldest first, and moved.
#[derive(Debug, Default)]
struct Cache {
    pages: VecDeque<Pfn>,
    /// Requests that the cache got.
    asked: Vec<ReclaimRequest>,
    /// Requests that the cache makes itself, each time that it is asked.
    meanwhile: Vec<PageRequest>,
}

impl Reclaim<Log> for Cache {
    fn reclaim(&mut self, pages: &mut PageAllocator<Log>, wanted: ReclaimRequest) -> Reclaimed {
        self.asked.push(wanted);
        for request in self.meanwhile.drain(..) {
            pages.alloc(NOW, cpu(), request).expect("a test leaves room for it");
        }
        let mut freed = 0;
        while freed < wanted.pages
            && let Some(pfn) = self.pages.pop_front()
        {
            pages.free(cpu(), pfn).expect("the cache owns it");
            freed += 1;
        }
        Reclaimed { pages: freed, scanned: freed, left: self.pages.len() as u64 }
    }
}

impl Migrate for Cache {
    fn migrate(&mut self, from: Pfn, to: Pfn, _order: Order) -> bool {
        let page = self.pages.iter_mut().find(|page| **page == from);
        page.map(|page| *page = to).is_some()
    }
}

/// Returns the first CPU of every machine here.
fn cpu() -> CpuId {
    small().cpus().by_rank(0).expect("it has one")
}

/// An allocator with what it has told.
struct Bench {
    pages: PageAllocator<Log>,
    log: Log,
}

impl Bench {
    fn new(map: MemoryMap, policy: FragmentationPolicy, min_free: u64) -> Bench {
        let config =
            PageConfig { min_free: MinFree::Pages(min_free), ..PageConfig::new(map, policy) };
        let log = Log::default();
        let pages = PageAllocator::with_events(&config, log.clone()).expect("there is memory");
        Bench { pages, log }
    }

    fn serve(&mut self, request: PageRequest) -> Result<Pfn, Box<FailureReport>> {
        self.pages.serve(NOW, cpu(), request, &mut Cache::default()).map_err(Box::new)
    }

    /// Takes all blocks of an order and type that a zone still has, whatever the watermarks say.
    fn take_all(&mut self, request: PageRequest) -> Vec<Pfn> {
        let request = request.flags(ALL_OF_IT);
        std::iter::from_fn(|| self.serve(request).ok()).collect()
    }

    fn free(&mut self, blocks: impl IntoIterator<Item = Pfn>) {
        for pfn in blocks {
            self.pages.free(cpu(), pfn).expect("a test owns it");
        }
        self.pages.drain_all();
    }

    /// Leaves `count` free blocks of `order`, none beside another, in blocks of `migratetype`; all else is in use.
    fn leave(&mut self, zone: ZoneKind, count: usize, order: Order, migratetype: Migratetype) {
        self.pages.drain_all();
        let request = PageRequest { zone, ..PageRequest::new(order, migratetype) };
        let taken = self.take_all(request);
        let apart = |pfn: &Pfn| pfn.0 >> order.get() & 1 == 0;
        let holes: Vec<Pfn> = taken.into_iter().filter(apart).take(count).collect();
        assert_eq!(holes.len(), count, "a test leaves what there is");
        self.free(holes);
        self.log.0.take();
    }

    fn check(&self) {
        self.pages.check().expect("every law holds");
    }

    fn boost(&self) -> u64 {
        self.pages.zones().map(|zone| zone.boost.0).sum()
    }

    fn free_pages(&self) -> u64 {
        self.pages.zones().map(|zone| zone.free.0).sum()
    }

    /// Makes kswapd's steps until it sleeps.
    fn run_kswapd(&mut self, owner: &mut Cache) {
        let mut kswapd = Kswapd::new(NODE);
        for _ in 0..10_000 {
            let progress = kswapd.step(NOW, &mut self.pages, owner, PageBudget { pages: 4 });
            if !progress.more {
                return self.check();
            }
        }
        panic!("kswapd does not come to rest");
    }

    fn told(&self, is: impl Fn(&PageEvent) -> bool) -> usize {
        self.log.0.borrow().iter().filter(|event| is(event)).count()
    }

    fn failures(&self) -> u8 {
        self.pages.kswapd(NODE).expect("the machine has a node 0").failures
    }
}

/// Returns a movable request that breaks into one hole of a reclaimable pageblock, and so boosts once. Loose lists hand
/// over all holes of a pageblock from order 4 on; strict ones boost only for pageblocks that might be claimed, which is
/// from order 4 on.
fn breaker(policy: &FragmentationPolicy) -> PageRequest {
    PageRequest::user(order(if policy.fallback == FallbackRules::Loose { 3 } else { 4 }))
}

/// Returns true if kcompactd was asked for a whole pageblock.
fn wakes_kcompactd(event: &PageEvent) -> bool {
    matches!(event, PageEvent::KcompactdAsked { order, .. } if *order == Order::PAGEBLOCK)
}

/// Drives an attempt to its end. Returns what it asked the caller for, and its last answer.
fn drive(
    attempt: &mut Attempt,
    pages: &mut PageAllocator<Log>,
    mut answer: impl FnMut(&mut PageAllocator<Log>, Next) -> Outcome,
) -> (Vec<Next>, Next) {
    let (mut asked, mut outcome) = (Vec::new(), Outcome::Begin);
    loop {
        let next = attempt.advance(pages, NOW, outcome);
        if matches!(next, Next::Done(_) | Next::Fail(_)) {
            return (asked, next);
        }
        asked.push(next);
        assert!(asked.len() < 100_000, "the attempt does not end");
        outcome = answer(pages, next);
    }
}

/// Each event boosts Normal by 512 pages until the 47th reaches the bound of 23760. Source: pages.md#o-7.
#[test]
fn boosts_of_events_up_to_the_bound() {
    let map = MemoryMap::uma(PageCount(8 * 1024 * MIB), 375, 1).expect("the map is sound");
    let mut bench = Bench::new(map, FragmentationPolicy::PATCHES_1_4, 16_896);
    bench.leave(ZoneKind::Normal, 4_000, order(8), Migratetype::Movable);
    let normal = |bench: &Bench| {
        let mut zones = bench.pages.zones().filter(|zone| zone.kind == ZoneKind::Normal);
        zones.next().expect("the machine has one").boost.0
    };
    let mut boosts = Vec::new();
    for _ in 0..48 {
        bench
            .pages
            .alloc(NOW, cpu(), PageRequest::new(order(8), Migratetype::Unmovable))
            .expect("room");
        boosts.push(normal(&bench));
    }
    assert_eq!(boosts[45..], [23_552, 23_760, 23_760]);
    assert_eq!(bench.pages.counters().boosts, 47);
}

/// Returns a machine in which all is in use but `normal` RECLAIMABLE blocks of order 3 in Normal, and `dma32` MOVABLE
/// blocks of order 10 in DMA32.
fn two_zones(policy: FragmentationPolicy, normal: usize, dma32: usize) -> Bench {
    let map = machine(&[&[
        zone(ZoneKind::Dma32, 0, 64 * MIB),
        zone(ZoneKind::Normal, 64 * MIB, 64 * MIB),
    ]]);
    let mut bench = Bench::new(map, policy, 1_024);
    let low =
        PageRequest { zone: ZoneKind::Dma32, ..PageRequest::new(order(10), Migratetype::Movable) };
    let blocks = bench.take_all(low);
    bench.leave(ZoneKind::Normal, normal, order(3), Migratetype::Reclaimable);
    bench.free(blocks.into_iter().take(dma32));
    bench
}

/// Patch 1 mixes types in Normal only where DMA32 has nothing free; 4.20 and 5.0 mix at once. Source: pages.md#o-11.
#[test]
fn spread_before_mixing() {
    let serve = |policy, dma32| {
        let mut bench = two_zones(policy, 500, dma32);
        let before = bench.pages.counters().clone();
        let pfn =
            bench.pages.alloc(NOW, cpu(), PageRequest::user(Order::ZERO)).expect("both have room");
        let kind = if pfn.0 < 64 * MIB { ZoneKind::Dma32 } else { ZoneKind::Normal };
        let counters = bench.pages.counters();
        let events = counters.events() - before.events();
        (kind, events > 0, counters.spread_given_up - before.spread_given_up)
    };
    assert_eq!(serve(FragmentationPolicy::PATCH_1, 8), (ZoneKind::Dma32, false, 0));
    assert_eq!(serve(FragmentationPolicy::LINUX_4_20, 8), (ZoneKind::Normal, true, 0));
    assert_eq!(serve(FragmentationPolicy::LINUX_5_0, 8), (ZoneKind::Normal, true, 0));
    assert_eq!(serve(FragmentationPolicy::PATCH_1, 0), (ZoneKind::Normal, true, 1));
}

/// A request mixes types on its own node before it takes memory of another. Source: pages.md#o-11.
#[test]
fn a_remote_node_ends_the_spread() {
    let map = machine(&[
        &[zone(ZoneKind::Dma32, 0, 8 * MIB), zone(ZoneKind::Normal, 8 * MIB, 64 * MIB)],
        &[zone(ZoneKind::Normal, 72 * MIB, 64 * MIB)],
    ]);
    let mut bench = Bench::new(map, FragmentationPolicy::PATCH_1, 1_024);
    let local = RequestFlags(ALL_OF_IT.0 | RequestFlags::THIS_NODE.0);
    let request = PageRequest::new(order(3), Migratetype::Reclaimable);
    let taken: Vec<Pfn> = std::iter::from_fn(|| bench.serve(request.flags(local)).ok()).collect();
    let holes = taken.into_iter().filter(|pfn| pfn.0 >= 8 * MIB && pfn.0 >> 3 & 1 == 0);
    bench.free(holes.collect::<Vec<_>>());
    let before = bench.pages.counters().spread_given_up;
    let pfn = bench.pages.alloc(NOW, cpu(), PageRequest::user(Order::ZERO)).expect("it has room");
    assert!(pfn.0 < 72 * MIB, "locality beats fragmentation");
    assert_eq!(bench.pages.counters().spread_given_up - before, 1);
}

/// Returns a node that so many `events` have boosted and that is balanced otherwise, and a cache of 4096 of its pages.
fn boosted(policy: FragmentationPolicy, events: usize) -> (Bench, Cache) {
    let mut bench = Bench::new(small(), policy, 1_024);
    let request = PageRequest::user(Order::ZERO);
    // A multiple of the largest block, so that the rest is taken without mixing.
    let pages: VecDeque<Pfn> = (0..4_096).map(|_| bench.serve(request).expect("room")).collect();
    let size = breaker(&policy).order;
    bench.leave(ZoneKind::Normal, 5_600 >> size.get(), size, Migratetype::Reclaimable);
    for _ in 0..events {
        bench.pages.alloc(NOW, cpu(), breaker(&policy)).expect("there are holes");
    }
    assert_eq!(bench.boost(), events as u64 * 512);
    (bench, Cache { pages, ..Cache::default() })
}

/// kswapd takes away the 1024 pages of boost that it found at its start; those that came meanwhile survive.
/// Source: pages.md#o-12.
#[test]
fn boosts_added_during_a_run_survive_it() {
    let policy = FragmentationPolicy::PATCHES_1_4;
    for (meanwhile, left) in [(vec![], 0), (vec![breaker(&policy)], 512)] {
        let (mut bench, mut cache) = boosted(policy, 2);
        assert!(bench.pages.kswapd(NODE).expect("there is one").awake);
        cache.meanwhile = meanwhile;
        let mut kswapd = Kswapd::new(NODE);
        // The second run, which the boost in between has asked for, is not to begin.
        while bench.boost() > left {
            kswapd.step(NOW, &mut bench.pages, &mut cache, PageBudget { pages: 4 });
        }
        assert_eq!(bench.boost(), left);
        assert_eq!(bench.told(wakes_kcompactd), 1);
        assert_eq!(bench.pages.counters().reclaimed_kswapd, 1_024);
    }
}

/// A boosted run of 7.2 neither writes nor swaps, ends after a pass without success, and counts no failure.
/// Source: pages.md#o-13.
#[test]
fn a_boosted_run_must_not_hurt() {
    let (mut bench, mut cache) = boosted(FragmentationPolicy::LINUX_7_2, 2);
    cache.pages.clear();
    bench.run_kswapd(&mut cache);
    assert_eq!(cache.asked.len(), 1, "a pass without success ends the run");
    assert_eq!((bench.boost(), bench.failures()), (0, 0));

    let (mut bench, mut cache) = boosted(FragmentationPolicy::LINUX_7_2, 2);
    bench.run_kswapd(&mut cache);
    let harmless = |asked: &ReclaimRequest| {
        !asked.may.write && !asked.may.swap && asked.may.slab && asked.priority >= 10
    };
    assert!(cache.asked.iter().all(harmless), "{:?}", cache.asked);
    assert!(!bench.pages.kswapd(NODE).expect("there is one").awake);
}

#[test]
fn a_boosted_run_of_a_node_that_is_short_goes_on_as_an_ordinary_one() {
    let (mut bench, mut cache) = boosted(FragmentationPolicy::PATCHES_1_4, 2);
    let used: Vec<Pfn> = std::iter::from_fn(|| {
        bench.pages.alloc(NOW, cpu(), PageRequest::new(Order::ZERO, Migratetype::Reclaimable)).ok()
    })
    .collect();
    assert!(!used.is_empty());
    bench.run_kswapd(&mut cache);
    assert!(cache.asked.iter().any(|asked| asked.may.write && asked.may.swap && asked.may.slab));
    let zone = bench.pages.zones().next().expect("there is one");
    assert_eq!(zone.boost, PageCount(0));
    assert!(zone.free.0 > zone.watermarks.high, "{zone:?}");
}

#[test]
fn kswapd_dozes_and_looks_again_before_it_sleeps() {
    const DOZE: Nanos = Nanos(100_000_000);
    let all = PageBudget { pages: u64::MAX };
    let sleeps = |event: &PageEvent| matches!(event, PageEvent::KswapdSleeps { .. });
    let mut bench = Bench::new(small(), FragmentationPolicy::LINUX_6_1, 1_024);
    let mut cache = Cache::default();
    while bench.told(|event| matches!(event, PageEvent::KswapdWoken { .. })) == 0 {
        cache.pages.push_back(bench.serve(PageRequest::user(Order::ZERO)).expect("enough is free"));
    }
    let mut kswapd = Kswapd::new(NODE);
    let progress = kswapd.step(NOW, &mut bench.pages, &mut cache, all);
    assert_eq!((progress.more, progress.wake_at), (false, Some(DOZE)));
    assert_eq!((bench.pages.counters().kswapd_runs, bench.told(sleeps)), (1, 0), "it dozes");
    // Somebody takes what it has reclaimed, but no more than that wakes it.
    let high = bench.pages.zones().next().expect("there is one").watermarks.high;
    while bench.free_pages() >= high {
        cache.pages.push_back(bench.serve(PageRequest::user(Order::ZERO)).expect("enough is free"));
    }
    let early = kswapd.step(Nanos(DOZE.0 - 1), &mut bench.pages, &mut cache, all);
    assert_eq!((early.pages, bench.pages.counters().kswapd_runs), (0, 1));
    let again = kswapd.step(DOZE, &mut bench.pages, &mut cache, all);
    assert!(again.pages > 0 && again.wake_at == Some(Nanos(2 * DOZE.0)));
    assert_eq!((bench.pages.counters().kswapd_runs, bench.told(sleeps)), (2, 0));
    let last = kswapd.step(Nanos(2 * DOZE.0), &mut bench.pages, &mut cache, all);
    assert_eq!((last.pages, last.wake_at, bench.told(sleeps)), (0, None, 1), "balanced, it sleeps");
    assert_eq!(bench.pages.counters().kswapd_wakes, 1);
    bench.check();
}

#[test]
fn a_node_without_progress_becomes_hopeless_until_somebody_reclaims() {
    let mut bench = Bench::new(small(), FragmentationPolicy::LINUX_4_20, 1_024);
    bench.leave(ZoneKind::Normal, 100, order(3), Migratetype::Movable);
    let atomic = PageRequest::user(Order::ZERO).flags(RequestFlags::KSWAPD_RECLAIM);
    assert!(bench.serve(atomic).is_err());
    let mut nothing = Cache::default();
    bench.run_kswapd(&mut nothing);
    assert_eq!(bench.failures(), 16);
    let priorities: Vec<u8> = nothing.asked.iter().map(|asked| asked.priority).collect();
    assert_eq!(priorities[..13], [12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 12]);
    assert_eq!(priorities.len(), 16 * 12);
    let wakes = bench.pages.counters().kswapd_wakes;
    assert!(bench.serve(atomic).is_err());
    assert_eq!(bench.pages.counters().kswapd_wakes, wakes, "it is not woken in vain");

    let held = bench.pages.alloc(NOW, cpu(), PageRequest::user(Order::ZERO)).err();
    let mut attempt = held.expect("the fast path has nothing");
    let (_, last) = drive(&mut attempt, &mut bench.pages, |_, _| {
        Outcome::Reclaimed(Reclaimed { pages: 32, scanned: 32, left: 0 })
    });
    assert!(matches!(last, Next::Fail(_)));
    assert_eq!(bench.failures(), 0);
}

/// kswapd leaves a node whose memory is free in small blocks to kcompactd. Source: pages.md#wake-test.
#[test]
fn memory_that_is_free_but_fragmented_is_for_kcompactd() {
    let mut bench = Bench::new(small(), FragmentationPolicy::LINUX_4_20, 1_024);
    bench.leave(ZoneKind::Normal, 1_000, order(3), Migratetype::Movable);
    let huge = PageRequest::user(order(9)).flags(RequestFlags::KSWAPD_RECLAIM);
    assert!(bench.serve(huge).is_err());
    assert!(
        bench.pages.kswapd(NODE).expect("there is one").awake,
        "no block of order 9: not balanced"
    );
    let mut cache = Cache::default();
    bench.run_kswapd(&mut cache);
    bench.run_kswapd(&mut cache);
    assert!(bench.told(wakes_kcompactd) > 0, "kswapd hands over what reclaim cannot make");
}

/// Returns a machine under patch 5 with free pages between the minimum and the low watermark, in reclaimable blocks of
/// this order.
fn between_marks(order: Order) -> Bench {
    let mut bench = Bench::new(small(), FragmentationPolicy::PATCHES_1_5, 1_024);
    let count = 1_200 >> order.get();
    bench.leave(ZoneKind::Normal, count, order, Migratetype::Reclaimable);
    bench
}

/// Patch 5 refuses blocks of order 3 to a movable request, which waits, and lets it mix those of order 4.
/// Source: pages.md#o-14.
#[test]
fn small_blocks_are_spared_and_larger_ones_not() {
    let mut bench = between_marks(order(3));
    let mut attempt =
        bench.pages.alloc(NOW, cpu(), PageRequest::user(Order::ZERO)).expect_err("low");
    let next = attempt.advance(&mut bench.pages, NOW, Outcome::Begin);
    assert_eq!(next, Next::Stall { until: Nanos(20_000_000) });
    let counters = bench.pages.counters();
    assert_eq!((counters.stall_refusals, counters.events()), (1, 0));
    // 512 for the refusal and 3584 for the wait, of which the bound, 15000/10000 of 1536, leaves 2304.
    assert_eq!(bench.boost(), 2_304);
    let boosts: Vec<u64> = bench
        .log
        .0
        .borrow()
        .iter()
        .filter_map(|event| match event {
            PageEvent::Boosted { boost, .. } => Some(boost.0),
            _ => None,
        })
        .collect();
    assert_eq!(boosts, [512, 2_304]);
    assert!(bench.pages.kswapd(NODE).expect("there is one").awake);

    let mut bench = between_marks(order(4));
    assert!(bench.serve(PageRequest::user(Order::ZERO)).is_ok());
    let counters = bench.pages.counters();
    assert_eq!((counters.stall_refusals, counters.events(), bench.boost()), (0, 1, 512));
}

/// Patch 5 refuses nothing to a request that is not movable, cannot reclaim, or itself frees memory.
/// Source: pages.md#o-14.
#[test]
fn who_cannot_wait_or_is_not_movable_is_never_refused() {
    for request in [
        PageRequest::new(Order::ZERO, Migratetype::Unmovable),
        PageRequest::user(Order::ZERO).flags(RequestFlags::KSWAPD_RECLAIM),
        PageRequest::user(Order::ZERO).flags(ALL_OF_IT),
    ] {
        let mut bench = between_marks(order(3));
        assert!(bench.serve(request).is_ok(), "{request:?}");
        assert_eq!(bench.pages.counters().stalls, 0, "{request:?}");
        assert_eq!(bench.pages.counters().events(), 1, "{request:?}");
    }
}

#[test]
fn waits_end_with_kswapd_and_count_only_if_they_take_time() {
    for (waited, stalls) in [(0, 0), (1, 1)] {
        let mut bench = between_marks(order(3));
        let mut attempt =
            bench.pages.alloc(NOW, cpu(), PageRequest::user(Order::ZERO)).expect_err("low");
        assert!(matches!(
            attempt.advance(&mut bench.pages, NOW, Outcome::Begin),
            Next::Stall { .. }
        ));
        assert!(!attempt.may_resume(&bench.pages));
        let mut cache = Cache::default();
        Kswapd::new(NODE).step(NOW, &mut bench.pages, &mut cache, PageBudget { pages: u64::MAX });
        assert!(attempt.may_resume(&bench.pages));
        let _ = attempt.advance(&mut bench.pages, Nanos(waited), Outcome::Waited);
        let counters = bench.pages.counters();
        assert_eq!((counters.stalls, counters.stalled), (stalls, Nanos(waited)));
        let told = bench.told(|event| matches!(event, PageEvent::FragmentationStall { .. }));
        assert_eq!(told as u64, stalls);
    }
}

#[test]
fn a_caller_reclaims_a_batch_and_is_served() {
    let mut bench = Bench::new(small(), FragmentationPolicy::LINUX_4_20, 1_024);
    let pages = bench.take_all(PageRequest::user(Order::ZERO)).into();
    let mut cache = Cache { pages, ..Cache::default() };
    let pfn = bench.pages.serve(NOW, cpu(), PageRequest::user(Order::ZERO), &mut cache);
    assert!(pfn.is_ok());
    let counters = bench.pages.counters();
    assert!(counters.direct_reclaims >= 1);
    assert_eq!(counters.reclaimed_direct, 32 * counters.direct_reclaims);
    assert!(cache.asked.iter().all(|asked| asked.pages == 32 && asked.priority == 12));
}

#[test]
fn a_caller_compacts_for_a_huge_page() {
    let mut bench = Bench::new(small(), FragmentationPolicy::LINUX_7_2, 1_024);
    let taken = bench.take_all(PageRequest::user(Order::ZERO));
    let (free, kept): (Vec<Pfn>, Vec<Pfn>) = taken.into_iter().partition(|pfn| pfn.0 & 1 == 0);
    for &pfn in &kept {
        bench.pages.set_movable(pfn, true).expect("it is in use");
    }
    bench.free(free);
    let id = bench.pages.zones().next().expect("there is one").id;
    assert_eq!(bench.pages.free_blocks(id, order(1), Migratetype::Movable), 0);
    let mut cache = Cache { pages: kept.into(), ..Cache::default() };
    let pfn = bench.pages.serve(NOW, cpu(), PageRequest::user(order(9)), &mut cache);
    assert!(pfn.is_ok(), "{pfn:?}");
    let counters = bench.pages.counters();
    assert!(counters.moved > 0 && counters.compact_successes == 1);
    assert_eq!(counters.reclaimed_direct, 0);
}

#[test]
fn a_failure_says_what_was_free_and_why_it_did_not_do() {
    let mut bench = Bench::new(small(), FragmentationPolicy::LINUX_4_20, 1_024);
    bench.leave(ZoneKind::Normal, 50, order(3), Migratetype::Movable);
    let report = bench.serve(PageRequest::user(Order::ZERO)).expect_err("it is below the mark");
    assert_eq!(report.reason, FailureReason::OutOfMemory);
    let zone = report.zones().next().expect("there is one");
    assert_eq!(zone.refusal, Refusal::Watermark { usable: 400, mark: 1_024 });
    assert_eq!(zone.free, [0, 0, 0, 50, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bench.pages.counters().failures[0], 1);

    let mut bench = Bench::new(small(), FragmentationPolicy::LINUX_4_20, 64);
    bench.leave(ZoneKind::Normal, 500, order(3), Migratetype::Movable);
    let report = bench.serve(PageRequest::user(order(4))).expect_err("no block is large enough");
    assert_eq!(report.reason, FailureReason::GaveUp);
    let zone = report.zones().next().expect("there is one");
    assert_eq!(zone.refusal, Refusal::Order { largest: Some(order(3)) });
    assert_eq!(
        report.to_string(),
        "order 4 Movable: it reached the limits on retries; node 0 Normal: no free block above \
         order 3, free 0 0 0 500 0 0 0 0 0 0 0"
    );
}

#[test]
fn a_request_that_no_zone_may_serve_fails_like_any_other() {
    let mut bench = Bench::new(small(), FragmentationPolicy::LINUX_5_3, 1_024);
    for request in [
        PageRequest { zone: ZoneKind::Dma32, ..PageRequest::user(Order::ZERO) },
        PageRequest {
            nodes: nofrag::page::NodeMask::only(NodeId(7)),
            ..PageRequest::user(Order::ZERO)
        },
        PageRequest::user(Order::ZERO).on(NodeId(7)),
    ] {
        let report = bench.serve(request).expect_err("there is no such zone");
        assert_eq!(report.reason, FailureReason::NoZone);
        assert!(report.zones().all(|zone| zone.refusal == Refusal::NotAllowed));
    }
}

#[test]
fn a_request_that_takes_ten_seconds_is_told_of_once() {
    let mut bench = Bench::new(small(), FragmentationPolicy::LINUX_7_2, 1_024);
    bench.leave(ZoneKind::Normal, 0, order(3), Migratetype::Movable);
    let mut attempt =
        bench.pages.alloc(NOW, cpu(), PageRequest::user(Order::ZERO)).expect_err("low");
    let mut outcome = Outcome::Begin;
    for seconds in 0..40 {
        let now = Nanos(seconds * 1_000_000_000 / 2);
        if matches!(attempt.advance(&mut bench.pages, now, outcome), Next::Fail(_)) {
            break;
        }
        outcome = Outcome::Reclaimed(Reclaimed { pages: 32, scanned: 32, left: 0 });
    }
    assert_eq!(bench.told(|event| matches!(event, PageEvent::AllocationStall { .. })), 1);
}

#[test]
fn an_attempt_that_is_over_stays_so() {
    let mut bench = Bench::new(small(), FragmentationPolicy::LINUX_4_20, 1_024);
    bench.leave(ZoneKind::Normal, 140, order(3), Migratetype::Movable);
    let request = PageRequest::user(Order::ZERO);
    let mut attempt = bench.pages.alloc(NOW, cpu(), request).expect_err("it is below low");
    assert!(matches!(attempt.advance(&mut bench.pages, NOW, Outcome::Begin), Next::Done(_)));
    let free = bench.free_pages();
    for outcome in [Outcome::Begin, Outcome::Waited, Outcome::Migrated(MoveResults(1))] {
        let Next::Fail(report) = attempt.advance(&mut bench.pages, NOW, outcome) else {
            panic!("it was served before");
        };
        assert_eq!(report.reason, FailureReason::Over);
    }
    assert_eq!(bench.free_pages(), free);
}

/// Returns the report of a hostile caller, whatever it was asked.
fn lie(number: u64) -> Outcome {
    match number % 6 {
        0 => Outcome::Begin,
        1 => Outcome::Waited,
        2 => Outcome::Reclaimed(Reclaimed { pages: 0, scanned: number, left: number }),
        3 => Outcome::Reclaimed(Reclaimed { pages: number, scanned: 0, left: u64::MAX }),
        4 => Outcome::Reclaimed(Reclaimed { pages: u64::MAX, scanned: u64::MAX, left: u64::MAX }),
        _ => Outcome::Migrated(MoveResults(0)),
    }
}

/// Moves what the owner of a half-used machine holds, or refuses, by chance.
fn migrate(moves: &nofrag::page::Moves, cache: &mut Cache, mut chance: u64) -> MoveResults {
    let mut results = MoveResults::default();
    for (index, pair) in moves.pairs().iter().enumerate() {
        chance = chance.rotate_left(7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if chance & 1 == 1 && cache.migrate(pair.from, pair.to, pair.order) {
            results.0 |= 1 << index;
        }
    }
    results
}

fn config() -> Config {
    Config { cases: 40, rng_seed: RngSeed::Fixed(2018), ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_attempt_of_every_preset_ends(
        seed in any::<u64>(),
        flags in 0_u16..1 << 9,
        size in 0_u8..=10,
        kind in 0_usize..3,
        holes in 1_u64..6,
        lies in prop::collection::vec(any::<u64>(), 1..40),
    ) {
        for preset in FragmentationPolicy::PRESETS {
            let mut bench = Bench::new(
                machine(&[&[zone(ZoneKind::Dma32, 0, 8 * MIB), zone(ZoneKind::Normal, 8 * MIB, 8 * MIB)]]),
                preset.policy,
                128,
            );
            let taken = bench.take_all(PageRequest::user(Order::ZERO));
            let (free, kept): (Vec<Pfn>, Vec<Pfn>) =
                taken.into_iter().partition(|pfn| (pfn.0 ^ seed) % 7 < holes);
            for &pfn in &kept {
                bench.pages.set_movable(pfn, true).expect("it is in use");
            }
            let all = free.len() as u64;
            bench.free(free);
            bench.check();
            let mut cache = Cache { pages: kept.into(), ..Cache::default() };
            let request = PageRequest::new(order(size), Migratetype::MOBILITY[kind])
                .flags(RequestFlags(flags));
            let taken = match bench.pages.alloc(NOW, cpu(), request) {
                Ok(_) => request.order.pages(),
                Err(mut attempt) => {
                    let mut said = lies.iter().copied().cycle();
                    let (_, last) = drive(&mut attempt, &mut bench.pages, |_, next| {
                        let number = said.next().expect("it goes round");
                        match next {
                            Next::Migrate(moves) if number % 3 > 0 => {
                                Outcome::Migrated(migrate(&moves, &mut cache, number))
                            }
                            _ => lie(number),
                        }
                    });
                    if matches!(last, Next::Done(_)) { request.order.pages() } else { 0 }
                }
            };
            bench.pages.drain_all();
            bench.check();
            prop_assert_eq!(bench.free_pages() + taken, all, "{} keeps all pages", preset.name);
        }
    }
}
