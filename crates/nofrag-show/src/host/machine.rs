//! The page of `nofrag host`: the whole machine.

use nofrag_host::finding::bytes_text;
use nofrag_host::machine::Machine;
use nofrag_host::machine::huge::HugePages;
use nofrag_host::machine::requests::{Answer, Outcome, Request};
use nofrag_host::machine::zones::{OrderRow, Zone};
use nofrag_host::process::finding::duration_text;

use super::count;
use super::vmalloc::{findings, in_use, missing, part, verdict};
use crate::Cell;
use crate::Origin;
use crate::Tone;
use crate::page::bars::{Bar, BarPanel, Bars, Lengths};
use crate::page::curves::{Curve, Curves, Line};
use crate::page::table::Table;
use crate::page::{Drawing, Figure, Item, Page, Tile, sections};
use crate::{Section, table_of};

/// The page of `machine`.
#[must_use]
pub fn machine(machine: &Machine, origin: &Origin) -> Page {
    let mut page = Page::new("Fragmentation of this machine's memory", origin);
    page.lead = vec![host_line(machine)];
    page.verdict = Some(verdict(&machine.findings));
    page.tiles = tiles(machine);
    let mut items = vec![findings(&machine.findings)];
    items.extend(requests(machine));
    items.extend(machine.huge_pages.as_ref().map(huge_pages));
    items.extend(free_by_order(machine));
    items.extend(unusable(machine));
    items.extend(types(machine));
    let vmalloc = &machine.vmalloc;
    items.extend(vmalloc.totals.zip(vmalloc.lazy).map(|(totals, lazy)| in_use(totals, lazy)));
    let tables = [marks(machine), indices(machine), nearest(machine), counters(machine)];
    items.extend(sections::items(tables.into_iter().flatten().collect()));
    items.extend(missing(&machine.missing));
    page.parts = vec![part("machine", "What is free, and what it is good for", origin, items)];
    page
}

fn host_line(machine: &Machine) -> String {
    let host = &machine.host;
    let release = host.release.as_deref().unwrap_or("(unknown)");
    let mut parts = vec![format!("Linux {release} {}", host.arch.as_deref().unwrap_or_default())];
    parts.extend(host.cpus_online.map(|cpus| format!("CPUs online: {cpus}")));
    parts.extend(host.uptime_seconds.map(|seconds| format!("up {}", duration_text(seconds))));
    parts.join(", ")
}

fn tiles(machine: &Machine) -> Vec<Tile> {
    let host = &machine.host;
    let tile = |value: String, what: &str| Tile { tone: Tone::Plain, value, what: what.to_owned() };
    let size = |bytes: Option<u64>, what: &str| bytes.map(|bytes| tile(bytes_text(bytes), what));
    let least = machine.requests.iter().map(|request| request.largest_order).min();
    let order = least.map(|order| {
        let order = order.map_or_else(|| "none".to_owned(), |order| order.to_string());
        tile(order, "largest order that every kind of request gets now")
    });
    let huge = machine.huge_pages.as_ref().map(|huge| {
        let text = format!("{} of {}", count(huge.now as f64), count(huge.total as f64));
        tile(text, &format!("huge pages of {} obtainable now", bytes_text(huge.bytes)))
    });
    [
        size(host.memory_bytes, "of memory"),
        size(host.free_bytes, "free"),
        size(host.available_bytes, "available"),
        huge,
        order,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What becomes of each order, kind by kind, and why where it is not served.
fn requests(machine: &Machine) -> Vec<Item> {
    let orders = machine.requests.iter().map(|request| request.orders.len()).max().unwrap_or(0);
    if orders == 0 {
        return Vec::new();
    }
    let row = |request: &Request| {
        let mut cells =
            vec![Cell::from(request.gfp.to_owned()), Cell::from(request.migratetype.to_owned())];
        cells.extend(request.orders.iter().map(outcome));
        cells.resize(orders + 2, Cell::from("-".to_owned()));
        cells
    };
    let header = ["request", "type"].map(str::to_owned).into_iter();
    let header = header.chain((0..orders).map(|order| order.to_string())).collect();
    let caption = "A row is one kind of request, a column an order; an order-9 block on x86-64 is a huge page of 2 \
                   MiB. By the kernel's own watermark test, not by what lies on the lists. mixes: served from a \
                   pageblock of another type, which fragments; compaction, reclaim: only after that; no: fails.";
    let rows = machine.requests.iter().map(row).collect();
    let table = Table::new(
        "What would succeed now".to_owned(),
        caption.to_owned(),
        orders + 2,
        header,
        rows,
    );
    let failing = |request: &Request| {
        let answers = request.orders.iter().filter(|answer| !answer.outcome.is_served());
        let lines = answers.filter(|answer| !answer.why.is_empty());
        lines.map(|answer| format!("{}.", answer.why)).take(2).collect::<Vec<_>>()
    };
    let lines: Vec<String> = machine.requests.iter().flat_map(failing).collect();
    let mut items = vec![Item::Table(table)];
    items.extend(sections::items(vec![Section::Lines {
        title: "Why requests fail or wait, the first two orders of each kind".to_owned(),
        lines,
    }]));
    items
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

fn huge_pages(huge: &HugePages) -> Item {
    let bar = |name: &str, pages: u64| Bar {
        name: name.to_owned(),
        value: pages as f64,
        text: format!("{}: {}", count(pages as f64), bytes_text(pages.saturating_mul(huge.bytes))),
    };
    let bars = vec![
        bar("now", huge.now),
        bar("after compaction", huge.after_compaction),
        bar("and reclaim", huge.after_reclaim),
        bar("in all of memory", huge.total),
    ];
    Item::Figure(Figure {
        title: format!("How many huge pages of {} can be had", bytes_text(huge.bytes)),
        says: format!(
            "Now, before the watermarks stop a process; at most after compaction; at most when page cache is dropped \
             as well; and what all of memory has room for. How: {}.",
            huge.how
        ),
        drawing: Drawing::Bars(Bars {
            lengths: Lengths::Linear,
            panels: vec![BarPanel { name: String::new(), bars }],
        }),
    })
}

/// How much of what is free lies in blocks of which order.
fn free_by_order(machine: &Machine) -> Option<Item> {
    let page = machine.host.page_bytes;
    let bytes =
        |row: &OrderRow| (page.checked_shl(row.order).unwrap_or(0)).saturating_mul(row.blocks);
    let bar = |row: &OrderRow| Bar {
        name: format!("order {}", row.order),
        value: bytes(row) as f64,
        text: format!("{}: {}", count(row.blocks as f64), bytes_text(bytes(row))),
    };
    let panel = |zone: &Zone| BarPanel {
        name: zone.label.clone(),
        bars: zone.orders.iter().map(bar).collect(),
    };
    let panels: Vec<BarPanel> =
        machine.zones.iter().filter(|zone| !zone.orders.is_empty()).map(panel).collect();
    (!panels.is_empty()).then(|| {
        Item::Figure(Figure {
            title: "Where free memory lies: blocks by order".to_owned(),
            says: "A bar is the memory in free blocks of one order, with their number. Long bars at the bottom mean \
                   whole blocks; long bars at the top mean pieces that only compaction can join."
                .to_owned(),
            drawing: Drawing::Bars(Bars { lengths: Lengths::Linear, panels }),
        })
    })
}

/// The unusable share over the orders: the distribution of free memory in one curve for each zone.
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
        Item::Figure(Figure {
            title: title.to_owned(),
            says: "A curve is one zone: the unusable index, the percentage of its free memory in blocks below the \
                   order. 0 is whole; 100 means that no block of the order is free."
                .to_owned(),
            drawing: Drawing::Curves(Curves::new(title, ["order", "percent"], Line::Straight, curves)),
        })
    })
}

/// Pageblocks by type.
fn types(machine: &Machine) -> Option<Item> {
    let bar = |row: &nofrag_host::machine::zones::TypeRow| {
        let blocks = row.pageblocks?;
        let (name, value) = (row.migratetype.clone(), blocks as f64);
        (blocks > 0).then(|| Bar { name, value, text: count(value) })
    };
    let panel = |zone: &Zone| {
        let bars: Vec<Bar> = zone.types.iter().filter_map(bar).collect();
        (!bars.is_empty()).then(|| BarPanel { name: zone.label.clone(), bars })
    };
    let panels: Vec<BarPanel> = machine.zones.iter().filter_map(panel).collect();
    (!panels.is_empty()).then(|| {
        Item::Figure(Figure {
            title: "Pageblocks by type".to_owned(),
            says: "A bar is the number of pageblocks of a migratetype. Only movable ones can be emptied by compaction \
                   as a rule; unmovable ones that grow in number are what lasts."
                .to_owned(),
            drawing: Drawing::Bars(Bars { lengths: Lengths::Linear, panels }),
        })
    })
}

fn marks(machine: &Machine) -> Option<Section> {
    let size = |pages: u64| bytes_text(pages.saturating_mul(machine.host.page_bytes));
    let row = |zone: &Zone| {
        let known = |pages: Option<u64>| pages.map_or_else(|| "-".to_owned(), size);
        vec![
            zone.label.clone(),
            known(zone.managed_pages),
            size(zone.free_pages),
            known(zone.per_cpu_pages),
            known(zone.marks.map(|marks| marks.min)),
            known(zone.marks.map(|marks| marks.low)),
            known(zone.marks.map(|marks| marks.high)),
            known(zone.marks.and_then(|marks| marks.boost)),
            zone.largest_order.map_or_else(|| "none".to_owned(), |order| order.to_string()),
        ]
    };
    table_of(
        "Zones and their watermarks",
        "A row is one zone. Below low kswapd is woken, below min only callers with rights take pages; boost raises \
         all three after types were mixed.",
        1,
        &["zone", "managed", "free", "on CPUs", "min", "low", "high", "boost", "largest order"],
        machine.zones.iter().map(row).collect(),
    )
}

fn indices(machine: &Machine) -> Option<Section> {
    let row = |zone: &Zone, row: &OrderRow| {
        let thousandths = |value: i64| format!("{:.3}", value as f64 / 1000.0);
        vec![
            zone.label.clone(),
            row.order.to_string(),
            count(row.blocks as f64),
            count(row.available as f64),
            thousandths(row.unusable as i64),
            row.fragmentation.map_or_else(|| "-".to_owned(), thousandths),
        ]
    };
    let rows =
        machine.zones.iter().flat_map(|zone| zone.orders.iter().map(move |order| row(zone, order)));
    let check = machine.index_check.map_or_else(String::new, |check| {
        format!(" {} of {} indices equal the kernel's own.", check.equal, check.compared)
    });
    table_of(
        "Free blocks and indices by order",
        &format!(
            "A row is one order of a zone: blocks of just that order, blocks that all free ones could be cut into, \
             the unusable share, and why a request would fail, towards 0 for want of memory, towards 1 because it is \
             in pieces; no index where a block is there.{check}"
        ),
        1,
        &["zone", "order", "free blocks", "could be cut", "unusable", "fragmentation index"],
        rows.collect(),
    )
}

fn nearest(machine: &Machine) -> Option<Section> {
    let maps = &machine.maps;
    let limit = maps.limit.map_or_else(|| "unknown".to_owned(), |limit| count(limit as f64));
    let row = |process: &nofrag_host::process::ranking::Ranked| {
        let share = process.share.map_or("-".to_owned(), |share| format!("{:.2} %", share * 100.0));
        let name = process.name.clone().unwrap_or_else(|| "(unnamed)".to_owned());
        vec![name, process.pid.to_string(), count(process.areas as f64), share]
    };
    table_of(
        "Processes nearest to their limit of areas",
        &format!(
            "A row is one process; vm.max_map_count is {limit}. {} processes were counted, into {} the reader may not \
             look.",
            maps.counted, maps.denied
        ),
        1,
        &["process", "pid", "areas", "of the limit"],
        maps.nearest.iter().map(row).collect(),
    )
}

fn counters(machine: &Machine) -> Option<Section> {
    let row = |counter: &nofrag_host::machine::counters::Counter| {
        vec![
            counter.what.to_owned(),
            counter.name.to_owned(),
            count(counter.value as f64),
            counter.per_hour.map_or("-".to_owned(), |rate| format!("{rate:.1}")),
        ]
    };
    table_of(
        "Counted since boot",
        "A row is one counter of the kernel, or a sum of several, with its rate over the whole time since boot.",
        2,
        &["what", "counter", "count", "an hour"],
        machine.counters.iter().map(row).collect(),
    )
}
