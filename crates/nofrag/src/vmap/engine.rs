//! Parts that the two engines share: the validated request, the outcome of a miss, and the shape of a purge.

use super::{AreaKind, AreaState, FreeAreaError, Guard, Mapper};
use crate::errors::turns_into;
use crate::event::EventSink;
use crate::lists::made;
use crate::ranges::{AlignOne, AllocError, Fit, OutOfMetadata, Request, Span};
use crate::sync::{AtomicU64, Ordering, Padded};
use crate::units::Vpn;
use alloc::vec::Vec;

/// A request that has been validated.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValidRequest {
    /// Number of pages, the guard included.
    pub(super) total: u64,
    pub(super) guard: Guard,
    pub(super) align: u64,
    pub(super) align_one: AlignOne,
    pub(super) within: Within,
    pub(super) kind: AreaKind,
}

/// The bounds of an area. Pools serve only requests for the whole space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    Whole(Span),
    Part(Span),
}

impl ValidRequest {
    #[inline]
    pub(super) fn request(&self) -> Request {
        let (Within::Whole(within) | Within::Part(within)) = self.within;
        let ValidRequest { total: size, align, align_one, .. } = *self;
        Request { size, align, align_one, within, fit: Fit::Lowest }
    }
}

/// Reason why an engine found no area at once. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    NoFit { largest: u64 },
    CpuHeld,
    OutOfMetadata,
}

impl From<AllocError> for Miss {
    fn from(why: AllocError) -> Self {
        match why {
            AllocError::Exhausted { largest } | AllocError::Misfit { largest, .. } => {
                Miss::NoFit { largest }
            }
            AllocError::OutOfMetadata => Miss::OutOfMetadata,
            AllocError::ZeroSize | AllocError::AlignNotPowerOfTwo | AllocError::FitNotIndexed => {
                unreachable!("the request was validated and every index has `Fit::Lowest`")
            }
        }
    }
}

turns_into!(OutOfMetadata => Miss::OutOfMetadata);

/// The amount of work of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// At most this many areas; pools may keep the areas that they need.
    Areas(usize),
    /// Every area, with a wait until its flush has completed; pools may keep the areas that they need.
    AllAreas,
    Everything,
}

impl Scope {
    pub(super) fn limit(self) -> usize {
        match self {
            Scope::Areas(areas) => areas,
            Scope::AllAreas | Scope::Everything => usize::MAX,
        }
    }
}

/// The outcome of one purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Purged {
    /// Areas that are no longer lazy.
    pub(super) areas: u64,
    /// Number of pages of these areas.
    pub(super) pages: u64,
    /// True if lazy areas remain.
    pub(super) more: bool,
}

/// A freeing caller's claim about the area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Plain,
    /// The area is a plain one in which nothing was ever mapped.
    Unused,
    /// The area was made by `map_ram`, with this many pages.
    Ram(u64),
    /// The area is a block; its slots were cleared one by one.
    Block,
}

impl Claim {
    /// Returns the error if the claim is wrong about a busy area of `kind` with `pages` pages.
    #[inline(always)]
    pub(super) fn refuted_by(self, kind: AreaKind, pages: u64) -> Option<FreeAreaError> {
        match (self, kind) {
            (Claim::Plain | Claim::Unused, AreaKind::Plain) | (Claim::Block, AreaKind::Block) => {
                None
            }
            (Claim::Ram(claimed), AreaKind::Ram) if claimed == pages => None,
            (Claim::Plain | Claim::Unused, AreaKind::Ram | AreaKind::Block) => {
                Some(FreeAreaError::IsRam)
            }
            (Claim::Ram(_) | Claim::Block, _) => Some(FreeAreaError::NotAllocated),
        }
    }

    /// Returns true if the mapping is to be cleared.
    #[inline(always)]
    pub(super) fn clears(self) -> bool {
        !matches!(self, Claim::Block | Claim::Unused)
    }
}

/// Returns the error for a page at which no busy area starts; `covering` is the start of the busy area around it, if
/// any.
pub(super) fn not_a_start(covering: Option<Vpn>) -> FreeAreaError {
    match covering {
        Some(start) => FreeAreaError::NotAStart { start },
        None => FreeAreaError::NotAllocated,
    }
}

/// An area on the books, for inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaRecord {
    /// The area. Merged lazy areas are shown as one, without a guard page.
    pub area: super::Area,
    pub state: AreaState,
    /// The purpose of the area, as long as it is busy.
    pub kind: AreaKind,
}

/// The number of pages that await their flush, on a cache line of its own, and the limit of that number.
#[derive(Debug)]
pub(super) struct LazyCount {
    pages: Padded<AtomicU64>,
    pub(super) limit: u64,
    /// The pages that each CPU's owner alone can flush.
    owned: Vec<Padded<OwnedPages>>,
    /// Number of pages that an owner may leave to be flushed.
    pub(super) own_limit: u64,
}

#[derive(Debug)]
struct OwnedPages {
    /// Freed by the owner, which alone writes it.
    freed: AtomicU64,
    /// Freed by others, and in the owner's mail.
    posted: AtomicU64,
}

impl LazyCount {
    pub(super) fn new(limit: u64, cpus: usize) -> Result<LazyCount, OutOfMetadata> {
        let zero = || AtomicU64::new(0);
        let owned = made(cpus, || Padded(OwnedPages { freed: zero(), posted: zero() }))?;
        Ok(LazyCount { pages: Padded(zero()), limit, owned, own_limit: limit / 4 })
    }

    /// Returns the number of all pages that await their flush.
    pub(super) fn pages(&self) -> u64 {
        let owned = self.owned.iter().map(|owned| {
            owned.freed.load(Ordering::Relaxed) + owned.posted.load(Ordering::Relaxed)
        });
        self.shared() + owned.sum::<u64>()
    }

    /// Returns the number of pages that any thread can flush.
    #[inline]
    pub(super) fn shared(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Counts `pages` *before* they can be purged, so that the count never falls below zero. Returns the new count of
    /// those that any thread can flush.
    #[inline]
    pub(super) fn add(&self, pages: u64) -> u64 {
        self.pages.fetch_add(pages, Ordering::Relaxed) + pages
    }

    pub(super) fn subtract(&self, pages: u64) {
        self.pages.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Returns the number of pages that the owner of a CPU has freed. Who sees that there are fewer sees where they
    /// went.
    pub(super) fn own(&self, rank: usize) -> u64 {
        self.owned[rank].freed.load(Ordering::Acquire)
    }

    /// Counts pages that the calling owner has freed, and returns their new number.
    #[inline(always)]
    pub(super) fn add_own(&self, rank: usize, pages: u64) -> u64 {
        let freed = &self.owned[rank].freed;
        let count = freed.load(Ordering::Relaxed) + pages;
        freed.store(count, Ordering::Relaxed);
        count
    }

    pub(super) fn subtract_own(&self, rank: usize, pages: u64) {
        let freed = &self.owned[rank].freed;
        freed.store(freed.load(Ordering::Relaxed) - pages, Ordering::Release);
    }

    /// Counts pages that go into an owner's mail, and returns their new number.
    pub(super) fn add_posted(&self, rank: usize, pages: u64) -> u64 {
        self.owned[rank].posted.fetch_add(pages, Ordering::Relaxed) + pages
    }

    pub(super) fn subtract_posted(&self, rank: usize, pages: u64) {
        self.owned[rank].posted.fetch_sub(pages, Ordering::Relaxed);
    }
}

/// The parts of a space that its engine needs.
pub(super) struct Surroundings<'a, M, E> {
    pub(super) mapper: &'a M,
    pub(super) events: &'a E,
    pub(super) lazy: &'a LazyCount,
}

impl<M: Mapper, E: EventSink> Clone for Surroundings<'_, M, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mapper, E: EventSink> Copy for Surroundings<'_, M, E> {}

/// A free that succeeded: the area, and the number of pages that await their flush now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retired {
    pub(super) area: super::Area,
    pub(super) lazy_pages: u64,
}
