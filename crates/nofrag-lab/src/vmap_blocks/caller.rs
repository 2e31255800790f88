//! A space under test, and the two ways of calling it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use nofrag::cpu::CpuId;
use nofrag::ranges::Span;
use nofrag::vmap::{CpuHandle, Epoch, Mapper, RamArea, VmapSpace};

use crate::spaces::Failure;

/// A mapper that only counts flushes, each of which is complete when it returns.
#[derive(Debug, Default)]
pub(super) struct Flushes(AtomicU64);

impl Flushes {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Mapper for Flushes {
    const CLEARS: bool = false;

    type Context = ();
    type Error = Infallible;

    #[inline]
    fn install(&self, _area: RamArea, _context: &()) -> Result<(), Infallible> {
        Ok(())
    }

    #[inline]
    fn clear(&self, _area: Span) {}

    fn flush(&self, _ranges: &[Span]) -> Epoch {
        Epoch(self.0.fetch_add(1, Ordering::AcqRel) + 1)
    }

    #[inline]
    fn completed(&self) -> Epoch {
        Epoch(self.count())
    }
}

pub(super) type Space = VmapSpace<Flushes>;

/// A CPU's interface to map and unmap.
pub(super) trait Caller {
    fn map(&mut self, pages: u64) -> Result<RamArea, Failure>;
    fn unmap(&mut self, area: RamArea) -> Result<(), Failure>;
}

/// A caller without a handle, which names its CPU at each call.
pub(super) struct ByCall<'a> {
    pub(super) space: &'a Space,
    pub(super) cpu: CpuId,
}

impl Caller for ByCall<'_> {
    #[inline]
    fn map(&mut self, pages: u64) -> Result<RamArea, Failure> {
        Ok(self.space.map_ram(self.cpu, pages, &())?)
    }

    #[inline]
    fn unmap(&mut self, area: RamArea) -> Result<(), Failure> {
        Ok(self.space.unmap_ram(self.cpu, area)?)
    }
}

impl Caller for CpuHandle<'_, Flushes> {
    #[inline]
    fn map(&mut self, pages: u64) -> Result<RamArea, Failure> {
        Ok(self.map_ram(pages, &())?)
    }

    #[inline]
    fn unmap(&mut self, area: RamArea) -> Result<(), Failure> {
        Ok(self.unmap_ram(area)?)
    }
}
