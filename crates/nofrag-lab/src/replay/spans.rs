//! Frames by number: the spans of the zones of a machine, one behind the other.

use nofrag::page::{MemoryMap, PageAllocator};

/// A frame's number among those of all spans of a machine.
pub(super) type FrameIndex = crate::world::contents::FrameNumber;

/// A map from a frame of the machine to its number, and back.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    first: FrameIndex,
}

impl Spans {
    /// Numbers the frames of a machine's zones, in their order.
    pub(super) fn of(map: &MemoryMap) -> Spans {
        let mut first = 0;
        let zones = map.nodes().iter().flat_map(|node| &node.zones);
        let spans = zones.map(|zone| {
            let span = Span { start: zone.span.start.0, end: zone.span.end().0, first };
            first += (span.end - span.start) as FrameIndex;
            span
        });
        Spans { spans: spans.collect() }
    }

    /// Numbers the frames of an allocator's zones, in its order.
    pub(super) fn of_pages(pages: &PageAllocator) -> Spans {
        let mut spans = Vec::new();
        let mut first = 0;
        for zone in pages.zones() {
            let blocks = pages.pageblocks().filter(|block| block.zone == zone.id);
            let ends = blocks.fold(None, |ends: Option<(u64, u64)>, block| {
                let (start, end) = (block.frames.start.0, block.frames.end().0);
                Some(ends.map_or((start, end), |(first, last)| (first.min(start), last.max(end))))
            });
            let (start, end) = ends.unwrap_or((0, 0));
            spans.push(Span { start, end, first });
            first += (end - start) as FrameIndex;
        }
        Spans { spans }
    }

    /// Returns the number of frames, holes included.
    pub(super) fn frames(&self) -> usize {
        self.spans.last().map_or(0, |last| last.first as usize + (last.end - last.start) as usize)
    }

    pub(super) fn zones(&self) -> usize {
        self.spans.len()
    }

    /// Returns the number of a frame; `None` outside every zone. O(zones), which are few.
    pub(super) fn index(&self, pfn: u64) -> Option<FrameIndex> {
        let span = self.spans.iter().find(|span| (span.start..span.end).contains(&pfn))?;
        Some(span.first + (pfn - span.start) as FrameIndex)
    }

    /// Returns the frame with a number.
    pub(super) fn pfn(&self, index: FrameIndex) -> u64 {
        let span = self.span(index);
        span.start + u64::from(index - span.first)
    }

    /// Returns the zone of a frame, by its place among all zones.
    pub(super) fn zone(&self, index: FrameIndex) -> usize {
        let is_of = |span: &Span| index >= span.first && span.start < span.end;
        self.spans.iter().rposition(is_of).expect("a number comes from a span")
    }

    /// Returns the numbers of the frames of a zone.
    pub(super) fn of_zone(&self, zone: usize) -> std::ops::Range<FrameIndex> {
        let span = self.spans[zone];
        span.first..span.first + (span.end - span.start) as FrameIndex
    }

    fn span(&self, index: FrameIndex) -> Span {
        self.spans[self.zone(index)]
    }
}
