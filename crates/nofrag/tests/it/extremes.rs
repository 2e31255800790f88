//! Every public constructor at the ends of its numbers: an answer or an error, never a panic, an overflow or an abort.

use nofrag::cpu::CpuSet;
use nofrag::mmap::{
    AddressSpace, Attributes, Direction, Layout, MapFlags, Placement, Protection, SpaceConfig,
    StackRule,
};
use nofrag::page::{
    FragmentationIndices, FragmentationPolicy, MemoryMap, NodeMap, PageAllocator, PageConfig,
    ZoneKind, ZoneMap,
};
use nofrag::ranges::{AlignClasses, AlignRule, Config, Fit, Index, RangeAllocator, Request, Span};
use nofrag::units::{Order, PageCount, PageSize, Pfn, Vpn};
use nofrag::vmap::{AreaRequest, BlockGeometry, VmapConfig, VmapPolicy, VmapSpace};

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
