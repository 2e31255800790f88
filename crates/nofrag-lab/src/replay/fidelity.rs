//! How near a replay under the recorded kernel's own rules comes to what that kernel did.
//!
//! Three runs are compared with the snapshot at the end. In two of them the kernel's own decisions are carried out, in
//! one with the rule for migrations and in the other, the baseline, without it: they say how well requests and frees
//! were followed. In the third the policy reclaims and compacts for itself, which says how well *that* is modelled; it
//! is what policies are compared in.

use nofrag::page::{Migratetype, PageAllocator, ZoneInfo};
use nofrag::units::Order;
use nofrag_host::snapshot::{Snapshot, ZoneBlocks, ZoneInfo as Recorded, ZoneName};

use super::outcome::{Fidelity, FidelityFigure, Recorded as Traced, Tolerance, Verdict};

/// Events below which a count says nothing.
const FEW: u64 = 50;

/// The runs under the recorded kernel's rules.
pub(super) struct Runs<'a> {
    pub(super) without: &'a PageAllocator,
    pub(super) replayed: &'a PageAllocator,
    pub(super) own: &'a PageAllocator,
}

/// The snapshots before and after, and what was traced.
pub(super) struct Truth<'a> {
    pub(super) start: &'a Snapshot<'a>,
    pub(super) end: &'a Snapshot<'a>,
    pub(super) traced: &'a Traced,
}

/// Compares the runs with the kernel.
pub(super) fn fidelity(preset: &str, runs: &Runs<'_>, truth: &Truth<'_>) -> Fidelity {
    let mut figures = Vec::new();
    all_free_pages(truth.end, runs, &mut figures);
    for zone in truth.end.populated() {
        free_pages(zone, runs, &mut figures);
    }
    large_blocks(truth.end, runs, &mut figures);
    events(runs, truth, &mut figures);
    for zone in truth.end.populated() {
        pageblock_types(&zone.zone, truth.end, runs, &mut figures);
    }
    for zone in truth.end.populated() {
        blocks_by_order(&zone.zone, truth.end, runs, &mut figures);
    }
    Fidelity { preset: preset.to_owned(), figures }
}

/// The zone of a run that the recorded one is.
fn zone_of(pages: &PageAllocator, name: &ZoneName) -> Option<ZoneInfo> {
    let kind = name.kind()?;
    pages.zones().find(|zone| zone.kind == kind && u32::from(zone.node.0) == name.node)
}

/// A figure that all of a zone's runs have.
struct OfZone<'a> {
    name: String,
    zone: &'a ZoneName,
    recorded: u64,
    tolerance: Tolerance,
    carries: &'a str,
}

impl OfZone<'_> {
    fn push(
        self,
        runs: &Runs<'_>,
        figures: &mut Vec<FidelityFigure>,
        of: impl Fn(&PageAllocator, &ZoneInfo) -> u64,
    ) {
        let value = |pages| zone_of(pages, self.zone).map(|zone| of(pages, &zone) as f64);
        if let (without, Some(replayed)) = (value(runs.without), value(runs.replayed)) {
            figures.push(figure(
                self.name,
                self.recorded as f64,
                (without, replayed),
                self.tolerance,
                self.carries,
            ));
        }
    }
}

/// Pages that nobody uses: free, or on the lists of CPUs, which hold an eighth of them in the shipped recording.
fn all_free_pages(end: &Snapshot<'_>, runs: &Runs<'_>, figures: &mut Vec<FidelityFigure>) {
    let recorded: u64 = end.populated().map(|zone| zone.free + zone.on_per_cpu_lists()).sum();
    let of = |pages: &PageAllocator| {
        pages.zones().map(|zone| zone.free.get() + pages.per_cpu_pages(zone.id).get()).sum::<u64>()
    };
    figures.push(figure(
        "free or on CPU lists, all zones".to_owned(),
        recorded as f64,
        (Some(of(runs.without) as f64), of(runs.replayed) as f64),
        Tolerance::Percent(2.0),
        "how much is free, and with it reclaim, stalls and failures",
    ));
}

fn free_pages(zone: &Recorded, runs: &Runs<'_>, figures: &mut Vec<FidelityFigure>) {
    OfZone {
        name: format!("free or on CPU lists, {}", label(&zone.zone)),
        zone: &zone.zone,
        recorded: zone.free + zone.on_per_cpu_lists(),
        tolerance: Tolerance::Percent(2.0),
        carries: "how free memory is divided among zones",
    }
    .push(runs, figures, |pages, zone| zone.free.get() + pages.per_cpu_pages(zone.id).get());
}

fn large_blocks(end: &Snapshot<'_>, runs: &Runs<'_>, figures: &mut Vec<FidelityFigure>) {
    let large = Order::PAGEBLOCK.get()..=Order::MAX.get();
    let recorded: u64 = end
        .buddy
        .iter()
        .map(|zone| large.clone().map(|order| listed(zone, order)).sum::<u64>())
        .sum();
    let of = |pages: &PageAllocator| {
        let zones = pages.zones();
        zones.map(|zone| large.clone().map(|o| blocks(pages, &zone, o)).sum::<u64>()).sum::<u64>()
    };
    figures.push(figure(
        "free blocks of order 9 and above".to_owned(),
        recorded as f64,
        (Some(of(runs.without) as f64), of(runs.replayed) as f64),
        Tolerance::Percent(15.0),
        "how many huge pages can be had at the end, and the success of order 9",
    ));
}

/// Free blocks of an order that buddyinfo lists.
fn listed(buddy: &ZoneBlocks, order: u8) -> u64 {
    buddy.blocks.get(usize::from(order)).copied().unwrap_or(0)
}

/// Free blocks of an order in a zone, of all types.
fn blocks(pages: &PageAllocator, zone: &ZoneInfo, order: u8) -> u64 {
    let order = Order::new(order).expect("it is an order");
    Migratetype::ALL.iter().map(|&kind| pages.free_blocks(zone.id, order, kind)).sum()
}

fn events(runs: &Runs<'_>, truth: &Truth<'_>, figures: &mut Vec<FidelityFigure>) {
    let extfrag = truth.traced.extfrag.iter().sum::<u64>();
    let mut of = figure(
        "external fragmentation events".to_owned(),
        extfrag as f64,
        (Some(runs.without.counters().events() as f64), runs.replayed.counters().events() as f64),
        Tolerance::FactorOr(2.0, 5.0),
        "counts of external fragmentation events and of mistyped blocks",
    );
    if extfrag < FEW {
        of.verdict = Verdict::TooFew;
    }
    figures.push(of);
    let difference = |name: &str| {
        let (start, end) = (truth.start.vmstat.get(name)?, truth.end.vmstat.get(name)?);
        Some(end.saturating_sub(start))
    };
    let counters = runs.own.counters();
    let carries = "pages moved, and what they cost: here the policy compacts for itself";
    let mut own = |name: &str, recorded: Option<u64>, replayed: u64, carries: &str| {
        let Some(recorded) = recorded else { return };
        let tolerance = Tolerance::FactorOr(2.0, 5.0);
        let values = (None, replayed as f64);
        figures.push(figure(name.to_owned(), recorded as f64, values, tolerance, carries));
    };
    let moved = difference("pgmigrate_success").unwrap_or(truth.traced.moved);
    own("pages moved by compaction", Some(moved), counters.moved, carries);
    let stalls = difference("compact_stall");
    own("runs of direct compaction", stalls, counters.compact_stalls, carries);
    let carries = "reclaimed pages: here the policy reclaims for itself";
    let kswapd = difference("pgsteal_kswapd");
    own("pages reclaimed by kswapd", kswapd, counters.reclaimed_kswapd, carries);
    let entries = Some(truth.traced.direct_reclaims);
    own("direct reclaims", entries, counters.direct_reclaims, carries);
}

fn pageblock_types(
    zone: &ZoneName,
    end: &Snapshot<'_>,
    runs: &Runs<'_>,
    figures: &mut Vec<FidelityFigure>,
) {
    let Some(types) = &end.types else { return };
    for kind in Migratetype::MOBILITY {
        let Some(recorded) = types.pageblocks_of(zone, kind) else { continue };
        OfZone {
            name: format!("{kind} pageblocks, {}", label(zone)),
            zone,
            recorded,
            tolerance: Tolerance::FactorOr(1.1, 3.0),
            carries: "how pageblocks are divided among types, and mistyped blocks",
        }
        .push(runs, figures, |pages, zone| {
            let of = pages.pageblocks().filter(|block| block.zone == zone.id);
            of.filter(|block| block.migratetype == kind).count() as u64
        });
    }
}

fn blocks_by_order(
    zone: &ZoneName,
    end: &Snapshot<'_>,
    runs: &Runs<'_>,
    figures: &mut Vec<FidelityFigure>,
) {
    let Some(buddy) = end.blocks(zone) else { return };
    for order in Order::all() {
        OfZone {
            name: format!("free blocks of order {}, {}", order.get(), label(zone)),
            zone,
            recorded: listed(buddy, order.get()),
            tolerance: Tolerance::FactorOr(1.5, 10.0),
            carries: "where exactly blocks lie; rates and sums do not need it",
        }
        .push(runs, figures, |pages, zone| blocks(pages, zone, order.get()));
    }
}

fn label(zone: &ZoneName) -> String {
    match zone.node {
        0 => zone.name.clone(),
        node => format!("{} of node {node}", zone.name),
    }
}

fn figure(
    name: String,
    recorded: f64,
    (without_migrations, replayed): (Option<f64>, f64),
    tolerance: Tolerance,
    carries: &str,
) -> FidelityFigure {
    let verdict = if within(recorded, replayed, tolerance) { Verdict::Holds } else { Verdict::Off };
    let carries = carries.to_owned();
    FidelityFigure { name, recorded, without_migrations, replayed, tolerance, verdict, carries }
}

fn within(recorded: f64, replayed: f64, tolerance: Tolerance) -> bool {
    let off = (replayed - recorded).abs();
    match tolerance {
        Tolerance::Percent(percent) => off <= recorded.abs() * percent / 100.0,
        Tolerance::FactorOr(factor, or) => {
            off <= or || (recorded / factor..=recorded * factor).contains(&replayed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_is_a_share_or_a_factor_or_a_number() {
        let percent = Tolerance::Percent(2.0);
        assert!(within(1000.0, 1020.0, percent) && !within(1000.0, 979.0, percent));
        let factor = Tolerance::FactorOr(2.0, 5.0);
        assert!(within(100.0, 50.0, factor) && !within(100.0, 49.0, factor));
        assert!(within(1.0, 6.0, factor) && !within(1.0, 7.0, factor));
        assert!(within(0.0, 0.0, percent) && !within(0.0, 1.0, percent));
    }
}
