//! Memory maps: which are refused, what common machines look like, and what an allocator makes of odd ones.

use crate::memory::without_memory;
use nofrag::check::Check;
use nofrag::page::{
    FragmentationPolicy, MapError, MemoryMap, MinFree, NodeId, NodeMap, PageAllocator, PageConfig,
    PageConfigError, PageRequest, PfnRange, ZoneInfo, ZoneKind, ZoneMap,
};
use nofrag::units::{Nanos, Order, PageCount, Pfn};

const GIB: u64 = 1 << 18;

fn range(start: u64, pages: u64) -> PfnRange {
    PfnRange { start: Pfn(start), pages: PageCount(pages) }
}

fn zone(kind: ZoneKind, start: u64, pages: u64) -> ZoneMap {
    ZoneMap::new(kind, Pfn(start), PageCount(pages))
}

fn node(cpus: &[u32], zones: &[ZoneMap]) -> NodeMap {
    NodeMap { cpus: cpus.to_vec(), zones: zones.to_vec() }
}

fn check_refused(nodes: Vec<NodeMap>, distances: &[&[u8]], why: MapError) {
    assert_eq!(MemoryMap::new(nodes, distances).err(), Some(why));
    assert!(!why.to_string().is_empty());
}

#[test]
fn maps_that_contradict_themselves() {
    use ZoneKind::{Dma32, Movable, Normal};
    let plain = || node(&[0], &[zone(Normal, 0, 1024)]);
    check_refused(vec![], &[], MapError::NodeCount(0));
    check_refused(vec![node(&[], &[]); 65], &[], MapError::NodeCount(65));
    let far = |start| node(&[], &[zone(Normal, start, 16)]);
    for distances in
        [&[&[10, 20][..]][..], &[&[10], &[20]], &[&[10, 9], &[20, 10]], &[&[11, 20], &[20, 10]]]
    {
        check_refused(vec![plain(), far(4096)], distances, MapError::Distances);
    }
    let twice = node(&[], &[zone(Normal, 0, 8), zone(Dma32, 8, 8), zone(Normal, 16, 8)]);
    check_refused(vec![plain(), twice], &[], MapError::ZoneTwice(NodeId(1), Normal));
    check_refused(vec![plain(), far(1023)], &[], MapError::Overlap(Pfn(1023)));
    let inner = node(&[], &[zone(Normal, 0, 100), zone(Movable, 10, 10)]);
    check_refused(vec![inner], &[], MapError::Overlap(Pfn(10)));
    check_refused(vec![node(&[3, 1], &[]), node(&[2, 3], &[])], &[], MapError::CpuTwice(3));
    let many: Vec<u32> = (0..8193).collect();
    check_refused(vec![node(&many, &[])], &[], MapError::TooLarge);
    check_refused(vec![far(u64::MAX - 8)], &[], MapError::TooLarge);
    check_refused(vec![far(u64::MAX - 1024)], &[], MapError::TooLarge);
    check_refused(vec![node(&[], &[zone(Normal, 0, 1 << 32)])], &[], MapError::TooLarge);
    let halves = [zone(Dma32, 0, 1 << 31), zone(Normal, 1 << 32, 1 << 31)];
    check_refused(vec![node(&[], &halves)], &[], MapError::TooLarge);
}

#[test]
fn holes_and_reservations_lie_apart_inside_their_zone() {
    let with = |holes: &[PfnRange], reserved: &[PfnRange]| {
        let plain = zone(ZoneKind::Normal, 100, 100);
        vec![node(&[], &[ZoneMap { holes: holes.to_vec(), reserved: reserved.to_vec(), ..plain }])]
    };
    check_refused(with(&[range(99, 2)], &[]), &[], MapError::OutsideZone(Pfn(99)));
    check_refused(with(&[], &[range(199, 2)]), &[], MapError::OutsideZone(Pfn(200)));
    check_refused(with(&[range(150, u64::MAX)], &[]), &[], MapError::OutsideZone(Pfn(200)));
    check_refused(with(&[range(120, 2), range(110, 11)], &[]), &[], MapError::Overlap(Pfn(120)));
    check_refused(with(&[range(120, 2)], &[range(121, 1)]), &[], MapError::Overlap(Pfn(121)));
    assert!(MemoryMap::new(with(&[range(100, 50)], &[range(150, 50)]), &[]).is_ok());
    assert!(MemoryMap::new(with(&[range(0, 0), range(100, 0)], &[]), &[]).is_ok(), "empty ones");
}

#[test]
fn no_memory_for_a_map_or_an_allocator() {
    let nodes = vec![node(&[0], &[zone(ZoneKind::Normal, 0, 1024)])];
    let refused = without_memory(|| MemoryMap::new(nodes, &[]));
    assert_eq!(refused, Err(MapError::OutOfMetadata));
    assert_eq!(without_memory(|| MemoryMap::pc(PageCount(1), 1)), Err(MapError::OutOfMetadata));
    let map = MemoryMap::uma(PageCount(1024), 0, 1).unwrap();
    let config = PageConfig::new(map, FragmentationPolicy::LINUX_4_20);
    let refused = without_memory(|| PageAllocator::new(&config).err());
    assert_eq!(refused, Some(PageConfigError::OutOfMetadata));
}

#[test]
fn distances_and_defaults() {
    let nodes = || vec![node(&[], &[]), node(&[], &[])];
    let map = MemoryMap::new(nodes(), &[]).unwrap();
    let table = |map: &MemoryMap| {
        [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(from, to)| map.distance(NodeId(from), NodeId(to)))
    };
    assert_eq!(table(&map), [10, 20, 20, 10]);
    let map = MemoryMap::new(nodes(), &[&[10, 32], &[31, 10]]).unwrap();
    assert_eq!(table(&map), [10, 32, 31, 10]);
    assert_eq!(map.distance(NodeId(0), NodeId(2)), 255);
    assert_eq!(map.distance(NodeId(1), NodeId(63)), 255);
}

fn allocator(map: MemoryMap) -> PageAllocator {
    PageAllocator::new(&PageConfig::new(map, FragmentationPolicy::LINUX_4_20)).unwrap()
}

/// Verifies kind, present and managed pages of each zone, and that all managed pages are free.
fn check_zones(map: MemoryMap, zones: &[(ZoneKind, u64, u64)]) -> PageAllocator {
    let pages = allocator(map);
    let sizes = |zone: ZoneInfo| {
        assert_eq!(zone.free, zone.managed);
        (zone.kind, zone.present.0, zone.managed.0)
    };
    assert_eq!(pages.zones().map(sizes).collect::<Vec<_>>(), zones);
    pages
}

#[test]
fn pcs() {
    use ZoneKind::{Dma, Dma32, Normal};
    let check = |memory, dma32, normal| {
        let map = MemoryMap::pc(PageCount(memory), 4).unwrap();
        assert_eq!(map.cpus().len(), 4);
        check_zones(map, &[(Dma, 3998, 3998), (Dma32, dma32, dma32), (Normal, normal, normal)]);
    };
    check(4096, 0, 0);
    check(2 * GIB, 2 * GIB - 4096, 0);
    check(3 * GIB, 3 * GIB - 4096, 0);
    check(3 * GIB + 1, 3 * GIB - 4096, 1);
    check(8 * GIB, 3 * GIB - 4096, 5 * GIB);
    for (memory, dma) in [(0, 0), (1, 0), (2, 1), (0x9f, 0x9e), (0xa0, 0x9e), (0x101, 0x9f)] {
        let map = MemoryMap::pc(PageCount(memory), 1).unwrap();
        check_zones(map, &[(Dma, dma, dma), (Dma32, 0, 0), (Normal, 0, 0)]);
    }
    assert_eq!(MemoryMap::pc(PageCount(1 << 32), 1), Err(MapError::TooLarge));
    assert_eq!(MemoryMap::pc(PageCount(u64::MAX), 1), Err(MapError::TooLarge));
}

#[test]
fn machines_with_a_share_of_dma32() {
    use ZoneKind::{Dma32, Normal};
    let map = MemoryMap::uma(PageCount(4 * GIB), 375, 8).unwrap();
    check_zones(map, &[(Dma32, 393_216, 393_216), (Normal, 655_360, 655_360)]);
    let map = MemoryMap::uma(PageCount(8 * GIB), 0, 8).unwrap();
    check_zones(map, &[(Dma32, 0, 0), (Normal, 8 * GIB, 8 * GIB)]);
    let map = MemoryMap::uma(PageCount(5000), 1000, 8).unwrap();
    check_zones(map, &[(Dma32, 4096, 4096), (Normal, 904, 904)]);
    let map = MemoryMap::numa(3, PageCount(GIB), 375, 2).unwrap();
    assert_eq!(map.nodes()[2].cpus, [4, 5]);
    let rest = [(Normal, GIB, GIB); 2];
    check_zones(map, &[&[(Dma32, 98_304, 98_304), (Normal, 163_840, 163_840)], &rest[..]].concat());
    assert_eq!(MemoryMap::numa(0, PageCount(1), 0, 1), Err(MapError::NodeCount(0)));
    assert_eq!(MemoryMap::numa(65, PageCount(1), 0, 1), Err(MapError::NodeCount(65)));
    assert_eq!(MemoryMap::numa(2, PageCount(u64::MAX), 0, 1), Err(MapError::TooLarge));
    for cpus in [129, u32::MAX / 63, u32::MAX] {
        assert_eq!(MemoryMap::numa(64, PageCount(1), 0, cpus), Err(MapError::TooLarge));
    }
    assert_eq!(MemoryMap::numa(64, PageCount(1), 0, 128).unwrap().cpus().len(), 8192);
}

/// Returns the free blocks of a zone, largest first, as pairs of order and number.
fn free_blocks(pages: &PageAllocator, zone: ZoneInfo) -> Vec<(u8, u64)> {
    let of = |order: Order| {
        let types = nofrag::page::Migratetype::ALL.iter();
        (order.get(), types.map(|&each| pages.free_blocks(zone.id, order, each)).sum())
    };
    Order::all().rev().map(of).filter(|&(_, count)| count > 0).collect()
}

#[test]
fn memory_between_holes_is_cut_into_the_largest_blocks() {
    let plain = zone(ZoneKind::Normal, 3, 5000);
    let holes = vec![range(1100, 100), range(2048, 1)];
    let zone = ZoneMap { holes, reserved: vec![range(1200, 8), range(5002, 1)], ..plain };
    let pages = check_zones(
        MemoryMap::new(vec![node(&[0], &[zone])], &[]).unwrap(),
        &[(ZoneKind::Normal, 4899, 4890)],
    );
    // 3 to 1100, 1208 to 2048, 2049 to 5002
    let small = [(5, 2), (4, 2), (3, 5), (2, 3), (1, 2), (0, 2)];
    let expected = [&[(10, 1), (9, 4), (8, 4), (7, 3), (6, 4)], &small[..]].concat();
    let found = free_blocks(&pages, pages.zones().next().unwrap());
    assert_eq!(found, expected);
}

/// Takes every page that can be had at all and gives it back. Returns the number of these pages.
fn check_round(pages: &mut PageAllocator, cpus: &[nofrag::cpu::CpuId]) -> u64 {
    let mut taken = Vec::new();
    for &cpu in cpus {
        // Below the marks nobody reaches what the lists of CPUs still hold.
        let mut before = usize::MAX;
        while taken.len() != before {
            before = taken.len();
            while let Ok(pfn) = pages.alloc(Nanos(0), cpu, PageRequest::user(Order::ZERO)) {
                taken.push((cpu, pfn));
            }
            pages.drain_all();
        }
    }
    pages.check().unwrap();
    let mut distinct: Vec<_> = taken.iter().map(|&(_, pfn)| pfn).collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), taken.len(), "a page was handed out twice");
    for &(cpu, pfn) in &taken {
        pages.free(cpu, pfn).unwrap();
    }
    pages.drain_all();
    pages.check().unwrap();
    taken.len() as u64
}

#[test]
fn zones_that_share_pageblocks_and_zones_of_a_page() {
    use ZoneKind::{Dma, Dma32, HighMem, Movable, Normal};
    let zones = [zone(Dma, 0, 1), zone(Dma32, 1, 600), zone(Normal, 601, 0), zone(HighMem, 601, 1)];
    let rest = [zone(Movable, 1500, 3000)];
    let map = MemoryMap::new(vec![node(&[0], &zones), node(&[], &rest)], &[]).unwrap();
    let cpu = map.cpus().by_rank(0).unwrap();
    let mut config = PageConfig::new(map, FragmentationPolicy::LINUX_7_2);
    config.min_free = MinFree::Pages(0);
    config.lowmem_reserve_ratio = [0; ZoneKind::COUNT];
    let mut pages = PageAllocator::new(&config).unwrap();
    let low: u64 = pages.zones().map(|zone| zone.watermarks.low.min(zone.managed.0)).sum();
    let free = 1 + 600 + 1 + 3000 - low;
    assert_eq!(check_round(&mut pages, &[cpu]), free);
    assert_eq!(check_round(&mut pages, &[cpu]), free, "after one round it is as before");
}

#[test]
fn machines_without_memory_or_without_cpus() {
    let request = PageRequest::user(Order::ZERO);
    let map = MemoryMap::new(vec![node(&[7], &[])], &[]).unwrap();
    let cpu = map.cpus().get(7).unwrap();
    assert!(allocator(map).alloc(Nanos(0), cpu, request).is_err());
    let map = MemoryMap::new(vec![node(&[], &[zone(ZoneKind::Normal, 0, 4096)])], &[]).unwrap();
    assert_eq!(allocator(map).zones().count(), 1);
    // A node of CPUs alone takes memory from the other one.
    let nodes = vec![node(&[0], &[]), node(&[], &[zone(ZoneKind::Normal, 0, 4096)])];
    let map = MemoryMap::new(nodes, &[]).unwrap();
    let cpu = map.cpus().by_rank(0).unwrap();
    assert!(allocator(map).alloc(Nanos(0), cpu, request).is_ok());
}

#[test]
fn sixty_four_cpus_with_gaps() {
    let ids: Vec<u32> = (0..64).map(|cpu| cpu * cpu + 5).collect();
    let zones = [zone(ZoneKind::Normal, 0, 64 << 10)];
    let map = MemoryMap::new(vec![node(&ids[..40], &zones), node(&ids[40..], &[])], &[]).unwrap();
    let cpus: Vec<_> = map.cpus().iter().collect();
    let mut pages = allocator(map);
    let first = check_round(&mut pages, &cpus);
    assert!(first > 60_000, "{first}");
    assert_eq!(check_round(&mut pages, &cpus), first);
}

#[test]
fn settings_that_are_refused() {
    let map = MemoryMap::uma(PageCount(4096), 0, 1).unwrap();
    let mut config = PageConfig::new(map, FragmentationPolicy::LINUX_4_20);
    for factor in [0, 3001, u32::MAX] {
        config.watermark_scale_factor = factor;
        let refused = PageAllocator::new(&config).err();
        assert_eq!(refused, Some(PageConfigError::WatermarkScaleFactor(factor)));
    }
    config.watermark_scale_factor = 3000;
    let mut pages = PageAllocator::new(&config).unwrap();
    let marks =
        |pages: &PageAllocator| pages.zones().map(|zone| zone.watermarks).collect::<Vec<_>>();
    let before = marks(&pages);
    assert_eq!(pages.set_watermark_scale_factor(0), Err(PageConfigError::WatermarkScaleFactor(0)));
    assert_eq!(pages.set_boost_factor(1), Err(PageConfigError::NoBoost));
    assert_eq!(marks(&pages), before);
    pages.set_watermark_scale_factor(10).unwrap();
    assert_ne!(marks(&pages), before);
}

#[test]
fn large_holes_cost_nothing() {
    let holes = vec![range(100, 3000), range(5000, 1 << 40)];
    let plain = zone(ZoneKind::Normal, 100, (1 << 40) + 6900);
    let map = MemoryMap::new(vec![node(&[0], &[ZoneMap { holes, ..plain }])], &[]).unwrap();
    let cpus: Vec<_> = map.cpus().iter().collect();
    let mut pages = check_zones(map, &[(ZoneKind::Normal, 3900, 3900)]);
    assert!(pages.metadata_bytes() < 1 << 17, "{}", pages.metadata_bytes());
    let state = |frame| pages.frame(Pfn(frame)).is_some();
    let edges = [3099, 3100, 4999, 5000, (1 << 40) + 4999, (1 << 40) + 5000, (1 << 40) + 6999];
    assert_eq!(edges.map(state), [false, true, true, false, false, true, true]);
    assert!(check_round(&mut pages, &cpus) > 3000);

    let pc = MemoryMap::pc(PageCount(4 * GIB), 8).unwrap();
    let per_frame = allocator(pc).metadata_bytes() as f64 / (4 * GIB) as f64;
    assert!(per_frame < 12.0, "{per_frame}");
}
