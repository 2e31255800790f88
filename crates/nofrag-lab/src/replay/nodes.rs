//! The node with which a request begins, which no event tells.
//!
//! Most requests begin with the node of their CPU, which has most of its pages from there. Some name another one: a
//! request for one node alone says so in its flags; others do not (the buffers in which a kernel traces each CPU, huge
//! pages that khugepaged makes), and show it by the frame they got. A request goes to another node than the one that it
//! begins with only where that has too little: so a frame of another node was asked for there if the CPU's own node
//! certainly had enough.

use nofrag::page::{NodeId, PageAllocator, RequestFlags};
use nofrag::units::Order;

use super::request::Request;

/// Memory that is believed free of each node, and the node of each CPU.
///
/// Always true, if there are several nodes (else nothing is counted):
/// 1. `zones[z].free` is the number of frames of zone z that are believed free, `blocks[b]` that of pageblock b.
#[derive(Debug)]
pub(super) struct Nodes {
    zones: Vec<Zone>,
    /// Free frames of each pageblock of the machine.
    blocks: Vec<u16>,
    /// By CPU: the number of single pages that it got of each node.
    homes: Vec<Vec<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    node: NodeId,
    free: u64,
    /// Pageblocks that are free as a whole.
    whole: u64,
    /// With more free pages than this a zone serves single pages, however many of them lie on the lists of CPUs.
    plenty: u64,
}

impl Nodes {
    /// Creates the nodes of an allocator, with nothing believed free.
    pub(super) fn new(pages: &PageAllocator) -> Nodes {
        let zone = |zone: nofrag::page::ZoneInfo| {
            let reserve = zone.lowmem_reserve.iter().max().copied().unwrap_or(0);
            // In no kernel do the lists of CPUs hold more than an eighth of a zone.
            let plenty = zone.watermarks.high + reserve + zone.managed.get() / 8;
            Zone { node: zone.node, free: 0, whole: 0, plenty }
        };
        Nodes { zones: pages.zones().map(zone).collect(), blocks: Vec::new(), homes: Vec::new() }
    }

    /// Returns true if there are several nodes, so that the choice matters.
    pub(super) fn are_several(&self) -> bool {
        self.zones.last().is_some_and(|last| last.node.0 > 0)
    }

    /// Counts a frame of a zone as believed free, which was believed in use.
    pub(super) fn gets(&mut self, zone: usize, pfn: u64) {
        let block = (pfn / Order::PAGEBLOCK.pages()) as usize;
        if self.blocks.len() <= block {
            self.blocks.resize(block + 1, 0);
        }
        self.blocks[block] += 1;
        let zone = &mut self.zones[zone];
        zone.free += 1;
        zone.whole += u64::from(u64::from(self.blocks[block]) == Order::PAGEBLOCK.pages());
    }

    /// Counts a frame of a zone as believed in use, which was believed free.
    pub(super) fn loses(&mut self, zone: usize, pfn: u64) {
        let block = &mut self.blocks[(pfn / Order::PAGEBLOCK.pages()) as usize];
        let zone = &mut self.zones[zone];
        // A pageblock that lies in two zones counts in the zone in which it became whole.
        let was_whole = u64::from(*block) == Order::PAGEBLOCK.pages();
        zone.whole = zone.whole.saturating_sub(u64::from(was_whole));
        zone.free -= 1;
        *block -= 1;
    }

    /// Returns the node with which a request on `cpu` begins that got a frame of zone `got` (`None`: it was refused).
    /// `moved` returns the number of a zone's frames that hold moved pages, although they are believed free. The result
    /// is `None` with a single node, or if the CPU has got no page yet.
    pub(super) fn of(
        &mut self,
        cpu: u16,
        got: Option<usize>,
        request: &Request,
        moved: impl Fn(usize) -> u64,
    ) -> Option<NodeId> {
        if !self.are_several() {
            return None;
        }
        let (cpu, zones) = (usize::from(cpu), self.zones.len());
        if self.homes.len() <= cpu {
            self.homes.resize_with(cpu + 1, || vec![0; zones]);
        }
        let got = got.map(|zone| self.zones[zone].node);
        if let (Some(node), Order::ZERO) = (got, request.order) {
            self.homes[cpu][node.index()] += 1;
        }
        let pages = (0..).zip(&self.homes[cpu]).filter(|(_, pages)| **pages > 0);
        let home = pages.max_by_key(|(_, pages)| **pages).map(|(node, _)| NodeId(node));
        let is_elsewhere = |home| got.is_some_and(|got| got != home);
        let is_named = request.flags.has(RequestFlags::THIS_NODE)
            || home.is_some_and(|home| is_elsewhere(home) && self.serves(home, request, moved));
        got.filter(|_| is_named).or(home).or(got)
    }

    /// Returns true if a node certainly has the memory for a request.
    fn serves(&self, node: NodeId, request: &Request, moved: impl Fn(usize) -> u64) -> bool {
        let is_huge = request.order >= Order::PAGEBLOCK;
        let of_node = (0..).zip(&self.zones).filter(|(_, zone)| zone.node == node);
        of_node.into_iter().any(|(number, zone)| {
            zone.free.saturating_sub(moved(number)) > zone.plenty && (!is_huge || zone.whole > 0)
        })
    }
}
