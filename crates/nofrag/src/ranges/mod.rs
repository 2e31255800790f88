//! Free ranges of numbers, single owner.
//!
//! A [`RangeAllocator`] owns a *space*: a set of numbers, usually one [`Span`], which can grow and shrink. Some of the
//! numbers are free; the maximal runs of free numbers are the *holes*. The allocator knows holes only: the boundaries
//! of the ranges that it handed out are the caller's, so a range may be freed in parts, or several neighbours at once.
//!
//! Three designs find holes, chosen by value in [`Config::index`]: the two of the Linux kernel, for comparison, and
//! `WideBlocks`, the default. They share one interface, `FreeIndex`.
//!
//! An owner that has to know the areas between the holes keeps an `AreaIndex`: the same tree, with an area in use
//! behind each gap.
//!
//! Files, bottom up: `span` (a non-empty range), `request` and `error` (what may be asked and answered), `counters`,
//! `index` (the interface of the designs), `red_black` (a tree of spans), `cached_scan` and `augmented_tree` (Linux) on
//! it, `areas` (areas, gaps, and requests for places), `wide` (our design, for holes and for areas), `allocator` (the
//! owner of a space), `relocation` (moves), `heap` (ranges that are freed by handle), `saved` (spaces that are saved
//! and restored), `shared` (the owner of a space behind a lock, with handles), `area_model` (the index of areas beside
//! a list).

mod allocator;
#[cfg(test)]
mod area_model;
mod areas;
mod augmented_tree;
mod cached_scan;
mod counters;
mod error;
mod heap;
mod index;
pub(crate) mod red_black;
mod relocation;
mod request;
#[cfg(feature = "serde")]
mod saved;
#[cfg(any(feature = "std", feature = "spin", loom))]
mod shared;
mod span;
mod wide;

pub(crate) use areas::{Area, Edge, FoundGap, GapRequest};
pub(crate) use wide::{AreaIndex, AreaPlace, Finger, Fingers, GapPlace, Removed};

pub use allocator::{FreeRanges, RangeAllocator, Stats};
pub use counters::Counters;
pub use error::{
    AddSpanError, AllocError, FreeError, HandleError, HeapError, OutOfMetadata, RelocateError,
    TakeError,
};
pub use heap::{HeapRange, RangeHeap};
pub use relocation::{PendingMove, Relocation};
pub use request::{AlignClasses, AlignOne, AlignRule, Config, Fit, Index, Request};
#[cfg(any(feature = "std", feature = "spin", loom))]
pub use shared::{OwnedRange, RangeHandle, SharedRanges};
pub use span::{Span, SpanError};
