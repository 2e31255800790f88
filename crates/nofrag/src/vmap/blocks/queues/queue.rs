//! The list of one CPU's blocks with free slots (docs/sources/vmap.md#block-objects, vmap.md#list-bound).
//!
//! It changes under its lock and is walked without one, as in Linux. A change is one store as far as a walker can see.
//! An unlinked block keeps its `next`, so a walker that stands there walks on; but the block may go, and a new one at
//! the same place may join another list. Therefore every unlinking is counted, and the walker compares: by the time
//! that a new block's link can be read, so can the count.

use super::BlockTable;
use super::block::Block;
use crate::sync::{AtomicU64, Mutex, Ordering, Rank};
use crate::vmap::NewBlock;

/// The number of a block, or none.
#[derive(Debug)]
pub(super) struct Link(AtomicU64);

impl Link {
    pub(super) fn empty() -> Link {
        Link(AtomicU64::new(0))
    }

    /// Returns the block's number. Pairs with the `set` that made the block reachable: its record is seen as it was
    /// then.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<u64> {
        self.0.load(Ordering::Acquire).checked_sub(1)
    }

    #[inline(always)]
    fn set(&self, number: Option<u64>) {
        self.0.store(number.map_or(0, |number| number + 1), Ordering::Release);
    }
}

/// One CPU's list of its blocks with free slots.
///
/// 1. A block is on its owner's list as long as it has free slots and was not purged.
/// 2. `next` and `prev` of neighbours agree.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) head: Link,
    /// Number of blocks that have been unlinked.
    unlinked: AtomicU64,
    pub(super) ends: Mutex<Ends>,
}

/// The fields under the lock of a list, besides the links.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) tail: Option<u64>,
    pub(super) len: u64,
    pub(super) longest: u64,
    pub(super) created: u64,
    pub(super) failed_searches: u64,
    pub(super) failed_steps: u64,
}

/// The number of blocks that had been unlinked from a list when a walk began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u64);

impl Queue {
    pub(super) fn new() -> Queue {
        Queue {
            head: Link::empty(),
            unlinked: AtomicU64::new(0),
            ends: Mutex::new(Rank::BlockQueue, Ends::default()),
        }
    }

    /// Returns the present version. Pairs with the store in `unlink`: a thread that sees the count sees the links.
    #[inline(always)]
    pub(super) fn version(&self) -> Version {
        Version(self.unlinked.load(Ordering::Acquire))
    }

    /// Puts a new block, with this number, on the list. A search of `steps` blocks had found none.
    pub(super) fn link(&self, table: &BlockTable, number: u64, at: NewBlock, steps: u64) {
        let block = record(table, number);
        let mut ends = self.ends.lock();
        match at {
            NewBlock::Head => {
                let first = self.head.get();
                block.prev.set(None);
                block.next.set(first);
                match first {
                    Some(first) => record(table, first).prev.set(Some(number)),
                    None => ends.tail = Some(number),
                }
                self.head.set(Some(number));
            }
            NewBlock::Tail => {
                block.prev.set(ends.tail);
                block.next.set(None);
                match ends.tail {
                    Some(last) => record(table, last).next.set(Some(number)),
                    None => self.head.set(Some(number)),
                }
                ends.tail = Some(number);
            }
        }
        ends.created += 1;
        ends.failed_searches += 1;
        ends.failed_steps += steps;
        ends.len += 1;
        ends.longest = ends.longest.max(ends.len);
    }

    /// Takes a block off the list. Its own links stay. On another list than its own, as 6.4 to 6.9 could try, this cuts
    /// that list short and leaves the block where it is.
    pub(super) fn unlink(&self, table: &BlockTable, block: &Block) {
        let mut ends = self.ends.lock();
        let (prev, next) = (block.prev.get(), block.next.get());
        match prev {
            Some(prev) => record(table, prev).next.set(next),
            None => self.head.set(next),
        }
        match next {
            Some(next) => record(table, next).prev.set(prev),
            None => ends.tail = prev,
        }
        ends.len = ends.len.saturating_sub(1);
        let unlinked = self.unlinked.load(Ordering::Relaxed) + 1;
        self.unlinked.store(unlinked, Ordering::Release);
    }

    /// Counts a search of `steps` blocks that found none, and led to no new one.
    pub(super) fn note_failed(&self, steps: u64) {
        let mut ends = self.ends.lock();
        ends.failed_searches += 1;
        ends.failed_steps += steps;
    }

    /// Returns the listed blocks, at most `limit`; the lock is held by the caller, or nothing changes.
    pub(super) fn walk<'a>(
        &self,
        table: &'a BlockTable,
        limit: u64,
    ) -> impl Iterator<Item = (u64, &'a Block)> + use<'a> {
        let first = self.head.get();
        let numbers = core::iter::successors(first, |&number| record(table, number).next.get());
        numbers.take(limit as usize).map(|number| (number, record(table, number)))
    }
}

#[inline(always)]
pub(super) fn record(table: &BlockTable, number: u64) -> &Block {
    table.get(number).expect("a block's record is made before it is listed, and stays")
}
