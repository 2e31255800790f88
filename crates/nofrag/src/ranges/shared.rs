//! A space that threads share, whose ranges are handles.
//!
//! Plain spans say which numbers are meant, and not whose: a span that is freed twice may free what another user has
//! got meanwhile. A handle names one allocation. Its place in a table of records holds the span, and counts how many
//! handles have been given out for it, in 64 bits, so a stale handle is refused for ever (docs/decisions/0025).
//!
//! Costs: an allocation or a free is that of a [`RangeAllocator`] and O(1) more, under one lock, and 32 bytes for each
//! range in use. A free never fails for memory: an allocation makes room for the hole that its free may leave. Where
//! the allocator has no such estimate (holes spread thinly over more than 2^31 numbers each) the free is owed, and a
//! later call makes it.

use super::{
    AddSpanError, AllocError, Config, HandleError, OutOfMetadata, RangeAllocator, Request, Span,
    Stats,
};
use crate::check::{Check, Violation};
use crate::lists::put;
use crate::sync::{Mutex, Rank};
use alloc::vec::Vec;
use core::mem;
use core::ops::Deref;

/// The end of a chain of records.
const NIL: u32 = u32::MAX;

/// The name of one allocation of a [`SharedRanges`]. Copies name the same one; once it is freed, all are stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RangeHandle {
    place: u32,
    generation: u64,
}

#[derive(Clone, Copy, Debug)]
enum Use {
    Range(Span),
    /// A range that was freed without memory for its hole, and the next such record.
    Owed(Span, u32),
    /// Nothing, and the next such record.
    Vacant(u32),
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// Number of handles that have been given out for this place.
    generation: u64,
    used: Use,
}

/// 1. Every range in use or owed is allocated in `ranges`, and no two overlap.
/// 2. Every record is in use, or on the chain of owed or of vacant ones.
#[derive(Debug)]
struct Books {
    ranges: RangeAllocator,
    records: Vec<Record>,
    live: usize,
    vacant: u32,
    owed: u32,
    spans: usize,
}

/// Hands out ranges of numbers to any thread, as handles, or as values that free them when they are dropped.
///
/// ```
/// use nofrag::ranges::{OwnedRange, Request, SharedRanges, Span};
/// use std::sync::Arc;
///
/// let heap = Arc::new(SharedRanges::over(Span::new(0, 1 << 30)?)?);
/// let buffer = OwnedRange::new(Arc::clone(&heap), &Request::new(0x8000).align(0x1_0000))?;
/// assert_eq!(buffer.span().start(), 0);
/// drop(buffer);
/// let handle = heap.alloc(&Request::new(0x8000))?;
/// heap.free(handle)?;
/// assert!(heap.free(handle).is_err(), "a handle is good for one free");
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SharedRanges {
    books: Mutex<Books>,
}

impl SharedRanges {
    /// Returns an empty space; [`add_span`](Self::add_span) gives it numbers.
    #[must_use]
    pub fn new(config: Config) -> SharedRanges {
        let ranges = RangeAllocator::new(config);
        let (records, live, vacant, owed, spans) = (Vec::new(), 0, NIL, NIL, 0);
        let books = Books { ranges, records, live, vacant, owed, spans };
        SharedRanges { books: Mutex::new(Rank::Free, books) }
    }

    /// Returns a space by default of the numbers in `space`, all of them free.
    ///
    /// # Errors
    /// [`AddSpanError::OutOfMetadata`].
    pub fn over(space: Span) -> Result<SharedRanges, AddSpanError> {
        let shared = SharedRanges::new(Config::default());
        shared.add_span(space)?;
        Ok(shared)
    }

    /// Adds numbers as [`RangeAllocator::add_span`] does. O(log n).
    ///
    /// # Errors
    /// See [`AddSpanError`]; nothing changed.
    pub fn add_span(&self, span: Span) -> Result<(), AddSpanError> {
        let mut books = self.books.lock();
        books.ranges.add_span(span)?;
        books.spans += 1;
        Ok(())
    }

    /// Takes a range as [`RangeAllocator::alloc`] does, which [`free`](Self::free) gives back.
    ///
    /// # Errors
    /// See [`AllocError`]; nothing changed.
    pub fn alloc(&self, request: &Request) -> Result<RangeHandle, AllocError> {
        self.books.lock().alloc(request).map(|(handle, _)| handle)
    }

    /// Frees the range of a handle, and returns it. O(log n).
    ///
    /// # Errors
    /// [`HandleError::Stale`]; nothing changed.
    pub fn free(&self, handle: RangeHandle) -> Result<Span, HandleError> {
        self.books.lock().free(handle)
    }

    /// Returns the range of a handle; `None` if it was freed. O(1).
    #[must_use]
    pub fn span(&self, handle: RangeHandle) -> Option<Span> {
        self.books.lock().span(handle)
    }

    /// Returns the present counts of free numbers and holes, as [`RangeAllocator::stats`] does.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.books.lock().ranges.stats()
    }
}

impl Books {
    fn alloc(&mut self, request: &Request) -> Result<(RangeHandle, Span), AllocError> {
        self.settle();
        self.make_room()?;
        let span = self.ranges.alloc(request)?;
        let place = self.vacant;
        let record = &mut self.records[place as usize];
        let Use::Vacant(next) = mem::replace(&mut record.used, Use::Range(span)) else {
            unreachable!("the chain of vacant records has vacant ones")
        };
        record.generation += 1;
        let generation = record.generation;
        self.vacant = next;
        self.live += 1;
        Ok((RangeHandle { place, generation }, span))
    }

    /// Makes room for one more record, and for the hole that freeing its range may leave.
    fn make_room(&mut self) -> Result<(), OutOfMetadata> {
        self.ranges.reserve(self.live + self.spans + 1)?;
        if self.vacant == NIL {
            self.records.try_reserve(1)?;
            self.vacant = self.records.len() as u32;
            put(&mut self.records, Record { generation: 0, used: Use::Vacant(NIL) });
        }
        Ok(())
    }

    fn span(&self, handle: RangeHandle) -> Option<Span> {
        let record = self.records.get(handle.place as usize)?;
        match record.used {
            Use::Range(span) if record.generation == handle.generation => Some(span),
            _ => None,
        }
    }

    fn free(&mut self, handle: RangeHandle) -> Result<Span, HandleError> {
        let span = self.span(handle).ok_or(HandleError::Stale)?;
        self.settle();
        let record = &mut self.records[handle.place as usize];
        if self.ranges.free(span).is_ok() {
            record.used = Use::Vacant(self.vacant);
            self.vacant = handle.place;
        } else {
            record.used = Use::Owed(span, self.owed);
            self.owed = handle.place;
        }
        self.live -= 1;
        Ok(span)
    }

    /// Makes the first free that is owed, if there is one and memory for it.
    fn settle(&mut self) {
        let Some(record) = self.records.get_mut(self.owed as usize) else { return };
        if let Use::Owed(span, next) = record.used
            && self.ranges.free(span).is_ok()
        {
            record.used = Use::Vacant(self.vacant);
            (self.vacant, self.owed) = (self.owed, next);
        }
    }
}

impl Check for SharedRanges {
    fn check(&self) -> Result<(), Violation> {
        let books = self.books.lock();
        books.ranges.check()?;
        let (mut used, mut vacant) = (0, 0);
        for record in &books.records {
            match record.used {
                Use::Range(span) | Use::Owed(span, _) => used += span.len(),
                Use::Vacant(_) => vacant += 1,
            }
        }
        let Stats { total, free, .. } = books.ranges.stats();
        Violation::unless_equal("ranges in use or owed are allocated", 0, total - free, used)?;
        let (mut chained, mut at) = (0, books.vacant);
        while let Some(Record { used: Use::Vacant(next), .. }) = books.records.get(at as usize) {
            (chained, at) = (chained + 1, *next);
        }
        Violation::unless_equal("vacant records are on their chain", 0, vacant, chained)
    }
}

/// A range of a [`SharedRanges`] that is freed when this is dropped.
///
/// `S` is how it reaches its space: `&SharedRanges`, or `Arc<SharedRanges>` for a value that outlives its maker.
#[must_use = "the range is freed when this is dropped"]
#[derive(Debug)]
pub struct OwnedRange<S: Deref<Target = SharedRanges>> {
    ranges: S,
    handle: RangeHandle,
    span: Span,
}

impl<S: Deref<Target = SharedRanges>> OwnedRange<S> {
    /// Takes a range as [`SharedRanges::alloc`] does.
    ///
    /// # Errors
    /// See [`AllocError`]; nothing changed.
    pub fn new(ranges: S, request: &Request) -> Result<OwnedRange<S>, AllocError> {
        let (handle, span) = ranges.books.lock().alloc(request)?;
        Ok(OwnedRange { ranges, handle, span })
    }

    /// Returns the numbers of the range.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the handle, which others may look up or, before this is dropped, free.
    #[must_use]
    pub fn handle(&self) -> RangeHandle {
        self.handle
    }
}

impl<S: Deref<Target = SharedRanges>> Drop for OwnedRange<S> {
    fn drop(&mut self) {
        // Stale if the handle was freed by hand.
        let _ = self.ranges.free(self.handle);
    }
}
