//! Stamps in the pages of a run.

use nofrag_backing::arena::{Arena, Run};
use nofrag_backing::backend::HostMemory;

pub(crate) const PAGE: usize = 4096;

/// Writes the stamp to the first and the last word of every page.
pub(crate) fn stamp<B: HostMemory>(arena: &Arena<B>, run: Run, stamp: u64) {
    each_stamp(arena, run, |at| {
        // SAFETY: the run is in use by this test alone, and `each_stamp` names aligned words of it.
        unsafe { at.write(stamp) }
    });
}

/// Reads every stamp of the run.
pub(crate) fn stamps<B: HostMemory>(arena: &Arena<B>, run: Run) -> Vec<u64> {
    let mut found = Vec::new();
    each_stamp(arena, run, |at| {
        // SAFETY: as in `stamp`.
        found.push(unsafe { at.read() });
    });
    found
}

fn each_stamp<B: HostMemory>(arena: &Arena<B>, run: Run, mut each: impl FnMut(*mut u64)) {
    let first = arena.pointer(run);
    for page in 0..run.pages() as usize {
        let page = first.wrapping_add(page * PAGE);
        each(page.cast());
        each(page.wrapping_add(PAGE - 8).cast());
    }
}
