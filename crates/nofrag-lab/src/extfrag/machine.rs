//! The machines of the document (docs/sources/pages.md#published-figures), scaled to some memory.

use nofrag::page::MemoryMap;
use nofrag::units::{Order, PageCount};

use super::spec::TestMachine;
use crate::world::load::Mix;
use crate::world::setup::{FIO_THREADS, Layout};

/// CPUs of the machine with one node, and of each node of the one with two.
const ONE_NODE_CPUS: u32 = 8;
const TWO_NODES_CPUS: u32 = 24;

/// Returns the number of huge-page threads of the workload: a node's CPUs less fio's four, divided by four. `None` if
/// that is 0, as the workload then refuses to run (pages.md#thpfioscale).
pub(super) const fn thp_threads(cpus: u32, nodes: u32) -> Option<u32> {
    if nodes == 0 {
        return None;
    }
    match (cpus / nodes).saturating_sub(FIO_THREADS) / 4 {
        0 => None,
        threads => Some(threads),
    }
}

/// Returns the number of units of 2 MiB that one of `threads` touches: `size / threads / 2 MiB / 2`, where size is
/// three quarters of node 0. The mapping itself is rounded up, but untouched pages take no memory.
pub(super) const fn units_per_thread(node_0_pages: u64, threads: u32) -> u64 {
    let bytes = node_0_pages * 4096 / 4 * 3;
    bytes / threads as u64 / (2 << 20) / 2
}

/// Returns the machine's reserve in pages, which khugepaged sets: eleven pageblocks for each zone with pages, at most a
/// twentieth of memory (pages.md#guest-reserve).
pub(super) fn huge_page_reserve(machine: TestMachine, pages: u64) -> u64 {
    let zones = match machine {
        TestMachine::OneNode => 2,
        TestMachine::TwoNodes { .. } => 3,
    };
    (11 * Order::PAGEBLOCK.pages() * zones).min(pages / 20)
}

/// Returns the machine with `pages` pages, rounded down to whole blocks in each node. The mix sets the share of DMA32
/// in node 0.
pub(super) fn layout(machine: TestMachine, mix: &Mix, pages: u64) -> Layout {
    let (nodes, node_cpus) = match machine {
        TestMachine::OneNode => (1, ONE_NODE_CPUS),
        TestMachine::TwoNodes { .. } => (2, TWO_NODES_CPUS),
    };
    let node_pages = pages / u64::from(nodes) / Order::MAX.pages() * Order::MAX.pages();
    let map = MemoryMap::numa(nodes as usize, PageCount(node_pages), mix.dma32 as u32, node_cpus)
        .expect("zones follow each other");
    let threads = thp_threads(node_cpus * nodes, nodes).expect("there are CPUs enough");
    let start = match machine {
        TestMachine::OneNode => 0,
        TestMachine::TwoNodes { start, .. } => u32::from(start) * node_cpus,
    };
    let behind = FIO_THREADS + threads;
    Layout {
        map,
        fio: std::array::from_fn(|thread| {
            // fio's threads are spread over the nodes, as a scheduler that balances load does.
            let thread = thread as u32;
            thread % nodes * node_cpus + thread / nodes
        }),
        huge: (0..threads).map(|thread| start + FIO_THREADS + thread).collect(),
        daemons: (0..nodes)
            .map(|node| [0, 1].map(|daemon| node * node_cpus + behind + daemon))
            .collect(),
        node_0_pages: node_pages,
        pages: node_pages * u64::from(nodes),
    }
}
#[cfg(test)]
mod tests {
    use super::super::mixes::mixes;
    use super::*;

    #[test]
    fn the_workload_needs_eight_cpus_a_node() {
        let threads = |cpus| thp_threads(cpus, 1);
        assert_eq!([3, 7, 8, 11, 12].map(threads), [None, None, Some(1), Some(1), Some(2)]);
        assert_eq!([24, 27].map(threads), [Some(5); 2]);
        assert_eq!([thp_threads(15, 2), thp_threads(48, 2)], [None, Some(5)]);
        assert_eq!(thp_threads(8, 0), None);
    }

    #[test]
    fn every_second_unit_of_three_quarters_of_a_node_is_touched() {
        let gib = 1 << 18;
        assert_eq!(units_per_thread(16 * gib, 1), 3072);
        assert_eq!(units_per_thread(4 * gib, 1), 768);
        assert_eq!(units_per_thread(16 * gib, 5), 614);
    }

    #[test]
    fn the_machine_keeps_what_khugepaged_wants() {
        use nofrag::page::{FragmentationPolicy, MinFree, PageAllocator, PageConfig};
        let two = TestMachine::TwoNodes { this_node: true, start: 0 };
        let gib = 1 << 18;
        for (machine, pages, reserve) in
            [(TestMachine::OneNode, gib, 11_264), (two, gib, 13_107), (two, 2 * gib, 16_896)]
        {
            assert_eq!(huge_page_reserve(machine, pages), reserve);
            let map = layout(machine, &mixes()[0], pages).map;
            let config = PageConfig {
                min_free: MinFree::HugePages,
                ..PageConfig::new(map, FragmentationPolicy::LINUX_6_1)
            };
            let allocator = PageAllocator::new(&config).expect("the map is sound");
            let kept: u64 = allocator.zones().map(|zone| zone.watermarks.min).sum();
            assert!((reserve - 3..=reserve).contains(&kept), "each share is rounded down: {kept}");
        }
    }

    #[test]
    fn every_thread_has_a_cpu_of_its_own() {
        for machine in [TestMachine::OneNode, TestMachine::TwoNodes { this_node: true, start: 1 }] {
            let layout = layout(machine, &mixes()[0], 1 << 18);
            let mut cpus: Vec<u32> = layout.fio.to_vec();
            cpus.extend(&layout.huge);
            cpus.extend(layout.daemons.iter().flatten());
            let count = cpus.len();
            cpus.sort_unstable();
            cpus.dedup();
            assert_eq!(cpus.len(), count);
            assert!(cpus.iter().all(|&cpu| layout.map.cpus().get(cpu).is_some()));
        }
    }
}
