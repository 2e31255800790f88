//! A non-empty range of numbers.

use core::fmt;
use core::num::NonZero;
use core::ops::Range;

use crate::errors::errors;

/// The numbers `start..end`; never empty, and `end` is representable, so `u64::MAX` itself is in no span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    start: u64,
    /// Never 0, so an `Option<Span>` is no larger than a span, and is handed over in two registers.
    end: NonZero<u64>,
}

errors! {
    /// Reason why two numbers make no [`Span`].
    #[non_exhaustive]
    pub enum SpanError {
        /// The range would hold no number.
        Empty => "the range is empty: its end must lie above its start",
        /// The end lies below the start.
        Inverted => "the range is inverted: its end lies below its start",
        /// Start plus size does not fit into 64 bits.
        Overflow => "the range ends beyond the 64-bit numbers",
    }
}

impl Span {
    /// All numbers that can be handed out: `0..u64::MAX`.
    pub const ALL: Span = Span { start: 0, end: NonZero::<u64>::MAX };

    /// Returns the range `start..end`.
    ///
    /// # Errors
    /// [`SpanError::Empty`] when both are equal, [`SpanError::Inverted`] when `end` lies below `start`.
    pub const fn new(start: u64, end: u64) -> Result<Span, SpanError> {
        match NonZero::new(end) {
            Some(end) if start < end.get() => Ok(Span { start, end }),
            _ if start == end => Err(SpanError::Empty),
            _ => Err(SpanError::Inverted),
        }
    }

    /// Returns the `size` numbers from `start` on.
    ///
    /// # Errors
    /// [`SpanError::Empty`] for size zero, [`SpanError::Overflow`] when the end does not fit into 64 bits.
    pub const fn sized(start: u64, size: u64) -> Result<Span, SpanError> {
        match start.checked_add(size) {
            Some(end) => Span::new(start, end),
            None => Err(SpanError::Overflow),
        }
    }

    /// Returns the span `start..end`, whose bounds the caller has already ordered.
    #[inline]
    pub(crate) fn known(start: u64, end: u64) -> Span {
        debug_assert!(start < end, "span {start:#x}..{end:#x} is empty or inverted");
        Span { start, end: NonZero::new(end).expect("a span ends above its start") }
    }

    /// Returns the part of the span below `other`, then the part above it; `None` for a part without numbers.
    pub(crate) fn outside(self, other: Span) -> [Option<Span>; 2] {
        let (below, above) = (self.end().min(other.start), self.start.max(other.end()));
        [Span::new(self.start, below).ok(), Span::new(above, self.end()).ok()]
    }

    /// Returns the lowest number in the span.
    #[inline]
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Returns the number one above the highest in the span.
    #[inline]
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end.get()
    }

    /// Returns the number of numbers in the span; at least one.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a span is never empty
    pub const fn len(self) -> u64 {
        self.end() - self.start
    }

    /// Returns true if `at` is in the span.
    #[inline]
    #[must_use]
    pub const fn contains(self, at: u64) -> bool {
        self.start <= at && at < self.end.get()
    }

    /// Returns true if every number of `other` is in this span.
    #[inline]
    #[must_use]
    pub const fn covers(self, other: Span) -> bool {
        self.start <= other.start && other.end.get() <= self.end.get()
    }

    /// Returns the numbers that both spans hold, if any.
    #[inline]
    #[must_use]
    pub fn intersection(self, other: Span) -> Option<Span> {
        Span::new(self.start.max(other.start), self.end().min(other.end())).ok()
    }

    /// Returns the smallest range that covers both spans.
    #[must_use]
    pub fn hull(self, other: Span) -> Span {
        Span::known(self.start.min(other.start), self.end().max(other.end()))
    }

    /// Returns the lowest `start` at which `size` numbers, aligned to `align`, fit into the span; `None` if there is
    /// none, or if `align` is no power of two.
    #[inline]
    #[must_use]
    pub fn lowest_fit(self, size: u64, align: u64) -> Option<u64> {
        if align.is_power_of_two() { self.lowest_congruent(size, align, 0) } else { None }
    }

    /// Returns the highest `start` at which `size` numbers, aligned to `align`, fit into the span; `None` if there is
    /// none, or if `align` is no power of two.
    #[inline]
    #[must_use]
    pub fn highest_fit(self, size: u64, align: u64) -> Option<u64> {
        if align.is_power_of_two() { self.highest_congruent(size, align, 0) } else { None }
    }

    /// Returns the lowest `start` at which `size` numbers fit into the span and which leaves the same remainder as
    /// `offset` when divided by `align`, a power of two.
    #[inline]
    pub(crate) fn lowest_congruent(self, size: u64, align: u64, offset: u64) -> Option<u64> {
        let start = self.start.checked_add(offset.wrapping_sub(self.start) & (align - 1))?;
        let end = start.checked_add(size)?;
        (end <= self.end()).then_some(start)
    }

    /// Returns the highest `start` at which `size` numbers fit into the span and which leaves the same remainder as
    /// `offset` when divided by `align`, a power of two.
    #[inline]
    pub(crate) fn highest_congruent(self, size: u64, align: u64, offset: u64) -> Option<u64> {
        let start = self.end().checked_sub(size)?;
        let start = start.checked_sub(start.wrapping_sub(offset) & (align - 1))?;
        (start >= self.start).then_some(start)
    }
}

impl TryFrom<Range<u64>> for Span {
    type Error = SpanError;

    /// # Errors
    /// Those of [`Span::new`]: an empty range is none.
    fn try_from(range: Range<u64>) -> Result<Span, SpanError> {
        Span::new(range.start, range.end)
    }
}

impl From<Span> for Range<u64> {
    fn from(span: Span) -> Range<u64> {
        span.start()..span.end()
    }
}

/// Start and end in hexadecimal digits.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start(), self.end())
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
