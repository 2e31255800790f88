//! The report of `nofrag host --all` as text for people.

use nofrag_host::finding::bytes_text;
use nofrag_host::machine::huge::{Basis, HugePages};
use nofrag_host::machine::requests::Request;
use nofrag_host::machine::zones::Zone;
use nofrag_host::machine::{Machine, Vmalloc};
use nofrag_host::process::finding::duration_text;
use nofrag_show::Look;

use crate::host::text::{self, Numbers, hanging, percent, plural, sentence, wrapped};

/// The whole page.
pub(crate) fn page(machine: &Machine, look: Look) -> String {
    let mut sections = vec![heading(machine, look), text::findings(&machine.findings, look)];
    if !machine.zones.is_empty() {
        sections.push(marks(machine));
        sections.push(orders(machine, look));
        sections.push(requests(machine, look));
    }
    sections.extend(machine.huge_pages.as_ref().map(|huge| huge_pages(huge, look)));
    let processes = machine.maps.nearest.len();
    sections.push(vmalloc(&machine.vmalloc, look) + &maps(machine, processes, look));
    sections.extend(counters(machine, look));
    sections.extend(text::missing(&machine.missing, look));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

pub(super) fn heading(machine: &Machine, look: Look) -> String {
    let host = &machine.host;
    let mut parts = Vec::new();
    parts.push(format!(
        "Linux {}{}",
        host.release.as_deref().unwrap_or("(unknown)"),
        host.arch.as_deref().map_or(String::new(), |arch| format!(" {arch}"))
    ));
    parts.extend(host.cpus_online.map(|cpus| plural(cpus.into(), "CPU", "CPUs")));
    parts.extend(host.uptime_seconds.map(|seconds| format!("up {}", duration_text(seconds))));
    let memory = [
        (host.memory_bytes, "of memory"),
        (host.free_bytes, "free"),
        (host.available_bytes, "available"),
    ];
    parts.extend(
        memory.iter().filter_map(|(bytes, what)| Some(format!("{} {what}", bytes_text((*bytes)?)))),
    );
    wrapped("", &parts.join(", "), look)
}

fn marks(machine: &Machine) -> String {
    let size = |pages: u64| bytes_text(pages.saturating_mul(machine.host.page_bytes));
    let mut table = Numbers::new(&[
        "zone",
        "managed",
        "free",
        "on CPUs",
        "min",
        "low",
        "high",
        "boost",
        "largest block",
    ]);
    let known = |pages: Option<u64>| pages.map_or("-".to_owned(), size);
    for zone in &machine.zones {
        table.row(vec![
            zone.label.clone(),
            known(zone.managed_pages),
            size(zone.free_pages),
            known(zone.per_cpu_pages),
            known(zone.marks.map(|marks| marks.min)),
            known(zone.marks.map(|marks| marks.low)),
            known(zone.marks.map(|marks| marks.high)),
            boost(machine, zone),
            largest(machine, zone),
        ]);
    }
    table.text()
}

/// By how much the watermarks are raised; a dash where it is not known.
pub(super) fn boost(machine: &Machine, zone: &Zone) -> String {
    match zone.marks.and_then(|marks| marks.boost) {
        None => "-".to_owned(),
        Some(0) => "0".to_owned(),
        Some(pages) => bytes_text(pages.saturating_mul(machine.host.page_bytes)),
    }
}

/// The largest free block; a dash where the blocks are not known.
pub(super) fn largest(machine: &Machine, zone: &Zone) -> String {
    match zone.largest_order {
        _ if zone.orders.is_empty() => "-".to_owned(),
        None => "none".to_owned(),
        Some(order) => {
            let bytes = machine.host.page_bytes.checked_shl(order).unwrap_or(u64::MAX);
            format!("{order} ({})", bytes_text(bytes))
        }
    }
}

/// Blocks, unusable share and fragmentation index, with a column for each order.
fn orders(machine: &Machine, look: Look) -> String {
    let count = machine.zones.iter().map(|zone| zone.orders.len()).max().unwrap_or(0);
    if count == 0 {
        return String::new();
    }
    let mut header = vec!["order".to_owned()];
    header.extend((0..count).map(|order| order.to_string()));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Numbers::new(&header);
    let mut row = |zone: &Zone, what: &str, cell: &dyn Fn(usize) -> String| {
        let mut cells = vec![format!("{} {what}", zone.label)];
        cells.extend(
            (0..count)
                .map(|order| if order < zone.orders.len() { cell(order) } else { String::new() }),
        );
        table.row(cells);
    };
    for zone in &machine.zones {
        row(zone, "free blocks", &|order| zone.orders[order].blocks.to_string());
        row(zone, "unusable", &|order| thousandths(zone.orders[order].unusable as i64));
        // Where every order has a block the index says nothing.
        if zone.orders.iter().any(|row| row.fragmentation.is_some()) {
            row(zone, "index", &|order| {
                zone.orders[order].fragmentation.map_or("-".to_owned(), thousandths)
            });
        }
    }
    let mut legend = String::from(
        "unusable: the share of free memory in blocks too small for the order; index: why a request would fail, \
         towards 0 for want of memory, towards 1 because it is in pieces, - if a block is there",
    );
    if let Some(check) = machine.index_check {
        legend +=
            &format!("; {} of {} indices equal the kernel's own", check.equal, check.compared);
    }
    table.text() + &wrapped("", &sentence(&legend), look)
}

pub(super) fn thousandths(value: i64) -> String {
    format!("{:.2}", value as f64 / 1000.0)
}

fn requests(machine: &Machine, look: Look) -> String {
    /// More columns are no table that a screen shows; the JSON has every zone.
    const MOST_ZONES: usize = 4;
    if machine.requests.is_empty() {
        return String::new();
    }
    let zones = || machine.zones.iter().filter(|_| machine.zones.len() <= MOST_ZONES);
    let mut header = vec!["request now", "up to order", "unmixed"];
    header.extend(zones().map(|zone| zone.label.as_str()));
    let mut table = Numbers::new(&header);
    let order = |order: Option<u32>| order.map_or("none".to_owned(), |order| order.to_string());
    for request in &machine.requests {
        let unmixed = if machine.host.types_known {
            order(request.largest_unmixed_order)
        } else {
            "?".to_owned()
        };
        let mut row = vec![request.gfp.to_owned(), order(request.largest_order), unmixed];
        row.extend(zones().map(|zone| {
            let of_zone = request.zones.iter().find(|each| each.zone == zone.zone);
            of_zone.map_or(String::new(), |each| order(each.largest_order))
        }));
        table.row(row);
    }
    let mut text = table.text();
    for request in &machine.requests {
        text += &failing(request, look);
    }
    text
}

/// The orders of a request that do not succeed at once, those of one reason on one line.
fn failing(request: &Request, look: Look) -> String {
    let failing: Vec<_> =
        request.orders.iter().filter(|answer| !answer.outcome.is_served()).collect();
    let Some(first) = failing.first() else { return String::new() };
    let mut text = hanging("  ", 4, &sentence(&first.why), look);
    if let Some(last) = failing.last().filter(|last| last.order > first.order) {
        text += &hanging("  ", 4, &sentence(&last.why), look);
    }
    text
}

fn huge_pages(huge: &HugePages, look: Look) -> String {
    let qualifier = if huge.basis == Basis::FreePages { " (a weak bound)" } else { "" };
    let text = format!(
        "{} of {} obtainable now, at most {} after compaction{qualifier}, at most {} after page cache is dropped. \
         How: {}.",
        huge.now, huge.total, huge.after_compaction, huge.after_reclaim, huge.how
    );
    let mut text = hanging(&format!("Huge pages of {}: ", bytes_text(huge.bytes)), 2, &text, look);
    let mut more = Vec::new();
    more.extend(
        huge.transparent_bytes
            .map(|bytes| format!("{} of processes in transparent ones", bytes_text(bytes))),
    );
    more.extend(huge.transparent_enabled.as_ref().map(|word| format!("enabled: {word}")));
    more.extend(huge.transparent_defrag.as_ref().map(|word| format!("defrag: {word}")));
    more.extend(huge.pools.iter().filter(|pool| pool.pages > 0).map(|pool| {
        format!(
            "pool of {} x {}, {} free, {} promised",
            pool.pages,
            bytes_text(pool.bytes),
            pool.free,
            pool.reserved
        )
    }));
    if !more.is_empty() {
        text += &hanging("  ", 2, &sentence(&more.join("; ")), look);
    }
    text
}

pub(super) fn vmalloc(vmalloc: &Vmalloc, look: Look) -> String {
    let text = match (vmalloc.totals, vmalloc.lazy) {
        (Some(totals), Some(lazy)) => {
            let limit = lazy.limit_bytes.map_or(String::new(), |limit| {
                format!(
                    " ({} of the {} at which the kernel purges)",
                    percent(lazy.bytes, limit),
                    bytes_text(limit)
                )
            });
            let largest = vmalloc.largest_request_bytes.map_or(String::new(), |bytes| {
                format!("; the largest request that would succeed: {}", bytes_text(bytes))
            });
            format!(
                "{} in {} in use; {} in {} lazily freed{limit}{largest}",
                bytes_text(totals.live_bytes),
                plural(totals.live_areas, "area", "areas"),
                bytes_text(lazy.bytes),
                plural(lazy.areas, "area", "areas"),
            )
        }
        _ => match vmalloc.used_bytes {
            Some(used) => format!(
                "{} of memory behind areas; who holds them, and what is lazily freed, is not known",
                bytes_text(used)
            ),
            None => return String::new(),
        },
    };
    hanging("vmalloc: ", 2, &sentence(&text), look)
}

/// The processes nearest to the limit, at most so many.
pub(super) fn maps(machine: &Machine, most: usize, look: Look) -> String {
    let maps = &machine.maps;
    let nearest = maps.nearest.iter().take(most).map(|process| {
        let name = process.name.as_deref().unwrap_or("process");
        let share = maps
            .limit
            .map_or(String::new(), |limit| format!(", {}", percent(process.areas, limit)));
        format!("{name} {} ({} areas{share})", process.pid, process.areas)
    });
    let nearest: Vec<String> = nearest.collect();
    if nearest.is_empty() {
        return String::new();
    }
    let limit = maps.limit.map_or("unknown".to_owned(), |limit| limit.to_string());
    let lead = format!("Processes nearest to max_map_count ({limit}): ");
    hanging(&lead, 2, &sentence(&nearest.join(", ")), look)
}

/// What was counted, in sentences by subject; what is zero is left out.
fn counters(machine: &Machine, look: Look) -> Option<String> {
    const SUBJECTS: [(&str, &[&str]); 4] = [
        (
            "Compaction",
            &[
                "compact_stall",
                "compact_success",
                "compact_fail",
                "compact_daemon_wake",
                "pgmigrate_success",
                "pgmigrate_fail",
            ],
        ),
        (
            "Reclaim",
            &[
                "allocstall_*",
                "pgsteal_direct",
                "pgsteal_kswapd",
                "kswapd_low_wmark_hit_quickly",
                "oom_kill",
            ],
        ),
        (
            "Huge pages",
            &[
                "thp_fault_alloc",
                "thp_fault_fallback",
                "thp_collapse_alloc",
                "thp_collapse_alloc_failed",
            ],
        ),
        ("Pools", &["htlb_buddy_alloc_fail"]),
    ];
    let lines = SUBJECTS.iter().filter_map(|(subject, names)| {
        let of = names
            .iter()
            .filter_map(|name| machine.counters.iter().find(|counter| counter.name == *name));
        let counted = of.filter(|counter| counter.value > 0).map(|counter| {
            let rate = counter
                .per_hour
                .map_or(String::new(), |rate| format!(" ({} an hour)", hourly(rate)));
            format!("{}: {}{rate}", counter.what, counter.value)
        });
        let counted: Vec<String> = counted.collect();
        let text = sentence(&counted.join("; "));
        (!counted.is_empty()).then(|| hanging(&format!("  {subject}: "), 4, &text, look))
    });
    let text: String = lines.collect();
    (!text.is_empty()).then(|| format!("Since boot\n{text}"))
}

/// A rate with two figures at least.
pub(super) fn hourly(rate: f64) -> String {
    if rate >= 10.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}
