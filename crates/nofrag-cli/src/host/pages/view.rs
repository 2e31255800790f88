//! The report of `nofrag host pages` as text for people.

use nofrag_host::finding::bytes_text;
use nofrag_host::machine::pageblocks::{LITTLE, MapCell, Pageblocks};
use nofrag_host::machine::pages::{Pages, ZonePages};
use nofrag_host::picture::Ink;
use nofrag_host::snapshot::BlockCount;
use nofrag_show::{inked, inks};

use crate::host::text::{self, Numbers, hanging, percent, sentence, wrapped};
use nofrag_show::Look;

/// The whole page.
pub(crate) fn page(pages: &Pages, look: Look) -> String {
    let release = pages.host.release.as_deref().unwrap_or("(unknown)");
    let page = pages.host.page_bytes;
    let heading = match pages.frames {
        Some(frames) => format!(
            "Linux {release}, {frames} page frames of {}, pageblocks of {}",
            bytes_text(page),
            bytes_text(page.checked_shl(pages.host.pageblock_order).unwrap_or(u64::MAX))
        ),
        None => format!(
            "Linux {release}, pages of {}; what each frame is used for is not known",
            bytes_text(page)
        ),
    };
    let mut sections = vec![wrapped("", &heading, look)];
    sections.push(text::findings(&pages.findings, look));
    sections.extend(pages.zones.iter().map(|zone| section(zone, page, look)));
    sections.extend(text::missing(&pages.missing, look));
    sections.join("\n")
}

fn section(zone: &ZonePages, page_bytes: u64, look: Look) -> String {
    let managed = zone.managed_pages.map(|pages| bytes_text(pages.saturating_mul(page_bytes)));
    let mut text = format!("{}: {}\n", zone.label, managed.as_deref().unwrap_or("of unknown size"));
    text += &orders(zone);
    if let Some(blocks) = &zone.pageblocks {
        text += &obtainable(blocks, look);
        text += &map(&blocks.map, look);
        text += &uses(blocks, page_bytes);
        text += &pinned(blocks);
    }
    text
}

/// Free blocks by order: of all types as listed and as found, then of each type.
fn orders(zone: &ZonePages) -> String {
    let mut header = vec!["  free blocks of order".to_owned()];
    header.extend(zone.free_blocks.iter().map(|row| row.order.to_string()));
    header.push("pageblocks".to_owned());
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Numbers::new(&header);
    let mut row = |name: &str, counts: Vec<String>, pageblocks: String| {
        if !counts.iter().all(String::is_empty) {
            let mut cells = vec![format!("  {name}")];
            cells.extend(counts);
            cells.push(pageblocks);
            table.row(cells);
        }
    };
    let cell = |count: Option<u64>| count.map_or(String::new(), |count| count.to_string());
    let of_all =
        zone.pageblocks.as_ref().map_or(String::new(), |blocks| blocks.pageblocks.to_string());
    row("all, as listed", zone.free_blocks.iter().map(|row| cell(row.listed)).collect(), of_all);
    row(
        "all, as found",
        zone.free_blocks.iter().map(|row| cell(row.found)).collect(),
        String::new(),
    );
    for each in &zone.types {
        let counts = each.blocks.iter().map(|count| match count {
            BlockCount::Exactly(count) => count.to_string(),
            BlockCount::MoreThan(bound) => format!(">{bound}"),
        });
        row(&each.migratetype, counts.collect(), cell(each.pageblocks));
    }
    table.text()
}

fn obtainable(blocks: &Pageblocks, look: Look) -> String {
    let perhaps = match blocks.perhaps_free {
        0 => String::new(),
        perhaps => format!(", {perhaps} perhaps by nothing but free pages on the lists of CPUs"),
    };
    let text = format!(
        "{} free, {} in use with nothing that stays, {} with something that stays ({} of them by at most one page in \
         {LITTLE}{perhaps}); whole at most {} after compaction, {} after page cache is dropped",
        blocks.free,
        blocks.movable,
        blocks.pinned,
        blocks.pinned_by_little,
        blocks.after_compaction,
        blocks.after_reclaim
    );
    hanging(&format!("  {} pageblocks: ", blocks.pageblocks), 4, &sentence(&text), look)
}

/// The zone from its first pageblock to its last.
fn map(cells: &[MapCell], look: Look) -> String {
    const INDENT: usize = 2;
    let width = look.width.saturating_sub(INDENT + 2).clamp(8, 64);
    let mut text = String::new();
    for row in cells.chunks(width) {
        let row: String = row.iter().map(|cell| glyph(cell, look)).collect();
        text += format!("  {row}").trim_end();
        text += "\n";
    }
    let [pinned, movable, free] = inks(look);
    let legend = format!(
        "from the first pageblock to the last: something stays {pinned} (from some to all of a piece), all can be \
         moved {movable}, free {free}"
    );
    text + &wrapped("  ", &legend, look)
}

/// What stays goes before what can be moved: a little of it keeps a whole piece from being whole.
fn glyph(cell: &MapCell, look: Look) -> char {
    let all = cell.free + cell.movable + cell.pinned;
    match (cell.pinned, cell.movable) {
        (0, 0) if all == 0 => ' ',
        (0, part) => inked(Ink::Faint, part, all, look),
        (part, _) => inked(Ink::Solid, part, all, look),
    }
}

fn uses(blocks: &Pageblocks, page_bytes: u64) -> String {
    let all: u64 = blocks.uses.iter().map(|each| each.pages).sum();
    let mut table =
        Numbers::new(&["  frames", "pages", "bytes", "share", "pins pageblocks", "alone"]);
    for each in &blocks.uses {
        let by = blocks.pinned_by.iter().find(|by| by.usage == each.usage);
        let cell = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        table.row(vec![
            format!("  {}", each.usage.words()),
            each.pages.to_string(),
            bytes_text(each.pages.saturating_mul(page_bytes)),
            percent(each.pages, all),
            cell(by.map(|by| by.pageblocks)),
            cell(by.map(|by| by.alone)),
        ]);
    }
    table.text()
}

/// Pinned pageblocks by how many pages stay.
fn pinned(blocks: &Pageblocks) -> String {
    if blocks.pinned_classes.is_empty() {
        return String::new();
    }
    let mut table = Numbers::new(&["  pages that stay", "pageblocks", "share"]);
    for class in &blocks.pinned_classes {
        let name = match class.from_pages == class.to_pages {
            true => format!("  {}", class.from_pages),
            false => format!("  {} to {}", class.from_pages, class.to_pages),
        };
        table.row(vec![
            name,
            class.pageblocks.to_string(),
            percent(class.pageblocks, blocks.pinned),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use nofrag_show::Glyphs;

    use super::*;

    #[test]
    fn what_stays_does_not_vanish_from_the_map() {
        let ascii = Look { glyphs: Glyphs::Ascii, ..Look::FILE };
        let cell = |free, movable, pinned| MapCell { free, movable, pinned };
        let shown =
            [(9, 0, 0), (99, 0, 1), (0, 50, 50), (0, 0, 9), (99, 1, 0), (0, 9, 0), (0, 0, 0)]
                .map(|(free, movable, pinned)| glyph(&cell(free, movable, pinned), ascii));
        assert_eq!(shown.iter().collect::<String>(), ".-+#,% ");
    }
}
