//! One error type per operation; each variant is an answer that the caller can act on.

use alloc::collections::TryReserveError;
use core::fmt;

use super::Span;
use crate::errors::{errors, turns_into};

/// No memory for the allocator's own records. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMetadata;

errors!(OutOfMetadata => "no memory for the allocator's own records; nothing changed");

errors! {
    /// Reason why nothing was allocated. Nothing changed.
    #[non_exhaustive]
    pub enum AllocError {
        /// The request is for zero numbers.
        ZeroSize => "a request for zero numbers",
        /// The alignment is not a power of two.
        AlignNotPowerOfTwo => "the alignment is not a power of two",
        /// The design in [`Config::index`](super::Config::index) is one of Linux, which knows the lowest fit alone.
        FitNotIndexed => "this index design knows the lowest fit alone; take `Index::WideBlocks` for others",
        /// No free range serves the request. A request for `largest` numbers, unaligned and anywhere, would succeed.
        Exhausted {
            /// The size of the largest free range.
            largest: u64,
        } => "no free range serves the request; the largest one has {largest}",
        /// Free ranges are large enough, but none holds the size at this alignment inside these bounds. A request for
        /// `largest` numbers, unaligned and anywhere, would succeed.
        Misfit {
            /// The size of the largest free range.
            largest: u64,
            /// The alignment that was asked for.
            align: u64,
            /// The bounds that were asked for.
            within: Span,
        } => "no free range holds the request{}; the largest one has {largest}" with Where(*align, *within),
        /// No memory for the allocator's own records.
        OutOfMetadata => "{OutOfMetadata}",
    }

    /// Reason why a given range was not taken. Nothing changed.
    #[non_exhaustive]
    pub enum TakeError {
        /// A part of the range lies outside the space.
        Foreign => "a part of the range lies outside the space",
        /// A part of the range is allocated.
        Taken => "a part of the range is allocated",
        /// No memory for the allocator's own records.
        OutOfMetadata => "{OutOfMetadata}",
    }

    /// Reason why a range was not freed. Nothing changed.
    #[non_exhaustive]
    pub enum FreeError {
        /// A part of the range lies outside the space.
        Foreign => "a part of the range lies outside the space",
        /// A part of the range is free already.
        NotAllocated => "a part of the range is free already",
        /// No memory for the allocator's own records.
        OutOfMetadata => "{OutOfMetadata}",
    }

    /// Reason why a span was not added to the space. Nothing changed.
    #[non_exhaustive]
    pub enum AddSpanError {
        /// A part of the span is in the space already.
        Overlaps => "a part of the span is in the space already",
        /// No memory for the allocator's own records.
        OutOfMetadata => "{OutOfMetadata}",
    }

    /// Reason why a handle was refused. Nothing changed.
    #[non_exhaustive]
    pub enum HandleError {
        /// The range of the handle was freed, or another space has given the handle out.
        Stale => "the handle's range was freed",
    }

    /// Reason why a [`RangeHeap`](super::RangeHeap) handed out nothing. Nothing changed.
    #[non_exhaustive]
    pub enum HeapError {
        /// The size is zero.
        ZeroSize => "the size is zero",
        /// The alignment is not a power of two.
        AlignNotPowerOfTwo => "the alignment is not a power of two",
        /// No hole serves the request, or none that was looked at.
        NoPlace => "no hole serves the request",
        /// No memory for the allocator's own records.
        OutOfMetadata => "{OutOfMetadata}",
    }

    /// Reason why a range was not moved. Nothing changed.
    #[non_exhaustive]
    pub enum RelocateError {
        /// The old range is not wholly allocated.
        NotAllocated => "the old range is not wholly allocated",
        /// A part of the old or the new range lies outside the space.
        Foreign => "a part of a range lies outside the space",
        /// No new place was found.
        NoPlace(why: AllocError) => "no new place: {why}",
        /// A part of the wanted place, outside the old range, is allocated.
        Taken => "a part of the wanted place is allocated",
        /// No memory for the allocator's own records.
        OutOfMetadata => "{OutOfMetadata}",
    }
}

/// Alignment and bounds, as far as a request has any.
struct Where(u64, Span);

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Where(align, within) = *self;
        if align > 1 {
            write!(f, " at a multiple of {align}")?;
        }
        if within != Span::ALL {
            write!(f, " inside {within}")?;
        }
        Ok(())
    }
}

impl From<TryReserveError> for OutOfMetadata {
    fn from(_: TryReserveError) -> Self {
        OutOfMetadata
    }
}

turns_into! {
    OutOfMetadata => AllocError::OutOfMetadata,
    OutOfMetadata => TakeError::OutOfMetadata,
    OutOfMetadata => FreeError::OutOfMetadata,
    OutOfMetadata => AddSpanError::OutOfMetadata,
    OutOfMetadata => HeapError::OutOfMetadata,
}
