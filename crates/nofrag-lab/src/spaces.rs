//! Address spaces under test, of the size of x86-64's and at its place.

use std::convert::Infallible;

use nofrag::cpu::CpuSet;
use nofrag::ranges::{AlignOne, Span};
use nofrag::vmap::{
    AreaError, AreaRequest, AreaState, Busy, ConfigError, FreeAreaError, GroupError, Guard,
    MapRamError, Mapper, UnmapRamError, VmapConfig, VmapPolicy, VmapSpace,
};
use nofrag_host::addresses::{self, Addresses};
use nofrag_host::snapshot::Files;
use nofrag_host::vmallocinfo;
use thiserror::Error;

/// Bytes of a page, as a shift.
pub(crate) const PAGE: u32 = 12;

/// Start of x86-64's vmalloc range with four-level page tables, as a page number.
const VMALLOC_START_PAGE: u64 = 0xffff_c900_0000_0000 >> PAGE;

/// Pages of x86-64's vmalloc range: 32 TiB.
pub(crate) const VMALLOC_PAGES: u64 = 1 << 33;

/// Describes a space of `pages` pages for `cpus` emulated CPUs.
pub(crate) fn config(policy: VmapPolicy, pages: u64, cpus: usize) -> Result<VmapConfig, Failure> {
    let span = Span::sized(VMALLOC_START_PAGE, pages);
    let cpus = CpuSet::first(cpus as u32).map_err(|error| Failure::Records(error.to_string()))?;
    let span = span.map_err(|error| Failure::Records(error.to_string()))?;
    Ok(VmapConfig { span, cpus, policy })
}

/// The reason why a program did not come to its end.
#[derive(Clone, Debug, Error, PartialEq)]
pub(crate) enum Failure {
    #[error("no space was set up: {0}")]
    Setup(#[from] ConfigError),
    #[error("an allocation failed: {0}")]
    Alloc(#[from] AreaError),
    #[error("a free failed: {0}")]
    Free(#[from] FreeAreaError),
    #[error("a group allocation failed: {0}")]
    Group(#[from] GroupError),
    #[error("a mapping failed: {0}")]
    Map(#[from] MapRamError<Infallible>),
    #[error("an unmapping failed: {0}")]
    Unmap(#[from] UnmapRamError),
    #[error("a CPU is in use: {0}")]
    Held(#[from] Busy),
    #[error("the lab's own records: {0}")]
    Records(String),
}

/// Builds a space of `pages` pages for `cpus` emulated CPUs.
pub(crate) fn new_space<M: Mapper + Default>(
    policy: VmapPolicy,
    pages: u64,
    cpus: usize,
) -> Result<VmapSpace<M>, Failure> {
    Ok(VmapSpace::new(config(policy, pages, cpus)?, M::default(), ())?)
}

/// The reason why a snapshot has no areas that can be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAreas {
    /// No list, or an empty one.
    Unlisted,
    /// Number of areas with hashes or zeros for addresses.
    Hashed(u64),
}

/// Returns the areas of a snapshot's `vmallocinfo` in pages, guards included, in the order of the file.
pub(crate) fn areas_of(files: &Files) -> Result<Vec<(Span, AreaState)>, NoAreas> {
    let parsed = vmallocinfo::parse(files.bytes("vmallocinfo").ok_or(NoAreas::Unlisted)?);
    match addresses::judge(&parsed.areas) {
        Addresses::Real => {}
        Addresses::NoAreas => return Err(NoAreas::Unlisted),
        _ => return Err(NoAreas::Hashed(parsed.areas.len() as u64)),
    }
    let span_of = |area: &vmallocinfo::Area<'_>| {
        let printed = area.printed?;
        let span = Span::new(printed.start >> PAGE, printed.end >> PAGE).ok()?;
        Some((span, if area.is_lazy() { AreaState::Lazy } else { AreaState::Busy }))
    };
    Ok(parsed.areas.iter().filter_map(span_of).collect())
}

/// Returns the request for `pages` pages, guard included, with an alignment in bytes.
pub(crate) fn request(pages: u64, align_bytes: u64, window: Span) -> AreaRequest {
    let align = (align_bytes >> PAGE).max(1);
    let align_one = if align_bytes >> PAGE == 0 { AlignOne::Byte } else { AlignOne::Number };
    AreaRequest::new(pages).align(align).align_one(align_one).within(window).guard(Guard::None)
}
