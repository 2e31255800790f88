//! Published crates: two allocators of virtual machine monitors, and a map of ranges whose gaps are walked.

use super::{AreaSpace, Found, WINDOW, mirrored};
use dbs_allocator::{AllocPolicy as DbsPolicy, Constraint, IntervalTree, NodeState, Range};
use rangemap::RangeMap;
use vm_allocator::{AddressAllocator, AllocPolicy, RangeInclusive};

/// rust-vmm's `AddressAllocator` with `LastMatch`. It keeps nothing with an area.
#[derive(Debug)]
pub struct VmAllocator(AddressAllocator);

impl Default for VmAllocator {
    fn default() -> VmAllocator {
        let allocator = AddressAllocator::new(WINDOW.start(), WINDOW.len());
        VmAllocator(allocator.expect("the window does not overflow"))
    }
}

impl AreaSpace for VmAllocator {
    #[inline]
    fn map(&mut self, pages: u64) -> Option<u64> {
        self.0.allocate(pages, 1, AllocPolicy::LastMatch).ok().map(|range| range.start())
    }

    fn map_at(&mut self, start: u64, pages: u64) -> bool {
        self.0.allocate(pages, 1, AllocPolicy::ExactMatch(start)).is_ok()
    }

    #[inline]
    fn unmap(&mut self, start: u64, pages: u64) -> bool {
        let range = RangeInclusive::new(start, start + pages - 1);
        range.is_ok_and(|range| self.0.free(&range).is_ok())
    }
}

/// Kata's `IntervalTree`, upwards: it has no policy for the other way.
pub struct DbsAllocator {
    tree: IntervalTree<u32>,
    mapped: u32,
}

impl Default for DbsAllocator {
    fn default() -> DbsAllocator {
        let mut tree = IntervalTree::new();
        tree.insert(Range::new(WINDOW.start(), WINDOW.end() - 1), None);
        DbsAllocator { tree, mapped: 0 }
    }
}

impl AreaSpace for DbsAllocator {
    #[inline]
    fn map(&mut self, pages: u64) -> Option<u64> {
        let wish = Constraint::new(pages).policy(DbsPolicy::FirstMatch);
        let range = self.tree.allocate(&wish)?;
        self.mapped = self.mapped.wrapping_add(1);
        self.tree.update(&range, self.mapped);
        Some(range.min)
    }

    fn map_at(&mut self, start: u64, pages: u64) -> bool {
        let wish = Constraint::new(pages).min(start).max(start + pages - 1);
        let range = self.tree.allocate(&wish);
        self.mapped = self.mapped.wrapping_add(1);
        range.is_some_and(|range| {
            self.tree.update(&range, self.mapped);
            range.min == start
        })
    }

    #[inline]
    fn unmap(&mut self, start: u64, pages: u64) -> bool {
        self.tree.free(&Range::new(start, start + pages - 1)).is_some()
    }

    #[inline]
    fn find(&self, at: u64) -> Found {
        let node = self.tree.get_superset(&Range::new(at, at));
        node.filter(|(_, state)| *state != NodeState::Free).map(|(range, _)| range.min).into()
    }
}

/// `rangemap::RangeMap`, mirrored, walked gap by gap. Neighbours of equal value would merge: each area has its own.
#[derive(Debug, Default)]
pub struct RangeMapGaps {
    areas: RangeMap<u64, u32>,
    mapped: u32,
}

impl AreaSpace for RangeMapGaps {
    #[inline]
    fn map(&mut self, pages: u64) -> Option<u64> {
        let whole = WINDOW.start()..WINDOW.end();
        let start = self.areas.gaps(&whole).find(|gap| gap.end - gap.start >= pages)?.start;
        self.mapped = self.mapped.wrapping_add(1);
        self.areas.insert(start..start + pages, self.mapped);
        Some(mirrored(start, pages))
    }

    fn map_at(&mut self, start: u64, pages: u64) -> bool {
        let start = mirrored(start, pages);
        self.mapped = self.mapped.wrapping_add(1);
        self.areas.insert(start..start + pages, self.mapped);
        true
    }

    #[inline]
    fn unmap(&mut self, start: u64, pages: u64) -> bool {
        let start = mirrored(start, pages);
        self.areas.remove(start..start + pages);
        true
    }

    #[inline]
    fn find(&self, at: u64) -> Found {
        let area = self.areas.get_key_value(&mirrored(at, 1));
        area.map(|(range, _)| mirrored(range.start, range.end - range.start)).into()
    }
}
