//! Changing the length of a run where it is.

use nofrag::ranges::Span;

use super::bins::Which;
use super::books::OwnerBooks;
use super::owner::Owner;
use super::table::Use;
use super::{Arena, ArenaError, FreeError, Miss, ResizeError, Run};
use crate::backend::Backend;

impl<B: Backend> Arena<B> {
    /// Gives a run another length where it is: pages that it loses are free, pages that it gains lie behind it. The old
    /// [`Run`] is stale from then on. Waits while another thread holds the owner; the thread that has its
    /// [handle](Arena::owner) calls the handle instead, or waits for ever.
    ///
    /// Grows into free pages behind the run, parked runs and clean blocks included; nothing is purged for that.
    ///
    /// # Errors
    /// See [`ResizeError`]; nothing changed.
    pub fn resize(&self, run: Run, pages: u64) -> Result<Run, ResizeError> {
        let slot = self.owner_of(run)?;
        self.resize_held(slot, &mut slot.books.0.lock(), run, pages)
    }

    /// Resizes as [`resize`](Arena::resize) does, for a caller that holds the run's owner.
    pub(super) fn resize_held(
        &self,
        slot: &Owner<B>,
        books: &mut OwnerBooks<B>,
        run: Run,
        pages: u64,
    ) -> Result<Run, ResizeError> {
        if pages == 0 {
            return Err(ResizeError::NoPages);
        }
        // First, since a free of this very run may be among those that other threads have left: a run found after that
        // stays.
        slot.collect(&self.ground, &self.backing, books);
        let page = self.find_in(books, run, Use::Live)?;
        let first = u64::from(page);
        let (old, end) = (u64::from(run.pages()), first + u64::from(run.pages()));
        let fits = pages <= u64::from(self.ground.pages()) - first;
        if pages < old {
            let tail = Span::new(first + pages, end).expect("the run shrinks");
            books.merge(&self.ground, tail).map_err(|_| FreeError::OutOfMetadata)?;
        } else if pages > old {
            let more = Span::sized(end, pages - old).ok().filter(|_| fits);
            if !more.map_or(Ok(false), |more| self.extend(slot, books, more))? {
                books.flush(&self.ground, Which::All);
                return Err(ResizeError::NoRoom { most: self.end_of_room(books, end) - first });
            }
        }
        Ok(self.ground.begin(page, pages as u32, Use::Live))
    }

    /// Returns the page up to which a run that ends at `end` could grow, over free pages in the owner's blocks and over
    /// clean blocks.
    fn end_of_room(&self, books: &OwnerBooks<B>, mut end: u64) -> u64 {
        loop {
            let block = end >> self.ground.block_shift;
            let clean = || self.pool.clean_from(block).map(|last| last << self.ground.block_shift);
            match books.ranges.hole_from(end).filter(|hole| hole.contains(end)) {
                Some(hole) => end = hole.end(),
                None if end.is_multiple_of(u64::from(self.ground.block_pages())) => match clean() {
                    Some(further) => end = further,
                    None => return end,
                },
                None => return end,
            }
        }
    }

    /// Takes exactly these pages, which follow a run of the owner; returns false if some of them are in use. Runs that
    /// other threads have freed were collected before that run was found, and must not be collected here.
    fn extend(
        &self,
        slot: &Owner<B>,
        books: &mut OwnerBooks<B>,
        more: Span,
    ) -> Result<bool, ResizeError> {
        if books.carve_at(&self.ground, more) {
            return Ok(true);
        }
        books.flush(&self.ground, Which::All);
        let mut lacking: Vec<u32> = Vec::new();
        for number in self.ground.blocks_of(more) {
            let part = self.ground.pages_of(number, 1).intersection(more);
            let part = part.expect("the block holds some of the pages");
            if !books.blocks.contains_key(&number) {
                lacking.push(number);
            } else if !books.ranges.is_free(part) {
                return Ok(false);
            }
        }
        // All of them in one request: the blocks that the owner lacks may lie before and behind a block that it has.
        if !self.pool.take_at(&lacking) {
            return Ok(false);
        }
        let mut left = lacking.into_iter();
        let brought = left.try_for_each(|number| self.bring(slot, books, number..number + 1));
        // The blocks after one that failed go back.
        left.for_each(|number| self.pool.give(self.one(number)));
        brought.map_err(|miss| match miss {
            Miss::Pressure(ArenaError::Backend(why)) => ResizeError::Backend(why),
            Miss::Pressure(_) | Miss::Final(_) => FreeError::OutOfMetadata.into(),
        })?;
        let carved = books.carve_at(&self.ground, more);
        if carved { Ok(true) } else { Err(FreeError::OutOfMetadata.into()) }
    }
}
