//! Areas that are handed out, and their costs in mappings and calls.

use nofrag::check::Check;
use nofrag::page::Migratetype;
use nofrag::units::{Order, PageCount, Pfn, Vpn};
use nofrag::vmap::{MapRamError, UnmapRamError, VmapPolicy};
use nofrag_backing::faults::{self, Call};
use nofrag_backing::frames::{FrameBlock, FrameError, FrameRequest};
use nofrag_backing::mapped::{
    Collapsed, Grain, MapFramesError, Mapped, MappedConfig, MappedError, Mobility, VmallocError,
    VmallocRequest,
};

use super::{Read, owner, pages, read_in_child, scatter, seen, seen_in_frame, shown_areas};
use super::{space, space_with, stamp};
use crate::frames::MIB;

#[test]
fn scattered_frames_stand_in_a_row() {
    let mapped = space(8, 64);
    let here = owner(&mapped, 0);
    let hoard = scatter(&mapped, 900);
    let bytes = 700 * 4096 - 5;
    let area = mapped.vmalloc(here, &VmallocRequest::new(bytes)).unwrap();
    assert_eq!((area.pages(), area.bytes()), (PageCount(700), 700 * 4096));
    pages(&area).for_each(|vpn| assert_eq!(seen(&mapped, vpn), (0, 0)));
    pages(&area).for_each(|vpn| stamp(&mapped, vpn, 1 ^ vpn.0));
    let blocks = mapped.blocks(area.start());
    assert_eq!(blocks.len(), 700);
    for (vpn, block) in pages(&area).zip(&blocks) {
        assert_eq!(seen_in_frame(&mapped, block.pfn), (1 ^ vpn.0, vpn.0));
    }
    let guard = Vpn(area.start().0 + 700);
    assert_eq!(read_in_child(&mapped, guard), Read::Signal(libc::SIGSEGV));
    assert_eq!(mapped.check(), Ok(()));
    mapped.vfree(here, area).unwrap();
    mapped.settle();
    mapped.frames().free_bulk(here, &hoard).unwrap();
    assert_eq!(mapped.frames().stats().free, mapped.frames().len());
    assert_eq!((mapped.check(), shown_areas(&mapped).len()), (Ok(()), 0));
}

/// Adjacent pages of consecutive frames are one area of the kernel, in whichever calls they were mapped.
/// Source: docs/sources/backing.md#oracle-2.
#[test]
fn adjacent_pages_of_consecutive_frames_are_one_area() {
    let config = MappedConfig { policy: VmapPolicy::LINUX_6_11, ..MappedConfig::new(64 * MIB) };
    let mapped = space_with(16, &config);
    let here = owner(&mapped, 0);
    let block = FrameRequest::new(Order::MAX, Migratetype::Unmovable);
    let block = mapped.frames().alloc(here, block).unwrap();
    mapped.frames().split(block.pfn, Order::ZERO).unwrap();
    let single = |pfn| FrameBlock { pfn: Pfn(pfn), order: Order::ZERO };
    let mut starts = Vec::new();
    for pfn in block.pfn.0..block.end().0 {
        starts.push(mapped.map_ram(here, &[single(pfn)]).unwrap().start().0);
    }
    assert!(starts.is_sorted_by(|one, next| one + 1 == *next), "1,024 adjacent slots of a block");
    assert_eq!(shown_areas(&mapped).len(), 1);
    assert_eq!(mapped.check(), Ok(()));
}

#[test]
fn frames_in_a_row_are_mapped_in_one_call() {
    let mapped = space(8, 64);
    let here = owner(&mapped, 0);
    for grain in [Grain::Page, Grain::Largest, Grain::Huge] {
        let before = faults::made();
        let area = mapped.vmalloc(here, &VmallocRequest::new(3 * MIB).grain(grain)).unwrap();
        let calls = faults::made().since(&before).of(Call::Mmap);
        assert!(calls <= 2, "{calls} for {grain:?}");
        mapped.vfree(here, area).unwrap();
        mapped.settle();
    }
}

/// Makes 64 freed areas in a row inaccessible by one `mmap`: they must not be removed in many calls, nor by `munmap`.
/// Source: docs/sources/backing.md#munmap-block-no-batch.
#[test]
fn munmap_block_no_batch() {
    let mapped = space(8, 64);
    let here = owner(&mapped, 0);
    let areas: Vec<_> =
        (0..64).map(|_| mapped.vmalloc(here, &VmallocRequest::new(3 * 4096)).unwrap()).collect();
    let before = faults::made();
    areas.into_iter().for_each(|area| mapped.vfree(here, area).unwrap());
    assert_eq!(faults::made().since(&before).total(), 0, "a free makes no call");
    mapped.settle();
    let made = faults::made().since(&before);
    assert_eq!((made.of(Call::Mmap), made.total()), (1, 1));
    let counters = mapped.counters();
    assert_eq!((counters.flushed, counters.flush_calls, counters.calls_saved()), (64, 1, 63));
    assert_eq!(shown_areas(&mapped).len(), 0);
}

/// Counts the calls of flushes: a call reaches over pages that are inaccessible already, and never over those that are
/// shown.
#[test]
fn one_call_hides_all_that_lies_between_two_live_areas() {
    let mapped = space(8, 64);
    let here = owner(&mapped, 0);
    let request = VmallocRequest::new(3 * 4096);
    let mut areas: Vec<_> =
        (0..60).map(|_| Some(mapped.vmalloc(here, &request).unwrap())).collect();
    for area in areas.iter().flatten() {
        pages(area).for_each(|vpn| stamp(&mapped, vpn, 1));
    }
    // First every third one, then the next ones; every third one lives on.
    for (first, calls) in [(0, 20), (1, 20)] {
        for area in areas.iter_mut().skip(first).step_by(3) {
            mapped.vfree(here, area.take().unwrap()).unwrap();
        }
        let before = mapped.counters().flush_calls;
        mapped.settle();
        assert_eq!(mapped.counters().flush_calls - before, calls);
        for area in areas.iter().flatten() {
            pages(area).for_each(|vpn| assert_eq!(seen(&mapped, vpn), (1, vpn.0)));
        }
    }
    // Ten that are apart by pages that are inaccessible already.
    for area in areas.iter_mut().skip(2).step_by(3).take(10) {
        mapped.vfree(here, area.take().unwrap()).unwrap();
    }
    let before = mapped.counters().flush_calls;
    mapped.settle();
    assert_eq!(mapped.counters().flush_calls - before, 1);
    areas.into_iter().flatten().for_each(|area| mapped.vfree(here, area).unwrap());
    assert_eq!(mapped.check(), Ok(()));
}

#[test]
fn an_area_may_take_all_frames_and_no_more() {
    let mapped = space(4, 64);
    let here = owner(&mapped, 0);
    let all = mapped.vmalloc(here, &VmallocRequest::new(4 * MIB)).unwrap();
    let page = VmallocRequest::new(1);
    let none = mapped.vmalloc(here, &page);
    assert!(matches!(none, Err(VmallocError::Frames(FrameError::Exhausted { .. }))), "{none:?}");
    mapped.vfree(here, all).unwrap();
    assert_eq!(mapped.frames().stats().free, PageCount(0), "they are still shown");
    let next = mapped.vmalloc(here, &page).expect("freed areas are flushed for it");
    assert!(mapped.vmalloc(here, &VmallocRequest::new(4 * MIB)).is_err());
    mapped.vfree(here, next).unwrap();
    for bytes in [0, u64::MAX, 65 * MIB] {
        let refused = mapped.vmalloc(here, &VmallocRequest::new(bytes));
        assert!(matches!(refused, Err(VmallocError::Area(_))), "{refused:?}");
    }
    assert!(mapped.vmalloc(here, &VmallocRequest::new(63 * MIB)).is_err());
    assert_eq!(mapped.check(), Ok(()));
}

#[test]
fn an_area_of_another_space_is_not_freed() {
    let (one, other) = (space(4, 64), space(4, 64));
    let here = owner(&one, 0);
    let area = one.vmalloc(here, &VmallocRequest::new(1)).unwrap();
    assert!(other.vfree(here, area).is_err());
    let shown = one.map_ram(here, &scatter(&one, 1)).unwrap();
    assert_eq!(other.unmap_ram(here, shown), Err(UnmapRamError::Foreign));
    assert_eq!((one.check(), other.check()), (Ok(()), Ok(())));
}

#[test]
fn callers_show_their_own_frames_and_keep_them() {
    for preset in VmapPolicy::presets() {
        let config = MappedConfig { policy: preset.policy, ..MappedConfig::new(64 * MIB) };
        let mapped = space_with(8, &config);
        let here = owner(&mapped, 1);
        let blocks = scatter(&mapped, 100);
        let twice: Vec<_> = blocks[..40].iter().chain(&blocks[..24]).copied().collect();
        let small = mapped.map_ram(here, &twice).unwrap();
        let large = mapped.map_ram(here, &blocks).unwrap();
        for (page, block) in (0..).zip(&twice) {
            stamp(&mapped, Vpn(small.start().0 + page), block.pfn.0);
        }
        for (page, block) in (0..40).zip(&blocks) {
            assert_eq!(
                seen(&mapped, Vpn(large.start().0 + page)).0,
                block.pfn.0,
                "{}",
                preset.name
            );
        }
        assert_eq!(mapped.check(), Ok(()));
        mapped.unmap_ram(here, small).unwrap();
        mapped.unmap_ram(here, large).unwrap();
        mapped.settle();
        assert_eq!((shown_areas(&mapped).len(), mapped.check()), (0, Ok(())), "{}", preset.name);
        mapped.frames().free_bulk(here, &blocks).unwrap();
        assert_eq!(mapped.frames().stats().free, mapped.frames().len());
    }
}

#[test]
fn frames_that_are_not_in_use_are_not_shown() {
    let mapped = space(4, 64);
    let here = owner(&mapped, 0);
    let request = FrameRequest::new(Order::new(2).unwrap(), Migratetype::Unmovable);
    let block = mapped.frames().alloc(here, request).unwrap();
    let part = FrameBlock { order: Order::ZERO, ..block };
    let inside = FrameBlock { pfn: Pfn(block.pfn.0 + 1), order: Order::ZERO };
    let nowhere = FrameBlock { pfn: Pfn(u64::MAX >> 12), order: Order::ZERO };
    for wrong in [part, inside, nowhere] {
        let refused = mapped.map_ram(here, &[block, wrong]);
        assert!(matches!(refused, Err(MapRamError::Install(_))), "{refused:?}");
    }
    assert_eq!(mapped.map_ram(here, &[]), Err(MapRamError::ZeroSize));
    mapped.settle();
    mapped.frames().free(here, block.pfn).unwrap();
    assert_eq!(mapped.frames().stats().free, mapped.frames().len(), "nothing holds it");
    assert_eq!((mapped.check(), shown_areas(&mapped).len()), (Ok(()), 0));
}

/// At the budget of mappings freed areas are flushed, then larger blocks are taken, then the request fails.
#[test]
fn the_budget_of_mappings_holds() {
    let config = MappedConfig { mappings: Some(40), ..MappedConfig::new(64 * MIB) };
    let mapped = space_with(8, &config);
    let here = owner(&mapped, 0);
    let hoard = scatter(&mapped, 500);
    let page = VmallocRequest::new(4096);
    let areas: Vec<_> = std::iter::from_fn(|| mapped.vmalloc(here, &page).ok()).collect();
    assert_eq!((areas.len(), mapped.mappings()), (20, (40, 40)));
    let refused = mapped.vmalloc(here, &page);
    let why = MapFramesError::MappingBudget { needed: 2, left: 0, budget: 40 };
    assert_eq!(refused, Err(VmallocError::Map(why)));
    assert_eq!(mapped.check(), Ok(()));
    areas.into_iter().for_each(|area| mapped.vfree(here, area).unwrap());
    assert_eq!(mapped.mappings(), (40, 40), "they are still shown");
    let whole =
        mapped.vmalloc(here, &VmallocRequest::new(2 * MIB)).expect("it takes larger blocks");
    assert!(mapped.blocks(whole.start()).len() < 40, "500 scattered frames would not do");
    mapped.vfree(here, whole).unwrap();
    mapped.settle();
    assert_eq!((mapped.mappings(), mapped.check()), ((0, 40), Ok(())));
    mapped.frames().free_bulk(here, &hoard).unwrap();
}

#[test]
fn two_processes_see_the_same_area() {
    let mapped = space(4, 64);
    let here = owner(&mapped, 0);
    let area = mapped.vmalloc(here, &VmallocRequest::new(8 * 4096)).unwrap();
    stamp(&mapped, Vpn(area.start().0 + 3), 0x5a);
    assert_eq!(read_in_child(&mapped, Vpn(area.start().0 + 3)), Read::Byte(0x5a));
    mapped.vfree(here, area).unwrap();
}

#[test]
fn threads_have_areas_of_their_own() {
    let mapped = space(24, 256);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let mapped: &Mapped = &mapped;
            scope.spawn(move || {
                let here = owner(mapped, rank);
                for round in 1..300_u64 {
                    let mark = (rank as u64) << 32 | round;
                    let request = VmallocRequest::new((round * 7919) % (40 * 4096) + 1);
                    let area = mapped.vmalloc(here, &request).unwrap();
                    pages(&area).for_each(|vpn| assert_eq!(seen(mapped, vpn), (0, 0)));
                    pages(&area).for_each(|vpn| stamp(mapped, vpn, mark));
                    pages(&area).for_each(|vpn| assert_eq!(seen(mapped, vpn), (mark, vpn.0)));
                    mapped.vfree(here, area).unwrap();
                    if round % 64 == 0 {
                        mapped.settle();
                    }
                }
            });
        }
    });
    mapped.settle();
    assert_eq!(mapped.check(), Ok(()));
    assert_eq!(mapped.frames().stats().free, mapped.frames().len());
}

#[test]
fn an_area_of_another_space_is_refused_even_at_the_same_addresses() {
    let [one, other] = [space(4, 64), space(4, 64)];
    let area = one.vmalloc(owner(&one, 0), &VmallocRequest::new(4096)).unwrap();
    assert_eq!(other.populate(&area), Err(MappedError::Foreign));
    assert_eq!(other.collapse(&area), Collapsed::default());
    other.set_mobility(&area, Mobility::Movable);
    assert!(other.vfree(owner(&other, 0), area).is_err());
    let start = one.span().start();
    let foreign = one.vmalloc(owner(&one, 0), &VmallocRequest::new(4096)).unwrap();
    drop(one);
    // Most likely at the same addresses.
    let next = space(4, 64);
    let same = next.span().start() == start;
    let mine = next.vmalloc(owner(&next, 0), &VmallocRequest::new(4096)).unwrap();
    assert!(next.vfree(owner(&next, 0), foreign).is_err(), "at the same addresses: {same}");
    assert_eq!(next.vfree(owner(&next, 0), mine), Ok(()));
}

#[test]
fn blocks_that_are_none_are_refused() {
    let mapped = space(4, 64);
    let here = owner(&mapped, 0);
    let none = FrameBlock { pfn: Pfn(u64::MAX), order: Order::ZERO };
    assert!(mapped.map_ram(here, &[none, none]).is_err());
    assert_eq!((mapped.mappings().0, mapped.check()), (0, Ok(())));
}
