//! The face of the module: it validates, asks the placement, and keeps the books.

use super::areas::Areas;
use super::attributes::{AnonChain, AreaFlags, Attributes, Backing, MergeBlocker};
use super::change::ChangePlan;
use super::layout::{Direction, Layout};
use super::placement::{Placement, Placer, Spot, View, Window, Wish};
use super::request::{FixedError, MapError, MapFlags, UnmapError, WindowChoice};
use crate::check::{Check, Violation};
use crate::ranges::{GapPlace, OutOfMetadata, Span};
use crate::units::{PageCount, Vpn};

/// Settings with which an [`AddressSpace`] is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceConfig {
    pub layout: Layout,
    pub placement: Placement,
    /// The largest number of areas (`vm.max_map_count`).
    pub map_limit: usize,
    /// Pages that stay free below a stack, unless mapped there on purpose (`stack_guard_gap`).
    pub guard_gap: PageCount,
}

impl SpaceConfig {
    /// The default of `vm.max_map_count` in Linux (docs/sources/mmap.md#map-count).
    pub const MAP_LIMIT: usize = 65_530;

    /// Returns the settings of `placement` in `layout`, with Linux's limit of areas and guard gap
    /// (docs/sources/mmap.md#guard-gaps).
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

/// An area of an [`AddressSpace`], as queries return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaRecord {
    pub start: Vpn,
    pub pages: PageCount,
    /// The attributes; the offset is that of the first page.
    pub attributes: Attributes,
}

impl AreaRecord {
    /// Returns the page one above the last page.
    #[must_use]
    pub fn end(&self) -> Vpn {
        Vpn(self.start.0 + self.pages.0)
    }
}

/// Counts since construction; every field only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmapCounters {
    /// Mappings without a fixed address that were made.
    pub maps: u64,
    /// Mappings among `maps` that got the address of their hint.
    pub hints: u64,
    /// Mappings made at a fixed address.
    pub fixed: u64,
    /// Calls of unmap that succeeded.
    pub unmaps: u64,
    /// Mappings that went elsewhere: by remapping or by a committed move.
    pub moves: u64,
    /// Mappings for which the placement found no place.
    pub misses: u64,
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

/// The mapped areas of a process, or of any other owner of addresses.
///
/// 1. Areas never overlap.
/// 2. No area begins below page 1 or ends above the space, unless it was put there before ([`load`](Self::load)).
/// 3. Two areas that touch differ in something that keeps them apart, unless they came to touch without a merge:
///    loaded, copied by [`fork`](Self::fork), by a stack that grew, or by a change of a part in what matters to no
///    merge.
/// 4. An operation happens whole or not at all.
///
/// Single owner: every change takes `&mut self`.
///
/// ```
/// use nofrag::mmap::{AddressSpace, Attributes, Layout, MapFlags, Placement, Protection, SpaceConfig};
/// use nofrag::units::{PageCount, Vpn};
///
/// let mut space = AddressSpace::new(SpaceConfig::new(Layout::COMPAT_UP, Placement::FirstFit));
/// let memory = Attributes::anonymous(Protection::READ_WRITE);
/// let start = space.map(PageCount(4), memory, None, MapFlags::default())?;
/// assert_eq!(start, Layout::COMPAT_UP.base);
/// space.map(PageCount(4), memory, None, MapFlags::default())?;
/// assert_eq!(space.area_count(), 1); // equal neighbours are one area
/// space.protect(Vpn(start.0 + 2), PageCount(1), Protection::NONE)?;
/// assert_eq!(space.area_count(), 3); // and a guard page cuts it
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
    /// The number for the next chain of touched memory ([`AnonChain::Own`]).
    pub(super) next_chain: u64,
    /// True if areas that could have merged may have come to touch without a merge.
    pub(super) unmerged: bool,
    /// Room for the plan of a change, kept from one to the next.
    pub(super) plan: ChangePlan,
}

impl AddressSpace {
    /// Returns a space without areas. Whatever the layout says, page 0 belongs to no area, and no search begins below
    /// the floor or above the end.
    #[must_use]
    pub fn new(config: SpaceConfig) -> AddressSpace {
        let SpaceConfig { layout, placement, map_limit, guard_gap } = config;
        let layout = layout.bounded();
        AddressSpace {
            layout,
            map_limit,
            guard_gap,
            areas: Areas::new(&placement.index(&layout)),
            placer: Placer::new(placement, &layout),
            counters: MmapCounters::default(),
            next_chain: 1,
            unmerged: false,
            plan: ChangePlan::default(),
        }
    }

    /// Maps `pages` pages at `hint` if that place is free, else where the placement says
    /// (docs/sources/mmap.md#prologue).
    ///
    /// A hint below [`Layout::floor`] means the floor, and page 0 is none. One above [`Layout::end`] opens the larger
    /// window, if there is one: the mapping may then lie anywhere up to [`Layout::extended_end`]. The rules of Linux
    /// since 2017, and ours, take no hint that would reach into the guard gap of the area above it; no hint is taken
    /// that lacks the requested alignment.
    ///
    /// The new area, whose memory is untouched, merges with neighbours that agree with it in everything. O(log n)
    /// beside what the placement costs.
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
        let hint = hint.filter(|hint| hint.0 != 0);
        let wish = self.wish(pages, &attributes, hint, flags)?;
        if self.areas.len() > self.map_limit {
            return Err(MapError::TooManyAreas { limit: self.map_limit });
        }
        self.areas.reserve(1)?;
        let Spot { start, gap } = match hint.and_then(|hint| self.at_hint(hint, pages, flags)) {
            Some(start) => {
                self.counters.hints += 1;
                Spot { start, gap: None }
            }
            None => self.search(&wish)?,
        };
        self.counters.maps += 1;
        self.insert_new(Span::known(start, start + pages.0), attributes, gap);
        Ok(Vpn(start))
    }

    /// Maps `pages` pages from `start` on, in place of whatever is mapped there (`MAP_FIXED`).
    ///
    /// Areas in the way go as by [`unmap`](Self::unmap). O(k log n) for k areas that go.
    ///
    /// # Errors
    /// [`FixedError::Outside`] if the range does not lie between the floor and the end of the space,
    /// [`FixedError::TooManyAreas`] if there are more areas than the limit, or as many and the range lies inside one;
    /// see [`FixedError`] for the rest. Nothing changed.
    pub fn map_fixed(
        &mut self,
        start: Vpn,
        pages: PageCount,
        attributes: Attributes,
    ) -> Result<(), FixedError> {
        let span = self.fixed_span(start, pages)?;
        self.may_cut(span).map_err(|limit| FixedError::TooManyAreas { limit })?;
        self.areas.reserve(2)?;
        self.remove(span);
        self.counters.fixed += 1;
        self.insert_new(span, attributes, None);
        Ok(())
    }

    /// Maps `pages` pages from `start` on, where nothing may be mapped yet (`MAP_FIXED_NOREPLACE`). O(log n).
    ///
    /// # Errors
    /// Those of [`map_fixed`](Self::map_fixed), and [`FixedError::Taken`]; nothing changed.
    pub fn map_fixed_noreplace(
        &mut self,
        start: Vpn,
        pages: PageCount,
        attributes: Attributes,
    ) -> Result<(), FixedError> {
        let span = self.fixed_span(start, pages)?;
        if let Some(area) = self.first_in(span) {
            return Err(FixedError::Taken { area: area.start() });
        }
        self.areas.reserve(1)?;
        self.counters.fixed += 1;
        self.insert_new(span, attributes, None);
        Ok(())
    }

    /// Returns the range of a fixed mapping, if it lies inside the space and the areas are not above their limit.
    fn fixed_span(&self, start: Vpn, pages: PageCount) -> Result<Span, FixedError> {
        let span = self.range(start, pages).map_err(|why| match why {
            RangeError::Empty => FixedError::ZeroSize,
            RangeError::Outside => FixedError::Outside,
        })?;
        if span.start() < self.layout.floor.0 {
            return Err(FixedError::Outside);
        }
        if self.areas.len() > self.map_limit {
            return Err(FixedError::TooManyAreas { limit: self.map_limit });
        }
        Ok(span)
    }

    /// Adds an area of untouched memory, for which room was reserved. `gap` holds `span`, and is looked up if `None`.
    fn insert_new(&mut self, span: Span, attributes: Attributes, gap: Option<GapPlace>) {
        let offset = match attributes.backing {
            Backing::Anonymous => span.start(),
            Backing::File(_) => attributes.offset,
        };
        let fresh = Attributes { offset, chain: AnonChain::Untouched, ..attributes };
        let based = fresh.based(Vpn(span.start()));
        self.counters.merges += self.areas.insert_merged(span, &based, gap);
    }

    /// Adds an area, for which room was reserved, and counts the areas that vanish by merging.
    pub(super) fn insert_merged(&mut self, span: Span, based: &Attributes) {
        self.counters.merges += self.areas.insert_merged(span, based, None);
    }

    /// Asks the placement for a place; room for an area was reserved.
    pub(super) fn search(&mut self, wish: &Wish) -> Result<Spot, MapError> {
        self.counters.searches += 1;
        let view = View { areas: &self.areas, layout: &self.layout, guard_gap: self.guard_gap };
        self.placer.place(view, wish, &mut self.counters).ok_or_else(|| {
            self.counters.misses += 1;
            let window = match wish.window {
                Window::Usual => self.layout.all(),
                Window::Other(window) => Some(window),
            };
            let largest = window.and_then(|window| self.areas.largest_gap(window));
            MapError::NoPlace { largest: largest.map_or(0, Span::len) }
        })
    }

    pub(super) fn wish(
        &self,
        pages: PageCount,
        attributes: &Attributes,
        hint: Option<Vpn>,
        flags: MapFlags,
    ) -> Result<Wish, MapError> {
        if pages.0 == 0 {
            return Err(MapError::ZeroSize);
        }
        if !flags.align.is_power_of_two() {
            return Err(MapError::AlignNotPowerOfTwo);
        }
        let opened = hint.and_then(|hint| self.opened_by(hint));
        if pages.0 > opened.unwrap_or(self.layout.end).0 {
            return Err(MapError::TooLong);
        }
        let direction = flags.direction.unwrap_or(self.layout.direction);
        let (direction, window) = match (flags.window, opened) {
            (WindowChoice::Usual, None) if direction == self.layout.direction => {
                (direction, Window::Usual)
            }
            (WindowChoice::Usual, None) => {
                (direction, Window::Other(self.layout.all().ok_or(MapError::NoSuchWindow)?))
            }
            (WindowChoice::Low, _) => {
                (Direction::Up, Window::Other(self.layout.low.ok_or(MapError::NoSuchWindow)?))
            }
            (WindowChoice::Usual, Some(_)) => {
                (direction, Window::Other(self.large_window(self.layout.floor, direction, opened)?))
            }
            (WindowChoice::Above4G, _) => {
                let low = Vpn(self.layout.pages(4 << 30).0);
                // Upwards, a search begins where it always does: so does 6.18 in the legacy layout
                // (docs/sources/mmap.md#habits).
                let low = match direction {
                    Direction::Up => low.max(self.layout.base),
                    Direction::Down => low.max(self.layout.floor),
                };
                (direction, Window::Other(self.large_window(low, direction, opened)?))
            }
        };
        // In whichever window: so does a kernel of 6.18 place mappings that ask for `MAP_32BIT`
        // (docs/sources/mmap.md#habits).
        let huge_pages_apply = attributes.backing == Backing::Anonymous
            && !attributes.flags.any_of(AreaFlags::SHARED)
            && flags.align == 1;
        let MapFlags { align, offset, .. } = flags;
        Ok(Wish {
            pages: pages.0,
            align,
            offset,
            direction,
            window,
            huge_pages_apply,
            hinted: hint.is_some(),
        })
    }

    /// Returns the end of the larger window, if a hint at `hint` opens it.
    fn opened_by(&self, hint: Vpn) -> Option<Vpn> {
        self.layout.extended_end.filter(|&end| self.layout.end < hint && self.layout.end < end)
    }

    /// Returns the window from `low` to the end of the usual window. If the larger window is opened, that end moves up
    /// as far as the end of the space does, to `opened`.
    fn large_window(
        &self,
        low: Vpn,
        direction: Direction,
        opened: Option<Vpn>,
    ) -> Result<Span, MapError> {
        let usual = match direction {
            Direction::Up => self.layout.end.0,
            Direction::Down => self.layout.top.0,
        };
        let more = opened.map_or(0, |end| end.0 - self.layout.end.0);
        Span::new(low.0, usual.saturating_add(more)).map_err(|_| MapError::NoSuchWindow)
    }

    /// Returns the start of a mapping with this hint, if it can lie there.
    fn at_hint(&self, hint: Vpn, pages: PageCount, flags: MapFlags) -> Option<u64> {
        let end = match flags.window {
            WindowChoice::Low => self.layout.low?.end(),
            WindowChoice::Usual | WindowChoice::Above4G => {
                self.opened_by(hint).unwrap_or(self.layout.end).0
            }
        };
        let start = hint.0.max(self.layout.floor.0);
        let is_aligned = start.wrapping_sub(flags.offset) & (flags.align - 1) == 0;
        if start > end.checked_sub(pages.0)? || !is_aligned {
            return None;
        }
        let next = self.areas.find(start);
        let limit = next.map_or(u64::MAX, |place| {
            let guard = if self.keeps_guards() {
                self.areas.based(place).guard_below(self.guard_gap)
            } else {
                0
            };
            self.areas.span(place).start().saturating_sub(guard)
        });
        (start + pages.0 <= limit).then_some(start)
    }

    /// Returns true if hints respect guard gaps, as Linux's do since 2017; of the placements here, those of its maple
    /// tree, and ours.
    fn keeps_guards(&self) -> bool {
        matches!(
            self.placer.placement,
            Placement::MapleTree(_)
                | Placement::MapleTreeGuarded(_)
                | Placement::TwoEndedFirst
                | Placement::TwoEnded
        )
    }

    /// Returns the range, if it lies below the end of the space, the larger window included.
    pub(super) fn range(&self, start: Vpn, pages: PageCount) -> Result<Span, RangeError> {
        if pages.0 == 0 {
            return Err(RangeError::Empty);
        }
        let end = self.layout.extended_end.map_or(self.layout.end, |end| end.max(self.layout.end));
        let span = Span::sized(start.0, pages.0).map_err(|_| RangeError::Outside)?;
        if span.end() <= end.0 { Ok(span) } else { Err(RangeError::Outside) }
    }

    /// Returns the lowest area that lies in `span`, wholly or in part.
    pub(super) fn first_in(&self, span: Span) -> Option<Span> {
        let place = self.areas.find(span.start())?;
        Some(self.areas.span(place)).filter(|area| area.start() < span.end())
    }

    /// Verifies that `span` may be taken out. The error, the limit of areas, says that this would cut an area in two
    /// while there are as many as allowed.
    pub(super) fn may_cut(&self, span: Span) -> Result<(), usize> {
        if self.areas.len() < self.map_limit {
            return Ok(());
        }
        let cuts = self.first_in(span).is_some_and(|area| cuts_in_two(area, span));
        if cuts { Err(self.map_limit) } else { Ok(()) }
    }

    /// Returns the space of a child process: the same areas and, in our placement, the same boundary; no cached word is
    /// copied.
    ///
    /// Touched memory is shared by both from now on: chains that were known to one process merge with untouched
    /// neighbours, shared ones do not. The child inherits neither locks nor contexts of userfaultfd. O(n log n).
    ///
    /// # Errors
    /// [`OutOfMetadata`]; nothing changed.
    pub fn fork(&mut self) -> Result<AddressSpace, OutOfMetadata> {
        let inherited = |attributes: &Attributes| Attributes {
            flags: attributes.flags.without(AreaFlags::LOCKED),
            chain: attributes.chain.shared(),
            userfault: 0,
            ..*attributes
        };
        let areas = self.areas.try_clone(inherited)?;
        self.areas.share_chains();
        let dropped = |area: AreaRecord| {
            area.attributes.flags.any_of(AreaFlags::LOCKED) || area.attributes.userfault != 0
        };
        Ok(AddressSpace {
            layout: self.layout,
            map_limit: self.map_limit,
            guard_gap: self.guard_gap,
            areas,
            placer: self.placer.forked(&self.layout),
            counters: MmapCounters::default(),
            next_chain: self.next_chain,
            unmerged: self.unmerged || self.areas().any(dropped),
            plan: ChangePlan::default(),
        })
    }

    /// Begins a new program: no area is left, and the placement remembers nothing. O(kinds of
    /// areas), apart from giving back memory.
    pub fn exec(&mut self) {
        self.areas.clear();
        self.placer.exec(&self.layout);
        self.unmerged = false;
    }

    /// Returns the area that holds page `at`. O(log n).
    #[must_use]
    pub fn lookup(&self, at: Vpn) -> Option<AreaRecord> {
        self.find(at).filter(|area| area.start <= at)
    }

    /// Returns the lowest area that ends above page `at` (`find_vma`). O(log n).
    #[must_use]
    pub fn find(&self, at: Vpn) -> Option<AreaRecord> {
        self.areas.find(at.0).map(|place| self.areas.record(place))
    }

    /// Returns all areas in ascending order.
    pub fn areas(&self) -> impl Iterator<Item = AreaRecord> + '_ {
        self.areas.iter()
    }

    /// Returns the number of areas.
    #[must_use]
    pub fn area_count(&self) -> usize {
        self.areas.len()
    }

    /// Returns the reason why the area at page `at` and the one that follows without a hole stay two; none where a hole
    /// follows, or where the two could merge.
    #[must_use]
    pub fn blocker_above(&self, at: Vpn) -> Option<MergeBlocker> {
        let place = self.areas.find(at.0).filter(|&place| self.areas.span(place).contains(at.0))?;
        self.areas.blocker_above(place)
    }

    /// Returns the windows of the process.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the rule that places mappings.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placer.placement
    }

    /// Returns the counts since construction.
    #[must_use]
    pub fn counters(&self) -> &MmapCounters {
        &self.counters
    }

    /// Returns the bytes of memory that the index and the attributes of the areas take.
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        self.areas.metadata_bytes()
    }
}

impl Check for AddressSpace {
    /// Verifies the laws of the areas and of their attributes, and that no two areas that could merge were left apart.
    /// O(n).
    fn check(&self) -> Result<(), Violation> {
        self.areas.check()?;
        if self.unmerged { Ok(()) } else { self.areas.check_merged() }
    }
}

/// Reason why a start and a number of pages are no range of the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeError {
    Empty,
    Outside,
}

impl From<RangeError> for UnmapError {
    fn from(why: RangeError) -> UnmapError {
        match why {
            RangeError::Empty => UnmapError::ZeroSize,
            RangeError::Outside => UnmapError::Outside,
        }
    }
}

/// Returns true if parts of `area` lie on both sides of `span`.
pub(super) fn cuts_in_two(area: Span, span: Span) -> bool {
    area.start() < span.start() && span.end() < area.end()
}
