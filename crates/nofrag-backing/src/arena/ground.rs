//! The facts of an arena that all threads share: its place, how it is cut, and a record for each page.

use std::hash::{BuildHasher, Hasher, RandomState};

use nofrag::ranges::Span;

use super::atomic::{AtomicU32, Ordering};
use super::error::FreeError;
use super::remote::{Claim, waiting};
use super::run::{GENERATION_BITS, Generation};
use super::table::{Table, Use};
use super::{OwnerId, Run};
use crate::backend::Va;
use crate::zeroed::collected;

/// An arena's place and records. Pages are numbered from the first one of the arena, and so are blocks.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) base: Va,
    /// Bytes of a page, as a shift.
    pub(super) page_shift: u32,
    /// Pages of a block, as a shift.
    pub(super) block_shift: u32,
    pub(super) blocks: u32,
    pages: u32,
    pub(super) table: Table,
    /// For each block the number of its owner plus one; zero without an owner. Written by the holder of the owner.
    owners: Box<[AtomicU32]>,
    /// A mark that sets the runs of this arena apart from those of an earlier one at the same addresses.
    mark: Generation,
}

impl Ground {
    pub(super) fn new(base: Va, page_shift: u32, block_shift: u32, blocks: u32) -> Option<Ground> {
        let pages = blocks << block_shift;
        let table = Table::new(pages)?;
        let owners = collected(blocks as usize, (0..blocks).map(|_| AtomicU32::new(0))).ok()?;
        let mark = RandomState::new().build_hasher().finish();
        let mark = Generation::of(mark >> (u64::BITS - GENERATION_BITS));
        let owners = owners.into();
        Some(Ground { base, page_shift, block_shift, blocks, pages, table, owners, mark })
    }

    #[inline(always)]
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    pub(super) fn block_pages(&self) -> u32 {
        1 << self.block_shift
    }

    pub(super) fn block_bytes(&self) -> u64 {
        1 << (self.block_shift + self.page_shift)
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.blocks) * self.block_bytes()
    }

    #[inline(always)]
    pub(super) fn block_of(&self, page: u32) -> u32 {
        page >> self.block_shift
    }

    /// Returns the pages of `count` blocks from `block` on.
    pub(super) fn pages_of(&self, block: u32, count: u32) -> Span {
        let first = u64::from(block) << self.block_shift;
        let count = u64::from(count) << self.block_shift;
        Span::sized(first, count).expect("a block has pages, and they have 32-bit numbers")
    }

    /// Returns the blocks that hold any of `pages`.
    pub(super) fn blocks_of(&self, pages: Span) -> std::ops::Range<u32> {
        let last = (pages.end() - 1) >> self.block_shift;
        (pages.start() >> self.block_shift) as u32..last as u32 + 1
    }

    pub(super) fn va_of(&self, page: u32) -> Va {
        self.base.plus(u64::from(page) << self.page_shift)
    }

    #[inline(always)]
    pub(super) fn owner_of(&self, block: u32) -> Option<OwnerId> {
        // Relaxed: the owner does not change while a run of the block is in use, and the thread that frees a run has
        // learnt of it from the thread that allocated it.
        self.owners[block as usize].load(Ordering::Relaxed).checked_sub(1).map(OwnerId)
    }

    /// Records the owner of a block; called by the holder of its owner, old or new.
    pub(super) fn set_owner(&self, block: u32, owner: Option<OwnerId>) {
        let owner = owner.map_or(0, |OwnerId(owner)| owner + 1);
        self.owners[block as usize].store(owner, Ordering::Relaxed);
    }

    /// Records that a run begins at `page`, and returns the run.
    #[inline(always)]
    pub(super) fn begin(&self, page: u32, pages: u32, used: Use) -> Run {
        let generation = self.table.begin(page, used, pages);
        Run::known(self.va_of(page), pages, generation.marked(self.mark))
    }

    /// Returns the run in use that begins at `page`.
    #[cfg(feature = "allocator-api2")]
    pub(super) fn run_at(&self, page: u32) -> Run {
        let generation = Generation::of(self.table.generation(page));
        Run::known(self.va_of(page), self.table.word(page).pages(), generation.marked(self.mark))
    }

    /// Records the new use of the page where a run begins or has begun; the generation stays.
    #[inline(always)]
    pub(super) fn turn(&self, page: u32, used: Use, pages: u32) {
        self.table.turn(page, used, pages);
    }

    /// Returns the page that begins at an address.
    #[inline(always)]
    pub(super) fn page_at(&self, va: Va) -> Result<u32, FreeError> {
        let offset = va.0.wrapping_sub(self.base.0);
        let page = offset >> self.page_shift;
        if page >= u64::from(self.pages()) || offset & ((1 << self.page_shift) - 1) != 0 {
            return Err(FreeError::Foreign);
        }
        Ok(page as u32)
    }

    /// Returns the first page of `run`, if `run` is in use as `used`.
    #[inline(always)]
    pub(super) fn find(&self, run: Run, used: Use) -> Result<u32, FreeError> {
        let page = self.page_at(run.va())?;
        let generation = run.parts_of_generation().marked(self.mark);
        if !self.table.is(page, used, run.pages(), generation) {
            return Err(self.objection(page, run));
        }
        match waiting(&self.table, page) {
            Some(claim) if claim.generation == generation.number() => Err(FreeError::NotLive),
            _ => Ok(page),
        }
    }

    /// Says why `run` is not the run in use at `page`.
    #[cold]
    fn objection(&self, page: u32, run: Run) -> FreeError {
        let word = self.table.word(page);
        let same = self.table.generation(page) == self.generation_of(run);
        match word.used() {
            Use::Live if same => FreeError::WrongLength { pages: u64::from(word.pages()) },
            Use::Leased if same => FreeError::Leased,
            _ => FreeError::NotLive,
        }
    }

    /// Returns the claim by which a thread without the owner asks it to free `run`.
    pub(super) fn claim(&self, run: Run, used: Use) -> Claim {
        Claim { generation: self.generation_of(run), leased: used == Use::Leased }
    }

    /// Returns how often a run had begun at the first page of `run` when `run` did.
    fn generation_of(&self, run: Run) -> u64 {
        run.parts_of_generation().marked(self.mark).number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, Config, Owners};

    /// Frees a run after 2^32 more have begun at its page: it is refused. While generations had 32 bits, this freed the
    /// run of another, and the address was handed out twice.
    #[test]
    fn a_run_of_long_ago_is_refused() {
        let config = Config { owners: Owners::Count(1), ..Config::default() };
        let arena = Arena::reserve(8 << 20, config).unwrap();
        let owner = OwnerId(0);
        let old = arena.alloc(owner, 3, 1).unwrap();
        arena.free(old).unwrap();
        let page = arena.ground.page_at(old.va()).unwrap();
        let first = arena.ground.table.generation(page);
        for round in 1..4 {
            arena.ground.table.begun(page, first + (round << 32) - 1);
            // The run is not parked any more: the one recorded there is over.
            let run = arena.ground.begin(page, 3, Use::Live);
            assert_eq!(arena.ground.find(run, Use::Live), Ok(page));
            assert_eq!(arena.ground.find(old, Use::Live), Err(FreeError::NotLive));
            assert_eq!((run.va(), run.pages(), run == old), (old.va(), 3, false));
        }
        arena.ground.turn(page, Use::Parked, 3);
    }

    /// A lease is refused as well after 2^32 more have begun at its page.
    #[test]
    fn a_lease_of_long_ago_frees_nothing() {
        let ground = Ground::new(Va(1 << 30), 12, 6, 2).unwrap();
        let old = ground.begin(5, 2, Use::Leased);
        ground.table.begun(5, u64::from(u32::MAX));
        let next = ground.begin(5, 2, Use::Leased);
        assert_eq!(ground.table.generation(5), 1 << 32);
        ground.table.begun(5, 1 << 32);
        let same_digits = ground.begin(5, 2, Use::Leased);
        for stale in [old, next] {
            assert_eq!(ground.find(stale, Use::Leased), Err(FreeError::NotLive));
        }
        assert_eq!(ground.find(same_digits, Use::Leased), Ok(5));
        assert_eq!(ground.find(same_digits, Use::Live), Err(FreeError::Leased));
        assert_eq!(ground.find(old, Use::Live), Err(FreeError::NotLive));
    }
}
