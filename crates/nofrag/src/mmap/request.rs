//! Requests to an address space, and its errors.

use super::layout::Direction;
use crate::errors::{errors, turns_into};
use crate::ranges::OutOfMetadata;
use crate::units::Vpn;

/// The wishes of a mapping beside its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapFlags {
    pub window: WindowChoice,
    /// A power of two modulo which the first page must be congruent to `offset`.
    pub align: u64,
    /// The remainder of the first page modulo `align`, in pages.
    pub offset: u64,
    /// The end from which the usual window or that above 4 GiB is searched, if not as the layout says. Cached
    /// placements then neither use nor change what they remember.
    pub direction: Option<Direction>,
}

impl Default for MapFlags {
    fn default() -> Self {
        MapFlags { window: WindowChoice::Usual, align: 1, offset: 0, direction: None }
    }
}

/// The part of the space that is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WindowChoice {
    /// The window that the layout names.
    #[default]
    Usual,
    /// `MAP_32BIT`: the second GiB, upwards.
    Low,
    /// `MAP_ABOVE4G`: nothing below 4 GiB.
    Above4G,
}

/// The permitted places of a resized mapping (`mremap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapTarget {
    /// Only the place that it has.
    InPlace,
    /// Another place, if the mapping cannot grow in place (`MREMAP_MAYMOVE`).
    MayMove,
    /// From this page on, in place of the areas mapped there (`MREMAP_FIXED`).
    To(Vpn),
}

const OUTSIDE: &str = "a part of the range lies outside the space";
const TOO_MANY: &str = "there would be more areas than the limit of";

errors! {
    /// Reason why nothing was mapped; nothing changed.
    #[non_exhaustive]
    pub enum MapError {
        /// Zero pages were asked for.
        ZeroSize => "a mapping of zero pages was asked for",
        /// The alignment is not a power of two.
        AlignNotPowerOfTwo => "the alignment is not a power of two",
        /// The mapping has more pages than the space.
        TooLong => "the space has fewer pages than were asked for",
        /// The layout has no window of that kind.
        NoSuchWindow => "the layout has no window of that kind",
        /// No hole is found by the placement's rule; the largest hole of the window has `largest` pages.
        NoPlace {
            largest: u64,
        } => "no hole serves the request; the largest one has {largest} pages",
        /// There are as many areas as `limit`, the number allowed (`vm.max_map_count`).
        TooManyAreas {
            limit: usize,
        } => "{TOO_MANY} {limit}",
        /// The allocator could not get memory for its own records.
        OutOfMetadata => "{OutOfMetadata}",
    }

    /// Reason why nothing was mapped at a given place; nothing changed.
    #[non_exhaustive]
    pub enum FixedError {
        ZeroSize => "a range of zero pages was named",
        /// A part of the range lies outside the space.
        Outside => "{OUTSIDE}",
        /// A part of the range is mapped, and was not to be replaced.
        Taken {
            /// First page of the lowest area in the way.
            area: u64,
        } => "the area at page {area:#x} is in the way",
        /// There are as many areas as `limit`, the number allowed.
        TooManyAreas {
            limit: usize,
        } => "{TOO_MANY} {limit}",
        /// The allocator could not get memory for its own records.
        OutOfMetadata => "{OutOfMetadata}",
    }

    /// Reason why nothing was unmapped; nothing changed.
    #[non_exhaustive]
    pub enum UnmapError {
        ZeroSize => "a range of zero pages was named",
        /// A part of the range lies outside the space.
        Outside => "{OUTSIDE}",
        /// The range cuts a hole into one area, and there are as many areas as `limit`, the number allowed. Give the
        /// pages back without unmapping them (`MADV_DONTNEED`).
        TooManyAreas {
            limit: usize,
        } => "{TOO_MANY} {limit}",
        /// The allocator could not get memory for its own records.
        OutOfMetadata => "{OutOfMetadata}",
    }

    /// Reason why attributes were not changed; nothing changed.
    #[non_exhaustive]
    pub enum ProtectError {
        ZeroSize => "a range of zero pages was named",
        /// A part of the range lies outside the space.
        Outside => "{OUTSIDE}",
        /// A part of the range is not mapped.
        NotMapped {
            /// First page of the first hole in the range.
            hole: u64,
        } => "page {hole:#x} is not mapped",
        /// The change splits an area, and there are as many areas as `limit`, the number allowed.
        TooManyAreas {
            limit: usize,
        } => "{TOO_MANY} {limit}",
        /// The allocator could not get memory for its own records.
        OutOfMetadata => "{OutOfMetadata}",
    }

    /// Reason why a stack did not grow; nothing changed.
    #[non_exhaustive]
    pub enum GrowError {
        /// No area that grows down lies above the page.
        NoStack => "no area that grows down lies above the page",
        /// The stack would grow into its guard gap.
        GuardGap {
            /// First page of the area that is too near.
            neighbour: u64,
        } => "the area at page {neighbour:#x} is within the guard gap",
        /// A part of the range lies outside the space.
        Outside => "{OUTSIDE}",
        /// The allocator could not get memory for its own records.
        OutOfMetadata => "{OutOfMetadata}",
    }

    /// Reason why an area did not move; nothing changed.
    #[non_exhaustive]
    pub enum MoveError {
        /// The old range is not wholly mapped, as one area; or a reserved new place is not as the move left it.
        NotOneArea => "a range of the move is not wholly mapped as one area",
        /// Areas of this kind never grow (`DONT_EXPAND`, `PFN_MAP`).
        NotExpandable => "areas of this kind never grow",
        /// A part of a range lies outside the space.
        Outside => "{OUTSIDE}",
        /// Zero pages were asked for.
        ZeroSize => "a move to zero pages was asked for",
        /// Old and new range overlap.
        Overlap => "the old and the new range overlap",
        Taken {
            /// First page of the area in the way.
            area: u64,
        } => "the area at page {area:#x} is in the way",
        NoPlace(why: MapError) => "no new place: {why}",
        /// A move may add up to three areas, and no more than that are left below `limit`, the number allowed.
        TooManyAreas {
            limit: usize,
        } => "{TOO_MANY} {limit}",
        /// The allocator could not get memory for its own records.
        OutOfMetadata => "{OutOfMetadata}",
    }
}

turns_into! {
    OutOfMetadata => MapError::OutOfMetadata,
    OutOfMetadata => FixedError::OutOfMetadata,
    OutOfMetadata => UnmapError::OutOfMetadata,
    OutOfMetadata => ProtectError::OutOfMetadata,
    OutOfMetadata => GrowError::OutOfMetadata,
    OutOfMetadata => MoveError::OutOfMetadata,
}
