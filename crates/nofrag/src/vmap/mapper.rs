//! The seam to real memory, and to users of the space who can give areas back.

use super::RamArea;
use crate::ranges::Span;
use crate::sync::relax;
use crate::units::PageCount;
use core::convert::Infallible;

/// The number of a flush. Flushes of one mapper are numbered in the order in which they begin, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The memory behind the page numbers: page tables, mappings, or a counter in a test.
///
/// Every method is called from any thread and must not call back into the space.
///
/// A mapping's entries are *cleared* when it ends; stale copies may live on in translation caches until a *flush* that
/// began later has *completed*. No page is handed out again before that. A mapper whose `flush` returns when all is
/// done returns an epoch that [`completed`](Self::completed) covers already; one that only starts the flush, say by
/// sending messages, lets callers go on, and completes it later.
///
/// Completion must advance without the caller: [`unmap_aliases`](super::VmapSpace::unmap_aliases) and reclaim ask
/// `completed` until it covers what they began, and do nothing else meanwhile.
pub trait Mapper {
    /// True if `clear` has an effect; if not, it is never called, and a free holds its lock once instead of twice.
    const CLEARS: bool = true;

    /// The object that [`install`](Self::install) maps, for example a slice of page frames.
    type Context: ?Sized;

    /// The reason why an object could not be mapped.
    type Error;

    /// Maps `context` at `area`. Called by `map_ram` with no lock held.
    ///
    /// # Errors
    /// The mapper's own error; the area is cleared and unmapped again, and the caller gets the error.
    fn install(&self, area: RamArea, context: &Self::Context) -> Result<(), Self::Error>;

    /// Takes the mappings of a freed area away. No lock is held, except that of the block in the engine of Linux up to
    /// 6.3. Called twice, before the area is flushed, where a handle and another thread free one area at once.
    fn clear(&self, area: Span);

    /// Begins to drop stale translations of `ranges` everywhere, and returns the number of this flush. The ranges
    /// ascend and are disjoint; they may cover live areas between them. The lock of the purge, of a CPU's recycler or
    /// of the alias flush is held, or none where a handle flushes what it has freed.
    fn flush(&self, ranges: &[Span]) -> Epoch;

    /// Returns the number of the last flush up to which all have completed, itself included.
    fn completed(&self) -> Epoch;
}

/// No memory stands behind the numbers: no flush takes any time.
impl Mapper for () {
    const CLEARS: bool = false;

    type Context = ();
    type Error = Infallible;

    #[inline]
    fn install(&self, _area: RamArea, _context: &()) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline]
    fn clear(&self, _area: Span) {}

    #[inline]
    fn flush(&self, _ranges: &[Span]) -> Epoch {
        Epoch(0)
    }

    #[inline]
    fn completed(&self) -> Epoch {
        Epoch(0)
    }
}

impl<M: Mapper> Mapper for &M {
    const CLEARS: bool = M::CLEARS;

    type Context = M::Context;
    type Error = M::Error;

    #[inline]
    fn install(&self, area: RamArea, context: &M::Context) -> Result<(), M::Error> {
        (**self).install(area, context)
    }

    #[inline]
    fn clear(&self, area: Span) {
        (**self).clear(area);
    }

    #[inline]
    fn flush(&self, ranges: &[Span]) -> Epoch {
        (**self).flush(ranges)
    }

    #[inline]
    fn completed(&self) -> Epoch {
        (**self).completed()
    }
}

/// Flushes `ranges` and waits until that has completed.
pub(super) fn flush_and_wait<M: Mapper>(mapper: &M, ranges: &[Span]) {
    wait_for(mapper, mapper.flush(ranges));
}

/// Waits until the flush `epoch` has completed.
pub(super) fn wait_for<M: Mapper>(mapper: &M, epoch: Epoch) {
    while mapper.completed() < epoch {
        relax();
    }
}

/// A notifier's answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Freed {
    /// The notifier gave areas back: trying again makes sense.
    Something,
    /// The notifier had nothing to give.
    Nothing,
}

/// A user of the space who can give areas back when it is exhausted, as GPU drivers do in Linux.
pub trait Notifier: Sync {
    /// Called when `pages` pages found no place even after a full purge. No lock is held: the notifier may free areas.
    fn out_of_space(&self, pages: PageCount) -> Freed;
}
