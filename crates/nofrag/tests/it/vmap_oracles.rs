//! The oracles of docs/sources/vmap.md#oracles that concern areas.

use super::vmap_support::{HAS_NODES, cpu, presets_with_limit, space_of, span};
use nofrag::check::Check;
use nofrag::ranges::{AlignRule, Index};
use nofrag::units::{PageSize, Vpn};
use nofrag::vmap::{
    Area, AreaError, AreaRequest, AreaState, Budget, Guard, LazyLimit, VmapPolicy, VmapSpace,
};
use std::sync::atomic::Ordering;

/// docs/sources/vmap.md#oracle-12: the lazy limit by the number of CPUs, in MiB.
#[test]
fn oracle_12_the_limit_follows_the_binary_digits_of_the_cpu_count() {
    let limit = LazyLimit::PerCpuLog2(PageSize::KIB_4);
    for (cpus, mib) in [
        (1, 32),
        (2, 64),
        (4, 96),
        (8, 128),
        (16, 160),
        (32, 192),
        (64, 224),
        (128, 256),
        (256, 288),
    ] {
        assert_eq!(limit.pages(cpus) * 4096, mib << 20, "{cpus} CPUs");
    }
    assert_eq!(limit.pages(2), 16_384);
    assert_eq!(limit.pages(64), 57_344);
}

/// docs/sources/vmap.md#oracle-12: no drain at the limit, one at the limit and a page.
#[test]
fn oracle_12_a_drain_begins_above_the_limit_and_not_at_it() {
    for preset in presets_with_limit(100) {
        let space = space_of(preset.policy, span(0, 10_000), 2);
        let by = cpu(&space, 0);
        let page = AreaRequest::new(1).guard(Guard::None);
        let areas: Vec<_> = (0..101).map(|_| space.alloc(by, &page).unwrap()).collect();
        for area in &areas[..100] {
            space.free(by, area.start).unwrap();
        }
        assert_eq!(space.lazy_pages().get(), 100);
        assert!(!space.drain_wanted());
        assert_eq!(space.mapper().flushes.load(Ordering::SeqCst), 0, "{}", preset.name);
        space.free(by, areas[100].start).unwrap();
        assert_eq!(space.mapper().flushes.load(Ordering::SeqCst), 1, "{}", preset.name);
        assert!(space.lazy_pages().get() <= 100, "{}", preset.name);
        space.check().unwrap();
    }
}

/// docs/sources/vmap.md#pool-order: a pool serves the area that came last, puts a misaligned one at the end, and lets
/// the last ones decay; an area that was loaded for a CPU goes to that CPU's pool.
#[test]
fn a_pool_serves_and_loses_what_came_last() {
    let policy = VmapPolicy::LINUX_6_11;
    let space = space_of(policy, span(0, 10_000), 2);
    let (by, other) = (cpu(&space, 0), cpu(&space, 1));
    let three = AreaRequest::new(3).guard(Guard::None);
    let purge = || {
        space.free(by, space.alloc(by, &AreaRequest::new(300)).unwrap().start).unwrap();
        space.step(Budget { areas: usize::MAX });
    };
    let taken = |request: &AreaRequest| space.alloc(by, request).unwrap().start.get();
    for start in [20, 23, 26, 29] {
        space.load_area(by, span(start, 3), Guard::None, AreaState::Lazy).unwrap();
    }
    space.load_area(other, span(32, 3), Guard::None, AreaState::Lazy).unwrap();
    purge();
    // The first is 29, which is no multiple of 2: it goes to the end, and the tree serves.
    assert_eq!(taken(&three.align(2)), 0);
    assert_eq!([taken(&three), taken(&three)], [26, 23]);
    for start in [23, 26] {
        space.free(by, Vpn(start)).unwrap();
    }
    purge();
    // The pool has 26, 23, 20, 29: a quarter of it decays, and that is 26.
    purge();
    assert_eq!(space.holes().unwrap().iter().filter(|hole| hole.contains(26)).count(), 1);
    assert_eq!([taken(&three), taken(&three), taken(&three)], [23, 20, 29]);
    assert_eq!(space.alloc(other, &three).unwrap().start.get(), 32);
    space.check().unwrap();
}

/// docs/sources/vmap.md#oracle-13: an allocation of one page takes two, and returns to the pool of two-page areas.
#[test]
fn oracle_13_one_page_takes_two() {
    for preset in presets_with_limit(1 << 40) {
        let space = space_of(preset.policy, span(0, 1000), 2);
        let by = cpu(&space, 0);
        let area = space.alloc(by, &AreaRequest::new(1)).unwrap();
        assert_eq!((area.pages.get(), area.total_pages().get()), (1, 2));
        space.free(by, area.start).unwrap();
        space.step(Budget { areas: 1 });
        if preset.name == "nofrag" || (preset.name == "linux-6.9" && HAS_NODES) {
            let stats = space.stats();
            assert_eq!((stats.pooled_areas, stats.pooled_pages), (1, 2), "{}", preset.name);
            // Two pages without a guard are the same size, and the pool serves them.
            let again = space.alloc(by, &AreaRequest::new(2).guard(Guard::None)).unwrap();
            assert_eq!(again.start, area.start, "{}", preset.name);
            assert_eq!(space.counters().pools.hits, 1);
        }
    }
}

/// docs/sources/vmap.md#oracle-14: the programs of Linux's module `test_vmalloc` as functional tests.
#[test]
fn oracle_14_the_test_programs_run_clean() {
    for preset in presets_with_limit(1024) {
        let bounds = span(0x1000, 1 << 22);
        let space = space_of(preset.policy, bounds, 2);
        let by = cpu(&space, 0);
        let mut live: Vec<Area> = Vec::new();
        // full_fit_alloc: one-slot holes between kept areas.
        let pairs: Vec<_> = (0..500)
            .map(|_| [1, 1].map(|pages| space.alloc(by, &AreaRequest::new(pages)).unwrap()))
            .collect();
        for [kept, junk] in pairs {
            live.push(kept);
            space.free(by, junk.start).unwrap();
        }
        for round in 0..2000_u64 {
            let pages = 1 + round * 7919 % 100;
            let align = 1 << (round * 31 % 11);
            let area = space.alloc(by, &AreaRequest::new(pages).align(align)).unwrap();
            assert_eq!(area.start.get() % align, 0);
            let clash = live.iter().find(|other| other.span().intersection(area.span()).is_some());
            assert_eq!(clash, None, "{}: guards are respected", preset.name);
            space.free(by, area.start).unwrap();
        }
        // align_shift: stops at the first alignment that the space cannot have.
        let first_failure = (0..64)
            .find(|shift| space.alloc(by, &AreaRequest::new(1).align(1 << shift)).is_err())
            .expect("an alignment of 2^63 pages cannot be had");
        assert!((21..=23).contains(&first_failure), "{}: 2^{first_failure}", preset.name);
        space.check().unwrap();
    }
}

/// docs/sources/vmap.md#oracle-16: lazy pages are shown apart and stay at most the limit on an idle space.
#[test]
fn oracle_16_lazy_pages_are_shown_apart() {
    for preset in presets_with_limit(300) {
        let space = space_of(preset.policy, span(0, 20_000), 2);
        let by = cpu(&space, 0);
        let areas: Vec<_> =
            (0..200).map(|_| space.alloc(by, &AreaRequest::new(4)).unwrap()).collect();
        for area in areas.iter().step_by(2) {
            space.free(by, area.start).unwrap();
        }
        let stats = space.stats();
        assert_eq!((stats.busy_areas, stats.busy_pages), (100, 500), "{}", preset.name);
        assert_eq!(stats.lazy_pages, space.lazy_pages().get());
        assert!(stats.lazy_pages <= 300, "{}", preset.name);
        let sum = stats.busy_pages + stats.lazy_pages + stats.pooled_pages + stats.free_pages;
        assert_eq!(sum, stats.total_pages, "{}", preset.name);
    }
}

/// A captured layout, loaded as it is, behaves as if it had grown here.
#[test]
fn a_captured_layout_is_loaded_as_it_is() {
    for preset in presets_with_limit(1 << 40) {
        let space = space_of(preset.policy, span(0x100, 1000), 2);
        let by = cpu(&space, 0);
        let busy = span(0x110, 9);
        space.load_area(by, busy, Guard::Page, AreaState::Busy).unwrap();
        space.load_area(by, span(0x120, 300), Guard::None, AreaState::Lazy).unwrap();
        space.check().unwrap();
        assert_eq!(space.find(Vpn(0x118)).unwrap().pages.get(), 8);
        assert_eq!(space.find(Vpn(0x130)), None, "lazy areas are not live");
        assert_eq!(space.lazy_pages().get(), 300);
        let hole = space.stats().largest_hole;
        let now = space.alloc(by, &AreaRequest::new(hole).wait(nofrag::vmap::Wait::Never));
        assert_eq!(now, Err(AreaError::WouldBlock), "{}", preset.name);
        assert_eq!(space.alloc(by, &AreaRequest::new(hole)).unwrap().pages.get(), hole);
        space.free(by, Vpn(0x110)).unwrap();
        space.check().unwrap();
    }
}

#[test]
fn presets_resolve_to_the_newest_rule_set_not_newer() {
    let name = |wanted| VmapPolicy::preset(wanted).map(|preset| preset.name).ok();
    assert_eq!(name("linux-4.19"), Some("linux-4.19"));
    assert_eq!(name("linux-5.1"), Some("linux-4.19"));
    assert_eq!(name("linux-5.2"), Some("linux-5.2"));
    assert_eq!(name("linux-5.15"), Some("linux-5.11"));
    assert_eq!(name("linux-5.17"), Some("linux-5.16"));
    assert_eq!(name("linux-6.1"), Some("linux-5.18"));
    assert_eq!(name("linux-7.3"), Some("linux-6.11"));
    assert_eq!(name("linux-4.0"), Some("linux-3.19"));
    assert_eq!(name("linux-4.18"), Some("linux-4.1"));
    assert_eq!(name("linux-6.8"), Some("linux-6.4"));
    assert_eq!(name("linux-6.10"), Some("linux-6.9"));
    assert_eq!(name("linux-3.19+patch2"), Some("linux-3.19+patch2"));
    assert_eq!(name("nofrag"), Some("nofrag"));
    for wrong in ["linux-3.18", "linux-", "linux-6", "linux-6.x", "", "Nofrag"] {
        assert_eq!(name(wrong), None);
    }
}

/// The rule for the length of aligned searches in each release.
#[test]
fn the_length_rule_changes_at_5_2_5_16_and_5_18() {
    let index = |name| VmapPolicy::preset(name).unwrap().policy.index;
    for (names, rule) in [
        (["linux-5.2", "linux-5.11", "linux-5.15"], AlignRule::Padded),
        (["linux-5.16", "linux-5.17", "linux-5.17"], AlignRule::Unpadded),
        (["linux-5.18", "linux-6.1", "linux-7.3"], AlignRule::PaddedUnlessExact),
    ] {
        for name in names {
            assert_eq!(index(name), Index::AugmentedTree(rule), "{name}");
        }
    }
}

/// `vm_map_ram` asks for an alignment of one page, `vmalloc` for one of one byte: up to 5.15 only the latter finds a
/// hole of exactly its size below the root.
#[test]
fn until_5_15_a_large_mapping_passed_over_a_hole_of_exactly_its_size() {
    for (name, mapped) in [
        ("linux-4.19", true),
        ("linux-5.2", false),
        ("linux-5.15", false),
        ("linux-5.16", true),
        ("linux-6.1", true),
        ("linux-6.9", true),
        ("nofrag", true),
    ] {
        let space = space_of(VmapPolicy::preset(name).unwrap().policy, span(1, 109), 2);
        let by = cpu(&space, 0);
        // What is left of the hole above stays at the root, and the one below becomes its left child.
        space.load_area(by, span(66, 34), Guard::None, AreaState::Busy).unwrap();
        let start = space.map_ram(by, 65, &()).map(|area| area.start);
        assert_eq!(start.ok(), mapped.then_some(Vpn(1)), "{name}");
        if !mapped {
            let request = AreaRequest::new(65).guard(Guard::None);
            assert_eq!(space.alloc(by, &request).unwrap().start, Vpn(1), "{name}");
        }
    }
}

#[test]
fn a_space_is_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<VmapSpace>();
    is_shared::<VmapSpace<super::vmap_support::StaleBook>>();
}

/// A full purge of 20,000 lazy areas takes the lock of the free ranges for at most 64 of them at a time.
#[test]
fn a_purge_holds_the_lock_for_at_most_64_areas() {
    let policy = VmapPolicy { lazy_limit: LazyLimit::Pages(1 << 40), ..VmapPolicy::NOFRAG };
    let space = space_of(policy, span(0, 1 << 20), 2);
    let by = cpu(&space, 0);
    let areas = (0..20_000).map(|n| space.alloc(by, &AreaRequest::new(1 + n % 5)).unwrap());
    let areas: Vec<_> = areas.collect();
    for area in &areas {
        space.free(by, area.start).unwrap();
    }
    let progress = space.purge_all();
    assert_eq!((progress.areas, progress.more), (20_000, false));
    let purge = space.counters().purge;
    assert_eq!((purge.areas, purge.max_areas_per_hold), (20_000, 64));
    assert!(purge.flushed_ranges <= 16 * purge.flushes && purge.flushes <= 20);
    assert!(purge.runs < 20_000, "neighbours are joined before the lock is taken");
    space.check().unwrap();
}
