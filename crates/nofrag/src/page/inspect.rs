//! Views of the memory from outside: `/proc/buddyinfo`, `/proc/pagetypeinfo`, and more.

use alloc::vec::Vec;

use super::allocator::PageAllocator;
use super::frames::{FrameIndex, Kind};
use super::map::PfnRange;
use super::migratetype::Migratetype;
use super::zone::{Zone, ZoneId};
use crate::event::EventSink;
use crate::lists::filled;
use crate::units::{Order, PageCount, Pfn};

/// State of a pageblock, or of the part of one that lies in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageblockInfo {
    pub zone: ZoneId,
    /// Frames of the pageblock in the zone.
    pub frames: PfnRange,
    pub migratetype: Migratetype,
    /// Free pages of the whole pageblock, that of other zones' parts included; those on per-CPU lists not.
    pub free: PageCount,
    /// Pages in use that may be moved, of the whole pageblock too.
    pub movable: PageCount,
    /// The order of the largest free block in the whole pageblock; at most [`Order::PAGEBLOCK`], also where it belongs
    /// to a larger one.
    pub largest_free: Option<Order>,
}

/// Numbers of pageblocks by their content. Pageblocks that lie in several zones, or partly in none, count once; those
/// without memory do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageblockCounts {
    /// Pageblocks that are all free, pages on per-CPU lists included.
    pub free: u64,
    /// Pageblocks whose pages in use could all be moved away.
    pub movable: u64,
    /// Pageblocks in which something stays where it is: memory in use, memory taken before the allocator came up, or a
    /// hole.
    pub pinned: u64,
}

/// State of the block to which a frame belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameState {
    /// The block is free, on a list of its zone.
    Free,
    /// The block is free, on a per-CPU list.
    PerCpu,
    /// The block is in use, and its content stays.
    Used,
    /// The block is in use, and its content may be moved.
    Movable,
    /// Compaction has set the block aside, or moves its content.
    Moving,
}

impl<E: EventSink> PageAllocator<E> {
    /// Returns all pageblocks, by zone and then ascending. O(frames) for all of them.
    pub fn pageblocks(&self) -> impl Iterator<Item = PageblockInfo> + '_ {
        let whole = Order::PAGEBLOCK.pages() as FrameIndex;
        self.zones.iter().flat_map(move |zone| {
            let first = zone.start & !(whole - 1);
            (first..zone.end).step_by(whole as usize).map(move |at| self.pageblock(zone, at))
        })
    }

    fn pageblock(&self, zone: &Zone, at: FrameIndex) -> PageblockInfo {
        let end = zone.end.min(at + Order::PAGEBLOCK.pages() as FrameIndex);
        let start = at.max(zone.start);
        let block = self.frames.block(at);
        let pages = PageCount(u64::from(end - start));
        PageblockInfo {
            zone: zone.id,
            frames: PfnRange { start: self.frames.pfn(start), pages },
            migratetype: block.migratetype,
            free: PageCount(u64::from(block.free)),
            movable: PageCount(u64::from(block.movable)),
            largest_free: self.largest_free_in(start, end),
        }
    }

    fn largest_free_in(&self, start: FrameIndex, end: FrameIndex) -> Option<Order> {
        let block = self.frames.block(start);
        if u64::from(block.free) == Order::PAGEBLOCK.pages() {
            return Some(Order::PAGEBLOCK);
        }
        if block.free == 0 {
            return None;
        }
        let tags = self.frames.tags(start, (end - start) as usize).iter();
        tags.filter(|tag| tag.kind() == Kind::Free).map(|tag| tag.order()).max()
    }

    /// Returns the state of a frame, and the first frame and order of its block; `None` where there is no memory.
    /// O(orders).
    #[must_use]
    pub fn frame(&self, pfn: Pfn) -> Option<(FrameState, Pfn, Order)> {
        let (head, tag) = self.frames.head_of(self.frames.index(pfn)?)?;
        let state = match tag.kind() {
            Kind::Free => FrameState::Free,
            Kind::PerCpu => FrameState::PerCpu,
            Kind::Used if tag.is_movable() => FrameState::Movable,
            Kind::Used => FrameState::Used,
            _ => FrameState::Moving,
        };
        Some((state, self.frames.pfn(head), tag.order()))
    }

    /// Returns the number of free blocks of an order and type in a zone, those on per-CPU lists not included. O(1).
    #[must_use]
    pub fn free_blocks(&self, zone: ZoneId, order: Order, migratetype: Migratetype) -> u64 {
        self.zones.get(zone.index()).map_or(0, |zone| zone.lists.len(order, migratetype))
    }

    /// Returns the free pages on a zone's lists of a type. O(1).
    #[must_use]
    pub fn free_pages(&self, zone: ZoneId, migratetype: Migratetype) -> PageCount {
        let pages = self.zones.get(zone.index()).map_or(0, |zone| zone.lists.pages(migratetype));
        PageCount(pages)
    }

    /// Returns the order of the largest free block of a zone that requests can have; `None` if nothing is free.
    /// O(types).
    #[must_use]
    pub fn largest_free(&self, zone: ZoneId) -> Option<Order> {
        let lists = &self.zones.get(zone.index())?.lists;
        let types = Migratetype::ALL.into_iter().filter(|&kind| kind != Migratetype::Isolate);
        let orders = types.fold(0, |set, kind| set | lists.orders(kind, Order::ZERO));
        Order::new(u16::BITS.checked_sub(1 + orders.leading_zeros())? as u8)
    }

    /// Returns the free pages on the per-CPU lists of a zone. O(CPUs).
    #[must_use]
    pub fn per_cpu_pages(&self, zone: ZoneId) -> PageCount {
        let lists = self.zones.get(zone.index()).map_or(&[][..], |zone| &zone.per_cpu);
        PageCount(lists.iter().map(|lists| u64::from(lists.pages())).sum())
    }

    /// Counts pageblocks by their content; `None` if there is no memory for the table that it needs. O(pageblocks,
    /// blocks on per-CPU lists).
    #[must_use]
    pub fn pageblock_counts(&self) -> Option<PageblockCounts> {
        let whole = Order::PAGEBLOCK.pages();
        let block_of = |frame: FrameIndex| (frame >> Order::PAGEBLOCK.get()) as usize;
        let mut on_lists = self.on_per_cpu_lists()?;
        let mut counts = PageblockCounts::default();
        for zone in &self.zones {
            for at in (zone.start & !(whole as u32 - 1)..zone.end).step_by(whole as usize) {
                let Some(listed) = on_lists[block_of(at)].take() else { continue };
                let of = self.frames.block(at);
                let count = match u64::from(of.free) + u64::from(listed) {
                    free if free == whole => &mut counts.free,
                    free if free + u64::from(of.movable) == whole => &mut counts.movable,
                    _ => &mut counts.pinned,
                };
                *count += 1;
            }
        }
        Some(counts)
    }

    /// Counts pages on per-CPU lists by pageblock, each count as `Some` for the caller to take; `None` if there is no
    /// memory for the table.
    fn on_per_cpu_lists(&self) -> Option<Vec<Option<u16>>> {
        let mut pages = filled(self.frames.len() >> Order::PAGEBLOCK.get(), Some(0)).ok()?;
        for lists in self.zones.iter().flat_map(|zone| &zone.per_cpu) {
            lists.each(&self.frames, |frame, order| {
                let count = &mut pages[(frame >> Order::PAGEBLOCK.get()) as usize];
                *count = count.map(|count: u16| count + order.pages() as u16);
            });
        }
        Some(pages)
    }

    /// Counts the free pages that lie on a list of another type than their pageblock's: the mismatches that strict
    /// lists rule out. O(frames).
    #[must_use]
    pub fn list_mismatches(&self) -> PageCount {
        let frames = &self.frames;
        let pages = (0..frames.len() as FrameIndex).map(|frame| {
            let tag = frames.tag(frame);
            let mismatched =
                tag.kind() == Kind::Free && frames.listed(frame) != frames.block(frame).migratetype;
            if mismatched { tag.order().pages() } else { 0 }
        });
        PageCount(pages.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::super::FragmentationPolicy;
    use super::super::testing::{cpu, full_zone, take, zone};
    use super::*;

    #[test]
    fn pageblocks_are_free_movable_or_pinned() {
        let counts = |pages: &PageAllocator| {
            let counts = pages.pageblock_counts().expect("there is memory");
            (counts.free, counts.movable, counts.pinned)
        };
        let mut pages = zone(4, FragmentationPolicy::LINUX_7_2);
        assert_eq!(counts(&pages), (4, 0, 0));
        let page = take(&mut pages, 0, Migratetype::Movable).expect("there is room");
        assert_eq!(counts(&pages), (3, 0, 1), "the refill's other pages are free");
        pages.set_movable(page, true).expect("it is in use");
        assert_eq!(counts(&pages), (3, 1, 0));
        pages.free(cpu(), page).expect("it is in use");
        assert!(pages.per_cpu_pages(ZoneId(0)).0 > 0);
        assert_eq!(counts(&pages), (4, 0, 0), "what CPUs keep is free");
        assert_eq!(counts(&full_zone(3, FragmentationPolicy::LINUX_6_1)), (0, 0, 3));
    }
}
