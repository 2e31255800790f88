//! Requests, answers, and errors: one enum per operation.

use crate::cpu::{CpuId, CpuSet};
use crate::errors::{errors, turns_into};
use crate::ranges::{AlignOne, OutOfMetadata, Span};
use crate::units::{PageCount, Vpn};

use super::VmapPolicy;

/// Settings with which a [`VmapSpace`](super::VmapSpace) is built.
#[derive(Clone, Debug)]
pub struct VmapConfig {
    /// The pages that the space hands out.
    pub span: Span,
    pub cpus: CpuSet,
    pub policy: VmapPolicy,
}

impl VmapConfig {
    /// Returns the settings for the pages of `span` and these CPUs, under the best policy: [`VmapPolicy::NOFRAG`].
    #[must_use]
    pub fn new(span: Span, cpus: CpuSet) -> VmapConfig {
        VmapConfig { span, cpus, policy: VmapPolicy::default() }
    }
}

/// The guard of an area: an unmapped page behind it, to catch overruns (docs/sources/vmap.md#guard-page).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// One page behind the area stays unused.
    Page,
    None,
}

impl Guard {
    /// Returns the pages that the guard takes.
    #[must_use]
    pub const fn pages(self) -> u64 {
        match self {
            Guard::Page => 1,
            Guard::None => 0,
        }
    }
}

/// The measures that an allocation may take when it finds no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Purge everything, ask the notifiers, and try again.
    MayReclaim,
    /// Fail at once: no purge, no flush, no notifier.
    Never,
}

/// A request for consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaRequest {
    /// Number of pages, without the guard page.
    pub pages: u64,
    /// A power of two of which the first page must be a multiple.
    pub align: u64,
    /// Meaning of an `align` of one: one byte, or one page.
    pub align_one: AlignOne,
    /// Bounds in which all pages must lie, the guard included; `None` means the whole space.
    pub within: Option<Span>,
    pub guard: Guard,
    pub wait: Wait,
}

impl AreaRequest {
    /// Returns a request for `pages` pages and a guard page, anywhere; it may reclaim.
    #[must_use]
    pub const fn new(pages: u64) -> AreaRequest {
        let (align_one, guard, wait) = (AlignOne::Byte, Guard::Page, Wait::MayReclaim);
        AreaRequest { pages, align: 1, align_one, within: None, guard, wait }
    }

    /// Returns the same request with this alignment in pages, a power of two.
    #[must_use]
    pub const fn align(self, align: u64) -> AreaRequest {
        AreaRequest { align, ..self }
    }

    /// Returns the same request with this meaning of an alignment of one.
    #[must_use]
    pub const fn align_one(self, align_one: AlignOne) -> AreaRequest {
        AreaRequest { align_one, ..self }
    }

    /// Returns the same request, confined to `within`.
    #[must_use]
    pub const fn within(self, within: Span) -> AreaRequest {
        AreaRequest { within: Some(within), ..self }
    }

    /// Returns the same request with or without a guard page.
    #[must_use]
    pub const fn guard(self, guard: Guard) -> AreaRequest {
        AreaRequest { guard, ..self }
    }

    /// Returns the same request with these measures for when there is no place.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> AreaRequest {
        AreaRequest { wait, ..self }
    }
}

/// A range of pages that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    pub start: Vpn,
    /// Number of pages, without the guard page.
    pub pages: PageCount,
    pub guard: Guard,
    /// The CPU that allocated the area.
    pub cpu: CpuId,
}

impl Area {
    /// Returns all pages of the area, the guard page included.
    #[must_use]
    pub fn span(&self) -> Span {
        let start = self.start.get();
        Span::known(start, start + self.total_pages().get())
    }

    /// Returns the number of pages that the area takes from the space, the guard page included.
    #[must_use]
    pub fn total_pages(&self) -> PageCount {
        PageCount(self.pages.get() + self.guard.pages())
    }
}

/// The purpose of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AreaKind {
    /// Made by [`alloc`](super::VmapSpace::alloc) or [`alloc_group`](super::VmapSpace::alloc_group).
    Plain,
    /// Made by [`map_ram`](super::VmapSpace::map_ram) for a request that is too large for a block, or for any where the
    /// space has no room for a block.
    Ram,
    /// A block from which `map_ram` cuts small mappings.
    Block,
}

/// A mapping made by [`map_ram`](super::VmapSpace::map_ram), given by its numbers alone; it has no guard page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RamArea {
    pub start: Vpn,
    pub pages: PageCount,
}

impl RamArea {
    /// Returns all pages of the mapping. For numbers that no mapping has, zero pages or pages beyond the last number,
    /// it returns the nearest range.
    #[must_use]
    pub fn span(&self) -> Span {
        let start = self.start.get().min(u64::MAX - 1);
        Span::known(start, start.saturating_add(self.pages.get().max(1)))
    }
}

/// The present state of an area on the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AreaState {
    Busy,
    /// Freed and not flushed: unusable until a purge.
    Lazy,
    /// Flushed and kept at hand for a request of its exact size.
    Pooled,
}

const NO_METADATA: &str = "no memory for the space's own records";
const NO_SUCH_CPU: &str = "the CPU is not one of the space's";

errors! {
    /// Reason why no area was allocated. Nothing changed, except for areas that reclaim gave back.
    #[non_exhaustive]
    pub enum AreaError {
        /// The request is for zero pages.
        ZeroSize => "a request for zero pages",
        /// The alignment is not a power of two.
        AlignNotPowerOfTwo => "the alignment is not a power of two",
        /// The wanted bounds lie outside the space.
        OutsideSpace => "the wanted bounds lie outside the space",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// A [`CpuHandle`](super::CpuHandle) for this CPU is out: allocate through it.
        CpuHeld => "a handle for this CPU is out: allocate through it",
        /// No place, and reclaiming did not help. The largest free range has `largest` pages, guard page included.
        Exhausted {
            /// Size of the largest free range in pages.
            largest: u64,
        } => "no place, even after reclaim; the largest has {largest} pages",
        /// No place at once; a request that may reclaim could succeed.
        WouldBlock => "no place without reclaim, which the request forbids",
        /// No memory for the space's own records.
        OutOfMetadata => "{NO_METADATA}",
    }

    /// Reason why an area was not freed. Nothing changed.
    #[non_exhaustive]
    pub enum FreeAreaError {
        /// The page lies outside the space.
        Foreign => "the page lies outside the space",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// No area covers the page.
        NotAllocated => "no area covers the page",
        /// The page belongs to a mapping made by `map_ram`: `unmap_ram` frees it.
        IsRam => "the page was mapped by map_ram: free it by unmap_ram",
        /// The area at this page was freed already.
        DoubleFree => "the area was freed already",
        /// The page lies inside the area that starts at `start`.
        NotAStart {
            start: Vpn,
        } => "the page lies inside the area that starts at {start}",
    }

    /// Reason why nothing was mapped. Nothing changed, except for areas that reclaim gave back.
    #[non_exhaustive]
    pub enum MapRamError<X> {
        /// The request is for zero pages.
        ZeroSize => "a request for zero pages",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// A [`CpuHandle`](super::CpuHandle) for this CPU is out: map through it.
        CpuHeld => "a handle for this CPU is out: map through it",
        /// No place, and reclaiming did not help. The largest free range has `largest` pages.
        Exhausted {
            /// Size of the largest free range in pages.
            largest: u64,
        } => "no place, even after reclaim; the largest has {largest} pages",
        /// No place at once; a request that may reclaim could succeed.
        WouldBlock => "no place without reclaim, which the request forbids",
        /// No memory for the space's own records.
        OutOfMetadata => "{NO_METADATA}",
        /// The mapper could not install the mapping.
        Install(why: X) => "the mapper refused: {why}",
    }

    /// Reason why nothing was unmapped. Nothing changed.
    #[non_exhaustive]
    pub enum UnmapRamError {
        /// A page lies outside the space.
        Foreign => "a page lies outside the space",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// No mapping made by `map_ram` covers the first page.
        NotMapped => "nothing that map_ram made covers the page",
        /// The mapping that started at the first page was unmapped already.
        DoubleUnmap => "the mapping was unmapped already",
        /// The mapping that starts at the first page has another size.
        WrongSize {
            /// Size of the existing mapping.
            pages: PageCount,
        } => "the mapping that starts there has {pages} pages",
        /// The page lies inside the mapping that starts at `start`.
        NotAStart {
            start: Vpn,
        } => "the page lies inside the mapping that starts at {start}",
    }

    /// Reason why a captured area was not loaded. Nothing changed.
    #[non_exhaustive]
    pub enum LoadError {
        /// A part of the area lies outside the space.
        Foreign => "a part of the area lies outside the space",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// A part of the area is taken, or the guard page leaves no page for the area itself.
        Taken => "a part of the area is taken, or it is too small",
        /// No memory for the space's own records.
        OutOfMetadata => "{NO_METADATA}",
    }

    /// Reason why no group of areas was allocated. Nothing changed, except for areas that reclaim gave back.
    #[non_exhaustive]
    pub enum GroupError {
        /// There are no pieces, or the lists of offsets and sizes differ in length.
        Mismatched => "no pieces, or not as many offsets as sizes",
        /// A piece has zero pages.
        ZeroSize => "a piece has zero pages",
        /// The alignment is not a power of two, or an offset is not a multiple of it.
        Misaligned => "the alignment is no power of two, or an offset breaks it",
        Overlapping => "two pieces overlap",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// No base serves all pieces.
        Exhausted => "no base serves all pieces, even after reclaim",
        /// No memory for the space's own records.
        OutOfMetadata => "{NO_METADATA}",
    }

    /// Reason why a space was not built.
    #[non_exhaustive]
    pub enum ConfigError {
        NoCpus => "a space needs at least one CPU",
        /// More CPUs than the records can name (2^14).
        TooManyCpus => "at most 2^14 CPUs",
        /// More pages than the records can count (2^45).
        SpanTooLarge => "at most 2^45 pages",
        /// These values of the policy do not go together.
        Contradiction(why: &'static str) => "{why}",
        /// No memory for the space's own records.
        OutOfMetadata => "{NO_METADATA}",
    }

    /// Another handle for the same CPU is out, or the CPU is not one of the space's.
    pub enum Busy {
        /// Another handle for the same CPU is out.
        Held => "another handle for this CPU is out",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
    }

    /// Reason why a CPU's blocks were not handed over; nothing changed.
    #[non_exhaustive]
    pub enum HandOverError {
        /// A handle for one of the CPUs is out.
        Held => "a handle for one of the CPUs is out",
        /// One of the CPUs does not belong to the space.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// No memory for the records of the CPU that gets the blocks.
        OutOfMetadata => "{NO_METADATA}",
    }
}

impl From<Busy> for HandOverError {
    fn from(why: Busy) -> Self {
        match why {
            Busy::Held => HandOverError::Held,
            Busy::UnknownCpu => HandOverError::UnknownCpu,
        }
    }
}

impl<X> From<AreaError> for MapRamError<X> {
    fn from(why: AreaError) -> Self {
        match why {
            AreaError::ZeroSize => MapRamError::ZeroSize,
            AreaError::UnknownCpu => MapRamError::UnknownCpu,
            AreaError::CpuHeld => MapRamError::CpuHeld,
            AreaError::Exhausted { largest } => MapRamError::Exhausted { largest },
            AreaError::WouldBlock => MapRamError::WouldBlock,
            AreaError::OutOfMetadata => MapRamError::OutOfMetadata,
            AreaError::AlignNotPowerOfTwo | AreaError::OutsideSpace => {
                unreachable!("a mapping has no alignment or bounds of its own")
            }
        }
    }
}

turns_into! {
    OutOfMetadata => AreaError::OutOfMetadata,
    OutOfMetadata => LoadError::OutOfMetadata,
    OutOfMetadata => GroupError::OutOfMetadata,
    OutOfMetadata => ConfigError::OutOfMetadata,
    OutOfMetadata => HandOverError::OutOfMetadata,
}
