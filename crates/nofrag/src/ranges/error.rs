//! One error type per operation; each variant is an answer that the caller can act on.

use alloc::collections::TryReserveError;
use core::fmt;

/// No memory for the allocator's own records. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMetadata;

/// Why nothing was allocated. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocError {
    /// The request is for zero numbers.
    ZeroSize,
    /// The alignment is not a power of two.
    AlignNotPowerOfTwo,
    /// This index design has no such fit, or [`Config::size_index`](super::Config::size_index) is off.
    FitNotIndexed,
    /// No free range serves the request. A request for `largest` numbers, unaligned and anywhere, would succeed.
    Exhausted {
        /// The size of the largest free range.
        largest: u64,
    },
    /// No memory for the allocator's own records.
    OutOfMetadata,
}

/// Why a given range was not taken. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakeError {
    /// A part of the range lies outside the space.
    Foreign,
    /// A part of the range is allocated.
    Taken,
    /// No memory for the allocator's own records.
    OutOfMetadata,
}

/// Why a range was not freed. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreeError {
    /// A part of the range lies outside the space.
    Foreign,
    /// A part of the range is free already.
    NotAllocated,
    /// No memory for the allocator's own records.
    OutOfMetadata,
}

/// Why a span was not added to the space. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddSpanError {
    /// A part of the span is in the space already.
    Overlaps,
    /// No memory for the allocator's own records.
    OutOfMetadata,
}

/// Why a range was not moved. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelocateError {
    /// The old range is not wholly allocated.
    NotAllocated,
    /// A part of a range lies outside the space.
    Foreign,
    /// No new place was found.
    NoPlace(AllocError),
    /// A part of the wanted place is allocated by somebody else.
    Taken,
    /// No memory for the allocator's own records.
    OutOfMetadata,
}

impl fmt::Display for OutOfMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for the allocator's own records; nothing changed")
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocError::ZeroSize => f.write_str("a request for zero numbers"),
            AllocError::AlignNotPowerOfTwo => f.write_str("the alignment is not a power of two"),
            AllocError::FitNotIndexed => {
                f.write_str("this allocator was built without the index that the fit needs")
            }
            AllocError::Exhausted { largest } => {
                write!(f, "no free range serves the request; the largest one has {largest}")
            }
            AllocError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakeError::Foreign => f.write_str("a part of the range lies outside the space"),
            TakeError::Taken => f.write_str("a part of the range is allocated"),
            TakeError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreeError::Foreign => f.write_str("a part of the range lies outside the space"),
            FreeError::NotAllocated => f.write_str("a part of the range is free already"),
            FreeError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

impl fmt::Display for AddSpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddSpanError::Overlaps => f.write_str("a part of the span is in the space already"),
            AddSpanError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

impl fmt::Display for RelocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelocateError::NotAllocated => f.write_str("the old range is not wholly allocated"),
            RelocateError::Foreign => f.write_str("a part of a range lies outside the space"),
            RelocateError::NoPlace(why) => write!(f, "no new place: {why}"),
            RelocateError::Taken => f.write_str("a part of the wanted place is allocated"),
            RelocateError::OutOfMetadata => OutOfMetadata.fmt(f),
        }
    }
}

impl core::error::Error for OutOfMetadata {}
impl core::error::Error for AllocError {}
impl core::error::Error for TakeError {}
impl core::error::Error for FreeError {}
impl core::error::Error for AddSpanError {}
impl core::error::Error for RelocateError {}

impl From<TryReserveError> for OutOfMetadata {
    fn from(_: TryReserveError) -> Self {
        OutOfMetadata
    }
}

impl From<OutOfMetadata> for AllocError {
    fn from(_: OutOfMetadata) -> Self {
        AllocError::OutOfMetadata
    }
}

impl From<OutOfMetadata> for TakeError {
    fn from(_: OutOfMetadata) -> Self {
        TakeError::OutOfMetadata
    }
}

impl From<OutOfMetadata> for FreeError {
    fn from(_: OutOfMetadata) -> Self {
        FreeError::OutOfMetadata
    }
}

impl From<OutOfMetadata> for AddSpanError {
    fn from(_: OutOfMetadata) -> Self {
        AddSpanError::OutOfMetadata
    }
}
