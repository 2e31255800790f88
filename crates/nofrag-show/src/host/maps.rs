//! The page of `nofrag host maps`.

use nofrag_host::finding::bytes_text;
use nofrag_host::process::finding::reason;
use nofrag_host::process::replay::Outcome;
use nofrag_host::process::{Group, Report};

use super::count;
use super::vmalloc;
use super::vmalloc::{CELLS, findings, hole_sizes, missing, part, verdict};
use crate::Origin;
use crate::Tone;
use crate::page::table::Table;
use crate::page::{Drawing, Figure, Item, Page, Tile, cells};

/// The page of `report`.
#[must_use]
pub fn maps(report: &Report, origin: &Origin) -> Page {
    let process = &report.process;
    let name = process.name.clone().unwrap_or_else(|| "(unknown)".to_owned());
    let pid = process.pid.map_or("(unknown)".to_owned(), |pid| pid.to_string());
    let mut page = Page::new(format!("Address space of process {pid} ({name})"), origin);
    page.verdict = Some(verdict(&report.findings));
    page.tiles = tiles(report);
    let mut items = vec![findings(&report.findings), hole_map(report), holes(report)];
    items.push(groups("Areas by kind", "A row is one kind of area.", &report.kinds));
    items.push(groups("Areas by name", "A row is one file or one kind of memory.", &report.names));
    items.extend(neighbours(report));
    items.extend(placements(report));
    items.extend(missing(&report.missing));
    page.parts = vec![part("maps", "What is in it", origin, items)];
    page
}

fn tiles(report: &Report) -> Vec<Tile> {
    let tile = |tone, value: String, what: &str| Tile { tone, value, what: what.to_owned() };
    let areas = &report.count;
    let near = if areas.share().is_some_and(|share| share > 0.8) { Tone::Bad } else { Tone::Plain };
    let mut tiles = vec![tile(near, count(areas.areas as f64), "areas")];
    tiles.extend(
        areas.limit.map(|limit| {
            tile(Tone::Plain, count(limit as f64), "areas that vm.max_map_count allows")
        }),
    );
    tiles.push(tile(Tone::Plain, bytes_text(report.mapped_bytes), "mapped"));
    let headroom = &report.space.headroom;
    tiles.push(tile(
        Tone::Plain,
        bytes_text(headroom.largest_mapping_bytes),
        "largest mapping that would succeed",
    ));
    tiles
}

fn hole_map(report: &Report) -> Item {
    let space = &report.space;
    let ends = [format!("{:#018x}", space.start), format!("{:#018x}", space.end)];
    Item::Figure(Figure {
        title: "Hole map".to_owned(),
        says: format!(
            "{} of address space, lowest address left: what is mapped, what nobody may touch (guards and \
             reservations), and the holes. A hole that would fill more than half of the line is cut out and stands \
             there with its size. {} are free in {}.",
            bytes_text(space.end - space.start),
            bytes_text(space.room.free_bytes),
            vmalloc::holes(space.room.holes),
        ),
        drawing: Drawing::Cells(cells::hole_map(&space.draw(CELLS), "without access", ends)),
    })
}

fn holes(report: &Report) -> Item {
    Item::Figure(Figure {
        title: "Holes by size".to_owned(),
        says: "A bar is the number of holes between its size and twice that, with their sum; a mapping fits into one \
               hole, not into many."
            .to_owned(),
        drawing: Drawing::Bars(hole_sizes(&[("", &report.space.room.classes)])),
    })
}

/// More rows than this say less than the rows themselves.
const MOST_ROWS: usize = 60;

fn groups(title: &str, caption: &str, groups: &[Group]) -> Item {
    let row = |group: &Group| {
        vec![group.name.clone(), count(group.areas as f64), bytes_text(group.bytes)]
    };
    let mut caption = caption.to_owned();
    if let Some(more) = groups.len().checked_sub(MOST_ROWS + 1) {
        caption += &format!(" {} more with fewer areas are left out.", more + 1);
    }
    let header = ["name", "areas", "bytes"].map(str::to_owned).to_vec();
    let rows = groups.iter().take(MOST_ROWS).map(row).collect();
    Item::Table(Table::of_texts(title.to_owned(), caption, 1, header, rows))
}

fn neighbours(report: &Report) -> Option<Item> {
    let row = |group: &nofrag_host::process::blockers::BlockerGroup| {
        let example = group.examples.first().map_or_else(String::new, |example| {
            format!("{}, below it {}, at {:#x}", example.above, example.below, example.at)
        });
        vec![reason(group), example, count(group.pairs as f64)]
    };
    let rows: Vec<Vec<String>> = report.neighbours.groups.iter().map(row).collect();
    let header = ["stay apart by", "the first of them", "pairs"].map(str::to_owned).to_vec();
    let caption = "A row is one reason why areas without a hole between them are not one area; each costs an entry of \
                   vm.max_map_count.";
    (!rows.is_empty()).then(|| {
        Item::Table(Table::of_texts(
            "What keeps neighbours apart".to_owned(),
            caption.to_owned(),
            2,
            header,
            rows,
        ))
    })
}

fn placements(report: &Report) -> Option<Item> {
    let replay = &report.replay;
    let row = |name: &str, outcome: &Outcome| {
        vec![
            name.to_owned(),
            count(outcome.areas as f64),
            count(outcome.holes as f64),
            bytes_text(outcome.hole_bytes),
            format!("{:.3}", outcome.ratio),
            bytes_text(outcome.largest_hole_bytes),
            outcome.huge_share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
        ]
    };
    let mut rows = vec![row("as they are", &replay.now)];
    rows.extend(replay.placements.iter().map(|placed| row(placed.name, &placed.outcome)));
    let header = ["placement", "areas", "holes", "bytes", "ratio", "largest hole", "2 MiB whole"];
    let caption = "A row is one rule that places the same mappings anew, in the order of address: areas and holes \
                   between them, mappings with holes over mappings alone, the largest hole, and the share of huge \
                   pages that anonymous memory could hold.";
    (!replay.placements.is_empty()).then(|| {
        Item::Table(Table::of_texts(
            "The same mappings under other placements".to_owned(),
            caption.to_owned(),
            1,
            header.map(str::to_owned).to_vec(),
            rows,
        ))
    })
}
