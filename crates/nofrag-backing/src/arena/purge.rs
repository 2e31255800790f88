//! Giving memory back: in the background, above a watermark, when asked.
//!
//! Always the same two steps. Under an owner's lock, idle blocks are taken off its books; nobody can use them from then
//! on. Without any lock they are purged, those of all owners together, adjacent ones as one; only who purges through a
//! handle keeps its owner meanwhile. What succeeds is clean and nobody's; what fails goes back to its owner by mail.

use std::mem;
use std::time::Duration;

use nofrag::ranges::Span;

use super::atomic::Ordering;
use super::bins::Which;
use super::books::{Age, Books, Taken};
use super::lock::Held;
use super::owner::Owner;
use super::{Arena, Budget, Purge, Purged};
use crate::backend::Backend;

/// What a round over the owners takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Round {
    /// What is due at that time.
    Due(Duration),
    /// Every idle block, parked runs of it included.
    Everything,
}

impl<B: Backend> Arena<B> {
    /// A piece of background work at the time `now`, told as the time since any fixed point: collects what others have
    /// freed, and purges what [`Purge`] says is due. Owners that somebody holds are left out.
    ///
    /// [`Purger`](super::Purger) calls it from a thread of its own; a program with a loop may do that itself.
    pub fn step(&self, now: Duration, budget: Budget) -> Purged {
        self.round(Round::Due(now), budget)
    }

    /// Purges idle blocks, however short they have been idle; what is parked goes back to its blocks first. Owners
    /// that somebody holds are left out.
    pub fn purge(&self, budget: Budget) -> Purged {
        self.round(Round::Everything, budget)
    }

    fn round(&self, round: Round, budget: Budget) -> Purged {
        if !self.parent.is_same() {
            return Purged::default();
        }
        let (mut taken, mut busy) = (Vec::new(), 0);
        let start = self.cursor.fetch_add(1, Ordering::Relaxed) as usize % self.owners.len();
        for slot in self.owners[start..].iter().chain(&self.owners[..start]) {
            match slot.books.0.try_lock() {
                Some(mut books) => self.tend(slot, &mut books, round, budget, &mut taken),
                None => busy += 1,
            }
        }
        Purged { busy_owners: busy, ..self.purge_taken(taken) }
    }

    /// The part of a round that is done under the lock of an owner.
    pub(super) fn tend(
        &self,
        slot: &Owner<B>,
        books: &mut Books<B>,
        round: Round,
        budget: Budget,
        taken: &mut Vec<Taken<B>>,
    ) {
        slot.collect(&self.ground, &self.backing, books);
        let most = budget.blocks.saturating_sub(taken.len());
        let age = match (round, self.purge) {
            (Round::Everything, _) => {
                books.flush(&self.ground, Which::All);
                Age::Any
            }
            (Round::Due(now), Purge::Decay { after }) => {
                books.age(&self.ground, now, after);
                Age::Since { now, after }
            }
            (Round::Due(_), Purge::Watermark { pages }) => {
                return self.lower(books, pages, most, taken);
            }
            (Round::Due(_), Purge::Manual) => return,
        };
        books.take(&self.ground, &self.backing.backend, age, most, taken);
    }

    /// Takes idle blocks of an owner that has too much, until half of the watermark is left.
    fn lower(&self, books: &mut Books<B>, pages: u64, most: usize, taken: &mut Vec<Taken<B>>) {
        let per_block = u64::from(self.ground.block_pages());
        let excess = |books: &Books<B>| {
            let dirty = books.dirty();
            if dirty > pages { (dirty - pages / 2).div_ceil(per_block) as usize } else { 0 }
        };
        let before = taken.len();
        let wanted = excess(books).min(most);
        books.take(&self.ground, &self.backing.backend, Age::Any, wanted, taken);
        // What is parked is part of it only if there is much of that: else it would be given up at every free.
        if taken.len() - before < wanted && books.bins.pages() > pages / 2 {
            books.flush(&self.ground, Which::All);
            let rest = wanted - (taken.len() - before);
            books.take(&self.ground, &self.backing.backend, Age::Any, rest, taken);
        }
    }

    /// Who has freed a run that was not parked looks at the watermark.
    #[cold]
    pub(super) fn after_merge(&self, mut books: Held<'_, Books<B>>) {
        let mut taken = Vec::new();
        self.look_at_watermark(&mut books, &mut taken);
        drop(books);
        self.purge_taken(taken);
    }

    pub(super) fn look_at_watermark(&self, books: &mut Books<B>, taken: &mut Vec<Taken<B>>) {
        if let Purge::Watermark { pages } = self.purge {
            self.lower(books, pages, usize::MAX, taken);
        }
    }

    /// Purges blocks that are on nobody's books, and says whose they are now.
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

    /// Tells the hook what goes back.
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

/// Blocks that the hook is told of. Should it panic they go back to their owners.
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
