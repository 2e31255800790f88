//! Rezki 2023, "remove a global vmap_blocks xarray": the costs of the index of blocks, and the uses of it.
//!
//! That an address chooses its bucket (docs/sources/vmap.md#oracle-7) is tested beside the index.

use crate::vmap_support::{TestSpace, cpu, space_of, span};
use nofrag::check::Check;
use nofrag::ranges::Span;
use nofrag::vmap::{
    BlockGeometry, BlockIndex, BlockPolicy, LiveMap, Piece, RamArea, VmapCounters, VmapPolicy,
};

fn pairs(space: &TestSpace, pages: u64, count: u64) {
    for _ in 0..count {
        let area = space.map_ram(cpu(space, 0), pages, &()).unwrap();
        space.unmap_ram(cpu(space, 1), area).unwrap();
    }
}

/// Every mapping takes the lock of its block once, every unmapping once, or twice where a block knows its live slots.
/// Lists change when a block comes or is used up, the index when it comes or goes; nothing is locked to find one.
#[test]
fn locks_per_operation() {
    for (blocks, per_pair) in [
        (BlockPolicy::LINUX_4_1, 2),
        (BlockPolicy::LINUX_6_4, 3),
        (BlockPolicy::LINUX_6_11, 3),
        (BlockPolicy { index: BlockIndex::Global, ..BlockPolicy::LINUX_6_11 }, 3),
        (BlockPolicy { live_map: LiveMap::None, ..BlockPolicy::LINUX_6_11 }, 2),
    ] {
        let space = space_of(VmapPolicy { blocks, ..VmapPolicy::LINUX_6_11 }, span(0, 1 << 15), 2);
        let buckets = if blocks.index == BlockIndex::Global { 1 } else { 2 };
        for pages in [1, 5, 64] {
            let before = space.counters();
            pairs(&space, pages, 4096);
            let after = space.counters();
            let done = |of: fn(&VmapCounters) -> u64| of(&after) - of(&before);
            let created = done(|all| all.blocks.created);
            assert_eq!(created, 4096 * pages.next_power_of_two() / 1024);
            // Reading the counters takes every lock once: the second time, that of each record too.
            let records = done(|all| all.locks.block.acquisitions) - per_pair * 4096;
            assert!(records <= 32, "{records} places for blocks");
            assert_eq!(done(|all| all.locks.block_queue.acquisitions), 2 * created + 2);
            assert_eq!(done(|all| all.locks.block_index.acquisitions), 2 * created + buckets);
            assert_eq!(done(|all| all.blocks.index_inserts), created);
            assert_eq!(done(|all| all.blocks.index_erases), created);
        }
    }
}

/// Ours claims a mapping's slots by one exchange, so that an unmapping takes no lock.
#[test]
fn an_unmapping_of_ours_takes_no_lock() {
    let space = space_of(VmapPolicy::NOFRAG, span(0, 1 << 24), 4);
    // Reading the counters takes locks itself: as many after an unmapping as before it.
    let taken = || space.counters().locks.total().acquisitions;
    for turn in 0..2400 {
        let by = cpu(&space, turn % 4);
        let area = space.map_ram(by, 1, &()).unwrap();
        let (before, read) = (taken(), taken());
        space.unmap_ram(by, area).unwrap();
        assert_eq!(taken() - read, read - before, "pair {turn}");
    }
    space.check().unwrap();
}

/// Returns the picture that `read` gives of `range`: `#` for a mapped page, `.` for a hole.
fn picture(space: &TestSpace, range: Span) -> String {
    let mut picture = String::new();
    let mut told = range.start();
    space.read(range, |piece| {
        let (Piece::Live(part) | Piece::Hole(part)) = piece;
        assert_eq!(part.start(), told, "pieces tile the range");
        told = part.end();
        let sign = if matches!(piece, Piece::Live(_)) { "#" } else { "." };
        picture += &sign.repeat(part.len() as usize);
    });
    assert_eq!(told, range.end());
    picture
}

/// The index's fourth user, the reader behind `/proc/kcore`: it copies what is mapped and tells zeros for the rest.
#[test]
fn read_walks_blocks() {
    let geometry = BlockGeometry::new(16, 8).unwrap();
    for (blocks, policy) in [
        (BlockPolicy::LINUX_3_19, VmapPolicy::LINUX_3_19),
        (BlockPolicy::LINUX_6_11, VmapPolicy::LINUX_6_11),
    ] {
        let blocks = BlockPolicy { geometry, ..blocks };
        let space = space_of(VmapPolicy { blocks, ..policy }, span(64, 256), 2);
        let all = span(48, 80);
        assert_eq!(picture(&space, all), ".".repeat(80), "there is no block");
        let map = |pages| space.map_ram(cpu(&space, 0), pages, &()).unwrap();
        let [three, one, two, eight]: [RamArea; 4] = [3, 1, 2, 8].map(map);
        assert_eq!(three.start.get(), 64);
        let holes = |count| ".".repeat(count);
        let first = format!("{}###.###########.{}", holes(16), holes(48));
        assert_eq!(picture(&space, all), first);
        let unmap = |area| space.unmap_ram(cpu(&space, 1), area).unwrap();
        unmap(one);
        assert_eq!(picture(&space, span(63, 10)), ".###..####");
        // A range that begins and ends inside of mappings.
        assert_eq!(picture(&space, span(65, 10)), "##..######");
        // A second block, and a mapping too large for any.
        let (next, large) = (map(8), map(9));
        assert_eq!(next.start.get(), 80);
        assert_eq!(picture(&space, span(70, 14)), "#########.####");
        assert_eq!(picture(&space, large.span()), "#".repeat(9), "in no block, but mapped");
        for area in [three, two, eight, next, large] {
            unmap(area);
        }
        assert_eq!(picture(&space, all), holes(80));
        space.check().unwrap();
    }
}

/// One global index of blocks, and one for each CPU, lead to the same counts and the same blocks.
#[test]
fn the_index_changes_no_count() {
    let run = |index| {
        let blocks = BlockPolicy { index, ..BlockPolicy::LINUX_6_11 };
        let space = space_of(VmapPolicy { blocks, ..VmapPolicy::LINUX_6_11 }, span(0, 1 << 15), 2);
        (1..=64).for_each(|pages| pairs(&space, pages, 40));
        space.unmap_aliases();
        space.check().unwrap();
        (space.counters().blocks, space.blocks().unwrap())
    };
    assert_eq!(run(BlockIndex::Global), run(BlockIndex::PerCpu));
}
