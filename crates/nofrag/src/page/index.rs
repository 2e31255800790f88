//! The fragmentation of free memory, in three numbers.
//!
//! All three compare the free pages with the blocks of an order that could be carved from them. The *fragmentation
//! index* asks why a request would fail: for lack of memory, or because what is free is in pieces? The *unusable* index
//! and `extfrag` ask which share of the free memory cannot serve the order; they differ in their unit, and in what they
//! say of a zone without free pages.
//!
//! Rules: docs/sources/pages.md#indices. The kernel shows two as `extfrag_index` and `unusable_index` in debugfs;
//! `extfrag_threshold` is in Documentation/admin-guide/sysctl/vm.rst.

use super::allocator::PageAllocator;
use super::free_lists::FreeLists;
use super::zone::ZoneId;
use crate::event::EventSink;
use crate::units::Order;

/// Fragmentation of the free memory of a zone for blocks of one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentationIndices {
    /// Cause of a failed request of the order, in 1/1000: near 0 for lack of memory, near 1000 for free memory in
    /// pieces; slightly negative with a single block. `None` if the request would not fail (the kernel writes -1000).
    pub fragmentation: Option<i64>,
    /// The share of free memory that cannot serve the order, in 1/1000; 1000 if nothing is free.
    pub unusable: u64,
    /// The share of free memory that cannot serve the order, in 1/100; 0 if nothing is free.
    pub extfrag: u64,
}

/// Sums from which the indices are computed. All of them saturate: files from elsewhere may hold any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeShape {
    /// Pages in a block of the order that is asked for.
    wanted: u64,
    /// Free pages, in `blocks` blocks.
    pages: u64,
    blocks: u64,
    /// Blocks of the order that the free pages could be cut into.
    suitable: u64,
}

impl FreeShape {
    /// Sums the free memory of `lists`, seen by a request of `order`. O(orders times types).
    pub(super) fn of(lists: &FreeLists, order: Order) -> FreeShape {
        let blocks = Order::all().map(|each| lists.blocks(each));
        FreeShape::of_blocks(blocks, u32::from(order.get()))
    }

    /// Sums free memory, given as the number of free blocks of each order. O(orders).
    fn of_blocks(blocks: impl Iterator<Item = u64>, order: u32) -> FreeShape {
        let size = |order| 1_u64.checked_shl(order).unwrap_or(u64::MAX);
        let mut shape = FreeShape { wanted: size(order), pages: 0, blocks: 0, suitable: 0 };
        for (blocks, each) in blocks.zip(0_u32..) {
            shape.blocks = shape.blocks.saturating_add(blocks);
            shape.pages = shape.pages.saturating_add(blocks.saturating_mul(size(each)));
            if let Some(larger) = each.checked_sub(order) {
                let cut = blocks.saturating_mul(size(larger));
                shape.suitable = shape.suitable.saturating_add(cut);
            }
        }
        shape
    }

    fn indices(self) -> FragmentationIndices {
        FragmentationIndices {
            fragmentation: self.fragmentation(),
            unusable: self.unusable(),
            extfrag: self.extfrag(),
        }
    }

    pub(super) fn fragmentation(self) -> Option<i64> {
        if self.blocks == 0 {
            return Some(0);
        }
        if self.suitable > 0 {
            return None;
        }
        let requests = self.pages.saturating_mul(1000) / self.wanted;
        let share = requests.saturating_add(1000) / self.blocks;
        Some(i64::try_from(share).map_or(i64::MIN, |share| 1000 - share))
    }

    pub(super) fn unusable(self) -> u64 {
        self.share_in_pieces(1000).unwrap_or(1000)
    }

    pub(super) fn extfrag(self) -> u64 {
        self.share_in_pieces(100).unwrap_or(0)
    }

    /// Returns the share of free memory that cannot serve the order, in 1/`unit`; `None` without free memory.
    fn share_in_pieces(self, unit: u64) -> Option<u64> {
        let in_pieces = self.pages.saturating_sub(self.suitable.saturating_mul(self.wanted));
        unit.saturating_mul(in_pieces).checked_div(self.pages)
    }
}

impl FragmentationIndices {
    /// Computes the indices from the number of free blocks of each order, as a line of `/proc/buddyinfo` has them.
    /// There may be more orders than [`Order::COUNT`]: kernels with larger pages have them. O(orders).
    ///
    /// ```
    /// use nofrag::page::FragmentationIndices;
    ///
    /// let singles = FragmentationIndices::of_blocks(&[1024], 9);
    /// assert_eq!((singles.fragmentation, singles.unusable), (Some(998), 1000));
    /// ```
    #[must_use]
    pub fn of_blocks(blocks: &[u64], order: u32) -> FragmentationIndices {
        FreeShape::of_blocks(blocks.iter().copied(), order).indices()
    }
}

impl<E: EventSink> PageAllocator<E> {
    /// Computes the indices of a zone's free memory for blocks of an order, per-CPU lists not included; `None` if there
    /// is no such zone. O(orders times types).
    #[must_use]
    pub fn indices(&self, zone: ZoneId, order: Order) -> Option<FragmentationIndices> {
        let shape = FreeShape::of(&self.zones.get(zone.index())?.lists, order);
        Some(shape.indices())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::frames::Frames;
    use crate::page::map::MemoryMap;
    use crate::page::migratetype::Migratetype;
    use crate::page::policy::Relist;
    use crate::units::PageCount;

    /// Lists free blocks, given as pairs of order and number, largest first, and expects the three indices that the
    /// kernel would show for order 9.
    fn check_indices(free: &[(u8, u64)], shown: (i64, u64, u64)) {
        let map = MemoryMap::uma(PageCount(4096), 0, 1).expect("a small map");
        let (mut frames, mut lists) = (Frames::new(&map).expect("small"), FreeLists::new());
        let mut frame = 0;
        for &(order, count) in free {
            for _ in 0..count {
                let migratetype = Migratetype::MOBILITY[frame as usize / 512 % 3];
                let order = Order::new(order).expect("an order of the test");
                lists.insert(&mut frames, frame, order, migratetype, Relist::Head);
                frame += 1 << order.get();
            }
        }
        let shape = FreeShape::of(&lists, Order::PAGEBLOCK);
        let fragmentation = shape.fragmentation().unwrap_or(-1000);
        assert_eq!((fragmentation, shape.unusable(), shape.extfrag()), shown, "{free:?}");
    }

    /// The fragmentation, unusable and extfrag indices for order 9 have the exact values of six shapes of free memory.
    /// Source: pages.md#o-15.
    #[test]
    fn indices_of_free_memory_in_pieces() {
        check_indices(&[(0, 1024)], (998, 1000, 100));
        check_indices(&[(10, 1)], (-1000, 0, 0));
        check_indices(&[(8, 2)], (0, 1000, 100));
        check_indices(&[(0, 1)], (-1, 1000, 100));
        check_indices(&[], (0, 1000, 0));
        check_indices(&[(9, 1), (0, 512)], (-1000, 500, 50));
    }
}
