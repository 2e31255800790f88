//! One test for each bug that blocks had in Linux (docs/sources/vmap.md#bugs), named after what it broke. Where a value
//! of the policy expresses the broken behaviour, the test shows that it is noticed.

use crate::vmap_support::{StaleBook, TestSpace, cpu, space_of, span};
use core::ops::Range;
use nofrag::check::Check;
use nofrag::cpu::CpuSet;
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{
    AliasWalk, BlockCounters, BlockGeometry, BlockIndex, BlockPolicy, HashIds, KeepBlocks,
    LazyLimit, MapRamError, Preset, PurgeQueue, RamArea, UnmapRamError, VmapConfig, VmapPolicy,
    VmapSpace,
};
use std::sync::atomic::Ordering;

/// Returns every preset of Linux, with blocks of `slots` slots.
fn linux_presets(slots: u32) -> impl Iterator<Item = Preset> {
    let linux = |preset: &Preset| preset.policy.blocks.index != BlockIndex::Direct;
    VmapPolicy::presets().filter(linux).map(move |mut preset| {
        preset.policy.blocks.geometry = BlockGeometry::new(slots, slots.min(128) / 2).unwrap();
        preset
    })
}

/// Returns the newest rules with `blocks` instead of theirs, and blocks of 64 slots.
fn policy_of(blocks: BlockPolicy) -> VmapPolicy {
    let geometry = BlockGeometry::new(64, 32).unwrap();
    VmapPolicy { blocks: BlockPolicy { geometry, ..blocks }, ..VmapPolicy::LINUX_6_11 }
}

fn map(space: &TestSpace, rank: usize, pages: u64) -> RamArea {
    space.map_ram(cpu(space, rank), pages, &()).unwrap()
}

fn unmap(space: &TestSpace, rank: usize, area: RamArea) {
    space.unmap_ram(cpu(space, rank), area).unwrap();
}

fn pairs(space: &TestSpace, rank: usize, sizes: impl IntoIterator<Item = u64>) {
    sizes.into_iter().for_each(|pages| unmap(space, rank, map(space, rank, pages)));
}

fn counts(space: &TestSpace) -> BlockCounters {
    space.counters().blocks
}

/// Fixed by Pen in 2015: the newest block in front hides the holes of older ones for good (vmap.md#pen-head-runaway).
#[test]
fn pen_head_runaway() {
    let idle_blocks = |policy| {
        let space = space_of(policy, span(0, 1 << 14), 1);
        for _ in 0..100 {
            pairs(&space, 0, [16, 8, 8, 8, 8, 8]); // leaves 8 slots
        }
        let stats = space.block_stats();
        space.check().unwrap();
        assert_eq!(stats.live_pages, 0);
        stats.blocks
    };
    assert_eq!(idle_blocks(policy_of(BlockPolicy::LINUX_3_19)), 100);
    for blocks in [BlockPolicy::PATCH_1, BlockPolicy::LINUX_4_1, BlockPolicy::LINUX_6_11] {
        assert!(idle_blocks(policy_of(blocks)) <= 2);
    }
}

/// Linux shifted numbers of pages as 32-bit integers (vmap.md#size-overflow); here sizes from 2^20 to 2^64 - 1 are
/// refused.
#[test]
fn size_overflow() {
    for preset in linux_presets(64) {
        let space = space_of(preset.policy, span(0x1000, 1 << 12), 1);
        let one = map(&space, 0, 1);
        for pages in [1 << 20, 1 << 32, (1 << 32) + 1, 1 << 52, (1 << 52) + 1, 1 << 63, u64::MAX] {
            let refused = space.map_ram(cpu(&space, 0), pages, &());
            assert!(matches!(refused, Err(MapRamError::Exhausted { .. })), "{refused:?}");
            let claimed = RamArea { start: one.start, pages: PageCount(pages) };
            let refused = space.unmap_ram(cpu(&space, 0), claimed);
            assert_eq!(refused, Err(UnmapRamError::Foreign), "{}", preset.name);
        }
        assert_eq!(counts(&space).maps, 1);
        space.check().unwrap();
        unmap(&space, 0, one);
    }
}

/// A request for zero pages, for which Linux's `get_order(0)` is nonsense (vmap.md#zero-size), is refused.
#[test]
fn zero_size() {
    for preset in linux_presets(64) {
        let space = space_of(preset.policy, span(0x1000, 1 << 12), 1);
        let one = map(&space, 0, 1);
        let before = (counts(&space), space.block_stats());
        assert_eq!(space.map_ram(cpu(&space, 0), 0, &()), Err(MapRamError::ZeroSize));
        assert_eq!(space.try_map_ram(cpu(&space, 0), 0, &()), Err(MapRamError::ZeroSize));
        let starts = one.start.get()..one.start.get() + 3;
        for start in starts.map(Vpn) {
            let nothing = RamArea { start, pages: PageCount(0) };
            assert!(space.unmap_ram(cpu(&space, 0), nothing).is_err());
        }
        assert_eq!((counts(&space), space.block_stats()), before, "{}", preset.name);
        space.check().unwrap();
    }
}

fn sparse_space(hash: HashIds) -> TestSpace {
    let policy = policy_of(BlockPolicy { hash, ..BlockPolicy::LINUX_6_11 });
    let (span, cpus) = (span(0x1000, 1 << 12), CpuSet::new([0, 2]).unwrap());
    VmapSpace::new(VmapConfig { span, cpus, policy }, StaleBook::new(span), ()).unwrap()
}

/// CVE-2024-41032: possible CPUs 0 and 2; a bucket of CPU 1 does not exist (vmap.md#sparse-ids).
#[test]
fn sparse_ids() {
    let space = sparse_space(HashIds::NextPossible);
    for _ in 0..6 {
        let areas: Vec<_> = (0..16).map(|round| map(&space, round % 2, 32)).collect();
        space.check().unwrap();
        areas.into_iter().for_each(|area| unmap(&space, 0, area));
        space.unmap_aliases();
        space.check().unwrap();
    }
    let broken = sparse_space(HashIds::CountModulo);
    let areas: Vec<_> = (0..16).map(|_| map(&broken, 0, 32)).collect();
    let lost = |area: &&RamArea| {
        let answer = broken.unmap_ram(cpu(&broken, 0), **area);
        assert!(matches!(answer, Ok(()) | Err(UnmapRamError::NotMapped)));
        answer.is_err()
    };
    assert_eq!(areas.iter().filter(lost).count(), 8, "every second block is out of reach");
    assert!(broken.check().is_err());
}

/// Uses one block up but for one page that stays live, so that it is on no list of blocks with free slots; then drops
/// stale translations. Returns the pages that are dirty.
fn flush_full_block(policy: VmapPolicy) -> (TestSpace, Span) {
    let space = space_of(policy, span(0x1000, 1 << 12), 1);
    let dirty: Vec<_> = (0..63).map(|_| map(&space, 0, 1)).collect();
    map(&space, 0, 1);
    dirty.iter().for_each(|area| unmap(&space, 0, *area));
    let dirty = dirty[0].span().hull(dirty[62].span());
    assert!(space.mapper().is_stale(dirty));
    space.unmap_aliases();
    space.check().unwrap();
    (space, dirty)
}

/// An alias flush walked the lists of blocks with free slots, and so missed the dirty slots of full ones
/// (vmap.md#full-block-flush).
#[test]
fn full_block_flush() {
    for preset in linux_presets(64) {
        let (space, dirty) = flush_full_block(preset.policy);
        assert!(!space.mapper().is_stale(dirty), "{}", preset.name);
    }
    let by_lists = BlockPolicy { aliases: AliasWalk::FreeLists, ..BlockPolicy::LINUX_6_4 };
    let (space, dirty) = flush_full_block(policy_of(by_lists));
    assert!(space.mapper().is_stale(dirty), "the broken walk does not come here");
}

/// Every alias flush flushed the same range again, and purged blocks that were as good as new (vmap.md#repeat-flush).
#[test]
fn repeat_flush() {
    for preset in linux_presets(64) {
        let space = space_of(preset.policy, span(0x1000, 1 << 12), 1);
        let kept = map(&space, 0, 1);
        for flushes in 1..=3 {
            let gone = map(&space, 0, 4);
            unmap(&space, 0, gone);
            for _ in 0..2 {
                space.unmap_aliases(); // the second time nothing is stale
                assert!(!space.mapper().is_stale(gone.span()), "{}", preset.name);
                assert_eq!(space.mapper().flushes.load(Ordering::SeqCst), flushes);
                assert_eq!(counts(&space).flushes, flushes, "{}", preset.name);
            }
        }
        unmap(&space, 0, kept);
    }
    for (keep, purged) in [(KeepBlocks::UsedUp, 8), (KeepBlocks::QuarterFree, 0)] {
        let space =
            space_of(policy_of(BlockPolicy { keep, ..BlockPolicy::LINUX_6_11 }), span(0, 4096), 1);
        for _ in 0..8 {
            pairs(&space, 0, [1]);
            space.unmap_aliases();
        }
        assert_eq!(counts(&space).purged, purged);
        assert_eq!(space.block_stats().free_pages, if purged == 0 { 56 } else { 0 });
    }
}

/// A block of which less than a quarter is free goes at an alias flush; one with more stays.
#[test]
fn a_quarter_is_worth_keeping() {
    for (used, kept) in [(48, true), (49, false)] {
        let space = space_of(policy_of(BlockPolicy::LINUX_6_11), span(0, 4096), 1);
        pairs(&space, 0, (0..used).map(|_| 1));
        assert_eq!(space.unmap_aliases().returned, u64::from(!kept));
        assert_eq!(space.block_stats().blocks, u64::from(kept));
        space.check().unwrap();
    }
}

/// An alias flush says how many blocks it has looked at and given back, and counts itself.
#[test]
fn an_alias_flush_counts_what_it_does() {
    for preset in linux_presets(64) {
        let space = space_of(preset.policy, span(0x1000, 1 << 12), 2);
        for flushes in 1..=2 {
            for rank in 0..2 {
                pairs(&space, rank, [32, 16, 8]); // leaves 8 slots
            }
            let done = space.unmap_aliases();
            assert_eq!((done.blocks, done.returned), (2, 2), "{}", preset.name);
            let counted = counts(&space);
            assert_eq!((counted.alias_flushes, counted.visited), (flushes, 2 * flushes));
            assert_eq!((counted.max_visited_per_hold, counted.purged), (2, 2 * flushes));
        }
    }
}

/// CPU 1 keeps a page of its block. Beside that, in the bucket of CPU 1, an idle block of CPU 0 is purged. Returns the
/// space after CPU 1 has mapped another page.
fn purge_beside_a_block(purge_queue: PurgeQueue) -> TestSpace {
    let blocks = BlockPolicy { purge_queue, ..BlockPolicy::LINUX_6_11 };
    let space = space_of(policy_of(blocks), span(0, 1 << 12), 2);
    map(&space, 1, 1);
    pairs(&space, 0, [1]);
    space.purge_all();
    map(&space, 1, 1);
    space
}

/// A purge took blocks off the list of the bucket in which it found them instead of their owner's (Android: a fault
/// cost a block of 4 MiB; the init process hung) (vmap.md#owner-list).
#[test]
fn owner_list() {
    let space = space_of(VmapPolicy::LINUX_6_11, span(0, 1 << 17), 1);
    pairs(&space, 0, (0..65_536).map(|_| 1));
    assert_eq!(counts(&space).created, 64);
    let space = purge_beside_a_block(PurgeQueue::OfOwner);
    space.check().unwrap();
    assert_eq!(space.block_stats().blocks, 1);
    // CPU 1 lost its block, and made one where the list of CPU 0 still leads.
    let broken = purge_beside_a_block(PurgeQueue::OfBucket);
    assert_eq!(broken.check().unwrap_err().law, "a block is on its owner's list");
    assert_eq!(broken.block_stats().blocks, 2);
    // However often lists are corrupted like this, walks of them end.
    for round in 0..2000 {
        let (rank, pages) = (round % 2, 1 + round as u64 % 20);
        if let Ok(area) = broken.map_ram(cpu(&broken, rank), pages, &()) {
            unmap(&broken, 1 - rank, area);
        }
        if round % 5 == 0 {
            broken.purge_all();
        }
    }
}

/// Linux found no area for a mapping of `vm_map_ram` (vmap.md#describe); here each page of one leads to it.
#[test]
fn describe() {
    for preset in linux_presets(64) {
        let space = space_of(preset.policy, span(0x1000, 1 << 12), 2);
        let areas: Vec<_> = [3, 1, 32, 5, 40].map(|pages| map(&space, 1, pages)).into();
        for area in &areas {
            for page in pages_of(*area) {
                let found = space.find(Vpn(page)).expect("every page of a live mapping is found");
                assert_eq!((found.start, found.pages), (area.start, area.pages));
                assert_eq!(found.cpu, cpu(&space, 1));
            }
        }
        // 3 pages take 4 slots; the last of them is nobody's.
        assert_eq!(space.find(Vpn(areas[0].start.get() + 3)), None, "{}", preset.name);
        unmap(&space, 0, areas[0]);
        assert_eq!(space.find(areas[0].start), None);
        assert!(space.find(areas[1].start).is_some());
    }
}

fn pages_of(area: RamArea) -> Range<u64> {
    area.span().start()..area.span().end()
}

/// In Linux a caller that must not wait got into a purge (vmap.md#atomic-sleep); here it is told that it would have to
/// wait.
#[test]
fn atomic_sleep() {
    for preset in linux_presets(64) {
        let policy = VmapPolicy { lazy_limit: LazyLimit::Pages(1 << 20), ..preset.policy };
        let space = space_of(policy, span(0x1000, 256), 1);
        let cpu = cpu(&space, 0);
        let areas: Vec<_> = (0..8).map(|_| map(&space, 0, 32)).collect();
        let full = space.try_map_ram(cpu, 32, &());
        assert!(matches!(full, Err(MapRamError::Exhausted { .. })), "{full:?}");
        areas.into_iter().for_each(|area| unmap(&space, 0, area));
        assert_eq!(space.try_map_ram(cpu, 32, &()), Err(MapRamError::WouldBlock));
        assert_eq!(space.mapper().flushes.load(Ordering::SeqCst), 0, "{}", preset.name);
        // So is the answer when all there is to reclaim is an idle block.
        let space = space_of(policy, span(0x1000, 64), 1);
        pairs(&space, 0, [1]);
        assert_eq!(space.try_map_ram(cpu, 40, &()), Err(MapRamError::WouldBlock));
        assert!(space.map_ram(cpu, 40, &()).is_ok(), "{}", preset.name);
        space.check().unwrap();
    }
}

/// Open in Linux: one long-lived mapping pins a whole block (vmap.md#mixed-lifetime), here 16 mappings 16 blocks.
#[test]
fn mixed_lifetime() {
    for preset in linux_presets(64) {
        let space = space_of(preset.policy, span(0, 1 << 13), 1);
        for _ in 0..16 {
            map(&space, 0, 1);
            pairs(&space, 0, (0..63).map(|_| 1));
        }
        space.purge_all();
        let stats = space.block_stats();
        assert_eq!((stats.blocks, stats.live_pages), (16, 16), "{}", preset.name);
    }
}

fn refused(space: &TestSpace, start: u64, pages: u64, why: UnmapRamError) {
    let area = RamArea { start: Vpn(start), pages: PageCount(pages) };
    let before = (counts(space), space.block_stats());
    for rank in 0..2 {
        assert_eq!(space.unmap_ram(cpu(space, rank), area), Err(why));
    }
    assert_eq!((counts(space), space.block_stats()), before);
    space.check().unwrap();
}

/// Open in Linux: the caller's word about the size is trusted, and slots are not looked at (vmap.md#double-free). Here
/// each wrong unmapping is refused with its reason.
#[test]
fn double_free() {
    for preset in linux_presets(64) {
        let space = space_of(preset.policy, span(0x1000, 1 << 12), 2);
        let (first, second) = (map(&space, 0, 5), map(&space, 0, 2));
        let (at, next) = (first.start.get(), second.start.get());
        refused(&space, at, 4, UnmapRamError::WrongSize { pages: PageCount(5) });
        refused(&space, at, 8, UnmapRamError::WrongSize { pages: PageCount(5) });
        refused(&space, at, 33, UnmapRamError::WrongSize { pages: PageCount(5) });
        refused(&space, at + 1, 1, UnmapRamError::NotAStart { start: first.start });
        refused(&space, at + 4, 1, UnmapRamError::NotAStart { start: first.start });
        refused(&space, at + 1, 40, UnmapRamError::NotAStart { start: first.start });
        refused(&space, at + 7, 1, UnmapRamError::NotMapped);
        refused(&space, next + 2, 1, UnmapRamError::NotMapped);
        refused(&space, 0x1800, 1, UnmapRamError::NotMapped);
        refused(&space, 0x10, 1, UnmapRamError::Foreign);
        refused(&space, 0x2000 - 1, 2, UnmapRamError::Foreign);
        unmap(&space, 1, first);
        refused(&space, at, 5, UnmapRamError::DoubleUnmap);
        refused(&space, at, 4, UnmapRamError::DoubleUnmap);
        refused(&space, at + 1, 1, UnmapRamError::NotMapped);
        unmap(&space, 0, second);
        space.purge_all();
        refused(&space, at, 5, UnmapRamError::NotMapped);
    }
}

/// The book asserts at each mapping that no translation of its pages is stale; here pages come back again and again
/// (vmap.md#flush-before-reuse).
#[test]
fn flush_before_reuse() {
    for preset in linux_presets(64) {
        for lazy_limit in [0, 100, 1 << 20] {
            let limit = LazyLimit::Pages(lazy_limit);
            let policy = VmapPolicy { lazy_limit: limit, ..preset.policy };
            let space = space_of(policy, span(0x1000, 256), 2);
            for round in 0..2000 {
                pairs(&space, round % 2, [1 + round as u64 * 7 % 40]);
                if round % 50 == 0 {
                    space.unmap_aliases();
                }
            }
            space.check().unwrap();
        }
    }
}
