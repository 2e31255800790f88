//! What may be asked and answered.

use super::layout::Direction;
use crate::ranges::OutOfMetadata;
use crate::units::Vpn;
use core::fmt;

/// What a mapping may ask for beside its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapFlags {
    /// Which part of the space is searched.
    pub window: WindowChoice,
    /// The first page must be congruent to `offset` modulo this power of two.
    pub align: u64,
    /// See `align`.
    pub offset: u64,
    /// From which end the usual window or that above 4 GiB is searched, if not as the layout says. Cached placements
    /// then neither use nor change what they remember.
    pub direction: Option<Direction>,
}

impl Default for MapFlags {
    fn default() -> Self {
        MapFlags { window: WindowChoice::Usual, align: 1, offset: 0, direction: None }
    }
}

/// Which part of the space is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WindowChoice {
    /// As the layout says.
    #[default]
    Usual,
    /// `MAP_32BIT`: the second GiB, upwards.
    Low,
    /// `MAP_ABOVE4G`: nothing below 4 GiB.
    Above4G,
}

/// Why nothing was mapped; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// Zero pages were asked for.
    ZeroSize,
    /// The alignment is not a power of two.
    AlignNotPowerOfTwo,
    /// More pages than the space has.
    TooLong,
    /// The layout has no window of that kind.
    NoSuchWindow,
    /// No hole is found by the placement's rule; the largest hole of the window has so many pages.
    NoPlace {
        /// Pages of the largest hole.
        largest: u64,
    },
    /// There are as many areas as allowed (`vm.max_map_count`).
    TooManyAreas {
        /// The limit.
        limit: usize,
    },
    /// The allocator could not get memory for its own records.
    OutOfMetadata,
}

/// Why nothing was mapped at a given place; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FixedError {
    /// Zero pages were named.
    ZeroSize,
    /// A part of the range lies outside the space.
    Outside,
    /// A part of the range is mapped, and was not to be replaced; the lowest area in the way starts here.
    Taken {
        /// First page of the area.
        area: u64,
    },
    /// There are as many areas as allowed.
    TooManyAreas {
        /// The limit.
        limit: usize,
    },
    /// The allocator could not get memory for its own records.
    OutOfMetadata,
}

/// Why nothing was unmapped; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnmapError {
    /// Zero pages were named.
    ZeroSize,
    /// A part of the range lies outside the space.
    Outside,
    /// The range cuts a hole into one area, and there are as many areas as allowed. Give the pages back without
    /// unmapping them (`MADV_DONTNEED`).
    TooManyAreas {
        /// The limit.
        limit: usize,
    },
    /// The allocator could not get memory for its own records.
    OutOfMetadata,
}

/// Why attributes were not changed; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtectError {
    /// Zero pages were named.
    ZeroSize,
    /// A part of the range lies outside the space.
    Outside,
    /// A part of the range is not mapped; the first hole in it starts here.
    NotMapped {
        /// First page of the hole.
        hole: u64,
    },
    /// The change splits an area, and there are as many areas as allowed.
    TooManyAreas {
        /// The limit.
        limit: usize,
    },
    /// The allocator could not get memory for its own records.
    OutOfMetadata,
}

/// Why a stack did not grow; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrowError {
    /// No area that grows down lies above the page.
    NoStack,
    /// The guard gap would be gone.
    GuardGap {
        /// First page of the area that is too near.
        neighbour: u64,
    },
    /// A part of the range lies outside the space.
    Outside,
    /// The allocator could not get memory for its own records.
    OutOfMetadata,
}

/// Where a resized mapping may be (`mremap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapTarget {
    /// Only where it is.
    InPlace,
    /// Elsewhere, if it cannot grow where it is (`MREMAP_MAYMOVE`).
    MayMove,
    /// From this page on, in place of what is mapped there (`MREMAP_FIXED`).
    To(Vpn),
}

/// Why an area did not move; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveError {
    /// The old range is not wholly mapped, as one area; or a reserved new place is not what it was any more.
    NotOneArea,
    /// Areas of this kind never grow (`DONT_EXPAND`, `PFN_MAP`).
    NotExpandable,
    /// A part of a range lies outside the space.
    Outside,
    /// Zero pages were asked for.
    ZeroSize,
    /// Old and new range overlap.
    Overlap,
    /// The new place is taken.
    Taken {
        /// First page of the area in the way.
        area: u64,
    },
    /// No new place.
    NoPlace(MapError),
    /// A move may need up to three more areas, and the limit is nearer than that.
    TooManyAreas {
        /// The limit.
        limit: usize,
    },
    /// The allocator could not get memory for its own records.
    OutOfMetadata,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::ZeroSize => f.write_str("a mapping of zero pages was asked for"),
            MapError::AlignNotPowerOfTwo => f.write_str("the alignment is not a power of two"),
            MapError::TooLong => f.write_str("the space has fewer pages than were asked for"),
            MapError::NoSuchWindow => f.write_str("the layout has no window of that kind"),
            MapError::NoPlace { largest } => {
                write!(f, "no hole serves the request; the largest one has {largest} pages")
            }
            MapError::TooManyAreas { limit } => too_many(f, *limit),
            MapError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

impl fmt::Display for FixedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FixedError::ZeroSize => f.write_str("a range of zero pages was named"),
            FixedError::Outside => outside(f),
            FixedError::Taken { area } => {
                write!(f, "the area at page {area:#x} is in the way")
            }
            FixedError::TooManyAreas { limit } => too_many(f, *limit),
            FixedError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

impl fmt::Display for UnmapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnmapError::ZeroSize => f.write_str("a range of zero pages was named"),
            UnmapError::Outside => outside(f),
            UnmapError::TooManyAreas { limit } => too_many(f, *limit),
            UnmapError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

impl fmt::Display for ProtectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtectError::ZeroSize => f.write_str("a range of zero pages was named"),
            ProtectError::Outside => outside(f),
            ProtectError::NotMapped { hole } => write!(f, "page {hole:#x} is not mapped"),
            ProtectError::TooManyAreas { limit } => too_many(f, *limit),
            ProtectError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

impl fmt::Display for GrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GrowError::NoStack => f.write_str("no area that grows down lies above the page"),
            GrowError::GuardGap { neighbour } => {
                write!(f, "the area at page {neighbour:#x} is within the guard gap")
            }
            GrowError::Outside => outside(f),
            GrowError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MoveError::NotOneArea => {
                f.write_str("a range of the move is not wholly mapped as one area")
            }
            MoveError::NotExpandable => f.write_str("areas of this kind never grow"),
            MoveError::Outside => outside(f),
            MoveError::ZeroSize => f.write_str("a move to zero pages was asked for"),
            MoveError::Overlap => f.write_str("the old and the new range overlap"),
            MoveError::Taken { area } => write!(f, "the area at page {area:#x} is in the way"),
            MoveError::NoPlace(why) => write!(f, "no new place: {why}"),
            MoveError::TooManyAreas { limit } => too_many(f, *limit),
            MoveError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

fn outside(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("a part of the range lies outside the space")
}

fn too_many(f: &mut fmt::Formatter<'_>, limit: usize) -> fmt::Result {
    write!(f, "there would be more areas than the limit of {limit}")
}

impl core::error::Error for MapError {}
impl core::error::Error for FixedError {}
impl core::error::Error for UnmapError {}
impl core::error::Error for ProtectError {}
impl core::error::Error for GrowError {}
impl core::error::Error for MoveError {}

impl From<OutOfMetadata> for FixedError {
    fn from(_: OutOfMetadata) -> Self {
        FixedError::OutOfMetadata
    }
}

impl From<OutOfMetadata> for UnmapError {
    fn from(_: OutOfMetadata) -> Self {
        UnmapError::OutOfMetadata
    }
}

impl From<OutOfMetadata> for ProtectError {
    fn from(_: OutOfMetadata) -> Self {
        ProtectError::OutOfMetadata
    }
}

impl From<OutOfMetadata> for GrowError {
    fn from(_: OutOfMetadata) -> Self {
        GrowError::OutOfMetadata
    }
}

impl From<OutOfMetadata> for MoveError {
    fn from(_: OutOfMetadata) -> Self {
        MoveError::OutOfMetadata
    }
}
