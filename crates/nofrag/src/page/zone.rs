//! A zone: consecutive frames of one node that serve the same requests.
//!
//! Rules: docs/sources/pages.md#buddies, pages.md#frames-buddies.

use alloc::vec::Vec;

use super::allocator::ZoneInfo;
use super::compaction::{Kept, ZoneCompaction};
use super::fallback::{Extent, Grouping, Surroundings};
use super::frames::{FrameIndex, Frames, Kind, NONE, Tag, buddy};
use super::free_lists::FreeLists;
use super::map::{NodeId, PfnRange, ZoneKind};
use super::migratetype::Migratetype;
use super::per_cpu::{Bounds, PerCpuPages, Shortage};
use super::policy::{FallbackRules, Relist};
use crate::units::{Order, PageCount};

/// A zone among all zones of the machine: by node, then lowest kind first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(pub(super) u16);

impl ZoneId {
    /// Returns the zone as an index into a table with a row per zone.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A zone's watermarks, in pages, without boost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this mark callers reclaim themselves.
    pub min: u64,
    /// Below this mark kswapd is woken.
    pub low: u64,
    /// Above this mark kswapd sleeps.
    pub high: u64,
    /// Above this mark pages are promoted from slower nodes.
    pub promo: u64,
}

#[derive(Debug)]
pub(super) struct Zone {
    pub(super) id: ZoneId,
    pub(super) node: NodeId,
    pub(super) kind: ZoneKind,
    /// The first frame, and the one behind the last; holes lie between them.
    pub(super) start: FrameIndex,
    pub(super) end: FrameIndex,
    /// The zone as frame numbers: `spanned` pages, holes at the ends included.
    pub(super) span: PfnRange,
    pub(super) present: PageCount,
    pub(super) managed: PageCount,
    pub(super) lists: FreeLists,
    pub(super) marks: Watermarks,
    /// Pages by which the boost lifts all watermarks (`watermark_boost`).
    pub(super) boost: u64,
    /// `ZONE_BOOSTED_WATERMARK`: kswapd is to be woken once the zone's lock is free.
    pub(super) wake_for_boost: bool,
    /// `lowmem_reserve`: pages withheld from requests, by the kind of the highest zone that a request can use.
    pub(super) reserve: [u64; ZoneKind::COUNT],
    /// Pages in pageblocks of type HIGHATOMIC.
    pub(super) reserved_high_atomic: u64,
    /// Pageblocks of contiguous device memory.
    pub(super) cma_blocks: u32,
    pub(super) grouping: Grouping,
    /// True if requests that prefer the zone may look in the one below before they mix types.
    pub(super) spreads: bool,
    pub(super) rules: FallbackRules,
    /// Lists of each CPU, by its rank.
    pub(super) per_cpu: Vec<PerCpuPages>,
    pub(super) per_cpu_bounds: Bounds,
    pub(super) shortage: Shortage,
    pub(super) compaction: ZoneCompaction,
}

impl Zone {
    /// Returns the state of the zone for the outside.
    pub(super) fn info(&self) -> ZoneInfo {
        ZoneInfo {
            id: self.id,
            node: self.node,
            kind: self.kind,
            present: self.present,
            managed: self.managed,
            free: PageCount(self.lists.total()),
            watermarks: self.marks,
            boost: PageCount(self.boost),
            lowmem_reserve: self.reserve,
        }
    }

    /// Returns the bytes of metadata on the heap.
    pub(super) fn metadata_bytes(&self) -> usize {
        self.lists.metadata_bytes() + self.per_cpu.capacity() * size_of::<PerCpuPages>()
    }

    /// Returns true if the frame lies between the zone's first and its last.
    pub(super) fn has(&self, frame: FrameIndex) -> bool {
        self.start <= frame && frame < self.end
    }

    /// Frees a block into the lists, merging it with its buddies. Under strict lists a block of several pageblocks is
    /// freed by pageblock, because their types may differ.
    pub(super) fn free_block(&mut self, frames: &mut Frames, frame: FrameIndex, order: Order) {
        let migratetype = frames.block(frame).migratetype;
        if order <= Order::PAGEBLOCK || self.has_loose_lists() {
            return self.free_block_as(frames, frame, order, migratetype);
        }
        let halves = [frame, buddy(frame, Order::PAGEBLOCK)];
        for half in halves {
            let migratetype = frames.block(half).migratetype;
            self.free_block_as(frames, half, Order::PAGEBLOCK, migratetype);
        }
    }

    /// Returns true if a free block may be on the list of another type than its pageblock's.
    pub(super) fn has_loose_lists(&self) -> bool {
        self.rules == FallbackRules::Loose
    }

    /// Frees a block into the lists of a type, merging it with its buddies.
    pub(super) fn free_block_as(
        &mut self,
        frames: &mut Frames,
        frame: FrameIndex,
        order: Order,
        migratetype: Migratetype,
    ) {
        let (mut frame, mut order) = (frame, order);
        while let Some(larger) = order.larger() {
            if let Some(capture) = &mut self.compaction.capture
                && capture.keep(frame, order, migratetype) == Kept::Yes
            {
                return;
            }
            let other = buddy(frame, order);
            if !self.is_free_at(frames, other, order)
                || order >= Order::PAGEBLOCK && !self.join_types(frames, other, order, migratetype)
            {
                break;
            }
            self.lists.remove(frames, other);
            frames.set_tag(frame.max(other), Tag::INSIDE);
            frame = frame.min(other);
            order = larger;
        }
        let end = self.end_for(frames, frame, order);
        self.lists.insert(frames, frame, order, migratetype, end);
    }

    /// Returns true if a free block of this order begins at the frame, in this zone.
    pub(super) fn is_free_at(&self, frames: &Frames, frame: FrameIndex, order: Order) -> bool {
        self.has(frame) && frames.tag(frame) == Tag::new(Kind::Free, order)
    }

    /// Decides whether a block of pageblocks may merge with its free buddy at `other`. Where types differ, strict lists
    /// give the buddy the freed block's type.
    pub(super) fn join_types(
        &mut self,
        frames: &mut Frames,
        other: FrameIndex,
        order: Order,
        migratetype: Migratetype,
    ) -> bool {
        let theirs = frames.block(other).migratetype;
        if theirs == migratetype {
            return true;
        }
        let may = theirs.is_mobility() && migratetype.is_mobility();
        if may && self.rules != FallbackRules::Loose {
            frames.each_block(other, order, |block, _| block.migratetype = migratetype);
        }
        may
    }

    /// Returns the end of the list to which a freed block goes: behind all others if the block of the next order is
    /// likely to become free soon, so that it is not broken into before.
    fn end_for(&self, frames: &Frames, frame: FrameIndex, order: Order) -> Relist {
        let Some(larger) = order.larger().filter(|_| order < Order::PAGEBLOCK) else {
            return Relist::Head;
        };
        let parent = frame.min(buddy(frame, order));
        let likely = self.is_free_at(frames, buddy(parent, larger), larger);
        if likely { Relist::Tail } else { Relist::Head }
    }

    /// Takes the free block that the policy chooses from the type's lists, splits it down to `order`, and returns its
    /// first frame; `None` if no block is large enough.
    pub(super) fn take_smallest(
        &mut self,
        frames: &mut Frames,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<FrameIndex> {
        let frame = self.lists.choose(frames, order, migratetype)?;
        let (found, _) = self.lists.remove(frames, frame);
        self.split(frames, frame, found, order, migratetype);
        frames.set_tag(frame, Tag::new(Kind::Used, order));
        Some(frame)
    }

    /// Cuts the block at `frame`, which is on no list, down to `order`; upper halves go to the head of the type's
    /// lists.
    pub(super) fn split(
        &mut self,
        frames: &mut Frames,
        frame: FrameIndex,
        from: Order,
        to: Order,
        migratetype: Migratetype,
    ) {
        let mut order = from;
        while order > to {
            order = order.smaller().expect("it is larger than another");
            let upper = buddy(frame, order);
            self.lists.insert(frames, upper, order, migratetype, Relist::Head);
        }
        debug_assert!(frame != NONE, "a block begins at a frame");
    }

    /// Returns the facts that a fallback asks of the pageblock of a frame.
    pub(super) fn surroundings(&self, frames: &Frames, frame: FrameIndex) -> Surroundings {
        let block = frames.block(frame);
        let start = frame & !(Order::PAGEBLOCK.pages() as FrameIndex - 1);
        let last = start + (Order::PAGEBLOCK.pages() as FrameIndex - 1);
        Surroundings {
            migratetype: block.migratetype,
            free: u64::from(block.free),
            movable: u64::from(block.movable),
            extent: if self.has(start) && self.has(last) {
                Extent::Whole
            } else {
                Extent::Straddles
            },
        }
    }

    /// Puts all free blocks of the pageblock at `frame` on the lists of a type. Returns their pages. O(heads).
    pub(super) fn move_all(
        &mut self,
        frames: &mut Frames,
        frame: FrameIndex,
        migratetype: Migratetype,
        end: Relist,
    ) -> u64 {
        let mut at = frame & !(Order::PAGEBLOCK.pages() as FrameIndex - 1);
        let behind = at + Order::PAGEBLOCK.pages() as FrameIndex;
        let mut pages = 0;
        while at < behind {
            let tag = frames.tag(at);
            match tag.kind() {
                Kind::Absent | Kind::Inside => at += 1,
                kind => {
                    if kind == Kind::Free {
                        self.lists.relist(frames, at, migratetype, end);
                        pages += tag.order().pages();
                    }
                    at += tag.order().pages() as FrameIndex;
                }
            }
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::super::allocator::PageAllocator;
    use super::super::policy::FragmentationPolicy;
    use super::super::testing::{cpu, free_blocks, free_pages, full_zone, take, zone};
    use super::*;
    use crate::check::Check;
    use crate::units::Pfn;
    use Migratetype::{HighAtomic, Movable, Reclaimable, Unmovable};

    const LOOSE: FragmentationPolicy = FragmentationPolicy::LINUX_4_20;
    const STRICT: FragmentationPolicy = FragmentationPolicy::LINUX_6_12;

    #[test]
    fn an_order_10_range_freed_in_any_order_is_one_block() {
        for step in [1, 3, 511, 1023] {
            let mut pages = full_zone(2, LOOSE);
            free_pages(&mut pages, (0..1024).map(|nth| nth * step % 1024));
            assert_eq!(free_blocks(&pages), "0M10", "step {step}");
        }
    }

    #[test]
    fn one_page_of_a_block_leaves_one_of_each_order() {
        let mut pages = zone(2, STRICT);
        pages.zones[0].per_cpu_bounds.batch = 1;
        assert_eq!(take(&mut pages, 0, Movable), Some(Pfn(0)));
        let left = "1M0 2M1 4M2 8M3 16M4 32M5 64M6 128M7 256M8 512M9";
        assert_eq!(free_blocks(&pages), left);
    }

    /// Frees single pages, and checks the order in which they would be taken.
    #[track_caller]
    fn check_order(frames: &[u64], taken: &[u64]) {
        let mut pages = full_zone(2, LOOSE);
        free_pages(&mut pages, frames.iter().copied());
        pages.zones[0].per_cpu_bounds.batch = 1;
        for &frame in taken {
            assert_eq!(take(&mut pages, 0, Movable), Some(Pfn(frame)), "{frames:?}");
        }
    }

    #[test]
    fn a_page_whose_block_may_soon_be_whole_is_taken_last() {
        check_order(&[8, 4], &[4, 8]);
        check_order(&[8, 2, 3, 4, 0], &[4, 8, 0]); // 2 and 3 are free, so 0 waits for 1
        check_order(&[8, 2, 4, 0], &[0, 4, 2]);
    }

    /// Makes two pageblocks of these types; the second is freed after the first.
    fn freed(policy: FragmentationPolicy, types: [Migratetype; 2]) -> PageAllocator {
        let mut pages = zone(2, policy);
        for (half, kind) in [0, 512].map(Pfn).into_iter().zip(types) {
            pages.alloc_at(half, Order::PAGEBLOCK).expect("all is free");
            pages.set_block_type(half, kind).expect("it is whole");
        }
        for half in [0, 512].map(Pfn) {
            pages.free(cpu(), half).expect("it is in use");
        }
        pages.drain_all();
        pages
    }

    #[test]
    fn pageblocks_of_different_types_merge_and_strict_lists_give_them_one() {
        let types = [Unmovable, Reclaimable];
        let after = |policy| {
            let pages = freed(policy, types);
            pages.check().expect("the laws hold");
            (free_blocks(&pages), [0, 512].map(|at| pages.frames.block(at).migratetype))
        };
        assert_eq!(after(LOOSE), ("0R10".into(), types));
        let (free, types) = after(STRICT);
        assert!(types[0] == types[1], "one type for both: {types:?}");
        assert_eq!(free, alloc::format!("0{}10", &types[0].name()[..1]));
    }

    #[test]
    fn a_reserve_stays_apart() {
        for policy in [LOOSE, STRICT] {
            assert_eq!(free_blocks(&freed(policy, [HighAtomic, Movable])), "0H9 512M9");
        }
    }

    #[test]
    fn a_block_of_two_pageblocks_is_freed_by_pageblock_under_strict_lists() {
        let after = |policy| {
            let mut pages = zone(2, policy);
            pages.alloc_at(Pfn(0), Order::MAX).expect("all is free");
            pages.set_block_type(Pfn(512), HighAtomic).expect("it is whole");
            pages.free(cpu(), Pfn(0)).expect("it is in use");
            free_blocks(&pages)
        };
        assert_eq!(after(STRICT), "0M9 512H9");
        assert_eq!(after(LOOSE), "0M10", "the first pageblock decides");
    }
}
