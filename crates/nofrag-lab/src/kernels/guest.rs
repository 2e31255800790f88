//! A cell of the dataset simulated: its guest's machine, its kernel's policy, the world around the pages.

use std::collections::BTreeMap;

use nofrag::page::{
    Advice, Boost, FragmentationPolicy, HugeDefrag, HugeFault, Lru, MemoryMap, MinFree, NoRun,
    NodeMap, PfnRange, ZoneKind, ZoneMap,
};
use nofrag::units::{Order, PageCount, Pfn};

use super::phase::{Count, Phase, PhaseName, Piece};
use crate::scenario::RunError;
use crate::world::cache::files_per_thread;
use crate::world::costs::{Costs, World};
use crate::world::load::Mix;
use crate::world::setup::{Boot, Layout, Moment, PhaseEnd, RunResult, Setup, WarmUp};
use crate::world::thpfioscale::Run;

/// Settings and memory of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// `5.10`, `6.1`, `6.12` or `7.2`.
    pub(super) kernel: String,
    /// The factor's name, such as `centre` or `default`.
    pub(super) factor: String,
    pub(super) memory_mib: u64,
    pub(super) nodes: u64,
    /// True if the program advises huge pages.
    pub(super) madvise: bool,
    /// Sysctl transparent_hugepage/defrag.
    pub(super) thp_defrag: HugeDefrag,
    /// Sysctl vm.watermark_boost_factor.
    pub(super) boost: u32,
    pub(super) defrag_mode: bool,
    /// Setting lru_gen/enabled; false where the kernel has no such setting.
    pub(super) lru_gen: bool,
    pub(super) min_free_kib: u64,
    /// Lowest first, node by node.
    pub(super) zones: Vec<CellZone>,
}

/// A zone of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellZone {
    pub(super) node: usize,
    pub(super) kind: ZoneKind,
    /// Number of pageblocks that have memory.
    pub(super) blocks: u64,
    /// Number of pages that the kernel hands out.
    pub(super) managed: u64,
}

const CPUS: u32 = 2;

/// Returns the number of units that huge pages are asked for: three eighths of the first node, in units of 2 MiB.
const fn units(memory_mib: u64, nodes: u64) -> u64 {
    memory_mib / nodes * 3 / 8 / 2
}

/// Runs the cell with this seed and returns its phases in order; `read` pages are read before huge pages are touched.
pub(super) fn simulate(cell: &Cell, read: u64, seed: u64) -> Result<Vec<Phase>, RunError> {
    let mut run = Run::new(setup(cell, read, seed)?)?;
    run.up_to_huge_pages()?;
    Ok(phases(&run.finish(), counts_put_off(&cell.kernel)))
}

/// Returns true if a kernel counts attempts to compact that were put off as failed (`compact_fail`, `compact_stall`):
/// those up to 6.12 do.
pub(crate) fn counts_put_off(kernel: &str) -> bool {
    kernel != "7.2"
}

fn setup(cell: &Cell, read: u64, seed: u64) -> Result<Setup, RunError> {
    let failed = |why: String| RunError::Engine {
        design: format!("linux-{}", cell.kernel),
        program: cell.factor.clone(),
        why,
    };
    let policy = policy(cell).map_err(|error| failed(error.to_string()))?;
    let map = memory(cell).map_err(|error| failed(format!("{error:?}")))?;
    let cpu = |thread: u32| thread % CPUS;
    let layout = Layout {
        fio: [0, 1, 2, 3].map(cpu),
        huge: vec![cpu(4)],
        // With two nodes each has one CPU.
        daemons: (0..cell.nodes).map(|node| [cpu(node as u32), cpu(node as u32 + 1)]).collect(),
        node_0_pages: cell.zones.iter().filter(|zone| zone.node == 0).map(|it| it.managed).sum(),
        pages: cell.zones.iter().map(|zone| zone.managed).sum(),
        map,
    };
    let world = World::built_in();
    let advice = if cell.madvise { Advice::HugePage } else { Advice::Unadvised };
    Ok(Setup {
        design: format!("linux-{}", cell.kernel),
        program: cell.factor.clone(),
        policy,
        layout,
        min_free: MinFree::Pages(cell.min_free_kib / 4),
        boot: Boot {
            unmovable: world.boot_unmovable,
            reclaimable: world.boot_reclaimable,
            files: world.boot_files,
        },
        costs: costs(),
        files: files_per_thread(cell.memory_mib << 8),
        warm_up: WarmUp::Reads(read),
        fault: HugeFault::new(cell.thp_defrag, advice, policy.huge_tries),
        mix: load(cell.memory_mib << 8),
        units: units(cell.memory_mib, cell.nodes),
        seed,
    })
}

/// Returns the load of fio's four threads alone.
fn load(pages: u64) -> Mix {
    Mix {
        name: "fio",
        dma32: 375,
        burst: 4096,
        transients: 0,
        transient_chance: 0,
        writeback: ((World::built_in().writeback_blocks * pages) >> 18) as usize,
        extra_slab: 0,
        slab_orders: [2, 0, 1, 2, 0, 0],
    }
}

/// Returns the table's costs on an emulated machine.
fn costs() -> Costs {
    let table = Costs::built_in();
    let world = World::built_in();
    let clear = world.clear_page;
    let fault = table.fault + table.alloc + clear;
    let guest = Costs {
        clear_huge: 512 * clear,
        write_page: world.faults_of_write * fault,
        create_file: world.faults_of_creation * fault,
        read_page: fault,
        disk_read: (world.half_faults_of_read - 2) * fault / 2,
        // Blocks of files are written in the background: no task waits for the disk.
        disk_write: fault,
        ..table
    };
    guest.times(world.slowdown)
}

fn policy(cell: &Cell) -> Result<FragmentationPolicy, nofrag::page::UnknownPolicy> {
    let defrag = if cell.defrag_mode { "-defrag-shipped" } else { "" };
    let mut policy = FragmentationPolicy::preset(&format!("linux-{}{defrag}", cell.kernel))?.policy;
    policy.boost = Some(Boost { factor: cell.boost });
    if !cell.lru_gen {
        policy.lru = Lru::TwoLists;
    }
    Ok(policy)
}

/// The first frame above 4 GiB: zone Normal begins there or higher.
const ABOVE_4_GIB: Pfn = Pfn(1 << 20);

fn memory(cell: &Cell) -> Result<MemoryMap, nofrag::page::MapError> {
    let mut nodes: Vec<NodeMap> = Vec::new();
    let mut next = Pfn(0);
    for zone in &cell.zones {
        if nodes.len() == zone.node {
            let cpus = (0..CPUS).filter(|cpu| cell.nodes == 1 || *cpu as usize == zone.node);
            nodes.push(NodeMap { cpus: cpus.collect(), zones: Vec::new() });
        }
        let pages = zone.blocks * Order::PAGEBLOCK.pages();
        let start = if zone.kind == ZoneKind::Normal { next.max(ABOVE_4_GIB) } else { next };
        next = Pfn(start.0 + pages);
        let end = if zone.kind == ZoneKind::Dma32 { ABOVE_4_GIB.max(next) } else { next };
        let mut map = ZoneMap::new(zone.kind, start, PageCount(end.0 - start.0));
        if end > next {
            // The zone spans everything below 4 GiB.
            map.holes.push(PfnRange::between(next, end));
        }
        let taken = PageCount(pages.saturating_sub(zone.managed));
        // Firmware lies at the beginning of memory; the kernel's reservations are taken from the end of a zone.
        let start = match zone.kind {
            ZoneKind::Dma => start,
            _ => Pfn(next.0 - taken.get()),
        };
        map.reserved.push(PfnRange { start, pages: taken });
        nodes[zone.node].zones.push(map);
    }
    MemoryMap::new(nodes, &[])
}

/// Returns the counts phase by phase.
fn phases(run: &RunResult, counts_put_off: bool) -> Vec<Phase> {
    let ends = [
        (Moment::Write, PhaseName::Write),
        (Moment::WarmUp, PhaseName::Warm),
        (Moment::HugePages, PhaseName::Thp),
    ];
    let mut before = PhaseEnd::default();
    let mut phases = Vec::new();
    for (moment, phase) in ends {
        let Some(end) = run.phases.iter().find(|end| end.at == moment) else { continue };
        let mut counts = counted(&before, end);
        if counts_put_off {
            let put_off = end.counters.compact_put_off - before.counters.compact_put_off;
            *counts.entry(Count::CompactionsFailed).or_default() += put_off;
        }
        if phase == PhaseName::Thp {
            counts.insert(Count::Units, run.huge + run.base);
            counts.insert(Count::Huge, run.huge);
            let deferred = run.compactions.spared.get(&NoRun::Deferred);
            counts.insert(Count::Deferred, deferred.copied().unwrap_or(0));
        }
        phases.push(Phase { name: phase, counts, free: end.free.clone() });
        before = end.clone();
    }
    phases
}

fn counted(before: &PhaseEnd, end: &PhaseEnd) -> BTreeMap<Count, u64> {
    let mut counts = BTreeMap::new();
    for (key, count) in &end.fallbacks {
        let (kind, migratetype, order) = *key;
        let more = count - before.fallbacks.get(key).copied().unwrap_or(0);
        *counts.entry(Count::Fallbacks(kind, migratetype, Piece::of(order))).or_default() += more;
    }
    let (from, to) = (&before.counters, &end.counters);
    for (count, from, to) in [
        (Count::Moved, from.moved, to.moved),
        (Count::CompactionsGave, from.compact_successes, to.compact_successes),
        (Count::CompactionsFailed, from.compact_failures, to.compact_failures),
        (Count::DirectCalls, from.direct_reclaims, to.direct_reclaims),
        (Count::DirectPages, from.reclaimed_direct, to.reclaimed_direct),
        (Count::KswapdPages, from.reclaimed_kswapd, to.reclaimed_kswapd),
        (Count::KswapdWakes, from.kswapd_runs, to.kswapd_runs),
        (Count::KcompactdWakes, from.kcompactd_wakes, to.kcompactd_wakes),
        (Count::Read, before.read, end.read),
    ] {
        counts.insert(count, to - from);
    }
    counts
}
