//! An index of pageblocks by how full they are, for [`Choice::FullestBlock`](super::Choice::FullestBlock).
//!
//! An allocator that always takes from the fullest block that can serve the request lets the others empty: pages freed
//! in them are not taken again, and after a while they are whole. Linux takes the block that was freed last, wherever
//! it lies; so does every allocator whose free lists are stacks, and its pageblocks stay as mixed as chance makes them.
//!
//! The index has an entry for each pageblock and type: the free blocks below a pageblock that lie in it and are on the
//! type's lists, counted by order. Entries that have any hang in rings, one for each type, largest order and
//! sixty-fourth of fullness; a word per type and largest order tells which rings are not empty. A request looks at one
//! word for each order from its own up, takes the first bit of all, and finds the block by a look through the
//! pageblock's tags. Keeping the index up costs O(1) for each block that is listed or unlisted, and nothing where no
//! policy asks for it.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::ops::Range;

use super::frames::{FrameIndex, Frames, Kind, Tag};
use super::migratetype::Migratetype;
use crate::lists::filled;
use crate::units::Order;

/// Number of orders below a pageblock.
const ORDERS: usize = Order::PAGEBLOCK.index();

/// Number of steps of fullness, one for each bit of a word.
const STEPS: usize = u64::BITS as usize;

/// Pages in one step of fullness.
const STEP_PAGES: u16 = (Order::PAGEBLOCK.pages() / STEPS as u64) as u16;

/// Number that stands for no entry and no ring.
const NONE: u32 = u32::MAX;

/// The free blocks of a type in a pageblock.
///
/// Always true:
/// 1. `orders` has the bits of the counts that are not 0; `pages` is their sum, each times the pages of its order.
/// 2. An entry with pages hangs in the ring of its type, largest order and fullness; one without hangs nowhere.
#[derive(Clone, Copy, Debug)]
struct Entry {
    counts: [u16; ORDERS],
    /// A bit per order with a count.
    orders: u16,
    pages: u16,
    ring: u32,
    before: u32,
    behind: u32,
}

impl Entry {
    const EMPTY: Entry =
        Entry { counts: [0; ORDERS], orders: 0, pages: 0, ring: NONE, before: NONE, behind: NONE };

    fn add(&mut self, order: Order) {
        self.counts[order.index()] += 1;
        self.orders |= 1 << order.get();
        self.pages += order.pages() as u16;
    }

    fn take(&mut self, order: Order) {
        self.counts[order.index()] -= 1;
        if self.counts[order.index()] == 0 {
            self.orders &= !(1 << order.get());
        }
        self.pages -= order.pages() as u16;
    }

    /// Returns the smallest order from `least` up of which there is a free block.
    fn smallest(&self, least: Order) -> Option<Order> {
        Order::new((self.orders & u16::MAX << least.get()).trailing_zeros() as u8)
    }

    /// Returns the largest order of which there is a free block.
    fn largest(&self) -> Option<usize> {
        self.orders.checked_ilog2().map(|order| order as usize)
    }
}

/// Free blocks below a pageblock, by the pageblock that they lie in.
#[derive(Debug, Default)]
pub(super) struct Fullness {
    /// The zone's frames. It may share its first and last pageblock with others.
    frames: Range<FrameIndex>,
    /// The pageblock of the first entries.
    first: usize,
    /// Entries by pageblock, then by type.
    entries: Vec<Entry>,
    /// The first entry of each ring: by type, largest order and fullness.
    rings: Vec<u32>,
    /// For each type and largest order a bit per step of fullness whose ring is not empty.
    steps: [[u64; ORDERS]; Migratetype::COUNT],
}

impl Fullness {
    /// Makes an empty index of the frames from `start` to before `end`.
    pub(super) fn new(start: FrameIndex, end: FrameIndex) -> Result<Fullness, TryReserveError> {
        let first = start >> Order::PAGEBLOCK.get();
        let blocks = end.div_ceil(Order::PAGEBLOCK.pages() as u32).saturating_sub(first) as usize;
        let mut fullness =
            Fullness { frames: start..end, first: first as usize, ..Fullness::default() };
        fullness.entries = filled(blocks * Migratetype::COUNT, Entry::EMPTY)?;
        fullness.rings = filled(Migratetype::COUNT * ORDERS * STEPS, NONE)?;
        Ok(fullness)
    }

    /// Returns the bytes of metadata on the heap.
    pub(super) fn metadata_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.rings.capacity() * size_of::<u32>()
    }

    /// Records a block that was put on a list of `migratetype`.
    pub(super) fn listed(&mut self, frame: FrameIndex, order: Order, migratetype: Migratetype) {
        if order < Order::PAGEBLOCK {
            let entry = self.entry(frame, migratetype);
            self.entries[entry].add(order);
            self.settle(entry as u32, migratetype);
        }
    }

    /// Records a block that was taken off a list of `migratetype`.
    pub(super) fn unlisted(&mut self, frame: FrameIndex, order: Order, migratetype: Migratetype) {
        if order < Order::PAGEBLOCK {
            let entry = self.entry(frame, migratetype);
            self.entries[entry].take(order);
            self.settle(entry as u32, migratetype);
        }
    }

    /// Returns a free block of `order` or larger on the lists of `migratetype`, in the fullest pageblock that has one,
    /// and there the smallest; `None` if only whole pageblocks could serve. O(orders), and a look through the
    /// pageblock.
    pub(super) fn choose(
        &self,
        frames: &Frames,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<FrameIndex> {
        let steps = &self.steps[migratetype.index()];
        let fullest = |largest: &usize| (steps[*largest].trailing_zeros(), *largest);
        let (step, largest) = (order.index()..ORDERS).map(|largest| fullest(&largest)).min()?;
        let ring = ring(migratetype, largest, step as usize);
        let entry = (steps[largest] != 0).then(|| self.rings[ring as usize] as usize)?;
        self.smallest(frames, entry, order, migratetype)
    }

    /// Returns the same block as [`choose`](Self::choose), but none in the pageblock of `spared`, which is being
    /// emptied.
    pub(super) fn choose_beside(
        &self,
        frames: &Frames,
        order: Order,
        migratetype: Migratetype,
        spared: FrameIndex,
    ) -> Option<FrameIndex> {
        let steps = &self.steps[migratetype.index()];
        let any = steps[order.index().min(ORDERS)..].iter().fold(0, |any, steps| any | steps);
        let fullest = (0..STEPS).filter(|step| any >> step & 1 == 1).flat_map(|step| {
            let rings = (order.index()..ORDERS).filter(move |&at| steps[at] >> step & 1 == 1);
            rings.flat_map(move |largest| self.hanging(ring(migratetype, largest, step)))
        });
        let spared = self.entry(spared, migratetype);
        let entry = { fullest }.find(|&entry| entry != spared)?;
        self.smallest(frames, entry, order, migratetype)
    }

    /// Returns the smallest free block of `order` or larger that an entry counts.
    fn smallest(
        &self,
        frames: &Frames,
        entry: usize,
        order: Order,
        migratetype: Migratetype,
    ) -> Option<FrameIndex> {
        let smallest = self.entries[entry].smallest(order)?;
        let block = self.first + entry / Migratetype::COUNT;
        let start = (block << Order::PAGEBLOCK.get()) as FrameIndex;
        let end = start + Order::PAGEBLOCK.pages() as FrameIndex;
        let ours = start.max(self.frames.start)..end.min(self.frames.end);
        find(frames, ours, smallest, migratetype)
    }

    /// Returns the first frame of the emptiest pageblock with free pages of `migratetype` that `suits`. At most 64
    /// pageblocks are asked, and none that is all free.
    pub(super) fn emptiest(
        &self,
        migratetype: Migratetype,
        suits: impl Fn(FrameIndex) -> bool,
    ) -> Option<FrameIndex> {
        /// Number of pageblocks that are asked.
        const LOOKS: usize = 64;
        let steps = &self.steps[migratetype.index()];
        let hanging = (0..STEPS).rev().flat_map(|step| {
            let rings = (0..ORDERS).filter(move |&largest| steps[largest] >> step & 1 == 1);
            rings.flat_map(move |largest| self.hanging(ring(migratetype, largest, step)))
        });
        let frame = |number: usize| {
            ((self.first + number / Migratetype::COUNT) << Order::PAGEBLOCK.get()) as FrameIndex
        };
        hanging.take(LOOKS).map(frame).find(|&first| suits(first))
    }

    /// Returns the entries of a ring.
    fn hanging(&self, ring: u32) -> impl Iterator<Item = usize> + '_ {
        let known = |number: u32| (number != NONE).then_some(number as usize);
        let first = known(self.rings[ring as usize]);
        core::iter::successors(first, move |&number| known(self.entries[number].behind))
    }

    fn entry(&self, frame: FrameIndex, migratetype: Migratetype) -> usize {
        let block = (frame >> Order::PAGEBLOCK.get()) as usize - self.first;
        block * Migratetype::COUNT + migratetype.index()
    }

    /// Hangs an entry where it belongs now.
    fn settle(&mut self, number: u32, migratetype: Migratetype) {
        let entry = &self.entries[number as usize];
        let step = usize::from(entry.pages / STEP_PAGES);
        let wanted = entry.largest().map_or(NONE, |largest| ring(migratetype, largest, step));
        if wanted != entry.ring {
            self.unhang(number);
            self.hang(number, wanted);
        }
    }

    fn unhang(&mut self, number: u32) {
        let Entry { ring, before, behind, .. } = self.entries[number as usize];
        if ring == NONE {
            return;
        }
        if before == NONE {
            self.rings[ring as usize] = behind;
            if behind == NONE {
                *self.word(ring) &= !(1 << (ring as usize % STEPS));
            }
        } else {
            self.entries[before as usize].behind = behind;
        }
        if behind != NONE {
            self.entries[behind as usize].before = before;
        }
    }

    fn hang(&mut self, number: u32, ring: u32) {
        self.entries[number as usize].ring = ring;
        if ring == NONE {
            return;
        }
        let behind = core::mem::replace(&mut self.rings[ring as usize], number);
        *self.word(ring) |= 1 << (ring as usize % STEPS);
        self.entries[number as usize].before = NONE;
        self.entries[number as usize].behind = behind;
        if behind != NONE {
            self.entries[behind as usize].before = number;
        }
    }

    /// Returns the word in which a ring has its bit.
    fn word(&mut self, ring: u32) -> &mut u64 {
        let row = ring as usize / STEPS;
        &mut self.steps[row / ORDERS][row % ORDERS]
    }
}

/// Returns the number of a ring.
fn ring(migratetype: Migratetype, largest: usize, step: usize) -> u32 {
    ((migratetype.index() * ORDERS + largest) * STEPS + step) as u32
}

/// Returns the first free block of `order` on a list of `migratetype` among these frames.
fn find(
    frames: &Frames,
    range: Range<FrameIndex>,
    order: Order,
    migratetype: Migratetype,
) -> Option<FrameIndex> {
    /// Tags that are compared at once.
    const AT_ONCE: usize = 32;
    let wanted = Tag::new(Kind::Free, order);
    let tags = frames.tags(range.start, range.len());
    for (at, part) in (range.start..).step_by(AT_ONCE).zip(tags.chunks(AT_ONCE)) {
        // Without an early end the comparison of a part is one of vectors.
        if part.iter().fold(false, |any, tag| any | (*tag == wanted)) {
            let is_it = |&(frame, tag): &(FrameIndex, &Tag)| {
                *tag == wanted && frames.listed(frame) == migratetype
            };
            if let Some((frame, _)) = (at..).zip(part).find(is_it) {
                return Some(frame);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::free_lists::FreeLists;
    use super::super::map::{MemoryMap, NodeMap, ZoneKind, ZoneMap};
    use super::super::policy::Relist;
    use super::super::testing::order;
    use super::*;
    use crate::units::{PageCount, Pfn};
    use alloc::vec;

    const BLOCKS: usize = 6;

    fn frames() -> Frames {
        let pages = PageCount(BLOCKS as u64 * Order::PAGEBLOCK.pages());
        let zones = vec![ZoneMap::new(ZoneKind::Normal, Pfn(0), pages)];
        let map = MemoryMap::new(vec![NodeMap { cpus: vec![0], zones }], &[]);
        Frames::new(&map.expect("one zone is a machine")).expect("there is memory")
    }

    type Listed = (FrameIndex, Order, Migratetype);

    /// Returns the free blocks below a pageblock that lie in a pageblock and are listed under a type.
    fn inside(
        listed: &[Listed],
        block: usize,
        migratetype: Migratetype,
    ) -> impl Iterator<Item = Order> {
        let is_inside = move |&&(frame, order, of): &&Listed| {
            of == migratetype && frame as usize >> 9 == block && order < Order::PAGEBLOCK
        };
        listed.iter().filter(is_inside).map(|&(_, order, _)| order)
    }

    fn step(listed: &[Listed], block: usize, migratetype: Migratetype) -> u64 {
        let pages: u64 = inside(listed, block, migratetype).map(Order::pages).sum();
        pages / u64::from(STEP_PAGES)
    }

    /// Returns the fullness of the fullest pageblock that can serve the request, by a look over all.
    fn naive(listed: &[Listed], wanted: Order, migratetype: Migratetype) -> Option<u64> {
        let serves =
            |&block: &usize| inside(listed, block, migratetype).any(|order| order >= wanted);
        (0..BLOCKS).filter(serves).map(|block| step(listed, block, migratetype)).min()
    }

    /// Returns the fullness of the pageblock that the lists choose. They must choose its smallest free block that fits.
    fn chosen(
        lists: &FreeLists,
        frames: &Frames,
        listed: &[Listed],
        wanted: Order,
        migratetype: Migratetype,
    ) -> Option<u64> {
        let frame = lists.choose(frames, wanted, migratetype)?;
        let (order, block) = (frames.tag(frame).order(), frame as usize >> 9);
        assert!(listed.contains(&(frame, order, migratetype)), "it is listed under the type");
        let fits = |order: &Order| *order >= wanted;
        assert_eq!(inside(listed, block, migratetype).filter(fits).min(), Some(order));
        Some(step(listed, block, migratetype))
    }

    #[test]
    fn the_fullest_block_is_found_as_by_a_look_over_all() {
        let mut frames = frames();
        let mut lists = FreeLists::new();
        lists.choose_by_fullness(0, BLOCKS as u32 * 512).expect("there is memory");
        let (mut listed, mut state): (Vec<Listed>, u64) = (vec![], 7);
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let migratetype = Migratetype::MOBILITY[draw(3) as usize];
            if listed.len() > 40 || (draw(2) == 0 && !listed.is_empty()) {
                let (frame, order, of) = listed.swap_remove(draw(listed.len() as u64) as usize);
                assert_eq!(lists.remove(&mut frames, frame), (order, of));
                frames.set_tag(frame, Tag::INSIDE);
            } else {
                let size = order(draw(9) as u8);
                let frame = (draw(BLOCKS as u64 * 512) as u32) & !(size.pages() as u32 - 1);
                let overlaps = |&(other, of, _): &Listed| {
                    frame < other + of.pages() as u32 && other < frame + size.pages() as u32
                };
                if !listed.iter().any(overlaps) {
                    lists.insert(&mut frames, frame, size, migratetype, Relist::Head);
                    listed.push((frame, size, migratetype));
                }
            }
            for wanted in [0, 1, 3, 8].map(order) {
                let found = chosen(&lists, &frames, &listed, wanted, migratetype);
                let expected = naive(&listed, wanted, migratetype);
                assert_eq!(found, expected, "order {wanted} {migratetype}");
            }
        }
    }

    #[test]
    fn whole_pageblocks_come_last() {
        let mut frames = frames();
        let mut lists = FreeLists::new();
        lists.choose_by_fullness(0, BLOCKS as u32 * 512).expect("there is memory");
        lists.insert(&mut frames, 512, Order::PAGEBLOCK, Migratetype::Movable, Relist::Head);
        assert_eq!(lists.choose(&frames, Order::ZERO, Migratetype::Movable), Some(512));
        lists.insert(&mut frames, 1024, order(8), Migratetype::Movable, Relist::Head);
        assert_eq!(lists.choose(&frames, Order::ZERO, Migratetype::Movable), Some(1024));
        assert_eq!(lists.choose(&frames, Order::PAGEBLOCK, Migratetype::Movable), Some(512));
        assert_eq!(lists.choose(&frames, Order::ZERO, Migratetype::Unmovable), None);
    }
}
