//! Reclaim as every owner does it: from the oldest page on, bounded by the priority, with a share from slabs.

use nofrag::event::EventSink;
use nofrag::page::{PageAllocator, ReclaimRequest, Reclaimed};

use super::contents::FrameNumber;

/// An owner of pages that reclaim can take.
pub(crate) trait TakesBack<S: EventSink> {
    /// Returns the number of pages that could serve the reclaim request.
    fn reclaimable(&self, wanted: &ReclaimRequest) -> u64;

    /// Returns the page that goes first, among those that could serve the reclaim request; `None` if there is none.
    fn oldest(&self, wanted: &ReclaimRequest) -> Option<FrameNumber>;

    /// Takes the oldest page, or passes it by, so that another is the oldest; returns the number of pages freed.
    fn take_back(
        &mut self,
        pages: &mut PageAllocator<S>,
        frame: FrameNumber,
        wanted: &ReclaimRequest,
    ) -> u64;

    /// Frees the share of slabs after `done` was reclaimed; returns the number of pages freed.
    fn shrink(
        &mut self,
        pages: &mut PageAllocator<S>,
        wanted: &ReclaimRequest,
        done: Reclaimed,
    ) -> u64;
}

/// Looks at the oldest pages, 2^-priority of all at most, until `wanted.pages` are freed.
pub(crate) fn reclaim<S: EventSink>(
    owner: &mut impl TakesBack<S>,
    pages: &mut PageAllocator<S>,
    wanted: &ReclaimRequest,
) -> Reclaimed {
    let most = owner.reclaimable(wanted) >> wanted.priority.min(12);
    let mut done = Reclaimed::default();
    while done.scanned < most && done.pages < wanted.pages {
        let Some(frame) = owner.oldest(wanted) else { break };
        done.scanned += 1;
        done.pages += owner.take_back(pages, frame, wanted);
    }
    if wanted.may.slab {
        done.pages += owner.shrink(pages, wanted, done);
    }
    done.left = owner.reclaimable(wanted);
    done
}
