//! Each bug of Linux's history that concerns areas (docs/sources/vmap.md#bugs), as a test named after it. Where the
//! broken behaviour is a policy value, the test also shows that it would catch it.

use super::memory::without_memory;
use super::vmap_support::{
    HAS_NODES, StaleBook, TestSpace, cpu, presets_with_limit, space_of, span,
};
use nofrag::check::Check;
use nofrag::cpu::CpuSet;
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{
    Area, AreaError, AreaRequest, AreaState, Budget, Busy, CpuHandle, Decay, Drain, DrainYield,
    FreeAreaError, Freed, GroupError, Guard, LazyLimit, LazyStore, LoadError, Lookup, Mapper,
    Notifier, Pools, Progress, VmapConfig, VmapPolicy, VmapSpace, Wait,
};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

const LIMITLESS: LazyLimit = LazyLimit::Pages(1 << 40);

fn without_limit(policy: VmapPolicy) -> VmapPolicy {
    VmapPolicy { lazy_limit: LIMITLESS, ..policy }
}

fn largest_free(space: &TestSpace) -> u64 {
    space.stats().largest_hole
}

/// A lazy area's addresses are handed out again only after a flush, which a caller that must not reclaim does not get
/// (vmap.md#flush-before-reuse).
#[test]
fn flush_before_reuse() {
    for preset in presets_with_limit(1 << 40) {
        let space = space_of(preset.policy, span(0x100, 8), 2);
        let by = cpu(&space, 0);
        let first = space.alloc(by, &AreaRequest::new(7)).unwrap();
        space.free(by, first.start).unwrap();
        // The only place is lazy: a caller that may not reclaim gets nothing, one that may gets it flushed.
        let request = AreaRequest::new(7);
        let impatient = space.alloc(by, &request.wait(Wait::Never));
        assert_eq!(impatient, Err(AreaError::WouldBlock), "{}", preset.name);
        assert_eq!(space.mapper().flushes.load(Ordering::SeqCst), 0, "{}", preset.name);
        let second = space.alloc(by, &request).unwrap();
        assert_eq!(second.start, first.start);
        assert!(!space.mapper().is_stale(second.span()), "{}", preset.name);
    }
}

/// Areas in pools are free only after a reclaim: a caller that may not reclaim is told that one would help.
#[test]
fn pooled_areas_are_there_for_who_may_reclaim() {
    if !HAS_NODES {
        return;
    }
    let policy = VmapPolicy { pools: Pools::ExactSize(Decay::Quarter), ..VmapPolicy::LINUX_6_9 };
    let space = space_of(without_limit(policy), span(0, 8), 2);
    let by = cpu(&space, 0);
    let areas: Vec<_> = (0..4).map(|_| space.alloc(by, &AreaRequest::new(1)).unwrap()).collect();
    for area in &areas {
        space.free(by, area.start).unwrap();
    }
    space.step(Budget { areas: usize::MAX });
    let stats = space.stats();
    assert_eq!((stats.lazy_areas, stats.pooled_areas), (0, 4));
    let request = AreaRequest::new(7);
    let impatient = space.alloc(by, &request.wait(Wait::Never));
    assert_eq!(impatient, Err(AreaError::WouldBlock));
    space.alloc(by, &request).unwrap();
}

#[test]
fn flush_before_reuse_through_a_handle() {
    let policy = VmapPolicy { lazy_limit: LazyLimit::Pages(40), ..VmapPolicy::NOFRAG };
    let space = space_of(policy, span(0, 400), 2);
    let mut handle = space.cpu(cpu(&space, 0)).unwrap();
    let mut kept = Vec::new();
    for round in 0..2000 {
        let area = handle.alloc(&AreaRequest::new(1 + round % 7)).unwrap();
        assert!(!space.mapper().is_stale(area.span()), "round {round}");
        kept.push(area.start);
        if kept.len() > 5 {
            handle.free(kept.swap_remove(round as usize % 5)).unwrap();
        }
    }
    assert!(space.mapper().flushes.load(Ordering::SeqCst) > 0);
}

/// A drain that yields only below twice the limit bounds lazy pages; one that always yields is outrun
/// (vmap.md#drain-outrun).
#[test]
fn drain_outrun() {
    let run = |policy: VmapPolicy, drain_yield| {
        let lazy_limit = LazyLimit::Pages(100);
        let policy = VmapPolicy { lazy_limit, drain: Drain::Posted, drain_yield, ..policy };
        let space = space_of(policy, span(0, 1 << 16), 2);
        let by = cpu(&space, 0);
        let request = AreaRequest::new(10).guard(Guard::None);
        let mut most = 0;
        for _ in 0..300 {
            for _ in 0..5 {
                let area = space.alloc(by, &request).unwrap();
                space.free(by, area.start).unwrap();
            }
            space.step(Budget { areas: 1 });
            most = most.max(space.lazy_pages().get());
        }
        space.check().unwrap();
        most
    };
    for preset in VmapPolicy::presets() {
        let bounded = run(preset.policy, DrainYield::BelowTwiceLimit);
        assert!(bounded < 2 * 100 + 50, "{}: {bounded} lazy pages", preset.name);
        let outrun = run(preset.policy, DrainYield::Always);
        if preset.policy.lazy != LazyStore::Merged {
            assert!(outrun > 1000, "{}: always yielding keeps {outrun} lazy pages", preset.name);
        }
    }
}

/// A purge that must catch up stops below twice the limit, where each step keeps to its budget again.
#[test]
fn a_step_keeps_to_its_budget_below_twice_the_limit() {
    for preset in presets_with_limit(100).filter(|it| it.policy.lazy != LazyStore::Merged) {
        let (drain, drain_yield) = (Drain::Posted, DrainYield::BelowTwiceLimit);
        let policy = VmapPolicy { drain, drain_yield, ..preset.policy };
        let space = space_of(policy, span(0, 1 << 16), 2);
        let by = cpu(&space, 0);
        let request = AreaRequest::new(10).guard(Guard::None);
        let areas: Vec<_> = (0..30).map(|_| space.alloc(by, &request).unwrap()).collect();
        for area in &areas {
            space.free(by, area.start).unwrap();
        }
        let caught_up = space.step(Budget { areas: 1 });
        assert!(caught_up.more, "{}", preset.name);
        let left = space.lazy_pages().get();
        assert!((150..200).contains(&left), "{}: {left} lazy pages", preset.name);
    }
}

/// Returns the number of `count` pooled areas that a partial decay leaves.
fn left_after_decay(decay: Decay, count: u64) -> u64 {
    let policy = VmapPolicy { pools: Pools::ExactSize(decay), ..VmapPolicy::LINUX_6_9 };
    let space = space_of(without_limit(policy), span(0, 1000), 2);
    let by = cpu(&space, 0);
    let areas: Vec<_> =
        (0..count).map(|_| space.alloc(by, &AreaRequest::new(1)).unwrap()).collect();
    for area in &areas {
        space.free(by, area.start).unwrap();
    }
    space.step(Budget { areas: usize::MAX });
    assert_eq!(space.stats().pooled_areas, count);
    space.step(Budget { areas: usize::MAX });
    space.check().unwrap();
    space.stats().pooled_areas
}

/// A partial decay leaves pools of one to three areas whole; the shipped mistake empties a pool of three
/// (vmap.md#decay-underflow).
#[test]
fn decay_underflow() {
    if !HAS_NODES {
        return;
    }
    for count in 0..12 {
        assert_eq!(left_after_decay(Decay::Quarter, count), count - count / 4);
    }
    assert_eq!(left_after_decay(Decay::QuarterUnderflow, 3), 0, "the shipped mistake shows");
    assert_eq!(left_after_decay(Decay::QuarterUnderflow, 4), 3);
}

/// Every page of an area leads to the area; a lookup in the home node alone misses some (vmap.md#interior-lookup).
#[test]
fn interior_lookup() {
    let found_inside = |policy: VmapPolicy, pages: u64| {
        let space = space_of(without_limit(policy), span(0x10, 1 << 24), 3);
        let by = cpu(&space, 1);
        space.alloc(by, &AreaRequest::new(5)).unwrap();
        let area = space.alloc(by, &AreaRequest::new(pages)).unwrap();
        space.alloc(by, &AreaRequest::new(5)).unwrap();
        let step = (pages / 500).max(1);
        (0..area.total_pages().get())
            .step_by(step as usize)
            .all(|page| space.find(Vpn(area.start.get() + page)) == Some(area))
    };
    for preset in VmapPolicy::presets() {
        for pages in [1, 15, 16, 63, 64, 65, 200, 4096, 4097, 300_000, 10_000_000] {
            assert!(found_inside(preset.policy, pages), "{}: {pages} pages", preset.name);
        }
    }
    let home_only = VmapPolicy { lookup: Lookup::HomeNode, ..VmapPolicy::LINUX_6_9 };
    assert!(!HAS_NODES || !found_inside(home_only, 200), "the shipped mistake shows");
}

/// Areas inside a window of modules overlap no others, and ranges outside the space are refused
/// (vmap.md#foreign-range-insert).
#[test]
fn foreign_range_insert() {
    let modules = span(0x900, 0x80);
    for preset in presets_with_limit(60) {
        let space = space_of(preset.policy, span(0x100, 0x900), 2);
        let by = cpu(&space, 0);
        let mut areas = Vec::new();
        for round in 0..2000_u64 {
            let request = AreaRequest::new(1 + round % 9);
            let request = if round % 3 == 0 { request.within(modules) } else { request };
            if let Ok(area) = space.alloc(by, &request) {
                assert!(request.within.is_none() || modules.covers(area.span()));
                areas.push(area);
            }
            if round % 5 > 1 && !areas.is_empty() {
                let area = areas.swap_remove(round as usize % areas.len());
                space.free(by, area.start).unwrap();
            }
        }
        space.check().unwrap();
        let outside = span(0x2000, 4);
        let loaded = space.load_area(by, outside, Guard::None, AreaState::Busy);
        assert_eq!(loaded, Err(LoadError::Foreign));
        let request = AreaRequest::new(1).within(outside);
        assert_eq!(space.alloc(by, &request), Err(AreaError::OutsideSpace));
        assert_eq!(space.free(by, Vpn(0x2000)), Err(FreeAreaError::Foreign));
        assert_eq!(space.free(by, Vpn(0)), Err(FreeAreaError::Foreign));
    }
}

#[test]
fn a_cancelled_area_is_free_at_once_and_only_once() {
    for preset in VmapPolicy::presets() {
        let space = space_of(preset.policy, span(0x100, 64), 2);
        let by = cpu(&space, 0);
        let kept = space.alloc(by, &AreaRequest::new(3)).unwrap();
        let area = space.alloc(by, &AreaRequest::new(5)).unwrap();
        assert_eq!(space.cancel(area.start), Ok(area), "{}", preset.name);
        space.check().unwrap();
        assert_eq!(space.lazy_pages().get(), 0, "{}: nothing waits for a flush", preset.name);
        assert!(space.cancel(area.start).is_err(), "{}", preset.name);
        let inside = Vpn(kept.start.get() + 1);
        let not_a_start = Err(FreeAreaError::NotAStart { start: kept.start });
        assert_eq!(space.cancel(inside), not_a_start, "{}", preset.name);
        assert_eq!(space.cancel(Vpn(0)), Err(FreeAreaError::Foreign));
        // Every page of it can be had again.
        space.free(by, kept.start).unwrap();
        space.purge_all();
        assert_eq!(space.holes().unwrap(), [span(0x100, 64)], "{}", preset.name);
    }
}

#[test]
fn a_lazy_area_that_cannot_be_loaded_leaves_no_lazy_pages() {
    for preset in VmapPolicy::presets() {
        let policy = VmapPolicy { lazy_limit: LazyLimit::Pages(3), ..preset.policy };
        let space = space_of(policy, span(0x100, 64), 2);
        let by = cpu(&space, 0);
        space.load_area(by, span(0x104, 4), Guard::None, AreaState::Busy).unwrap();
        let loaded = space.load_area(by, span(0x102, 4), Guard::None, AreaState::Lazy);
        assert_eq!(loaded, Err(LoadError::Taken), "{}", preset.name);
        assert!(!space.drain_wanted(), "{}: nothing waits", preset.name);
    }
}

/// At the top of the numbers a request that does not fit at its alignment is refused, and nothing wraps
/// (vmap.md#top-overflow).
#[test]
fn top_overflow() {
    for preset in VmapPolicy::presets() {
        let bounds = span(u64::MAX - 1000, 1000);
        let space = space_of(without_limit(preset.policy), bounds, 2);
        let by = cpu(&space, 0);
        for shift in 0..64 {
            let request = AreaRequest::new(1).align(1 << shift);
            match space.alloc(by, &request) {
                Ok(area) => assert!(bounds.covers(area.span()) && shift < 10, "{}", preset.name),
                Err(AreaError::Exhausted { .. }) => assert!(shift > 5, "{}: {shift}", preset.name),
                Err(why) => panic!("{}: {why}", preset.name),
            }
        }
        for pages in [u64::MAX, u64::MAX - 1, 1001, 1000] {
            let refused = space.alloc(by, &AreaRequest::new(pages));
            assert!(matches!(refused, Err(AreaError::Exhausted { .. })), "{}", preset.name);
        }
        space.check().unwrap();
    }
}

#[test]
fn zero_size_and_other_bad_input() {
    for preset in VmapPolicy::presets() {
        let space = space_of(preset.policy, span(0x100, 100), 2);
        let by = cpu(&space, 0);
        let before = space.stats();
        assert_eq!(space.alloc(by, &AreaRequest::new(0)), Err(AreaError::ZeroSize));
        for align in [0, 3, u64::MAX] {
            let request = AreaRequest::new(1).align(align);
            assert_eq!(space.alloc(by, &request), Err(AreaError::AlignNotPowerOfTwo));
        }
        let stranger = CpuSet::first(9).unwrap().by_rank(8).unwrap();
        assert_eq!(space.alloc(stranger, &AreaRequest::new(1)), Err(AreaError::UnknownCpu));
        assert_eq!(space.free(stranger, Vpn(0x100)), Err(FreeAreaError::UnknownCpu));
        assert_eq!(space.cpu(stranger).err(), Some(Busy::UnknownCpu));
        assert_eq!(space.free(by, Vpn(0x110)), Err(FreeAreaError::NotAllocated));
        assert_eq!(space.stats(), before);
    }
}

/// CPU ids with gaps between them work, also where another CPU frees the area (vmap.md#sparse-ids).
#[test]
fn sparse_ids() {
    for preset in VmapPolicy::presets() {
        let cpus = CpuSet::new([0, 2, 77]).unwrap();
        let bounds = span(0, 1 << 20);
        let policy = VmapPolicy { lazy_limit: LazyLimit::Pages(50), ..preset.policy };
        let config = VmapConfig { span: bounds, cpus, policy };
        let space = VmapSpace::new(config, (), ()).unwrap();
        for round in 0..1000 {
            let by = space.cpus().by_rank(round % 3).unwrap();
            let area = space.alloc(by, &AreaRequest::new(1 + round as u64 % 40)).unwrap();
            assert_eq!(area.cpu, by, "{}", preset.name);
            space.free(space.cpus().by_rank((round + 1) % 3).unwrap(), area.start).unwrap();
        }
        space.check().unwrap();
    }
}

/// A second free is refused, whatever became of the area, and changes nothing (vmap.md#double-free).
#[test]
fn double_free() {
    for preset in presets_with_limit(1 << 40) {
        let space = space_of(preset.policy, span(0x40, 1000), 2);
        let (by, other) = (cpu(&space, 0), cpu(&space, 1));
        let area = space.alloc(by, &AreaRequest::new(9)).unwrap();
        space.free(by, area.start).unwrap();
        let before = space.stats();
        assert_eq!(
            space.free(other, area.start),
            Err(FreeAreaError::DoubleFree),
            "{}",
            preset.name
        );
        assert_eq!(space.stats(), before, "{}: nothing changed", preset.name);
        space.step(Budget { areas: usize::MAX });
        let again = space.free(other, area.start);
        let known = [Err(FreeAreaError::DoubleFree), Err(FreeAreaError::NotAllocated)];
        assert!(known.contains(&again), "{}: {again:?}", preset.name);
        space.purge_all();
        assert_eq!(space.free(by, area.start), Err(FreeAreaError::NotAllocated), "{}", preset.name);
        assert_eq!(largest_free(&space), 1000);
        space.check().unwrap();
    }
}

/// All live areas, pieces of groups included, are listed and found with their start and pages (vmap.md#describe).
#[test]
fn describe() {
    for preset in presets_with_limit(1 << 40) {
        let space = space_of(preset.policy, span(0, 20_000), 2);
        let by = cpu(&space, 0);
        let mut expected: Vec<(u64, u64)> = (1..60)
            .map(|pages| space.alloc(by, &AreaRequest::new(pages * 3)).unwrap())
            .map(|area| (area.start.get(), area.pages.get()))
            .collect();
        let base = space.alloc_group(by, &[0, 64], &[10, 20], 64).unwrap().get();
        expected.extend([(base, 10), (base + 64, 20)]);
        expected.sort_unstable();
        let listed = space.areas().unwrap().into_iter().map(|record| {
            assert_eq!(record.state, AreaState::Busy);
            (record.area.start.get(), record.area.pages.get())
        });
        assert_eq!(listed.collect::<Vec<_>>(), expected, "{}", preset.name);
        for (start, pages) in expected {
            let found = space.find(Vpn(start)).unwrap();
            assert_eq!((found.start.get(), found.pages.get()), (start, pages));
        }
    }
}

/// A request that may not wait never flushes: it gets `WouldBlock` if a flush would help, else `Exhausted`
/// (vmap.md#atomic-sleep).
#[test]
fn atomic_sleep() {
    for preset in presets_with_limit(1 << 40) {
        let space = space_of(preset.policy, span(0, 64), 2);
        let by = cpu(&space, 0);
        let request = AreaRequest::new(3).wait(Wait::Never);
        let areas: Vec<_> = (0..16).map(|_| space.alloc(by, &request).unwrap()).collect();
        let full = space.alloc(by, &request);
        assert!(matches!(full, Err(AreaError::Exhausted { .. })), "{}", preset.name);
        for area in &areas {
            space.free_deferred(by, area.start).unwrap();
        }
        assert_eq!(space.alloc(by, &request), Err(AreaError::WouldBlock), "{}", preset.name);
        let flushes = space.mapper().flushes.load(Ordering::SeqCst);
        assert_eq!(flushes, 0, "{}: a non-blocking caller never reclaims", preset.name);
        space.alloc(by, &request.wait(Wait::MayReclaim)).unwrap();
    }
}

/// A window exactly as large as an aligned request with its guard page is granted (vmap.md#exact-range-aligned).
#[test]
fn exact_range_aligned() {
    for preset in ["linux-5.16", "linux-6.1", "linux-6.9", "nofrag"] {
        let policy = VmapPolicy::preset(preset).unwrap().policy;
        let space = space_of(policy, span(0x100, 0x400), 2);
        let by = cpu(&space, 0);
        let exact = span(0x200, 64);
        let request = AreaRequest::new(63).align(64).within(exact);
        assert_eq!(space.alloc(by, &request).unwrap().span(), exact, "{preset}");
    }
}

/// Without memory for records an allocation is refused whole, and a free needs none (vmap.md#refill-recursion).
#[test]
fn refill_recursion() {
    // Records come from the heap or from nowhere: without memory every operation refuses or works, and nothing breaks.
    for preset in presets_with_limit(40) {
        let space = space_of(preset.policy, span(0, 4000), 2);
        let by = cpu(&space, 0);
        let mut live = Vec::new();
        let mut refused = 0;
        for round in 0..3000_u64 {
            let request = AreaRequest::new(1 + round % 13);
            let outcome = if round % 2 == 0 {
                space.alloc(by, &request)
            } else {
                without_memory(|| space.alloc(by, &request))
            };
            match outcome {
                Ok(area) => live.push(area),
                Err(AreaError::OutOfMetadata) => refused += 1,
                Err(AreaError::Exhausted { .. }) => {}
                Err(why) => panic!("{}: {why}", preset.name),
            }
            if live.len() > 100 || round % 3 == 0 && !live.is_empty() {
                let area = live.swap_remove(round as usize % live.len());
                without_memory(|| space.free(by, area.start)).expect("freeing needs no memory");
            }
            space.check().unwrap();
        }
        assert!(refused > 0, "{}: the heap refused at least once", preset.name);
        for area in live {
            without_memory(|| space.free(by, area.start)).unwrap();
        }
        without_memory(|| space.purge_all());
        assert_eq!(largest_free(&space), 4000, "{}", preset.name);
    }
}

/// A notifier that frees one area each time it is asked for space.
struct Hoarder {
    space: &'static TestSpace,
    hoard: Mutex<Vec<Vpn>>,
}

impl Notifier for Hoarder {
    fn out_of_space(&self, _pages: nofrag::units::PageCount) -> Freed {
        match self.hoard.lock().unwrap().pop() {
            Some(start) => {
                self.space.free(cpu(self.space, 1), start).unwrap();
                Freed::Something
            }
            None => Freed::Nothing,
        }
    }
}

#[test]
fn overflow_asks_the_notifiers_while_they_report_progress() {
    for preset in presets_with_limit(1 << 40) {
        let space: &'static TestSpace =
            Box::leak(Box::new(space_of(preset.policy, span(0, 100), 2)));
        let by = cpu(space, 0);
        let request = AreaRequest::new(10).guard(Guard::None);
        let hoard = (0..10).map(|_| space.alloc(by, &request).unwrap().start).collect();
        let hoarder = Box::leak(Box::new(Hoarder { space, hoard: Mutex::new(hoard) }));
        space.register_notifier(hoarder).unwrap();
        // The hoard gives its last areas first: four of them make room for forty pages.
        let area = space.alloc(by, &AreaRequest::new(40).guard(Guard::None)).unwrap();
        assert_eq!(area.pages.get(), 40, "{}", preset.name);
        assert_eq!(hoarder.hoard.lock().unwrap().len(), 6, "{}", preset.name);
        let refused = space.alloc(by, &AreaRequest::new(61).guard(Guard::None));
        assert_eq!(refused, Err(AreaError::Exhausted { largest: 60 }), "{}", preset.name);
        space.check().unwrap();
    }
}

#[test]
fn a_group_takes_all_pieces_or_nothing() {
    for preset in presets_with_limit(1 << 40) {
        let space = space_of(preset.policy, span(0x1000, 1024), 2);
        let by = cpu(&space, 0);
        let base = space.alloc_group(by, &[0, 256, 512], &[16, 16, 16], 16).unwrap().get();
        // Top-down: the highest piece ends at the end of the space.
        assert_eq!(base + 512 + 16, 0x1000 + 1024, "{}", preset.name);
        let second = space.alloc_group(by, &[0, 256, 512], &[16, 16, 16], 16).unwrap().get();
        assert_eq!(second, base - 16, "{}: just below the first", preset.name);
        let before = space.stats();
        let too_wide = space.alloc_group(by, &[0, 1024], &[1, 1], 1);
        assert_eq!(too_wide, Err(GroupError::Exhausted), "{}", preset.name);
        assert_eq!(space.stats(), before);
        for (offsets, sizes, align, why) in [
            (&[][..], &[][..], 1, GroupError::Mismatched),
            (&[0, 8], &[8], 8, GroupError::Mismatched),
            (&[0, 8], &[8, 0], 8, GroupError::ZeroSize),
            (&[0, 8], &[9, 8], 8, GroupError::Overlapping),
            (&[0, 9], &[8, 8], 8, GroupError::Misaligned),
            (&[0], &[8], 3, GroupError::Misaligned),
        ] {
            assert_eq!(space.alloc_group(by, offsets, sizes, align), Err(why));
        }
        space.check().unwrap();
        let twice = space.free_group(by, Vpn(base), &[0, 256, 0]);
        assert_eq!(twice, Err(FreeAreaError::DoubleFree), "{}", preset.name);
        assert_eq!(space.stats(), before, "{}: nothing was freed", preset.name);
        space.free_group(by, Vpn(base), &[0, 256, 512]).unwrap();
        let again = space.free_group(by, Vpn(base), &[0, 256, 512]);
        assert_eq!(again, Err(FreeAreaError::NotAllocated), "{}", preset.name);
        space.free_group(by, Vpn(second), &[0, 256, 512]).unwrap();
        space.purge_all();
        assert_eq!(largest_free(&space), 1024);
    }
}

#[test]
fn a_group_is_found_where_a_linear_scan_finds_it() {
    for preset in presets_with_limit(1 << 40) {
        let bounds = span(0, 400);
        let space = space_of(preset.policy, bounds, 2);
        let by = cpu(&space, 0);
        for (start, pages) in [(20, 30), (90, 7), (200, 64), (300, 10), (330, 3), (390, 10)] {
            let taken = Span::sized(start, pages).unwrap();
            space.load_area(by, taken, Guard::None, AreaState::Busy).unwrap();
        }
        for align in [1, 2, 8] {
            for (offsets, sizes) in [
                (&[0, 40, 80][..], &[5, 12, 20][..]),
                (&[0, 64, 128], &[30, 30, 30]),
                (&[0], &[60]),
                (&[0, 200], &[16, 16]),
            ] {
                let holes = space.holes().unwrap();
                let fits = |base: u64| {
                    offsets.iter().zip(sizes).all(|(&offset, &size)| {
                        let piece = Span::sized(base + offset, size).unwrap();
                        holes.iter().any(|hole| hole.covers(piece))
                    })
                };
                let expected = (0..400).rev().filter(|base| base % align == 0).find(|&at| fits(at));
                let found = space.alloc_group(by, offsets, sizes, align).ok().map(Vpn::get);
                assert_eq!(found, expected, "{}: {offsets:?}, align {align}", preset.name);
                if let Some(base) = found {
                    space.free_group(by, Vpn(base), offsets).unwrap();
                    space.purge_all();
                }
            }
        }
    }
}

#[test]
fn a_handle_excludes_others_and_serves_a_full_purge() {
    let policy = without_limit(VmapPolicy::NOFRAG);
    let space = space_of(policy, span(0, 10_000), 2);
    let (first, second) = (cpu(&space, 0), cpu(&space, 1));
    let mut handle = space.cpu(first).unwrap();
    assert_eq!(space.cpu(first).err(), Some(Busy::Held));
    assert_eq!(space.alloc(first, &AreaRequest::new(1)), Err(AreaError::CpuHeld));
    let areas: Vec<_> = (0..50).map(|_| handle.alloc(&AreaRequest::new(3)).unwrap()).collect();
    for area in &areas {
        space.free(second, area.start).unwrap();
    }
    assert_eq!(space.step(Budget { areas: usize::MAX }), Progress::default());
    assert_eq!(space.stats().lazy_areas, 50, "freed areas wait in the CPU's mail");
    space.purge_all();
    assert!(!space.mapper().is_stale(space.span()), "a full purge flushes them");
    assert_eq!(space.stats().lazy_areas, 50, "the handle has them");
    handle.alloc(&AreaRequest::new(5)).unwrap();
    let stats = space.stats();
    let left = (stats.lazy_areas, stats.pooled_areas);
    assert_eq!(left, (0, 0), "asked to, it gives them back on its slow path");
    drop(handle);
    assert!(space.alloc(first, &AreaRequest::new(1)).is_ok());
    space.check().unwrap();
}

/// Pairs through a handle, before which as many were made that the pools serve all of them.
fn warm_pairs(handle: &mut CpuHandle<'_, StaleBook>, pairs: u64) {
    for _ in 0..pairs {
        let area = handle.alloc(&AreaRequest::new(1)).unwrap();
        assert_eq!(handle.free(area.start), Ok(area));
    }
}

/// docs/decisions/0034. A pair took 4.3 locked operations.
#[test]
fn a_handle_frees_without_a_locked_operation() {
    let policy = VmapPolicy { lazy_limit: LazyLimit::Pages(16_384), ..VmapPolicy::NOFRAG };
    let space = space_of(policy, span(0, 200_000), 2);
    let mut handle = space.cpu(cpu(&space, 0)).unwrap();
    warm_pairs(&mut handle, 40_000);
    let locked = || space.counters().locked_operations();
    let (first, second) = (locked(), locked());
    warm_pairs(&mut handle, 10_000);
    let pairs = locked() - second - (second - first);
    assert!(pairs < 100, "{pairs} locked operations for 10,000 pairs");
    drop(handle);
    let counters = space.counters();
    assert_eq!((counters.allocs, counters.frees), (50_000, 50_000));
    assert_eq!(space.lazy_pages().get(), space.stats().lazy_pages);
    space.check().unwrap();
}

/// Whoever frees an area of a handle a second time is refused: the handle, another thread, and after the handle's end.
#[test]
fn what_a_handle_owns_is_freed_once() {
    let space = space_of(without_limit(VmapPolicy::NOFRAG), span(0, 10_000), 2);
    let (first, second) = (cpu(&space, 0), cpu(&space, 1));
    let refused = Err(FreeAreaError::DoubleFree);
    let mut handle = space.cpu(first).unwrap();
    let [own, far, live] = [2, 3, 4].map(|pages| handle.alloc(&AreaRequest::new(pages)).unwrap());
    let inside = Vpn(live.start.get() + 1);
    assert_eq!(handle.free(inside), Err(FreeAreaError::NotAStart { start: live.start }));
    assert_eq!(handle.free(Vpn(9_999)), Err(FreeAreaError::NotAllocated));
    assert_eq!(handle.free(Vpn(10_000)), Err(FreeAreaError::Foreign));
    assert_eq!(handle.free(own.start), Ok(own));
    assert_eq!(space.free(second, far.start), Ok(far));
    let twice = |handle: &mut CpuHandle<'_, StaleBook>| {
        for area in [own, far] {
            assert_eq!(handle.free(area.start), refused, "{area:?}");
            assert_eq!(space.free(second, area.start), refused, "{area:?}");
            assert_eq!(space.find(area.start), None, "{area:?}");
        }
        assert_eq!(space.find(Vpn(live.start.get() + 3)), Some(live));
    };
    twice(&mut handle);
    assert_eq!((space.lazy_pages().get(), space.stats().lazy_areas), (7, 2));
    drop(handle);
    space.check().unwrap();
    let mut handle = space.cpu(first).unwrap();
    twice(&mut handle);
    drop(handle);
    // Of a handle that has gone, by a call.
    assert_eq!(space.free(first, live.start), Ok(live));
    assert_eq!(space.free(second, live.start), refused);
    space.check().unwrap();
    space.purge_all();
    space.check().unwrap();
    assert_eq!(space.stats().largest_hole, 10_000);
}

/// Stale translations of what a handle has freed, or others have for it, go with an alias flush, wherever it is.
#[test]
fn an_alias_flush_reaches_what_a_handle_has_freed() {
    let space = space_of(without_limit(VmapPolicy::NOFRAG), span(0, 10_000), 2);
    let mut handle = space.cpu(cpu(&space, 0)).unwrap();
    let [own, far, live] = [2, 3, 4].map(|pages| handle.alloc(&AreaRequest::new(pages)).unwrap());
    handle.free(own.start).unwrap();
    space.free(cpu(&space, 1), far.start).unwrap();
    assert!(space.mapper().is_stale(own.span()) && space.mapper().is_stale(far.span()));
    space.unmap_aliases();
    assert!(!space.mapper().is_stale(space.span()));
    assert_eq!(space.find(live.start), Some(live));
    drop(handle);
    space.check().unwrap();
}

/// An alias flush beside a handle reaches what lies between areas of its CPU, and no other; without anything that is
/// freed there is none.
#[test]
fn an_alias_flush_stays_where_a_cpu_has_areas() {
    let space = space_of(without_limit(VmapPolicy::NOFRAG), span(0, 100_000), 2);
    let (first, second) = (cpu(&space, 0), cpu(&space, 1));
    let mut handle = space.cpu(first).unwrap();
    let own = handle.alloc(&AreaRequest::new(2)).unwrap();
    let above: Vec<Area> =
        (0..100).map(|_| space.alloc(second, &AreaRequest::new(8)).unwrap()).collect();
    space.mapper().clear(above[99].span());
    let flushes = || space.counters().purge.flushes;
    space.unmap_aliases();
    assert_eq!(flushes(), 0, "nothing is freed");
    handle.free(own.start).unwrap();
    for round in 1..3 {
        space.unmap_aliases();
        assert_eq!(flushes(), round, "what the handle keeps is flushed each time");
        assert!(!space.mapper().is_stale(own.span()) && space.mapper().is_stale(above[99].span()));
    }
    drop(handle);
    space.purge_all();
    assert_eq!(flushes(), 3);
    space.purge_all();
    assert_eq!(flushes(), 3, "everything is flushed");
    space.check().unwrap();
}

/// An area that was freed before an alias flush began is not stale after it, while its owner goes on to free, flushes
/// by itself, and ends its handle.
#[test]
fn an_alias_flush_reaches_what_moves_meanwhile() {
    let space = space_of(VmapPolicy::NOFRAG, span(0, 100_000), 2);
    let (first, second) = (cpu(&space, 0), cpu(&space, 1));
    for round in 0..300 {
        let mut handle = space.cpu(first).unwrap();
        let areas: Vec<Area> =
            (0..60).map(|_| handle.alloc(&AreaRequest::new(3)).unwrap()).collect();
        for (at, area) in areas[..30].iter().enumerate() {
            match at % 3 {
                0 => space.free(second, area.start).map(drop).unwrap(),
                _ => handle.free(area.start).map(drop).unwrap(),
            }
        }
        std::thread::scope(|scope| {
            let flusher = scope.spawn(|| {
                space.unmap_aliases();
                areas[..30].iter().find(|area| space.mapper().is_stale(area.span()))
            });
            for area in &areas[30..] {
                handle.free(area.start).unwrap();
            }
            drop(handle);
            assert_eq!(flusher.join().unwrap(), None, "round {round}");
        });
    }
    space.check().unwrap();
}

/// A handle frees what a call has allocated, another CPU's handle too, and what an earlier handle of its own has.
#[test]
fn a_handle_frees_what_others_have_allocated() {
    let space = space_of(without_limit(VmapPolicy::NOFRAG), span(0, 10_000), 2);
    let (first, second) = (cpu(&space, 0), cpu(&space, 1));
    let mut old = space.cpu(first).unwrap();
    let earlier = old.alloc(&AreaRequest::new(2)).unwrap();
    drop(old);
    let by_call = space.alloc(first, &AreaRequest::new(2)).unwrap();
    let [mut one, mut two] = [first, second].map(|by| space.cpu(by).unwrap());
    let far = two.alloc(&AreaRequest::new(2)).unwrap();
    for area in [earlier, by_call, far] {
        assert_eq!(one.free(area.start), Ok(area));
        assert_eq!(one.free(area.start), Err(FreeAreaError::DoubleFree));
        assert_eq!(two.free(area.start), Err(FreeAreaError::DoubleFree));
    }
    drop((one, two));
    space.check().unwrap();
    space.purge_all();
    assert_eq!(space.stats().largest_hole, 10_000);
}
