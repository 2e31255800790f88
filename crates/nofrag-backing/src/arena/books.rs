//! The records of an owner: parked runs by size, free ranges over all its blocks, and the state of each block.
//!
//! Everything here is done by the holder of the owner, and nothing here makes a system call: a block that shall be
//! purged is taken out ([`OwnerBooks::take_one`]), so that the purge needs no lock.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::time::Duration;

use nofrag::ranges::{AlignClasses, Config, OutOfMetadata, RangeAllocator, Request, Span};

use super::OwnerId;
use super::backing::Chunk;
use super::bins::{Bins, Draining, Few, Which};
use super::clock::Looks;
use super::ground::Ground;
use super::remote::Claim;
use super::table::Use;
use crate::backend::Backend;

/// The most idle blocks whose age one chore checks.
const LOOKED_AT: usize = 64;

/// State of a block while it belongs to an owner.
#[derive(Debug)]
pub(super) struct Block<B: Backend> {
    /// Pages from the block's beginning that have been handed out since it was clean, which may hold contents.
    pub(super) touched: u32,
    /// The block stands on the list of idle blocks.
    listed: bool,
    /// The time since which the block has been known to be idle; `None` if it is not.
    idle_since: Option<Duration>,
    /// A purge of the block has failed, so that it may still hold its old contents.
    pub(super) quarantined: bool,
    /// The memory behind the block, where memory is made block by block; empty where one mapping serves all blocks.
    pub(super) chunks: Vec<Chunk<B::Phys>>,
}

impl<B: Backend> Block<B> {
    pub(super) fn clean(chunks: Vec<Chunk<B::Phys>>) -> Block<B> {
        Block { touched: 0, listed: false, idle_since: None, quarantined: false, chunks }
    }
}

/// A block between two owners: on no books, and usable by the holder of this value alone.
#[derive(Debug)]
pub(super) struct Taken<B: Backend> {
    pub(super) number: u32,
    pub(super) from: OwnerId,
    pub(super) block: Block<B>,
}

/// The age from which on idle blocks are taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Age {
    Any,
    /// Blocks that have been idle for `after` at the time `now`.
    Since {
        now: Duration,
        after: Duration,
    },
}

/// The books of one owner.
///
/// 1. A page of the owner's blocks is free in `ranges`, or in exactly one run that is live, leased or parked.
/// 2. A parked run lies in the bin of its size.
/// 3. A block that is wholly free in `ranges` stands on `idle`.
/// 4. No run ends above the touched pages of its last block.
#[derive(Debug)]
pub(super) struct OwnerBooks<B: Backend> {
    pub(super) owner: OwnerId,
    pub(super) bins: Bins,
    pub(super) ranges: RangeAllocator,
    pub(super) blocks: BTreeMap<u32, Block<B>>,
    idle: VecDeque<u32>,
    /// Sum of the touched pages of the blocks.
    pub(super) touched: u64,
    pub(super) looks: Looks,
    /// The time of the last ageing of the bins.
    aged: Duration,
    /// An ageing of the bins that was interrupted, and goes on from there.
    pub(super) ageing: Option<Draining>,
    pub(super) allocs: u64,
    pub(super) frees: u64,
    /// Number of frees by other threads whose run had been freed already.
    pub(super) stale_frees: u64,
}

impl<B: Backend> OwnerBooks<B> {
    /// Returns an owner without blocks that parks at most `parked_pages` pages; `None` without memory for its bins.
    pub(super) fn new(owner: OwnerId, parked_pages: u64) -> Option<OwnerBooks<B>> {
        let align_classes = AlignClasses::new(&[9]).expect("one exponent below 31");
        Some(OwnerBooks {
            owner,
            bins: Bins::new(parked_pages)?,
            ranges: RangeAllocator::new(Config { align_classes, ..Config::default() }),
            blocks: BTreeMap::new(),
            idle: VecDeque::new(),
            touched: 0,
            looks: Looks::default(),
            aged: Duration::ZERO,
            ageing: None,
            allocs: 0,
            frees: 0,
            stale_frees: 0,
        })
    }

    /// Returns the number of pages in use.
    pub(super) fn live(&self) -> u64 {
        let stats = self.ranges.stats();
        stats.total - stats.free - self.bins.pages()
    }

    /// Returns the number of pages that are not in use and may hold contents.
    pub(super) fn dirty(&self) -> u64 {
        // A live page was touched, and the sum is over all blocks; but leased runs and runs on the remote
        // list count as live.
        self.touched - self.live()
    }

    /// Takes a run, which begins and ends in blocks of this owner, from the free ranges, and returns its first page.
    pub(super) fn carve(&mut self, ground: &Ground, pages: u64, align: u64) -> Option<u32> {
        let span = self.ranges.alloc(&Request::new(pages).align(align)).ok()?;
        self.note_touched(ground, span);
        Some(span.start() as u32)
    }

    /// Takes exactly these pages from the free ranges; returns true if they were free.
    pub(super) fn carve_at(&mut self, ground: &Ground, span: Span) -> bool {
        let carved = self.ranges.alloc_at(span).is_ok();
        if carved {
            self.note_touched(ground, span);
        }
        carved
    }

    fn note_touched(&mut self, ground: &Ground, span: Span) {
        let numbers = ground.blocks_of(span);
        for (&number, block) in self.blocks.range_mut(numbers) {
            let pages = ground.pages_of(number, 1);
            let end = (span.end().min(pages.end()) - pages.start()) as u32;
            block.idle_since = None;
            if end > block.touched {
                self.touched += u64::from(end - block.touched);
                block.touched = end;
            }
        }
    }

    /// Parks a run that was in use, or gives its pages to the free ranges. Changes nothing on failure.
    #[inline(always)]
    pub(super) fn free(
        &mut self,
        ground: &Ground,
        page: u32,
        pages: u32,
    ) -> Result<Freed, OutOfMetadata> {
        if self.bins.push(page, pages).is_ok() {
            ground.turn(page, Use::Parked, pages);
            self.frees += 1;
            return Ok(Freed::Parked);
        }
        self.free_unparked(ground, page, pages)
    }

    #[cold]
    #[inline(never)]
    fn free_unparked(
        &mut self,
        ground: &Ground,
        page: u32,
        pages: u32,
    ) -> Result<Freed, OutOfMetadata> {
        // The run freed last is wanted soonest: the oldest runs in the fullest bin make room for it.
        let is_crowded_out = self.bins.is_crowded_out(pages);
        if is_crowded_out && self.ranges.reserve(self.ranges.stats().holes + Few::MOST).is_ok() {
            if let Some((size, few)) = self.bins.relieve() {
                self.merge_few(ground, size, few, None);
            }
            if self.bins.push(page, pages).is_ok() {
                ground.turn(page, Use::Parked, pages);
                self.frees += 1;
                return Ok(Freed::Merged);
            }
        }
        self.free_pages(ground, page, pages)?;
        self.frees += 1;
        Ok(Freed::Merged)
    }

    /// Gives runs of one size that were parked, and not needed since a time that may be known, to the free ranges.
    /// There must be room for as many holes.
    fn merge_few(&mut self, ground: &Ground, pages: u32, few: Few, since: Option<Duration>) {
        for page in few.iter() {
            self.free_pages(ground, page, pages).expect("room was made for all holes");
            // Whether the block is idle is seen when it is looked at.
            let block = self.block(ground.block_of(page));
            block.idle_since = block.idle_since.or(since);
        }
    }

    /// Gives the pages of a run to the free ranges.
    fn free_pages(&mut self, ground: &Ground, page: u32, pages: u32) -> Result<(), OutOfMetadata> {
        let span = Span::sized(u64::from(page), u64::from(pages)).expect("a run has pages");
        self.merge(ground, span)?;
        ground.turn(page, Use::Nothing, 0);
        Ok(())
    }

    /// Gives pages to the free ranges, and lists the blocks that became idle by that.
    pub(super) fn merge(&mut self, ground: &Ground, span: Span) -> Result<(), OutOfMetadata> {
        match self.ranges.free(span) {
            Ok(()) => {}
            Err(nofrag::ranges::FreeError::OutOfMetadata) => return Err(OutOfMetadata),
            Err(why) => unreachable!("pages {span:?} of a run were not allocated: {why}"),
        }
        let hole = self.ranges.hole_from(span.start()).expect("what was freed is free");
        for number in ground.blocks_of(span) {
            if hole.covers(ground.pages_of(number, 1)) {
                self.list(number);
            }
        }
        Ok(())
    }

    fn list(&mut self, number: u32) {
        let block = self.blocks.get_mut(&number).expect("free pages lie in the owner's blocks");
        if !block.listed {
            block.listed = true;
            self.idle.push_back(number);
        }
    }

    /// Frees the run at `page` that another thread gave back; if another run is there by now, only counts the stale
    /// free. Without memory for the hole the run stays in use.
    pub(super) fn free_remote(
        &mut self,
        ground: &Ground,
        page: u32,
        claim: Claim,
    ) -> Result<(), OutOfMetadata> {
        let word = ground.table.word(page);
        let used = if claim.leased { Use::Leased } else { Use::Live };
        let ours = ground.owner_of(ground.block_of(page)) == Some(self.owner);
        let same = ground.table.generation(page) == claim.generation;
        if !ours || !same || word.used() != used {
            self.stale_frees += 1;
            return Ok(());
        }
        self.free(ground, page, word.pages()).map(drop)
    }

    /// Gives parked runs to the free ranges.
    pub(super) fn flush(&mut self, ground: &Ground, which: Which) {
        let mut draining = Draining::new(which);
        while self.flush_few(ground, &mut draining, None).is_continue() {}
    }

    /// Gives the next few parked runs, which have not been needed since a time that may be known, to the free ranges;
    /// breaks when there are no more.
    pub(super) fn flush_few(
        &mut self,
        ground: &Ground,
        draining: &mut Draining,
        since: Option<Duration>,
    ) -> ControlFlow<()> {
        // Each could leave a hole of its own. Without memory for that they stay parked.
        if self.ranges.reserve(self.ranges.stats().holes + Few::MOST).is_err() {
            return ControlFlow::Break(());
        }
        let Some((pages, few)) = self.bins.drain(draining) else { return ControlFlow::Break(()) };
        self.merge_few(ground, pages, few, since);
        ControlFlow::Continue(())
    }

    /// Takes blocks over, the first of which has the number `first`: clean ones without an owner, or own ones whose
    /// purge has failed. An error brings them back.
    pub(super) fn adopt(
        &mut self,
        ground: &Ground,
        first: u32,
        blocks: Vec<Block<B>>,
    ) -> Result<(), (Vec<Block<B>>, OutOfMetadata)> {
        if blocks.is_empty() {
            return Ok(());
        }
        if self.ranges.add_span(ground.pages_of(first, blocks.len() as u32)).is_err() {
            return Err((blocks, OutOfMetadata));
        }
        for (number, mut block) in (first..).zip(blocks) {
            ground.set_owner(number, Some(self.owner));
            self.touched += u64::from(block.touched);
            (block.listed, block.idle_since) = (false, None);
            self.blocks.insert(number, block);
            // All of it is free. If it is used at once, the next look at the list will find that.
            self.list(number);
        }
        Ok(())
    }

    /// Returns the number of blocks on the list of idle ones that one chore checks.
    pub(super) fn looks(&self, age: Age) -> usize {
        match age {
            Age::Any => self.idle.len(),
            Age::Since { .. } => self.idle.len().min(LOOKED_AT),
        }
    }

    /// Looks at the first block on the list of idle ones, and takes it out if it is idle and of that age. No thread
    /// uses it from then on.
    pub(super) fn take_one(&mut self, ground: &Ground, age: Age) -> Option<Taken<B>> {
        let number = self.idle.pop_front()?;
        match self.look(ground, age, number) {
            Look::InUse => self.block(number).listed = false,
            Look::Stays => self.idle.push_back(number),
            Look::Take => match self.remove(ground, number) {
                Some(block) => return Some(Taken { number, from: self.owner, block }),
                None => self.idle.push_back(number),
            },
        }
        None
    }

    fn block(&mut self, number: u32) -> &mut Block<B> {
        self.blocks.get_mut(&number).expect("what is listed belongs to the owner")
    }

    fn look(&mut self, ground: &Ground, age: Age, number: u32) -> Look {
        if !self.ranges.is_free(ground.pages_of(number, 1)) {
            return Look::InUse;
        }
        let block = self.block(number);
        let old = match age {
            Age::Any => true,
            Age::Since { now, after } => {
                let since = *block.idle_since.get_or_insert(now);
                now.saturating_sub(since) >= after
            }
        };
        if old { Look::Take } else { Look::Stays }
    }

    /// Takes an idle block off the books; `None` without memory for the holes that remain.
    fn remove(&mut self, ground: &Ground, number: u32) -> Option<Block<B>> {
        self.ranges.remove_span(ground.pages_of(number, 1)).ok()?;
        let block = self.blocks.remove(&number).expect("what is listed belongs to the owner");
        self.touched -= u64::from(block.touched);
        ground.set_owner(number, None);
        Some(block)
    }

    /// Returns the drain of the runs that the bins have not needed lately, if one is under way or due: twice per decay,
    /// which is `after`.
    pub(super) fn ageing(&mut self, now: Duration, after: Duration) -> Option<Draining> {
        if self.ageing.is_none() && now.saturating_sub(self.aged) >= after / 2 {
            self.aged = now;
            self.ageing = Some(Draining::new(Which::Unneeded));
        }
        self.ageing
    }

    /// Returns the number of blocks on the list of idle ones that are idle.
    pub(super) fn idle_blocks(&self, ground: &Ground) -> u64 {
        let free = |&&number: &&u32| self.ranges.is_free(ground.pages_of(number, 1));
        self.idle.iter().filter(free).count() as u64
    }

    /// Returns true if the block is marked as listed and is on the list of idle ones.
    pub(super) fn lists(&self, number: u32) -> bool {
        self.blocks.get(&number).is_some_and(|block| block.listed) && self.idle.contains(&number)
    }
}

/// Outcome of a look at an idle block.
enum Look {
    InUse,
    Stays,
    Take,
}

/// Destination of a freed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    Parked,
    /// In the free ranges, or parked while other runs of the bin went there in its place.
    Merged,
}
