//! Taking one particular block, and many blocks at once.

use super::allocator::{FreeError, PageAllocator};
use super::event::PageEvent;
use super::frames::{FrameIndex, Kind, Tag, buddy};
use super::policy::Relist;
use super::request::PageRequest;
use super::walk::Walk;
use crate::cpu::CpuId;
use crate::errors::errors;
use crate::event::{Event, EventSink};
use crate::units::{Nanos, Order, Pfn};

errors! {
    /// Error of taking a particular block.
    #[non_exhaustive]
    pub enum AllocAtError {
        /// No memory of the map begins there.
        Unknown(pfn: Pfn) => "frame {pfn} is not managed",
        /// The frame is no multiple of the block's size.
        Misaligned(pfn: Pfn) => "no block of this order begins at {pfn}",
        /// Not all of the block is free.
        InUse(pfn: Pfn) => "the block at frame {pfn} is not all free",
    }
}

/// Error of freeing a list of blocks that was not freed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBulkError {
    /// Number of blocks freed: those before the one that was refused.
    pub freed: usize,
    /// Error of the block that was refused.
    pub error: FreeError,
}

errors!(FreeBulkError { freed, error } => "block {freed} of the list: {error}");

impl<E: EventSink> PageAllocator<E> {
    /// Takes the block of `order` that begins at `pfn`, whatever watermarks and types say. If a part of it is on
    /// per-CPU lists, those of its zone are drained. O(orders), and the blocks that are drained.
    ///
    /// The block counts as allocated by a request of its pageblock's type.
    ///
    /// # Errors
    /// [`AllocAtError`]; nothing is taken then.
    pub fn alloc_at(&mut self, pfn: Pfn, order: Order) -> Result<(), AllocAtError> {
        let frame = self.frames.index(pfn).ok_or(AllocAtError::Unknown(pfn))?;
        if !pfn.0.is_multiple_of(order.pages()) {
            return Err(AllocAtError::Misaligned(pfn));
        }
        let id = self.zone_at(frame).ok_or(AllocAtError::Unknown(pfn))?;
        if self.frames.tag(frame).kind() == Kind::Absent {
            return Err(AllocAtError::Unknown(pfn));
        }
        let covering = match self.free_block_over(frame, order) {
            None => {
                self.drain_zone(id);
                self.free_block_over(frame, order)
            }
            found => found,
        };
        let (head, found) = covering.ok_or(AllocAtError::InUse(pfn))?;
        self.cut_at(head, found, frame, order);
        let migratetype = self.frames.block(frame).migratetype;
        self.counters.allocations[migratetype.index()] += 1;
        self.events.record(Event::Page(PageEvent::Allocated { pfn, order, migratetype }));
        Ok(())
    }

    /// Returns the first frame and order of the free block to which all of the block of `order` at `frame` belongs;
    /// `None` if not all of it is free.
    pub(super) fn free_block_over(
        &self,
        frame: FrameIndex,
        order: Order,
    ) -> Option<(FrameIndex, Order)> {
        order.and_larger().find_map(|order| {
            let head = frame & !(order.pages() as FrameIndex - 1);
            (self.frames.tag(head) == Tag::new(Kind::Free, order)).then_some((head, order))
        })
    }

    /// Takes the free block of order `found` at `head` off its list, cuts the block of `order` at `frame` out of it,
    /// and lists the rest.
    pub(super) fn cut_at(
        &mut self,
        head: FrameIndex,
        found: Order,
        frame: FrameIndex,
        order: Order,
    ) {
        let id = self.zone_of(head);
        let zone = &mut self.zones[id.index()];
        let (_, listed) = zone.lists.remove(&mut self.frames, head);
        self.frames.set_tag(head, Tag::INSIDE);
        let mut half = found;
        while half > order {
            half = half.smaller().expect("it is larger than another");
            let ours = frame & !(half.pages() as FrameIndex - 1);
            let other = buddy(ours, half);
            zone.lists.insert(&mut self.frames, other, half, listed, Relist::Head);
        }
        self.frames.set_tag(frame, Tag::new(Kind::Used, order));
    }

    /// Splits the block in use at `pfn` into blocks of `to`: each is given back on its own from then on (`split_page`).
    /// O(blocks).
    ///
    /// # Errors
    /// [`FreeError`] when no block in use begins there, [`FreeError::DoubleFree`] for one that is being moved. Nothing
    /// changes if the block is not larger than `to`.
    pub fn split(&mut self, pfn: Pfn, to: Order) -> Result<(), FreeError> {
        let (frame, tag) = self.in_use(pfn)?;
        if tag.kind() != Kind::Used {
            return Err(FreeError::DoubleFree(pfn));
        }
        let end = frame + tag.order().pages() as FrameIndex;
        if tag.order() > to {
            let part = Tag::new(Kind::Used, to).with_movable(tag.is_movable());
            for head in (frame..end).step_by(to.pages() as usize) {
                self.frames.set_tag(head, part);
            }
        }
        Ok(())
    }

    /// Takes blocks for as many equal requests as `out` has room for, as [`alloc`](Self::alloc) does, and returns the
    /// number taken: these stand at the front of `out`. The call ends before the first request that would need the slow
    /// path.
    pub fn alloc_bulk(
        &mut self,
        _now: Nanos,
        cpu: CpuId,
        request: PageRequest,
        out: &mut [Pfn],
    ) -> usize {
        let flags = self.fast_flags(cpu, &request);
        for (count, place) in out.iter_mut().enumerate() {
            let Walk::Block(frame) = self.walk(cpu, &request, flags) else { return count };
            *place = self.handed_out(frame, &request);
        }
        out.len()
    }

    /// Gives blocks back, in order, up to the first that is refused.
    ///
    /// # Errors
    /// [`FreeBulkError`] with the number of blocks given back, and the error of the next.
    pub fn free_bulk(&mut self, cpu: CpuId, blocks: &[Pfn]) -> Result<(), FreeBulkError> {
        for (freed, &pfn) in blocks.iter().enumerate() {
            self.free(cpu, pfn).map_err(|error| FreeBulkError { freed, error })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::inspect::FrameState;
    use super::super::policy::FragmentationPolicy;
    use super::super::testing::{cpu, free_blocks, free_pages, full_zone, order, take, zone};
    use super::*;
    use crate::check::Check;
    use crate::page::Migratetype::Movable;

    const POLICY: FragmentationPolicy = FragmentationPolicy::LINUX_7_2;

    #[test]
    fn one_block_is_cut_out_of_a_larger_one() {
        let mut pages = zone(2, POLICY);
        assert_eq!(pages.alloc_at(Pfn(12), order(2)), Ok(()));
        assert_eq!(free_blocks(&pages), "0M3 8M2 16M4 32M5 64M6 128M7 256M8 512M9");
        assert_eq!(pages.alloc_at(Pfn(8), order(3)), Err(AllocAtError::InUse(Pfn(8))));
        assert_eq!(pages.alloc_at(Pfn(10), order(2)), Err(AllocAtError::Misaligned(Pfn(10))));
        let beyond = Pfn(1024);
        assert_eq!(pages.alloc_at(beyond, order(0)), Err(AllocAtError::Unknown(beyond)));
        assert_eq!(pages.free(cpu(), Pfn(12)), Ok(()));
        pages.drain_all();
        assert_eq!(free_blocks(&pages), "0M10");
    }

    #[test]
    fn a_page_on_a_per_cpu_list_is_found() {
        let mut pages = full_zone(2, POLICY);
        for frame in [7, 9] {
            pages.free(cpu(), Pfn(frame)).expect("it is in use");
        }
        assert_eq!(free_blocks(&pages), "", "the CPU keeps them");
        assert_eq!(pages.alloc_at(Pfn(7), Order::ZERO), Ok(()));
        assert_eq!(free_blocks(&pages), "9M0");
    }

    #[test]
    fn what_cannot_be_freed_is_said() {
        let mut pages = full_zone(2, POLICY);
        free_pages(&mut pages, 512..768);
        take(&mut pages, 3, Movable).expect("there is room");
        let (head, free) = (Pfn(512), Pfn(700));
        let mut check = |pfn, result| assert_eq!(pages.free(cpu(), pfn), result, "{pfn}");
        check(Pfn(517), Err(FreeError::NotAHead { head }));
        check(free, Err(FreeError::DoubleFree(free)));
        check(Pfn(1024), Err(FreeError::Unknown(Pfn(1024))));
        check(Pfn(1), Ok(()));
        check(Pfn(1), Err(FreeError::DoubleFree(Pfn(1))));
        check(head, Ok(()));
        check(head, Err(FreeError::DoubleFree(head)));
        assert_eq!(pages.counters().frees, 256 + 2);
    }

    #[test]
    fn a_block_in_use_is_split() {
        let mut pages = zone(2, POLICY);
        let pfn = take(&mut pages, 3, Movable).expect("there is room");
        pages.set_movable(pfn, true).expect("it is in use");
        assert_eq!(pages.split(pfn, order(1)), Ok(()));
        let heads = [0, 2, 4, 6].map(|at| pages.frame(Pfn(pfn.0 + at + 1)));
        let parts = [0, 2, 4, 6].map(|at| Some((FrameState::Movable, Pfn(pfn.0 + at), order(1))));
        assert_eq!(heads, parts);
        assert_eq!(pages.split(pfn, order(2)), Ok(()), "it is smaller already");
        assert_eq!(pages.check(), Ok(()));
        for at in [4, 0, 6, 2] {
            assert_eq!(pages.free(cpu(), Pfn(pfn.0 + at)), Ok(()));
        }
        pages.drain_all();
        assert_eq!(free_blocks(&pages), "0M10");
        assert_eq!(pages.split(pfn, Order::ZERO), Err(FreeError::DoubleFree(pfn)));
    }

    #[test]
    fn a_block_on_its_way_is_freed_once() {
        let mut pages = full_zone(2, POLICY);
        pages.set_movable(Pfn(3), true).expect("it is in use");
        let tag = pages.frames.tag(3);
        pages
            .frames
            .set_tag(3, Tag::new(Kind::Leaving, Order::ZERO).with_movable(tag.is_movable()));
        assert_eq!(pages.free(cpu(), Pfn(3)), Ok(()));
        assert_eq!(pages.frames.tag(3).kind(), Kind::Left, "whoever moves it ends it");
        assert_eq!(pages.free(cpu(), Pfn(3)), Err(FreeError::DoubleFree(Pfn(3))));
    }

    #[test]
    fn bulks_end_where_the_slow_path_would_begin() {
        let mut pages = zone(1, POLICY);
        let (request, mut out) = (PageRequest::user(order(3)), [Pfn(0); 70]);
        let got = pages.alloc_bulk(Nanos(0), cpu(), request, &mut out);
        assert!((1..=64).contains(&got), "{got}");
        out[got - 1] = out[0];
        let error = FreeError::DoubleFree(out[0]);
        let refused = Err(FreeBulkError { freed: got - 1, error });
        assert_eq!(pages.free_bulk(cpu(), &out[..got]), refused);
    }
}
