//! Reclaim as every owner does it: from the oldest page on, as far as the priority says, and slabs beside it.

use nofrag::event::EventSink;
use nofrag::page::{PageAllocator, ReclaimRequest, Reclaimed};

use super::contents::FrameNumber;

/// Has pages that can be taken back.
pub(crate) trait TakesBack<S: EventSink> {
    /// How many could serve.
    fn reclaimable(&self, wanted: &ReclaimRequest) -> u64;

    /// The one of them that was used longest ago.
    fn oldest(&self, wanted: &ReclaimRequest) -> Option<FrameNumber>;

    /// Takes it back, or passes it by, so that another is the oldest. Pages that were freed.
    fn take_back(
        &mut self,
        pages: &mut PageAllocator<S>,
        frame: FrameNumber,
        wanted: &ReclaimRequest,
    ) -> u64;

    /// After `done`, slabs give their share. Pages that were freed.
    fn shrink(
        &mut self,
        pages: &mut PageAllocator<S>,
        wanted: &ReclaimRequest,
        done: Reclaimed,
    ) -> u64;
}

/// Looks at the oldest pages, 2^-priority of all at most, until as many are freed as are wanted.
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
