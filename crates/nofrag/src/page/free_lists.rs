//! The free lists of a zone: by order and type, doubly linked through the frames.

use alloc::collections::TryReserveError;

use super::fallback::Supply;
use super::frames::{FrameIndex, Frames, Kind, NONE, Tag};
use super::fullness::Fullness;
use super::migratetype::Migratetype;
use super::policy::Relist;
use crate::units::Order;

/// Free blocks of one kind, doubly linked through the frames where they begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: FrameIndex,
    tail: FrameIndex,
    len: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the block that is taken first.
    pub(super) fn first(&self) -> Option<FrameIndex> {
        (self.head != NONE).then_some(self.head)
    }

    /// Returns the block that has waited longest, if all came to the head.
    pub(super) fn last(&self) -> Option<FrameIndex> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// Puts a block that is on no list at an end.
    pub(super) fn push(&mut self, frames: &mut Frames, frame: FrameIndex, end: Relist) {
        self.len += 1;
        let (links, next) = match end {
            Relist::Head => ([NONE, self.head], &mut self.head),
            Relist::Tail => ([self.tail, NONE], &mut self.tail),
        };
        let neighbour = core::mem::replace(next, frame);
        *frames.links_mut(frame) = links;
        match (neighbour, end) {
            (NONE, Relist::Head) => self.tail = frame,
            (NONE, Relist::Tail) => self.head = frame,
            (_, Relist::Head) => frames.links_mut(neighbour)[0] = frame,
            (_, Relist::Tail) => frames.links_mut(neighbour)[1] = frame,
        }
    }

    /// Puts `new`, which is on no list, in the place of `old`.
    pub(super) fn replace(&mut self, frames: &mut Frames, old: FrameIndex, new: FrameIndex) {
        let links @ [before, behind] = frames.links(old);
        *frames.links_mut(new) = links;
        match before {
            NONE => self.head = new,
            _ => frames.links_mut(before)[1] = new,
        }
        match behind {
            NONE => self.tail = new,
            _ => frames.links_mut(behind)[0] = new,
        }
    }

    /// Puts the entries up to `seen` (if `inclusive`), or those before it, behind all others.
    pub(super) fn turn(&mut self, frames: &mut Frames, seen: FrameIndex, inclusive: bool) {
        let [before, behind] = frames.links(seen);
        let (end, begin) = if inclusive { (seen, behind) } else { (before, seen) };
        if end == NONE || begin == NONE {
            return;
        }
        frames.links_mut(self.tail)[1] = self.head;
        frames.links_mut(self.head)[0] = self.tail;
        frames.links_mut(end)[1] = NONE;
        frames.links_mut(begin)[0] = NONE;
        (self.head, self.tail) = (begin, end);
    }

    /// Takes a block off the list.
    pub(super) fn unlink(&mut self, frames: &mut Frames, frame: FrameIndex) {
        self.len -= 1;
        let [before, behind] = frames.links(frame);
        if before == NONE {
            self.head = behind;
        } else {
            frames.links_mut(before)[1] = behind;
        }
        if behind == NONE {
            self.tail = before;
        } else {
            frames.links_mut(behind)[0] = before;
        }
    }
}

/// Free blocks by order and type.
#[derive(Debug)]
pub(super) struct FreeLists {
    lists: [[List; Migratetype::COUNT]; Order::COUNT],
    /// Free pages on the lists of each type.
    pages: [u64; Migratetype::COUNT],
    /// Free pages that requests can have: all but isolated ones.
    available: u64,
    /// Set of the lists that are not empty.
    supply: Supply,
    /// Index of pageblocks by fullness, where the policy chooses by it.
    fullness: Option<Fullness>,
}

impl FreeLists {
    pub(super) const fn new() -> FreeLists {
        FreeLists {
            lists: [[List::EMPTY; Migratetype::COUNT]; Order::COUNT],
            pages: [0; Migratetype::COUNT],
            available: 0,
            supply: Supply([0; Migratetype::COUNT]),
            fullness: None,
        }
    }

    /// Chooses by fullness from now on. Nothing may be listed yet; all blocks to come lie from `start` to before `end`.
    pub(super) fn choose_by_fullness(
        &mut self,
        start: FrameIndex,
        end: FrameIndex,
    ) -> Result<(), TryReserveError> {
        debug_assert_eq!(self.total(), 0, "an index begins with its lists");
        self.fullness = Some(Fullness::new(start, end)?);
        Ok(())
    }

    /// Returns the bytes of metadata on the heap.
    pub(super) fn metadata_bytes(&self) -> usize {
        self.fullness.as_ref().map_or(0, Fullness::metadata_bytes)
    }

    /// Returns the free block that a request of `least` takes from the type's lists: of the smallest order that fits
    /// the first of its list, or, by fullness, the smallest in the fullest pageblock that is not whole.
    pub(super) fn choose(
        &self,
        frames: &Frames,
        least: Order,
        migratetype: Migratetype,
    ) -> Option<FrameIndex> {
        let by_fullness = |index: &Fullness| index.choose(frames, least, migratetype);
        self.fullness.as_ref().and_then(by_fullness).or_else(|| {
            let order = self.smallest(migratetype, least)?;
            self.first(order, migratetype)
        })
    }

    /// Returns the emptiest pageblock with free pages of the type that `suits`; `None` also where the policy keeps no
    /// account of fullness.
    pub(super) fn emptiest(
        &self,
        migratetype: Migratetype,
        suits: impl Fn(FrameIndex) -> bool,
    ) -> Option<FrameIndex> {
        self.fullness.as_ref()?.emptiest(migratetype, suits)
    }

    /// Returns the smallest free block of `order` or larger in the fullest pageblock that is neither whole nor that of
    /// `spared`; `None` also where the policy keeps no account of fullness.
    pub(super) fn choose_beside(
        &self,
        frames: &Frames,
        order: Order,
        migratetype: Migratetype,
        spared: FrameIndex,
    ) -> Option<FrameIndex> {
        self.fullness.as_ref()?.choose_beside(frames, order, migratetype, spared)
    }

    /// Returns true if pageblocks are chosen by fullness.
    pub(super) fn by_fullness(&self) -> bool {
        self.fullness.is_some()
    }

    /// Returns the pages on all lists but those of isolated blocks, which nobody can have.
    pub(super) fn total(&self) -> u64 {
        self.available
    }

    /// Returns the set of lists that are not empty.
    pub(super) fn supply(&self) -> Supply {
        self.supply
    }

    /// Returns the pages on the lists of a type.
    pub(super) fn pages(&self, migratetype: Migratetype) -> u64 {
        self.pages[migratetype.index()]
    }

    /// Returns the number of blocks on one list.
    pub(super) fn len(&self, order: Order, migratetype: Migratetype) -> u64 {
        u64::from(self.lists[order.index()][migratetype.index()].len)
    }

    /// Returns the number of blocks of an order on the lists of all types.
    pub(super) fn blocks(&self, order: Order) -> u64 {
        self.lists[order.index()].iter().map(|list| u64::from(list.len)).sum()
    }

    pub(super) fn list(&self, order: Order, migratetype: Migratetype) -> &List {
        &self.lists[order.index()][migratetype.index()]
    }

    /// Returns one list, to change the order of its entries.
    pub(super) fn list_mut(&mut self, order: Order, migratetype: Migratetype) -> &mut List {
        &mut self.lists[order.index()][migratetype.index()]
    }

    /// Returns true if any type has a free block of this order.
    pub(super) fn has(&self, order: Order) -> bool {
        self.lists[order.index()].iter().any(|list| !list.is_empty())
    }

    /// Returns the first block of a list.
    pub(super) fn first(&self, order: Order, migratetype: Migratetype) -> Option<FrameIndex> {
        self.lists[order.index()][migratetype.index()].first()
    }

    /// Returns the orders from `least` up of which the type has a free block, as a set of bits.
    pub(super) fn orders(&self, migratetype: Migratetype, least: Order) -> u16 {
        self.supply.0[migratetype.index()] & (u16::MAX << least.get())
    }

    /// Returns the smallest order from `least` up of which the type has a free block.
    pub(super) fn smallest(&self, migratetype: Migratetype, least: Order) -> Option<Order> {
        Order::new(self.orders(migratetype, least).trailing_zeros() as u8)
    }

    /// Puts the block at `frame` on a list and tags it free.
    pub(super) fn insert(
        &mut self,
        frames: &mut Frames,
        frame: FrameIndex,
        order: Order,
        migratetype: Migratetype,
        end: Relist,
    ) {
        frames.set_tag(frame, Tag::new(Kind::Free, order));
        frames.set_listed(frame, migratetype);
        frames.count_free(frame, order);
        self.pages[migratetype.index()] += order.pages();
        if let Some(fullness) = &mut self.fullness {
            fullness.listed(frame, order, migratetype);
        }
        if migratetype != Migratetype::Isolate {
            self.available += order.pages();
        }
        self.supply.0[migratetype.index()] |= 1 << order.get();
        self.lists[order.index()][migratetype.index()].push(frames, frame, end);
    }

    /// Takes the free block at `frame` off its list; returns its order and the type of the list. The caller changes its
    /// tag.
    pub(super) fn remove(
        &mut self,
        frames: &mut Frames,
        frame: FrameIndex,
    ) -> (Order, Migratetype) {
        let order = frames.tag(frame).order();
        let migratetype = frames.listed(frame);
        debug_assert_eq!(frames.tag(frame).kind(), Kind::Free, "only free blocks are listed");
        frames.uncount_free(frame, order);
        self.pages[migratetype.index()] -= order.pages();
        if let Some(fullness) = &mut self.fullness {
            fullness.unlisted(frame, order, migratetype);
        }
        if migratetype != Migratetype::Isolate {
            self.available -= order.pages();
        }
        let list = &mut self.lists[order.index()][migratetype.index()];
        list.unlink(frames, frame);
        if list.is_empty() {
            self.supply.0[migratetype.index()] &= !(1 << order.get());
        }
        (order, migratetype)
    }

    /// Puts the block at `new`, which is on no list, in the place of the free block at `old`, whose tag is then the
    /// caller's to change.
    pub(super) fn replace(&mut self, frames: &mut Frames, old: FrameIndex, new: FrameIndex) {
        let (order, migratetype) = (frames.tag(old).order(), frames.listed(old));
        frames.uncount_free(old, order);
        frames.count_free(new, order);
        if let Some(fullness) = &mut self.fullness {
            fullness.unlisted(old, order, migratetype);
            fullness.listed(new, order, migratetype);
        }
        frames.set_tag(new, Tag::new(Kind::Free, order));
        frames.set_listed(new, migratetype);
        self.lists[order.index()][migratetype.index()].replace(frames, old, new);
    }

    /// Puts a free block on another list of its order.
    pub(super) fn relist(
        &mut self,
        frames: &mut Frames,
        frame: FrameIndex,
        migratetype: Migratetype,
        end: Relist,
    ) {
        let (order, _) = self.remove(frames, frame);
        self.insert(frames, frame, order, migratetype, end);
    }
}
