//! Exclusive use of an owner: no locked operation per call.

use std::fmt;

use super::books::{Freed, OwnerBooks};
use super::clock::FREES;
use super::lock::Held;
use super::owner::Owner;
use super::pressure::Want;
use super::purge::{Chore, Round};
use super::table::Use;
use super::{
    Arena, ArenaError, Budget, Busy, FreeError, HoldError, Lease, OwnerId, Purged, ResizeError, Run,
};
use crate::backend::{Anonymous, Backend, HostMemory};

/// The right to use an owner, until it is dropped. Other threads can still free its runs; they do not wait.
///
/// Background work of others leaves alone an owner that is held. Calls through the handle do it; a thread that holds an
/// owner and goes idle drops the handle, or calls [`purge`](OwnerHandle::purge) before.
pub struct OwnerHandle<'a, B: Backend = Anonymous> {
    arena: &'a Arena<B>,
    slot: &'a Owner<B>,
    books: Held<'a, OwnerBooks<B>>,
}

impl<B: Backend> Arena<B> {
    /// Holds an owner. Does not wait, so a signal handler may try; and it may call
    /// [`alloc_parked`](OwnerHandle::alloc_parked) and [`Arena::free_later`], but nothing else: the rest may need
    /// memory, or locks that the interrupted code holds.
    ///
    /// # Errors
    /// [`HoldError::Busy`] if it is held already; [`HoldError::UnknownOwner`] if there is no such owner.
    pub fn owner(&self, owner: OwnerId) -> Result<OwnerHandle<'_, B>, HoldError> {
        let owners = self.owners.len() as u32;
        let unknown = HoldError::UnknownOwner { owner, owners };
        let slot = self.owners.get(owner.0 as usize).ok_or(unknown)?;
        let books = slot.books.0.try_lock().ok_or(Busy)?;
        Ok(OwnerHandle { arena: self, slot, books })
    }
}

impl<B: Backend> OwnerHandle<'_, B> {
    /// Returns the number of this owner.
    #[must_use]
    pub fn id(&self) -> OwnerId {
        self.books.owner
    }

    /// Allocates a run as [`Arena::alloc`] does, from this owner.
    ///
    /// # Errors
    /// See [`ArenaError`].
    #[inline]
    pub fn alloc(&mut self, pages: u64, align: u64) -> Result<Run, ArenaError> {
        self.alloc_as(pages, align, Use::Live)
    }

    #[inline(always)]
    fn alloc_as(&mut self, pages: u64, align: u64, used: Use) -> Result<Run, ArenaError> {
        self.arena.check_parent()?;
        match self.arena.at_hand(&mut self.books, pages, align, used) {
            Some(run) => Ok(run),
            None => {
                let want = Want { pages, align, used };
                self.arena.alloc_slowly_held(self.slot, &mut self.books, want)
            }
        }
    }

    /// Hands out the run of exactly `pages` pages that was parked last, if its first page is a multiple of `align`.
    /// Takes no lock and no memory, so a signal handler may call it.
    #[inline]
    pub fn alloc_parked(&mut self, pages: u64, align: u64) -> Option<Run> {
        self.arena.check_parent().ok()?;
        self.arena.parked(&mut self.books, pages, align, Use::Live)
    }

    /// Frees a run as [`Arena::free`] does; runs of other owners too.
    ///
    /// # Errors
    /// See [`FreeError`].
    #[inline]
    pub fn free(&mut self, run: Run) -> Result<(), FreeError> {
        if !self.arena.parent.is_same() {
            return Err(FreeError::Forked);
        }
        let ground = &self.arena.ground;
        let page = ground.find(run, Use::Live)?;
        if ground.owner_of(ground.block_of(page)) != Some(self.books.owner) {
            return self.arena.free(run);
        }
        match self.books.free(ground, page, run.pages()) {
            Ok(Freed::Parked) => Ok(()),
            Ok(Freed::Merged) => {
                self.after_merge();
                Ok(())
            }
            Err(_) => Err(FreeError::OutOfMetadata),
        }
    }

    /// Resizes a run of this owner as [`Arena::resize`] does.
    ///
    /// # Errors
    /// See [`ResizeError`]; [`OtherOwner`](ResizeError::OtherOwner) for a run of another owner, which the arena
    /// resizes.
    pub fn resize(&mut self, run: Run, pages: u64) -> Result<Run, ResizeError> {
        let owner = self.arena.owner_of(run)?.id;
        if owner != self.books.owner {
            return Err(ResizeError::OtherOwner { owner });
        }
        self.arena.resize_held(self.slot, &mut self.books, run, pages)
    }

    #[cold]
    fn after_merge(&mut self) {
        self.chore(Round::Merged, Budget::ALL);
        if self.books.frees.is_multiple_of(FREES) {
            self.arena.look_held(self.slot, &mut self.books);
        }
    }

    /// Does this owner's share of [`Arena::step`].
    pub fn step(&mut self, budget: Budget) -> Purged {
        self.round(Round::Due(self.arena.clock.now()), budget)
    }

    /// Does this owner's share of [`Arena::purge`].
    pub fn purge(&mut self, budget: Budget) -> Purged {
        self.round(Round::Everything, budget)
    }

    fn round(&mut self, round: Round, budget: Budget) -> Purged {
        if !self.arena.parent.is_same() {
            return Purged::default();
        }
        self.chore(round, budget)
    }

    fn chore(&mut self, round: Round, budget: Budget) -> Purged {
        let mut taken = Vec::new();
        self.arena.tend(self.slot, &mut self.books, Chore::new(round, budget.blocks), &mut taken);
        self.arena.purge_taken(taken)
    }
}

impl<'a, B: HostMemory> OwnerHandle<'a, B> {
    /// Leases a run as [`Arena::lease`] does, from this owner. The lease may outlive the handle.
    ///
    /// # Errors
    /// See [`ArenaError`].
    pub fn lease(&mut self, pages: u64, align: u64) -> Result<Lease<'a, B>, ArenaError> {
        let run = self.alloc_as(pages, align, Use::Leased)?;
        Ok(Lease::new(self.arena, run))
    }
}

impl<B: Backend> fmt::Debug for OwnerHandle<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "owner {} of {:?}", self.books.owner.0, self.arena)
    }
}
