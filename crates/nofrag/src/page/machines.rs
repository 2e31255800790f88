//! Memory maps of common machines: a PC, one node of two zones, several such nodes.

use crate::lists::{put, put_all};
use alloc::vec::Vec;

use super::map::{MAX_CPUS, MAX_NODES, MapError, MemoryMap, NodeMap, PfnRange, ZoneKind, ZoneMap};
use crate::units::{Order, PageCount, Pfn};

/// Frames that 24 address bits reach.
const DMA_END: u64 = 0x1000;
/// Frames of video memory and firmware below 1 MiB.
const LEGACY: PfnRange = PfnRange { start: Pfn(0x9f), pages: PageCount(0x61) };
/// Frame at which memory below 4 GiB ends; devices are behind it.
const GAP_START: u64 = 0xc_0000;
/// Frames that 32 address bits reach.
const DMA32_END: u64 = 0x10_0000;

impl MemoryMap {
    /// Returns the map of an x86-64 machine with one node and `pages` pages of memory, laid out as firmware does it:
    /// without frame 0 and those below 1 MiB that belong to video memory, DMA up to 16 MiB, DMA32 up to 3 GiB with
    /// devices from there to 4 GiB, and the rest in Normal behind them. CPUs are 0 to `cpus` - 1.
    ///
    /// # Errors
    /// [`MapError::TooLarge`], [`MapError::OutOfMetadata`].
    pub fn pc(pages: PageCount, cpus: u32) -> Result<MemoryMap, MapError> {
        let below = pages.get().min(GAP_START);
        let above = pages.get() - below;
        let mut zones = Vec::new();
        zones.try_reserve_exact(3)?;
        let end = below.clamp(1, DMA_END);
        let mut dma = ZoneMap::new(ZoneKind::Dma, Pfn(1), PageCount(end - 1));
        let legacy = PfnRange::between(LEGACY.start, Pfn(LEGACY.end().0.min(end)));
        push(&mut dma.holes, legacy)?;
        put(&mut zones, dma);
        let end = if above > 0 { DMA32_END } else { below.max(DMA_END) };
        let span = PfnRange::between(Pfn(DMA_END), Pfn(end));
        let mut dma32 = ZoneMap::new(ZoneKind::Dma32, span.start, span.pages);
        if above > 0 {
            push(&mut dma32.holes, PfnRange::between(Pfn(GAP_START), Pfn(DMA32_END)))?;
        }
        put(&mut zones, dma32);
        put(&mut zones, ZoneMap::new(ZoneKind::Normal, Pfn(DMA32_END), PageCount(above)));
        one_node(zones, cpus)
    }

    /// Returns the map of one node of `pages` pages without holes, of which `dma32` thousandths, rounded down to blocks
    /// of the largest order, are in DMA32 and the rest in Normal: the machine of
    /// docs/sources/pages.md#count-model-memory. CPUs are 0 to `cpus` - 1.
    ///
    /// # Errors
    /// [`MapError::TooLarge`], [`MapError::OutOfMetadata`].
    pub fn uma(pages: PageCount, dma32: u32, cpus: u32) -> Result<MemoryMap, MapError> {
        one_node(two_zones(pages, dma32)?, cpus)
    }

    /// Returns the map of `nodes` nodes of `pages` pages each, one behind the other and without holes. Node 0 is
    /// divided into DMA32 and Normal as that of [`uma`](Self::uma); the others have Normal alone. Each node has `cpus`
    /// CPUs, numbered node by node. All nodes are equally far from each other.
    ///
    /// # Errors
    /// [`MapError::NodeCount`], [`MapError::TooLarge`], [`MapError::OutOfMetadata`].
    pub fn numa(
        nodes: usize,
        pages: PageCount,
        dma32: u32,
        cpus: u32,
    ) -> Result<MemoryMap, MapError> {
        let mut list = Vec::new();
        for number in 0..nodes.min(MAX_NODES + 1) as u32 {
            let zones = if number == 0 {
                two_zones(pages, dma32)?
            } else {
                let start = pages.get().checked_mul(u64::from(number)).ok_or(MapError::TooLarge)?;
                let mut zones = Vec::new();
                push(&mut zones, ZoneMap::new(ZoneKind::Normal, Pfn(start), pages))?;
                zones
            };
            push(&mut list, node(zones, number.saturating_mul(cpus), cpus)?)?;
        }
        MemoryMap::new(list, &[])
    }
}

fn two_zones(pages: PageCount, dma32: u32) -> Result<Vec<ZoneMap>, MapError> {
    let share = u128::from(pages.get()) * u128::from(dma32.min(1000)) / 1000;
    let low = share as u64 & !(Order::MAX.pages() - 1);
    let mut zones = Vec::new();
    zones.try_reserve_exact(2)?;
    put(&mut zones, ZoneMap::new(ZoneKind::Dma32, Pfn(0), PageCount(low)));
    put(&mut zones, ZoneMap::new(ZoneKind::Normal, Pfn(low), PageCount(pages.get() - low)));
    Ok(zones)
}

fn one_node(zones: Vec<ZoneMap>, cpus: u32) -> Result<MemoryMap, MapError> {
    let mut nodes = Vec::new();
    push(&mut nodes, node(zones, 0, cpus)?)?;
    MemoryMap::new(nodes, &[])
}

fn node(zones: Vec<ZoneMap>, first: u32, count: u32) -> Result<NodeMap, MapError> {
    let end = first.saturating_add(count);
    if end as usize > MAX_CPUS {
        return Err(MapError::TooLarge);
    }
    let mut cpus = Vec::new();
    cpus.try_reserve_exact(count as usize)?;
    put_all(&mut cpus, first..end);
    Ok(NodeMap { cpus, zones })
}

fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), MapError> {
    list.try_reserve(1)?;
    put(list, item);
    Ok(())
}
