//! The seam to real memory, and to those who can give space back.

use crate::ranges::Span;
use crate::units::PageCount;

/// What stands behind the page numbers: page tables, mappings, or a counter in a test.
///
/// Both methods are called from any thread. `clear` is called with no lock held, `flush` under the purge lock alone.
pub trait Pages {
    /// Whether `clear` does anything; if not, it is never called, and a free holds its lock once instead of twice.
    const CLEARS: bool = true;

    /// Takes the mappings of a freed area away; stale copies in translation caches may live on until the flush.
    fn clear(&self, area: Span);

    /// Drops stale translations of `ranges` everywhere. Ascending and disjoint; they may cover live areas between them.
    fn flush(&self, ranges: &[Span]);
}

impl Pages for () {
    const CLEARS: bool = false;

    #[inline]
    fn clear(&self, _area: Span) {}

    #[inline]
    fn flush(&self, _ranges: &[Span]) {}
}

impl<P: Pages> Pages for &P {
    const CLEARS: bool = P::CLEARS;

    #[inline]
    fn clear(&self, area: Span) {
        (**self).clear(area);
    }

    #[inline]
    fn flush(&self, ranges: &[Span]) {
        (**self).flush(ranges);
    }
}

/// What a notifier achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freed {
    /// It gave areas back: trying again makes sense.
    Something,
    /// It had nothing to give.
    Nothing,
}

/// A user of the space who can give areas back when it is exhausted, as GPU drivers do in Linux.
pub trait Notifier: Sync {
    /// Asked when `pages` pages found no place even after a full purge. No lock is held: it may free areas.
    fn out_of_space(&self, pages: PageCount) -> Freed;
}
