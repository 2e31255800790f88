//! The state that threads share in Linux's blocks, under every interleaving with at most two preemptions. Blocks of 4
//! pages, mappings of at most 2, two threads, by the rules of 3.19, 4.19 and 6.11.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p nofrag --profile models --test loom_blocks --target-dir target/loom
//! ```
#![cfg(loom)]
#![allow(clippy::disallowed_types)]

use core::convert::Infallible;
use loom::sync::Arc;
use loom::thread;
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::vmap::{
    BlockGeometry, BlockPolicy, Epoch, LazyLimit, MapRamError, Mapper, Piece, RamArea,
    UnmapRamError, VmapConfig, VmapPolicy, VmapSpace,
};
use std::sync::Mutex;

/// The first page of the space: a multiple of a block's size.
const FIRST: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Nothing,
    Live,
    Stale,
}

/// A mapper that knows the content behind each page and accepts no mistake. Its lock is std's, which the model does not
/// see: a call of the mapper is one step of it.
struct Book(Mutex<Vec<Behind>>);

impl Book {
    fn change(&self, span: Span, mut change: impl FnMut(&mut Behind)) {
        let first = (span.start() - FIRST) as usize;
        self.0.lock().unwrap()[first..first + span.len() as usize].iter_mut().for_each(&mut change);
    }

    fn is_stale(&self, area: RamArea) -> bool {
        let mut stale = false;
        self.change(area.span(), |page| stale |= *page == Behind::Stale);
        stale
    }
}

impl Mapper for Book {
    type Context = ();
    type Error = Infallible;

    fn install(&self, area: RamArea, _context: &()) -> Result<(), Infallible> {
        self.change(area.span(), |page| {
            assert_eq!(*page, Behind::Nothing, "{area:?} was handed out too early");
            *page = Behind::Live;
        });
        Ok(())
    }

    fn clear(&self, area: Span) {
        self.change(area, |page| {
            assert_eq!(*page, Behind::Live, "{area:?} was cleared");
            *page = Behind::Stale;
        });
    }

    fn flush(&self, ranges: &[Span]) -> Epoch {
        for range in ranges {
            self.change(*range, |page| {
                if *page == Behind::Stale {
                    *page = Behind::Nothing;
                }
            });
        }
        Epoch(0)
    }

    fn completed(&self) -> Epoch {
        Epoch(0)
    }
}

type Space = VmapSpace<Book>;

fn space_of(policy: VmapPolicy, blocks: u64) -> Arc<Space> {
    let geometry = BlockGeometry::new(4, 2).unwrap();
    let policy = VmapPolicy {
        blocks: BlockPolicy { geometry, ..policy.blocks },
        lazy_limit: LazyLimit::Pages(1000),
        ..policy
    };
    let (span, cpus) = (Span::sized(FIRST, 4 * blocks).unwrap(), CpuSet::first(2).unwrap());
    let book = Book(Mutex::new(vec![Behind::Nothing; 4 * blocks as usize]));
    Arc::new(VmapSpace::new(VmapConfig { span, cpus, policy }, book, ()).unwrap())
}

fn cpu(space: &Space, rank: usize) -> CpuId {
    space.cpus().by_rank(rank).unwrap()
}

fn map(space: &Space, rank: usize, pages: u64) -> RamArea {
    space.map_ram(cpu(space, rank), pages, &()).unwrap()
}

/// Maps without waiting; `None` if there is no place at this moment.
fn try_map(space: &Space, rank: usize, pages: u64) -> Option<RamArea> {
    match space.try_map_ram(cpu(space, rank), pages, &()) {
        Ok(area) => Some(area),
        Err(MapRamError::WouldBlock | MapRamError::Exhausted { .. }) => None,
        Err(why) => panic!("{why}"),
    }
}

fn unmap(space: &Space, rank: usize, area: RamArea) {
    space.unmap_ram(cpu(space, rank), area).unwrap();
}

/// Verifies that the live mappings are disjoint, and found, and that nothing is left once they are unmapped and purged.
fn close(space: &Space, live: impl IntoIterator<Item = RamArea>) {
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
        let thread = thread::spawn(move || other.map_ram(cpu(&other, 1), 2, &()).ok());
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
        let thread = thread::spawn(move || other.unmap_ram(cpu(&other, 1), area));
        let outcomes = [space.unmap_ram(cpu(&space, 0), area), thread.join().unwrap()];
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
        let flush = move |space: &Space| {
            space.unmap_aliases();
            assert!(!space.mapper().is_stale(gone));
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
        assert!(!space.mapper().is_stale(one));
        thread.join().unwrap();
        space.unmap_aliases();
        assert!(!space.mapper().is_stale(two));
        close(&space, [live]);
    });
}
