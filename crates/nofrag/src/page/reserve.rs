//! Pageblocks with a purpose: the reserve for requests that may not wait (`HIGHATOMIC`), contiguous memory of devices,
//! and blocks that are being emptied. They change their type whole, free pages and all.
//!
//! Rules: docs/sources/pages.md#highatomic.

use super::allocator::PageAllocator;
use super::fallback::Extent;
use super::frames::{FrameIndex, Frames};
use super::migratetype::Migratetype;
use super::policy::Relist;
use super::request::PageRequest;
use super::zone::{Zone, ZoneId};
use crate::cpu::CpuId;
use crate::errors::errors;
use crate::event::EventSink;
use crate::units::{Order, Pfn};

const BLOCK: u64 = Order::PAGEBLOCK.pages();

/// Pageblocks of a reserve that must stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Least {
    /// One pageblock in each zone.
    One,
    /// None: the next step would be to kill something.
    None,
}

errors! {
    /// Error of setting the type of a pageblock.
    #[non_exhaustive]
    pub enum BlockTypeError {
        /// The frame is not managed memory of the map.
        Unknown(pfn: Pfn) => "frame {pfn} is not managed",
        /// A part of the pageblock belongs to another zone or to none, so it has no type of its own.
        Straddles(pfn: Pfn) => "the pageblock of frame {pfn} is shared",
    }
}

impl Zone {
    /// Gives a pageblock of the zone a type, and its free pages with it. O(heads).
    pub(super) fn retype_block(
        &mut self,
        frames: &mut Frames,
        frame: FrameIndex,
        to: Migratetype,
        end: Relist,
    ) {
        let start = frame & !(BLOCK as FrameIndex - 1);
        let from = core::mem::replace(&mut frames.block_mut(start).migratetype, to);
        self.count_reserve(from, to);
        self.cut_out(frames, start);
        if self.is_free_at(frames, start, Order::PAGEBLOCK) {
            // The buddy may be of a type that it can merge with now.
            self.lists.remove(frames, start);
            self.free_block(frames, start, Order::PAGEBLOCK);
        } else {
            self.move_all(frames, start, to, end);
        }
    }

    /// Counts a pageblock that changes its type out of one reserve and into another: HIGHATOMIC pages, CMA pageblocks.
    pub(super) fn count_reserve(&mut self, from: Migratetype, to: Migratetype) {
        match from {
            Migratetype::HighAtomic => self.reserved_high_atomic -= BLOCK,
            Migratetype::Cma => self.cma_blocks -= 1,
            _ => {}
        }
        match to {
            Migratetype::HighAtomic => self.reserved_high_atomic += BLOCK,
            Migratetype::Cma => self.cma_blocks += 1,
            _ => {}
        }
    }

    /// Halves the free block of two pageblocks to which this one belongs, if it belongs to one.
    fn cut_out(&mut self, frames: &mut Frames, start: FrameIndex) {
        let head = start & !(Order::MAX.pages() as FrameIndex - 1);
        if self.is_free_at(frames, head, Order::MAX) {
            let (_, listed) = self.lists.remove(frames, head);
            for half in [head, super::frames::buddy(head, Order::PAGEBLOCK)] {
                self.lists.insert(frames, half, Order::PAGEBLOCK, listed, Relist::Tail);
            }
        }
    }
}

impl<E: EventSink> PageAllocator<E> {
    /// Gives a pageblock a type. Its free pages go with it, those on per-CPU lists of its zone included; its pages in
    /// use stay, and follow when they are freed. O(heads), and the blocks on per-CPU lists.
    ///
    /// # Errors
    /// [`BlockTypeError`]; nothing has changed then.
    pub fn set_block_type(&mut self, pfn: Pfn, to: Migratetype) -> Result<(), BlockTypeError> {
        let frame = self.frames.index(pfn).ok_or(BlockTypeError::Unknown(pfn))?;
        let id = self.zone_at(frame).ok_or(BlockTypeError::Unknown(pfn))?;
        let zone = &self.zones[id.index()];
        if zone.surroundings(&self.frames, frame).extent == Extent::Straddles {
            return Err(BlockTypeError::Straddles(pfn));
        }
        self.drain_zone(id);
        let zone = &mut self.zones[id.index()];
        zone.retype_block(&mut self.frames, frame, to, self.policy.relist);
        Ok(())
    }

    /// Returns the type of the pageblock of a frame; `None` outside the map. O(1).
    #[must_use]
    pub fn block_type(&self, pfn: Pfn) -> Option<Migratetype> {
        Some(self.frames.block(self.frames.index(pfn)?).migratetype)
    }

    /// Sets the pageblock of a block that was just taken aside for requests that may not wait: about a hundredth of a
    /// zone at most, and nothing where that is less than a pageblock.
    pub(super) fn reserve_high_atomic(&mut self, id: ZoneId, frame: FrameIndex) {
        let zone = &mut self.zones[id.index()];
        let most = zone.managed.0 / 100;
        let around = zone.surroundings(&self.frames, frame);
        let ordinary = around.migratetype.is_mobility() && around.extent == Extent::Whole;
        if ordinary && most >= BLOCK && zone.reserved_high_atomic < most {
            zone.retype_block(&mut self.frames, frame, Migratetype::HighAtomic, self.policy.relist);
        }
    }

    /// Gives one pageblock of the reserve to requests like this one, which reclaim could not help. Returns true if
    /// there was one with free pages.
    pub(super) fn release_high_atomic(
        &mut self,
        cpu: CpuId,
        request: &PageRequest,
        least: Least,
    ) -> bool {
        let home = self.home(cpu, request).index();
        for index in 0..self.nodes.get(home).map_or(0, |node| node.zonelist.of(request).len()) {
            let id = self.nodes[home].zonelist.of(request)[index];
            let zone = &mut self.zones[id.index()];
            let kept = if least == Least::One { BLOCK } else { 0 };
            if !zone.is_allowed(request) || zone.reserved_high_atomic <= kept {
                continue;
            }
            let lists = &zone.lists;
            let free = |order| lists.first(order, Migratetype::HighAtomic);
            if let Some(frame) = Order::all().find_map(free) {
                let (to, end) = (request.migratetype, self.policy.relist);
                zone.retype_block(&mut self.frames, frame, to, end);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::FragmentationPolicy;
    use super::super::testing::{cpu, free_blocks, free_pages, full_zone, take, take_under, zone};
    use super::super::walk::AllocFlags;
    use super::*;
    use crate::check::Check;
    use Migratetype::{HighAtomic, Isolate, Movable, Unmovable};
    use alloc::vec::Vec;

    const STRICT: FragmentationPolicy = FragmentationPolicy::LINUX_6_12;
    const ATOMIC: u16 = AllocFlags::HIGH_ATOMIC;

    fn reserved(pages: &PageAllocator) -> u64 {
        pages.zones[0].reserved_high_atomic / BLOCK
    }

    /// Takes order-1 blocks for requests that may not wait.
    fn take_atomic(pages: &mut PageAllocator, count: u64) {
        for _ in 0..count {
            take_under(pages, 1, Unmovable, ATOMIC).expect("there is enough");
        }
        pages.check().expect("the laws hold");
    }

    #[test]
    fn a_request_that_may_not_wait_sets_its_pageblock_aside_and_is_served_from_it() {
        let mut pages = zone(128, STRICT);
        take_atomic(&mut pages, 1);
        assert_eq!((reserved(&pages), pages.free_pages(ZoneId(0), HighAtomic).0), (1, 510));
        take_atomic(&mut pages, 255);
        assert_eq!((reserved(&pages), pages.free_pages(ZoneId(0), HighAtomic).0), (1, 0));
        take_atomic(&mut pages, 1);
        assert_eq!(reserved(&pages), 2);
    }

    #[test]
    fn about_a_hundredth_is_set_aside_and_nothing_in_small_zones() {
        let most = |blocks| {
            let mut pages = zone(blocks, STRICT);
            take_atomic(&mut pages, blocks * 200);
            reserved(&pages)
        };
        assert_eq!([64, 99, 100, 128, 256].map(most), [0, 0, 1, 2, 3]);
    }

    #[test]
    fn single_pages_and_requests_that_may_wait_set_nothing_aside() {
        let mut pages = zone(128, STRICT);
        take_under(&mut pages, 0, Unmovable, ATOMIC).expect("all is free");
        // Of an order that no list of a CPU holds.
        take_under(&mut pages, 5, Unmovable, 0).expect("most is free");
        assert_eq!(reserved(&pages), 0);
    }

    #[test]
    fn where_nothing_else_is_left_the_reserve_helps_who_would_kill() {
        let mut pages = zone(128, STRICT);
        take_atomic(&mut pages, 1);
        for order in (0..=10).rev() {
            while take_under(&mut pages, order, Unmovable, 0).is_some() {}
        }
        pages.drain_all();
        assert_eq!(pages.free_pages(ZoneId(0), HighAtomic).0, 510);
        assert_eq!(take_under(&mut pages, 5, Unmovable, 0), None);
        assert!(take_under(&mut pages, 5, Unmovable, AllocFlags::OOM).is_some());
        assert_eq!(pages.free_pages(ZoneId(0), HighAtomic).0, 510 - 32);
    }

    #[test]
    fn pageblocks_of_the_reserve_are_released_one_by_one() {
        let mut pages = zone(256, STRICT);
        take_atomic(&mut pages, 3 * 256);
        let request = PageRequest::new(Order::ZERO, Movable);
        let release =
            |pages: &mut PageAllocator, least| pages.release_high_atomic(cpu(), &request, least);
        assert!(!release(&mut pages, Least::None), "nothing in it is free");
        let blocks = pages.pageblocks().filter(|block| block.migratetype == HighAtomic);
        let starts: Vec<Pfn> = blocks.map(|block| block.frames.start).collect();
        for start in starts {
            pages.free(cpu(), start).expect("it is in use");
        }
        pages.drain_all();
        assert!(release(&mut pages, Least::One) && release(&mut pages, Least::One));
        assert!(!release(&mut pages, Least::One) && release(&mut pages, Least::None));
        assert_eq!((reserved(&pages), pages.free_pages(ZoneId(0), HighAtomic).0), (0, 0));
        pages.check().expect("the laws hold");
    }

    /// A regression that `cargo xtask campaign` found (part `pages`, seed 2293159661281113). Under loose lists a page
    /// on a per-CPU list keeps the type that its pageblock had when it was freed: it completes a pageblock that has
    /// changed hands meanwhile, and joins no ordinary buddy, nor did it in kernels.
    #[test]
    fn what_a_page_remembers_keeps_buddies_apart() {
        let mut pages = full_zone(256, FragmentationPolicy::LINUX_6_1);
        pages.set_block_type(Pfn(0), HighAtomic).expect("it is whole");
        free_pages(&mut pages, 1..1024);
        pages.free(cpu(), Pfn(0)).expect("it is in use");
        let request = PageRequest::new(Order::ZERO, Movable);
        assert!(pages.release_high_atomic(cpu(), &request, Least::None));
        assert_eq!(pages.block_type(Pfn(0)), Some(Movable));
        pages.drain_all();
        assert_eq!(free_blocks(&pages), "0H9 512M9");
        pages.check().expect("the laws hold");
    }

    #[test]
    fn what_is_free_goes_with_its_pageblock_and_comes_back() {
        let mut pages = full_zone(4, STRICT);
        free_pages(&mut pages, (0..1024).chain([1024, 1030]));
        pages.set_block_type(Pfn(600), Isolate).expect("it is whole");
        assert_eq!(free_blocks(&pages), "0M9 512I9 1024M0 1030M0");
        assert_eq!(pages.zones().next().map(|zone| zone.free.0), Some(514));
        assert_eq!(pages.block_type(Pfn(1023)), Some(Isolate));
        assert_eq!(take(&mut pages, 9, Movable), Some(Pfn(0)));
        assert_eq!(take(&mut pages, 9, Movable), None, "nobody has isolated memory");
        pages.free(cpu(), Pfn(0)).expect("it is in use");
        pages.drain_all();
        pages.set_block_type(Pfn(600), Movable).expect("it is whole");
        assert_eq!(free_blocks(&pages), "0M10 1024M0 1030M0");
        pages.check().expect("the laws hold");
    }
}
