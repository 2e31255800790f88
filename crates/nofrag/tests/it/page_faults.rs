//! Wrong calls, and machines that are odd: the answer is a typed error, and nothing has changed; or it works.

use super::memory::without_memory;
use super::page_bench::order;
use super::page_pair::{machine, machines, node, range, zone};
use nofrag::check::Check;
use nofrag::cpu::CpuId;
use nofrag::page::{
    Fixes, FragmentationPolicy, FreeError, MAX_NODES, MapError, MemoryMap, Migrate, Migratetype,
    MinFree, NodeId, NodeMap, NodeMask, PageAllocator, PageConfig, PageConfigError, PageCounters,
    PageRequest, RequestFlags, ZoneInfo, ZoneKind, ZoneMap,
};
use nofrag::units::{Nanos, Order, Pfn};
use std::collections::BTreeSet;

fn config(map: MemoryMap, policy: FragmentationPolicy) -> PageConfig {
    PageConfig { min_free: MinFree::Pages(0), ..PageConfig::new(map, policy) }
}

fn allocator(map: MemoryMap) -> PageAllocator {
    PageAllocator::new(&config(map, FragmentationPolicy::LINUX_4_20)).expect("the map is sound")
}

fn cpu(map: &MemoryMap, id: u32) -> CpuId {
    map.cpus().get(id).expect("the map has it")
}

/// Returns what can be seen from outside: counters, zones, and numbers of free blocks by zone, order and type.
fn seen(pages: &PageAllocator) -> (PageCounters, Vec<ZoneInfo>, Vec<u64>) {
    let zones: Vec<_> = pages.zones().collect();
    let blocks = zones.iter().flat_map(|zone| {
        let of = |order| Migratetype::ALL.map(|list| pages.free_blocks(zone.id, order, list));
        Order::all().flat_map(of)
    });
    (pages.counters().clone(), zones.clone(), blocks.collect())
}

/// Checks that `act` fails with `error`, and nothing has changed.
fn check_refused<T: std::fmt::Debug + PartialEq, E: std::fmt::Debug + PartialEq>(
    pages: &mut PageAllocator,
    error: E,
    act: impl FnOnce(&mut PageAllocator) -> Result<T, E>,
) {
    let before = seen(pages);
    assert_eq!(act(pages), Err(error));
    assert_eq!(seen(pages), before, "something has changed");
    pages.check().expect("the laws hold");
}

fn alloc(pages: &mut PageAllocator, cpu: CpuId, request: PageRequest) -> Option<Pfn> {
    let page = pages.alloc(Nanos(0), cpu, request).ok();
    pages.check().expect("the laws hold");
    page
}

/// Returns a machine of one zone, frames 1024 to 5119, and its CPU.
fn plain() -> (MemoryMap, CpuId) {
    let map = machine(&[node(&[0], &[zone(ZoneKind::Normal, 1024, 4096)])]);
    let cpu = cpu(&map, 0);
    (map, cpu)
}

#[test]
fn a_block_is_given_back_once() {
    let (map, cpu) = plain();
    for size in [0, 1, 4, 9, 10] {
        let mut pages = allocator(map.clone());
        let request = PageRequest::new(order(size), Migratetype::Unmovable);
        let page = alloc(&mut pages, cpu, request).expect("all is free");
        pages.free(cpu, page).expect("it is in use");
        check_refused(&mut pages, FreeError::DoubleFree(page), |pages| pages.free(cpu, page));
        let error = FreeError::DoubleFree(page);
        check_refused(&mut pages, error, |pages| pages.set_movable(page, true));
    }
}

/// An owner that moves everything, and notes old and new frame of each move.
#[derive(Default)]
struct Mover(Vec<(Pfn, Pfn)>);

impl Migrate for Mover {
    fn migrate(&mut self, from: Pfn, to: Pfn, _order: Order) -> bool {
        self.0.push((from, to));
        true
    }
}

#[test]
fn a_block_that_moved_is_where_it_went() {
    let (map, cpu) = plain();
    let mut pages = allocator(map);
    let request = PageRequest::new(Order::ZERO, Migratetype::Movable);
    let taken: Vec<Pfn> = std::iter::from_fn(|| pages.alloc(Nanos(0), cpu, request).ok()).collect();
    for &page in &taken {
        if page.0 % 4 == 0 {
            pages.set_movable(page, true).expect("it is in use");
        } else {
            pages.free(cpu, page).expect("it is in use");
        }
    }
    pages.drain(cpu);
    let mut owner = Mover::default();
    let zone = pages.zones().next().expect("there is a zone").id;
    pages.compact(zone, &mut owner).expect("there is such a zone");
    pages.check().expect("the laws hold");
    assert!(owner.0.len() > 100, "{} moves", owner.0.len());
    let now: BTreeSet<Pfn> = owner.0.iter().map(|&(_, to)| to).collect();
    for &(from, _) in owner.0.iter().filter(|(from, _)| !now.contains(from)) {
        let gone = FreeError::DoubleFree(from);
        check_refused(&mut pages, gone, |pages| pages.free(cpu, from));
        check_refused(&mut pages, gone, |pages| pages.set_movable(from, false));
    }
    now.into_iter().for_each(|to| pages.free(cpu, to).expect("it is in use"));
    pages.check().expect("the laws hold");
}

#[test]
fn a_block_is_named_by_its_first_frame() {
    let (map, cpu) = plain();
    let mut pages = allocator(map);
    let request = PageRequest::new(order(4), Migratetype::Movable);
    let head = alloc(&mut pages, cpu, request).expect("all is free");
    for inside in 1..16 {
        let tail = Pfn(head.0 + inside);
        let error = FreeError::NotAHead { head };
        check_refused(&mut pages, error, |pages| pages.free(cpu, tail));
        check_refused(&mut pages, error, |pages| pages.set_movable(tail, true));
    }
    // Inside a free block no block in use begins, and none does elsewhere.
    let free = Pfn(head.0 + 1025);
    check_refused(&mut pages, FreeError::DoubleFree(free), |pages| pages.free(cpu, free));
}

#[test]
fn a_frame_that_nobody_manages_is_unknown() {
    let holed = ZoneMap {
        holes: vec![range(1024 + 100, 50)],
        reserved: vec![range(1024 + 600, 8)],
        ..zone(ZoneKind::Normal, 1024 + 10, 2000)
    };
    let map = machine(&[node(&[0], &[holed])]);
    let cpu = cpu(&map, 0);
    let mut pages = allocator(map);
    let strange = [0, 1023, 1024, 1033, 1124, 1173, 1624, 1631, 3034, 3100, 9999, u64::MAX];
    for pfn in strange.map(Pfn) {
        check_refused(&mut pages, FreeError::Unknown(pfn), |pages| pages.free(cpu, pfn));
        check_refused(&mut pages, FreeError::Unknown(pfn), |pages| pages.set_movable(pfn, true));
    }
}

/// Takes pages one by one, by all CPUs and of all types, until there are no more.
fn take_all(pages: &mut PageAllocator, cpus: &[CpuId], name: &str) -> BTreeSet<Pfn> {
    let mut held = BTreeSet::new();
    loop {
        let before = held.len();
        for (turn, &cpu) in cpus.iter().enumerate() {
            for nth in 0..3 {
                let migratetype = Migratetype::MOBILITY[(turn + nth) % 3];
                let request = PageRequest::new(Order::ZERO, migratetype).flags(RequestFlags::NONE);
                let request = PageRequest { zone: ZoneKind::Movable, ..request };
                while let Ok(page) = pages.alloc(Nanos(0), cpu, request) {
                    assert!(held.insert(page), "{name}: frame {page} was handed out twice");
                    if held.len() % 97 == 0 {
                        break;
                    }
                }
            }
            pages.drain(cpu);
        }
        if held.len() == before {
            return held;
        }
    }
}

/// Takes every page that watermarks allow, once each, and gives all back: afterwards the free blocks are those of
/// before.
fn check_all_pages(map: &MemoryMap, policy: FragmentationPolicy, name: &str) {
    // No kswapd runs here that could fall asleep again.
    let fixes = policy.fixes.without(Fixes::SKIP_AWAKE_NODES);
    let config = PageConfig {
        lowmem_reserve_ratio: [0; ZoneKind::COUNT],
        ..config(map.clone(), FragmentationPolicy { fixes, ..policy })
    };
    let mut pages = PageAllocator::new(&config).expect(name);
    let by_order = |pages: &PageAllocator| -> Vec<u64> {
        seen(pages).2.chunks(Migratetype::COUNT).map(|types| types.iter().sum()).collect()
    };
    let before = by_order(&pages);
    let managed: u64 = pages.zones().map(|zone| zone.managed.0).sum();
    let cpus: Vec<CpuId> = map.cpus().iter().collect();
    let held = take_all(&mut pages, &cpus, name);
    pages.check().expect(name);
    let mut free = 0;
    for zone in pages.zones() {
        let kept = zone.watermarks.low + zone.boost.0;
        assert!(zone.free.0 <= kept, "{name}: {zone:?} has pages that nobody gets");
        free += zone.free.0;
    }
    assert_eq!(held.len() as u64 + free, managed, "{name}");
    let zones = || map.nodes().iter().flat_map(|node| &node.zones);
    for &page in &held {
        let gone = |zone: &ZoneMap| zone.holes.iter().chain(&zone.reserved).any(|r| r.has(page));
        assert!(zones().any(|zone| zone.span.has(page) && !gone(zone)), "{name}: {page}");
    }
    for (turn, page) in held.into_iter().enumerate() {
        pages.free(cpus[turn % cpus.len()], page).expect("it is in use");
    }
    cpus.iter().for_each(|&cpu| pages.drain(cpu));
    pages.check().expect(name);
    assert_eq!(by_order(&pages), before, "{name}: free blocks by order");
}

/// Returns machines of odd shapes that are allowed, by name.
fn odd_machines() -> Vec<(&'static str, MemoryMap)> {
    use ZoneKind::{Dma, Dma32, HighMem, Movable, Normal};
    let gaps: Vec<u32> = (0..64).map(|n| n * 7 % 449).collect();
    let all_hole = ZoneMap { holes: vec![range(64, 128)], ..zone(Normal, 64, 128) };
    let scattered =
        ZoneMap { holes: (0..500).map(|n| range(n * 4 + 1, 1)).collect(), ..zone(Normal, 0, 2000) };
    vec![
        ("one page", machine(&[node(&[0], &[zone(Normal, 5, 1)])])),
        ("one page each", machine(&[node(&[0], &[zone(Dma32, 5, 1), zone(Normal, 6, 1)])])),
        ("an empty zone", machine(&[node(&[0], &[zone(Dma32, 0, 0), zone(Normal, 0, 100)])])),
        ("a zone that is a hole", machine(&[node(&[0], &[zone(Dma, 0, 64), all_hole])])),
        ("every fourth page missing", machine(&[node(&[0], &[scattered])])),
        ("64 CPUs with gaps", machine(&[node(&gaps, &[zone(Normal, 0, 3000)])])),
        ("far apart", machine(&[node(&[0], &[zone(Dma32, 3, 77), zone(Normal, 1 << 40, 1500)])])),
        ("order 10", machine(&[node(&[0], &[zone(Normal, 1024, 1024)])])),
        ("movable alone", machine(&[node(&[0], &[zone(Movable, 0, 2048)])])),
        ("DMA and Movable", machine(&[node(&[0], &[zone(Dma, 0, 512), zone(Movable, 512, 900)])])),
        ("high memory", machine(&[node(&[0], &[zone(Normal, 0, 900), zone(HighMem, 900, 900)])])),
        (
            "a node without memory",
            machine(&[node(&[0], &[]), node(&[1], &[zone(Normal, 0, 1024)])]),
        ),
        ("a node without CPUs", {
            machine(&[node(&[4], &[zone(Normal, 0, 99)]), node(&[], &[zone(Normal, 99, 99)])])
        }),
    ]
}

#[test]
fn every_page_of_every_machine_is_had_once() {
    for policy in FragmentationPolicy::PRESETS {
        for (name, map) in machines().into_iter().chain(odd_machines()) {
            check_all_pages(&map, policy.policy, &format!("{name}, {}", policy.name));
        }
    }
}

#[test]
fn a_machine_without_frames_serves_nothing() {
    for zones in [vec![], vec![zone(ZoneKind::Normal, 0, 0)], vec![zone(ZoneKind::Dma, 7, 0)]] {
        let map = machine(&[node(&[0], &zones)]);
        let cpu = cpu(&map, 0);
        let mut pages = allocator(map);
        for size in [0, 3, 10] {
            let request = PageRequest::new(order(size), Migratetype::Movable);
            assert_eq!(alloc(&mut pages, cpu, request), None);
            assert_eq!(alloc(&mut pages, cpu, PageRequest::atomic(order(size))), None);
        }
        check_refused(&mut pages, FreeError::Unknown(Pfn(0)), |pages| pages.free(cpu, Pfn(0)));
    }
}

#[test]
fn a_request_that_no_zone_may_serve_fails() {
    let map = machine(&[
        node(&[0], &[zone(ZoneKind::Normal, 0, 2048)]),
        node(&[1], &[zone(ZoneKind::Normal, 2048, 2048)]),
    ]);
    let cpu = cpu(&map, 0);
    for preset in FragmentationPolicy::PRESETS {
        let pages = PageAllocator::new(&config(map.clone(), preset.policy));
        let mut pages = pages.expect("the map is sound");
        let user = PageRequest::user(Order::ZERO);
        for nodes in [NodeMask(0), NodeMask(1 << 5), NodeMask(1 << 63)] {
            assert_eq!(alloc(&mut pages, cpu, PageRequest { nodes, ..user }), None);
        }
        // Kinds that no node has, below all there are.
        for zone in [ZoneKind::Dma, ZoneKind::Dma32] {
            assert_eq!(alloc(&mut pages, cpu, PageRequest { zone, ..user }), None);
        }
        let elsewhere =
            PageRequest { nodes: NodeMask::only(NodeId(1)), ..user.flags(RequestFlags::THIS_NODE) };
        assert_eq!(alloc(&mut pages, cpu, elsewhere.on(NodeId(0))), None);
        assert!(alloc(&mut pages, cpu, elsewhere.on(NodeId(1))).is_some());
    }
}

#[test]
fn maps_that_contradict_themselves_are_refused() {
    use ZoneKind::{Dma32, Normal};
    let check = |nodes: &[NodeMap], distances: &[&[u8]], error| {
        assert_eq!(MemoryMap::new(nodes.to_vec(), distances).map(drop), Err(error));
    };
    let one = || node(&[0], &[zone(Normal, 0, 100)]);
    check(&[], &[], MapError::NodeCount(0));
    let many: Vec<NodeMap> = (0..=MAX_NODES).map(|_| node(&[], &[])).collect();
    check(&many, &[], MapError::NodeCount(MAX_NODES + 1));
    check(&[one()], &[&[9]], MapError::Distances);
    check(&[one(), node(&[1], &[])], &[&[10, 20]], MapError::Distances);
    check(&[one(), node(&[1], &[])], &[&[10, 20], &[20]], MapError::Distances);
    let twice = node(&[0], &[zone(Normal, 0, 10), zone(Normal, 10, 10)]);
    check(&[twice], &[], MapError::ZoneTwice(NodeId(0), Normal));
    let overlap = node(&[0], &[zone(Dma32, 0, 11), zone(Normal, 10, 10)]);
    check(&[overlap], &[], MapError::Overlap(Pfn(10)));
    let other = node(&[1], &[zone(Normal, 99, 10)]);
    check(&[one(), other], &[], MapError::Overlap(Pfn(99)));
    let holes = |holes: &[(u64, u64)]| {
        let holes = holes.iter().map(|&(start, pages)| range(start, pages)).collect();
        node(&[0], &[ZoneMap { holes, ..zone(Normal, 10, 90) }])
    };
    check(&[holes(&[(20, 5), (24, 2)])], &[], MapError::Overlap(Pfn(24)));
    check(&[holes(&[(5, 6)])], &[], MapError::OutsideZone(Pfn(5)));
    check(&[holes(&[(95, 6)])], &[], MapError::OutsideZone(Pfn(100)));
    check(&[one(), node(&[3, 0], &[])], &[], MapError::CpuTwice(0));
    let huge = node(&[0], &[zone(Normal, 0, 1 << 33)]);
    check(&[huge], &[], MapError::TooLarge);
    let endless = node(&[0], &[zone(Normal, u64::MAX - 4, 100)]);
    check(&[endless], &[], MapError::TooLarge);
}

#[test]
fn without_memory_there_is_no_allocator() {
    let (map, _) = plain();
    let config = config(map, FragmentationPolicy::LINUX_4_20);
    let outcome = without_memory(|| PageAllocator::new(&config).map(drop));
    assert_eq!(outcome, Err(PageConfigError::OutOfMetadata));
    let nodes = vec![node(&[0], &[zone(ZoneKind::Normal, 0, 100)])];
    let outcome = without_memory(|| MemoryMap::new(nodes, &[]).map(drop));
    assert_eq!(outcome, Err(MapError::OutOfMetadata));
}

#[test]
fn a_machine_that_runs_needs_no_memory() {
    let (map, cpu) = plain();
    for preset in FragmentationPolicy::PRESETS {
        let pages = PageAllocator::new(&config(map.clone(), preset.policy));
        let mut pages = pages.expect("the map is sound");
        let mut held = Vec::with_capacity(8192);
        without_memory(|| {
            for turn in 0..9000_usize {
                let order = order([0, 0, 1, 3, 9, 0, 2, 4][turn % 8]);
                let migratetype = Migratetype::MOBILITY[turn / 7 % 3];
                let request = PageRequest::new(order, migratetype);
                if let Ok(page) = pages.alloc(Nanos(0), cpu, request) {
                    let movable = migratetype == Migratetype::Movable;
                    pages.set_movable(page, movable).expect("it is in use");
                    held.push(page);
                }
                if turn % 5 == 4 && !held.is_empty() {
                    let page = held.swap_remove(turn * 31 % held.len());
                    pages.free(cpu, page).expect("it is in use");
                }
            }
            held.drain(..).for_each(|page| pages.free(cpu, page).expect("it is in use"));
        });
        pages.drain(cpu);
        pages.check().expect("the laws hold");
        let whole: u64 = pages.zones().map(|zone| zone.managed.0 - zone.free.0).sum();
        assert_eq!(whole, 0, "{}", preset.name);
    }
}
