//! `nofrag host pages`: the contents of the pageblocks, and their places.

mod brief;
mod page;
mod text;

use nofrag_host::machine::pageblocks::{Pageblocks, PinnedClass};
use nofrag_host::machine::pages::{Pages, ZonePages};
use nofrag_host::machine::zones::TypeRow;
use nofrag_host::snapshot::BlockCount;

pub use brief::brief;
pub use page::page;
pub use text::text;

use super::parts::known;
use crate::{Cell, Table, bytes, bytes_text, cells, sentence};

/// Returns the kernel and its page frames.
fn heading(pages: &Pages) -> String {
    let release = known(pages.host.release.as_ref());
    let page = pages.host.page_bytes;
    match pages.frames {
        Some(frames) => format!(
            "Linux {release}, {frames} page frames of {}, pageblocks of {}",
            bytes_text(page),
            bytes_text(page.checked_shl(pages.host.pageblock_order).unwrap_or(u64::MAX))
        ),
        None => format!(
            "Linux {release}, pages of {}; what each frame is used for is not known",
            bytes_text(page)
        ),
    }
}

/// Returns free blocks by order, and pageblocks: of all types as listed and as found, then of each of `types`. A row
/// without any known number is left out.
fn free_blocks<'a>(zone: &ZonePages, types: impl IntoIterator<Item = &'a TypeRow>) -> Table {
    const PAGEBLOCKS: &str = "pageblocks";
    let orders = zone.free_blocks.iter().map(|row| row.order.to_string());
    let header: Vec<String> = std::iter::once("free blocks of order".to_owned())
        .chain(orders)
        .chain([PAGEBLOCKS.to_owned()])
        .collect();
    let mut grid = Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>());
    let mut row = |name: &str, counts: Vec<Option<Cell>>, pageblocks: Option<u64>| {
        if counts.iter().any(Option::is_some) {
            let known = |value: Option<Cell>| value.unwrap_or_else(|| "".into());
            let mut cells = cells![name];
            cells.extend(counts.into_iter().map(known));
            cells.push(known(pageblocks.map(Into::into)));
            grid.row(cells);
        }
    };
    let listed = zone.free_blocks.iter().map(|row| row.listed.map(Into::into)).collect();
    let found = zone.free_blocks.iter().map(|row| row.found.map(Into::into)).collect();
    row("all, as listed", listed, zone.pageblocks.as_ref().map(|blocks| blocks.pageblocks));
    row("all, as found", found, None);
    for each in types {
        let counts = each.blocks.iter().map(|count| {
            Some(match count {
                BlockCount::Exactly(count) => (*count).into(),
                BlockCount::MoreThan(bound) => format!(">{bound}").into(),
            })
        });
        row(&each.migratetype, counts.collect(), each.pageblocks);
    }
    grid
}

/// Returns the uses of frames, and the pageblocks that each use pins.
fn uses(blocks: &Pageblocks, page_bytes: u64) -> Table {
    let all: u64 = blocks.uses.iter().map(|each| each.pages).sum();
    let mut grid = Table::new(&["frames", "pages", "bytes", "share", "pins pageblocks", "alone"]);
    for each in &blocks.uses {
        let by = blocks.pinned_by.iter().find(|by| by.usage == each.usage);
        grid.row(cells![
            each.usage.into_str(),
            each.pages,
            bytes(each.pages.saturating_mul(page_bytes)),
            Cell::share(each.pages, all),
            by.map(|by| by.pageblocks),
            by.map(|by| by.alone),
        ]);
    }
    grid
}

/// Names the caches of kernel objects that hold most memory; `None` where they are not known.
fn slabs(pages: &Pages) -> Option<String> {
    let size = |pages_of: u64| bytes_text(pages_of.saturating_mul(pages.host.page_bytes));
    let slabs: Vec<String> =
        pages.slabs.iter().map(|slab| format!("{}, {}", slab.name, size(slab.pages))).collect();
    (!slabs.is_empty()).then(|| sentence(&slabs.join("; ")))
}

/// The title of these caches. No file tells which frames are whose.
const SLABS: &str = "Most slab memory";

/// Returns the range of pages that stay in a class of pageblocks.
fn pages_that_stay(class: &PinnedClass) -> String {
    match class.from_pages == class.to_pages {
        true => class.from_pages.to_string(),
        false => format!("{} to {}", class.from_pages, class.to_pages),
    }
}
