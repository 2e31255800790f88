//! The memory of the recorded host: its zones, with the frames that were never handed out.

use std::collections::BTreeSet;
use std::ops::Range;

use nofrag::page::{MemoryMap, NodeMap, PfnRange, ZoneKind, ZoneMap};
use nofrag::units::{Order, PageCount, Pfn};
use nofrag_host::snapshot::{FrameUse, Snapshot, ZoneInfo, ZoneName};

use super::super::ReplayError;

pub(super) const BLOCK: u64 = Order::PAGEBLOCK.pages();

pub(super) const PAGE: u64 = 4096;

/// A zone of the recorded host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Zone {
    pub(super) name: ZoneName,
    pub(super) kind: ZoneKind,
    /// Its frames by number, holes included; the end is excluded.
    pub(super) span: Range<u64>,
    pub(super) holes: Vec<PfnRange>,
    /// Memory that was taken before the allocator came up.
    pub(super) reserved: Vec<PfnRange>,
}

impl Zone {
    /// Returns the number of frames that the allocator hands out.
    pub(super) fn managed(&self) -> u64 {
        self.span.end - self.span.start - pages(&self.holes) - pages(&self.reserved)
    }

    /// Returns the number of frames with memory.
    pub(super) fn present(&self) -> u64 {
        self.span.end - self.span.start - pages(&self.holes)
    }

    /// Returns the starts of its pageblocks, the ones at its ends included, and their first frames with memory; those
    /// without any are left out.
    pub(super) fn pageblocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let blocks = self.span.start / BLOCK..self.span.end.div_ceil(BLOCK);
        blocks.filter_map(|block| {
            let (start, end) = (block * BLOCK, (block * BLOCK + BLOCK).min(self.span.end));
            let mut first = start.max(self.span.start);
            let hole = self.holes.partition_point(|hole| hole.end().0 <= first);
            for hole in self.holes[hole..].iter().take_while(|hole| hole.start.0 < end) {
                if hole.has(Pfn(first)) {
                    first = hole.end().0;
                }
            }
            (first < end).then_some((start, first))
        })
    }
}

fn pages(ranges: &[PfnRange]) -> u64 {
    ranges.iter().map(|range| range.pages.get()).sum()
}

/// All zones with memory, by node and then lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) zones: Vec<Zone>,
    pub(super) cpus: Vec<u32>,
}

impl Memory {
    /// Reads the memory from the snapshot; `uses` has the use of each frame.
    pub(super) fn of(snapshot: &Snapshot<'_>, uses: &[FrameUse]) -> Result<Memory, ReplayError> {
        let populated = snapshot.populated().filter_map(|zone| Some((zone, zone.zone.kind()?)));
        let mut zones = Vec::new();
        for (zone, kind) in populated {
            let (Some(start), Some(end)) = (zone.start_pfn, zone.end_pfn()) else {
                return Err(ReplayError::Host(format!(
                    "zoneinfo does not say where zone {} of node {} begins, so its frames are not known; record with \
                     a snapshot that has a whole zoneinfo",
                    zone.zone.name, zone.zone.node
                )));
            };
            // Nothing lies behind the last frame that is known, whatever the file says of a zone's end.
            let end = end.min(uses.len() as u64);
            if start < end {
                zones.push(zone_of(zone, kind, start..end, uses));
            }
        }
        let sets = snapshot.populated().flat_map(|zone| &zone.per_cpu).map(|set| set.cpu);
        let mut cpus: Vec<u32> = sets.collect::<BTreeSet<u32>>().into_iter().collect();
        if cpus.is_empty() {
            cpus.push(0);
        }
        if zones.is_empty() {
            return Err(ReplayError::Host(
                "zoneinfo names no zone with memory; record with a snapshot that has it".to_owned(),
            ));
        }
        Ok(Memory { zones, cpus })
    }

    /// Returns the memory as the allocator wants it. The files do not say which CPU belongs to which node: each node
    /// gets an equal share, in order. Their number matters, as the lists of a CPU hold at most a zone's low watermark
    /// divided by the number of CPUs of its node.
    pub(super) fn map(&self) -> Result<MemoryMap, ReplayError> {
        let numbers: BTreeSet<u32> = self.zones.iter().map(|zone| zone.name.node).collect();
        let mut cpus = self.cpus.chunks(self.cpus.len().div_ceil(numbers.len().max(1)).max(1));
        let node = |number: u32| {
            let own = self.zones.iter().filter(|zone| zone.name.node == number);
            let cpus = cpus.next().unwrap_or_default().to_vec();
            NodeMap { cpus, zones: own.map(zone_map).collect() }
        };
        let nodes = numbers.into_iter().map(node).collect();
        MemoryMap::new(nodes, &[]).map_err(|error| {
            ReplayError::Host(format!("the host's memory contradicts itself: {error}"))
        })
    }

    /// Returns the number of frames that the allocator hands out.
    pub(super) fn managed(&self) -> u64 {
        self.zones.iter().map(Zone::managed).sum()
    }
}

fn zone_map(zone: &Zone) -> ZoneMap {
    ZoneMap {
        kind: zone.kind,
        span: PfnRange::between(Pfn(zone.span.start), Pfn(zone.span.end)),
        holes: zone.holes.clone(),
        reserved: zone.reserved.clone(),
    }
}

/// Returns a zone with `span`.
fn zone_of(zone: &ZoneInfo, kind: ZoneKind, span: Range<u64>, uses: &[FrameUse]) -> Zone {
    let usage = |pfn: u64| uses.get(pfn as usize).copied().unwrap_or(FrameUse::NoPage);
    let is_hole = |pfn: u64| usage(pfn) == FrameUse::NoPage;
    let holes = runs(span.clone(), is_hole);
    let reserved = runs(span.clone(), |pfn| !usage(pfn).is_managed() && !is_hole(pfn));
    Zone { name: zone.zone.clone(), kind, span, holes, reserved }
}

/// Returns the longest ranges of frames that all fulfil the condition.
pub(super) fn runs(span: Range<u64>, is_in: impl Fn(u64) -> bool) -> Vec<PfnRange> {
    let mut runs = Vec::new();
    let mut at = span.start;
    while let Some(start) = (at..span.end).find(|&pfn| is_in(pfn)) {
        at = (start..span.end).find(|&pfn| !is_in(pfn)).unwrap_or(span.end);
        runs.push(PfnRange { start: Pfn(start), pages: PageCount(at - start) });
    }
    runs
}

/// Returns the aligned blocks of which the frames of a range consist, largest first where they can be; none is larger
/// than the allocator's largest.
pub(super) fn aligned(range: Range<u64>) -> impl Iterator<Item = (u64, Order)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let left = range.end.checked_sub(at).filter(|&left| left > 0)?;
        let fits = left.ilog2().min(at.trailing_zeros()).min(Order::MAX.get().into());
        let order = Order::new(fits as u8).expect("it is at most the largest");
        let block = (at, order);
        at += order.pages();
        Some(block)
    })
}
