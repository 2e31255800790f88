//! The laws of an arena, verified.

use std::iter::repeat_n;

use nofrag::check::{Check, Violation};
use nofrag::ranges::Span;

use super::books::OwnerBooks;
use super::table::Use;
use super::{Arena, OwnerId};
use crate::backend::Backend;
use crate::zeroed::collected;

const ONE_PLACE: &str = "a block is in the pool, or on the books or in the mail of one owner";
const NAMED: &str = "the record of a block names the owner on whose books it is";
const RUNS: &str = "a page of an owner's block is free, or in exactly one run";
const BINS: &str = "what lies in a bin is parked, and has the bin's length";
const BOUNDED: &str = "the bins count what is parked in them";
const PARKED: &str = "what is parked lies in a bin";
const IDLE: &str = "a block that is wholly free is on the list of idle ones";
const TOUCHED: &str = "no run ends above the touched pages of its last block";
const COUNTED: &str = "the count of live pages is the sum of the live runs";

impl<B: Backend> Check for Arena<B> {
    /// Waits for every owner, one after the other; there may be no handle in use, and no purge may run. A child of a
    /// fork checks nothing: the arena is not used there.
    fn check(&self) -> Result<(), Violation> {
        if !self.parent.is_same() {
            return Ok(());
        }
        let blocks = self.ground.blocks as usize;
        // Without memory to count with, nothing is checked.
        let Ok(mut places) = collected(blocks, repeat_n(0_u64, blocks)) else { return Ok(()) };
        for (id, slot) in (0..).map(OwnerId).zip(&self.owners) {
            let books = slot.books.0.lock();
            for &number in books.blocks.keys() {
                places[number as usize] += 1;
                let named = self.ground.owner_of(number) == Some(id);
                Violation::unless(NAMED, u64::from(number), named)?;
            }
            slot.returned().iter().for_each(|&number| places[number as usize] += 1);
            self.check_books(&books)?;
        }
        for (number, &places) in (0..).zip(&places) {
            let in_pool = u64::from(self.pool.holds(number));
            Violation::unless_equal(ONE_PLACE, u64::from(number), 1, places + in_pool)?;
        }
        Ok(())
    }
}

impl<B: Backend> Arena<B> {
    fn check_books(&self, books: &OwnerBooks<B>) -> Result<(), Violation> {
        let table = &self.ground.table;
        for (page, pages) in books.bins.iter() {
            let word = table.word(page);
            let parked = word.used() == Use::Parked && word.pages() == pages;
            Violation::unless(BINS, u64::from(page), parked)?;
        }
        let in_bins = books.bins.iter().map(|(_, pages)| u64::from(pages)).sum();
        Violation::unless_equal(BOUNDED, u64::from(books.owner.0), in_bins, books.bins.pages())?;
        let mut parked = books.bins.iter().count();
        let (mut live, mut end) = (0, 0);
        for (&number, block) in &books.blocks {
            let pages = self.ground.pages_of(number, 1);
            for page in pages.start()..pages.end() {
                let word = table.word(page as u32);
                let free = books.ranges.is_free(Span::sized(page, 1).expect("one is not zero"));
                if word.used() == Use::Nothing {
                    Violation::unless_equal(RUNS, page, u64::from(page >= end), u64::from(free))?;
                    continue;
                }
                Violation::unless(RUNS, page, !free && page >= end)?;
                end = page + u64::from(word.pages());
                match word.used() {
                    Use::Parked => parked = parked.wrapping_sub(1),
                    _ => live += u64::from(word.pages()),
                }
            }
            let touched = pages.start() + u64::from(block.touched);
            Violation::unless(
                TOUCHED,
                u64::from(number),
                end.min(pages.end()) <= touched || end <= pages.start(),
            )?;
            if books.ranges.is_free(pages) {
                Violation::unless(IDLE, u64::from(number), books.lists(number))?;
            }
        }
        Violation::unless_equal(PARKED, u64::from(books.owner.0), 0, parked as u64)?;
        Violation::unless_equal(COUNTED, u64::from(books.owner.0), live, books.live())
    }
}
