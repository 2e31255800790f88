//! All metrics, from one look at a host.

use std::time::Duration;

use strum::VariantArray as _;

use super::{Family, MetricKind, Sample, Unit};
use crate::finding::Severity;
use crate::machine::requests::{RequestKind, largest_order};
use crate::machine::verdict::State;
use crate::process::ranking::NEAR;
use crate::record::Tally;
use crate::snapshot::{Counters, Snapshot, ZoneName};
use crate::trace::type_name;
use crate::watch::{History, Look, Source};

/// Limits on samples: a metric with a label for each process could have very many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Number of processes with samples of their own: those with most areas.
    pub processes: usize,
}

/// Least history behind a forecast: the growth of the page cache after a start is not a trend.
const LEAST_PAST: Duration = Duration::from_secs(3600);

/// Returns one look as metrics. Forecasts rest on the `history` of blocks; `tally` counts events where tracing is on.
/// Every metric is in the list; a metric without a known value has no sample.
#[must_use]
pub fn families(
    look: &Look,
    history: &History,
    tally: Option<&Tally>,
    detail: Detail,
) -> Vec<Family> {
    let snapshot = look.snapshot();
    [
        about(&snapshot),
        verdict(look),
        blocks(&snapshot),
        forecast(&snapshot, history),
        zones(&snapshot),
        requests(&snapshot),
        free_memory(&snapshot),
        counters(&snapshot.vmstat),
        types(&snapshot),
        vmalloc(look),
        maps(look, detail),
        events(tally),
        sources(look),
    ]
    .concat()
}

impl Family {
    /// Makes a metric without samples, whose name ends with its unit.
    fn new(name: &'static str, kind: MetricKind, help: &'static str) -> Family {
        let is_named = |unit: &&Unit| name.ends_with(unit.into_str());
        let unit = Unit::VARIANTS.iter().find(is_named).copied();
        Family { name, kind, unit, help, samples: Vec::new() }
    }

    fn add(&mut self, labels: &[(&'static str, &str)], value: f64) {
        let labels = labels.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        self.samples.push(Sample { labels, value });
    }

    /// Adds the only sample of a metric without labels, if there is a value.
    fn only(mut self, value: Option<u64>) -> Family {
        if let Some(value) = value {
            self.add(&[], value as f64);
        }
        self
    }
}

fn gauge(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Gauge, help)
}

fn counter(name: &'static str, help: &'static str) -> Family {
    Family::new(name, MetricKind::Counter, help)
}

fn about(snapshot: &Snapshot<'_>) -> Vec<Family> {
    let mut build = gauge("nofrag_build_info", "Which nofrag and which kernel; always 1.");
    let release = snapshot.release.as_deref().unwrap_or("");
    build.add(&[("version", env!("CARGO_PKG_VERSION")), ("kernel", release)], 1.0);
    vec![build]
}

fn verdict(look: &Look) -> Vec<Family> {
    let mut state = gauge(
        "nofrag_verdict",
        "1 for the state of memory, 0 for the others. scattered: most of what is free comes in pieces; whether \
         compaction mends it `sudo nofrag host` says, which reads the use of each frame; in-use: too little is free \
         to say; whole: good; fragmented: not without the frames. A state is left only when the figures have clearly \
         changed.",
    );
    let mut severity = gauge(
        "nofrag_verdict_severity",
        "How urgent the verdict is: 0 good, 1 know it, 2 act. Above 0 also while requests wait for compaction or \
         reclaim, or get small pages instead of huge ones: nofrag_verdict_waits says how many did in the last minute.",
    );
    let mut waits = gauge(
        "nofrag_verdict_waits",
        "Requests that were held up in the last minute, by the counter of vmstat; no sample for a counter that did \
         not grow. Each is latency of who asked.",
    );
    if let Some(verdict) = &look.verdict {
        for &each in State::VARIANTS {
            state.add(&[("state", each.into_str())], f64::from(u8::from(each == verdict.state)));
        }
        let urgency = match verdict.severity() {
            None => 0.0,
            Some(Severity::Note) => 1.0,
            Some(Severity::Warning) => 2.0,
        };
        severity.add(&[], urgency);
        for wait in &verdict.waits {
            waits.add(&[("counter", wait.counter.trim_end_matches("_*"))], wait.count as f64);
        }
    }
    vec![state, severity, waits]
}

fn blocks(snapshot: &Snapshot<'_>) -> Vec<Family> {
    let mut free = gauge(
        "nofrag_free_blocks",
        "Free blocks of exactly this order on the lists of buddyinfo. What a request finds is \
         nofrag_obtainable_blocks; look there first.",
    );
    let mut obtainable = gauge(
        "nofrag_obtainable_blocks",
        "Blocks of this order that a process could have now, one after the other: what the free lists could be cut \
         into, less what watermarks, boost and lowmem_reserve keep. None left at an order that is asked for: such \
         requests compact or reclaim first, or fail; `nofrag explain` says which, and what helps.",
    );
    let mut unusable = gauge(
        "nofrag_unusable_ratio",
        "Share of the free memory that a request of this order cannot use. Near 1 at order 9: huge pages need \
         compaction; see nofrag_fragmentation_index for whether that helps.",
    );
    let mut index = gauge(
        "nofrag_fragmentation_index",
        "Why a request of this order would fail: towards 0 memory is short, so free or reclaim some; towards 1 it is \
         in pieces, so compact. No sample where a block is there.",
    );
    let mut largest = gauge(
        "nofrag_largest_free_order",
        "The largest order with a free block; no sample where nothing is free. Below 9 no huge page is free in the \
         zone.",
    );
    for zone in &snapshot.buddy {
        let node = zone.zone.node.to_string();
        let name = [("node", node.as_str()), ("zone", &zone.zone.name)];
        if let Some(order) = zone.largest() {
            largest.add(&name, f64::from(order));
        }
        let had = snapshot.obtainable(&zone.zone);
        for (order, (&blocks, had)) in (0..).zip(zone.blocks.iter().zip(had)) {
            let text = order.to_string();
            let labels = [name[0], name[1], ("order", &text)];
            let indices = zone.indices(order);
            free.add(&labels, blocks as f64);
            obtainable.add(&labels, had as f64);
            unusable.add(&labels, indices.unusable as f64 / 1000.0);
            if let Some(thousandths) = indices.fragmentation {
                index.add(&labels, thousandths as f64 / 1000.0);
            }
        }
    }
    vec![free, obtainable, unusable, index, largest]
}

fn forecast(snapshot: &Snapshot<'_>, history: &History) -> Vec<Family> {
    let mut left = gauge(
        "nofrag_huge_pages_forecast_seconds",
        "How long until no huge page can be had (no block of a pageblock's order, usually 9) if it goes on as in the \
         last five hours; no sample while they do not become fewer, nor in the first hour. Less than a day: reserve \
         what is needed now (vm.nr_hugepages), and find what takes the blocks with `nofrag record` and `nofrag \
         explain`.",
    );
    let forecast = history.forecast(snapshot.pageblock_order(), LEAST_PAST);
    if let Some(seconds) = forecast.and_then(|forecast| forecast.seconds_to_none) {
        left.add(&[], seconds.round());
    }
    vec![left]
}

fn zones(snapshot: &Snapshot<'_>) -> Vec<Family> {
    let mut free = gauge(
        "nofrag_zone_free_bytes",
        "Free memory of the zone. Below its watermark `low` kswapd runs; below `min` callers reclaim themselves.",
    );
    let mut managed = gauge(
        "nofrag_zone_managed_bytes",
        "Memory that the allocator hands out from the zone, to set the others beside.",
    );
    let mut mark = gauge(
        "nofrag_zone_watermark_bytes",
        "The zone's watermarks without the boost. Raise them with vm.min_free_kbytes or vm.watermark_scale_factor.",
    );
    let mut boost = gauge(
        "nofrag_zone_watermark_boost_bytes",
        "By how much the watermarks are raised after types were mixed. It falls as kswapd reclaims; if it stays, \
         mixing goes on, and reclaim with it: look at nofrag_extfrag_events_total, then at vm.watermark_boost_factor.",
    );
    let page = snapshot.page_bytes();
    let size = |pages: u64| pages.saturating_mul(page) as f64;
    for zone in snapshot.populated() {
        let node = zone.zone.node.to_string();
        let name = [("node", node.as_str()), ("zone", &zone.zone.name)];
        free.add(&name, size(zone.free));
        managed.add(&name, size(zone.managed));
        let marks = zone.marks();
        for (which, pages) in [("min", marks.min), ("low", marks.low), ("high", marks.high)] {
            mark.add(&[name[0], name[1], ("mark", which)], size(pages));
        }
        if let Some(pages) = zone.boost {
            boost.add(&name, size(pages));
        }
    }
    vec![free, managed, mark, boost]
}

/// Metrics of the watermark test in each zone, which refuses requests although blocks for them are free.
fn requests(snapshot: &Snapshot<'_>) -> Vec<Family> {
    let mut largest = gauge(
        "nofrag_largest_order",
        "The largest order that the zone serves to such a request now, by the kernel's watermark test; no sample \
         where not even a page is. Smaller than nofrag_largest_free_order: the blocks are kept for others, or below \
         the watermark; free some memory, or lower vm.min_free_kbytes.",
    );
    for zone in snapshot.populated() {
        let node = zone.zone.node.to_string();
        for &kind in RequestKind::VARIANTS {
            let Some(order) = largest_order(snapshot, zone, kind) else { continue };
            let labels = [("node", &*node), ("zone", &*zone.zone.name), ("gfp", kind.gfp())];
            largest.add(&labels, f64::from(order));
        }
    }
    vec![largest]
}

/// Metrics of free memory: the lists may hold less than `MemFree`.
/// Source: docs/sources/trace.md#t1.
fn free_memory(snapshot: &Snapshot<'_>) -> Vec<Family> {
    let said = gauge(
        "nofrag_memory_free_bytes",
        "MemFree of meminfo, to set nofrag_memory_listed_bytes beside.",
    );
    let listed = gauge(
        "nofrag_memory_listed_bytes",
        "Sum of the free blocks in buddyinfo. Far from nofrag_memory_free_bytes: not all free memory is on the lists, \
         and what is said of blocks is not all of it.",
    );
    let gap = snapshot.free_gap();
    let sum = gap.map(|gap| gap.listed.saturating_mul(snapshot.page_bytes()));
    vec![said.only(snapshot.free_bytes), listed.only(sum)]
}

/// A metric of counters in `vmstat`: its name without `_total`, its help, and for each sample the label, the label's
/// value and the name in `vmstat`.
type Counted = (&'static str, &'static str, &'static [(&'static str, &'static str, &'static str)]);

const COUNTED: [Counted; 9] = [
    (
        "nofrag_compaction_stalls",
        "Callers that had to compact memory themselves. They waited: keep blocks ready with \
         vm.compaction_proactiveness, or ask earlier.",
        &[("", "", "compact_stall")],
    ),
    (
        "nofrag_compactions",
        "Direct compactions by outcome. Mostly `failure`: unmovable pages stand in the way; `nofrag host pages` shows \
         where.",
        &[("outcome", "success", "compact_success"), ("outcome", "failure", "compact_fail")],
    ),
    (
        "nofrag_kcompactd_wakes",
        "Wakes of kcompactd. It works ahead, so that callers need not wait.",
        &[("", "", "compact_daemon_wake")],
    ),
    (
        "nofrag_reclaim_stalls",
        "Callers that had to reclaim memory themselves. They waited: raise vm.watermark_scale_factor so that kswapd \
         begins earlier.",
        &[("", "", "allocstall")],
    ),
    (
        "nofrag_kswapd_runs",
        "Runs of kswapd. Without pause while memory is free: watermarks may be boosted, see \
         nofrag_zone_watermark_boost_bytes.",
        &[("", "", "pageoutrun")],
    ),
    (
        "nofrag_huge_page_faults",
        "Faults that wanted a huge page by outcome. `fallback`: they got single pages; compaction would have helped if \
         nofrag_fragmentation_index at order 9 is high.",
        &[("outcome", "huge", "thp_fault_alloc"), ("outcome", "fallback", "thp_fault_fallback")],
    ),
    (
        "nofrag_huge_page_collapses",
        "Huge pages that khugepaged made of single ones by outcome. `failure`: no block was to be had for them.",
        &[
            ("outcome", "success", "thp_collapse_alloc"),
            ("outcome", "failure", "thp_collapse_alloc_failed"),
        ],
    ),
    (
        "nofrag_migrated_pages",
        "Pages that were moved by outcome. `failure`: they were pinned or busy, and kept their block from becoming \
         free.",
        &[("outcome", "success", "pgmigrate_success"), ("outcome", "failure", "pgmigrate_fail")],
    ),
    (
        "nofrag_allocated_pages",
        "Pages handed out, to set the other counters beside.",
        &[("", "", "pgalloc")],
    ),
];

fn counters(vmstat: &Counters) -> Vec<Family> {
    let of = |&(name, help, parts): &Counted| {
        let mut family = counter(name, help);
        for &(label, value, counted) in parts {
            let Some(total) = vmstat.total(counted) else { continue };
            let labels = [(label, value)];
            family.add(if label.is_empty() { &[] } else { &labels }, total as f64);
        }
        family
    };
    COUNTED.iter().map(of).collect()
}

fn types(snapshot: &Snapshot<'_>) -> Vec<Family> {
    let mut pageblocks = gauge(
        "nofrag_pageblocks",
        "Pageblocks by type. Unmovable ones that only become more: the kernel's own pages spread, and huge pages \
         become fewer for good; find who asks with `nofrag record` and `nofrag explain`.",
    );
    let mut free = gauge(
        "nofrag_typed_free_blocks",
        "Free blocks by order and type, at least so many: the kernel stops counting at 100000. None of a type at an \
         order: the next such request takes from another type and mixes.",
    );
    let Some(types) = &snapshot.types else { return vec![pageblocks, free] };
    let labels = |zone: &ZoneName, number: usize| {
        let name = types.names.get(number).map_or("other", String::as_str);
        (zone.node.to_string(), zone.name.clone(), name.to_ascii_lowercase())
    };
    for row in &types.pageblocks {
        for (number, &blocks) in row.pageblocks.iter().enumerate() {
            let (node, zone, name) = labels(&row.zone, number);
            pageblocks
                .add(&[("node", &node), ("zone", &zone), ("migratetype", &name)], blocks as f64);
        }
    }
    for row in &types.free {
        let (node, zone, name) = labels(&row.zone, row.number);
        for (order, count) in row.blocks.iter().enumerate() {
            let order = order.to_string();
            let of =
                [("node", &*node), ("zone", &*zone), ("order", &*order), ("migratetype", &*name)];
            free.add(&of, count.least() as f64);
        }
    }
    vec![pageblocks, free]
}

fn vmalloc(look: &Look) -> Vec<Family> {
    let mut size = gauge(
        "nofrag_vmalloc_bytes",
        "Vmalloc address space by state. Only `used` is in use; `lazy` is freed and waits for a purge, and whoever \
         adds it overstates what is used.",
    );
    let mut areas = gauge(
        "nofrag_vmalloc_areas",
        "Vmalloc areas by state. `used` ones that only become more: `nofrag host vmalloc` names the callers.",
    );
    let limit = gauge(
        "nofrag_vmalloc_lazy_limit_bytes",
        "Above so many lazily freed bytes the kernel purges. If they stay above it, areas are freed faster than that: \
         look for drain_vmap_area_work in the kernel log.",
    );
    let mut largest = gauge(
        "nofrag_vmalloc_largest_request_bytes",
        "The largest request that the space could serve, now and after a full purge; only where addresses are \
         readable. Larger ones fail with `vmap allocation for size N failed`.",
    );
    let Some(report) = &look.vmalloc else { return vec![size, areas, limit, largest] };
    let (used, lazy) = ([("state", "used")], [("state", "lazy")]);
    size.add(&used, report.totals.live_bytes as f64);
    size.add(&lazy, report.lazy.bytes as f64);
    areas.add(&used, report.totals.live_areas as f64);
    areas.add(&lazy, report.lazy.areas as f64);
    for region in &report.regions {
        for (when, room) in [("now", &region.now), ("after_purge", &region.after_purge)] {
            let labels = [("region", region.name.into_str()), ("when", when)];
            largest.add(&labels, room.largest_request_bytes as f64);
        }
    }
    vec![size, areas, limit.only(report.lazy.limit_bytes), largest]
}

fn maps(look: &Look, detail: Detail) -> Vec<Family> {
    let limit = gauge(
        "nofrag_process_maps_limit",
        "vm.max_map_count: a process with so many areas cannot map, and munmap fails, too. Raise it with sysctl.",
    );
    let most = gauge(
        "nofrag_process_maps_most",
        "Areas of the process that has most of those that could be read. Near nofrag_process_maps_limit: raise \
         vm.max_map_count, and see `nofrag host maps --all` for who it is and why.",
    );
    let mut near = gauge(
        "nofrag_process_maps_near_limit",
        "Processes with more than 80 % of nofrag_process_maps_limit. Not 0: raise vm.max_map_count before they fail.",
    );
    let mut each = gauge(
        "nofrag_process_maps",
        "Areas of the processes that have most. One that only grows leaks mappings: `nofrag host maps PID --every 10` \
         says how fast, and what keeps areas from merging.",
    );
    let Some(ranking) = &look.maps else { return vec![limit, most, near, each] };
    let shares = ranking.processes.iter().filter_map(|process| process.share);
    if ranking.limit.is_some() {
        near.add(&[], shares.filter(|&share| share >= NEAR).count() as f64);
    }
    for process in ranking.processes.iter().take(detail.processes) {
        let pid = process.pid.to_string();
        let name = process.name.as_deref().unwrap_or("");
        each.add(&[("pid", &pid), ("name", name)], process.areas as f64);
    }
    let largest = ranking.processes.first().map(|process| process.areas);
    vec![limit.only(ranking.limit), most.only(largest), near, each]
}

fn events(tally: Option<&Tally>) -> Vec<Family> {
    let mut all = counter(
        "nofrag_extfrag_events",
        "Requests that were served from a pageblock of another type: such blocks mix, and huge pages become fewer. \
         Many with wanted=\"unmovable\": raise vm.min_free_kbytes, or see `nofrag replay` for what a policy would do.",
    );
    let mut serious = counter(
        "nofrag_serious_extfrag_events",
        "Of nofrag_extfrag_events_total those that took a block below order 4: no larger one was left. These are the \
         ones that fragment for good.",
    );
    let mut each = counter(
        "nofrag_trace_events",
        "Events of the kernel by tracepoint since nofrag started. They tell what the host does when \
         nofrag_obtainable_blocks falls.",
    );
    let lost = counter(
        "nofrag_trace_lost_events",
        "Events that the kernel could not keep. Not 0: the counts above are too low; give larger buffers with \
         --buffer-kib.",
    );
    let Some(tally) = tally else { return vec![all, serious, each, lost] };
    for count in tally.extfrag() {
        let types = [("wanted", type_name(count.wanted)), ("taken", type_name(count.taken))];
        all.add(&types, count.events as f64);
        serious.add(&types, count.serious as f64);
    }
    for kind in tally.kinds() {
        each.add(&[("group", kind.group), ("event", kind.name)], kind.events as f64);
    }
    vec![all, serious, each, lost.only(Some(tally.lost()))]
}

fn sources(look: &Look) -> Vec<Family> {
    let mut missing = gauge(
        "nofrag_source_missing",
        "Whether something of this source could not be read. 1: its metrics are incomplete or missing; `nofrag export \
         --once` says why. Most need root.",
    );
    let mut cost = gauge(
        "nofrag_source_read_cpu_seconds",
        "CPU time that the last reading of this source took. What costs much is read less often, see \
         nofrag_source_age_seconds.",
    );
    let mut age = gauge(
        "nofrag_source_age_seconds",
        "How much older than the memory's the last reading of this source is. Old readings are no fault: a dear \
         source is read seldom.",
    );
    for reading in &look.readings {
        let name = [("source", reading.source.into_str())];
        missing.add(&name, if reading.missing.is_empty() { 0.0 } else { 1.0 });
        cost.add(&name, reading.cpu_seconds);
        if reading.source != Source::Memory {
            age.add(&name, look.at.saturating_sub(reading.at).as_secs_f64());
        }
    }
    let mut own = counter(
        "nofrag_cpu_seconds",
        "CPU time that nofrag itself has taken. More than a hundredth of a core: scrape less often.",
    );
    own.add(&[], look.own_cpu.as_secs_f64());
    vec![missing, cost, age, own]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Files;

    /// Returns the forecast for a host that loses a huge page every minute, watched for `minutes`.
    fn forecast_after(minutes: u64) -> Vec<Sample> {
        let mut history = History::new(1000);
        let mut look = Look::default();
        for minute in 0..minutes {
            let line = format!("Node 0, zone Normal 0 0 0 0 0 0 0 0 0 {} 0\n", 500 - minute);
            let mut files = Files::default();
            files.insert("buddyinfo", line.into_bytes());
            look = Look { at: Duration::from_secs(60 * minute), files, ..Look::default() };
            history.push(look.at, Duration::ZERO, &look.snapshot());
        }
        let families = families(&look, &history, None, Detail::default());
        let name = "nofrag_huge_pages_forecast_seconds";
        families.into_iter().find(|family| family.name == name).unwrap().samples
    }

    #[test]
    fn huge_pages_that_become_fewer_have_an_end() {
        assert_eq!(forecast_after(0), []);
        assert_eq!(forecast_after(60), [], "59 minutes are no trend");
        let samples = forecast_after(101);
        assert_eq!(samples, [Sample { labels: vec![], value: 400.0 * 60.0 }]);
    }
}
