//! The memory that there is: nodes with distances, zones with holes.

use alloc::vec::Vec;
use core::fmt;

use crate::cpu::CpuSet;
use crate::units::{PageCount, Pfn};

/// A node of the machine: memory and CPUs that are near to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u8);

impl NodeId {
    /// As an index into a table with a row per node.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeMask(pub u64);

impl NodeMask {
    /// Every node.
    pub const ALL: NodeMask = NodeMask(u64::MAX);

    /// The set of this node alone.
    #[must_use]
    pub const fn only(node: NodeId) -> NodeMask {
        NodeMask(1 << (node.0 as u32 % u64::BITS))
    }

    /// Whether the node belongs to the set.
    #[must_use]
    pub const fn has(self, node: NodeId) -> bool {
        node.index() < MAX_NODES && self.0 >> node.0 & 1 == 1
    }
}

/// More nodes than this are refused.
pub const MAX_NODES: usize = 64;

/// What a zone's memory can be used for, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneKind {
    /// Reached by devices with 24 address bits: below 16 MiB.
    Dma = 0,
    /// Reached by devices with 32 address bits: below 4 GiB.
    Dma32 = 1,
    /// All of it is mapped by the kernel.
    Normal = 2,
    /// Not mapped by the kernel; 32-bit machines.
    HighMem = 3,
    /// Movable pages alone.
    Movable = 4,
}

impl ZoneKind {
    /// All kinds, lowest first.
    pub const ALL: [ZoneKind; 5] =
        [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::HighMem, ZoneKind::Movable];
    /// How many kinds there are.
    pub const COUNT: usize = ZoneKind::ALL.len();

    /// As an index into a table with a row per kind.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in `/proc/zoneinfo`.
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

/// Consecutive page frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PfnRange {
    /// The first frame.
    pub start: Pfn,
    /// How many.
    pub pages: PageCount,
}

impl PfnRange {
    /// The frame behind the last one; saturates.
    #[must_use]
    pub const fn end(self) -> Pfn {
        Pfn(self.start.0.saturating_add(self.pages.0))
    }

    /// Whether the frame belongs to the range.
    #[must_use]
    pub const fn has(self, pfn: Pfn) -> bool {
        self.start.0 <= pfn.0 && pfn.0 < self.end().0
    }
}

/// One zone of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneMap {
    /// What its memory can be used for.
    pub kind: ZoneKind,
    /// From its first frame to its last, holes included: `spanned` pages. May be empty.
    pub span: PfnRange,
    /// Where there is no memory: `spanned` less these is `present`.
    pub holes: Vec<PfnRange>,
    /// What is present but was taken before the allocator came up: `present` less these is `managed`.
    pub reserved: Vec<PfnRange>,
}

impl ZoneMap {
    /// A zone without holes.
    #[must_use]
    pub const fn new(kind: ZoneKind, start: Pfn, pages: PageCount) -> ZoneMap {
        ZoneMap { kind, span: PfnRange { start, pages }, holes: Vec::new(), reserved: Vec::new() }
    }
}

/// One node.
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

/// Why there is no such memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// More than [`MAX_NODES`] nodes, or none.
    NodeCount(usize),
    /// The table of distances is not square, or a distance is below 10, which is a node's to itself.
    Distances,
    /// A node has two zones of this kind.
    ZoneTwice(NodeId, ZoneKind),
    /// Two zones, or two holes of one zone, share this frame.
    Overlap(Pfn),
    /// A hole or a reservation reaches beyond its zone here.
    OutsideZone(Pfn),
    /// A CPU belongs to two nodes.
    CpuTwice(u32),
    /// More frames than 32-bit links can number.
    TooLarge,
    /// No memory for the lists.
    OutOfMetadata,
}

impl MemoryMap {
    /// The machine of these nodes. `distances` has a row per node, as in the firmware's table (10 is local); without
    /// rows every other node is at distance 20.
    ///
    /// # Errors
    /// [`MapError`] says what contradicts itself.
    pub fn new(nodes: Vec<NodeMap>, distances: &[&[u8]]) -> Result<MemoryMap, MapError> {
        if nodes.is_empty() || nodes.len() > MAX_NODES {
            return Err(MapError::NodeCount(nodes.len()));
        }
        let ids = nodes.iter().flat_map(|node| node.cpus.iter().copied());
        let cpus = CpuSet::new(ids).map_err(|_| MapError::OutOfMetadata)?;
        let mut table = Vec::new();
        table.try_reserve(nodes.len() * nodes.len()).map_err(|_| MapError::OutOfMetadata)?;
        for from in 0..nodes.len() {
            for to in 0..nodes.len() {
                let given = distances.get(from).and_then(|row| row.get(to)).copied();
                table.push(given.unwrap_or(if from == to { 10 } else { 20 }));
            }
        }
        Ok(MemoryMap { nodes, distances: table, cpus })
    }

    /// The nodes, in order.
    #[must_use]
    pub fn nodes(&self) -> &[NodeMap] {
        &self.nodes
    }

    /// All CPUs.
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// The distance between two nodes of the map; 255 if one is none of them.
    #[must_use]
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        self.distances.get(from.index() * self.nodes.len() + to.index()).copied().unwrap_or(255)
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::NodeCount(count) => {
                write!(f, "{count} nodes; there must be 1 to {MAX_NODES}")
            }
            MapError::Distances => f.write_str("distances must be square and at least 10"),
            MapError::ZoneTwice(node, kind) => write!(f, "node {} has two zones {kind}", node.0),
            MapError::Overlap(pfn) => write!(f, "frame {pfn} belongs to two ranges"),
            MapError::OutsideZone(pfn) => write!(f, "frame {pfn} of a hole is outside its zone"),
            MapError::CpuTwice(cpu) => write!(f, "CPU {cpu} belongs to two nodes"),
            MapError::TooLarge => f.write_str("more frames than can be numbered"),
            MapError::OutOfMetadata => f.write_str("no memory for the map"),
        }
    }
}

impl core::error::Error for MapError {}
