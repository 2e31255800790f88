//! What a caller asks for and gets, and the errors: one enum per operation.

use crate::cpu::{CpuId, CpuSet};
use crate::ranges::{AlignOne, OutOfMetadata, Span};
use crate::units::{PageCount, Vpn};
use core::fmt;

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

/// Whether an unmapped page follows an area, to catch overruns.
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

/// Why no area was allocated. Nothing changed, except what reclaim gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AreaError {
    /// The request is for zero pages.
    ZeroSize,
    /// The alignment is not a power of two.
    AlignNotPowerOfTwo,
    /// The wanted bounds lie outside the space.
    OutsideSpace,
    /// The CPU is not one of the space's.
    UnknownCpu,
    /// A [`CpuHandle`](super::CpuHandle) for this CPU is out: allocate through it.
    CpuHeld,
    /// No place, and reclaiming did not help. The largest free range has `largest` pages, guard page included.
    Exhausted {
        /// The size of the largest free range in pages.
        largest: u64,
    },
    /// No place at once; a request that may reclaim could succeed.
    WouldBlock,
    /// No memory for the space's own records.
    OutOfMetadata,
}

/// Why an area was not freed. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreeAreaError {
    /// The page lies outside the space.
    Foreign,
    /// The CPU is not one of the space's.
    UnknownCpu,
    /// No area covers the page.
    NotAllocated,
    /// The page belongs to what `map_ram` made: `unmap_ram` frees that.
    IsRam,
    /// The area at this page was freed already.
    DoubleFree,
    /// The page lies inside the area that starts at `start`.
    NotAStart {
        /// The first page of that area.
        start: Vpn,
    },
}

/// Why nothing was mapped. Nothing changed, except what reclaim gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapRamError<X> {
    /// The request is for zero pages.
    ZeroSize,
    /// The CPU is not one of the space's.
    UnknownCpu,
    /// A [`CpuHandle`](super::CpuHandle) for this CPU is out: map through it.
    CpuHeld,
    /// No place, and reclaiming did not help. The largest free range has `largest` pages.
    Exhausted {
        /// The size of the largest free range in pages.
        largest: u64,
    },
    /// No place at once; a request that may reclaim could succeed.
    WouldBlock,
    /// No memory for the space's own records.
    OutOfMetadata,
    /// The mapper could not install it.
    Install(X),
}

/// Why nothing was unmapped. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnmapRamError {
    /// A page lies outside the space.
    Foreign,
    /// The CPU is not one of the space's.
    UnknownCpu,
    /// `map_ram` made nothing that covers the first page.
    NotMapped,
    /// What started there was unmapped already.
    DoubleUnmap,
    /// What starts there has another size.
    WrongSize {
        /// Its size.
        pages: PageCount,
    },
    /// The page lies inside the mapping that starts at `start`.
    NotAStart {
        /// The first page of that mapping.
        start: Vpn,
    },
}

/// Why a captured area was not loaded. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// A part of it lies outside the space.
    Foreign,
    /// The CPU is not one of the space's.
    UnknownCpu,
    /// A part of it is taken, or the guard page leaves no page for the area itself.
    Taken,
    /// No memory for the space's own records.
    OutOfMetadata,
}

/// Why no group of areas was allocated. Nothing changed, except what reclaim gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// There are no pieces, or the lists of offsets and sizes differ in length.
    Mismatched,
    /// A piece has zero pages.
    ZeroSize,
    /// The alignment is not a power of two, or an offset is not a multiple of it.
    Misaligned,
    /// Two pieces overlap.
    Overlapping,
    /// The CPU is not one of the space's.
    UnknownCpu,
    /// No base serves all pieces.
    Exhausted,
    /// No memory for the space's own records.
    OutOfMetadata,
}

/// Why a space was not set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// There are no CPUs.
    NoCpus,
    /// More CPUs than the records can name (2^14).
    TooManyCpus,
    /// More pages than the records can count (2^45).
    SpanTooLarge,
    /// These values of the policy do not go together.
    Contradiction(&'static str),
    /// No memory for the space's own records.
    OutOfMetadata,
}

/// Another handle for the same CPU is out, or the CPU is not one of the space's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Another handle for the same CPU is out.
    Held,
    /// The CPU is not one of the space's.
    UnknownCpu,
}

/// Why a CPU's blocks were not handed over; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandOverError {
    /// A handle for one of the CPUs is out.
    Held,
    /// One of the CPUs is not one of the space's.
    UnknownCpu,
    /// No memory for the records of the one that gets them.
    OutOfMetadata,
}

impl From<Busy> for HandOverError {
    fn from(why: Busy) -> Self {
        match why {
            Busy::Held => HandOverError::Held,
            Busy::UnknownCpu => HandOverError::UnknownCpu,
        }
    }
}

impl From<OutOfMetadata> for HandOverError {
    fn from(_: OutOfMetadata) -> Self {
        HandOverError::OutOfMetadata
    }
}

impl From<OutOfMetadata> for AreaError {
    fn from(_: OutOfMetadata) -> Self {
        AreaError::OutOfMetadata
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

impl From<OutOfMetadata> for LoadError {
    fn from(_: OutOfMetadata) -> Self {
        LoadError::OutOfMetadata
    }
}

impl From<OutOfMetadata> for GroupError {
    fn from(_: OutOfMetadata) -> Self {
        GroupError::OutOfMetadata
    }
}

impl From<OutOfMetadata> for ConfigError {
    fn from(_: OutOfMetadata) -> Self {
        ConfigError::OutOfMetadata
    }
}

const NO_METADATA: &str = "no memory for the space's own records";
const NO_SUCH_CPU: &str = "the CPU is not one of the space's";

impl fmt::Display for AreaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AreaError::ZeroSize => "a request for zero pages",
            AreaError::AlignNotPowerOfTwo => "the alignment is not a power of two",
            AreaError::OutsideSpace => "the wanted bounds lie outside the space",
            AreaError::UnknownCpu => NO_SUCH_CPU,
            AreaError::CpuHeld => "a handle for this CPU is out: allocate through it",
            AreaError::WouldBlock => "no place without reclaim, which the request forbids",
            AreaError::OutOfMetadata => NO_METADATA,
            AreaError::Exhausted { largest } => {
                return write!(f, "no place, even after reclaim; the largest has {largest} pages");
            }
        })
    }
}

impl fmt::Display for FreeAreaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FreeAreaError::Foreign => "the page lies outside the space",
            FreeAreaError::UnknownCpu => NO_SUCH_CPU,
            FreeAreaError::NotAllocated => "no area covers the page",
            FreeAreaError::IsRam => "the page was mapped by map_ram: free it by unmap_ram",
            FreeAreaError::DoubleFree => "the area was freed already",
            FreeAreaError::NotAStart { start } => {
                return write!(f, "the page lies inside the area that starts at {start}");
            }
        })
    }
}

impl<X: fmt::Display> fmt::Display for MapRamError<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MapRamError::ZeroSize => "a request for zero pages",
            MapRamError::UnknownCpu => NO_SUCH_CPU,
            MapRamError::CpuHeld => "a handle for this CPU is out: map through it",
            MapRamError::WouldBlock => "no place without reclaim, which the request forbids",
            MapRamError::OutOfMetadata => NO_METADATA,
            MapRamError::Exhausted { largest } => {
                return write!(f, "no place, even after reclaim; the largest has {largest} pages");
            }
            MapRamError::Install(why) => return write!(f, "the mapper refused: {why}"),
        })
    }
}

impl fmt::Display for UnmapRamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnmapRamError::Foreign => "a page lies outside the space",
            UnmapRamError::UnknownCpu => NO_SUCH_CPU,
            UnmapRamError::NotMapped => "nothing that map_ram made covers the page",
            UnmapRamError::DoubleUnmap => "the mapping was unmapped already",
            UnmapRamError::WrongSize { pages } => {
                return write!(f, "the mapping that starts there has {pages} pages");
            }
            UnmapRamError::NotAStart { start } => {
                return write!(f, "the page lies inside the mapping that starts at {start}");
            }
        })
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoadError::Foreign => "a part of the area lies outside the space",
            LoadError::UnknownCpu => NO_SUCH_CPU,
            LoadError::Taken => "a part of the area is taken, or it is too small",
            LoadError::OutOfMetadata => NO_METADATA,
        })
    }
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GroupError::Mismatched => "no pieces, or not as many offsets as sizes",
            GroupError::ZeroSize => "a piece has zero pages",
            GroupError::Misaligned => "the alignment is no power of two, or an offset breaks it",
            GroupError::Overlapping => "two pieces overlap",
            GroupError::UnknownCpu => NO_SUCH_CPU,
            GroupError::Exhausted => "no base serves all pieces, even after reclaim",
            GroupError::OutOfMetadata => NO_METADATA,
        })
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigError::NoCpus => "a space needs at least one CPU",
            ConfigError::TooManyCpus => "at most 2^14 CPUs",
            ConfigError::SpanTooLarge => "at most 2^45 pages",
            ConfigError::Contradiction(why) => why,
            ConfigError::OutOfMetadata => NO_METADATA,
        })
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Busy::Held => "another handle for this CPU is out",
            Busy::UnknownCpu => NO_SUCH_CPU,
        })
    }
}

impl fmt::Display for HandOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HandOverError::Held => "a handle for one of the CPUs is out",
            HandOverError::UnknownCpu => NO_SUCH_CPU,
            HandOverError::OutOfMetadata => NO_METADATA,
        })
    }
}

impl core::error::Error for AreaError {}
impl core::error::Error for FreeAreaError {}
impl<X: fmt::Debug + fmt::Display> core::error::Error for MapRamError<X> {}
impl core::error::Error for UnmapRamError {}
impl core::error::Error for LoadError {}
impl core::error::Error for GroupError {}
impl core::error::Error for ConfigError {}
impl core::error::Error for Busy {}
impl core::error::Error for HandOverError {}
