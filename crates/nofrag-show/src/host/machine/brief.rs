//! The report of `nofrag host` on one screen: first the verdict and the findings, then each subject in a few lines. The
//! rest is in [`super::text`], which `--all` shows.

use std::cmp::Reverse;

use nofrag_host::machine::Machine;
use nofrag_host::machine::counters::Name;
use nofrag_host::machine::requests::{Answer, Request};
use nofrag_host::machine::zones::Zone;

use super::{has_index, hourly, marks, order_or_none, text};
use crate::host::parts;
use crate::{Cell, Look, plural, screen, sentence};

/// Returns the report that fits on one screen.
#[must_use]
pub fn brief(machine: &Machine, look: Look) -> String {
    let (verdict, others) = parts::verdict_with(machine.verdict.as_ref(), &machine.findings, look);
    let mut sections =
        vec![verdict, text::heading(machine, look), parts::brief_findings(&others, look)];
    if !machine.zones.is_empty() {
        sections.push(
            marks(machine, &large(machine, 100), |zone| label(machine, zone))
                .without("on CPUs")
                .text("", look),
        );
        sections.push(orders(machine, look));
    }
    sections.retain(|section| !section.is_empty());
    // What is not known comes before what may not fit.
    let mut rest: Vec<String> = parts::brief_missing(&machine.missing, look).into_iter().collect();
    rest.extend(requests(&machine.requests, look));
    rest.extend(counters(machine, look));
    if machine.vmalloc.totals.is_some() {
        rest.push(text::vmalloc(&machine.vmalloc, look));
    }
    rest.push(text::maps(machine, MOST_PROCESSES, look));
    rest.retain(|line| !line.is_empty());
    let sections = sections.into_iter().map(|section| section + "\n");
    screen(sections.chain(rest), "--all shows every zone, limit, counter and finding", look)
}

const MOST_PROCESSES: usize = 3;

/// Returns the name of a zone in a table: with its node if there are several.
fn label(machine: &Machine, zone: &Zone) -> String {
    match machine.zones.iter().any(|each| each.zone.node != zone.zone.node) {
        true => format!("{}/{}", zone.zone.node, zone.zone.name),
        false => zone.zone.name.clone(),
    }
}

/// The most zones whose orders are shown.
const MOST_ZONES: usize = 3;

/// Returns the zones with this part of the machine's memory; all of them where their sizes are not known.
fn large(machine: &Machine, part: u64) -> Vec<&Zone> {
    let size = |zone: &Zone| zone.managed_pages.unwrap_or(0);
    let all = machine.zones.iter().map(size).fold(0, u64::saturating_add);
    machine.zones.iter().filter(|zone| size(zone) >= all / part).collect()
}

/// Returns, of the zones that the verdict judges, those with most memory in pieces too small for a pageblock, in their
/// order.
fn zones(machine: &Machine) -> Vec<&Zone> {
    let pageblock = machine.host.pageblock_order as usize;
    let in_pieces = |zone: &Zone| {
        let unusable = zone.orders.get(pageblock).map_or(0, |row| row.unusable);
        unusable.saturating_mul(zone.free_pages)
    };
    let mut by_pieces: Vec<(usize, &Zone)> = large(machine, 8).into_iter().enumerate().collect();
    by_pieces.retain(|(_, zone)| !zone.orders.is_empty());
    by_pieces.sort_by_key(|(_, zone)| Reverse(in_pieces(zone)));
    by_pieces.truncate(MOST_ZONES);
    by_pieces.sort_by_key(|(index, _)| *index);
    by_pieces.into_iter().map(|(_, zone)| zone).collect()
}

fn orders(machine: &Machine, look: Look) -> String {
    let zones = zones(machine);
    let names =
        |zone: &Zone| [label(machine, zone), "  unusable %".to_owned(), "  index".to_owned()];
    let forms: [fn(u64) -> Cell; 2] =
        [|blocks| short(blocks).into(), |unusable| percent(unusable).into()];
    let Some(table) = super::orders(&zones, "free of order", names, forms) else {
        return String::new();
    };
    let mut legend = vec!["unusable: the share of what is free in blocks too small for the order"];
    if zones.iter().any(|zone| has_index(zone)) {
        legend.push(
            "index: why a request would fail, towards 0 for want of memory, towards 1 because it is in pieces",
        );
    }
    let of_all = format!("of {} zones those with most in small blocks", machine.zones.len());
    if zones.len() == MOST_ZONES && zones.len() < machine.zones.len() {
        legend.push(&of_all);
    }
    table.text("", look) + &look.hanging("", 0, &sentence(&legend.join("; ")))
}

/// Writes a count in at most five characters, cut off.
fn short(count: u64) -> String {
    match count {
        0..100_000 => count.to_string(),
        100_000..10_000_000 => format!("{}k", count / 1000),
        10_000_000..10_000_000_000 => format!("{}M", count / 1_000_000),
        _ => format!("{}G", count / 1_000_000_000),
    }
}

/// Writes thousandths in percent: only zero looks like zero, and only all like all.
fn percent(thousandths: u64) -> String {
    match thousandths {
        1..10 => "<1".to_owned(),
        991..1000 => ">99".to_owned(),
        other => ((other + 5) / 10).to_string(),
    }
}

/// Says up to which order each kind of request is served, and for what the first order above would wait.
fn requests(requests: &[Request], look: Look) -> Vec<String> {
    if requests.is_empty() {
        return Vec::new();
    }
    let served = requests.iter().map(|request| {
        let unmixed = match request.largest_unmixed_order {
            Some(unmixed) if Some(unmixed) < request.largest_order => {
                format!(" ({unmixed} without mixing types)")
            }
            _ => String::new(),
        };
        format!("{} {}{unmixed}", request.gfp, order_or_none(request.largest_order))
    });
    let served: Vec<String> = served.collect();
    let mut lines = vec![look.hanging("Largest order now: ", 2, &sentence(&served.join(", ")))];
    let first = |request: &Request| -> Option<Answer> {
        request.orders.iter().find(|answer| !answer.outcome.is_served()).cloned()
    };
    // Those of one reason stand together.
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for answer in requests.iter().filter_map(first) {
        let (asked, why) = answer.why.split_once(": ").unwrap_or(("", &answer.why));
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, all)) => all.push(asked.to_owned()),
            None => reasons.push((why.to_owned(), vec![asked.to_owned()])),
        }
    }
    let said = |(why, asked): &(String, Vec<String>)| format!("{}: {why}", asked.join(", "));
    lines.extend(reasons.iter().map(|each| look.hanging("  ", 4, &sentence(&said(each)))));
    lines
}

/// Says most about the price of fragmentation in one sentence.
fn counters(machine: &Machine, look: Look) -> Option<String> {
    if machine.counters.is_empty() {
        return None;
    }
    let count = |name| machine.counter(name).map_or(0, |counter| counter.value);
    let rate = |name| {
        let rate = machine.counter(name).and_then(|counter| counter.per_hour);
        rate.map_or(String::new(), |rate| format!(", {} an hour", hourly(rate)))
    };
    let [stalls, made, failed] =
        [Name::CompactStall, Name::CompactSuccess, Name::CompactFail].map(count);
    let [reclaims, moved, reclaimed] =
        [Name::Allocstall, Name::PgmigrateSuccess, Name::PgstealKswapd].map(count);
    let [given, fallen, killed] =
        [Name::ThpFaultAlloc, Name::ThpFaultFallback, Name::OomKill].map(count);
    let waited = rate(Name::CompactStall);
    let times = plural(fallen, "time", "times");
    let parts = [
        (
            stalls,
            format!(
                "{stalls} requests waited for compaction{waited} ({made} made a block, {failed} did not)"
            ),
        ),
        (reclaims, format!("{reclaims} waited for reclaim{}", rate(Name::Allocstall))),
        (moved, format!("{moved} pages moved")),
        (reclaimed, format!("kswapd reclaimed {reclaimed}")),
        (
            given.saturating_add(fallen),
            format!("{given} huge pages given on first touch, small ones instead {times}"),
        ),
        (killed, format!("{} killed for want of memory", plural(killed, "process", "processes"))),
    ];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
    let text = match parts.is_empty() {
        true => "nothing waited for compaction or reclaim".to_owned(),
        false => parts.join("; "),
    };
    Some(look.hanging("Since boot: ", 2, &sentence(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_shares_stay_narrow_and_true() {
        let counts = [0, 99_999, 123_456, 98_765_432, u64::MAX];
        assert_eq!(counts.map(short), ["0", "99999", "123k", "98M", "18446744073G"]);
        assert_eq!(
            [0, 1, 9, 10, 14, 15, 990, 991, 999, 1000].map(percent),
            ["0", "<1", "<1", "1", "1", "2", "99", ">99", ">99", "100"]
        );
    }
}
