//! One CPU's flushed areas, kept at hand by exact size, and bounded by the recent demand
//! (docs/sources/vmap.md#pools-by-demand).
//!
//! Each size has a stack. Its *low-water mark* is its least length since the last decay: that many areas were not
//! needed. A decay takes a quarter of them, rounded down; from a stack that no request touched it takes half, rounded
//! up, so a size whose demand ended is empty after a few purges. Surplus goes back to the free ranges in batches.

use super::own::OwnAreas;
use crate::lists::{made, put};
use crate::ranges::{OutOfMetadata, Span};
use crate::vmap::counters::PoolCounters;
use alloc::vec::Vec;

/// Largest size that is pooled, in pages; the smallest is 1.
pub(super) const POOL_MAX_PAGES: u64 = 256;

/// Number of areas from the top of a stack that are tried for an aligned one.
const ALIGN_TRIES: usize = 4;

/// A flushed area in a pool; its size is the pool's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pooled {
    pub(super) offset: u64,
    pub(super) slot: u32,
}

/// A pool's answer to an area that is put into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    Kept,
    Refused,
}

/// A flushed area in an inbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flushed {
    pub(super) offset: u64,
    pub(super) total: u32,
    pub(super) slot: u32,
}

#[derive(Debug, Default)]
struct Stack {
    areas: Vec<Pooled>,
    /// Least length of the stack since the last decay.
    low: usize,
}

/// One CPU's flushed areas, in a stack for each exact size.
///
/// 1. `pages` is the sum of the sizes of all pooled areas.
#[derive(Debug)]
pub(in crate::vmap) struct CpuPools {
    stacks: Vec<Stack>,
    pub(super) pages: u64,
    /// The number of the decay period, of `FLUSHES_PER_DECAY` flushes, in which these pools have last begun to decay.
    epoch: u64,
    /// The index of the stack (size minus one) that an unfinished decay has reached, and the number of its areas still
    /// to go.
    decaying: Option<(usize, usize)>,
    pub(super) counters: PoolCounters,
    /// Allocations that no pool served.
    pub(super) slow_allocs: u64,
    pub(super) own: OwnAreas,
}

impl CpuPools {
    pub(super) fn new(bounds: Span) -> Result<CpuPools, OutOfMetadata> {
        let stacks = made(POOL_MAX_PAGES as usize, Stack::default)?;
        let counters = PoolCounters::default();
        let own = OwnAreas::new(bounds);
        Ok(CpuPools { stacks, pages: 0, epoch: 0, decaying: None, counters, slow_allocs: 0, own })
    }

    /// Takes an aligned area of exactly `total` pages.
    #[inline(always)]
    pub(super) fn pop(&mut self, base: u64, total: u64, align: u64) -> Option<Pooled> {
        let stack = self.stacks.get_mut(total as usize - 1)?;
        let top = *stack.areas.last()?;
        let taken = if (base + top.offset) & (align - 1) == 0 {
            stack.areas.pop();
            top
        } else {
            stack.take_aligned(base, align)?
        };
        stack.low = stack.low.min(stack.areas.len());
        self.pages -= total;
        self.counters.hits += 1;
        Some(taken)
    }

    /// Puts a flushed area on its stack, unless `bound` pages would be exceeded or there is no memory.
    #[inline]
    pub(super) fn push(&mut self, offset: u64, total: u64, slot: u32, bound: u64) -> Pushed {
        let Some(stack) = self.stacks.get_mut(total as usize - 1) else { return Pushed::Refused };
        if self.pages + total > bound {
            return Pushed::Refused;
        }
        if stack.areas.len() == stack.areas.capacity() && stack.areas.try_reserve(1).is_err() {
            return Pushed::Refused;
        }
        put(&mut stack.areas, Pooled { offset, slot });
        self.pages += total;
        Pushed::Kept
    }

    /// Returns true if a decay is due or unfinished.
    #[inline]
    pub(super) fn must_decay(&self, epoch: u64) -> bool {
        self.decaying.is_some() || self.epoch != epoch
    }

    /// Moves surplus into `batch` until that is full. A new `epoch` begins a new decay.
    pub(super) fn decay(&mut self, epoch: u64, batch: &mut Batch) {
        if !self.must_decay(epoch) {
            return;
        }
        if self.decaying.is_none() {
            self.epoch = epoch;
            self.decaying = Some((0, self.stacks[0].surplus()));
        }
        let Some((first, mut left)) = self.decaying.take() else { return };
        for index in first..self.stacks.len() {
            if index > first {
                left = self.stacks[index].surplus();
            }
            let going = left.min(batch.room()).min(self.stacks[index].areas.len());
            if going > 0 {
                self.let_go(index, going, batch);
            }
            if batch.room() == 0 && left > going {
                self.decaying = Some((index, left - going));
                return;
            }
            self.stacks[index].low = self.stacks[index].areas.len();
        }
    }

    /// Moves any pooled areas into `batch` until that is full or nothing is left.
    pub(super) fn drain(&mut self, batch: &mut Batch) {
        for index in 0..self.stacks.len() {
            let going = self.stacks[index].areas.len().min(batch.room());
            self.let_go(index, going, batch);
            self.stacks[index].low = 0;
        }
    }

    fn let_go(&mut self, index: usize, going: usize, batch: &mut Batch) {
        let total = index as u64 + 1;
        for area in self.stacks[index].areas.drain(..going) {
            batch.push(area.offset, total);
        }
        self.pages -= going as u64 * total;
        self.counters.decayed += going as u64;
    }

    /// Returns the first page, counted from the space's first, and the size of every pooled area.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (1..)
            .zip(&self.stacks)
            .flat_map(|(total, stack)| stack.areas.iter().map(move |area| (area.offset, total)))
    }
}

impl Stack {
    #[cold]
    fn take_aligned(&mut self, base: u64, align: u64) -> Option<Pooled> {
        let tried = self.areas.len().saturating_sub(ALIGN_TRIES)..self.areas.len();
        let fits = |&at: &usize| (base + self.areas[at].offset) & (align - 1) == 0;
        let at = tried.rev().find(fits)?;
        Some(self.areas.swap_remove(at))
    }

    /// Returns the number of areas that a decay takes.
    fn surplus(&self) -> usize {
        let untouched = self.low == self.areas.len();
        if untouched { self.low.div_ceil(2) } else { self.low / 4 }
    }
}

/// The most areas that one hold of a lock moves. (A modelled thread has a small stack, and batches lie on it.)
pub(super) const AREAS_PER_HOLD: usize = if cfg!(loom) { 16 } else { 64 };

/// Areas on their way back to the free ranges, at most [`AREAS_PER_HOLD`].
#[derive(Debug)]
pub(super) struct Batch {
    /// First page and size of each.
    areas: [(u64, u64); AREAS_PER_HOLD],
    len: usize,
}

impl Batch {
    #[inline]
    pub(super) fn new() -> Batch {
        Batch { areas: [(0, 0); AREAS_PER_HOLD], len: 0 }
    }

    #[inline]
    pub(super) fn room(&self) -> usize {
        AREAS_PER_HOLD - self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn push(&mut self, offset: u64, total: u64) {
        self.areas[self.len] = (offset, total);
        self.len += 1;
    }

    pub(super) fn areas(&self) -> &[(u64, u64)] {
        &self.areas[..self.len]
    }

    /// Sorts by address, so that neighbours can be joined before the lock is taken.
    pub(super) fn sort(&mut self) {
        self.areas[..self.len].sort_unstable();
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Batch, CpuPools, Pushed};
    use crate::ranges::Span;

    fn pools_with(count: u64) -> CpuPools {
        let mut pools = CpuPools::new(Span::known(0, 1)).unwrap();
        for offset in 0..count {
            assert_eq!(pools.push(offset, 1, 0, 1000), Pushed::Kept);
        }
        pools.decay(1, &mut Batch::new()); // notes the level
        pools
    }

    fn check_decay(mut pools: CpuPools, expected: usize) {
        let mut batch = Batch::new();
        let before = pools.pages;
        pools.decay(2, &mut batch);
        assert_eq!(batch.areas().len(), expected);
        assert_eq!(pools.pages, before - expected as u64);
    }

    #[test]
    fn half_of_an_untouched_stack_goes() {
        check_decay(pools_with(0), 0);
        check_decay(pools_with(1), 1);
        check_decay(pools_with(5), 3);
        check_decay(pools_with(100), 50);
    }

    #[test]
    fn a_quarter_of_what_a_used_stack_did_not_need_goes() {
        for (count, expected) in [(4, 0), (5, 1), (9, 2), (100, 24)] {
            let mut pools = pools_with(count);
            let taken = pools.pop(0, 1, 1).unwrap();
            pools.push(taken.offset, 1, taken.slot, 1000);
            check_decay(pools, expected);
        }
    }

    #[test]
    fn a_pool_takes_no_more_than_its_bound() {
        let mut pools = CpuPools::new(Span::known(0, 1)).unwrap();
        assert_eq!(pools.push(0, 6, 0, 10), Pushed::Kept);
        assert_eq!(pools.push(6, 5, 1, 10), Pushed::Refused);
        assert_eq!(pools.push(6, 257, 1, 1000), Pushed::Refused);
    }
}
