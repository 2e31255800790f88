//! Records of all frames and pageblocks: ten bytes a frame.
//!
//! A frame is *a head* when a block begins there: a free buddy, a block in use, one on a per-CPU list. All other frames
//! of a block are `Inside`. Splitting and merging change the tags of heads alone, so their cost does not depend on the
//! size of the block.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::map::{MemoryMap, PfnRange};
use super::migratetype::Migratetype;
use crate::lists::{grow, put};
use crate::units::{Order, Pfn};

/// A frame's number among those that the allocator keeps records of: the spans of memory, numbered on without gaps.
pub(super) type FrameIndex = u32;

/// Index that stands for no frame.
pub(super) const NONE: FrameIndex = FrameIndex::MAX;

/// Kind of block that begins at a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: there is no memory, or it was taken before the allocator came up.
    Absent,
    /// Nothing: the frame belongs to a block that begins before it.
    Inside,
    /// A free buddy, on a list of its zone.
    Free,
    /// A free block on a per-CPU list.
    PerCpu,
    Used,
    /// A free block that compaction has set aside, as a place to move to or as the block that it was asked for.
    Target,
    /// A block in use whose content is being moved.
    Leaving,
    /// A block whose content is being moved, freed by its owner meanwhile.
    Left,
}

const KINDS: [Kind; 8] = [
    Kind::Absent,
    Kind::Inside,
    Kind::Free,
    Kind::PerCpu,
    Kind::Used,
    Kind::Target,
    Kind::Leaving,
    Kind::Left,
];

/// Kind, order and mobility of a head in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u8);

impl Tag {
    pub(super) const ABSENT: Tag = Tag(0);
    pub(super) const INSIDE: Tag = Tag(1);
    const MOVABLE: u8 = 1 << 7;

    pub(super) fn new(kind: Kind, order: Order) -> Tag {
        Tag(kind as u8 | order.get() << 3)
    }

    pub(super) fn kind(self) -> Kind {
        KINDS[usize::from(self.0 & 7)]
    }

    pub(super) fn order(self) -> Order {
        Order::new(self.0 >> 3 & 15).expect("a tag is made from an order")
    }

    /// Returns the tag of the same block as another kind.
    pub(super) fn with_kind(self, kind: Kind) -> Tag {
        Tag(self.0 & !7 | kind as u8)
    }

    /// Returns true if the block's content may be moved.
    pub(super) fn is_movable(self) -> bool {
        self.0 & Tag::MOVABLE != 0
    }

    pub(super) fn with_movable(self, movable: bool) -> Tag {
        Tag(if movable { self.0 | Tag::MOVABLE } else { self.0 & !Tag::MOVABLE })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// The type that its pages are meant for.
    pub(super) migratetype: Migratetype,
    /// Index of the zone in which its frames are looked for first; others may share the pageblock.
    pub(super) zone: u16,
    /// True if the scanners of compaction pass the pageblock by.
    pub(super) skip: bool,
    /// Its pages on the free lists of its zone.
    pub(super) free: u16,
    /// Its pages in use whose content may be moved.
    pub(super) movable: u16,
}

#[derive(Clone, Copy, Debug)]
struct FrameSpan {
    range: PfnRange,
    first: FrameIndex,
}

/// State of all frames and pageblocks of a machine.
#[derive(Debug)]
pub(super) struct Frames {
    spans: Vec<FrameSpan>,
    tags: Vec<Tag>,
    /// The type of the list that a free head is on.
    listed: Vec<u8>,
    /// Neighbours on a list: before, behind.
    links: Vec<[FrameIndex; 2]>,
    blocks: Vec<Block>,
}

impl Frames {
    /// Makes the frames of `map`, all absent.
    pub(super) fn new(map: &MemoryMap) -> Result<Frames, TryReserveError> {
        let spans = rounded_spans(map)?;
        let count: u64 = spans.iter().map(|span| span.range.pages.0).sum();
        let mut frames = Frames {
            spans,
            tags: Vec::new(),
            listed: Vec::new(),
            links: Vec::new(),
            blocks: Vec::new(),
        };
        let count = count as usize;
        let block =
            Block { migratetype: Migratetype::Movable, zone: 0, skip: false, free: 0, movable: 0 };
        grow(&mut frames.tags, count, Tag::ABSENT)?;
        grow(&mut frames.listed, count, 0)?;
        grow(&mut frames.links, count, [NONE; 2])?;
        grow(&mut frames.blocks, count >> Order::PAGEBLOCK.get(), block)?;
        Ok(frames)
    }

    /// Returns the bytes of the records.
    pub(super) fn metadata_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<FrameSpan>()
            + self.tags.capacity()
            + self.listed.capacity()
            + self.links.capacity() * size_of::<[FrameIndex; 2]>()
            + self.blocks.capacity() * size_of::<Block>()
    }

    /// Returns the number of frames, absent ones included.
    pub(super) fn len(&self) -> usize {
        self.tags.len()
    }

    /// Returns the index of a frame; `None` outside every span. O(spans), which are few: one for each large hole.
    pub(super) fn index(&self, pfn: Pfn) -> Option<FrameIndex> {
        let span = self.spans.iter().find(|span| span.range.has(pfn))?;
        Some(span.first + (pfn.0 - span.range.start.0) as FrameIndex)
    }

    /// Returns the frame of an index.
    pub(super) fn pfn(&self, index: FrameIndex) -> Pfn {
        let span = self.spans.iter().rev().find(|span| span.first <= index);
        let span = span.expect("an index comes from a span");
        Pfn(span.range.start.0 + u64::from(index - span.first))
    }

    pub(super) fn tag(&self, frame: FrameIndex) -> Tag {
        self.tags[frame as usize]
    }

    pub(super) fn set_tag(&mut self, frame: FrameIndex, tag: Tag) {
        self.tags[frame as usize] = tag;
    }

    /// Makes the frames from `start` to before `end` present, as parts of blocks that are still to be tagged.
    pub(super) fn set_inside(&mut self, start: FrameIndex, end: FrameIndex) {
        self.tags[start as usize..end as usize].fill(Tag::INSIDE);
    }

    /// Returns the tags of `count` frames from `frame` on.
    pub(super) fn tags(&self, frame: FrameIndex, count: usize) -> &[Tag] {
        &self.tags[frame as usize..][..count]
    }

    /// Returns the head and the tag of the block of a frame; `None` where there is no memory. O(orders).
    pub(super) fn head_of(&self, frame: FrameIndex) -> Option<(FrameIndex, Tag)> {
        let mut heads = Order::all().map(|order| frame & !(order.pages() as FrameIndex - 1));
        let head = heads.find(|&head| self.tag(head) != Tag::INSIDE)?;
        Some((head, self.tag(head))).filter(|(_, tag)| tag.kind() != Kind::Absent)
    }

    /// Returns the type of the list on which the free head at `frame` is.
    pub(super) fn listed(&self, frame: FrameIndex) -> Migratetype {
        Migratetype::ALL[usize::from(self.listed[frame as usize])]
    }

    pub(super) fn set_listed(&mut self, frame: FrameIndex, migratetype: Migratetype) {
        self.listed[frame as usize] = migratetype as u8;
    }

    pub(super) fn links(&self, frame: FrameIndex) -> [FrameIndex; 2] {
        self.links[frame as usize]
    }

    pub(super) fn links_mut(&mut self, frame: FrameIndex) -> &mut [FrameIndex; 2] {
        &mut self.links[frame as usize]
    }

    /// Returns the pageblock of a frame.
    pub(super) fn block(&self, frame: FrameIndex) -> &Block {
        &self.blocks[(frame >> Order::PAGEBLOCK.get()) as usize]
    }

    pub(super) fn block_mut(&mut self, frame: FrameIndex) -> &mut Block {
        &mut self.blocks[(frame >> Order::PAGEBLOCK.get()) as usize]
    }

    /// Notes the zone of the pageblocks from `start` to before `end`.
    pub(super) fn set_zone(&mut self, start: FrameIndex, end: FrameIndex, zone: u16) {
        for frame in (start..end).step_by(Order::PAGEBLOCK.pages() as usize) {
            self.block_mut(frame).zone = zone;
        }
    }

    /// Counts the pages of the block of `order` at `frame` as free in its pageblocks.
    pub(super) fn count_free(&mut self, frame: FrameIndex, order: Order) {
        self.each_block(frame, order, |block, pages| block.free += pages);
    }

    /// Counts the pages of the block of `order` at `frame` as no longer free in its pageblocks.
    pub(super) fn uncount_free(&mut self, frame: FrameIndex, order: Order) {
        self.each_block(frame, order, |block, pages| block.free -= pages);
    }

    /// Calls `act` for each pageblock that the block at `frame` touches, with its share of the pages.
    pub(super) fn each_block(
        &mut self,
        frame: FrameIndex,
        order: Order,
        act: impl Fn(&mut Block, u16),
    ) {
        if order <= Order::PAGEBLOCK {
            return act(self.block_mut(frame), order.pages() as u16);
        }
        let first = (frame >> Order::PAGEBLOCK.get()) as usize;
        let blocks = 1 << (order.get() - Order::PAGEBLOCK.get());
        for block in &mut self.blocks[first..first + blocks] {
            act(block, Order::PAGEBLOCK.pages() as u16);
        }
    }
}

/// Returns the buddy of the block at `frame`: the other half of the block of the next order. Spans begin at multiples
/// of the largest block, so the rule holds for indexes as it does for frame numbers.
pub(super) const fn buddy(frame: FrameIndex, order: Order) -> FrameIndex {
    frame ^ 1 << order.get()
}

/// Returns the spans of memory, rounded outwards to the largest order, in ascending order and joined where they meet.
/// Larger holes cost nothing.
fn rounded_spans(map: &MemoryMap) -> Result<Vec<FrameSpan>, TryReserveError> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for zone in map.nodes().iter().flat_map(|node| &node.zones) {
        for run in zone.present() {
            let mask = Order::MAX.pages() - 1;
            ranges.try_reserve(1)?;
            put(&mut ranges, (run.start.0 & !mask, (run.end().0 + mask) & !mask));
        }
    }
    ranges.sort_unstable();
    let mut spans: Vec<FrameSpan> = Vec::new();
    spans.try_reserve(ranges.len())?;
    let mut first = 0;
    for (start, end) in ranges {
        match spans.last_mut() {
            Some(last) if start <= last.range.end().0 => {
                let more = end.saturating_sub(last.range.end().0);
                last.range.pages.0 += more;
                first += more as FrameIndex;
            }
            _ => {
                let range =
                    PfnRange { start: Pfn(start), pages: crate::units::PageCount(end - start) };
                put(&mut spans, FrameSpan { range, first });
                first += (end - start) as FrameIndex;
            }
        }
    }
    Ok(spans)
}
