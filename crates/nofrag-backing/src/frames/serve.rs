//! Driving a request: first blocks at hand, at home and then elsewhere; then blocks that can be made.
//!
//! The core decides each step ([`Attempt`](nofrag::page::Attempt)); the lock is held while it does, and let go while
//! residents act. A request that fails everywhere may have failed because pageblocks were on their way from one pool to
//! another, or being purged, or because owners keep blocks on their lists: it waits for the former, empties the latter,
//! and tries again, once.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLockReadGuard, Weak};

use nofrag::cpu::CpuId;
use nofrag::page::{
    Compaction, CompactionStep, FrameState, FreeError, Kcompactd, KcompactdStep, Kswapd, Landed,
    Migratetype, Move, MoveResults, Moves, Next, Outcome, PageAllocator, PageBudget, PageProgress,
    PageRequest, Reclaim, ReclaimRequest, Reclaimed, RequestFlags,
};
use nofrag::units::{Nanos, Order, Pfn};

use super::shard::Pool;
use super::word::Word;
use super::{Effort, Fill, FrameBlock, FrameError, FrameRequest, Frames, Use};

/// Users of frames that can give back or move the blocks that they hold. Called from any thread that allocates or
/// compacts, with no lock of the frames held; they may call the [`Frames`] but not allocate with [`Effort::Reclaim`].
pub trait Residents: Debug + Send + Sync {
    /// Moves blocks: for each pair the contents from one block to the other, and all references to it; then calls
    /// [`Frames::moved`]. Returns the moves that were made. The other blocks are as before.
    ///
    /// Sources have a [`Use`](super::Use) that names an owner, unless they were freed meanwhile. Targets belong to the
    /// caller until [`Frames::moved`].
    fn move_frames(&self, moves: &Moves) -> MoveResults;

    /// Gives frames back with [`Frames::free`], at best as many as are wanted.
    fn reclaim(&self, wanted: ReclaimRequest) -> Reclaimed {
        let _ = wanted;
        Reclaimed::default()
    }
}

/// Number of frames that compaction looks at under one hold of the lock.
const SCAN: PageBudget = PageBudget { pages: 4096 };

/// The payload of a panic.
type Panic = Box<dyn Any + Send>;

/// The next thing that an allocation, a compaction or a background machine of the core asks of its driver.
#[expect(clippy::large_enum_variant, reason = "it is looked at at once, and moves are the rule")]
pub(crate) enum Step<D> {
    Migrate(Moves),
    Reclaim(ReclaimRequest),
    Again,
    /// Nothing more: the work is done, with this result.
    Done(D),
}

/// A block that is being moved by the area that maps it.
#[derive(Debug)]
pub(crate) struct MoveClaim<'a> {
    frames: &'a Frames,
    pfn: Pfn,
}

impl MoveClaim<'_> {
    /// Takes note of the move as [`Frames::moved`] does, which refuses blocks that are claimed.
    pub(crate) fn moved(&self, to: Pfn) -> Result<(), FreeError> {
        self.frames.rename(self.pfn, to, Word::can_move)
    }
}

impl Drop for MoveClaim<'_> {
    fn drop(&mut self) {
        // After the move another block may have begun at the frame: that one is not claimed, or by another mover.
        let unclaimed = |word: Word| word.is_claimed().then(|| word.unclaimed());
        let _ = self.frames.words.change(self.pfn.0, unclaimed);
    }
}

/// A guard: as long as it lives, the target stays set aside for the move for which it was made.
#[derive(Debug)]
pub(crate) struct Carry<'a> {
    _open: RwLockReadGuard<'a, ()>,
}

/// An owner of pages that gives none back.
struct Nobody;

impl Reclaim for Nobody {
    fn reclaim(&mut self, _: &mut PageAllocator, _: ReclaimRequest) -> Reclaimed {
        Reclaimed::default()
    }
}

impl Frames {
    /// Sets the residents that can give back and move. They replace those that were registered before.
    pub fn register(&self, residents: Weak<dyn Residents>) {
        *self.residents.write().unwrap_or_else(PoisonError::into_inner) = Some(residents);
    }

    fn registered(&self) -> Option<Arc<dyn Residents>> {
        let residents: RwLockReadGuard<'_, _> =
            self.residents.read().unwrap_or_else(PoisonError::into_inner);
        residents.as_ref().and_then(Weak::upgrade)
    }

    /// Allocates a block.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn alloc(&self, owner: CpuId, request: FrameRequest) -> Result<FrameBlock, FrameError> {
        let wanted = self.page_request(&request)?;
        let home = self.pool_of(owner);
        let pfn = match self.one(home, owner, wanted) {
            Some(pfn) => pfn,
            None => self.again(home, owner, wanted).ok_or_else(|| self.exhausted(request.order))?,
        };
        let block = FrameBlock { pfn, order: request.order };
        self.prepare(block, request.fill);
        Ok(block)
    }

    /// Allocates equal blocks for all of `out`, as far as they are at hand, and returns their number; they stand at the
    /// front. Nothing is reclaimed or moved for them.
    ///
    /// # Errors
    /// [`FrameError::Type`] and [`FrameError::Forked`]; a lack of blocks is not an error.
    pub fn alloc_bulk(
        &self,
        owner: CpuId,
        request: FrameRequest,
        out: &mut [FrameBlock],
    ) -> Result<usize, FrameError> {
        let wanted = self.page_request(&request.effort(Effort::AtHand))?;
        let home = self.pool_of(owner);
        let mut got = self.bulk(home, owner, wanted, out);
        while got < out.len() {
            let found = self.one(home, owner, wanted);
            let Some(pfn) = found.or_else(|| self.again(home, owner, wanted)) else { break };
            out[got] = FrameBlock { pfn, order: wanted.order };
            got += 1;
            got += self.bulk(home, owner, wanted, &mut out[got..]);
        }
        for block in &out[..got] {
            self.prepare(*block, request.fill);
        }
        Ok(got)
    }

    fn page_request(&self, request: &FrameRequest) -> Result<PageRequest, FrameError> {
        if !self.forks.is_same() {
            return Err(FrameError::Forked);
        }
        if !request.migratetype.is_mobility() {
            return Err(FrameError::Type(request.migratetype));
        }
        let flags = match request.effort {
            Effort::Reclaim if self.registered().is_some() => RequestFlags::RECLAIM,
            // In defrag mode this flag lets a request that cannot reclaim mix types at last.
            Effort::Reclaim | Effort::AtHand => RequestFlags::KSWAPD_RECLAIM,
        };
        Ok(PageRequest::new(request.order, request.migratetype).flags(flags))
    }

    /// Takes a block from any pool: from the home pool if one is at hand there.
    fn one(&self, home: usize, owner: CpuId, wanted: PageRequest) -> Option<Pfn> {
        match self.shards.len() {
            1 => self.slow(home, owner, wanted),
            _ => self.fast(home, owner, wanted).or_else(|| self.elsewhere(home, owner, wanted)),
        }
    }

    /// Takes a block that is at hand in a pool.
    fn fast(&self, pool: usize, owner: CpuId, wanted: PageRequest) -> Option<Pfn> {
        let mut locked = self.shards[pool].lock();
        let cpu = self.lists_of(owner, pool);
        let pfn = locked.pages.alloc(Nanos(0), cpu, wanted).ok()?;
        self.words.set(pfn.0, Word::fresh(wanted.order));
        Some(pfn)
    }

    fn bulk(
        &self,
        pool: usize,
        owner: CpuId,
        wanted: PageRequest,
        out: &mut [FrameBlock],
    ) -> usize {
        let cpu = self.lists_of(owner, pool);
        let mut pfns = [Pfn(0); 64];
        let mut got = 0;
        while got < out.len() {
            let asked = pfns.len().min(out.len() - got);
            let mut locked = self.shards[pool].lock();
            let count = locked.pages.alloc_bulk(Nanos(0), cpu, wanted, &mut pfns[..asked]);
            for (place, &pfn) in out[got..].iter_mut().zip(&pfns[..count]) {
                self.words.set(pfn.0, Word::fresh(wanted.order));
                *place = FrameBlock { pfn, order: wanted.order };
            }
            got += count;
            if count < asked {
                break;
            }
        }
        got
    }

    /// Takes a block that no list at home holds: from a pageblock that a neighbour has to spare, from a neighbour, or a
    /// block that is made.
    #[cold]
    fn elsewhere(&self, home: usize, owner: CpuId, wanted: PageRequest) -> Option<Pfn> {
        let pools = self.shards.len();
        let others = || (1..pools).map(|step| (home + step) % pools);
        if wanted.order <= Order::PAGEBLOCK
            && others().any(|from| self.adopt(home, from, wanted.migratetype))
            && let Some(pfn) = self.fast(home, owner, wanted)
        {
            return Some(pfn);
        }
        let at_hand = others().find_map(|pool| self.fast(pool, owner, wanted));
        let made = || [home].into_iter().chain(others());
        at_hand.or_else(|| made().find_map(|pool| self.slow(pool, owner, wanted)))
    }

    /// Moves a free pageblock from one pool to another. Returns true if there was one.
    fn adopt(&self, to: usize, from: usize, migratetype: Migratetype) -> bool {
        let _transit = self.transit.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = PageRequest::new(Order::PAGEBLOCK, migratetype).flags(RequestFlags::NONE);
        let Ok(pfn) = self.shards[from].lock().pages.alloc(Nanos(0), self.stranger, whole) else {
            return false;
        };
        let mut pool = self.shards[to].lock();
        let freed = pool.pages.free(self.stranger, pfn);
        freed.expect("what is another pool's is in use here");
        // Pairs with the acquire in `home`.
        let home = &self.homes[(pfn.0 >> Order::PAGEBLOCK.get()) as usize];
        home.store(to as u8, Ordering::Release);
        true
    }

    /// Tries once more, with the blocks that owners keep on their lists, and after pageblocks on their way have been
    /// put back.
    #[cold]
    fn again(&self, home: usize, owner: CpuId, wanted: PageRequest) -> Option<Pfn> {
        drop(self.transit.lock().unwrap_or_else(PoisonError::into_inner));
        self.drain();
        self.one(home, owner, wanted)
    }

    #[cold]
    pub(crate) fn exhausted(&self, order: Order) -> FrameError {
        let stats = self.stats();
        FrameError::Exhausted { order, free: stats.free, largest: stats.largest }
    }

    /// Takes a block of a pool, at hand or by all means that the request allows.
    fn slow(&self, pool: usize, owner: CpuId, wanted: PageRequest) -> Option<Pfn> {
        let cpu = self.lists_of(owner, pool);
        let mut attempt = {
            let mut locked = self.shards[pool].lock();
            match locked.pages.alloc(Nanos(0), cpu, wanted) {
                Ok(pfn) => {
                    self.words.set(pfn.0, Word::fresh(wanted.order));
                    return Some(pfn);
                }
                Err(attempt) => attempt,
            }
        };
        let (made, panic) = self.drive_to_end(pool, |pages, outcome| {
            match attempt.advance(pages, Nanos(0), outcome) {
                Next::Done(pfn) => {
                    self.words.set(pfn.0, Word::fresh(wanted.order));
                    Step::Done(Some(pfn))
                }
                Next::Fail(_) => Step::Done(None),
                Next::Reclaim(wanted) => Step::Reclaim(wanted),
                Next::Migrate(moves) => Step::Migrate(moves),
                // For kswapd, which does not reclaim here.
                Next::Stall { .. } => Step::Again,
            }
        });
        if let Some(panic) = panic {
            // No other thread knows of the block, so that it can only be given back here.
            let _ = made.map(|pfn| self.free(owner, pfn));
            resume_unwind(panic);
        }
        made
    }

    /// Runs an allocation, a compaction or a background machine of the core over the frames of a pool to its end, step
    /// by step. The pool's lock is held during each step, but not while residents give back or move.
    ///
    /// A panic of a resident goes on after the last step, without further calls of residents: blocks that were taken
    /// out of the lists for moves are back then.
    pub(crate) fn drive<D>(
        &self,
        pool: usize,
        step: impl FnMut(&mut PageAllocator, Outcome) -> Step<D>,
    ) -> D {
        match self.drive_to_end(pool, step) {
            (done, None) => done,
            (_, Some(panic)) => resume_unwind(panic),
        }
    }

    /// Drives as `drive` does, but returns the panic of a resident, if there was one, beside the result.
    fn drive_to_end<D>(
        &self,
        pool: usize,
        mut step: impl FnMut(&mut PageAllocator, Outcome) -> Step<D>,
    ) -> (D, Option<Panic>) {
        let mut panic: Option<Panic> = None;
        let mut outcome = Outcome::Begin;
        let mut asked: Option<Moves> = None;
        loop {
            let mut locked = self.shards[pool].lock();
            let Pool { pages, .. } = &mut *locked;
            let next = step(pages, outcome);
            if let Some(moves) = asked.take() {
                locked.end(&moves);
            }
            let residents = || if panic.is_none() { self.registered() } else { None };
            outcome = match next {
                Step::Done(done) => return (done, panic),
                Step::Again => Outcome::Waited,
                Step::Reclaim(wanted) => {
                    drop(locked);
                    let residents = residents();
                    // Residents are not called again after a panic, and the words of the frames say which of the moves
                    // were made.
                    let gave = catch_unwind(AssertUnwindSafe(|| {
                        residents.map(|residents| residents.reclaim(wanted))
                    }));
                    let gave = gave.unwrap_or_else(|why| {
                        panic = Some(why);
                        None
                    });
                    Outcome::Reclaimed(gave.unwrap_or_default())
                }
                Step::Migrate(moves) => {
                    locked.begin(&moves);
                    drop(locked);
                    if let Some(residents) = residents() {
                        let asked = AssertUnwindSafe(|| self.ask_to_move(&*residents, &moves));
                        panic = catch_unwind(asked).err();
                    }
                    self.shards[pool].close(&moves);
                    let results = self.what_moved(&moves);
                    asked = Some(moves);
                    Outcome::Migrated(results)
                }
            };
        }
    }

    /// Has residents carry moves out. The target blocks may have any contents afterwards.
    fn ask_to_move(&self, residents: &dyn Residents, moves: &Moves) {
        for pair in moves.pairs() {
            self.dirty.mark(pair.to, pair.order);
        }
        residents.move_frames(moves);
    }

    /// Returns the moves that are done: a moved block has its new name. That counts, not the answer of residents: to
    /// free a block that is still in use would give it to two owners. A block that was given back by its new name
    /// meanwhile is free in either case.
    fn what_moved(&self, moves: &Moves) -> MoveResults {
        let mut results = MoveResults::default();
        for (index, pair) in moves.pairs().iter().enumerate() {
            results.0 |= u32::from(!self.words.get(pair.to.0).is_none()) << index;
        }
        results
    }

    /// Takes note that the block in use at `from` is at `to` now: from here on it is known by that name alone. Called
    /// by residents for each move, when no reference to `from` exists any more, and under the lock or claim that keeps
    /// the block's user from giving it back meanwhile.
    ///
    /// # Errors
    /// [`FreeError`] when no block in use begins at `from`, it is mapped in more places than its use says, or the
    /// residents were not asked to move it to `to`, have done so already, or answered; nothing has changed then.
    pub fn moved(&self, from: Pfn, to: Pfn) -> Result<(), FreeError> {
        self.rename(from, to, |word| word.can_move() && !word.is_claimed())
    }

    fn rename(&self, from: Pfn, to: Pfn, may: impl Fn(Word) -> bool) -> Result<(), FreeError> {
        let Some(order) = self.words.get(from.0).order_in_use() else {
            return Err(self.why_not_in_use(from));
        };
        let struck = {
            // Two sources may be claimed to be at one target: one lock covers the look at it and the write of its word.
            let pool = self.shards[self.home(to)?].lock();
            let free = self.words.get(to.0).is_none();
            let aside = pool.pages.frame(to) == Some((FrameState::Moving, to, order));
            if !free || !aside || !pool.is_asked(from, to) {
                return Err(FreeError::Unknown(to));
            }
            let struck = self.words.change(from.0, |word| may(word).then_some(Word::NONE));
            struck.inspect(|word| self.words.set(to.0, word.unclaimed()))
        };
        struck.map(drop).map_err(|_| self.why_not_in_use(from))
    }

    /// Keeps mappings of a block from beginning and ending while it is moved, if it is mapped once and its use is
    /// `used_for`: until the result is dropped, or [`moved`](Self::moved) has given the block its new name.
    pub(crate) fn claim_move(&self, pfn: Pfn, used_for: Use) -> Option<MoveClaim<'_>> {
        let claimed = self.words.change(pfn.0, |word| {
            let sole = word.used_for() == Some(used_for) && word.holds() == 1;
            (sole && !word.is_claimed()).then(|| word.claimed())
        });
        claimed.ok().map(|_| MoveClaim { frames: self, pfn })
    }

    /// Lets a block be carried to the target that was set aside for it, if residents are being asked for that: until
    /// the result is dropped, no other block gets the target. Nothing that may move blocks is asked of the frames
    /// meanwhile. Not in a child of a fork, whose parent hands the target out.
    pub(crate) fn carry(&self, pair: Move) -> Option<Carry<'_>> {
        if !self.forks.is_same() {
            return None;
        }
        let shard = &self.shards[self.home(pair.to).ok()?];
        let carry = shard.carrying();
        let pool = shard.lock();
        let aside = pool.pages.frame(pair.to) == Some((FrameState::Moving, pair.to, pair.order));
        let asked = pool.is_asked(pair.from, pair.to);
        (aside && asked && self.words.get(pair.to.0).is_none()).then_some(Carry { _open: carry })
    }

    /// Moves movable blocks together, in all pools, so that large blocks become free; returns the outcome in pages.
    /// Residents do the moving, with no lock held; other threads allocate and free meanwhile. In a child of a fork
    /// nothing moves.
    pub fn compact(&self) -> Landed {
        let mut total = Landed::default();
        if !self.forks.is_same() {
            return total;
        }
        for pool in 0..self.shards.len() {
            let landed = self.compact_pool(pool);
            total.moved += landed.moved;
            total.stayed += landed.stayed;
        }
        total
    }

    fn compact_pool(&self, pool: usize) -> Landed {
        let zone = self.zone(pool);
        let mut run = None;
        let mut total = Landed::default();
        self.drive(pool, |pages, outcome| {
            let run = match &mut run {
                Some(run) => run,
                None => {
                    run.insert(Compaction::of_zone(pages, zone).expect("the zone is the pool's"))
                }
            };
            if let Outcome::Migrated(results) = outcome {
                let landed = run.migrated(pages, results);
                total.moved += landed.moved;
                total.stayed += landed.stayed;
            }
            match run.step(pages, SCAN) {
                CompactionStep::Migrate(moves) => Step::Migrate(moves),
                CompactionStep::Continue => Step::Again,
                CompactionStep::Done(_) => Step::Done(()),
            }
        });
        total
    }

    /// Lets a pool's kswapd, which failed requests wake, come to its end. Nothing is reclaimed in the background here;
    /// but the order for which it was woken goes on to kcompactd, which does not work ahead as long as kswapd is awake.
    pub(crate) fn rest_kswapd(&self, pool: usize, machine: &mut Kswapd, now: Nanos) {
        let all = PageBudget { pages: u64::MAX };
        self.with_pool(pool, |pages| while machine.step(now, pages, &mut Nobody, all).more {});
    }

    /// Steps a pool's kcompactd until it has nothing to do or `budget` is used up; returns its progress, with the pages
    /// that were moved.
    pub(crate) fn step_kcompactd(
        &self,
        pool: usize,
        machine: &mut Kcompactd,
        now: Nanos,
        budget: PageBudget,
    ) -> PageProgress {
        let mut left = budget;
        let mut moved = 0;
        self.drive(pool, |pages, outcome| {
            if let Outcome::Migrated(results) = outcome {
                moved += machine.migrated(pages, results).moved;
            }
            match machine.advance(now, pages, &mut left) {
                KcompactdStep::Migrate(moves) => Step::Migrate(moves),
                KcompactdStep::Paused(progress) => {
                    Step::Done(PageProgress { pages: moved, ..progress })
                }
            }
        })
    }

    /// Calls `act` with the allocator of a pool, under its lock.
    pub(crate) fn with_pool<T>(&self, pool: usize, act: impl FnOnce(&mut PageAllocator) -> T) -> T {
        act(&mut self.shards[pool].lock().pages)
    }

    /// Returns the number of pools: one, or one for each owner up to [`MAX_SHARDS`](super::MAX_SHARDS).
    #[must_use]
    pub fn pools(&self) -> usize {
        self.shards.len()
    }

    /// Gives a block that was just handed out the contents that were asked for.
    fn prepare(&self, block: FrameBlock, fill: Fill) {
        if fill == Fill::Zeroed {
            self.dirty.runs(block.pfn, block.order, |pfn, pages| {
                // SAFETY: the frames belong to the block, which no other thread has and the caller does not have yet.
                unsafe { self.window.zero(pfn, pages) }
            });
        }
        self.dirty.mark(block.pfn, block.order);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;

    use nofrag::check::Check;

    use super::*;
    use crate::frames::FramesConfig;

    /// Sends the first move that it is asked for, and moves nothing.
    #[derive(Debug)]
    struct Idle {
        tell: Mutex<Option<Sender<Move>>>,
        answer: Mutex<Receiver<()>>,
    }

    impl Residents for Idle {
        fn move_frames(&self, moves: &Moves) -> MoveResults {
            if let Some(tell) = self.tell.lock().unwrap().take() {
                tell.send(moves.pairs()[0]).unwrap();
                self.answer.lock().unwrap().recv().unwrap();
            }
            MoveResults::default()
        }
    }

    /// A move that another thread than that of the residents carries out ends only when that thread is done. Before,
    /// the residents' answer ended it: the target was handed out again while the other thread was still copying to it.
    #[test]
    fn a_move_does_not_end_under_who_carries_it_out() {
        let frames = Arc::new(Frames::new(&FramesConfig::new(8 << 20)).unwrap());
        let here = frames.owners().by_rank(0).unwrap();
        let request = FrameRequest::new(Order::ZERO, Migratetype::Movable);
        let all: Vec<_> = std::iter::from_fn(|| frames.alloc(here, request).ok()).collect();
        for (block, id) in all.into_iter().zip(0..) {
            match id % 4 {
                0 => frames.set_use(block.pfn, Use::Handle { id }).unwrap(),
                _ => frames.free(here, block.pfn).unwrap(),
            }
        }
        frames.drain();
        let ((tell, told), (answer, answered)) = (channel(), channel());
        let (tell, answered) = (Mutex::new(Some(tell)), Mutex::new(answered));
        let idle = Arc::new(Idle { tell, answer: answered });
        frames.register(Arc::downgrade(&idle) as Weak<dyn Residents>);
        thread::scope(|scope| {
            let compacting = scope.spawn(|| frames.compact());
            let pair = told.recv().unwrap();
            let carry = frames.carry(pair).expect("it is asked for");
            let other = Move { from: Pfn(pair.from.0 ^ 1), ..pair };
            assert!(frames.carry(other).is_none(), "the target is not for that one");
            answer.send(()).unwrap();
            thread::sleep(Duration::from_millis(50));
            assert!(!compacting.is_finished());
            let target = frames.with_pool(0, |pages| pages.frame(pair.to));
            assert_eq!(target, Some((FrameState::Moving, pair.to, pair.order)));
            drop(carry);
            assert_eq!(compacting.join().unwrap().moved, 0);
            assert!(frames.carry(pair).is_none() && frames.moved(pair.from, pair.to).is_err());
        });
        frames.check().unwrap();
    }
}
