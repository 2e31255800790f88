//! An owner as all threads see it: its books behind a lock, and what other threads leave for it.

use std::sync::{Mutex, PoisonError};

use super::OwnerId;
use super::atomic::{AtomicU32, Ordering};
use super::backing::Backing;
use super::books::{Block, OwnerBooks, Taken};
use super::ground::Ground;
use super::lock::OwnerLock;
use super::remote::{Claim, RemoteList};
use crate::backend::Backend;

/// A value on cache lines of its own (128 bytes: lines are fetched in pairs).
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

#[derive(Debug)]
pub(super) struct Owner<B: Backend> {
    pub(super) id: OwnerId,
    pub(super) books: Padded<OwnerLock<OwnerBooks<B>>>,
    /// Runs that other threads have freed.
    pub(super) remote: Padded<RemoteList>,
    mail: Mutex<Mail<B>>,
    /// Set if there may be mail, so that no thread takes the lock to find none.
    has_mail: AtomicU32,
}

/// Mail of other threads to an owner: everything but runs on the remote list.
#[derive(Debug)]
struct Mail<B: Backend> {
    /// Blocks of the owner whose purge has failed: they may hold its contents, so no other owner gets them.
    blocks: Vec<Taken<B>>,
    /// First page and claim of each free that the remote list cannot take, since a stale free still claims the page.
    frees: Vec<(u32, Claim)>,
}

impl<B: Backend> Owner<B> {
    /// Returns an owner without blocks; `None` without memory for its bins.
    pub(super) fn new(owner: OwnerId, parked_pages: u64) -> Option<Owner<B>> {
        Some(Owner {
            id: owner,
            books: Padded(OwnerLock::new(OwnerBooks::new(owner, parked_pages)?)),
            remote: Padded(RemoteList::new()),
            mail: Mutex::new(Mail { blocks: Vec::new(), frees: Vec::new() }),
            has_mail: AtomicU32::new(0),
        })
    }

    fn post(&self, write: impl FnOnce(&mut Mail<B>)) {
        // No letter can be half written: each is one push.
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut mail);
        // Relaxed: written under the lock alone, so never lost; a reader that misses it finds it the next time.
        self.has_mail.store(1, Ordering::Relaxed);
    }

    /// Gives a block whose purge has failed back to this owner, by mail.
    pub(super) fn return_block(&self, taken: Taken<B>) {
        self.post(|mail| mail.blocks.push(taken));
    }

    /// Leaves a free for the holder: on the remote list, or in the mail while the list holds a late free of an earlier
    /// run at that page. Refused if the list holds a free of the same run, whose claim is the error.
    pub(super) fn leave(&self, ground: &Ground, page: u32, claim: Claim) -> Result<(), Claim> {
        match self.remote.0.push(&ground.table, page, claim) {
            Err(other) if other.generation != claim.generation => {
                self.leave_free(page, claim);
                Ok(())
            }
            pushed => pushed,
        }
    }

    /// Leaves a free that the remote list cannot take.
    fn leave_free(&self, page: u32, claim: Claim) {
        self.post(|mail| mail.frees.push((page, claim)));
    }

    /// Returns the number of blocks that wait in the mail.
    pub(super) fn returned_blocks(&self) -> u64 {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).blocks.len() as u64
    }

    /// Returns the numbers of the blocks that wait in the mail.
    pub(super) fn returned(&self) -> Vec<u32> {
        let mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        mail.blocks.iter().map(|taken| taken.number).collect()
    }

    /// Returns the books and the blocks that wait in the mail, when the owner is shared no more.
    pub(super) fn into_parts(self) -> (OwnerBooks<B>, Vec<Taken<B>>) {
        let mail = self.mail.into_inner().unwrap_or_else(PoisonError::into_inner);
        (self.books.0.into_inner(), mail.blocks)
    }

    /// Takes runs and blocks that other threads left for the owner into its books, which the caller holds.
    #[inline]
    pub(super) fn collect(&self, ground: &Ground, backing: &Backing<B>, books: &mut OwnerBooks<B>) {
        if !self.remote.0.is_empty() {
            self.collect_frees(ground, books);
        }
        if self.has_mail.load(Ordering::Relaxed) != 0 {
            self.collect_mail(ground, backing, books);
        }
    }

    #[cold]
    fn collect_frees(&self, ground: &Ground, books: &mut OwnerBooks<B>) {
        self.remote.0.drain(&ground.table, |page, claim| {
            if books.free_remote(ground, page, claim).is_err() {
                // No memory to note the hole: the free waits on. Another free of the same run that came in between will
                // do.
                let _ = self.leave(ground, page, claim);
            }
        });
    }

    #[cold]
    fn collect_mail(&self, ground: &Ground, backing: &Backing<B>, books: &mut OwnerBooks<B>) {
        let mail = {
            let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
            self.has_mail.store(0, Ordering::Relaxed);
            let empty = Mail { blocks: Vec::new(), frees: Vec::new() };
            std::mem::replace(&mut *mail, empty)
        };
        for (page, claim) in mail.frees {
            if books.free_remote(ground, page, claim).is_err() {
                self.leave_free(page, claim);
            }
        }
        for Taken { number, from, mut block } in mail.blocks {
            if backing.complete(ground, number, &mut block).is_err() {
                self.return_block(Taken { number, from, block });
                continue;
            }
            if let Err((blocks, _)) = books.adopt(ground, number, vec![block]) {
                let returned = |block: Block<B>| self.return_block(Taken { number, from, block });
                blocks.into_iter().for_each(returned);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::table::Use;
    use crate::arena::{Arena, Config, FreeError, Owners};
    use crate::backend::{Anonymous, Va};

    /// Leaves a free while a late free of an earlier run at its page is on the remote list: it goes into the mail. A
    /// second free of the same run is refused.
    #[test]
    fn a_stale_free_keeps_no_other_out() {
        let ground = Ground::new(Va(1 << 30), 12, 6, 2).unwrap();
        let owner = Owner::<Anonymous>::new(OwnerId(0), 0).unwrap();
        ground.table.begun(3, 7);
        ground.begin(3, 2, Use::Live);
        let [stale, current] = [7, 8].map(|generation| Claim { generation, leased: false });
        assert_eq!(owner.leave(&ground, 3, stale), Ok(()));
        assert_eq!(owner.leave(&ground, 3, stale), Err(stale));
        assert_eq!(owner.leave(&ground, 3, current), Ok(()));
        let mut listed = Vec::new();
        owner.remote.0.drain(&ground.table, |page, claim| listed.push((page, claim)));
        let mail = owner.mail.into_inner().unwrap();
        assert_eq!((listed, mail.frees), (vec![(3, stale)], vec![(3, current)]));
        assert_eq!(owner.has_mail.load(Ordering::Relaxed), 1);
    }

    /// A free that was left for the holder 2^32 runs ago is not taken for one of the run that is there now, as it was
    /// when a claim had only the lowest 32 bits of a generation.
    #[test]
    fn a_claim_of_long_ago_frees_nothing() {
        let config = Config { owners: Owners::Count(1), ..Config::default() };
        let arena = Arena::reserve(8 << 20, config).unwrap();
        let old = arena.alloc(OwnerId(0), 65, 1).unwrap();
        let claim = arena.ground.claim(old, Use::Live);
        arena.free(old).unwrap();
        let page = arena.ground.page_at(old.va()).unwrap();
        arena.ground.table.begun(page, claim.generation + (1 << 32) - 1);
        let mut holder = arena.owner(OwnerId(0)).unwrap();
        let run = holder.alloc(65, 1).unwrap();
        assert_eq!((run.va(), run == old), (old.va(), false));
        arena.owners[0].remote.0.push(&arena.ground.table, page, claim).unwrap();
        // The stale free is not in the way of one of the current run either.
        assert_eq!(arena.free(old), Err(FreeError::NotLive));
        holder.free(run).unwrap();
        let run = holder.alloc(65, 1).unwrap();
        drop(holder);
        let stats = arena.stats();
        assert_eq!((stats.live, stats.stale_frees), (65, 1));
        arena.free(run).unwrap();
    }

    /// While a stale free claims the page, `free_later`, which must not wait for the mail, is refused, and `free`
    /// leaves its free in the mail.
    #[test]
    fn what_the_list_cannot_take_is_refused_or_mailed() {
        let config = Config { owners: Owners::Count(1), ..Config::default() };
        let arena = Arena::reserve(8 << 20, config).unwrap();
        let run = arena.alloc(OwnerId(0), 65, 1).unwrap();
        let holder = arena.owner(OwnerId(0)).unwrap();
        let stale = Claim { generation: 0, leased: false };
        arena.owners[0].remote.0.push(&arena.ground.table, 0, stale).unwrap();
        assert_eq!(arena.free_later(run), Err(FreeError::Uncollected));
        assert_eq!(arena.free(run), Ok(()));
        drop(holder);
        let stats = arena.stats();
        assert_eq!((stats.live, stats.frees, stats.stale_frees), (0, 1, 1));
    }
}
