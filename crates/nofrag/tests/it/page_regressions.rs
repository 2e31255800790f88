//! Bugs of kernels around external fragmentation, one test each, named as in docs/sources/pages.md#repairs: the broken
//! form shows the bug, the fixed one does not. Rows that are not here are about programs that show numbers of kernels
//! or of runs, or about lists and faults, and stand with those. Behind them stand our own bugs.

use super::page_bench::order;
use super::page_pair::{Log, machine, node, zone};
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::page::{
    ExtFrag, FailureReason, Fixes, FragmentationPolicy, Kcompactd, KernelRole, Kswapd, MemoryMap,
    Migrate, Migratetype, MinFree, Next, NodeId, NodeMask, Outcome, PageAllocator, PageBudget,
    PageConfig, PageEvent, PageRequest, PerCpuRules, PolicyPreset, Reclaim, ReclaimRequest,
    Reclaimed, RequestFlags, Spread, ZoneKind,
};
use nofrag::units::{Nanos, Order, Pfn};
use std::collections::BTreeMap;

/// An allocator, the log of its events, and its first CPU.
struct Bench {
    pages: PageAllocator<Log>,
    log: Log,
    cpu: CpuId,
    /// The first frame of the highest zone.
    lowest: u64,
}

/// Frames of the Normal zone of [`two_zones`].
const NORMAL: std::ops::Range<u64> = 5120..9216;

/// Makes a machine of DMA32 and Normal, 16 MiB each.
fn two_zones() -> MemoryMap {
    let dma32 = zone(ZoneKind::Dma32, 1024, 4096);
    machine(&[node(&[0], &[dma32, zone(ZoneKind::Normal, NORMAL.start, 4096)])])
}

/// Makes a machine of Normal alone, 32 MiB.
fn one_zone() -> MemoryMap {
    machine(&[node(&[0], &[zone(ZoneKind::Normal, 0, 8192)])])
}

fn without(policy: FragmentationPolicy, fix: Fixes) -> FragmentationPolicy {
    FragmentationPolicy { fixes: policy.fixes.without(fix), ..policy }
}

fn with(policy: FragmentationPolicy, fix: Fixes) -> FragmentationPolicy {
    FragmentationPolicy { fixes: policy.fixes.with(fix), ..policy }
}

impl Bench {
    fn new(map: MemoryMap, policy: FragmentationPolicy, min_pages: u64) -> Bench {
        Bench::of(&PageConfig {
            min_free: MinFree::Pages(min_pages),
            watermark_scale_factor: 1,
            lowmem_reserve_ratio: [0; ZoneKind::COUNT],
            ..PageConfig::new(map, policy)
        })
    }

    fn of(config: &PageConfig) -> Bench {
        let log = Log::default();
        let cpu = config.map.cpus().by_rank(0).expect("there is a CPU");
        let pages = PageAllocator::with_events(config, log.clone()).expect("the map is sound");
        let zones = config.map.nodes().iter().flat_map(|node| &node.zones);
        let highest = zones.max_by_key(|zone| zone.kind).expect("there is a zone");
        Bench { pages, log, cpu, lowest: highest.span.start.0 }
    }

    fn alloc(&mut self, request: PageRequest) -> Option<Pfn> {
        let page = self.pages.alloc(Nanos(0), self.cpu, request).ok();
        self.pages.check().expect("the laws hold");
        page
    }

    fn free(&mut self, pfn: Pfn) {
        self.pages.free(self.cpu, pfn).expect("it is in use");
        self.pages.check().expect("the laws hold");
    }

    /// Takes blocks until there are no more.
    fn take_all(&mut self, request: PageRequest) -> Vec<Pfn> {
        std::iter::from_fn(|| self.pages.alloc(Nanos(0), self.cpu, request).ok()).collect()
    }

    /// Returns the events since the last call.
    fn told(&self) -> Vec<PageEvent> {
        self.log.0.take()
    }

    /// Returns those events since the last call that are of free blocks below a pageblock.
    fn fragmented(&self) -> Vec<ExtFrag> {
        let event = |event| match event {
            PageEvent::ExternalFragmentation(event) if event.fragmenting() => Some(event),
            _ => None,
        };
        self.told().into_iter().filter_map(event).collect()
    }

    /// Leaves nothing free in the highest zone but RECLAIMABLE blocks of `size`, `count` of them and no two of them
    /// buddies; the zones below are all free.
    fn leave_reclaimable(&mut self, size: u8, count: usize) {
        let request = PageRequest::new(order(size), Migratetype::Reclaimable);
        let taken = self.take_all(request.flags(RequestFlags::NONE));
        let highest = self.pages.zones().last().expect("there is a zone");
        assert!(highest.free.0 <= highest.watermarks.low, "{highest:?}");
        let start = self.lowest;
        let (highest, below): (Vec<Pfn>, Vec<Pfn>) =
            taken.into_iter().partition(|pfn| pfn.0 >= start);
        let others: Vec<Pfn> = highest.into_iter().step_by(2).take(count).collect();
        assert_eq!(others.len(), count);
        others.into_iter().chain(below).for_each(|pfn| self.free(pfn));
        self.pages.drain_all();
        self.told();
    }

    /// Takes `pages` movable pages if they can be had.
    fn break_into(&mut self, pages: usize) {
        for _ in 0..pages {
            let _ = self.alloc(movable_page().flags(RequestFlags::NONE));
        }
    }

    fn boosts(&self) -> u64 {
        self.pages.counters().boosts
    }

    fn wakes(&self) -> u64 {
        self.pages.counters().kswapd_wakes
    }

    /// Returns the boost of the highest zone.
    fn boost(&self) -> u64 {
        self.pages.zones().last().expect("there is a zone").boost.0
    }
}

fn movable_page() -> PageRequest {
    PageRequest::new(Order::ZERO, Migratetype::Movable)
}

/// Serves a movable page where Normal has free pages in reclaimable blocks only. Returns the zone of the page, and the
/// number of events.
fn spread(map: MemoryMap, policy: FragmentationPolicy) -> (ZoneKind, usize) {
    let mut bench = Bench::new(map, policy, 0);
    bench.leave_reclaimable(3, 8);
    let page = bench.alloc(movable_page()).expect("there are free pages");
    let kind = if page.0 >= bench.lowest { ZoneKind::Normal } else { ZoneKind::Dma32 };
    (kind, bench.fragmented().len())
}

/// Where `ALLOC_NOFRAGMENT` is lost, as in 5.0, a movable page breaks into Normal though DMA32 has room (pages.md#b-1).
#[test]
fn nofragment_flag_lost() {
    let normal = (ZoneKind::Normal, 1);
    let dma32 = (ZoneKind::Dma32, 0);
    assert_eq!(spread(two_zones(), FragmentationPolicy::LINUX_5_0), normal);
    assert_eq!(spread(two_zones(), FragmentationPolicy::LINUX_4_20), normal);
    assert_eq!(spread(two_zones(), FragmentationPolicy::PATCHES_1_4), dma32);
    assert_eq!(spread(two_zones(), FragmentationPolicy::LINUX_5_3), dma32);
}

/// Without the order guard a request of order 10 under `ALLOC_NOFRAGMENT` makes pageblocks movable that cannot serve it
/// (pages.md#b-3).
#[test]
fn order_guard() {
    // A caller that frees memory heeds no watermark, and so is not stopped by there being no block of order 10.
    let taken = |policy| {
        let mut bench = Bench::new(one_zone(), policy, 0);
        bench.leave_reclaimable(9, 4);
        let request = PageRequest::new(Order::MAX, Migratetype::Movable);
        let next = ask_once(&mut bench, request.flags(RequestFlags::MEMALLOC));
        assert!(matches!(next, Next::Fail(_)), "{next:?}: no two pageblocks are buddies");
        let zone = bench.pages.zones().last().expect("there is a zone").id;
        bench.pages.free_blocks(zone, Order::PAGEBLOCK, Migratetype::Movable)
    };
    let policy =
        FragmentationPolicy { spread: Spread::EveryRequest, ..FragmentationPolicy::PATCH_1 };
    let policy = with(policy, Fixes::SPREAD_WITHOUT_DMA32);
    assert_eq!(taken(policy), 4, "pageblocks changed type for nothing");
    assert_eq!(taken(with(policy, Fixes::ORDER_GUARD)), 0);
}

/// 5.0 wakes kswapd under the zone's lock, before the event; with the fix the wake follows the event (pages.md#b-4).
#[test]
fn wake_under_lock() {
    let order_of_events = |policy| {
        let mut bench = Bench::new(two_zones(), policy, 0);
        bench.leave_reclaimable(3, 8);
        bench.alloc(movable_page().flags(RequestFlags::RECLAIM)).expect("there are free pages");
        let told = bench.told();
        let at = |wanted: fn(&PageEvent) -> bool| {
            told.iter().position(wanted).unwrap_or_else(|| panic!("it is missing in {told:?}"))
        };
        let woken = at(|event| matches!(event, PageEvent::KswapdWoken { .. }));
        // The event belongs to the change of the lists, under the lock.
        woken < at(|event| matches!(event, PageEvent::ExternalFragmentation(_)))
    };
    let policy = with(FragmentationPolicy::LINUX_5_0, Fixes::WAKE_AFTER_UNLOCK);
    assert!(order_of_events(FragmentationPolicy::LINUX_5_0), "woken under the lock");
    assert!(!order_of_events(policy));
}

/// Returns the number of boosts, and the boost of the highest zone, after movable pages have broken into eight blocks
/// of another type there.
fn boosted(config: &PageConfig) -> (u64, u64) {
    let mut bench = Bench::of(config);
    // Strict lists boost when they look for a block to claim, which for movable pages begins at order 4.
    bench.leave_reclaimable(4, 8);
    bench.break_into(64);
    (bench.boosts(), bench.boost())
}

fn plain(map: MemoryMap, policy: FragmentationPolicy) -> PageConfig {
    PageConfig {
        min_free: MinFree::Pages(0),
        watermark_scale_factor: 1,
        lowmem_reserve_ratio: [0; ZoneKind::COUNT],
        ..PageConfig::new(map, policy)
    }
}

/// Without the fix a zone boosts while its high mark is still 0 (pages.md#b-5).
#[test]
fn early_boot_boost() {
    // No reserve and a scale of nothing: the high mark is 0, as before the marks are computed.
    let policy = with(FragmentationPolicy::LINUX_5_0, Fixes::EARLY_BOOT);
    assert_eq!(boosted(&plain(one_zone(), without(policy, Fixes::EARLY_BOOT))), (1, 512));
    assert_eq!(boosted(&plain(one_zone(), policy)), (0, 0));
}

/// Without the fix a zone of three pageblocks boosts; with it only larger ones do (pages.md#b-6).
#[test]
fn small_zone_boost() {
    let policy = with(FragmentationPolicy::LINUX_5_0, Fixes::SMALL_ZONE);
    let map = |pages| {
        let dma32 = zone(ZoneKind::Dma32, 1024, 4096);
        machine(&[node(&[0], &[dma32, zone(ZoneKind::Normal, NORMAL.start, pages)])])
    };
    let broken = without(policy, Fixes::SMALL_ZONE);
    assert_eq!(boosted(&plain(map(1536), broken)), (1, 512));
    assert_eq!(boosted(&plain(map(1536), policy)), (0, 0));
    assert_eq!(boosted(&plain(map(2048), policy)), (1, 512));
}

/// Under a boost factor of 0, which kernels with nodes that are not NUMA need, no event boosts (pages.md#b-7).
#[test]
fn nodes_not_numa() {
    let mut bench = Bench::new(one_zone(), FragmentationPolicy::LINUX_5_0, 0);
    // What such kernels do: several nodes are not several memories, and nothing may be held back for them.
    bench.pages.set_boost_factor(0).expect("the policy boosts");
    bench.leave_reclaimable(3, 8);
    bench.break_into(64);
    assert!(bench.pages.counters().events() >= 8);
    assert_eq!((bench.boosts(), bench.boost()), (0, 0));
    assert_eq!(boosted(&plain(one_zone(), FragmentationPolicy::LINUX_5_0)).0, 1);
}

/// Without the fix watermarks that are computed anew during a boost keep it for ever (pages.md#b-9).
#[test]
fn boost_baked_in() {
    let marks = |policy| {
        let mut bench = Bench::new(one_zone(), policy, 0);
        bench.leave_reclaimable(3, 8);
        let before = bench.pages.zones().last().expect("there is a zone").watermarks;
        bench.break_into(64);
        assert_eq!(bench.boost(), 512);
        bench.pages.set_watermark_scale_factor(1).expect("it is in the range");
        assert_eq!(bench.boost(), 0, "no boost survives");
        (before, bench.pages.zones().last().expect("there is a zone").watermarks)
    };
    let policy = with(FragmentationPolicy::LINUX_5_0, Fixes::BOOST_ZEROED);
    let (before, after) = marks(without(policy, Fixes::BOOST_ZEROED));
    assert_eq!((after.low, after.high), (before.low + 512, before.high + 512));
    let (before, after) = marks(policy);
    assert_eq!(before, after);
}

/// Counts the wakes of kswapd when a movable page breaks into a block of another type.
fn wakes_of_an_event(policy: FragmentationPolicy, flags: RequestFlags, factor: u32) -> u64 {
    let mut bench = Bench::new(one_zone(), policy, 0);
    bench.pages.set_boost_factor(factor).expect("the policy boosts");
    bench.leave_reclaimable(4, 8);
    // 128 pages are free, between the low mark and the high one, so that the node is not balanced.
    bench.pages.set_watermark_scale_factor(100).expect("it is in the range");
    let before = bench.wakes();
    bench.alloc(movable_page().flags(flags)).expect("there are free pages");
    bench.wakes() - before
}

/// Without the fix a request that must not wake kswapd wakes it by mixing types (pages.md#b-12).
#[test]
fn wake_without_permission() {
    let policy = FragmentationPolicy { spread: Spread::Off, ..FragmentationPolicy::LINUX_6_12 };
    let policy = without(policy, Fixes::EARLY_BOOT);
    let broken = without(policy, Fixes::WAKE_PERMISSION);
    let asks = RequestFlags::KSWAPD_RECLAIM;
    assert_eq!(wakes_of_an_event(broken, RequestFlags::NONE, 15_000), 1);
    assert_eq!(wakes_of_an_event(policy, RequestFlags::NONE, 15_000), 0);
    assert_eq!(wakes_of_an_event(policy, asks, 15_000), 1);
}

/// Without the fix mixing types wakes kswapd though the factor of 0 boosts nothing (pages.md#b-13).
#[test]
fn wake_without_boost() {
    let policy = FragmentationPolicy { spread: Spread::Off, ..FragmentationPolicy::LINUX_6_12 };
    let policy = without(policy, Fixes::EARLY_BOOT);
    let broken = without(policy, Fixes::WAKE_IF_BOOSTED);
    assert_eq!(wakes_of_an_event(broken, RequestFlags::RECLAIM, 0), 1);
    assert_eq!(wakes_of_an_event(policy, RequestFlags::RECLAIM, 0), 0);
    assert_eq!(wakes_of_an_event(policy, RequestFlags::RECLAIM, 15_000), 1);
}

/// A movable page from a reclaimable block is an event of type 1 from type 2 (pages.md#b-14).
#[test]
fn stale_types() {
    // MOVABLE is 1 and RECLAIMABLE 2; a parser that takes 2 for MOVABLE counts the wrong events.
    let numbered = Migratetype::ALL.map(Migratetype::index);
    assert_eq!(numbered, [0, 1, 2, 3, 4, 5]);
    assert_eq!(Migratetype::from_index(1), Some(Migratetype::Movable));
    assert_eq!(Migratetype::from_index(2), Some(Migratetype::Reclaimable));
    let mut bench = Bench::new(one_zone(), FragmentationPolicy::LINUX_4_20, 0);
    bench.leave_reclaimable(3, 8);
    bench.alloc(movable_page()).expect("there are free pages");
    assert_eq!(bench.pages.counters().extfrag[1][2], 1, "a movable page from a reclaimable block");
}

/// Without DMA32 and without the fix the fast path forgets that the request may wake kswapd (pages.md#b-15).
#[test]
fn kswapd_flag_lost() {
    // Normal alone: there is no DMA32. The fast path cannot say that kswapd may be woken.
    let policy = FragmentationPolicy { spread: Spread::Off, ..FragmentationPolicy::LINUX_6_12 };
    let policy = without(policy, Fixes::EARLY_BOOT);
    let broken = without(policy, Fixes::KSWAPD_WITHOUT_DMA32);
    assert_eq!(wakes_of_an_event(broken, RequestFlags::RECLAIM, 15_000), 0);
    assert_eq!(wakes_of_an_event(policy, RequestFlags::RECLAIM, 15_000), 1);
}

/// Without DMA32 defrag mode as 7.2 shipped it mixes types on the fast path; repaired, it refuses (pages.md#b-16).
#[test]
fn dead_defrag_mode() {
    let served = |policy| {
        let mut bench = Bench::new(one_zone(), policy, 0);
        bench.leave_reclaimable(3, 8);
        let page = bench.alloc(movable_page());
        (page.is_some(), bench.fragmented().len())
    };
    let upstream = FragmentationPolicy::LINUX_7_2_DEFRAG_SHIPPED;
    assert_eq!(served(upstream), (true, 1), "types are mixed on the fast path");
    let policy = with(upstream, Fixes::SPREAD_WITHOUT_DMA32);
    assert_eq!(served(policy), (false, 0), "reclaim comes first");
}

/// A refill that tries all passes for each page makes at least twice the visits of one that remembers its pass
/// (pages.md#b-18).
#[test]
fn refill_rescan() {
    // A zone of 1 GiB: a refill takes 63 pages, each from a hole of one page.
    let map = || machine(&[node(&[0], &[zone(ZoneKind::Normal, 0, 262_144)])]);
    let visits = |policy| {
        let mut bench = Bench::new(map(), policy, 0);
        bench.leave_reclaimable(0, 200);
        let before = bench.pages.counters().list_visits;
        bench.alloc(movable_page().flags(RequestFlags::NONE)).expect("there are free pages");
        assert_eq!(bench.pages.counters().events(), 63);
        bench.pages.counters().list_visits - before
    };
    let policy =
        FragmentationPolicy { per_cpu: PerCpuRules::Single, ..FragmentationPolicy::LINUX_6_12 };
    let (broken, fixed) = (visits(without(policy, Fixes::STICKY_REFILL)), visits(policy));
    assert!(broken >= 2 * fixed, "{broken} visits, and {fixed} that remember");
}

/// A page stolen from a block of order 3 leaves seven pages on lists of the wrong type under loose rules, and none
/// under strict ones (pages.md#b-19).
#[test]
fn list_mismatch() {
    // All pageblocks are RECLAIMABLE; what stands on MOVABLE lists stands on the wrong ones.
    let mismatched = |policy| {
        let mut bench = Bench::new(one_zone(), policy, 0);
        bench.leave_reclaimable(3, 8);
        bench.alloc(movable_page().flags(RequestFlags::NONE)).expect("there are free pages");
        let zone = bench.pages.zones().last().expect("there is a zone").id;
        let blocks = |o| bench.pages.free_blocks(zone, o, Migratetype::Movable) << o.get();
        assert_eq!(bench.fragmented().len(), 1);
        Order::all().map(blocks).sum::<u64>()
    };
    assert_eq!(mismatched(FragmentationPolicy::LINUX_4_20), 7);
    assert_eq!(mismatched(FragmentationPolicy::LINUX_6_1), 7);
    for policy in [FragmentationPolicy::LINUX_6_10, FragmentationPolicy::LINUX_6_12] {
        assert_eq!(mismatched(policy), 0);
    }
}

/// An owner that moves what it has published, and does not know of the rest.
struct Publisher {
    published: BTreeMap<u64, u64>,
    stray: usize,
}

impl Migrate for Publisher {
    fn migrate(&mut self, from: Pfn, to: Pfn, _order: Order) -> bool {
        // Its content can be copied all the same; who holds the frame is not told.
        match self.published.values_mut().find(|frame| **frame == from.0) {
            Some(frame) => *frame = to.0,
            None => self.stray += 1,
        }
        true
    }
}

/// Pages that are called movable before their owner publishes them are moved behind its back (pages.md#b-21).
#[test]
fn use_after_migrate() {
    // Every second page has been published; `early` pages were said to be movable before.
    let stray = |early: bool| {
        let mut bench = Bench::new(one_zone(), FragmentationPolicy::LINUX_6_1, 0);
        let pages = bench.take_all(movable_page().flags(RequestFlags::NONE));
        let (kept, freed): (Vec<Pfn>, Vec<Pfn>) = pages.iter().partition(|pfn| pfn.0 % 3 == 0);
        freed.into_iter().for_each(|pfn| bench.pages.free(bench.cpu, pfn).expect("it is in use"));
        bench.pages.drain_all();
        let mut owner = Publisher { published: BTreeMap::new(), stray: 0 };
        for (number, pfn) in kept.iter().enumerate() {
            let published = number % 2 == 0;
            bench.pages.set_movable(*pfn, published || early).expect("it is in use");
            if published {
                owner.published.insert(number as u64, pfn.0);
            }
        }
        let zone = bench.pages.zones().last().expect("there is a zone").id;
        let landed = bench.pages.compact(zone, &mut owner).expect("there is such a zone");
        bench.pages.check().expect("the laws hold");
        assert!(landed.moved > 500, "{landed:?}");
        // Everybody gives back what he thinks is his.
        let unpublished = kept.iter().enumerate().filter(|(number, _)| number % 2 == 1);
        let unpublished: Vec<Pfn> = unpublished.map(|(_, pfn)| *pfn).collect();
        let frames = owner.published.values().map(|&pfn| Pfn(pfn)).chain(unpublished);
        let refused = frames.filter(|&pfn| bench.pages.free(bench.cpu, pfn).is_err()).count();
        bench.pages.check().expect("the laws hold");
        (owner.stray > 0, refused > 0)
    };
    assert_eq!(stray(true), (true, true), "pages moved that nobody had published");
    assert_eq!(stray(false), (false, false));
}

/// Without the fix, which 7.2 lacks, the capture kernel of a crash boosts like any other (pages.md#b-22).
#[test]
fn kdump_boost() {
    let policy = with(FragmentationPolicy::LINUX_5_0, Fixes::KDUMP_EXEMPT);
    let capture = |policy| PageConfig { role: KernelRole::Capture, ..plain(one_zone(), policy) };
    assert_eq!(boosted(&capture(without(policy, Fixes::KDUMP_EXEMPT))), (1, 512));
    assert_eq!(boosted(&capture(policy)), (0, 0));
    assert_eq!(boosted(&plain(one_zone(), policy)), (1, 512));
    // 7.2 lacks it.
    let latest = without(FragmentationPolicy::LINUX_7_2, Fixes::EARLY_BOOT);
    assert_eq!(boosted(&capture(latest)).0, 1);
}

/// Each event boosts by 512 pages and never above the bound, here 1650 (pages.md#b-23).
#[test]
fn over_boost() {
    let mut bench = Bench::new(one_zone(), FragmentationPolicy::LINUX_5_0, 0);
    bench.leave_reclaimable(3, 400);
    // The high mark allows three steps and a bit: 1100 * 15000 / 10000 = 1650.
    bench.pages.set_watermark_scale_factor(672).expect("it is in the range");
    assert_eq!(bench.pages.zones().last().expect("there is a zone").watermarks.high, 1100);
    let request = PageRequest::new(order(3), Migratetype::Movable).flags(RequestFlags::NONE);
    for boost in [512, 1024, 1536, 1650, 1650, 1650] {
        bench.alloc(request).expect("there is enough beyond the marks");
        assert_eq!(bench.fragmented().len(), 1);
        assert_eq!(bench.boost(), boost);
    }
}

/// Asks the slow path once. None of these callers can reclaim, so it ends.
fn ask_once(bench: &mut Bench, request: PageRequest) -> Next {
    match bench.pages.alloc(Nanos(0), bench.cpu, request) {
        Ok(page) => Next::Done(page),
        Err(mut attempt) => attempt.advance(&mut bench.pages, Nanos(0), Outcome::Begin),
    }
}

/// A request that no zone may serve ends with `NoZone`, under every preset (pages.md#b-2).
#[test]
fn null_preferred_zone() {
    for PolicyPreset { name, policy, .. } in FragmentationPolicy::PRESETS {
        let mut bench = Bench::new(two_zones(), *policy, 0);
        let nobody = PageRequest { nodes: NodeMask(0), ..movable_page() };
        let below_all = PageRequest { zone: ZoneKind::Dma, ..movable_page() };
        for request in [nobody, below_all] {
            let next = ask_once(&mut bench, request);
            let reason = FailureReason::NoZone;
            assert!(
                matches!(next, Next::Fail(report) if report.reason == reason),
                "{name}: {next:?}"
            );
            bench.pages.check().expect("the laws hold");
        }
        assert_eq!(bench.pages.counters().spread_given_up, 0, "{name}: there was no flag");
    }
}

/// Without a second test by the unboosted minimum, a single page for an atomic request fails while a boost stands
/// (pages.md#b-10).
#[test]
fn atomic_boosted_min() {
    // Minimum 256, and 512 with the boost more. A request that may not wait gets by with 3/8 of it.
    let left = |policy, flags: RequestFlags| {
        let mut bench = Bench::new(one_zone(), policy, 256);
        let request = PageRequest::new(Order::ZERO, Migratetype::Reclaimable);
        let taken = bench.take_all(request.flags(RequestFlags::NONE));
        taken.into_iter().take(100).for_each(|pfn| bench.free(pfn));
        bench.pages.drain_all();
        bench.alloc(movable_page().flags(RequestFlags::NONE)).expect("it breaks into a block");
        bench.pages.drain_all();
        assert_eq!(bench.boost(), 512);
        while let Next::Done(_) = ask_once(&mut bench, request.flags(flags)) {}
        (bench.pages.zones().last().expect("there is a zone").free.0, bench.boost())
    };
    let policy =
        FragmentationPolicy { per_cpu: PerCpuRules::Single, ..FragmentationPolicy::LINUX_6_12 };
    let atomic = RequestFlags::HIGH.with(RequestFlags::KSWAPD_RECLAIM);
    let (pages, boost) = left(without(policy, Fixes::HIGH_RETEST), atomic);
    assert_eq!(pages, (256 + boost) * 3 / 8);
    assert_eq!(left(policy, atomic).0, 256 * 3 / 8);
    let since_6_1 = with(without(policy, Fixes::HIGH_RETEST), Fixes::ATOMIC_RETEST);
    assert_eq!(left(since_6_1, atomic).0, 256 * 3 / 8);
    // Without the right to more, the boost holds.
    assert_eq!(left(policy, RequestFlags::NONE), (419, 512));
}

/// Without the fix an atomic request in defrag mode fails with 160 pages free (pages.md#b-17).
#[test]
fn defrag_atomic() {
    let ask = |policy| {
        let mut bench = Bench::new(two_zones(), policy, 0);
        let everything = PageRequest::new(order(3), Migratetype::Reclaimable);
        let taken = bench.take_all(everything.flags(RequestFlags::NONE));
        taken.into_iter().step_by(2).take(20).for_each(|pfn| bench.free(pfn));
        bench.pages.drain_all();
        let next = ask_once(&mut bench, PageRequest::atomic(Order::ZERO));
        bench.pages.check().expect("the laws hold");
        next
    };
    let policy = FragmentationPolicy::LINUX_7_2_DEFRAG;
    let broken = ask(without(policy, Fixes::DEFRAG_ATOMIC));
    assert!(matches!(broken, Next::Fail(_)), "{broken:?} with 160 pages free");
    let fixed = ask(policy);
    assert!(matches!(fixed, Next::Done(_)), "{fixed:?}");
}

/// An owner that has nothing to give, and notes what it was asked.
#[derive(Default)]
struct Miser {
    asked: Vec<ReclaimRequest>,
    /// Number of blocks of another type that it takes while it is asked.
    breaks: usize,
}

impl Reclaim<Log> for Miser {
    fn reclaim(&mut self, pages: &mut PageAllocator<Log>, wanted: ReclaimRequest) -> Reclaimed {
        self.asked.push(wanted);
        let cpu = CpuSet::first(1).expect("there is memory").by_rank(0).expect("it has one");
        for _ in 0..std::mem::take(&mut self.breaks) {
            let request = PageRequest::new(order(3), Migratetype::Movable);
            pages.alloc(Nanos(0), cpu, request.flags(RequestFlags::NONE)).expect("there are holes");
        }
        Reclaimed { pages: 0, scanned: 100, left: 0 }
    }
}

/// Runs kswapd until it sleeps.
fn run_kswapd(bench: &mut Bench, kswapd: &mut Kswapd, owner: &mut Miser) {
    for _ in 0..1000 {
        let budget = PageBudget { pages: 1 << 20 };
        let progress = kswapd.step(Nanos(0), &mut bench.pages, owner, budget);
        bench.pages.check().expect("the laws hold");
        if !progress.more {
            return;
        }
    }
    panic!("kswapd does not sleep");
}

/// Returns a machine with 3200 free pages in holes of RECLAIMABLE blocks, so that it is balanced however much it is
/// boosted.
fn roomy(policy: FragmentationPolicy) -> Bench {
    let policy = with(policy, Fixes::KSWAPD_WITHOUT_DMA32);
    let mut bench = Bench::new(one_zone(), policy, 0);
    bench.leave_reclaimable(3, 400);
    bench
}

fn break_into_one(bench: &mut Bench) {
    let request = PageRequest::new(order(3), Migratetype::Movable);
    bench.alloc(request).expect("there are holes");
    assert_eq!(bench.boost(), 512);
}

/// Boosted runs of 5.0 leave slab alone; repaired, and from 5.3 on, they shrink it (pages.md#b-8).
#[test]
fn slab_protected() {
    let scope = |policy| {
        let mut bench = roomy(policy);
        break_into_one(&mut bench);
        let mut owner = Miser::default();
        run_kswapd(&mut bench, &mut Kswapd::new(NodeId(0)), &mut owner);
        assert!(!owner.asked.is_empty(), "kswapd runs");
        assert!(owner.asked.iter().all(|asked| !asked.may.write && !asked.may.swap));
        assert!(owner.asked.iter().all(|asked| asked.priority >= 10));
        owner.asked.iter().all(|asked| asked.may.slab)
    };
    assert!(!scope(FragmentationPolicy::LINUX_5_0));
    assert!(scope(with(FragmentationPolicy::LINUX_5_0, Fixes::SLAB_SHRINKS)));
    assert!(scope(FragmentationPolicy::LINUX_5_3));
}

/// Where boosted runs without progress count as failures, kswapd is not woken after the 16th (pages.md#b-11).
#[test]
fn failure_counter() {
    let wakes = |policy| {
        let mut bench = roomy(policy);
        let mut kswapd = Kswapd::new(NodeId(0));
        for _ in 0..40 {
            break_into_one(&mut bench);
            run_kswapd(&mut bench, &mut kswapd, &mut Miser::default());
            bench.pages.drain_all();
        }
        bench.wakes()
    };
    let policy = with(FragmentationPolicy::LINUX_5_0, Fixes::BOOST_NOT_COUNTED);
    assert_eq!(wakes(policy), 40);
    assert_eq!(wakes(without(policy, Fixes::BOOST_NOT_COUNTED)), 16, "then the node is hopeless");
}

/// A run takes away the boost that it found at its start, and leaves what came meanwhile (pages.md#b-20).
#[test]
fn lost_boost() {
    // What breaks into blocks during the run must not wake kswapd: the next run would take the boost away.
    let policy = with(FragmentationPolicy::LINUX_5_0, Fixes::WAKE_PERMISSION);
    for (breaks, boost) in [(0, 0), (1, 512)] {
        let mut bench = roomy(policy);
        break_into_one(&mut bench);
        let mut owner = Miser { breaks, ..Miser::default() };
        // The high mark is 0, so that the bound is one step; with a higher one both steps would stand.
        bench.pages.set_watermark_scale_factor(672).expect("it is in the range");
        break_into_one(&mut bench);
        run_kswapd(&mut bench, &mut Kswapd::new(NodeId(0)), &mut owner);
        assert_eq!(bench.boost(), boost, "{breaks} boosts during the run");
    }
}

/// Without the fix a request stays on node 0, whose kswapd is awake, though node 1 is free (pages.md#b-25).
#[test]
fn one_node_overreclaim() {
    let map = machine(&[
        node(&[0], &[zone(ZoneKind::Normal, 0, 4096)]),
        node(&[1], &[zone(ZoneKind::Normal, 4096, 4096)]),
    ]);
    let node_of = |policy| {
        let mut bench = Bench::new(map.clone(), policy, 0);
        let local = |request: PageRequest| {
            request.flags(RequestFlags::RECLAIM.with(RequestFlags::THIS_NODE)).on(NodeId(0))
        };
        let reclaimable = PageRequest::new(order(4), Migratetype::Reclaimable);
        let taken = bench.take_all(local(reclaimable));
        taken.into_iter().step_by(2).for_each(|pfn| bench.free(pfn));
        bench.pages.drain_all();
        let movable = PageRequest::new(order(4), Migratetype::Movable);
        bench.alloc(local(movable)).expect("there are holes");
        assert!(bench.wakes() > 0, "node 0 has been woken");
        let page = bench.alloc(PageRequest::user(order(4))).expect("there is memory");
        page.0 / 4096
    };
    let policy = without(FragmentationPolicy::LINUX_7_2, Fixes::EARLY_BOOT);
    let policy = FragmentationPolicy { spread: Spread::Off, ..policy };
    assert_eq!(node_of(without(policy, Fixes::SKIP_AWAKE_NODES)), 0);
    assert_eq!(node_of(policy), 1);
}

/// Events with a free block below order 9 and those below order 4 have counters of their own (pages.md#b-28).
#[test]
fn one_serious_counter() {
    // Free blocks of order 3 and of order 4: both are events, and only the first is what patch 5 calls serious.
    for (size, serious) in [(3, 1), (4, 0)] {
        let mut bench = Bench::new(one_zone(), FragmentationPolicy::LINUX_4_20, 0);
        bench.leave_reclaimable(size, 8);
        bench.alloc(movable_page()).expect("there are free pages");
        let counters = bench.pages.counters();
        assert_eq!(counters.events(), 1, "order {size}");
        assert_eq!(counters.serious.iter().sum::<u64>(), serious, "order {size}");
    }
}

/// An owner that says that it reclaims, and frees nothing.
struct Liar;

impl Reclaim<Log> for Liar {
    fn reclaim(&mut self, _: &mut PageAllocator<Log>, wanted: ReclaimRequest) -> Reclaimed {
        Reclaimed { pages: wanted.pages, scanned: u64::MAX, left: u64::MAX }
    }
}

#[test]
fn a_step_of_kswapd_ends_whatever_the_owner_claims() {
    for preset in FragmentationPolicy::PRESETS {
        let mut bench = Bench::new(one_zone(), preset.policy, 64);
        while bench.pages.alloc(Nanos(0), bench.cpu, PageRequest::user(Order::ZERO)).is_ok() {}
        let attempt = bench.pages.alloc(Nanos(0), bench.cpu, PageRequest::user(Order::ZERO));
        let mut attempt = attempt.expect_err("memory is short");
        attempt.advance(&mut bench.pages, Nanos(0), Outcome::Begin);
        let mut kswapd = Kswapd::new(NodeId(0));
        let all = PageBudget { pages: u64::MAX };
        let done = kswapd.step(Nanos(0), &mut bench.pages, &mut Liar, all);
        assert!(done.more, "{}: the node is not balanced", preset.name);
    }
}

/// An owner that moves nothing.
struct Stubborn;

impl Migrate for Stubborn {
    fn migrate(&mut self, _: Pfn, _: Pfn, _: Order) -> bool {
        false
    }
}

#[test]
fn kcompactd_ends_at_the_end_of_time() {
    let mut bench = Bench::new(one_zone(), FragmentationPolicy::LINUX_7_2, 0);
    for frame in (0..8192).step_by(2) {
        let taken = bench.pages.alloc_at(Pfn(frame), Order::ZERO);
        taken.expect("all is free");
    }
    let mut kcompactd = Kcompactd::new(NodeId(0));
    let all = PageBudget { pages: u64::MAX };
    for now in [0, u64::MAX - 1, u64::MAX, 1, u64::MAX] {
        let done = kcompactd.step(Nanos(now), &mut bench.pages, &mut Stubborn, all);
        assert!(!done.more);
    }
}

#[test]
fn a_cpu_of_another_machine_has_no_lists() {
    let strangers = CpuSet::first(9).expect("there is memory");
    let stranger = strangers.by_rank(8).expect("it has nine");
    for preset in FragmentationPolicy::PRESETS {
        let mut bench = Bench::new(two_zones(), preset.policy, 0);
        bench.cpu = stranger;
        let managed: u64 = bench.pages.zones().map(|zone| zone.managed.0).sum();
        let page = bench.alloc(PageRequest::user(Order::ZERO)).expect("all is free");
        let mut out = [Pfn(0); 3];
        let request = PageRequest::atomic(order(3));
        assert_eq!(bench.pages.alloc_bulk(Nanos(0), stranger, request, &mut out), 3);
        bench.free(page);
        bench.pages.free_bulk(stranger, &out).expect("they are in use");
        bench.pages.drain(stranger);
        let free: u64 = bench.pages.zones().map(|zone| zone.free.0).sum();
        assert_eq!(free, managed, "{}: nothing waits on a list", preset.name);
    }
}

#[test]
fn a_pageblock_that_zones_share_is_not_emptied_into_one_of_them() {
    // The pageblock at frame 1024 is shared; of all that are not whole it is the emptiest.
    let map = machine(&[node(
        &[0],
        &[zone(ZoneKind::Dma32, 512, 700), zone(ZoneKind::Normal, 1212, 8000)],
    )]);
    let mut bench = Bench::new(map, FragmentationPolicy::NOFRAG, 64);
    for frame in (512..1024).chain(1024..1056).chain(1212..1244).chain(1536..9212) {
        let empty = frame >= 1536 && frame % 4 == 0;
        if !empty {
            let taken = bench.pages.alloc_at(Pfn(frame), Order::ZERO);
            taken.expect("all is free");
            bench.pages.set_movable(Pfn(frame), true).expect("it is in use");
        }
    }
    bench.pages.check().expect("the laws hold");
    let request = PageRequest::user(Order::PAGEBLOCK);
    let mut attempt = bench.pages.alloc(Nanos(0), bench.cpu, request).expect_err("none is whole");
    attempt.advance(&mut bench.pages, Nanos(0), Outcome::Begin);
    attempt.abandon(&mut bench.pages);
    let (all, mut owner) = (PageBudget { pages: u64::MAX }, Unshared(0));
    Kswapd::new(NodeId(0)).step(Nanos(0), &mut bench.pages, &mut owner, all);
    Kcompactd::new(NodeId(0)).step(Nanos(0), &mut bench.pages, &mut owner, all);
    bench.pages.check().expect("the laws hold");
    assert!(owner.0 > 0, "there are others to empty");
}

/// An owner that reclaims nothing, counts what it moves, and panics at a move out of the pageblock that zones share.
struct Unshared(u64);

impl Reclaim<Log> for Unshared {
    fn reclaim(&mut self, _: &mut PageAllocator<Log>, _: ReclaimRequest) -> Reclaimed {
        Reclaimed::default()
    }
}

impl Migrate for Unshared {
    fn migrate(&mut self, from: Pfn, _: Pfn, _: Order) -> bool {
        assert!(from.0 >= 1536, "{from} moves out of the shared pageblock");
        self.0 += 1;
        true
    }
}

#[test]
fn isolated_pageblocks_balance_no_node() {
    let mut bench = Bench::new(one_zone(), FragmentationPolicy::LINUX_7_2_DEFRAG, 64);
    for frame in (0..8192).step_by(512) {
        bench.pages.set_block_type(Pfn(frame), Migratetype::Isolate).expect("it is whole");
    }
    let request = PageRequest::new(Order::PAGEBLOCK, Migratetype::Movable);
    let attempt = bench.pages.alloc(Nanos(0), bench.cpu, request);
    let mut attempt = attempt.expect_err("nobody has isolated memory");
    attempt.advance(&mut bench.pages, Nanos(0), Outcome::Begin);
    let kswapd = bench.pages.kswapd(NodeId(0)).expect("there is one node");
    assert!(kswapd.awake, "there is work for it");
}

#[test]
fn a_mask_of_a_node_that_no_map_has_is_empty() {
    assert_eq!(NodeMask::only(NodeId(63)), NodeMask(1 << 63));
    assert_eq!(NodeMask::only(NodeId(64)), NodeMask(0));
}

#[test]
fn no_limit_of_the_formula_is_too_low() {
    let policy = FragmentationPolicy { min_free_limit_kib: 0, ..FragmentationPolicy::LINUX_7_2 };
    let config = PageConfig { min_free: MinFree::Formula, ..PageConfig::new(one_zone(), policy) };
    let pages = PageAllocator::new(&config).expect("there is memory");
    assert_eq!(pages.zones().next().map(|zone| zone.watermarks.min), Some(0));
}
