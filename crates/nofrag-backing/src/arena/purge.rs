//! Giving memory back: in the background, above a watermark, or on request.
//!
//! Always the same two steps. Under an owner's lock, idle blocks are taken off its books; no thread can use them from
//! then on. Without any lock they are purged, those of all owners together, adjacent ones as one; only a purge through
//! a handle keeps its owner meanwhile. Blocks whose purge succeeds are clean and have no owner; the others go back to
//! their owner by mail.
//!
//! The work under the lock is a [`Chore`], cut into pieces of a few runs or one block each. A thread that waits for the
//! owner meanwhile has it after the piece at hand: an allocation beside a purge takes little longer than alone. One
//! piece can be long: runs that other threads have freed are collected as a whole, as any allocation that finds no
//! parked run does.
//!
//! Source: docs/sources/backing.md#r2, #purge-contention.

use std::mem;
use std::ops::ControlFlow;
use std::time::Duration;

use nofrag::ranges::Span;

use super::atomic::Ordering;
use super::bins::{Draining, Which};
use super::books::{Age, OwnerBooks, Taken};
use super::clock::FREES;
use super::lock::Held;
use super::owner::Owner;
use super::{Arena, Budget, Purge, Purged};
use crate::backend::Backend;

/// The blocks that a round over the owners takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Round {
    /// The blocks that are due at that time.
    Due(Duration),
    /// Every idle block, including those that are idle once their parked runs are freed.
    Everything,
    /// The blocks above the watermark, after a free.
    Merged,
}

/// Bound on the work of a round or a chore.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// The number of blocks that may still be taken.
    blocks: usize,
    /// The number of pieces that may still be done.
    pieces: usize,
}

impl Effort {
    /// The most that an allocation or a free does besides its own work.
    const BESIDE: Effort = Effort { blocks: 4, pieces: 256 };
}

/// Work on the books of one owner, in pieces.
#[derive(Debug)]
pub(super) struct Chore {
    round: Round,
    left: Effort,
    stage: Stage,
    /// The bins have been flushed for this chore.
    flushed: bool,
}

#[derive(Debug)]
enum Stage {
    Begin,
    /// Parked runs go back to their blocks.
    Flush(Draining),
    /// Idle blocks are looked at, and taken.
    Take {
        age: Age,
        looks: usize,
    },
    Done,
}

impl Chore {
    /// Returns a chore that takes at most `blocks` blocks.
    pub(super) fn new(round: Round, blocks: usize) -> Chore {
        Chore::within(round, Effort { blocks, pieces: usize::MAX })
    }

    fn within(round: Round, left: Effort) -> Chore {
        Chore { round, left, stage: Stage::Begin, flushed: false }
    }

    /// Does the next piece; `Break` when there is none, or no effort is left.
    fn next_piece<B: Backend>(
        &mut self,
        arena: &Arena<B>,
        slot: &Owner<B>,
        books: &mut OwnerBooks<B>,
        taken: &mut Vec<Taken<B>>,
    ) -> ControlFlow<()> {
        let Some(pieces) = self.left.pieces.checked_sub(1) else { return ControlFlow::Break(()) };
        self.left.pieces = pieces;
        self.piece(arena, slot, books, taken)
    }

    /// Does the next piece; `Break` when there is none.
    fn piece<B: Backend>(
        &mut self,
        arena: &Arena<B>,
        slot: &Owner<B>,
        books: &mut OwnerBooks<B>,
        taken: &mut Vec<Taken<B>>,
    ) -> ControlFlow<()> {
        let Arena { ground, backing, .. } = arena;
        match &mut self.stage {
            Stage::Begin => {
                if !matches!(self.round, Round::Merged) {
                    slot.collect(ground, backing, books);
                }
                self.stage = self.begin(arena, books);
            }
            Stage::Flush(draining) => {
                let since = match (self.round, arena.purge) {
                    // For so long they have not been needed.
                    (Round::Due(now), Purge::Decay { after }) => now.checked_sub(after / 2),
                    _ => None,
                };
                let is_done = books.flush_few(ground, draining, since).is_break();
                // Should another thread keep the owner from here on, the next chore goes on with it.
                let is_ageing = matches!(self.round, Round::Due(_)) && books.ageing.is_some();
                if is_ageing {
                    books.ageing = (!is_done).then_some(*draining);
                }
                if is_done {
                    self.flushed = true;
                    self.stage = self.take(arena.purge, books);
                }
            }
            Stage::Take { age, looks } if *looks > 0 && self.left.blocks > 0 => {
                *looks -= 1;
                if let Some(block) = books.take_one(ground, *age) {
                    taken.push(block);
                    self.left.blocks -= 1;
                }
            }
            Stage::Take { .. } => self.stage = self.after_take(arena.purge, books),
            Stage::Done => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn begin<B: Backend>(&mut self, arena: &Arena<B>, books: &mut OwnerBooks<B>) -> Stage {
        match (self.round, arena.purge) {
            (Round::Everything, _) => Stage::Flush(Draining::new(Which::All)),
            (Round::Due(now), Purge::Decay { after }) => match books.ageing(now, after) {
                Some(draining) => Stage::Flush(draining),
                None => self.take(arena.purge, books),
            },
            (Round::Due(_) | Round::Merged, Purge::Watermark { pages }) => {
                let dirty = books.dirty();
                // Until half of the watermark remains.
                let excess = if dirty > pages { dirty - pages / 2 } else { 0 };
                let blocks = excess.div_ceil(u64::from(arena.ground.block_pages()));
                self.left.blocks = self.left.blocks.min(blocks as usize);
                self.take(arena.purge, books)
            }
            (Round::Due(_), Purge::Manual) | (Round::Merged, _) => Stage::Done,
        }
    }

    fn take<B: Backend>(&self, purge: Purge, books: &OwnerBooks<B>) -> Stage {
        let age = match (self.round, purge) {
            (Round::Due(now), Purge::Decay { after }) => Age::Since { now, after },
            _ => Age::Any,
        };
        Stage::Take { age, looks: books.looks(age) }
    }

    fn after_take<B: Backend>(&self, purge: Purge, books: &OwnerBooks<B>) -> Stage {
        match (self.round, purge) {
            (Round::Everything, _) => Stage::Done,
            // Parked runs are included only if there are many of them: else they would be given up at every free.
            (_, Purge::Watermark { pages })
                if self.left.blocks > 0 && !self.flushed && books.bins.pages() > pages / 2 =>
            {
                Stage::Flush(Draining::new(Which::All))
            }
            _ => Stage::Done,
        }
    }
}

impl<B: Backend> Arena<B> {
    /// Does a piece of background work: collects runs that other threads have freed, and purges the blocks that are due
    /// by [`Purge`] and the arena's clock. Owners that are held are left out.
    ///
    /// Calls that allocate and free do so by themselves, a few blocks at a time. [`Purger`](super::Purger) calls it
    /// from a thread of its own, for programs that go idle; one with a loop may do that itself.
    pub fn step(&self, budget: Budget) -> Purged {
        self.round(Round::Due(self.clock.now()), budget)
    }

    /// Sets the time of an arena whose [clock](super::Config::clock) is [`Clock::Caller`]: the time since any fixed
    /// point. Another arena's does not change.
    ///
    /// [`Clock::Caller`]: super::Clock::Caller
    pub fn set_time(&self, now: Duration) {
        self.clock.set(now);
    }

    /// Purges idle blocks, however short they have been idle; parked runs go back to their blocks first. Owners that
    /// are held are left out.
    pub fn purge(&self, budget: Budget) -> Purged {
        self.round(Round::Everything, budget)
    }

    fn round(&self, round: Round, budget: Budget) -> Purged {
        self.round_within(round, Effort { blocks: budget.blocks, pieces: usize::MAX }).0
    }

    /// Does a round of chores; returns what it purged, and true if its effort was spent.
    fn round_within(&self, round: Round, effort: Effort) -> (Purged, bool) {
        if !self.parent.is_same() {
            return (Purged::default(), false);
        }
        let (mut taken, mut busy, mut left) = (Vec::new(), 0, effort);
        let start = self.cursor.fetch_add(1, Ordering::Relaxed) as usize % self.owners.len();
        for slot in self.owners[start..].iter().chain(&self.owners[..start]) {
            left.blocks = effort.blocks.saturating_sub(taken.len());
            let mut chore = Chore::within(round, left);
            if !self.tend_politely(slot, &mut chore, &mut taken) {
                busy += 1;
            }
            left.pieces = chore.left.pieces;
        }
        let is_spent = left.pieces == 0 || taken.len() >= effort.blocks;
        (Purged { busy_owners: busy, ..self.purge_taken(taken) }, is_spent)
    }

    /// Looks at the clock, for a call whose owner is to. If a piece of background work is due,
    /// gives the books back and does it.
    #[cold]
    pub(super) fn look<'a>(
        &self,
        mut books: Held<'a, OwnerBooks<B>>,
    ) -> Option<Held<'a, OwnerBooks<B>>> {
        let allocs = books.allocs;
        if !self.clock.look(&mut books.looks, allocs) {
            return Some(books);
        }
        drop(books);
        self.work_beside();
        None
    }

    /// Looks at the clock as [`look`](Arena::look) does, for a caller that goes on holding the owner.
    #[cold]
    pub(super) fn look_held(&self, slot: &Owner<B>, books: &mut OwnerBooks<B>) {
        if !self.clock.look(&mut books.looks, books.allocs) {
            return;
        }
        let (mut taken, round) = (Vec::new(), Round::Due(self.clock.now()));
        self.tend(slot, books, Chore::within(round, Effort::BESIDE), &mut taken);
        self.purge_taken(taken);
        self.work_beside();
    }

    fn work_beside(&self) {
        if self.round_within(Round::Due(self.clock.now()), Effort::BESIDE).1 {
            self.clock.hurry();
        }
    }

    /// Does a chore for an owner unless it is held, and gives way after each piece to the threads that wait for it.
    /// Returns false if another thread held the owner.
    pub(super) fn tend_politely(
        &self,
        slot: &Owner<B>,
        chore: &mut Chore,
        taken: &mut Vec<Taken<B>>,
    ) -> bool {
        let mut held = slot.books.0.try_lock();
        while let Some(mut books) = held {
            if chore.next_piece(self, slot, &mut books, taken).is_break() {
                return true;
            }
            held = books.give_way();
        }
        false
    }

    /// Does a chore at once, for a holder of the owner.
    pub(super) fn tend(
        &self,
        slot: &Owner<B>,
        books: &mut OwnerBooks<B>,
        mut chore: Chore,
        taken: &mut Vec<Taken<B>>,
    ) {
        while chore.next_piece(self, slot, books, taken).is_continue() {}
    }

    /// Purges down from the watermark, if there is one, after the free of a run that was not parked; else looks at the
    /// clock if it is time to.
    #[cold]
    pub(super) fn after_merge(&self, slot: &Owner<B>, mut books: Held<'_, OwnerBooks<B>>) {
        if !matches!(self.purge, Purge::Watermark { .. }) {
            if books.frees.is_multiple_of(FREES) {
                self.look(books);
            }
        } else {
            let mut taken = Vec::new();
            self.tend(slot, &mut books, Chore::new(Round::Merged, usize::MAX), &mut taken);
            drop(books);
            self.purge_taken(taken);
        }
    }

    /// Purges blocks that are on no books, and counts those that are clean now and those that stay with their owners.
    pub(super) fn purge_taken(&self, mut taken: Vec<Taken<B>>) -> Purged {
        let mut report = Purged::default();
        if taken.is_empty() {
            return report;
        }
        taken.sort_unstable_by_key(|taken| taken.number);
        let taken = self.announce(taken);
        self.backing.purge(&self.ground, taken, |mut taken, result| match result {
            Ok(()) => {
                report.blocks += 1;
                report.pages += u64::from(taken.block.touched);
                self.pool.give(self.one(taken.number));
            }
            Err(_) => {
                report.failed += 1;
                taken.block.quarantined = true;
                self.owners[taken.from.0 as usize].return_block(taken);
            }
        });
        self.purged.fetch_add(report.pages, Ordering::Relaxed);
        self.failed_purges.fetch_add(report.failed, Ordering::Relaxed);
        report
    }

    /// Calls the hook with the memory that goes back.
    fn announce(&self, taken: Vec<Taken<B>>) -> Vec<Taken<B>> {
        let Some(hook) = &self.on_purge else { return taken };
        let mut announced = Announced { owners: &self.owners, taken };
        for span in super::backing::joined(&announced.taken) {
            let pages = self.ground.pages_of(span.start() as u32, span.len() as u32);
            hook(self.ground.va_of(pages.start() as u32), pages.len() << self.ground.page_shift);
        }
        mem::take(&mut announced.taken)
    }

    pub(super) fn one(&self, block: u32) -> Span {
        Span::sized(u64::from(block), 1).expect("one is not zero")
    }
}

/// Blocks that the hook is called with. Should it panic they go back to their owners.
struct Announced<'a, B: Backend> {
    owners: &'a [Owner<B>],
    taken: Vec<Taken<B>>,
}

impl<B: Backend> Drop for Announced<'_, B> {
    fn drop(&mut self) {
        for taken in self.taken.drain(..) {
            self.owners[taken.from.0 as usize].return_block(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::arena::{Config, OwnerId, Owners};

    const BLOCKS: u64 = 16;

    /// Returns an arena whose owner has hundreds of parked runs, and idle blocks.
    fn parked() -> Arena {
        let config = Config { owners: Owners::Count(1), purge: Purge::Manual, ..Config::default() };
        let arena = Arena::reserve(BLOCKS << 22, config).unwrap();
        let runs: Vec<_> = (0..400).map(|at| arena.alloc(OwnerId(0), at % 8 + 1, 1)).collect();
        let long: Vec<_> = (0..3).map(|_| arena.alloc(OwnerId(0), 1024, 1)).collect();
        runs.into_iter().chain(long).for_each(|run| arena.free(run.unwrap()).unwrap());
        arena
    }

    /// Between two chances to give way only a few things are done, so an allocation never waits for a whole purge.
    #[test]
    fn no_piece_of_a_purge_is_long() {
        let arena = parked();
        let slot = &arena.owners[0];
        let (mut books, mut taken) = (slot.books.0.lock(), Vec::new());
        let (mut chore, mut pieces) = (Chore::new(Round::Everything, usize::MAX), 0);
        let before = books.bins.iter().count();
        loop {
            let (runs, blocks) = (books.bins.iter().count(), taken.len());
            if chore.piece(&arena, slot, &mut books, &mut taken).is_break() {
                break;
            }
            pieces += 1;
            assert!(runs - books.bins.iter().count() <= 4, "parked runs given back");
            assert!(taken.len() - blocks <= 1, "blocks taken");
        }
        assert!(before > 100, "{before} runs were parked");
        assert!(pieces > before / 4, "{pieces} pieces");
        assert_eq!(books.bins.pages(), 0);
        drop(books);
        assert!(arena.purge_taken(taken).blocks >= 3);
    }

    /// A thread that waits for the lock of an owner gets it between two pieces of a purge, before the purge ends.
    #[test]
    fn a_purge_gives_way() {
        let arena = parked();
        let slot = &arena.owners[0];
        let (mut chore, mut taken) = (Chore::new(Round::Everything, usize::MAX), Vec::new());
        let had_it = AtomicBool::new(false);
        let mut books = slot.books.0.lock();
        let mut books = thread::scope(|scope| {
            scope.spawn(|| {
                let run = arena.alloc(OwnerId(0), 1, 1).unwrap();
                had_it.store(true, Ordering::Relaxed);
                arena.free(run).unwrap();
            });
            assert!(chore.piece(&arena, slot, &mut books, &mut taken).is_continue());
            let begin = Instant::now();
            while !had_it.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(20) {
                books = books.give_way().unwrap_or_else(|| slot.books.0.lock());
            }
            assert!(had_it.load(Ordering::Relaxed), "whoever waits must get it");
            books
        });
        while chore.piece(&arena, slot, &mut books, &mut taken).is_continue() {}
        drop(books);
        assert!(arena.purge_taken(taken).blocks >= 3);
        nofrag::check::Check::check(&arena).unwrap();
    }
}
