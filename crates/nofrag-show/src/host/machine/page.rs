//! The page of `nofrag host`: the whole machine.

use nofrag_host::machine::Machine;
use nofrag_host::machine::huge::HugePages;
use nofrag_host::machine::requests::{Answer, Outcome, Request};
use nofrag_host::machine::zones::{OrderRow, TypeRow, Zone};

use super::{hourly, index_check, marks, order_or_none};
use crate::host::parts::{bar, bars, cards, figure, headline_of, missing_item, part, tile};
use crate::host::{ranking, vmalloc};
use crate::page::curves::{Curve, Curves, Line};
use crate::page::{Drawing, Item, Page, Tile};
use crate::{Cell, Origin, Table, Tone, bytes_text, cells, count, fixed};

/// Returns the page of `machine`.
#[must_use]
pub fn page(machine: &Machine, origin: &Origin) -> Page {
    let mut page = Page::new("Fragmentation of this machine's memory", origin);
    page.lead = vec![super::host(machine).join(", ")];
    page.headline = Some(headline_of(machine.verdict.as_ref(), &machine.findings));
    page.tiles = tiles(machine);
    let mut items = vec![cards(&machine.findings)];
    items.extend(requests(machine));
    items.extend(machine.huge_pages.as_ref().and_then(huge_pages));
    items.extend(free_by_order(machine));
    items.extend(unusable(machine));
    items.extend(types(machine));
    let in_use = machine.vmalloc.totals.zip(machine.vmalloc.lazy);
    items.extend(in_use.and_then(|(totals, lazy)| vmalloc::in_use(totals, lazy)));
    let marks = marks(machine, &machine.zones.iter().collect::<Vec<_>>(), |zone| zone.label.clone()).item(
        "Zones and their watermarks",
        "A row is one zone. Below low kswapd is woken, below min only callers with rights take pages; boost raises \
         all three after types were mixed.",
    );
    items.extend(
        [marks, indices(machine), nearest(machine), counters(machine)].into_iter().flatten(),
    );
    items.extend(missing_item(&machine.missing));
    page.parts = vec![part("machine", "What is free, and what it is good for", origin, items)];
    page
}

fn tiles(machine: &Machine) -> Vec<Tile> {
    let least = machine.requests.iter().map(|request| request.largest_order).min();
    let order = least.map(|order| {
        tile(order_or_none(order), "largest order that every kind of request gets now")
    });
    let huge = machine.huge_pages.as_ref().map(|huge| {
        let text =
            format!("{} of {}", count(huge.blocks.now as f64), count(huge.blocks.total as f64));
        tile(text, format!("huge pages of {} obtainable now", bytes_text(huge.bytes)))
    });
    let memory = super::memory(machine).map(|(bytes, what)| tile(bytes, what));
    memory.chain(huge).chain(order).collect()
}

/// Returns a table of the outcome of each order, kind by kind, and the reasons of failures.
fn requests(machine: &Machine) -> Vec<Item> {
    let orders = machine.requests.iter().map(|request| request.orders.len()).max().unwrap_or(0);
    if orders == 0 {
        return Vec::new();
    }
    let row = |request: &Request| {
        let mut cells = cells![request.gfp, request.migratetype];
        cells.extend(request.orders.iter().map(outcome));
        cells.resize(orders + 2, Cell::Missing);
        cells
    };
    let header = ["request", "type"].map(str::to_owned).into_iter();
    let header = header.chain((0..orders).map(|order| order.to_string()));
    let caption = "A row is one kind of request, a column an order; an order-9 block on x86-64 is a huge page of 2 \
                   MiB. By the kernel's own watermark test, not by what lies on the lists. mixes: served from a \
                   pageblock of another type, which fragments; compaction, reclaim: only after that; no: fails.";
    let rows = machine.requests.iter().map(row).collect();
    let table = Table::of("What would succeed now", caption, orders + 2, header, rows);
    let failing = |request: &Request| {
        let answers = request.orders.iter().filter(|answer| !answer.outcome.is_served());
        let lines = answers.filter(|answer| !answer.why.is_empty());
        lines.map(|answer| format!("{}.", answer.why)).take(2).collect::<Vec<_>>()
    };
    let lines: Vec<String> = machine.requests.iter().flat_map(failing).collect();
    let title = "Why requests fail or wait, the first two orders of each kind".to_owned();
    let why = (!lines.is_empty()).then_some(Item::Lines { title, lines });
    table.map(Item::Table).into_iter().chain(why).collect()
}

fn outcome(answer: &Answer) -> Cell {
    let (text, tone) = match answer.outcome {
        Outcome::Served => ("yes", Tone::Good),
        Outcome::Mixes => ("mixes", Tone::Warning),
        Outcome::AfterCompaction => ("compaction", Tone::Warning),
        Outcome::AfterReclaim => ("reclaim", Tone::Warning),
        Outcome::Fails => ("no", Tone::Bad),
    };
    Cell::judged(tone, text)
}

fn huge_pages(huge: &HugePages) -> Option<Item> {
    let bar = |name: &str, pages: u64| {
        let bytes = bytes_text(pages.saturating_mul(huge.bytes));
        bar(name, pages, format!("{}: {bytes}", count(pages as f64)))
    };
    let all = vec![
        bar("now", huge.blocks.now),
        bar("after compaction", huge.blocks.after_compaction),
        bar("and reclaim", huge.blocks.after_reclaim),
        bar("in all of memory", huge.blocks.total),
    ];
    bars(
        format!("How many huge pages of {} can be had", bytes_text(huge.bytes)),
        format!(
            "Now, before the watermarks stop a process; at most after compaction; at most when page cache is dropped \
             as well; and what all of memory has room for. How: {}.",
            huge.how
        ),
        [(String::new(), all)],
    )
}

/// Returns bars of the free memory in blocks of each order.
fn free_by_order(machine: &Machine) -> Option<Item> {
    let block = |order| machine.host.page_bytes.checked_shl(order).unwrap_or(0);
    let of = |row: &OrderRow| {
        let bytes = block(row.order).saturating_mul(row.blocks);
        let text = format!("{}: {}", count(row.blocks as f64), bytes_text(bytes));
        bar(format!("order {}", row.order), bytes, text)
    };
    bars(
        "Where free memory lies: blocks by order",
        "A bar is the memory in free blocks of one order, with their number. Long bars at the bottom mean whole \
         blocks; long bars at the top mean pieces that only compaction can join.",
        machine.zones.iter().map(|zone| (zone.label.clone(), zone.orders.iter().map(of).collect())),
    )
}

/// Returns the unusable share over the orders: the distribution of free memory in one curve for each zone.
fn unusable(machine: &Machine) -> Option<Item> {
    let curve = |zone: &Zone| Curve {
        name: zone.label.clone(),
        points: zone
            .orders
            .iter()
            .map(|row| (f64::from(row.order), row.unusable as f64 / 10.0))
            .collect(),
    };
    let curves: Vec<Curve> =
        machine.zones.iter().filter(|zone| !zone.orders.is_empty()).map(curve).collect();
    let title = "Free memory that a request of an order cannot use";
    (!curves.is_empty()).then(|| {
        figure(
            title,
            "A curve is one zone: the unusable index, the percentage of its free memory in blocks below the order. 0 \
             is whole; 100 means that no block of the order is free.",
            Drawing::Curves(Curves::new(title, ["order", "percent"], Line::Straight, curves)),
        )
    })
}

/// Returns bars of the pageblocks by type.
fn types(machine: &Machine) -> Option<Item> {
    let of = |row: &TypeRow| {
        let blocks = row.pageblocks.filter(|&blocks| blocks > 0)?;
        Some(bar(row.migratetype.clone(), blocks, count(blocks as f64)))
    };
    let zones = machine.zones.iter();
    bars(
        "Pageblocks by type",
        "A bar is the number of pageblocks of a migratetype. Only movable ones can be emptied by compaction as a rule; \
         unmovable ones that grow in number are what lasts.",
        zones.map(|zone| (zone.label.clone(), zone.types.iter().filter_map(of).collect())),
    )
}

fn indices(machine: &Machine) -> Option<Item> {
    let thousandths = |value: i64| fixed(value as f64 / 1000.0, 3);
    let header =
        ["zone", "order", "free blocks", "could be cut", "unusable", "fragmentation index"];
    let mut grid = Table::new(&header);
    for zone in &machine.zones {
        for row in &zone.orders {
            grid.row(cells![
                zone.label.clone(),
                u64::from(row.order),
                row.blocks,
                row.available,
                thousandths(row.unusable as i64),
                row.fragmentation.map(thousandths),
            ]);
        }
    }
    let check = index_check(machine).map_or_else(String::new, |check| format!(" {check}."));
    grid.item(
        "Free blocks and indices by order",
        format!(
            "A row is one order of a zone: blocks of just that order, blocks that all free ones could be cut into, \
             the unusable share, and why a request would fail, towards 0 for want of memory, towards 1 because it is \
             in pieces; no index where a block is there.{check}"
        ),
    )
}

fn nearest(machine: &Machine) -> Option<Item> {
    let maps = &machine.maps;
    let limit = maps.limit.map_or_else(|| "unknown".into(), Cell::from);
    ranking::grid(&maps.nearest, "of the limit").item(
        "Processes nearest to their limit of areas",
        format!(
            "A row is one process; vm.max_map_count is {limit}. {} processes were counted, into {} the reader may not \
             look.",
            maps.counted, maps.denied
        ),
    )
}

fn counters(machine: &Machine) -> Option<Item> {
    let mut grid = Table::new(&["what", "counter", "count", "an hour"]);
    for counter in &machine.counters {
        let rate = counter.per_hour.map(hourly);
        grid.row(cells![counter.what, counter.name.into_str(), counter.value, rate]);
    }
    grid.with_texts(2).item(
        "Counted since boot",
        "A row is one counter of the kernel, or a sum of several, with its rate over the whole time since boot.",
    )
}
