//! Every public constructor at the ends of its numbers: an answer or an error, never a panic, an overflow or an abort.

use nofrag::check::{Check, Violation};
use nofrag::cpu::CpuSet;
use nofrag::mmap::{
    AddressSpace, Attributes, Direction, Layout, MapFlags, Placement, Protection, RemapTarget,
    SpaceConfig, StackRule,
};
use nofrag::page::{
    FragmentationIndices, FragmentationPolicy, Kcompactd, Kswapd, MemoryMap, Migrate, Migratetype,
    MoveResults, Next, NodeId, NodeMap, Outcome, PageAllocator, PageBudget, PageConfig,
    PageRequest, PfnRange, Reclaim, ReclaimRequest, Reclaimed, RequestFlags, ZoneKind, ZoneMap,
};
use nofrag::ranges::{
    AlignClasses, AlignRule, Config, Fit, Index, RangeAllocator, RangeHeap, Request, Span,
};
use nofrag::units::{Nanos, Order, PageCount, PageSize, Pfn, Vpn};
use nofrag::vmap::{AreaRequest, BlockGeometry, SizeClasses, VmapConfig, VmapPolicy, VmapSpace};

const ENDS: [u64; 6] = [0, 1, 2, 1 << 63, u64::MAX - 1, u64::MAX];

fn pairs() -> impl Iterator<Item = (u64, u64)> {
    ENDS.into_iter().flat_map(|one| ENDS.map(|other| (one, other)))
}

fn spans() -> impl Iterator<Item = Span> {
    pairs()
        .flat_map(|(one, other)| [Span::new(one, other).ok(), Span::sized(one, other).ok()])
        .flatten()
}

#[test]
fn units() {
    for (bytes, count) in pairs() {
        let Some(size) = PageSize::new(bytes) else {
            assert!(!bytes.is_power_of_two());
            continue;
        };
        let _ = size.pages_for(count);
        let _ = size.page_of(count);
        let _ = size.bytes_in(PageCount(count));
        let _ = size.address_of(Vpn(count));
    }
    for order in [0, 1, 10, 11, 254, 255] {
        assert_eq!(Order::new(order).is_some(), order <= 10);
    }
    for ids in [vec![], vec![0], vec![u32::MAX - 1, u32::MAX], vec![u32::MAX; 3]] {
        let set = CpuSet::new(ids.iter().copied()).unwrap();
        assert!(ids.iter().all(|&id| set.get(id).is_some()));
    }
    assert_eq!(CpuSet::first(0).unwrap().len(), 0);
    assert_eq!(CpuSet::first(1).unwrap().len(), 1);
    assert_eq!(CpuSet::first(1 << 20).unwrap().len(), 1 << 20);
    // They took 16 GiB before they were made.
    for count in [(1 << 20) + 1, u32::MAX - 1, u32::MAX] {
        assert!(CpuSet::first(count).is_err());
    }
    assert!(CpuSet::new(std::iter::repeat(7)).is_err());
}

#[test]
fn ranges_by_handle() {
    for space in spans() {
        let mut heap = RangeHeap::over(space).unwrap();
        for (size, align) in pairs() {
            let plain = heap.alloc(size);
            let aligned = heap.alloc_aligned(size, align);
            heap.check().unwrap();
            for range in [plain, aligned].into_iter().flatten() {
                assert_eq!(heap.free(range).map(Span::len), Ok(size));
            }
        }
        for span in spans() {
            let _ = heap.add_span(span);
            let _ = heap.remove_span(span);
            heap.check().unwrap();
        }
        assert!(heap.reserve(usize::MAX).is_err());
    }
}

#[test]
fn spans_are_checked() {
    for (one, other) in pairs() {
        assert_eq!(Span::new(one, other).is_ok(), one < other);
        let fits = other > 0 && one.checked_add(other).is_some();
        assert_eq!(Span::sized(one, other).is_ok(), fits);
    }
}

#[test]
fn classes_of_alignments() {
    for exponent in [0, 1, 30, 31, 254, 255] {
        let is_one = (1..=30).contains(&exponent);
        assert_eq!(AlignClasses::new(&[exponent]).is_some(), is_one);
        assert!(AlignClasses::new(&[exponent, exponent]).is_none());
    }
    assert!(AlignClasses::new(&[]).is_some() && AlignClasses::new(&[1, 2, 3, 4, 5]).is_none());
}

#[test]
fn requests_of_any_size_in_spaces_of_any_size() {
    let indexes = [
        Index::CachedScan,
        Index::AugmentedTree(AlignRule::Padded),
        Index::AugmentedTree(AlignRule::Unpadded),
        Index::AugmentedTree(AlignRule::PaddedUnlessExact),
        Index::WideBlocks,
    ];
    for (index, space) in indexes.into_iter().flat_map(|index| spans().map(move |s| (index, s))) {
        let classes = AlignClasses::new(&[1, 30]).unwrap();
        let config = Config { index, align_classes: classes, size_index: true };
        let mut allocator = RangeAllocator::new(config);
        allocator.add_span(space).unwrap();
        for ((size, align), within) in pairs().flat_map(|pair| spans().map(move |s| (pair, s))) {
            for fit in [Fit::Lowest, Fit::Highest, Fit::Best, Fit::Dynamic] {
                let request = Request::new(size).align(align).within(within).fit(fit);
                if let Ok(span) = allocator.alloc(&request) {
                    assert_eq!((span.len(), span.start() % align), (size, 0));
                    assert!(within.covers(span) && space.covers(span));
                    allocator.free(span).unwrap();
                }
            }
        }
        ENDS.iter().for_each(|&align| _ = allocator.largest_aligned(align));
    }
}

#[test]
fn room_for_more_holes_than_there_can_be() {
    for index in [Index::CachedScan, Index::AugmentedTree(AlignRule::Padded), Index::WideBlocks] {
        for size_index in [false, true] {
            let mut allocator =
                RangeAllocator::new(Config { index, size_index, ..Config::default() });
            for holes in [0, 1] {
                allocator.reserve(holes).unwrap();
            }
            for holes in [usize::MAX / 2, usize::MAX - 1, usize::MAX] {
                allocator.reserve(holes).unwrap_err();
            }
            allocator.add_span(Span::ALL).unwrap();
        }
    }
}

#[test]
fn machines_of_any_size() {
    for (start, pages) in pairs() {
        let zone = ZoneMap::new(ZoneKind::Normal, Pfn(start), PageCount(pages));
        let nodes = vec![NodeMap { cpus: vec![0], zones: vec![zone] }];
        let Ok(map) = MemoryMap::new(nodes, &[]) else { continue };
        let config = PageConfig::new(map, FragmentationPolicy::NOFRAG);
        let _ = PageAllocator::new(&config);
    }
    for (blocks, order) in pairs() {
        for count in [0, 1, 11, 70] {
            let _ = FragmentationIndices::of_blocks(&vec![blocks; count], order as u32);
        }
    }
}

#[test]
fn windows_of_any_size() {
    for (span, (one, other)) in spans().flat_map(|span| pairs().map(move |pair| (span, pair))) {
        for direction in [Direction::Up, Direction::Down] {
            let rule =
                StackRule { stack_limit: one, stack_random: other, guard: one, random: other };
            let layout = Layout::window(span, direction);
            for layout in [layout, layout.with_stack(&rule), layout.legacy(one)] {
                let config =
                    SpaceConfig::new(layout, Placement::preset("nofrag").unwrap().placement);
                let guard_gap = PageCount(other);
                let mut space = AddressSpace::new(SpaceConfig { guard_gap, ..config });
                let attributes = Attributes::anonymous(Protection::READ_WRITE);
                let flags = MapFlags { align: one, offset: other, ..MapFlags::default() };
                let _ = space.map(PageCount(one), attributes, Some(Vpn(other)), flags);
                let _ = space.map(PageCount(other), attributes, None, flags);
            }
        }
    }
}

#[test]
fn spaces_of_areas_of_any_size() {
    for (slots, pages) in pairs() {
        let _ = BlockGeometry::new(slots as u32, pages as u32);
        for word in [0, 1, 32, 64, u32::MAX] {
            let _ =
                BlockGeometry::linux(word, PageSize::new(1 << (pages % 64)).unwrap(), slots as u32);
        }
    }
    for (span, name) in spans().flat_map(|span| ["nofrag", "linux-6.12"].map(|name| (span, name))) {
        let policy = VmapPolicy::preset(name).unwrap().policy;
        let config = VmapConfig { span, cpus: CpuSet::first(2).unwrap(), policy };
        let Ok(space) = VmapSpace::new(config, (), ()) else { continue };
        let cpu = space.cpus().by_rank(0).unwrap();
        for (pages, align) in pairs() {
            if let Ok(area) = space.alloc(cpu, &AreaRequest::new(pages).align(align)) {
                space.free(cpu, area.start).unwrap();
            }
            if let Ok(area) = space.map_ram(cpu, pages, &()) {
                space.unmap_ram(cpu, area).unwrap();
            }
        }
    }
}

#[test]
fn numbers_that_say_where() {
    for (one, other) in pairs() {
        assert_eq!(Violation::unless_equal("equal", one, one, other).is_ok(), one == other);
        assert_eq!(Violation::unless("it holds", one, one == other).is_ok(), one == other);
        let range = PfnRange::between(Pfn(one), Pfn(other));
        assert_eq!(range.has(Pfn(one)), one < other);
        assert!(!range.has(Pfn(other)) && range.end().0 >= one);
    }
    for index in [0, 1, 31, 32, 63, 64, usize::MAX - 1, usize::MAX] {
        assert_eq!(MoveResults(u32::MAX).moved(index), index < 32);
        assert_eq!(Migratetype::from_index(index).is_some(), index < Migratetype::COUNT);
    }
    use SizeClasses::{Eighths, Exact, PowerOfTwo, Quarters};
    for classes in [Exact, PowerOfTwo, Quarters, Eighths] {
        for pages in [0, 1, 2, 1 << 31, (1 << 31) + 1, u32::MAX - 1, u32::MAX] {
            assert!(classes.round(pages) >= pages, "{classes:?} {pages:#x}");
        }
    }
}

#[test]
fn holes_at_any_place() {
    for index in [Index::CachedScan, Index::AugmentedTree(AlignRule::Padded), Index::WideBlocks] {
        for space in spans() {
            let mut allocator = RangeAllocator::new(Config { index, ..Config::default() });
            allocator.add_span(space).unwrap();
            for at in ENDS {
                assert_eq!(allocator.hole_from(at).is_some(), at < space.end());
                assert_eq!(allocator.hole_below(at).is_some(), at > space.start());
                assert!(allocator.unusable_index(at) <= 1000);
            }
        }
    }
    for (span, (size, align)) in spans().flat_map(|span| pairs().map(move |pair| (span, pair))) {
        for start in [span.lowest_fit(size, align), span.highest_fit(size, align)] {
            let fits = |start: u64| start.checked_add(size).is_some_and(|end| end <= span.end());
            assert!(start.is_none_or(|start| start >= span.start() && fits(start)));
            assert!(start.is_none() || align.is_power_of_two());
        }
    }
}

#[test]
fn maps_of_machines_of_any_size() {
    let counts = [0, 1, 2, 1 << 20, (1 << 20) + 1, u32::MAX - 1, u32::MAX];
    for pages in ENDS.map(PageCount) {
        for (one, other) in counts.iter().flat_map(|one| counts.map(|other| (*one, other))) {
            let maps = [
                MemoryMap::pc(pages, one),
                MemoryMap::uma(pages, one, other),
                MemoryMap::numa(2, pages, one, other),
                MemoryMap::numa(usize::MAX, pages, one, other),
            ];
            for map in maps.into_iter().flatten() {
                let _ = PageAllocator::new(&PageConfig::new(map, FragmentationPolicy::NOFRAG));
            }
        }
    }
}

/// An owner of pages that owns none.
struct Nobody;

impl Reclaim for Nobody {
    fn reclaim(&mut self, _: &mut PageAllocator, _: ReclaimRequest) -> Reclaimed {
        Reclaimed::default()
    }
}

impl Migrate for Nobody {
    fn migrate(&mut self, _: Pfn, _: Pfn, _: Order) -> bool {
        false
    }
}

#[test]
fn frames_of_any_number() {
    let map = MemoryMap::uma(PageCount(4096), 0, 1).unwrap();
    let cpu = map.cpus().by_rank(0).unwrap();
    let mut pages =
        PageAllocator::new(&PageConfig::new(map, FragmentationPolicy::LINUX_6_12)).unwrap();
    let orders = || [Order::ZERO, Order::PAGEBLOCK, Order::MAX].into_iter();
    for (one, other) in pairs().filter(|(one, _)| *one >= 1 << 63) {
        let (pfn, to) = (Pfn(one), Pfn(other));
        let kind = Migratetype::Movable;
        assert!(pages.frame(pfn).is_none() && pages.zone_of_frame(pfn).is_none());
        assert!(pages.block_type(pfn).is_none() && pages.is_marked(pfn).is_none());
        assert!(pages.cached_as(pfn).is_none());
        assert!(pages.set_movable(pfn, true).is_err() && pages.set_block_type(pfn, kind).is_err());
        assert!(pages.exchange(pfn, to).is_err() && pages.exchange(to, pfn).is_err());
        assert!(pages.free_as(cpu, pfn, kind).is_err() && pages.free(cpu, pfn).is_err());
        for order in orders() {
            assert!(pages.alloc_at(pfn, order).is_err() && pages.take_exactly(pfn, order).is_err());
            assert!(pages.isolate(pfn, order).is_err() && pages.join(pfn, order).is_err());
            assert!(pages.split(pfn, order).is_err());
        }
        assert!(pages.free_bulk(cpu, &[pfn, to]).is_err() && pages.free_bulk(cpu, &[]).is_ok());
        assert!(pages.put_on_cpu(cpu, pfn).is_err());
        pages.set_skip(pfn, true);
        pages.turn_list(pfn, true);
        let zone = pages.zones().next().unwrap().id;
        pages.set_per_cpu_bound(cpu, zone, PageCount(one));
        pages.set_per_cpu_bound(cpu, zone, PageCount(other));
    }
    let request = PageRequest::new(Order::MAX, Migratetype::Movable).flags(RequestFlags::RECLAIM);
    for now in ENDS.map(Nanos) {
        let mut frames = [Pfn(0); 1];
        while pages.alloc_bulk(now, cpu, request, &mut frames) > 0 {}
        assert!(pages.serve(now, cpu, request, &mut Nobody).is_err());
        if let Err(mut attempt) = pages.alloc(now, cpu, request) {
            let next = attempt.advance(&mut pages, now, Outcome::Begin);
            assert!(!matches!(next, Next::Done(_)));
        }
        let (mut kswapd, mut kcompactd) = (Kswapd::new(NodeId(0)), Kcompactd::new(NodeId(0)));
        for budget in [0, 1, u64::MAX - 1, u64::MAX].map(|pages| PageBudget { pages }) {
            let _ = kswapd.step(now, &mut pages, &mut Nobody, budget);
            let _ = kcompactd.step(now, &mut pages, &mut Nobody, budget);
        }
        let _ = kcompactd.advance(now, &mut pages, &mut PageBudget { pages: 0 });
    }
    for end in [0, 1, u32::MAX - 1, u32::MAX] {
        let _ = pages.set_watermark_scale_factor(end);
        let _ = pages.set_boost_factor(end);
        pages.set_lowmem_reserve_ratio([end; ZoneKind::COUNT]);
        assert!(pages.serve(Nanos(0), cpu, request, &mut Nobody).is_err());
    }
    pages.check().unwrap();
}

#[test]
fn areas_at_any_page() {
    let layout = Layout::window(Span::new(1, 1 << 40).unwrap(), Direction::Down);
    let config = SpaceConfig::new(layout, Placement::preset("nofrag").unwrap().placement);
    let attributes = Attributes::anonymous(Protection::READ_WRITE);
    let places = || ENDS.into_iter().chain([1 << 20]).map(Vpn);
    let counts = || ENDS.into_iter().chain([4]).map(PageCount);
    for (at, pages) in places().flat_map(|at| counts().map(move |pages| (at, pages))) {
        let mut space = AddressSpace::new(config);
        space.map_fixed(Vpn(1 << 20), PageCount(4), attributes).unwrap();
        let _ = (space.lookup(at), space.find(at), space.blocker_above(at), space.grow_stack(at));
        let _ = space.touch(at, pages);
        let _ = space.protect(at, pages, Protection::NONE);
        let _ = space.change(at, pages, |_| {});
        for target in [RemapTarget::InPlace, RemapTarget::MayMove, RemapTarget::To(at)] {
            let _ = space.remap(Vpn(1 << 20), PageCount(4), pages, target);
            let _ = space.remap(at, pages, PageCount(4), target);
        }
        let _ = space.map_fixed_noreplace(at, pages, attributes);
        let _ = space.load(at, pages, attributes);
        let _ = space.map_fixed(at, pages, attributes);
        space.check().unwrap();
        for flags in [MapFlags::default(), MapFlags { align: pages.0, ..MapFlags::default() }] {
            drop(space.begin_move(at, pages, flags));
        }
        for to in places() {
            drop(space.begin_move_to(at, pages, to));
        }
        let _ = space.unmap(at, pages);
    }
}

#[test]
fn areas_that_are_shared_at_any_page() {
    let policy = VmapPolicy::preset("nofrag").unwrap().policy;
    let span = Span::new(1, 1 << 40).unwrap();
    let config = VmapConfig { span, cpus: CpuSet::first(1).unwrap(), policy };
    let space = VmapSpace::new(config, (), ()).unwrap();
    let cpu = space.cpus().by_rank(0).unwrap();
    for (one, other) in pairs() {
        assert!(space.find(Vpn(one)).is_none() && space.free_deferred(cpu, Vpn(one)).is_err());
        assert!(space.cancel(Vpn(one)).is_err());
        if let Ok(area) = space.try_map_ram(cpu, one, &()) {
            space.unmap_ram(cpu, area).unwrap();
        }
        for offsets in [[one, other], [0, one]] {
            assert!(space.free_group(cpu, Vpn(one), &offsets).is_err());
            for align in ENDS {
                if let Ok(base) = space.alloc_group(cpu, &offsets, &[one, other], align) {
                    space.free_group(cpu, base, &offsets).unwrap();
                }
            }
        }
        space.purge_all();
    }
}
