//! The bytes that structures say they take are the bytes that the heap has given them.

use crate::block_support::{
    GEOMETRIES, PageBook, block_space, cpu_of, gappy_cpus, must_map, presets_with,
};
use crate::memory::heap_bytes;
use nofrag::check::Check;
use nofrag::page::{FragmentationPolicy, MemoryMap, PageAllocator, PageConfig};
use nofrag::ranges::{
    AlignClasses, AlignRule, Config, Index, RangeAllocator, RangeHeap, Request, Span,
};
use nofrag::units::PageCount;
use nofrag::vmap::RamArea;

/// Makes something, and compares the bytes that it tells with those of the heap.
#[track_caller]
fn check_bytes<T>(make: impl FnOnce() -> T, told: impl Fn(&T) -> usize) {
    let before = heap_bytes();
    let made = make();
    assert_eq!(told(&made) as i64, heap_bytes() - before);
}

#[test]
fn heaps_tell_what_the_memory_gave_them() {
    for ranges in [0, 1, 1000] {
        let make = || {
            let mut heap = RangeHeap::over(Span::sized(0, 4 * ranges + 4).unwrap()).unwrap();
            for _ in 0..ranges {
                heap.alloc(2).unwrap();
            }
            heap
        };
        check_bytes(make, RangeHeap::metadata_bytes);
    }
}

/// The list of what belongs to the space is no record of a hole; it is one span here.
#[test]
fn ranges_tell_what_the_heap_gave_them() {
    let plain = |index| Config { index, ..Config::default() };
    let classes = AlignClasses::new(&[1, 3]).unwrap();
    for config in [
        plain(Index::CachedScan),
        plain(Index::AugmentedTree(AlignRule::default())),
        plain(Index::WideBlocks),
        Config { size_index: true, ..Config::default() },
        Config { align_classes: classes, ..Config::default() },
    ] {
        for holes in [0, 1, 100, 20_000] {
            let mut ranges = RangeAllocator::new(config);
            let whole = Span::sized(1 << 20, (holes + 1) << 12).unwrap();
            ranges.add_span(whole).unwrap();
            let state = |ranges: &RangeAllocator| heap_bytes() - ranges.metadata_bytes() as i64;
            let before = state(&ranges);
            ranges.alloc_at(whole).unwrap();
            for number in 0..holes {
                let start = whole.start() + (number << 12);
                ranges.free(Span::sized(start, 1 + number * 7919 % 3000).unwrap()).unwrap();
            }
            assert_eq!(state(&ranges), before, "{config:?}, {holes} holes");
        }
    }
}

/// After a time of many holes the records of those that are left are as dense as in a space that never had more.
#[test]
fn ranges_shrink_to_what_is_in_use() {
    for size_index in [false, true] {
        let config = Config { size_index, ..Config::default() };
        let mut ranges = RangeAllocator::new(config);
        let whole = Span::sized(0, 1 << 24).unwrap();
        ranges.add_span(whole).unwrap();
        ranges.alloc_at(whole).unwrap();
        let hole = |number: u64| Span::sized(number << 6, 1 + number % 63).unwrap();
        (0..1 << 18).for_each(|number| ranges.free(hole(number)).unwrap());
        for number in (0..1 << 18).filter(|number| number % 16 > 0) {
            ranges.alloc_at(hole(number)).unwrap();
        }
        ranges.reserve(1 << 18).unwrap();
        let (holes, before) = (ranges.stats().holes, ranges.metadata_bytes());
        let heap = heap_bytes() - before as i64;
        ranges.shrink().unwrap();
        let after = ranges.metadata_bytes();
        assert!(after < 18 * holes && after * 8 < before, "{before} bytes, then {after}");
        assert_eq!(heap_bytes() - after as i64, heap, "what is told is what the heap gave");
        ranges.check().unwrap();
        let whole = Request::new(1 << 20);
        assert!(ranges.alloc(&whole).is_err(), "no hole has become longer");
        let found = (0..1 << 18).all(|number| ranges.is_free(hole(number)) == (number % 16 == 0));
        assert!(found, "each hole is where it was");
    }
}

#[test]
fn page_allocators_tell_what_the_heap_gave_them() {
    use FragmentationPolicy as Policy;
    for policy in [Policy::LINUX_4_20, Policy::LINUX_7_2_DEFRAG, Policy::NOFRAG] {
        for (pages, cpus) in [(1 << 13, 1), (1 << 18, 4)] {
            let make = || {
                let map = MemoryMap::pc(PageCount(pages), cpus).unwrap();
                PageAllocator::<()>::new(&PageConfig::new(map, policy)).unwrap()
            };
            check_bytes(make, PageAllocator::metadata_bytes);
        }
    }
}

/// The areas that blocks lie in are not theirs; there is room for their records from the start.
#[test]
fn blocks_tell_what_the_heap_gave_them() {
    for preset in GEOMETRIES.into_iter().flat_map(|geometry| presets_with(geometry, 1 << 20)) {
        let span = Span::new(1 << 20, (1 << 20) + (1 << 17)).unwrap();
        let space = block_space(preset.policy, gappy_cpus(), PageBook::new(span, 0));
        let cpus = [0, 1, 2].map(|rank| cpu_of(&space, rank));
        // Too large for blocks.
        let areas: Vec<RamArea> = (0..1500).map(|at| must_map(&space, cpus[at % 3], 65)).collect();
        areas.into_iter().for_each(|area| space.unmap_ram(cpus[0], area).unwrap());
        let _ = space.purge_all();
        let state = || heap_bytes() - space.block_stats().metadata_bytes as i64;
        let before = state();
        for cpu in cpus {
            let mapped: Vec<RamArea> = (0..400).map(|_| must_map(&space, cpu, 16)).collect();
            assert_eq!(state() - size_of_val(&*mapped) as i64, before, "{}", preset.name);
            mapped.iter().step_by(2).for_each(|area| space.unmap_ram(cpu, *area).unwrap());
            drop(mapped);
            assert_eq!(state(), before, "{}, half of it unmapped", preset.name);
        }
    }
}
