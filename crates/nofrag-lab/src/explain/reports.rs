//! From reports of the kernel log to cases.

use nofrag::page::{Migratetype, PageRequest, ZoneKind};
use nofrag::units::Order;
use nofrag_host::failure::{AskedPages, Event, GroupLimit, LogReport, Mode};
use nofrag_host::finding::bytes_text;

use super::advice::{advice, advise};
use super::answer::{Advice, Case, Cause};
use super::scene::{Scene, SceneRequest};
use super::{cause, policies};

/// Returns a case for each report; reports of the same request by the same process for the same cause share one.
pub(super) fn cases(reports: &[LogReport]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for report in reports {
        let case = case(report);
        let same = |other: &&mut Case| other.title == case.title && other.cause == case.cause;
        match cases.iter_mut().find(same) {
            Some(other) => {
                other.times += 1;
                other.lines.extend(case.lines);
            }
            None => cases.push(case),
        }
    }
    cases
}

fn case(report: &LogReport) -> Case {
    let scene = Scene::of_report(report);
    let mut case = match &report.event {
        Event::PageFailure(asked) => pages(report, &scene, asked, "failed"),
        Event::PageStall { millis, asked } => {
            let mut case = pages(report, &scene, asked, "waits");
            case.would.insert(
                0,
                format!("The caller had waited for {} s so far.", *millis as f64 / 1000.0),
            );
            case
        }
        Event::OutOfMemory { group: Some(group), .. } => group_limit(report, *group),
        Event::OutOfMemory { asked, .. } => pages(report, &scene, asked, "called the killer"),
        Event::VmapFailure { bytes, .. } => addresses(report, &scene, Some(*bytes), None),
        Event::VmallocFailure { bytes, what, mode } => {
            vmalloc(report, &scene, *bytes, what, mode.as_ref())
        }
        // `Event::State`, and events that a later version may read besides.
        _ => state(&scene),
    };
    case.lines = vec![report.line];
    case
}

/// Builds a case with only its title and cause.
fn bare(title: String, cause: Cause, summary: String) -> Case {
    Case { title, times: 1, cause, summary, ..Case::default() }
}

fn who(report: &LogReport) -> String {
    let process = report.process.as_deref().unwrap_or("an unnamed process");
    match report.caller() {
        Some(caller) => format!("{process}, in {caller}"),
        None => process.to_owned(),
    }
}

/// Returns the request of a report in the core's terms.
pub(super) fn request(order: u32, mode: &Mode) -> SceneRequest {
    let plain = PageRequest::new(Order::ZERO, Migratetype::Unmovable);
    let request = PageRequest {
        migratetype: mode.flags.migratetype(),
        flags: mode.flags.request_flags(),
        zone: mode.flags.zone(),
        ..plain
    };
    SceneRequest::new(order, request)
}

/// Explains a request for pages that failed, waits, or called the killer.
fn pages(report: &LogReport, scene: &Scene, asked: &AskedPages, what: &str) -> Case {
    let Some(mode) = &asked.mode else {
        let title = format!("order {}, for {}: {what}", asked.order, who(report));
        let mut case = bare(
            title,
            Cause::Unknown,
            "the line is cut before it says what the request allows".to_owned(),
        );
        case.missing.push("The flags of the request: copy the whole line.".to_owned());
        return case;
    };
    let request = request(asked.order, mode);
    let mut case = explain(scene, &request, mode.to_string());
    let bytes = case.asked.as_ref().map_or(0, |asked| asked.bytes);
    case.title = format!(
        "order {} ({}), {mode}, for {}: {what}",
        asked.order,
        bytes_text(bytes),
        who(report)
    );
    case.missing = missing(report);
    case
}

/// Explains a request by a scene. The caller sets the title.
pub(super) fn explain(scene: &Scene, request: &SceneRequest, mode: String) -> Case {
    let cause = cause::cause(scene, request);
    Case {
        asked: Some(cause::asked(scene, request, mode)),
        zones: cause::zones(scene, request),
        would: cause::would(scene, request, cause),
        policies: policies::by_rules(request, cause),
        advice: advise(scene, request, cause),
        ..bare(String::new(), cause, cause::summary(scene, request, cause))
    }
}

/// Names the parts that the text of a report lacks.
fn missing(report: &LogReport) -> Vec<String> {
    let mut missing = Vec::new();
    let zones = &report.memory.zones;
    if zones.is_empty() {
        missing.push("The Mem-Info block: which zones had what free. Look for it behind this report, or copy more \
         of the log; without it nothing can be said of the cause.".to_owned());
    } else if zones.iter().any(|zone| zone.blocks.is_empty()) {
        missing.push(
            "The list of free blocks of each zone (`Node 0 Normal: 12*4kB ..`), which ends the \
         block."
                .to_owned(),
        );
    } else if zones.iter().any(|zone| zone.lowmem_reserve.is_empty()) {
        missing.push(
            "The lines `lowmem_reserve[]`: lower zones may have kept more than is said here."
                .to_owned(),
        );
    }
    missing
}

fn group_limit(report: &LogReport, group: GroupLimit) -> Case {
    let size = |kib: Option<u64>| {
        kib.map_or("an unknown size".to_owned(), |kib| bytes_text(kib.saturating_mul(1024)))
    };
    let summary = format!(
        "the control group of {} had reached its limit: {} of {} in use; the host's memory and its fragmentation \
         have nothing to do with it",
        report.process.as_deref().unwrap_or("the process"),
        size(group.usage_kib),
        size(group.limit_kib)
    );
    let mut case = bare(
        format!("out of memory in a control group, {}", who(report)),
        Cause::GroupLimit,
        summary,
    );
    case.would.push("Any request below the limit would have been served.".to_owned());
    case.advice.push(advice(
        "raise memory.max (memory.limit_in_bytes) of the group, or make its processes need less",
        format!("usage {}, limit {}", size(group.usage_kib), size(group.limit_kib)),
        "memory of the host",
    ));
    case
}

/// Explains that vmalloc space had no room.
fn addresses(report: &LogReport, scene: &Scene, bytes: Option<u64>, what: Option<&str>) -> Case {
    let size = bytes.map_or("an unknown size".to_owned(), bytes_text);
    let title = match what {
        Some(what) => format!("vmalloc of {size}, for {}: {what}", who(report)),
        None => format!("vmap area of {size}: no addresses"),
    };
    let free: u64 = scene.zones.iter().map(|zone| zone.state.free.pages).sum();
    let memory = match free {
        0 => "memory need not be short for that".to_owned(),
        free => format!("memory was not short: {} were free", bytes_text(scene.bytes(free))),
    };
    let within = match &report.event {
        Event::VmapFailure { within: Some(within), .. } => format!(
            " of {} between {:#x} and {:#x}",
            bytes_text(within.end.saturating_sub(within.start)),
            within.start,
            within.end
        ),
        _ => String::new(),
    };
    let summary =
        format!("no hole of {size} was left in the kernel's vmalloc space{within}; {memory}");
    let mut case = bare(title, Cause::AddressSpace, summary);
    case.would.push(format!(
        "A smaller area may have fitted; the report does not say how large the largest hole \
     was. An area takes a guard page besides, so that {size} need a hole of that size."
    ));
    case.advice = for_addresses(scene);
    case
}

/// Returns the advice for a full vmalloc space; advice for another word size than the report's is left out.
fn for_addresses(scene: &Scene) -> Vec<Advice> {
    let has = |kind| scene.zones.iter().any(|zone| zone.state.kind == kind);
    let mut list = vec![advice(
        "look who holds the space: sudo nofrag host vmalloc --unhash",
        "it shows callers, holes, and what is freed but not yet purged, which a purge gives back",
        "none",
    )];
    if !has(ZoneKind::Dma32) {
        list.push(advice(
            "on a 32-bit kernel: vmalloc=SIZE at boot, or a 64-bit kernel",
            "32-bit kernels have a fixed range of a few hundred MiB for it",
            "as much less memory that the kernel maps directly (lowmem)",
        ));
    }
    if !has(ZoneKind::HighMem) {
        list.push(advice(
            "on a 64-bit kernel: look for a caller that maps without end, or a range that is restricted (modules, \
             BPF)",
            "the whole range is of terabytes there",
            "none",
        ));
    }
    list
}

/// Explains that `vmalloc` failed: for want of addresses, or of the pages behind them.
fn vmalloc(
    report: &LogReport,
    scene: &Scene,
    bytes: Option<u64>,
    what: &str,
    mode: Option<&Mode>,
) -> Case {
    if what.contains("vm_struct") {
        return addresses(report, scene, bytes, Some(what));
    }
    let Some(mode) = mode else {
        return addresses(report, scene, bytes, Some(what));
    };
    let order = what.split_once("page order ").map_or(0, |(_, rest)| {
        rest.split(|c: char| !c.is_ascii_digit())
            .next()
            .and_then(|order| order.parse().ok())
            .unwrap_or(0)
    });
    let mut case = explain(scene, &request(order, mode), mode.to_string());
    let size = bytes.map_or("an unknown size".to_owned(), bytes_text);
    case.title = format!(
        "vmalloc of {size} in blocks of order {order}, {mode}, for {}: {what}",
        who(report)
    );
    case.missing = missing(report);
    case
}

/// Explains a state that was printed on request: tells whether a huge page could be had.
fn state(scene: &Scene) -> Case {
    let order = scene.huge_order();
    let request = SceneRequest::new(order, PageRequest::user(Order::PAGEBLOCK));
    let mut case = explain(scene, &request, "GFP_HIGHUSER_MOVABLE".to_owned());
    case.title = format!("state of memory: what a huge page (order {order}) would find");
    if case.cause == Cause::Recovered {
        case.cause = Cause::Nothing;
        case.summary = "nothing failed, and a huge page would be served".to_owned();
        case.policies.clear();
        case.advice.clear();
    }
    case
}
