//! The page of `nofrag host pages`: what stands in the pageblocks, and where.

use nofrag_host::finding::bytes_text;
use nofrag_host::machine::pageblocks::{LITTLE, MapCell, Pageblocks};
use nofrag_host::machine::pages::{Pages, ZonePages};
use nofrag_host::picture;
use nofrag_host::snapshot::BlockCount;

use super::count;
use super::vmalloc::{findings, missing, part, verdict};
use crate::Origin;
use crate::Tone;
use crate::page::bars::{Bar, BarPanel, Bars, Lengths};
use crate::page::table::Table;
use crate::page::{Drawing, Figure, Item, Page, Tile, cells};

/// The page of `pages`.
#[must_use]
pub fn pages(pages: &Pages, origin: &Origin) -> Page {
    let mut page = Page::new("Pages of this machine, and what pins them", origin);
    let release = pages.host.release.as_deref().unwrap_or("(unknown)");
    page.lead = vec![match pages.frames {
        Some(frames) => format!(
            "Linux {release}, {} page frames of {}",
            count(frames as f64),
            bytes_text(pages.host.page_bytes)
        ),
        None => format!("Linux {release}; what each page frame is used for is not known"),
    }];
    page.verdict = Some(verdict(&pages.findings));
    page.tiles = tiles(pages);
    let mut items = vec![findings(&pages.findings)];
    for zone in &pages.zones {
        items.extend(
            zone.pageblocks
                .iter()
                .flat_map(|blocks| {
                    [Some(map(zone, blocks)), Some(uses(zone, blocks, pages)), pinned(zone, blocks)]
                })
                .flatten(),
        );
        items.push(free_blocks(zone));
    }
    items.extend(missing(&pages.missing));
    page.parts = vec![part("pages", "What stands where", origin, items)];
    page
}

/// The pageblocks of the whole machine.
fn tiles(pages: &Pages) -> Vec<Tile> {
    let zones: Vec<&Pageblocks> =
        pages.zones.iter().filter_map(|zone| zone.pageblocks.as_ref()).collect();
    let sum = |of: fn(&Pageblocks) -> u64| zones.iter().map(|zone| of(zone)).sum::<u64>();
    let tile = |value: u64, what: &str| Tile {
        tone: Tone::Plain,
        value: count(value as f64),
        what: what.to_owned(),
    };
    if zones.is_empty() {
        return Vec::new();
    }
    vec![
        tile(sum(|zone| zone.pageblocks), "pageblocks"),
        tile(sum(|zone| zone.free), "are free"),
        tile(sum(|zone| zone.pinned), "hold something that stays"),
        tile(sum(|zone| zone.after_compaction), "at most free after compaction"),
        tile(sum(|zone| zone.after_reclaim), "at most after page cache is dropped too"),
    ]
}

fn map(zone: &ZonePages, blocks: &Pageblocks) -> Item {
    // What stays goes before what can be moved: a little of it keeps a whole piece from being whole.
    let cell = |cell: &MapCell| match cell.pinned {
        0 => picture::Cell { solid_bytes: 0, faint_bytes: cell.movable, free_bytes: cell.free },
        pinned => picture::Cell {
            solid_bytes: pinned,
            faint_bytes: 0,
            free_bytes: cell.free.saturating_add(cell.movable),
        },
    };
    let drawn = vec![picture::Piece::Cells(blocks.map.iter().map(cell).collect())];
    let ends = ["the first pageblock".to_owned(), "the last".to_owned()];
    let mut drawing = cells::hole_map(&drawn, "can be moved", ends);
    for (_, text) in &mut drawing.legend {
        *text = text.replace("in use", "stays");
    }
    Item::Figure(Figure {
        title: format!("{}: where something stays", zone.label),
        says: format!(
            "The zone from its first pageblock to its last: {} free, {} in use with nothing that stays, {} with \
             something that stays, {} of them by at most one page in {LITTLE}.",
            blocks.free, blocks.movable, blocks.pinned, blocks.pinned_by_little
        ),
        drawing: Drawing::Cells(drawing),
    })
}

fn uses(zone: &ZonePages, blocks: &Pageblocks, pages: &Pages) -> Item {
    let all: u64 = blocks.uses.iter().map(|each| each.pages).sum();
    let row = |each: &nofrag_host::machine::pageblocks::UseCount| {
        let by = blocks.pinned_by.iter().find(|by| by.usage == each.usage);
        let cell = |pageblocks: Option<u64>| {
            pageblocks.map_or_else(|| "-".to_owned(), |blocks| count(blocks as f64))
        };
        vec![
            each.usage.words().to_owned(),
            count(each.pages as f64),
            bytes_text(each.pages.saturating_mul(pages.host.page_bytes)),
            format!("{:.1} %", each.pages as f64 * 100.0 / all.max(1) as f64),
            cell(by.map(|by| by.pageblocks)),
            cell(by.map(|by| by.alone)),
        ]
    };
    let header = ["frames", "pages", "bytes", "share", "pins pageblocks", "alone"];
    Item::Table(Table::of_texts(
        format!("{}: what frames are used for", zone.label),
        "A row is one use of frames; it pins a pageblock if at least one of its pages stands there, alone if nothing \
         else that stays does."
            .to_owned(),
        1,
        header.map(str::to_owned).to_vec(),
        blocks.uses.iter().map(row).collect(),
    ))
}

/// Pinned pageblocks by how many of their pages stay.
fn pinned(zone: &ZonePages, blocks: &Pageblocks) -> Option<Item> {
    let bar = |class: &nofrag_host::machine::pageblocks::PinnedClass| Bar {
        name: match class.from_pages == class.to_pages {
            true => class.from_pages.to_string(),
            false => format!("{} to {}", class.from_pages, class.to_pages),
        },
        value: class.pageblocks as f64,
        text: count(class.pageblocks as f64),
    };
    let bars: Vec<Bar> = blocks.pinned_classes.iter().map(bar).collect();
    (!bars.is_empty()).then(|| {
        Item::Figure(Figure {
            title: format!("{}: pinned pageblocks by pages that stay", zone.label),
            says: "A bar is the number of pageblocks in which so many pages stay where they are. Long bars at the top: \
                   a few pages of the kernel cost whole blocks."
                .to_owned(),
            drawing: Drawing::Bars(Bars {
                lengths: Lengths::Linear,
                panels: vec![BarPanel { name: String::new(), bars }],
            }),
        })
    })
}

/// Free blocks by order: of all types as listed and as found, then of each type.
fn free_blocks(zone: &ZonePages) -> Item {
    let cell =
        |blocks: Option<u64>| blocks.map_or_else(|| "-".to_owned(), |blocks| count(blocks as f64));
    let of_type = |each: BlockCount| match each {
        BlockCount::Exactly(blocks) => count(blocks as f64),
        BlockCount::MoreThan(bound) => format!(">{}", count(bound as f64)),
    };
    let mut rows = vec![
        [
            vec!["all, as listed".to_owned()],
            zone.free_blocks.iter().map(|row| cell(row.listed)).collect(),
        ]
        .concat(),
        [
            vec!["all, as found".to_owned()],
            zone.free_blocks.iter().map(|row| cell(row.found)).collect(),
        ]
        .concat(),
    ];
    for row in &zone.types {
        let blocks = row.blocks.iter().map(|&blocks| of_type(blocks));
        let mut cells = vec![row.migratetype.clone()];
        cells.extend(blocks);
        cells.resize(zone.free_blocks.len() + 1, "-".to_owned());
        rows.push(cells);
    }
    let mut header = vec!["type".to_owned()];
    header.extend(zone.free_blocks.iter().map(|row| format!("order {}", row.order)));
    Item::Table(Table::of_texts(
        format!("{}: free blocks by order", zone.label),
        "A row is a way to count: by buddyinfo, by the frames themselves, and by pagetypeinfo for each type. The files \
         are not of one moment."
            .to_owned(),
        1,
        header,
        rows,
    ))
}
