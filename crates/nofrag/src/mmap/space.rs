//! The face: validates, asks the placement, and keeps the books.

use super::areas::Areas;
use super::attributes::{Attributes, Backing, MergeBlocker};
use super::layout::{Direction, Layout};
use super::placement::{Placement, Placer, View, Window, Wish};
use super::request::{MapError, MapFlags, WindowChoice};
use crate::check::{Check, Violation};
use crate::ranges::{OutOfMetadata, Span};
use crate::units::{PageCount, Vpn};

/// How an [`AddressSpace`] is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceConfig {
    /// The windows.
    pub layout: Layout,
    /// Where mappings go.
    pub placement: Placement,
    /// The most areas (`vm.max_map_count`).
    pub map_limit: usize,
    /// Pages that stay free below a stack, unless mapped there on purpose (`stack_guard_gap`).
    pub guard_gap: PageCount,
}

impl SpaceConfig {
    /// Linux's default of `vm.max_map_count`.
    pub const MAP_LIMIT: usize = 65_530;

    /// `placement` in `layout`, with Linux's limit of areas and guard gap.
    #[must_use]
    pub const fn new(layout: Layout, placement: Placement) -> SpaceConfig {
        SpaceConfig {
            layout,
            placement,
            map_limit: SpaceConfig::MAP_LIMIT,
            guard_gap: PageCount(256),
        }
    }
}

/// An area as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaRecord {
    /// First page.
    pub start: Vpn,
    /// How many pages.
    pub pages: PageCount,
    /// What it is; the offset is that of the first page.
    pub attributes: Attributes,
}

impl AreaRecord {
    /// One above the last page.
    #[must_use]
    pub fn end(&self) -> Vpn {
        Vpn(self.start.0 + self.pages.0)
    }
}

/// Counts since construction; every field only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmapCounters {
    /// Mappings that were made without an address that had to be.
    pub maps: u64,
    /// Of them those that got the address of their hint.
    pub hints: u64,
    /// Mappings at a fixed address.
    pub fixed: u64,
    /// Calls of unmap that succeeded.
    pub unmaps: u64,
    /// Mappings for which the placement found nothing.
    pub misses: u64,
    /// Searches by the placement.
    pub searches: u64,
    /// Areas that searches visited, one by one.
    pub visits: u64,
    /// Blocks that searches of the index visited.
    pub steps: u64,
    /// Areas that were cut into two.
    pub splits: u64,
    /// Areas that vanished because a neighbour took them in.
    pub merges: u64,
}

/// The mapped areas of a process, or of anyone who hands out addresses.
///
/// 1. Areas never overlap.
/// 2. No area begins below page 1 or ends above the space, unless it was put there before ([`load`](Self::load)).
/// 3. An operation happens whole or not at all.
///
/// Single owner: every change takes `&mut self`.
///
/// ```
/// use nofrag::mmap::{AddressSpace, Attributes, Layout, MapFlags, Placement, Protection, SpaceConfig};
/// use nofrag::units::PageCount;
///
/// let mut space = AddressSpace::new(SpaceConfig::new(Layout::COMPAT_UP, Placement::FirstFit));
/// let memory = Attributes::anonymous(Protection::READ_WRITE);
/// let start = space.map(PageCount(4), memory, None, MapFlags::default())?;
/// assert_eq!(start, Layout::COMPAT_UP.base);
/// space.map(PageCount(4), memory, None, MapFlags::default())?;
/// assert_eq!(space.area_count(), 1); // equal neighbours are one area
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AddressSpace {
    pub(super) layout: Layout,
    pub(super) map_limit: usize,
    pub(super) guard_gap: PageCount,
    pub(super) areas: Areas,
    pub(super) placer: Placer,
    pub(super) counters: MmapCounters,
    /// The number of the next chain of touched memory.
    pub(super) next_chain: u64,
}

impl AddressSpace {
    /// A space without areas.
    #[must_use]
    pub fn new(config: SpaceConfig) -> AddressSpace {
        let SpaceConfig { layout, placement, map_limit, guard_gap } = config;
        AddressSpace {
            layout,
            map_limit,
            guard_gap,
            areas: Areas::default(),
            placer: Placer::new(placement, &layout),
            counters: MmapCounters::default(),
            next_chain: 1,
        }
    }

    /// Maps `pages` pages at `hint` if that is free, else where the placement says.
    ///
    /// The new area merges with neighbours that agree with it in everything.
    ///
    /// # Errors
    /// See [`MapError`]; nothing changed.
    pub fn map(
        &mut self,
        pages: PageCount,
        attributes: Attributes,
        hint: Option<Vpn>,
        flags: MapFlags,
    ) -> Result<Vpn, MapError> {
        let wish = self.wish(pages, &attributes, flags)?;
        if self.areas.len() > self.map_limit {
            return Err(MapError::TooManyAreas { limit: self.map_limit });
        }
        self.areas.reserve(1)?;
        let start = match hint.filter(|&hint| self.hint_is_free(hint, pages)) {
            Some(hint) => {
                self.counters.hints += 1;
                hint.0
            }
            None => self.search(&wish)?,
        };
        self.counters.maps += 1;
        let attributes = match attributes.backing {
            Backing::Anonymous => Attributes { offset: start, ..attributes },
            Backing::File(_) => attributes,
        };
        let span = Span::known(start, start + pages.0);
        self.areas.insert_merged(span, attributes.based(Vpn(start)));
        Ok(Vpn(start))
    }

    /// Asks the placement.
    fn search(&mut self, wish: &Wish) -> Result<u64, MapError> {
        self.counters.searches += 1;
        let view = View { areas: &self.areas, layout: &self.layout, guard_gap: self.guard_gap };
        self.placer.place(view, wish, &mut self.counters).ok_or_else(|| {
            self.counters.misses += 1;
            MapError::NoPlace { largest: self.hole_stats().largest.0 }
        })
    }

    fn wish(
        &self,
        pages: PageCount,
        attributes: &Attributes,
        flags: MapFlags,
    ) -> Result<Wish, MapError> {
        if pages.0 == 0 {
            return Err(MapError::ZeroSize);
        }
        if !flags.align.is_power_of_two() {
            return Err(MapError::AlignNotPowerOfTwo);
        }
        if pages.0 > self.layout.end.0 {
            return Err(MapError::TooLong);
        }
        let usual = flags.window == WindowChoice::Usual;
        let (direction, window) = match flags.window {
            WindowChoice::Usual => (self.layout.direction, Window::Usual),
            WindowChoice::Low => {
                (Direction::Up, Window::Other(self.layout.low.ok_or(MapError::NoSuchWindow)?))
            }
            WindowChoice::Above4G => {
                let low = self.layout.pages(4 << 30).0;
                let window =
                    Span::new(low, self.layout.top.0).map_err(|_| MapError::NoSuchWindow)?;
                (self.layout.direction, Window::Other(window))
            }
        };
        let huge_pages_apply =
            usual && attributes.backing == Backing::Anonymous && flags.align == 1;
        let MapFlags { align, offset, .. } = flags;
        Ok(Wish { pages: pages.0, align, offset, direction, window, huge_pages_apply })
    }

    /// Whether the hint lies in the space and on nothing.
    fn hint_is_free(&self, hint: Vpn, pages: PageCount) -> bool {
        let Some(last) = self.layout.end.0.checked_sub(pages.0) else { return false };
        if hint.0 > last || hint.0 < self.layout.floor.0.max(1) {
            return false;
        }
        let next = self.areas.find(hint.0);
        next.is_none_or(|place| hint.0 + pages.0 <= self.areas.span(place).start())
    }

    /// The area that holds page `at`. O(log n).
    #[must_use]
    pub fn lookup(&self, at: Vpn) -> Option<AreaRecord> {
        self.find(at).filter(|area| area.start <= at)
    }

    /// The lowest area that ends above page `at` (`find_vma`). O(log n).
    #[must_use]
    pub fn find(&self, at: Vpn) -> Option<AreaRecord> {
        self.areas.find(at.0).map(|place| self.areas.record(place))
    }

    /// All areas, ascending.
    pub fn areas(&self) -> impl Iterator<Item = AreaRecord> + '_ {
        self.areas.iter()
    }

    /// How many areas.
    #[must_use]
    pub fn area_count(&self) -> usize {
        self.areas.len()
    }

    /// Why the area at page `at` and the one that follows without a hole stay two; none where a hole follows, or where
    /// nothing keeps them apart.
    #[must_use]
    pub fn blocker_above(&self, at: Vpn) -> Option<MergeBlocker> {
        let place = self.areas.find(at.0).filter(|&place| self.areas.span(place).contains(at.0))?;
        self.areas.blocker_above(place)
    }

    /// The windows.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where mappings go.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placer.placement
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> &MmapCounters {
        &self.counters
    }

    /// Bytes that the records hold.
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        self.areas.metadata_bytes()
    }
}

impl Check for AddressSpace {
    fn check(&self) -> Result<(), Violation> {
        self.areas.check()
    }
}

impl From<OutOfMetadata> for MapError {
    fn from(_: OutOfMetadata) -> Self {
        MapError::OutOfMetadata
    }
}
