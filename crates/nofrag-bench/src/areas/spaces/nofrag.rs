//! nofrag's `AddressSpace` through its public face: it merges, checks limits and counts.

use super::{AreaSpace, Found, WINDOW};
use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, Direction, Layout, MapFlags, Placement, Protection,
    SpaceConfig,
};
use nofrag::units::{PageCount, Vpn};

/// The attributes of areas: two kinds in turn, as in the live measurements of Linux. Both are opaque besides: areas
/// that come to touch after a while would merge otherwise, and the number of areas would not stay what it is.
const KINDS: [Attributes; 2] = [
    Attributes::anonymous(Protection::READ_WRITE).with(AreaFlags::OPAQUE),
    Attributes::anonymous(Protection::READ).with(AreaFlags::OPAQUE),
];

/// nofrag's address space under one placement, in one layout.
#[derive(Debug)]
pub struct Nofrag {
    space: AddressSpace,
    mapped: usize,
}

impl Nofrag {
    /// Makes a space that places downwards in the window of all contestants.
    #[must_use]
    pub fn new(placement: Placement) -> Nofrag {
        Nofrag::within(Layout::window(WINDOW, Direction::Down), placement)
    }

    /// Makes a space in any layout.
    #[must_use]
    pub fn within(layout: Layout, placement: Placement) -> Nofrag {
        let config = SpaceConfig { map_limit: usize::MAX, ..SpaceConfig::new(layout, placement) };
        Nofrag { space: AddressSpace::new(config), mapped: 0 }
    }

    fn next_kind(&mut self) -> Attributes {
        self.mapped += 1;
        KINDS[self.mapped % KINDS.len()]
    }
}

impl AreaSpace for Nofrag {
    #[inline]
    fn map(&mut self, pages: u64) -> Option<u64> {
        let kind = self.next_kind();
        let start = self.space.map(PageCount(pages), kind, None, MapFlags::default());
        start.ok().map(|start| start.0)
    }

    fn map_at(&mut self, start: u64, pages: u64) -> bool {
        // The offset that `map` sets by itself, a captured area brings along; without it each area would be of a kind
        // of its own.
        let kind = Attributes { offset: start, ..self.next_kind() };
        self.space.load(Vpn(start), PageCount(pages), kind).is_ok()
    }

    #[inline]
    fn unmap(&mut self, start: u64, pages: u64) -> bool {
        self.space.unmap(Vpn(start), PageCount(pages)).is_ok()
    }

    #[inline]
    fn find(&self, at: u64) -> Found {
        self.space.lookup(Vpn(at)).map(|area| area.start.0).into()
    }

    fn steps(&self) -> Option<u64> {
        let counters = self.space.counters();
        Some(counters.visits + counters.steps)
    }

    fn own_metadata_bytes(&self) -> Option<usize> {
        Some(self.space.metadata_bytes())
    }
}
