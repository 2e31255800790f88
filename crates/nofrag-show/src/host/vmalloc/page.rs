//! The page of `nofrag host vmalloc`.

use nofrag_host::layout::HoleClass;
use nofrag_host::vmalloc::{Lazy, RegionReport, Totals, VmallocReport};

use super::{callers, host, kinds, largest};
use crate::host::parts::{bar, bars, cards, figure, headline, missing_item, part, tile, tile_of};
use crate::page::axis::Scale;
use crate::page::bars::{BarPanel, Bars};
use crate::page::{Drawing, Item, Page, Tile, cells};
use crate::{Origin, bytes_text, count, sentence};

/// Returns the page of `report`.
#[must_use]
pub fn page(report: &VmallocReport, origin: &Origin) -> Page {
    let mut page = Page::new("The kernel's vmalloc space", origin);
    page.lead = vec![host(report)];
    page.headline = Some(headline(&report.findings));
    page.tiles = tiles(report);
    let mut items = vec![cards(&report.findings)];
    items.extend(report.regions.iter().flat_map(region));
    items.extend(report.no_regions_because.iter().map(|why| Item::Lines {
        title: "Holes are not shown".to_owned(),
        lines: vec![sentence(why)],
    }));
    items.extend(in_use(report.totals, report.lazy));
    items.extend(kinds(report).item("Areas by kind", "A row is one kind of area."));
    let caption = "A row is the function that asked for the areas.";
    items.extend(callers(report, usize::MAX).item("Areas in use by caller", caption));
    items.extend(missing_item(&report.missing));
    page.parts = vec![part("vmalloc", "What is in it", origin, items)];
    page
}

fn tiles(report: &VmallocReport) -> Vec<Tile> {
    let mut tiles = vec![
        tile(bytes_text(report.totals.live_bytes), "in use"),
        tile(bytes_text(report.lazy.bytes), "freed, not yet purged"),
        tile_of(report.totals.areas, "areas listed"),
    ];
    let limit = report.lazy.limit_bytes;
    tiles.extend(limit.map(|limit| tile(bytes_text(limit), "lazy bytes at which a purge starts")));
    let largest = report.regions.first().map(|region| region.now.largest_request_bytes);
    tiles
        .extend(largest.map(|bytes| tile(bytes_text(bytes), "largest request that would succeed")));
    tiles
}

/// Writes a number of holes.
pub(in crate::host) fn holes(number: usize) -> String {
    match number {
        1 => "1 hole".to_owned(),
        number => format!("{} holes", count(number as f64)),
    }
}

/// Number of cells in a hole map.
pub(in crate::host) const CELLS: usize = 400;

fn region(region: &RegionReport) -> Vec<Item> {
    let name = region.name.into_str();
    let (start, end) = (format!("{:#018x}", region.start), format!("{:#018x}", region.end));
    let size = bytes_text(region.end - region.start);
    let map = figure(
        format!("Hole map of {name}"),
        format!(
            "{size} of address space, lowest address left: what is in use, what is freed but not yet purged, and the \
             holes. A hole that would fill more than half of the line is cut out and stands there with its size. {} \
             are free in {}; after a full purge {} in {}.",
            bytes_text(region.now.free_bytes),
            holes(region.now.holes),
            bytes_text(region.after_purge.free_bytes),
            holes(region.after_purge.holes),
        ),
        Drawing::Cells(cells::hole_map(&region.draw(CELLS), "unpurged", [start, end])),
    );
    let sizes = figure(
        format!("Holes of {name} by size"),
        "A bar is the number of holes between its size and twice that, now and after a full purge; many small holes \
         are what a large request cannot use.",
        hole_sizes(&[
            ("now", &region.now.classes),
            ("after a full purge", &region.after_purge.classes),
        ]),
    );
    let largest = largest(region).item(
        format!("What would still succeed in {name}"),
        "A row is one alignment: the largest area that would still find a place, guard page included.",
    );
    [map, sizes].into_iter().chain(largest).collect()
}

/// Returns a panel for each moment, with a bar for each class of holes.
pub(in crate::host) fn hole_sizes(moments: &[(&str, &[HoleClass])]) -> Drawing {
    let of = |class: &HoleClass| {
        let text = format!("{}: {}", count(class.holes as f64), bytes_text(class.bytes));
        bar(format!("from {}", bytes_text(class.from_bytes)), class.holes as u64, text)
    };
    let panel = |(name, classes): &(&str, &[HoleClass])| BarPanel {
        name: (*name).to_owned(),
        bars: classes.iter().map(of).collect(),
    };
    let panels = moments.iter().map(panel).collect();
    Drawing::Bars(Bars { lengths: Scale::Logarithmic, panels })
}

/// Returns bars of memory in use and of lazily freed memory.
pub(in crate::host) fn in_use(totals: Totals, lazy: Lazy) -> Option<Item> {
    let bar = |name: &str, bytes: u64| bar(name, bytes, bytes_text(bytes));
    let mut all = vec![bar("in use", totals.live_bytes), bar("freed, unpurged", lazy.bytes)];
    all.extend(lazy.limit_bytes.map(|limit| bar("purge starts at", limit)));
    bars(
        "The vmalloc space: what is in use, and what is only freed lazily",
        "The list of areas holds both; counting them together overstates use. The kernel purges at the limit, or when \
         a request finds no room.",
        [(String::new(), all)],
    )
}
