//! The memory of a machine: nodes with distances, zones with holes.

use crate::lists::{put, put_all};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::fmt;

use crate::cpu::CpuSet;
use crate::errors::{errors, turns_into};
use crate::units::{Order, PageCount, Pfn};

/// A node of the machine: memory and CPUs that are near to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u8);

impl NodeId {
    /// Returns the node as an index into a table with a row per node.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of nodes, with a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeMask(pub u64);

impl NodeMask {
    pub const ALL: NodeMask = NodeMask(u64::MAX);

    /// Returns the set of this node alone; the empty set if no map can have such a node.
    #[must_use]
    pub const fn only(node: NodeId) -> NodeMask {
        NodeMask(if node.index() < MAX_NODES { 1 << node.0 } else { 0 })
    }

    /// Returns true if the node belongs to the set.
    #[must_use]
    pub const fn has(self, node: NodeId) -> bool {
        node.index() < MAX_NODES && self.0 >> node.0 & 1 == 1
    }
}

/// More nodes than this are refused.
pub const MAX_NODES: usize = 64;

/// More CPUs than this are refused: each has lists in each zone.
pub const MAX_CPUS: usize = 8192;

/// A node's distance to itself, and its distance to others where the firmware has no table.
const LOCAL_DISTANCE: u8 = 10;
const REMOTE_DISTANCE: u8 = 20;

/// Kinds of zones by what their memory can be used for, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneKind {
    /// Reached by devices with 24 address bits: below 16 MiB.
    Dma = 0,
    /// Reached by devices with 32 address bits: below 4 GiB.
    Dma32 = 1,
    /// Mapped by the kernel as a whole.
    Normal = 2,
    /// Not mapped by the kernel; 32-bit machines.
    HighMem = 3,
    /// Memory for movable pages alone.
    Movable = 4,
}

impl ZoneKind {
    /// All kinds, from the lowest zone to the highest.
    pub const ALL: [ZoneKind; 5] =
        [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::HighMem, ZoneKind::Movable];
    pub const COUNT: usize = ZoneKind::ALL.len();

    /// Returns the kind as an index into a table with a row per kind.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of the kind in `/proc/zoneinfo`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ZoneKind::Dma => "DMA",
            ZoneKind::Dma32 => "DMA32",
            ZoneKind::Normal => "Normal",
            ZoneKind::HighMem => "HighMem",
            ZoneKind::Movable => "Movable",
        }
    }
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A range of consecutive page frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PfnRange {
    pub start: Pfn,
    pub pages: PageCount,
}

impl PfnRange {
    /// Returns the range from `start` to before `end`; empty if `end` is not behind `start`.
    #[must_use]
    pub const fn between(start: Pfn, end: Pfn) -> PfnRange {
        PfnRange { start, pages: PageCount(end.0.saturating_sub(start.0)) }
    }

    /// Returns the frame behind the last one; saturates.
    #[must_use]
    pub const fn end(self) -> Pfn {
        Pfn(self.start.0.saturating_add(self.pages.0))
    }

    /// Returns true if the frame belongs to the range.
    #[must_use]
    pub const fn has(self, pfn: Pfn) -> bool {
        self.start.0 <= pfn.0 && pfn.0 < self.end().0
    }
}

/// One zone of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneMap {
    pub kind: ZoneKind,
    /// From its first frame to its last, holes included: `spanned` pages. May be empty.
    pub span: PfnRange,
    /// Frames without memory: `spanned` less these is `present`.
    pub holes: Vec<PfnRange>,
    /// Frames that are present but were taken before the allocator came up: `present` less these is `managed`.
    pub reserved: Vec<PfnRange>,
}

impl ZoneMap {
    /// Makes a zone without holes.
    #[must_use]
    pub const fn new(kind: ZoneKind, start: Pfn, pages: PageCount) -> ZoneMap {
        ZoneMap { kind, span: PfnRange { start, pages }, holes: Vec::new(), reserved: Vec::new() }
    }

    /// Returns the runs of frames that the allocator hands out, in ascending order, each as long as possible. Holes and
    /// reservations must be in order, as those of a [`MemoryMap`] are.
    pub(super) fn managed(&self) -> impl Iterator<Item = PfnRange> + '_ {
        self.runs(&self.holes, &self.reserved)
    }

    /// Returns the runs of frames with memory, reserved ones included.
    pub(super) fn present(&self) -> impl Iterator<Item = PfnRange> + '_ {
        self.runs(&self.holes, &[])
    }

    fn runs<'a>(
        &'a self,
        mut holes: &'a [PfnRange],
        mut reserved: &'a [PfnRange],
    ) -> impl Iterator<Item = PfnRange> + 'a {
        let mut at = self.span.start;
        core::iter::from_fn(move || {
            while at < self.span.end() {
                let cut = match (holes.first(), reserved.first()) {
                    (Some(hole), Some(taken)) if hole.start < taken.start => {
                        holes.split_off_first()
                    }
                    (Some(_), None) => holes.split_off_first(),
                    _ => reserved.split_off_first(),
                };
                let run = PfnRange::between(at, cut.map_or(self.span.end(), |cut| cut.start));
                at = cut.map_or(self.span.end(), |cut| cut.end());
                if run.pages.get() > 0 {
                    return Some(run);
                }
            }
            None
        })
    }
}

/// One node of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMap {
    /// The numbers of its CPUs; may be empty.
    pub cpus: Vec<u32>,
    /// Its zones, at most one of a kind, in any order.
    pub zones: Vec<ZoneMap>,
}

/// The memory of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryMap {
    nodes: Vec<NodeMap>,
    distances: Vec<u8>,
    cpus: CpuSet,
}

errors! {
    /// Error of making a memory map.
    #[non_exhaustive]
    pub enum MapError {
        /// More than [`MAX_NODES`] nodes, or none.
        NodeCount(count: usize) => "{count} nodes; there must be 1 to {MAX_NODES}",
        /// The table of distances is not square, a node is not at distance 10 to itself, or another is nearer than
        /// that.
        Distances => "distances must be square, 10 to the same node, and nowhere less",
        /// A node has two zones of this kind.
        ZoneTwice(node: NodeId, kind: ZoneKind) => "node {} has two zones {kind}" with node.0,
        /// Two zones share this frame, or two holes or reservations of one zone do.
        Overlap(pfn: Pfn) => "frame {pfn} belongs to two ranges",
        /// A hole or a reservation reaches beyond its zone here.
        OutsideZone(pfn: Pfn) => "frame {pfn} is outside the zone that it is cut from",
        /// A CPU belongs to two nodes.
        CpuTwice(cpu: u32) => "CPU {cpu} belongs to two nodes",
        /// More frames than 32-bit links can number, frame numbers at the end of 64 bits, or more CPUs than
        /// [`MAX_CPUS`].
        TooLarge => "more frames or CPUs than can be numbered",
        /// No memory for the lists.
        OutOfMetadata => "no memory for the map",
    }
}

turns_into!(TryReserveError => MapError::OutOfMetadata);

impl MemoryMap {
    /// Makes the map of these nodes. `distances` has a row per node, as in the firmware's table (10 is local); without
    /// rows every other node is at distance 20.
    ///
    /// O(n log n) in zones, holes, reservations and CPUs.
    ///
    /// # Errors
    /// [`MapError`] says what contradicts itself.
    pub fn new(mut nodes: Vec<NodeMap>, distances: &[&[u8]]) -> Result<MemoryMap, MapError> {
        if nodes.is_empty() || nodes.len() > MAX_NODES {
            return Err(MapError::NodeCount(nodes.len()));
        }
        for (number, node) in nodes.iter_mut().enumerate() {
            put_in_order(node);
            if let Some(pair) = node.zones.windows(2).find(|pair| pair[0].kind == pair[1].kind) {
                return Err(MapError::ZoneTwice(NodeId(number as u8), pair[0].kind));
            }
            node.zones.iter().try_for_each(check_zone)?;
        }
        check_spans(&nodes)?;
        let cpus = all_cpus(&nodes)?;
        let distances = distance_table(nodes.len(), distances)?;
        Ok(MemoryMap { nodes, distances, cpus })
    }

    /// Returns the nodes, in order; their zones are lowest first, holes and reservations in ascending order.
    #[must_use]
    pub fn nodes(&self) -> &[NodeMap] {
        &self.nodes
    }

    /// Returns the CPUs of all nodes.
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Returns the distance between two nodes of the map; 255 if one of them is not in the map.
    #[must_use]
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        let count = self.nodes.len();
        if from.index() >= count || to.index() >= count {
            return u8::MAX;
        }
        self.distances[from.index() * count + to.index()]
    }
}

/// Sorts CPUs, zones and ranges of a node, and drops empty ranges.
fn put_in_order(node: &mut NodeMap) {
    node.cpus.sort_unstable();
    node.cpus.dedup();
    node.zones.sort_unstable_by_key(|zone| zone.kind);
    for zone in &mut node.zones {
        for ranges in [&mut zone.holes, &mut zone.reserved] {
            ranges.retain(|range| range.pages.get() > 0);
            ranges.sort_unstable_by_key(|range| range.start);
        }
    }
}

/// Checks that a zone's holes and reservations lie inside it, and apart from each other.
fn check_zone(zone: &ZoneMap) -> Result<(), MapError> {
    let mut cuts = Vec::new();
    cuts.try_reserve_exact(zone.holes.len() + zone.reserved.len())?;
    put_all(&mut cuts, zone.holes.iter().chain(&zone.reserved).copied());
    for cut in &cuts {
        if !zone.span.has(cut.start) {
            return Err(MapError::OutsideZone(cut.start));
        }
        if cut.pages.get() > zone.span.end().0 - cut.start.0 {
            return Err(MapError::OutsideZone(zone.span.end()));
        }
    }
    check_apart(&mut cuts)
}

/// Checks that all zones lie apart and their frames can be numbered.
fn check_spans(nodes: &[NodeMap]) -> Result<(), MapError> {
    let block = Order::MAX.pages();
    let mut spans = Vec::new();
    let mut frames: u64 = 0;
    for zone in nodes.iter().flat_map(|node| &node.zones) {
        let PfnRange { start, pages } = zone.span;
        let end = start.0.checked_add(pages.get()).ok_or(MapError::TooLarge)?;
        if end > u64::MAX - block {
            return Err(MapError::TooLarge);
        }
        if pages.get() > 0 {
            spans.try_reserve(1)?;
            put(&mut spans, zone.span);
        }
        // Runs of memory are rounded outwards to blocks, so that each may need up to two more of them.
        for run in zone.present() {
            frames = frames.saturating_add(run.pages.get()).saturating_add(2 * block);
        }
    }
    if frames > u64::from(u32::MAX) {
        return Err(MapError::TooLarge);
    }
    check_apart(&mut spans)
}

/// Checks that no two of the ranges, none of which is empty, share a frame. Sorts them.
fn check_apart(ranges: &mut [PfnRange]) -> Result<(), MapError> {
    ranges.sort_unstable_by_key(|range| range.start);
    match ranges.windows(2).find(|pair| pair[0].has(pair[1].start)) {
        Some(pair) => Err(MapError::Overlap(pair[1].start)),
        None => Ok(()),
    }
}

fn all_cpus(nodes: &[NodeMap]) -> Result<CpuSet, MapError> {
    let mut ids = Vec::new();
    ids.try_reserve_exact(nodes.iter().map(|node| node.cpus.len()).sum())?;
    put_all(&mut ids, nodes.iter().flat_map(|node| node.cpus.iter().copied()));
    if ids.len() > MAX_CPUS {
        return Err(MapError::TooLarge);
    }
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(MapError::CpuTwice(pair[0]));
    }
    Ok(CpuSet::new(ids)?)
}

/// Returns the distances row by row: those given, or the firmware's defaults.
fn distance_table(count: usize, given: &[&[u8]]) -> Result<Vec<u8>, MapError> {
    let is_square = given.len() == count && given.iter().all(|row| row.len() == count);
    if !given.is_empty() && !is_square {
        return Err(MapError::Distances);
    }
    let mut table = Vec::new();
    table.try_reserve_exact(count * count)?;
    for from in 0..count {
        for to in 0..count {
            let default = if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
            let distance = given.get(from).map_or(default, |row| row[to]);
            if distance < LOCAL_DISTANCE || from == to && distance != LOCAL_DISTANCE {
                return Err(MapError::Distances);
            }
            put(&mut table, distance);
        }
    }
    Ok(table)
}
