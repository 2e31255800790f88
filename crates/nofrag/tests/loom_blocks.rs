//! The state that threads share in Linux's blocks, under every interleaving with at most two preemptions. Blocks of 4
//! pages, mappings of at most 2, two threads, by the rules of 3.19, 4.19 and 6.11.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p nofrag --profile models --test loom_blocks --target-dir target/loom
//! ```
#![cfg(loom)]
#![allow(clippy::disallowed_types, dead_code)]

#[path = "it/block_support.rs"]
mod block_support;
#[path = "it/block_town.rs"]
mod block_town;
#[path = "it/choices.rs"]
mod choices;
#[path = "it/memory.rs"]
mod memory;

use block_support::{
    Behind, BlockSpace, Frames, PageBook, block_space, cpu_of, geometry, must_map,
};
use block_town::Town;
use loom::sync::Arc;
use loom::thread;
use nofrag::check::Check;
use nofrag::cpu::CpuSet;
use nofrag::ranges::Span;
use nofrag::vmap::{
    BlockPolicy, LazyLimit, MapRamError, Piece, RamArea, UnmapRamError, VmapPolicy,
};

/// The first page of the space: a multiple of a block's size.
const FIRST: u64 = 64;

/// Random programs; what is done before in one, and what each of two threads does.
const PROGRAMS: u64 = 60;
const BEFORE: u32 = 6;
const BESIDE: u32 = 5;

fn space_of(policy: VmapPolicy, blocks: u64) -> Arc<BlockSpace> {
    let span = Span::sized(FIRST, 4 * blocks).unwrap();
    let book = PageBook::new(span, 0);
    Arc::new(block_space(small(policy, 1000), CpuSet::first(2).unwrap(), book))
}

/// Returns the policy with blocks of 4 pages, and mappings of at most 2.
fn small(policy: VmapPolicy, lazy_limit: u64) -> VmapPolicy {
    let blocks = BlockPolicy { geometry: geometry(4, 2), ..policy.blocks };
    VmapPolicy { blocks, lazy_limit: LazyLimit::Pages(lazy_limit), ..policy }
}

fn map(space: &BlockSpace, rank: usize, pages: u64) -> RamArea {
    must_map(space, cpu_of(space, rank), pages)
}

/// Maps without waiting; `None` if there is no place at this moment.
fn try_map(space: &BlockSpace, rank: usize, pages: u64) -> Option<RamArea> {
    match space.try_map_ram(cpu_of(space, rank), pages, &Frames::new(1)) {
        Ok(area) => Some(area),
        Err(MapRamError::WouldBlock | MapRamError::Exhausted { .. }) => None,
        Err(why) => panic!("{why}"),
    }
}

fn unmap(space: &BlockSpace, rank: usize, area: RamArea) {
    space.unmap_ram(cpu_of(space, rank), area).unwrap();
}

fn is_stale(space: &BlockSpace, area: RamArea) -> bool {
    let span = area.span();
    (span.start()..span.end()).any(|at| matches!(space.mapper().behind(at), Behind::Stale(_)))
}

/// Verifies that the live mappings are disjoint, and found, and that nothing is left once they are unmapped and purged.
fn close(space: &BlockSpace, live: impl IntoIterator<Item = RamArea>) {
    space.check().unwrap();
    for area in live {
        assert_eq!(space.find(area.start).map(|found| found.pages), Some(area.pages));
        unmap(space, 0, area);
    }
    space.purge_all();
    space.check().unwrap();
    let counters = space.counters().blocks;
    assert_eq!(space.block_stats().blocks, 0);
    assert_eq!((counters.index_erases, counters.returned), (counters.created, counters.created));
}

fn explore(model: impl Fn(VmapPolicy) + Sync + Send + Copy + 'static) {
    let sharded = VmapPolicy { blocks: BlockPolicy::LINUX_6_11, ..VmapPolicy::LINUX_5_11 };
    for policy in [VmapPolicy::LINUX_3_19, VmapPolicy::LINUX_4_19, sharded] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 100_000;
        builder.check(move || model(policy));
    }
}

/// One thread takes the last slot of a list's first block, and so unlinks it, while another walks past it.
#[test]
fn walk_against_unlink() {
    explore(|policy| {
        let space = space_of(policy, 3);
        let mut live = vec![map(&space, 0, 2), map(&space, 0, 1), map(&space, 0, 2)];
        let other = space.clone();
        let thread = thread::spawn(move || map(&other, 0, 1));
        live.push(map(&space, 0, 2));
        live.push(thread.join().unwrap());
        close(&space, live);
    });
}

/// Two threads take slots of the same block for the same CPU.
#[test]
fn two_threads_on_one_cpu() {
    explore(|policy| {
        let space = space_of(policy, 3);
        let first = map(&space, 0, 2);
        let other = space.clone();
        let thread = thread::spawn(move || map(&other, 0, 2));
        let live = [first, map(&space, 0, 2), thread.join().unwrap()];
        close(&space, live);
    });
}

/// An idle block is purged while its CPU maps.
#[test]
fn purge_against_allocate() {
    explore(|policy| {
        let space = space_of(policy, 2);
        let idle = map(&space, 0, 1);
        unmap(&space, 1, idle);
        let other = space.clone();
        let thread = thread::spawn(move || {
            other.purge_all();
        });
        let live = try_map(&space, 0, 1);
        thread.join().unwrap();
        close(&space, live);
    });
}

/// docs/sources/vmap.md#owner-list. A block is purged, and another CPU makes a new one at its place, while its old
/// owner walks to it: a thread that gets there late must not take slots from the new owner's block, nor put it on the
/// wrong list.
#[test]
fn ownership_of_a_reused_place() {
    explore(|policy| {
        let space = space_of(policy, 1);
        let idle = map(&space, 0, 1);
        unmap(&space, 0, idle);
        let other = space.clone();
        let thread = thread::spawn(move || {
            other.purge_all();
            try_map(&other, 1, 2)
        });
        let mine = try_map(&space, 0, 2);
        let theirs = thread.join().unwrap();
        for (area, rank) in [(mine, 0), (theirs, 1)] {
            let Some(area) = area else { continue };
            let block = space.blocks().unwrap()[0];
            assert!(block.owner.rank() == rank && block.start.get() == FIRST, "{area:?} {block:?}");
        }
        close(&space, mine.into_iter().chain(theirs));
    });
}

/// docs/sources/vmap.md#publish-order: a block is whole before a walk of the index can find it.
#[test]
fn publish_order() {
    explore(|policy| {
        let space = space_of(policy, 2);
        let other = space.clone();
        let thread = thread::spawn(move || {
            other.unmap_aliases();
            other.purge_all();
        });
        let live = try_map(&space, 1, 1);
        thread.join().unwrap();
        assert!(space.blocks().unwrap().iter().all(|block| block.owner.rank() == 1));
        close(&space, live);
    });
}

/// A reader looks for a mapping that comes and goes.
#[test]
fn lookup_against_change() {
    explore(|policy| {
        let space = space_of(policy, 1);
        let other = space.clone();
        let thread = thread::spawn(move || {
            let mut live = 0;
            other.read(Span::sized(FIRST, 4).unwrap(), |piece| {
                live += if let Piece::Live(part) = piece { part.len() } else { 0 };
            });
            assert!(live == 0 || live == 2, "{live}");
            if let Some(area) = other.find(nofrag::units::Vpn(FIRST + 1)) {
                assert_eq!((area.start.get(), area.pages.get()), (FIRST, 2));
            }
        });
        let area = map(&space, 0, 2);
        unmap(&space, 1, area);
        thread.join().unwrap();
        close(&space, []);
    });
}

/// The last two mappings of a block end at once: one thread gives it back.
#[test]
fn two_unmaps_use_a_block_up() {
    explore(|policy| {
        let space = space_of(policy, 1);
        let (one, two) = (map(&space, 0, 2), map(&space, 0, 2));
        let other = space.clone();
        let thread = thread::spawn(move || unmap(&other, 1, one));
        unmap(&space, 0, two);
        thread.join().unwrap();
        assert_eq!(space.counters().blocks.returned, 1);
        close(&space, []);
    });
}

/// A block that is used up goes while another CPU needs its place: by then it is out of the index.
#[test]
fn give_back_against_reuse() {
    explore(|policy| {
        let space = space_of(policy, 1);
        let (one, two) = (map(&space, 0, 2), map(&space, 0, 2));
        unmap(&space, 0, one);
        let other = space.clone();
        let thread =
            thread::spawn(move || other.map_ram(cpu_of(&other, 1), 2, &Frames::new(1)).ok());
        unmap(&space, 0, two);
        let live = thread.join().unwrap();
        close(&space, live);
    });
}

#[test]
fn of_two_unmaps_one_succeeds() {
    explore(|policy| {
        let space = space_of(policy, 1);
        let area = map(&space, 0, 2);
        let other = space.clone();
        let thread = thread::spawn(move || other.unmap_ram(cpu_of(&other, 1), area));
        let outcomes = [space.unmap_ram(cpu_of(&space, 0), area), thread.join().unwrap()];
        assert!(outcomes.contains(&Ok(())) && outcomes.contains(&Err(UnmapRamError::DoubleUnmap)));
        close(&space, []);
    });
}

/// A thread that has flushed aliases finds nothing stale that was unmapped before, even if another flush took it over.
#[test]
fn two_alias_flushes() {
    explore(|policy| {
        let space = space_of(policy, 1);
        let (gone, live) = (map(&space, 0, 1), map(&space, 0, 1));
        unmap(&space, 0, gone);
        let flush = move |space: &BlockSpace| {
            space.unmap_aliases();
            assert!(!is_stale(space, gone));
        };
        let other = space.clone();
        let thread = thread::spawn(move || flush(&other));
        flush(&space);
        thread.join().unwrap();
        close(&space, [live]);
    });
}

/// Slots become dirty while aliases are flushed: slots that are not flushed now are flushed the next time.
#[test]
fn alias_flush_against_unmap() {
    explore(|policy| {
        let space = space_of(policy, 1);
        let (one, two, live) = (map(&space, 0, 1), map(&space, 0, 1), map(&space, 0, 1));
        unmap(&space, 0, one);
        let other = space.clone();
        let thread = thread::spawn(move || unmap(&other, 1, two));
        space.unmap_aliases();
        assert!(!is_stale(&space, one));
        thread.join().unwrap();
        space.unmap_aliases();
        assert!(!is_stale(&space, two));
        close(&space, [live]);
    });
}

/// Short random programs, as threads at full speed run long ones.
#[test]
fn random_programs() {
    for seed in 0..PROGRAMS {
        explore(move |policy| {
            let bounds = Span::sized(FIRST, 12).unwrap();
            block_town::program(
                Town::new(small(policy, 6), bounds, |book| book),
                seed,
                BEFORE,
                BESIDE,
            );
        });
    }
}
