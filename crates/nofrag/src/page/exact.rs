//! One particular block, and many at once.

use core::fmt;

use super::allocator::{FreeError, PageAllocator};
use super::event::PageEvent;
use super::frames::{FrameIndex, Kind, Tag, buddy};
use super::policy::Relist;
use super::request::PageRequest;
use super::walk::Walk;
use crate::cpu::CpuId;
use crate::event::{Event, EventSink};
use crate::units::{Nanos, Order, Pfn};

/// Why a particular block cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocAtError {
    /// No memory of the map begins there.
    Unknown(Pfn),
    /// The frame is no multiple of the block's size.
    Misaligned(Pfn),
    /// Not all of it is free.
    InUse(Pfn),
}

impl fmt::Display for AllocAtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocAtError::Unknown(pfn) => write!(f, "frame {pfn} is not managed"),
            AllocAtError::Misaligned(pfn) => write!(f, "no block of this order begins at {pfn}"),
            AllocAtError::InUse(pfn) => write!(f, "the block at frame {pfn} is not all free"),
        }
    }
}

impl core::error::Error for AllocAtError {}

/// Why a list of blocks was not given back to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBulkError {
    /// How many blocks were given back: those before the one that was refused.
    pub freed: usize,
    /// What was the matter with that one.
    pub error: FreeError,
}

impl fmt::Display for FreeBulkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} of the list: {}", self.freed, self.error)
    }
}

impl core::error::Error for FreeBulkError {}

impl<E: EventSink> PageAllocator<E> {
    /// Takes the block of `order` that begins at `pfn`, whatever watermarks and types say. If a part of it is on
    /// per-CPU lists, those of its zone are drained. O(orders), and the blocks that are drained.
    ///
    /// It counts as allocated by requests of its pageblock's type.
    ///
    /// # Errors
    /// [`AllocAtError`]; nothing is taken then.
    pub fn alloc_at(&mut self, _cpu: CpuId, pfn: Pfn, order: Order) -> Result<(), AllocAtError> {
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

    /// The free block to which all of the block at `frame` belongs.
    fn free_block_over(&self, frame: FrameIndex, order: Order) -> Option<(FrameIndex, Order)> {
        order.and_larger().find_map(|order| {
            let head = frame & !(order.pages() as FrameIndex - 1);
            (self.frames.tag(head) == Tag::new(Kind::Free, order)).then_some((head, order))
        })
    }

    /// Takes the free block at `head` off its list and cuts the block at `frame` out of it.
    fn cut_at(&mut self, head: FrameIndex, found: Order, frame: FrameIndex, order: Order) {
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

    /// Takes blocks for as many equal requests as `out` has room for, as [`alloc`](Self::alloc) does, and says how many
    /// it got: those stand at the front. It ends with the first request for which the slow path would be needed, and
    /// does not begin that.
    pub fn alloc_bulk(
        &mut self,
        _now: Nanos,
        cpu: CpuId,
        request: PageRequest,
        out: &mut [Pfn],
    ) -> usize {
        let flags = self.fast_flags(cpu, &request);
        for (count, place) in out.iter_mut().enumerate() {
            let Walk::Page(pfn) = self.walk(cpu, &request, flags) else { return count };
            self.handed_out(pfn, &request);
            *place = pfn;
        }
        out.len()
    }

    /// Gives blocks back, in order, up to the first that is refused.
    ///
    /// # Errors
    /// [`FreeBulkError`] says how many were given back, and what was the matter with the next.
    pub fn free_bulk(&mut self, cpu: CpuId, blocks: &[Pfn]) -> Result<(), FreeBulkError> {
        for (freed, &pfn) in blocks.iter().enumerate() {
            self.free(cpu, pfn).map_err(|error| FreeBulkError { freed, error })?;
        }
        Ok(())
    }
}
