//! Gorman 2018, "Fragmentation avoidance improvements": its rules and formulas, through the public face,
//! by the values of docs/sources/pages.md#exact-values.
//!
//! Formulas that nothing outside can see alone are tested where they stand: the watermark check with each right and
//! `min_free_kbytes` up to 8 TiB (`watermark`), what may be claimed (`fallback`), gaps and marks of compaction
//! (`compaction::suitable`), deferral (`compaction::deferral`), bounds of boosts (`boost`). The workload and the
//! published figures are in the lab.

use crate::page_bench::{Bench, GIB, LARGEST, order};
use Migratetype::{Movable, Reclaimable, Unmovable};
use nofrag::check::Check;
use nofrag::event::{Event, EventSink};
use nofrag::page::{
    FragmentationIndices, FragmentationPolicy, Kswapd, MemoryMap, Migratetype, MinFree, Next,
    NodeId, Outcome, PageAllocator, PageBudget, PageConfig, PageCounters, PageEvent, PageRequest,
    Reclaim, ReclaimRequest, Reclaimed, RequestFlags, Watermarks, ZoneKind,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};
use rand::prelude::*;
use std::cell::RefCell;

type Policy = FragmentationPolicy;

/// Returns the document's machine: DMA32 of 3 GiB and Normal of 5 GiB, of which `min_free` is kept free.
fn document_machine(min_free: MinFree, policy: Policy) -> PageConfig {
    let map = MemoryMap::uma(PageCount(8 * GIB), 375, 1).unwrap();
    PageConfig { min_free, ..PageConfig::new(map, policy) }
}

/// By the formula zones keep the square root of 16 times the memory in KiB free, in whole pages. Source: pages.md#o-1.
#[test]
fn min_free_by_the_formula() {
    let kib = |map, policy| {
        let config = PageConfig { min_free: MinFree::Formula, ..PageConfig::new(map, policy) };
        Bench::of(&config).pages.zones().map(|zone| zone.watermarks.min * 4).sum::<u64>()
    };
    let of = |pages| kib(MemoryMap::uma(PageCount(pages), 0, 1).unwrap(), Policy::LINUX_7_2);
    assert_eq!(of(128), 128);
    assert_eq!(of(GIB), 4096);
    assert_eq!(of(8 * GIB), 11584, "11585 in whole pages");
    assert_eq!(of(16 * GIB), 16384);
}

/// For huge pages zones keep 5632 pages each, and together at most a twentieth of the memory. Source: pages.md#o-2.
#[test]
fn min_free_for_huge_pages() {
    let reserve = |config: PageConfig| {
        Bench::of(&config).pages.zones().map(|zone| zone.watermarks.min).sum::<u64>()
    };
    let pages = |map| reserve(PageConfig::new(map, Policy::LINUX_4_20));
    assert_eq!(pages(MemoryMap::uma(PageCount(8 * GIB), 0, 1).unwrap()), 5632);
    assert_eq!(pages(MemoryMap::uma(PageCount(8 * GIB), 375, 1).unwrap()), 11264);
    let three = pages(MemoryMap::pc(PageCount(8 * GIB), 1).unwrap());
    assert!((16894..=16896).contains(&three), "each zone rounds its share down: {three}");
    let capped = pages(MemoryMap::uma(PageCount(GIB), 500, 1).unwrap());
    assert!((11262..=11264).contains(&capped), "{capped}");
    let capped = pages(MemoryMap::uma(PageCount(GIB / 2), 500, 1).unwrap());
    assert!((6551..=6553).contains(&capped), "a twentieth of half a GiB: {capped}");
}

/// A reserve of 16896 pages gives DMA32 and Normal the marks of the document's machine. Source: pages.md#o-3.
#[test]
fn watermarks_of_the_documents_machine() {
    let bench = Bench::of(&document_machine(MinFree::Pages(16896), Policy::LINUX_7_2));
    let dma32 = Watermarks { min: 6336, low: 7920, high: 9504, promo: 11088 };
    let normal = Watermarks { min: 10560, low: 13200, high: 15840, promo: 18480 };
    assert_eq!([0, 1].map(|place| bench.zone(place).watermarks), [dma32, normal]);
}

/// A zone withholds a 256th of the pages of the zones above it from the requests that may use those.
/// Source: pages.md#o-4.
#[test]
fn lowmem_reserve_of_the_documents_machine() {
    let bench = Bench::of(&document_machine(MinFree::HugePages, Policy::LINUX_7_2));
    assert_eq!(bench.zone(0).lowmem_reserve[ZoneKind::Normal.index()], 5120);
    let pc = MemoryMap::pc(PageCount(8 * GIB), 1).unwrap();
    let bench = Bench::of(&PageConfig::new(pc, Policy::LINUX_7_2));
    let of = |place: usize, kind: ZoneKind| bench.zone(place).lowmem_reserve[kind.index()];
    assert_eq!(of(1, ZoneKind::Normal), 5120);
    assert_eq!(of(0, ZoneKind::Dma32), 3072 - 16, "DMA32 begins behind the 4096 pages of DMA");
    assert_eq!(of(0, ZoneKind::Normal), 8192 - 16);
    for zone in bench.pages.zones() {
        assert!(zone.lowmem_reserve.is_sorted(), "it grows with the highest zone");
    }
}

/// Returns true if the fast path gives a block of `size` when `free` pages are free in holes of `holes`, and `low` is
/// 100.
fn passes(free: u64, holes: u8, size: u8) -> bool {
    let map = MemoryMap::uma(PageCount(GIB), 0, 1).unwrap();
    let config =
        PageConfig { min_free: MinFree::Pages(74), ..PageConfig::new(map, Policy::LINUX_4_20) };
    let mut bench = Bench::of(&PageConfig { watermark_scale_factor: 1, ..config });
    assert_eq!(bench.zone(1).watermarks.low, 100);
    bench.take_all(0, GIB);
    bench.free_holes(0, holes, free >> holes, Movable);
    bench.free_holes(8 * LARGEST, 0, free % (1 << holes), Movable);
    assert_eq!(bench.zone(1).free, PageCount(free));
    bench.alloc(PageRequest::new(order(size), Movable)).is_ok()
}

/// With as many pages free as the low mark the fast path refuses, with one more it serves, if a block of the order is
/// free. Source: pages.md#o-5.
#[test]
fn the_fast_path_leaves_the_low_mark_free() {
    assert!(!passes(100, 0, 0) && passes(101, 0, 0));
    assert!(!passes(107, 3, 3) && passes(108, 3, 3));
    assert!(!passes(108, 2, 3), "no block of the order");
}

/// The first refill takes 63 pages in zones of 1 GiB and more, and at least one in the smallest. Source: pages.md#o-6.
#[test]
fn a_refill_is_as_large_as_the_zone_allows() {
    let batch = |pages| {
        let mut bench = Bench::normal(pages, Policy::LINUX_4_20);
        bench.take(0, Movable);
        pages - bench.zone(1).free.0
    };
    assert_eq!([2 * GIB, GIB, GIB / 2, 4096].map(batch), [63, 63, 31, 1]);
}

/// Returns a machine whose Normal zone has free pages only in holes of reclaimable blocks, far above all marks.
fn boosting() -> Bench {
    boosting_with(())
}

fn boosting_with<E: EventSink>(events: E) -> Bench<E> {
    let config = document_machine(MinFree::Pages(16896), Policy::PATCHES_1_4);
    let mut bench = Bench::with_events(&config, events);
    bench.take_all(0, 8 * GIB);
    bench.free_holes(3 * GIB, 3, 6000, Reclaimable);
    bench
}

/// Each event boosts Normal by 512 pages until the 47th reaches the bound; under a factor of 0 nothing boosts.
/// Source: pages.md#o-7.
#[test]
fn boosts_add_up_to_their_bound() {
    let mut bench = boosting();
    let mut boosts = Vec::new();
    for event in 1..=48 {
        bench.take(3, Movable);
        assert_eq!(bench.events(), event);
        boosts.push(bench.zone(1).boost.0);
    }
    assert_eq!((boosts[0], boosts[45], boosts[46], boosts[47]), (512, 23552, 23760, 23760));
    assert_eq!(bench.pages.counters().boosts, 47, "the last one changed nothing");
    bench.pages.set_boost_factor(0).unwrap();
    let mut bench = boosting();
    bench.pages.set_boost_factor(0).unwrap();
    bench.take(3, Movable);
    assert_eq!((bench.events(), bench.zone(1).boost.0), (1, 0));
}

/// Returns the boost after one fallback into a block of a zone of `pages` pages, under the repairs of 6.1.
fn boost_of(pages: u64, min_free: u64) -> u64 {
    let policy = Policy { fixes: Policy::LINUX_6_1.fixes, ..Policy::PATCHES_1_4 };
    let map = MemoryMap::uma(PageCount(pages), 0, 1).unwrap();
    let config = PageConfig { min_free: MinFree::Pages(min_free), ..PageConfig::new(map, policy) };
    let mut bench = Bench::of(&PageConfig { watermark_scale_factor: 1, ..config });
    bench.pages.alloc_at(Pfn(0), Order::PAGEBLOCK).unwrap();
    let rest: Vec<Pfn> = (512..1024).step_by(8).map(Pfn).collect();
    for &pfn in &rest {
        bench.pages.alloc_at(pfn, order(3)).unwrap();
    }
    bench.pages.alloc_at(Pfn(1024), Order::PAGEBLOCK).unwrap();
    for start in 1536..pages {
        bench.pages.alloc_at(Pfn(start), Order::ZERO).unwrap();
    }
    rest.iter().step_by(2).for_each(|&pfn| bench.pages.free(bench.cpu, pfn).unwrap());
    bench.take(1, Unmovable);
    assert_eq!(bench.events(), 1);
    bench.zone(1).boost.0
}

/// A zone boosts only if it has four pageblocks and a high mark above 0. Source: pages.md#o-7.
#[test]
fn zones_without_room_for_a_boost_get_none() {
    assert_eq!(boost_of(2048, 68), 512, "a high mark of 102 allows one pageblock");
    assert_eq!(boost_of(2047, 68), 0, "four pageblocks do not fit");
    assert_eq!(boost_of(2048, 0), 0, "the high mark is 0");
}

/// Returns true if one movable request claims the pageblock when all free memory is one block of `size` in a
/// reclaimable pageblock, of which `singles` more pages are free and `movable` are movable.
fn claims(policy: Policy, size: u8, singles: u64, movable: u64) -> bool {
    let mut bench = Bench::normal(8 * LARGEST, policy);
    bench.take_all(0, 8 * LARGEST);
    bench.pages.free(bench.cpu, Pfn(0)).unwrap();
    bench.pages.set_block_type(Pfn(0), Reclaimable).unwrap();
    bench.pages.alloc_at(Pfn(512), Order::PAGEBLOCK).unwrap();
    let inside: Vec<Pfn> = (1 << size..512).map(Pfn).collect();
    for &pfn in &inside {
        bench.pages.alloc_at(pfn, Order::ZERO).unwrap();
    }
    let (freed, used) = inside.split_at(singles as usize);
    freed.iter().for_each(|&pfn| bench.pages.free(bench.cpu, pfn).unwrap());
    let moving = used.iter().take(movable as usize);
    moving.for_each(|&pfn| bench.pages.set_movable(pfn, true).unwrap());
    bench.pages.drain_all();
    assert_eq!(bench.zone(1).free.0, singles + (1 << size));
    bench.take(4, Movable);
    bench.pages.check().unwrap();
    assert_eq!(bench.events(), 1);
    bench.pages.block_type(Pfn(0)) == Some(Movable)
}

/// A movable request claims a pageblock of which 256 pages are free or movable, and not one of 255.
/// Source: pages.md#o-9.
#[test]
fn what_is_claimed_for_movable_pages() {
    for policy in [Policy::LINUX_4_20, Policy::LINUX_6_12] {
        assert!(claims(policy, 6, 36, 156), "100 free and 156 movable");
        assert!(!claims(policy, 6, 36, 155), "100 free and 155 movable");
    }
}

/// Returns true if an unmovable request claims a pageblock of type `kind` with `free` free and `movable` movable pages.
fn claims_unmovable(policy: Policy, kind: Migratetype, free: u64, movable: u64) -> bool {
    let mut bench = Bench::normal(8 * LARGEST, policy);
    bench.take_all(0, 8 * LARGEST);
    bench.pages.free(bench.cpu, Pfn(0)).unwrap();
    bench.pages.set_block_type(Pfn(0), kind).unwrap();
    bench.pages.alloc_at(Pfn(512), Order::PAGEBLOCK).unwrap();
    let inside: Vec<Pfn> = (0..512).map(Pfn).collect();
    for &pfn in &inside {
        bench.pages.alloc_at(pfn, Order::ZERO).unwrap();
    }
    let (freed, used) = inside.split_at(free as usize);
    freed.iter().for_each(|&pfn| bench.pages.free(bench.cpu, pfn).unwrap());
    let moving = used.iter().take(movable as usize);
    moving.for_each(|&pfn| bench.pages.set_movable(pfn, true).unwrap());
    bench.pages.drain_all();
    bench.take(1, Unmovable);
    assert_eq!(bench.events(), 1);
    bench.pages.block_type(Pfn(0)) == Some(Unmovable)
}

/// An unmovable request claims a movable pageblock with at most 256 movable pages, and a reclaimable one with at least
/// 256 free pages. Source: pages.md#o-9.
#[test]
fn what_is_claimed_for_unmovable_pages() {
    for policy in [Policy::LINUX_4_20, Policy::LINUX_6_12] {
        assert!(claims_unmovable(policy, Movable, 100, 256));
        assert!(!claims_unmovable(policy, Movable, 100, 257));
        assert!(claims_unmovable(policy, Reclaimable, 256, 0));
        assert!(!claims_unmovable(policy, Reclaimable, 255, 257));
    }
}

/// Verifies events and pages of one refill of movable pages, when all that is free lies in holes of order `holes` in
/// reclaimable blocks.
#[track_caller]
fn check_refill(policy: Policy, holes: u8, count: u64, pages: u64, events: u64) {
    let mut bench = Bench::normal(GIB, policy);
    bench.take_all(0, GIB);
    bench.free_holes(0, holes, count, Reclaimable);
    let before = bench.zone(1).free.0;
    for _ in 0..63 {
        bench.take(0, Movable);
    }
    bench.pages.check().unwrap();
    assert_eq!(before - bench.zone(1).free.0, pages, "one refill");
    let counted = bench.pages.counters();
    assert_eq!((counted.events(), counted.mistyped[Movable.index()]), (events, 63));
}

/// A refill of 4.20 has an event for each free block that it takes, one of 7.2 for each page. Source: pages.md#o-10.
#[test]
fn events_of_a_refill() {
    check_refill(Policy::LINUX_4_20, 3, 16, 63, 8);
    check_refill(Policy::LINUX_4_20, 0, 128, 63, 63);
    // The pass that must not mix types brings nothing, but the refill after it is twice as large.
    check_refill(Policy::LINUX_7_2, 3, 64, 126, 126);
    check_refill(Policy::LINUX_7_2, 0, 512, 126, 126);
}

/// Returns a machine whose node 0 has DMA32 and Normal of a GiB each, Normal with free pages in reclaimable blocks
/// only.
fn two_zones(map: MemoryMap, policy: Policy) -> Bench {
    let mut bench = Bench::new(map, policy);
    bench.take_all(GIB, 2 * GIB);
    bench.free_holes(GIB, 3, 64, Reclaimable);
    bench
}

/// Serves a movable request. Returns its events, the passes that gave `ALLOC_NOFRAGMENT` up, and the zone of its page.
fn spread(bench: &mut Bench) -> (u64, u64, ZoneKind) {
    let free = [0, 1].map(|place| bench.zone(place).free);
    let pfn = bench.alloc(PageRequest::user(Order::ZERO)).expect("there is enough");
    let changed = (0..2).find(|&place| bench.zone(place).free != free[place]);
    assert!(pfn < Pfn(2 * GIB), "it stays on its node");
    let kind = bench.zone(changed.expect("it is one of the two")).kind;
    (bench.events(), bench.pages.counters().spread_given_up, kind)
}

/// Patch 1 takes a page of DMA32 before it mixes types in Normal; 4.20 and 5.0 mix at once. Source: pages.md#o-11.
#[test]
fn spread_over_zones() {
    use ZoneKind::{Dma32, Normal};
    let map = || MemoryMap::uma(PageCount(2 * GIB), 500, 1).unwrap();
    let free = |policy| spread(&mut two_zones(map(), policy));
    for policy in [Policy::PATCH_1, Policy::PATCHES_1_2, Policy::PATCHES_1_4, Policy::LINUX_5_3] {
        assert_eq!(free(policy), (0, 0, Dma32));
    }
    assert_eq!(free(Policy::LINUX_4_20), (8, 0, Normal));
    assert_eq!(free(Policy::LINUX_5_0), (8, 0, Normal), "the flag is lost");
    let full = |policy| {
        let mut bench = two_zones(map(), policy);
        bench.take_all(0, GIB);
        spread(&mut bench)
    };
    assert_eq!(full(Policy::PATCH_1), (8, 1, Normal));
    assert_eq!(full(Policy::LINUX_4_20), (8, 0, Normal));
}

/// Only a request that prefers Normal has a zone to spread to; one for DMA32 mixes types there at once, and gives no
/// flag up. Source: pages.md#patch-1.
#[test]
fn a_request_for_another_zone_than_normal_does_not_spread() {
    let map = MemoryMap::uma(PageCount(2 * GIB), 500, 1).unwrap();
    let mut bench = Bench::new(map, Policy::PATCH_1);
    bench.take_all(0, GIB);
    bench.free_holes(0, 3, 64, Reclaimable);
    let request = PageRequest { zone: ZoneKind::Dma32, ..PageRequest::user(Order::ZERO) };
    let pfn = bench.alloc(request).expect("there is enough");
    assert!(pfn < Pfn(GIB), "{pfn:?}");
    assert_eq!((bench.events(), bench.pages.counters().spread_given_up), (8, 0));
}

/// Before the walk would leave the node, patch 1 gives its flag up and mixes types there. Source: pages.md#o-11.
#[test]
fn a_remote_node_clears_the_flag() {
    let map = MemoryMap::numa(2, PageCount(2 * GIB), 500, 1).unwrap();
    let mut bench = two_zones(map, Policy::PATCH_1);
    bench.take_all(0, GIB);
    assert_eq!(spread(&mut bench), (8, 1, ZoneKind::Normal));
    assert_eq!(bench.zone(2).free.0, 2 * GIB, "the other node is left alone");
}

/// An owner that reclaims by freeing pages that it holds, and makes requests that mix types meanwhile.
#[derive(Default)]
struct Owner {
    held: Vec<Pfn>,
    /// Requests for blocks that it makes during its first call.
    meanwhile: u64,
    asked: Vec<ReclaimRequest>,
}

impl<E: EventSink> Reclaim<E> for Owner {
    fn reclaim(&mut self, pages: &mut PageAllocator<E>, wanted: ReclaimRequest) -> Reclaimed {
        self.asked.push(wanted);
        let map = MemoryMap::uma(PageCount(1), 0, 1).unwrap();
        let cpu = map.cpus().by_rank(0).unwrap();
        for _ in 0..std::mem::take(&mut self.meanwhile) {
            pages.alloc(Nanos(0), cpu, PageRequest::new(order(3), Movable)).unwrap();
        }
        let count = self.held.len().min(wanted.pages as usize);
        for pfn in self.held.drain(..count) {
            pages.free(cpu, pfn).unwrap();
        }
        let (pages, left) = (count as u64, self.held.len() as u64);
        Reclaimed { pages, scanned: pages, left }
    }
}

/// The orders for which kcompactd was asked.
#[derive(Default)]
struct Wakes(RefCell<Vec<Order>>);

impl EventSink for Wakes {
    fn record(&self, event: Event) {
        if let Event::Page(PageEvent::KcompactdAsked { order, .. }) = event {
            self.0.borrow_mut().push(order);
        }
    }
}

/// Lets kswapd work off two boosts, while `meanwhile` more come. Returns the boost with the number of wakes of
/// kcompactd, at the start, after each change and at the end, and the owner, who knows what was asked for.
fn hand_over(meanwhile: u64) -> (Vec<(u64, usize)>, Owner) {
    let wakes = Wakes::default();
    let mut bench = boosting_with(&wakes);
    bench.take(3, Movable);
    bench.take(3, Movable);
    let start = 4 * GIB;
    bench.free_holes(start, 0, 1, Reclaimable);
    let held = (start + 1..start + LARGEST).map(Pfn).collect();
    let mut owner = Owner { held, meanwhile, asked: Vec::new() };
    let mut kswapd = Kswapd::new(NodeId(0));
    let mut seen = vec![(bench.zone(1).boost.0, 0)];
    while kswapd.step(Nanos(0), &mut bench.pages, &mut owner, PageBudget { pages: 32 }).more {
        let now = (bench.zone(1).boost.0, wakes.0.borrow().len());
        if now.0 != seen[seen.len() - 1].0 {
            seen.push(now);
        }
        assert!(owner.asked.len() < 1000, "the run ends");
    }
    seen.push((bench.zone(1).boost.0, wakes.0.borrow().len()));
    assert!(wakes.0.borrow().iter().all(|&order| order == Order::PAGEBLOCK));
    (seen, owner)
}

/// A boost that comes during a run of kswapd survives the run, which wakes kcompactd once, at order 9.
/// Source: pages.md#o-12.
#[test]
fn what_is_boosted_during_a_run_survives_it() {
    assert_eq!(hand_over(0).0, [(1024, 0), (0, 1)]);
    // What survives is worked off by the next run.
    assert_eq!(hand_over(1).0, [(1024, 0), (1536, 0), (512, 1), (0, 2)]);
}

/// A boosted run neither writes nor swaps, stays at priority 10 or above, and ends after a pass that brings nothing.
/// Source: pages.md#o-13.
#[test]
fn boosted_reclaim_is_gentle() {
    let mut bench = boosting();
    bench.take(3, Movable);
    let mut owner = Owner::default();
    let mut kswapd = Kswapd::new(NodeId(0));
    let budget = PageBudget { pages: u64::MAX };
    let progress = kswapd.step(Nanos(0), &mut bench.pages, &mut owner, budget);
    assert!(!progress.more, "one pass that brings nothing ends the run");
    assert_eq!(owner.asked.len(), 1);
    let info = bench.pages.kswapd(NodeId(0)).unwrap();
    assert!(!info.awake);
    assert_eq!(bench.zone(1).boost.0, 0);
    let (_, worked) = hand_over(0);
    for asked in owner.asked.iter().chain(&worked.asked) {
        assert!(!asked.may.write && !asked.may.swap);
        assert!(asked.priority >= 10, "{}", asked.priority);
    }
}

/// Returns a zone between its minimum and its low mark with holes of `size`, under patch 5.
fn stalling(size: u8) -> Bench {
    let map = MemoryMap::uma(PageCount(GIB), 0, 1).unwrap();
    let config = PageConfig::new(map, Policy::PATCHES_1_5);
    let config = PageConfig { min_free: MinFree::Pages(0), ..config };
    let mut bench = Bench::of(&PageConfig { watermark_scale_factor: 200, ..config });
    bench.take_all(0, GIB);
    bench.free_holes(0, size, 4800 >> size, Reclaimable);
    assert!(bench.zone(1).free.0 < bench.zone(1).watermarks.low);
    bench
}

/// Returns the first step of the slow path for a request that the fast path cannot serve.
fn first_step(bench: &mut Bench, request: PageRequest) -> Next {
    let mut attempt = bench.alloc(request).expect_err("less than the low mark is free");
    attempt.advance(&mut bench.pages, Nanos(7), Outcome::Begin)
}

/// A refused request boosts by 512 and 3584 pages, waits at most 20 ms, and is served after the wait.
/// Source: pages.md#o-14.
#[test]
fn a_stall_boosts_and_ends_with_the_wait() {
    let mut bench = stalling(3);
    let user = PageRequest::user(order(1));
    let mut attempt = bench.alloc(user).expect_err("less than the low mark is free");
    let next = attempt.advance(&mut bench.pages, Nanos(7), Outcome::Begin);
    assert_eq!(next, Next::Stall { until: Nanos(20_000_007) });
    assert_eq!(bench.zone(1).boost.0, 512 + 3584, "of the refusal, and of the wait");
    let counted = bench.pages.counters();
    assert_eq!((counted.events(), counted.stall_refusals, counted.stalls), (0, 1, 0));
    let next = attempt.advance(&mut bench.pages, Nanos(15_000_007), Outcome::Waited);
    assert!(matches!(next, Next::Done(_)));
    let counted = bench.pages.counters();
    assert_eq!((counted.events(), counted.stalls, counted.stalled), (1, 1, Nanos(15_000_000)));
}

/// Patch 5 refuses no block of order 4, no unmovable request, and no caller that cannot reclaim. Source: pages.md#o-14.
#[test]
fn who_never_stalls() {
    let served = |bench: &mut Bench, request| {
        let next = first_step(bench, request);
        assert!(matches!(next, Next::Done(_)), "{next:?}");
        assert_eq!((bench.events(), bench.pages.counters().stall_refusals), (1, 0));
    };
    let user = PageRequest::user(order(1));
    served(&mut stalling(4), user);
    served(&mut stalling(3), PageRequest::new(order(1), Unmovable));
    served(&mut stalling(3), user.flags(RequestFlags::KSWAPD_RECLAIM));
}

/// Returns the indices for huge pages of a zone whose free memory is these holes, as pairs of order and number.
fn indices(free: &[(u8, u64)]) -> FragmentationIndices {
    let mut bench = Bench::normal(16 * LARGEST, Policy::LINUX_4_20);
    bench.take_all(0, 16 * LARGEST);
    for (place, &(size, count)) in free.iter().enumerate() {
        let start = place as u64 * 8 * LARGEST;
        if size == Order::MAX.get() {
            bench.pages.free(bench.cpu, Pfn(start)).unwrap();
        } else {
            bench.free_holes(start, size, count, Movable);
        }
    }
    bench.pages.indices(bench.zone(1).id, Order::PAGEBLOCK).unwrap()
}

/// A zone's indices for order 9 have the exact values of six shapes of free memory. Source: pages.md#o-15.
#[test]
fn indices_for_huge_pages_of_a_zone() {
    let of = |fragmentation, unusable, extfrag| FragmentationIndices {
        fragmentation,
        unusable,
        extfrag,
    };
    assert_eq!(indices(&[(0, 1024)]), of(Some(998), 1000, 100));
    assert_eq!(indices(&[(10, 1)]), of(None, 0, 0));
    assert_eq!(indices(&[(8, 2)]), of(Some(0), 1000, 100));
    assert_eq!(indices(&[(0, 1)]), of(Some(-1), 1000, 100));
    assert_eq!(indices(&[]), of(Some(0), 1000, 0));
    assert_eq!(indices(&[(9, 1), (0, 512)]), of(None, 500, 50));
}

/// Metadata of a GiB take at most 12 bytes a page, less than Linux's links, bits and blocks. Source: pages.md#o-21.
#[test]
fn metadata_takes_less_than_linux_needs() {
    let bench = Bench::normal(GIB, Policy::LINUX_7_2);
    let ours = bench.pages.metadata_bytes();
    let linux = 4_194_304 + 32_768 + 256;
    assert!(ours <= 12 << 18, "{ours} bytes for a GiB");
    assert!(ours < linux, "Linux keeps links in {linux} bytes of the same GiB");
}

/// Does a few thousand random operations.
fn random_run(policy: Policy, seed: u64) -> (PageCounters, Vec<Pfn>) {
    let mut chance = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut bench = Bench::normal(16 * LARGEST, policy);
    let mut live = Vec::new();
    for _ in 0..20_000 {
        if chance.random_ratio(3, 5) {
            let size = chance.random_range(0..4) * chance.random_range(0..3);
            let kind = Migratetype::MOBILITY[chance.random_range(0..3)];
            live.extend(bench.alloc(PageRequest::new(order(size), kind)).ok());
        } else if !live.is_empty() {
            let place = chance.random_range(0..live.len());
            bench.pages.free(bench.cpu, live.swap_remove(place)).unwrap();
        }
    }
    (bench.pages.counters().clone(), live)
}

/// Two runs from one seed end with the same counters and blocks, under every preset. Source: pages.md#o-22.
#[test]
fn the_same_inputs_give_the_same_counters() {
    for preset in FragmentationPolicy::PRESETS {
        assert_eq!(random_run(preset.policy, 5), random_run(preset.policy, 5), "{}", preset.name);
    }
    assert_ne!(random_run(Policy::LINUX_4_20, 5).1, random_run(Policy::LINUX_4_20, 6).1);
}

/// Patch 2 is a rename: a run has the same counters and blocks with and without it. Source: pages.md#patch-2.
#[test]
fn patch_2_changes_no_counter() {
    assert_eq!(random_run(Policy::PATCHES_1_2, 9), random_run(Policy::PATCH_1, 9));
}

/// A page taken from a block of order 10 leaves one block of each smaller order, and all pages freed in any order give
/// the block again. Source: pages.md#o-23.
#[test]
fn a_block_in_single_pages_merges_again() {
    for (seed, preset) in FragmentationPolicy::PRESETS.iter().enumerate() {
        let mut bench = Bench::normal(4 * LARGEST, preset.policy);
        bench.take_all(0, 4 * LARGEST);
        bench.pages.free(bench.cpu, Pfn(LARGEST)).unwrap();
        let mut range: Vec<Pfn> = (LARGEST..2 * LARGEST).map(Pfn).collect();
        let id = bench.zone(1).id;
        bench.pages.alloc_at(range[400], Order::ZERO).unwrap();
        let blocks = |bench: &Bench, size| bench.pages.free_blocks(id, size, Movable);
        for size in Order::all() {
            assert_eq!(blocks(&bench, size), u64::from(size < Order::MAX), "{size}");
        }
        for &pfn in range.iter().filter(|pfn| pfn.0 != LARGEST + 400) {
            bench.pages.alloc_at(pfn, Order::ZERO).unwrap();
        }
        range.shuffle(&mut rand_pcg::Pcg64Mcg::seed_from_u64(seed as u64));
        for &pfn in &range {
            bench.pages.free(bench.cpu, pfn).unwrap();
        }
        bench.pages.drain_all();
        assert_eq!(blocks(&bench, Order::MAX), 1);
        assert_eq!(bench.zone(1).free.0, LARGEST);
        bench.pages.check().unwrap();
    }
}

/// A request that takes a block of order 10 converts its two pageblocks, without an event or a boost.
/// Source: pages.md#o-24.
#[test]
fn a_block_of_order_10_changes_two_types() {
    for preset in FragmentationPolicy::PRESETS {
        let mut bench = Bench::normal(8 * LARGEST, preset.policy);
        bench.take(1, Unmovable);
        let starts = (0..8 * LARGEST).step_by(512);
        let unmovable = |&start: &u64| bench.pages.block_type(Pfn(start)) == Some(Unmovable);
        assert_eq!(starts.filter(unmovable).count(), 2, "{}", preset.name);
        let counted = bench.pages.counters();
        assert_eq!((counted.events(), counted.conversions, counted.boosts), (0, 1, 0));
        assert_eq!(bench.zone(1).boost.0, 0);
    }
}
