//! Allocation when no parked run fits: collect, cut, take clean blocks, and when there are none, purge.
//!
//! The order: own memory first (runs that other threads have freed, free ranges, clean blocks, parked runs of other
//! sizes), then idle blocks, the owner's own before those of others; then the request fails, and the error lists the
//! pages that each owner holds. This never waits: owners that are held are left out.
//!
//! Source: docs/sources/backing.md#miss-order.

use std::iter::repeat_with;
use std::ops::Range;

use super::bins::Which;
use super::books::{Block, OwnerBooks, Taken};
use super::error::{Share, Shortage};
use super::lock::Held;
use super::owner::Owner;
use super::purge::{Chore, Round};
use super::table::Use;
use super::{Arena, ArenaError, Miss, OwnerId, Run};
use crate::backend::Backend;
use crate::zeroed::collected;

/// The least number of blocks that are purged at once under pressure, if there are as many.
const HARVEST: usize = 64;

/// A request: pages, alignment and use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) pages: u64,
    pub(super) align: u64,
    pub(super) used: Use,
}

impl<B: Backend> Arena<B> {
    /// Tries everything that remains when no parked run fits. The books are released before anything is purged.
    #[cold]
    pub(super) fn alloc_slowly<'a>(
        &self,
        slot: &'a Owner<B>,
        mut books: Held<'a, OwnerBooks<B>>,
        want: Want,
    ) -> Result<Run, ArenaError> {
        if books.looks.are_due(books.allocs) {
            books = self.look(books).unwrap_or_else(|| slot.books.0.lock());
            if let Some(run) = self.at_hand(&mut books, want.pages, want.align, want.used) {
                return Ok(run);
            }
        }
        self.validate(want)?;
        let own = books.owner;
        let mut miss = match self.attempt(slot, &mut books, want) {
            Ok(run) => return Ok(run),
            Err(Miss::Final(why)) => return Err(why),
            Err(Miss::Pressure(why)) => why,
        };
        drop(books);
        for other in self.from(own) {
            while self.harvest(other, want) > 0 {
                match self.attempt(slot, &mut slot.books.0.lock(), want) {
                    Ok(run) => return Ok(run),
                    Err(Miss::Final(why)) => return Err(why),
                    Err(Miss::Pressure(why)) => miss = why,
                }
            }
        }
        Err(self.explain(miss, want, own, None))
    }

    /// Allocates as `alloc_slowly` does, for a caller that goes on holding the owner.
    #[cold]
    pub(super) fn alloc_slowly_held(
        &self,
        slot: &Owner<B>,
        books: &mut OwnerBooks<B>,
        want: Want,
    ) -> Result<Run, ArenaError> {
        if books.looks.are_due(books.allocs) {
            self.look_held(slot, books);
            if let Some(run) = self.at_hand(books, want.pages, want.align, want.used) {
                return Ok(run);
            }
        }
        self.validate(want)?;
        let mut others = self.from(books.owner).skip(1);
        let mut from = None;
        loop {
            let miss = match self.attempt(slot, books, want) {
                Ok(run) => return Ok(run),
                Err(Miss::Final(why)) => return Err(why),
                Err(Miss::Pressure(why)) => why,
            };
            let mut taken = Vec::new();
            self.tend(slot, books, Chore::new(Round::Everything, HARVEST), &mut taken);
            if self.purge_taken(taken).blocks > 0 {
                continue;
            }
            loop {
                match from {
                    Some(other) if self.harvest(other, want) > 0 => break,
                    _ => from = others.next(),
                }
                if from.is_none() {
                    return Err(self.explain(miss, want, books.owner, Some(books)));
                }
            }
        }
    }

    fn validate(&self, want: Want) -> Result<(), ArenaError> {
        let Want { pages, align, .. } = want;
        if pages == 0 {
            return Err(ArenaError::NoPages);
        }
        if !align.is_power_of_two() {
            return Err(ArenaError::AlignNotPowerOfTwo { align });
        }
        let most = self.most_align();
        if align > most {
            return Err(ArenaError::AlignTooLarge { align, most });
        }
        Ok(())
    }

    /// Iterates over all owners, `own` first.
    fn from(&self, own: OwnerId) -> impl Iterator<Item = OwnerId> + use<B> {
        let count = self.owners.len() as u32;
        (own.0..count).chain(0..own.0).map(OwnerId)
    }

    /// Tries everything that can be done under the owner's lock without a purge.
    fn attempt(&self, slot: &Owner<B>, books: &mut OwnerBooks<B>, want: Want) -> Result<Run, Miss> {
        let Want { pages, align, used } = want;
        let ground = &self.ground;
        if pages > u64::from(ground.pages()) {
            return Err(Miss::Final(self.explain(
                ArenaError::NoPages,
                want,
                books.owner,
                Some(books),
            )));
        }
        slot.collect(ground, &self.backing, books);
        if let Some(run) = self.at_hand(books, pages, align, used) {
            return Ok(run);
        }
        let mut page = books.carve(ground, pages, align);
        let mut miss = ArenaError::NoPages;
        if page.is_none() {
            match self.refill(slot, books, want) {
                Ok(()) => page = books.carve(ground, pages, align),
                Err(Miss::Pressure(why)) => miss = why,
                Err(last) => return Err(last),
            }
        }
        if page.is_none() {
            books.flush(ground, Which::All);
            page = books.carve(ground, pages, align);
        }
        match page {
            Some(page) => {
                books.allocs += 1;
                Ok(ground.begin(page, pages as u32, used))
            }
            None => Err(Miss::Pressure(miss)),
        }
    }

    /// Takes clean blocks for a run that does not fit into the owner's free ranges.
    fn refill(&self, slot: &Owner<B>, books: &mut OwnerBooks<B>, want: Want) -> Result<(), Miss> {
        let per_block = u64::from(self.ground.block_pages());
        let blocks = want.pages.div_ceil(per_block);
        let taken = self.pool.take(blocks, (want.align / per_block).max(1));
        let span = taken.map_err(|_| Miss::Pressure(ArenaError::NoPages))?;
        self.bring(slot, books, span.start() as u32..span.end() as u32)
    }

    /// Puts memory behind blocks that were taken from the pool, and makes them the owner's.
    pub(super) fn bring(
        &self,
        slot: &Owner<B>,
        books: &mut OwnerBooks<B>,
        numbers: Range<u32>,
    ) -> Result<(), Miss> {
        let none = repeat_with(|| Block::clean(Vec::new()));
        let Ok(mut blocks) = collected(numbers.len(), none) else {
            numbers.for_each(|number| self.pool.give(self.one(number)));
            return Err(Miss::Final(ArenaError::OutOfMetadata));
        };
        let (blocks, why) = match self.backing.provide(&self.ground, numbers.start, &mut blocks) {
            Ok(()) => match books.adopt(&self.ground, numbers.start, blocks) {
                Ok(()) => return Ok(()),
                Err((blocks, _)) => (blocks, Miss::Final(ArenaError::OutOfMetadata)),
            },
            Err(why) => (blocks, Miss::Pressure(ArenaError::Backend(why))),
        };
        let from = books.owner;
        let taken = numbers.zip(blocks).map(|(number, block)| Taken { number, from, block });
        self.backing.purge(&self.ground, taken.collect(), |taken, result| match result {
            Ok(()) => self.pool.give(self.one(taken.number)),
            Err(_) => slot.return_block(taken),
        });
        Err(why)
    }

    /// Purges idle blocks of one owner, unless it is held; returns their number.
    fn harvest(&self, other: OwnerId, want: Want) -> u64 {
        let slot = &self.owners[other.0 as usize];
        let wanted = want.pages.div_ceil(u64::from(self.ground.block_pages())) as usize;
        let mut taken = Vec::new();
        // In one piece: this thread needs memory and has none, while a thread that waits for the books has some.
        let Some(mut books) = slot.books.0.try_lock() else { return 0 };
        let chore = Chore::new(Round::Everything, wanted.max(HARVEST));
        self.tend(slot, &mut books, chore, &mut taken);
        drop(books);
        self.purge_taken(taken).blocks
    }

    /// Turns [`ArenaError::NoPages`], which stands for want of a place, into [`ArenaError::Exhausted`] with the pages
    /// that each owner holds; other errors stay.
    fn explain(
        &self,
        miss: ArenaError,
        want: Want,
        own: OwnerId,
        held: Option<&OwnerBooks<B>>,
    ) -> ArenaError {
        if miss != ArenaError::NoPages {
            return miss;
        }
        let clean = self.pool.stats();
        let mut shortage = Shortage {
            asked: want.pages,
            largest: clean.largest << self.ground.block_shift,
            clean_blocks: clean.free,
            ..Shortage::default()
        };
        for (id, slot) in (0..).map(OwnerId).zip(&self.owners) {
            if held.is_some_and(|held| held.owner == id) {
                continue;
            }
            match slot.books.0.try_lock() {
                Some(books) => shortage.add(own, &books),
                None => shortage.busy.push(id),
            }
        }
        if let Some(books) = held {
            shortage.add(own, books);
        }
        ArenaError::Exhausted(Box::new(shortage))
    }
}

impl Shortage {
    fn add<B: Backend>(&mut self, own: OwnerId, books: &OwnerBooks<B>) {
        let OwnerBooks { owner, bins, ranges, .. } = books;
        if own == *owner {
            self.largest = self.largest.max(ranges.largest());
        }
        let (parked, free) = (bins.pages(), ranges.stats().free);
        self.owners.push(Share { owner: *owner, live: books.live(), parked, free });
    }
}
