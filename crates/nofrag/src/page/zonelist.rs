//! In which order a request looks at zones.
//!
//! Within a node the highest zone comes first, so that low memory is kept for those that need it. Nodes come by
//! distance. Where several are equally far, each node would overflow into the same one; therefore a node that was
//! already chosen as somebody's first at its distance becomes a little farther, and equal nodes take turns.
//!
//! Source: spec/pages.md §2.1 (`build_zonelists`).

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::map::{MAX_NODES, MemoryMap, NodeId};
use super::request::{PageRequest, RequestFlags};
use super::zone::{Zone, ZoneId};

/// What the CPUs of a node add to its distance: memory without CPUs is better taken by others. The least that tells two
/// equal distances apart.
const PENALTY_OF_CPUS: u64 = 1;

/// The zones that requests of a node look at.
#[derive(Debug, Default)]
pub(super) struct Zonelist {
    /// Zones with memory, best first.
    zones: Vec<ZoneId>,
    /// How many of them belong to the node itself; they stand first.
    local: usize,
}

impl Zonelist {
    /// The zones that a request may look at, before its highest zone and its nodes are considered.
    pub(super) fn of(&self, request: &PageRequest) -> &[ZoneId] {
        if request.flags.has(RequestFlags::THIS_NODE) {
            &self.zones[..self.local]
        } else {
            &self.zones
        }
    }
}

impl Zone {
    /// Whether the zone may serve the request at all: neither too high nor on a forbidden node.
    pub(super) fn is_allowed(&self, request: &PageRequest) -> bool {
        self.kind <= request.zone && request.nodes.has(self.node)
    }
}

/// The zonelists of all nodes, by node. O(nodes cubed) in all.
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
            list.zones.extend(highest_first.filter(populated).map(|zone| zone.id));
            if from.index() == node {
                list.local = list.zones.len();
            }
        }
        lists.push(list);
    }
    Ok(lists)
}

/// The nodes in the order in which requests of `local` look at them: itself, then those with memory.
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

/// How far a node is, finely enough to tell all nodes apart: `node_load` decides among equals, and the next higher
/// number comes before lower ones.
fn cost(map: &MemoryMap, local: NodeId, node: NodeId, load: u64) -> u64 {
    let wraps = u64::from(node < local);
    let has_cpus = !map.nodes()[node.index()].cpus.is_empty();
    let penalty = if has_cpus { PENALTY_OF_CPUS } else { 0 };
    let value = u64::from(map.distance(local, node)) + wraps + penalty;
    value * MAX_NODES as u64 + load
}
