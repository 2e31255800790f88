//! CPUs that go away with half-used blocks, and hand them over.

use super::block_support::{
    BlockSpace, Frames, GEOMETRIES, PageBook, block_space, cpu_of, gappy_cpus, must_map,
    presets_with,
};
use super::choices::Random;
use super::memory::without_memory;
use super::vmap_support::span;
use nofrag::check::Check;
use nofrag::cpu::CpuSet;
use nofrag::vmap::{
    BlockPolicy, HandOverError, LazyLimit, MapRamError, RamArea, Reuse, VmapPolicy,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: u64 = 64;

/// Returns a space with room for `blocks` blocks of 64 pages.
fn space_of_blocks(blocks: u64, reuse: Reuse, lag: u32) -> BlockSpace {
    let policy = VmapPolicy {
        lazy_limit: LazyLimit::Pages(1 << 40),
        blocks: BlockPolicy { geometry: GEOMETRIES[0], reuse, ..BlockPolicy::NOFRAG },
        ..VmapPolicy::NOFRAG
    };
    block_space(policy, gappy_cpus(), PageBook::new(span(0x1000, blocks * BLOCK), lag))
}

/// Fills four blocks of a CPU by single pages, and keeps one page of each.
fn half_used(space: &BlockSpace, rank: usize) -> Vec<RamArea> {
    let by = cpu_of(space, rank);
    let mut areas: Vec<RamArea> = (0..4 * BLOCK).map(|_| must_map(space, by, 1)).collect();
    areas.sort_unstable_by_key(|area| area.start);
    let (kept, ended) =
        areas.into_iter().partition::<Vec<_>, _>(|area| area.start.get() % BLOCK == 7);
    ended.into_iter().for_each(|area| space.unmap_ram(by, area).unwrap());
    kept
}

fn must_check(space: &BlockSpace) {
    space.check().unwrap_or_else(|broken| panic!("{broken}"));
}

fn close(space: &BlockSpace, live: impl IntoIterator<Item = RamArea>) {
    let by = cpu_of(space, 0);
    live.into_iter().for_each(|area| space.unmap_ram(by, area).unwrap());
    space.purge_all();
    must_check(space);
    assert_eq!(space.block_stats().blocks, 0, "a block is left");
    assert_eq!(space.stats().largest_hole, space.span().len());
}

#[test]
fn a_cpu_that_goes_away_hands_its_half_used_blocks_over() {
    for lag in 0..3 {
        let space = space_of_blocks(4, Reuse::FlushEpoch, lag);
        let (here, gone) = (cpu_of(&space, 0), cpu_of(&space, 2));
        let mut live = half_used(&space, 2);
        let refused = space.map_ram(here, 1, &Frames::new(1));
        assert_eq!(refused, Err(MapRamError::Exhausted { largest: 0 }));
        let before = space.counters().blocks;
        assert_eq!(space.hand_over(gone, here), Ok(4));
        must_check(&space);
        assert!(space.blocks().unwrap().iter().all(|block| block.owner == here && block.live == 1));
        let after = space.counters().blocks;
        assert_eq!((after.maps, after.created), (before.maps, before.created));
        assert_eq!(after.recycled_pages, 4 * (BLOCK - 1));
        // Every other page serves the one that is left.
        live.extend((0..4 * (BLOCK - 1)).map(|_| must_map(&space, here, 1)));
        assert_eq!(space.hand_over(gone, here), Ok(0), "nothing is left there");
        close(&space, live);
    }
}

/// Without slot recycling a block that came half back serves its new owner as it did the old one.
#[test]
fn what_has_come_back_goes_over_too() {
    let space = space_of_blocks(2, Reuse::WholeBlock, 1);
    let (here, gone) = (cpu_of(&space, 0), cpu_of(&space, 1));
    let [kept, ended] = [20, 30].map(|pages| must_map(&space, gone, pages));
    space.unmap_ram(here, ended).unwrap();
    assert_eq!(space.hand_over(gone, here), Ok(1));
    must_check(&space);
    let rest = must_map(&space, here, 14);
    assert_eq!(rest.start.get() / BLOCK, kept.start.get() / BLOCK, "the rest of the same block");
    assert_eq!(space.block_stats().blocks, 1);
    close(&space, [kept, rest]);
}

#[test]
fn idle_blocks_are_given_back_instead() {
    let space = space_of_blocks(2, Reuse::FlushEpoch, 1);
    let (here, gone) = (cpu_of(&space, 0), cpu_of(&space, 1));
    let area = must_map(&space, gone, 3);
    space.unmap_ram(here, area).unwrap();
    assert_eq!(space.hand_over(gone, here), Ok(0));
    assert_eq!(space.counters().blocks.returned, 1);
    close(&space, []);
}

#[test]
fn a_cpu_that_somebody_holds_keeps_its_blocks() {
    let space = space_of_blocks(2, Reuse::FlushEpoch, 0);
    let [first, second] = [0, 1].map(|rank| cpu_of(&space, rank));
    let stranger = CpuSet::first(64).unwrap().by_rank(40).unwrap();
    let area = must_map(&space, first, 3);
    let mut handle = space.cpu(first).unwrap();
    assert_eq!(space.hand_over(first, second), Err(HandOverError::Held));
    assert_eq!(space.hand_over(second, first), Err(HandOverError::Held));
    let more = handle.map_ram(5, &Frames::new(9)).unwrap();
    drop(handle);
    assert_eq!(space.hand_over(first, first), Err(HandOverError::Held));
    assert_eq!(space.hand_over(first, stranger), Err(HandOverError::UnknownCpu));
    assert_eq!(space.hand_over(stranger, first), Err(HandOverError::UnknownCpu));
    assert!(space.blocks().unwrap().iter().all(|block| block.owner == first));
    assert_eq!(space.hand_over(first, second), Ok(1), "all are free again");
    close(&space, [area, more]);
}

#[test]
fn without_memory_nothing_goes_over() {
    let space = space_of_blocks(4, Reuse::FlushEpoch, 0);
    let (here, gone) = (cpu_of(&space, 0), cpu_of(&space, 2));
    let live = half_used(&space, 2);
    space.unmap_aliases();
    let before = space.blocks().unwrap();
    let refused = without_memory(|| space.hand_over(gone, here));
    assert_eq!(refused, Err(HandOverError::OutOfMetadata));
    must_check(&space);
    assert_eq!(space.blocks().unwrap(), before);
    assert_eq!(space.hand_over(gone, here), Ok(4));
    close(&space, live);
}

/// Under Linux's presets `hand_over` moves no block: the free slots of a CPU that has gone serve nobody.
#[test]
fn linux_hands_nothing_over() {
    for preset in presets_with(GEOMETRIES[0], 1 << 40).filter(|it| it.name != "nofrag") {
        let book = PageBook::new(span(0x1000, 8 * BLOCK), 0);
        let space = block_space(preset.policy, gappy_cpus(), book);
        let (here, gone) = (cpu_of(&space, 0), cpu_of(&space, 2));
        let area = must_map(&space, gone, 1);
        assert_eq!(space.hand_over(gone, here), Ok(0), "{}", preset.name);
        assert_eq!(space.blocks().unwrap()[0].owner, gone, "{}", preset.name);
        close(&space, [area]);
    }
}

/// Blocks go round while two threads map and unmap what either has mapped, and a third flushes aliases.
#[test]
fn blocks_go_round_while_others_map_and_unmap() {
    for lag in 0..2 {
        let space = space_of_blocks(64, Reuse::FlushEpoch, lag);
        let (pool, done) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (space, pool, done) = (&space, &pool, &done);
            for seed in [0, 1] {
                scope.spawn(move || work(space, seed, pool, done));
            }
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    space.unmap_aliases();
                }
            });
            let mut over = 0;
            for round in 0.. {
                let [from, to] = [round % 3, (round + 1) % 3].map(|rank| cpu_of(space, rank));
                over += space.hand_over(from, to).expect("nobody takes a handle");
                if over > 500 {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        must_check(&space);
        close(&space, pool.into_inner().unwrap());
    }
}

fn work(space: &BlockSpace, seed: u64, pool: &Mutex<Vec<RamArea>>, done: &AtomicBool) {
    let mut random = Random::new(seed);
    let mut tag = seed;
    while !done.load(Ordering::Relaxed) {
        let by = cpu_of(space, random.below(3) as usize);
        tag += 2;
        match space.map_ram(by, 1 + random.below(32), &Frames::new(tag)) {
            Ok(area) => pool.lock().unwrap().push(area),
            // A CPU that hands over maps nothing.
            Err(MapRamError::CpuHeld) => {}
            Err(why) => panic!("{why}"),
        }
        let ended = {
            let mut pool = pool.lock().unwrap();
            let len = pool.len() as u64;
            if len > 40 { Some(pool.swap_remove(random.below(len) as usize)) } else { None }
        };
        ended.into_iter().for_each(|area| space.unmap_ram(by, area).unwrap());
    }
}
