//! The list of runs that other threads have freed, and the lock of an owner, under every interleaving with at most
//! three preemptions. Both are the arena's own files, with loom's atomics in place of the standard library's.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p nofrag-backing --profile models --test loom_arena --target-dir target/loom
//! ```
#![cfg(loom)]
#![allow(dead_code, unreachable_pub)]

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    pub(super) const PATIENCE: u32 = 2;
    pub(super) const COURTESY: u32 = 1;

    pub(super) fn pause(_: u32) {
        loom::thread::yield_now();
    }
}

#[path = "../src/arena/lock.rs"]
mod lock;
#[path = "../src/arena/remote.rs"]
mod remote;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use atomic::{AtomicU32, AtomicU64, Ordering};
use lock::OwnerLock;
use remote::{Claim, Links, RemoteList};

const PAGES: usize = 3;

struct World {
    list: RemoteList,
    links: [AtomicU64; PAGES],
    high: [AtomicU32; PAGES],
    /// Contents of the runs: loom finds every access that is not ordered.
    contents: [UnsafeCell<u32>; PAGES],
    /// Held by the thread that drains, as in the arena.
    owner: OwnerLock<Vec<(u32, Claim)>>,
}

impl Links for World {
    fn link(&self, page: u32) -> &AtomicU64 {
        &self.links[page as usize]
    }

    fn high(&self, page: u32) -> &AtomicU32 {
        &self.high[page as usize]
    }
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            list: RemoteList::new(),
            links: std::array::from_fn(|_| AtomicU64::new(0)),
            high: std::array::from_fn(|_| AtomicU32::new(0)),
            contents: std::array::from_fn(|_| UnsafeCell::new(0)),
            owner: OwnerLock::new(Vec::new()),
        })
    }

    /// Writes to a run and frees it, as a user does.
    fn write_and_free(&self, page: u32, generation: u32) -> Result<(), Claim> {
        // SAFETY: in the model each page has one user until it is freed; loom says if that is not so.
        self.contents[page as usize].with_mut(|contents| unsafe { *contents = generation });
        self.free(page, generation)
    }

    fn free(&self, page: u32, generation: u32) -> Result<(), Claim> {
        // High digits as well as low ones: collected claims have them all.
        let generation = u64::from(generation) * ((1 << 32) + 1);
        self.list.push(self, page, Claim { generation, leased: false })
    }

    /// Takes the freed runs as the holder, and uses the pages again.
    fn collect(&self) {
        let Some(mut books) = self.owner.try_lock() else { return };
        self.list.drain(self, |page, claim| {
            // SAFETY: the thread that freed the page uses it no more; loom says if that is not so.
            self.contents[page as usize].with_mut(|contents| unsafe { *contents += 1 });
            books.push((page, claim));
        });
    }

    fn collected(&self) -> Vec<(u32, Claim)> {
        self.collect();
        let mut found = self.owner.lock().clone();
        found.sort_unstable_by_key(|&(page, _)| page);
        found
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn nothing_is_lost_and_contents_are_seen() {
    explore(|| {
        let world = World::new();
        let others: Vec<_> = (0..2)
            .map(|page| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.write_and_free(page, 7 + page).unwrap())
            })
            .collect();
        world.collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        let pages: Vec<u32> = world.collected().iter().map(|&(page, _)| page).collect();
        assert_eq!(pages, [0, 1]);
        assert!(world.list.is_empty());
    });
}

/// Two frees of the same run, while it is collected: each page is on the list once at most, so it never runs in a
/// circle; and a claim names its run.
#[test]
fn a_second_free_does_no_harm() {
    explore(|| {
        let world = World::new();
        let other = Arc::clone(&world);
        let other = thread::spawn(move || other.free(0, 1).is_ok());
        let first = world.free(0, 1).is_ok();
        world.collect();
        let second = other.join().unwrap();
        let found = world.collected();
        assert_eq!(found.len(), usize::from(first) + usize::from(second));
        assert!(first || second);
        assert!(found.iter().all(|(page, claim)| (*page, claim.generation) == (0, (1 << 32) + 1)));
    });
}

#[test]
fn one_holds_the_owner_at_a_time() {
    explore(|| {
        let world = World::new();
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let _books = world.owner.lock();
                // SAFETY: only the holder does this; loom says if there are two.
                world.contents[2].with_mut(|contents| unsafe { *contents += 1 });
            })
        };
        if let Some(_books) = world.owner.try_lock() {
            // SAFETY: as above.
            world.contents[2].with_mut(|contents| unsafe { *contents += 1 });
        }
        other.join().unwrap();
        // SAFETY: the other one has ended.
        assert!(world.contents[2].with(|contents| unsafe { *contents }) >= 1);
        assert_eq!(world.links[2].load(Ordering::Relaxed), 0);
    });
}

/// Lets a thread give way to one that waits: both add to the value, in either order, and no addition is lost.
#[test]
fn who_gives_way_has_it_again_or_leaves_it() {
    explore(|| {
        let world = World::new();
        let add = |world: &World| {
            // SAFETY: only the holder does this; loom says if there are two.
            world.contents[2].with_mut(|contents| unsafe { *contents += 1 });
        };
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let _books = world.owner.lock();
                add(&world);
            })
        };
        let mut turns = 0;
        let mut held = world.owner.try_lock();
        while let Some(books) = held {
            add(&world);
            turns += 1;
            held = if turns < 2 { books.give_way() } else { None };
        }
        other.join().unwrap();
        let _books = world.owner.try_lock().expect("everybody has given it back");
        // SAFETY: the other one has ended.
        assert_eq!(world.contents[2].with(|contents| unsafe { *contents }), turns + 1);
    });
}
