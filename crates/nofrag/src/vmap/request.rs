//! What a caller asks for and gets, and the errors: one enum per operation.

use crate::cpu::{CpuId, CpuSet};
use crate::errors::{errors, turns_into};
use crate::ranges::{AlignOne, OutOfMetadata, Span};
use crate::units::{PageCount, Vpn};

use super::VmapPolicy;

/// How a [`VmapSpace`](super::VmapSpace) is set up.
#[derive(Clone, Debug)]
pub struct VmapConfig {
    /// The pages that it hands out.
    pub span: Span,
    /// The possible CPUs.
    pub cpus: CpuSet,
    /// How it behaves.
    pub policy: VmapPolicy,
}

impl VmapConfig {
    /// The pages of `span` for these CPUs, under the best policy that we have.
    #[must_use]
    pub fn new(span: Span, cpus: CpuSet) -> VmapConfig {
        VmapConfig { span, cpus, policy: VmapPolicy::default() }
    }
}

/// Whether an unmapped page follows an area, to catch overruns (docs/sources/vmap.md#guard-page).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// One page behind the area stays unused.
    Page,
    /// None.
    None,
}

impl Guard {
    /// The pages that the guard takes.
    #[must_use]
    pub const fn pages(self) -> u64 {
        match self {
            Guard::Page => 1,
            Guard::None => 0,
        }
    }
}

/// What an allocation may do when it finds no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Purge everything, ask the notifiers, and try again.
    MayReclaim,
    /// Fail at once: no purge, no flush, no notifier.
    Never,
}

/// A wish for consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaRequest {
    /// How many pages, without the guard page.
    pub pages: u64,
    /// The first page must be a multiple of this power of two.
    pub align: u64,
    /// What an `align` of one means: one byte, or one page.
    pub align_one: AlignOne,
    /// All pages, the guard included, must lie in here; `None` means the whole space.
    pub within: Option<Span>,
    /// Whether a guard page follows.
    pub guard: Guard,
    /// What to do when there is no place.
    pub wait: Wait,
}

impl AreaRequest {
    /// `pages` pages and a guard page, anywhere; reclaims if it must.
    #[must_use]
    pub const fn new(pages: u64) -> AreaRequest {
        let (align_one, guard, wait) = (AlignOne::Byte, Guard::Page, Wait::MayReclaim);
        AreaRequest { pages, align: 1, align_one, within: None, guard, wait }
    }

    /// The same request with this alignment in pages, a power of two.
    #[must_use]
    pub const fn align(self, align: u64) -> AreaRequest {
        AreaRequest { align, ..self }
    }

    /// The same request with this meaning of an alignment of one.
    #[must_use]
    pub const fn align_one(self, align_one: AlignOne) -> AreaRequest {
        AreaRequest { align_one, ..self }
    }

    /// The same request, confined to `within`.
    #[must_use]
    pub const fn within(self, within: Span) -> AreaRequest {
        AreaRequest { within: Some(within), ..self }
    }

    /// The same request with or without a guard page.
    #[must_use]
    pub const fn guard(self, guard: Guard) -> AreaRequest {
        AreaRequest { guard, ..self }
    }

    /// The same request with this patience.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> AreaRequest {
        AreaRequest { wait, ..self }
    }
}

/// A range of pages that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The first page.
    pub start: Vpn,
    /// How many pages, without the guard page.
    pub pages: PageCount,
    /// Whether a guard page follows.
    pub guard: Guard,
    /// The CPU that allocated it.
    pub cpu: CpuId,
}

impl Area {
    /// All its pages, the guard page included.
    #[must_use]
    pub fn span(&self) -> Span {
        let start = self.start.get();
        Span::known(start, start + self.total_pages().get())
    }

    /// How many pages it takes from the space, the guard page included.
    #[must_use]
    pub fn total_pages(&self) -> PageCount {
        PageCount(self.pages.get() + self.guard.pages())
    }
}

/// What an area is for.
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

/// A mapping made by [`map_ram`](super::VmapSpace::map_ram): no guard page, and nothing behind it but its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RamArea {
    /// The first page.
    pub start: Vpn,
    /// How many pages.
    pub pages: PageCount,
}

impl RamArea {
    /// All its pages. Of numbers that no mapping has, zero pages or pages beyond the last number, it makes the range
    /// that comes nearest.
    #[must_use]
    pub fn span(&self) -> Span {
        let start = self.start.get().min(u64::MAX - 1);
        Span::known(start, start.saturating_add(self.pages.get().max(1)))
    }
}

/// What an area on the books is at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AreaState {
    /// Handed out.
    Busy,
    /// Freed and not flushed: unusable until a purge.
    Lazy,
    /// Flushed and kept at hand for a request of its exact size.
    Pooled,
}

const NO_METADATA: &str = "no memory for the space's own records";
const NO_SUCH_CPU: &str = "the CPU is not one of the space's";

errors! {
    /// Why no area was allocated. Nothing changed, except what reclaim gave back.
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
            /// The size of the largest free range in pages.
            largest: u64,
        } => "no place, even after reclaim; the largest has {largest} pages",
        /// No place at once; a request that may reclaim could succeed.
        WouldBlock => "no place without reclaim, which the request forbids",
        /// No memory for the space's own records.
        OutOfMetadata => "{NO_METADATA}",
    }

    /// Why an area was not freed. Nothing changed.
    #[non_exhaustive]
    pub enum FreeAreaError {
        /// The page lies outside the space.
        Foreign => "the page lies outside the space",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// No area covers the page.
        NotAllocated => "no area covers the page",
        /// The page belongs to what `map_ram` made: `unmap_ram` frees that.
        IsRam => "the page was mapped by map_ram: free it by unmap_ram",
        /// The area at this page was freed already.
        DoubleFree => "the area was freed already",
        /// The page lies inside the area that starts at `start`.
        NotAStart {
            /// The first page of that area.
            start: Vpn,
        } => "the page lies inside the area that starts at {start}",
    }

    /// Why nothing was mapped. Nothing changed, except what reclaim gave back.
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
            /// The size of the largest free range in pages.
            largest: u64,
        } => "no place, even after reclaim; the largest has {largest} pages",
        /// No place at once; a request that may reclaim could succeed.
        WouldBlock => "no place without reclaim, which the request forbids",
        /// No memory for the space's own records.
        OutOfMetadata => "{NO_METADATA}",
        /// The mapper could not install it.
        Install(why: X) => "the mapper refused: {why}",
    }

    /// Why nothing was unmapped. Nothing changed.
    #[non_exhaustive]
    pub enum UnmapRamError {
        /// A page lies outside the space.
        Foreign => "a page lies outside the space",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// `map_ram` made nothing that covers the first page.
        NotMapped => "nothing that map_ram made covers the page",
        /// What started there was unmapped already.
        DoubleUnmap => "the mapping was unmapped already",
        /// What starts there has another size.
        WrongSize {
            /// Its size.
            pages: PageCount,
        } => "the mapping that starts there has {pages} pages",
        /// The page lies inside the mapping that starts at `start`.
        NotAStart {
            /// The first page of that mapping.
            start: Vpn,
        } => "the page lies inside the mapping that starts at {start}",
    }

    /// Why a captured area was not loaded. Nothing changed.
    #[non_exhaustive]
    pub enum LoadError {
        /// A part of it lies outside the space.
        Foreign => "a part of the area lies outside the space",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// A part of it is taken, or the guard page leaves no page for the area itself.
        Taken => "a part of the area is taken, or it is too small",
        /// No memory for the space's own records.
        OutOfMetadata => "{NO_METADATA}",
    }

    /// Why no group of areas was allocated. Nothing changed, except what reclaim gave back.
    #[non_exhaustive]
    pub enum GroupError {
        /// There are no pieces, or the lists of offsets and sizes differ in length.
        Mismatched => "no pieces, or not as many offsets as sizes",
        /// A piece has zero pages.
        ZeroSize => "a piece has zero pages",
        /// The alignment is not a power of two, or an offset is not a multiple of it.
        Misaligned => "the alignment is no power of two, or an offset breaks it",
        /// Two pieces overlap.
        Overlapping => "two pieces overlap",
        /// The CPU is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// No base serves all pieces.
        Exhausted => "no base serves all pieces, even after reclaim",
        /// No memory for the space's own records.
        OutOfMetadata => "{NO_METADATA}",
    }

    /// Why a space was not set up.
    #[non_exhaustive]
    pub enum ConfigError {
        /// There are no CPUs.
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

    /// Why a CPU's blocks were not handed over; nothing changed.
    #[non_exhaustive]
    pub enum HandOverError {
        /// A handle for one of the CPUs is out.
        Held => "a handle for one of the CPUs is out",
        /// One of the CPUs is not one of the space's.
        UnknownCpu => "{NO_SUCH_CPU}",
        /// No memory for the records of the one that gets them.
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
