//! Clean blocks without an owner, by number.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nofrag::ranges::{AlignClasses, Config, RangeAllocator, Request, Span, Stats};

/// Whole blocks, lowest first, so that the blocks in use stay together.
#[derive(Debug)]
pub(super) struct Pool(Mutex<RangeAllocator>);

impl Pool {
    /// Returns a pool of all blocks; `None` without memory for their records. Later calls need no more of it.
    pub(super) fn new(blocks: u32) -> Option<Pool> {
        let align_classes = AlignClasses::NONE;
        let mut ranges = RangeAllocator::new(Config { align_classes, ..Config::default() });
        // No two holes touch.
        ranges.reserve(blocks as usize / 2 + 1).ok()?;
        ranges.add_span(Span::sized(0, u64::from(blocks)).ok()?).ok()?;
        Some(Pool(Mutex::new(ranges)))
    }

    fn lock(&self) -> MutexGuard<'_, RangeAllocator> {
        // No change can be half done: each is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `blocks` adjacent blocks, the first a multiple of `align`; the error is how many could be had, unaligned.
    pub(super) fn take(&self, blocks: u64, align: u64) -> Result<Span, u64> {
        let mut ranges = self.lock();
        ranges.alloc(&Request::new(blocks).align(align)).map_err(|_| ranges.largest())
    }

    /// Takes exactly these blocks, all or none.
    pub(super) fn take_at(&self, blocks: &[u32]) -> bool {
        let mut ranges = self.lock();
        let one = |&block: &u32| Span::sized(u64::from(block), 1).expect("one is not zero");
        let all = blocks.iter().all(|block| ranges.is_free(one(block)));
        if all {
            let taken = blocks.iter().try_for_each(|block| ranges.alloc_at(one(block)));
            taken.expect("they are free, and there is room for all records");
        }
        all
    }

    /// Gives clean blocks to the pool.
    pub(super) fn give(&self, blocks: Span) {
        self.lock().free(blocks).expect("they were taken, and there is room for all records");
    }

    pub(super) fn stats(&self) -> Stats {
        self.lock().stats()
    }

    /// Returns the number behind the last of the clean blocks from `block` on; `None` if `block` is not clean.
    pub(super) fn clean_from(&self, block: u64) -> Option<u64> {
        self.lock().hole_from(block).filter(|hole| hole.contains(block)).map(Span::end)
    }

    pub(super) fn holds(&self, block: u32) -> bool {
        self.lock().is_free(Span::sized(u64::from(block), 1).expect("one is not zero"))
    }
}
