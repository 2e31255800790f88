//! The page of `nofrag host maps`.

use nofrag_host::process::{Group, ProcessReport};

use super::neighbours;
use crate::host::parts::{cards, figure, headline, known, missing_item, part, tile, tile_of};
use crate::host::vmalloc::{CELLS, hole_sizes, holes};
use crate::page::{Drawing, Item, Page, Tile, cells};
use crate::{Origin, Tone, bytes_text};

/// Returns the page of `report`.
#[must_use]
pub fn page(report: &ProcessReport, origin: &Origin) -> Page {
    let process = &report.process;
    let pid = process.pid.map(|pid| pid.to_string());
    let (pid, name) = (known(pid.as_ref()), known(process.name.as_ref()));
    let mut page = Page::new(format!("Address space of process {pid} ({name})"), origin);
    page.headline = Some(headline(&report.findings));
    page.tiles = tiles(report);
    let mut items = vec![cards(&report.findings), hole_map(report), hole_bars(report)];
    let groups = |what, groups: &[Group], title, caption| {
        super::groups(what, groups, report, MOST_ROWS, str::to_owned).item(title, caption)
    };
    items.extend(groups("kind", &report.kinds, "Areas by kind", "A row is one kind of area."));
    let caption = "A row is one file or one kind of memory.";
    items.extend(groups("name", &report.names, "Areas by name", caption));
    if report.neighbours.pairs > 0 {
        items.extend(neighbours(report, usize::MAX).item(
            "What keeps neighbours apart",
            "A row is one reason why areas without a hole between them are not one area; each costs an entry of \
             vm.max_map_count.",
        ));
    }
    items.extend(placements(report));
    items.extend(missing_item(&report.missing));
    page.parts = vec![part("maps", "What is in it", origin, items)];
    page
}

/// The most rows of a table: more of them tell less than the first ones.
const MOST_ROWS: usize = 60;

fn tiles(report: &ProcessReport) -> Vec<Tile> {
    let (areas, headroom) = (&report.count, &report.space.headroom);
    let is_near = areas.share().is_some_and(|share| share > 0.8);
    let tone = if is_near { Tone::Bad } else { Tone::Plain };
    let mut tiles = vec![Tile { tone, ..tile_of(areas.areas, "areas") }];
    tiles.extend(areas.limit.map(|limit| tile_of(limit, "areas that vm.max_map_count allows")));
    tiles.push(tile(bytes_text(report.mapped_bytes), "mapped"));
    let largest = bytes_text(headroom.largest_mapping_bytes);
    tiles.push(tile(largest, "largest mapping that would succeed"));
    tiles
}

fn hole_map(report: &ProcessReport) -> Item {
    let space = &report.space;
    let ends = [format!("{:#018x}", space.start), format!("{:#018x}", space.end)];
    figure(
        "Hole map",
        format!(
            "{} of address space, lowest address left: what is mapped, what nobody may touch (guards and \
             reservations), and the holes. A hole that would fill more than half of the line is cut out and stands \
             there with its size. {} are free in {}.",
            bytes_text(space.end - space.start),
            bytes_text(space.room.free_bytes),
            holes(space.room.holes),
        ),
        Drawing::Cells(cells::hole_map(&space.draw(CELLS), "without access", ends)),
    )
}

fn hole_bars(report: &ProcessReport) -> Item {
    figure(
        "Holes by size",
        "A bar is the number of holes between its size and twice that, with their sum; a mapping fits into one hole, \
         not into many.",
        hole_sizes(&[("", &report.space.room.classes)]),
    )
}

fn placements(report: &ProcessReport) -> Option<Item> {
    super::placements(report)?.item(
        "The same mappings under other placements",
        "A row is one rule that places the same mappings anew, in the order of address: areas and holes between them, \
         mappings with holes over mappings alone, the largest hole, and the share of huge pages that anonymous memory \
         could hold.",
    )
}
