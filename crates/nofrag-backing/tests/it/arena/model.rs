//! The arena against a map of pages that is too simple to be wrong, with every page's contents checked.

use std::collections::BTreeMap;
use std::time::Duration;

use nofrag_backing::arena::{Arena, ArenaError, Budget, Config, OwnerId, Purge, ResizeError, Run};
use nofrag_backing::backend::{Anonymous, HostMemory};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{BLOCK, PAGE, check_laws, small, stamp, stamps};

const OWNERS: u32 = 3;

/// Which run has each page.
#[derive(Default)]
struct Model {
    pages: BTreeMap<u64, u64>,
    live: Vec<(Run, OwnerId, u64)>,
    next: u64,
}

/// Owner and number of a run in one word, which is never zero.
fn stamp_of(owner: OwnerId, number: u64) -> u64 {
    u64::from(owner.0 + 1) << 48 | number
}

impl Model {
    fn numbers(run: Run) -> impl Iterator<Item = u64> {
        let first = run.va().0 / PAGE as u64;
        first..first + u64::from(run.pages())
    }

    /// A run was handed out, or changed its length: no page of it is anybody else's.
    fn enter(&mut self, run: Run, owner: OwnerId, number: u64) {
        for page in Model::numbers(run) {
            assert_eq!(self.pages.insert(page, number), None, "page {page:#x} handed out twice");
        }
        self.live.push((run, owner, number));
    }

    fn leave(&mut self, at: usize) -> (Run, OwnerId, u64) {
        let (run, owner, number) = self.live.swap_remove(at);
        for page in Model::numbers(run) {
            assert_eq!(self.pages.remove(&page), Some(number));
        }
        (run, owner, number)
    }
}

struct Trace<B: HostMemory> {
    arena: Arena<B>,
    model: Model,
    rng: Pcg64Mcg,
    now: Duration,
}

impl<B: HostMemory> Trace<B> {
    fn alloc(&mut self) {
        let owner = OwnerId(self.rng.random_range(0..OWNERS));
        let pages = match self.rng.random_range(0..10) {
            0 => self.rng.random_range(65..200),
            _ => self.rng.random_range(1..=64),
        };
        let align = 1 << (self.rng.random_range(0..5_u32).max(2) - 2);
        match self.arena.alloc(owner, pages, align) {
            Ok(run) => {
                assert!(run.va().0.is_multiple_of(align * PAGE as u64));
                let foreign = |&found: &u64| found != 0 && found >> 48 != u64::from(owner.0 + 1);
                let leaked = stamps(&self.arena, run).into_iter().find(foreign);
                assert_eq!(leaked, None, "contents of another owner");
                self.model.next += 1;
                let number = self.model.next;
                stamp(&self.arena, run, stamp_of(owner, number));
                self.model.enter(run, owner, number);
            }
            Err(ArenaError::Exhausted(why)) => assert!(why.largest < pages || align > 1),
            Err(why) => panic!("{why}"),
        }
    }

    fn any(&mut self) -> Option<usize> {
        let count = self.model.live.len();
        (count > 0).then(|| self.rng.random_range(0..count))
    }

    fn verify(&self, run: Run, owner: OwnerId, number: u64) {
        let expected = stamp_of(owner, number);
        assert!(stamps(&self.arena, run).iter().all(|&found| found == expected));
    }

    fn free(&mut self) {
        let Some(at) = self.any() else { return };
        let (run, owner, number) = self.model.leave(at);
        self.verify(run, owner, number);
        if self.rng.random_range(0..4) == 0 {
            self.arena.free_later(run).unwrap();
        } else {
            self.arena.free(run).unwrap();
        }
        self.arena.free(run).unwrap_err();
    }

    fn resize(&mut self) {
        let Some(at) = self.any() else { return };
        let pages = self.rng.random_range(1..150);
        let old = self.model.live[at].0;
        match self.arena.resize(old, pages) {
            Ok(run) => {
                let (old, owner, number) = self.model.leave(at);
                let kept = old.pages().min(run.pages()) as usize * 2;
                let expected = stamp_of(owner, number);
                let found = stamps(&self.arena, run);
                assert!(found[..kept].iter().all(|&found| found == expected));
                let foreign = |&found: &u64| found != 0 && found >> 48 != u64::from(owner.0 + 1);
                assert!(!found.iter().any(foreign), "contents of another owner");
                stamp(&self.arena, run, expected);
                self.model.enter(run, owner, number);
            }
            Err(ResizeError::NoRoom { most }) => assert!(most < pages),
            Err(why) => panic!("{why}"),
        }
    }

    fn step(&mut self) {
        let budget = Budget { blocks: self.rng.random_range(0..6) };
        if self.rng.random_range(0..20) == 0 {
            self.arena.purge(budget);
        } else {
            self.now += Duration::from_millis(self.rng.random_range(0..20));
            self.arena.step(self.now, budget);
        }
    }

    fn run(&mut self, operations: u32) {
        for _ in 0..operations {
            match self.rng.random_range(0..20) {
                0..9 => self.alloc(),
                9..16 => self.free(),
                16..18 => self.resize(),
                _ => self.step(),
            }
            let live: u64 = self.model.live.iter().map(|(run, ..)| u64::from(run.pages())).sum();
            assert_eq!(self.arena.stats().live, live);
            check_laws(&self.arena);
        }
        while !self.model.live.is_empty() {
            self.free();
        }
        self.arena.purge(Budget::ALL);
        let stats = self.arena.stats();
        assert_eq!((stats.live, stats.dirty, stats.stale_frees), (0, 0, 0));
        assert_eq!(stats.blocks.clean, stats.blocks.total);
    }
}

/// A random trace over memory of this kind.
pub(super) fn check_trace<B: HostMemory>(backing: B, purge: Purge, operations: u32) {
    let seed = rand::rng().next_u64();
    println!("seed {seed:#x}");
    let config = Config { purge, ..small(backing, OWNERS) };
    let arena = Arena::reserve(24 * BLOCK, config).unwrap();
    let rng = Pcg64Mcg::seed_from_u64(seed);
    Trace { arena, model: Model::default(), rng, now: Duration::ZERO }.run(operations);
}

#[test]
fn with_decay() {
    let after = Duration::from_millis(100);
    check_trace(Anonymous::new(), Purge::Decay { after }, 1500);
}

#[test]
fn with_a_watermark() {
    check_trace(Anonymous::new(), Purge::Watermark { pages: 100 }, 1500);
}

#[test]
fn by_hand() {
    check_trace(Anonymous::new(), Purge::Manual, 1500);
}

#[test]
fn over_shared_memory() {
    match nofrag_backing::backend::Memfd::new(Default::default()) {
        Ok(memfd) => check_trace(memfd, Purge::Watermark { pages: 100 }, 700),
        Err(why) => println!("skipped: no file in memory: {why}"),
    }
}
