//! The visits of searches, and what they remember of an unmapping, where no other test sees it.

use crate::mmap_support::{COMPAT_DOWN, Process, opaque, page};
use nofrag::mmap::{Layout, Placement};
use nofrag::units::PageCount;

use Placement::*;

const UP: Layout = Layout::COMPAT_UP;

fn visits_of(process: &mut Process, pages: u64) -> u64 {
    let before = process.visits();
    process.map_as(pages, opaque()).unwrap();
    process.visits() - before
}

/// Maps `count` areas of four pages that merge with nothing; returns the start of the last.
fn row(layout: Layout, placement: Placement, count: usize) -> (Process, u64) {
    let mut process = Process::new(layout, placement);
    let starts = (0..count).map(|_| process.map_as(4, opaque()).unwrap());
    let last = starts.last().unwrap();
    (process, last)
}

/// Downwards, the lookup of the window's last page finds the start of the area that lies there; each area below is a
/// visit, and so is the place.
#[test]
fn an_area_at_the_top_is_no_visit() {
    for (count, visits) in [(1, 1), (2, 2), (100, 100)] {
        let (mut process, _) = row(COMPAT_DOWN, FirstFit, count);
        assert_eq!(visits_of(&mut process, 4), visits);
    }
}

/// An area that begins where the next search does is not on its near side: its removal leaves no hole behind it.
#[test]
fn an_unmapping_at_the_cache_is_no_hole_behind_it() {
    let (mut process, last) = row(UP, CachedHoleSizePosted, 100);
    process.space.load(page((last + 4) << 12), PageCount(4), opaque()).unwrap();
    process.unmap(last + 4, 4);
    assert_eq!(visits_of(&mut process, 4), 1, "the search goes on where it was");
}

/// An unmapping below the window does not lead the search out of it.
#[test]
fn an_unmapping_below_the_base_is_not_followed() {
    let (mut process, last) = row(UP, LastUnmapped, 2);
    process.space.load(page(0x1_0000), PageCount(4), opaque()).unwrap();
    process.unmap(0x10, 4);
    assert_eq!(process.map(4), last + 4);
}
