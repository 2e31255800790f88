//! The state that threads share in our blocks, under every interleaving with at most four preemptions. Blocks of 64
//! pages, mappings of at most 32, two threads.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p nofrag --profile models --test loom_blocks_ours --target-dir target/loom
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

use block_support::GEOMETRIES;
use block_town::Town;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::vmap::{
    BlockPolicy, Epoch, LazyLimit, MapRamError, Mapper, Piece, RamArea, UnmapRamError, VmapConfig,
    VmapPolicy, VmapSpace,
};
use std::sync::{Mutex, MutexGuard};

/// The first page of the space: a multiple of a block's size.
const FIRST: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Nothing,
    Live,
    /// Cleared when this many flushes had begun.
    Stale(u64),
}

struct Pages {
    behind: Vec<Behind>,
    begun: u64,
    /// Ranges of the flush that is under way: the last one that has begun.
    under_way: Option<Vec<Span>>,
}

/// A mapper that knows the content behind each page and accepts no mistake. Its lock is std's, which the model does not
/// see, so that it orders nothing; the model sees the counter of a call instead, so that it tries calls in every order.
struct Book<const CLEARS: bool> {
    pages: Mutex<Pages>,
    calls: AtomicU64,
    /// True if a flush completes only when a caller asks.
    late: bool,
    refuses: bool,
}

impl Pages {
    fn of(&mut self, span: Span) -> &mut [Behind] {
        let first = (span.start() - FIRST) as usize;
        &mut self.behind[first..first + span.len() as usize]
    }

    fn complete(&mut self) {
        for range in self.under_way.take().unwrap_or_default() {
            let begun = self.begun;
            for page in self.of(range) {
                if matches!(*page, Behind::Stale(time) if time < begun) {
                    *page = Behind::Nothing;
                }
            }
        }
    }
}

impl<const CLEARS: bool> Book<CLEARS> {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.pages.lock().unwrap()
    }

    fn soil(&self, area: Span) {
        let mut pages = self.pages();
        let now = Behind::Stale(pages.begun);
        for page in pages.of(area) {
            assert_eq!(*page, Behind::Live, "{area:?} was cleared");
            *page = now;
        }
    }
}

impl<const CLEARS: bool> Mapper for Book<CLEARS> {
    const CLEARS: bool = CLEARS;

    type Context = ();
    type Error = ();

    fn install(&self, area: RamArea, _context: &()) -> Result<(), ()> {
        let mut pages = self.pages();
        for page in pages.of(area.span()) {
            assert_eq!(*page, Behind::Nothing, "{area:?} was handed out too early");
            *page = Behind::Live;
        }
        if self.refuses { Err(()) } else { Ok(()) }
    }

    fn clear(&self, area: Span) {
        assert!(CLEARS, "there is nothing to clear");
        self.soil(area);
    }

    fn flush(&self, ranges: &[Span]) -> Epoch {
        let mut pages = self.pages();
        pages.complete();
        pages.begun += 1;
        pages.under_way = Some(ranges.to_vec());
        if !self.late {
            pages.complete();
        }
        Epoch(pages.begun)
    }

    fn completed(&self) -> Epoch {
        let mut pages = self.pages();
        pages.complete();
        Epoch(pages.begun)
    }
}

type Space<const CLEARS: bool = true> = VmapSpace<Book<CLEARS>>;

#[derive(Clone, Copy)]
struct Setup {
    /// Blocks for which there is room.
    blocks: u64,
    late: bool,
    refuses: bool,
}

const ONE_BLOCK: Setup = Setup { blocks: 1, late: false, refuses: false };
const TWO_BLOCKS: Setup = Setup { blocks: 2, ..ONE_BLOCK };

fn policy(lazy_limit: u64) -> VmapPolicy {
    VmapPolicy {
        lazy_limit: LazyLimit::Pages(lazy_limit),
        blocks: BlockPolicy { geometry: GEOMETRIES[0], ..BlockPolicy::NOFRAG },
        ..VmapPolicy::NOFRAG
    }
}

impl Setup {
    fn space(self) -> Arc<Space> {
        self.space_that()
    }

    fn space_that<const CLEARS: bool>(self) -> Arc<Space<CLEARS>> {
        let policy = policy(1 << 20);
        let (len, cpus) = (self.blocks * 64, CpuSet::new([0, 3]).unwrap());
        let behind = vec![Behind::Nothing; len as usize];
        let pages = Mutex::new(Pages { behind, begun: 0, under_way: None });
        let book = Book { pages, calls: AtomicU64::new(0), late: self.late, refuses: self.refuses };
        let config = VmapConfig { span: Span::sized(FIRST, len).unwrap(), cpus, policy };
        Arc::new(VmapSpace::new(config, book, ()).unwrap())
    }
}

fn cpu<const CLEARS: bool>(space: &Space<CLEARS>, rank: usize) -> CpuId {
    space.cpus().by_rank(rank).unwrap()
}

/// Returns a thread's result: the mapping that it made, or none if there was no place.
fn place(outcome: Result<RamArea, MapRamError<()>>) -> Option<RamArea> {
    match outcome {
        Ok(area) => Some(area),
        Err(MapRamError::Exhausted { .. } | MapRamError::WouldBlock | MapRamError::CpuHeld) => None,
        Err(why) => panic!("{why:?}"),
    }
}

/// Verifies at the end that the laws hold, mappings are found, and everything comes back.
fn close<const CLEARS: bool>(space: &Space<CLEARS>, live: impl IntoIterator<Item = RamArea>) {
    space.check().unwrap();
    let by = cpu(space, 0);
    for area in live {
        let found = space.find(area.start).map(|found| (found.start, found.pages));
        assert_eq!(found, Some((area.start, area.pages)));
        if !CLEARS {
            space.mapper().soil(area.span());
        }
        space.unmap_ram(by, area).unwrap();
    }
    space.purge_all();
    space.check().unwrap();
    assert_eq!(space.stats().largest_hole, space.span().len(), "something leaked");
    let pages = space.mapper().pages();
    assert!(pages.behind.iter().all(|page| *page == Behind::Nothing), "{:?}", pages.behind);
}

/// Verifies, after an alias flush, that a mapping which was unmapped before it is flushed.
fn must_be_flushed<const CLEARS: bool>(space: &Space<CLEARS>, area: RamArea) {
    let mut pages = space.mapper().pages();
    let stale = pages.of(area.span()).iter().any(|page| matches!(page, Behind::Stale(_)));
    assert!(!stale, "an alias flush has left stale translations");
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_to(4, model);
}

/// Explores with at most `preemptions` preemptions: for models of many steps.
fn explore_to(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// A block is published while another CPU looks its pages up.
#[test]
fn publish_against_lookup() {
    explore(|| {
        let space = ONE_BLOCK.space();
        let other = space.clone();
        let thread = thread::spawn(move || {
            let found = other.find(nofrag::units::Vpn(FIRST));
            let mut live = 0;
            other.read(other.span(), |piece| {
                if let Piece::Live(part) = piece {
                    live += part.len();
                }
            });
            (found, live)
        });
        let area = space.map_ram(cpu(&space, 0), 2, &()).unwrap();
        let (found, live) = thread.join().unwrap();
        if let Some(found) = found {
            assert_eq!((found.start, found.pages), (area.start, area.pages));
        }
        assert!(live == 0 || live == 2, "half of a mapping is read: {live}");
        close(&space, [area]);
    });
}

/// docs/sources/vmap.md#double-handout. Two CPUs map at once; there is room for a block of each, or of one.
#[test]
fn double_handout() {
    for setup in [ONE_BLOCK, TWO_BLOCKS] {
        explore(move || {
            let space = setup.space();
            let other = space.clone();
            let thread = thread::spawn(move || place(other.map_ram(cpu(&other, 1), 3, &())));
            let own = place(space.map_ram(cpu(&space, 0), 32, &()));
            let areas = [own, thread.join().unwrap()];
            let mapped = areas.iter().flatten().count() as u64;
            assert!(mapped == setup.blocks, "{areas:?}");
            close(&space, areas.into_iter().flatten());
        });
    }
}

/// Two threads map for the same CPU at once, and both are served.
#[test]
fn two_threads_on_one_cpu() {
    explore(|| {
        let space = ONE_BLOCK.space();
        let other = space.clone();
        let thread = thread::spawn(move || place(other.map_ram(cpu(&other, 0), 32, &())));
        let own = place(space.map_ram(cpu(&space, 0), 32, &()));
        let areas = [own, thread.join().unwrap()];
        assert_eq!(areas.iter().flatten().count(), 2, "{areas:?}");
        close(&space, areas.into_iter().flatten());
    });
}

/// Slots that another CPU unmaps are collected, flushed and handed out again: by the mapper at once, or late.
#[test]
fn remote_unmap_against_recycle() {
    for late in [false, true] {
        explore(move || {
            let space = Setup { late, ..ONE_BLOCK }.space();
            let [first, second] = [(); 2].map(|()| space.map_ram(cpu(&space, 0), 32, &()).unwrap());
            let other = space.clone();
            let thread = thread::spawn(move || other.unmap_ram(cpu(&other, 1), first).unwrap());
            let again = place(space.map_ram(cpu(&space, 0), 32, &()));
            thread.join().unwrap();
            close(&space, [second].into_iter().chain(again));
        });
    }
}

#[test]
fn purge_all_against_map() {
    explore(|| {
        let space = ONE_BLOCK.space();
        let idle = space.map_ram(cpu(&space, 0), 4, &()).unwrap();
        space.unmap_ram(cpu(&space, 0), idle).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || {
            other.purge_all();
        });
        let area = space.map_ram(cpu(&space, 0), 4, &());
        thread.join().unwrap();
        close(&space, area);
    });
}

/// A purge on behalf of another CPU asks a held one for its idle block.
#[test]
fn a_handle_is_asked_for_its_blocks() {
    explore(|| {
        let space = ONE_BLOCK.space();
        let mut handle = space.cpu(cpu(&space, 0)).unwrap();
        let idle = handle.map_ram(32, &()).unwrap();
        handle.unmap_ram(idle).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || place(other.map_ram(cpu(&other, 1), 5, &())));
        let own = place(handle.map_ram(32, &()));
        let far = thread.join().unwrap();
        drop(handle);
        close(&space, own.into_iter().chain(far));
    });
}

/// A handle is dropped while another CPU maps and needs the handle's idle block.
#[test]
fn a_handle_ends_while_its_block_is_wanted() {
    explore(|| {
        let space = ONE_BLOCK.space();
        let mut handle = space.cpu(cpu(&space, 0)).unwrap();
        let idle = handle.map_ram(2, &()).unwrap();
        handle.unmap_ram(idle).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || place(other.map_ram(cpu(&other, 1), 5, &())));
        drop(handle);
        let far = thread.join().unwrap();
        close(&space, far);
    });
}

/// The handle of its CPU and another thread unmap one mapping, and all that is dirty is collected: its pages are freed
/// once. Where pages are cleared, one of the two is refused; where not, both may be told that it is done.
fn an_owner_and_a_stranger_unmap<const CLEARS: bool>() {
    explore_to(3, || {
        let space = ONE_BLOCK.space_that::<CLEARS>();
        let mut handle = space.cpu(cpu(&space, 0)).unwrap();
        let area = handle.map_ram(32, &()).unwrap();
        if !CLEARS {
            space.mapper().soil(area.span());
        }
        let other = space.clone();
        let thread = thread::spawn(move || {
            let outcome = other.unmap_ram(cpu(&other, 1), area);
            other.unmap_aliases();
            if outcome.is_ok() {
                must_be_flushed(&other, area);
            }
            outcome
        });
        let own = handle.unmap_ram(area);
        let again = place(handle.map_ram(32, &()));
        let done = [own, thread.join().unwrap()].iter().filter(|outcome| outcome.is_ok()).count();
        assert!(done == 1 || done == 2 && !CLEARS, "{done} were told that it is done");
        let more = place(handle.map_ram(32, &()));
        drop(handle);
        close(&space, again.into_iter().chain(more));
    });
}

#[test]
fn an_owner_and_a_stranger_unmap_what_is_cleared() {
    an_owner_and_a_stranger_unmap::<true>();
}

#[test]
fn an_owner_and_a_stranger_unmap_what_is_not_cleared() {
    an_owner_and_a_stranger_unmap::<false>();
}

/// A mapping that a handle ended before an alias flush is not stale after it, while the handle hands it in and reuses
/// it.
#[test]
fn an_alias_flush_covers_what_a_handle_keeps() {
    explore_to(3, || {
        let space = ONE_BLOCK.space();
        let mut handle = space.cpu(cpu(&space, 0)).unwrap();
        let [before, beside] = [(); 2].map(|()| handle.map_ram(16, &()).unwrap());
        handle.unmap_ram(before).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || {
            let begun = other.mapper().pages().begun;
            other.unmap_aliases();
            let mut pages = other.mapper().pages();
            let is_stale = |page: &Behind| matches!(page, Behind::Stale(time) if *time <= begun);
            assert!(!pages.of(before.span()).iter().any(is_stale), "stale translations are left");
        });
        handle.unmap_ram(beside).unwrap();
        let again = place(handle.map_ram(32, &()));
        thread.join().unwrap();
        drop(handle);
        close(&space, again);
    });
}

/// After an alias flush nothing is stale that was unmapped before it.
#[test]
fn unmap_aliases_against_unmap() {
    explore(|| {
        let space = ONE_BLOCK.space();
        let [before, beside] =
            [1, 2].map(|pages| space.map_ram(cpu(&space, 0), pages, &()).unwrap());
        space.unmap_ram(cpu(&space, 0), before).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || {
            other.unmap_aliases();
            must_be_flushed(&other, before);
        });
        space.unmap_ram(cpu(&space, 1), beside).unwrap();
        thread.join().unwrap();
        close(&space, []);
    });
}

/// An unmapping that finds its block noted by another one relies on that; so does the alias flush that follows it.
#[test]
fn an_alias_flush_waits_for_whoever_notes_a_block() {
    explore(|| {
        let space = ONE_BLOCK.space();
        let [own, far] = [(); 2].map(|()| space.map_ram(cpu(&space, 0), 1, &()).unwrap());
        let other = space.clone();
        let thread = thread::spawn(move || other.unmap_ram(cpu(&other, 1), far).unwrap());
        space.unmap_ram(cpu(&space, 0), own).unwrap();
        space.unmap_aliases();
        must_be_flushed(&space, own);
        thread.join().unwrap();
        close(&space, []);
    });
}

/// An alias flush gives idle blocks back while their CPU maps.
#[test]
fn unmap_aliases_against_map() {
    explore(|| {
        let space = TWO_BLOCKS.space();
        let idle = space.map_ram(cpu(&space, 0), 32, &()).unwrap();
        space.unmap_ram(cpu(&space, 1), idle).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || {
            other.unmap_aliases();
        });
        let area = space.map_ram(cpu(&space, 0), 32, &()).unwrap();
        thread.join().unwrap();
        close(&space, [area]);
    });
}

#[test]
fn of_two_unmaps_one_succeeds() {
    explore(|| {
        let space = ONE_BLOCK.space();
        let area = space.map_ram(cpu(&space, 0), 3, &()).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || other.unmap_ram(cpu(&other, 1), area));
        let outcomes = [space.unmap_ram(cpu(&space, 0), area), thread.join().unwrap()];
        let refused: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.err()).collect();
        let known = [UnmapRamError::DoubleUnmap, UnmapRamError::NotMapped];
        assert!(refused.len() == 1 && known.contains(&refused[0]), "{outcomes:?}");
        close(&space, []);
    });
}

/// Two CPUs unmap the two halves of a block; the last of them may give it back.
#[test]
fn two_unmaps_empty_a_block() {
    explore(|| {
        let space = ONE_BLOCK.space();
        let [first, second] = [(); 2].map(|()| space.map_ram(cpu(&space, 0), 32, &()).unwrap());
        let other = space.clone();
        let thread = thread::spawn(move || other.unmap_ram(cpu(&other, 1), first).unwrap());
        space.unmap_ram(cpu(&space, 0), second).unwrap();
        thread.join().unwrap();
        close(&space, []);
    });
}

/// A mapping that cannot be installed is undone while everything is purged.
#[test]
fn a_refused_install_against_purge_all() {
    explore(|| {
        let space = Setup { refuses: true, ..ONE_BLOCK }.space();
        let other = space.clone();
        let thread = thread::spawn(move || {
            other.purge_all();
        });
        assert_eq!(space.map_ram(cpu(&space, 0), 2, &()), Err(MapRamError::Install(())));
        thread.join().unwrap();
        close(&space, []);
    });
}

/// An unmapping is slow to note what it has done; meanwhile its block is given back, and taken again by another CPU,
/// for which it notes it then.
#[test]
fn a_slow_unmap_against_a_new_owner() {
    explore(|| {
        let space = ONE_BLOCK.space_that::<false>();
        let [before, slow] = [(); 2].map(|()| space.map_ram(cpu(&space, 0), 1, &()).unwrap());
        space.mapper().soil(before.span());
        space.unmap_ram(cpu(&space, 0), before).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || {
            other.mapper().soil(slow.span());
            other.unmap_ram(cpu(&other, 1), slow).unwrap();
        });
        space.purge_all();
        let Some(area) = place(space.map_ram(cpu(&space, 1), 32, &())) else {
            thread.join().unwrap();
            return close(&space, []);
        };
        space.mapper().soil(area.span());
        space.unmap_ram(cpu(&space, 0), area).unwrap();
        space.unmap_aliases();
        must_be_flushed(&space, area);
        thread.join().unwrap();
        close(&space, []);
    });
}

/// A block is handed over while a mapping in it is ended, and then serves its new owner.
#[test]
fn hand_over_against_unmap() {
    for late in [false, true] {
        explore(move || {
            let space = Setup { late, ..ONE_BLOCK }.space();
            let [kept, ended] =
                [8, 32].map(|pages| space.map_ram(cpu(&space, 0), pages, &()).unwrap());
            let other = space.clone();
            let thread = thread::spawn(move || other.unmap_ram(cpu(&other, 0), ended).unwrap());
            assert_eq!(space.hand_over(cpu(&space, 0), cpu(&space, 1)), Ok(1));
            let rest = space.map_ram(cpu(&space, 1), 16, &()).unwrap();
            thread.join().unwrap();
            let again = space.map_ram(cpu(&space, 1), 32, &()).unwrap();
            close(&space, [kept, rest, again]);
        });
    }
}

/// An alias flush beside a block that goes over, to a CPU whose turn comes before or after its old owner's.
#[test]
fn hand_over_against_unmap_aliases() {
    for (from, to) in [(0, 1), (1, 0)] {
        explore_to(2, move || {
            let space = ONE_BLOCK.space();
            let [kept, ended] =
                [8, 32].map(|pages| space.map_ram(cpu(&space, from), pages, &()).unwrap());
            let other = space.clone();
            let thread = thread::spawn(move || {
                other.unmap_ram(cpu(&other, 1), ended).unwrap();
                other.unmap_aliases();
                must_be_flushed(&other, ended);
            });
            assert_eq!(space.hand_over(cpu(&space, from), cpu(&space, to)), Ok(1));
            thread.join().unwrap();
            close(&space, [kept]);
        });
    }
}

/// A block is handed over while its new owner maps.
#[test]
fn hand_over_against_map() {
    explore(|| {
        let space = TWO_BLOCKS.space();
        let kept = space.map_ram(cpu(&space, 0), 8, &()).unwrap();
        let other = space.clone();
        let thread = thread::spawn(move || place(other.map_ram(cpu(&other, 1), 32, &())));
        assert_eq!(space.hand_over(cpu(&space, 0), cpu(&space, 1)), Ok(1));
        let area = thread.join().unwrap().expect("there is room for both");
        let more = space.map_ram(cpu(&space, 1), 32, &()).unwrap();
        close(&space, [kept, area, more]);
    });
}

/// Random programs; what is done before in one, and what each of two threads does.
const PROGRAMS: u64 = 40;
const BEFORE: u32 = 6;
const BESIDE: u32 = 3;

/// Short random programs, as threads at full speed run long ones.
#[test]
fn random_programs() {
    for seed in 0..PROGRAMS {
        explore_to(2, move || {
            let span = Span::sized(FIRST, 128).unwrap();
            block_town::program(Town::new(policy(40), span, |book| book), seed, BEFORE, BESIDE);
        });
    }
}
