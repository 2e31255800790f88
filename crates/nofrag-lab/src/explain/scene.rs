//! Zones and a request, whatever showed them: a report of the log, or the files of a snapshot.

use nofrag::page::{FragmentationIndices, PageRequest, Refusal, ZoneState};
use nofrag::units::Order;
use nofrag_host::failure::{LogReport, Memory};
use nofrag_host::fields;
use nofrag_host::snapshot::{Files, Snapshot};

#[derive(Clone, Debug)]
pub(super) struct SceneZone {
    pub(super) name: String,
    pub(super) state: ZoneState,
    /// Free blocks by order, those above the core's largest included.
    pub(super) blocks: Vec<u64>,
    /// Pages that the allocator manages.
    pub(super) managed: u64,
}

/// Counts of the machine, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) anon: u64,
    pub(super) file: u64,
    pub(super) slab: u64,
    /// `None` where the source does not say.
    pub(super) free_swap: Option<u64>,
}

/// The state of memory when a request failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    /// In the order in which a request tries them.
    pub(super) zones: Vec<SceneZone>,
    pub(super) page_bytes: u64,
    pub(super) totals: Option<Totals>,
    /// The kernel's major and minor version, where they are known.
    pub(super) version: Option<(u32, u32)>,
}

/// A request with its original order: kernels with larger pages have orders that the core lacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SceneRequest {
    pub(super) order: u32,
    pub(super) request: PageRequest,
}

impl SceneRequest {
    /// Builds a request for `order`; the core sees at most its own largest.
    pub(super) fn new(order: u32, request: PageRequest) -> SceneRequest {
        let core = u8::try_from(order).ok().and_then(Order::new).unwrap_or(Order::MAX);
        SceneRequest { order, request: PageRequest { order: core, ..request } }
    }

    pub(super) fn of_order(self, order: Order) -> SceneRequest {
        SceneRequest::new(u32::from(order.get()), self.request)
    }
}

const KIB: u64 = 1024;

/// Bounds a number of pages by that of the largest machine, so that sums stay within 64 bits whatever a file says.
fn sane(pages: u64) -> u64 {
    const MOST: u64 = 1 << 48;
    pages.min(MOST)
}

impl Scene {
    /// Builds the scene of a report.
    pub(super) fn of_report(report: &LogReport) -> Scene {
        let memory = &report.memory;
        let page_bytes = memory.page_kib * KIB;
        let zones = memory.states().into_iter().map(|(zone, state)| SceneZone {
            name: zone_name(memory, zone.zone.node, &zone.zone.name),
            state,
            blocks: zone.blocks.clone(),
            managed: zone.kib("managed").or_else(|| zone.kib("present")).unwrap_or(0)
                / memory.page_kib,
        });
        Scene::of(zones, page_bytes, totals(memory), report.release.as_deref())
    }

    fn of(
        zones: impl Iterator<Item = SceneZone>,
        page_bytes: u64,
        totals: Option<Totals>,
        release: Option<&str>,
    ) -> Scene {
        let mut zones: Vec<SceneZone> = zones.collect();
        zones.sort_by_key(|zone| (zone.state.node, std::cmp::Reverse(zone.state.kind)));
        let version = release.and_then(|text| fields::release_version(text).ok());
        Scene { zones, page_bytes, totals, version }
    }

    /// Builds the scene of a snapshot that was parsed from `files`.
    pub(super) fn of_snapshot(snapshot: &Snapshot<'_>, files: &Files) -> Scene {
        let nodes = snapshot.populated().map(|zone| zone.zone.node).max().unwrap_or(0);
        let zones = snapshot.populated().filter_map(|zone| {
            let blocks =
                snapshot.blocks(&zone.zone).map(|each| each.blocks.clone()).unwrap_or_default();
            let state = snapshot.state(zone)?;
            let name = if nodes == 0 { zone.zone.name.clone() } else { zone.zone.to_string() };
            Some(SceneZone { name, state, blocks, managed: sane(zone.managed) })
        });
        let node = |name: &str| {
            let values = snapshot.nodes.values().filter_map(|node| node.get(name));
            sane(values.fold(0, |sum: u64, &value| sum.saturating_add(value)))
        };
        let totals = Totals {
            anon: node("nr_active_anon") + node("nr_inactive_anon"),
            file: node("nr_active_file") + node("nr_inactive_file"),
            slab: node("nr_slab_unreclaimable"),
            free_swap: swap_pages(files, snapshot.page_bytes()),
        };
        Scene::of(zones, snapshot.page_bytes(), Some(totals), snapshot.release.as_deref())
    }

    /// Returns the zones that a request may use, best first.
    pub(super) fn allowed(&self, request: &SceneRequest) -> impl Iterator<Item = &SceneZone> {
        self.zones.iter().filter(|zone| zone.state.is_allowed(&request.request))
    }

    /// Returns the order of a huge page: as much as a page of entries maps, and no more than the largest block.
    pub(super) fn huge_order(&self) -> u32 {
        const ENTRY_BYTES: u64 = 8;
        let largest = self.zones.iter().map(|zone| zone.blocks.len()).max().unwrap_or(0);
        let mapped = (self.page_bytes / ENTRY_BYTES).max(1).ilog2();
        mapped.min(u32::try_from(largest.saturating_sub(1)).unwrap_or(u32::MAX))
    }

    pub(super) fn bytes(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.page_bytes)
    }
}

impl SceneZone {
    /// Returns the reason why the zone does not serve the request.
    pub(super) fn refusal(&self, asked: &SceneRequest) -> Refusal {
        let refusal = self.state.refusal(&asked.request);
        let core = u32::from(Order::MAX.get());
        let largest = self.blocks.iter().rposition(|&blocks| blocks > 0);
        match refusal {
            // The core sees such a block as one of its own largest.
            Refusal::Limit | Refusal::Type
                if asked.order > core && largest < Some(asked.order as usize) =>
            {
                Refusal::Order { largest: largest.map(|_| Order::MAX) }
            }
            refusal => refusal,
        }
    }

    /// Returns the largest order of a free block; `None` if no block is free or known.
    pub(super) fn largest_free(&self) -> Option<u32> {
        self.blocks.iter().rposition(|&blocks| blocks > 0).map(|order| order as u32)
    }

    pub(super) fn indices(&self, order: u32) -> FragmentationIndices {
        FragmentationIndices::of_blocks(&self.blocks, order)
    }
}

/// Returns a zone's name with its node where there are several.
fn zone_name(memory: &Memory, node: u32, name: &str) -> String {
    let several = memory.zones.iter().any(|zone| zone.zone.node != 0);
    if several { format!("node {node} {name}") } else { name.to_owned() }
}

/// Returns the pages of free swap, where the snapshot tells them.
fn swap_pages(files: &Files, page_bytes: u64) -> Option<u64> {
    let text = String::from_utf8_lossy(files.bytes("meminfo")?);
    fields::meminfo_bytes(&text, "SwapFree").ok()?.checked_div(page_bytes)
}

fn totals(memory: &Memory) -> Option<Totals> {
    let of = |name: &str| memory.totals.get(name).copied();
    let sum = |a: &str, b: &str| of(a).unwrap_or(0).saturating_add(of(b).unwrap_or(0));
    of("active_anon")?;
    Some(Totals {
        anon: sum("active_anon", "inactive_anon"),
        file: sum("active_file", "inactive_file"),
        slab: of("slab_unreclaimable").unwrap_or(0),
        free_swap: memory.free_swap_kib.map(|kib| kib / memory.page_kib),
    })
}
