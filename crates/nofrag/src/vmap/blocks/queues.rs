//! Linux's blocks. Being written: no request finds a place yet.

use super::{Aliases, AreaSource};
use crate::check::Violation;
use crate::cpu::CpuId;
use crate::ranges::{OutOfMetadata, Span};
use crate::vmap::engine::Miss;
use crate::vmap::{BlockRecord, BlockStats, RamArea, UnmapRamError, VmapConfig, VmapCounters};
use alloc::vec::Vec;

#[derive(Debug)]
pub(in crate::vmap) struct Queues;

impl Queues {
    pub(super) fn new(_config: &VmapConfig) -> Result<Queues, OutOfMetadata> {
        Ok(Queues)
    }

    pub(super) fn map<A: AreaSource>(
        &self,
        _cpu: CpuId,
        _pages: u32,
        _areas: &A,
    ) -> Result<u64, Miss> {
        Err(Miss::OutOfMetadata)
    }

    pub(super) fn unmap<A: AreaSource>(
        &self,
        _area: RamArea,
        _areas: &A,
    ) -> Result<(), UnmapRamError> {
        Err(UnmapRamError::NotMapped)
    }

    pub(super) fn find(&self, _at: u64) -> Option<RamArea> {
        None
    }

    pub(super) fn for_each_live(&self, _number: u64, _visit: &mut dyn FnMut(Span)) {}

    pub(super) fn flush_aliases<A: AreaSource>(&self, _areas: &A) -> Aliases {
        Aliases::default()
    }

    pub(super) fn purge_idle<A: AreaSource>(&self, _areas: &A) {}

    pub(super) fn has_reclaimable(&self) -> bool {
        false
    }

    pub(super) fn add_counters(&self, _counters: &mut VmapCounters) {}

    pub(super) fn stats(&self) -> BlockStats {
        BlockStats::default()
    }

    pub(super) fn collect(&self, _out: &mut Vec<BlockRecord>) -> Result<(), OutOfMetadata> {
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}
