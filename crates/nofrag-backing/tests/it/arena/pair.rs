//! An arena and a map of its live runs under the same random steps: over the memory of this process, where no owner may
//! see the contents of another one, and over simulated memory, which comes and goes by chunks and is now and then
//! refused.

use super::choices::Choices;
use super::ghosts::{SimCall, Simulated};
use super::stamps::{PAGE, stamp, stamps};
use nofrag::check::Check;
use nofrag_backing::arena::{
    Arena, ArenaError, Budget, Clock, Config, FreeError, Lease, OwnerId, Owners, Purge,
    ResizeError, Run,
};
use nofrag_backing::backend::{Backend, BackendError, Caps, Geometry, HostMemory};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const OWNERS: u32 = 3;
pub(crate) const BLOCK: u64 = 64 * PAGE as u64;

/// Returns a configuration of small blocks, so that few pages make many of them; purged on request.
pub(crate) fn small<B: Backend>(backing: B, owners: u32) -> Config<B> {
    let (block, align, owners) = (BLOCK, BLOCK, Owners::Count(owners));
    let clock = Clock::Caller;
    Config { block, align, owners, clock, purge: Purge::Manual, ..Config::over(backing) }
}

/// The memory of an arena as a test sees it.
pub(crate) trait Seen<'a, B: Backend> {
    /// True if memory is there whenever the arena has room.
    const SERVES: bool;

    /// Checks a run that was handed out, or has another length and keeps `kept` pages: it has no contents of another
    /// owner. Then writes the stamp to it.
    fn enter(&self, arena: &Arena<B>, run: Run, kept: u32, stamp: u64);

    /// Checks that the stamp is still there.
    fn verify(&self, arena: &Arena<B>, run: Run, stamp: u64);

    /// Takes a lease, or gives one back that was taken.
    fn lease(&mut self, arena: &'a Arena<B>, owner: OwnerId, choices: &mut Choices<'_>);

    /// Returns the pages of all leases.
    fn leased(&self) -> u64;

    /// Refuses some calls from now on, or none.
    fn refuse(&mut self, choices: &mut Choices<'_>);

    /// Checks the memory after everything was given back, and purged.
    fn end(&mut self, arena: &Arena<B>);
}

/// Returns owner and number of a run in one word, which is never zero.
fn stamp_of(owner: OwnerId, number: u64) -> u64 {
    u64::from(owner.0 + 1) << 48 | number
}

fn must_be_own(found: impl IntoIterator<Item = u64>, stamp: u64) {
    let foreign = found.into_iter().find(|&found| found != 0 && found >> 48 != stamp >> 48);
    assert_eq!(foreign, None, "contents of another owner");
}

/// The memory of this process, with a stamp at both ends of each page.
pub(crate) struct Stamped<'a, B: HostMemory>(Vec<(Lease<'a, B>, u64)>);

impl<B: HostMemory> Default for Stamped<'_, B> {
    fn default() -> Self {
        Stamped(Vec::new())
    }
}

/// Iterates over the stamps of a lease.
fn words(lease: &[u8]) -> impl Iterator<Item = u64> {
    let word = |at: &[u8]| u64::from_ne_bytes(at.try_into().expect("a word has eight bytes"));
    lease.chunks_exact(PAGE).flat_map(move |page| [word(&page[..8]), word(&page[PAGE - 8..])])
}

impl<'a, B: HostMemory> Seen<'a, B> for Stamped<'a, B> {
    const SERVES: bool = true;

    fn enter(&self, arena: &Arena<B>, run: Run, kept: u32, number: u64) {
        let found = stamps(arena, run);
        let (kept, more) = found.split_at(2 * kept.min(run.pages()) as usize);
        assert!(kept.iter().all(|&found| found == number), "{run:?} lost its beginning");
        must_be_own(more.iter().copied(), number);
        stamp(arena, run, number);
    }

    fn verify(&self, arena: &Arena<B>, run: Run, stamp: u64) {
        let kept = stamps(arena, run).iter().all(|&found| found == stamp);
        assert!(kept, "{run:?} has lost what was written");
    }

    fn lease(&mut self, arena: &'a Arena<B>, owner: OwnerId, choices: &mut Choices<'_>) {
        if self.0.len() > 8 || choices.one_in(2) {
            let at = choices.below(self.0.len() as u64) as usize;
            if at < self.0.len() {
                let (lease, stamp) = self.0.swap_remove(at);
                let kept = words(&lease).all(|found| found == stamp);
                assert!(kept, "{lease:?} has lost what was written");
            }
            return;
        }
        match arena.lease(owner, pages(choices), 1 << choices.below(7)) {
            Ok(mut lease) => {
                let stamp = stamp_of(owner, 0);
                must_be_own(words(&lease), stamp);
                for page in lease.chunks_exact_mut(PAGE) {
                    page[..8].copy_from_slice(&stamp.to_ne_bytes());
                    page[PAGE - 8..].copy_from_slice(&stamp.to_ne_bytes());
                }
                self.0.push((lease, stamp));
            }
            Err(ArenaError::Exhausted(_)) => {}
            Err(why) => panic!("{why}"),
        }
    }

    fn leased(&self) -> u64 {
        self.0.iter().map(|(lease, _)| (lease.len() / PAGE) as u64).sum()
    }

    fn refuse(&mut self, _choices: &mut Choices<'_>) {}

    fn end(&mut self, arena: &Arena<B>) {
        let blocks = arena.stats().blocks;
        assert_eq!(blocks.clean, blocks.total);
    }
}

/// Simulated memory, which knows the pages with contents.
pub(crate) struct Ghosts(Arc<Simulated>);

impl Ghosts {
    pub(crate) const PAGE: u64 = 64 << 10;
    const BLOCK: u64 = 4 << 20;
    const CHUNK: u64 = 1 << 20;

    /// Returns an arena that purges nothing in place, and has memory for fewer blocks than addresses.
    pub(crate) fn arena(purge: Purge) -> (Arena<Arc<Simulated>>, Ghosts) {
        let geometry = Geometry {
            granule: Ghosts::CHUNK,
            recommended: Ghosts::CHUNK,
            va_align: Ghosts::CHUNK,
            max_va: 1 << 40,
            caps: Caps::ZEROED,
            max_mappings: None,
            vector_max: 3,
        };
        let backing = Arc::new(Simulated::new(geometry).expect("the shape makes sense"));
        let max_mappings = Some(10 * Ghosts::BLOCK / Ghosts::CHUNK);
        let (page, owners) = (Ghosts::PAGE, Owners::Count(OWNERS));
        let over = Config::over(Arc::clone(&backing));
        let config = Config { page, owners, max_mappings, purge, ..over };
        let arena = Arena::reserve(12 * Ghosts::BLOCK, config);
        (arena.expect("a new backend refuses nothing"), Ghosts(backing))
    }

    /// Checks, after the end of the arena, that all its memory is gone.
    pub(crate) fn must_be_gone(&self) {
        assert_eq!(self.0.areas(), 0, "all addresses went back");
        self.0.check();
    }
}

impl Clone for Ghosts {
    fn clone(&self) -> Ghosts {
        Ghosts(Arc::clone(&self.0))
    }
}

impl Seen<'_, Arc<Simulated>> for Ghosts {
    const SERVES: bool = false;

    fn enter(&self, _arena: &Arena<Arc<Simulated>>, run: Run, kept: u32, _stamp: u64) {
        if kept > 0 {
            assert_eq!(self.0.holds(run.va()), Some(true), "{run:?} lost its beginning");
        }
        self.0.touch(run.va(), u64::from(run.pages()) * Ghosts::PAGE).expect("a run is mapped");
    }

    fn verify(&self, _arena: &Arena<Arc<Simulated>>, run: Run, _stamp: u64) {
        let last = run.va().plus(u64::from(run.pages()) * Ghosts::PAGE - 8);
        let held = [run.va(), last].map(|at| self.0.holds(at));
        assert_eq!(held, [Some(true); 2], "what was written to {run:?} is lost");
    }

    fn lease(&mut self, _: &Arena<Arc<Simulated>>, _: OwnerId, _: &mut Choices<'_>) {}

    fn leased(&self) -> u64 {
        0
    }

    fn refuse(&mut self, choices: &mut Choices<'_>) {
        if choices.one_in(3) {
            self.0.allow_all();
            return;
        }
        let calls = [SimCall::Create, SimCall::Map, SimCall::Unmap];
        let call = choices.any(&calls).expect("there are three");
        let (after, times) = (choices.below(4) as u32, choices.below(4) as u32);
        self.0.refuse(call, after, times, BackendError::Unsupported);
    }

    fn end(&mut self, arena: &Arena<Arc<Simulated>>) {
        self.0.allow_all();
        // Blocks of a refused purge are tried again by their owner, which has them back by then.
        (0..3).for_each(|_| _ = arena.purge(Budget::ALL));
        assert_eq!((self.0.pages_held(), arena.stats().mappings), (0, 0));
    }
}

/// Draws a number of pages: mostly small; the largest is more than a block.
fn pages(choices: &mut Choices<'_>) -> u64 {
    match choices.below(16) {
        0 => 65 + choices.below(135),
        1..9 => 1 + choices.below(20),
        _ => 1 + choices.below(64),
    }
}

#[derive(Clone, Copy, Debug)]
struct Held {
    run: Run,
    stamp: u64,
}

/// An arena and its model, and the source of their steps.
pub(crate) struct Pair<'a, B: Backend, S> {
    pub(crate) choices: Choices<'a>,
    arena: &'a Arena<B>,
    seen: S,
    page: u64,
    /// Live runs by first address.
    live: BTreeMap<u64, Held>,
    /// Runs that are freed, or have another length.
    stale: Vec<Run>,
    now: Duration,
    number: u64,
}

impl<'a, B: Backend, S: Seen<'a, B>> Pair<'a, B, S> {
    /// Returns a pair over pages of `page` bytes.
    pub(crate) fn new(
        arena: &'a Arena<B>,
        seen: S,
        page: u64,
        choices: Choices<'a>,
    ) -> Pair<'a, B, S> {
        let (live, stale, now) = (BTreeMap::new(), Vec::new(), Duration::ZERO);
        Pair { choices, arena, seen, page, live, stale, now, number: 0 }
    }

    /// Does one step; panics when a promise is broken.
    pub(crate) fn step(&mut self) {
        let owner = self.owner();
        match self.choices.below(32) {
            0..11 => self.alloc(owner),
            11..19 => self.free(),
            19..22 => self.resize(),
            22 => self.free_stale(),
            23 => self.forge(),
            24 | 25 => {
                let budget = self.budget();
                assert!(self.arena.purge(budget).blocks <= budget.blocks as u64);
            }
            26 | 27 => {
                self.now += Duration::from_millis(self.choices.below(60));
                let budget = self.budget();
                self.arena.set_time(self.now);
                self.arena.step(budget);
            }
            28 => self.by_handle(owner),
            29 => self.seen.refuse(&mut self.choices),
            _ => self.seen.lease(self.arena, owner, &mut self.choices),
        }
        self.compare();
    }

    fn owner(&mut self) -> OwnerId {
        OwnerId(self.choices.below(OWNERS.into()) as u32)
    }

    fn budget(&mut self) -> Budget {
        Budget { blocks: self.choices.below(7) as usize }
    }

    fn pick(&mut self) -> Option<Held> {
        let at = self.choices.below(self.live.len() as u64) as usize;
        self.live.values().nth(at).copied()
    }

    /// Checks a run that was handed out or has another length: it overlaps no other, and has no contents of another
    /// owner.
    fn enter(&mut self, run: Run, kept: u32, stamp: u64) {
        let bytes = |run: Run| u64::from(run.pages()) * self.page;
        let below = self.live.range(..run.va().0 + bytes(run)).next_back();
        let end = below.map_or(0, |(&at, held)| at + bytes(held.run));
        assert!(end <= run.va().0, "{run:?} overlaps another one");
        self.seen.enter(self.arena, run, kept, stamp);
        self.live.insert(run.va().0, Held { run, stamp });
    }

    fn leave(&mut self, held: Held) {
        self.live.remove(&held.run.va().0).expect("it was picked among them");
        self.seen.verify(self.arena, held.run, held.stamp);
        self.stale.push(held.run);
        if self.stale.len() > 64 {
            self.stale.remove(0);
        }
    }

    fn note(&mut self, owner: OwnerId, wanted: u64, align: u64, result: Result<Run, ArenaError>) {
        match result {
            Ok(run) => {
                assert_eq!(u64::from(run.pages()), wanted);
                assert!(run.va().0.is_multiple_of(align * self.page), "{run:?} is not aligned");
                self.number += 1;
                self.enter(run, 0, stamp_of(owner, self.number));
            }
            Err(ArenaError::Exhausted(why)) => {
                assert!(!S::SERVES || why.largest < wanted || align > 1, "{why:?} for {wanted}");
            }
            Err(ArenaError::Backend(_)) if !S::SERVES => {}
            Err(why) => panic!("{why}"),
        }
    }

    fn alloc(&mut self, owner: OwnerId) {
        let wanted = pages(&mut self.choices);
        let align = 1 << self.choices.below(14).saturating_sub(7);
        let result = self.arena.alloc(owner, wanted, align);
        self.note(owner, wanted, align, result);
    }

    fn free(&mut self) {
        let Some(held) = self.pick() else { return };
        self.leave(held);
        let freed = if self.choices.one_in(4) {
            match self.arena.free_later(held.run) {
                Err(FreeError::Uncollected) => self.arena.free(held.run),
                freed => freed,
            }
        } else {
            self.arena.free(held.run)
        };
        freed.expect("it was in use");
        self.arena.free(held.run).expect_err("it was freed a moment ago");
    }

    fn free_stale(&mut self) {
        let Some(run) = self.choices.any(&self.stale) else { return };
        let later = self.choices.one_in(2);
        let again = if later { self.arena.free_later(run) } else { self.arena.free(run) };
        again.expect_err("it was freed before");
    }

    /// Puts a run together from random parts, and checks that its free is refused unless it is live.
    fn forge(&mut self) {
        let page = self.choices.below(1 << 12);
        let va = self.arena.base().plus(page * self.page / 2);
        let (pages, generation) = (self.choices.below(64) as u32, self.choices.below(1 << 16));
        let Some(run) = Run::from_parts(va, pages, generation) else { return };
        if self.live.get(&va.0).is_none_or(|held| held.run != run) {
            self.arena.free(run).expect_err("there is no such run");
        }
    }

    fn resize(&mut self) {
        let Some(held) = self.pick() else { return };
        let wanted = pages(&mut self.choices);
        let old = held.run;
        match self.arena.resize(old, wanted) {
            Ok(run) => {
                assert_eq!((run.va(), u64::from(run.pages())), (old.va(), wanted));
                self.live.remove(&old.va().0).expect("it was picked");
                if run != old {
                    self.stale.push(old);
                }
                self.enter(run, old.pages(), held.stamp);
            }
            Err(ResizeError::NoRoom { most }) => assert!(most < wanted, "{most} would have done"),
            Err(ResizeError::Backend(_)) if !S::SERVES => {}
            Err(why) => panic!("{why}"),
        }
    }

    fn by_handle(&mut self, owner: OwnerId) {
        let picked = self.pick();
        if let Some(held) = picked {
            self.leave(held);
        }
        let wanted = [(); 3].map(|()| pages(&mut self.choices));
        let mut handle = self.arena.owner(owner).expect("nobody holds it");
        assert!(self.arena.owner(owner).is_err(), "two holders of one owner");
        let freed = picked.map(|held| handle.free(held.run));
        let got = wanted.map(|wanted| (wanted, handle.alloc(wanted, 1)));
        handle.step(Budget { blocks: 2 });
        drop(handle);
        freed.into_iter().for_each(|freed| freed.expect("it was in use"));
        got.into_iter().for_each(|(wanted, result)| self.note(owner, wanted, 1, result));
    }

    fn compare(&self) {
        let live: u64 = self.live.values().map(|held| u64::from(held.run.pages())).sum();
        assert_eq!(self.arena.stats().live, live + self.seen.leased());
        self.arena.check().unwrap_or_else(|broken| panic!("{broken}"));
    }

    /// Gives everything back, and checks that nothing remains.
    pub(crate) fn end(mut self) {
        while let Some(held) = self.pick() {
            self.leave(held);
            self.arena.free(held.run).expect("it was in use");
        }
        while self.seen.leased() > 0 {
            self.seen.lease(self.arena, OwnerId(0), &mut Choices::Bytes(&[1, 0]));
        }
        self.arena.purge(Budget::ALL);
        self.seen.end(self.arena);
        let stats = self.arena.stats();
        assert_eq!((stats.live, stats.dirty), (0, 0));
        self.compare();
    }
}
