//! The report of `nofrag host --all` as text for people.

use nofrag_host::machine::counters::Subject;
use nofrag_host::machine::huge::{Basis, HugePages};
use nofrag_host::machine::requests::Request;
use nofrag_host::machine::zones::Zone;
use nofrag_host::machine::{Machine, Vmalloc};

use super::{hourly, index_check, marks, obtainable, order_or_none, thousandths};
use crate::host::parts;
use crate::host::vmalloc::{in_areas, of_limit};
use crate::{Cell, Look, Table, bytes_text, cells, sentence};

/// Returns all that is known of the machine.
#[must_use]
pub fn text(machine: &Machine, look: Look) -> String {
    let (verdict, others) = parts::verdict_with(machine.verdict.as_ref(), &machine.findings, look);
    let mut sections = vec![verdict, heading(machine, look), parts::findings(others, look)];
    if !machine.zones.is_empty() {
        sections.push(
            marks(machine, &machine.zones.iter().collect::<Vec<_>>(), |zone| zone.label.clone())
                .text("", look),
        );
        sections.push(orders(machine, look));
        sections.push(requests(machine, look));
    }
    sections.extend(machine.huge_pages.as_ref().map(|huge| huge_pages(huge, look)));
    let processes = machine.maps.nearest.len();
    sections.push(vmalloc(&machine.vmalloc, look) + &maps(machine, processes, look));
    sections.extend(counters(machine, look));
    sections.extend(parts::missing(&machine.missing, look));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

pub(super) fn heading(machine: &Machine, look: Look) -> String {
    let memory = super::memory(machine).map(|(bytes, what)| format!("{bytes} {what}"));
    let parts: Vec<String> = super::host(machine).into_iter().chain(memory).collect();
    look.wrapped("", &parts.join(", "))
}

fn orders(machine: &Machine, look: Look) -> String {
    let names =
        |zone: &Zone| ["free blocks", "unusable", "index"].map(|it| format!("{} {it}", zone.label));
    let share = |unusable| thousandths(unusable as f64).into();
    let zones: Vec<&Zone> = machine.zones.iter().collect();
    let Some(table) = super::orders(&zones, "order", names, [Cell::from, share]) else {
        return String::new();
    };
    let mut legend = String::from(
        "unusable: the share of free memory in blocks too small for the order; index: why a request would fail, \
         towards 0 for want of memory, towards 1 because it is in pieces, - if a block is there",
    );
    legend.extend(index_check(machine).map(|check| format!("; {check}")));
    table.text("", look) + &look.wrapped("", &sentence(&legend))
}

fn requests(machine: &Machine, look: Look) -> String {
    /// The most zones with columns of their own: more of them make no table that a screen shows. The JSON has every
    /// zone.
    const MOST_ZONES: usize = 4;
    if machine.requests.is_empty() {
        return String::new();
    }
    let zones = || machine.zones.iter().filter(|_| machine.zones.len() <= MOST_ZONES);
    let mut header = vec!["request now", "up to order", "unmixed"];
    header.extend(zones().map(|zone| zone.label.as_str()));
    let mut table = Table::new(&header);
    for request in &machine.requests {
        let unmixed = if machine.host.types_known {
            order_or_none(request.largest_unmixed_order)
        } else {
            "?".to_owned()
        };
        let mut row = cells![request.gfp, order_or_none(request.largest_order), unmixed];
        row.extend(zones().map(|zone| {
            let of_zone = request.zones.iter().find(|each| each.zone == zone.zone);
            of_zone.map_or(String::new(), |each| order_or_none(each.largest_order)).into()
        }));
        table.row(row);
    }
    let mut text = table.text("", look);
    for request in &machine.requests {
        text += &failing(request, look);
    }
    text
}

/// Lists the orders of a request that do not succeed at once, those of one reason on one line.
fn failing(request: &Request, look: Look) -> String {
    let failing: Vec<_> =
        request.orders.iter().filter(|answer| !answer.outcome.is_served()).collect();
    let Some(first) = failing.first() else { return String::new() };
    let mut text = look.hanging("  ", 4, &sentence(&first.why));
    if let Some(last) = failing.last().filter(|last| last.order > first.order) {
        text += &look.hanging("  ", 4, &sentence(&last.why));
    }
    text
}

fn huge_pages(huge: &HugePages, look: Look) -> String {
    let qualifier = if huge.basis == Basis::FreePages { " (a weak bound)" } else { "" };
    let text = format!("{}. How: {}.", obtainable(huge, qualifier), huge.how);
    let mut text = look.hanging(&format!("Huge pages of {}: ", bytes_text(huge.bytes)), 2, &text);
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
        text += &look.hanging("  ", 2, &sentence(&more.join("; ")));
    }
    text
}

pub(super) fn vmalloc(vmalloc: &Vmalloc, look: Look) -> String {
    let text = match (vmalloc.totals, vmalloc.lazy) {
        (Some(totals), Some(lazy)) => {
            let limit = of_limit(&lazy).map_or(String::new(), |limit| format!(" ({limit})"));
            let largest = vmalloc.largest_request_bytes.map_or(String::new(), |bytes| {
                format!("; the largest request that would succeed: {}", bytes_text(bytes))
            });
            format!(
                "{} in use; {} lazily freed{limit}{largest}",
                in_areas(totals.live_bytes, totals.live_areas),
                in_areas(lazy.bytes, lazy.areas),
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
    look.hanging("vmalloc: ", 2, &sentence(&text))
}

/// Lists the processes nearest to the limit, at most `most`.
pub(super) fn maps(machine: &Machine, most: usize, look: Look) -> String {
    let maps = &machine.maps;
    let nearest = maps.nearest.iter().take(most).map(|process| {
        let name = process.name.as_deref().unwrap_or("process");
        let share = maps
            .limit
            .map_or(String::new(), |limit| format!(", {}", Cell::share(process.areas, limit)));
        format!("{name} {} ({} areas{share})", process.pid, process.areas)
    });
    let nearest: Vec<String> = nearest.collect();
    if nearest.is_empty() {
        return String::new();
    }
    let limit = maps.limit.map_or("unknown".to_owned(), |limit| limit.to_string());
    let lead = format!("Processes nearest to max_map_count ({limit}): ");
    look.hanging(&lead, 2, &sentence(&nearest.join(", ")))
}

/// Writes the counters in sentences by subject; counters at zero are left out.
fn counters(machine: &Machine, look: Look) -> Option<String> {
    let lines = Subject::ALL.iter().filter_map(|subject| {
        let of = machine.counters.iter().filter(|counter| counter.subject == Some(*subject));
        let counted = of.filter(|counter| counter.value > 0).map(|counter| {
            let rate = counter
                .per_hour
                .map_or(String::new(), |rate| format!(" ({} an hour)", hourly(rate)));
            format!("{}: {}{rate}", counter.what, counter.value)
        });
        let counted: Vec<String> = counted.collect();
        let text = sentence(&counted.join("; "));
        (!counted.is_empty())
            .then(|| look.hanging(&format!("  {}: ", subject.into_str()), 4, &text))
    });
    let text: String = lines.collect();
    (!text.is_empty()).then(|| format!("Since boot\n{text}"))
}
