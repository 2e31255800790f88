//! Slots whose owner does not look after them: the callers that flush them, and the time when they do.

use crate::vmap_support::{TestSpace, cpu, space_of, span};
use nofrag::check::Check;
use nofrag::vmap::{Budget, Drain, MapRamError, RamArea, VmapPolicy};
use std::sync::atomic::Ordering;

/// The most dirty pages that may wait for a flush: 64 groups of 256 slots, and the slots that a look of the owner
/// leaves besides.
const BACKLOG_BOUND: u64 = 64 * 256 + 2 * 1024;

fn ours(drain: Drain) -> TestSpace {
    space_of(VmapPolicy { drain, ..VmapPolicy::NOFRAG }, span(0, 1 << 20), 2)
}

fn many_maps(space: &TestSpace, count: u64) -> Vec<RamArea> {
    (0..count).map(|_| space.map_ram(cpu(space, 0), 1, &()).unwrap()).collect()
}

/// Another CPU unmaps everything, and the owner of the blocks never maps again: the CPU that unmaps flushes in time.
#[test]
fn who_unmaps_drains_for_an_owner_that_does_not() {
    let space = ours(Drain::ByFreer);
    for area in many_maps(&space, 100_000) {
        space.unmap_ram(cpu(&space, 1), area).unwrap();
    }
    space.check().unwrap();
    let stats = space.block_stats();
    assert!(stats.dirty_pages <= BACKLOG_BOUND, "{stats:?}");
    assert!(stats.blocks <= 1 + BACKLOG_BOUND / 1024, "idle blocks go back: {stats:?}");
    let flushes = space.counters().blocks.flushes;
    assert!((1..=100_000 / 1024).contains(&flushes), "{flushes} flushes");
}

/// A handle unmaps everything and never maps again: it flushes in time, or lets a step do so.
#[test]
fn a_handle_that_only_unmaps_looks_after_that() {
    for drain in [Drain::ByFreer, Drain::Posted] {
        let space = ours(drain);
        let areas = many_maps(&space, 100_000);
        let mut handle = space.cpu(cpu(&space, 0)).unwrap();
        // Upwards, runs of them; downwards, each alone.
        let upwards_then_downwards = areas[..50_000].iter().chain(areas[50_000..].iter().rev());
        for (count, area) in upwards_then_downwards.enumerate() {
            handle.unmap_ram(*area).unwrap();
            if drain == Drain::ByFreer && count % 100 == 0 {
                let dirty = space.block_stats().dirty_pages;
                assert!(dirty <= BACKLOG_BOUND, "{dirty} pages are dirty");
            }
        }
        let flushes = space.mapper().flushes.load(Ordering::SeqCst);
        assert_eq!(flushes > 0, drain == Drain::ByFreer, "{flushes} flushes");
        assert_eq!(space.drain_wanted(), drain == Drain::Posted);
        space.step(Budget { areas: 64 });
        drop(handle);
        space.purge_all();
        space.check().unwrap();
        assert_eq!(space.block_stats().blocks, 0);
        let flushes = space.mapper().flushes.load(Ordering::SeqCst);
        space.unmap_aliases();
        assert_eq!(space.mapper().flushes.load(Ordering::SeqCst), flushes, "nothing is kept");
    }
}

#[test]
fn a_posted_drain_waits_for_a_step() {
    let space = ours(Drain::Posted);
    for area in many_maps(&space, 100_000) {
        space.unmap_ram(cpu(&space, 1), area).unwrap();
    }
    assert_eq!(space.mapper().flushes.load(Ordering::SeqCst), 0);
    assert!(space.drain_wanted());
    for _ in 0..1000 {
        space.step(Budget { areas: 64 });
    }
    space.check().unwrap();
    assert!(!space.drain_wanted());
    let stats = space.block_stats();
    assert!(stats.dirty_pages < 1024 && stats.blocks <= 3, "{stats:?}");
}

/// `try_map_ram` never flushes, but unmapping may: 200,000 pairs of the two use no more than four blocks.
#[test]
fn callers_that_must_not_wait_do_not_use_up_the_space() {
    let space = space_of(VmapPolicy::NOFRAG, span(0, 64 * 1024), 1);
    for pair in 0..200_000 {
        let area = space.try_map_ram(cpu(&space, 0), 1, &());
        let area = area.unwrap_or_else(|why| panic!("pair {pair}: {why}"));
        space.unmap_ram(cpu(&space, 0), area).unwrap();
    }
    space.check().unwrap();
    let blocks = space.counters().blocks.created;
    assert!(blocks <= 4, "{blocks} blocks for one page at a time");
}

/// With one live page in the only block, `try_map_ram` reports that waiting would help, and `map_ram` succeeds.
#[test]
fn what_a_flush_would_free_is_worth_waiting_for() {
    let space = space_of(VmapPolicy::NOFRAG, span(0, 1024), 1);
    let by = cpu(&space, 0);
    let areas = many_maps(&space, 1024);
    for area in &areas[1..] {
        space.unmap_ram(by, *area).unwrap();
    }
    assert_eq!(space.try_map_ram(by, 1, &()), Err(MapRamError::WouldBlock));
    assert!(space.map_ram(by, 1, &()).is_ok());
    space.check().unwrap();
}

/// Every second page is free, so that a block is as scattered as it can be. The work of a hold is bounded all the same:
/// a hold collects from a few groups of slots, or takes one block back.
#[test]
fn scattered_slots_are_collected_in_short_holds() {
    let space = ours(Drain::Posted);
    let areas = many_maps(&space, 64 * 1024);
    for area in areas.iter().step_by(2) {
        space.unmap_ram(cpu(&space, 1), *area).unwrap();
    }
    let holds = |space: &TestSpace| space.counters().locks.recycler.acquisitions;
    let before = holds(&space);
    space.unmap_aliases();
    let taken = holds(&space) - before;
    assert!(taken >= 64 * 2, "{taken} holds for 64 blocks of four groups, two or three at a time");
    space.check().unwrap();
    assert_eq!(space.block_stats().dirty_pages, 0);
}
