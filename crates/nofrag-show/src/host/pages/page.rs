//! The page of `nofrag host pages`.

use nofrag_host::machine::pageblocks::{LITTLE, MapCell, Pageblocks, PinnedClass};
use nofrag_host::machine::pages::{Pages, ZonePages};
use nofrag_host::picture;

use super::{SLABS, free_blocks, heading, pages_that_stay, slabs, uses};
use crate::host::parts::{bar, bars, cards, figure, headline_of, missing_item, part, tile_of};
use crate::page::{Drawing, Item, Page, Tile, cells};
use crate::{Origin, count};

/// Returns the page of `pages`.
#[must_use]
pub fn page(pages: &Pages, origin: &Origin) -> Page {
    let mut page = Page::new("Pages of this machine, and what pins them", origin);
    page.lead = vec![heading(pages)];
    page.headline = Some(headline_of(pages.verdict.as_ref(), &pages.findings));
    page.tiles = tiles(pages);
    let mut items = vec![cards(&pages.findings)];
    for zone in &pages.zones {
        if let Some(blocks) = &zone.pageblocks {
            items.push(map(zone, blocks));
            items.extend(uses(blocks, pages.host.page_bytes).item(
                format!("{}: what frames are used for", zone.label),
                "A row is one use of frames; it pins a pageblock if at least one of its pages stands there, alone if \
                 nothing else that stays does.",
            ));
            items.extend(pinned(zone, blocks));
        }
        items.extend(free_blocks(zone, &zone.types).item(
            format!("{}: free blocks by order", zone.label),
            "A row is a way to count: by buddyinfo, by the frames themselves, and by pagetypeinfo for each type. The \
             files are not of one moment.",
        ));
    }
    items.extend(
        slabs(pages).map(|slabs| Item::Lines { title: SLABS.to_owned(), lines: vec![slabs] }),
    );
    items.extend(missing_item(&pages.missing));
    page.parts = vec![part("pages", "What stands where", origin, items)];
    page
}

/// Returns the pageblocks of the whole machine.
fn tiles(pages: &Pages) -> Vec<Tile> {
    let zones: Vec<&Pageblocks> =
        pages.zones.iter().filter_map(|zone| zone.pageblocks.as_ref()).collect();
    if zones.is_empty() {
        return Vec::new();
    }
    let sum = |of: fn(&Pageblocks) -> u64| zones.iter().map(|zone| of(zone)).sum::<u64>();
    vec![
        tile_of(sum(|zone| zone.pageblocks), "pageblocks"),
        tile_of(sum(|zone| zone.free), "are free"),
        tile_of(sum(|zone| zone.pinned), "hold something that stays"),
        tile_of(sum(|zone| zone.after_compaction), "at most free after compaction"),
        tile_of(sum(|zone| zone.after_reclaim), "at most after page cache is dropped too"),
    ]
}

fn map(zone: &ZonePages, blocks: &Pageblocks) -> Item {
    // Pinned pages go before movable ones: a few of them keep a whole piece from being whole.
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
    figure(
        format!("{}: where something stays", zone.label),
        format!(
            "The zone from its first pageblock to its last: {} free, {} in use with nothing that stays, {} with \
             something that stays, {} of them by at most one page in {LITTLE}.",
            blocks.free, blocks.movable, blocks.pinned, blocks.pinned_by_little
        ),
        Drawing::Cells(drawing),
    )
}

/// Returns bars of the pinned pageblocks by the number of pages that stay.
fn pinned(zone: &ZonePages, blocks: &Pageblocks) -> Option<Item> {
    let of = |class: &PinnedClass| {
        bar(pages_that_stay(class), class.pageblocks, count(class.pageblocks as f64))
    };
    bars(
        format!("{}: pinned pageblocks by pages that stay", zone.label),
        "A bar is the number of pageblocks in which so many pages stay where they are. Long bars at the top: a few \
         pages of the kernel cost whole blocks.",
        [(String::new(), blocks.pinned_classes.iter().map(of).collect())],
    )
}
