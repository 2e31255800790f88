//! Free ranges in the address space of a process, and the largest mapping that they and the limits allow.

use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, HoleBucket, Placement, Protection, SpaceConfig,
};
use nofrag::units::{PageCount, Vpn};
use serde::Serialize;

use super::window::{Window, is_inside};
use crate::fields::Limit;
use crate::layout::{ALIGNS, AlignedRoom, HoleClass, LayoutError};
use crate::proc_maps::Area;

/// The holes of an address space. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Room {
    pub free_bytes: u64,
    pub holes: usize,
    pub largest_bytes: u64,
    /// The largest mapping at each alignment.
    pub largest_by_align: Vec<AlignedRoom>,
    /// The holes by power of two, ascending; classes without holes are left out.
    pub classes: Vec<HoleClass>,
}

/// The growth that the free ranges and the limits allow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Headroom {
    /// Bytes of the address space over bytes mapped: 1 would be full. Equal to the survival ratio if the space were the
    /// smallest in which the process survives.
    pub space_over_mapped: f64,
    /// The largest mapping without an address that would succeed now.
    pub largest_mapping_bytes: u64,
    pub stopped_by: StoppedBy,
    /// Mapped bytes at the limit of areas, if areas keep their mean size; `null` without a limit.
    pub bytes_at_area_limit: Option<u64>,
}

/// The bound on the largest mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StoppedBy {
    /// The largest hole: no limit is below it.
    Holes,
    AddressSpaceLimit,
    /// The limit `vm.max_map_count`: no area can be made, unless it merges with a neighbour.
    AreaLimit,
}

/// Pages that Linux keeps free below a stack, unless the boot parameter `stack_guard_gap` sets another number.
pub(super) const GUARD_GAP: PageCount = PageCount(256);

/// Returns an empty address space with the process's bounds, which `placement` searches up to `top`; areas have no
/// limit.
pub(super) fn empty_space(window: &Window, top: u64, placement: Placement) -> AddressSpace {
    let layout = window.layout(top);
    AddressSpace::new(SpaceConfig {
        layout,
        placement,
        map_limit: usize::MAX,
        guard_gap: GUARD_GAP,
    })
}

/// Loads `area` at its address; it merges with nothing.
///
/// # Errors
/// [`LayoutError::OutOfMemory`] when there is no memory for the engine's records.
pub(super) fn load(
    space: &mut AddressSpace,
    area: &Area,
    attributes: Attributes,
) -> Result<(), LayoutError> {
    let page = space.layout().page;
    let (start, end) = (page.page_of(area.start), page.pages_for(area.end).get());
    let pages = PageCount(end - start.get());
    space.load(start, pages, attributes).map_err(|_| LayoutError::OutOfMemory)
}

/// Attributes of an area that takes up room and merges with nothing.
pub(super) const OBSTACLE: Attributes =
    Attributes::anonymous(Protection::NONE).with(AreaFlags::OPAQUE);

/// Returns the holes between the areas. O(n log n).
///
/// # Errors
/// [`LayoutError::OutOfMemory`] when the layout is too large for this machine.
pub fn room(areas: &[Area], window: &Window) -> Result<Room, LayoutError> {
    let mut space = empty_space(window, window.span.end(), Placement::FirstFit);
    for area in areas.iter().filter(|area| is_inside(area)) {
        load(&mut space, area, OBSTACLE)?;
    }
    let page = window.page.bytes();
    let stats = space.hole_stats();
    let aligns = std::iter::once(page).chain(ALIGNS.into_iter().filter(|&align| align > page));
    let largest_at = |align_bytes: u64| {
        let largest = space.largest_aligned(align_bytes / page);
        AlignedRoom { align_bytes, largest_area_bytes: largest.map_or(0, |hole| hole.len() * page) }
    };
    let class = |(from, bucket): (PageCount, HoleBucket)| HoleClass {
        from_bytes: from.get() * page,
        holes: bucket.holes,
        bytes: bucket.pages.get() * page,
    };
    Ok(Room {
        free_bytes: stats.free.get() * page,
        holes: stats.holes,
        largest_bytes: stats.largest.get() * page,
        largest_by_align: aligns.map(largest_at).collect(),
        classes: space.hole_histogram().occupied().map(class).collect(),
    })
}

/// Returns the part of the largest hole that the limits and the guard gap below a stack leave for a mapping.
pub fn headroom(
    areas: &[Area],
    window: &Window,
    address_space_limit: Option<Limit>,
    area_limit: Option<u64>,
) -> Headroom {
    let inside: Vec<&Area> = areas.iter().filter(|area| is_inside(area)).collect();
    let mapped: u64 = inside.iter().map(|area| area.bytes()).sum();
    let counted = areas.iter().filter(|area| area.is_counted()).count() as u64;
    let in_holes = largest_mapping(&inside, window);
    let in_limit = match address_space_limit {
        Some(Limit::Bytes(limit)) => limit.saturating_sub(mapped),
        Some(Limit::Unlimited) | None => u64::MAX,
    };
    let (largest_mapping_bytes, stopped_by) = match area_limit {
        Some(limit) if counted > limit => (0, StoppedBy::AreaLimit),
        _ if in_limit < in_holes => (in_limit, StoppedBy::AddressSpaceLimit),
        _ => (in_holes, StoppedBy::Holes),
    };
    let at_limit = |limit: u64| {
        u64::try_from(u128::from(mapped) * u128::from(limit) / u128::from(counted.max(1))).ok()
    };
    Headroom {
        space_over_mapped: window.span.len() as f64 / mapped.max(1) as f64,
        largest_mapping_bytes,
        stopped_by,
        bytes_at_area_limit: area_limit.and_then(at_limit),
    }
}

/// Returns the size of the largest hole, less the guard gap of a stack above it.
fn largest_mapping(inside: &[&Area], window: &Window) -> u64 {
    let guard = window.page.bytes_in(GUARD_GAP).unwrap_or(0);
    let mut free_from = window.span.start();
    let mut largest = 0;
    for area in inside {
        let guard = if area.grows_down() { guard } else { 0 };
        largest = largest.max(area.start.saturating_sub(guard).saturating_sub(free_from));
        free_from = area.end;
    }
    largest.max(window.span.end().saturating_sub(free_from))
}

/// Returns the address of a page; saturates.
pub(super) fn page_address(window: &Window, page: Vpn) -> u64 {
    window.page.address_of(page).unwrap_or(u64::MAX)
}
