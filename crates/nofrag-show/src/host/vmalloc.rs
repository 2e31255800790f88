//! The page of `nofrag host vmalloc`.

use nofrag_host::finding::{Finding, Severity, bytes_text};
use nofrag_host::layout::{HoleClass, Room};
use nofrag_host::source::Missing;
use nofrag_host::vmalloc::{Group, Lazy, RegionReport, Report, Totals};

use super::count;
use crate::Origin;
use crate::Tone;
use crate::page::bars::{Bar, BarPanel, Bars, Lengths};
use crate::page::table::Table;
use crate::page::{Card, Drawing, Figure, Item, Page, Part, Tile, Verdict, cells};

/// The page of `report`.
#[must_use]
pub fn vmalloc(report: &Report, origin: &Origin) -> Page {
    let mut page = Page::new("The kernel's vmalloc space", origin);
    page.lead = vec![host_line(report)];
    page.verdict = Some(verdict(&report.findings));
    page.tiles = tiles(report);
    let mut items = vec![findings(&report.findings)];
    items.extend(report.regions.iter().flat_map(region));
    items.extend(report.no_regions_because.iter().map(|why| Item::Lines {
        title: "Holes are not shown".to_owned(),
        lines: vec![format!("{why}.")],
    }));
    items.push(in_use(report.totals, report.lazy));
    items.push(groups("Areas by kind", "A row is one kind of area.", &report.kinds, report));
    items.push(groups(
        "Areas in use by caller",
        "A row is the function that asked for the areas.",
        &report.callers,
        report,
    ));
    items.extend(missing(&report.missing));
    page.parts = vec![part("vmalloc", "What is in it", origin, items)];
    page
}

/// The only part of a page about one subject.
pub(super) fn part(id: &str, title: &str, origin: &Origin, items: Vec<Item>) -> Part {
    Part {
        id: id.to_owned(),
        title: title.to_owned(),
        lead: Vec::new(),
        command: origin.command.clone(),
        verdict: None,
        items,
    }
}

fn host_line(report: &Report) -> String {
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "(unknown)".to_owned());
    let cpus = report.host.cpus_online.map_or("unknown".to_owned(), |cpus| cpus.to_string());
    format!(
        "Linux {} {}, CPUs online: {cpus}",
        known(&report.host.release),
        known(&report.host.arch)
    )
}

/// What the findings come to.
pub(super) fn verdict(findings: &[Finding]) -> Verdict {
    let warnings = || findings.iter().filter(|finding| finding.severity == Severity::Warning);
    match warnings().next() {
        Some(first) => Verdict {
            tone: Tone::Bad,
            says: format!("{} needs attention: {}.", first.id, first.evidence),
            advice: format!("{}.", first.help),
        },
        None => Verdict {
            tone: Tone::Good,
            says: "Nothing needs attention.".to_owned(),
            advice: match findings.len() {
                0 => "There are no findings.".to_owned(),
                _ => "The notes below say what is easily misread.".to_owned(),
            },
        },
    }
}

/// All findings, most urgent first.
pub(super) fn findings(findings: &[Finding]) -> Item {
    let title = "Findings".to_owned();
    if findings.is_empty() {
        return Item::Lines { title, lines: vec!["none".to_owned()] };
    }
    let card = |finding: &Finding| {
        let (tone, word) = match finding.severity {
            Severity::Warning => (Tone::Warning, "warning"),
            Severity::Note => (Tone::Plain, "note"),
        };
        Card {
            tone,
            name: format!("{word}, {}", finding.id),
            evidence: format!("{}.", finding.evidence),
            consequence: format!("{}.", finding.consequence),
            help: format!("{}.", finding.help),
        }
    };
    Item::Findings { title, findings: findings.iter().map(card).collect() }
}

/// What could not be read, and what that costs; nothing when all was.
pub(super) fn missing(missing: &[Missing]) -> Option<Item> {
    let row = |it: &Missing| vec![it.path.clone(), it.why.clone(), it.costs.to_owned()];
    let header = ["file", "why", "it costs"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = missing.iter().map(row).collect();
    let table = || {
        Table::of_texts(
            "Not read".to_owned(),
            "A row is a file that could not be had, and what this page lacks for want of it."
                .to_owned(),
            3,
            header,
            rows,
        )
    };
    (!missing.is_empty()).then(|| Item::Table(table()))
}

fn tiles(report: &Report) -> Vec<Tile> {
    let tile = |value: String, what: &str| Tile { tone: Tone::Plain, value, what: what.to_owned() };
    let mut tiles = vec![
        tile(bytes_text(report.totals.live_bytes), "in use"),
        tile(bytes_text(report.lazy.bytes), "freed, not yet purged"),
        tile(count(report.totals.areas as f64), "areas listed"),
    ];
    let limit = report.lazy.limit_bytes;
    tiles.extend(limit.map(|limit| tile(bytes_text(limit), "lazy bytes at which a purge starts")));
    let largest = report.regions.first().map(|region| region.now.largest_request_bytes);
    tiles
        .extend(largest.map(|bytes| tile(bytes_text(bytes), "largest request that would succeed")));
    tiles
}

/// So many holes.
pub(super) fn holes(number: usize) -> String {
    match number {
        1 => "1 hole".to_owned(),
        number => format!("{} holes", count(number as f64)),
    }
}

/// Cells of a hole map.
pub(super) const CELLS: usize = 400;

fn region(region: &RegionReport) -> Vec<Item> {
    let name = region.name.text();
    let (start, end) = (format!("{:#018x}", region.start), format!("{:#018x}", region.end));
    let size = bytes_text(region.end - region.start);
    let map = Figure {
        title: format!("Hole map of {name}"),
        says: format!(
            "{size} of address space, lowest address left: what is in use, what is freed but not yet purged, and the \
             holes. A hole that would fill more than half of the line is cut out and stands there with its size. {} \
             are free in {}; after a full purge {} in {}.",
            bytes_text(region.now.free_bytes),
            holes(region.now.holes),
            bytes_text(region.after_purge.free_bytes),
            holes(region.after_purge.holes),
        ),
        drawing: Drawing::Cells(cells::hole_map(&region.draw(CELLS), "unpurged", [start, end])),
    };
    let sizes = Figure {
        title: format!("Holes of {name} by size"),
        says: "A bar is the number of holes between its size and twice that, now and after a full purge; many small \
               holes are what a large request cannot use."
            .to_owned(),
        drawing: Drawing::Bars(hole_sizes(&[
            ("now", &region.now.classes),
            ("after a full purge", &region.after_purge.classes),
        ])),
    };
    vec![
        Item::Figure(map),
        Item::Figure(sizes),
        Item::Table(largest(name, &region.now, &region.after_purge)),
    ]
}

/// A panel for each moment, a bar for each class of holes.
pub(super) fn hole_sizes(moments: &[(&str, &[HoleClass])]) -> Bars {
    let bar = |class: &HoleClass| Bar {
        name: format!("from {}", bytes_text(class.from_bytes)),
        value: class.holes as f64,
        text: format!("{}: {}", count(class.holes as f64), bytes_text(class.bytes)),
    };
    let panel = |(name, classes): &(&str, &[HoleClass])| BarPanel {
        name: (*name).to_owned(),
        bars: classes.iter().map(bar).collect(),
    };
    Bars { lengths: Lengths::Logarithmic, panels: moments.iter().map(panel).collect() }
}

fn largest(name: &str, now: &Room, after: &Room) -> Table {
    let row = |(now, after): (&nofrag_host::layout::AlignedRoom, _)| {
        let after: &nofrag_host::layout::AlignedRoom = after;
        vec![
            bytes_text(now.align_bytes),
            bytes_text(now.largest_area_bytes),
            bytes_text(after.largest_area_bytes),
        ]
    };
    let rows = now.largest_by_align.iter().zip(&after.largest_by_align).map(row).collect();
    let header = ["aligned to", "largest area now", "after a full purge"].map(str::to_owned);
    let caption = "A row is one alignment: the largest area that would still find a place, guard page included.";
    Table::of_texts(
        format!("What would still succeed in {name}"),
        caption.to_owned(),
        0,
        header.to_vec(),
        rows,
    )
}

/// In use against lazily freed.
pub(super) fn in_use(totals: Totals, lazy: Lazy) -> Item {
    let bar = |name: &str, bytes: u64| Bar {
        name: name.to_owned(),
        value: bytes as f64,
        text: bytes_text(bytes),
    };
    let mut bars = vec![bar("in use", totals.live_bytes), bar("freed, unpurged", lazy.bytes)];
    bars.extend(lazy.limit_bytes.map(|limit| bar("purge starts at", limit)));
    let panels = vec![BarPanel { name: String::new(), bars }];
    Item::Figure(Figure {
        title: "The vmalloc space: what is in use, and what is only freed lazily".to_owned(),
        says: "The list of areas holds both; counting them together overstates use. The kernel purges at the limit, \
               or when a request finds no room."
            .to_owned(),
        drawing: Drawing::Bars(Bars { lengths: Lengths::Linear, panels }),
    })
}

fn groups(title: &str, caption: &str, groups: &[Group], report: &Report) -> Item {
    let page = report.page_bytes.unwrap_or(0);
    let row = |group: &Group| {
        let behind = match group.backed_pages {
            0 => "-".to_owned(),
            pages => bytes_text(pages.saturating_mul(page)),
        };
        vec![group.name.clone(), count(group.areas as f64), bytes_text(group.bytes), behind]
    };
    let header = ["name", "areas", "bytes", "memory behind"].map(str::to_owned).to_vec();
    let rows = groups.iter().map(row).collect();
    Item::Table(Table::of_texts(title.to_owned(), caption.to_owned(), 1, header, rows))
}
