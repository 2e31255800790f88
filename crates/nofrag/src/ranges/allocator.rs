//! The owner of a space: validates requests, knows which numbers belong to it, and counts.

use super::augmented_tree::AugmentedTree;
use super::cached_scan::CachedScan;
use super::index::{FreeIndex, Refusal, Rejection};
use super::wide::WideBlocks;
use super::{
    AddSpanError, AllocError, Config, Counters, Fit, FreeError, Index, OutOfMetadata,
    RelocateError, Request, Span, TakeError,
};
use crate::check::{Check, Violation};

/// Hands out ranges of the numbers it owns.
///
/// 1. A number is free only if it belongs to the space.
/// 2. Holes are maximal: two holes never touch.
/// 3. The count of free numbers is the sum of the holes' sizes.
///
/// Single owner: every change takes `&mut self`; wrap it in a lock, or use the `vmap` module, to share it.
///
/// Costs are those of [`Index::WideBlocks`]. In a space wider than 2^31 numbers it counts in the largest power of two
/// of which all sizes and ends so far are multiples; the first operation with a finer number, and a span that widens
/// the space, cost O(n) there.
///
/// ```
/// use nofrag::ranges::{Fit, RangeAllocator, Request, Span};
///
/// let mut slots = RangeAllocator::new(Default::default());
/// slots.add_span(Span::new(0x1000, 0x9000)?)?;
/// let buffer = slots.alloc(&Request::new(0x800).align(0x1000))?;
/// assert_eq!((buffer.start(), buffer.len()), (0x1000, 0x800));
/// slots.free(buffer)?;
/// assert_eq!(slots.largest(), 0x8000);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RangeAllocator {
    #[cfg(feature = "serde")]
    config: Config,
    index: Engine,
    space: Space,
    free: u64,
    counters: Counters,
}

/// The index design in use, chosen once.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // an allocator has one, and boxing it would be an allocation that aborts
enum Engine {
    CachedScan(CachedScan),
    AugmentedTree(AugmentedTree),
    WideBlocks(WideBlocks),
}

/// Calls the same method on whichever design is in use.
macro_rules! on_index {
    ($engine:expr, $index:ident => $call:expr) => {
        match $engine {
            Engine::CachedScan($index) => $call,
            Engine::AugmentedTree($index) => $call,
            Engine::WideBlocks($index) => $call,
        }
    };
}

/// The state of a space; sizes are in numbers, of whatever unit the caller counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub free: u64,
    /// Numbers that belong to the space.
    pub total: u64,
    /// Maximal runs of free numbers.
    pub holes: usize,
    /// Size of the largest hole.
    pub largest: u64,
}

impl RangeAllocator {
    /// Returns an allocator of an empty space; [`add_span`](Self::add_span) gives it numbers.
    #[must_use]
    pub fn new(config: Config) -> RangeAllocator {
        let index = match config.index {
            Index::WideBlocks => Engine::WideBlocks(WideBlocks::new(&config)),
            Index::AugmentedTree(rule) => Engine::AugmentedTree(AugmentedTree::new(rule)),
            Index::CachedScan => Engine::CachedScan(CachedScan::new()),
        };
        RangeAllocator {
            #[cfg(feature = "serde")]
            config,
            index,
            space: Space::default(),
            free: 0,
            counters: Counters::default(),
        }
    }

    /// Returns an allocator by default of the numbers in `space`, all of them free.
    ///
    /// # Errors
    /// [`AddSpanError::OutOfMetadata`].
    pub fn over(space: Span) -> Result<RangeAllocator, AddSpanError> {
        let mut allocator = RangeAllocator::new(Config::default());
        allocator.add_span(space)?;
        Ok(allocator)
    }

    /// Takes a range that serves `request`, chosen by its [`Fit`]. O(log n) for [`Index::WideBlocks`], except for the
    /// first requests of an alignment, as [`AlignClasses`] and [`Fit::Best`] say.
    ///
    /// [`AlignClasses`]: super::AlignClasses
    ///
    /// # Errors
    /// See [`AllocError`]; nothing changed.
    pub fn alloc(&mut self, request: &Request) -> Result<Span, AllocError> {
        if request.size == 0 {
            return Err(AllocError::ZeroSize);
        }
        if !request.align.is_power_of_two() {
            return Err(AllocError::AlignNotPowerOfTwo);
        }
        let limit = if request.fit == Fit::Dynamic { self.dense_limit() } else { 0 };
        let counters = &mut self.counters;
        match on_index!(&mut self.index, index => index.alloc(request, limit, counters)) {
            Ok(span) => {
                self.free -= span.len();
                self.counters.allocs += 1;
                Ok(span)
            }
            Err(why) => Err(self.refused(request, why)),
        }
    }

    #[cold]
    fn refused(&mut self, request: &Request, why: Refusal) -> AllocError {
        match why {
            Refusal::NoFit => {
                self.counters.misses += 1;
                let Request { size, align, within, .. } = *request;
                let largest = self.largest();
                let is_plain = align == 1 && within == Span::ALL;
                if is_plain || size > largest {
                    return AllocError::Exhausted { largest };
                }
                AllocError::Misfit { largest, align, within }
            }
            Refusal::FitNotIndexed => AllocError::FitNotIndexed,
            Refusal::OutOfMetadata => AllocError::OutOfMetadata,
        }
    }

    /// Returns the end that the space would have if its live numbers were packed from its lowest number on, with a
    /// sixteenth of slack.
    fn dense_limit(&self) -> u64 {
        let live = self.space.total - self.free;
        let lowest = self.space.first.map_or(0, Span::start);
        lowest.saturating_add(live.saturating_add(live / 16))
    }

    /// Takes exactly `span`. O(log n).
    ///
    /// # Errors
    /// See [`TakeError`]; nothing changed.
    pub fn alloc_at(&mut self, span: Span) -> Result<(), TakeError> {
        match on_index!(&mut self.index, index => index.take(span, &mut self.counters)) {
            Ok(()) => {
                self.free -= span.len();
                self.counters.allocs += 1;
                Ok(())
            }
            Err(Refusal::OutOfMetadata) => Err(TakeError::OutOfMetadata),
            Err(_) if self.space.covers(span) => Err(TakeError::Taken),
            Err(_) => Err(TakeError::Foreign),
        }
    }

    /// Frees `span`: a range that one call handed out, a part of it, or several neighbours together. O(log n).
    ///
    /// # Errors
    /// See [`FreeError`]; nothing changed. In particular a range of which any number is free already is refused whole.
    pub fn free(&mut self, span: Span) -> Result<(), FreeError> {
        if !self.space.covers(span) {
            return Err(FreeError::Foreign);
        }
        match on_index!(&mut self.index, index => index.give(span, &mut self.counters)) {
            Ok(()) => {
                self.free += span.len();
                self.counters.frees += 1;
                Ok(())
            }
            Err(Rejection::Overlap) => Err(FreeError::NotAllocated),
            Err(Rejection::OutOfMetadata) => Err(FreeError::OutOfMetadata),
        }
    }

    /// Returns true if every number of `span` belongs to the space.
    pub(super) fn owns(&self, span: Span) -> bool {
        self.space.covers(span)
    }

    /// Frees the parts of `span` outside `kept`, all of them or none.
    pub(super) fn free_outside(&mut self, span: Span, kept: Span) -> Result<(), FreeError> {
        let [below, above] = span.outside(kept);
        if let Some(part) = below {
            self.free(part)?;
        }
        if let Some(part) = above
            && let Err(why) = self.free(part)
        {
            if let Some(part) = below {
                self.alloc_at(part).expect("what was freed a moment ago can be taken again");
            }
            return Err(why);
        }
        Ok(())
    }

    pub(super) fn must_be_allocated(&self, span: Span) -> Result<(), RelocateError> {
        if !self.space.covers(span) {
            return Err(RelocateError::Foreign);
        }
        match self.hole_from(span.start()) {
            Some(hole) if hole.start() < span.end() => Err(RelocateError::NotAllocated),
            _ => Ok(()),
        }
    }

    /// Adds `span` to the space, all of it free, and merges it with the holes that it touches. O(log n).
    ///
    /// # Errors
    /// See [`AddSpanError`]; nothing changed.
    pub fn add_span(&mut self, span: Span) -> Result<(), AddSpanError> {
        self.space.add(span)?;
        on_index!(&mut self.index, index => index.extend_space(span));
        let mut uncounted = Counters::default();
        match on_index!(&mut self.index, index => index.give(span, &mut uncounted)) {
            Ok(()) => {
                self.free += span.len();
                Ok(())
            }
            Err(why) => {
                assert!(why != Rejection::Overlap, "a number outside the space was free");
                self.space.remove(span).expect("what was added a moment ago can be removed");
                Err(AddSpanError::OutOfMetadata)
            }
        }
    }

    /// Removes `span`, which must be free, from the space. O(log n).
    ///
    /// # Errors
    /// See [`TakeError`]; nothing changed.
    pub fn remove_span(&mut self, span: Span) -> Result<(), TakeError> {
        if !self.space.covers(span) {
            return Err(TakeError::Foreign);
        }
        if !self.is_free(span) {
            return Err(TakeError::Taken);
        }
        self.space.remove(span)?;
        let mut uncounted = Counters::default();
        match on_index!(&mut self.index, index => index.take(span, &mut uncounted)) {
            Ok(()) => {
                self.free -= span.len();
                Ok(())
            }
            Err(why) => {
                self.space.add(span).expect("what was removed a moment ago can be added again");
                Err(match why {
                    Refusal::OutOfMetadata => TakeError::OutOfMetadata,
                    Refusal::NoFit | Refusal::FitNotIndexed => TakeError::Taken,
                })
            }
        }
    }

    /// Returns the size of the largest hole; zero when nothing is free. O(1) for [`Index::WideBlocks`].
    #[must_use]
    pub fn largest(&self) -> u64 {
        on_index!(&self.index, index => index.largest())
    }

    /// Returns the largest size that could be had with `align`; zero also when `align` is not a power of two.
    ///
    /// O(1) for [`Index::WideBlocks`] without alignment, or with one of its classes while the answer is below 2^31 - 1;
    /// else O(holes).
    #[must_use]
    pub fn largest_aligned(&self, align: u64) -> u64 {
        if !align.is_power_of_two() {
            return 0;
        }
        on_index!(&self.index, index => index.largest_aligned(align))
    }

    /// Returns the lowest hole that ends above `at`: the one that holds `at`, else the next one. O(log n).
    #[must_use]
    pub fn hole_from(&self, at: u64) -> Option<Span> {
        on_index!(&self.index, index => index.hole_from(at))
    }

    /// Returns the highest hole that starts below `end`. O(log n), except for [`Index::CachedScan`], where it takes up
    /// to 65 searches of O(log n).
    #[must_use]
    pub fn hole_below(&self, end: u64) -> Option<Span> {
        on_index!(&self.index, index => index.hole_below(end))
    }

    /// Returns true if every number of `span` is free. O(log n).
    #[must_use]
    pub fn is_free(&self, span: Span) -> bool {
        self.hole_from(span.start()).is_some_and(|hole| hole.covers(span))
    }

    /// Returns all holes by ascending address; each step is O(log n).
    #[must_use]
    pub fn iter_free(&self) -> FreeRanges<'_> {
        FreeRanges { allocator: self, from: 0 }
    }

    /// Returns the present counts of free numbers and holes. O(1) for [`Index::WideBlocks`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            free: self.free,
            total: self.space.total,
            holes: on_index!(&self.index, index => index.holes()),
            largest: self.largest(),
        }
    }

    /// Returns the share of free numbers, in thousandths, that lie in holes smaller than `size`: 0 is unfragmented,
    /// 1000 means that no request of that size can succeed. Zero when nothing is free. O(holes).
    ///
    /// Defined as Linux's unusable free space index, for ranges in place of buddy blocks.
    #[must_use]
    pub fn unusable_index(&self, size: u64) -> u32 {
        if self.free == 0 {
            return 0;
        }
        let too_small = self.iter_free().map(Span::len).filter(|&len| len < size).sum::<u64>();
        (u128::from(too_small) * 1000 / u128::from(self.free)) as u32
    }

    /// Returns the counts since construction.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Makes room for the records of `holes` holes in all: while there are no more, no operation fails for memory, the
    /// first request with [`Fit::Best`] or [`Fit::Dynamic`] left aside, and in a space wider than 2^31 numbers the
    /// first operation with a finer number. O(holes).
    ///
    /// # Errors
    /// [`OutOfMetadata`]; nothing changed.
    pub fn reserve(&mut self, holes: usize) -> Result<(), OutOfMetadata> {
        on_index!(&mut self.index, index => index.reserve(holes))
    }

    /// Gives back the memory of records that are not in use, room that was reserved included: records are kept for as
    /// many holes as there once were. For a quiet moment, after many holes have gone; it takes as much memory as is
    /// then in use, until it returns. O(holes). The designs of Linux keep what they have.
    ///
    /// # Errors
    /// [`OutOfMetadata`]; nothing changed.
    pub fn shrink(&mut self) -> Result<(), OutOfMetadata> {
        on_index!(&mut self.index, index => index.shrink())
    }

    /// Returns the bytes of memory that the records of holes take, spare room included. O(1).
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        on_index!(&self.index, index => index.metadata_bytes())
    }
}

/// The parts that a saved space is made of, and made from.
#[cfg(feature = "serde")]
impl RangeAllocator {
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the ranges that belong to the space, ascending.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> + Clone {
        let after = |end: u64| self.space.spans.hole_from(end);
        core::iter::successors(after(0), move |span| after(span.end()))
    }

    /// Returns the same allocator without counts.
    pub(super) fn uncounted(self) -> RangeAllocator {
        RangeAllocator { counters: Counters::default(), ..self }
    }
}

impl Check for RangeAllocator {
    fn check(&self) -> Result<(), Violation> {
        on_index!(&self.index, index => index.check())?;
        let mut free = 0;
        let mut previous_end = None;
        for hole in self.iter_free() {
            let at = hole.start();
            Violation::unless("a free number belongs to the space", at, self.space.covers(hole))?;
            Violation::unless("two holes never touch", at, previous_end != Some(at))?;
            previous_end = Some(hole.end());
            free += hole.len();
        }
        Violation::unless_equal("free is the sum of the holes", 0, free, self.free)?;
        let holes = self.iter_free().count() as u64;
        let counted = on_index!(&self.index, index => index.holes()) as u64;
        Violation::unless_equal("the holes are counted", 0, holes, counted)
    }
}

/// The holes of a [`RangeAllocator`] by ascending address; each step is O(log n).
#[derive(Clone, Debug)]
pub struct FreeRanges<'a> {
    allocator: &'a RangeAllocator,
    from: u64,
}

impl Iterator for FreeRanges<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let hole = self.allocator.hole_from(self.from)?;
        self.from = hole.end();
        Some(hole)
    }
}

/// The numbers of the space, kept as ranges in an index of their own.
#[derive(Debug, Default)]
struct Space {
    spans: WideBlocks,
    total: u64,
    /// The lowest span of the space, in which most ranges lie.
    first: Option<Span>,
}

impl Space {
    #[inline]
    fn covers(&self, span: Span) -> bool {
        self.first.is_some_and(|first| first.covers(span))
            || self.spans.hole_from(span.start()).is_some_and(|own| own.covers(span))
    }

    fn add(&mut self, span: Span) -> Result<(), AddSpanError> {
        self.spans.give(span, &mut Counters::default()).map_err(|why| match why {
            Rejection::Overlap => AddSpanError::Overlaps,
            Rejection::OutOfMetadata => AddSpanError::OutOfMetadata,
        })?;
        self.total += span.len();
        self.first = self.spans.hole_from(0);
        Ok(())
    }

    fn remove(&mut self, span: Span) -> Result<(), TakeError> {
        self.spans.take(span, &mut Counters::default()).map_err(|why| match why {
            Refusal::OutOfMetadata => TakeError::OutOfMetadata,
            Refusal::NoFit | Refusal::FitNotIndexed => TakeError::Foreign,
        })?;
        self.total -= span.len();
        self.first = self.spans.hole_from(0);
        Ok(())
    }
}
