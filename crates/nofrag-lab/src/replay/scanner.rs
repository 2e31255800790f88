//! Where moves of the recorded kernel go to: what its free scanner would take, from the policy's memory.
//!
//! The scanner goes down from where the run began, pageblock by pageblock, and takes free pages from movable ones that
//! do not hold a free block as large as a pageblock. Where the kernel's own went is not traced.

use nofrag::page::{FrameState, Migratetype, PageAllocator};
use nofrag::units::{Order, Pfn};

use super::spans::{FrameIndex, Spans};

/// A scanner that goes down through a zone.
#[derive(Debug, Default)]
pub(super) struct FreeScanner {
    /// The zone's first frame.
    bottom: FrameIndex,
    /// Below this nothing has been looked at.
    below: FrameIndex,
    /// Frames of the last pageblock that were free, the next one last.
    found: Vec<FrameIndex>,
}

impl FreeScanner {
    /// Begins with the pageblock of a frame.
    pub(super) fn new(bottom: FrameIndex, from: FrameIndex) -> FreeScanner {
        FreeScanner { bottom, below: from + 1, found: Vec::new() }
    }

    /// Takes a block of `order`; `None` when the whole zone has been looked at.
    pub(super) fn target(
        &mut self,
        pages: &mut PageAllocator,
        spans: &Spans,
        order: Order,
    ) -> Option<FrameIndex> {
        loop {
            while let Some(frame) = self.found.pop() {
                if pages.alloc_at(Pfn(spans.pfn(frame)), order).is_ok() {
                    return Some(frame);
                }
            }
            if self.below <= self.bottom {
                return None;
            }
            self.next_pageblock(pages, spans);
        }
    }

    fn next_pageblock(&mut self, pages: &PageAllocator, spans: &Spans) {
        let last = self.below - 1;
        let offset = spans.pfn(last) & (Order::PAGEBLOCK.pages() - 1);
        let first = last.saturating_sub(offset as FrameIndex).max(self.bottom);
        self.below = first;
        let suits = matches!(
            pages.block_type(Pfn(spans.pfn(first))),
            Some(Migratetype::Movable | Migratetype::Cma)
        );
        if !suits {
            return;
        }
        let is_free = |frame: &FrameIndex| {
            let state = pages.frame(Pfn(spans.pfn(*frame)));
            state.is_some_and(|(state, _, order)| {
                state == FrameState::Free && order < Order::PAGEBLOCK
            })
        };
        self.found.extend((first..=last).filter(is_free));
    }
}
