//! The order in which a request looks at zones.
//!
//! Within a node the highest zone comes first, so that low memory is kept for those that need it. Nodes come by
//! distance. Where several are equally far, each node would overflow into the same one; therefore a node that was
//! already chosen as somebody's first at its distance becomes a little farther, and equal nodes take turns.
//!
//! Rules: docs/sources/pages.md#zonelists.

use crate::lists::{put, put_all};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::map::{MAX_NODES, MemoryMap, NodeId};
use super::request::{PageRequest, RequestFlags};
use super::zone::{Zone, ZoneId};

/// Amount that the CPUs of a node add to its distance: memory without CPUs is better taken by others. The least that
/// tells two equal distances apart.
const PENALTY_OF_CPUS: u64 = 1;

/// The zones that requests of a node look at.
#[derive(Debug, Default)]
pub(super) struct Zonelist {
    /// Zones with memory, best first.
    zones: Vec<ZoneId>,
    /// Number of zones that belong to the node itself; these stand first.
    local: usize,
}

impl Zonelist {
    /// Returns the bytes of metadata on the heap.
    pub(super) fn metadata_bytes(&self) -> usize {
        self.zones.capacity() * size_of::<ZoneId>()
    }

    /// Returns the zones that a request may look at, before its highest zone and its nodes are considered.
    pub(super) fn of(&self, request: &PageRequest) -> &[ZoneId] {
        if request.flags.has(RequestFlags::THIS_NODE) {
            &self.zones[..self.local]
        } else {
            &self.zones
        }
    }
}

impl Zone {
    /// Returns true if the zone may serve the request at all: neither too high nor on a forbidden node.
    pub(super) fn is_allowed(&self, request: &PageRequest) -> bool {
        self.kind <= request.zone && request.nodes.has(self.node)
    }
}

/// Returns the zonelists of all nodes, by node. O(nodes cubed) in all.
pub(super) fn zonelists(map: &MemoryMap, zones: &[Zone]) -> Result<Vec<Zonelist>, TryReserveError> {
    let mut lists = Vec::new();
    lists.try_reserve_exact(map.nodes().len())?;
    let mut loads = [0; MAX_NODES];
    for node in 0..map.nodes().len() {
        let mut list = Zonelist::default();
        list.zones.try_reserve_exact(zones.len())?;
        for from in node_order(map, zones, NodeId(node as u8), &mut loads) {
            let highest_first = zones.iter().rev();
            let populated = |zone: &&Zone| zone.node == from && zone.managed.get() > 0;
            put_all(&mut list.zones, highest_first.filter(populated).map(|zone| zone.id));
            if from.index() == node {
                list.local = list.zones.len();
            }
        }
        put(&mut lists, list);
    }
    Ok(lists)
}

/// Returns the nodes in the order in which requests of `local` look at them: itself, then those with memory.
fn node_order(
    map: &MemoryMap,
    zones: &[Zone],
    local: NodeId,
    loads: &mut [u64; MAX_NODES],
) -> impl Iterator<Item = NodeId> {
    let mut left: u64 = zones
        .iter()
        .filter(|zone| zone.managed.get() > 0 && zone.node != local)
        .fold(0, |set, zone| set | 1 << zone.node.0);
    let mut before = local;
    let mut order = [local; MAX_NODES];
    let mut count = 1;
    while left != 0 {
        let nodes = (0..MAX_NODES as u8).map(NodeId).filter(|node| left >> node.0 & 1 == 1);
        let next = nodes
            .min_by_key(|&node| cost(map, local, node, loads[node.index()]))
            .expect("a bit is left");
        if map.distance(local, next) != map.distance(local, before) {
            loads[next.index()] += 1;
        }
        left &= !(1 << next.0);
        order[count] = next;
        count += 1;
        before = next;
    }
    order.into_iter().take(count)
}

/// Returns the distance of a node, finely enough to tell all nodes apart: `load` decides among equals, and nodes above
/// `local` come before those below.
fn cost(map: &MemoryMap, local: NodeId, node: NodeId, load: u64) -> u64 {
    let wraps = u64::from(node < local);
    let has_cpus = !map.nodes()[node.index()].cpus.is_empty();
    let penalty = if has_cpus { PENALTY_OF_CPUS } else { 0 };
    let value = u64::from(map.distance(local, node)) + wraps + penalty;
    value * MAX_NODES as u64 + load
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;
    use crate::page::allocator::{PageAllocator, PageConfig};
    use crate::page::map::{NodeMap, ZoneKind, ZoneMap};
    use crate::page::policy::FragmentationPolicy;
    use crate::units::{Order, PageCount, Pfn};

    /// Makes node `number` with these CPUs, and zones of these kinds and numbers of pages.
    fn node(number: u64, cpus: &[u32], kinds: &[(ZoneKind, u64)]) -> NodeMap {
        let mut zones = Vec::new();
        for (place, &(kind, pages)) in kinds.iter().enumerate() {
            let start = Pfn((number * 8 + place as u64) << 12);
            zones.push(ZoneMap::new(kind, start, PageCount(pages)));
        }
        NodeMap { cpus: cpus.to_vec(), zones }
    }

    fn allocator(nodes: Vec<NodeMap>, distances: &[&[u8]]) -> PageAllocator {
        let map = MemoryMap::new(nodes, distances).expect("a map");
        let config = PageConfig::new(map, FragmentationPolicy::LINUX_4_20);
        PageAllocator::new(&config).expect("an allocator")
    }

    /// Checks the zonelist of a node for a request, as pairs of node and first letter of the kind.
    fn check_list(pages: &PageAllocator, node: usize, request: PageRequest, list: &str) {
        let mut shown = String::new();
        for &id in pages.nodes[node].zonelist.of(&request) {
            let zone = &pages.zones[id.index()];
            if zone.is_allowed(&request) {
                shown.push(char::from(b'0' + zone.node.0));
                shown.push_str(&zone.kind.name()[..1]);
                shown.push(' ');
            }
        }
        assert_eq!(shown.trim_end(), list, "node {node}");
    }

    const USER: PageRequest = PageRequest::user(Order::ZERO);

    #[test]
    fn equal_nodes_take_turns() {
        let normal = [(ZoneKind::Normal, 4096)];
        let nodes = (0..4).map(|number| node(number, &[number as u32], &normal)).collect();
        let pages = allocator(nodes, &[]);
        check_list(&pages, 0, USER, "0N 1N 2N 3N");
        check_list(&pages, 1, USER, "1N 2N 3N 0N");
        check_list(&pages, 2, USER, "2N 3N 0N 1N");
        check_list(&pages, 3, USER, "3N 0N 1N 2N");
    }

    #[test]
    fn nodes_that_were_first_for_others_come_later() {
        // Nodes 2 and 3 are equally far from 0 and from 1, and nearer to them than these are to each other.
        let distances: [&[u8]; 4] =
            [&[10, 40, 20, 20], &[40, 10, 20, 20], &[20, 20, 10, 40], &[20, 20, 40, 10]];
        let normal = [(ZoneKind::Normal, 4096)];
        let nodes = (0..4).map(|number| node(number, &[number as u32], &normal)).collect();
        let pages = allocator(nodes, &distances);
        check_list(&pages, 0, USER, "0N 2N 3N 1N");
        check_list(&pages, 1, USER, "1N 3N 2N 0N");
    }

    #[test]
    fn distance_first_then_nodes_without_cpus() {
        let normal = [(ZoneKind::Normal, 4096)];
        let nodes = || {
            let cpus: [&[u32]; 4] = [&[0], &[1], &[], &[3]];
            (0..4).map(|number| node(number, cpus[number as usize], &normal)).collect()
        };
        check_list(&allocator(nodes(), &[]), 0, USER, "0N 2N 1N 3N");
        let distances: [&[u8]; 4] =
            [&[10, 20, 30, 12], &[20, 10, 20, 20], &[30, 20, 10, 20], &[12, 20, 20, 10]];
        check_list(&allocator(nodes(), &distances), 0, USER, "0N 3N 1N 2N");
    }

    #[test]
    fn zones_from_the_highest_down_without_empty_ones() {
        use ZoneKind::{Dma, Dma32, Movable, Normal};
        let low = [(Dma, 1), (Dma32, 4096), (Normal, 0), (Movable, 4096)];
        let nodes = Vec::from([node(0, &[0], &low), node(1, &[], &[(Normal, 1), (Movable, 1)])]);
        let pages = allocator(nodes, &[]);
        let kernel = PageRequest { zone: ZoneKind::Normal, ..USER };
        check_list(&pages, 0, USER, "0M 0D 0D 1M 1N");
        check_list(&pages, 0, kernel, "0D 0D 1N");
        check_list(&pages, 1, kernel, "1N 0D 0D");
        check_list(&pages, 0, PageRequest { zone: ZoneKind::Dma, ..USER }, "0D");
        check_list(&pages, 0, kernel.flags(RequestFlags::THIS_NODE), "0D 0D");
        let elsewhere =
            PageRequest { nodes: super::super::map::NodeMask::only(NodeId(1)), ..kernel };
        check_list(&pages, 0, elsewhere, "1N");
        check_list(&pages, 0, elsewhere.flags(RequestFlags::THIS_NODE), "");
    }

    #[test]
    fn a_node_without_memory_begins_with_its_nearest() {
        let normal = [(ZoneKind::Normal, 4096)];
        let nodes = Vec::from([node(0, &[0], &normal), node(1, &[1], &[]), node(2, &[2], &normal)]);
        let pages = allocator(nodes, &[&[10, 20, 20], &[30, 10, 20], &[20, 20, 10]]);
        check_list(&pages, 1, USER, "2N 0N");
        check_list(&pages, 1, USER.flags(RequestFlags::THIS_NODE), "");
    }
}
